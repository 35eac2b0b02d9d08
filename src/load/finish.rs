//! The end of a load: the file and the table are closed, and what remains of it is written.
//!
//! [`finish`] comes before ANALYZE, which wants the slot for progress, and [`record`] behind it, since the history has the time of all.

use pgrx::pg_guard;

use super::phase::Phase;
use super::{Load, history, once, rejects, summary};
use crate::error::OrRaise;

/// Close what is open; the lock stays.
///
/// # Safety
/// A valid load that is written.
#[pg_guard]
pub(super) unsafe extern "C-unwind" fn finish(load: *mut Load) {
    // SAFETY: this function's contract covers the argument.
    let load = unsafe { &mut *load };
    if let Some(mut rows) = load.rows.take() {
        load.counts.bytes_read = rows.stream().bytes_read();
        rows.close().or_raise();
    }
    load.target.close();
    // SAFETY: a spool lives as long as its load at least.
    if let Some(spool) = unsafe { load.spool.as_mut() } {
        let kept = rejects::table::write(spool).or_raise();
        let rejected = load.counts.rejected + load.counts.duplicate;
        if kept < rejected {
            load.counts.notes.push(format!("{kept} of {rejected} rejected rows are kept (pg_bulk.reject_cap)."));
        }
    }
    // ANALYZE has a progress report of its own, and only a free slot for it.
    load.phases.progress.end();
    if load.analyze_statement.is_some() {
        load.phases.enter(Phase::Analyze);
    }
}

/// Leave behind what remains of the load.
///
/// # Safety
/// A valid load that is done, whose memory context is current.
#[pg_guard]
pub(super) unsafe extern "C-unwind" fn record(load: *mut Load) {
    // SAFETY: this function's contract covers the argument.
    let load = unsafe { &mut *load };
    load.took = load.began.elapsed();
    once::record(load).or_raise();
    history::record(load);
    summary::log(load);
}
