//! Finds the values of columns in records that consist of one field, the whole line.
//!
//! For the reader such a record is one field, which belongs to no column. The format defines how it is divided: by byte
//! positions ([`Parts`]), or as members of an object ([`Objects`]). A column's value is a part of the line, so it is
//! set along with columns that have no field ([`super::row`]). Records of other formats do not pass through this
//! module.

use pg_bulk_text::dialect::{Dialect, LineContent};
use pg_bulk_text::json_object;

use super::column::Column;
use super::objects::{Given, Objects};
use super::parts::Parts;
use super::ragged::Remark;
use crate::error::Result;
use crate::input::encoding::{EncodingErrors, Encodings};

/// The parts of a line.
#[derive(Debug)]
pub enum LineParts {
    Places(Parts),
    Members(Objects),
}

impl LineParts {
    /// Creates it for records of this dialect, if they consist of one field.
    pub fn new(dialect: &Dialect) -> Option<LineParts> {
        if dialect.content == LineContent::Object {
            return Some(LineParts::Members(Objects::default()));
        }
        (dialect.is_lines() && !dialect.is_binary()).then(|| LineParts::Places(Parts::default()))
    }

    /// Whether a line of blanks only is no record.
    #[inline]
    pub fn skips(&self, line: &[u8]) -> bool {
        matches!(self, LineParts::Members(_)) && json_object::is_blank(line)
    }

    /// Sets the columns whose values are taken from records. Guarded.
    pub fn lay_out(&mut self, columns: &[Column], dialect: &Dialect, encodings: &Encodings) {
        match self {
            LineParts::Places(parts) => parts.lay_out(columns, dialect, encodings),
            LineParts::Members(objects) => objects.lay_out(columns, encodings),
        }
    }

    /// Parses the line of a record. An error concerns this record. Guarded.
    #[inline]
    pub fn read(
        &mut self,
        line: &[u8],
        encodings: &Encodings,
        columns: &[Column],
        invalid: EncodingErrors,
    ) -> Result<()> {
        match self {
            LineParts::Places(parts) => parts.read(line, encodings, columns, invalid),
            LineParts::Members(objects) => objects.read(line),
        }
    }

    /// What is to be reported about the line that was parsed last.
    #[inline]
    pub fn remark(&self) -> Option<Remark> {
        if let LineParts::Members(objects) = self { objects.remark() } else { None }
    }

    /// Returns the value of a column in the line that was parsed last. Guarded.
    #[inline]
    pub fn value<'a>(&'a mut self, column: usize, line: &'a [u8]) -> Given<'a> {
        match self {
            LineParts::Places(parts) => parts.value(column, line).map_or(Given::Null, Given::Value),
            LineParts::Members(objects) => objects.value(column, line),
        }
    }

    /// Frees the memory of a large record.
    #[inline]
    pub fn shrink(&mut self, most: usize) {
        if let LineParts::Members(objects) = self {
            objects.shrink(most);
        }
    }
}
