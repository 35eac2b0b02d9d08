//! Decides which rows stay, after all keys are collected, and rejects the others.

mod references;
mod verdict;

use super::{CheckedTable, PER_BLOCK};
use crate::error::Result;
use crate::index::number_sort::NumberSort;
use crate::load::direct::leader::Leader;
use crate::load::direct::origin::RecordPosition;
use crate::load::phase::Phase;
use crate::server::unguarded::guard;

impl Leader {
    /// Decides on all rows of a dry run, whose process has read the whole file. Guarded, and outside of parallel mode.
    pub fn decide_keys(&mut self) -> Result<()> {
        let Some(mut check) = self.process.writer.keys.take() else { return Ok(()) };
        self.phases().enter(Phase::Indexes);
        for table in check.tables.iter_mut().flatten() {
            table.remember(table.rows / PER_BLOCK, &mut self.process.writer.tracer.origins);
        }
        for table in check.tables.iter_mut().flatten() {
            let _memory = table.memory.enter();
            // SAFETY: all rows were added, and the slot is for rows of the table; the closure owns nothing.
            unsafe { guard(|| table.indexes.compare_sorted(&raw mut table.conflicts, table.slot)) };
            verdict::decide(self, table)?;
        }
        self.phases().enter(Phase::ForeignKeys);
        references::decide(self, &mut check)?;
        check.tables.into_iter().flatten().for_each(|table| table.close());
        Ok(())
    }
}

/// Keeps rows of a table as rejects or duplicates, in the order of the file. `record` gets the number beside the row.
/// Guarded.
fn leave_out(
    leader: &mut Leader,
    table: &mut CheckedTable,
    rows: NumberSort<4>,
    mut record: impl FnMut(&mut Leader, u64, RecordPosition) -> Result<()>,
) -> Result<u64> {
    let mut sort = leader.in_file_order(table.number, rows, table.sort_memory / 3, false)?;
    let (mut count, mut last) = (0, None);
    while let Some([position, behind, row, what, ..]) = sort.take() {
        pgrx::check_for_interrupts!();
        // If a row has several errors, the first one counts.
        if last.replace(row) == Some(row) || table.removed.has(CheckedTable::ordinal(row)) {
            continue;
        }
        table.removed.add(CheckedTable::ordinal(row));
        record(leader, what, RecordPosition { file: 0, position, behind })?;
        count += 1;
    }
    sort.end();
    Ok(count)
}
