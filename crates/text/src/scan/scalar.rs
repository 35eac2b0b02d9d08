//! The scalar twin of the vector kernels: eight 64-bit words, and the classic test for zero bytes.

use super::kernel::{self, Batch, CutState};
use super::needles::Needles;
use super::tally::{self, Tally};
use super::{Isa, prefix_xor_shift};

#[derive(Clone, Copy)]
struct Scalar;

impl Isa for Scalar {
    type Block = [u64; 8];

    #[inline(always)]
    fn load(self, bytes: &[u8; 64]) -> Self::Block {
        let mut block = [0u64; 8];
        for (word, bytes) in block.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        block
    }

    #[inline(always)]
    fn eq(self, block: Self::Block, needle: u8) -> u64 {
        const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
        let pattern = u64::from(needle) * 0x0101_0101_0101_0101;
        let mut bits = 0;
        for (i, word) in block.iter().enumerate() {
            let x = word ^ pattern;
            // The exact form of the test: no borrow crosses from one byte into the next.
            let zero = !(((x & LOW) + LOW) | x | LOW);
            bits |= ((zero >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) << (i * 8);
        }
        bits
    }

    #[inline(always)]
    fn prefix_xor(self, bits: u64) -> u64 {
        prefix_xor_shift(bits)
    }
}

pub(super) fn split(n: &Needles, data: &[u8], batch: &mut Batch) {
    kernel::split(Scalar, n, data, batch);
}

pub(super) fn cut(n: &Needles, data: &[u8], state: &mut CutState) {
    kernel::cut(Scalar, n, data, state);
}

pub(super) fn tally(n: &Needles, data: &[u8], from: usize, fields: usize) -> Tally {
    tally::tally(Scalar, n, data, from, fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparison_is_exact_in_every_byte() {
        let mut bytes = [0u8; 64];
        for needle in [0u8, 1, 0x7f, 0x80, 0xff, b'"'] {
            for (i, b) in bytes.iter_mut().enumerate() {
                *b = needle.wrapping_add((i % 3) as u8);
            }
            let bits = Scalar.eq(Scalar.load(&bytes), needle);
            let expected = bytes.iter().enumerate().fold(0, |m, (i, &b)| m | u64::from(b == needle) << i);
            assert_eq!(bits, expected);
        }
    }
}
