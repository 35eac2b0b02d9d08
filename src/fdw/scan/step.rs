//! The steps of a row: what Rust does for it, one guard each.
//!
//! [`next_row`] has the next row as far as the first columns go, [`finish_row`] the others, [`raise_missing`] and [`raise_out_of_order`]
//! what is wrong with it. [`next_decoded`] is the same as [`next_row`] for most rows, without a guard. The loops that take these steps
//! are plain frames: a scan's, and that of a scan whose rows are added up (`aggregate::run`).

use pgrx::{pg_guard, pg_sys};

use super::Scan;
use crate::error::OrRaise;
use crate::fdw::parallel::part::Part;
use crate::pg::row::{RowArrays, Rows};
use crate::pg::soft::{OnError, Outcome};

/// What became of a row in a guarded step; numbers, so that they cross the guard as they are.
pub const END: i32 = 0;
pub const ROW: i32 = 1;
/// The row lacks fields: what there is is converted, then comes the error.
pub const SHORT: i32 = 2;
/// The row's conversion raises an error, which is to be raised in a plain frame.
pub const RAISES: i32 = 3;

/// Go to the next row and decode the first columns.
///
/// # Safety
/// A valid scan that nobody else uses, and the arrays of its slot.
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

/// Go to the next row and decode the first columns. Guarded.
///
/// # Safety
/// The arrays are a row's.
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
        let more = match &mut scan.part {
            None => rows.advance(),
            Some(part) => part.advance(rows, &mut scan.skip_left),
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
            let (others_bytes, others_rows) = scan.part.as_ref().map_or((0, 0), Part::others);
            scan.progress.update(bytes + others_bytes, rows.count() + others_rows);
        }
        if !more {
            return END;
        }
        if rows.take_turn().is_some() {
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
                Outcome::Good => (),
                Outcome::Raises => return RAISES,
                Outcome::LeftOut => {
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

/// Go to the next row, if that was decoded together with the one before.
///
/// # Safety
/// As [`next_row`], but a plain frame.
#[inline]
pub unsafe fn next_decoded(scan: *mut Scan, arrays: RowArrays) -> bool {
    // SAFETY: this function's contract covers the argument. Nothing here is raised, but from `make_datums`, and nothing has a destructor.
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

/// Make datums of the row that was decoded together with others.
///
/// # Safety
/// As [`next_row`], with the row's arrays, once a row.
#[pg_guard]
unsafe extern "C-unwind" fn make_datums(scan: *mut Scan, values: *mut pg_sys::Datum, nulls: *mut bool) {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        if let Some(rows) = &mut (*scan).rows {
            rows.make_datums(RowArrays { values, nulls }).or_raise();
        }
    }
}

/// Decode the remaining columns.
///
/// # Safety
/// As [`next_row`].
#[pg_guard]
unsafe extern "C-unwind" fn finish_row(scan: *mut Scan, values: *mut pg_sys::Datum, nulls: *mut bool) {
    // SAFETY: this function's contract covers the argument.
    let scan = unsafe { &mut *scan };
    if let Some(rows) = &mut scan.rows {
        if rows.decoded().is_some() {
            // The first columns are not there.
            rows.reset();
        }
        // SAFETY: as in `next_row`.
        unsafe { rows.decode(&scan.rest, RowArrays { values, nulls }) };
    }
}

/// Convert the columns that the quals did not need.
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

/// Raise the error about missing fields.
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

/// Raise the error about a row that may not come next by this column of the order.
///
/// # Safety
/// As [`next_row`].
#[pg_guard]
pub(super) unsafe extern "C-unwind" fn raise_out_of_order(scan: *mut Scan, column: usize) {
    // SAFETY: this function's contract covers the argument.
    let scan = unsafe { &mut *scan };
    if let (Some(order), Some(rows)) = (&scan.order, &mut scan.rows) {
        // The line may hold what the user may not see.
        (rows.is_discreet, rows.is_converting) = (true, false);
        // SAFETY: the scan's relation.
        unsafe { order.complaint(column, scan.relation) }.raise();
    }
}
