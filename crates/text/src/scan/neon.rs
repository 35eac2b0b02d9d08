//! Kernels for AArch64. It has no movemask, so each byte of a comparison keeps one bit and pairwise additions collect
//! them.

use std::arch::aarch64::{
    uint8x16_t, vandq_u8, vceqq_u8, vdupq_n_u8, vgetq_lane_u64, vld1q_u8, vpaddq_u8, vreinterpretq_u64_u8,
};

use super::kernel::{self, Batch, CutState};
use super::needles::Needles;
use super::tally::{self, Tally};
use super::{Isa, prefix_xor_shift};

#[derive(Clone, Copy)]
struct Neon;

impl Isa for Neon {
    type Block = [uint8x16_t; 4];

    #[inline(always)]
    fn load(self, bytes: &[u8; 64]) -> Self::Block {
        let p = bytes.as_ptr();
        // SAFETY: the loads are within the array; NEON is part of AArch64.
        unsafe { [vld1q_u8(p), vld1q_u8(p.add(16)), vld1q_u8(p.add(32)), vld1q_u8(p.add(48))] }
    }

    #[inline(always)]
    fn eq(self, block: Self::Block, needle: u8) -> u64 {
        const BIT: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
        // SAFETY: NEON is part of AArch64.
        unsafe {
            let n = vdupq_n_u8(needle);
            let bit = vld1q_u8(BIT.as_ptr());
            let [a, b, c, d] = block.map(|part| vandq_u8(vceqq_u8(part, n), bit));
            let sum = vpaddq_u8(vpaddq_u8(a, b), vpaddq_u8(c, d));
            let sum = vpaddq_u8(sum, sum);
            vgetq_lane_u64::<0>(vreinterpretq_u64_u8(sum))
        }
    }

    #[inline(always)]
    fn prefix_xor(self, bits: u64) -> u64 {
        prefix_xor_shift(bits)
    }
}

/// [`kernel::split`] for NEON.
pub(super) fn split(n: &Needles, data: &[u8], batch: &mut Batch) {
    kernel::split(Neon, n, data, batch);
}

/// [`kernel::cut`] for NEON.
pub(super) fn cut(n: &Needles, data: &[u8], state: &mut CutState) {
    kernel::cut(Neon, n, data, state);
}

/// [`tally::tally`] for NEON.
pub(super) fn tally(n: &Needles, data: &[u8], from: usize, fields: usize) -> Tally {
    tally::tally(Neon, n, data, from, fields)
}
