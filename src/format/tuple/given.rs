//! Tuples that somebody else has formed: they need not be taken apart to be stored, if they are laid out as ours are.
//!
//! A function that makes a row has called heap_form_tuple, so all that is left to write is the header. But who says what a
//! tuple's type is may be wrong, and what is stored is read for years: so the attributes are walked from end to end, and the
//! tuple must end where the last one does. To walk takes a look at the header of each varlena, and nothing else.

use super::column::{Column, Kind, LONGEST_TO_SHORTEN, Varlena};
use super::{HEAP_HASNULL, HEAP_HASVARWIDTH, Layout, T_HOFF, T_INFOMASK, T_INFOMASK2, TUPLE_HEADER, max_align};

/// HEAP_NATTS_MASK
pub(super) const NATTS: u16 = 0x07ff;
/// HEAP_HASEXTERNAL and HEAP_HASOID_OLD
const OUTLANDISH: u16 = 0x0004 | 0x0008;

/// Why a tuple is not stored as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// It is to be taken apart: it is too long, it has another number of attributes, some are elsewhere or could be shorter.
    Apart,
    /// It has as many attributes, but does not end where they do: it is one of other columns.
    Malformed,
}

impl Layout {
    /// Our header for a tuple that can be stored as it is: it has these attributes, all of them in line, and is no longer than the
    /// limit. It goes to where the tuple's own is; the null bitmap behind it is the tuple's.
    ///
    /// # Errors
    /// If it is none, why.
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

impl Column {
    /// Where the value ends that is behind the attributes that end at `at`, if that is not behind `end`, and if it is in line.
    ///
    /// # Safety
    /// `tuple` points to `end` bytes, and `at` is not more than that.
    #[inline(always)]
    unsafe fn pass(self, tuple: *const u8, at: usize, end: usize) -> Result<usize, Unfit> {
        let mask = usize::from(self.mask);
        let aligned = (at + mask) & !mask;
        let after = match self.kind {
            Kind::ByValue | Kind::ByValueLoose | Kind::Fixed => aligned + usize::from(self.len),
            Kind::Packable | Kind::Plain => {
                // att_align_pointer (tupmacs.h): no header of one byte is zero, as what is passed over is.
                // SAFETY: before the end.
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
                // SAFETY: the header is there.
                match unsafe { Varlena::read(tuple.add(start)) } {
                    Varlena::Short(size) => start + size,
                    // Where it can have a header of one byte, it gets that (fill_val, heaptuple.c).
                    Varlena::Long(4..=LONGEST_TO_SHORTEN) if self.kind == Kind::Packable => return Err(Unfit::Apart),
                    // One that is not aligned is not one.
                    Varlena::Long(size) | Varlena::Compressed(size) if size >= 4 && start == aligned => {
                        start.checked_add(size).ok_or(Unfit::Malformed)?
                    }
                    Varlena::External => return Err(Unfit::Apart),
                    _ => return Err(Unfit::Malformed),
                }
            }
            // No table has one.
            Kind::Cstring => return Err(Unfit::Apart),
        };
        if after <= end { Ok(after) } else { Err(Unfit::Malformed) }
    }
}
