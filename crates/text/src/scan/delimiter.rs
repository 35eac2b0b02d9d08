//! Delimiters that need more than one comparison: longer ones, and those that end a line without beginning a field.
//!
//! A bitmap has the first bytes of delimiters. The further bytes are compared for a whole block at once, by loading the
//! block that begins one byte further, and so on. A delimiter that ends a line replaces the line end as the end of the
//! last field. In both cases, state from the block before is needed at the block's edge. Kernels for other delimiters
//! omit all of this.

use super::Isa;
use super::marks::{Marks, load};
use super::needles::Needles;

/// State from the block before, and the distance from a delimiter that ends a line to a line end of one byte.
pub(super) struct Delimiters {
    /// Number of bytes that belong to a delimiter of the block before. No other delimiter can begin within them.
    taken: u32,
    before: u64,
    distance: u32,
}

impl Delimiters {
    #[inline(always)]
    pub(super) fn new(n: &Needles) -> Delimiters {
        Delimiters { taken: 0, before: 0, distance: n.separator.len() as u32 }
    }

    /// Removes incomplete delimiters from `m`, the marks of the block at `at`. Returns the line ends that end no field,
    /// because a delimiter has ended it.
    #[inline(always)]
    pub(super) fn sort_out<I: Isa>(&mut self, isa: I, n: &Needles, data: &[u8], at: usize, m: &mut Marks) -> u64 {
        for number in 1..n.separator.len() {
            let from = at + number;
            m.delimiter = if m.delimiter != 0 && from < data.len() {
                m.delimiter & isa.eq(load(isa, data, from), n.separator.at(number))
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
        // The distance is 1 to 17.
        let behind = |distance: u32| m.delimiter << distance | self.before >> (64 - distance);
        let no_ends = m.line_end & !m.two & behind(self.distance) | m.two & behind(self.distance + 1);
        self.before = m.delimiter;
        no_ends
    }

    /// Returns the delimiters that do not begin within an earlier one.
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
