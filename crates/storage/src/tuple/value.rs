//! Forms rows as values of a composite type: the bytes that heap_form_tuple and the executor would make.
//!
//! Such a value is a tuple. Its header has other fields in place of the inserting transaction and the position in the
//! table:
//!
//! ```text
//!  0      4               8              12                                    18
//!  size | datum_typmod | datum_typeid | t_ctid: perhaps more about the type | as in a table, but for flags
//! ```
//!
//! The contents of these fields are equal for all values of a type and differ between server versions. So the header of
//! one value that the server has made is used for all of them.

use super::given::NATTS;
use super::{Attribute, FormBuffer, Formed, HEAP_HASNULL, HEAP_HASVARWIDTH, Layout, MAX_TUPLE_SIZE, Stamp};
use super::{T_HOFF, T_INFOMASK, T_INFOMASK2, TUPLE_HEADER};
use pg_bulk_types::block::ColumnForm;

impl Layout {
    /// Creates the layout of values of a type with these attributes. `other` is the header of a value of the type that
    /// the server has made.
    ///
    /// Returns `None` if no tuple descriptor can have such attributes, or if that value has another number of them.
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "parts of a header, whose length is a constant")]
    pub fn of_values(attributes: &[Attribute], other: &[u8; TUPLE_HEADER]) -> Option<Self> {
        let word = |at: usize| u16::from_ne_bytes([other[at], other[at + 1]]);
        if usize::from(word(T_INFOMASK2) & NATTS) != attributes.len() {
            return None;
        }
        let mut layout = Self::new(attributes, Stamp { xmin: 0, cid: 0, frozen: false }, MAX_TUPLE_SIZE)?;
        let header = &mut layout.header;
        header[..T_INFOMASK].copy_from_slice(&other[..T_INFOMASK]);
        let varying = u16::from_ne_bytes([header[T_INFOMASK], header[T_INFOMASK + 1]]) & HEAP_HASVARWIDTH;
        let infomask = word(T_INFOMASK) & !(HEAP_HASNULL | HEAP_HASVARWIDTH) | varying;
        header[T_INFOMASK..T_HOFF].copy_from_slice(&infomask.to_ne_bytes());
        Some(layout)
    }

    /// Forms the value of a row with a layout [of values](Layout::of_values). Returns its address in the buffer, a
    /// multiple of 8.
    ///
    /// Returns `None` if an attribute is external, or if the value is longer than a page.
    ///
    /// # Safety
    /// As [`Layout::form_decoded`].
    #[inline]
    pub unsafe fn form_value(
        &self,
        column_forms: &[ColumnForm],
        values: *const u64,
        nulls: *const bool,
        out: &mut FormBuffer,
    ) -> Option<*mut u8> {
        // SAFETY: this function has the contract of `form_decoded`.
        let Formed::Tuple(tuple) = (unsafe { self.form_decoded(column_forms, values, nulls, out) }) else {
            return None;
        };
        let size = tuple.len() as u32;
        let value: *mut u8 = out.words.as_mut_ptr().cast();
        // SET_VARSIZE (varatt.h)
        let size = if cfg!(target_endian = "big") { size } else { size << 2 };
        // SAFETY: the first bytes of the tuple, at a multiple of 8.
        unsafe { value.cast::<u32>().write(size) };
        Some(value)
    }
}
