//! uuid in the form of uuid_out: `8-4-4-4-12` hexadecimal digits of either case.
//!
//! uuid_in itself also accepts braces, and hyphens behind any group of four digits or none at all.

use super::{Datum, digits, varlena};
use crate::arena::Arena;

/// uuid
#[inline]
pub(super) fn uuid(field: &[u8], arena: &mut Arena) -> Option<Datum> {
    let (a, rest) = field.split_first_chunk::<8>()?;
    let (&[b'-', b0, b1, b2, b3, b'-', c0, c1, c2, c3], rest) = rest.split_first_chunk::<10>()? else { return None };
    let (&[b'-', d0, d1, d2, d3, b'-', e0, e1, e2, e3], rest) = rest.split_first_chunk::<10>()? else { return None };
    let words = [
        digits::hex(a)?,
        digits::hex(&[b0, b1, b2, b3, c0, c1, c2, c3])?,
        digits::hex(&[d0, d1, d2, d3, e0, e1, e2, e3])?,
        digits::hex(rest.try_into().ok()?)?,
    ];
    stored(words.as_flattened(), arena)
}

/// Stores the sixteen bytes of a uuid.
#[inline]
pub(super) fn stored(bytes: &[u8], arena: &mut Arena) -> Option<Datum> {
    let out = arena.alloc(bytes.len())?;
    out.copy_from_slice(bytes);
    Some(varlena::address(out))
}

#[cfg(test)]
mod tests {
    use super::super::testing::bytes_at;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn accepted() {
        let a = &mut Arena::new();
        let expected = 0xa0ee_bc99_9c0b_4ef8_bb6d_6bb9_bd38_0a11_u128.to_be_bytes();
        for t in ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"] {
            assert_eq!(uuid(t.as_bytes(), a).map(|d| bytes_at(d, 16)), Some(expected.to_vec()), "{t}");
        }
    }

    #[test]
    fn refused() {
        let a = &mut Arena::new();
        for t in "|a0eebc999c0b4ef8bb6d6bb9bd380a11|{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}|\
            a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1|a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11 |\
            a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1g|a0eebc999-c0b-4ef8-bb6d-6bb9bd380a11|\
            a0eebc99-9c0b-4ef8-bb6d6-bb9bd380a11|a0eebc99-9c0b-4ef8-bb6d-6bb9bd380\u{e9}1"
            .split('|')
        {
            assert_eq!(uuid(t.as_bytes(), a), None, "{t}");
        }
        for hyphen in [8, 13, 18, 23] {
            let mut t = *b"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
            t[hyphen] = b'0';
            assert_eq!(uuid(&t, a), None, "{t:?}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(v in any::<u128>()) {
            let h = format!("{v:032x}");
            let text = format!("{}-{}-{}-{}-{}", &h[..8], &h[8..12], &h[12..16], &h[16..20], &h[20..]);
            let a = &mut Arena::new();
            let bytes = uuid(text.as_bytes(), a).map(|d| bytes_at(d, 16));
            prop_assert_eq!(bytes, Some(v.to_be_bytes().to_vec()));
        }
    }
}
