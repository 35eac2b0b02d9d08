//! Instrumentation of a plan that several processes run, for EXPLAIN ANALYZE. The figures of all processes are added
//! for each node, as in a parallel query (ExecParallelReportInstrumentation, ExecParallelRetrieveInstrumentation,
//! execParallel.c).

use pgrx::pg_sys;

use super::Join;
use crate::server::compat;

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

/// In a worker that is done: adds its figures to its own in shared memory. Guarded.
pub fn report(join: &Join, figures: &mut [pg_sys::Instrumentation]) {
    // With another number of nodes, the nodes cannot be matched with the leader's.
    if join.measured == 0 || nodes(join) != join.measured {
        return;
    }
    // SAFETY: guarded calls; the state has begun.
    unsafe {
        for (node, figure) in compat::nodes_of(join.joined.top).into_iter().zip(figures) {
            let own = (*node).instrument;
            if !own.is_null() {
                pg_sys::InstrEndLoop(own);
                pg_sys::InstrAggNode(figure, own);
            }
        }
    }
}

/// In the leader: adds the figures of this many workers. Guarded.
pub fn take(join: &Join, figures: &mut [pg_sys::Instrumentation], workers: usize) {
    let count = nodes(join);
    if count == 0 {
        return;
    }
    for figures in figures.chunks_exact_mut(count).take(workers) {
        // SAFETY: guarded calls; the state has begun.
        unsafe {
            for (node, figure) in compat::nodes_of(join.joined.top).into_iter().zip(figures) {
                if !(*node).instrument.is_null() {
                    pg_sys::InstrAggNode((*node).instrument, figure);
                }
            }
        }
    }
}
