//! Builds several indexes of a relation at the same time, each by one process.
//!
//! ```text
//!   leader:  new files ─► start ─┬─► next index, next … ─► wait ─► statistics
//!   worker:                      └─► next index, next … ─┘
//! ```
//!
//! The process that takes an index lets its access method build it, as index_build does (index.c). Parallel mode
//! forbids the other steps of index_build and reindex_index. So the leader does them. Before it starts workers, it
//! makes the file and its init fork, transfers predicate locks, and marks the index as being rebuilt. After the workers
//! have ended, it sets the statistics. For the indexes that [`super::members`] chooses, pg_index does not change.
//!
//! Workers get the needed state from the server's parallel mode. RestoreReindexState passes on which indexes are being
//! built. Their xids show which rows are of this transaction, and pending syncs show that a file is new and has no WAL
//! (RelationInitPhysicalAddr, relcache.c). Parallel mode does not pass on that a relation is local, so they take
//! extension locks, for which no other process waits.
//!
//! Memory is divided between the processes, and a worker has no workers of its own. If two processes have an error, the
//! one that is received first is raised. The workers are ended before any step that can be interrupted. Otherwise a
//! second error could be raised, in the server's words, with a key that the user may not see.

use std::ffi::CStr;
use std::io::Write;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::Rebuild;
use super::members::{Member, members};
use crate::error::{Error, OrRaise, Result};
use crate::guc;
use crate::index::index_keys::set_new_file;
use crate::load::direct::indexes::Index;
use crate::server::call::calls;
use crate::server::compat;
use crate::server::lock::lock_relation;
use crate::server::memory_context::MemoryContext;
use crate::server::original::keeping_fields;
use crate::server::owner::as_owner;
use crate::server::points::point;
use crate::server::relation::{OpenRelation, Relation};
use crate::server::role::set_option;
use crate::server::statement::{nest_level, next_command};
use crate::server::team::{Array, Image, Memory, Portions, Shareable, Task, Team, Worker};
use crate::server::unguarded::guard;
use crate::server::usage::Cpu;

/// The leader has all locks that are needed.
const WORKERS_LOCK: u32 = pg_sys::AccessShareLock;

/// Least number of a table's pages for which workers are started, unless a test uses small chunks.
const LEAST_BLOCKS: u32 = 128;
/// Least maintenance_work_mem of each process, in kB (plan_create_index_workers, planner.c).
const LEAST_MEMORY: i32 = 32 << 10;

/// The builds of several indexes.
#[derive(Debug)]
pub(super) struct RebuildTask {
    relation: pg_sys::Oid,
    /// maintenance_work_mem of each process, as a setting.
    memory: [u8; 16],
    builds: Array<IndexBuild>,
    portions: Portions,
}

/// An index, and the results of its build, in shared memory.
#[derive(Debug)]
struct IndexBuild {
    index: pg_sys::Oid,
    /// 1 for the leader, more for workers; 0 until the index is built.
    builder: AtomicU32,
    /// The counts of ambuild, as bits of floats, and microseconds.
    rows: AtomicU64,
    entries: AtomicU64,
    took: AtomicU64,
}

// SAFETY: plain data.
unsafe impl Shareable for IndexBuild {}
// SAFETY: plain data.
unsafe impl Shareable for RebuildTask {}
// SAFETY: the worker is below.
unsafe impl Task for RebuildTask {
    const WORKER: &'static CStr = c"pg_bulk_team_worker";
}

impl Rebuild {
    /// Builds indexes at the same time, if there are several for which workers are worth their start. Returns their
    /// positions, and the workers' CPU usage. Guarded.
    pub(super) fn build_together(
        &mut self,
        relation: Relation<'_>,
        list: &mut [Index],
        workers: usize,
    ) -> Result<(Vec<usize>, Cpu)> {
        let is_small = guc::chunks_are_small();
        // If a caller is reindexing, reindex_index would raise an error.
        if workers == 0 || self.builds.len() < 2 || is_reindexing() || !is_small && relation.pages() < LEAST_BLOCKS {
            return Ok((Vec::new(), Cpu::default()));
        }
        let members = members(relation, list);
        let memory = guc::maintenance_work_mem();
        let memory_each = |workers: usize| memory / i32::try_from(workers + 1).unwrap_or(i32::MAX);
        let mut wanted = workers.min(members.len().saturating_sub(1));
        while wanted > 0 && !is_small && memory_each(wanted) < LEAST_MEMORY {
            wanted -= 1;
        }
        if wanted == 0 {
            return Ok((Vec::new(), Cpu::default()));
        }
        let numbers: Vec<usize> = members.iter().map(|Member { number, .. }| *number).collect();
        let oids: Vec<pg_sys::Oid> = numbers.iter().filter_map(|&number| Some(list.get(number)?.oid)).collect();
        lock_relation(relation.oid(), pg_sys::ShareLock);
        oids.iter().for_each(|&index| renew(relation, index));
        set_pending(&oids);
        let mut image = Image::new();
        let mut task = RebuildTask {
            relation: relation.oid(),
            memory: [0; 16],
            builds: image.array(oids.iter().map(|&index| {
                let [rows, entries, took] = [const { AtomicU64::new(0) }; 3];
                IndexBuild { index, builder: AtomicU32::new(0), rows, entries, took }
            })),
            portions: Portions::new(oids.len()),
        };
        // The number has at most eleven digits.
        let _ = write!(&mut task.memory[..15], "{}", memory_each(wanted).max(1024));
        // The error handler finds the workers from here on.
        let team = self.team.insert(Team::new(image, wanted, task));
        let divides = team.launch() > 0;
        point!("team.launched");
        as_owner(relation, || build_all(relation, team, 1, divides));
        point!("team.waits");
        let cpu = team.wait();
        let mut entries = Vec::with_capacity(oids.len());
        let mut rows = 0.0_f64;
        for (&number, build) in numbers.iter().zip(team.slice(team.task().builds)) {
            let builder = build.builder.load(Acquire);
            let Some(index) = list.get_mut(number).filter(|_| builder > 0) else {
                return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, "an index was not built"));
            };
            index.took += Duration::from_micros(build.took.load(Relaxed));
            index.workers = usize::from(builder > 1);
            entries.push(f64::from_bits(build.entries.load(Relaxed)));
            rows = rows.max(f64::from_bits(build.rows.load(Relaxed)));
        }
        if let Some(team) = self.team.take() {
            team.finish();
        }
        end_pending();
        for (oid, entries) in oids.into_iter().zip(entries) {
            let index = OpenRelation::locked(oid);
            let index = index.get();
            // As in index_update_stats (index.c): an index with a new, empty file needs no update.
            if entries > 0.0 {
                compat::set_index_statistics(index, index.pages(), entries);
            } else {
                index.invalidate();
            }
        }
        if rows > 0.0 || relation.has_statistics() {
            compat::set_table_statistics(relation, relation.pages(), rows);
        }
        next_command();
        point!("team.done");
        Ok((numbers, cpu))
    }

    /// Ends the workers after an error that is going to be raised again. Shared memory is not read any more. Guarded.
    pub(super) fn stop(&mut self) {
        if let Some(team) = self.team.take() {
            team.destroy();
        }
    }
}

/// Gives an index a new file, as reindex_index does (index.c). Guarded.
fn renew(relation: Relation<'_>, index: pg_sys::Oid) {
    let index = OpenRelation::open(index, pg_sys::AccessExclusiveLock);
    let index = index.get();
    index.check_unused(c"REINDEX INDEX");
    index.move_predicate_locks();
    set_new_file(relation, index);
}

/// Is a caller reindexing something? The server has only one such state, which must not be overwritten. Guarded.
fn is_reindexing() -> bool {
    // SAFETY: guarded calls; the buffer has the state's size, all of it in words of four bytes (SerializedReindexState,
    // index.c).
    unsafe {
        let size = pg_sys::EstimateReindexStateSpace();
        let mut state = vec![0_u32; size.div_ceil(size_of::<u32>())];
        pg_sys::SerializeReindexState(size, state.as_mut_ptr().cast());
        state.iter().any(|&word| word != 0)
    }
}

/// Marks the indexes as being rebuilt, in all processes, so that reading one of them raises an error.
///
/// An expression of another index might read it. SetReindexProcessing (index.c) has room for one index only. Guarded.
fn set_pending(indexes: &[pg_sys::Oid]) {
    // SerializedReindexState: the heap and the index in process, the number of pending indexes, and their oids.
    let count = u32::try_from(indexes.len()).unwrap_or(0);
    let mut state: Vec<u32> = vec![0, 0, count];
    state.extend(indexes.iter().map(|index| index.to_u32()));
    // SAFETY: oids and an int, all of four bytes; RestoreReindexState copies them.
    unsafe { pg_sys::RestoreReindexState(state.as_mut_ptr().cast()) };
}

// SAFETY: clears the state, unless an outer transaction has set it.
calls! {
    /// Ends [`set_pending`]. Guarded.
    fn end_pending() = ResetReindexState((nest_level()));
}

/// Builds one index after the other until none is left, as the table's owner. `builder`: 1 for the leader, more for
/// workers. `divides`: the memory is divided with other processes. Guarded.
fn build_all(heap: Relation<'_>, memory: &Memory<RebuildTask>, builder: u32, divides: bool) {
    let task = memory.task();
    if divides {
        let memory = CStr::from_bytes_until_nul(&task.memory).unwrap_or_default();
        let (context, action) = (pg_sys::GucContext::PGC_USERSET, pg_sys::GucAction::GUC_ACTION_SAVE);
        // The setting is reset at the end of the caller's nest level.
        set_option(c"maintenance_work_mem", memory, context, action);
    }
    let builds = memory.slice(task.builds);
    while let Some(build) = task.portions.take().and_then(|number| builds.get(number)) {
        build_index(heap, build, builder);
    }
}

/// Builds an index in its new file. Guarded.
fn build_index(heap: Relation<'_>, build: &IndexBuild, builder: u32) {
    pgrx::check_for_interrupts!();
    point!("team.build");
    let began = Instant::now();
    let index = OpenRelation::open(build.index, WORKERS_LOCK).releasing();
    let relation = index.get().as_ptr();
    let memory = MemoryContext::current().child(c"pg_bulk index");
    let entered = memory.enter();
    // SAFETY: guarded calls on an open index and its table; the closure owns nothing. The memory context has all memory
    // of the build.
    let (rows, entries) = unsafe {
        let info = pg_sys::BuildIndexInfo(relation);
        let counts = (*(*relation).rd_indam).ambuild.map_or((0.0, 0.0), |ambuild| {
            let result = &*guard(|| ambuild(heap.as_ptr(), relation, info));
            (result.heap_tuples, result.index_tuples)
        });
        drop(entered);
        memory.delete();
        counts
    };
    drop(index);
    build.rows.store(f64::to_bits(rows), Relaxed);
    build.entries.store(f64::to_bits(entries), Relaxed);
    build.took.store(began.elapsed().as_micros() as u64, Relaxed);
    build.builder.store(builder, Release);
    point!("team.built");
}

/// Entry point of a worker of [`Rebuild::build_together`], called by ParallelWorkerMain in a transaction with the
/// leader's xid.
///
/// # Safety
/// The arguments are those of a parallel worker's entry point.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pg_bulk_team_worker(segment: *mut pg_sys::dsm_segment, toc: *mut pg_sys::shm_toc) {
    // SAFETY: the server passes the arguments; a plain frame, in which nothing has a destructor.
    unsafe {
        keeping_fields(|| {
            let team = Worker::<RebuildTask>::join(segment, toc).or_raise();
            let heap = OpenRelation::open(team.task().relation, WORKERS_LOCK).releasing();
            let builder = u32::try_from(team.number).unwrap_or(0) + 1;
            point!("team.worker");
            as_owner(heap.get(), || build_all(heap.get(), &team, builder, true));
            drop(heap);
            team.end();
        });
    }
}
