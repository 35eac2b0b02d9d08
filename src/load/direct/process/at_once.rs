//! Rows that are read and stored without a guard.
//!
//! What a row of a projection goes through is left to plain frames, one guard before it, to read, and one behind it, to store. Where the
//! row was decoded together with the one before and finds room on the page that is being filled, neither can raise anything. So in
//! most rows nothing is guarded but a function that somebody survives: the guards are for the first row of a block and the last one of a
//! page.
//!
//! Everything here either does all that is to be done for the row, or nothing, and says so.

use pg_bulk_format::tuple::{TUPLE_HEADER, Unfit};
use pgrx::pg_sys;

use super::Process;
use super::advance::ROUND;
use crate::pg::row::RowArrays;
use crate::pg::unguarded;

/// What [`Process::advance_in_block`] has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InBlock {
    /// Nothing.
    Not,
    /// There is a row.
    Row,
    /// There is one, as one value.
    Value(pg_sys::HeapTupleHeader),
    /// There is one, and no memory for it.
    NoMemory,
}

impl Process {
    /// Do rows of the projection go to the target's heap as they are made?
    pub fn stores_at_once(&self) -> bool {
        self.projection.is_some() && self.join.is_none() && self.query.is_null() && !self.is_dry && !self.is_plain()
    }

    /// Do the rows of a filter, which come as tuples?
    pub fn stores_tuples(&self) -> bool {
        let attributes = self.attributes();
        self.stores_at_once() && self.projection.as_ref().is_some_and(|p| p.makes_tuples(attributes))
    }

    /// Go to the next row, for a projection. Raises nothing. `as_value` says that it [stores tuples](Process::stores_tuples).
    #[inline]
    pub fn advance_in_block(&mut self, as_value: bool) -> InBlock {
        if self.round + 1 >= ROUND
            || self.limit == 0
            || self.records_left == 0
            || self.skip_left > 0
            || unguarded::are_interrupts_pending()
        {
            return InBlock::Not;
        }
        let Some(projection) = &mut self.projection else { return InBlock::Not };
        let Some(decoded) = self.rows.advance_decoded() else { return InBlock::Not };
        projection.is_partial = false;
        self.round += 1;
        self.records_left -= 1;
        let (arrays, attributes) = (projection.arrays(), projection.attributes());
        // SAFETY: the row is new; as long as the descriptor, both of them.
        unsafe {
            if as_value && let Some(value) = projection.form_value(self.rows.sources(), decoded) {
                return InBlock::Value(value);
            }
            if !self.rows.has_made_datums(decoded) {
                return InBlock::NoMemory;
            }
            arrays.copy_from(decoded, attributes);
        }
        InBlock::Row
    }

    /// Put a row into the target's heap. Raises nothing.
    ///
    /// # Safety
    /// It [stores at once](Process::stores_at_once); the arrays are as long as the target's descriptor, and hold values of its types.
    #[inline]
    pub unsafe fn store_at_once(&mut self, arrays: RowArrays) -> bool {
        // SAFETY: attributes of the target's.
        if self.not_null.iter().any(|&i| unsafe { *arrays.nulls.add(i) }) {
            return false;
        }
        let origin = self.origin();
        let Some(heap) = self.heaps.first_mut() else { return false };
        // SAFETY: the caller's arrays.
        let stored = unsafe { heap.add_at_once(arrays, origin, &mut self.form) };
        if stored {
            self.count_row();
        }
        stored
    }

    /// The same for a row that somebody has made a tuple of.
    ///
    /// # Safety
    /// It [stores tuples](Process::stores_tuples), and this is one of a type with the target's columns.
    #[inline]
    pub unsafe fn store_tuple(&mut self, tuple: pg_sys::HeapTupleHeader) -> Result<(), Unfit> {
        // SAFETY: this function's contract covers the tuple.
        let (bytes, length) = unsafe { bytes_of(tuple) };
        if length < TUPLE_HEADER {
            return Err(Unfit::Apart);
        }
        // SAFETY: the header is there.
        let has_null = unsafe { (*tuple).t_infomask } & pg_sys::HEAP_HASNULL as u16 != 0;
        // SAFETY: the bitmap is behind the header, and within the tuple as far as it is looked at.
        let bit = |i: usize| unsafe { *bytes.add(TUPLE_HEADER + i / 8) } >> (i % 8) & 1;
        // What must not be NULL is complained of elsewhere.
        let is_null = |&i: &usize| TUPLE_HEADER + i / 8 >= length || bit(i) == 0;
        if has_null && self.not_null.iter().any(is_null) {
            return Err(Unfit::Apart);
        }
        let origin = self.origin();
        let Some(heap) = self.heaps.first_mut() else { return Err(Unfit::Apart) };
        // SAFETY: so many bytes.
        unsafe { heap.add_given_at_once(bytes, length, origin)? };
        self.count_row();
        Ok(())
    }
}

/// # Safety
/// A value of a composite type.
#[inline]
unsafe fn bytes_of(tuple: pg_sys::HeapTupleHeader) -> (*const u8, usize) {
    // SAFETY: this function's contract covers the argument.
    unsafe { (tuple.cast::<u8>().cast_const(), pgrx::varsize_4b(tuple.cast())) }
}
