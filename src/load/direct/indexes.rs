//! Puts the new rows into the indexes of a relation.
//!
//! ```text
//!   row ─► predicate, expressions ─┬─► sort ─── all rows are in ─┬► into leaves, in the order of keys    B-tree
//!                                  │   collected keys ───────────┘
//!                                  └─► ExecInsertIndexTuples, row by row                                  all others
//! ```
//!
//! One pass over the rows serves all indexes. B-trees are given sorted keys: each insertion finds its page in memory,
//! after the insertion before. In the order of the file, each insertion might need another page, which is read, logged
//! as a full image and written again. The order of equal keys does not matter to a unique index: the second one is the
//! error.
//!
//! Other access methods get the rows in the heap's order, from the executor's own function. So does every index with an
//! exclusion constraint or a deferrable one, because the later check is queued together with the row.
//!
//! Expressions are evaluated with the caller's privileges, as in an INSERT, and in plain frames.

mod choice;
mod compared;
mod sorted;

use std::cell::Cell;
use std::ffi::CString;
use std::time::{Duration, Instant};

use pgrx::pg_sys;

use self::choice::{ConflictSearch, is_unique, needs_checks, strategy};
use super::executor::Executor;
use super::new_files::Rebuild;
use crate::index::index_keys::KeyStream;
use crate::index::strategy::IndexStrategy;
use crate::index::tuple_sort::BegunSort;
use crate::index::violating_row::ViolatingRow;
use crate::load::duplicate::{self, Keep};
use crate::load::report::{IndexReport, Why};
use crate::server::compat;
use crate::server::holder;
use crate::server::relation::Relation;
use crate::server::result_relation::ResultRelation;
use crate::server::server_text::from_server;
use crate::server::unguarded as c;

const MOST_KEYS: usize = pg_sys::INDEX_MAX_KEYS as usize;

/// An index.
#[derive(Debug)]
pub struct Index {
    pub oid: pg_sys::Oid,
    /// The name in the server's encoding.
    pub name: CString,
    /// None after the index is closed.
    relation: Option<Relation<'static>>,
    info: *mut pg_sys::IndexInfo,
    pub strategy: IndexStrategy,
    /// The sort of an index that gets sorted keys, ...
    sort: Option<BegunSort>,
    /// ... or the keys that were collected.
    pub keys: Option<Box<dyn KeyStream>>,
    pub why: Why,
    pub is_exclusion: bool,
    pub took: Duration,
    /// Workers that have helped to build it.
    pub workers: usize,
}

/// The indexes of a relation with new rows.
#[derive(Debug)]
pub struct Indexes {
    pub list: Vec<Index>,
    relinfo: ResultRelation,
    executor: Executor,
    /// The open indexes in the list of ExecOpenIndices, ...
    open: *mut pg_sys::Relation,
    /// ... and the list that the executor sees instead: only the index that is to get a row.
    shown: *mut Cell<pg_sys::Relation>,
    /// The index that decides which rows are duplicates.
    arbiter: Option<usize>,
    keep: Keep,
    /// The table's own rows count.
    has_rows: bool,
}

/// The place of the index that decides which rows are duplicates.
fn arbiter_of(open: &[(Relation<'_>, *mut pg_sys::IndexInfo)], arbiter: Option<pg_sys::Oid>) -> Option<usize> {
    open.iter().position(|(index, _)| arbiter.is_some_and(|oid| duplicate::is_part_of(*index, oid)))
}

/// How rows with conflicts are survived.
#[derive(Debug, Clone, Copy)]
pub struct Survival<'a> {
    /// Conflicts of all kinds are kept as rejects; otherwise only duplicates are survived.
    pub keeps: bool,
    pub keep: Keep,
    /// The target's index that decides which rows are duplicates.
    pub arbiter: Option<pg_sys::Oid>,
    /// Indexes that will certainly be built from collected keys.
    pub certain: &'a [pg_sys::Oid],
}

impl Index {
    /// `info`: the IndexInfo of the open index.
    fn new(relation: Relation<'static>, info: *mut pg_sys::IndexInfo, strategy: IndexStrategy, why: Why) -> Index {
        Index {
            oid: relation.oid(),
            name: relation.name(),
            relation: Some(relation),
            info,
            strategy,
            sort: None,
            keys: None,
            why,
            is_exclusion: relation.index().is_some_and(|form| form.is_exclusion),
            took: Duration::ZERO,
            workers: 0,
        }
    }

    /// The open index, for functions of the server; null after it is closed.
    fn as_ptr(&self) -> pg_sys::Relation {
        self.relation.map_or(std::ptr::null_mut(), Relation::as_ptr)
    }

    /// Does work for which the executor sees only this index, in this place of its list.
    fn shown_at<T>(&self, place: &Cell<pg_sys::Relation>, work: impl FnOnce() -> T) -> T {
        place.set(self.as_ptr());
        let done = work();
        place.set(std::ptr::null_mut());
        done
    }

    /// The index, until it is closed.
    pub const fn relation(&self) -> Option<Relation<'static>> {
        self.relation
    }

    /// The IndexInfo, for functions of the server.
    pub const fn info(&self) -> *mut pg_sys::IndexInfo {
        self.info
    }
}

impl Indexes {
    /// Chooses the strategies for a result relation of the executor state after ExecOpenIndices. Guarded; allocates in the
    /// current memory context, which must live as long.
    pub fn new(
        relinfo: ResultRelation,
        executor: Executor,
        rebuild: &mut Rebuild,
        survival: Option<Survival<'_>>,
    ) -> Indexes {
        let open = relinfo.indexes();
        let any = |is_one: &dyn Fn(Relation<'_>) -> bool| open.iter().any(|&(relation, _)| is_one(relation));
        let arbiter = arbiter_of(&open, survival.and_then(|survival| survival.arbiter));
        let keep = survival.map_or(Keep::Error, |survival| survival.keep);
        let search = match survival {
            None => ConflictSearch::None,
            Some(_) if any(&needs_checks) => ConflictSearch::Searched,
            // The result of other constraints depends on the rows that are present at that time.
            Some(survival)
                if keep != Keep::Error
                    && (keep == Keep::New || !survival.keeps)
                    && open.iter().enumerate().any(|(i, &(index, _))| Some(i) != arbiter && is_unique(index)) =>
            {
                ConflictSearch::Searched
            }
            Some(survival) => ConflictSearch::Sorted(survival.certain),
        };
        // Constraints that are checked after it is known which rows stay need open indexes until then.
        let is_late = |index: Relation<'_>| index.index().is_some_and(|form| !form.is_immediate);
        let builds = survival.is_none() || !any(&is_late);
        let index = |&(relation, info): &(Relation<'static>, *mut pg_sys::IndexInfo)| {
            // SAFETY: the info of an open index.
            let is_ready = unsafe { (*info).ii_ReadyForInserts };
            let (strategy, why) = strategy(relation, is_ready, rebuild, search, builds);
            Index::new(relation, info, strategy, why)
        };
        let list: Vec<Index> = open.iter().map(index).collect();
        // SAFETY: a guarded call for a list of `ri_NumIndices` elements, which the executor sees until `close`.
        let (open, shown) = unsafe {
            let place = &raw mut (*relinfo.as_ptr()).ri_IndexRelationDescs;
            let open = *place;
            if !open.is_null() {
                *place = pg_sys::palloc0(list.len() * size_of::<pg_sys::Relation>()).cast();
            }
            (open, (*place).cast())
        };
        Indexes { list, relinfo, executor, open, shown, arbiter, keep, has_rows: true }
    }

    /// The indexes of a result relation in a dry run: those that could exclude a row immediately.
    ///
    /// Keys of B-trees are sorted. Without `has_rows` the table counts as empty. Guarded; allocates as [`Indexes::new`]
    /// does.
    pub fn to_ask(
        relinfo: ResultRelation,
        executor: Executor,
        keep: Keep,
        arbiter: Option<pg_sys::Oid>,
        has_rows: bool,
    ) -> Indexes {
        let open = relinfo.indexes();
        let index = |&(relation, info): &(Relation<'static>, *mut pg_sys::IndexInfo)| {
            // SAFETY: the info of an open index.
            let is_ready = unsafe { (*info).ii_ReadyForInserts };
            let strategy = match relation.index() {
                Some(form) if !is_ready || !form.is_immediate => IndexStrategy::None,
                Some(form) if form.is_exclusion => IndexStrategy::SearchOnly,
                Some(form) if form.is_unique && relation.access_method() == pg_sys::BTREE_AM_OID => {
                    IndexStrategy::InsertSorted
                }
                _ => IndexStrategy::None,
            };
            Index::new(relation, info, strategy, Why::Asked)
        };
        let (list, arbiter) = (open.iter().map(index).collect(), arbiter_of(&open, arbiter));
        // SAFETY: a valid result relation.
        let open = unsafe { (*relinfo.as_ptr()).ri_IndexRelationDescs };
        Indexes { list, relinfo, executor, open, shown: open.cast(), arbiter, keep, has_rows }
    }

    /// Does any index need the rows?
    pub fn want_rows(&self) -> bool {
        self.list.iter().any(|index| {
            matches!(
                index.strategy,
                IndexStrategy::InsertSorted | IndexStrategy::InsertRows | IndexStrategy::InsertChecked
            )
        })
    }

    /// Must rows be searched for before they are inserted?
    pub fn are_checked(&self) -> bool {
        self.list.iter().any(|index| index.strategy == IndexStrategy::InsertChecked)
    }

    /// Are there constraints that are checked later?
    pub fn are_late(&self) -> bool {
        self.list.iter().any(|index| index.strategy == IndexStrategy::InsertLate)
    }

    /// Number of sorts.
    pub fn sorts(&self) -> usize {
        self.list.iter().filter(|index| matches!(index.strategy, IndexStrategy::InsertSorted)).count()
    }

    /// Starts the sorts, with `memory` kB for each. Guarded; allocates in the current memory context.
    pub fn begin_sorts(&mut self, memory: i32) {
        for index in self.list.iter_mut().filter(|index| index.strategy == IndexStrategy::InsertSorted) {
            let heap = self.relinfo.relation();
            // index_insert decides on equal keys, because it knows which rows are dead.
            index.sort = index.relation.map(|relation| BegunSort::begin(heap, relation, memory, None));
        }
    }

    /// Prepares the predicates. Guarded.
    pub fn prepare(&mut self) {
        let wanted = |index: &&Index| matches!(index.strategy, IndexStrategy::InsertSorted | IndexStrategy::SearchOnly);
        for index in self.list.iter().filter(wanted) {
            // SAFETY: a guarded call; the info is of an open index. ExecInsertIndexTuples prepares predicates in the same
            // way.
            unsafe {
                if !(*index.info).ii_Predicate.is_null() {
                    (*index.info).ii_PredicateState =
                        pg_sys::ExecPrepareQual((*index.info).ii_Predicate, self.executor.estate());
                }
            }
        }
    }

    /// Adds a row. Returns the indexes whose constraints must be checked again later.
    ///
    /// # Safety
    /// A plain frame; a slot with a row of the relation. The current memory context lives until the last row.
    pub unsafe fn add(
        &mut self,
        slot: *mut pg_sys::TupleTableSlot,
        violating_row: *mut ViolatingRow,
    ) -> *mut pg_sys::List {
        let mut recheck: *mut pg_sys::List = std::ptr::null_mut();
        // A dry run, which has no violating row, shows no times.
        let mut began = (!violating_row.is_null()).then(Instant::now);
        let (relinfo, estate) = (self.relinfo.as_ptr(), self.executor.estate());
        // SAFETY: a plain frame, and a row of the relation. The arrays have room for the keys of any index.
        unsafe {
            let context = self.executor.context().as_ptr();
            (*context).ecxt_scantuple = slot;
            for (i, index) in self.list.iter_mut().enumerate() {
                match index.strategy {
                    IndexStrategy::InsertSorted => {
                        if let Some(sort) = &index.sort
                            && c::exec_qual((*index.info).ii_PredicateState, context)
                        {
                            let mut values = [pg_sys::Datum::from(0usize); MOST_KEYS];
                            let mut nulls = [false; MOST_KEYS];
                            let (values, nulls) = (values.as_mut_ptr(), nulls.as_mut_ptr());
                            c::FormIndexDatum(index.info, slot, estate, values, nulls);
                            let tid = &raw mut (*slot).tts_tid;
                            c::tuplesort_putindextuplevalues(sort.as_ptr(), index.as_ptr(), tid, values, nulls);
                        }
                    }
                    IndexStrategy::InsertRows | IndexStrategy::InsertChecked => {
                        c::check_for_interrupts();
                        (*violating_row).row = Some((*slot).tts_tid);
                        let insert = || compat::insert_index_tuples(relinfo, slot, estate);
                        recheck = c::list_concat(recheck, index.shown_at(&*self.shown.add(i), insert));
                        (*violating_row).row = None;
                    }
                    _ => continue,
                }
                if let Some(began) = &mut began {
                    let now = Instant::now();
                    index.took += now - *began;
                    *began = now;
                }
            }
        }
        recheck
    }

    /// Adds a row that stays to the indexes with later checks. Returns those that must be checked again.
    ///
    /// # Safety
    /// See [`Indexes::add`].
    pub unsafe fn add_late(&mut self, slot: *mut pg_sys::TupleTableSlot) -> *mut pg_sys::List {
        let mut recheck: *mut pg_sys::List = std::ptr::null_mut();
        let (relinfo, estate) = (self.relinfo.as_ptr(), self.executor.estate());
        // SAFETY: a plain frame, and a row of the relation.
        unsafe {
            for (i, index) in self.list.iter_mut().enumerate() {
                if index.strategy == IndexStrategy::InsertLate {
                    c::check_for_interrupts();
                    let began = Instant::now();
                    let insert = || compat::insert_index_tuples(relinfo, slot, estate);
                    recheck = c::list_concat(recheck, index.shown_at(&*self.shown.add(i), insert));
                    index.took += began.elapsed();
                }
            }
        }
        recheck
    }

    /// The row that conflicts with the slot's row, in an index that is searched for each row. Waits for transactions
    /// that may be about to insert or delete a conflicting row.
    ///
    /// # Safety
    /// See [`Indexes::add`]; `number` is one of the indexes.
    pub unsafe fn holder(&mut self, number: usize, slot: *mut pg_sys::TupleTableSlot) -> pg_sys::ItemPointerData {
        let relinfo = self.relinfo.as_ptr();
        // SAFETY: a plain frame, and a row of the relation.
        unsafe {
            let Some(index) = self.list.get_mut(number).filter(|index| index.strategy == IndexStrategy::InsertChecked)
            else {
                return holder::NOBODY;
            };
            c::check_for_interrupts();
            let began = Instant::now();
            let (mut conflict, estate) = (holder::NOBODY, self.executor.estate());
            let fits = index.shown_at(&*self.shown.add(number), || {
                compat::check_index_constraints(relinfo, slot, estate, &raw mut conflict)
            });
            index.took += began.elapsed();
            if fits { holder::NOBODY } else { conflict }
        }
    }

    /// The first index with a conflicting row, other than the arbiter's and the row `except`.
    ///
    /// # Safety
    /// See [`Indexes::holder`].
    pub unsafe fn in_the_way(
        &mut self,
        slot: *mut pg_sys::TupleTableSlot,
        except: &pg_sys::ItemPointerData,
    ) -> Option<usize> {
        let arbiter = self.arbiter;
        (0..self.list.len()).filter(|&number| Some(number) != arbiter).find(|&number| {
            // SAFETY: as in `holder`.
            let holder = unsafe { self.holder(number, slot) };
            holder.ip_posid != 0 && !holder::is_same(&holder, except)
        })
    }

    /// The index that decides which rows are duplicates, if duplicates are survived.
    pub fn arbiter(&self) -> Option<usize> {
        self.arbiter
    }

    pub fn keep(&self) -> Keep {
        self.keep
    }

    /// Closes all indexes. Guarded.
    pub fn close(&mut self) {
        // SAFETY: ExecOpenIndices has opened the indexes; a guarded call.
        unsafe {
            let relinfo = self.relinfo.as_ptr();
            (*relinfo).ri_IndexRelationDescs = self.open;
            pg_sys::ExecCloseIndices(relinfo);
            (*relinfo).ri_NumIndices = 0;
        }
        self.list.iter_mut().for_each(|index| index.relation = None);
    }

    /// The reports on all indexes.
    pub fn reports(&self) -> impl Iterator<Item = IndexReport> {
        self.list.iter().filter(|index| index.strategy != IndexStrategy::None).map(|index| IndexReport {
            name: from_server(&index.name),
            method: match index.strategy {
                IndexStrategy::Rebuild | IndexStrategy::Build => "rebuild",
                IndexStrategy::Merge => "merge",
                _ => "insert",
            },
            from: match index.strategy {
                IndexStrategy::Build => Some("load"),
                IndexStrategy::Rebuild => Some("table"),
                _ => None,
            },
            why: index.why,
            workers: index.workers,
            seconds: index.took.as_secs_f64(),
        })
    }
}
