//! Returns the rows of the file in the executor's slot, one by one.
//!
//! The scan evaluates the quals itself. Core has made an expression of them before BeginForeignScan. The scan takes it
//! from the plan state, so that ExecScan finds none, and evaluates it as soon as the columns that it reads are
//! converted. The remaining columns are converted only for rows that pass. EXPLAIN still shows the plan's quals, and
//! removed rows are counted in core's counter.
//!
//! [`iterate_foreign_scan`] is a plain frame (see `server`). It pushes COPY's error context, and runs the input
//! functions of types without a native decoder, defaults and quals without a guard. The Rust work for a row is in
//! [`step`](super::step), with one guard for each step. A scan begins in [`open`](super::open).

use std::ffi::CStr;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::Scan;
use super::step::{convert_rest, next_decoded};
use crate::error::{Error, OrRaise, Result};
use crate::fdw::aggregate::run;
use crate::fdw::node::ScanNode;
use crate::fdw::order::{self, IN_ORDER};
use crate::program::projection::Made;
use crate::rows::context::copy_context;
use crate::rows::row::Rows;
use crate::rows::row::pump::{Pump, RowOutcome};
use crate::server::database::subtransaction;
use crate::server::memory_context::MemoryContext;
use crate::server::points::point_plain;
use crate::server::slot::Slot;
use crate::server::unguarded::{self, guarded};

/// # Safety
/// Called by the executor, in the per-tuple memory context.
pub unsafe extern "C-unwind" fn iterate_foreign_scan(
    node: *mut pg_sys::ForeignScanState,
) -> *mut pg_sys::TupleTableSlot {
    // A plain frame: nothing here has a destructor.
    // SAFETY: the executor's own structures, and a scan that BeginForeignScan made.
    unsafe {
        let slot = (*node).ss.ss_ScanTupleSlot;
        unguarded::clear_virtual(slot);
        let scan = (*node).fdw_state.cast::<Scan>();
        if (*scan).rows.is_none() {
            let memory = MemoryContext::of_query((*node).ss.ps.state);
            guarded(|| (*scan).open_late(memory).or_raise());
        }
        let rows = match (*scan).rows.as_mut() {
            Some(rows) => &raw mut *rows,
            None => return slot,
        };
        if (*scan).aggregation.is_some() {
            run::aggregate(node, scan, rows);
            return slot;
        }
        let arrays = Slot::from_raw(slot).arrays();
        let filter = match (*scan).filter.as_ref() {
            Some(filter) => &raw const *filter,
            None => std::ptr::null(),
        };
        let econtext = (*node).ss.ps.ps_ExprContext;
        unguarded::in_context(copy_context, rows.cast(), || {
            loop {
                let outcome = if next_decoded(scan) { RowOutcome::Row } else { guarded(|| (*scan).go_to_row()) };
                if outcome == RowOutcome::End {
                    break;
                }
                point_plain!("scan.row");
                if (*rows).has_queue() {
                    Rows::convert(rows, (*scan).pump.sink.arrays, econtext);
                }
                if outcome == RowOutcome::Short {
                    convert_rest(scan, rows);
                    guarded(|| (*rows).check_missing().or_raise());
                }
                let mut is_made = true;
                if !filter.is_null() {
                    match (*filter).call(rows, arrays) {
                        Made::Row | Made::Tuple(_) => (),
                        Made::Nothing => {
                            (*scan).pump.policy.uncount_row();
                            is_made = false;
                        }
                        Made::Bad(error) => {
                            // An error has a message.
                            let message = CStr::from_ptr((*error).message);
                            guarded(|| (*scan).leave_out(message));
                            is_made = false;
                        }
                    }
                }
                if !is_made {
                    unguarded::MemoryContextReset((*econtext).ecxt_per_tuple_memory);
                    unguarded::check_for_interrupts();
                    continue;
                }
                if !(*scan).qual.is_null() {
                    unguarded::store_virtual(slot);
                    // Core sets it after this function has returned, which is too late for a qual that reads it.
                    (*slot).tts_tableOid = (*scan).relid;
                    (*econtext).ecxt_scantuple = slot;
                    // A qual's error is not about the file, and the line may hold data that the user may not see.
                    let passes = unguarded::out_of_context(|| unguarded::exec_qual((*scan).qual, econtext));
                    if !passes {
                        let instrument = (*node).ss.ps.instrument;
                        if !instrument.is_null() {
                            (*instrument).nfiltered1 += 1.0;
                        }
                        // The file may end here, and a filled slot would count as a row.
                        unguarded::clear_virtual(slot);
                        unguarded::MemoryContextReset((*econtext).ecxt_per_tuple_memory);
                        unguarded::check_for_interrupts();
                        continue;
                    }
                    convert_rest(scan, rows);
                }
                if let Some(check) = &mut (*scan).order {
                    // An error of a comparison is not about the file either.
                    let column = unguarded::out_of_context(|| order::follows(check, arrays));
                    if column != IN_ORDER {
                        guarded(|| (*scan).raise_out_of_order(column));
                    }
                }
                unguarded::store_virtual(slot);
                break;
            }
        });
        slot
    }
}

/// ReScanForeignScan.
pub fn rescan(mut node: ScanNode<'_>) -> Result<()> {
    let Some(scan) = node.scan() else { return Ok(()) };
    scan.bytes_before = scan.bytes_read();
    let Pump { policy, sink } = &mut scan.pump;
    sink.reported = 0;
    let options = &scan.options;
    let begun_in = scan.begun_in;
    if let Some(rows) = &mut scan.rows {
        let open = || {
            // A source that is opened in a subtransaction is closed when that is rolled back, which this scan may
            // outlive. A regular file is not opened again; other sources cannot be rewound.
            if subtransaction() > begun_in {
                let message = "cannot read a program or a FIFO again in a later subtransaction";
                return Err(Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message));
            }
            options.copy.open(options.location()?, options.copy.header())
        };
        rows.restart(options.copy.header(), open)?;
        policy.restart(&options.copy);
        sink.decode_together(rows, policy);
    }
    if let Some(participant) = &mut sink.participant {
        participant.again();
    }
    if let Some(aggregation) = &mut scan.aggregation {
        aggregation.again();
    }
    if let Some(order) = &mut scan.order {
        order.again();
    }
    Ok(())
}

/// EndForeignScan.
pub fn end(mut node: ScanNode<'_>) -> Result<()> {
    let Some(scan) = node.scan() else { return Ok(()) };
    scan.pump.sink.progress.end();
    scan.stop_sharing();
    if let Some(mut rows) = scan.rows.take() {
        let tolerance = &scan.pump.policy.tolerance;
        tolerance.report(None);
        let mut ragged = rows.ragged;
        ragged.add(&scan.ragged_of_others);
        tolerance.report_ragged(&rows, &ragged);
        rows.close()?;
    }
    Ok(())
}

/// Rechecks a row of EvalPlanQual. Server versions that confuse a scan of the rechecked query with one of its
/// subqueries call this instead of requesting the next row.
///
/// # Safety
/// Called by the executor.
pub unsafe extern "C-unwind" fn recheck_foreign_scan(
    node: *mut pg_sys::ForeignScanState,
    _slot: *mut pg_sys::TupleTableSlot,
) -> bool {
    // A plain frame.
    // SAFETY: the executor's own structures, and a scan that BeginForeignScan made.
    unsafe {
        if (*node).fdw_state.is_null() || (*(*node).fdw_state.cast::<Scan>()).aggregation.is_none() {
            return true;
        }
        let filled = iterate_foreign_scan(node);
        !filled.is_null() && (*filled).tts_flags & pg_sys::TTS_FLAG_EMPTY as u16 == 0
    }
}
