//! Rows on many pages, marked by several processes.
//!
//! ```text
//!   leader:  rows into shared memory ─► start ─┬─► next part, next … ─► wait ─► rows that nobody could mark
//!   worker:                                    └─► next part, next … ─┘
//! ```
//!
//! A part is a stretch of rows that ends with a page, so no page is touched by two. A row that is marked becomes 0 where all see
//! it, and what is left is the server's to delete, which parallel mode forbids, so the leader does it in the end. For the same reason the
//! number that rows get instead of a command is the one that the leader has had for the first of them, before
//! there were workers: all rows of a load were made by one command.
//!
//! While there are workers nobody reads a page of the heap into a buffer, so that what a process is told of buffers stays true.
//!
//! A checkpoint waits until it sees none of the processes between WAL and write. Each makes way for it once; after that it has to find
//! a moment when all are outside, or wait until the rows that were kept are done.

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
use crate::pg::usage::{self, Cpu, Share};

/// Keys of what is in shared memory.
const KEY_TASK: u64 = 1;
const KEY_ROWS: u64 = 2;
const KEY_BOUNDS: u64 = 3;
const KEY_SHARES: u64 = 4;

/// Pages that are worth the start of a worker, which takes as long as the leader needs for half of them; where chunks are made small,
/// for a test, there are fewer.
const WORTH: usize = 5_000;
const WORTH_SMALL: usize = 32;
/// Parts that rows are divided into, for each process: one of them may be held up.
const PARTS: usize = 16;

/// What workers need to know; in shared memory.
#[repr(C)]
struct Task {
    build: u64,
    relation: pg_sys::Oid,
    /// The heap's new file.
    file: compat::Locator,
    needs_wal: bool,
    deleter: Deleter,
    parts: usize,
    /// The next part.
    next: AtomicUsize,
}

/// How many workers the pages of rows in order are worth, if there may be so many.
pub fn worth(rows: &[u64], workers: usize) -> usize {
    let least = if guc::chunks_are_small() { WORTH_SMALL } else { WORTH };
    if workers == 0 || rows.len() < least {
        return 0;
    }
    let pages = rows.chunk_by(|a, b| block_of(*a) == block_of(*b)).count();
    workers.min(pages / least)
}

/// Mark rows, as [`Windows::mark`], with so many workers. Returns the processor time of these. Guarded, and interruptible.
///
/// # Safety
/// As [`Windows::new`], of the same relation; outside of parallel mode.
pub unsafe fn mark(
    relation: pg_sys::Relation,
    needs_wal: bool,
    windows: &mut Windows,
    rows: &mut [u64],
    workers: usize,
) -> Result<Cpu> {
    windows.deleter = windows.deleter.in_parallel();
    let bounds = bounds(rows, PARTS * (workers + 1));
    // SAFETY: the caller's relation.
    let (oid, file) = unsafe { ((*relation).rd_id, compat::locator(relation)) };
    let task = Task {
        build: build_id(),
        relation: oid,
        file,
        needs_wal,
        deleter: windows.deleter,
        parts: bounds.len().saturating_sub(1),
        next: AtomicUsize::new(0),
    };
    let mut parallel = Parallel::new(c"pg_bulk_removal_worker", workers);
    parallel.estimate(size_of::<Task>());
    parallel.estimate(size_of_val(rows));
    parallel.estimate(size_of_val(bounds.as_slice()));
    parallel.estimate(workers * size_of::<Share>());
    parallel.initialize();
    let place = parallel.insert(KEY_TASK, size_of::<Task>()).cast::<Task>();
    let shared = parallel.insert(KEY_ROWS, size_of_val(rows)).cast::<u64>();
    let bounds_place = parallel.insert(KEY_BOUNDS, size_of_val(bounds.as_slice())).cast::<usize>();
    let shares = parallel.insert(KEY_SHARES, workers * size_of::<Share>()).cast::<Share>();
    // SAFETY: room of these sizes, aligned for everything, which is there until the workers are gone. Meanwhile each process
    // has rows of its own.
    unsafe {
        place.write(task);
        std::ptr::copy_nonoverlapping(rows.as_ptr(), shared, rows.len());
        std::ptr::copy_nonoverlapping(bounds.as_ptr(), bounds_place, bounds.len());
        for i in 0..workers {
            shares.add(i).write(Share::default());
        }
        let launched = if parallel.most_workers() > 0 { parallel.launch() } else { 0 };
        point!("remove.together");
        let task = &*place;
        mark_parts(task, bounds_place, shared, windows)?;
        parallel.wait();
        point!("remove.joined");
        let cpu = usage::take_shares(shares, launched);
        std::ptr::copy_nonoverlapping(shared, rows.as_mut_ptr(), rows.len());
        parallel.finish();
        Ok(cpu)
    }
}

/// Where so many parts of about the same size begin, each with a page, and where the last one ends.
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

/// Mark one part after the other, until there is none. Guarded, and interruptible.
///
/// # Safety
/// A task, with its bounds and rows.
unsafe fn mark_parts(task: &Task, bounds: *const usize, rows: *mut u64, windows: &mut Windows) -> Result<()> {
    loop {
        let part = task.next.fetch_add(1, Relaxed);
        if part >= task.parts {
            return Ok(());
        }
        // SAFETY: this function's contract covers them: there is a bound more than there are parts, and nobody else has this part.
        let rows = unsafe {
            let (begin, end) = (*bounds.add(part), *bounds.add(part + 1));
            std::slice::from_raw_parts_mut(rows.add(begin), end - begin)
        };
        windows.mark(rows)?;
    }
}

/// A worker of [`mark`], called by ParallelWorkerMain in a transaction that is the leader's.
///
/// # Safety
/// The arguments are those of a parallel worker's entry point.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pg_bulk_removal_worker(_: *mut pg_sys::dsm_segment, toc: *mut pg_sys::shm_toc) {
    // SAFETY: the server vouches for the argument; nothing in this frame has a destructor.
    unsafe { work(toc) }
}

/// # Safety
/// As [`pg_bulk_removal_worker`].
#[pg_guard]
unsafe extern "C-unwind" fn work(toc: *mut pg_sys::shm_toc) {
    // SAFETY: the leader has put these under their keys, and holds a lock on the relation that a worker may share. What is
    // shared may be looked at once the builds agree, and it begins with the build's number in every build.
    unsafe {
        usage::begin_share();
        let task = lookup(toc, KEY_TASK).cast::<Task>().cast_const();
        check_build((*task).build).or_raise();
        let task = &*task;
        let lock = pg_sys::AccessShareLock.cast_signed();
        let relation = pg_sys::table_open(task.relation, lock);
        if !compat::is_same_file(compat::locator(relation), task.file) {
            let message = "a worker of the load has another file of the table than its leader";
            Err::<(), _>(Error::new(Code::ERRCODE_INTERNAL_ERROR, message)).or_raise();
        }
        point!("remove.helper");
        let mut windows = Windows::new(relation, task.needs_wal, task.deleter).or_raise();
        let (bounds, rows) = (lookup(toc, KEY_BOUNDS).cast::<usize>(), lookup(toc, KEY_ROWS).cast::<u64>());
        mark_parts(task, bounds, rows, &mut windows).or_raise();
        drop(windows);
        pg_sys::table_close(relation, lock);
        let number = usize::try_from(pg_sys::ParallelWorkerNumber).unwrap_or(0);
        usage::end_share(lookup(toc, KEY_SHARES).cast::<Share>().add(number));
    }
}
