//! The Rust steps for a row, with one guard each.
//!
//! [`Scan::go_to_row`] decodes the first columns of the next row, [`convert_rest`] the others.
//! [`Scan::raise_out_of_order`] raises an error about it. [`next_decoded`] replaces [`Scan::go_to_row`] for most rows, without a guard.
//! The loops that call these steps are plain frames: a scan's, and that of a scan that aggregates rows
//! (`aggregate::run`).

use std::ffi::CStr;

use pgrx::PgSqlErrorCode as Code;

use super::Scan;
use crate::error::{Error, OrRaise};
use crate::rows::row::Rows;
use crate::rows::row::pump::{Policy, Pump, RowOutcome};
use crate::rows::soft::Verbosity;
use crate::server::server_text::from_server;
use crate::server::unguarded::guarded;

impl Scan {
    /// Goes to the next row and decodes the first columns. Guarded.
    #[inline]
    pub fn go_to_row(&mut self) -> RowOutcome {
        let Some(rows) = &mut self.rows else { return RowOutcome::End };
        if rows.follow_settings() {
            let Pump { policy, sink } = &mut self.pump;
            sink.decode_together(rows, policy);
        }
        self.pump.next(rows).or_raise()
    }

    /// Raises the error about a row that violates the order by this column. Guarded.
    pub(super) fn raise_out_of_order(&mut self, column: usize) {
        if let (Some(order), Some(rows)) = (&self.order, &mut self.rows) {
            // The line may hold data that the user may not see.
            (rows.context.is_discreet, rows.context.is_converting) = (true, false);
            order.complaint(column, self.relation).raise();
        }
    }

    /// Rejects the record that the filter has raised an error for, with this message. Guarded.
    pub(super) fn leave_out(&mut self, message: &CStr) {
        self.pump.policy.uncount_row();
        let Policy { tolerance, .. } = &mut self.pump.policy;
        if let Some(rows) = self.rows.as_mut().filter(|_| tolerance.verbosity == Verbosity::Verbose) {
            rows.note_record(&Error::new(Code::ERRCODE_SUCCESSFUL_COMPLETION, from_server(message)));
        }
        tolerance.count().or_raise();
    }
}

/// Goes to the next row, if that was decoded together with the one before.
///
/// # Safety
/// A plain frame; a valid scan that nothing else uses.
#[inline]
pub unsafe fn next_decoded(scan: *mut Scan) -> bool {
    // SAFETY: this function's contract covers the argument. Only `make_datums` raises, and nothing has a destructor.
    unsafe {
        if !(*scan).goes_on() {
            return false;
        }
        let Some(rows) = (*scan).rows.as_mut() else { return false };
        if !rows.advance_decoded() {
            return false;
        }
        if (*scan).pump.sink.has_raw {
            guarded(|| rows.make_datums().or_raise());
        }
        (*scan).pump.sink.take_decoded(rows);
    }
    true
}

/// Converts the columns that the quals did not read.
///
/// # Safety
/// A plain frame; a valid scan and its rows.
#[inline]
pub unsafe fn convert_rest(scan: *mut Scan, rows: *mut Rows) {
    // SAFETY: this function's contract covers both arguments. `fit` has made the list of columns with an attribute, for
    // which the sink has arrays.
    unsafe {
        let sink = &raw const (*scan).pump.sink;
        if (*sink).rest.is_empty() {
            return;
        }
        guarded(|| {
            if (*rows).decoded().is_some() {
                // The first columns have not been decoded one by one.
                (*rows).reset();
            }
            (*rows).decode(&(*sink).rest, (*sink).arrays);
        });
        if (*rows).has_queue() {
            Rows::convert(rows, (*sink).arrays, (*sink).econtext.as_ptr());
        }
    }
}
