//! Kernels for x86-64.
//!
//! SSE2 is part of it. The AVX2 kernels also use carry-less multiplication and the bit manipulation sets, which nearly
//! all machines with AVX2 have, and require all of them.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_clmulepi64_si128, _mm_cmpeq_epi8, _mm_cvtsi128_si64, _mm_loadu_si128, _mm_movemask_epi8,
    _mm_set_epi64x, _mm_set1_epi8, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_set1_epi8,
    _pext_u64,
};

use super::kernel::{self, Batch, CutState};
use super::needles::Needles;
use super::survey::{self, Sums};
use super::tally::{self, Tally};
use super::{Isa, prefix_xor_shift};

pub(super) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
        && is_x86_feature_detected!("pclmulqdq")
}

#[derive(Clone, Copy)]
struct Sse2;

impl Isa for Sse2 {
    type Block = [__m128i; 4];

    #[inline(always)]
    fn load(self, bytes: &[u8; 64]) -> Self::Block {
        // SAFETY: SSE2 is part of x86-64. The unaligned loads are within the array.
        unsafe {
            let p = bytes.as_ptr().cast::<__m128i>();
            [_mm_loadu_si128(p), _mm_loadu_si128(p.add(1)), _mm_loadu_si128(p.add(2)), _mm_loadu_si128(p.add(3))]
        }
    }

    #[inline(always)]
    fn eq(self, block: Self::Block, needle: u8) -> u64 {
        // SAFETY: SSE2 is part of x86-64.
        unsafe {
            let n = _mm_set1_epi8(needle.cast_signed());
            let mut bits = 0;
            for (i, part) in block.into_iter().enumerate() {
                bits |= u64::from(_mm_movemask_epi8(_mm_cmpeq_epi8(part, n)).cast_unsigned()) << (i * 16);
            }
            bits
        }
    }

    #[inline(always)]
    fn prefix_xor(self, bits: u64) -> u64 {
        prefix_xor_shift(bits)
    }
}

/// Made only by functions that are compiled for the sets of [`has_avx2`].
#[derive(Clone, Copy)]
struct Avx2(());

impl Isa for Avx2 {
    type Block = [__m256i; 2];

    #[inline(always)]
    fn load(self, bytes: &[u8; 64]) -> Self::Block {
        // SAFETY: the machine has AVX2, since `self` exists. The unaligned loads are within the array.
        unsafe {
            let p = bytes.as_ptr().cast::<__m256i>();
            [_mm256_loadu_si256(p), _mm256_loadu_si256(p.add(1))]
        }
    }

    #[inline(always)]
    fn eq(self, block: Self::Block, needle: u8) -> u64 {
        // SAFETY: the machine has AVX2, since `self` exists.
        unsafe {
            let n = _mm256_set1_epi8(needle.cast_signed());
            let low = _mm256_movemask_epi8(_mm256_cmpeq_epi8(block[0], n)).cast_unsigned();
            let high = _mm256_movemask_epi8(_mm256_cmpeq_epi8(block[1], n)).cast_unsigned();
            u64::from(low) | u64::from(high) << 32
        }
    }

    /// A carry-less multiplication by all ones.
    #[inline(always)]
    fn prefix_xor(self, bits: u64) -> u64 {
        // SAFETY: the machine has PCLMULQDQ, since `self` exists.
        unsafe {
            let product = _mm_clmulepi64_si128(_mm_set_epi64x(0, bits.cast_signed()), _mm_set1_epi8(-1), 0);
            _mm_cvtsi128_si64(product).cast_unsigned()
        }
    }

    const COMPRESSES: bool = true;

    #[inline(always)]
    fn compress(self, bits: u64, mask: u64) -> u64 {
        // SAFETY: the machine has BMI2, since `self` exists.
        unsafe { _pext_u64(bits, mask) }
    }
}

pub(super) fn split_sse2(n: &Needles, data: &[u8], batch: &mut Batch) {
    kernel::split(Sse2, n, data, batch);
}

pub(super) fn cut_sse2(n: &Needles, data: &[u8], state: &mut CutState) {
    kernel::cut(Sse2, n, data, state);
}

pub(super) fn tally_sse2(n: &Needles, data: &[u8], from: usize, fields: usize) -> Tally {
    tally::tally(Sse2, n, data, from, fields)
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,pclmulqdq")]
pub(super) fn split_avx2(n: &Needles, data: &[u8], batch: &mut Batch) {
    kernel::split(Avx2(()), n, data, batch);
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,pclmulqdq")]
pub(super) fn cut_avx2(n: &Needles, data: &[u8], state: &mut CutState) {
    kernel::cut(Avx2(()), n, data, state);
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,pclmulqdq")]
pub(super) fn tally_avx2(n: &Needles, data: &[u8], from: usize, fields: usize) -> Tally {
    tally::tally(Avx2(()), n, data, from, fields)
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,pclmulqdq")]
pub(super) fn sums_avx2(n: &Needles, data: &[u8]) -> Sums {
    survey::sums(n, data)
}
