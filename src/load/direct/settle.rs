//! Before and after the rows: what needs all of them, or must not be done in parallel mode.
//!
//! ```text
//!   for each relation:  read its new rows back ─┬─► indexes: sort keys, or insert ─► insert sorted keys ─► rebuild ─┐
//!                                               ├─► foreign keys: collect ──────────────────────────────────────────┴─► check
//!                                               └─► queue other row triggers
//!   then: fire triggers
//! ```
//!
//! With on_error `table`, rows may turn out to be rejects here ([`super::losers`], [`super::orphans`]). Then foreign keys are
//! checked, and triggers queued, when all relations have their indexes, and it is known which rows stay.
//!
//! The leader locks every relation that a worker may write to, because a worker's locks end with it, long before the
//! transaction does.
//!
//! Indexes and triggers learn of the rows when these are in the heap. Until then no index knows of them, so nobody
//! finds what is not there yet. Triggers fire when the rows of all relations are in their indexes, as after an INSERT.
//!
//! Expressions of indexes, conditions and triggers are the user's, so [`before_rows`] and [`after_rows`] are plain frames.

mod collected;
mod refer;
mod sift;

use std::ffi::CStr;
use std::time::Duration;

use pg_bulk_format::tuple::Stamp;
use pgrx::memcxt::PgMemoryContexts;
use pgrx::{PgList, pg_guard, pg_sys};

use self::collected::build;
use self::sift::sift;
use super::executor::Executor;
use super::foreign_keys::ForeignKeys;
use super::freeze;
use super::held::Held;
use super::index_keys::{Collector, KeyStream, Sources};
use super::indexes::{Indexes, Survival};
use super::leader::Leader;
use super::leaves::{may_complain, may_refer};
use super::losers;
use super::new_files::{PATIENCE, Rebuild};
use super::new_rows::NewRows;
use super::rebuild;
use super::suspects::Suspects;
use super::way::Way;
use crate::error::{OrRaise, Result};
use crate::load::duplicate::Keep;
use crate::load::options::IndexesOption;
use crate::load::phase::{Phase, Phases, enter};
use crate::load::report::IndexReport;
use crate::pg::append::Traits;
use crate::pg::server_text::from_server;
use crate::pg::shared_files::SharedFiles;
use crate::pg::tuple_sort::LEAST_MEMORY;
use crate::pg::unguarded as c;

const NO_LOCK: pg_sys::LOCKMODE = pg_sys::NoLock.cast_signed();

/// What CopyFrom does before the first row.
///
/// # Safety
/// A plain frame; a load's executor state.
pub unsafe fn before_rows(executor: Executor) {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        c::AfterTriggerBeginQuery();
        c::ExecBSInsertTriggers(executor.estate, executor.target);
        // An early answer where there is one; the check that counts comes after the rows.
        check_serializable((*executor.target).ri_RelationDesc);
    }
}

/// # Safety
/// A plain frame, and an open relation.
unsafe fn check_serializable(relation: pg_sys::Relation) {
    // SAFETY: this function's contract covers the argument.
    unsafe { c::CheckForSerializableConflictIn(relation, std::ptr::null_mut(), pg_sys::InvalidBlockNumber) }
}

/// Tell the statistics collector of rows that were appended. Guarded.
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

/// A relation that has new rows.
#[derive(Debug)]
pub struct Written {
    /// Its number among the load's relations.
    pub index: usize,
    pub oid: pg_sys::Oid,
    pub traits: Traits,
    pub rows: u64,
    /// They are in this block and behind it, but for some elsewhere.
    pub start: u32,
    pub elsewhere: Vec<pg_sys::ItemPointerData>,
    /// What the leader has collected of its indexes' keys.
    pub collectors: Vec<Collector>,
}

/// What is to be done after the rows, and what came of it.
#[derive(Debug)]
pub struct Settling {
    executor: Executor,
    stamp: Stamp,
    relations: Vec<Written>,
    option: IndexesOption,
    /// Where workers have left the keys of indexes, and how many workers there were.
    files: Option<SharedFiles>,
    workers: usize,
    /// How many of them may help to build an index.
    builders: usize,
    /// Workers that there may be for indexes that are built at once.
    helpers: usize,
    /// The load's.
    phases: *mut Phases,
    leader: *mut Leader,
    /// Tables whose foreign keys are checked when all rows are in the indexes.
    referring: Vec<*mut Table>,
    /// How long to wait still for those who read indexes.
    patience: Duration,
    pub indexes: Vec<IndexReport>,
    pub notes: Vec<String>,
}

impl Settling {
    pub fn new(
        executor: Executor,
        stamp: Stamp,
        relations: Vec<Written>,
        option: IndexesOption,
        phases: *mut Phases,
        leader: *mut Leader,
    ) -> Settling {
        Settling {
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

    /// Close the files of keys that nobody wanted. Guarded.
    pub fn close_files(&mut self) {
        self.relations.iter_mut().flat_map(|written| &mut written.collectors).for_each(Collector::close);
    }

    /// With the keys that so many workers have left, so many of them at a time.
    pub fn with_files(self, files: Option<SharedFiles>, workers: usize, builders: usize) -> Settling {
        Settling { files, workers, builders, ..self }
    }

    /// With so many workers, at most, for indexes that are built at once.
    pub fn with_helpers(self, helpers: usize) -> Settling {
        Settling { helpers, ..self }
    }
}

/// One of the relations, open.
#[derive(Debug)]
struct Table {
    /// Its number among the load's relations.
    number: usize,
    relinfo: *mut pg_sys::ResultRelInfo,
    new: NewRows,
    slot: *mut pg_sys::TupleTableSlot,
    /// For a look at another row.
    other: *mut pg_sys::TupleTableSlot,
    indexes: Indexes,
    keys: ForeignKeys,
    /// Rows whose foreign keys are violated are survived, ...
    refers: bool,
    /// ... and their keys were taken.
    gathered: bool,
    suspects: Suspects,
    /// For each sort, in kB.
    share: i32,
    rebuild: Rebuild,
    /// Everything of the table is in it.
    memory: pg_sys::MemoryContext,
}

/// What has to wait for the rows.
///
/// # Safety
/// A plain frame outside of parallel mode; the load's executor state is valid, its relations are locked.
pub unsafe fn after_rows(settling: *mut Settling) {
    // SAFETY: this function's contract covers all arguments; nothing in this frame has a destructor, for the tables belong to their memory.
    unsafe {
        let Executor { estate, target, .. } = (*settling).executor;
        for number in 0..(*settling).relations.len() {
            tell(settling, (*settling).relations.as_mut_ptr().add(number));
        }
        refer::check(settling);
        enter((*settling).phases, Phase::Triggers);
        c::ExecASInsertTriggers(estate, target, std::ptr::null_mut());
        c::AfterTriggerEndQuery(estate);
    }
}

/// Tell the indexes and triggers of a relation of its new rows.
///
/// # Safety
/// As [`after_rows`]; one of its relations.
unsafe fn tell(settling: *mut Settling, written: *mut Written) {
    // SAFETY: as in `after_rows`.
    unsafe {
        let Executor { estate, econtext, .. } = (*settling).executor;
        let caller = pg_sys::CurrentMemoryContext;
        let leader = (*settling).leader;
        let offender = &raw mut (*leader).offender;
        (*offender).relation = (*written).index;
        let relinfo = open(settling, written);
        let relation = (*relinfo).ri_RelationDesc;
        let held = &raw mut (*leader).held;
        enter((*settling).phases, Phase::Indexes);
        // A row that is inserted and deleted again would be inserted by whoever is told of changes, which may fail.
        let keeps = (*leader).process.rejects.keeps();
        let arbiter = (*leader).arbiter;
        let survives = (keeps || arbiter.is_some()) && !(*written).traits.logical;
        c::ExecOpenIndices(relinfo, survives);
        // From here on the executor's references hold them, as long as they may be held.
        let_indexes_go(held, written);
        let table = look(settling, written, relinfo, survives);
        let_go(written, table);
        pg_sys::CurrentMemoryContext = (*table).memory;
        (*table).indexes.prepare();
        let slot = (*table).slot;
        let late = (*table).indexes.are_late();
        let queue = (*table).keys.leave_others();
        if keeps && !survives {
            excuse(settling, table);
        }
        if survives {
            sift(leader, table, econtext);
            if !late {
                close_indexes(table);
                build(settling, written, table, true);
            }
            if !(*table).suspects.is_empty() {
                let (indexes, suspects) = (&raw const (*table).indexes, &raw mut (*table).suspects);
                losers::judge(leader, relation, (*written).index, indexes, suspects);
            }
        }
        if (*table).refers {
            if (*table).indexes.list.iter().any(|index| index.way == Way::Rebuilt) {
                enter((*settling).phases, Phase::Rebuild);
                rebuild(settling, table);
            }
            hold_indexes_again(held, written);
            pg_sys::CurrentMemoryContext = caller;
            refer::put_off(settling, table);
            return;
        }
        let is_left = if survives { late } else { (*table).indexes.want_rows() };
        let replaced = (*table).suspects.have_replaced();
        if queue || !(*table).keys.are_none() || is_left || replaced {
            (*table).new.for_each(slot, || {
                let recheck =
                    if survives { (*table).indexes.add_late(slot) } else { (*table).indexes.add(slot, offender) };
                (*table).keys.add(slot, |_| ());
                let mut old = if replaced { (*table).suspects.replaced_by(&(*slot).tts_tid) } else { None };
                let nothing = std::ptr::null_mut();
                if let Some(old) = &mut old {
                    // What has happened to its key is an update.
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
            (*table).indexes.insert_sorted(offender, std::ptr::null_mut(), slot);
        }
        if !survives || late {
            close_indexes(table);
        }
        if (*table).indexes.list.iter().any(|index| matches!(index.way, Way::Rebuilt | Way::Merged)) {
            enter((*settling).phases, Phase::Rebuild);
            if !survives {
                build(settling, written, table, false);
            }
            rebuild(settling, table);
        }
        hold_indexes_again(held, written);
        check_file(held, written);
        if !(*table).keys.are_none() {
            enter((*settling).phases, Phase::ForeignKeys);
        }
        if !(*table).keys.check() {
            (*table).keys.give_back();
            (*table).new.for_each(slot, || {
                c::ExecARInsertTriggers(estate, relinfo, slot, std::ptr::null_mut(), std::ptr::null_mut());
            });
        }
        // Last of all, since rebuilding an index makes locks on its pages locks on the table.
        check_serializable(relation);
        pg_sys::CurrentMemoryContext = caller;
        close(settling, table);
    }
}

/// # Safety
/// A valid leader's relations, and one of them.
#[pg_guard]
unsafe extern "C-unwind" fn let_indexes_go(held: *mut Held, written: *const Written) {
    // SAFETY: this function's contract covers both arguments.
    unsafe { (*held).let_go((*written).index) }
}

/// Code of index expressions has run meanwhile.
///
/// # Safety
/// As [`let_indexes_go`].
#[pg_guard]
unsafe extern "C-unwind" fn check_file(held: *const Held, written: *const Written) {
    // SAFETY: this function's contract covers both arguments.
    unsafe { (*held).check((*written).index, (*written).start).or_raise() }
}

/// # Safety
/// As [`let_indexes_go`].
#[pg_guard]
unsafe extern "C-unwind" fn hold_indexes_again(held: *mut Held, written: *const Written) {
    // SAFETY: this function's contract covers both arguments.
    unsafe { (*held).hold_again((*written).index) }
}

/// Rebuild the indexes that are to be rebuilt by the server's code.
///
/// # Safety
/// As [`tell`], with what [`look`] made. The indexes are closed.
unsafe fn rebuild(settling: *mut Settling, table: *mut Table) {
    // SAFETY: this function's contract covers both arguments.
    unsafe {
        let cpu = rebuild::run((*table).new.relation, &raw mut (*table).indexes, (*settling).helpers);
        (*(*settling).leader).counts.others.add(cpu);
    }
}

/// Let go of the indexes that are not going to be built from what was collected.
///
/// # Safety
/// As [`tell`], with what [`look`] made.
#[pg_guard]
unsafe extern "C-unwind" fn let_go(written: *mut Written, table: *const Table) {
    // SAFETY: this function's contract covers both arguments.
    unsafe {
        let (written, indexes) = (&mut *written, &(*table).indexes.list);
        for collector in written.collectors.iter_mut().filter(|collector| collector.holds_index()) {
            let index = indexes.iter().find(|index| index.oid == collector.index);
            if written.start > 0 || index.is_none_or(|index| index.way != Way::Rebuilt) {
                collector.close();
            }
        }
    }
}

/// Say why what an index refuses is an error.
///
/// # Safety
/// As [`tell`], with what [`look`] made.
#[pg_guard]
unsafe extern "C-unwind" fn excuse(settling: *mut Settling, table: *const Table) {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        let relation = (*table).new.relation;
        if may_complain(relation) || may_refer(relation) {
            let name = from_server(CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr()));
            let why = "are decoded for subscribers, where a duplicate key or an orphan would be an error";
            (*settling).notes.push(format!("Changes of table \"{name}\" {why}."));
        }
    }
}

/// Are there row triggers that are told of updates, such as those of foreign keys that refer to the table?
///
/// # Safety
/// A result relation.
unsafe fn tells_of_updates(relinfo: *const pg_sys::ResultRelInfo) -> bool {
    // SAFETY: this function's contract covers the argument.
    unsafe { (*relinfo).ri_TrigDesc.as_ref() }.is_some_and(|triggers| triggers.trig_update_after_row)
}

/// Open a relation; it becomes a result relation.
///
/// # Safety
/// As [`tell`].
#[pg_guard]
unsafe extern "C-unwind" fn open(settling: *const Settling, written: *const Written) -> *mut pg_sys::ResultRelInfo {
    // SAFETY: this function's contract covers the argument; guarded calls. The result relation is made as ExecInitPartitionInfo
    // (execPartition.c) makes one, unless that is what happened, or it is the target.
    unsafe {
        let (Settling { executor, stamp, leader, .. }, written) = (&*settling, &*written);
        (**leader).held.check(written.index, written.start).or_raise();
        let relation = pg_sys::table_open(written.oid, NO_LOCK);
        if stamp.frozen {
            freeze::set_visibility(relation, written.start);
        }
        if (*(*executor.target).ri_RelationDesc).rd_id == written.oid {
            return executor.target;
        }
        let routed = PgList::<pg_sys::ResultRelInfo>::from_pg((*executor.estate).es_tuple_routing_result_relations);
        if let Some(relinfo) = routed.iter_ptr().find(|&relinfo| (*relinfo).ri_RelationDesc == relation) {
            // Routing has opened its indexes, which nobody may have open when they are rebuilt.
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

/// Look at a result relation whose indexes are open.
///
/// # Safety
/// As [`tell`]; what [`open`] made of the relation.
#[pg_guard]
unsafe extern "C-unwind" fn look(
    settling: *mut Settling,
    written: *mut Written,
    relinfo: *mut pg_sys::ResultRelInfo,
    survives: bool,
) -> *mut Table {
    // SAFETY: this function's contract covers the argument; guarded calls. The table is dropped with its memory context.
    unsafe {
        let (Settling { executor, stamp, option, patience, files, workers, .. }, written) = (&*settling, &mut *written);
        let (relation, patience) = ((*relinfo).ri_RelationDesc, *patience);
        let memory = pg_sys::AllocSetContextCreateExtended(
            (*executor.estate).es_query_cxt,
            c"pg_bulk settle".as_ptr(),
            pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
        );
        let old = pg_sys::MemoryContextSwitchTo(memory);
        let collected: Vec<pg_sys::Oid> = written.collectors.iter().map(|collector| collector.index).collect();
        let leader = &*(*settling).leader;
        let (keeps, arbiter) = (leader.process.rejects.keeps(), leader.arbiter);
        let keep = leader.duplicates.keep;
        let held_bytes: usize = written.collectors.iter().map(Collector::held).sum();
        // Of a table that had rows, what was collected is not all that an index is rebuilt from.
        let builds = *option != IndexesOption::Rebuild || (written.start == 0 && !written.traits.shared);
        let certain = written.collectors.iter().filter(|collector| builds && collector.has_all());
        let certain: Vec<pg_sys::Oid> = certain.map(|collector| collector.index).collect();
        let survival = survives.then_some(Survival { keeps, keep, arbiter, certain: &certain });
        let rebuild =
            Rebuild::new(relation, written.traits, written.start, written.rows, *option, collected.clone(), patience);
        let held = written.collectors.iter().filter(|collector| collector.holds_index());
        let mut rebuild = rebuild.holding(held.map(|collector| collector.index).collect());
        find_behind(relinfo, &mut rebuild, written, *files, *workers).or_raise();
        let mut indexes = Indexes::new(relinfo, executor.estate, executor.econtext, &mut rebuild, survival);
        open_keys(&mut indexes, written, *files, *workers).or_raise();
        // Indexes are locked now, if they are to be.
        let waited_for = rebuild.patience;
        // What a row has replaced would not come back.
        let refers = survives && keeps && keep != Keep::New && !indexes.are_late();
        let mut keys = ForeignKeys::new(relinfo, written.rows, refers, pg_sys::RowShareLock.cast_signed());
        let refers = refers && !keys.are_none();
        // All sorts together get what one index that is built may have, but for what is held of keys that were collected.
        let sorts = i32::try_from(indexes.sorts() + keys.len()).unwrap_or(i32::MAX);
        let share = (left_beside(held_bytes) / sorts.max(1)).max(LEAST_MEMORY);
        indexes.begin_sorts(share);
        keys.prepare(share, false);
        let table = Table {
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
            suspects: Suspects::new(indexes.list.len(), share, keep == Keep::New && tells_of_updates(relinfo)),
            share,
            indexes,
            keys,
            rebuild,
            memory,
        };
        pg_sys::MemoryContextSwitchTo(old);
        (*settling).patience = waited_for;
        PgMemoryContexts::For(memory).leak_and_drop_on_delete(table)
    }
}

/// What is left of maintenance_work_mem beside so many bytes, in kB.
fn left_beside(held: usize) -> i32 {
    let held = i32::try_from(held / 1024).unwrap_or(i32::MAX);
    // SAFETY: reads a setting.
    unsafe { pg_sys::maintenance_work_mem }.saturating_sub(held).max(LEAST_MEMORY)
}

/// Tell which indexes have no key behind which a new one does not belong, as far as it matters. Guarded; allocates in the current
/// memory context.
///
/// # Safety
/// A result relation whose indexes are open, and whose rows were written.
unsafe fn find_behind(
    relinfo: *mut pg_sys::ResultRelInfo,
    rebuild: &mut Rebuild,
    written: &mut Written,
    files: Option<SharedFiles>,
    workers: usize,
) -> Result<()> {
    let sources = sources_of(written, files, workers);
    // SAFETY: this function's contract covers the relation; the executor lists so many indexes. If they are merged, nobody else writes to it.
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

/// What the processes have collected, for an index that gets keys one after the other.
fn sources_of(written: &Written, files: Option<SharedFiles>, workers: usize) -> Sources<'static> {
    let (rows, start) = (written.rows, written.start);
    Sources { files, workers, builders: 0, memory: LEAST_MEMORY, rows, merge: false, start, elsewhere: &[], help: None }
}

/// Keys that were collected, also by so many workers in these files, need not be sorted, nor their rows be read. Guarded;
/// allocates in the current memory context.
fn open_keys(indexes: &mut Indexes, written: &mut Written, files: Option<SharedFiles>, workers: usize) -> Result<()> {
    let sources = sources_of(written, files, workers);
    let Written { collectors, .. } = written;
    for index in &mut indexes.list {
        if matches!(index.way, Way::Sorted(_))
            && let Some(collector) = collectors.iter_mut().find(|collector| collector.index == index.oid)
            && let Some(keys) = KeyStream::open(collector, sources)?
        {
            index.way = Way::Keyed(PgMemoryContexts::CurrentMemoryContext.leak_and_drop_on_delete(keys));
        }
    }
    Ok(())
}

/// # Safety
/// As [`tell`], with what [`look`] made.
#[pg_guard]
unsafe extern "C-unwind" fn close_indexes(table: *mut Table) {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        (*table).indexes.close();
    }
}

/// # Safety
/// As [`tell`], with what [`look`] made.
#[pg_guard]
unsafe extern "C-unwind" fn close(settling: *mut Settling, table: *mut Table) {
    // SAFETY: this function's contract covers the argument; deleting the context drops the table.
    unsafe {
        {
            let (indexes, notes) = (&mut (*settling).indexes, &mut (*settling).notes);
            let table = &mut *table;
            let relation = table.new.relation;
            pg_sys::ExecDropSingleTupleTableSlot(table.slot);
            pg_sys::ExecDropSingleTupleTableSlot(table.other);
            let name = from_server(CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr()));
            table.rebuild.warn(&name, table.indexes.list.iter().map(|index| index.way));
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
