//! The structural scan: bitmaps of the bytes that matter, 64 at a time.
//!
//! ```text
//!  bytes      1 , " a , b " , 3 \n 4 ...
//!  quote          1         1                 compare
//!  inside         1 1 1 1 1 0                 prefix xor of quote: odd number of quotes so far
//!  delimiter    1       1       1             compare
//!  ends         1             1     1         (delimiter | line end) & !inside      -> offsets
//! ```
//!
//! Four layers: [`Isa`] says how to load 64 bytes and compare them with one byte; [`kernel`], [`tally`] and [`survey`] are
//! the algorithms, generic over it; one thin file per instruction set; [`Level::best`] picks one at run time. The scalar twin is
//! always built, and every test runs through every level that the machine has.
//!
//! The kernel decides nothing that is not certain. A carriage return where lines end in newlines, a `\.`, a record
//! with too many fields: it stops before that record and lets the exact reader ([`crate::line`]) have it.
#![allow(unsafe_code, reason = "SIMD loads and intrinsics")]

mod delimiter;
pub mod kernel;
mod marks;
mod needles;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
mod survey;
mod tally;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use kernel::{Batch, CutState, RecordEnd};
pub use marks::Carry;
pub use needles::Needles;
use survey::Sums;
pub use survey::Survey;
pub use tally::Tally;

/// An instruction set: 64 bytes and one comparison.
///
/// # Safety
/// The methods may use instructions that not every machine has: whoever calls them is compiled for, and runs on, a
/// machine that has them.
pub(crate) trait Isa {
    /// 64 loaded bytes.
    type Block: Copy;
    /// Load 64 bytes.
    ///
    /// # Safety
    /// `p` points to 64 readable bytes.
    unsafe fn load(p: *const u8) -> Self::Block;
    /// Bit i is set where byte i equals `needle`.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn eq(block: Self::Block, needle: u8) -> u64;
    /// Bit i is the parity of bits 0..=i of `bits`.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn prefix_xor(bits: u64) -> u64;
    /// Is [`Isa::compress`] one instruction? Else nobody calls it.
    const COMPRESSES: bool = false;
    /// The bits at the places that `mask` has, put together.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn compress(_bits: u64, _mask: u64) -> u64 {
        0
    }
}

/// The parity of all bits up to each, without special instructions.
#[inline(always)]
pub(crate) fn prefix_xor_shift(mut bits: u64) -> u64 {
    bits ^= bits << 1;
    bits ^= bits << 2;
    bits ^= bits << 4;
    bits ^= bits << 8;
    bits ^= bits << 16;
    bits ^= bits << 32;
    bits
}

/// The instruction sets there are, best last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Plain integer code; runs everywhere.
    Scalar,
    /// x86-64's base vectors.
    Sse2,
    /// 256-bit vectors, with carry-less multiplication and bit manipulation.
    Avx2,
    /// 512-bit vectors with byte masks.
    Avx512,
    /// AArch64's vectors.
    Neon,
}

impl Level {
    /// Every level this machine can run.
    #[must_use]
    pub fn available() -> Vec<Level> {
        let mut levels = vec![Level::Scalar];
        #[cfg(target_arch = "x86_64")]
        {
            levels.push(Level::Sse2);
            if x86::has_avx2() {
                levels.push(Level::Avx2);
            }
            if x86::has_avx512() {
                levels.push(Level::Avx512);
            }
        }
        #[cfg(target_arch = "aarch64")]
        levels.push(Level::Neon);
        levels
    }

    /// The fastest level this machine can run.
    #[must_use]
    pub fn best() -> Level {
        #[cfg(target_arch = "x86_64")]
        let level = if x86::has_avx2() { Level::Avx2 } else { Level::Sse2 };
        #[cfg(target_arch = "aarch64")]
        let level = Level::Neon;
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let level = Level::Scalar;
        level
    }
}

type SplitFn = unsafe fn(&Needles, &[u8], usize, &mut Batch);
type CutFn = unsafe fn(&Needles, &[u8], &mut CutState);
type TallyFn = unsafe fn(&Needles, &[u8], usize, usize) -> Tally;
type SumsFn = unsafe fn(&Needles, &[u8]) -> Sums;

/// The kernels of one level, for one dialect.
#[derive(Debug, Clone, Copy)]
pub struct Scanner {
    needles: Needles,
    split: SplitFn,
    cut: CutFn,
    tally: TallyFn,
    sums: SumsFn,
}

impl Scanner {
    /// A scanner for `needles` at `level`, or at the scalar level where this machine does not have it.
    #[must_use]
    pub fn new(needles: Needles, level: Level) -> Scanner {
        let (split, cut, tally, sums): (SplitFn, CutFn, TallyFn, SumsFn) = match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 if x86::has_avx512() => {
                (x86::split_avx512, x86::cut_avx512, x86::tally_avx512, x86::sums_avx512)
            }
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 if x86::has_avx2() => (x86::split_avx2, x86::cut_avx2, x86::tally_avx2, x86::sums_avx2),
            #[cfg(target_arch = "x86_64")]
            Level::Sse2 => (x86::split_sse2, x86::cut_sse2, x86::tally_sse2, x86::sums_sse2),
            #[cfg(target_arch = "aarch64")]
            Level::Neon => (neon::split, neon::cut, neon::tally, neon::sums),
            _ => (scalar::split, scalar::cut, scalar::tally, scalar::sums),
        };
        Scanner { needles, split, cut, tally, sums }
    }

    /// Split the records of `data` that start at `from` into fields, as many as fit into `batch`.
    ///
    /// `data[..]` beyond the last line end is left alone. See [`Batch`] for what comes out.
    pub fn split(&self, data: &[u8], from: usize, batch: &mut Batch) {
        // SAFETY: `new` took a function whose instructions this machine has.
        unsafe { (self.split)(&self.needles, data, from, batch) }
    }

    /// Count the records of `data` from `from` on that have `fields` fields (at least one), up to the first one that is not
    /// beyond doubt: with another number of fields, with an escape in text, or one that is not for the kernels. What follows
    /// the last line end of `data` is left alone. What fields say is not looked at.
    #[must_use]
    pub fn tally(&self, data: &[u8], from: usize, fields: usize) -> Tally {
        // SAFETY: `new` took a function whose instructions this machine has.
        unsafe { (self.tally)(&self.needles, data, from, fields) }
    }

    /// Go on looking for the last line end in `data`; `state` says how far it was looked at.
    pub fn cut(&self, data: &[u8], state: &mut CutState) {
        // SAFETY: `new` took a function whose instructions this machine has.
        unsafe { (self.cut)(&self.needles, data, state) }
    }
}
