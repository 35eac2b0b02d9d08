//! Removes orphans, rows without a parent, with `on_error = table`.
//!
//! The server would check foreign keys row by row after the last row, and fail at the first violation. Here they are
//! checked together, as without `on_error` ([`super::foreign_keys`]). If all keys have a parent, nothing more is done.
//! Otherwise the keys are sorted again, each with its row, and the orphans are deleted, like rows that conflict with an
//! index ([`super::removed_rows`]).
//!
//! ```text
//!   all relations: rows in their indexes, conflicts removed ─► check ── all keys have parents ─────► other triggers
//!                                                                └─ no ─► hunt ─► orphans are deleted ─┐
//!                                                                          ▲         any, between loaded tables
//!                                                                          └───────────────────────────┘
//! ```
//!
//! The tricky point is a reference to a row of the same load: when that row is deleted, the row that refers to it
//! becomes an orphan. So if a table refers to a loaded table, rounds go on until one finds no orphan. And no row is
//! checked before all relations have their indexes, since a query with an index would not find rows that the index
//! lacks.
//!
//! The parents that were found are locked, so they stay, and the server's own checks are not needed any more.

use super::foreign_keys::ForeignKeys;
use super::leader::Leader;
use super::new_rows::NewRows;
use super::origin::RecordPosition;
use super::removed_rows::RemovalReason;
use crate::error::Result;
use crate::heap::removal::{number_of, row_of};
use crate::index::number_sort::NumberSort;
use crate::server::holder::HeapRow;
use crate::server::memory_context::MemoryContext;
use crate::server::unguarded::guarded;

/// Deletes the current orphans of a relation of the load, and returns how many there were.
///
/// The rows are in their indexes. Keys are tracked from here on. Each sort gets `memory` kB. Guarded, and outside of
/// parallel mode.
pub fn hunt(leader: &mut Leader, rows: &NewRows, keys: &mut ForeignKeys, number: usize, memory: i32) -> Result<u64> {
    let context = MemoryContext::current().child(c"pg_bulk orphans");
    let entered = context.enter();
    keys.discard();
    keys.prepare(memory, true);
    // Rows, each with the foreign key that it violates. Two more sorts start when this one is complete.
    let mut orphans = None;
    let mut put = |key, row| {
        orphans.get_or_insert_with(|| NumberSort::new(memory / 3)).put([row, key as u64, 0, 0]);
    };
    // SAFETY: the slot has a row of the relation; the closures are plain.
    unsafe {
        rows.for_each(|slot| {
            let row = number_of(&(*slot).tts_tid);
            keys.add(slot, |key| guarded(|| put(key, row)));
        });
    }
    keys.find(put)?;
    let count = orphans.map_or(Ok(0), |orphans| leader.remove_orphans(orphans, rows, keys, number, memory / 3))?;
    drop(entered);
    // SAFETY: the sorts in the context have ended.
    unsafe { context.delete() };
    Ok(count)
}

impl Leader {
    fn remove_orphans(
        &mut self,
        orphans: NumberSort<4>,
        rows: &NewRows,
        keys: &ForeignKeys,
        number: usize,
        memory: i32,
    ) -> Result<u64> {
        let relation = rows.relation();
        let complaints = keys.complaints(relation);
        let mut sort = self.in_file_order(number, orphans, memory, false)?;
        let mut removal = self.removal(relation, number)?;
        let (mut count, mut last) = (0, None);
        while let Some([position, behind, row, key, ..]) = sort.take() {
            pgrx::check_for_interrupts!();
            // Of several violated foreign keys, the server's checks would report the first.
            if last.replace(row) == Some(row) {
                continue;
            }
            let complaint = usize::try_from(key).ok().and_then(|key| complaints.get(key)).cloned();
            let place = RecordPosition { file: 0, position, behind };
            // SAFETY: `in_file_order` has found the row among those that the load has put into the relation.
            removal.put(unsafe { HeapRow::new(relation, row_of(row)) })?;
            self.counts.loaded -= 1;
            self.leave_out(place, RemovalReason::Reject, complaint.unwrap_or_default())?;
            count += 1;
        }
        sort.end();
        removal.run()?;
        self.counts.others.add(removal.cpu);
        Ok(count)
    }
}
