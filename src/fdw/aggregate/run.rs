//! A scan that aggregates rows instead of returning them.
//!
//! It has the loop of a scan that returns rows, up to the point where these would be returned. Rows that are decoded
//! together are added together, a column at a time ([`Run`](pg_bulk_types::block::Run)). If no aggregate reads a
//! value, records are only counted. Rows with values that the decoders leave undecided, and all rows if there are
//! quals, go one by one.

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::sums::Aggregation;
use crate::error::{Error, OrRaise};
use crate::fdw::scan::Scan;
use crate::fdw::scan::step;
use crate::rows::context::copy_context;
use crate::rows::row::pump::RowOutcome;
use crate::rows::row::{RowArrays, Rows};
use crate::server::points::point_plain;
use crate::server::slot::Slot;
use crate::server::unguarded::{self, guarded};

impl Scan {
    /// Reads on to the next row that must be handled by itself, or to the end. Guarded.
    fn next_rows(&mut self) -> RowOutcome {
        loop {
            let outcome = self.go_to_row();
            if outcome != RowOutcome::Row || !self.qual.is_null() {
                return outcome;
            }
            pgrx::check_for_interrupts!();
            let (goes_on, wants_nothing) = (self.goes_on(), self.wants_nothing());
            let (Some(rows), Some(aggregation)) = (&mut self.rows, &mut self.aggregation) else {
                return RowOutcome::End;
            };
            if wants_nothing && !rows.has_queue() {
                let count = 1 + if goes_on { rows.pass_by() } else { 0 };
                aggregation.accumulators.iter_mut().for_each(|accumulator| accumulator.add_rows(count));
                continue;
            }
            if rows.decoded().is_none() {
                return RowOutcome::Row;
            }
            let Some(run) = rows.run(if goes_on { usize::MAX } else { 1 }) else { return RowOutcome::Row };
            aggregation.add(&run);
            if aggregation.overflows {
                return RowOutcome::Row;
            }
        }
    }

    /// Does a sum exceed its range?
    #[inline]
    fn overflows(&self) -> bool {
        self.aggregation.as_ref().is_some_and(|aggregation| aggregation.overflows)
    }
}

/// Stores the aggregates, or else the columns that the quals read, in the scan's slot. Guarded if it stores aggregates.
/// The slot has an attribute for each aggregate, and each column after them.
fn show(aggregation: &Aggregation, slot: RowArrays<'_>, has_ended: bool) {
    let aggregates = aggregation.accumulators.len();
    if has_ended {
        for (i, accumulator) in aggregation.accumulators.iter().enumerate() {
            slot.set(i, accumulator.result(aggregation.partial));
        }
    }
    for (i, &attribute) in aggregation.columns.iter().enumerate() {
        let (Some(&value), Some(&null)) = (aggregation.values.get(attribute), aggregation.nulls.get(attribute)) else {
            continue;
        };
        let value = (!null && !has_ended).then(|| pg_sys::Datum::from(value as usize));
        slot.set(aggregates + i, value);
    }
}

/// Fills the scan's slot with the aggregates' values, unless it has been done.
///
/// # Safety
/// Called by IterateForeignScan with its node, whose slot is empty: a plain frame.
pub unsafe fn aggregate(node: *mut pg_sys::ForeignScanState, scan: *mut Scan, rows: *mut Rows) {
    // A plain frame: nothing here has a destructor.
    // SAFETY: IterateForeignScan passes its node, with the scan and the rows that the node has.
    unsafe {
        let arrays = match (*scan).aggregation.as_mut() {
            Some(aggregation) if !aggregation.done => aggregation.arrays(),
            _ => return,
        };
        let slot = (*node).ss.ss_ScanTupleSlot;
        let shown = Slot::from_raw(slot).arrays();
        let econtext = (*node).ss.ps.ps_ExprContext;
        unguarded::in_context(copy_context, rows.cast(), || {
            loop {
                let has_qual = !(*scan).qual.is_null();
                let outcome = if has_qual && step::next_decoded(scan) {
                    RowOutcome::Row
                } else {
                    guarded(|| (*scan).next_rows())
                };
                if outcome == RowOutcome::End {
                    break;
                }
                if !(*scan).overflows() {
                    point_plain!("scan.row");
                    if (*rows).has_queue() {
                        Rows::convert(rows, arrays, econtext);
                    }
                    if outcome == RowOutcome::Short {
                        step::convert_rest(scan, rows);
                        guarded(|| (*rows).check_missing().or_raise());
                    }
                    let mut passes = true;
                    if has_qual {
                        if let Some(aggregation) = (*scan).aggregation.as_ref() {
                            show(aggregation, shown, false);
                        }
                        unguarded::store_virtual(slot);
                        (*econtext).ecxt_scantuple = slot;
                        // A qual's error is not about the file, and the line may hold data that the user may not see.
                        passes = unguarded::out_of_context(|| unguarded::exec_qual((*scan).qual, econtext));
                        unguarded::clear_virtual(slot);
                    }
                    if passes {
                        step::convert_rest(scan, rows);
                        if let Some(aggregation) = (*scan).aggregation.as_mut() {
                            aggregation.add_row();
                        }
                    } else if let Some(instrument) = (*node).ss.ps.instrument.as_mut() {
                        instrument.nfiltered1 += 1.0;
                    }
                }
                if (*scan).overflows() {
                    // As float_overflow_error. This error is not about the file either.
                    let message = "value out of range: overflow";
                    let raise = || Error::new(Code::ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE, message).raise();
                    unguarded::out_of_context(|| guarded::<()>(raise));
                }
                unguarded::MemoryContextReset((*econtext).ecxt_per_tuple_memory);
                unguarded::check_for_interrupts();
            }
        });
        if let Some(aggregation) = (*scan).aggregation.as_mut() {
            aggregation.done = true;
            guarded(|| show(aggregation, shown, true));
        }
        unguarded::store_virtual(slot);
    }
}
