//! How the indexes of a relation come by the new rows.
//!
//! ```text
//!   row ─► predicate, expressions ─┬─► sort ─── all rows are in ──► index_insert, in the order of keys    B-tree
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

use std::ffi::{CStr, CString};
use std::time::{Duration, Instant};

use pgrx::pg_sys;

use super::rebuild::Rebuild;
use crate::load::report::IndexReport;
use crate::pg::compat;
use crate::pg::encoding::from_server;
use crate::pg::points::point_plain;
use crate::pg::unguarded as c;

const MOST_KEYS: usize = pg_sys::INDEX_MAX_KEYS as usize;

/// How an index comes by the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It does not: it is being built, or was left half built, by somebody else.
    None,
    /// In the order of keys.
    Sorted(*mut pg_sys::Tuplesortstate),
    /// In the order of the heap.
    RowByRow,
    /// From the whole heap.
    Rebuilt,
    /// From the keys that were collected.
    Built,
    /// From these and what it had.
    Merged,
}

/// An index.
#[derive(Debug)]
pub struct Index {
    pub oid: pg_sys::Oid,
    /// As the server writes it.
    pub name: CString,
    /// Null once it is closed.
    pub relation: pg_sys::Relation,
    info: *mut pg_sys::IndexInfo,
    pub way: Way,
    pub took: Duration,
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
    ) -> Indexes {
        // SAFETY: the caller vouches for the pointers; the executor lists so many indexes; guarded calls.
        unsafe {
            let count = usize::try_from((*relinfo).ri_NumIndices).unwrap_or(0);
            let open = (*relinfo).ri_IndexRelationDescs;
            let index = |i| {
                let (relation, info) = (*open.add(i), *(*relinfo).ri_IndexRelationInfo.add(i));
                let way = way(relation, info, rebuild);
                let name = CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr()).to_owned();
                Index { oid: (*relation).rd_id, name, relation, info, way, took: Duration::ZERO }
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
            Indexes { list, relinfo, estate, econtext, open, shown }
        }
    }

    /// Does any of them want to see the rows?
    pub fn want_rows(&self) -> bool {
        self.list.iter().any(|index| matches!(index.way, Way::Sorted(_) | Way::RowByRow))
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
                if matches!(index.way, Way::Sorted(_)) && !(*index.info).ii_Predicate.is_null() {
                    (*index.info).ii_PredicateState = c::ExecPrepareQual((*index.info).ii_Predicate, self.estate);
                }
            }
        }
    }

    /// Take a row. Returns the indexes whose constraints are to be checked again later.
    ///
    /// # Safety
    /// A plain frame; a slot with a row of the relation. The current memory context lives until the last row.
    pub unsafe fn add(&mut self, slot: *mut pg_sys::TupleTableSlot) -> *mut pg_sys::List {
        let mut recheck: *mut pg_sys::List = std::ptr::null_mut();
        let mut began = Instant::now();
        // SAFETY: the caller vouches for frame and slot. Arrays have room for the keys of any index.
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
                    Way::RowByRow => {
                        c::check_for_interrupts();
                        let shown = self.shown.add(i);
                        *shown = index.relation;
                        let again = compat::insert_index_tuples(self.relinfo, slot, self.estate);
                        *shown = std::ptr::null_mut();
                        if !again.is_null() {
                            recheck = c::list_concat(recheck, again);
                        }
                    }
                    Way::None | Way::Rebuilt | Way::Built | Way::Merged => continue,
                }
                let now = Instant::now();
                index.took += now - began;
                began = now;
            }
        }
        recheck
    }

    /// Insert what was sorted.
    ///
    /// # Safety
    /// A plain frame. All rows were taken.
    pub unsafe fn insert_sorted(&mut self) {
        // SAFETY: the caller vouches for the frame. A sort's tuples are valid until the next one is asked for.
        unsafe {
            let heap = (*self.relinfo).ri_RelationDesc;
            let memory = pg_sys::CurrentMemoryContext;
            let per_tuple = (*self.econtext).ecxt_per_tuple_memory;
            for index in &mut self.list {
                let Way::Sorted(sort) = index.way else { continue };
                let began = Instant::now();
                // indimmediate: others are not sorted.
                let check = if (*(*index.relation).rd_index).indisunique {
                    pg_sys::IndexUniqueCheck::UNIQUE_CHECK_YES
                } else {
                    pg_sys::IndexUniqueCheck::UNIQUE_CHECK_NO
                };
                let descriptor = (*index.relation).rd_att;
                let mut values = [pg_sys::Datum::from(0usize); MOST_KEYS];
                let mut nulls = [false; MOST_KEYS];
                let (values, nulls) = (values.as_mut_ptr(), nulls.as_mut_ptr());
                c::tuplesort_performsort(sort);
                loop {
                    c::check_for_interrupts();
                    point_plain!("load.key");
                    let tuple = c::tuplesort_getindextuple(sort, true);
                    if tuple.is_null() {
                        break;
                    }
                    c::index_deform_tuple(tuple, descriptor, values, nulls);
                    pg_sys::CurrentMemoryContext = per_tuple;
                    let tid = &raw mut (*tuple).t_tid;
                    c::index_insert(index.relation, values, nulls, tid, heap, check, false, index.info);
                    c::MemoryContextReset(per_tuple);
                    pg_sys::CurrentMemoryContext = memory;
                }
                c::tuplesort_end(sort);
                index.took += began.elapsed();
            }
        }
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
                Way::None | Way::Sorted(_) | Way::RowByRow => "insert",
            },
            from: match index.way {
                Way::Built => Some("load"),
                Way::Rebuilt => Some("table"),
                _ => None,
            },
            seconds: index.took.as_secs_f64(),
        })
    }
}

/// Guarded.
///
/// # Safety
/// An open index and its info.
unsafe fn way(index: pg_sys::Relation, info: *const pg_sys::IndexInfo, rebuild: &mut Rebuild) -> Way {
    // SAFETY: the caller vouches for it; guarded calls.
    unsafe {
        let form = (*index).rd_index;
        if !(*info).ii_ReadyForInserts {
            Way::None
        } else if !(*form).indimmediate || (*form).indisexclusion {
            Way::RowByRow
        } else if rebuild.takes(index) {
            Way::Rebuilt
        } else if rebuild.merges(index) {
            Way::Merged
        } else if (*(*index).rd_rel).relam == pg_sys::BTREE_AM_OID {
            Way::Sorted(std::ptr::null_mut())
        } else {
            Way::RowByRow
        }
    }
}
