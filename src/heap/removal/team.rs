//! Marks rows on many pages with several processes.
//!
//! ```text
//!   leader:  rows into shared memory ─► start ─┬─► next batch, next … ─► wait ─► rows that could not be marked
//!   worker:                                    └─► next batch, next … ─┘
//! ```
//!
//! A batch of rows ends at a page boundary, so no two processes touch the same page. A marked row becomes 0 in shared
//! memory. The leader deletes the other rows with heap_delete in the end, since parallel mode forbids that. Parallel
//! mode also forbids new combo command ids: all rows get the one that the leader obtained for the first row, before the
//! workers start. One command has inserted all rows of a load.
//!
//! While workers run, no process reads a page of the heap into a buffer. So the result of a buffer lookup stays valid.
//!
//! A checkpoint waits until none of the processes is between WAL and write. Each process pauses once to let it pass.
//! After that the checkpoint waits for a moment when all are outside, or until the kept rows are done.

use std::ffi::CStr;

use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::block_of;
use super::page::Deleter;
use super::windows::Windows;
use crate::error::{Error, OrRaise, Result};
use crate::guc;
use crate::server::compat;
use crate::server::points::point;
use crate::server::relation::Relation;
use crate::server::team::{Array, Exclusive, Image, Memory, Portions, Shareable, Task, Team, Worker};
use crate::server::usage::Cpu;

/// Pages that justify a worker. To start one takes as long as the leader needs for half of them. Fewer pages where a
/// test makes chunks small.
const WORTH: usize = 5_000;
const WORTH_SMALL: usize = 32;
/// Batches for each process. With many small ones, a process that is delayed delays the others less.
const PARTS: usize = 16;

/// The removal of rows from a heap.
struct RemovalTask {
    relation: pg_sys::Oid,
    /// The heap's new file.
    file: compat::Locator,
    needs_wal: bool,
    deleter: Deleter,
    rows: Array<Exclusive<u64>>,
    /// The beginnings of the batches, which ascend, and the end of the last one.
    bounds: Array<usize>,
    batches: Portions,
}

// SAFETY: plain data.
unsafe impl Shareable for RemovalTask {}
// SAFETY: the worker is below.
unsafe impl Task for RemovalTask {
    const WORKER: &'static CStr = c"pg_bulk_removal_worker";
}

/// The number of workers that the pages of these ascending rows justify, at most `workers`.
pub fn worth(rows: &[u64], workers: usize) -> usize {
    let least = if guc::chunks_are_small() { WORTH_SMALL } else { WORTH };
    if workers == 0 || rows.len() < least {
        return 0;
    }
    let pages = rows.chunk_by(|a, b| block_of(*a) == block_of(*b)).count();
    workers.min(pages / least)
}

/// Mark rows like [`Windows::mark`], with this many workers, and return their CPU usage. `relation`: that of the
/// windows. Guarded, and interruptible; outside of parallel mode.
pub fn mark(
    relation: Relation<'_>,
    needs_wal: bool,
    windows: &mut Windows,
    rows: &mut [u64],
    workers: usize,
) -> Result<Cpu> {
    windows.deleter = windows.deleter.in_parallel();
    let bounds = bounds(rows, PARTS * (workers + 1));
    let mut image = Image::new();
    let task = RemovalTask {
        relation: relation.oid(),
        file: compat::locator(relation),
        needs_wal,
        deleter: windows.deleter,
        rows: image.array(rows.iter().map(|&row| Exclusive::new(row))),
        batches: Portions::new(bounds.len().saturating_sub(1)),
        bounds: image.array(bounds),
    };
    let mut team = Team::new(image, workers, task);
    team.launch();
    point!("remove.together");
    mark_batches(&team, windows)?;
    let cpu = team.wait();
    point!("remove.joined");
    // SAFETY: the workers have ended.
    let marked = unsafe { &*Exclusive::pointer(team.slice(team.task().rows)) };
    rows.iter_mut().zip(marked).for_each(|(row, marked)| *row = *marked);
    team.finish();
    Ok(cpu)
}

/// The beginnings of about `parts` batches of equal size, each at a page boundary, and the end of the last one.
fn bounds(rows: &[u64], parts: usize) -> Vec<usize> {
    let size = (rows.len() / parts.max(1)).max(1);
    let mut bounds = vec![0];
    let mut at = size;
    while let Some((&last, &row)) = rows.get(at - 1).zip(rows.get(at)) {
        if block_of(last) == block_of(row) {
            at += 1;
        } else {
            bounds.push(at);
            at += size;
        }
    }
    bounds.push(rows.len());
    bounds
}

/// Mark one batch after the other until none is left. Guarded, and interruptible.
fn mark_batches(team: &Memory<RemovalTask>, windows: &mut Windows) -> Result<()> {
    let task = team.task();
    let (rows, bounds) = (team.slice(task.rows), team.slice(task.bounds));
    while let Some(batch) = task.batches.take() {
        let ends = bounds.get(batch).zip(bounds.get(batch + 1));
        let rows = ends.and_then(|(&begin, &end)| rows.get(begin..end)).unwrap_or_default();
        // SAFETY: this process alone has taken the batch, and the batches do not overlap.
        windows.mark(unsafe { &mut *Exclusive::pointer(rows) })?;
    }
    Ok(())
}

/// A worker of [`mark`]. ParallelWorkerMain calls it in a transaction that shares the leader's state.
///
/// # Safety
/// The arguments are those of a parallel worker's entry point.
#[unsafe(no_mangle)]
#[pg_guard]
pub unsafe extern "C-unwind" fn pg_bulk_removal_worker(segment: *mut pg_sys::dsm_segment, toc: *mut pg_sys::shm_toc) {
    // SAFETY: the leader holds a lock on the relation that a worker may share.
    unsafe {
        let team = Worker::<RemovalTask>::join(segment, toc).or_raise();
        let task = team.task();
        let lock = pg_sys::AccessShareLock.cast_signed();
        let relation = Relation::from_raw(pg_sys::table_open(task.relation, lock));
        if !compat::is_same_file(compat::locator(relation), task.file) {
            let message = "a worker of the load has another file of the table than its leader";
            Err::<(), _>(Error::new(Code::ERRCODE_INTERNAL_ERROR, message)).or_raise();
        }
        point!("remove.helper");
        let mut windows = Windows::new(relation, task.needs_wal, task.deleter).or_raise();
        mark_batches(&team, &mut windows).or_raise();
        drop(windows);
        pg_sys::table_close(relation.as_ptr(), lock);
        team.end();
    }
}
