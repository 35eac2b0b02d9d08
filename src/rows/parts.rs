//! Fixed-width fields: a record without delimiters, and the position of each column's value in it.
//!
//! For the reader such a record is one field, its line, which belongs to no column ([`super::line_parts`]). [`Parts`]
//! finds the fixed-width fields in it.
//!
//! The tricky point is the encoding. Positions in a record are counted in bytes of the file. So the reader returns
//! lines unconverted, and each fixed-width field is verified, or converted to the server's encoding, by itself. A line
//! of ASCII needs neither. In any other line all fields are verified, also those that the query does not use: which
//! records are valid must not depend on the columns asked for. Bytes between the fields are not verified.

use pg_bulk_text::fixed::{self, Layout, Misfit};
use pg_bulk_text::number::Number;
use pgrx::pg_sys;

use super::column::Column;
use crate::error::Result;
use crate::input::encoding::{EncodingErrors, Encodings, Treatment, invalid_bytes};
use crate::server::copy_errors;

/// The layout of the fixed-width fields, and their values in the current record.
#[derive(Debug, Default)]
pub struct Parts {
    /// For each column, in the order of [`super::row::Rows::columns`].
    layout: Layout,
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
    pub fn lay_out(&mut self, columns: &[Column], length: Option<usize>) {
        let slice = |column: &Column| {
            let mut slice = column.slice.clone()?;
            if let Some(Number::Float(order)) = slice.number
                && column.type_oid == pg_sys::FLOAT8OID
            {
                slice.number = Some(Number::Double(order));
            }
            Some(slice)
        };
        self.layout = Layout::new(columns.iter().map(slice).collect(), length);
    }

    /// Read the line of a record. An error is an error of this record. Guarded.
    pub fn read(
        &mut self,
        line: &[u8],
        encodings: &Encodings,
        columns: &[Column],
        invalid: EncodingErrors,
    ) -> Result<()> {
        if let Err(misfit) = self.layout.check(line.len()) {
            let error = match misfit {
                Misfit::Lacks(i) => copy_errors::missing_data(&columns.get(i).map_or("?".into(), Column::display_name)),
                Misfit::TooShort => copy_errors::record_too_short(),
                Misfit::TooLong => copy_errors::extra_data(),
            };
            let (is, wanted) = (line.len(), self.layout.length());
            return Err(error.detail(format!("The record has {is} bytes instead of {wanted}.")));
        }
        self.is_plain = fixed::is_plain(line);
        if self.is_plain { Ok(()) } else { self.convert(line, encodings, invalid) }
    }

    /// Convert all fields to strings in the server's encoding.
    #[cold]
    fn convert(&mut self, line: &[u8], encodings: &Encodings, invalid: EncodingErrors) -> Result<()> {
        self.ends.clear();
        self.converted.clear();
        for slice in self.layout.slices() {
            let text = slice.as_ref().filter(|slice| slice.number.is_none());
            let mut rest = text.map(|slice| slice.of(line)).unwrap_or_default();
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
