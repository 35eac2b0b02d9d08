//! bytea: `\x` and pairs of hexadecimal digits, or the bytes of a field without backslashes.
//!
//! byteain itself also accepts white space between the pairs, and the older form with backslash escapes.

use super::{Datum, digits, varlena};
use crate::arena::Arena;

/// bytea
#[inline]
pub(super) fn bytea(field: &[u8], arena: &mut Arena) -> Option<Datum> {
    let Some(text) = field.strip_prefix(b"\\x") else {
        return if memchr::memchr(b'\\', field).is_some() { None } else { varlena::copy(field, arena) };
    };
    if !text.len().is_multiple_of(2) {
        return None;
    }
    let (datum, body) = varlena::alloc(text.len() / 2, arena)?;
    let (eights, rest) = text.as_chunks::<8>();
    let (fours, tail) = body.as_chunks_mut::<4>();
    for (to, from) in fours.iter_mut().zip(eights) {
        *to = digits::hex(from)?;
    }
    // Zero digits fill the last word.
    let mut last = [b'0'; 8];
    last.get_mut(..rest.len())?.copy_from_slice(rest);
    tail.copy_from_slice(digits::hex(&last)?.get(..tail.len())?);
    Some(datum)
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
            (&b"\\x"[..], &b""[..]),
            (b"\\x00", b"\0"),
            (b"\\xDEADbeef", b"\xde\xad\xbe\xef"),
            (b"\\xdeadbeef0102", b"\xde\xad\xbe\xef\x01\x02"),
            (b"", b""),
            (b"x41", b"x41"),
            (b"plain \xe4", b"plain \xe4"),
        ] {
            assert_eq!(bytea(t, a).map(body).as_deref(), Some(v), "{t:?}");
        }
    }

    #[test]
    fn refused() {
        let a = &mut Arena::new();
        for t in [
            "\\",
            "\\x1",
            "\\x0g",
            "\\x01 02",
            "\\x 0102",
            "\\X00",
            "a\\000",
            "a\\\\",
            "\\\\x00",
            "\\x000102030405060g",
            "\\x0g01020304050607",
        ] {
            assert_eq!(bytea(t.as_bytes(), a), None, "{t}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(v in prop::collection::vec(any::<u8>(), 0..40)) {
            let a = &mut Arena::new();
            let text = v.iter().fold("\\x".to_owned(), |t, b| t + &format!("{b:02x}"));
            prop_assert_eq!(bytea(text.as_bytes(), a).map(body), Some(v));
        }
    }
}
