//! Steps before the first row and after the last: those that need all rows, or are forbidden in parallel mode.
//!
//! ```text
//!   for each relation:  read new rows ─┬─► indexes: sort keys, or insert ─► insert sorted keys ─► rebuild ─┐
//!                                      ├─► foreign keys: collect ──────────────────────────────────────────┴─► check
//!                                      └─► queue other row triggers
//!   then: fire triggers
//! ```
//!
//! With `on_error = table`, rows may be rejected here ([`super::removed_rows`]). Then foreign keys
//! are checked, and triggers queued, after all relations have their indexes and it is known which rows stay.
//!
//! The leader locks every relation that a worker may write to, because a worker's locks end with the worker, long
//! before the transaction.
//!
//! Indexes and triggers are updated after the rows are in the heap. Until then no index contains the rows, so no index
//! scan looks for a row that is not there yet. Triggers fire when the rows of all relations are in their indexes, as
//! after an INSERT.
//!
//! Expressions of indexes, conditions and triggers are user-defined code. Their errors keep all fields, since
//! [`steps`](super::steps) restores what a guard has dropped. Steps for each row run in plain frames.

mod collected;
mod insert;
mod refer;
mod table;

use std::time::Duration;

use pg_bulk_storage::tuple::Stamp;
use pgrx::pg_sys;

use self::table::WrittenTable;
use super::executor::Executor;
use super::indexes::Index;
use super::leader::Leader;
use super::rebuild;
use crate::error::Result;
use crate::heap::append::Traits;
use crate::index::index_keys::Collector;
use crate::index::strategy::IndexStrategy;
use crate::load::options::IndexesOption;
use crate::load::phase::Phase;
use crate::load::report::IndexReport;
use crate::server::relation::{OpenRelation, Relation};
use crate::server::shared_files::SharedFiles;
use crate::server::unguarded::{self as c, guard};

/// The steps of CopyFrom before the first row. Guarded.
pub fn before_rows(executor: Executor) {
    // SAFETY: guarded calls on the executor state of a load.
    unsafe {
        pg_sys::AfterTriggerBeginQuery();
        pg_sys::ExecBSInsertTriggers(executor.estate(), executor.target().as_ptr());
        // An early failure saves work; the decisive check comes after the rows.
        check_serializable(executor.relation());
    }
}

/// Raises an error if a serializable transaction must not write to a relation. Guarded.
fn check_serializable(relation: Relation<'_>) {
    let (relation, all) = (relation.as_ptr(), pg_sys::InvalidBlockNumber);
    // SAFETY: the relation is open, and the closure owns nothing.
    unsafe { guard(|| c::CheckForSerializableConflictIn(relation, std::ptr::null_mut(), all)) }
}

/// Adds appended rows to the statistics of a relation that the leader has locked. Guarded.
pub fn count_rows(relation: pg_sys::Oid, rows: u64) {
    if rows > 0 {
        let relation = OpenRelation::locked(relation);
        relation.get().count_inserted(rows.cast_signed());
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
    pub(super) executor: Executor,
    pub(super) stamp: Stamp,
    pub(super) relations: Vec<Written>,
    pub(super) option: IndexesOption,
    /// Files of the workers' key runs, and the number of workers.
    pub(super) files: Option<SharedFiles>,
    pub(super) workers: usize,
    /// Most workers that may help to build one index.
    pub(super) builders: usize,
    /// Most workers for indexes that the server's code builds.
    pub(super) helpers: usize,
    /// Tables whose foreign keys are checked when all rows are in their indexes.
    pub(super) referring: Vec<WrittenTable>,
    /// Time still to wait for sessions that read indexes.
    pub(super) patience: Duration,
    pub indexes: Vec<IndexReport>,
    pub notes: Vec<String>,
}

impl Finalization {
    /// Closes the key files that were not used. Guarded.
    pub fn close_files(&mut self) {
        self.relations.iter_mut().flat_map(|written| &mut written.collectors).for_each(|collector| collector.close());
    }

    /// The steps after the last row. Guarded, and outside of parallel mode.
    pub fn after_rows(&mut self, leader: &mut Leader) -> Result<()> {
        let mut relations = std::mem::take(&mut self.relations);
        let held = |written: &Written| written.collectors.iter().map(|collector| collector.held()).sum::<usize>();
        // Keys of other relations are in memory, too.
        let mut others: usize = relations.iter().map(held).sum();
        for written in &mut relations {
            others -= held(written);
            self.finalize_relation(leader, written, others)?;
            others += held(written);
        }
        self.relations = relations;
        self.check_references(leader)?;
        leader.phases().enter(Phase::Triggers);
        let (estate, target) = (self.executor.estate(), self.executor.target().as_ptr());
        // SAFETY: guarded calls on the executor state of the load.
        unsafe {
            pg_sys::ExecASInsertTriggers(estate, target, std::ptr::null_mut());
            pg_sys::AfterTriggerEndQuery(estate);
        }
        Ok(())
    }

    /// Adds the new rows of a relation to its indexes, and queues its triggers. The keys of other relations take
    /// `held_by_others` bytes.
    fn finalize_relation(&mut self, leader: &mut Leader, written: &mut Written, held_by_others: usize) -> Result<()> {
        let (estate, context) = (self.executor.estate(), self.executor.context());
        leader.violating_row.relation = written.index;
        let relinfo = self.open(leader, written)?;
        leader.phases().enter(Phase::Indexes);
        // With logical decoding, a subscriber would insert a row that is deleted later, and the insert may fail.
        let keeps = leader.process.writer.rejects.keeps();
        let survives = (keeps || leader.arbiter.is_some()) && !written.traits.logical;
        // SAFETY: the load has no handle of the executor's indexes.
        unsafe { relinfo.open_indexes(survives) };
        // From here on, references of the executor keep the indexes open, as long as that is possible.
        leader.held.let_go(written.index);
        let mut table = self.look(leader, written, relinfo, survives)?;
        written.let_go(&table.indexes);
        let memory = table.memory.enter();
        table.indexes.prepare();
        let late = table.indexes.are_late();
        let queue = table.keys.leave_others();
        if keeps && !survives {
            self.notes.extend(table.excuse());
        }
        if survives {
            table.insert_checked(leader, context)?;
            if !late {
                table.indexes.close();
                self.build(leader, written, &mut table, held_by_others, true)?;
            }
            if !table.conflicts.is_empty() {
                let WrittenTable { new, indexes, conflicts, .. } = &mut table;
                leader.remove_conflicts(new.relation(), written.index, indexes, conflicts)?;
            }
        }
        if table.refers {
            if table.indexes.list.iter().any(|index| index.strategy == IndexStrategy::Rebuild) {
                leader.phases().enter(Phase::Rebuild);
                self.rebuild(leader, &mut table);
            }
            leader.held.hold_again(written.index);
            // All relations must have their rows in their indexes first.
            self.referring.push(table);
            return Ok(());
        }
        let is_left = if survives { late } else { table.indexes.want_rows() };
        let replaced = table.conflicts.have_replaced();
        if queue || !table.keys.are_none() || is_left || replaced {
            let WrittenTable { new, indexes, keys, conflicts, .. } = &mut table;
            let (violating_row, relinfo) = (&raw mut leader.violating_row, relinfo.as_ptr());
            // SAFETY: the slot has a row of the relation, whose indexes and triggers these are; the closure is plain.
            unsafe {
                new.for_each(|slot| {
                    let recheck = if survives { indexes.add_late(slot) } else { indexes.add(slot, violating_row) };
                    keys.add(slot, |_| ());
                    let mut old = if replaced { conflicts.replaced_by(&(*slot).tts_tid) } else { None };
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
                    c::MemoryContextReset(context.memory());
                });
            }
        }
        if !survives {
            let WrittenTable { new, indexes, .. } = &mut table;
            // SAFETY: all rows were added; the closure owns nothing.
            unsafe { guard(|| indexes.insert_sorted(&raw mut leader.violating_row, std::ptr::null_mut(), new.slot())) };
        }
        if !survives || late {
            table.indexes.close();
        }
        let is_built = |index: &Index| matches!(index.strategy, IndexStrategy::Rebuild | IndexStrategy::Merge);
        if table.indexes.list.iter().any(is_built) {
            leader.phases().enter(Phase::Rebuild);
            if !survives {
                self.build(leader, written, &mut table, held_by_others, false)?;
            }
            self.rebuild(leader, &mut table);
        }
        leader.held.hold_again(written.index);
        // Index expressions have run since the last check of the relation's file.
        leader.held.check(written.index, written.start)?;
        if !table.keys.are_none() {
            leader.phases().enter(Phase::ForeignKeys);
        }
        if !table.keys.check()? {
            table.keys.give_back();
            self.queue_triggers(&table);
        }
        // Last, because rebuilding an index replaces predicate locks on its pages by a lock on the table.
        check_serializable(table.new.relation());
        drop(memory);
        self.close(table);
        Ok(())
    }

    /// Queues the AFTER triggers that are enabled, for each row of a table. Guarded.
    fn queue_triggers(&self, table: &WrittenTable) {
        let (estate, relinfo) = (self.executor.estate(), table.relinfo.as_ptr());
        // SAFETY: the slot has a row of the result relation; the closure is plain.
        unsafe {
            table.new.for_each(|slot| {
                c::ExecARInsertTriggers(estate, relinfo, slot, std::ptr::null_mut(), std::ptr::null_mut());
            });
        }
    }

    /// Rebuilds the indexes that the server's code must build. All indexes of the table are closed. Guarded.
    fn rebuild(&self, leader: &mut Leader, table: &mut WrittenTable) {
        let relation = table.new.relation();
        let (indexes, helpers) = (&mut table.indexes, self.helpers);
        // SAFETY: the indexes are closed, and the closure owns nothing.
        let cpu = unsafe { guard(|| rebuild::run(relation, indexes, helpers)) };
        leader.counts.others.add(cpu);
    }
}
