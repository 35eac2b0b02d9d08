//! Records with fields at fixed offsets.
//!
//! ```text
//!   0000042Ada Lovelace    1815-12-10
//!   |      |               |
//!   slice  slice           slice        start and length; slices may overlap and need not cover the record
//! ```
//!
//! Starts and lengths count bytes, or characters ([`crate::dialect::LineContent`]). Then the caller finds the
//! characters of a record that [is not ASCII](is_plain), and takes the bytes from the start of one to that of another.
//!
//! A record must have the expected length; any other length is an error. Trimming would hide missing bytes, and surplus
//! bytes suggest that fields have moved. A slice of bytes that cuts a character is invalid in its encoding, and the
//! reader of the slice reports that.

use crate::number::Number;

/// The ends of a slice from which blanks are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trim {
    /// Neither end.
    None,
    /// The start.
    Left,
    /// The end. Zero bytes, with which C pads strings, are removed there, too.
    Right,
    /// Both ends.
    Both,
}

/// Position of a field in a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// Number of bytes or characters before it.
    pub start: usize,
    /// Number of its bytes or characters.
    pub length: usize,
    /// The ends that are trimmed.
    pub trim: Trim,
    /// The field is a binary number of this kind, not text.
    pub number: Option<Number>,
    /// The value that means NULL.
    pub null: Option<Vec<u8>>,
}

impl Slice {
    /// Offset of the slice's end in the record.
    #[must_use]
    pub fn end(&self) -> usize {
        self.start.saturating_add(self.length)
    }

    /// Returns the trimmed bytes of the slice in a record that is long enough.
    #[inline]
    #[must_use]
    pub fn of<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        self.trimmed(record.get(self.start..self.end()).unwrap_or_default())
    }

    /// Returns the trimmed bytes of the slice in a record whose characters start at these offsets.
    #[must_use]
    pub fn of_characters<'a>(&self, record: &'a [u8], starts: &[usize]) -> &'a [u8] {
        let offset = |character: usize| starts.get(character).copied().unwrap_or(record.len());
        self.trimmed(record.get(offset(self.start)..offset(self.end())).unwrap_or_default())
    }

    #[inline]
    fn trimmed<'a>(&self, mut bytes: &'a [u8]) -> &'a [u8] {
        if matches!(self.trim, Trim::Right | Trim::Both) {
            while let [rest @ .., b' ' | 0] = bytes {
                bytes = rest;
            }
        }
        if matches!(self.trim, Trim::Left | Trim::Both) {
            while let [b' ', rest @ ..] = bytes {
                bytes = rest;
            }
        }
        bytes
    }

    /// Whether this value means NULL.
    #[inline]
    #[must_use]
    pub fn is_null(&self, value: &[u8]) -> bool {
        self.null.as_deref() == Some(value)
    }
}

/// An error in a record's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misfit {
    /// The record ends before the end of this slice.
    Lacks(usize),
    /// The record contains all slices but ends too early.
    TooShort,
    /// The record has surplus bytes.
    TooLong,
}

/// The slices of a record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    slices: Vec<Option<Slice>>,
    length: usize,
}

impl Layout {
    /// Creates a layout for records of `length` bytes; by default they end with the last slice. A column without a
    /// slice is absent from all records.
    #[must_use]
    pub fn new(slices: Vec<Option<Slice>>, length: Option<usize>) -> Layout {
        let last = slices.iter().flatten().map(Slice::end).max();
        Layout { slices, length: length.or(last).unwrap_or(0) }
    }

    /// Length of each record, in bytes or characters.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// The slices.
    #[must_use]
    pub fn slices(&self) -> &[Option<Slice>] {
        &self.slices
    }

    /// Checks the length of a record, in bytes or characters.
    #[inline]
    pub fn check(&self, length: usize) -> Result<(), Misfit> {
        if length == self.length {
            return Ok(());
        }
        if length > self.length {
            return Err(Misfit::TooLong);
        }
        let lacks = |slice: &Option<Slice>| slice.as_ref().is_some_and(|slice| slice.end() > length);
        Err(self.slices.iter().position(lacks).map_or(Misfit::TooShort, Misfit::Lacks))
    }
}

/// Whether slices of this record are valid in any encoding that contains ASCII.
#[inline]
#[must_use]
pub fn is_plain(record: &[u8]) -> bool {
    record.is_ascii() && memchr::memchr(0, record).is_none()
}

/// Sets `starts` to the offsets at which the first `most` characters of a record in UTF-8 start. A byte that belongs to no
/// character counts as one. Returns the number of all.
pub fn utf8_starts(record: &[u8], most: usize, starts: &mut Vec<usize>) -> usize {
    starts.clear();
    let (mut offset, mut count) = (0, 0);
    for chunk in record.utf8_chunks() {
        let (valid, invalid) = (chunk.valid(), chunk.invalid().len());
        let ends = offset + valid.len();
        let all = valid.char_indices().map(|(at, _)| offset + at).chain(ends..ends + invalid);
        all.for_each(|start| {
            starts.extend((count < most).then_some(start));
            count += 1;
        });
        offset = ends + invalid;
    }
    count
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slice(start: usize, length: usize, trim: Trim) -> Slice {
        Slice { start, length, trim, number: None, null: None }
    }

    #[test]
    fn blanks_are_trimmed_where_it_says() {
        let record = b"xx  a b \0 yy";
        let of = |trim| slice(2, 8, trim).of(record).to_vec();
        assert_eq!(of(Trim::None), b"  a b \0 ");
        assert_eq!(of(Trim::Left), b"a b \0 ");
        assert_eq!(of(Trim::Right), b"  a b");
        assert_eq!(of(Trim::Both), b"a b");
        for trim in [Trim::Left, Trim::Right, Trim::Both] {
            assert_eq!(slice(0, 3, trim).of(b"   "), b"", "{trim:?}");
        }
        // Other white space, and leading zero bytes, belong to the value.
        assert_eq!(slice(0, 5, Trim::Both).of(b"\0a\t\n "), b"\0a\t\n");
    }

    #[test]
    fn null_is_the_whole_value() {
        let slice = Slice { null: Some(b"0".to_vec()), ..slice(0, 3, Trim::Right) };
        assert!(slice.is_null(slice.of(b"0  ")));
        assert!(!slice.is_null(slice.of(b"00 ")));
        assert!(!Slice { null: None, ..slice }.is_null(b""));
    }

    #[test]
    fn a_record_has_its_length() {
        let slices = || vec![Some(slice(4, 4, Trim::Right)), None, Some(slice(0, 6, Trim::Right))];
        let layout = Layout::new(slices(), None);
        assert_eq!(layout.length(), 8);
        let found: Vec<_> = (0..10).map(|length| layout.check(length)).collect();
        let mut expected = vec![Err(Misfit::Lacks(0)); 8];
        expected.extend([Ok(()), Err(Misfit::TooLong)]);
        assert_eq!(found, expected);
        let layout = Layout::new(slices(), Some(10));
        assert_eq!(layout.check(9), Err(Misfit::TooShort));
        assert_eq!(layout.check(7), Err(Misfit::Lacks(0)));
        let layout = Layout::new(vec![Some(slice(0, 2, Trim::Right)), Some(slice(2, 2, Trim::Right))], None);
        assert_eq!(layout.check(3), Err(Misfit::Lacks(1)));
        assert_eq!(Layout::new(Vec::new(), None).check(0), Ok(()));
        assert_eq!(Layout::new(Vec::new(), None).check(1), Err(Misfit::TooLong));
    }

    #[test]
    fn characters_of_utf8_are_counted() {
        let starts = |record: &[u8]| {
            let mut starts = vec![7];
            (utf8_starts(record, 6, &mut starts), starts)
        };
        assert_eq!(starts(b""), (0, vec![]));
        assert_eq!(starts("aé€😀b".as_bytes()), (5, vec![0, 1, 3, 6, 10]));
        // A lone byte, the start of a character that is cut, and a surrogate.
        assert_eq!(starts(b"\xe9a\xe2\x82b\xed\xa0\x80"), (8, vec![0, 1, 2, 3, 4, 5]));
        let of = |start, length| slice(start, length, Trim::Both).of_characters("é  €😀".as_bytes(), &[0, 2, 3, 4, 7]);
        assert_eq!(of(0, 2), "é".as_bytes());
        assert_eq!(of(2, 2), "€".as_bytes());
        assert_eq!(of(3, 2), "€😀".as_bytes());
        assert_eq!(of(4, 1), "😀".as_bytes());
    }

    proptest! {
        /// Compares trimming with the functions of std.
        #[test]
        fn trimmed_as_std_would(record in "[ \0ab]{0,12}", start in 0usize..6, length in 0usize..8) {
            let end = (start + length).min(record.len());
            prop_assume!(start + length <= record.len());
            let text = &record[start..end];
            let right = text.trim_end_matches([' ', '\0']);
            for (trim, expected) in [
                (Trim::None, text),
                (Trim::Left, text.trim_start_matches(' ')),
                (Trim::Right, right),
                (Trim::Both, right.trim_start_matches(' ')),
            ] {
                assert_eq!(slice(start, length, trim).of(record.as_bytes()), expected.as_bytes());
            }
        }
    }
}
