//! numeric: decimal text to NumericData.
//!
//! On disk a numeric is a varlena of base-10000 digits, aligned at the decimal point, without zero digits at either
//! end. The header of one word (short form) or two (long form) has the sign, the display scale and the weight of the
//! first digit. So the integer part and the fraction are divided into eights from the point outwards, and each eight
//! becomes two digits. No wide arithmetic is needed.
//!
//! A typmod sets the display scale and rounds half away from zero, which depends on one decimal digit only. Exponents,
//! NaN and infinities, overflow, and (from 16 on) hexadecimal and underscores are left to numeric_in.

use super::{Datum, digits, varlena};
use crate::arena::Arena;

/// The most decimal digits on either side of the point; longer numbers are rare and go to numeric_in.
const MAX_SIDE: usize = 72;
/// One digit for the carry of rounding, then both sides in base 10000, each rounded up to an even count.
const MAX_DIGITS: usize = 1 + 2 * (MAX_SIDE / 4);

/// Largest display scale of the short header.
pub(super) const SHORT_SCALE_MAX: u32 = 63;

/// Precision and scale of a numeric column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumericTypmod {
    precision: u16,
    scale: u16,
}

impl NumericTypmod {
    /// Decodes pg_attribute's typmod. `Some(None)` without one; `None` for a scale below zero or above the precision.
    pub(super) fn decode(typmod: i32) -> Option<Option<Self>> {
        // As is_valid_numeric_typmod: the header's size is added so that valid typmods are not 0.
        if typmod < varlena::HEADER as i32 {
            return Some(None);
        }
        let packed = typmod - varlena::HEADER as i32;
        let precision = (packed >> 16) as u16;
        // A signed number of eleven bits.
        let scale = u16::try_from(((packed & 0x7ff) ^ 1024) - 1024).ok()?;
        (scale <= precision).then_some(Some(NumericTypmod { precision, scale }))
    }

    /// Number of decimal places, and of digits before them.
    pub(super) fn sides(self) -> (usize, usize) {
        (usize::from(self.scale), usize::from(self.precision - self.scale))
    }

    /// Whether the precision allows a number with this weight and first digit, which is not zero.
    #[inline(always)]
    pub(super) fn holds(self, weight: i32, first: u16) -> bool {
        let in_first = 1 + i32::from(first >= 10) + i32::from(first >= 100) + i32::from(first >= 1000);
        weight * 4 + in_first <= i32::from(self.precision) - i32::from(self.scale)
    }
}

/// A parsed number, ready to be written.
pub(super) struct Number {
    digits: [u16; MAX_DIGITS],
    /// Index of the first nonzero digit.
    start: usize,
    /// Index behind the last nonzero digit.
    end: usize,
    weight: i32,
    scale: u32,
    negative: bool,
}

impl Number {
    /// Parses the text and applies the typmod if there is one.
    #[inline]
    pub(super) fn parse(field: &[u8], typmod: Option<NumericTypmod>) -> Option<Number> {
        let (negative, whole, mut fraction) = split(field)?;
        if whole.len() > MAX_SIDE || fraction.len() > MAX_SIDE || whole.len() + fraction.len() == 0 {
            return None;
        }
        let mut round_up = false;
        if let Some(t) = typmod
            && let Some((kept, cut)) = fraction.split_at_checked(usize::from(t.scale))
            && let Some(&first) = cut.first()
        {
            if !cut.iter().all(u8::is_ascii_digit) {
                return None;
            }
            round_up = first >= b'5';
            fraction = kept;
        }

        let mut n = Number { digits: [0; MAX_DIGITS], start: 0, end: 1, weight: 0, scale: 0, negative };
        if !whole.is_empty() {
            let (head, eights) = whole.as_rchunks::<8>();
            if !head.is_empty() {
                n.push(digits::at_end(head))?;
            }
            for eight in eights {
                n.push(digits::at_end(eight))?;
            }
        }
        let point = n.end;
        for eight in fraction.chunks(8) {
            n.push(digits::at_start(eight))?;
        }
        if round_up {
            n.increment(point, fraction.len())?;
        }

        n.scale = typmod.map_or(fraction.len() as u32, |t| u32::from(t.scale));
        while n.end > n.start && n.digits.get(n.end - 1) == Some(&0) {
            n.end -= 1;
        }
        while n.start < n.end && n.digits.get(n.start) == Some(&0) {
            n.start += 1;
        }
        if n.start == n.end {
            n.negative = false;
            return Some(n);
        }
        n.weight = point as i32 - 1 - n.start as i32;
        if let Some(t) = typmod
            && !t.holds(n.weight, *n.digits.get(n.start)?)
        {
            return None;
        }
        Some(n)
    }

    #[inline(always)]
    fn push(&mut self, eight: u64) -> Option<()> {
        if !digits::are_digits(eight) {
            return None;
        }
        let (a, b) = digits::fours(eight);
        let [x, y] = self.digits.get_mut(self.end..)?.first_chunk_mut::<2>()?;
        (*x, *y) = (a, b);
        self.end += 2;
        Some(())
    }

    /// Adds one unit in the last of `decimals` decimal places. The point is before digit `point`.
    #[cold]
    fn increment(&mut self, point: usize, decimals: usize) -> Option<()> {
        // The base-10000 digit of the decimal place, and the unit within it.
        let mut at = (point + decimals.div_ceil(4)).checked_sub(1)?;
        let mut add = match decimals % 4 {
            1 => 1000,
            2 => 100,
            3 => 10,
            _ => 1,
        };
        loop {
            let d = self.digits.get_mut(at)?;
            *d += add;
            if *d < 10_000 {
                return Some(());
            }
            *d -= 10_000;
            // Digit 0 is spare, so a carry never overflows.
            at = at.checked_sub(1)?;
            add = 1;
        }
    }

    #[inline(always)]
    fn is_short(&self) -> bool {
        self.scale <= SHORT_SCALE_MAX && (-64..=63).contains(&self.weight)
    }

    /// Size of the value without its varlena header, in bytes.
    #[inline(always)]
    pub(super) fn size(&self) -> usize {
        2 + 2 * usize::from(!self.is_short()) + 2 * (self.end - self.start)
    }

    /// Writes the value into `size()` bytes.
    #[inline(always)]
    pub(super) fn write(&self, out: &mut [u8]) {
        let words = if self.is_short() {
            [short_header(self.negative, self.scale, self.weight), 0]
        } else {
            [u16::from(self.negative) << 14 | self.scale as u16, self.weight as u16]
        };
        let header = if self.is_short() { &words[..1] } else { &words[..] };
        let digits = self.digits.get(self.start..self.end).unwrap_or_default();
        let (out, _) = out.as_chunks_mut::<2>();
        for (to, from) in out.iter_mut().zip(header.iter().chain(digits)) {
            *to = from.to_le_bytes();
        }
    }
}

/// Splits a field into its sign and the two sides of the point, which may be empty and are not checked.
#[inline(always)]
pub(super) fn split(field: &[u8]) -> Option<(bool, &[u8], &[u8])> {
    let (negative, body) = match field {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, field),
    };
    Some(match digits::point(body) {
        Some(at) => (negative, body.get(..at)?, body.get(at + 1..)?),
        None => (negative, body, &[]),
    })
}

/// Reads a number of at most sixteen digits on either side that needs no rounding: the result of [`Number`], without a
/// loop. `None` for all others.
#[inline(always)]
fn short(field: &[u8], typmod: Option<NumericTypmod>, arena: &mut Arena) -> Option<Datum> {
    let (negative, whole, fraction) = split(field)?;
    let scale = typmod.map_or(fraction.len(), |t| usize::from(t.scale));
    if fraction.len() > scale || scale > SHORT_SCALE_MAX as usize || whole.len() + fraction.len() == 0 {
        return None;
    }
    // Most numbers have at most eight digits on either side, and numbers of one column are alike: the branches are
    // predicted.
    let packed = if whole.len() <= 8 && fraction.len() <= 8 {
        u128::from(four(digits::at_end(whole), digits::at_start(fraction))?) << 32
    } else {
        let (w0, w1) = match whole.split_last_chunk::<8>() {
            Some((first, last)) if first.len() <= 8 => (digits::at_end(first), digits::at_end(last)),
            Some(_) => return None,
            None => (0, digits::at_end(whole)),
        };
        let (f0, f1) = match fraction.split_first_chunk::<8>() {
            Some((first, last)) if last.len() <= 8 => (digits::at_start(first), digits::at_start(last)),
            Some(_) => return None,
            None => (digits::at_start(fraction), 0),
        };
        u128::from(four(w0, w1)?) | u128::from(four(f0, f1)?) << 64
    };
    let (fits, value) = pack(packed, negative, scale as u32, typmod);
    // All bytes of the slot are written, so the size of no copy depends on the value.
    let room = arena.alloc(VALUE)?.first_chunk_mut::<VALUE>()?;
    *room = value;
    fits.then(|| varlena::address(room))
}

/// Size of the array that [`pack`] makes, in bytes.
const VALUE: usize = 24;

/// Makes the stored form of a value of eight base-10000 digits, the first one lowest and the point in their middle. The
/// flag is false if the typmod does not allow the value.
#[inline(always)]
fn pack(packed: u128, negative: bool, scale: u32, typmod: Option<NumericTypmod>) -> (bool, [u8; VALUE]) {
    // Zero has no digits, no sign and weight 0.
    let start = if packed == 0 { 3 } else { packed.trailing_zeros() / 16 };
    let end = if packed == 0 { 3 } else { 8 - packed.leading_zeros() / 16 };
    let stripped = packed >> (16 * start);
    let weight = 3 - start as i32;
    let fits = packed == 0 || typmod.is_none_or(|t| t.holds(weight, stripped as u16));
    let size = (varlena::HEADER + 2) as u64 + 2 * u64::from(end - start);
    let header = short_header(negative & (packed != 0), scale, weight);
    let low = size << 2 | u64::from(header) << 32 | (stripped as u64) << 48;
    let mut value = [0; VALUE];
    let (first, rest) = value.split_at_mut(8);
    first.copy_from_slice(&low.to_le_bytes());
    rest.copy_from_slice(&(stripped >> 16).to_le_bytes());
    (fits, value)
}

/// Converts two eights to four base-10000 digits, the first one lowest; `None` if they are not digits.
#[inline(always)]
fn four(x: u64, y: u64) -> Option<u64> {
    if !digits::are_digits(x) || !digits::are_digits(y) {
        return None;
    }
    let ((a, b), (c, d)) = (digits::fours(x), digits::fours(y));
    Some(u64::from(a) | u64::from(b) << 16 | u64::from(c) << 32 | u64::from(d) << 48)
}

/// The header word of the short form.
#[inline(always)]
pub(super) fn short_header(negative: bool, scale: u32, weight: i32) -> u16 {
    // The weight has six bits and a sign bit.
    0x8000 | u16::from(negative) << 13 | (scale as u16) << 7 | weight as u16 & 0x7f
}

/// numeric(precision, scale), or plain numeric.
#[inline]
pub(super) fn numeric(field: &[u8], typmod: Option<NumericTypmod>, arena: &mut Arena) -> Option<Datum> {
    if let Some(datum) = short(field, typmod, arena) {
        return Some(datum);
    }
    long(field, typmod, arena)
}

/// Reads numbers that are not short, and rejects invalid ones.
fn long(field: &[u8], typmod: Option<NumericTypmod>, arena: &mut Arena) -> Option<Datum> {
    let n = Number::parse(field, typmod)?;
    let (datum, body) = varlena::alloc(n.size(), arena)?;
    n.write(body);
    Some(datum)
}

#[cfg(test)]
#[path = "numeric_tests.rs"]
mod tests;
