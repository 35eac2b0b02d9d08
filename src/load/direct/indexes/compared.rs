//! Compares sorted keys without inserting them: finds those that are not unique or exist in the table.

use pgrx::pg_sys;

use super::sorted::{IndexKey, Previous};
use super::{Indexes, MOST_KEYS};
use crate::index::key_conflicts::{Group, KeyConflicts};
use crate::index::strategy::IndexStrategy;
use crate::server::compat;
use crate::server::look::{self, Look};
use crate::server::unguarded::{self as c, guarded};

impl Indexes {
    /// Adds a row.
    ///
    /// # Safety
    /// A plain frame; the indexes are of a dry run; a slot with a row of the relation.
    pub unsafe fn gather(&mut self, slot: *mut pg_sys::TupleTableSlot) {
        // SAFETY: this function's contract covers frame and slot. The arrays have room for the keys of any index.
        unsafe {
            (*self.econtext).ecxt_scantuple = slot;
            for index in &self.list {
                let IndexStrategy::InsertSorted(sort) = index.strategy else { continue };
                if c::exec_qual((*index.info).ii_PredicateState, self.econtext) {
                    let mut values = [pg_sys::Datum::from(0usize); MOST_KEYS];
                    let mut nulls = [false; MOST_KEYS];
                    let (values, nulls) = (values.as_mut_ptr(), nulls.as_mut_ptr());
                    c::FormIndexDatum(index.info, slot, self.estate, values, nulls);
                    let tid = &raw mut (*slot).tts_tid;
                    c::tuplesort_putindextuplevalues(sort, index.relation, tid, values, nulls);
                }
            }
        }
    }

    /// Compares the sorted keys, and notes the rows whose keys other rows have.
    ///
    /// # Safety
    /// A plain frame; the indexes are of a dry run; `conflicts` lives in the current memory context; the slot is for
    /// rows of the relation. All rows were added.
    pub unsafe fn compare_sorted(&mut self, conflicts: *mut KeyConflicts, slot: *mut pg_sys::TupleTableSlot) {
        // SAFETY: this function's contract covers the frame. A tuple of the sort is valid until the next call.
        unsafe {
            let heap = (*self.relinfo).ri_RelationDesc;
            let per_tuple = (*self.econtext).ecxt_per_tuple_memory;
            for number in 0..self.list.len() {
                let IndexStrategy::InsertSorted(sort) = (*self.list.as_ptr().add(number)).strategy else { continue };
                let look = begin_look(self, number, slot);
                let index = self.list.as_mut_ptr().add(number);
                let keys = usize::try_from((*(*index).info).ii_NumIndexKeyAttrs).unwrap_or(0);
                let descriptor = (*(*index).relation).rd_att;
                let mut values = [pg_sys::Datum::from(0usize); MOST_KEYS];
                let mut nulls = [false; MOST_KEYS];
                let (values, nulls) = (values.as_mut_ptr(), nulls.as_mut_ptr());
                let mut previous = Previous::new();
                let by_bytes = is_equal_by_bytes((*index).relation, keys);
                c::tuplesort_performsort(sort);
                loop {
                    c::check_for_interrupts();
                    let tuple = c::tuplesort_getindextuple(sort, true);
                    if tuple.is_null() {
                        break;
                    }
                    let same = previous.is_same(tuple);
                    if by_bytes && !same && (*look).finds_nothing() {
                        previous.set(tuple);
                        continue;
                    }
                    c::index_deform_tuple(tuple, descriptor, values, nulls);
                    // A NULL is equal to nothing, unless the index has NULLS NOT DISTINCT.
                    let distinct = !(*(*index).info).ii_NullsNotDistinct && (0..keys).any(|i| *nulls.add(i));
                    let key = IndexKey { index, heap, values, nulls, tuple };
                    let row = &raw const (*tuple).t_tid;
                    let equal = same || (!by_bytes && previous.is_equal(&key, keys, per_tuple));
                    let group = if equal && !distinct {
                        let before = previous.row();
                        guarded(|| (*conflicts).twin(number, &before, previous.group, &*row))
                    } else {
                        let holder = (*look).find(values, nulls);
                        if holder.ip_posid == 0 {
                            Group::NONE
                        } else {
                            guarded(|| (*conflicts).taken(number, &*row, &holder, Group::NONE))
                        }
                    };
                    previous.set(tuple);
                    previous.group = group;
                    c::MemoryContextReset(per_tuple);
                }
                c::tuplesort_end(sort);
                look::end(look);
            }
        }
    }

    /// Prepares a search in one of the indexes.
    ///
    /// # Safety
    /// The index is open and the slot is for rows of the relation; both live as long. Guarded; allocates in the current
    /// memory context.
    pub unsafe fn look(&self, number: usize, slot: *mut pg_sys::TupleTableSlot) -> Option<Look> {
        // SAFETY: this function's contract covers the argument.
        unsafe {
            let index = self.list.get(number)?;
            let heap = (*self.relinfo).ri_RelationDesc;
            let executor = (self.estate, self.econtext);
            Some(Look::begin(heap, index.relation, index.info, executor, slot, self.has_rows))
        }
    }
}

/// Are keys equal if, and only if, their bytes are? Not for varlenas, whose equal values may be compressed or not.
///
/// # Safety
/// A plain frame, and an open B-tree with `keys` keys.
unsafe fn is_equal_by_bytes(index: pg_sys::Relation, keys: usize) -> bool {
    // SAFETY: this function's contract covers both arguments.
    unsafe {
        let is_fixed = |i| (*compat::attribute((*index).rd_att, i)).attlen > 0;
        (0..keys).all(is_fixed) && c::_bt_allequalimage(index, false)
    }
}

/// # Safety
/// See [`Indexes::look`].
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn begin_look(
    indexes: *const Indexes,
    number: usize,
    slot: *mut pg_sys::TupleTableSlot,
) -> *mut Look {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        let look = (*indexes).look(number, slot);
        look.map_or(std::ptr::null_mut(), |look| {
            pgrx::memcxt::PgMemoryContexts::CurrentMemoryContext.leak_and_drop_on_delete(look)
        })
    }
}
