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

use std::ffi::{CStr, CString};
use std::time::{Duration, Instant};

use pgrx::pg_sys;

use self::choice::{ConflictSearch, is_unique, needs_checks, strategy};
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
use crate::server::server_text::from_server;
use crate::server::unguarded as c;

const MOST_KEYS: usize = pg_sys::INDEX_MAX_KEYS as usize;

/// An index.
#[derive(Debug)]
pub struct Index {
    pub oid: pg_sys::Oid,
    /// The name in the server's encoding.
    pub name: CString,
    /// Null after the index is closed.
    pub relation: pg_sys::Relation,
    pub info: *mut pg_sys::IndexInfo,
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
    relinfo: *mut pg_sys::ResultRelInfo,
    estate: *mut pg_sys::EState,
    econtext: *mut pg_sys::ExprContext,
    /// The open indexes in the list of ExecOpenIndices, ...
    open: *mut pg_sys::Relation,
    /// ... and the list that the executor sees instead: only the index that is to get a row.
    shown: *mut pg_sys::Relation,
    /// The index that decides which rows are duplicates.
    arbiter: Option<usize>,
    keep: Keep,
    /// The table's own rows count.
    has_rows: bool,
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

impl Indexes {
    /// Chooses the strategies for a result relation after ExecOpenIndices. Guarded; allocates in the current memory
    /// context, which must live as long.
    ///
    /// # Safety
    /// The structures are the executor's and live as long.
    pub unsafe fn new(
        relinfo: *mut pg_sys::ResultRelInfo,
        estate: *mut pg_sys::EState,
        econtext: *mut pg_sys::ExprContext,
        rebuild: &mut Rebuild,
        survival: Option<Survival<'_>>,
    ) -> Indexes {
        // SAFETY: this function's contract covers the pointers; the executor's list has `ri_NumIndices` indexes;
        // guarded calls.
        unsafe {
            let count = usize::try_from((*relinfo).ri_NumIndices).unwrap_or(0);
            let open = (*relinfo).ri_IndexRelationDescs;
            let at = |i| Relation::from_raw(*open.add(i));
            let arbiter_oid = survival.and_then(|survival| survival.arbiter);
            let is_arbiter =
                |i: usize| arbiter_oid.is_some_and(|oid| duplicate::is_part_of(Relation::from_raw(*open.add(i)), oid));
            let arbiter = (0..count).find(|&i| is_arbiter(i));
            let keep = survival.map_or(Keep::Error, |survival| survival.keep);
            let search = match survival {
                None => ConflictSearch::None,
                Some(_) if (0..count).any(|i| needs_checks(at(i))) => ConflictSearch::Searched,
                // The result of other constraints depends on the rows that are present at that time.
                Some(survival)
                    if keep != Keep::Error
                        && (keep == Keep::New || !survival.keeps)
                        && (0..count).any(|i| Some(i) != arbiter && is_unique(at(i))) =>
                {
                    ConflictSearch::Searched
                }
                Some(survival) => ConflictSearch::Sorted(survival.certain),
            };
            // Constraints that are checked after it is known which rows stay need open indexes until then.
            let is_late = |i| at(i).index().is_some_and(|form| !form.is_immediate);
            let builds = survival.is_none() || !(0..count).any(is_late);
            let index = |i| {
                let (relation, info) = (at(i), *(*relinfo).ri_IndexRelationInfo.add(i));
                let (strategy, why) = strategy(relation, (*info).ii_ReadyForInserts, rebuild, search, builds);
                let is_exclusion = relation.index().is_some_and(|form| form.is_exclusion);
                Index {
                    oid: relation.oid(),
                    name: relation.name(),
                    relation: relation.as_ptr(),
                    info,
                    strategy,
                    sort: None,
                    keys: None,
                    why,
                    is_exclusion,
                    took: Duration::ZERO,
                    workers: 0,
                }
            };
            let list = (0..count).map(index).collect();
            let shown = if count == 0 {
                std::ptr::null_mut()
            } else {
                pg_sys::palloc0(count * size_of::<pg_sys::Relation>()).cast::<pg_sys::Relation>()
            };
            if count > 0 {
                (*relinfo).ri_IndexRelationDescs = shown;
            }
            Indexes { list, relinfo, estate, econtext, open, shown, arbiter, keep, has_rows: true }
        }
    }

    /// The indexes of a result relation in a dry run: those that could exclude a row immediately.
    ///
    /// Keys of B-trees are sorted. Without `has_rows` the table counts as empty. Guarded; allocates as [`Indexes::new`]
    /// does.
    ///
    /// # Safety
    /// See [`Indexes::new`].
    pub unsafe fn to_ask(
        relinfo: *mut pg_sys::ResultRelInfo,
        estate: *mut pg_sys::EState,
        econtext: *mut pg_sys::ExprContext,
        keep: Keep,
        arbiter: Option<pg_sys::Oid>,
        has_rows: bool,
    ) -> Indexes {
        // SAFETY: as in `new`.
        unsafe {
            let count = usize::try_from((*relinfo).ri_NumIndices).unwrap_or(0);
            let open = (*relinfo).ri_IndexRelationDescs;
            let is_arbiter =
                |i: usize| arbiter.is_some_and(|oid| duplicate::is_part_of(Relation::from_raw(*open.add(i)), oid));
            let arbiter = (0..count).find(|&i| is_arbiter(i));
            let index = |i| {
                let (relation, info) = (*open.add(i), *(*relinfo).ri_IndexRelationInfo.add(i));
                let form = (*relation).rd_index;
                let is_exclusion = (*form).indisexclusion;
                let strategy = if !(*info).ii_ReadyForInserts || !(*form).indimmediate {
                    IndexStrategy::None
                } else if is_exclusion {
                    IndexStrategy::SearchOnly
                } else if (*form).indisunique && (*(*relation).rd_rel).relam == pg_sys::BTREE_AM_OID {
                    IndexStrategy::InsertSorted
                } else {
                    IndexStrategy::None
                };
                let name = CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr()).to_owned();
                Index {
                    oid: (*relation).rd_id,
                    name,
                    relation,
                    info,
                    strategy,
                    sort: None,
                    keys: None,
                    why: Why::Asked,
                    is_exclusion,
                    took: Duration::ZERO,
                    workers: 0,
                }
            };
            let list = (0..count).map(index).collect();
            Indexes { list, relinfo, estate, econtext, open, shown: open, arbiter, keep, has_rows }
        }
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
            // SAFETY: open relations.
            let (heap, relation) =
                unsafe { (Relation::from_raw((*self.relinfo).ri_RelationDesc), Relation::from_raw(index.relation)) };
            // index_insert decides on equal keys, because it knows which rows are dead.
            index.sort = Some(BegunSort::begin(heap, relation, memory, None));
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
                    (*index.info).ii_PredicateState = pg_sys::ExecPrepareQual((*index.info).ii_Predicate, self.estate);
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
        // SAFETY: this function's contract covers frame and slot. The arrays have room for the keys of any index.
        unsafe {
            (*self.econtext).ecxt_scantuple = slot;
            for (i, index) in self.list.iter_mut().enumerate() {
                match index.strategy {
                    IndexStrategy::InsertSorted => {
                        if let Some(sort) = &index.sort
                            && c::exec_qual((*index.info).ii_PredicateState, self.econtext)
                        {
                            let mut values = [pg_sys::Datum::from(0usize); MOST_KEYS];
                            let mut nulls = [false; MOST_KEYS];
                            let (values, nulls) = (values.as_mut_ptr(), nulls.as_mut_ptr());
                            c::FormIndexDatum(index.info, slot, self.estate, values, nulls);
                            let tid = &raw mut (*slot).tts_tid;
                            c::tuplesort_putindextuplevalues(sort.as_ptr(), index.relation, tid, values, nulls);
                        }
                    }
                    IndexStrategy::InsertRows | IndexStrategy::InsertChecked => {
                        c::check_for_interrupts();
                        (*violating_row).row = Some((*slot).tts_tid);
                        let shown = self.shown.add(i);
                        *shown = index.relation;
                        let again = compat::insert_index_tuples(self.relinfo, slot, self.estate);
                        *shown = std::ptr::null_mut();
                        (*violating_row).row = None;
                        if !again.is_null() {
                            recheck = c::list_concat(recheck, again);
                        }
                    }
                    IndexStrategy::None
                    | IndexStrategy::InsertKeys
                    | IndexStrategy::Rebuild
                    | IndexStrategy::Build
                    | IndexStrategy::Merge
                    | IndexStrategy::InsertLate
                    | IndexStrategy::SearchOnly => {
                        continue;
                    }
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
        // SAFETY: this function's contract covers frame and slot.
        unsafe {
            for (i, index) in self.list.iter_mut().enumerate() {
                if index.strategy == IndexStrategy::InsertLate {
                    c::check_for_interrupts();
                    let began = Instant::now();
                    let shown = self.shown.add(i);
                    *shown = index.relation;
                    let again = compat::insert_index_tuples(self.relinfo, slot, self.estate);
                    *shown = std::ptr::null_mut();
                    if !again.is_null() {
                        recheck = c::list_concat(recheck, again);
                    }
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
        // SAFETY: this function's contract covers frame and slot.
        unsafe {
            let Some(index) = self.list.get_mut(number).filter(|index| index.strategy == IndexStrategy::InsertChecked)
            else {
                return holder::NOBODY;
            };
            c::check_for_interrupts();
            let began = Instant::now();
            let shown = self.shown.add(number);
            *shown = index.relation;
            let mut conflict = holder::NOBODY;
            let fits = compat::check_index_constraints(self.relinfo, slot, self.estate, &raw mut conflict);
            *shown = std::ptr::null_mut();
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
        // SAFETY: this function's contract covers frame and slot.
        unsafe {
            for number in 0..self.list.len() {
                if Some(number) == self.arbiter {
                    continue;
                }
                let holder = self.holder(number, slot);
                if holder.ip_posid != 0 && !holder::is_same(&holder, except) {
                    return Some(number);
                }
            }
        }
        None
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
            (*self.relinfo).ri_IndexRelationDescs = self.open;
            pg_sys::ExecCloseIndices(self.relinfo);
            (*self.relinfo).ri_NumIndices = 0;
        }
        self.list.iter_mut().for_each(|index| index.relation = std::ptr::null_mut());
    }

    /// The reports on all indexes.
    pub fn reports(&self) -> impl Iterator<Item = IndexReport> {
        self.list.iter().filter(|index| index.strategy != IndexStrategy::None).map(|index| IndexReport {
            name: from_server(&index.name),
            method: match index.strategy {
                IndexStrategy::Rebuild | IndexStrategy::Build => "rebuild",
                IndexStrategy::Merge => "merge",
                IndexStrategy::None
                | IndexStrategy::InsertSorted
                | IndexStrategy::InsertKeys
                | IndexStrategy::InsertRows
                | IndexStrategy::InsertChecked
                | IndexStrategy::InsertLate
                | IndexStrategy::SearchOnly => "insert",
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
