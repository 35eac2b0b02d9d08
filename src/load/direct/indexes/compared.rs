//! Compares sorted keys without inserting them: finds those that are not unique or exist in the table.

use pgrx::memcxt::PgMemoryContexts;
use pgrx::pg_sys;

use super::sorted::{IndexKey, Previous};
use super::{Indexes, MOST_KEYS};
use crate::index::key_conflicts::{Group, KeyConflicts};
use crate::server::index_tuple::IndexTuple;
use crate::server::look::Look;
use crate::server::memory_context::MemoryContext;
use crate::server::unguarded::{self as c, guarded};

impl Indexes {
    /// Compares the sorted keys, and notes the rows whose keys other rows have.
    ///
    /// # Safety
    /// A plain frame; the indexes are of a dry run; `conflicts` lives in the current memory context; the slot is for
    /// rows of the relation. All rows were added.
    pub unsafe fn compare_sorted(&mut self, conflicts: *mut KeyConflicts, slot: *mut pg_sys::TupleTableSlot) {
        let (heap, per_tuple) = (self.relinfo.relation(), self.executor.context().memory());
        // SAFETY: a plain frame. A tuple of the sort is valid until the next call.
        unsafe {
            for number in 0..self.list.len() {
                // Only sorted keys are compared, and only their indexes have the operators that a search takes.
                if self.list.get(number).is_none_or(|index| index.sort.is_none()) {
                    continue;
                }
                let look = guarded(|| {
                    let look = self.look(number, slot);
                    look.map(|look| PgMemoryContexts::CurrentMemoryContext.leak_and_drop_on_delete(look))
                });
                let Some(index) = self.list.get_mut(number) else { continue };
                let (Some(sort), Some(look)) = (&mut index.sort, look) else { continue };
                guarded(|| sort.perform());
                let sort = sort.as_ptr();
                let index = &*index;
                let keys = usize::try_from((*index.info).ii_NumIndexKeyAttrs).unwrap_or(0);
                let Some(relation) = index.relation else { continue };
                let descriptor = relation.descriptor();
                let mut values = [pg_sys::Datum::from(0usize); MOST_KEYS];
                let mut nulls = [false; MOST_KEYS];
                let (values, nulls) = (values.as_mut_ptr(), nulls.as_mut_ptr());
                let mut previous = Previous::new();
                // Equal values of a varlena may be compressed or not.
                let is_fixed = (0..keys).all(|i| descriptor.attribute(i).is_some_and(|column| column.attlen > 0));
                let by_bytes = is_fixed && c::_bt_allequalimage(index.as_ptr(), false);
                loop {
                    c::check_for_interrupts();
                    let tuple = c::tuplesort_getindextuple(sort, true);
                    if tuple.is_null() {
                        break;
                    }
                    let tuple = IndexTuple::from_raw(tuple);
                    let same = previous.is_same(tuple);
                    if by_bytes && !same && (*look).finds_nothing() {
                        previous.set(tuple);
                        continue;
                    }
                    c::index_deform_tuple(tuple.as_ptr(), descriptor.as_ptr(), values, nulls);
                    // A NULL is equal to nothing, unless the index has NULLS NOT DISTINCT.
                    let distinct = !(*index.info).ii_NullsNotDistinct && (0..keys).any(|i| *nulls.add(i));
                    let key = IndexKey { index, heap, values, nulls, tuple };
                    let row = tuple.tid();
                    let equal =
                        same || (!by_bytes && previous.is_equal(&key, keys, MemoryContext::from_raw(per_tuple)));
                    let group = if equal && !distinct {
                        let before = previous.row();
                        guarded(|| (*conflicts).twin(number, &before, previous.group, &row))
                    } else {
                        let holder = (*look).find(values, nulls);
                        if holder.ip_posid == 0 {
                            Group::NONE
                        } else {
                            guarded(|| (*conflicts).taken(number, &row, &holder, Group::NONE))
                        }
                    };
                    previous.set(tuple);
                    previous.group = group;
                    c::MemoryContextReset(per_tuple);
                }
                guarded(|| {
                    if let Some(sort) = self.list.get_mut(number).and_then(|index| index.sort.take()) {
                        sort.end();
                    }
                    (*look).end();
                });
            }
        }
    }

    /// Prepares a search in one of the indexes.
    ///
    /// # Safety
    /// The index is open and the slot is for rows of the relation; both live as long. Guarded; allocates in the current
    /// memory context.
    pub unsafe fn look(&self, number: usize, slot: *mut pg_sys::TupleTableSlot) -> Option<Look> {
        let index = self.list.get(number)?;
        let heap = self.relinfo.relation().as_ptr();
        let executor = (self.executor.estate(), self.executor.context().as_ptr());
        // SAFETY: the index is open, and the slot is for rows of the relation.
        Some(unsafe { Look::begin(heap, index.as_ptr(), index.info, executor, slot, self.has_rows) })
    }
}
