//! COPY's binary format: a header, and records whose fields begin with their sizes.
//!
//! ```text
//!   PGCOPY\n\377\r\n\0  flags  n  n bytes      count  size value  size value …      -1
//!   header              4      4               2      4           4                 2, where the data end
//! ```
//!
//! All numbers are in network byte order, and a size of -1 is NULL. The reader finds the end of a record by adding up
//! the sizes. It reads no byte that has not arrived yet, and accepts a size only if COPY would accept it.
//!
//! The tricky point is a broken record. COPY converts a field before it looks at the next one, so an invalid value is
//! reported before any damage behind it. Such a record is therefore returned up to the damage ([`NextItem::Broken`]).
//! [`Fields`] has the fields before the damage, and the [`Fault`] of the first field behind them.
//!
//! Messages are those of `ReceiveCopyBinaryHeader`, `NextCopyFrom` and `CopyReadBinaryAttribute`
//! (src/backend/commands/copyfromparse.c).

use crate::line::LINE_LIMIT;

/// The first bytes of the data.
pub const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";
/// Bytes of the header before its extension.
pub(crate) const HEADER: usize = SIGNATURE.len() + 8;
/// The flag of files that had OIDs, up to version 11.
const OIDS: u32 = 1 << 16;
/// Limit of a record's size, in bytes. No row can hold a larger record, although two of its fields could each be as
/// long as the limit of a line.
const RECORD_LIMIT: usize = LINE_LIMIT / 2 * 3;
/// The field count that marks the end of the data.
pub(crate) const MARKER: i16 = -1;
/// The size of NULL.
pub(crate) const NULL: i32 = -1;

/// An error in the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderError {
    /// COPY file signature not recognized
    Signature,
    /// invalid COPY file header (missing flags)
    MissingFlags,
    /// invalid COPY file header (WITH OIDS)
    Oids,
    /// unrecognized critical flags in COPY file header
    CriticalFlags,
    /// invalid COPY file header (missing length)
    MissingLength,
    /// invalid COPY file header (wrong length)
    WrongLength,
}

/// Progress of reading the header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Preamble {
    /// Nothing is read.
    Ahead,
    /// The fixed part is read; the extension has this many bytes.
    Extension(usize),
    /// The whole header is read.
    #[default]
    Passed,
}

fn word(bytes: &[u8], at: usize) -> Option<i32> {
    bytes.get(at..)?.first_chunk().map(|word| i32::from_be_bytes(*word))
}

/// Whether a record may have a value of `size` bytes at offset `at`.
#[inline]
pub(crate) fn value_fits(at: usize, size: usize) -> bool {
    size < LINE_LIMIT && at.saturating_add(size) < RECORD_LIMIT
}

/// Returns the length of the header's extension, in bytes. `bytes` are the first bytes of the file; `None` if more of
/// them are needed and `at_end` is not set.
pub fn extension(bytes: &[u8], at_end: bool) -> Result<Option<usize>, HeaderError> {
    let missing = |error| if at_end { Err(error) } else { Ok(None) };
    let Some(signature) = bytes.get(..SIGNATURE.len()) else { return missing(HeaderError::Signature) };
    if signature != SIGNATURE {
        return Err(HeaderError::Signature);
    }
    let Some(flags) = word(bytes, SIGNATURE.len()) else { return missing(HeaderError::MissingFlags) };
    let flags = flags.cast_unsigned();
    if flags & OIDS != 0 {
        return Err(HeaderError::Oids);
    }
    if flags >> 16 != 0 {
        return Err(HeaderError::CriticalFlags);
    }
    let Some(length) = word(bytes, SIGNATURE.len() + 4) else { return missing(HeaderError::MissingLength) };
    usize::try_from(length).map(Some).map_err(|_| HeaderError::MissingLength)
}

/// Returns the offset of the first record, if the first bytes of the file, `bytes`, contain the whole header.
#[must_use]
pub fn first_record(bytes: &[u8]) -> Option<u64> {
    let length = extension(bytes, true).ok()??;
    Some((HEADER + length) as u64)
}

/// The item at the start of the unread bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextItem {
    /// A record of this many bytes.
    Record(usize),
    /// The end marker.
    Marker,
    /// The start of a record or of the marker; more bytes are needed.
    Partial,
    /// A broken record; the damage is within this many first bytes.
    Broken(usize),
}

/// Looks at the start of `bytes`. `fields`: the number of fields of each record, if it is known.
#[inline]
#[must_use]
pub fn next(bytes: &[u8], fields: Option<usize>) -> NextItem {
    let Some(count) = bytes.first_chunk().map(|count| i16::from_be_bytes(*count)) else { return NextItem::Partial };
    if count == MARKER {
        return NextItem::Marker;
    }
    let count = match usize::try_from(count) {
        Ok(count) if fields.is_none_or(|fields| fields == count) => count,
        _ => return NextItem::Broken(2),
    };
    let mut at = 2;
    for _ in 0..count {
        let Some(size) = word(bytes, at) else { return NextItem::Partial };
        at += 4;
        if size != NULL {
            match usize::try_from(size) {
                Ok(size) if value_fits(at, size) => at += size,
                _ => return NextItem::Broken(at),
            }
        }
    }
    if at <= bytes.len() { NextItem::Record(at) } else { NextItem::Partial }
}

/// Why a field of a broken record cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// unexpected EOF in COPY data
    Missing,
    /// invalid field size
    Size,
    /// out of memory: Cannot enlarge string buffer containing n bytes by m more bytes.
    TooLong {
        /// n
        containing: u64,
        /// m
        more: u64,
    },
}

/// The fields of a record.
#[derive(Debug, Default)]
pub struct Fields {
    /// Start and end of each field; `None` for NULL.
    places: Vec<Option<(u32, u32)>>,
    fault: Option<Fault>,
}

impl Fields {
    /// Reads a record that must have `fields` fields. The error is the record's own count of fields.
    #[inline]
    pub fn read(&mut self, record: &[u8], fields: usize) -> Result<(), i16> {
        self.places.clear();
        self.fault = None;
        let count = record.first_chunk().map_or(0, |count| i16::from_be_bytes(*count));
        if usize::try_from(count) != Ok(fields) {
            return Err(count);
        }
        let mut at = 2;
        while self.places.len() < fields {
            let Some(size) = word(record, at) else {
                self.fault = Some(Fault::Missing);
                break;
            };
            let start = at + 4;
            if size == NULL {
                self.places.push(None);
                at = start;
                continue;
            }
            let Ok(size) = usize::try_from(size) else {
                self.fault = Some(Fault::Size);
                break;
            };
            at = start + size;
            if !value_fits(start, size) {
                let containing = if size >= LINE_LIMIT { 0 } else { start as u64 };
                self.fault = Some(Fault::TooLong { containing, more: size as u64 });
                break;
            }
            if at > record.len() {
                self.fault = Some(Fault::Missing);
                break;
            }
            self.places.push(Some((start as u32, at as u32)));
        }
        Ok(())
    }

    /// Returns the bytes of a field of the record that was read; `Some(None)` is NULL. `None` if the field is missing.
    #[inline]
    #[must_use]
    pub fn get<'a>(&self, field: usize, record: &'a [u8]) -> Option<Option<&'a [u8]>> {
        match self.places.get(field)? {
            Some((start, end)) => record.get(*start as usize..*end as usize).map(Some),
            None => Some(None),
        }
    }

    /// Returns the first missing field and its fault.
    #[must_use]
    pub fn fault(&self) -> Option<(usize, Fault)> {
        self.fault.map(|fault| (self.places.len(), fault))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(flags: u32, length: i32) -> Vec<u8> {
        [SIGNATURE, &flags.to_be_bytes(), &length.to_be_bytes()].concat()
    }

    #[test]
    fn headers() {
        assert_eq!(extension(&header(0, 0), false), Ok(Some(0)));
        assert_eq!(extension(&header(0xffff, 7), false), Ok(Some(7)));
        assert_eq!(extension(&header(0, -1), false), Err(HeaderError::MissingLength));
        assert_eq!(extension(&header(1 << 16, 0), false), Err(HeaderError::Oids));
        assert_eq!(extension(&header(3 << 16, 0), false), Err(HeaderError::Oids));
        assert_eq!(extension(&header(1 << 17, 0), false), Err(HeaderError::CriticalFlags));
        assert_eq!(extension(&header(1 << 31, 0), false), Err(HeaderError::CriticalFlags));
        assert_eq!(extension(b"PGCOPY\n\xff\n\0\0", false), Err(HeaderError::Signature));
        let whole = header(0, 0);
        for length in 0..whole.len() {
            let start = &whole[..length];
            assert_eq!(extension(start, false), Ok(None));
            let missing = match length {
                0..11 => HeaderError::Signature,
                11..15 => HeaderError::MissingFlags,
                _ => HeaderError::MissingLength,
            };
            assert_eq!(extension(start, true), Err(missing), "{length}");
        }
        // The first error in the header's order is reported.
        assert_eq!(extension(&header(1 << 17, 0)[..15], true), Err(HeaderError::CriticalFlags));
    }

    #[test]
    fn records() {
        let record = b"\0\x03\0\0\0\x02ab\xff\xff\xff\xff\0\0\0\0rest";
        assert_eq!(next(record, Some(3)), NextItem::Record(16));
        assert_eq!(next(record, None), NextItem::Record(16));
        assert_eq!(next(record, Some(2)), NextItem::Broken(2));
        for length in 0..16 {
            assert_eq!(next(&record[..length], Some(3)), NextItem::Partial, "{length}");
        }
        assert_eq!(next(b"\xff\xff", Some(3)), NextItem::Marker);
        assert_eq!(next(b"\xff\xfe", None), NextItem::Broken(2));
        assert_eq!(next(b"\0\0", Some(0)), NextItem::Record(2));
        assert_eq!(next(b"\0\x01\xff\xff\xff\xfe", Some(1)), NextItem::Broken(6));
        assert_eq!(next(b"\0\x01\x3f\xff\xff\xff", Some(1)), NextItem::Broken(6));
        assert_eq!(next(b"\0\x01\x3f\xff\xff\xf0", Some(1)), NextItem::Partial);
        assert_eq!(next(b"\0\x02\0\0\0\x01a\x7f\xff\xff\xff", Some(2)), NextItem::Broken(11));
    }

    #[test]
    fn fields() {
        let mut fields = Fields::default();
        let record = b"\0\x03\0\0\0\x02ab\xff\xff\xff\xff\0\0\0\0";
        assert_eq!(fields.read(record, 3), Ok(()));
        let all: Vec<_> = (0..4).map(|field| fields.get(field, record)).collect();
        assert_eq!(all, [Some(Some(&b"ab"[..])), Some(None), Some(Some(&b""[..])), None]);
        assert_eq!(fields.fault(), None);
        assert_eq!(fields.read(record, 2), Err(3));
        assert_eq!(fields.read(b"\xff\xfe", 2), Err(-2));
        for length in 2..16 {
            let there = match length {
                2..8 => 0,
                8..12 => 1,
                _ => 2,
            };
            assert_eq!(fields.read(&record[..length], 3), Ok(()));
            assert_eq!(fields.fault(), Some((there, Fault::Missing)), "{length}");
            assert_eq!(fields.get(there, record), None);
        }
        assert_eq!(fields.read(b"\0\x02\0\0\0\x01a\xff\xff\xff\xfe", 2), Ok(()));
        assert_eq!(fields.fault(), Some((1, Fault::Size)));
        assert_eq!(fields.read(b"\0\x01\x3f\xff\xff\xff", 1), Ok(()));
        assert_eq!(fields.fault(), Some((0, Fault::TooLong { containing: 0, more: 0x3fff_ffff })));
    }
}
