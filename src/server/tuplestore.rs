//! Rows that the server keeps outside of tables, in memory or in a temporary file.
//!
//! A [`Tuplestore`] and its tuple descriptor live in the memory context that was current when they were made. The code that
//! deletes the context, which is unsafe, answers for them. [`Tuplestore::end`] takes the value, so nothing uses it later.

use pgrx::pg_sys;

use super::call::calls;
use super::handle::Handle;
use super::relation::TupleDesc;
use super::unguarded as c;

type State = Handle<'static, pg_sys::Tuplestorestate>;

// SAFETY: a tuplestore that has not ended.
calls! {
    fn begin(random_access: bool, outlives_transaction: bool, memory: i32) -> State
        = tuplestore_begin_heap(random_access, outlives_transaction, memory);
    fn count(state: State) -> i64 = tuplestore_tuple_count(state);
    fn rescan(state: State) = tuplestore_rescan(state);
}

/// Rows with one tuple descriptor, which are read in the order in which they were put.
#[derive(Debug)]
pub struct Tuplestore {
    state: State,
    descriptor: TupleDesc<'static>,
}

impl Tuplestore {
    /// Makes an empty one, with `memory` kB before it uses a file. Guarded.
    pub fn new(descriptor: TupleDesc<'static>, memory: i32) -> Tuplestore {
        Tuplestore { state: begin(false, false, memory), descriptor }
    }

    pub fn descriptor(&self) -> TupleDesc<'static> {
        self.descriptor
    }

    /// Returns the pointer for functions of the server.
    pub fn as_ptr(&self) -> *mut pg_sys::Tuplestorestate {
        self.state.as_ptr()
    }

    /// The number of rows. Guarded.
    pub fn rows(&self) -> u64 {
        count(self.state).cast_unsigned()
    }

    /// Puts a row.
    ///
    /// # Safety
    /// A plain frame; a value and a flag for each attribute.
    pub unsafe fn put(&self, values: *mut pg_sys::Datum, nulls: *mut bool) {
        // SAFETY: the arrays fit the descriptor.
        unsafe { c::tuplestore_putvalues(self.as_ptr(), self.descriptor.as_ptr(), values, nulls) }
    }

    /// Puts the row of a slot.
    ///
    /// # Safety
    /// A plain frame; a slot with a row of the descriptor.
    pub unsafe fn put_slot(&self, slot: *mut pg_sys::TupleTableSlot) {
        // SAFETY: the slot fits the descriptor.
        unsafe { c::tuplestore_puttupleslot(self.as_ptr(), slot) }
    }

    /// Goes to the next row, which is then in the slot; at first, to the first one. False after the last row.
    ///
    /// # Safety
    /// A plain frame; a slot for minimal tuples with the descriptor. The row is valid until the next call.
    pub unsafe fn next(&self, slot: *mut pg_sys::TupleTableSlot) -> bool {
        // SAFETY: the slot fits the rows.
        unsafe { c::tuplestore_gettupleslot(self.as_ptr(), true, false, slot) }
    }

    /// Goes back to before the first row. Guarded.
    pub fn rescan(&self) {
        rescan(self.state);
    }

    /// Frees the rows. Guarded.
    pub fn end(self) {
        // SAFETY: a guarded call; nothing uses the rows later.
        unsafe { pg_sys::tuplestore_end(self.as_ptr()) }
    }
}
