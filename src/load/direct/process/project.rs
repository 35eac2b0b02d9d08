//! Makes the target's row of a process's record, by its projection.

use pgrx::pg_guard;

use super::Process;
use crate::error::OrRaise;
use crate::pg::row::{RowArrays, Rows};
use crate::pg::unguarded;
use crate::program::projection::{Made, Projection, compute, filter_to};

/// # Safety
/// A valid process with a projection.
#[pg_guard]
unsafe extern "C-unwind" fn decode_rest(process: *mut Process, projection: *const Projection) {
    // SAFETY: this function's contract covers both arguments; the arrays are as long as the foreign table's descriptor.
    unsafe { (*process).rows.decode(&(*projection).rest, (*projection).arrays()) }
}

/// Converts the remaining columns of the row.
///
/// # Safety
/// A plain frame, with the row's memory context; a valid process, and its projection.
pub unsafe fn convert_rest(process: *mut Process, projection: *mut Projection) {
    // SAFETY: this function's contract covers both arguments.
    unsafe {
        if std::mem::replace(&mut (*projection).is_partial, false) {
            decode_rest(process, projection);
            let rows = &raw mut (*process).rows;
            if (*rows).has_queue() {
                Rows::convert(rows, (*projection).arrays(), (*process).fields);
            }
        }
    }
}

/// # Safety
/// A valid process, and the arrays of its slot.
#[pg_guard]
pub unsafe extern "C-unwind" fn set_defaults(process: *mut Process, arrays: *const RowArrays) {
    // SAFETY: this function's contract covers both arguments.
    unsafe { (*process).defaults.set(*arrays) }.or_raise();
}

/// Does the row pass the conditions? If so, converts its remaining columns.
///
/// # Safety
/// A plain frame, with the memory context of the row's values; a valid process, and its projection.
pub unsafe fn passes(process: *mut Process, projection: *mut Projection) -> bool {
    // SAFETY: this function's contract covers all arguments; nothing here has a destructor.
    unsafe {
        let econtext = (*process).fields;
        let rows = &raw mut (*process).rows;
        let slot = (*projection).slot;
        unguarded::store_virtual(slot);
        (*econtext).ecxt_scantuple = slot;
        (*rows).is_converting = false;
        if !unguarded::exec_qual((*projection).quals, econtext) {
            return false;
        }
        (*rows).is_converting = true;
        convert_rest(process, projection);
        (*rows).is_converting = false;
        true
    }
}

/// Makes the target's attributes of the row, without defaults that are expressions.
///
/// # Safety
/// A plain frame, with the row's memory context; a valid process, its projection, and the arrays of its slot.
/// `as_tuple`: the row of a function may stay a tuple.
pub unsafe fn project(process: *mut Process, projection: *mut Projection, arrays: RowArrays, as_tuple: bool) -> Made {
    // SAFETY: this function's contract covers all arguments; nothing here has a destructor. Parts are within the two
    // descriptors.
    unsafe {
        if (*projection).filters {
            (*process).rows.is_converting = false;
            let made = filter_to(projection, (*process).executor.econtext, arrays, as_tuple);
            if !matches!(made, Made::Row) {
                return made;
            }
        } else {
            if !passes(process, projection) {
                return Made::Nothing;
            }
            compute(projection, (*process).executor.econtext, arrays);
        }
        // A guard for each row is expensive.
        if (*process).defaults.sets() {
            set_defaults(process, &raw const arrays);
        }
        Made::Row
    }
}
