//! int2, int4, int8 and oid: an optional sign and digits.
//!
//! The input functions also accept white space at both ends and, from 16 on, hexadecimal, octal, binary and
//! underscores. Such texts are left to them. In a datum, integers are sign-extended and oid is not.

use super::{Datum, digits};

#[inline(always)]
fn signed(field: &[u8]) -> Option<i64> {
    let (negative, digits) = match field {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, field),
    };
    let v = digits::unsigned(digits)?;
    if negative { (v <= 1 << 63).then(|| v.wrapping_neg() as i64) } else { i64::try_from(v).ok() }
}

/// int2
#[inline]
pub(super) fn int2(field: &[u8]) -> Option<Datum> {
    i16::try_from(signed(field)?).ok().map(|v| v as Datum)
}

/// int4
#[inline]
pub(super) fn int4(field: &[u8]) -> Option<Datum> {
    i32::try_from(signed(field)?).ok().map(|v| v as Datum)
}

/// int8
#[inline]
pub(super) fn int8(field: &[u8]) -> Option<Datum> {
    signed(field).map(|v| v as Datum)
}

/// oid. Negative numbers, which wrap, are left to oidin. So are leading zeros, which mean octal digits from 16 on
/// (uint32in_subr, numutils.c).
#[inline]
pub(super) fn oid(field: &[u8]) -> Option<Datum> {
    if matches!(field, [b'0', _, ..]) {
        return None;
    }
    u32::try_from(digits::unsigned(field)?).ok().map(Datum::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn accepted() {
        for (text, v) in [("0", 0), ("-0", 0), ("+7", 7), ("-1", -1), ("007", 7), ("32767", 32767), ("-32768", -32768)]
        {
            let t = text.as_bytes();
            let expected = Some(v as Datum);
            assert_eq!((int2(t), int4(t), int8(t)), (expected, expected, expected), "{text}");
        }
        assert_eq!(int4(b"-2147483648"), Some(i32::MIN as Datum));
        assert_eq!(int4(b"2147483647"), Some(i32::MAX as Datum));
        assert_eq!(int8(b"-9223372036854775808"), Some(i64::MIN as Datum));
        assert_eq!(int8(b"9223372036854775807"), Some(i64::MAX as Datum));
        assert_eq!(oid(b"4294967295"), Some(4_294_967_295));
        assert_eq!(oid(b"0"), Some(0));
        // 71 up to 15, 57 from 16 on.
        assert_eq!(oid(b"0071"), None);
        assert_eq!(oid(b"+071"), None);
    }

    #[test]
    fn refused() {
        for t in [
            "",
            "-",
            "+",
            "--1",
            "+-1",
            "- 1",
            " 1",
            "1 ",
            "1.0",
            "1e3",
            "0x10",
            "1_000",
            "a",
            "1\0",
            "12/4",
            "12:4",
            "99999999999999999999",
            "9223372036854775808",
            "-9223372036854775809",
            "\u{661}",
        ] {
            let t = t.as_bytes();
            assert_eq!((int2(t), int4(t), int8(t)), (None, None, None), "{t:?}");
        }
        assert_eq!((int2(b"32768"), int2(b"-32769")), (None, None));
        assert_eq!((int4(b"2147483648"), int4(b"-2147483649")), (None, None));
        for t in ["", "-1", "+1", "4294967296", " 1", "0x1"] {
            assert_eq!(oid(t.as_bytes()), None, "{t}");
        }
    }

    proptest! {
        #[test]
        fn as_std_parses(v in any::<i64>(), shift in 0..64u32) {
            let v = v >> shift;
            let text = v.to_string();
            let t = text.as_bytes();
            prop_assert_eq!(int8(t), Some(v as Datum));
            prop_assert_eq!(int4(t), text.parse::<i32>().ok().map(|v| v as Datum));
            prop_assert_eq!(int2(t), text.parse::<i16>().ok().map(|v| v as Datum));
            prop_assert_eq!(oid(t), text.parse::<u32>().ok().map(Datum::from));
        }
    }
}
