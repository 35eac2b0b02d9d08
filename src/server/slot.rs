//! Handles of tuple slots, of the arrays of a row, and of expression contexts.
//!
//! A [`Slot`] is one whose arrays have an element for each attribute of its descriptor, as MakeSingleTupleTableSlot and
//! the executor make them (MakeTupleTableSlot, execTuples.c). Its arrays keep their addresses until it is dropped.
//! [`RowArrays`] are these arrays, or arrays of pg_bulk: a value and a null flag for each attribute. They are cells,
//! because the server and several parts of pg_bulk use the same arrays. All indexes are checked. The arrays are always
//! initialized, but what a datum points to is up to those who read it: functions that look behind a datum are unsafe, or
//! take a [`Row`].
//!
//! Nothing here calls the server, except where a comment says guarded. So plain frames may use it.

use std::cell::Cell;
use std::marker::PhantomData;

use pgrx::pg_sys::{self, Datum};

use super::handle::Handle;
use super::memory_context::MemoryContext;
use super::relation::{Relation, TupleDesc};

/// Values and null flags of a row, one for each attribute of a tuple descriptor.
#[derive(Debug, Clone, Copy)]
pub struct RowArrays<'a> {
    values: *mut Datum,
    nulls: *mut bool,
    attributes: usize,
    arrays: PhantomData<&'a Cell<Datum>>,
}

impl<'a> RowArrays<'a> {
    /// The arrays of a row that other code uses, too.
    ///
    /// # Safety
    /// Both are initialized and have this many elements, as long as the handle and its copies are used. No Rust reference
    /// to them is used meanwhile, unless nothing changes them.
    #[inline]
    pub const unsafe fn from_raw(values: *mut Datum, nulls: *mut bool, attributes: usize) -> RowArrays<'a> {
        RowArrays { values, nulls, attributes, arrays: PhantomData }
    }

    #[inline]
    pub fn of(values: &'a mut [Datum], nulls: &'a mut [bool]) -> RowArrays<'a> {
        let attributes = values.len().min(nulls.len());
        RowArrays { values: values.as_mut_ptr(), nulls: nulls.as_mut_ptr(), attributes, arrays: PhantomData }
    }

    #[inline(always)]
    fn attribute(self, attribute: usize) -> Option<(&'a Cell<Datum>, &'a Cell<bool>)> {
        // SAFETY: `from_raw` and `of` make arrays of this length, which are valid; a cell is like its value.
        (attribute < self.attributes).then(|| unsafe {
            (&*self.values.add(attribute).cast::<Cell<Datum>>(), &*self.nulls.add(attribute).cast::<Cell<bool>>())
        })
    }

    /// Sets an attribute. Does nothing if the row has no attribute with this index.
    #[inline(always)]
    pub fn set(self, attribute: usize, value: Option<Datum>) {
        if let Some((own, is_null)) = self.attribute(attribute) {
            is_null.set(value.is_none());
            own.set(value.unwrap_or(Datum::from(0usize)));
        }
    }

    #[inline(always)]
    pub fn is_null(self, attribute: usize) -> bool {
        self.attribute(attribute).is_none_or(|(_, is_null)| is_null.get())
    }

    /// Takes these attributes from another row of the same descriptor.
    #[inline]
    pub fn take(self, attributes: &[usize], other: RowArrays<'_>) {
        for &attribute in attributes {
            if let (Some(own), Some(other)) = (self.attribute(attribute), other.attribute(attribute)) {
                own.0.set(other.0.get());
                own.1.set(other.1.get());
            }
        }
    }

    /// Takes the attributes that both rows have.
    #[inline]
    pub fn copy_from(self, other: RowArrays<'_>) {
        let attributes = self.attributes.min(other.attributes);
        // SAFETY: all arrays are at least as long, and other code has no reference to them.
        unsafe {
            std::ptr::copy(other.values, self.values, attributes);
            std::ptr::copy(other.nulls, self.nulls, attributes);
        }
    }

    /// Makes all attributes NULL.
    pub fn clear(self) {
        (0..self.attributes).for_each(|attribute| self.set(attribute, None));
    }

    /// Returns the values, for functions that take pointers.
    #[inline(always)]
    pub const fn values(self) -> *mut Datum {
        self.values
    }

    /// Returns the null flags, for functions that take pointers.
    #[inline(always)]
    pub const fn nulls(self) -> *mut bool {
        self.nulls
    }
}

/// A row of a relation: arrays with a value of its type for each attribute.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    arrays: RowArrays<'a>,
    relation: Relation<'a>,
}

impl<'a> Row<'a> {
    /// # Safety
    /// The arrays have a value of its type for each attribute of the relation. Nothing changes or frees a value as long
    /// as the handle, its copies, and what is made of them are used.
    #[inline(always)]
    pub const unsafe fn new(arrays: RowArrays<'a>, relation: Relation<'a>) -> Row<'a> {
        Row { arrays, relation }
    }

    pub const fn relation(self) -> Relation<'a> {
        self.relation
    }

    #[inline(always)]
    pub const fn arrays(self) -> RowArrays<'a> {
        self.arrays
    }
}

/// A slot that exists as long as `'a`.
pub type Slot<'a> = Handle<'a, pg_sys::TupleTableSlot>;

impl<'a> Slot<'a> {
    /// Makes a virtual slot for rows in which attributes without a value are NULL. Guarded; in the current memory
    /// context, which outlives the handle.
    pub fn make(descriptor: TupleDesc<'a>) -> Slot<'a> {
        // SAFETY: a guarded call, which makes a slot.
        let slot = unsafe {
            let slot = pg_sys::MakeSingleTupleTableSlot(descriptor.as_ptr(), &raw const pg_sys::TTSOpsVirtual);
            Slot::from_raw(slot)
        };
        slot.arrays().clear();
        slot
    }

    #[inline]
    pub fn descriptor(self) -> TupleDesc<'a> {
        // SAFETY: the slot exists, and keeps its descriptor.
        unsafe { TupleDesc::from_raw(self.get().tts_tupleDescriptor) }
    }

    /// Makes the arrays the row of the slot (`ExecStoreVirtualTuple`).
    #[inline(always)]
    pub fn store(self) {
        // SAFETY: the slot exists, and its arrays are initialized.
        unsafe { super::unguarded::store_virtual(self.as_ptr()) }
    }

    /// Sets the TID of the row.
    #[inline]
    pub fn set_tid(self, tid: pg_sys::ItemPointerData) {
        // SAFETY: the slot exists.
        unsafe { (*self.as_ptr()).tts_tid = tid };
    }

    #[inline]
    pub fn arrays(self) -> RowArrays<'a> {
        // SAFETY: the slot's arrays are as long as its descriptor; the server changes them through pointers.
        unsafe { RowArrays::from_raw(self.get().tts_values, self.get().tts_isnull, self.descriptor().len()) }
    }
}

/// An expression context with memory for one row, that exists as long as `'a`.
pub type ExprContext<'a> = Handle<'a, pg_sys::ExprContext>;

impl<'a> ExprContext<'a> {
    /// Makes a slot the one that expressions read columns of the input row from.
    #[inline(always)]
    pub fn read(self, slot: Slot<'a>) {
        // SAFETY: the context exists, and the slot as long.
        unsafe { (*self.as_ptr()).ecxt_scantuple = slot.as_ptr() };
    }

    /// The memory context for one row.
    #[inline(always)]
    pub fn memory(self) -> pg_sys::MemoryContext {
        self.get().ecxt_per_tuple_memory
    }

    /// Frees the memory of the row. Guarded.
    ///
    /// # Safety
    /// Nothing that was allocated there is used any more.
    pub unsafe fn reset(self) {
        // SAFETY: a guarded call with the context's own memory. Without use since the last reset, a row costs no guard.
        unsafe {
            let memory = self.memory();
            if !(*memory).isReset || !(*memory).firstchild.is_null() {
                pg_sys::MemoryContextReset(memory);
            }
        }
    }

    /// Does work that allocates in the memory of the row. Guarded.
    pub fn within<T>(self, work: impl FnOnce() -> T) -> T {
        // SAFETY: the context's own memory.
        let _entered = unsafe { MemoryContext::from_raw(self.memory()) }.enter();
        work()
    }
}
