//! Instrumentation of a plan that several processes run, for EXPLAIN ANALYZE. The figures of all processes are added
//! for each node, as in a parallel query (ExecParallelReportInstrumentation, ExecParallelRetrieveInstrumentation,
//! execParallel.c).

use pgrx::pg_sys;

use super::Join;
use crate::pg::compat;

/// Number of measured nodes. Guarded.
pub fn nodes(join: &Join) -> usize {
    // SAFETY: the state has begun.
    unsafe {
        if (*(*join.joined.top).state).es_instrument == 0 {
            return 0;
        }
        compat::nodes_of(join.joined.top).len()
    }
}

/// In a worker that is done: writes its figures to shared memory. Guarded.
///
/// # Safety
/// `figures` has room for the leader's nodes for each of `worker` + 1 workers, and was initialized.
pub unsafe fn report(join: &Join, figures: *mut pg_sys::Instrumentation, worker: usize) {
    let count = join.measured;
    // With another number of nodes, the nodes cannot be matched with the leader's.
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

/// In the leader: adds the figures that workers have written. Guarded.
///
/// # Safety
/// `figures` has the figures of `workers` workers, which have ended.
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
