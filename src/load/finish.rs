//! The end of a load: closes the table, and writes the history.
//!
//! [`finish`] comes before ANALYZE, which needs the progress slot. [`record`] comes after it, because the history has
//! the time of the whole load.

use super::phase::Phase;
use super::{Load, history, once, rejects, summary};
use crate::error::OrRaise;

/// Closes the table; the lock stays. Guarded.
pub(super) fn finish(load: &mut Load) {
    load.target.close();
    if let Some(spool) = load.spool.filter(|_| !load.request.is_dry()) {
        let kept = rejects::table::write(spool).or_raise();
        let rejected = load.measures.counts.rejected + load.measures.counts.duplicate;
        if kept < rejected {
            load.measures
                .counts
                .notes
                .push(format!("{kept} of {rejected} rejected rows are kept (pg_bulk.reject_cap)."));
        }
    }
    // ANALYZE reports its own progress, and needs the slot to be free.
    load.measures.phases.progress.end();
    if load.request.analyze_statement.is_some() {
        load.measures.phases.enter(Phase::Analyze);
    }
}

/// Writes the history, the log and the list of loaded files.
///
/// Guarded; the load's memory context is current.
pub(super) fn record(load: &mut Load) {
    if load.request.is_dry() {
        return;
    }
    load.measures.took = load.measures.began.elapsed();
    once::record(load).or_raise();
    history::record(load);
    summary::log(load);
}
