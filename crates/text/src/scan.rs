//! The structural scan: bitmaps of the special bytes, 64 bytes at a time.
//!
//! ```text
//!  bytes      1 , " a , b " , 3 \n 4 ...
//!  quote          1         1                 compare
//!  inside         1 1 1 1 1 0                 prefix xor of quote: odd number of quotes so far
//!  delimiter    1       1       1             compare
//!  ends         1             1     1         (delimiter | line end) & !inside      -> offsets
//! ```
//!
//! [`Isa`] loads 64 bytes and compares them with one byte. The algorithms in [`kernel`], [`tally`] and [`survey`] are
//! generic over it, and each instruction set has one thin file. [`Level::best`] selects one at run time. The scalar
//! twin is always built, and every test runs on every level of the machine.
//!
//! The kernels only decide unambiguous cases. They stop before a record with a carriage return where lines end in
//! newlines, a `\.`, or too many fields, and leave it to the exact reader ([`crate::line`]).
#![allow(unsafe_code, reason = "SIMD loads and intrinsics")]

mod delimiter;
pub mod kernel;
mod marks;
mod needles;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
mod skip;
mod survey;
mod tally;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::dialect::Eol;
pub use kernel::{Batch, CutState, RecordEnd};
pub use marks::Carry;
pub use needles::Needles;
pub use skip::Skipped;
use survey::Sums;
pub use survey::Survey;
pub use tally::Tally;

/// An instruction set that loads 64 bytes and compares them.
///
/// The methods may use instructions that not every machine has. So a value of the type exists only on a machine that has
/// them. The methods are fast only in code that is compiled for these instructions.
pub(crate) trait Isa: Copy {
    /// 64 loaded bytes.
    type Block: Copy;
    /// Loads 64 bytes.
    fn load(self, bytes: &[u8; 64]) -> Self::Block;
    /// Returns a bitmap: bit i is set if byte i equals `needle`.
    fn eq(self, block: Self::Block, needle: u8) -> u64;
    /// Returns a bitmap: bit i is the parity of bits 0..=i of `bits`.
    fn prefix_xor(self, bits: u64) -> u64;
    /// Whether [`Isa::compress`] is one instruction. Otherwise it must not be called.
    const COMPRESSES: bool = false;
    /// Collects the bits of `bits` at the positions set in `mask` into the low bits.
    fn compress(self, _bits: u64, _mask: u64) -> u64 {
        0
    }
}

/// [`Isa::prefix_xor`] without special instructions.
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

/// The instruction sets with kernels, the best last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Plain integer code, for all machines.
    Scalar,
    /// 128-bit vectors, on all x86-64 machines.
    Sse2,
    /// 256-bit vectors, with carry-less multiplication and bit manipulation.
    Avx2,
    /// Vectors of AArch64.
    Neon,
}

impl Level {
    /// Whether this machine supports the level.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Level::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Level::Sse2 => true,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => x86::has_avx2(),
            #[cfg(target_arch = "aarch64")]
            Level::Neon => true,
            _ => false,
        }
    }

    /// Returns the levels that this machine supports.
    #[must_use]
    pub fn available() -> Vec<Level> {
        let levels = [Level::Scalar, Level::Sse2, Level::Avx2, Level::Neon];
        levels.into_iter().filter(|level| level.is_available()).collect()
    }

    /// Returns the fastest level that this machine supports.
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

type SplitFn = unsafe fn(&Needles, &[u8], &mut Batch);
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
    /// Creates a scanner for `needles` at `level`, or at the scalar level if this machine lacks it.
    #[must_use]
    pub fn new(needles: Needles, level: Level) -> Scanner {
        let (split, cut, tally, sums): (SplitFn, CutFn, TallyFn, SumsFn) = match level {
            _ if !level.is_available() => (scalar::split, scalar::cut, scalar::tally, survey::sums),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => (x86::split_avx2, x86::cut_avx2, x86::tally_avx2, x86::sums_avx2),
            #[cfg(target_arch = "x86_64")]
            Level::Sse2 => (x86::split_sse2, x86::cut_sse2, x86::tally_sse2, survey::sums),
            #[cfg(target_arch = "aarch64")]
            Level::Neon => (neon::split, neon::cut, neon::tally, survey::sums),
            _ => (scalar::split, scalar::cut, scalar::tally, survey::sums),
        };
        Scanner { needles, split, cut, tally, sums }
    }

    /// How lines end.
    #[must_use]
    pub fn eol(&self) -> Eol {
        self.needles.eol
    }

    /// Splits the records of `data` from `from` on into fields, as many as fit into `batch`.
    ///
    /// Bytes behind the last line end of `data` are left out. See [`Batch`] for the result.
    pub fn split(&self, data: &[u8], from: usize, batch: &mut Batch) {
        (batch.len, batch.start, batch.resume, batch.odd) = (0, from, from, false);
        batch.skipped.clear();
        self.split_more(data, batch);
    }

    /// Continues [`Scanner::split`] behind the last record of `batch`, which [`Batch::add`] has added.
    pub fn split_more(&self, data: &[u8], batch: &mut Batch) {
        // SAFETY: `new` has selected a function whose instructions this machine has.
        unsafe { (self.split)(&self.needles, data, batch) }
    }

    /// Counts the records of `data` from `from` on that have `fields` fields (at least one).
    ///
    /// It stops at the first record with another number of fields, with an escape in text, or with bytes that the exact
    /// reader must read. Bytes behind the last line end of `data` are left out. The contents of fields are not
    /// examined.
    #[must_use]
    pub fn tally(&self, data: &[u8], from: usize, fields: usize) -> Tally {
        // SAFETY: `new` has selected a function whose instructions this machine has.
        unsafe { (self.tally)(&self.needles, data, from, fields) }
    }

    /// Continues the search for the last line end in `data`. `state` is that of the search so far.
    pub fn cut(&self, data: &[u8], state: &mut CutState) {
        // SAFETY: `new` has selected a function whose instructions this machine has.
        unsafe { (self.cut)(&self.needles, data, state) }
    }
}
