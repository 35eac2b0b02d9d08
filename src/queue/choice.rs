//! Which jobs may start now.
//!
//! A job that keeps others out of its table (`alone`) waits until no other one runs there, and those behind it wait for
//! it.

use pgrx::pg_sys;

use super::job::Queued;

/// Of the jobs that are due, in order, those that may start now: `free` at most.
pub fn choose(
    candidates: impl Iterator<Item = Queued>,
    may_start: impl Fn(&Queued) -> bool,
    free: usize,
    mut busy: Vec<(pg_sys::Oid, bool)>,
) -> Vec<Queued> {
    let mut start = Vec::new();
    for job in candidates {
        if start.len() == free {
            break;
        }
        let waits = busy.iter().any(|(target, alone)| *target == job.target && (*alone || job.alone));
        // What waits for its table is as good as there for those behind it.
        busy.push((job.target, job.alone));
        if !waits && may_start(&job) {
            start.push(job);
        }
    }
    start
}
