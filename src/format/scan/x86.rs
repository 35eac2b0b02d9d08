//! Kernels for x86-64.
//!
//! SSE2 is part of it. The AVX2 kernels also use carry-less multiplication and the bit manipulation sets, which nearly
//! all machines with AVX2 have, and require all of them. AVX-512 compares directly into a mask.

use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm_clmulepi64_si128, _mm_cmpeq_epi8, _mm_cvtsi128_si64, _mm_loadu_si128,
    _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_movemask_epi8,
    _mm256_set1_epi8, _mm512_cmpeq_epi8_mask, _mm512_loadu_si512, _mm512_set1_epi8, _pext_u64,
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

pub(super) fn has_avx512() -> bool {
    has_avx2() && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
}

/// [`Isa::prefix_xor`] as a carry-less multiplication by all ones.
///
/// # Safety
/// The machine has PCLMULQDQ.
#[inline(always)]
unsafe fn prefix_xor_clmul(bits: u64) -> u64 {
    // SAFETY: this function's contract covers the instruction.
    unsafe {
        let product = _mm_clmulepi64_si128(_mm_set_epi64x(0, bits.cast_signed()), _mm_set1_epi8(-1), 0);
        _mm_cvtsi128_si64(product).cast_unsigned()
    }
}

struct Sse2;

impl Isa for Sse2 {
    type Block = [__m128i; 4];

    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self::Block {
        // SAFETY: the contract covers 64 readable bytes; the loads are unaligned.
        unsafe {
            let p = p.cast::<__m128i>();
            [_mm_loadu_si128(p), _mm_loadu_si128(p.add(1)), _mm_loadu_si128(p.add(2)), _mm_loadu_si128(p.add(3))]
        }
    }

    #[inline(always)]
    unsafe fn eq(block: Self::Block, needle: u8) -> u64 {
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
    unsafe fn prefix_xor(bits: u64) -> u64 {
        prefix_xor_shift(bits)
    }
}

struct Avx2;

impl Isa for Avx2 {
    type Block = [__m256i; 2];

    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self::Block {
        // SAFETY: the contract covers 64 readable bytes and the instruction set; the loads are unaligned.
        unsafe {
            let p = p.cast::<__m256i>();
            [_mm256_loadu_si256(p), _mm256_loadu_si256(p.add(1))]
        }
    }

    #[inline(always)]
    unsafe fn eq(block: Self::Block, needle: u8) -> u64 {
        // SAFETY: this function's contract covers the instruction set.
        unsafe {
            let n = _mm256_set1_epi8(needle.cast_signed());
            let low = _mm256_movemask_epi8(_mm256_cmpeq_epi8(block[0], n)).cast_unsigned();
            let high = _mm256_movemask_epi8(_mm256_cmpeq_epi8(block[1], n)).cast_unsigned();
            u64::from(low) | u64::from(high) << 32
        }
    }

    #[inline(always)]
    unsafe fn prefix_xor(bits: u64) -> u64 {
        // SAFETY: the level requires PCLMULQDQ.
        unsafe { prefix_xor_clmul(bits) }
    }

    const COMPRESSES: bool = true;

    #[inline(always)]
    unsafe fn compress(bits: u64, mask: u64) -> u64 {
        // SAFETY: the level requires BMI2.
        unsafe { _pext_u64(bits, mask) }
    }
}

struct Avx512;

impl Isa for Avx512 {
    type Block = __m512i;

    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self::Block {
        // SAFETY: the contract covers 64 readable bytes and the instruction set; the load is unaligned.
        unsafe { _mm512_loadu_si512(p.cast::<__m512i>()) }
    }

    #[inline(always)]
    unsafe fn eq(block: Self::Block, needle: u8) -> u64 {
        // SAFETY: this function's contract covers the instruction set.
        unsafe { _mm512_cmpeq_epi8_mask(block, _mm512_set1_epi8(needle.cast_signed())) }
    }

    #[inline(always)]
    unsafe fn prefix_xor(bits: u64) -> u64 {
        // SAFETY: the level requires PCLMULQDQ.
        unsafe { prefix_xor_clmul(bits) }
    }

    const COMPRESSES: bool = true;

    #[inline(always)]
    unsafe fn compress(bits: u64, mask: u64) -> u64 {
        // SAFETY: the level requires BMI2.
        unsafe { _pext_u64(bits, mask) }
    }
}

/// # Safety
/// None beyond the kernel's: SSE2 is part of x86-64.
pub(super) unsafe fn split_sse2(n: &Needles, data: &[u8], from: usize, batch: &mut Batch) {
    // SAFETY: SSE2 is part of x86-64.
    unsafe { kernel::split::<Sse2>(n, data, from, batch) }
}

/// # Safety
/// None beyond the kernel's: SSE2 is part of x86-64.
pub(super) unsafe fn cut_sse2(n: &Needles, data: &[u8], state: &mut CutState) {
    // SAFETY: SSE2 is part of x86-64.
    unsafe { kernel::cut::<Sse2>(n, data, state) }
}

/// # Safety
/// [`has_avx2`] holds.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,pclmulqdq")]
pub(super) unsafe fn split_avx2(n: &Needles, data: &[u8], from: usize, batch: &mut Batch) {
    // SAFETY: this function's contract covers the instruction set.
    unsafe { kernel::split::<Avx2>(n, data, from, batch) }
}

/// # Safety
/// [`has_avx2`] holds.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,pclmulqdq")]
pub(super) unsafe fn cut_avx2(n: &Needles, data: &[u8], state: &mut CutState) {
    // SAFETY: this function's contract covers the instruction set.
    unsafe { kernel::cut::<Avx2>(n, data, state) }
}

/// # Safety
/// [`has_avx512`] holds.
#[target_feature(enable = "avx512f,avx512bw,avx2,bmi1,bmi2,lzcnt,popcnt,pclmulqdq")]
pub(super) unsafe fn split_avx512(n: &Needles, data: &[u8], from: usize, batch: &mut Batch) {
    // SAFETY: this function's contract covers the instruction set.
    unsafe { kernel::split::<Avx512>(n, data, from, batch) }
}

/// # Safety
/// [`has_avx512`] holds.
#[target_feature(enable = "avx512f,avx512bw,avx2,bmi1,bmi2,lzcnt,popcnt,pclmulqdq")]
pub(super) unsafe fn cut_avx512(n: &Needles, data: &[u8], state: &mut CutState) {
    // SAFETY: this function's contract covers the instruction set.
    unsafe { kernel::cut::<Avx512>(n, data, state) }
}

/// # Safety
/// None beyond the kernel's: SSE2 is part of x86-64.
pub(super) unsafe fn tally_sse2(n: &Needles, data: &[u8], from: usize, fields: usize) -> Tally {
    // SAFETY: SSE2 is part of x86-64.
    unsafe { tally::tally::<Sse2>(n, data, from, fields) }
}

/// # Safety
/// [`has_avx2`] holds.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,pclmulqdq")]
pub(super) unsafe fn tally_avx2(n: &Needles, data: &[u8], from: usize, fields: usize) -> Tally {
    // SAFETY: this function's contract covers the instruction set.
    unsafe { tally::tally::<Avx2>(n, data, from, fields) }
}

/// # Safety
/// [`has_avx512`] holds.
#[target_feature(enable = "avx512f,avx512bw,avx2,bmi1,bmi2,lzcnt,popcnt,pclmulqdq")]
pub(super) unsafe fn tally_avx512(n: &Needles, data: &[u8], from: usize, fields: usize) -> Tally {
    // SAFETY: this function's contract covers the instruction set.
    unsafe { tally::tally::<Avx512>(n, data, from, fields) }
}

/// # Safety
/// None beyond the kernel's: SSE2 is part of x86-64.
pub(super) unsafe fn sums_sse2(n: &Needles, data: &[u8]) -> Sums {
    survey::sums(n, data)
}

/// # Safety
/// [`has_avx2`] holds.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,pclmulqdq")]
pub(super) unsafe fn sums_avx2(n: &Needles, data: &[u8]) -> Sums {
    survey::sums(n, data)
}

/// # Safety
/// [`has_avx512`] holds.
#[target_feature(enable = "avx512f,avx512bw,avx2,bmi1,bmi2,lzcnt,popcnt,pclmulqdq")]
pub(super) unsafe fn sums_avx512(n: &Needles, data: &[u8]) -> Sums {
    survey::sums(n, data)
}
