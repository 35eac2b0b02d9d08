//! Records that are one field, their line: where each column's value is in it.
//!
//! To the reader such a record is one field, which no column takes. What is in it depends on the format: places in bytes
//! ([`Parts`]), or the members of an object ([`Objects`]). A column's value is a part of the line, and so it is made where values
//! are made that no field is for ([`super::row`]); whoever reads records of another format does nothing for it.

use pg_bulk_format::dialect::Dialect;
use pg_bulk_format::json_object;

use super::column::Column;
use super::encoding::{EncodingErrors, Encodings};
use super::objects::Objects;
use super::parts::Parts;
use crate::error::Result;

/// What a column gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Given<'a> {
    Value(&'a [u8]),
    Null,
    /// Nothing: its default, if there is one.
    Missing,
}

/// What is in a line.
#[derive(Debug)]
pub(super) enum LineParts {
    Places(Parts),
    Members(Objects),
}

impl LineParts {
    /// Of records of this dialect, if they are one field.
    pub(super) fn new(dialect: &Dialect) -> Option<LineParts> {
        if dialect.json {
            return Some(LineParts::Members(Objects::default()));
        }
        (dialect.is_lines() && !dialect.is_binary()).then(|| LineParts::Places(Parts::default()))
    }

    /// Is a line that has nothing but blanks no record?
    #[inline]
    pub(super) fn skips(&self, line: &[u8]) -> bool {
        matches!(self, LineParts::Members(_)) && json_object::is_blank(line)
    }

    /// Records have values for these columns. Guarded.
    pub(super) fn lay_out(&mut self, columns: &[Column], dialect: &Dialect, encodings: &Encodings) {
        match self {
            LineParts::Places(parts) => parts.lay_out(columns, dialect.record_length),
            LineParts::Members(objects) => objects.lay_out(columns, encodings),
        }
    }

    /// Look at the line of a record. An error is about it. Guarded.
    #[inline]
    pub(super) fn read(
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

    /// What a column gets of the line that was looked at. Guarded.
    #[inline]
    pub(super) fn value<'a>(&'a mut self, column: usize, line: &'a [u8]) -> Given<'a> {
        match self {
            LineParts::Places(parts) => parts.value(column, line).map_or(Given::Null, Given::Value),
            LineParts::Members(objects) => objects.value(column, line),
        }
    }

    /// Give back what one large record has taken.
    #[inline]
    pub(super) fn shrink(&mut self, most: usize) {
        if let LineParts::Members(objects) = self {
            objects.shrink(most);
        }
    }
}
