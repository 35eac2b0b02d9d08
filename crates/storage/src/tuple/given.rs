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
    #[inline]
    pub fn header_for(&self, given: &[u8]) -> Result<[u8; TUPLE_HEADER], Unfit> {
        let own: &[u8; TUPLE_HEADER] = given.first_chunk().ok_or(Unfit::Apart)?;
        let count = self.columns.len();
        let infomask = u16::from_ne_bytes([own[T_INFOMASK], own[T_INFOMASK + 1]]);
        let attributes = u16::from_ne_bytes([own[T_INFOMASK2], own[T_INFOMASK2 + 1]]) & NATTS;
        let has_null = infomask & HEAP_HASNULL != 0;
        let hoff = max_align(TUPLE_HEADER + if has_null { count.div_ceil(8) } else { 0 });
        let is_ours =
            usize::from(own[T_HOFF]) == hoff && usize::from(attributes) == count && infomask & OUTLANDISH == 0;
        if !is_ours || given.len() < hoff {
            return Err(Unfit::Apart);
        }
        let mut at = hoff;
        let mut varying = false;
        for (i, &column) in self.columns.iter().enumerate() {
            if has_null && given.get(TUPLE_HEADER + i / 8).is_some_and(|bits| bits >> (i % 8) & 1 == 0) {
                continue;
            }
            varying |= column.varying();
            at = column.pass(given, at)?;
        }
        if at != given.len() {
            return Err(Unfit::Malformed);
        }
        if given.len() > self.limit {
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
    /// behind the tuple.
    #[inline(always)]
    fn pass(self, tuple: &[u8], at: usize) -> Result<usize, Unfit> {
        let mask = usize::from(self.mask);
        let aligned = (at + mask) & !mask;
        let after = match self.kind {
            AttributeForm::ByValue | AttributeForm::ByValueLoose | AttributeForm::Fixed => {
                aligned + usize::from(self.len)
            }
            AttributeForm::Packable | AttributeForm::Plain => {
                // att_align_pointer (tupmacs.h): a header of one byte is never zero, but padding is.
                let is_short = tuple.get(at).is_some_and(|&byte| byte != 0);
                let start = if is_short { at } else { aligned };
                // A header of one byte, or of four.
                let rest = tuple.get(start..).unwrap_or_default();
                let Some(&first) = rest.first() else { return Err(Unfit::Malformed) };
                let word = rest.first_chunk().map(|word| u32::from_ne_bytes(*word));
                if !Varlena::is_short(first) && word.is_none() {
                    return Err(Unfit::Malformed);
                }
                match Varlena::with_header(first, || word.unwrap_or_default()) {
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
        if after <= tuple.len() { Ok(after) } else { Err(Unfit::Malformed) }
    }
}
