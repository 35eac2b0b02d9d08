//! Is it valid in its encoding? The question COPY asks of every byte before it looks for lines.
//!
//! UTF-8 is answered here. PostgreSQL's rules (`pg_utf8_islegal`) and Unicode's agree: no overlong forms, no
//! surrogates, nothing above U+10FFFF. In addition a NUL is never valid. Other encodings are the extension's
//! business.

/// Length of the longest valid prefix of `bytes`.
#[must_use]
pub fn utf8_valid_up_to(bytes: &[u8]) -> usize {
    let valid = match simdutf8::compat::from_utf8(bytes) {
        Ok(_) => bytes.len(),
        Err(e) => e.valid_up_to(),
    };
    let valid_bytes = bytes.get(..valid).unwrap_or_default();
    memchr::memchr(0, valid_bytes).unwrap_or(valid)
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
}
