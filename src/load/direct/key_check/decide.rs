//! Decides which rows stay, after all keys are collected, and rejects the others.

mod references;
mod verdict;

use pgrx::{pg_guard, pg_sys};

use super::exclusion::Exclusion;
use super::offer::Offer;
use super::{CheckedTable, PER_BLOCK};
use crate::error::Result;
use crate::index::number_sort::NumberSort;
use crate::load::direct::leader::Leader;
use crate::load::direct::origin::RecordPosition;
use crate::load::phase::{Phase, enter};

/// Decides on all rows.
///
/// # Safety
/// A plain frame outside of parallel mode, and a valid leader whose process has read the whole file.
pub unsafe fn decide(leader: *mut Leader) {
    // SAFETY: this function's contract covers all arguments; nothing in this frame has a destructor.
    unsafe {
        let Some(check) = (*leader).process.keys.as_ref() else { return };
        let check = &raw const *check;
        let caller = pg_sys::CurrentMemoryContext;
        let phases = (*leader).process.progress.phases;
        enter(phases, Phase::Indexes);
        end_trails(leader);
        let (tables, count) = ((*check).tables.as_ptr(), (*check).tables.len());
        for i in 0..count {
            let table = *tables.add(i);
            if !table.is_null() {
                pg_sys::CurrentMemoryContext = (*table).memory;
                (*table).indexes.compare_sorted(&raw mut (*table).conflicts, (*table).slot);
                verdict::decide(leader, table);
            }
        }
        enter(phases, Phase::ForeignKeys);
        references::decide(leader);
        pg_sys::CurrentMemoryContext = caller;
        for i in 0..count {
            close(*tables.add(i));
        }
    }
}

/// # Safety
/// See [`decide`].
#[pg_guard]
unsafe extern "C-unwind" fn end_trails(leader: *mut Leader) {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        let process = &mut (*leader).process;
        for &table in process.keys.iter().flat_map(|check| &check.tables) {
            if !table.is_null() {
                (*table).remember((*table).rows / PER_BLOCK, &mut process.tracer.origins);
            }
        }
    }
}

/// Closes the state of a table, whose rows are not checked any more.
///
/// # Safety
/// The table is valid or null.
#[pg_guard]
unsafe extern "C-unwind" fn close(table: *mut CheckedTable) {
    // SAFETY: this function's contract covers the argument; deleting the context drops the table.
    unsafe {
        if table.is_null() {
            return;
        }
        let memory = (*table).memory;
        {
            let table = &mut *table;
            table.exclusions.iter_mut().for_each(Exclusion::close);
            table.keys.discard();
            table.offers.iter_mut().for_each(Offer::close);
            pg_sys::ExecDropSingleTupleTableSlot(table.slot);
            table.indexes.close();
        }
        pg_sys::MemoryContextDelete(memory);
    }
}

/// The table of a relation of the load.
///
/// # Safety
/// The leader is valid, and its process has a check.
unsafe fn table_of(leader: *const Leader, number: usize) -> *mut CheckedTable {
    // SAFETY: this function's contract covers the argument.
    let check = unsafe { (*leader).process.keys.as_ref() };
    check.and_then(|check| check.tables.get(number).copied()).unwrap_or(std::ptr::null_mut())
}

/// Keeps rows of a table as rejects or duplicates, in the order of the file. `record` gets the number beside the row.
///
/// # Safety
/// The leader and the table are valid; guarded.
unsafe fn leave_out(
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
        if last.replace(row) == Some(row) || table.is_removed(row) {
            continue;
        }
        table.remove(row);
        record(leader, what, RecordPosition { file: 0, position, behind })?;
        count += 1;
    }
    sort.end();
    Ok(count)
}
