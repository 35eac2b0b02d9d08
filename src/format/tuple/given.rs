//! Stores tuples that a function has formed, without taking them apart, if their layout is that of this table.
//!
//! A function that returns a row has called heap_form_tuple, so only the header must be replaced. But the declared type
//! of such a tuple may be wrong, and the stored bytes are read for years. So all attributes are walked, and the tuple
//! must end at the end of the last one. The walk only reads the header of each varlena.

use super::column::{AttributeForm, LONGEST_TO_SHORTEN, StoredColumn, Varlena};
use super::{HEAP_HASNULL, HEAP_HASVARWIDTH, Layout, T_HOFF, T_INFOMASK, T_INFOMASK2, TUPLE_HEADER, max_align};

/// HEAP_NATTS_MASK
pub(super) const NATTS: u16 = 0x07ff;
/// HEAP_HASEXTERNAL and HEAP_HASOID_OLD
const OUTLANDISH: u16 = 0x0004 | 0x0008;

/// Why a tuple cannot be stored unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// The row must be formed anew: the tuple is too long or has another number of attributes, or an attribute is
    /// external or could be shorter.
    Apart,
    /// The tuple has as many attributes but does not end where they do: it is of another type.
    Malformed,
}

impl Layout {
    /// Returns the table's header for a tuple that can be stored unchanged: it has these attributes, all inline, and is
    /// no longer than the limit. The header replaces the tuple's own one; the null bitmap behind it stays.
    ///
    /// # Errors
    /// Why the tuple cannot be stored unchanged.
    ///
    /// # Safety
    /// `given` points to `length` bytes, at least [`TUPLE_HEADER`] of them.
    #[inline]
    pub unsafe fn header_for(&self, given: *const u8, length: usize) -> Result<[u8; TUPLE_HEADER], Unfit> {
        let word = |at: usize| {
            // SAFETY: within the header.
            u16::from_ne_bytes(unsafe { given.add(at).cast::<[u8; 2]>().read() })
        };
        let count = self.columns.len();
        let infomask = word(T_INFOMASK);
        let has_null = infomask & HEAP_HASNULL != 0;
        let hoff = max_align(TUPLE_HEADER + if has_null { count.div_ceil(8) } else { 0 });
        // SAFETY: within the header.
        let is_ours = unsafe { usize::from(*given.add(T_HOFF)) } == hoff
            && usize::from(word(T_INFOMASK2) & NATTS) == count
            && infomask & OUTLANDISH == 0;
        if !is_ours || length < hoff {
            return Err(Unfit::Apart);
        }
        let mut at = hoff;
        let mut varying = false;
        for (i, &column) in self.columns.iter().enumerate() {
            // SAFETY: the bitmap ends before hoff.
            if has_null && unsafe { *given.add(TUPLE_HEADER + i / 8) } >> (i % 8) & 1 == 0 {
                continue;
            }
            varying |= column.varying();
            // SAFETY: `at` is not behind the end.
            at = unsafe { column.pass(given, at, length)? };
        }
        if at != length {
            return Err(Unfit::Malformed);
        }
        if length > self.limit {
            return Err(Unfit::Apart);
        }
        let mut header = [0; TUPLE_HEADER];
        header.copy_from_slice(&self.header[..TUPLE_HEADER]);
        if has_null {
            let fixed = u16::from_ne_bytes([self.header[T_INFOMASK], self.header[T_INFOMASK + 1]]);
            let varwidth = if varying { HEAP_HASVARWIDTH } else { 0 };
            let infomask = (fixed & !HEAP_HASVARWIDTH) | HEAP_HASNULL | varwidth;
            header[T_INFOMASK..T_HOFF].copy_from_slice(&infomask.to_ne_bytes());
            header[T_HOFF] = hoff as u8;
        }
        Ok(header)
    }
}

impl StoredColumn {
    /// Returns the end of the value behind the attributes that end at `at`. The value must be inline and must not end
    /// behind `end`.
    ///
    /// # Safety
    /// `tuple` points to `end` bytes, and `at` is at most `end`.
    #[inline(always)]
    unsafe fn pass(self, tuple: *const u8, at: usize, end: usize) -> Result<usize, Unfit> {
        let mask = usize::from(self.mask);
        let aligned = (at + mask) & !mask;
        let after = match self.kind {
            AttributeForm::ByValue | AttributeForm::ByValueLoose | AttributeForm::Fixed => {
                aligned + usize::from(self.len)
            }
            AttributeForm::Packable | AttributeForm::Plain => {
                // att_align_pointer (tupmacs.h): a header of one byte is never zero, but padding is. SAFETY: before the
                // end.
                let is_short = at < end && unsafe { *tuple.add(at) } != 0;
                let start = if is_short { at } else { aligned };
                // A header of one byte, or of four.
                if start >= end {
                    return Err(Unfit::Malformed);
                }
                // SAFETY: before the end.
                let first = unsafe { *tuple.add(start) };
                if !Varlena::is_short(first) && start + 4 > end {
                    return Err(Unfit::Malformed);
                }
                // SAFETY: all bytes of the header are before the end.
                match unsafe { Varlena::read(tuple.add(start)) } {
                    Varlena::Short(size) => start + size,
                    // A table would store it with a header of one byte (fill_val, heaptuple.c).
                    Varlena::Long(4..=LONGEST_TO_SHORTEN) if self.kind == AttributeForm::Packable => {
                        return Err(Unfit::Apart);
                    }
                    // A header of four bytes must be aligned.
                    Varlena::Long(size) | Varlena::Compressed(size) if size >= 4 && start == aligned => {
                        start.checked_add(size).ok_or(Unfit::Malformed)?
                    }
                    Varlena::External => return Err(Unfit::Apart),
                    _ => return Err(Unfit::Malformed),
                }
            }
            // No table has a C string.
            AttributeForm::Cstring => return Err(Unfit::Apart),
        };
        if after <= end { Ok(after) } else { Err(Unfit::Malformed) }
    }
}
