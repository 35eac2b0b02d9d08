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

use std::time::Duration;

use pg_bulk_format::tuple::Stamp;
use pgrx::memcxt::PgMemoryContexts;
use pgrx::{PgList, pg_guard, pg_sys};

use self::collected::build;
use self::insert::insert_checked;
use super::executor::Executor;
use super::foreign_keys::ForeignKeys;
use super::freeze;
use super::held::HeldRelations;
use super::index_keys::{Collector, KeyStream, Sources};
use super::indexes::{Indexes, Survival};
use super::key_conflicts::KeyConflicts;
use super::leader::Leader;
use super::leaves::{may_complain, may_refer};
use super::new_files::{PATIENCE, Rebuild};
use super::new_rows::NewRows;
use super::rebuild;
use super::removed_rows;
use super::strategy::IndexStrategy;
use crate::error::{OrRaise, Result};
use crate::load::duplicate::Keep;
use crate::load::options::IndexesOption;
use crate::load::phase::{Phase, Phases, enter};
use crate::load::report::IndexReport;
use crate::pg::append::Traits;
use crate::pg::relation::Relation;
use crate::pg::shared_files::SharedFiles;
use crate::pg::tuple_sort::LEAST_MEMORY;
use crate::pg::unguarded as c;

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

/// One of the relations, open.
#[derive(Debug)]
struct WrittenTable {
    /// Index of the relation among the load's relations.
    number: usize,
    relinfo: *mut pg_sys::ResultRelInfo,
    new: NewRows,
    slot: *mut pg_sys::TupleTableSlot,
    /// A slot for a second row.
    other: *mut pg_sys::TupleTableSlot,
    indexes: Indexes,
    keys: ForeignKeys,
    /// Rows that violate a foreign key are rejected.
    refers: bool,
    /// The keys of the rows were collected.
    gathered: bool,
    conflicts: KeyConflicts,
    /// Memory for each sort, in kB.
    sort_memory: i32,
    rebuild: Rebuild,
    /// Memory context of all of the table's state.
    memory: pg_sys::MemoryContext,
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
        let_indexes_go(held, written);
        let table = look(finalization, written, relinfo, survives);
        let_go(written, table);
        pg_sys::CurrentMemoryContext = (*table).memory;
        (*table).indexes.prepare();
        let slot = (*table).slot;
        let late = (*table).indexes.are_late();
        let queue = (*table).keys.leave_others();
        if keeps && !survives {
            excuse(finalization, table);
        }
        if survives {
            insert_checked(leader, table, econtext);
            if !late {
                close_indexes(table);
                build(finalization, written, table, true);
            }
            if !(*table).conflicts.is_empty() {
                let (indexes, conflicts) = (&raw const (*table).indexes, &raw mut (*table).conflicts);
                removed_rows::remove_conflicts(leader, relation, (*written).index, indexes, conflicts);
            }
        }
        if (*table).refers {
            if (*table).indexes.list.iter().any(|index| index.strategy == IndexStrategy::Rebuild) {
                enter((*finalization).phases, Phase::Rebuild);
                rebuild(finalization, table);
            }
            hold_indexes_again(held, written);
            pg_sys::CurrentMemoryContext = caller;
            refer::put_off(finalization, table);
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
            close_indexes(table);
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
        hold_indexes_again(held, written);
        check_file(held, written);
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

/// # Safety
/// The leader's relations are valid, and `written` is one of them.
#[pg_guard]
unsafe extern "C-unwind" fn let_indexes_go(held: *mut HeldRelations, written: *const Written) {
    // SAFETY: this function's contract covers both arguments.
    unsafe { (*held).let_go((*written).index) }
}

/// Checks the file of a relation, because index expressions have run since the last check.
///
/// # Safety
/// See [`let_indexes_go`].
#[pg_guard]
unsafe extern "C-unwind" fn check_file(held: *const HeldRelations, written: *const Written) {
    // SAFETY: this function's contract covers both arguments.
    unsafe { (*held).check((*written).index, (*written).start).or_raise() }
}

/// # Safety
/// See [`let_indexes_go`].
#[pg_guard]
unsafe extern "C-unwind" fn hold_indexes_again(held: *mut HeldRelations, written: *const Written) {
    // SAFETY: this function's contract covers both arguments.
    unsafe { (*held).hold_again((*written).index) }
}

/// Rebuilds the indexes that the server's code must build.
///
/// # Safety
/// See [`finalize_relation`]; the table was made by [`look`]. The indexes are closed.
unsafe fn rebuild(finalization: *mut Finalization, table: *mut WrittenTable) {
    // SAFETY: this function's contract covers both arguments.
    unsafe {
        let cpu = rebuild::run((*table).new.relation, &raw mut (*table).indexes, (*finalization).helpers);
        (*(*finalization).leader).counts.others.add(cpu);
    }
}

/// Releases the indexes that are not built from collected keys.
///
/// # Safety
/// See [`finalize_relation`]; the table was made by [`look`].
#[pg_guard]
unsafe extern "C-unwind" fn let_go(written: *mut Written, table: *const WrittenTable) {
    // SAFETY: this function's contract covers both arguments.
    unsafe {
        let (written, indexes) = (&mut *written, &(*table).indexes.list);
        for collector in written.collectors.iter_mut().filter(|collector| collector.holds_index()) {
            let index = indexes.iter().find(|index| index.oid == collector.index);
            if written.start > 0 || index.is_none_or(|index| index.strategy != IndexStrategy::Rebuild) {
                collector.close();
            }
        }
    }
}

/// Notes why a key that an index does not accept is an error.
///
/// # Safety
/// See [`finalize_relation`]; the table was made by [`look`].
#[pg_guard]
unsafe extern "C-unwind" fn excuse(finalization: *mut Finalization, table: *const WrittenTable) {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        let relation = Relation::from_raw((*table).new.relation);
        if may_complain(relation) || may_refer(relation) {
            let name = relation.name_text();
            let why = "are decoded for subscribers, where a duplicate key or an orphan would be an error";
            (*finalization).notes.push(format!("Changes of table \"{name}\" {why}."));
        }
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
/// See [`finalize_relation`].
#[pg_guard]
unsafe extern "C-unwind" fn open(
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
/// See [`finalize_relation`]; the result relation was made by [`open`].
#[pg_guard]
unsafe extern "C-unwind" fn look(
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
fn left_beside(held: usize) -> i32 {
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
                && collector.is_behind(index, sources)?
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
        if matches!(index.strategy, IndexStrategy::InsertSorted(_))
            && let Some(collector) = collectors.iter_mut().find(|collector| collector.index == index.oid)
            && let Some(keys) = KeyStream::open(collector, sources)?
        {
            index.strategy =
                IndexStrategy::InsertKeys(PgMemoryContexts::CurrentMemoryContext.leak_and_drop_on_delete(keys));
        }
    }
    Ok(())
}

/// # Safety
/// See [`finalize_relation`]; the table was made by [`look`].
#[pg_guard]
unsafe extern "C-unwind" fn close_indexes(table: *mut WrittenTable) {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        (*table).indexes.close();
    }
}

/// # Safety
/// See [`finalize_relation`]; the table was made by [`look`].
#[pg_guard]
unsafe extern "C-unwind" fn close(finalization: *mut Finalization, table: *mut WrittenTable) {
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
