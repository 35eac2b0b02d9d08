//! Options that say where a column is in a record of fixed length.
//!
//! A foreign table's column has them as its own options, a function's is an object among its `columns`. They are collected
//! column by column ([`SliceDraft`]), and [`slices`] makes sense of them together: a column begins where the one before it ends,
//! unless it says where.

use pg_bulk_format::fixed::{Slice, Trim};
use pg_bulk_format::line::LINE_LIMIT;
use pg_bulk_format::number::{Number, Order};

use super::copy_options::{CopyOptions, Shape};
use super::key_options::KeyDraft;
use super::option_value::{invalid, text};
use crate::error::Result;

/// The names that a [`SliceDraft`] knows.
pub const NAMES: &[&str] = &["start", "length", "trim", "nullif", "binary_type"];

/// Which end loses its blanks.
pub fn trim(value: &[u8]) -> Result<Trim> {
    match text(value).to_ascii_lowercase().as_str() {
        "none" => Ok(Trim::None),
        "left" => Ok(Trim::Left),
        "right" => Ok(Trim::Right),
        "both" => Ok(Trim::Both),
        _ => {
            let hint = "Valid values are \"none\", \"left\", \"right\", \"both\".";
            Err(invalid(format!("trim \"{}\" not recognized", text(value))).hint(hint))
        }
    }
}

/// Options of a column that are being collected.
#[derive(Debug, Clone, Default)]
pub struct SliceDraft {
    /// One that was given and has a meaning here only.
    given: Option<&'static str>,
    start: Option<usize>,
    length: Option<usize>,
    trim: Option<Trim>,
    null: Option<Vec<u8>>,
    number: Option<(Number, String)>,
    /// Those of an object's member.
    pub key: KeyDraft,
}

/// A number of bytes, which there may be in a record.
pub fn bytes(name: &str, value: &[u8]) -> Result<usize> {
    let number = text(value).parse().ok().filter(|n| (1..=LINE_LIMIT).contains(n));
    number.ok_or_else(|| invalid(format!("{name} must be a number from 1 to {LINE_LIMIT}")))
}

impl SliceDraft {
    /// Take an option; false if it is none of these.
    pub fn set(&mut self, name: &str, value: &[u8]) -> Result<bool> {
        let Some(known) = NAMES.iter().find(|known| **known == name) else { return self.key.set(name, value) };
        if !matches!(name, "trim" | "nullif") {
            self.given.get_or_insert(known);
        }
        match name {
            "start" => self.start = Some(bytes(name, value)?),
            "length" => self.length = Some(bytes(name, value)?),
            "trim" => self.trim = Some(trim(value)?),
            "binary_type" => {
                let name = text(value).to_ascii_lowercase();
                let number = match &*name {
                    "int_le" => Number::Signed(Order::Little),
                    "int_be" => Number::Signed(Order::Big),
                    "uint_le" => Number::Unsigned(Order::Little),
                    "uint_be" => Number::Unsigned(Order::Big),
                    "float_le" => Number::Float(Order::Little),
                    "float_be" => Number::Float(Order::Big),
                    _ => {
                        let hint = "Valid values are \"int_le\", \"int_be\", \"uint_le\", \"uint_be\", \"float_le\", \"float_be\".";
                        return Err(invalid(format!("binary_type \"{}\" not recognized", text(value))).hint(hint));
                    }
                };
                self.number = Some((number, name));
            }
            _ => self.null = Some(value.to_vec()),
        }
        Ok(true)
    }

    /// The kind of number that it is, of so many bytes, in a file with these options.
    fn number(&self, column: &str, length: usize, copy: &CopyOptions) -> Result<Option<Number>> {
        let Some((number, name)) = &self.number else { return Ok(None) };
        let of = format!("binary_type of column \"{column}\"");
        if self.trim.is_some() {
            return Err(invalid(format!("cannot specify both trim and {of}")));
        }
        if copy.dialect.stride().is_none() {
            // A byte of a number may be a line end.
            return Err(invalid(format!("{of} requires line_ends \"false\"")));
        }
        match number {
            Number::Float(_) if !matches!(length, 4 | 8) => {
                Err(invalid(format!("{of}: \"{name}\" requires 4 or 8 bytes, not {length}")))
            }
            _ if length > 8 => Err(invalid(format!("{of}: \"{name}\" allows at most 8 bytes, not {length}"))),
            _ => Ok(Some(*number)),
        }
    }
}

/// The slices of columns, which have these names, in a file with these options. None of a file that has no slices.
pub fn slices(copy: &CopyOptions, drafts: Vec<(String, SliceDraft)>) -> Result<Vec<Option<Slice>>> {
    let mut before = 0usize;
    let mut slice = |(column, draft): (String, SliceDraft)| {
        if copy.shape != Shape::Fixed {
            return match draft.given {
                Some(name) => Err(invalid(format!("option {name} of column \"{column}\" requires format \"fixed\""))),
                None => Ok(None),
            };
        }
        let Some(length) = draft.length else {
            return Err(invalid(format!("column \"{column}\" requires the option length in format \"fixed\"")));
        };
        let number = draft.number(&column, length, copy)?;
        let slice = Slice {
            number,
            start: draft.start.map_or(before, |start| start - 1),
            length,
            trim: if number.is_some() { Trim::None } else { draft.trim.or(copy.fields.trim()).unwrap_or(Trim::Right) },
            null: draft.null.or_else(|| copy.null.clone()),
        };
        before = slice.end();
        match copy.dialect.record_length {
            Some(length) if before > length => {
                let message = format!("column \"{column}\" ends at byte {before} of a record of {length} bytes");
                Err(invalid(message))
            }
            _ => Ok(Some(slice)),
        }
    };
    drafts.into_iter().map(&mut slice).collect()
}
