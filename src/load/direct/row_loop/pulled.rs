//! Rows that are pulled one by one: from a query, or from the plan of a join, which pulls records.

use pgrx::pg_sys;

use crate::error::OrRaise;
use crate::load::direct::join::{self, Join};
use crate::load::direct::process::{Beginning, Process};
use crate::load::query::Query;
use crate::program::projection;
use crate::rows::row::pump::RowOutcome;
use crate::rows::row::{RowArrays, Rows};
use crate::server::stages::Stage;
use crate::server::unguarded::{self, Opaque, guarded};

/// Makes the target's attributes of the query's next row, without defaults that are expressions. False at the end of
/// the query or of the limit.
///
/// # Safety
/// A plain frame; a valid process that has this query, and the arrays of its slot.
pub(super) unsafe fn next_of_query(process: *mut Process, query: &Query, arrays: RowArrays) -> bool {
    // SAFETY: a plain frame, and a valid process; nothing here has a destructor.
    unsafe {
        let rows = &raw mut (*process).rows;
        unguarded::check_for_interrupts();
        if (*process).quota.is_full() {
            return false;
        }
        if (*process).progress.ends_round() {
            guarded(|| (*process).show());
        }
        // Errors of the query itself are not about one of its rows.
        (*rows).context.is_quiet = true;
        let more = query.next(arrays);
        (*rows).context.is_quiet = false;
        if !more {
            return false;
        }
        (*rows).count_row_of_query();
        // A guard for each row is expensive.
        if (*process).recipe.defaults.sets() {
            guarded(|| (*process).recipe.defaults.set(arrays).or_raise());
        }
        true
    }
}

/// Makes the target's attributes of a join's next row, without defaults that are expressions. False at the end.
///
/// # Safety
/// A plain frame; a valid process that has this join, and the arrays of its slot.
pub(super) unsafe fn next_of_join(process: *mut Process, join: *const Join, arrays: RowArrays) -> bool {
    // SAFETY: a plain frame, and a valid process; nothing here has a destructor.
    unsafe {
        // Errors of the plan itself are not about a line of the file.
        (*process).rows.context.is_quiet = true;
        let more = join::next(join, arrays);
        // Rows that were spilled to disk come after all lines have been read.
        (*process).rows.context.is_quiet = more && (*join).has_read_all();
        // A guard for each row is expensive.
        if more && (*process).recipe.defaults.sets() {
            guarded(|| (*process).recipe.defaults.set(arrays).or_raise());
        }
        more
    }
}

/// Makes the next record that passes the scan's conditions a row of the foreign table, for the plan above. False at the
/// end. Adds the number of records that did not pass to `filtered`.
///
/// # Safety
/// A plain frame; a valid [`Process`] with a join, whose memory for fields is empty; no other reference to the number
/// is in use.
pub(super) unsafe fn fetch(process: Opaque, filtered: *mut u64) -> bool {
    // SAFETY: this function's contract covers the process and the number; nothing in this frame has a destructor.
    unsafe {
        let process = process.cast::<Process>();
        let Some(projection) = (*process).recipe.projection.as_mut() else { return false };
        let projection = &raw mut *projection;
        let rows = &raw mut (*process).rows;
        let (econtext, memory) = ((*process).recipe.fields.as_ptr(), (*process).recipe.fields.memory());
        loop {
            pg_sys::CurrentMemoryContext = memory;
            ((*rows).context.is_quiet, (*rows).context.is_converting) = (false, true);
            let outcome = guarded(|| (*process).advance().or_raise());
            if outcome == RowOutcome::End {
                (*rows).context.is_quiet = true;
                if (*process).quota.records > 0 {
                    return false;
                }
                let Some(Beginning { begin, leader, memory }) = (*process).quota.beginning.take() else { return false };
                // Memory of the workers' state must stay as long as the workers.
                pg_sys::CurrentMemoryContext = memory;
                begin(leader);
                (*process).quota.records = u64::MAX;
                continue;
            }
            if (*rows).has_queue() {
                let mut watch = (*process).progress.stages.sample();
                Rows::convert(rows, (*projection).arrays(), econtext);
                (*process).progress.stages.lap_sample(&mut watch, Stage::Convert);
            }
            if outcome == RowOutcome::Short {
                projection::convert_rest(rows, projection, econtext);
                guarded(|| (*rows).check_missing().or_raise());
            }
            let passes = projection::passes(rows, projection, econtext);
            (*rows).context.is_quiet = true;
            if passes {
                return true;
            }
            (*process).progress.filtered += 1;
            *filtered += 1;
            unguarded::MemoryContextReset(memory);
        }
    }
}
