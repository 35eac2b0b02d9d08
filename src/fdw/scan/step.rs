//! The Rust steps for a row, with one guard each.
//!
//! [`next_row`] decodes the first columns of the next row, [`finish_row`] the others; [`raise_missing`] and
//! [`raise_out_of_order`] raise errors about it. [`next_decoded`] replaces [`next_row`] for most rows, without a guard.
//! The loops that call these steps are plain frames: a scan's, and that of a scan that aggregates rows
//! (`aggregate::run`).

use pgrx::{pg_guard, pg_sys};

use super::Scan;
use crate::error::OrRaise;
use crate::fdw::parallel::participant::Participant;
use crate::pg::row::{RowArrays, Rows};
use crate::pg::soft::{Conversion, OnError};

/// Result of a guarded step for a row; a number, because it must pass the guard.
pub const END: i32 = 0;
pub const ROW: i32 = 1;
/// The row lacks fields: the caller converts the fields that exist, then raises the error.
pub const SHORT: i32 = 2;
/// The row's conversion raises an error, which the caller raises in a plain frame.
pub const RAISES: i32 = 3;

/// Goes to the next row and decodes the first columns, in a guard.
///
/// # Safety
/// A valid scan that nothing else uses, and the arrays of its slot.
#[pg_guard]
pub(super) unsafe extern "C-unwind" fn next_row(
    scan: *mut Scan,
    values: *mut pg_sys::Datum,
    nulls: *mut bool,
    econtext: *mut pg_sys::ExprContext,
) -> i32 {
    // SAFETY: this function's contract covers the argument.
    unsafe { go_to_row(&mut *scan, RowArrays { values, nulls }, econtext) }
}

/// Goes to the next row and decodes the first columns. Guarded.
///
/// # Safety
/// The arrays of a row.
#[inline]
pub unsafe fn go_to_row(scan: &mut Scan, arrays: RowArrays, econtext: *mut pg_sys::ExprContext) -> i32 {
    if scan.rows.as_mut().is_some_and(Rows::follow_settings) {
        scan.decode_together();
    }
    loop {
        let Some(rows) = &mut scan.rows else { return END };
        if scan.limit_left == 0 {
            return END;
        }
        let more = match &mut scan.participant {
            None => rows.advance(),
            Some(participant) => participant.advance(rows, &mut scan.skip_left),
        };
        let more = match more {
            Err(error) if scan.tolerance.survives(&error) => {
                if scan.skip_left > 0 {
                    scan.skip_left -= 1;
                } else {
                    rows.leave_out_record(&mut scan.tolerance, &error).or_raise();
                }
                pgrx::check_for_interrupts!();
                continue;
            }
            more => more.or_raise(),
        };
        let bytes = rows.stream().bytes_read();
        if bytes != scan.reported {
            scan.reported = bytes;
            let (others_bytes, others_rows) = scan.participant.as_ref().map_or((0, 0), Participant::others);
            scan.progress.update(bytes + others_bytes, rows.count() + others_rows);
        }
        if !more {
            return END;
        }
        if rows.take_change().is_some() {
            scan.fit();
        }
        let Some(rows) = &mut scan.rows else { return END };
        if scan.skip_left > 0 {
            scan.skip_left -= 1;
            continue;
        }
        if let Some(decoded) = rows.decoded() {
            rows.clear_queue();
            // SAFETY: the row is new; both arrays have the columns' attributes.
            unsafe {
                rows.make_datums(decoded).or_raise();
                scan.take_decoded(decoded, arrays);
            }
            return ROW;
        }
        rows.reset();
        // SAFETY: the slot's arrays are as long as the relation's descriptor.
        unsafe { rows.decode(&scan.first, arrays) };
        if scan.tolerance.on_error != OnError::Stop && rows.has_queue() {
            // SAFETY: as above.
            match unsafe { rows.convert_softly(&mut scan.tolerance, arrays, econtext) }.or_raise() {
                Conversion::Good => (),
                Conversion::Raises => return RAISES,
                Conversion::LeftOut => {
                    pgrx::check_for_interrupts!();
                    // SAFETY: the row's own context, which is current; a guarded call.
                    unsafe { pg_sys::MemoryContextReset((*econtext).ecxt_per_tuple_memory) };
                    continue;
                }
            }
        }
        scan.limit_left -= 1;
        return if rows.is_short() { SHORT } else { ROW };
    }
}

/// Goes to the next row, if that was decoded together with the one before.
///
/// # Safety
/// As [`next_row`], but a plain frame.
#[inline]
pub unsafe fn next_decoded(scan: *mut Scan, arrays: RowArrays) -> bool {
    // SAFETY: this function's contract covers the argument. Only `make_datums` raises, and nothing has a destructor.
    unsafe {
        if !(*scan).goes_on() {
            return false;
        }
        let Some(decoded) = (*scan).rows.as_mut().and_then(Rows::advance_decoded) else { return false };
        if (*scan).has_raw {
            make_datums(scan, decoded.values, decoded.nulls);
        }
        (*scan).take_decoded(decoded, arrays);
    }
    true
}

/// Makes datums of a row that was decoded together with others.
///
/// # Safety
/// As [`next_row`], with the row's arrays, once for each row.
#[pg_guard]
unsafe extern "C-unwind" fn make_datums(scan: *mut Scan, values: *mut pg_sys::Datum, nulls: *mut bool) {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        if let Some(rows) = &mut (*scan).rows {
            rows.make_datums(RowArrays { values, nulls }).or_raise();
        }
    }
}

/// Decodes the remaining columns.
///
/// # Safety
/// As [`next_row`].
#[pg_guard]
unsafe extern "C-unwind" fn finish_row(scan: *mut Scan, values: *mut pg_sys::Datum, nulls: *mut bool) {
    // SAFETY: this function's contract covers the argument.
    let scan = unsafe { &mut *scan };
    if let Some(rows) = &mut scan.rows {
        if rows.decoded().is_some() {
            // The first columns have not been decoded one by one.
            rows.reset();
        }
        // SAFETY: as in `next_row`.
        unsafe { rows.decode(&scan.rest, RowArrays { values, nulls }) };
    }
}

/// Converts the columns that the quals did not read.
///
/// # Safety
/// A plain frame; pointers as in [`super::iterate::iterate_foreign_scan`].
#[inline]
pub unsafe fn convert_rest(scan: *mut Scan, rows: *mut Rows, arrays: RowArrays, econtext: *mut pg_sys::ExprContext) {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        if (*scan).rest.is_empty() {
            return;
        }
        finish_row(scan, arrays.values, arrays.nulls);
        if (*rows).has_queue() {
            Rows::convert(rows, arrays, econtext);
        }
    }
}

/// Raises the error about missing fields.
///
/// # Safety
/// As [`next_row`].
#[pg_guard]
pub unsafe extern "C-unwind" fn raise_missing(scan: *mut Scan) {
    // SAFETY: this function's contract covers the argument.
    if let Some(rows) = unsafe { &mut (*scan).rows } {
        rows.check_missing().or_raise();
    }
}

/// Raises the error about a row that violates the order by this column.
///
/// # Safety
/// As [`next_row`].
#[pg_guard]
pub(super) unsafe extern "C-unwind" fn raise_out_of_order(scan: *mut Scan, column: usize) {
    // SAFETY: this function's contract covers the argument.
    let scan = unsafe { &mut *scan };
    if let (Some(order), Some(rows)) = (&scan.order, &mut scan.rows) {
        // The line may hold data that the user may not see.
        (rows.is_discreet, rows.is_converting) = (true, false);
        // SAFETY: the scan's relation.
        unsafe { order.complaint(column, scan.relation) }.raise();
    }
}
