//! The delimiter between the fields of a line: one character as in COPY, or a longer string.
//!
//! A delimiter of several bytes is found at its first occurrence: in `a|||b` with `||`, the third bar belongs to the
//! second field. Occurrences of some delimiters can overlap (`||`, `~|~`). Only for these, code that compares many
//! positions at a time must find out which occurrence comes first ([`Separator::overlaps`]). In server encodings, no
//! byte of a multibyte character is an ASCII character, and in UTF-8 no character begins within another. So bytes can
//! be compared at any position.

use std::fmt;

/// Length of the longest delimiter, in bytes.
pub const LONGEST: usize = 16;

/// A delimiter, at least one byte long.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Separator {
    bytes: [u8; LONGEST],
    len: u8,
    overlaps: bool,
}

impl Separator {
    /// A delimiter of one byte.
    #[must_use]
    pub const fn byte(byte: u8) -> Separator {
        let mut bytes = [0; LONGEST];
        bytes[0] = byte;
        Separator { bytes, len: 1, overlaps: false }
    }

    /// A delimiter of several bytes; `None` if it is empty or too long.
    #[must_use]
    pub fn new(string: &[u8]) -> Option<Separator> {
        let mut separator = Separator { bytes: [0; LONGEST], len: u8::try_from(string.len()).ok()?, overlaps: false };
        separator.bytes.get_mut(..string.len())?.copy_from_slice(string);
        separator.overlaps = (1..string.len()).any(|by| string.get(by..).is_some_and(|rest| string.starts_with(rest)));
        (!string.is_empty()).then_some(separator)
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len()).unwrap_or_default()
    }

    /// Number of bytes.
    #[inline(always)]
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Always false.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the separator has more than one byte.
    #[inline(always)]
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.len > 1
    }

    /// Its first byte.
    #[must_use]
    pub fn first(&self) -> u8 {
        self.bytes[0]
    }

    /// Byte `number` of the delimiter. NULs follow the last one.
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "the remainder is within")]
    pub(crate) fn at(&self, number: usize) -> u8 {
        self.bytes[number % LONGEST]
    }

    /// Whether an occurrence can begin within another one.
    #[inline(always)]
    pub(crate) fn overlaps(&self) -> bool {
        self.overlaps
    }

    /// Whether `bytes` begins with the delimiter.
    #[inline]
    #[must_use]
    pub fn begins(&self, bytes: &[u8]) -> bool {
        bytes.first() == Some(&self.bytes[0]) && (self.len == 1 || bytes.starts_with(self.bytes()))
    }

    /// Whether the delimiter contains this byte.
    #[must_use]
    pub fn has(&self, byte: u8) -> bool {
        memchr::memchr(byte, self.bytes()).is_some()
    }

    /// Whether `bytes` contains the delimiter.
    #[must_use]
    pub fn is_in(&self, bytes: &[u8]) -> bool {
        memchr::memmem::find(bytes, self.bytes()).is_some()
    }
}

impl fmt::Debug for Separator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.bytes().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_stand_in_two_places() {
        for (string, overlaps) in
            [("|", false), ("||", true), ("~|~", true), ("~|", false), ("abab", true), ("€", false)]
        {
            assert_eq!(Separator::new(string.as_bytes()).unwrap().overlaps(), overlaps, "{string}");
        }
    }

    #[test]
    fn one_to_sixteen_bytes() {
        assert_eq!(Separator::new(b""), None);
        assert_eq!(Separator::new(b"12345678901234567"), None);
        assert_eq!(Separator::new(b"1234567890123456").unwrap().bytes(), b"1234567890123456");
        assert_eq!(Separator::new(b";"), Some(Separator::byte(b';')));
        assert!(Separator::new(b"||").unwrap().begins(b"||") && !Separator::new(b"||").unwrap().begins(b"|"));
    }
}
