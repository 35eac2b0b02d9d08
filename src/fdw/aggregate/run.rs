//! A scan that aggregates rows instead of returning them.
//!
//! It has the loop of a scan that returns rows, up to the point where these would be returned. Rows that are decoded
//! together are added together, a column at a time ([`Run`](pg_bulk_format::block::Run)). If no aggregate reads a
//! value, records are only counted. Rows with values that the decoders leave undecided, and all rows if there are
//! quals, go one by one.

use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use crate::error::Error;
use crate::fdw::scan::Scan;
use crate::fdw::scan::step::{self, END, RAISES, ROW, SHORT};
use crate::pg::context::copy_context;
use crate::pg::points::point_plain;
use crate::pg::row::{RowArrays, Rows};
use crate::pg::soft::OnError;
use crate::pg::unguarded;

/// Result of a guarded step, besides those of a row: a sum exceeds its range.
const OVERFLOW: i32 = 4;

/// Reads on to the next row that must be handled by itself, or to the end.
///
/// # Safety
/// A valid scan with an aggregation that nothing else uses.
#[pg_guard]
unsafe extern "C-unwind" fn next_rows(
    scan: *mut Scan,
    arrays: *const RowArrays,
    econtext: *mut pg_sys::ExprContext,
) -> i32 {
    // SAFETY: this function's contract covers the argument.
    let (scan, arrays) = unsafe { (&mut *scan, *arrays) };
    loop {
        // SAFETY: the arrays belong to the aggregation.
        let what = unsafe { step::go_to_row(scan, arrays, econtext) };
        if what != ROW || !scan.qual.is_null() {
            return what;
        }
        pgrx::check_for_interrupts!();
        let (goes_on, wants_nothing) = (scan.goes_on(), scan.wants_nothing());
        let (Some(rows), Some(aggregation)) = (&mut scan.rows, &mut scan.aggregation) else { return END };
        if wants_nothing && !rows.has_queue() {
            let count = 1 + if goes_on { rows.pass_by() } else { 0 };
            aggregation.accumulators.iter_mut().for_each(|accumulator| accumulator.add_rows(count));
            continue;
        }
        if rows.decoded().is_none() {
            return ROW;
        }
        let Some(run) = rows.run(if goes_on { usize::MAX } else { 1 }) else { return ROW };
        if aggregation.accumulators.iter_mut().try_for_each(|accumulator| accumulator.add(&run)).is_err() {
            return OVERFLOW;
        }
    }
}

/// Adds a complete row; false if a sum exceeds its range.
///
/// # Safety
/// As [`next_rows`], but a plain frame.
#[inline]
unsafe fn add_row(scan: *mut Scan) -> bool {
    // SAFETY: this function's contract covers the argument. Nothing here raises.
    unsafe { (*scan).aggregation.as_mut().is_some_and(|aggregation| aggregation.add_row().is_ok()) }
}

/// Stores the values of the aggregates in the scan's slot.
///
/// # Safety
/// As [`next_rows`], and the scan's slot.
#[pg_guard]
unsafe extern "C-unwind" fn finish(scan: *mut Scan, slot: *mut pg_sys::TupleTableSlot) {
    // SAFETY: this function's contract covers both arguments; the slot has an attribute for each aggregate, and each
    // column after them.
    unsafe {
        let Some(aggregation) = &mut (*scan).aggregation else { return };
        aggregation.done = true;
        let slot = RowArrays { values: (*slot).tts_values, nulls: (*slot).tts_isnull };
        for (i, accumulator) in aggregation.accumulators.iter().enumerate() {
            slot.set(i, accumulator.result(aggregation.partial));
        }
        let aggregates = aggregation.accumulators.len();
        for i in 0..aggregation.columns.len() {
            slot.set(aggregates + i, None);
        }
    }
}

/// # Safety
/// In a guarded or a plain frame.
#[pg_guard]
unsafe extern "C-unwind" fn raise_overflow() {
    // As float_overflow_error.
    Error::new(Code::ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow").raise();
}

/// Stores the columns that the quals read in the slot.
///
/// # Safety
/// As [`finish`], but a plain frame.
unsafe fn show(scan: *mut Scan, slot: *mut pg_sys::TupleTableSlot) {
    // SAFETY: as in `finish`.
    unsafe {
        let Some(aggregation) = &(*scan).aggregation else { return };
        let aggregates = aggregation.accumulators.len();
        for (i, &attribute) in aggregation.columns.iter().enumerate() {
            let (Some(&value), Some(&null)) = (aggregation.values.get(attribute), aggregation.nulls.get(attribute))
            else {
                continue;
            };
            *(*slot).tts_values.add(aggregates + i) = pg_sys::Datum::from(value as usize);
            *(*slot).tts_isnull.add(aggregates + i) = null;
        }
        unguarded::store_virtual(slot);
    }
}

/// Fills the scan's slot with the aggregates' values, unless it has been done.
///
/// # Safety
/// Called by IterateForeignScan with its node, whose slot is empty: a plain frame.
pub unsafe fn aggregate(node: *mut pg_sys::ForeignScanState, scan: *mut Scan, rows: *mut Rows) {
    // A plain frame: nothing here has a destructor.
    // SAFETY: this function's contract covers the structures.
    unsafe {
        let arrays = match &mut (*scan).aggregation {
            Some(aggregation) if !aggregation.done => aggregation.arrays(),
            _ => return,
        };
        let slot = (*node).ss.ss_ScanTupleSlot;
        let econtext = (*node).ss.ps.ps_ExprContext;
        let mut context = pg_sys::ErrorContextCallback {
            previous: pg_sys::error_context_stack,
            callback: Some(copy_context),
            arg: rows.cast(),
        };
        pg_sys::error_context_stack = &raw mut context;
        loop {
            let has_qual = !(*scan).qual.is_null();
            let what = if has_qual && step::next_decoded(scan, arrays) {
                ROW
            } else {
                next_rows(scan, &raw const arrays, econtext)
            };
            if what == END {
                break;
            }
            let mut fits = what != OVERFLOW;
            if fits {
                point_plain!("scan.row");
                if what == RAISES || ((*scan).tolerance.on_error == OnError::Stop && (*rows).has_queue()) {
                    Rows::convert(rows, arrays, econtext);
                }
                if what == SHORT {
                    step::convert_rest(scan, rows, arrays, econtext);
                    step::raise_missing(scan);
                }
                let mut passes = true;
                if has_qual {
                    show(scan, slot);
                    (*econtext).ecxt_scantuple = slot;
                    // A qual's error is not about the file, and the line may hold data that the user may not see.
                    pg_sys::error_context_stack = context.previous;
                    passes = unguarded::exec_qual((*scan).qual, econtext);
                    pg_sys::error_context_stack = &raw mut context;
                    unguarded::clear_virtual(slot);
                }
                if passes {
                    step::convert_rest(scan, rows, arrays, econtext);
                    fits = add_row(scan);
                } else if let Some(instrument) = (*node).ss.ps.instrument.as_mut() {
                    instrument.nfiltered1 += 1.0;
                }
            }
            if !fits {
                // This error is not about the file either.
                pg_sys::error_context_stack = context.previous;
                raise_overflow();
            }
            unguarded::MemoryContextReset((*econtext).ecxt_per_tuple_memory);
            unguarded::check_for_interrupts();
        }
        pg_sys::error_context_stack = context.previous;
        finish(scan, slot);
        unguarded::store_virtual(slot);
    }
}
