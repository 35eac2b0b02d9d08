//! Rows made by the table's filter, and records that it rejects.

use std::ffi::CStr;

use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::Scan;
use crate::error::{Error, OrRaise};
use crate::fdw::filter::call;
use crate::program::filter::RowFilter;
use crate::program::projection::Made;
use crate::rows::row::pump::Policy;
use crate::rows::row::{RowArrays, Rows};
use crate::rows::soft::Verbosity;
use crate::server::server_text::from_server;

/// Makes the table's row from the record whose fields were converted. False if the filter leaves it out.
///
/// # Safety
/// A plain frame; a scan with this filter, its rows, and the arrays of its slot. COPY's context is pushed.
pub(super) unsafe fn make(scan: *mut Scan, this: *const RowFilter, rows: *mut Rows, arrays: RowArrays) -> bool {
    // SAFETY: this function's contract covers all arguments; nothing here has a destructor.
    unsafe {
        match call(this, rows, arrays) {
            Made::Row | Made::Tuple(_) => true,
            Made::Nothing => {
                (*scan).pump.policy.uncount_row();
                false
            }
            Made::Bad(error) => {
                leave_out(scan, error);
                false
            }
        }
    }
}

/// Rejects the record that the function has raised an error for.
///
/// # Safety
/// A valid scan, and the error.
#[pg_guard]
unsafe extern "C-unwind" fn leave_out(scan: *mut Scan, error: *mut pg_sys::ErrorData) {
    // SAFETY: this function's contract covers both arguments; an error has a message.
    unsafe {
        let scan = &mut *scan;
        scan.pump.policy.uncount_row();
        let Policy { tolerance, .. } = &mut scan.pump.policy;
        if let Some(rows) = scan.rows.as_mut().filter(|_| tolerance.verbosity == Verbosity::Verbose) {
            let text = from_server(CStr::from_ptr((*error).message));
            rows.note_record(&Error::new(Code::ERRCODE_SUCCESSFUL_COMPLETION, text));
        }
        tolerance.count().or_raise();
    }
}
