//! Decimal and hexadecimal digits, eight at a time in one 64-bit word.
//!
//! Text is loaded little endian, so the first character is the lowest byte. XOR with `'0'` in every byte turns digits
//! into 0..=9 and all other bytes into larger values. This word is checked and converted without a loop: adjacent
//! digits become pairs (0..=99), pairs become fours, and fours become the number. Fewer digits are shifted to the end
//! of the word (an integer) or kept at its start (a fraction), with zero digits in the other bytes.

/// `'0'` in every byte.
const ZEROS: u64 = 0x3030_3030_3030_3030;
/// The top bit of every byte.
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Loads at most the first eight bytes, the first one lowest, with zero bits above them.
#[inline(always)]
pub(super) fn load(bytes: &[u8]) -> u64 {
    if let Some(eight) = bytes.first_chunk::<8>() {
        return u64::from_le_bytes(*eight);
    }
    if let (Some(low), Some(high)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        // The two halves overlap in the middle, with equal bytes.
        let shift = 8 * (bytes.len() - 4);
        return u64::from(u32::from_le_bytes(*low)) | u64::from(u32::from_le_bytes(*high)) << shift;
    }
    match *bytes {
        [a, b, c, ..] => u64::from(a) | u64::from(b) << 8 | u64::from(c) << 16,
        [a, b] => u64::from(a) | u64::from(b) << 8,
        [a] => u64::from(a),
        [] => 0,
    }
}

/// Loads at most eight digits as the last ones of eight. Does not check them.
#[inline(always)]
pub(super) fn at_end(bytes: &[u8]) -> u64 {
    (load(bytes) ^ ZEROS).unbounded_shl(64u32.saturating_sub(8 * bytes.len() as u32))
}

/// Loads at most eight digits as the first ones of eight. Does not check them.
#[inline(always)]
pub(super) fn at_start(bytes: &[u8]) -> u64 {
    load(bytes) ^ ZEROS.unbounded_shr(64u32.saturating_sub(8 * bytes.len() as u32))
}

/// Whether all eight bytes are digits.
#[inline(always)]
pub(super) fn are_digits(x: u64) -> bool {
    // Adding 0x76 sets the top bit of bytes from ten on. A byte that carries into the next one has its own top bit set.
    (x.wrapping_add(0x7676_7676_7676_7676) | x) & HIGH == 0
}

/// Combines each byte with the next one into a two-digit number, at the position of the first.
#[inline(always)]
pub(super) fn pairs(x: u64) -> u64 {
    x.wrapping_mul(10).wrapping_add(x >> 8)
}

/// Returns the number of eight digits.
#[inline(always)]
pub(super) fn value(x: u64) -> u64 {
    const EVERY_FOURTH: u64 = 0x0000_00ff_0000_00ff;
    let p = pairs(x);
    let first = (p & EVERY_FOURTH).wrapping_mul(0x000f_4240_0000_0064);
    let second = ((p >> 16) & EVERY_FOURTH).wrapping_mul(0x0000_2710_0000_0001);
    first.wrapping_add(second) >> 32
}

/// Returns the two numbers of four digits each.
#[inline(always)]
pub(super) fn fours(x: u64) -> (u16, u16) {
    let p = pairs(x) & 0x00ff_00ff_00ff_00ff;
    let q = p.wrapping_mul(100).wrapping_add(p >> 16);
    (q as u16, (q >> 32) as u16)
}

/// Returns the position of the first decimal point.
#[inline(always)]
pub(super) fn point(body: &[u8]) -> Option<usize> {
    const POINTS: u64 = 0x2e2e_2e2e_2e2e_2e2e;
    const ONES: u64 = 0x0101_0101_0101_0101;
    // The lowest zero byte is found exactly; only bytes above it may be found wrongly.
    let find = |bytes: &[u8]| {
        let x = load(bytes) ^ POINTS;
        let hit = x.wrapping_sub(ONES) & !x & (0x80 * ONES);
        (hit != 0).then(|| hit.trailing_zeros() as usize / 8)
    };
    match body.split_first_chunk::<8>() {
        None => find(body),
        Some((head, rest)) if rest.len() <= 8 => find(head).or_else(|| find(rest).map(|at| at + 8)),
        Some(_) => memchr::memchr(b'.', body),
    }
}

/// Returns the number of 1 to 19 digits; `None` for any other text.
#[inline(always)]
pub(super) fn unsigned(digits: &[u8]) -> Option<u64> {
    match digits.len() {
        1..=8 => {
            let x = at_end(digits);
            are_digits(x).then(|| value(x))
        }
        9..=19 => {
            let (rest, last) = digits.split_last_chunk::<8>()?;
            let x = u64::from_le_bytes(*last) ^ ZEROS;
            if !are_digits(x) {
                return None;
            }
            if let Some((first, middle)) = rest.split_last_chunk::<8>() {
                let (a, b) = (at_end(first), u64::from_le_bytes(*middle) ^ ZEROS);
                // At most 999 here, so the product cannot overflow.
                (are_digits(a) && are_digits(b)).then(|| (value(a) * 100_000_000 + value(b)) * 100_000_000 + value(x))
            } else {
                let a = at_end(rest);
                are_digits(a).then(|| value(a) * 100_000_000 + value(x))
            }
        }
        _ => None,
    }
}

/// A layout of eight characters: `0` matches any digit, any other character only itself.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pattern: u64,
    /// Addend that sets the top bit of each byte that does not match, after XOR with the pattern.
    lift: u64,
}

impl Layout {
    #[expect(clippy::indexing_slicing, reason = "a loop of 8 over 8; there are no iterators in a constant")]
    pub(super) const fn new(pattern: &[u8; 8]) -> Self {
        let mut lift = [0u8; 8];
        let mut i = 0;
        while i < 8 {
            lift[i] = if pattern[i] == b'0' { 0x76 } else { 0x7f };
            i += 1;
        }
        Layout { pattern: u64::from_le_bytes(*pattern), lift: u64::from_le_bytes(lift) }
    }

    /// Returns the digits at their positions, and zero for separators; `None` if the text does not match.
    #[inline(always)]
    pub(super) fn read(self, text: &[u8; 8]) -> Option<u64> {
        let x = u64::from_le_bytes(*text) ^ self.pattern;
        ((x.wrapping_add(self.lift) | x) & HIGH == 0).then_some(x)
    }
}

/// Returns the number of two digits.
#[inline(always)]
pub(super) fn two(tens: u8, ones: u8) -> Option<u32> {
    let (t, o) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
    (t < 10 && o < 10).then(|| u32::from(t) * 10 + u32::from(o))
}

/// Converts eight hexadecimal digits of either case to four bytes.
#[inline(always)]
pub(super) fn hex(text: &[u8; 8]) -> Option<[u8; 4]> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let w = u64::from_le_bytes(*text);
    if w & HIGH != 0 {
        return None;
    }
    // The top bits are clear, so no addition below carries into the next byte.
    let digit = !((w ^ ZEROS) + 0x76 * ONES);
    let folded = (w | (0x20 * ONES)) ^ (0x60 * ONES);
    let letter = (folded + 0x7f * ONES) & !(folded + 0x79 * ONES);
    if (digit | letter) & HIGH != HIGH {
        return None;
    }
    // Only letters have bit 6, and their low four bits count from one.
    let nibbles = (w & (0x0f * ONES)) + ((w >> 6) & ONES) * 9;
    let b = ((nibbles << 4) | (nibbles >> 8)) & 0x00ff_00ff_00ff_00ff;
    let b = (b | b >> 8) & 0x0000_ffff_0000_ffff;
    Some(((b | b >> 16) as u32).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_byte_in_every_place() {
        for at in 0..8 {
            for b in 0..=255u8 {
                let mut text = *b"12345678";
                text[at] = b;
                let expected = std::str::from_utf8(&text).ok().filter(|_| b.is_ascii_digit());
                let expected = expected.and_then(|t| t.parse::<u64>().ok());
                assert_eq!(unsigned(&text), expected, "{text:?}");
                let mut text = *b"0aB9fF3c";
                text[at] = b;
                let expected = std::str::from_utf8(&text).ok().filter(|_| b.is_ascii_hexdigit());
                let expected = expected.and_then(|t| u32::from_str_radix(t, 16).ok()).map(u32::to_be_bytes);
                assert_eq!(hex(&text), expected, "{text:?}");
                let mut text = *b"20-11:59";
                text[at] = b;
                let fits = if at == 2 || at == 5 { b == b"20-11:59"[at] } else { b.is_ascii_digit() };
                assert_eq!(Layout::new(b"00-00:00").read(&text).is_some(), fits, "{text:?}");
            }
        }
    }

    #[test]
    fn load_takes_what_is_there() {
        let text = b"abcdefghij";
        for n in 0..=10 {
            let mut expected = [0u8; 8];
            expected[..n.min(8)].copy_from_slice(&text[..n.min(8)]);
            assert_eq!(load(&text[..n]).to_le_bytes(), expected);
        }
    }

    proptest! {
        #[test]
        fn unsigned_is_parse(v in 0..10_000_000_000_000_000_000u64, shift in 0..64u32, pad in 0..19usize) {
            let v = v >> shift;
            let text = format!("{v:0pad$}");
            prop_assert_eq!(unsigned(text.as_bytes()), Some(v));
        }

        #[test]
        fn unsigned_refuses_the_rest(text in "[0-9]{0,9}[^0-9][0-9]{0,9}|[0-9]{20,30}|") {
            prop_assert_eq!(unsigned(text.as_bytes()), None);
        }

        #[test]
        fn folding(d in prop::array::uniform8(0..10u8)) {
            let x = u64::from_le_bytes(d);
            let four = |d: &[u8]| d.iter().fold(0u16, |v, d| v * 10 + u16::from(*d));
            prop_assert_eq!(fours(x), (four(&d[..4]), four(&d[4..])));
            prop_assert_eq!(value(x), d.iter().fold(0, |v, d| v * 10 + u64::from(*d)));
            let text = d.map(|d| d + b'0');
            for n in 0..=8 {
                let mut kept = [0; 8];
                kept[..n].copy_from_slice(&d[..n]);
                prop_assert_eq!(at_start(&text[..n]).to_le_bytes(), kept);
                kept = [0; 8];
                kept[8 - n..].copy_from_slice(&d[..n]);
                prop_assert_eq!(at_end(&text[..n]).to_le_bytes(), kept);
            }
        }
    }
}
