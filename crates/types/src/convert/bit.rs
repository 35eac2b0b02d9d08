//! bool, and bit(n) and varbit(n): zeros and ones of a valid length.
//!
//! The value of bits is a bit count and the bits, the first one highest, with zero bits behind the last one. A leading `b` or
//! `x`, and a wrong length, are left to bit_in and varbit_in.

use super::{Datum, varlena};
use crate::arena::Arena;

/// bool: the words of boolin, all in lower case or all in upper case. boolin itself also accepts mixed case, unique
/// prefixes (`tr`, `of`) and white space at the ends.
#[inline]
pub(super) fn bool(field: &[u8]) -> Option<Datum> {
    match field {
        b"t" | b"1" | b"true" | b"T" | b"TRUE" | b"y" | b"yes" | b"Y" | b"YES" | b"on" | b"ON" => Some(1),
        b"f" | b"0" | b"false" | b"F" | b"FALSE" | b"n" | b"no" | b"N" | b"NO" | b"off" | b"OFF" => Some(0),
        _ => None,
    }
}

/// bit(n), or bit without a length.
#[inline]
pub(super) fn bit(field: &[u8], length: Option<usize>, arena: &mut Arena) -> Option<Datum> {
    if length.is_some_and(|n| n != field.len()) {
        return None;
    }
    bits(field, arena)
}

/// varbit(n), or varbit without a length.
#[inline]
pub(super) fn varbit(field: &[u8], length: Option<usize>, arena: &mut Arena) -> Option<Datum> {
    if length.is_some_and(|n| field.len() > n) {
        return None;
    }
    bits(field, arena)
}

#[inline]
fn bits(field: &[u8], arena: &mut Arena) -> Option<Datum> {
    // The count has 32 bits, far more than the length of a field needs.
    let count = i32::try_from(field.len()).ok()?;
    let (datum, body) = varlena::alloc(4 + field.len().div_ceil(8), arena)?;
    let (length, bits) = body.split_first_chunk_mut::<4>()?;
    *length = count.to_le_bytes();
    let (eights, rest) = field.as_chunks::<8>();
    for (to, from) in bits.iter_mut().zip(eights) {
        *to = eight(from)?;
    }
    if let Some(to) = bits.get_mut(eights.len()) {
        let mut last = [b'0'; 8];
        last.get_mut(..rest.len())?.copy_from_slice(rest);
        *to = eight(&last)?;
    }
    Some(datum)
}

/// Packs eight characters into a byte.
#[inline(always)]
fn eight(text: &[u8; 8]) -> Option<u8> {
    let x = u64::from_be_bytes(*text) ^ 0x3030_3030_3030_3030;
    if x & 0xfefe_fefe_fefe_fefe != 0 {
        return None;
    }
    // Character i, bit 56 - 8i, belongs in bit 7 - i; each factor bit moves one of them to the top byte, and no two
    // products meet.
    Some((x.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8)
}

#[cfg(test)]
mod tests {
    use super::super::testing::body;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn accepted() {
        let a = &mut Arena::new();
        for (t, v) in [
            ("", &[0, 0, 0, 0][..]),
            ("1", &[1, 0, 0, 0, 0x80]),
            ("10110001", &[8, 0, 0, 0, 0xb1]),
            ("000000001", &[9, 0, 0, 0, 0, 0x80]),
        ] {
            assert_eq!(bit(t.as_bytes(), None, a).map(body).as_deref(), Some(v), "{t}");
            assert_eq!(bit(t.as_bytes(), Some(t.len()), a).map(body).as_deref(), Some(v), "{t}");
            assert_eq!(varbit(t.as_bytes(), Some(t.len() + 1), a).map(body).as_deref(), Some(v), "{t}");
        }
    }

    #[test]
    fn refused() {
        let a = &mut Arena::new();
        for t in ["b01", "B01", "x1", "012", " 01", "01 ", "0000000\u{e9}", "/", "2", "q"] {
            assert_eq!(bit(t.as_bytes(), None, a), None, "{t}");
            assert_eq!(varbit(t.as_bytes(), None, a), None, "{t}");
        }
        assert_eq!(bit(b"101", Some(4), a), None);
        assert_eq!(bit(b"101", Some(2), a), None);
        assert_eq!(varbit(b"101", Some(2), a), None);
    }

    #[test]
    fn words() {
        for (yes, no) in [("t", "f"), ("true", "false"), ("y", "n"), ("yes", "no"), ("on", "off"), ("1", "0")] {
            for (word, v) in [(yes, 1), (no, 0)] {
                assert_eq!(bool(word.as_bytes()), Some(v), "{word}");
                assert_eq!(bool(word.to_uppercase().as_bytes()), Some(v), "{word}");
            }
        }
        for t in ["", "o", "of", "tr", "True", " t", "t ", "2", "01", "null", "truee", "tf"] {
            assert_eq!(bool(t.as_bytes()), None, "{t}");
        }
    }

    proptest! {
        #[test]
        fn the_first_letter_decides(field in "[tfyno10]?(rue|alse|es|o|n|ff)?") {
            if let Some(v) = bool(field.as_bytes()) {
                prop_assert_eq!(v == 1, matches!(&*field, "on") || field.starts_with(['t', 'y', '1']));
            }
        }

        #[test]
        fn bit_by_bit(v in prop::collection::vec(any::<bool>(), 0..100)) {
            let text: Vec<u8> = v.iter().map(|&b| b'0' + u8::from(b)).collect();
            let mut expected = (v.len() as u32).to_le_bytes().to_vec();
            expected.resize(4 + v.len().div_ceil(8), 0);
            for (i, _) in v.iter().enumerate().filter(|&(_, &b)| b) {
                expected[4 + i / 8] |= 0x80 >> (i % 8);
            }
            prop_assert_eq!(bit(&text, None, &mut Arena::new()).map(body), Some(expected));
        }

        #[test]
        fn one_wrong_byte(at in 0..20usize, b in any::<u8>()) {
            let mut text = [b'1'; 20];
            text[at] = b;
            prop_assert_eq!(bit(&text, None, &mut Arena::new()).is_some(), b == b'0' || b == b'1');
        }
    }
}
