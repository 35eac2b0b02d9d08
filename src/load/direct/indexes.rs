//! How the indexes of a relation come by the new rows.
//!
//! ```text
//!   row ─► predicate, expressions ─┬─► sort ─── all rows are in ─┬► into leaves, in the order of keys    B-tree
//!                                  │   keys that were collected ─┘
//!                                  └─► ExecInsertIndexTuples, row by row                                  all others
//! ```
//!
//! One pass over the rows serves all indexes. Where keys arrive in order, an insertion finds its page in memory and
//! follows the one before; in the order of a file each might go to another page, to be read, logged whole and written
//! again for it. So B-trees are given sorted keys. Which of two equal keys is the first does not matter to a unique index:
//! the second one is the error.
//!
//! Other access methods get the rows in the heap's order, by the executor's own function; and so does every index
//! whose constraint is checked by looking around (exclusion), or once more later (deferrable), for what is to be checked
//! again is queued with the row.
//!
//! Expressions are the caller's to evaluate, as in an INSERT. They run in plain frames.

mod choice;
mod compared;
mod sorted;

use std::ffi::{CStr, CString};
use std::time::{Duration, Instant};

use pgrx::pg_sys;

use self::choice::{Losses, is_unique, wants_care, way};
use super::new_files::Rebuild;
use super::offender::Offender;
use super::way::Way;
use crate::load::duplicate::{self, Keep};
use crate::load::report::{IndexReport, Why};
use crate::pg::compat;
use crate::pg::holder;
use crate::pg::server_text::from_server;
use crate::pg::unguarded as c;

const MOST_KEYS: usize = pg_sys::INDEX_MAX_KEYS as usize;

/// An index.
#[derive(Debug)]
pub struct Index {
    pub oid: pg_sys::Oid,
    /// As the server writes it.
    pub name: CString,
    /// Null once it is closed.
    pub relation: pg_sys::Relation,
    pub info: *mut pg_sys::IndexInfo,
    pub way: Way,
    pub why: Why,
    pub is_exclusion: bool,
    pub took: Duration,
    /// Workers that have helped to build it.
    pub workers: usize,
}

/// The indexes of a relation that has new rows.
#[derive(Debug)]
pub struct Indexes {
    pub list: Vec<Index>,
    relinfo: *mut pg_sys::ResultRelInfo,
    estate: *mut pg_sys::EState,
    econtext: *mut pg_sys::ExprContext,
    /// The open indexes, as ExecOpenIndices lists them, ...
    open: *mut pg_sys::Relation,
    /// ... and what the executor is shown instead: nothing but the index that is to get a row.
    shown: *mut pg_sys::Relation,
    /// Which of them says what a duplicate is, and what becomes of these.
    arbiter: Option<usize>,
    keep: Keep,
    /// Rows that the table has count.
    has_rows: bool,
}

/// How the rows are survived that lose to an index.
#[derive(Debug, Clone, Copy)]
pub struct Survival<'a> {
    /// They are kept as rejects; else only duplicates are survived.
    pub keeps: bool,
    pub keep: Keep,
    /// The target's index that says what a duplicate is.
    pub arbiter: Option<pg_sys::Oid>,
    /// The indexes that are built from keys that were collected, whatever these are.
    pub certain: &'a [pg_sys::Oid],
}

impl Indexes {
    /// For a result relation that ExecOpenIndices was called for. Guarded; allocates in the current memory context, which
    /// must live as long.
    ///
    /// # Safety
    /// Structures of the executor's, which live as long.
    pub unsafe fn new(
        relinfo: *mut pg_sys::ResultRelInfo,
        estate: *mut pg_sys::EState,
        econtext: *mut pg_sys::ExprContext,
        rebuild: &mut Rebuild,
        survival: Option<Survival<'_>>,
    ) -> Indexes {
        // SAFETY: this function's contract covers the pointers; the executor lists so many indexes; guarded calls.
        unsafe {
            let count = usize::try_from((*relinfo).ri_NumIndices).unwrap_or(0);
            let open = (*relinfo).ri_IndexRelationDescs;
            let arbiter_oid = survival.and_then(|survival| survival.arbiter);
            let is_arbiter = |i: usize| arbiter_oid.is_some_and(|oid| duplicate::is_part_of(*open.add(i), oid));
            let arbiter = (0..count).find(|&i| is_arbiter(i));
            let keep = survival.map_or(Keep::Error, |survival| survival.keep);
            let losses = match survival {
                None => Losses::None,
                Some(_) if (0..count).any(|i| wants_care(*open.add(i))) => Losses::Looked,
                // What other constraints say of a row depends on which rows are there by then.
                Some(survival)
                    if keep != Keep::Error
                        && (keep == Keep::New || !survival.keeps)
                        && (0..count).any(|i| Some(i) != arbiter && is_unique(*open.add(i))) =>
                {
                    Losses::Looked
                }
                Some(survival) => Losses::Sorted(survival.certain),
            };
            // Where rows are told of constraints when it is known which of them stay, indexes are open until then.
            let is_late = |i| !(*(*(*open.add(i))).rd_index).indimmediate;
            let builds = survival.is_none() || !(0..count).any(is_late);
            let index = |i| {
                let (relation, info) = (*open.add(i), *(*relinfo).ri_IndexRelationInfo.add(i));
                let (way, why) = way(relation, info, rebuild, losses, builds);
                let name = CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr()).to_owned();
                let is_exclusion = (*(*relation).rd_index).indisexclusion;
                Index {
                    oid: (*relation).rd_id,
                    name,
                    relation,
                    info,
                    way,
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

    /// Of a result relation whose rows are only judged: those that may refuse a row as the rows come. Keys of B-trees are sorted.
    /// It may count as empty. Guarded; allocates as [`Indexes::new`].
    ///
    /// # Safety
    /// As [`Indexes::new`].
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
            let is_arbiter = |i: usize| arbiter.is_some_and(|oid| duplicate::is_part_of(*open.add(i), oid));
            let arbiter = (0..count).find(|&i| is_arbiter(i));
            let index = |i| {
                let (relation, info) = (*open.add(i), *(*relinfo).ri_IndexRelationInfo.add(i));
                let form = (*relation).rd_index;
                let is_exclusion = (*form).indisexclusion;
                let way = if !(*info).ii_ReadyForInserts || !(*form).indimmediate {
                    Way::None
                } else if is_exclusion {
                    Way::Asked
                } else if (*form).indisunique && (*(*relation).rd_rel).relam == pg_sys::BTREE_AM_OID {
                    Way::Sorted(std::ptr::null_mut())
                } else {
                    Way::None
                };
                let name = CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr()).to_owned();
                Index {
                    oid: (*relation).rd_id,
                    name,
                    relation,
                    info,
                    way,
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

    /// Does any of them want to see the rows?
    pub fn want_rows(&self) -> bool {
        self.list.iter().any(|index| matches!(index.way, Way::Sorted(_) | Way::RowByRow | Way::Careful))
    }

    /// Are rows to be looked for before they are inserted?
    pub fn are_careful(&self) -> bool {
        self.list.iter().any(|index| index.way == Way::Careful)
    }

    /// Are there constraints that are checked later?
    pub fn are_late(&self) -> bool {
        self.list.iter().any(|index| index.way == Way::Late)
    }

    /// How many have to be sorted?
    pub fn sorts(&self) -> usize {
        self.list.iter().filter(|index| matches!(index.way, Way::Sorted(_))).count()
    }

    /// Get ready to sort, with so much memory for each, in kB. Guarded; allocates in the current memory context.
    pub fn begin_sorts(&mut self, memory: i32) {
        // Rows with equal keys are for index_insert to judge: it knows what is dead.
        let (unique, nulls, options, alone) = (false, false, 0, std::ptr::null_mut());
        for index in &mut self.list {
            if let Way::Sorted(sort) = &mut index.way {
                // SAFETY: guarded calls on open relations.
                unsafe {
                    let heap = (*self.relinfo).ri_RelationDesc;
                    *sort = pg_sys::tuplesort_begin_index_btree(
                        heap,
                        index.relation,
                        unique,
                        nulls,
                        memory,
                        alone,
                        options,
                    );
                }
            }
        }
    }

    /// Make predicates ready.
    ///
    /// # Safety
    /// A plain frame.
    pub unsafe fn prepare(&mut self) {
        for index in &mut self.list {
            // SAFETY: an open index's info; ExecInsertIndexTuples does the same when it needs one.
            unsafe {
                if matches!(index.way, Way::Sorted(_) | Way::Asked) && !(*index.info).ii_Predicate.is_null() {
                    (*index.info).ii_PredicateState = c::ExecPrepareQual((*index.info).ii_Predicate, self.estate);
                }
            }
        }
    }

    /// Take a row. Returns the indexes whose constraints are to be checked again later.
    ///
    /// # Safety
    /// A plain frame; a slot with a row of the relation. The current memory context lives until the last row.
    pub unsafe fn add(&mut self, slot: *mut pg_sys::TupleTableSlot, offender: *mut Offender) -> *mut pg_sys::List {
        let mut recheck: *mut pg_sys::List = std::ptr::null_mut();
        let mut began = Instant::now();
        // SAFETY: this function's contract covers frame and slot. Arrays have room for the keys of any index.
        unsafe {
            (*self.econtext).ecxt_scantuple = slot;
            for (i, index) in self.list.iter_mut().enumerate() {
                match index.way {
                    Way::Sorted(sort) => {
                        if c::exec_qual((*index.info).ii_PredicateState, self.econtext) {
                            let mut values = [pg_sys::Datum::from(0usize); MOST_KEYS];
                            let mut nulls = [false; MOST_KEYS];
                            let (values, nulls) = (values.as_mut_ptr(), nulls.as_mut_ptr());
                            c::FormIndexDatum(index.info, slot, self.estate, values, nulls);
                            let tid = &raw mut (*slot).tts_tid;
                            c::tuplesort_putindextuplevalues(sort, index.relation, tid, values, nulls);
                        }
                    }
                    Way::RowByRow | Way::Careful => {
                        c::check_for_interrupts();
                        (*offender).row = Some((*slot).tts_tid);
                        let shown = self.shown.add(i);
                        *shown = index.relation;
                        let again = compat::insert_index_tuples(self.relinfo, slot, self.estate);
                        *shown = std::ptr::null_mut();
                        (*offender).row = None;
                        if !again.is_null() {
                            recheck = c::list_concat(recheck, again);
                        }
                    }
                    Way::None | Way::Keyed(_) | Way::Rebuilt | Way::Built | Way::Merged | Way::Late | Way::Asked => {
                        continue;
                    }
                }
                let now = Instant::now();
                index.took += now - began;
                began = now;
            }
        }
        recheck
    }

    /// Take a row that stays. Returns the indexes whose constraints are to be checked again later.
    ///
    /// # Safety
    /// As [`Indexes::add`].
    pub unsafe fn add_late(&mut self, slot: *mut pg_sys::TupleTableSlot) -> *mut pg_sys::List {
        let mut recheck: *mut pg_sys::List = std::ptr::null_mut();
        // SAFETY: this function's contract covers frame and slot.
        unsafe {
            for (i, index) in self.list.iter_mut().enumerate() {
                if index.way == Way::Late {
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

    /// The row whose key an index has, of those that look at each row. Waits for transactions that may be about to make or
    /// remove one.
    ///
    /// # Safety
    /// As [`Indexes::add`]; one of the indexes.
    pub unsafe fn holder(&mut self, number: usize, slot: *mut pg_sys::TupleTableSlot) -> pg_sys::ItemPointerData {
        // SAFETY: this function's contract covers frame and slot.
        unsafe {
            let Some(index) = self.list.get_mut(number).filter(|index| index.way == Way::Careful) else {
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

    /// The first index in which another row is in the way of a row, other than the arbiter and this row.
    ///
    /// # Safety
    /// As [`Indexes::holder`].
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

    /// The index that says what a duplicate is, if any are to be survived.
    pub fn arbiter(&self) -> Option<usize> {
        self.arbiter
    }

    pub fn keep(&self) -> Keep {
        self.keep
    }

    /// Close all. Guarded.
    pub fn close(&mut self) {
        // SAFETY: what ExecOpenIndices has opened; a guarded call.
        unsafe {
            (*self.relinfo).ri_IndexRelationDescs = self.open;
            pg_sys::ExecCloseIndices(self.relinfo);
            (*self.relinfo).ri_NumIndices = 0;
        }
        self.list.iter_mut().for_each(|index| index.relation = std::ptr::null_mut());
    }

    /// What became of them.
    pub fn reports(&self) -> impl Iterator<Item = IndexReport> {
        self.list.iter().filter(|index| index.way != Way::None).map(|index| IndexReport {
            name: from_server(&index.name),
            method: match index.way {
                Way::Rebuilt | Way::Built => "rebuild",
                Way::Merged => "merge",
                Way::None | Way::Sorted(_) | Way::Keyed(_) | Way::RowByRow | Way::Careful | Way::Late | Way::Asked => {
                    "insert"
                }
            },
            from: match index.way {
                Way::Built => Some("load"),
                Way::Rebuilt => Some("table"),
                _ => None,
            },
            why: index.why,
            workers: index.workers,
            seconds: index.took.as_secs_f64(),
        })
    }
}
