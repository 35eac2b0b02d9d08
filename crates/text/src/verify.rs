//! Verifies the encoding of bytes, which COPY does before it looks for lines in them.
//!
//! This module verifies UTF-8. PostgreSQL's rules (`pg_utf8_islegal`) and Unicode's agree: no overlong forms, no
//! surrogates, nothing above U+10FFFF. In addition a NUL is never valid. The extension verifies other encodings.

use std::ops::Range;

/// Number of bytes that are verified together.
const PIECE: usize = 4096;

/// Returns the length of the longest valid prefix of `bytes`.
#[must_use]
pub fn utf8_valid_up_to(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let piece = rest.get(..PIECE).unwrap_or(rest);
        if is_ascii_without_nul(piece) {
            at += piece.len();
            continue;
        }
        let nul = memchr::memchr(0, piece);
        let text = nul.and_then(|nul| piece.get(..nul)).unwrap_or(piece);
        let (valid, goes_on) = match simdutf8::compat::from_utf8(text) {
            Ok(_) => (text.len(), nul.is_none()),
            // The end of the piece cuts a character in two.
            Err(e) => (e.valid_up_to(), e.error_len().is_none() && nul.is_none() && piece.len() < rest.len()),
        };
        at += valid;
        if !goes_on {
            break;
        }
    }
    at
}

/// As [`utf8_valid_up_to`], for bytes of which those in `plain` are known to be ASCII without a NUL.
#[must_use]
pub fn utf8_valid_around(bytes: &[u8], plain: Range<usize>) -> usize {
    let (start, end) = (plain.start.min(bytes.len()), plain.end.min(bytes.len()));
    if start >= end {
        return utf8_valid_up_to(bytes);
    }
    // No character continues into ASCII, and none that begins in it continues behind it.
    let before = utf8_valid_up_to(bytes.get(..start).unwrap_or_default());
    if before < start { before } else { end + utf8_valid_up_to(bytes.get(end..).unwrap_or_default()) }
}

/// Appends `bytes` with U+FFFD in place of each NUL and each invalid sequence: bytes with which no character begins, or
/// the start of a character that does not end.
pub fn mend_utf8(bytes: &[u8], out: &mut Vec<u8>) {
    const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();
    for chunk in bytes.utf8_chunks() {
        for (i, piece) in chunk.valid().as_bytes().split(|&byte| byte == 0).enumerate() {
            if i > 0 {
                out.extend_from_slice(REPLACEMENT);
            }
            out.extend_from_slice(piece);
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice(REPLACEMENT);
        }
    }
}

/// Whether the bytes are ASCII without a NUL. Most files are, and one comparison per vector shows it.
fn is_ascii_without_nul(bytes: &[u8]) -> bool {
    // Without branches, so that the compiler vectorizes the loop.
    bytes.iter().fold(true, |all, byte| all & (byte.cast_signed() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_at_the_first_invalid_byte() {
        assert_eq!(utf8_valid_up_to("aé€😀".as_bytes()), 10);
        assert_eq!(utf8_valid_up_to(b"ab\xffc"), 2);
        assert_eq!(utf8_valid_up_to(b"ab\0c"), 2);
        assert_eq!(utf8_valid_up_to(b"ab\0\xff"), 2);
        assert_eq!(utf8_valid_up_to(b"ab\xe2\x82"), 2);
        assert_eq!(utf8_valid_up_to(b"\xed\xa0\x80"), 0);
        assert_eq!(utf8_valid_up_to(b"\xc0\x80"), 0);
    }

    fn mended(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        mend_utf8(bytes, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_is_invalid_is_replaced() {
        assert_eq!(mended("aé€😀".as_bytes()), "aé€😀");
        assert_eq!(mended(b""), "");
        assert_eq!(mended(b"a\0b\0"), "a\u{fffd}b\u{fffd}");
        assert_eq!(mended(b"\xe4b\xf6"), "\u{fffd}b\u{fffd}");
        assert_eq!(mended(b"\xe2\x82,\xf0\x9f\x98"), "\u{fffd},\u{fffd}");
        assert_eq!(mended(b"\xc0\x80\xed\xa0\x80"), "\u{fffd}".repeat(5));
    }

    /// The expected length, from std's UTF-8 check and a search for NULs.
    fn expected(bytes: &[u8]) -> usize {
        let valid = std::str::from_utf8(bytes).map_or_else(|e| e.valid_up_to(), str::len);
        bytes[..valid].iter().position(|&byte| byte == 0).unwrap_or(valid)
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many bytes")]
    fn pieces_are_no_matter() {
        let what = ["é", "€", "😀", "\0", "é\0", "x\0"].map(str::as_bytes);
        let invalid: [&[u8]; 6] = [b"\xff", b"\xe2\x82", b"\xf0\x9f\x98x", b"\xe2", b"\xed\xa0\x80", b"\xc3\xa9\xa9"];
        for what in what.iter().chain(&invalid) {
            for at in (PIECE - 5..PIECE + 2).chain(2 * PIECE - 5..2 * PIECE + 2) {
                for behind in [0, 1, PIECE - 1, PIECE] {
                    for first in ["x", "ä"] {
                        let before = [first.as_bytes(), &vec![b'x'; at]].concat();
                        let bytes = [&before, *what, &vec![b'y'; behind]].concat();
                        assert_eq!(utf8_valid_up_to(&bytes), expected(&bytes), "{what:?} {at} {behind}");
                        let plain = [first.len()..before.len(), before.len() + what.len()..bytes.len()];
                        for plain in plain {
                            assert_eq!(utf8_valid_around(&bytes, plain), expected(&bytes), "{what:?} {at} {behind}");
                        }
                    }
                }
            }
        }
    }
}
