//! A relation with new rows, open for the steps after the rows.

use pgrx::{PgList, pg_sys};

use super::{Finalization, Written};
use crate::error::Result;
use crate::guc;
use crate::heap::freeze;
use crate::heap::leaves::{may_complain, may_refer};
use crate::index::index_keys::Sources;
use crate::index::key_conflicts::KeyConflicts;
use crate::index::strategy::IndexStrategy;
use crate::index::tuple_sort::LEAST_MEMORY;
use crate::load::direct::foreign_keys::ForeignKeys;
use crate::load::direct::indexes::{Indexes, Survival};
use crate::load::direct::leader::Leader;
use crate::load::direct::new_files::Rebuild;
use crate::load::direct::new_rows::NewRows;
use crate::load::duplicate::Keep;
use crate::load::options::IndexesOption;
use crate::server::memory_context::MemoryContext;
use crate::server::relation::{OpenRelation, Relation};
use crate::server::result_relation::{ResultRelation, new_result_relation};
use crate::server::shared_files::SharedFiles;

/// One of the relations, open.
#[derive(Debug)]
pub struct WrittenTable {
    /// Index of the relation among the load's relations.
    pub(super) number: usize,
    pub(super) relinfo: ResultRelation,
    pub(super) new: NewRows,
    pub(super) indexes: Indexes,
    pub(super) keys: ForeignKeys,
    /// Rows that violate a foreign key are rejected.
    pub(super) refers: bool,
    /// The keys of the rows were collected.
    pub(super) gathered: bool,
    pub(super) conflicts: KeyConflicts,
    /// Memory for each sort, in kB.
    pub(super) sort_memory: i32,
    pub(super) rebuild: Rebuild,
    /// Memory context of all of the table's state.
    pub(super) memory: MemoryContext,
}

impl Written {
    /// Releases the indexes that are not built from collected keys. Guarded.
    pub(super) fn let_go(&mut self, indexes: &Indexes) {
        for collector in self.collectors.iter_mut().filter(|collector| collector.holds_index()) {
            let index = indexes.list.iter().find(|index| index.oid == collector.index);
            if self.start > 0 || index.is_none_or(|index| index.strategy != IndexStrategy::Rebuild) {
                collector.close();
            }
        }
    }
}

impl WrittenTable {
    /// Why a key that an index does not accept is an error, if the table has such indexes or foreign keys. Guarded.
    pub(super) fn excuse(&self) -> Option<String> {
        let relation = self.new.relation();
        if !(may_complain(relation) || may_refer(relation)) {
            return None;
        }
        let name = relation.name_text();
        let why = "are decoded for subscribers, where a duplicate key or an orphan would be an error";
        Some(format!("Changes of table \"{name}\" {why}."))
    }
}

impl Finalization {
    /// Opens a relation as a result relation. Guarded.
    pub(super) fn open(&self, leader: &Leader, written: &Written) -> Result<ResultRelation> {
        leader.held.check(written.index, written.start)?;
        let Finalization { executor, stamp, .. } = self;
        // It stays open until `close`.
        let relation = OpenRelation::locked(written.oid).keep();
        // SAFETY: an open relation, and guarded calls on the executor state of the load. The result relation is the target,
        // or was routed to, or is made as in ExecInitPartitionInfo (execPartition.c).
        unsafe {
            if stamp.frozen {
                freeze::set_visibility(Relation::from_raw(relation), written.start);
            }
            let target = executor.target();
            if target.relation().oid() == written.oid {
                return Ok(target);
            }
            let routed =
                PgList::<pg_sys::ResultRelInfo>::from_pg((*executor.estate()).es_tuple_routing_result_relations);
            if let Some(relinfo) = routed.iter_ptr().find(|&relinfo| (*relinfo).ri_RelationDesc == relation) {
                // Routing has opened the indexes, which must be closed while they are rebuilt: `open_indexes` does it.
                return Ok(ResultRelation::from_raw(relinfo));
            }
            let _memory = executor.memory().enter();
            let relinfo = new_result_relation();
            pg_sys::InitResultRelInfo(relinfo, relation, 0, target.as_ptr(), (*executor.estate()).es_instrument);
            Ok(ResultRelation::from_raw(relinfo))
        }
    }

    /// Prepares the state of a result relation whose indexes are open. Guarded.
    pub(super) fn look(
        &mut self,
        leader: &Leader,
        written: &mut Written,
        relinfo: ResultRelation,
        survives: bool,
    ) -> Result<WrittenTable> {
        let &mut Finalization { executor, stamp, option, patience, files, workers, .. } = self;
        let relation = relinfo.relation();
        let memory = executor.memory().child(c"pg_bulk finalize");
        let _entered = memory.enter();
        let collected: Vec<pg_sys::Oid> = written.collectors.iter().map(|collector| collector.index).collect();
        let (keeps, arbiter) = (leader.process.writer.rejects.keeps(), leader.arbiter);
        let keep = leader.duplicates.keep;
        let held_bytes: usize = written.collectors.iter().map(|collector| collector.held()).sum();
        // If the table had rows before, the collected keys are not the whole index.
        let builds = option != IndexesOption::Rebuild || (written.start == 0 && !written.traits.shared);
        let certain = written.collectors.iter().filter(|collector| builds && collector.has_all());
        let certain: Vec<pg_sys::Oid> = certain.map(|collector| collector.index).collect();
        let survival = survives.then_some(Survival { keeps, keep, arbiter, certain: &certain });
        let rebuild =
            Rebuild::new(relation, written.traits, written.start, written.rows, option, collected.clone(), patience);
        let held = written.collectors.iter().filter(|collector| collector.holds_index());
        let mut rebuild = rebuild.holding(held.map(|collector| collector.index).collect());
        find_behind(relinfo, &mut rebuild, written, files, workers)?;
        let mut indexes = Indexes::new(relinfo, executor, &mut rebuild, survival);
        open_keys(&mut indexes, written, files, workers)?;
        // Locks on indexes are taken now, so the remaining patience is known.
        self.patience = rebuild.patience;
        // If a replacing row were removed as an orphan, the replaced row would not come back.
        let refers = survives && keeps && keep != Keep::New && !indexes.are_late();
        let mut keys = ForeignKeys::new(relinfo, written.rows, refers, pg_sys::RowShareLock);
        let refers = refers && !keys.are_none();
        // All sorts together get what the held keys leave of maintenance_work_mem.
        let sorts = i32::try_from(indexes.sorts() + keys.len()).unwrap_or(i32::MAX);
        let sort_memory = (left_beside(held_bytes) / sorts.max(1)).max(LEAST_MEMORY);
        indexes.begin_sorts(sort_memory);
        keys.prepare(sort_memory, false);
        let keeps_replaced = keep == Keep::New && relinfo.has_update_triggers();
        Ok(WrittenTable {
            number: written.index,
            relinfo,
            refers,
            gathered: false,
            new: NewRows::new(relation, stamp, (written.start, written.elsewhere.clone()), survives),
            conflicts: KeyConflicts::new(indexes.list.len(), sort_memory, keeps_replaced),
            sort_memory,
            indexes,
            keys,
            rebuild,
            memory,
        })
    }

    /// Closes a table whose rows need no further step, and keeps its reports and notes. Guarded.
    pub(super) fn close(&mut self, mut table: WrittenTable) {
        let relation = table.new.relation();
        table.new.close();
        table.rebuild.warn(&relation.name_text(), table.indexes.list.iter().map(|index| index.strategy));
        self.indexes.extend(table.indexes.reports());
        for note in table.rebuild.notes.drain(..) {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        let memory = table.memory;
        drop(table);
        // SAFETY: guarded calls; `open` has opened the relation, and the table was all that the context had.
        unsafe {
            pg_sys::table_close(relation.as_ptr(), pg_sys::NoLock.cast_signed());
            memory.delete();
        }
    }
}

/// The part of maintenance_work_mem that `held` bytes leave, in kB.
pub(super) fn left_beside(held: usize) -> i32 {
    let held = i32::try_from(held / 1024).unwrap_or(i32::MAX);
    guc::maintenance_work_mem().saturating_sub(held).max(LEAST_MEMORY)
}

/// Finds the indexes of the merge strategy whose keys are all before the new ones. Guarded; allocates in the current
/// memory context.
fn find_behind(
    relinfo: ResultRelation,
    rebuild: &mut Rebuild,
    written: &mut Written,
    files: Option<SharedFiles>,
    workers: usize,
) -> Result<()> {
    let sources = sources_of(written, files, workers);
    for (index, _) in relinfo.indexes() {
        let oid = index.oid();
        if rebuild.may_merge_into(oid)
            && let Some(collector) = written.collectors.iter_mut().find(|collector| collector.index == oid)
            // If the index is merged, the table has no other writer.
            && collector.is_behind(index, sources)?
        {
            rebuild.set_behind(oid);
        }
    }
    Ok(())
}

/// The collected keys of all processes, for an index that gets its keys one by one.
fn sources_of(written: &Written, files: Option<SharedFiles>, workers: usize) -> Sources<'static> {
    let (rows, start) = (written.rows, written.start);
    Sources { files, workers, builders: 0, memory: LEAST_MEMORY, rows, merge: false, start, elsewhere: &[], help: None }
}

/// Opens collected keys, the leader's and those of `workers` workers in `files`, for indexes that need them in order.
/// Their rows are not read again. Guarded; allocates in the current memory context.
fn open_keys(indexes: &mut Indexes, written: &mut Written, files: Option<SharedFiles>, workers: usize) -> Result<()> {
    let sources = sources_of(written, files, workers);
    let Written { collectors, .. } = written;
    for index in &mut indexes.list {
        if index.strategy == IndexStrategy::InsertSorted
            && let Some(collector) = collectors.iter_mut().find(|collector| collector.index == index.oid)
            && let Some(keys) = collector.stream(sources)?
        {
            (index.strategy, index.keys) = (IndexStrategy::InsertKeys, Some(keys));
        }
    }
    Ok(())
}
