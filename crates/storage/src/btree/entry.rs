//! Entries of an index: a key and its row.
//!
//! Entries are ordered as a B-tree's leaf items: by key, and among equal keys by TID.
#![allow(unsafe_code, reason = "entries are written to files and read back as bytes")]

use std::cmp::Ordering;
use std::fmt::Debug;
use std::ops::{BitAnd, BitOr, BitXor, Not, Shl, Shr};
use std::slice;

/// The integer type of a key: u64, or u128 if the key does not fit.
pub trait Word:
    Copy
    + Default
    + Ord
    + Debug
    + Send
    + Sync
    + 'static
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + BitXor<Output = Self>
    + Not<Output = Self>
    + Shl<u32, Output = Self>
    + Shr<u32, Output = Self>
    + sealed::Sealed
{
    /// Number of bits.
    const BITS: u32;

    /// Converts the low bits of a number.
    #[must_use]
    fn from_u128(number: u128) -> Self;

    /// Converts a number that fits into each word type.
    #[must_use]
    fn from_u64(number: u64) -> Self;

    /// Returns the number.
    #[must_use]
    fn to_u128(self) -> u128;

    /// Returns the low bits.
    #[must_use]
    fn to_u64(self) -> u64;

    /// Number of zero bits above the highest bit that is set.
    #[must_use]
    fn leading_zeros(self) -> u32;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u64 {}
    impl Sealed for u128 {}
}

macro_rules! word {
    ($type:ty) => {
        impl Word for $type {
            const BITS: u32 = <$type>::BITS;

            #[inline(always)]
            fn from_u128(number: u128) -> Self {
                number as $type
            }

            #[inline(always)]
            fn from_u64(number: u64) -> Self {
                <$type>::from(number)
            }

            #[inline(always)]
            fn to_u128(self) -> u128 {
                u128::from(self)
            }

            #[inline(always)]
            fn to_u64(self) -> u64 {
                self as u64
            }

            #[inline(always)]
            fn leading_zeros(self) -> u32 {
                self.leading_zeros()
            }
        }
    };
}

word!(u64);
word!(u128);

/// Position of a row: block number and offset number, in the order of ItemPointerCompare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Tid(u64);

impl Tid {
    /// Creates a TID.
    #[inline(always)]
    #[must_use]
    pub const fn new(block: u32, offset: u16) -> Self {
        Self((block as u64) << 16 | offset as u64)
    }

    /// Block number.
    #[inline(always)]
    #[must_use]
    pub const fn block(self) -> u32 {
        (self.0 >> 16) as u32
    }

    /// Offset number.
    #[inline(always)]
    #[must_use]
    pub const fn offset(self) -> u16 {
        self.0 as u16
    }

    /// Returns both numbers in 48 bits, the block number first.
    #[inline(always)]
    #[must_use]
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// Converts the result of [`Self::to_u64`].
    #[inline(always)]
    #[must_use]
    pub const fn from_u64(place: u64) -> Self {
        Self(place & 0xffff_ffff_ffff)
    }

    /// Returns an ItemPointerData: the halves of the block number, high one first, and the offset number.
    #[inline(always)]
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 6] {
        let (high, low) = (((self.0 >> 32) as u16).to_ne_bytes(), ((self.0 >> 16) as u16).to_ne_bytes());
        let offset = (self.0 as u16).to_ne_bytes();
        [high[0], high[1], low[0], low[1], offset[0], offset[1]]
    }

    /// Converts an ItemPointerData.
    #[inline(always)]
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 6]) -> Self {
        let [a, b, c, d, e, f] = bytes;
        let (high, low) = (u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d]));
        Self((high as u64) << 32 | (low as u64) << 16 | u16::from_ne_bytes([e, f]) as u64)
    }
}

/// A key and its row. 16 bytes with a key of 64 bits, 24 with one of 128. It is packed, because the alignment of the
/// longer key would waste a quarter of the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, packed(8))]
pub struct Entry<W: Word> {
    key: W,
    tid: Tid,
}

const _: () = {
    // Without padding, all bytes that are written to a file are initialized.
    assert!(size_of::<Entry<u64>>() == size_of::<u64>() + size_of::<Tid>());
    assert!(size_of::<Entry<u128>>() == size_of::<u128>() + size_of::<Tid>());
    assert!(align_of::<Entry<u64>>() == 8 && align_of::<Entry<u128>>() == 8);
};

impl<W: Word> Entry<W> {
    /// Creates an entry.
    #[inline(always)]
    #[must_use]
    pub const fn new(key: W, tid: Tid) -> Self {
        Self { key, tid }
    }

    /// Returns the key.
    #[inline(always)]
    #[must_use]
    pub fn key(self) -> W {
        self.key
    }

    /// Returns the row.
    #[inline(always)]
    #[must_use]
    pub fn tid(self) -> Tid {
        self.tid
    }

    /// Whether this entry is before the other one.
    #[inline(always)]
    #[must_use]
    pub fn before(self, other: Self) -> bool {
        let (a, b) = (self.key, other.key);
        a < b || (a == b && self.tid() < other.tid())
    }
}

impl<W: Word> Entry<W> {
    /// [`Self::before`] without a branch: for unpredictable results, or for loops over many entries whose result is
    /// mostly the same.
    #[inline(always)]
    #[must_use]
    pub fn is_before(self, other: Self) -> bool {
        let (a, b) = (self.key(), other.key());
        (a < b) | ((a == b) & (self.tid() < other.tid()))
    }
}

impl<W: Word> Ord for Entry<W> {
    #[inline(always)]
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key()).then_with(|| self.tid().cmp(&other.tid()))
    }
}

impl<W: Word> PartialOrd for Entry<W> {
    #[inline(always)]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }

    #[inline(always)]
    fn lt(&self, other: &Self) -> bool {
        self.before(*other)
    }
}

/// Returns entries as bytes, for a file that only this machine reads.
#[must_use]
pub fn as_bytes<W: Word>(entries: &[Entry<W>]) -> &[u8] {
    // SAFETY: entries have no padding, see above, so all of their bytes are initialized.
    unsafe { slice::from_raw_parts(entries.as_ptr().cast(), size_of_val(entries)) }
}

/// Returns the memory of entries, to read them from a file.
#[must_use]
pub fn as_bytes_mut<W: Word>(entries: &mut [Entry<W>]) -> &mut [u8] {
    // SAFETY: entries have no padding, and any bytes are a valid entry, because it consists of integers.
    unsafe { slice::from_raw_parts_mut(entries.as_mut_ptr().cast(), size_of_val(entries)) }
}
