//! What EXPLAIN ANALYZE is told of a plan that several processes run: the figures of all, for each node, as of a parallel
//! query (ExecParallelReportInstrumentation and ExecParallelRetrieveInstrumentation, execParallel.c).

use pgrx::pg_sys;

use super::Join;
use crate::pg::compat;

/// How many nodes are measured. Guarded.
pub fn nodes(join: &Join) -> usize {
    // SAFETY: a state that has begun.
    unsafe {
        if (*(*join.joined.top).state).es_instrument == 0 {
            return 0;
        }
        compat::nodes_of(join.joined.top).len()
    }
}

/// In a worker that is done: put down what was measured here. Guarded.
///
/// # Safety
/// Room for the figures of the leader's nodes of so many workers and one more, which are zero.
pub unsafe fn report(join: &Join, figures: *mut pg_sys::Instrumentation, worker: usize) {
    let count = join.measured;
    // Which of the leader's nodes are meant, if there are others, nobody would know.
    if count == 0 || nodes(join) != count {
        return;
    }
    // SAFETY: this function's contract covers the room; guarded calls.
    unsafe {
        for (i, node) in compat::nodes_of(join.joined.top).into_iter().enumerate() {
            let own = (*node).instrument;
            if !own.is_null() {
                pg_sys::InstrEndLoop(own);
                pg_sys::InstrAggNode(figures.add(worker * count + i), own);
            }
        }
    }
}

/// In the leader: add what workers have put down. Guarded.
///
/// # Safety
/// The figures of so many workers, who are gone.
pub unsafe fn take(join: &Join, figures: *mut pg_sys::Instrumentation, workers: usize) {
    let count = nodes(join);
    if count == 0 {
        return;
    }
    // SAFETY: this function's contract covers the figures; guarded calls.
    unsafe {
        for (i, node) in compat::nodes_of(join.joined.top).into_iter().enumerate() {
            let own = (*node).instrument;
            if !own.is_null() {
                (0..workers).for_each(|worker| pg_sys::InstrAggNode(own, figures.add(worker * count + i)));
            }
        }
    }
}
