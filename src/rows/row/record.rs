//! Finds the record of a row, and checks it.
//!
//! COPY reports some errors of a record before it converts any field, and a missing field after it has converted the
//! others. [`Rows::advance`] makes the first checks here, in COPY's order. [`Rows::check_missing`] makes the last one,
//! after the caller has converted a row that [`Rows::is_short`]. Most records need none of the checks, so rare cases
//! are in cold functions.

use std::time::Instant;

use pg_bulk_text::reader::{Record, Value};

use super::{Attention, Rows};
use crate::error::{self, Error, Result};
use crate::input::encoding::{EncodingErrors, invalid_in_server_encoding, verify_in_server_encoding};
use crate::input::stream::Advance;
use crate::rows::hive::{self, Directories};
use crate::rows::ragged::{Ragged, Remark, ShortRows};
use crate::server::copy_errors;
use crate::server::server_text::is_valid_in_server_encoding;
use crate::server::stages::Stage;

/// Records of more bytes than this get a memory check first.
pub(super) const LARGE: usize = 4 << 20;

impl Rows {
    /// Go to the next record; false at the end.
    #[inline]
    pub(super) fn find_record(&mut self) -> Result<bool> {
        loop {
            match self.stream.advance()? {
                Advance::Record if self.layout.parts.is_some() && self.is_no_record() => (),
                Advance::Record => return Ok(true),
                Advance::Header => self.take_header()?,
                Advance::End => {
                    if self.stream.ended_early() {
                        self.remark(Remark::EndMarker, 1);
                    }
                    match self.stream.next_file() {
                        Some(next) => self.switch_to_file(next)?,
                        None => return Ok(false),
                    }
                }
            }
        }
    }

    /// Go to the next record, and add the time of work for many records to the stages.
    #[cold]
    pub(super) fn find_record_timed(&mut self) -> Result<bool> {
        if self.stream.reader.has_next() {
            return self.find_record();
        }
        let read = self.stream.stages.of(Stage::Read);
        let begin = Instant::now();
        let more = self.find_record();
        let spent = begin.elapsed();
        let stages = &mut self.stream.stages;
        // The time of reading is already counted in `Read`.
        let read = stages.of(Stage::Read) - read;
        stages.add(Stage::Scan, spent.saturating_sub(read));
        more
    }

    /// Is the current line skipped, and no record?
    pub fn is_no_record(&self) -> bool {
        let line = self.stream.reader.raw_line().unwrap_or_default();
        self.layout.parts.as_ref().is_some_and(|parts| parts.skips(line))
    }

    /// The current line, if it can be shown in a message.
    pub fn line(&self) -> Option<&[u8]> {
        if self.layout.binary.is_some() {
            return None;
        }
        let line = self.reader().raw_line()?;
        let is_valid = self.layout.parts.is_none() && !self.reader().is_dirty();
        (is_valid || is_valid_in_server_encoding(line)).then_some(line)
    }

    /// Check that memory for a large record's values, about as large as the record, is available: a failed allocation
    /// later would end the process.
    #[cold]
    pub(super) fn check_memory(&self) -> Result<()> {
        let wanted = self.reader().record_len().saturating_mul(3);
        Vec::<u8>::new().try_reserve_exact(wanted).map_err(|_| error::out_of_memory())
    }

    /// Check octal and hexadecimal escapes in text format, which may make an invalid character. All fields are checked,
    /// wanted or not, but not if the table has no columns. COPY looks for a DEFAULT marker in a field before it goes to
    /// the next one (CopyReadAttributesText); a header has no markers.
    #[cold]
    pub fn check_escapes(&mut self, is_header: bool) -> Result<()> {
        let invalid = self.stream.invalid();
        if self.layout.fields == 0 || invalid == EncodingErrors::Replace {
            return Ok(());
        }
        let reader = &self.stream.reader;
        for i in 0..reader.fields() {
            if self.layout.default.is_some() && !is_header {
                self.check_default(&reader.record(), i)?;
            }
            if let Value::Escaped(raw) = reader.value(i) {
                self.values.unescaped.clear();
                if reader.unescape(raw, &mut self.values.unescaped) {
                    if invalid == EncodingErrors::Reject {
                        invalid_in_server_encoding(&self.values.unescaped).map_or(Ok(()), Err)?;
                    } else {
                        verify_in_server_encoding(&self.values.unescaped);
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes the values of columns from the directories in the path of the open file.
    pub fn find_directories(&mut self) {
        // The words of a command are no path.
        let path = if self.stream.source().is_program() { &[] } else { self.file_name.as_slice() };
        self.layout.directories = Directories::of(path, &self.layout.columns);
    }

    pub(super) fn check_record(&mut self, fields: usize) -> Result<()> {
        if let Some(column) = self.layout.directories.missing.and_then(|number| self.layout.columns.get(number)) {
            return Err(hive::missing(&self.file_name, &column.name));
        }
        if self.layout.binary.is_some() {
            return self.read_fields();
        }
        let Some(parts) = &mut self.layout.parts else {
            return if self.layout.default.is_some() { self.check_defaults(fields) } else { Ok(()) };
        };
        let line = self.stream.reader.raw_line().unwrap_or_default();
        parts.read(line, self.stream.encodings(), &self.layout.columns, self.stream.invalid())
    }

    #[cold]
    fn check_defaults(&self, fields: usize) -> Result<()> {
        let record = self.reader().record();
        (0..fields.min(self.layout.fields)).try_for_each(|field| self.check_default(&record, field))
    }

    /// Check that a field is not the DEFAULT marker while its column has no default. A field beyond the columns is
    /// another error.
    fn check_default(&self, record: &Record<'_>, field: usize) -> Result<()> {
        let Some(column) = self.layout.columns.get(..self.layout.fields).and_then(|columns| columns.get(field)) else {
            return Ok(());
        };
        let trim = column.refinement.as_ref().map(|refinement| refinement.trim);
        let value = || trim.map_or_else(|| record.value(field), |trim| record.trimmed(field, trim));
        if column.default.is_none() && !column.ignored && value() == Value::Default {
            return Err(copy_errors::unexpected_default(&column.display_name()));
        }
        Ok(())
    }

    /// Does the record lack fields? Then COPY converts those that exist and raises an error.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.reader().fields() < self.layout.required
    }

    /// Count the current record if it becomes a row with another number of fields. Once for a record.
    #[inline]
    pub fn count_ragged(&mut self) {
        if self.reader().fields() != self.layout.fields {
            self.count_ragged_record();
        }
    }

    #[cold]
    fn count_ragged_record(&mut self) {
        let is_short = self.reader().fields() < self.layout.fields;
        let is_row = if is_short { self.layout.short_rows != ShortRows::Error } else { self.layout.fields > 0 };
        if is_row {
            self.remark(if is_short { Remark::Short } else { Remark::Long }, 1);
        }
    }

    /// Count the current record if quotes within a field were dropped.
    #[inline]
    pub(super) fn remark_stray_quote(&mut self, has_one: bool) {
        if has_one && self.reader().dialect().is_csv() {
            self.remark_once(Remark::StrayQuote);
        }
    }

    /// Count the current record because of its values. Its columns may be decoded in two steps.
    #[cold]
    pub(super) fn remark_once(&mut self, remark: Remark) {
        if self.remarked != self.rows {
            self.remarked = self.rows;
            self.remark(remark, 1);
        }
    }

    /// Count the current record, or lines of it, for the notes.
    #[cold]
    pub(super) fn remark(&mut self, remark: Remark, count: u64) {
        self.stream.reader.store_line_number();
        self.ragged.count(remark, count, self.stream.file_number(), self.reader().line_number());
    }

    /// Notices about reported records of the file.
    pub fn ragged_notices(&self, ragged: &Ragged) -> Vec<Error> {
        ragged.notices(self.layout.short_rows, self.stream.files().map(|list| &**list))
    }

    /// Return an error for the first missing field, if there is one.
    pub fn check_missing(&mut self) -> Result<()> {
        self.context.attention = Attention::NONE;
        if self.layout.binary.is_some() {
            return self.check_fields();
        }
        match self.layout.columns.get(..self.layout.required).and_then(|columns| columns.get(self.reader().fields())) {
            Some(column) => Err(copy_errors::missing_data(&column.display_name())),
            None => Ok(()),
        }
    }

    /// Skip valid rows behind the current one whose values are not needed, and return their number.
    pub fn pass_by(&mut self) -> u64 {
        if self.layout.fields == 0 || self.layout.parts.is_some() || self.layout.binary.is_some() {
            return 0;
        }
        let count = self.stream.reader.pass_by(self.layout.fields);
        self.rows += count;
        count
    }
}
