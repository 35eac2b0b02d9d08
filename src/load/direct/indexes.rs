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

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::losers::{self, Group, Suspects};
use super::offender::Offender;
use super::rebuild::Rebuild;
use crate::load::report::IndexReport;
use crate::pg::compat;
use crate::pg::encoding::from_server;
use crate::pg::points::point_plain;
use crate::pg::subtransaction::survive;
use crate::pg::unguarded::{self as c, Opaque};

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
    /// Row by row in the order of the file, once nothing is found in the way.
    Careful,
    /// Row by row, when it is known which rows stay.
    Late,
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
    pub is_exclusion: bool,
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
        survives: Option<&[pg_sys::Oid]>,
    ) -> Indexes {
        // SAFETY: the caller vouches for the pointers; the executor lists so many indexes; guarded calls.
        unsafe {
            let count = usize::try_from((*relinfo).ri_NumIndices).unwrap_or(0);
            let open = (*relinfo).ri_IndexRelationDescs;
            let losses = match survives {
                None => Losses::None,
                Some(_) if (0..count).any(|i| wants_care(*open.add(i))) => Losses::Looked,
                Some(collected) => Losses::Sorted(collected),
            };
            // Where rows are told of constraints when it is known which of them stay, indexes are open until then.
            let is_late = |i| !(*(*(*open.add(i))).rd_index).indimmediate;
            let builds = survives.is_none() || !(0..count).any(is_late);
            let index = |i| {
                let (relation, info) = (*open.add(i), *(*relinfo).ri_IndexRelationInfo.add(i));
                let way = way(relation, info, rebuild, losses, builds);
                let name = CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr()).to_owned();
                let is_exclusion = (*(*relation).rd_index).indisexclusion;
                Index { oid: (*relation).rd_id, name, relation, info, way, is_exclusion, took: Duration::ZERO }
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
    pub unsafe fn add(&mut self, slot: *mut pg_sys::TupleTableSlot, offender: *mut Offender) -> *mut pg_sys::List {
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
                    Way::None | Way::Rebuilt | Way::Built | Way::Merged | Way::Late => continue,
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
        // SAFETY: the caller vouches for frame and slot.
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

    /// The first index in which another row is in the way of a row. Waits for transactions that may be about to make or
    /// remove one.
    ///
    /// # Safety
    /// As [`Indexes::add`].
    pub unsafe fn in_the_way(&mut self, slot: *mut pg_sys::TupleTableSlot) -> Option<usize> {
        // SAFETY: the caller vouches for frame and slot.
        unsafe {
            for (i, index) in self.list.iter_mut().enumerate() {
                if index.way != Way::Careful {
                    continue;
                }
                c::check_for_interrupts();
                let began = Instant::now();
                let shown = self.shown.add(i);
                *shown = index.relation;
                let mut conflict = pg_sys::ItemPointerData::default();
                let all = std::ptr::null_mut();
                let fits = c::ExecCheckIndexConstraints(self.relinfo, slot, self.estate, &raw mut conflict, all);
                *shown = std::ptr::null_mut();
                index.took += began.elapsed();
                if !fits {
                    return Some(i);
                }
            }
        }
        None
    }

    /// Insert what was sorted. Rows that lose are suspects; without these, they are errors.
    ///
    /// # Safety
    /// A plain frame. All rows were taken.
    pub unsafe fn insert_sorted(&mut self, offender: *mut Offender, suspects: *mut Suspects) {
        // SAFETY: the caller vouches for the frame. A sort's tuples are valid until the next one is asked for.
        unsafe {
            let heap = (*self.relinfo).ri_RelationDesc;
            let memory = pg_sys::CurrentMemoryContext;
            let per_tuple = (*self.econtext).ecxt_per_tuple_memory;
            for (number, index) in self.list.iter_mut().enumerate() {
                let Way::Sorted(sort) = index.way else { continue };
                let began = Instant::now();
                // indimmediate: others are not sorted.
                let unique = (*(*index.relation).rd_index).indisunique;
                let check = if unique { if suspects.is_null() { YES } else { PARTIAL } } else { NO };
                let keys = usize::try_from((*index.info).ii_NumIndexKeyAttrs).unwrap_or(0);
                let descriptor = (*index.relation).rd_att;
                let mut values = [pg_sys::Datum::from(0usize); MOST_KEYS];
                let mut nulls = [false; MOST_KEYS];
                let (values, nulls) = (values.as_mut_ptr(), nulls.as_mut_ptr());
                let mut previous = Previous::new();
                c::tuplesort_performsort(sort);
                loop {
                    c::check_for_interrupts();
                    point_plain!("load.key");
                    let tuple = c::tuplesort_getindextuple(sort, true);
                    if tuple.is_null() {
                        break;
                    }
                    c::index_deform_tuple(tuple, descriptor, values, nulls);
                    if unique {
                        let same = previous.is_same(tuple);
                        (*offender).other = same.then_some(previous.row());
                        (*offender).row = Some((*tuple).t_tid);
                        if !suspects.is_null() {
                            // NULLs are equal to nothing, but where they are equal to each other.
                            let distinct = !(*index.info).ii_NullsNotDistinct && (0..keys).any(|i| *nulls.add(i));
                            let twin = same && !distinct;
                            let key = Key { index: &raw mut *index, heap, values, nulls, tuple };
                            pg_sys::CurrentMemoryContext = per_tuple;
                            let fits = key.insert(if twin { NO } else { PARTIAL });
                            pg_sys::CurrentMemoryContext = memory;
                            let row = &raw const (*tuple).t_tid;
                            previous.group = if twin || (!fits && previous.is_equal(&key, keys, per_tuple)) {
                                let before = previous.row();
                                losers::twin(suspects, number, &raw const before, previous.group, row)
                            } else if !fits && key.is_taken(per_tuple) {
                                losers::taken(suspects, number, row)
                            } else {
                                Group::NONE
                            };
                            previous.set(tuple);
                            c::MemoryContextReset(per_tuple);
                            continue;
                        }
                        previous.set(tuple);
                    }
                    pg_sys::CurrentMemoryContext = per_tuple;
                    let tid = &raw mut (*tuple).t_tid;
                    c::index_insert(index.relation, values, nulls, tid, heap, check, false, index.info);
                    c::MemoryContextReset(per_tuple);
                    pg_sys::CurrentMemoryContext = memory;
                }
                (*offender).row = None;
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
                Way::None | Way::Sorted(_) | Way::RowByRow | Way::Careful | Way::Late => "insert",
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
unsafe fn way(
    index: pg_sys::Relation,
    info: *const pg_sys::IndexInfo,
    rebuild: &mut Rebuild,
    losses: Losses<'_>,
    builds: bool,
) -> Way {
    // SAFETY: the caller vouches for it; guarded calls.
    unsafe {
        let form = (*index).rd_index;
        if !(*info).ii_ReadyForInserts {
            Way::None
        } else if !(*form).indimmediate && losses != Losses::None {
            Way::Late
        } else if ((*form).indisunique || (*form).indisexclusion) && losses == Losses::Looked {
            Way::Careful
        } else if !(*form).indimmediate || (*form).indisexclusion {
            Way::RowByRow
        } else if builds && losses.may_build(index) && rebuild.takes(index) {
            Way::Rebuilt
        } else if builds && losses.may_build(index) && rebuild.merges(index) {
            Way::Merged
        } else if (*(*index).rd_rel).relam == pg_sys::BTREE_AM_OID {
            Way::Sorted(std::ptr::null_mut())
        } else {
            Way::RowByRow
        }
    }
}

/// How rows are found that lose to an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Losses<'a> {
    /// The first one is an error.
    None,
    /// Equal keys are next to each other in a sort, or among the keys that were collected of these indexes.
    Sorted(&'a [pg_sys::Oid]),
    /// Each row is looked for.
    Looked,
}

impl Losses<'_> {
    /// Can an index be built, whatever its keys are? If it is unique, by ourselves only.
    ///
    /// # Safety
    /// An open B-tree, or an index that is not unique.
    unsafe fn may_build(self, index: pg_sys::Relation) -> bool {
        // SAFETY: the caller vouches for it; an index has a type for each key.
        unsafe {
            let form = &*(*index).rd_index;
            if !form.indisunique || self == Losses::None {
                return true;
            }
            // Of these, some keys are for the server only.
            let types = (0..usize::try_from(form.indnkeyatts).unwrap_or(0)).map(|i| *(*index).rd_opcintype.add(i));
            let floats = [pg_sys::FLOAT4OID, pg_sys::FLOAT8OID];
            match self {
                Losses::Sorted(collected) => {
                    collected.contains(&form.indexrelid) && !types.into_iter().any(|oid| floats.contains(&oid))
                }
                Losses::None | Losses::Looked => false,
            }
        }
    }
}

/// Can rows that lose to an index be found only by looking for each? Guarded.
///
/// # Safety
/// An open index.
unsafe fn wants_care(index: pg_sys::Relation) -> bool {
    // SAFETY: the caller vouches for it.
    unsafe {
        let form = (*index).rd_index;
        let is_btree = (*(*index).rd_rel).relam == pg_sys::BTREE_AM_OID;
        (*form).indimmediate && ((*form).indisexclusion || ((*form).indisunique && !is_btree))
    }
}

const NO: Check = pg_sys::IndexUniqueCheck::UNIQUE_CHECK_NO;
const YES: Check = pg_sys::IndexUniqueCheck::UNIQUE_CHECK_YES;
const PARTIAL: Check = pg_sys::IndexUniqueCheck::UNIQUE_CHECK_PARTIAL;
const EXISTING: Check = pg_sys::IndexUniqueCheck::UNIQUE_CHECK_EXISTING;
/// BTORDER_PROC (nbtree.h)
const ORDER: u16 = 1;
/// INDEX_SIZE_MASK (itup.h)
const SIZE_MASK: u16 = 0x1fff;
type Check = pg_sys::IndexUniqueCheck::Type;

/// A key on its way into an index.
struct Key {
    index: *mut Index,
    heap: pg_sys::Relation,
    values: *mut pg_sys::Datum,
    nulls: *mut bool,
    tuple: pg_sys::IndexTuple,
}

impl Key {
    /// # Safety
    /// A plain frame, and a valid key.
    unsafe fn insert(&self, check: Check) -> bool {
        // SAFETY: the caller vouches for both.
        unsafe {
            let (index, row) = (&*self.index, &raw mut (*self.tuple).t_tid);
            c::index_insert(index.relation, self.values, self.nulls, row, self.heap, check, false, index.info)
        }
    }

    /// The key is in its index. Is it somebody else's, too? Waits for whoever may be about to make or remove it; the
    /// index says so by an error, which is allocated in `memory`.
    ///
    /// # Safety
    /// As [`Key::insert`].
    unsafe fn is_taken(&self, memory: pg_sys::MemoryContext) -> bool {
        /// # Safety
        /// A valid key, in a plain frame.
        unsafe extern "C-unwind" fn ask(key: Opaque) {
            // SAFETY: the caller vouches for it.
            unsafe { (*key.cast::<Key>()).insert(EXISTING) };
        }
        // SAFETY: the caller vouches for the frame.
        unsafe {
            let caller = pg_sys::CurrentMemoryContext;
            pg_sys::CurrentMemoryContext = memory;
            let key = std::ptr::from_ref(self).cast_mut().cast();
            let error = survive(ask, key, &[Code::ERRCODE_UNIQUE_VIOLATION]);
            pg_sys::CurrentMemoryContext = caller;
            !error.is_null()
        }
    }
}

/// The key before, in a sort.
struct Previous {
    /// A copy, with room for the longest.
    tuple: pg_sys::IndexTuple,
    /// Zero if there is none.
    len: usize,
    group: Group,
}

impl Previous {
    /// # Safety
    /// A plain frame.
    unsafe fn new() -> Previous {
        // SAFETY: a tuple is no longer than its size can say.
        let tuple = unsafe { c::MemoryContextAlloc(pg_sys::CurrentMemoryContext, usize::from(SIZE_MASK) + 1) };
        Previous { tuple: tuple.cast(), len: 0, group: Group::NONE }
    }

    /// Its row. There is one.
    fn row(&self) -> pg_sys::ItemPointerData {
        // SAFETY: a tuple was copied.
        unsafe { (*self.tuple).t_tid }
    }

    /// Is a tuple the same, but for its row?
    ///
    /// # Safety
    /// A valid tuple.
    #[inline]
    unsafe fn is_same(&self, tuple: pg_sys::IndexTuple) -> bool {
        const HEAD: usize = size_of::<pg_sys::ItemPointerData>();
        // SAFETY: a tuple is as long as it says, and begins with its row.
        unsafe {
            let len = usize::from((*tuple).t_info & SIZE_MASK);
            let bytes =
                |tuple: pg_sys::IndexTuple| std::slice::from_raw_parts(tuple.cast::<u8>().add(HEAD), len - HEAD);
            len == self.len && bytes(tuple) == bytes(self.tuple)
        }
    }

    /// # Safety
    /// A valid tuple.
    #[inline]
    unsafe fn set(&mut self, tuple: pg_sys::IndexTuple) {
        // SAFETY: a tuple is as long as it says, which there is room for.
        unsafe {
            self.len = usize::from((*tuple).t_info & SIZE_MASK);
            std::ptr::copy_nonoverlapping(tuple.cast::<u8>(), self.tuple.cast(), self.len);
        }
    }

    /// Is it equal to a key, as its index sees it, in the columns that count? What that takes is allocated in `memory`.
    ///
    /// # Safety
    /// A plain frame, and a valid key of the same index.
    unsafe fn is_equal(&self, key: &Key, keys: usize, memory: pg_sys::MemoryContext) -> bool {
        if self.len == 0 {
            return false;
        }
        // SAFETY: the caller vouches for frame and key; arrays have room for the keys of any index, and an index has a
        // function of this kind and a collation for each.
        unsafe {
            let index = (*key.index).relation;
            let mut values = [pg_sys::Datum::from(0usize); MOST_KEYS];
            let mut nulls = [false; MOST_KEYS];
            let (values, nulls) = (values.as_mut_ptr(), nulls.as_mut_ptr());
            c::index_deform_tuple(self.tuple, (*index).rd_att, values, nulls);
            let caller = pg_sys::CurrentMemoryContext;
            pg_sys::CurrentMemoryContext = memory;
            let mut equal = true;
            for i in 0..keys {
                if *nulls.add(i) || *key.nulls.add(i) {
                    equal = *nulls.add(i) && *key.nulls.add(i) && (*(*key.index).info).ii_NullsNotDistinct;
                } else {
                    let attnum = i16::try_from(i + 1).unwrap_or(1);
                    let function = c::index_getprocinfo(index, attnum, ORDER);
                    let collation = *(*index).rd_indcollation.add(i);
                    let order = c::FunctionCall2Coll(function, collation, *values.add(i), *key.values.add(i));
                    equal = order.value() as i32 == 0;
                }
                if !equal {
                    break;
                }
            }
            pg_sys::CurrentMemoryContext = caller;
            equal
        }
    }
}
