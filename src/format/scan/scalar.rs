//! The scalar twin of the vector kernels: eight 64-bit words, and the classic test for zero bytes.

use super::kernel::{self, Batch, CutState};
use super::needles::Needles;
use super::survey::{self, Sums};
use super::tally::{self, Tally};
use super::{Isa, prefix_xor_shift};

pub(super) struct Scalar;

impl Isa for Scalar {
    type Block = [u64; 8];

    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self::Block {
        let mut block = [0u64; 8];
        for (i, word) in block.iter_mut().enumerate() {
            // SAFETY: the contract covers 64 readable bytes; the read is unaligned.
            *word = u64::from_le(unsafe { p.add(i * 8).cast::<u64>().read_unaligned() });
        }
        block
    }

    #[inline(always)]
    unsafe fn eq(block: Self::Block, needle: u8) -> u64 {
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
    unsafe fn prefix_xor(bits: u64) -> u64 {
        prefix_xor_shift(bits)
    }
}

/// # Safety
/// None beyond the kernel's; runs everywhere.
pub(super) unsafe fn split(n: &Needles, data: &[u8], from: usize, batch: &mut Batch) {
    // SAFETY: plain integer code.
    unsafe { kernel::split::<Scalar>(n, data, from, batch) }
}

/// # Safety
/// None beyond the kernel's; runs everywhere.
pub(super) unsafe fn cut(n: &Needles, data: &[u8], state: &mut CutState) {
    // SAFETY: plain integer code.
    unsafe { kernel::cut::<Scalar>(n, data, state) }
}

/// # Safety
/// None beyond the kernel's; runs everywhere.
pub(super) unsafe fn tally(n: &Needles, data: &[u8], from: usize, fields: usize) -> Tally {
    // SAFETY: plain integer code.
    unsafe { tally::tally::<Scalar>(n, data, from, fields) }
}

/// # Safety
/// None beyond the kernel's; runs everywhere.
pub(super) unsafe fn sums(n: &Needles, data: &[u8]) -> Sums {
    survey::sums(n, data)
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
            // SAFETY: 64 bytes, scalar code.
            let bits = unsafe { Scalar::eq(Scalar::load(bytes.as_ptr()), needle) };
            let expected = bytes.iter().enumerate().fold(0, |m, (i, &b)| m | u64::from(b == needle) << i);
            assert_eq!(bits, expected);
        }
    }
}
