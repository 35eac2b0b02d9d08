//! Reads and stores rows without a guard.
//!
//! A row of a projection is computed in plain frames, between a guarded step that reads and another that stores. If the
//! row was decoded together with the row before, and fits on the current page, neither step can raise an error, and no
//! guard is needed. So most rows run without a guard, except around a function whose errors are survived. Guards remain
//! for the first row of a block and the last row of a page.
//!
//! Each function here either does the whole step for the row, or does nothing and returns that.

use pg_bulk_storage::tuple::{TUPLE_HEADER, Unfit};
use pgrx::pg_sys;

use super::Process;
use super::advance::ROUND;
use crate::server::slot::Row;
use crate::server::unguarded;

/// Result of [`Process::advance_in_block`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InBlock {
    /// The function did nothing.
    Not,
    /// A row is in the arrays.
    Row,
    /// The row as a value of a composite type.
    Value(pg_sys::HeapTupleHeader),
    /// There is a row, but no memory for it.
    NoMemory,
}

impl Process {
    /// Are rows of the projection put into the target's heap without further steps?
    pub fn stores_at_once(&self) -> bool {
        self.recipe.projection.is_some() && self.pull.is_none() && !self.heaps.is_dry && !self.is_plain()
    }

    /// Are rows of a function, which are tuples, put into the heap without further steps?
    pub fn stores_tuples(&self) -> bool {
        let attributes = self.executor.attributes();
        self.stores_at_once() && self.recipe.projection.as_ref().is_some_and(|p| p.makes_tuples(attributes))
    }

    /// Goes to the next row, for a projection. Raises nothing. `as_value`: the process [stores
    /// tuples](Process::stores_tuples).
    #[inline]
    pub fn advance_in_block(&mut self, as_value: bool) -> InBlock {
        if self.progress.round + 1 >= ROUND
            || self.quota.rows == 0
            || self.quota.records == 0
            || self.quota.skip > 0
            || unguarded::are_interrupts_pending()
        {
            return InBlock::Not;
        }
        let Some(projection) = &mut self.recipe.projection else { return InBlock::Not };
        if !self.rows.advance_decoded() {
            return InBlock::Not;
        }
        projection.is_partial = false;
        self.progress.round += 1;
        self.quota.records -= 1;
        if as_value
            && let Some(decoded) = self.rows.decoded()
            // SAFETY: the row is new, in the form of these columns.
            && let Some(value) = projection.value_mut()
            && let Some(value) = unsafe { value.form(self.rows.column_forms(), decoded) }
        {
            return InBlock::Value(value);
        }
        // SAFETY: the row is new.
        if !unsafe { self.rows.has_made_datums() } {
            return InBlock::NoMemory;
        }
        if let Some(decoded) = self.rows.decoded() {
            projection.arrays().copy_from(decoded);
        }
        InBlock::Row
    }

    /// Puts a row into the target's heap, if the process [stores at once](Process::stores_at_once). Raises nothing.
    #[inline]
    pub fn store_at_once(&mut self, row: Row<'_>) -> bool {
        if self.recipe.not_null.iter().any(|&i| row.arrays().is_null(i)) {
            return false;
        }
        let origin = self.tracer.origin(&mut self.rows);
        let Some(heap) = self.heaps.list.first_mut() else { return false };
        let stored = heap.add_at_once(row, origin, &mut self.heaps.form);
        if stored {
            self.count_row();
        }
        stored
    }

    /// Puts an already formed tuple into the target's heap. Raises nothing.
    ///
    /// # Safety
    /// The process [stores tuples](Process::stores_tuples), and this tuple's type has the target's columns.
    #[inline]
    pub unsafe fn store_tuple(&mut self, tuple: pg_sys::HeapTupleHeader) -> Result<(), Unfit> {
        // SAFETY: a tuple of the target's columns, which has the size in its header.
        let (bytes, infomask) = unsafe {
            let length = pgrx::varsize_4b(tuple.cast());
            if length < TUPLE_HEADER {
                return Err(Unfit::Apart);
            }
            (std::slice::from_raw_parts(tuple.cast::<u8>().cast_const(), length), (*tuple).t_infomask)
        };
        let has_null = infomask & pg_sys::HEAP_HASNULL as u16 != 0;
        // The error about a NULL is raised after the tuple is taken apart.
        let is_null = |&i: &usize| bytes.get(TUPLE_HEADER + i / 8).is_none_or(|bits| bits >> (i % 8) & 1 == 0);
        if has_null && self.recipe.not_null.iter().any(is_null) {
            return Err(Unfit::Apart);
        }
        let origin = self.tracer.origin(&mut self.rows);
        let Some(heap) = self.heaps.list.first_mut() else { return Err(Unfit::Apart) };
        heap.add_given_at_once(bytes, origin)?;
        self.count_row();
        Ok(())
    }
}
