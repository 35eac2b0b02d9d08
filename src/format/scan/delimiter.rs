//! Delimiters that are more than a comparison: longer ones, and those that end a line and begin no field.
//!
//! A bitmap has the first bytes of delimiters; what follows each is compared for a whole block at once, by loading the block
//! that begins one byte further, and so on. A delimiter that ends a line takes the place of the line's end: its field was the
//! last one. Both know from the block before what reaches over its edge. All of this is left out of kernels for others.

use super::Isa;
use super::marks::{Marks, load};
use super::needles::Needles;
use crate::dialect::Eol;

/// What the block before has left, and how far a line's end is behind the delimiter that ends the line.
pub(super) struct Delimiters {
    /// Bytes that belong to a delimiter of the block before, where others may seem to begin within one.
    taken: u32,
    before: u64,
    distance: u32,
}

impl Delimiters {
    #[inline(always)]
    pub(super) fn new(n: &Needles) -> Delimiters {
        let distance = n.separator.len() as u32 + u32::from(n.eol == Eol::CrNl);
        Delimiters { taken: 0, before: 0, distance }
    }

    /// Leave in `m`, the marks of the block at `at`, those delimiters that are whole. Returns the line ends that end no field,
    /// since a delimiter has ended it.
    ///
    /// # Safety
    /// `I`'s instructions are there.
    #[inline(always)]
    pub(super) unsafe fn sort_out<I: Isa>(&mut self, n: &Needles, data: &[u8], at: usize, m: &mut Marks) -> u64 {
        for number in 1..n.separator.len() {
            let from = at + number;
            m.delimiter = if m.delimiter != 0 && from < data.len() {
                // SAFETY: `from` is within the data; this function's contract covers the instruction set.
                m.delimiter & unsafe { I::eq(load::<I>(data, from), n.separator.at(number)) }
            } else {
                0
            };
        }
        if n.separator.overlaps() && (m.delimiter != 0 || self.taken != 0) {
            m.delimiter = self.first(m.delimiter, n.separator.len() as u32);
        }
        if !n.trailing {
            return 0;
        }
        // One to 17.
        let behind = m.delimiter << self.distance | self.before >> (64 - self.distance);
        self.before = m.delimiter;
        m.line_end & behind
    }

    /// Those that do not begin within one before them.
    #[inline(never)]
    fn first(&mut self, mut delimiters: u64, len: u32) -> u64 {
        delimiters &= !0 << std::mem::take(&mut self.taken);
        let mut first = 0;
        while delimiters != 0 {
            let at = delimiters.trailing_zeros();
            first |= 1 << at;
            let end = at + len;
            self.taken = end.saturating_sub(64);
            delimiters &= (!0u64).checked_shl(end).unwrap_or(0);
        }
        first
    }
}
