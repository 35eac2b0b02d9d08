//! The current record and the contents of its fields.
//!
//! The kernels produce an offset and one bit for each field; this module makes values of them. A plain field is NULL,
//! the DEFAULT marker, or its bytes, perhaps within quotes. Any other field has escapes or further quotes, which are
//! removed only if the caller needs the value.

use crate::dialect::Dialect;
use crate::fixed::Trim;
use crate::refine;
use crate::scan::kernel::FLAG;

/// The contents of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// The NULL marker.
    Null,
    /// The DEFAULT marker.
    Default,
    /// The value itself.
    Plain(&'a [u8]),
    /// The raw field. [`crate::reader::Reader::unescape`] makes its value.
    Escaped(&'a [u8]),
}

/// The fields of a record, without the reader's other state, so that a loop over fields holds little.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) start: usize,
    /// End of each field, with [`FLAG`] if the field is not plain.
    pub(crate) ends: &'a [u32],
    pub(crate) dialect: &'a Dialect,
    /// Length of a delimiter, in bytes.
    pub(crate) separator: usize,
}

impl<'a> Record<'a> {
    /// Returns the contents of a field. `field` counts from 0 and is less than [`crate::reader::Reader::fields`].
    #[inline(always)]
    #[must_use]
    pub fn value(&self, field: usize) -> Value<'a> {
        let Some(&end) = self.ends.get(field) else { return Value::Null };
        let plain = end & FLAG == 0;
        let start = match field {
            0 => self.start,
            _ => self.ends.get(field - 1).map_or(0, |&e| (e & !FLAG) as usize + self.separator),
        };
        let raw = self.bytes.get(start..(end & !FLAG) as usize).unwrap_or_default();
        let d = self.dialect;
        value_of(raw, plain, d, d.is_csv())
    }

    /// Returns the contents of a field after blanks at these ends of the raw field are removed.
    #[must_use]
    pub fn trimmed(&self, field: usize, trim: Trim) -> Value<'a> {
        let Some(&end) = self.ends.get(field) else { return Value::Null };
        let raw = self.raw(field);
        let csv = self.dialect.is_csv();
        let literal = self.dialect.is_literal();
        let rest = refine::trimmed(raw, trim, !csv && !literal);
        // Quotes that were within the field may now be its first and last bytes.
        let plain = literal || (end & FLAG == 0 && rest.len() == raw.len());
        value_of(rest, plain, self.dialect, csv)
    }

    /// Returns the bytes of a field as they are in the file, with quotes and escapes. `field` as for [`Record::value`].
    #[must_use]
    pub fn raw(&self, field: usize) -> &'a [u8] {
        let Some(&end) = self.ends.get(field) else { return &[] };
        let before = field.checked_sub(1).and_then(|before| self.ends.get(before));
        let start = before.map_or(self.start, |&e| (e & !FLAG) as usize + self.separator);
        self.bytes.get(start..(end & !FLAG) as usize).unwrap_or_default()
    }

    /// Whether any field is flagged as not plain. In text such a field may have an escape that makes it invalid, which
    /// COPY finds before it converts any field.
    #[inline]
    #[must_use]
    pub fn has_escapes(&self) -> bool {
        self.ends.iter().fold(0, |all, &e| all | e) & FLAG != 0
    }
}

/// Returns the contents of a raw field. `plain`: the kernels marked the field as plain. `csv`: the dialect is CSV,
/// passed separately for loops that know it beforehand.
#[inline(always)]
pub fn value_of<'a>(raw: &'a [u8], plain: bool, d: &Dialect, csv: bool) -> Value<'a> {
    if csv {
        if plain {
            if let [first, inner @ .., _] = raw
                && *first == d.quote
            {
                return Value::Plain(inner);
            }
        } else if memchr::memchr(d.quote, raw).is_some() {
            return Value::Escaped(raw);
        }
    }
    if is_marker(raw, &d.null) {
        return Value::Null;
    }
    if let Some(default) = &d.default
        && is_marker(raw, default)
    {
        return Value::Default;
    }
    if plain || csv || memchr::memchr(b'\\', raw).is_none() { Value::Plain(raw) } else { Value::Escaped(raw) }
}

/// Whether a field equals a marker.
///
/// Two empty slices are not compared: memcmp would get the dangling address of an empty vector, and its masked load
/// from an unmapped page costs hundreds of cycles even for a length of 0.
#[inline(always)]
fn is_marker(raw: &[u8], marker: &[u8]) -> bool {
    raw.len() == marker.len() && (raw.is_empty() || raw == marker)
}
