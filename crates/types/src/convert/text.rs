//! text, json, varchar, bpchar, "char" and bytea: the bytes of the field.
//!
//! Lengths are in characters. A field that is short enough in bytes is also short enough in characters, which decides
//! most fields. Otherwise characters are counted if this needs no table of the encoding. A longer text may still be
//! valid after its trailing blanks are removed. varchar's and bpchar's input functions decide that.

use super::{Datum, digits, varlena};
use crate::arena::Arena;
use pg_bulk_text::json_text::Charset;
use pg_bulk_text::json_text::{self, Check};

/// Number of characters; `None` if counting them needs the encoding's tables.
#[inline]
fn characters(bytes: &[u8], charset: Charset) -> Option<usize> {
    match charset {
        Charset::SingleByte => Some(bytes.len()),
        // In valid UTF-8, every byte but a continuation byte starts a character.
        Charset::Utf8 => Some(bytes.iter().filter(|&&b| b & 0xc0 != 0x80).count()),
        Charset::MultiByte => bytes.is_ascii().then_some(bytes.len()),
    }
}

/// varchar(n)
#[inline]
pub(super) fn varchar(field: &[u8], max_chars: usize, charset: Charset, arena: &mut Arena) -> Option<Datum> {
    if !fits(field, max_chars, charset) {
        return None;
    }
    varlena::copy(field, arena)
}

/// Whether a field certainly has at most `max_chars` characters.
#[inline(always)]
pub(super) fn fits(field: &[u8], max_chars: usize, charset: Charset) -> bool {
    field.len() <= max_chars || characters(field, charset).is_some_and(|n| n <= max_chars)
}

/// Whether a field certainly has exactly `chars` characters.
#[inline(always)]
pub(super) fn fills(field: &[u8], chars: usize, charset: Charset) -> bool {
    field.len() == chars && (charset == Charset::SingleByte || field.is_ascii())
}

/// bpchar(n): blank-padded to n characters.
#[inline]
pub(super) fn bpchar(field: &[u8], chars: usize, charset: Charset, arena: &mut Arena) -> Option<Datum> {
    let characters = if field.is_ascii() { field.len() } else { characters(field, charset)? };
    let padding = chars.checked_sub(characters)?;
    let (datum, body) = varlena::alloc(field.len() + padding, arena)?;
    let (text, blanks) = body.split_at_mut_checked(field.len())?;
    text.copy_from_slice(field);
    blanks.fill(b' ');
    Some(datum)
}

/// "char": one byte. From 16 on, a backslash may start an octal escape. A byte above ASCII is sign-extended.
#[inline]
pub(super) fn char(field: &[u8]) -> Option<Datum> {
    match *field {
        [b] if b.is_ascii() && b != b'\\' => Some(Datum::from(b)),
        _ => None,
    }
}

/// bytea: `\x` and pairs of hexadecimal digits, or the bytes of a field without backslashes. byteain itself also accepts
/// white space between the pairs, and the older form with backslash escapes.
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

/// json: the text itself, if it is valid JSON.
#[inline]
pub(super) fn json(field: &[u8], arena: &mut Arena) -> Option<Datum> {
    json_text::parse(field, &mut Check)?;
    varlena::copy(field, arena)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{body, varlena_bytes};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_header_counts_itself() {
        let mut a = Arena::new();
        assert_eq!(varlena_bytes(varlena::copy(b"abc", &mut a).unwrap()), b"\x1c\0\0\0abc");
        assert_eq!(varlena_bytes(varlena::copy(b"", &mut a).unwrap()), b"\x10\0\0\0");
    }

    #[test]
    fn lengths_are_in_characters() {
        let a = &mut Arena::new();
        use Charset::{MultiByte, SingleByte, Utf8};
        for (text, n, charset, fits) in [
            ("", 1, Utf8, true),
            ("abc", 3, Utf8, true),
            ("abcd", 3, Utf8, false),
            ("abc ", 3, Utf8, false),
            ("äöü", 3, Utf8, true),
            ("äöüß", 3, Utf8, false),
            ("日本語", 3, Utf8, true),
            ("🦀🦀", 1, Utf8, false),
            ("äöü", 3, SingleByte, false),
            ("äöü", 6, SingleByte, true),
            ("äöü", 6, MultiByte, true),
            ("äöü", 3, MultiByte, false),
            ("abc", 3, MultiByte, true),
            ("abcd", 3, MultiByte, false),
        ] {
            let v = varchar(text.as_bytes(), n, charset, a).map(body);
            assert_eq!(v, fits.then(|| text.as_bytes().to_vec()), "varchar({n}) {text}");
            // Padding needs the exact count, not only an upper bound.
            let fits = fits && (charset != MultiByte || text.is_ascii());
            let v = bpchar(text.as_bytes(), n, charset, a).map(body);
            let chars = if charset == Utf8 { text.chars().count() } else { text.len() };
            let padded = || [text.as_bytes(), " ".repeat(n - chars).as_bytes()].concat();
            assert_eq!(v, fits.then(padded), "bpchar({n}) {text}");
        }
    }

    #[test]
    fn one_plain_byte() {
        assert_eq!(char(b"x"), Some(0x78));
        assert_eq!(char(b" "), Some(0x20));
        for t in [&b""[..], b"\\", b"\\101", b"ab", b"\xe4"] {
            assert_eq!(char(t), None, "{t:?}");
        }
    }

    #[test]
    fn bytea_accepted() {
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
    fn bytea_refused() {
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
        fn bytea_round_trip(v in prop::collection::vec(any::<u8>(), 0..40)) {
            let a = &mut Arena::new();
            let text = v.iter().fold("\\x".to_owned(), |t, b| t + &format!("{b:02x}"));
            prop_assert_eq!(bytea(text.as_bytes(), a).map(body), Some(v));
        }

        #[test]
        fn varchar_is_chars_count(text in ".{0,20}", n in 1..20usize) {
            let a = &mut Arena::new();
            let fits = text.chars().count() <= n;
            prop_assert_eq!(varchar(text.as_bytes(), n, Charset::Utf8, a).is_some(), fits);
            let padded = bpchar(text.as_bytes(), n, Charset::Utf8, a).map(body);
            prop_assert_eq!(padded, fits.then(|| format!("{text:n$}").into_bytes()));
        }
    }
}
