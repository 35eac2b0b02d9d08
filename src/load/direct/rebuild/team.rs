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

use std::io::Write;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use pgrx::memcxt::PgMemoryContexts;
use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::members::{Member, members};
use super::{Build, is_about, may_see_keys, reword};
use crate::error::{Error, OrRaise, Result};
use crate::guc;
use crate::load::direct::index_keys::set_new_file;
use crate::load::direct::indexes::{Index, Indexes};
use crate::load::direct::strategy::IndexStrategy;
use crate::pg::attempt::attempt;
use crate::pg::build_id::{build_id, check_build};
use crate::pg::compat;
use crate::pg::failure;
use crate::pg::original::Original;
use crate::pg::owner::as_owner;
use crate::pg::parallel::{Parallel, lookup};
use crate::pg::points::{point, point_plain};
use crate::pg::unguarded::{self as c, Opaque, guard};
use crate::pg::usage::{self, Cpu, WorkerUsage};

/// Keys of the objects in shared memory.
const KEY_TASK: u64 = 1;
const KEY_PARTS: u64 = 2;
const KEY_USAGES: u64 = 3;

const MAIN: pg_sys::ForkNumber::Type = pg_sys::ForkNumber::MAIN_FORKNUM;
const EXCLUSIVE: pg_sys::LOCKMODE = pg_sys::AccessExclusiveLock.cast_signed();
const SHARE: pg_sys::LOCKMODE = pg_sys::ShareLock.cast_signed();
const NO_LOCK: pg_sys::LOCKMODE = pg_sys::NoLock.cast_signed();
/// The leader has all locks that are needed.
const WORKERS_LOCK: pg_sys::LOCKMODE = pg_sys::AccessShareLock.cast_signed();

/// Least number of a table's pages for which workers are started, unless a test uses small chunks.
const LEAST_BLOCKS: u32 = 128;
/// Least maintenance_work_mem of each process, in kB (plan_create_index_workers, planner.c).
const LEAST_MEMORY: i32 = 32 << 10;

/// Parameters for the workers, in shared memory.
#[repr(C)]
struct RebuildTask {
    build: u64,
    relation: pg_sys::Oid,
    /// maintenance_work_mem of each process, as a setting.
    memory: [u8; 16],
    parts: usize,
    /// The next part.
    next: AtomicU32,
}

/// An index, and the results of its build, in shared memory.
#[repr(C)]
struct IndexBuild {
    index: pg_sys::Oid,
    /// 1 for the leader, more for workers; 0 until the index is built.
    builder: AtomicU32,
    /// The counts of ambuild, as bits of floats, and microseconds.
    rows: AtomicU64,
    entries: AtomicU64,
    took: AtomicU64,
}

/// The input of a process's builds.
#[repr(C)]
struct Work {
    heap: pg_sys::Relation,
    task: *const RebuildTask,
    parts: *const IndexBuild,
    builder: u32,
    /// The memory is divided with other processes.
    divides: bool,
}

/// The leader and its workers.
struct Team {
    parallel: Option<Parallel>,
    work: Work,
    usages: *mut WorkerUsage,
    launched: usize,
    members: Vec<Member>,
    builds: Vec<Build>,
}

/// Indexes of a relation that are built at the same time.
pub struct Together {
    relation: pg_sys::Relation,
    indexes: *mut Indexes,
    /// Most workers.
    workers: usize,
    /// Null if no indexes are built at the same time; else in memory that lives as long as the indexes.
    team: *mut Team,
    /// CPU usage of the workers.
    pub cpu: Cpu,
}

impl Together {
    pub fn new(relation: pg_sys::Relation, indexes: *mut Indexes, workers: usize) -> Together {
        Together { relation, indexes, workers, team: std::ptr::null_mut(), cpu: Cpu::default() }
    }

    /// Is this index among those that are built at the same time?
    pub fn has(&self, number: usize) -> bool {
        // SAFETY: null, or valid as long as `self`.
        unsafe { self.team.as_ref() }.is_some_and(|team| team.members.iter().any(|member| member.number == number))
    }

    /// Builds the indexes.
    ///
    /// # Safety
    /// A plain frame outside of parallel mode; an open relation and its indexes, which are closed.
    pub unsafe fn build(this: *mut Together) {
        // SAFETY: this function's contract covers the frame; nothing in it has a destructor.
        unsafe {
            let to_build =
                (*(*this).indexes).list.iter().filter(|index| index.strategy == IndexStrategy::Rebuild).count();
            if (*this).workers == 0 || to_build < 2 {
                return;
            }
            // After rewording, an error could not be recognized as a worker's any more, so its context is corrected
            // first.
            let mut original = Original::new();
            let mut context = pg_sys::ErrorContextCallback::default();
            Original::push(&raw mut original, &raw mut context);
            let error = attempt(all, this.cast());
            if !error.is_null() {
                failure::recover();
                if !attempt(stop, this.cast()).is_null() {
                    failure::recover();
                }
                point_plain!("team.failed");
                // The callers correct any other error, and recognize a worker's.
                if is_about_keys((*this).team, error) {
                    Original::restore(&raw mut original, error);
                    reword_for_all((*this).team, error);
                }
                Original::pop(&raw mut original, &raw mut context);
                c::ReThrowError(error);
            }
            Original::pop(&raw mut original, &raw mut context);
        }
    }
}

/// # Safety
/// A plain frame; a valid [`Together`].
unsafe extern "C-unwind" fn all(this: Opaque) {
    // SAFETY: this function's contract covers the argument. While there are workers, their errors are raised in plain
    // frames only, with all fields.
    unsafe {
        let this = this.cast::<Together>();
        begin(this);
        let team = (*this).team;
        if team.is_null() {
            return;
        }
        point_plain!("team.launched");
        as_owner((*team).work.heap, build_parts, (&raw mut (*team).work).cast());
        point_plain!("team.waits");
        if let Some(parallel) = &(*team).parallel {
            parallel.wait_plainly();
        }
        end(this);
    }
}

/// Ends the workers after an error, so that no worker's error is received any more.
///
/// # Safety
/// A valid [`Together`], whose error is going to be raised again.
#[pg_guard]
unsafe extern "C-unwind" fn stop(this: Opaque) {
    // SAFETY: this function's contract covers the argument. Shared memory is not read after an error.
    unsafe {
        if let Some(parallel) = (*this.cast::<Together>()).team.as_mut().and_then(|team| team.parallel.take()) {
            parallel.destroy();
        }
    }
}

/// Makes new files, and starts workers.
///
/// # Safety
/// See [`Together::build`].
#[pg_guard]
unsafe extern "C-unwind" fn begin(this: *mut Together) {
    // SAFETY: this function's contract covers the argument; guarded calls.
    unsafe {
        let (relation, list) = ((*this).relation, &(*(*this).indexes).list);
        // Here reindex_index would raise an error.
        if is_reindexing() {
            return;
        }
        let is_small = guc::chunks_are_small();
        if !is_small && pg_sys::RelationGetNumberOfBlocksInFork(relation, MAIN) < LEAST_BLOCKS {
            return;
        }
        let members = members(relation, list);
        let memory = pg_sys::maintenance_work_mem;
        let memory_each = |workers: usize| memory / i32::try_from(workers + 1).unwrap_or(i32::MAX);
        let mut wanted = (*this).workers.min(members.len().saturating_sub(1));
        while wanted > 0 && !is_small && memory_each(wanted) < LEAST_MEMORY {
            wanted -= 1;
        }
        if wanted == 0 {
            return;
        }
        let of = |member: Member| list.get(member.number).map(|index| (member, index));
        let (members, indexes): (Vec<Member>, Vec<&Index>) = members.into_iter().filter_map(of).unzip();
        let persistence = (*(*relation).rd_rel).relpersistence;
        let build =
            |index: &&Index| Build { relation, index: *index, persistence, reveals: may_see_keys(relation, index.oid) };
        let builds = indexes.iter().map(build).collect();
        pg_sys::LockRelationOid((*relation).rd_id, SHARE);
        indexes.iter().for_each(|index| renew(relation, index.oid));
        set_pending(&indexes);
        let mut task = RebuildTask {
            build: build_id(),
            relation: (*relation).rd_id,
            memory: [0; 16],
            parts: indexes.len(),
            next: AtomicU32::new(0),
        };
        // The number has at most eleven digits.
        let _ = write!(&mut task.memory[..15], "{}", memory_each(wanted).max(1024));
        let (parallel, work, usages) = share_out(relation, wanted, task, &indexes);
        let team = Team { parallel: Some(parallel), work, usages, launched: 0, members, builds };
        (*this).team = PgMemoryContexts::CurrentMemoryContext.leak_and_drop_on_delete(team);
        // The error handler finds the workers from here on.
        let team = &mut *(*this).team;
        if let Some(parallel) = team.parallel.as_mut().filter(|parallel| parallel.most_workers() > 0) {
            team.launched = parallel.launch();
            team.work.divides = team.launched > 0;
        }
    }
}

/// Gives an index a new file, as reindex_index does (index.c). Guarded.
///
/// # Safety
/// The relation is open, and the index is one of its indexes, closed.
unsafe fn renew(relation: pg_sys::Relation, oid: pg_sys::Oid) {
    // SAFETY: this function's contract covers both arguments; guarded calls.
    unsafe {
        let index = pg_sys::index_open(oid, EXCLUSIVE);
        pg_sys::CheckTableNotInUse(index, c"REINDEX INDEX".as_ptr());
        guard(|| c::TransferPredicateLocksToHeapRelation(index));
        set_new_file(relation, index);
        pg_sys::index_close(index, NO_LOCK);
    }
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
///
/// # Safety
/// Outside of parallel mode.
unsafe fn set_pending(indexes: &[&Index]) {
    // SerializedReindexState: the heap and the index in process, the number of pending indexes, and their oids.
    let count = u32::try_from(indexes.len()).unwrap_or(0);
    let mut state: Vec<u32> = vec![0, 0, count];
    state.extend(indexes.iter().map(|index| index.oid.to_u32()));
    // SAFETY: oids and an int, all of four bytes; RestoreReindexState copies them.
    unsafe { pg_sys::RestoreReindexState(state.as_mut_ptr().cast()) };
}

/// Makes the shared state for workers. Guarded.
fn share_out(
    relation: pg_sys::Relation,
    wanted: usize,
    task: RebuildTask,
    indexes: &[&Index],
) -> (Parallel, Work, *mut WorkerUsage) {
    let mut parallel = Parallel::new(c"pg_bulk_team_worker", wanted);
    parallel.estimate(size_of::<RebuildTask>());
    parallel.estimate(indexes.len() * size_of::<IndexBuild>());
    parallel.estimate(wanted * size_of::<WorkerUsage>());
    parallel.initialize();
    let place = parallel.insert(KEY_TASK, size_of::<RebuildTask>()).cast::<RebuildTask>();
    let parts = parallel.insert(KEY_PARTS, indexes.len() * size_of::<IndexBuild>()).cast::<IndexBuild>();
    let usages = parallel.insert(KEY_USAGES, wanted * size_of::<WorkerUsage>()).cast::<WorkerUsage>();
    // SAFETY: memory of these sizes, aligned for any type.
    unsafe {
        place.write(task);
        for (i, index) in indexes.iter().enumerate() {
            let [rows, entries, took] = [const { AtomicU64::new(0) }; 3];
            parts.add(i).write(IndexBuild { index: index.oid, builder: AtomicU32::new(0), rows, entries, took });
        }
        for i in 0..wanted {
            usages.add(i).write(WorkerUsage::default());
        }
    }
    (parallel, Work { heap: relation, task: place, parts, builder: 1, divides: false }, usages)
}

/// Builds one index after the other until none is left.
///
/// # Safety
/// A plain frame, as the table's owner; a valid [`Work`].
unsafe extern "C-unwind" fn build_parts(work: Opaque) {
    // SAFETY: this function's contract covers the argument; nothing in this frame has a destructor.
    unsafe {
        let work = work.cast::<Work>();
        if (*work).divides {
            // Reset at the end of this function's nest level.
            c::set_config_option(
                c"maintenance_work_mem".as_ptr(),
                (*(*work).task).memory.as_ptr().cast(),
                pg_sys::GucContext::PGC_USERSET,
                pg_sys::GucSource::PGC_S_SESSION,
                pg_sys::GucAction::GUC_ACTION_SAVE,
                true,
                0,
                false,
            );
        }
        loop {
            let number = (*(*work).task).next.fetch_add(1, Relaxed) as usize;
            if number >= (*(*work).task).parts {
                return;
            }
            build_part(work, (*work).parts.add(number));
        }
    }
}

/// Builds an index in its new file.
///
/// # Safety
/// See [`build_parts`]; the part is this process's.
unsafe fn build_part(work: *const Work, part: *const IndexBuild) {
    // SAFETY: this function's contract covers the argument; nothing in this frame has a destructor.
    unsafe {
        c::check_for_interrupts();
        point_plain!("team.build");
        let began = Instant::now();
        let outside = pg_sys::CurrentMemoryContext;
        let memory = c::AllocSetContextCreateInternal(
            outside,
            c"pg_bulk index".as_ptr(),
            pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
        );
        pg_sys::CurrentMemoryContext = memory;
        let index = c::index_open((*part).index, WORKERS_LOCK);
        let info = c::BuildIndexInfo(index);
        let (mut rows, mut entries) = (0.0_f64, 0.0_f64);
        if let Some(build) = (*(*index).rd_indam).ambuild {
            let result = build((*work).heap, index, info);
            (rows, entries) = ((*result).heap_tuples, (*result).index_tuples);
        }
        c::index_close(index, WORKERS_LOCK);
        pg_sys::CurrentMemoryContext = outside;
        c::MemoryContextDelete(memory);
        (*part).rows.store(rows.to_bits(), Relaxed);
        (*part).entries.store(entries.to_bits(), Relaxed);
        (*part).took.store(began.elapsed().as_micros() as u64, Relaxed);
        (*part).builder.store((*work).builder, Release);
        point_plain!("team.built");
    }
}

/// Takes the results of all builds, after the workers have ended.
///
/// # Safety
/// The team was made by [`begin`].
#[pg_guard]
unsafe extern "C-unwind" fn end(this: *mut Together) {
    // SAFETY: this function's contract covers the argument.
    unsafe { (*this).end() }.or_raise();
}

impl Together {
    /// # Safety
    /// See [`end`].
    unsafe fn end(&mut self) -> Result<()> {
        // SAFETY: this function's contract covers the argument; guarded calls. Shared memory stays until `finish`.
        unsafe {
            let (relation, list, team) = (self.relation, &mut (*self.indexes).list, &mut *self.team);
            self.cpu = usage::take_usages(team.usages, team.launched);
            let number = |bits: &AtomicU64| f64::from_bits(bits.load(Relaxed));
            let mut built = Vec::with_capacity(team.members.len());
            let mut rows = 0.0_f64;
            for (i, member) in team.members.iter().enumerate() {
                let part = &*team.work.parts.add(i);
                let builder = part.builder.load(Acquire);
                let Some(index) = list.get_mut(member.number).filter(|_| builder > 0) else {
                    return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, "an index was not built"));
                };
                index.took += Duration::from_micros(part.took.load(Relaxed));
                index.workers = usize::from(builder > 1);
                built.push((part.index, number(&part.entries)));
                rows = rows.max(number(&part.rows));
            }
            if let Some(parallel) = team.parallel.take() {
                parallel.finish();
            }
            pg_sys::ResetReindexState(pg_sys::GetCurrentTransactionNestLevel());
            for (oid, entries) in built {
                let index = pg_sys::index_open(oid, NO_LOCK);
                // As in index_update_stats (index.c): an index with a new, empty file needs no update.
                if entries > 0.0 {
                    let pages = pg_sys::RelationGetNumberOfBlocksInFork(index, MAIN);
                    compat::set_index_statistics(index, pages, entries);
                } else {
                    pg_sys::CacheInvalidateRelcache(index);
                }
                pg_sys::index_close(index, NO_LOCK);
            }
            if rows > 0.0 || (*(*relation).rd_rel).reltuples >= 0.0 {
                let blocks = pg_sys::RelationGetNumberOfBlocksInFork(relation, MAIN);
                compat::set_table_statistics(relation, blocks, rows);
            }
            pg_sys::CommandCounterIncrement();
            point!("team.done");
        }
        Ok(())
    }
}

/// Does [`reword_for_all`] change this error?
///
/// # Safety
/// The error was caught while the team built, or before it was made.
#[pg_guard]
unsafe extern "C-unwind" fn is_about_keys(team: *const Team, error: *const pg_sys::ErrorData) -> bool {
    // SAFETY: this function's contract covers both arguments.
    unsafe { team.as_ref().is_some_and(|team| team.builds.iter().any(|build| is_about(error, build))) }
}

/// # Safety
/// See [`is_about_keys`].
#[pg_guard]
unsafe extern "C-unwind" fn reword_for_all(team: *const Team, error: *mut pg_sys::ErrorData) {
    // SAFETY: this function's contract covers both arguments.
    unsafe {
        if let Some(team) = team.as_ref() {
            team.builds.iter().for_each(|build| reword(error, build));
        }
    }
}

/// Entry point of a worker of [`Together::build`], called by ParallelWorkerMain in a transaction with the leader's xid.
///
/// # Safety
/// The arguments are those of a parallel worker's entry point.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pg_bulk_team_worker(_: *mut pg_sys::dsm_segment, toc: *mut pg_sys::shm_toc) {
    // SAFETY: the server passes the argument; nothing in this frame has a destructor.
    unsafe {
        let mut work = std::mem::MaybeUninit::<Work>::uninit();
        join(toc, work.as_mut_ptr());
        as_owner((*work.as_ptr()).heap, build_parts, work.as_mut_ptr().cast());
        part(toc, work.as_ptr());
    }
}

/// Begins a worker's work.
///
/// # Safety
/// `toc` is a worker's table of contents, and `work` can be written to.
#[pg_guard]
unsafe extern "C-unwind" fn join(toc: *mut pg_sys::shm_toc, work: *mut Work) {
    // SAFETY: the leader has inserted these keys, and holds locks on the relations that a worker may share. The build
    // number comes first in every build; all other shared state is read only after the builds are found equal.
    unsafe {
        usage::begin_usage();
        let task = lookup(toc, KEY_TASK).cast::<RebuildTask>().cast_const();
        check_build((*task).build).or_raise();
        let parts = lookup(toc, KEY_PARTS).cast::<IndexBuild>().cast_const();
        let heap = pg_sys::table_open((*task).relation, WORKERS_LOCK);
        let builder = u32::try_from(pg_sys::ParallelWorkerNumber).unwrap_or(0) + 2;
        work.write(Work { heap, task, parts, builder, divides: true });
        point!("team.worker");
    }
}

/// Ends a worker's work.
///
/// # Safety
/// The arguments are those of [`join`], which has filled `work`.
#[pg_guard]
unsafe extern "C-unwind" fn part(toc: *mut pg_sys::shm_toc, work: *const Work) {
    // SAFETY: this function's contract covers both arguments; the array has an element for each worker.
    unsafe {
        pg_sys::table_close((*work).heap, WORKERS_LOCK);
        let number = usize::try_from(pg_sys::ParallelWorkerNumber).unwrap_or(0);
        usage::end_usage(lookup(toc, KEY_USAGES).cast::<WorkerUsage>().add(number));
    }
}
