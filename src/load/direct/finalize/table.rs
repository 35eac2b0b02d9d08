//! A relation with new rows, open for the steps after the rows.

use pgrx::memcxt::PgMemoryContexts;
use pgrx::{PgList, pg_guard, pg_sys};

use super::{Finalization, NO_LOCK, Written};
use crate::error::{OrRaise, Result};
use crate::heap::freeze;
use crate::heap::leaves::{may_complain, may_refer};
use crate::index::index_keys::{Collector, Sources};
use crate::index::key_conflicts::KeyConflicts;
use crate::index::strategy::IndexStrategy;
use crate::index::tuple_sort::LEAST_MEMORY;
use crate::load::direct::foreign_keys::ForeignKeys;
use crate::load::direct::indexes::{Indexes, Survival};
use crate::load::direct::new_files::Rebuild;
use crate::load::direct::new_rows::NewRows;
use crate::load::duplicate::Keep;
use crate::load::options::IndexesOption;
use crate::server::relation::Relation;
use crate::server::shared_files::SharedFiles;

/// One of the relations, open.
#[derive(Debug)]
pub(super) struct WrittenTable {
    /// Index of the relation among the load's relations.
    pub(super) number: usize,
    pub(super) relinfo: *mut pg_sys::ResultRelInfo,
    pub(super) new: NewRows,
    pub(super) slot: *mut pg_sys::TupleTableSlot,
    /// A slot for a second row.
    pub(super) other: *mut pg_sys::TupleTableSlot,
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
    pub(super) memory: pg_sys::MemoryContext,
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
        // SAFETY: `look` was given an open relation, which stays open until `close`.
        let relation = unsafe { Relation::from_raw(self.new.relation) };
        if !(may_complain(relation) || may_refer(relation)) {
            return None;
        }
        let name = relation.name_text();
        let why = "are decoded for subscribers, where a duplicate key or an orphan would be an error";
        Some(format!("Changes of table \"{name}\" {why}."))
    }
}

/// Are there row triggers for updates, such as those of foreign keys that refer to the table?
///
/// # Safety
/// The result relation is valid.
unsafe fn has_update_triggers(relinfo: *const pg_sys::ResultRelInfo) -> bool {
    // SAFETY: this function's contract covers the argument.
    unsafe { (*relinfo).ri_TrigDesc.as_ref() }.is_some_and(|triggers| triggers.trig_update_after_row)
}

/// Opens a relation as a result relation.
///
/// # Safety
/// See [`finalize_relation`](super::finalize_relation).
#[pg_guard]
pub(super) unsafe extern "C-unwind" fn open(
    finalization: *const Finalization,
    written: *const Written,
) -> *mut pg_sys::ResultRelInfo {
    // SAFETY: this function's contract covers the argument; guarded calls. The result relation is the target, or was
    // routed to, or is made as in ExecInitPartitionInfo (execPartition.c).
    unsafe {
        let (Finalization { executor, stamp, leader, .. }, written) = (&*finalization, &*written);
        (**leader).held.check(written.index, written.start).or_raise();
        let relation = pg_sys::table_open(written.oid, NO_LOCK);
        if stamp.frozen {
            freeze::set_visibility(Relation::from_raw(relation), written.start);
        }
        if (*(*executor.target).ri_RelationDesc).rd_id == written.oid {
            return executor.target;
        }
        let routed = PgList::<pg_sys::ResultRelInfo>::from_pg((*executor.estate).es_tuple_routing_result_relations);
        if let Some(relinfo) = routed.iter_ptr().find(|&relinfo| (*relinfo).ri_RelationDesc == relation) {
            // Routing has opened the indexes, which must be closed while they are rebuilt.
            pg_sys::ExecCloseIndices(relinfo);
            (*relinfo).ri_NumIndices = 0;
            return relinfo;
        }
        let old = pg_sys::MemoryContextSwitchTo((*executor.estate).es_query_cxt);
        let relinfo = pg_sys::palloc0(size_of::<pg_sys::ResultRelInfo>()).cast::<pg_sys::ResultRelInfo>();
        (*relinfo).type_ = pg_sys::NodeTag::T_ResultRelInfo;
        pg_sys::InitResultRelInfo(relinfo, relation, 0, executor.target, (*executor.estate).es_instrument);
        pg_sys::MemoryContextSwitchTo(old);
        relinfo
    }
}

/// Prepares the state of a result relation whose indexes are open.
///
/// # Safety
/// See [`finalize_relation`](super::finalize_relation); the result relation was made by [`open`].
#[pg_guard]
pub(super) unsafe extern "C-unwind" fn look(
    finalization: *mut Finalization,
    written: *mut Written,
    relinfo: *mut pg_sys::ResultRelInfo,
    survives: bool,
) -> *mut WrittenTable {
    // SAFETY: this function's contract covers the argument; guarded calls. The table is dropped with its memory
    // context.
    unsafe {
        let (Finalization { executor, stamp, option, patience, files, workers, .. }, written) =
            (&*finalization, &mut *written);
        let (relation, patience) = ((*relinfo).ri_RelationDesc, *patience);
        let memory = pg_sys::AllocSetContextCreateExtended(
            (*executor.estate).es_query_cxt,
            c"pg_bulk finalize".as_ptr(),
            pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
        );
        let old = pg_sys::MemoryContextSwitchTo(memory);
        let collected: Vec<pg_sys::Oid> = written.collectors.iter().map(|collector| collector.index).collect();
        let leader = &*(*finalization).leader;
        let (keeps, arbiter) = (leader.process.rejects.keeps(), leader.arbiter);
        let keep = leader.duplicates.keep;
        let held_bytes: usize = written.collectors.iter().map(Collector::held).sum();
        // If the table had rows before, the collected keys are not the whole index.
        let builds = *option != IndexesOption::Rebuild || (written.start == 0 && !written.traits.shared);
        let certain = written.collectors.iter().filter(|collector| builds && collector.has_all());
        let certain: Vec<pg_sys::Oid> = certain.map(|collector| collector.index).collect();
        let survival = survives.then_some(Survival { keeps, keep, arbiter, certain: &certain });
        let rebuild = Rebuild::new(
            Relation::from_raw(relation),
            written.traits,
            written.start,
            written.rows,
            *option,
            collected.clone(),
            patience,
        );
        let held = written.collectors.iter().filter(|collector| collector.holds_index());
        let mut rebuild = rebuild.holding(held.map(|collector| collector.index).collect());
        find_behind(relinfo, &mut rebuild, written, *files, *workers).or_raise();
        let mut indexes = Indexes::new(relinfo, executor.estate, executor.econtext, &mut rebuild, survival);
        open_keys(&mut indexes, written, *files, *workers).or_raise();
        // Locks on indexes are taken now, so the remaining patience is known.
        let waited_for = rebuild.patience;
        // If a replacing row were removed as an orphan, the replaced row would not come back.
        let refers = survives && keeps && keep != Keep::New && !indexes.are_late();
        let mut keys = ForeignKeys::new(relinfo, written.rows, refers, pg_sys::RowShareLock.cast_signed());
        let refers = refers && !keys.are_none();
        // All sorts together get what the held keys leave of maintenance_work_mem.
        let sorts = i32::try_from(indexes.sorts() + keys.len()).unwrap_or(i32::MAX);
        let sort_memory = (left_beside(held_bytes) / sorts.max(1)).max(LEAST_MEMORY);
        indexes.begin_sorts(sort_memory);
        keys.prepare(sort_memory, false);
        let table = WrittenTable {
            number: written.index,
            relinfo,
            refers,
            gathered: false,
            new: NewRows {
                relation,
                start: written.start,
                elsewhere: written.elsewhere.clone(),
                xmin: stamp.xmin,
                cid: stamp.cid,
                removes: survives,
            },
            slot: pg_sys::table_slot_create(relation, std::ptr::null_mut()),
            other: pg_sys::table_slot_create(relation, std::ptr::null_mut()),
            conflicts: KeyConflicts::new(
                indexes.list.len(),
                sort_memory,
                keep == Keep::New && has_update_triggers(relinfo),
            ),
            sort_memory,
            indexes,
            keys,
            rebuild,
            memory,
        };
        pg_sys::MemoryContextSwitchTo(old);
        (*finalization).patience = waited_for;
        PgMemoryContexts::For(memory).leak_and_drop_on_delete(table)
    }
}

/// The part of maintenance_work_mem that `held` bytes leave, in kB.
pub(super) fn left_beside(held: usize) -> i32 {
    let held = i32::try_from(held / 1024).unwrap_or(i32::MAX);
    // SAFETY: reads a setting.
    unsafe { pg_sys::maintenance_work_mem }.saturating_sub(held).max(LEAST_MEMORY)
}

/// Finds the indexes of the merge strategy whose keys are all before the new ones. Guarded; allocates in the current
/// memory context.
///
/// # Safety
/// The result relation's indexes are open, and its rows were written.
unsafe fn find_behind(
    relinfo: *mut pg_sys::ResultRelInfo,
    rebuild: &mut Rebuild,
    written: &mut Written,
    files: Option<SharedFiles>,
    workers: usize,
) -> Result<()> {
    let sources = sources_of(written, files, workers);
    // SAFETY: this function's contract covers the relation; the executor's list has `ri_NumIndices` indexes. If they
    // are merged, the table has no other writer.
    unsafe {
        for i in 0..usize::try_from((*relinfo).ri_NumIndices).unwrap_or(0) {
            let index = *(*relinfo).ri_IndexRelationDescs.add(i);
            let oid = (*index).rd_id;
            if rebuild.may_merge_into(oid)
                && let Some(collector) = written.collectors.iter_mut().find(|collector| collector.index == oid)
                && collector.is_behind(Relation::from_raw(index), sources)?
            {
                rebuild.set_behind(oid);
            }
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

/// # Safety
/// See [`finalize_relation`](super::finalize_relation); the table was made by [`look`].
#[pg_guard]
pub(super) unsafe extern "C-unwind" fn close(finalization: *mut Finalization, table: *mut WrittenTable) {
    // SAFETY: this function's contract covers the argument; deleting the context drops the table.
    unsafe {
        {
            let (indexes, notes) = (&mut (*finalization).indexes, &mut (*finalization).notes);
            let table = &mut *table;
            let relation = table.new.relation;
            pg_sys::ExecDropSingleTupleTableSlot(table.slot);
            pg_sys::ExecDropSingleTupleTableSlot(table.other);
            let name = Relation::from_raw(relation).name_text();
            table.rebuild.warn(&name, table.indexes.list.iter().map(|index| index.strategy));
            indexes.extend(table.indexes.reports());
            for note in table.rebuild.notes.drain(..) {
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
            pg_sys::table_close(relation, NO_LOCK);
        }
        pg_sys::MemoryContextDelete((*table).memory);
    }
}
