//! Short integers and numerics in one vector of sixteen bytes.
//!
//! ```text
//!  - 1 2 3 . 4 5 6 7 , x ...     the field and the bytes behind it
//!  0 0 0 0 0 1 2 3 4 5 6 7 0 0 0 0     shuffled: the point in the middle, zeros in unused bytes
//!   0   0   1   23  45  67   0   0     pairs
//!     0      123     4567      0       fours: the digits of a numeric
//! ```
//!
//! The code has no branches on the sign, the length or the position of the point, which are as good as random. Whether
//! the result is valid is one more result. Any other text is left to the decoders in [`super::integer`] and
//! [`super::numeric`], against which tests compare these.
#![allow(unsafe_code, reason = "SIMD loads and intrinsics")]

use super::numeric::NumericTypmod;
use super::{Datum, varlena};
use pg_bulk_text::scan::Level;

/// Number of bytes that are read from a field's first one on.
pub(crate) const WINDOW: usize = 32;
/// Number of bytes that are written for a datum that needs memory.
pub(crate) const SLOT: usize = 16;

/// The instructions of these decoders. A value exists only on a machine that has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words(());

impl Words {
    /// Returns them if the level has them, and this machine has the level.
    pub(crate) fn of(level: Level) -> Option<Words> {
        (level == Level::Avx2 && level.is_available()).then_some(Words(()))
    }
}

/// A decoder for short fields. It is fast only in code that is compiled for the instructions of [`Words`].
pub(crate) trait Short {
    /// Whether its datums need memory.
    const NEEDS_SLOT: bool;

    /// Returns whether the result is sure, and the datum of a window's first `len` bytes. The bytes behind them are
    /// arbitrary. If the result is not sure, the datum is still a number or the address of readable memory.
    fn decode(&self, words: Words, window: &[u8; WINDOW], len: usize, slot: &mut [u8; SLOT]) -> (bool, Datum);
}

/// A marker of at most sixteen bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marker {
    pub(crate) words: Words,
    bytes: [u8; 16],
    /// Number of bytes.
    pub(crate) len: usize,
}

impl Marker {
    /// Creates a marker; `None` if it has more than sixteen bytes.
    pub(crate) fn new(words: Words, marker: &[u8]) -> Option<Marker> {
        let mut bytes = [0; 16];
        bytes.get_mut(..marker.len())?.copy_from_slice(marker);
        Some(Marker { words, bytes, len: marker.len() })
    }

    /// Whether a window begins with the marker.
    #[inline(always)]
    pub(crate) fn begins(&self, window: &[u8; WINDOW]) -> bool {
        let equal = isa::equal(window, &self.bytes);
        let wanted = (1u32 << self.len) - 1;
        equal & wanted == wanted
    }
}

/// An integer of `BYTES` bytes: an optional minus and at most fifteen digits.
pub(crate) struct Integer<const BYTES: u8>;

impl<const BYTES: u8> Short for Integer<BYTES> {
    const NEEDS_SLOT: bool = false;

    #[inline(always)]
    fn decode(&self, words: Words, window: &[u8; WINDOW], len: usize, _: &mut [u8; SLOT]) -> (bool, Datum) {
        let (sure, value) = isa::integer(words, window, len);
        let fits = match BYTES {
            2 => value == i64::from(value as i16),
            4 => value == i64::from(value as i32),
            _ => true,
        };
        (sure & fits, value as Datum)
    }
}

/// A numeric: an optional minus, at most eight digits on either side of the point, no rounding.
pub(crate) struct Numeric {
    typmod: Option<NumericTypmod>,
    /// Whether the typmod may limit the digits before the point.
    checks: bool,
    /// The display scale, if declared, and the most decimal places.
    scale: Option<usize>,
    places: usize,
}

impl Numeric {
    pub(crate) fn new(typmod: Option<NumericTypmod>) -> Numeric {
        let scale = typmod.map(|t| t.sides().0);
        let checks = typmod.is_some_and(|t| t.sides().1 < 8);
        // The short header cannot hold a larger scale; then no result is sure.
        let fits = scale.is_none_or(|scale| scale <= super::numeric::SHORT_SCALE_MAX as usize);
        Numeric { typmod, checks, scale, places: if fits { scale.unwrap_or(8).min(8) } else { 0 } }
    }
}

impl Short for Numeric {
    const NEEDS_SLOT: bool = true;

    #[inline(always)]
    fn decode(&self, words: Words, window: &[u8; WINDOW], len: usize, slot: &mut [u8; SLOT]) -> (bool, Datum) {
        let n = isa::numeric(words, window, len);
        let scale = self.scale.unwrap_or(n.places);
        // The point is in the middle of four base-10000 digits. Zero has no digits, no sign and weight 0.
        let zero = n.digits == 0;
        let start = if zero { 1 } else { n.digits.trailing_zeros() / 16 };
        let end = if zero { 1 } else { 4 - n.digits.leading_zeros() / 16 };
        let stripped = n.digits >> (16 * start);
        let weight = 1 - start as i32;
        let size = (varlena::HEADER + 2) as u64 + 2 * u64::from(end.wrapping_sub(start) & 7);
        let header = super::numeric::short_header(n.negative & !zero, scale as u32, weight);
        let low = size << 2 | u64::from(header) << 32 | stripped << 48;
        let fits = !self.checks || zero || self.typmod.is_none_or(|t| t.holds(weight, stripped as u16));
        let sure = n.sure & (n.places <= self.places) & fits & (scale <= super::numeric::SHORT_SCALE_MAX as usize);
        *slot = (u128::from(low) | u128::from(stripped >> 16) << 64).to_le_bytes();
        (sure, varlena::address(slot))
    }
}

/// The parts of a numeric.
struct NumericParts {
    /// Four base-10000 digits, the first one lowest and the point in the middle.
    digits: u64,
    negative: bool,
    /// Number of decimal places in the text.
    places: usize,
    sure: bool,
}

#[cfg(target_arch = "x86_64")]
mod isa {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_cvtsi128_si64, _mm_loadu_si128, _mm_madd_epi16, _mm_maddubs_epi16,
        _mm_movemask_epi8, _mm_packus_epi32, _mm_set1_epi8, _mm_set1_epi16, _mm_set1_epi32, _mm_setzero_si128,
        _mm_shuffle_epi8, _mm_sub_epi8, _mm_subs_epu8,
    };

    use super::{NumericParts, WINDOW, Words};

    /// The 16 bytes from index n on are a shuffle that moves the first n bytes of a vector to its end.
    static LAST: [u8; 32] = [
        128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
        10, 11, 12, 13, 14, 15,
    ];

    #[inline(always)]
    fn load(bytes: &[u8; 16]) -> __m128i {
        // SAFETY: the load is the array; SSE2 is part of x86-64.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    /// Loads 16 bytes of the window, from its first or second byte on.
    #[inline(always)]
    fn text(window: &[u8; WINDOW], second: bool) -> __m128i {
        load(part(window, usize::from(second)))
    }

    /// Returns `N` bytes from index `at` on. The index is such that the compiler leaves out the check.
    #[inline(always)]
    fn part<const N: usize>(bytes: &[u8; 32], at: usize) -> &[u8; N] {
        bytes.get(at..).and_then(<[u8]>::first_chunk).unwrap_or(&[0; N])
    }

    /// Returns four base-10000 digits, the first one lowest, and whether all bytes were digits.
    #[inline(always)]
    fn fours(_: Words, text: __m128i, shuffle: __m128i) -> (u64, bool) {
        // SAFETY: the machine has SSE4.1, since `Words` exists.
        unsafe {
            let digits = _mm_shuffle_epi8(_mm_sub_epi8(text, _mm_set1_epi8(b'0'.cast_signed())), shuffle);
            let above = _mm_subs_epu8(digits, _mm_set1_epi8(9));
            let sure = _mm_movemask_epi8(_mm_cmpeq_epi8(above, _mm_setzero_si128())) == 0xffff;
            let pairs = _mm_maddubs_epi16(digits, _mm_set1_epi16(10 | 1 << 8));
            let fours = _mm_madd_epi16(pairs, _mm_set1_epi32(100 | 1 << 16));
            (_mm_cvtsi128_si64(_mm_packus_epi32(fours, fours)).cast_unsigned(), sure)
        }
    }

    #[inline(always)]
    pub(super) fn integer(words: Words, window: &[u8; WINDOW], len: usize) -> (bool, i64) {
        let negative = window[0] == b'-';
        let n = len.wrapping_sub(usize::from(negative));
        let (fours, digits) = fours(words, text(window, negative), load(part(&LAST, n & 15)));
        let at = |i: u32| fours >> (16 * i) & 0xffff;
        let value = ((at(0) * 10_000 + at(1)) * 100_000_000 + (at(2) * 10_000 + at(3))) as i64;
        let sign = -i64::from(negative);
        (digits & (n.wrapping_sub(1) < 15), (value ^ sign) - sign)
    }

    #[inline(always)]
    pub(super) fn numeric(words: Words, window: &[u8; WINDOW], len: usize) -> NumericParts {
        const ONES: u64 = 0x0101_0101_0101_0101;
        let negative = window[0] == b'-';
        let n = len.wrapping_sub(usize::from(negative));
        let text = text(window, negative);
        let points = bitmap(text, load(&[b'.'; 16]));
        // Without a point, the end of the number counts as its position.
        let whole = (points | 1 << (n & 15)).trailing_zeros() as usize;
        let places = n.saturating_sub(whole + 1);
        // Bytes `whole - 8..whole` and `whole + 1..n` of the text; the top bit makes a zero.
        let left = if whole > 8 { 0 } else { u64::from_le_bytes(*part(&LAST, 8 + (whole & 15))) };
        let right =
            (0x0706_0504_0302_0100 + ONES * (whole as u64 + 1)) | (0x80 * ONES).unbounded_shl(8 * places.min(8) as u32);
        let shuffle = load(&(u128::from(right) << 64 | u128::from(left)).to_le_bytes());
        let (digits, sure) = fours(words, text, shuffle);
        let sure = sure & (n < 16) & (whole <= 8) & (places <= 8) & (whole + places > 0);
        NumericParts { digits, negative, places, sure }
    }

    /// Returns a bitmap: bit i is set if byte i of the window equals byte i of `bytes`.
    #[inline(always)]
    pub(super) fn equal(window: &[u8; WINDOW], bytes: &[u8; 16]) -> u32 {
        bitmap(text(window, false), load(bytes))
    }

    /// Returns a bitmap: bit i is set if the vectors have the same byte i.
    #[inline(always)]
    fn bitmap(one: __m128i, other: __m128i) -> u32 {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(one, other)) }.cast_unsigned()
    }
}

/// Stubs for other machines, where [`Words`] do not exist.
#[cfg(not(target_arch = "x86_64"))]
mod isa {
    use super::{NumericParts, WINDOW, Words};

    pub(super) fn integer(_: Words, _: &[u8; WINDOW], _: usize) -> (bool, i64) {
        (false, 0)
    }

    pub(super) fn numeric(_: Words, _: &[u8; WINDOW], _: usize) -> NumericParts {
        NumericParts { digits: 0, negative: false, places: 0, sure: false }
    }

    pub(super) fn equal(_: &[u8; WINDOW], _: &[u8; 16]) -> u32 {
        0
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::body;
    use super::super::{integer, numeric};
    use super::*;
    use crate::arena::Arena;

    fn window(text: &[u8], behind: [u8; WINDOW]) -> [u8; WINDOW] {
        let mut window = behind;
        for (to, b) in window.iter_mut().zip(text) {
            *to = *b;
        }
        window
    }

    /// Calls a decoder from code compiled for it, as its callers are.
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn decode(words: Words, short: &impl Short, window: &[u8; WINDOW], len: usize, a: &mut Arena) -> Option<Datum> {
        let slot = a.alloc(SLOT)?.first_chunk_mut()?;
        let (sure, datum) = short.decode(words, window, len, slot);
        sure.then_some(datum)
    }

    proptest! {
        #[test]
        fn as_the_references_say(
            text in "-?[0-9]{0,16}|-?[0-9]{0,9}\\.[0-9]{0,9}|[-+0-9. ,/:]{0,18}",
            behind in prop::array::uniform32(any::<u8>()),
            (precision, scale) in (1..=30i32, 0..=12i32),
        ) {
            let Some(words) = Words::of(Level::best()) else { return Ok(()) };
            let a = &mut Arena::new();
            let t = text.as_bytes();
            let w = &window(t, behind);
            // SAFETY: `words` exists.
            let integers = unsafe {
                [
                    (decode(words, &Integer::<2>, w, t.len(), a), integer::int2(t)),
                    (decode(words, &Integer::<4>, w, t.len(), a), integer::int4(t)),
                    (decode(words, &Integer::<8>, w, t.len(), a), integer::int8(t)),
                ]
            };
            for (short, expected) in integers {
                // Sure or silent, and silent only about long or unusual texts.
                prop_assert!(short == expected || short.is_none() && (t.len() > 15 || t[0] == b'+'), "{}: {:?}", text, short);
            }
            let typmod = NumericTypmod::decode((precision << 16 | scale.min(precision)) + 4).flatten();
            for typmod in [None, typmod] {
                // SAFETY: `words` exists.
                let short = unsafe { decode(words, &Numeric::new(typmod), w, t.len(), a) }.map(body);
                let expected = numeric::numeric(t, typmod, a).map(body);
                if short.is_some() {
                    prop_assert_eq!(short, expected, "{}", text);
                } else if expected.is_some() && t.len() < 16 && t[0] != b'+' {
                    let (_, whole, fraction) = numeric::split(t).unwrap();
                    let places = typmod.map_or(8, |t| t.sides().0.min(8));
                    prop_assert!(whole.len() > 8 || fraction.len() > places, "{} is not taken", text);
                }
            }
        }

        #[test]
        fn markers(marker in "[a-c]{0,3}", text in "[a-c]{0,3}") {
            if let Some(words) = Words::of(Level::best()) {
                let w = &window(text.as_bytes(), [b'x'; WINDOW]);
                // Without inlining into such a caller it is slow, but right.
                let begins = Marker::new(words, marker.as_bytes()).unwrap().begins(w);
                prop_assert_eq!(begins, text.starts_with(&marker));
            }
        }
    }

    #[test]
    fn long_markers_are_none() {
        assert!(Marker::new(Words(()), &[0; 16]).is_some());
        assert!(Marker::new(Words(()), &[0; 17]).is_none());
    }
}
