//! Several indexes of a relation at once, each by one process.
//!
//! ```text
//!   leader:  new files ─► start ─┬─► next index, next … ─► wait ─► statistics
//!   worker:                      └─► next index, next … ─┘
//! ```
//!
//! An index is built by its access method, as index_build (index.c) has it built, by whoever takes it. What is done around
//! that, in index_build and reindex_index, parallel mode forbids, so the leader does it before there are workers (the file and
//! its init fork, predicate locks, that nobody may read the index meanwhile) and when they are gone (statistics). What they
//! would say of the index in pg_index does not change for those that [`super::members`] lets in.
//!
//! Workers learn from the server what they have to know: which indexes are being built (RestoreReindexState), that a row is
//! of this transaction (its xids), and that a file is new and has no WAL (RelationInitPhysicalAddr, relcache.c, from pending
//! syncs). That a relation is local they do not know, and take locks to extend it that nobody else wants.
//!
//! Memory is divided, and no worker has workers of its own. Whose error is raised if two of them have one is not
//! known beforehand: the one that is seen first. Nobody sees another: the workers are ended before anything else is done
//! that could be interrupted, since another would be in the server's words, with a key that the user may not see.

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
use crate::load::direct::failure;
use crate::load::direct::index_keys::set_new_file;
use crate::load::direct::indexes::{Index, Indexes};
use crate::load::direct::way::Way;
use crate::pg::attempt::attempt;
use crate::pg::build_id::{build_id, check_build};
use crate::pg::compat;
use crate::pg::original::Original;
use crate::pg::owner::as_owner;
use crate::pg::parallel::{Parallel, lookup};
use crate::pg::points::{point, point_plain};
use crate::pg::unguarded::{self as c, Opaque, guard};
use crate::pg::usage::{self, Cpu, Share};

/// Keys of what is in shared memory.
const KEY_TASK: u64 = 1;
const KEY_PARTS: u64 = 2;
const KEY_SHARES: u64 = 3;

const MAIN: pg_sys::ForkNumber::Type = pg_sys::ForkNumber::MAIN_FORKNUM;
const EXCLUSIVE: pg_sys::LOCKMODE = pg_sys::AccessExclusiveLock.cast_signed();
const SHARE: pg_sys::LOCKMODE = pg_sys::ShareLock.cast_signed();
const NO_LOCK: pg_sys::LOCKMODE = pg_sys::NoLock.cast_signed();
/// The leader has all locks that there have to be.
const WORKERS_LOCK: pg_sys::LOCKMODE = pg_sys::AccessShareLock.cast_signed();

/// Pages of a table whose indexes are worth the start of a worker, but where chunks are made small, for a test.
const LEAST_BLOCKS: u32 = 128;
/// What each process has of maintenance_work_mem at least, in kB (plan_create_index_workers, planner.c).
const LEAST_MEMORY: i32 = 32 << 10;

/// What workers need to know; in shared memory.
#[repr(C)]
struct Task {
    build: u64,
    relation: pg_sys::Oid,
    /// maintenance_work_mem of each process, as a setting.
    memory: [u8; 16],
    parts: usize,
    /// The next part.
    next: AtomicU32,
}

/// An index, and what its builder has to say; in shared memory.
#[repr(C)]
struct Part {
    index: pg_sys::Oid,
    /// 1 for the leader, more for workers; 0 until it is built.
    builder: AtomicU32,
    /// What ambuild has counted, as bits, and microseconds.
    rows: AtomicU64,
    entries: AtomicU64,
    took: AtomicU64,
}

/// What a process builds from.
#[repr(C)]
struct Work {
    heap: pg_sys::Relation,
    task: *const Task,
    parts: *const Part,
    builder: u32,
    /// Others have memory, too.
    divides: bool,
}

/// The leader and its workers.
struct Team {
    parallel: Option<Parallel>,
    work: Work,
    shares: *mut Share,
    launched: usize,
    members: Vec<Member>,
    builds: Vec<Build>,
}

/// Some of a relation's indexes, built or to be built at once.
pub struct Together {
    relation: pg_sys::Relation,
    indexes: *mut Indexes,
    /// So many workers there may be.
    workers: usize,
    /// Null if there is nothing to be built at once; else in memory that lives as long as the indexes.
    team: *mut Team,
    /// What workers have used.
    pub cpu: Cpu,
}

impl Together {
    pub fn new(relation: pg_sys::Relation, indexes: *mut Indexes, workers: usize) -> Together {
        Together { relation, indexes, workers, team: std::ptr::null_mut(), cpu: Cpu::default() }
    }

    /// Is this one of them?
    pub fn has(&self, number: usize) -> bool {
        // SAFETY: null, or valid while this is.
        unsafe { self.team.as_ref() }.is_some_and(|team| team.members.iter().any(|member| member.number == number))
    }

    /// Build them.
    ///
    /// # Safety
    /// A plain frame outside of parallel mode; an open relation and its indexes, which are closed.
    pub unsafe fn build(this: *mut Together) {
        // SAFETY: this function's contract covers the frame; nothing in it has a destructor.
        unsafe {
            let to_build = (*(*this).indexes).list.iter().filter(|index| index.way == Way::Rebuilt).count();
            if (*this).workers == 0 || to_build < 2 {
                return;
            }
            // An error that gets other words is not known any more to whoever takes it off a worker's that it was one.
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
                // Any other is put right by whoever takes it, and can be told from others then.
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
    // SAFETY: this function's contract covers the argument. From when there are workers until they are done, their errors are raised in plain frames
    // only, whole.
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

/// An error ends the team: no worker has any more to say.
///
/// # Safety
/// A valid [`Together`], whose error is going to be raised again.
#[pg_guard]
unsafe extern "C-unwind" fn stop(this: Opaque) {
    // SAFETY: this function's contract covers the argument. What is shared is not looked at after an error.
    unsafe {
        if let Some(parallel) = (*this.cast::<Together>()).team.as_mut().and_then(|team| team.parallel.take()) {
            parallel.destroy();
        }
    }
}

/// Make new files, and start workers.
///
/// # Safety
/// As [`Together::build`].
#[pg_guard]
unsafe extern "C-unwind" fn begin(this: *mut Together) {
    // SAFETY: this function's contract covers the argument; guarded calls.
    unsafe {
        let (relation, list) = ((*this).relation, &(*(*this).indexes).list);
        // Then reindex_index says that it is not to be called.
        if is_reindexing() {
            return;
        }
        let is_small = guc::chunks_are_small();
        if !is_small && pg_sys::RelationGetNumberOfBlocksInFork(relation, MAIN) < LEAST_BLOCKS {
            return;
        }
        let members = members(relation, list);
        let memory = pg_sys::maintenance_work_mem;
        let share = |workers: usize| memory / i32::try_from(workers + 1).unwrap_or(i32::MAX);
        let mut wanted = (*this).workers.min(members.len().saturating_sub(1));
        while wanted > 0 && !is_small && share(wanted) < LEAST_MEMORY {
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
        let mut task = Task {
            build: build_id(),
            relation: (*relation).rd_id,
            memory: [0; 16],
            parts: indexes.len(),
            next: AtomicU32::new(0),
        };
        // What does not fit is cut; it has eleven digits at most.
        let _ = write!(&mut task.memory[..15], "{}", share(wanted).max(1024));
        let (parallel, work, shares) = share_out(relation, wanted, task, &indexes);
        let team = Team { parallel: Some(parallel), work, shares, launched: 0, members, builds };
        (*this).team = PgMemoryContexts::CurrentMemoryContext.leak_and_drop_on_delete(team);
        // Whoever has an error from here on finds the workers.
        let team = &mut *(*this).team;
        if let Some(parallel) = team.parallel.as_mut().filter(|parallel| parallel.most_workers() > 0) {
            team.launched = parallel.launch();
            team.work.divides = team.launched > 0;
        }
    }
}

/// Give an index a new file, as reindex_index (index.c) does. Guarded.
///
/// # Safety
/// An open relation, and one of its indexes, closed.
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

/// Has whoever called begun to reindex something? The server has room for one such state, and not for ours beside it. Guarded.
fn is_reindexing() -> bool {
    // SAFETY: guarded calls; room for as much as there is, all of it in words of four bytes (SerializedReindexState, index.c).
    unsafe {
        let size = pg_sys::EstimateReindexStateSpace();
        let mut state = vec![0_u32; size.div_ceil(size_of::<u32>())];
        pg_sys::SerializeReindexState(size, state.as_mut_ptr().cast());
        state.iter().any(|&word| word != 0)
    }
}

/// Whoever wants to read one of them now, such as an expression of another, is told that it is being built, in all processes.
/// SetReindexProcessing (index.c) has room for one. Guarded.
///
/// # Safety
/// Outside of parallel mode.
unsafe fn set_pending(indexes: &[&Index]) {
    // SerializedReindexState: a heap and an index that are being processed, how many are pending, and which.
    let count = u32::try_from(indexes.len()).unwrap_or(0);
    let mut state: Vec<u32> = vec![0, 0, count];
    state.extend(indexes.iter().map(|index| index.oid.to_u32()));
    // SAFETY: oids and an int, all of four bytes; what is read is copied.
    unsafe { pg_sys::RestoreReindexState(state.as_mut_ptr().cast()) };
}

/// Make what workers share. Guarded.
fn share_out(
    relation: pg_sys::Relation,
    wanted: usize,
    task: Task,
    indexes: &[&Index],
) -> (Parallel, Work, *mut Share) {
    let mut parallel = Parallel::new(c"pg_bulk_team_worker", wanted);
    parallel.estimate(size_of::<Task>());
    parallel.estimate(indexes.len() * size_of::<Part>());
    parallel.estimate(wanted * size_of::<Share>());
    parallel.initialize();
    let place = parallel.insert(KEY_TASK, size_of::<Task>()).cast::<Task>();
    let parts = parallel.insert(KEY_PARTS, indexes.len() * size_of::<Part>()).cast::<Part>();
    let shares = parallel.insert(KEY_SHARES, wanted * size_of::<Share>()).cast::<Share>();
    // SAFETY: room of these sizes, aligned for everything.
    unsafe {
        place.write(task);
        for (i, index) in indexes.iter().enumerate() {
            let [rows, entries, took] = [const { AtomicU64::new(0) }; 3];
            parts.add(i).write(Part { index: index.oid, builder: AtomicU32::new(0), rows, entries, took });
        }
        for i in 0..wanted {
            shares.add(i).write(Share::default());
        }
    }
    (parallel, Work { heap: relation, task: place, parts, builder: 1, divides: false }, shares)
}

/// Take one index after the other, until there is none.
///
/// # Safety
/// A plain frame, as the table's owner; a valid [`Work`].
unsafe extern "C-unwind" fn build_parts(work: Opaque) {
    // SAFETY: this function's contract covers the argument; nothing in this frame has a destructor.
    unsafe {
        let work = work.cast::<Work>();
        if (*work).divides {
            // Of this function's nest level.
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

/// Build an index, in a new file.
///
/// # Safety
/// As [`build_parts`]; one of the parts, which nobody else has.
unsafe fn build_part(work: *const Work, part: *const Part) {
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

/// All parts are built, and the workers are done.
///
/// # Safety
/// A team that [`begin`] has made.
#[pg_guard]
unsafe extern "C-unwind" fn end(this: *mut Together) {
    // SAFETY: this function's contract covers the argument.
    unsafe { (*this).end() }.or_raise();
}

impl Together {
    /// # Safety
    /// As [`end`].
    unsafe fn end(&mut self) -> Result<()> {
        // SAFETY: this function's contract covers the argument; guarded calls. What is shared is there until the workers' end.
        unsafe {
            let (relation, list, team) = (self.relation, &mut (*self.indexes).list, &mut *self.team);
            self.cpu = usage::take_shares(team.shares, team.launched);
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
                // As index_update_stats (index.c): what has just got a new file says already that nothing is in it.
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

/// Is it one that [`reword_for_all`] changes?
///
/// # Safety
/// An error that was caught while a team built, or before there was one.
#[pg_guard]
unsafe extern "C-unwind" fn is_about_keys(team: *const Team, error: *const pg_sys::ErrorData) -> bool {
    // SAFETY: this function's contract covers both arguments.
    unsafe { team.as_ref().is_some_and(|team| team.builds.iter().any(|build| is_about(error, build))) }
}

/// # Safety
/// As [`is_about_keys`].
#[pg_guard]
unsafe extern "C-unwind" fn reword_for_all(team: *const Team, error: *mut pg_sys::ErrorData) {
    // SAFETY: this function's contract covers both arguments.
    unsafe {
        if let Some(team) = team.as_ref() {
            team.builds.iter().for_each(|build| reword(error, build));
        }
    }
}

/// A worker of [`Together::build`], called by ParallelWorkerMain in a transaction that is the leader's.
///
/// # Safety
/// The arguments are those of a parallel worker's entry point.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pg_bulk_team_worker(_: *mut pg_sys::dsm_segment, toc: *mut pg_sys::shm_toc) {
    // SAFETY: the server vouches for the argument; nothing in this frame has a destructor.
    unsafe {
        let mut work = std::mem::MaybeUninit::<Work>::uninit();
        join(toc, work.as_mut_ptr());
        as_owner((*work.as_ptr()).heap, build_parts, work.as_mut_ptr().cast());
        part(toc, work.as_ptr());
    }
}

/// Begin a worker's work.
///
/// # Safety
/// A worker's table of contents, and room for what it works with.
#[pg_guard]
unsafe extern "C-unwind" fn join(toc: *mut pg_sys::shm_toc, work: *mut Work) {
    // SAFETY: the leader has put these under their keys, and holds locks on the relations that a worker may share. What is
    // shared may be looked at once the builds agree, and it begins with the build's number in every build.
    unsafe {
        usage::begin_share();
        let task = lookup(toc, KEY_TASK).cast::<Task>().cast_const();
        check_build((*task).build).or_raise();
        let parts = lookup(toc, KEY_PARTS).cast::<Part>().cast_const();
        let heap = pg_sys::table_open((*task).relation, WORKERS_LOCK);
        let builder = u32::try_from(pg_sys::ParallelWorkerNumber).unwrap_or(0) + 2;
        work.write(Work { heap, task, parts, builder, divides: true });
        point!("team.worker");
    }
}

/// End it.
///
/// # Safety
/// What [`join`] was given, and made.
#[pg_guard]
unsafe extern "C-unwind" fn part(toc: *mut pg_sys::shm_toc, work: *const Work) {
    // SAFETY: this function's contract covers both arguments; there is a share for each worker.
    unsafe {
        pg_sys::table_close((*work).heap, WORKERS_LOCK);
        let number = usize::try_from(pg_sys::ParallelWorkerNumber).unwrap_or(0);
        usage::end_share(lookup(toc, KEY_SHARES).cast::<Share>().add(number));
    }
}
