//! The record that a row is made of: how it is found, and what is checked of it.
//!
//! COPY complains about some records before it converts anything of them, and about one that lacks fields once those that it has are
//! converted. The former is what [`Rows::advance`] asks here, in COPY's order; the latter is [`Rows::check_missing`], for who has
//! converted a row that [`Rows::is_short`]. Most records need none of it, so what is rare is kept out of the way.

use std::time::Instant;

use pg_bulk_format::reader::{Record, Value};

use super::{Attention, Rows};
use crate::error::{self, Result};
use crate::pg::encoding::{
    EncodingErrors, invalid_in_server_encoding, is_valid_in_server_encoding, verify_in_server_encoding,
};
use crate::pg::stages::Stage;
use crate::pg::stream::Advance;

/// A record of more bytes is not taken for granted.
pub(super) const LARGE: usize = 4 << 20;

impl Rows {
    /// Go to the next record; false at the end.
    #[inline]
    pub(super) fn find_record(&mut self) -> Result<bool> {
        loop {
            match self.stream.advance()? {
                Advance::Record if self.parts.is_some() && self.is_no_record() => (),
                Advance::Record => return Ok(true),
                Advance::Header => self.take_header()?,
                Advance::End => match self.stream.next_file() {
                    Some(next) => self.turn_to(next)?,
                    None => return Ok(false),
                },
            }
        }
    }

    /// The same, where somebody wants to know the time of what is done for many records at once.
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
        // What was read meanwhile is told already.
        let read = stages.of(Stage::Read) - read;
        stages.add(Stage::Scan, spent.saturating_sub(read));
        more
    }

    /// Is the current line one that is passed over?
    pub fn is_no_record(&self) -> bool {
        let line = self.stream.reader.raw_line().unwrap_or_default();
        self.parts.as_ref().is_some_and(|parts| parts.skips(line))
    }

    /// The current line, if it can be shown to somebody.
    pub fn line(&self) -> Option<&[u8]> {
        if self.binary.is_some() {
            return None;
        }
        let line = self.reader().raw_line()?;
        let is_valid = self.parts.is_none() && !self.reader().is_dirty();
        (is_valid || is_valid_in_server_encoding(line)).then_some(line)
    }

    /// What is made of a large record is about as large; an allocation that fails on the way would be the end of the
    /// process.
    #[cold]
    pub(super) fn check_memory(&self) -> Result<()> {
        let wanted = self.reader().record_len().saturating_mul(3);
        Vec::<u8>::new().try_reserve_exact(wanted).map_err(|_| error::out_of_memory())
    }

    /// Text: an octal or hexadecimal escape may make an invalid character, in any field, wanted or not.
    /// A line for a table without columns is not looked into. COPY looks for a DEFAULT marker in a field before it goes to the next
    /// one (CopyReadAttributesText); those of a header are none.
    #[cold]
    pub(in super::super) fn check_escapes(&mut self, is_header: bool) -> Result<()> {
        let invalid = self.stream.invalid();
        if self.fields == 0 || invalid == EncodingErrors::Replace {
            return Ok(());
        }
        let reader = &self.stream.reader;
        for i in 0..reader.fields() {
            if self.default.is_some() && !is_header {
                self.check_default(&reader.record(), i)?;
            }
            if let Value::Escaped(raw) = reader.value(i) {
                self.unescaped.clear();
                if reader.unescape(raw, &mut self.unescaped) {
                    if invalid == EncodingErrors::Reject {
                        invalid_in_server_encoding(&self.unescaped).map_or(Ok(()), Err)?;
                    } else {
                        verify_in_server_encoding(&self.unescaped);
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn check_record(&mut self, fields: usize) -> Result<()> {
        if self.binary.is_some() {
            return self.read_fields();
        }
        let Some(parts) = &mut self.parts else { return self.check_defaults(fields) };
        let line = self.stream.reader.raw_line().unwrap_or_default();
        parts.read(line, self.stream.encodings(), &self.columns, self.stream.invalid())
    }

    #[cold]
    fn check_defaults(&self, fields: usize) -> Result<()> {
        let record = self.reader().record();
        (0..fields.min(self.fields)).try_for_each(|field| self.check_default(&record, field))
    }

    /// Is a field the DEFAULT marker although its column has no default? One behind those of columns is too many, whatever it is.
    fn check_default(&self, record: &Record<'_>, field: usize) -> Result<()> {
        let Some(column) = self.columns.get(..self.fields).and_then(|columns| columns.get(field)) else {
            return Ok(());
        };
        let trim = column.refinement.as_ref().map(|refinement| refinement.trim);
        let value = || trim.map_or_else(|| record.value(field), |trim| record.trimmed(field, trim));
        if column.default.is_null() && !column.ignored && value() == Value::Default {
            return Err(error::unexpected_default(&column.display_name()));
        }
        Ok(())
    }

    /// Does the record lack fields? Then COPY converts those that are there and raises an error.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.reader().fields() < self.required
    }

    /// The error about the first missing field, if there is one.
    pub fn check_missing(&mut self) -> Result<()> {
        self.attention = Attention::NONE;
        if self.binary.is_some() {
            return self.check_fields();
        }
        match self.columns.get(..self.required).and_then(|columns| columns.get(self.reader().fields())) {
            Some(column) => Err(error::missing_data(&column.display_name())),
            None => Ok(()),
        }
    }

    /// Pass by rows behind the current one with which all is well as long as nobody wants to know their values. Returns how
    /// many there were.
    pub fn pass_by(&mut self) -> u64 {
        if self.fields == 0 || self.parts.is_some() || self.binary.is_some() {
            return 0;
        }
        let count = self.stream.reader.pass_by(self.fields);
        self.rows += count;
        count
    }
}
