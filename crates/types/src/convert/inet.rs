//! inet: an IPv4 address of four decimal octets, with or without a mask length.
//!
//! The value is the address family, the mask length and the address. cidr, IPv6, leading zeros and shorter forms are
//! left to network_in.

use super::{Datum, varlena};
use crate::arena::Arena;

/// PGSQL_AF_INET, which is AF_INET.
const FAMILY: u8 = 2;

/// inet
#[inline]
pub(super) fn inet(field: &[u8], arena: &mut Arena) -> Option<Datum> {
    let (a, rest) = number(field)?;
    let (b, rest) = number(rest.strip_prefix(b".")?)?;
    let (c, rest) = number(rest.strip_prefix(b".")?)?;
    let (d, rest) = number(rest.strip_prefix(b".")?)?;
    let bits = match rest {
        [] => 32,
        [b'/', rest @ ..] => match number(rest)? {
            (bits @ 0..=32, []) => bits,
            _ => return None,
        },
        _ => return None,
    };
    let (datum, body) = varlena::alloc(6, arena)?;
    body.copy_from_slice(&[FAMILY, bits, a, b, c, d]);
    Some(datum)
}

/// Reads a number up to 255 without leading zeros. Returns it and the bytes behind it.
#[inline(always)]
fn number(text: &[u8]) -> Option<(u8, &[u8])> {
    let (&first, mut rest) = text.split_first()?;
    let mut v = u32::from(first.wrapping_sub(b'0'));
    if v > 9 {
        return None;
    }
    while let Some((&next, behind)) = rest.split_first()
        && next.is_ascii_digit()
    {
        if v == 0 {
            return None;
        }
        v = v * 10 + u32::from(next - b'0');
        if v > 255 {
            return None;
        }
        rest = behind;
    }
    Some((v as u8, rest))
}

#[cfg(test)]
mod tests {
    use super::super::testing::varlena_bytes;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn accepted() {
        let a = &mut Arena::new();
        for (t, v) in [
            ("192.168.0.1", [40, 0, 0, 0, 2, 32, 192, 168, 0, 1]),
            ("0.0.0.0/0", [40, 0, 0, 0, 2, 0, 0, 0, 0, 0]),
            ("255.255.255.255/32", [40, 0, 0, 0, 2, 32, 255, 255, 255, 255]),
            ("10.1.2.3/8", [40, 0, 0, 0, 2, 8, 10, 1, 2, 3]),
        ] {
            assert_eq!(inet(t.as_bytes(), a).map(varlena_bytes), Some(v.to_vec()), "{t}");
        }
    }

    #[test]
    fn refused() {
        let a = &mut Arena::new();
        for t in [
            "", "1", "1.2.3", "1.2.3.4.5", "1.2.3.256", "1.2.3.4/33", "1.2.3.4/", "1.2.3.4/-1", "1.2.3.4/08",
            "01.2.3.4", "1.2.3.00", "1.2.3.4 ", " 1.2.3.4", "1.2.3.x", "1..2.3", "::1", "1.2.3.4/8/8", "1.2.3.4/300",
            "10/8", "1.2.3.4294967297",
        ] {
            assert_eq!(inet(t.as_bytes(), a), None, "{t}");
        }
    }

    proptest! {
        #[test]
        fn as_std_parses(ip in any::<[u8; 4]>(), bits in 0..=40u8, text in "[0-9]{0,4}(\\.[0-9]{0,4}){3,4}") {
            let a = &mut Arena::new();
            let t = format!("{}.{}.{}.{}/{bits}", ip[0], ip[1], ip[2], ip[3]);
            let expected = (bits <= 32).then(|| [&[40, 0, 0, 0, 2, bits], &ip[..]].concat());
            prop_assert_eq!(inet(t.as_bytes(), a).map(varlena_bytes), expected);
            let parsed = text.parse::<std::net::Ipv4Addr>().ok();
            prop_assert_eq!(inet(text.as_bytes(), a).is_some(), parsed.is_some());
        }
    }
}
