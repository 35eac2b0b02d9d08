//! Steps before the first row and after the last: those that need all rows, or are forbidden in parallel mode.
//!
//! ```text
//!   for each relation:  read new rows ─┬─► indexes: sort keys, or insert ─► insert sorted keys ─► rebuild ─┐
//!                                      ├─► foreign keys: collect ──────────────────────────────────────────┴─► check
//!                                      └─► queue other row triggers
//!   then: fire triggers
//! ```
//!
//! With `on_error = table`, rows may be rejected here ([`super::removed_rows`], [`super::orphans`]). Then foreign keys
//! are checked, and triggers queued, after all relations have their indexes and it is known which rows stay.
//!
//! The leader locks every relation that a worker may write to, because a worker's locks end with the worker, long
//! before the transaction.
//!
//! Indexes and triggers are updated after the rows are in the heap. Until then no index contains the rows, so no index
//! scan looks for a row that is not there yet. Triggers fire when the rows of all relations are in their indexes, as
//! after an INSERT.
//!
//! Expressions of indexes, conditions and triggers are user-defined code, so [`before_rows`] and [`after_rows`] are
//! plain frames.

mod collected;
mod insert;
mod refer;
mod table;

use std::time::Duration;

use pg_bulk_storage::tuple::Stamp;
use pgrx::pg_sys;

use self::collected::build;
use self::insert::insert_checked;
use self::table::{WrittenTable, close, look, open};
use super::executor::Executor;
use super::leader::Leader;
use super::new_files::PATIENCE;
use super::rebuild;
use crate::error::OrRaise;
use crate::heap::append::Traits;
use crate::index::index_keys::Collector;
use crate::index::strategy::IndexStrategy;
use crate::load::options::IndexesOption;
use crate::load::phase::{Phase, Phases, enter};
use crate::load::report::IndexReport;
use crate::server::relation::Relation;
use crate::server::shared_files::SharedFiles;
use crate::server::unguarded::{self as c, guarded};

const NO_LOCK: pg_sys::LOCKMODE = pg_sys::NoLock.cast_signed();

/// The steps of CopyFrom before the first row.
///
/// # Safety
/// A plain frame; the executor state is a load's.
pub unsafe fn before_rows(executor: Executor) {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        c::AfterTriggerBeginQuery();
        c::ExecBSInsertTriggers(executor.estate, executor.target);
        // An early failure saves work; the decisive check comes after the rows.
        check_serializable((*executor.target).ri_RelationDesc);
    }
}

/// # Safety
/// A plain frame, and an open relation.
unsafe fn check_serializable(relation: pg_sys::Relation) {
    // SAFETY: this function's contract covers the argument.
    unsafe { c::CheckForSerializableConflictIn(relation, std::ptr::null_mut(), pg_sys::InvalidBlockNumber) }
}

/// Adds appended rows to the statistics. Guarded.
pub fn count_rows(relation: pg_sys::Oid, rows: u64) {
    if rows == 0 {
        return;
    }
    // SAFETY: guarded calls on a relation that the leader has locked.
    unsafe {
        let relation = pg_sys::table_open(relation, NO_LOCK);
        pg_sys::pgstat_count_heap_insert(relation, rows.cast_signed());
        pg_sys::table_close(relation, NO_LOCK);
    }
}

/// A relation with new rows.
#[derive(Debug)]
pub struct Written {
    /// Index of the relation among the load's relations.
    pub index: usize,
    pub oid: pg_sys::Oid,
    pub traits: Traits,
    pub rows: u64,
    /// First block of the new rows, except for those in `elsewhere`.
    pub start: u32,
    pub elsewhere: Vec<pg_sys::ItemPointerData>,
    /// Keys of its indexes, collected by the leader.
    pub collectors: Vec<Collector>,
}

/// State and results of the steps after the rows.
#[derive(Debug)]
pub struct Finalization {
    executor: Executor,
    stamp: Stamp,
    relations: Vec<Written>,
    option: IndexesOption,
    /// Files of the workers' key runs, and the number of workers.
    files: Option<SharedFiles>,
    workers: usize,
    /// Most workers that may help to build one index.
    builders: usize,
    /// Most workers for indexes that the server's code builds.
    helpers: usize,
    /// The load's progress.
    phases: *mut Phases,
    leader: *mut Leader,
    /// Tables whose foreign keys are checked when all rows are in their indexes.
    referring: Vec<*mut WrittenTable>,
    /// Time still to wait for sessions that read indexes.
    patience: Duration,
    pub indexes: Vec<IndexReport>,
    pub notes: Vec<String>,
}

impl Finalization {
    pub fn new(
        executor: Executor,
        stamp: Stamp,
        relations: Vec<Written>,
        option: IndexesOption,
        phases: *mut Phases,
        leader: *mut Leader,
    ) -> Finalization {
        Finalization {
            executor,
            stamp,
            relations,
            option,
            files: None,
            workers: 0,
            builders: 0,
            helpers: 0,
            phases,
            leader,
            referring: Vec::new(),
            patience: PATIENCE,
            indexes: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Closes the key files that were not used. Guarded.
    pub fn close_files(&mut self) {
        self.relations.iter_mut().flat_map(|written| &mut written.collectors).for_each(Collector::close);
    }

    /// Sets the workers' key files, the number of workers, and the most workers at a time.
    pub fn with_files(self, files: Option<SharedFiles>, workers: usize, builders: usize) -> Finalization {
        Finalization { files, workers, builders, ..self }
    }

    /// Sets the most workers for indexes that the server's code builds.
    pub fn with_helpers(self, helpers: usize) -> Finalization {
        Finalization { helpers, ..self }
    }
}

/// The steps after the last row.
///
/// # Safety
/// A plain frame outside of parallel mode; the load's executor state is valid, its relations are locked.
pub unsafe fn after_rows(finalization: *mut Finalization) {
    // SAFETY: this function's contract covers all arguments; nothing in this frame has a destructor, since memory
    // contexts own the tables.
    unsafe {
        let Executor { estate, target, .. } = (*finalization).executor;
        for number in 0..(*finalization).relations.len() {
            finalize_relation(finalization, (*finalization).relations.as_mut_ptr().add(number));
        }
        refer::check(finalization);
        enter((*finalization).phases, Phase::Triggers);
        c::ExecASInsertTriggers(estate, target, std::ptr::null_mut());
        c::AfterTriggerEndQuery(estate);
    }
}

/// Adds the new rows of a relation to its indexes, and queues its triggers.
///
/// # Safety
/// See [`after_rows`]; `written` is one of its relations.
unsafe fn finalize_relation(finalization: *mut Finalization, written: *mut Written) {
    // SAFETY: as in `after_rows`.
    unsafe {
        let Executor { estate, econtext, .. } = (*finalization).executor;
        let caller = pg_sys::CurrentMemoryContext;
        let leader = (*finalization).leader;
        let violating_row = &raw mut (*leader).violating_row;
        (*violating_row).relation = (*written).index;
        let relinfo = open(finalization, written);
        let relation = (*relinfo).ri_RelationDesc;
        let held = &raw mut (*leader).held;
        enter((*finalization).phases, Phase::Indexes);
        // With logical decoding, a subscriber would insert a row that is deleted later, and the insert may fail.
        let keeps = (*leader).process.rejects.keeps();
        let arbiter = (*leader).arbiter;
        let survives = (keeps || arbiter.is_some()) && !(*written).traits.logical;
        c::ExecOpenIndices(relinfo, survives);
        // From here on, references of the executor keep the indexes open, as long as that is possible.
        guarded(|| (*held).let_go((*written).index));
        let table = look(finalization, written, relinfo, survives);
        guarded(|| (*written).let_go(&(*table).indexes));
        pg_sys::CurrentMemoryContext = (*table).memory;
        guarded(|| (*table).indexes.prepare());
        let slot = (*table).slot;
        let late = (*table).indexes.are_late();
        let queue = (*table).keys.leave_others();
        if keeps && !survives {
            guarded(|| (*finalization).notes.extend((*table).excuse()));
        }
        if survives {
            insert_checked(leader, table, econtext);
            if !late {
                guarded(|| (*table).indexes.close());
                build(finalization, written, table, true);
            }
            if !(*table).conflicts.is_empty() {
                guarded(|| {
                    let WrittenTable { indexes, conflicts, .. } = &mut *table;
                    (*leader).remove_conflicts(relation, (*written).index, indexes, conflicts).or_raise();
                });
            }
        }
        if (*table).refers {
            if (*table).indexes.list.iter().any(|index| index.strategy == IndexStrategy::Rebuild) {
                enter((*finalization).phases, Phase::Rebuild);
                rebuild(finalization, table);
            }
            guarded(|| (*held).hold_again((*written).index));
            pg_sys::CurrentMemoryContext = caller;
            // All relations must have their rows in their indexes first.
            guarded(|| (*finalization).referring.push(table));
            return;
        }
        let is_left = if survives { late } else { (*table).indexes.want_rows() };
        let replaced = (*table).conflicts.have_replaced();
        if queue || !(*table).keys.are_none() || is_left || replaced {
            (*table).new.for_each(slot, || {
                let recheck =
                    if survives { (*table).indexes.add_late(slot) } else { (*table).indexes.add(slot, violating_row) };
                (*table).keys.add(slot, |_| ());
                let mut old = if replaced { (*table).conflicts.replaced_by(&(*slot).tts_tid) } else { None };
                let nothing = std::ptr::null_mut();
                if let Some(old) = &mut old {
                    // For triggers, a replaced row is an updated row.
                    let (none, capture) = (std::ptr::null_mut(), std::ptr::null_mut());
                    c::ExecARUpdateTriggers(
                        estate, relinfo, nothing, nothing, old, none, slot, recheck, capture, false,
                    );
                } else if queue {
                    c::ExecARInsertTriggers(estate, relinfo, slot, recheck, std::ptr::null_mut());
                }
                c::list_free(recheck);
                c::MemoryContextReset((*econtext).ecxt_per_tuple_memory);
            });
        }
        if !survives {
            (*table).indexes.insert_sorted(violating_row, std::ptr::null_mut(), slot);
        }
        if !survives || late {
            guarded(|| (*table).indexes.close());
        }
        if (*table)
            .indexes
            .list
            .iter()
            .any(|index| matches!(index.strategy, IndexStrategy::Rebuild | IndexStrategy::Merge))
        {
            enter((*finalization).phases, Phase::Rebuild);
            if !survives {
                build(finalization, written, table, false);
            }
            rebuild(finalization, table);
        }
        guarded(|| (*held).hold_again((*written).index));
        // Index expressions have run since the last check of the relation's file.
        guarded(|| (*held).check((*written).index, (*written).start).or_raise());
        if !(*table).keys.are_none() {
            enter((*finalization).phases, Phase::ForeignKeys);
        }
        if !(*table).keys.check() {
            (*table).keys.give_back();
            (*table).new.for_each(slot, || {
                c::ExecARInsertTriggers(estate, relinfo, slot, std::ptr::null_mut(), std::ptr::null_mut());
            });
        }
        // Last, because rebuilding an index replaces predicate locks on its pages by a lock on the table.
        check_serializable(relation);
        pg_sys::CurrentMemoryContext = caller;
        close(finalization, table);
    }
}

/// Rebuilds the indexes that the server's code must build.
///
/// # Safety
/// See [`finalize_relation`]; the table was made by [`look`]. The indexes are closed.
unsafe fn rebuild(finalization: *mut Finalization, table: *mut WrittenTable) {
    // SAFETY: this function's contract covers both arguments.
    unsafe {
        let cpu =
            rebuild::run(Relation::from_raw((*table).new.relation), &mut (*table).indexes, (*finalization).helpers);
        (*(*finalization).leader).counts.others.add(cpu);
    }
}
