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

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::block_of;
use super::page::Deleter;
use super::windows::Windows;
use crate::error::{Error, OrRaise, Result};
use crate::guc;
use crate::pg::build_id::{build_id, check_build};
use crate::pg::compat;
use crate::pg::parallel::{Parallel, lookup};
use crate::pg::points::point;
use crate::pg::relation::Relation;
use crate::pg::usage::{self, Cpu, WorkerUsage};

/// Keys of the shared memory.
const KEY_TASK: u64 = 1;
const KEY_ROWS: u64 = 2;
const KEY_BOUNDS: u64 = 3;
const KEY_USAGES: u64 = 4;

/// Pages that justify a worker. To start one takes as long as the leader needs for half of them. Fewer pages where a
/// test makes chunks small.
const WORTH: usize = 5_000;
const WORTH_SMALL: usize = 32;
/// Batches for each process. With many small ones, a process that is delayed delays the others less.
const PARTS: usize = 16;

/// The task in shared memory.
#[repr(C)]
struct RemovalTask {
    build: u64,
    relation: pg_sys::Oid,
    /// The heap's new file.
    file: compat::Locator,
    needs_wal: bool,
    deleter: Deleter,
    parts: usize,
    /// The next batch.
    next: AtomicUsize,
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

/// Mark rows like [`Windows::mark`], with this many workers, and return their CPU usage. Guarded, and interruptible.
///
/// # Safety
/// As for [`Windows::new`], with the same relation; outside of parallel mode.
pub unsafe fn mark(
    relation: Relation<'_>,
    needs_wal: bool,
    windows: &mut Windows,
    rows: &mut [u64],
    workers: usize,
) -> Result<Cpu> {
    windows.deleter = windows.deleter.in_parallel();
    let bounds = bounds(rows, PARTS * (workers + 1));
    let task = RemovalTask {
        build: build_id(),
        relation: relation.oid(),
        file: compat::locator(relation),
        needs_wal,
        deleter: windows.deleter,
        parts: bounds.len().saturating_sub(1),
        next: AtomicUsize::new(0),
    };
    let mut parallel = Parallel::new(c"pg_bulk_removal_worker", workers);
    parallel.estimate(size_of::<RemovalTask>());
    parallel.estimate(size_of_val(rows));
    parallel.estimate(size_of_val(bounds.as_slice()));
    parallel.estimate(workers * size_of::<WorkerUsage>());
    parallel.initialize();
    let place = parallel.insert(KEY_TASK, size_of::<RemovalTask>()).cast::<RemovalTask>();
    let shared = parallel.insert(KEY_ROWS, size_of_val(rows)).cast::<u64>();
    let bounds_place = parallel.insert(KEY_BOUNDS, size_of_val(bounds.as_slice())).cast::<usize>();
    let usages = parallel.insert(KEY_USAGES, workers * size_of::<WorkerUsage>()).cast::<WorkerUsage>();
    // SAFETY: memory of these sizes, with maximal alignment, that lasts until the workers are gone. Meanwhile each
    // process writes only rows of its own batches.
    unsafe {
        place.write(task);
        std::ptr::copy_nonoverlapping(rows.as_ptr(), shared, rows.len());
        std::ptr::copy_nonoverlapping(bounds.as_ptr(), bounds_place, bounds.len());
        for i in 0..workers {
            usages.add(i).write(WorkerUsage::default());
        }
        let launched = if parallel.most_workers() > 0 { parallel.launch() } else { 0 };
        point!("remove.together");
        let task = &*place;
        mark_parts(task, bounds_place, shared, windows)?;
        parallel.wait();
        point!("remove.joined");
        let cpu = usage::take_usages(usages, launched);
        std::ptr::copy_nonoverlapping(shared, rows.as_mut_ptr(), rows.len());
        parallel.finish();
        Ok(cpu)
    }
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
///
/// # Safety
/// A task, with its bounds and rows.
unsafe fn mark_parts(task: &RemovalTask, bounds: *const usize, rows: *mut u64, windows: &mut Windows) -> Result<()> {
    loop {
        let part = task.next.fetch_add(1, Relaxed);
        if part >= task.parts {
            return Ok(());
        }
        // SAFETY: this function's contract covers them: there is one bound more than there are batches, and this
        // process alone took the batch.
        let rows = unsafe {
            let (begin, end) = (*bounds.add(part), *bounds.add(part + 1));
            std::slice::from_raw_parts_mut(rows.add(begin), end - begin)
        };
        windows.mark(rows)?;
    }
}

/// A worker of [`mark`]. ParallelWorkerMain calls it in a transaction that shares the leader's state.
///
/// # Safety
/// The arguments are those of a parallel worker's entry point.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pg_bulk_removal_worker(_: *mut pg_sys::dsm_segment, toc: *mut pg_sys::shm_toc) {
    // SAFETY: the server passes a valid argument; nothing in this frame has a destructor.
    unsafe { work(toc) }
}

/// # Safety
/// As [`pg_bulk_removal_worker`].
#[pg_guard]
unsafe extern "C-unwind" fn work(toc: *mut pg_sys::shm_toc) {
    // SAFETY: the leader has inserted these keys, and holds a lock on the relation that a worker may share. Shared
    // memory may be read once the build ids agree; in every build it begins with the build id.
    unsafe {
        usage::begin_usage();
        let task = lookup(toc, KEY_TASK).cast::<RemovalTask>().cast_const();
        check_build((*task).build).or_raise();
        let task = &*task;
        let lock = pg_sys::AccessShareLock.cast_signed();
        let relation = Relation::from_raw(pg_sys::table_open(task.relation, lock));
        if !compat::is_same_file(compat::locator(relation), task.file) {
            let message = "a worker of the load has another file of the table than its leader";
            Err::<(), _>(Error::new(Code::ERRCODE_INTERNAL_ERROR, message)).or_raise();
        }
        point!("remove.helper");
        let mut windows = Windows::new(relation, task.needs_wal, task.deleter).or_raise();
        let (bounds, rows) = (lookup(toc, KEY_BOUNDS).cast::<usize>(), lookup(toc, KEY_ROWS).cast::<u64>());
        mark_parts(task, bounds, rows, &mut windows).or_raise();
        drop(windows);
        pg_sys::table_close(relation.as_ptr(), lock);
        let number = usize::try_from(pg_sys::ParallelWorkerNumber).unwrap_or(0);
        usage::end_usage(lookup(toc, KEY_USAGES).cast::<WorkerUsage>().add(number));
    }
}
