//! Fixed-width fields: a record without delimiters, and the position of each column's value in it.
//!
//! For the reader such a record is one field, its line, which belongs to no column ([`super::line_parts`]). [`Parts`]
//! finds the fixed-width fields in it.
//!
//! The tricky point is the encoding. Positions in a record are counted in bytes of the file, or in characters of its
//! encoding (`units`). So the reader returns lines unconverted, and each fixed-width field is verified, or converted to the server's encoding, by itself. A line
//! of ASCII needs neither. In any other line all fields are verified, also those that the query does not use: which
//! records are valid must not depend on the columns asked for. Bytes between the fields are not verified.

use pg_bulk_text::dialect::{Dialect, LineContent};
use pg_bulk_text::fixed::{self, Layout, Misfit, Slice};
use pg_bulk_text::number::Number;
use pgrx::pg_sys;

use super::column::Column;
use crate::error::{self, Result};
use crate::input::encoding::{EncodingErrors, Encodings, Treatment, invalid_bytes};
use crate::server::copy_errors;

/// The layout of the fixed-width fields, and their values in the current record.
#[derive(Debug, Default)]
pub struct Parts {
    /// For each column, in the order of [`super::row::Rows::columns`].
    layout: Layout,
    /// Positions count characters, which may have several bytes.
    characters: bool,
    /// Where the characters of the current line start, if it is not plain and positions count characters.
    starts: Vec<usize>,
    /// The line is ASCII: values are taken from it unchanged.
    is_plain: bool,
    /// For each column, the end of its value in `converted`.
    ends: Vec<usize>,
    converted: Vec<u8>,
    /// The text form of a number.
    text: Vec<u8>,
}

impl Parts {
    /// Set the layout: a field for each of these columns, and the length of a record if the options give one.
    pub fn lay_out(&mut self, columns: &[Column], dialect: &Dialect, encodings: &Encodings) {
        self.characters = dialect.content == LineContent::Characters && encodings.max_char() > 1;
        let slice = |column: &Column| {
            let mut slice = column.slice.clone()?;
            if let Some(Number::Float(order)) = slice.number
                && column.type_oid == pg_sys::FLOAT8OID
            {
                slice.number = Some(Number::Double(order));
            }
            Some(slice)
        };
        self.layout = Layout::new(columns.iter().map(slice).collect(), dialect.record_length);
    }

    /// Find the characters of a line that is not plain, as many as a record has. Returns the number of all.
    #[cold]
    fn find_characters(&mut self, line: &[u8], encodings: &Encodings) -> Result<usize> {
        let most = self.layout.length();
        self.starts.clear();
        self.starts.try_reserve(line.len().min(most)).map_err(|_| error::out_of_memory())?;
        if encodings.is_utf8() {
            return Ok(fixed::utf8_starts(line, most, &mut self.starts));
        }
        let (mut offset, mut count) = (0, 0);
        while let Some(byte) = line.get(offset) {
            self.starts.extend((count < most).then_some(offset));
            count += 1;
            let rest = line.get(offset..).unwrap_or_default();
            offset += if byte.is_ascii() { 1 } else { encodings.hopeless_len(rest) };
        }
        Ok(count)
    }

    /// Read the line of a record. An error is an error of this record. Guarded.
    pub fn read(
        &mut self,
        line: &[u8],
        encodings: &Encodings,
        columns: &[Column],
        invalid: EncodingErrors,
    ) -> Result<()> {
        self.is_plain = fixed::is_plain(line);
        let by_character = self.characters && !self.is_plain;
        let is = if by_character { self.find_characters(line, encodings)? } else { line.len() };
        if let Err(misfit) = self.layout.check(is) {
            let error = match misfit {
                Misfit::Lacks(i) => copy_errors::missing_data(&columns.get(i).map_or("?".into(), Column::display_name)),
                Misfit::TooShort => copy_errors::record_too_short(),
                Misfit::TooLong => copy_errors::extra_data(),
            };
            let (wanted, units) = (self.layout.length(), if self.characters { "characters" } else { "bytes" });
            return Err(error.detail(format!("The record has {is} {units} instead of {wanted}.")));
        }
        if self.is_plain { Ok(()) } else { self.convert(line, encodings, invalid) }
    }

    /// Convert all fields to strings in the server's encoding.
    #[cold]
    fn convert(&mut self, line: &[u8], encodings: &Encodings, invalid: EncodingErrors) -> Result<()> {
        self.ends.clear();
        self.converted.clear();
        for slice in self.layout.slices() {
            let text = slice.as_ref().filter(|slice| slice.number.is_none());
            let of_line = |slice: &Slice| match self.characters {
                true => slice.of_characters(line, &self.starts),
                false => slice.of(line),
            };
            let mut rest = text.map(of_line).unwrap_or_default();
            if fixed::is_plain(rest) {
                self.converted.extend_from_slice(rest);
                rest = &[];
            }
            while !rest.is_empty() {
                let used = if encodings.conversion() == Treatment::Convert {
                    encodings.convert(rest, &mut self.converted)
                } else {
                    let valid = encodings.valid_up_to(rest);
                    self.converted.extend_from_slice(rest.get(..valid).unwrap_or_default());
                    valid
                };
                rest = rest.get(used..).unwrap_or_default();
                if used == 0 || (encodings.conversion() != Treatment::Convert && !rest.is_empty()) {
                    if invalid == EncodingErrors::Replace {
                        self.converted.extend_from_slice(encodings.replacement());
                        rest = rest.get(encodings.hopeless_len(rest)..).unwrap_or_default();
                        continue;
                    }
                    // With `Reject`, only invalid bytes are an error of the record. Valid characters that have no
                    // conversion end the load.
                    if invalid == EncodingErrors::Reject && encodings.valid_up_to(rest) < rest.len() {
                        let rest = rest.get(encodings.valid_up_to(rest)..).unwrap_or_default();
                        return Err(invalid_bytes(encodings.of_file(), rest));
                    }
                    return Err(encodings.raise(rest));
                }
            }
            self.ends.push(self.converted.len());
        }
        Ok(())
    }

    /// The value of a column in the line read last; None is NULL.
    #[inline]
    pub fn value<'a>(&'a mut self, column: usize, line: &'a [u8]) -> Option<&'a [u8]> {
        let slice = self.layout.slices().get(column)?.as_ref()?;
        let value = if let Some(number) = slice.number {
            self.text.clear();
            number.write(slice.of(line), &mut self.text);
            self.text.as_slice()
        } else if self.is_plain {
            slice.of(line)
        } else {
            let start = column.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
            self.converted.get(start..*self.ends.get(column)?).unwrap_or_default()
        };
        (!slice.is_null(value)).then_some(value)
    }
}
