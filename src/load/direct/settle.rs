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

mod refer;

use std::ffi::CStr;
use std::time::{Duration, Instant};

use pg_bulk_format::btree::entry::Tid;
use pg_bulk_format::tuple::Stamp;
use pgrx::memcxt::PgMemoryContexts;
use pgrx::{PgList, PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::foreign_keys::ForeignKeys;
use super::freeze;
use super::index_keys::{self, Clash, Collector, Sources};
use super::indexes::{Indexes, Survival, Way};
use super::leader::Leader;
use super::losers::{self, Group, Rivals, Suspects, row_of};
use super::new_rows::NewRows;
use super::origin::Place;
use super::process::Executor;
use super::rebuild::{self, Rebuild};
use crate::error::{Error, OrRaise};
use crate::load::duplicate::Keep;
use crate::load::options::IndexesOption;
use crate::load::phase::{Phase, Phases};
use crate::load::report::IndexReport;
use crate::pg::append::Traits;
use crate::pg::encoding::from_server;
use crate::pg::holder;
use crate::pg::shared_files::SharedFiles;
use crate::pg::unguarded::{self as c, guard};

/// The least that a sort works with, in kB (tuplesort.c).
const LEAST_MEMORY: i32 = 64;
const NO_LOCK: pg_sys::LOCKMODE = pg_sys::NoLock.cast_signed();

fn is_partitioned(relation: pg_sys::Relation) -> bool {
    // SAFETY: an open relation.
    unsafe { (*(*relation).rd_rel).relkind.cast_unsigned() == pg_sys::RELKIND_PARTITIONED_TABLE }
}

/// The relations that rows of a target may go to, open, and locked to the end of the transaction. Guarded.
///
/// # Safety
/// An open relation that is locked.
pub unsafe fn lock_leaves(relation: pg_sys::Relation) -> Vec<pg_sys::Relation> {
    if !is_partitioned(relation) {
        return vec![relation];
    }
    let mode = pg_sys::RowExclusiveLock.cast_signed();
    // SAFETY: guarded calls; find_all_inheritors has locked what it returns.
    unsafe {
        let oids = guard(|| c::find_all_inheritors((*relation).rd_id, mode, std::ptr::null_mut()));
        let count = if oids.is_null() { 0 } else { (*oids).length };
        let open = |i| pg_sys::table_open(pg_sys::list_nth_oid(oids, i), NO_LOCK);
        let relations: Vec<_> = (0..count).map(open).collect();
        let (leaves, inner): (Vec<_>, Vec<_>) = relations.into_iter().partition(|&relation| !is_partitioned(relation));
        inner.into_iter().for_each(|relation| pg_sys::table_close(relation, NO_LOCK));
        leaves
    }
}

/// Has a relation constraints that its rows may turn out to violate when they are in?
///
/// # Safety
/// An open relation. Guarded.
pub unsafe fn may_complain(relation: pg_sys::Relation) -> bool {
    // SAFETY: the caller vouches for the relation; guarded calls.
    unsafe {
        if !(*(*relation).rd_rel).relhasindex {
            return false;
        }
        let lock = pg_sys::AccessShareLock.cast_signed();
        let indexes = PgList::<pg_sys::Oid>::from_pg(pg_sys::RelationGetIndexList(relation));
        indexes.iter_oid().any(|oid| {
            let index = pg_sys::index_open(oid, lock);
            let form = (*index).rd_index;
            let complains = (*form).indisunique || (*form).indisexclusion;
            pg_sys::index_close(index, lock);
            complains
        })
    }
}

/// Has a relation foreign keys?
///
/// # Safety
/// An open relation.
pub unsafe fn may_refer(relation: pg_sys::Relation) -> bool {
    // SAFETY: the caller vouches for the relation, which has so many triggers.
    unsafe {
        let Some(triggers) = (*relation).trigdesc.as_ref() else { return false };
        let count = usize::try_from(triggers.numtriggers).unwrap_or(0);
        (0..count).any(|i| (*triggers.triggers.add(i)).tgfoid.to_u32() == pg_sys::F_RI_FKEY_CHECK_INS)
    }
}

/// Close what [`lock_leaves`] opened; the locks stay. Guarded.
///
/// # Safety
/// The same relation, and what it gave.
pub unsafe fn close_leaves(relation: pg_sys::Relation, leaves: &[pg_sys::Relation]) {
    for &leaf in leaves.iter().filter(|&&leaf| leaf != relation) {
        // SAFETY: the caller vouches for it.
        unsafe { pg_sys::table_close(leaf, NO_LOCK) };
    }
}

/// What CopyFrom does before the first row.
///
/// # Safety
/// A plain frame; a load's executor state.
pub unsafe fn before_rows(executor: Executor) {
    // SAFETY: the caller vouches for it.
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
    // SAFETY: the caller vouches for it.
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
            phases,
            leader,
            referring: Vec::new(),
            patience: rebuild::PATIENCE,
            indexes: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Close the files of keys that nobody wanted. Guarded.
    pub fn close_files(&mut self) {
        self.relations.iter_mut().flat_map(|written| &mut written.collectors).for_each(Collector::close);
    }

    /// With the keys that so many workers have left.
    pub fn with_files(self, files: Option<SharedFiles>, workers: usize) -> Settling {
        Settling { files, workers, ..self }
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
    // SAFETY: the caller vouches for all; nothing in this frame has a destructor, for the tables belong to their memory.
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
        enter((*settling).phases, Phase::Indexes);
        // A row that is inserted and deleted again would be inserted by whoever is told of changes, which may fail.
        let keeps = (*leader).process.rejects.keeps();
        let arbiter = (*leader).arbiter;
        let survives = (keeps || arbiter.is_some()) && !(*written).traits.logical;
        c::ExecOpenIndices(relinfo, survives);
        let table = look(settling, written, relinfo, survives);
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
                rebuild::run(relation, &raw mut (*table).indexes);
            }
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
            rebuild::run(relation, &raw mut (*table).indexes);
        }
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

/// Insert the new rows into the indexes that are not built. Those that one of them refuses are suspects, or gone.
///
/// # Safety
/// As [`tell`]; a table that was looked at.
unsafe fn sift(leader: *mut Leader, table: *mut Table, econtext: *mut pg_sys::ExprContext) {
    // SAFETY: as in `tell`.
    unsafe {
        let (slot, number) = ((*table).slot, (*table).number);
        let (indexes, suspects) = (&raw mut (*table).indexes, &raw mut (*table).suspects);
        let offender = &raw mut (*leader).offender;
        // Rows are deleted by a later command than that which has inserted them.
        c::CommandCounterIncrement();
        if !(*table).indexes.want_rows() {
            return;
        }
        if (*table).indexes.are_careful() {
            let order = losers::order(leader, number, (*table).share);
            let (mut row, mut place) = (pg_sys::ItemPointerData::default(), Place::default());
            while losers::next(order, &raw mut row, &raw mut place) {
                (*table).new.visit(&row, slot, || {
                    take_or_leave(leader, table, number, &raw const place);
                    c::MemoryContextReset((*econtext).ecxt_per_tuple_memory);
                });
            }
            (*indexes).insert_sorted(offender, std::ptr::null_mut(), slot);
            return;
        }
        // Keys of rows that are going to lose come along: they do no harm.
        (*table).gathered = (*table).refers;
        (*table).new.for_each(slot, || {
            c::list_free((*indexes).add(slot, offender));
            if (*table).refers {
                (*table).keys.add(slot, |_| ());
            }
            c::MemoryContextReset((*econtext).ecxt_per_tuple_memory);
        });
        (*indexes).insert_sorted(offender, suspects, slot);
    }
}

/// Insert a row into the indexes, unless another row is in its way.
///
/// # Safety
/// As [`sift`], with one of the rows in the table's slot.
unsafe fn take_or_leave(leader: *mut Leader, table: *mut Table, number: usize, place: *const Place) {
    // SAFETY: as in `sift`.
    unsafe {
        let (slot, relation) = ((*table).slot, (*table).new.relation);
        let (indexes, suspects) = (&raw mut (*table).indexes, &raw mut (*table).suspects);
        let row = (*slot).tts_tid;
        let keep = (*indexes).keep();
        loop {
            let arbiter = (*indexes).arbiter().unwrap_or(usize::MAX);
            let holder = (*indexes).holder(arbiter, slot);
            let is_taken = holder.ip_posid != 0;
            let mut is_own = false;
            if is_taken {
                (*table).new.visit(&holder, (*table).other, || is_own = true);
                if !is_own && keep == Keep::Old {
                    holder::check_visible(relation, &raw const holder);
                }
            }
            if is_taken && keep == Keep::Old {
                return losers::lose(leader, relation, &raw const row, place, indexes, arbiter);
            }
            if (*leader).process.rejects.keeps()
                && let Some(index) = (*indexes).in_the_way(slot, &holder)
            {
                return losers::lose(leader, relation, &raw const row, place, indexes, index);
            }
            // The one that was in the way may have been changed meanwhile.
            let rivals = Rivals { row, other: holder, is_own, relation: number };
            if is_taken && !losers::replace(leader, relation, &raw const rivals, indexes, suspects) {
                continue;
            }
            c::list_free((*indexes).add(slot, &raw mut (*leader).offender));
            return;
        }
    }
}

/// Say why what an index refuses is an error.
///
/// # Safety
/// As [`tell`], with what [`look`] made.
#[pg_guard]
unsafe extern "C-unwind" fn excuse(settling: *mut Settling, table: *const Table) {
    // SAFETY: the caller vouches for it.
    unsafe {
        let relation = (*table).new.relation;
        if may_complain(relation) || may_refer(relation) {
            let name = from_server(CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr()));
            let why = "are decoded for subscribers: a key that is there twice, or refers to nothing, would be an error";
            (*settling).notes.push(format!("Changes of table \"{name}\" {why}."));
        }
    }
}

/// Go to the next phase.
///
/// # Safety
/// The load's phases, which nobody else uses now.
#[pg_guard]
unsafe extern "C-unwind" fn enter(phases: *mut Phases, phase: Phase) {
    // SAFETY: the caller vouches for it.
    unsafe { &mut *phases }.enter(phase);
}

/// Are there row triggers that are told of updates, such as those of foreign keys that refer to the table?
///
/// # Safety
/// A result relation.
unsafe fn tells_of_updates(relinfo: *const pg_sys::ResultRelInfo) -> bool {
    // SAFETY: the caller vouches for it.
    unsafe { (*relinfo).ri_TrigDesc.as_ref() }.is_some_and(|triggers| triggers.trig_update_after_row)
}

/// Open a relation; it becomes a result relation.
///
/// # Safety
/// As [`tell`].
#[pg_guard]
unsafe extern "C-unwind" fn open(settling: *const Settling, written: *const Written) -> *mut pg_sys::ResultRelInfo {
    // SAFETY: the caller vouches for it; guarded calls. The result relation is made as ExecInitPartitionInfo
    // (execPartition.c) makes one, unless that is what happened, or it is the target.
    unsafe {
        let (Settling { executor, stamp, .. }, written) = (&*settling, &*written);
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
        pg_sys::InitResultRelInfo(relinfo, relation, 0, executor.target, 0);
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
    written: *const Written,
    relinfo: *mut pg_sys::ResultRelInfo,
    survives: bool,
) -> *mut Table {
    // SAFETY: the caller vouches for it; guarded calls. The table is dropped with its memory context.
    unsafe {
        let (Settling { executor, stamp, option, patience, .. }, written) = (&*settling, &*written);
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
        let survival = survives.then_some(Survival { keeps, keep, arbiter, collected: &collected });
        let mut rebuild =
            Rebuild::new(relation, written.traits, written.start, written.rows, *option, collected.clone(), patience);
        let mut indexes = Indexes::new(relinfo, executor.estate, executor.econtext, &mut rebuild, survival);
        // Indexes are locked now, if they are to be.
        let waited_for = rebuild.patience;
        // What a row has replaced would not come back.
        let refers = survives && keeps && keep != Keep::New && !indexes.are_late();
        let mut keys = ForeignKeys::new(relinfo, written.rows, refers);
        let refers = refers && !keys.are_none();
        // All sorts together get what one index that is built may have.
        let sorts = i32::try_from(indexes.sorts() + keys.len()).unwrap_or(i32::MAX);
        let share = (pg_sys::maintenance_work_mem / sorts.max(1)).max(LEAST_MEMORY);
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

/// Build the indexes whose keys were collected.
///
/// # Safety
/// As [`tell`], with what [`look`] made. The indexes are closed.
#[pg_guard]
unsafe extern "C-unwind" fn build(settling: *const Settling, written: *mut Written, table: *mut Table, survives: bool) {
    // SAFETY: the caller vouches for all.
    unsafe {
        let (settling, written, table) = (&*settling, &mut *written, &mut *table);
        let (files, workers, rows, start) = (settling.files, settling.workers, written.rows, written.start);
        let mut elsewhere: Vec<Tid> = written.elsewhere.iter().map(index_keys::tid_of).collect();
        elsewhere.sort_unstable();
        let elsewhere = &*elsewhere;
        let offender = &raw mut (*settling.leader).offender;
        let suspects = &mut table.suspects;
        let (relation, keep, arbiter) = (table.new.relation, table.indexes.keep(), table.indexes.arbiter());
        for (number, index) in table.indexes.list.iter_mut().enumerate() {
            let merge = index.way == Way::Merged;
            // Not to be told from what the table had before, unless that was nothing.
            if !merge && (index.way != Way::Rebuilt || start > 0) {
                continue;
            }
            let Some(collector) = written.collectors.iter_mut().find(|collector| collector.index == index.oid) else {
                continue;
            };
            let began = Instant::now();
            let sources = Sources { files, workers, rows, merge, start, elsewhere };
            let mut group = Group::NONE;
            let replaces = keep == Keep::New && arbiter == Some(number);
            let mut judge = |clash: Clash<'_>, row: Tid| {
                let place = |tid: Tid| row_of(tid.to_u64());
                if !survives {
                    (*offender).row = Some(place(row));
                    (*offender).other = None;
                    match clash {
                        Clash::Twin { before, .. } => (*offender).other = Some(place(before)),
                        Clash::Takes { rows, .. } => {
                            (*offender).row = rows.iter().find(|&&row| sources.is_new(row)).map(|&row| place(row));
                        }
                        Clash::Taken { .. } => (),
                    }
                    return false;
                }
                // A row that is replaced is gone at once; who takes its place is known when all have been seen.
                if replaces
                    && let Clash::Taken { by, begins: true } | Clash::Takes { by, .. } = &clash
                    && !holder::delete(relation, by)
                {
                    let message = "a row of the table was changed, which was locked against that";
                    Err::<(), _>(Error::new(Code::ERRCODE_INTERNAL_ERROR, message)).or_raise();
                }
                match clash {
                    Clash::Taken { by, begins } => {
                        let known = if begins { Group::NONE } else { group };
                        group = suspects.taken(number, &place(row), &by, known);
                    }
                    Clash::Twin { before, begins } => {
                        let known = if begins { Group::NONE } else { group };
                        group = suspects.twin(number, &place(before), known, &place(row));
                    }
                    Clash::Takes { by, rows, begins } => {
                        group = if begins { Group::NONE } else { group };
                        for &row in rows.iter().filter(|&&row| sources.is_new(row)) {
                            group = suspects.taken(number, &place(row), &by, group);
                        }
                    }
                }
                true
            };
            let built = index_keys::build(table.new.relation, collector, sources, &mut judge).or_raise();
            index.way = match (built, merge) {
                (true, true) => Way::Merged,
                (true, false) => Way::Built,
                (false, _) => Way::Rebuilt,
            };
            index.took += began.elapsed();
        }
    }
}

/// # Safety
/// As [`tell`], with what [`look`] made.
#[pg_guard]
unsafe extern "C-unwind" fn close_indexes(table: *mut Table) {
    // SAFETY: the caller vouches for it.
    unsafe {
        (*table).indexes.close();
    }
}

/// # Safety
/// As [`tell`], with what [`look`] made.
#[pg_guard]
unsafe extern "C-unwind" fn close(settling: *mut Settling, table: *mut Table) {
    // SAFETY: the caller vouches for it; deleting the context drops the table.
    unsafe {
        {
            let (indexes, notes) = (&mut (*settling).indexes, &mut (*settling).notes);
            let table = &mut *table;
            let relation = table.new.relation;
            pg_sys::ExecDropSingleTupleTableSlot(table.slot);
            pg_sys::ExecDropSingleTupleTableSlot(table.other);
            let name = from_server(CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr()));
            table.rebuild.warn(&name, &table.indexes);
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
