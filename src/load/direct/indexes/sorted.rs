//! Inserts sorted keys into a B-tree.
//!
//! Most keys are inserted many at once ([`crate::index::leaf`]), the rest one by one.
//!
//! Equal keys of the load are adjacent, so a duplicate within the load is found by comparing with the key before. Only
//! existing keys of the index need a search.

mod batch;

use std::time::Instant;

use pgrx::pg_sys;

use self::batch::Batch;
use super::{Index, Indexes, MOST_KEYS};
use crate::error::OrRaise;
use crate::index::key_conflicts::{Group, KeyConflicts};
use crate::index::leaf::LeafWriter;
use crate::index::strategy::IndexStrategy;
use crate::index::violating_row::ViolatingRow;
use crate::load::duplicate::Keep;
use crate::server::holder::{self, HeapRow};
use crate::server::index_tuple::{IndexTuple, have_equal_keys};
use crate::server::memory_context::MemoryContext;
use crate::server::points::point_plain;
use crate::server::relation::Relation;
use crate::server::unguarded::{self as c, guarded};

impl Indexes {
    /// Inserts the sorted or collected keys. Rows with conflicts are noted in `conflicts`; if it is null, they are
    /// errors.
    ///
    /// # Safety
    /// A plain frame, and a slot for rows of the relation. All rows were added.
    pub unsafe fn insert_sorted(
        &mut self,
        violating_row: *mut ViolatingRow,
        conflicts: *mut KeyConflicts,
        slot: *mut pg_sys::TupleTableSlot,
    ) {
        if !self
            .list
            .iter()
            .any(|index| matches!(index.strategy, IndexStrategy::InsertSorted | IndexStrategy::InsertKeys))
        {
            return;
        }
        let (heap, per_tuple) = (self.relinfo.relation(), self.executor.context().memory());
        // SAFETY: a plain frame.
        unsafe {
            let memory = pg_sys::CurrentMemoryContext;
            let mut batch = Batch::new();
            let mut previous = Previous::new();
            for (number, index) in self.list.iter_mut().enumerate() {
                if !matches!(index.strategy, IndexStrategy::InsertSorted | IndexStrategy::InsertKeys) {
                    continue;
                }
                let Some(relation) = index.relation else { continue };
                let began = Instant::now();
                if let Some(sort) = &index.sort {
                    c::tuplesort_performsort(sort.as_ptr());
                }
                previous.forget();
                let mut insertion = IndexInsertion {
                    number,
                    heap,
                    slot,
                    // Only indexes with immediate constraints are sorted.
                    unique: relation.index().is_some_and(|form| form.is_unique),
                    replaces: self.keep == Keep::New && self.arbiter == Some(number),
                    index: &mut *index,
                    relation,
                    violating_row,
                    conflicts,
                    memory,
                    per_tuple,
                    previous: &mut previous,
                };
                insertion.run(&mut batch);
                (*violating_row).row = None;
                guarded(|| {
                    index.keys = None;
                    if let Some(sort) = index.sort.take() {
                        sort.end();
                    }
                });
                index.took += began.elapsed();
            }
            batch.free();
        }
    }
}

/// After this many misses in a row, up to `MOST_AT_ONCE` tuples are inserted one by one.
///
/// A miss is a tuple that must be inserted by core.
const MISSES: u32 = 4;
const MOST_AT_ONCE: u32 = 64;
const NO: UniqueCheck = pg_sys::IndexUniqueCheck::UNIQUE_CHECK_NO;
const YES: UniqueCheck = pg_sys::IndexUniqueCheck::UNIQUE_CHECK_YES;
const PARTIAL: UniqueCheck = pg_sys::IndexUniqueCheck::UNIQUE_CHECK_PARTIAL;
/// Bytes of the longest tuple, with its alignment: INDEX_SIZE_MASK (itup.h).
const LONGEST: usize = 0x1fff + 1;
type UniqueCheck = pg_sys::IndexUniqueCheck::Type;

/// An index that sorted keys are inserted into.
struct IndexInsertion<'i> {
    number: usize,
    index: &'i mut Index,
    relation: Relation<'static>,
    heap: Relation<'static>,
    slot: *mut pg_sys::TupleTableSlot,
    unique: bool,
    /// A row replaces the existing row with the same key.
    replaces: bool,
    violating_row: *mut ViolatingRow,
    conflicts: *mut KeyConflicts,
    memory: pg_sys::MemoryContext,
    per_tuple: pg_sys::MemoryContext,
    previous: &'i mut Previous,
}

impl IndexInsertion<'_> {
    /// Inserts all keys.
    ///
    /// # Safety
    /// A plain frame.
    unsafe fn run(&mut self, batch: &mut Batch) {
        // SAFETY: a plain frame; the index is open, and its sort is finished. The batch returns valid tuples, and as
        // many as the writer has put into leaves.
        unsafe {
            let (heap, relation, unique) = (self.heap, self.relation, self.unique);
            let distinct = !(*self.index.info).ii_NullsNotDistinct;
            let new_writer = |any: IndexTuple<'_>| LeafWriter::new(heap, relation, unique, distinct, any);
            let (memory, per_tuple) = (self.memory, self.per_tuple);
            let mut writer = None;
            // A key that the index has already would be searched for twice.
            let (mut misses, mut left) = (0u32, 0u32);
            loop {
                c::check_for_interrupts();
                if let Some(keys) = self.index.keys.as_deref_mut() {
                    pg_sys::CurrentMemoryContext = per_tuple;
                    let for_tuple = |any: IndexTuple<'_>| {
                        pg_sys::CurrentMemoryContext = memory;
                        let writer: *mut LeafWriter = writer.get_or_insert_with(|| new_writer(any));
                        pg_sys::CurrentMemoryContext = per_tuple;
                        writer
                    };
                    let last = batch.grow(keys, relation, for_tuple);
                    c::MemoryContextReset(per_tuple);
                    pg_sys::CurrentMemoryContext = memory;
                    if let Some(last) = last {
                        self.previous.set(last);
                        continue;
                    }
                }
                let mut tuples = batch.fill(self.index);
                let Some(&any) = tuples.first() else { break };
                let writer = writer.get_or_insert_with(|| new_writer(any));
                while let [first, others @ ..] = tuples {
                    c::check_for_interrupts();
                    point_plain!("load.key");
                    (*self.violating_row).row = None;
                    pg_sys::CurrentMemoryContext = self.per_tuple;
                    let count = if left == 0 { writer.put(tuples) } else { 0 };
                    tuples = if let Some(last) = count.checked_sub(1) {
                        misses = 0;
                        self.previous.set(*tuples.get_unchecked(last));
                        tuples.get_unchecked(count..)
                    } else {
                        if left > 0 {
                            left -= 1;
                        } else {
                            misses += 1;
                            left = if misses < MISSES { 0 } else { misses.min(MOST_AT_ONCE) };
                        }
                        self.insert(*first);
                        others
                    };
                    c::MemoryContextReset(self.per_tuple);
                    pg_sys::CurrentMemoryContext = self.memory;
                }
            }
            if let Some(writer) = writer {
                writer.free();
            }
        }
    }

    /// Inserts a tuple as core does. In the short-lived memory context.
    ///
    /// # Safety
    /// A plain frame, and the next tuple.
    unsafe fn insert(&mut self, tuple: IndexTuple<'_>) {
        // SAFETY: a plain frame, and a tuple of the index; the arrays have room for the keys of any index.
        unsafe {
            let index = &*self.index;
            let mut values = [pg_sys::Datum::from(0usize); MOST_KEYS];
            let mut nulls = [false; MOST_KEYS];
            let (values, nulls) = (values.as_mut_ptr(), nulls.as_mut_ptr());
            c::index_deform_tuple(tuple.as_ptr(), self.relation.descriptor().as_ptr(), values, nulls);
            let key = IndexKey { index, heap: self.heap, values, nulls, tuple };
            if !self.unique {
                key.insert(NO);
                return;
            }
            let previous = &mut *self.previous;
            let same = previous.is_same(tuple);
            (*self.violating_row).other = same.then_some(previous.row());
            (*self.violating_row).row = Some(tuple.tid());
            if self.conflicts.is_null() {
                previous.set(tuple);
                key.insert(YES);
                return;
            }
            // A NULL is equal to nothing, unless the index has NULLS NOT DISTINCT.
            let keys = usize::try_from((*index.info).ii_NumIndexKeyAttrs).unwrap_or(0);
            let distinct = !(*index.info).ii_NullsNotDistinct && (0..keys).any(|i| *nulls.add(i));
            let twin = same && !distinct;
            let fits = key.insert(if twin { NO } else { PARTIAL });
            // The noted rows outlive this tuple.
            pg_sys::CurrentMemoryContext = self.memory;
            let row = tuple.tid();
            let group = if twin || (!fits && previous.is_equal(&key, keys, MemoryContext::from_raw(self.per_tuple))) {
                let before = previous.row();
                guarded(|| (*self.conflicts).twin(self.number, &before, previous.group, &row))
            } else if !fits {
                let holder = key.holder(self.slot, self.per_tuple, self.replaces);
                if holder.ip_posid == 0 {
                    Group::NONE
                } else {
                    guarded(|| (*self.conflicts).taken(self.number, &row, &holder, Group::NONE))
                }
            } else {
                Group::NONE
            };
            previous.set(tuple);
            previous.group = group;
        }
    }
}

/// A key that is to be inserted into an index.
pub(super) struct IndexKey<'i> {
    pub(super) index: &'i Index,
    pub(super) heap: Relation<'static>,
    pub(super) values: *mut pg_sys::Datum,
    pub(super) nulls: *mut bool,
    pub(super) tuple: IndexTuple<'i>,
}

impl IndexKey<'_> {
    /// # Safety
    /// A plain frame, and a valid key.
    unsafe fn insert(&self, check: UniqueCheck) -> bool {
        let (index, row, heap) = (self.index, self.tuple.row(), self.heap.as_ptr());
        // SAFETY: a plain frame, and a key of the index.
        unsafe { c::index_insert(index.as_ptr(), self.values, self.nulls, row, heap, check, false, index.info) }
    }

    /// The other row with a key that is in its index. Waits for transactions that may be about to insert or delete such
    /// a row. With `delete`, that row is deleted. Allocates in `memory`.
    ///
    /// # Safety
    /// See [`IndexKey::insert`]; the slot is for rows of the heap.
    unsafe fn holder(
        &self,
        slot: *mut pg_sys::TupleTableSlot,
        memory: pg_sys::MemoryContext,
        delete: bool,
    ) -> pg_sys::ItemPointerData {
        let (row, heap) = (self.tuple.tid(), self.heap);
        // SAFETY: a plain frame, and a key of the index.
        unsafe {
            let caller = pg_sys::CurrentMemoryContext;
            pg_sys::CurrentMemoryContext = memory;
            let (relation, info) = (self.index.as_ptr(), self.index.info);
            let found = loop {
                let key = (self.values.cast_const(), self.nulls.cast_const());
                let found = holder::find(heap.as_ptr(), relation, info, key, row, slot);
                // A deleted row may have a newer version with the same key.
                if found.ip_posid == 0 || !delete || c::guarded(|| holder::delete(HeapRow::new(heap, found)).or_raise())
                {
                    break found;
                }
            };
            pg_sys::CurrentMemoryContext = caller;
            found
        }
    }
}

/// Memory for a tuple.
#[repr(align(8))]
struct Room([u8; LONGEST]);

/// The key before the current one in a sort.
pub(super) struct Previous {
    /// A copy, with room for the longest tuple.
    tuple: Room,
    /// In bytes; zero without a key.
    len: usize,
    pub(super) group: Group,
}

impl Previous {
    pub(super) const fn new() -> Previous {
        Previous { tuple: Room([0; LONGEST]), len: 0, group: Group::NONE }
    }

    /// Forgets the key.
    fn forget(&mut self) {
        (self.len, self.group) = (0, Group::NONE);
    }

    fn tuple(&self) -> Option<IndexTuple<'_>> {
        // SAFETY: a tuple was copied, with its alignment.
        (self.len > 0).then(|| unsafe { IndexTuple::from_raw(self.tuple.0.as_ptr().cast_mut().cast()) })
    }

    /// The row of the key before. There must be one.
    pub(super) fn row(&self) -> pg_sys::ItemPointerData {
        self.tuple().map_or(holder::NOBODY, IndexTuple::tid)
    }

    /// Does a tuple have the same bytes, apart from its row?
    #[inline]
    pub(super) fn is_same(&self, tuple: IndexTuple<'_>) -> bool {
        self.len == tuple.size() && self.tuple().is_some_and(|own| own.without_row() == tuple.without_row())
    }

    #[inline]
    pub(super) fn set(&mut self, tuple: IndexTuple<'_>) {
        (self.len, self.group) = (tuple.size(), Group::NONE);
        let bytes = tuple.bytes();
        if let Some(room) = self.tuple.0.get_mut(..bytes.len()) {
            room.copy_from_slice(bytes);
        }
    }

    /// Is this key equal to another one, by the index's comparison function? Allocates in `memory`.
    ///
    /// # Safety
    /// A plain frame, and a valid key of the same index.
    pub(super) unsafe fn is_equal(&self, key: &IndexKey<'_>, keys: usize, memory: MemoryContext) -> bool {
        let (Some(own), Some(relation)) = (self.tuple(), key.index.relation) else { return false };
        // SAFETY: a plain frame, and tuples of the index.
        unsafe {
            let nulls_equal = (*key.index.info).ii_NullsNotDistinct;
            have_equal_keys(relation, keys, nulls_equal, [own, key.tuple], memory)
        }
    }
}
