//! Options for the position of a column in a record of fixed length.
//!
//! For a foreign table they are options of the column; for a function, an object in the list `columns`. A
//! [`SliceDraft`] collects them for one column, and [`slices`] evaluates all drafts together: a column begins where the
//! previous one ends, unless it has the option `start`.

use pg_bulk_text::dialect::LineContent;
use pg_bulk_text::fixed::{Slice, Trim};
use pg_bulk_text::line::LINE_LIMIT;
use pg_bulk_text::number::{Number, Order};

use super::key_options::KeyDraft;
use super::{CopyOptions, RecordShape};
use crate::error::Result;
use crate::server::option_value::{invalid, text, word};

/// The names of the options that a [`SliceDraft`] accepts.
pub const NAMES: &[&str] = &["start", "length", "trim", "nullif", "binary_type"];

/// Read the option `trim`.
pub fn trim(value: &[u8]) -> Result<Trim> {
    word("trim", value, &[("none", Trim::None), ("left", Trim::Left), ("right", Trim::Right), ("both", Trim::Both)])
}

/// The options of one column.
#[derive(Debug, Clone, Default)]
pub struct SliceDraft {
    /// The first option given that is valid in format `fixed` only.
    given: Option<&'static str>,
    start: Option<usize>,
    length: Option<usize>,
    trim: Option<Trim>,
    null: Option<Vec<u8>>,
    number: Option<(Number, String)>,
    /// Options for a member of a JSON object.
    pub key: KeyDraft,
}

/// Read a number of bytes or characters, at most the length of a record.
pub fn bytes(name: &str, value: &[u8]) -> Result<usize> {
    let number = text(value).parse().ok().filter(|n| (1..=LINE_LIMIT).contains(n));
    number.ok_or_else(|| invalid(format!("{name} must be a number from 1 to {LINE_LIMIT}")))
}

impl SliceDraft {
    /// Read an option; false if the name is unknown.
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
                let words = [
                    ("int_le", Number::Signed(Order::Little)),
                    ("int_be", Number::Signed(Order::Big)),
                    ("uint_le", Number::Unsigned(Order::Little)),
                    ("uint_be", Number::Unsigned(Order::Big)),
                    ("float_le", Number::Float(Order::Little)),
                    ("float_be", Number::Float(Order::Big)),
                ];
                self.number = Some((word(name, value, &words)?, text(value).to_ascii_lowercase()));
            }
            _ => self.null = Some(value.to_vec()),
        }
        Ok(true)
    }

    /// The number format for `length` bytes, in a file with these options.
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

/// The slices of these columns, by name, in a file with these options. None for a column in a file of another format.
pub fn slices(copy: &CopyOptions, drafts: Vec<(String, SliceDraft)>) -> Result<Vec<Option<Slice>>> {
    let mut before = 0usize;
    let mut slice = |(column, draft): (String, SliceDraft)| {
        if copy.shape() != RecordShape::Fixed {
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
            null: draft.null.or_else(|| copy.fields.null().cloned()),
        };
        before = slice.end();
        match copy.dialect.record_length {
            Some(length) if before > length => {
                let (unit, units) = if copy.dialect.content == LineContent::Characters {
                    ("character", "characters")
                } else {
                    ("byte", "bytes")
                };
                let message = format!("column \"{column}\" ends at {unit} {before} of a record of {length} {units}");
                Err(invalid(message))
            }
            _ => Ok(Some(slice)),
        }
    };
    drafts.into_iter().map(&mut slice).collect()
}
