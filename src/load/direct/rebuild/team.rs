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

use pgrx::memcxt::PgMemoryContexts;
use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::members::{Member, members};
use super::{Build, is_about, may_see_keys, reword};
use crate::error::{Error, OrRaise, Result};
use crate::guc;
use crate::index::index_keys::set_new_file;
use crate::index::strategy::IndexStrategy;
use crate::load::direct::indexes::{Index, Indexes};
use crate::server::attempt::attempt;
use crate::server::compat;
use crate::server::failure;
use crate::server::original::Original;
use crate::server::owner::as_owner;
use crate::server::points::{point, point_plain};
use crate::server::relation::Relation;
use crate::server::team::{Array, Image, Memory, Portions, Shareable, Task, Team, Worker};
use crate::server::unguarded::{self as c, Opaque, guard};
use crate::server::usage::Cpu;

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

/// The builds of several indexes.
struct RebuildTask {
    relation: pg_sys::Oid,
    /// maintenance_work_mem of each process, as a setting.
    memory: [u8; 16],
    builds: Array<IndexBuild>,
    portions: Portions,
}

/// An index, and the results of its build, in shared memory.
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

/// The input of a process's builds.
struct Work {
    heap: pg_sys::Relation,
    shared: *const Memory<RebuildTask>,
    builder: u32,
    /// The memory is divided with other processes.
    divides: bool,
}

/// The leader's state.
struct LeaderState {
    team: Option<Team<RebuildTask>>,
    work: Work,
    members: Vec<Member>,
    builds: Vec<Build>,
}

/// A worker's state.
struct WorkerState {
    team: Worker<RebuildTask>,
    work: Work,
}

/// Indexes of a relation that are built at the same time.
pub struct Together {
    relation: pg_sys::Relation,
    indexes: *mut Indexes,
    /// Most workers.
    workers: usize,
    /// Null if no indexes are built at the same time; else in memory that lives as long as the indexes.
    state: *mut LeaderState,
    /// CPU usage of the workers.
    pub cpu: Cpu,
}

impl Together {
    pub fn new(relation: pg_sys::Relation, indexes: *mut Indexes, workers: usize) -> Together {
        Together { relation, indexes, workers, state: std::ptr::null_mut(), cpu: Cpu::default() }
    }

    /// Is this index among those that are built at the same time?
    pub fn has(&self, number: usize) -> bool {
        // SAFETY: null, or valid as long as `self`.
        unsafe { self.state.as_ref() }.is_some_and(|state| state.members.iter().any(|member| member.number == number))
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
            let error = attempt(|| all(this.cast()));
            if !error.is_null() {
                failure::recover();
                if !attempt(|| stop(this.cast())).is_null() {
                    failure::recover();
                }
                point_plain!("team.failed");
                // The callers correct any other error, and recognize a worker's.
                if is_about_keys((*this).state, error) {
                    Original::restore(&raw mut original, error);
                    reword_for_all((*this).state, error);
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
        let state = (*this).state;
        if state.is_null() {
            return;
        }
        point_plain!("team.launched");
        as_owner(Relation::from_raw((*state).work.heap), build_all, (&raw mut (*state).work).cast());
        point_plain!("team.waits");
        if let Some(team) = &(*state).team {
            team.wait_plainly();
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
        if let Some(team) = (*this.cast::<Together>()).state.as_mut().and_then(|state| state.team.take()) {
            team.destroy();
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
        let mut image = Image::new();
        let mut task = RebuildTask {
            relation: (*relation).rd_id,
            memory: [0; 16],
            builds: image.array(indexes.iter().map(|index| {
                let [rows, entries, took] = [const { AtomicU64::new(0) }; 3];
                IndexBuild { index: index.oid, builder: AtomicU32::new(0), rows, entries, took }
            })),
            portions: Portions::new(indexes.len()),
        };
        // The number has at most eleven digits.
        let _ = write!(&mut task.memory[..15], "{}", memory_each(wanted).max(1024));
        let work = Work { heap: relation, shared: std::ptr::null(), builder: 1, divides: false };
        let state = LeaderState { team: Some(Team::new(image, wanted, task)), work, members, builds };
        (*this).state = PgMemoryContexts::CurrentMemoryContext.leak_and_drop_on_delete(state);
        // The error handler finds the workers from here on.
        let state = &mut *(*this).state;
        if let Some(team) = &mut state.team {
            state.work.divides = team.launch() > 0;
            state.work.shared = &raw const **team;
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

/// Builds one index after the other until none is left.
///
/// # Safety
/// A plain frame, as the table's owner; a valid [`Work`].
unsafe extern "C-unwind" fn build_all(work: Opaque) {
    // SAFETY: this function's contract covers the argument; nothing in this frame has a destructor.
    unsafe {
        let work = work.cast::<Work>();
        let shared = &*(*work).shared;
        if (*work).divides {
            // Reset at the end of this function's nest level.
            c::set_config_option(
                c"maintenance_work_mem".as_ptr(),
                shared.task().memory.as_ptr().cast(),
                pg_sys::GucContext::PGC_USERSET,
                pg_sys::GucSource::PGC_S_SESSION,
                pg_sys::GucAction::GUC_ACTION_SAVE,
                true,
                0,
                false,
            );
        }
        let builds = shared.slice(shared.task().builds);
        while let Some(build) = shared.task().portions.take().and_then(|number| builds.get(number)) {
            build_index(work, build);
        }
    }
}

/// Builds an index in its new file.
///
/// # Safety
/// See [`build_all`]; the index is this process's to build.
unsafe fn build_index(work: *const Work, index_build: &IndexBuild) {
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
        let index = c::index_open(index_build.index, WORKERS_LOCK);
        let info = c::BuildIndexInfo(index);
        let (mut rows, mut entries) = (0.0_f64, 0.0_f64);
        if let Some(build) = (*(*index).rd_indam).ambuild {
            let result = build((*work).heap, index, info);
            (rows, entries) = ((*result).heap_tuples, (*result).index_tuples);
        }
        c::index_close(index, WORKERS_LOCK);
        pg_sys::CurrentMemoryContext = outside;
        c::MemoryContextDelete(memory);
        index_build.rows.store(rows.to_bits(), Relaxed);
        index_build.entries.store(entries.to_bits(), Relaxed);
        index_build.took.store(began.elapsed().as_micros() as u64, Relaxed);
        index_build.builder.store((*work).builder, Release);
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
            let (relation, list, state) = (self.relation, &mut (*self.indexes).list, &mut *self.state);
            let Some(team) = &mut state.team else { return Ok(()) };
            self.cpu = team.wait();
            let number = |bits: &AtomicU64| f64::from_bits(bits.load(Relaxed));
            let mut built = Vec::with_capacity(state.members.len());
            let mut rows = 0.0_f64;
            for (member, build) in state.members.iter().zip(team.slice(team.task().builds)) {
                let builder = build.builder.load(Acquire);
                let Some(index) = list.get_mut(member.number).filter(|_| builder > 0) else {
                    return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, "an index was not built"));
                };
                index.took += Duration::from_micros(build.took.load(Relaxed));
                index.workers = usize::from(builder > 1);
                built.push((build.index, number(&build.entries)));
                rows = rows.max(number(&build.rows));
            }
            if let Some(team) = state.team.take() {
                team.finish();
            }
            pg_sys::ResetReindexState(pg_sys::GetCurrentTransactionNestLevel());
            for (oid, entries) in built {
                let index = pg_sys::index_open(oid, NO_LOCK);
                // As in index_update_stats (index.c): an index with a new, empty file needs no update.
                if entries > 0.0 {
                    let pages = pg_sys::RelationGetNumberOfBlocksInFork(index, MAIN);
                    compat::set_index_statistics(Relation::from_raw(index), pages, entries);
                } else {
                    pg_sys::CacheInvalidateRelcache(index);
                }
                pg_sys::index_close(index, NO_LOCK);
            }
            if rows > 0.0 || (*(*relation).rd_rel).reltuples >= 0.0 {
                let blocks = pg_sys::RelationGetNumberOfBlocksInFork(relation, MAIN);
                compat::set_table_statistics(Relation::from_raw(relation), blocks, rows);
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
unsafe extern "C-unwind" fn is_about_keys(state: *const LeaderState, error: *const pg_sys::ErrorData) -> bool {
    // SAFETY: this function's contract covers both arguments.
    unsafe { state.as_ref().is_some_and(|state| state.builds.iter().any(|build| is_about(error, build))) }
}

/// # Safety
/// See [`is_about_keys`].
#[pg_guard]
unsafe extern "C-unwind" fn reword_for_all(state: *const LeaderState, error: *mut pg_sys::ErrorData) {
    // SAFETY: this function's contract covers both arguments.
    unsafe {
        if let Some(state) = state.as_ref() {
            state.builds.iter().for_each(|build| reword(error, build));
        }
    }
}

/// Entry point of a worker of [`Together::build`], called by ParallelWorkerMain in a transaction with the leader's xid.
///
/// # Safety
/// The arguments are those of a parallel worker's entry point.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pg_bulk_team_worker(segment: *mut pg_sys::dsm_segment, toc: *mut pg_sys::shm_toc) {
    // SAFETY: the server passes the arguments; nothing in this frame has a destructor.
    unsafe {
        let mut state = std::mem::MaybeUninit::<WorkerState>::uninit();
        let state = state.as_mut_ptr();
        join(segment, toc, state);
        as_owner(Relation::from_raw((*state).work.heap), build_all, (&raw mut (*state).work).cast());
        leave(state);
    }
}

/// Begins a worker's work.
///
/// # Safety
/// See [`pg_bulk_team_worker`]; `state` can be written to, and stays at its address.
#[pg_guard]
unsafe extern "C-unwind" fn join(
    segment: *mut pg_sys::dsm_segment,
    toc: *mut pg_sys::shm_toc,
    state: *mut WorkerState,
) {
    // SAFETY: this function's contract covers all arguments; the leader holds locks on the relations that a worker may
    // share.
    unsafe {
        let place = &raw mut (*state).team;
        place.write(Worker::join(segment, toc).or_raise());
        let team = &*place;
        let heap = pg_sys::table_open(team.task().relation, WORKERS_LOCK);
        let builder = u32::try_from(team.number).unwrap_or(0) + 1;
        (&raw mut (*state).work).write(Work { heap, shared: &raw const **team, builder, divides: true });
        point!("team.worker");
    }
}

/// Ends a worker's work.
///
/// # Safety
/// The state is that of [`join`].
#[pg_guard]
unsafe extern "C-unwind" fn leave(state: *const WorkerState) {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        pg_sys::table_close((*state).work.heap, WORKERS_LOCK);
        (*state).team.end();
    }
}
