//! Header lines: whether they name the columns, or what they name.

use std::ffi::CString;

use pg_bulk_format::reader::Value;
use pgrx::PgSqlErrorCode as Code;

use super::column::{Column, Taken};
use super::encoding::{from_server, verify_in_server_encoding};
use super::row::{Rows, Turn};
use super::stream::{Advance, MOST_FIELDS};
use crate::error::{self, Error, Result};

impl Rows {
    /// A header line has been read.
    pub(super) fn take_header(&mut self) -> Result<()> {
        if self.known.is_some() { self.match_names() } else { self.check_header() }
    }

    /// Where names tell which columns the fields are for, read the header of a file that has just been opened.
    pub fn take_names(&mut self) -> Result<()> {
        if self.known.is_some() && self.stream.advance()? == Advance::Header {
            self.match_names()?;
        }
        Ok(())
    }

    /// From now on the header of each file says which of these columns its fields are for; those that it does not name get
    /// their default. Until the first one is read, it is as if it had all of them.
    pub fn name_by(&mut self, known: Vec<Column>) {
        self.set_columns(known.clone());
        self.known = Some(known);
    }

    /// Of several files, is this one empty? It has no header then, though one line was asked for.
    fn is_empty_file(&self) -> bool {
        let reader = &self.stream.reader;
        self.stream.files().is_some() && reader.raw_line() == Some(&[]) && reader.place_behind().is_none()
    }

    fn match_names(&mut self) -> Result<()> {
        if self.is_empty_file() {
            return Ok(());
        }
        let Some(known) = self.known.clone() else { return Ok(()) };
        let mut left: Vec<Option<Column>> = known.into_iter().map(Some).collect();
        let (mut columns, mut names_one) = (Vec::<Column>::new(), false);
        for name in self.names()? {
            let name = name.map(|name| CString::new(name).unwrap_or_default());
            let is_it = |column: &Column| column.taken == Taken::Field && name.as_ref() == Some(column.called());
            let found = left.iter_mut().find(|column| column.as_ref().is_some_and(is_it)).and_then(Option::take);
            let name = name.unwrap_or_default();
            if found.is_none() && columns.iter().any(|column| !column.ignored && *column.called() == name) {
                let message = format!("column \"{}\" specified more than once", from_server(&name));
                return Err(Error::new(Code::ERRCODE_DUPLICATE_COLUMN, message));
            }
            names_one |= found.as_ref().is_some_and(|column| column.attribute != usize::MAX);
            columns.push(found.unwrap_or_else(|| Column::ignored(name)));
        }
        if !names_one {
            let relation = from_server(&self.relation_name);
            let message = format!("header line names no column of relation \"{relation}\"");
            return Err(Error::new(Code::ERRCODE_BAD_COPY_FILE_FORMAT, message));
        }
        for mut column in left.into_iter().flatten().filter(|column| !column.ignored) {
            if column.taken == Taken::Field {
                column.taken = if column.default.is_null() { Taken::Null } else { Taken::Default };
            }
            columns.push(column);
        }
        self.set_columns(columns);
        self.note_turn(Turn::Columns);
        Ok(())
    }

    /// `HEADER MATCH`.
    pub(super) fn check_header(&mut self) -> Result<()> {
        if !self.match_header {
            return Ok(());
        }
        if !self.reader().dialect().is_csv() && self.reader().record().has_escapes() {
            self.check_escapes()?;
        }
        let reader = &self.stream.reader;
        // A table without columns has lines without fields.
        let fields = if self.fields == 0 && reader.raw_line() == Some(&[]) { 0 } else { reader.fields() };
        if self.fields == 0 && fields > 0 {
            return Err(error::extra_data());
        }
        if fields != self.fields {
            return Err(error::header_fields(fields, self.fields));
        }
        for (i, column) in self.columns.iter().enumerate().take(self.fields) {
            self.unescaped.clear();
            let name = match reader.value(i) {
                Value::Null | Value::Default => {
                    let null = String::from_utf8_lossy(&reader.dialect().null).into_owned();
                    let got = format!("null value (\"{null}\")");
                    return Err(error::header_mismatch(i + 1, &got, &column.display_name()));
                }
                Value::Plain(name) => name,
                Value::Escaped(raw) => {
                    reader.unescape(raw, &mut self.unescaped);
                    &self.unescaped
                }
            };
            if name != column.called().as_bytes() {
                let got = format!("\"{}\"", String::from_utf8_lossy(name));
                return Err(error::header_mismatch(i + 1, &got, &column.display_name()));
            }
        }
        Ok(())
    }

    /// The fields of the first header line; None if the file ends before. To be called before the first
    /// [`Rows::advance`], of a stream whose header's fields are wanted; the columns may be unknown yet. A field that is
    /// the NULL marker has no name. Guarded.
    pub fn header_names(&mut self) -> Result<Option<Vec<Option<Vec<u8>>>>> {
        if self.stream.advance()? != Advance::Header {
            return Ok(None);
        }
        if self.is_empty_file() {
            return Ok(None);
        }
        self.names().map(Some)
    }

    /// The fields of the header line that was just read.
    fn names(&mut self) -> Result<Vec<Option<Vec<u8>>>> {
        let reader = &self.stream.reader;
        if reader.fields() > MOST_FIELDS {
            let message = format!("header line has more than {MOST_FIELDS} fields");
            return Err(Error::new(Code::ERRCODE_PROGRAM_LIMIT_EXCEEDED, message));
        }
        let mut names = Vec::with_capacity(reader.fields());
        for i in 0..reader.fields() {
            names.push(match reader.value(i) {
                Value::Null | Value::Default => None,
                Value::Plain(name) => Some(name.to_vec()),
                Value::Escaped(raw) => {
                    self.unescaped.clear();
                    if reader.unescape(raw, &mut self.unescaped) {
                        verify_in_server_encoding(&self.unescaped);
                    }
                    Some(self.unescaped.clone())
                }
            });
        }
        Ok(names)
    }
}
