//! The end of a load: closes the file and the table, and writes the history.
//!
//! [`finish`] comes before ANALYZE, which needs the progress slot. [`record`] comes after it, because the history has
//! the time of the whole load.

use pgrx::pg_guard;

use super::phase::Phase;
use super::{Load, history, once, rejects, summary};
use crate::error::OrRaise;

/// Closes the file and the table; the lock stays.
///
/// # Safety
/// A valid load whose rows are written.
#[pg_guard]
pub(super) unsafe extern "C-unwind" fn finish(load: *mut Load) {
    // SAFETY: this function's contract covers the argument.
    let load = unsafe { &mut *load };
    if let Some(mut rows) = load.rows.take() {
        load.counts.bytes_read = rows.stream().bytes_read();
        rows.close().or_raise();
    }
    load.target.close();
    // SAFETY: a spool lives at least as long as its load.
    if let Some(spool) = unsafe { load.spool.as_mut() } {
        let kept = rejects::table::write(spool).or_raise();
        let rejected = load.counts.rejected + load.counts.duplicate;
        if kept < rejected {
            load.counts.notes.push(format!("{kept} of {rejected} rejected rows are kept (pg_bulk.reject_cap)."));
        }
    }
    // ANALYZE reports its own progress, and needs the slot to be free.
    load.phases.progress.end();
    if load.analyze_statement.is_some() {
        load.phases.enter(Phase::Analyze);
    }
}

/// Writes the history, the log and the list of loaded files.
///
/// # Safety
/// A valid load that is done, and whose memory context is current.
#[pg_guard]
pub(super) unsafe extern "C-unwind" fn record(load: *mut Load) {
    // SAFETY: this function's contract covers the argument.
    let load = unsafe { &mut *load };
    load.took = load.began.elapsed();
    once::record(load).or_raise();
    history::record(load);
    summary::log(load);
}
