//! Header lines: matching columns by name, checking names, and following the order of columns.
//!
//! With several files whose fields are matched by position, the first header defines the positions. A file with the
//! same names in another order is read in that order. A file that has only some of these names at other positions is an
//! error: values would otherwise get into the wrong column, unnoticed where the types are equal. Names that the first
//! header lacks are ignored, as in COPY. The process that opens a file reads its header, and the first file's header
//! before it. So the result does not depend on which process reads which file. With `match_by = position` no header is
//! read.

use std::ffi::CString;

use pg_bulk_text::reader::{Reader, Value};
use pgrx::PgSqlErrorCode as Code;

use super::super::column::{Column, Taken};
use super::Rows;
use crate::error::{Error, Result};
use crate::input::encoding::verify_in_server_encoding;
use crate::input::source::Location;
use crate::input::stream::{Advance, MOST_FIELDS, Stream};
use crate::server::copy_errors;
use crate::server::server_text::from_server;

/// The first header of several files whose fields are matched by position.
#[derive(Debug)]
pub(super) struct FirstHeader {
    /// Index of the file that has it.
    file: usize,
    names: Names,
    /// The columns of the fields in the first header's order, followed by the columns without a field.
    pub(super) columns: Vec<Column>,
    /// For each field of the open file, the index of this field in the first header; empty if the order is equal.
    order: Vec<usize>,
}

/// The names in a header; None for a name that is the NULL marker.
type Names = Vec<Option<Vec<u8>>>;

/// Whether the header line is empty, so that it names nothing.
fn is_blank(reader: &Reader) -> bool {
    reader.raw_line() == Some(&[])
}

/// Whether the file is empty, so that it has no header line.
fn is_empty(reader: &Reader) -> bool {
    is_blank(reader) && reader.place_behind().is_none()
}

/// Returns for each name its index in the first header. Returns an empty list if each name that the first header has is
/// at the same position. An error holds the index of a name at another position, if the names are not the same.
fn order(first: &Names, names: &Names) -> std::result::Result<Vec<usize>, usize> {
    let place = |name: &Vec<u8>| first.iter().position(|known| known.as_ref() == Some(name));
    let is_elsewhere = |(i, name): (usize, &Option<Vec<u8>>)| {
        let name = name.as_ref()?;
        (first.get(i).and_then(Option::as_ref) != Some(name) && place(name).is_some()).then_some(i)
    };
    let Some(moved) = names.iter().enumerate().find_map(is_elsewhere) else { return Ok(Vec::new()) };
    let places: Option<Vec<usize>> = names.iter().map(|name| place(name.as_ref()?)).collect();
    let mut places = places.ok_or(moved)?;
    let order = places.clone();
    places.sort_unstable();
    places.dedup();
    if places.len() == first.len() && order.len() == first.len() { Ok(order) } else { Err(moved) }
}

impl Rows {
    /// Handles a header line that was just read.
    pub fn take_header(&mut self) -> Result<()> {
        if self.layout.known.is_some() {
            self.match_names()
        } else if self.layout.match_header {
            self.check_header()
        } else {
            self.follow_order()
        }
    }

    /// Reads the header of a file that was just opened, if the header decides about the columns.
    pub fn take_names(&mut self) -> Result<()> {
        let decides = self.layout.known.is_some() || (!self.layout.match_header && self.stream.wants_names());
        if decides && self.stream.advance()? == Advance::Header {
            self.take_header()?;
        }
        Ok(())
    }

    /// Puts the columns in the order of this file's header, for one of several files.
    fn follow_order(&mut self) -> Result<()> {
        if self.stream.files().is_none() {
            return Ok(());
        }
        // Empty lines and lines with too many fields have no other order.
        let reader = &self.stream.reader;
        let names = if is_blank(reader) { None } else { names_of(reader, &mut self.values.unescaped, false) };
        let mut first = match (self.layout.first_header.take(), &names) {
            (Some(first), _) => first,
            (None, Some(names)) => {
                let (file, names) = self.find_first(names)?;
                FirstHeader { file, names, columns: self.layout.columns.clone(), order: Vec::new() }
            }
            // No file before has changed the order, so the first header is not needed yet.
            (None, None) => return Ok(()),
        };
        let order = self.order_of(&first, names.as_ref());
        let arranged = order.map(|order| self.arrange(&mut first, order));
        self.layout.first_header = Some(first);
        arranged
    }

    fn order_of(&self, first: &FirstHeader, names: Option<&Names>) -> Result<Vec<usize>> {
        let Some(names) = names else { return Ok(Vec::new()) };
        let order = order(&first.names, names).map_err(|moved| self.is_elsewhere(first, names, moved))?;
        // If the number of names differs from that of fields, the field of a name is unknown.
        match order.iter().enumerate().find(|(i, place)| *i != **place) {
            Some((moved, _)) if first.names.len() != self.layout.fields => Err(self.is_elsewhere(first, names, moved)),
            _ => Ok(order),
        }
    }

    fn arrange(&mut self, first: &mut FirstHeader, order: Vec<usize>) {
        if order == first.order {
            return;
        }
        let (fields, others) = first.columns.split_at_checked(self.layout.fields).unwrap_or_default();
        let mut columns: Vec<Column> = match order.is_empty() {
            true => fields.to_vec(),
            false => order.iter().filter_map(|&place| fields.get(place).cloned()).collect(),
        };
        columns.extend_from_slice(others);
        self.set_columns(columns);
        self.note_change();
        first.order = order;
    }

    /// Returns the first header of the files, and the index of its file. `names` are those of the open file.
    fn find_first(&mut self, names: &Names) -> Result<(usize, Names)> {
        let current = self.stream.file_number();
        for number in 0..current {
            pgrx::check_for_interrupts!();
            match self.stream.header_of(number, &mut self.values.unescaped) {
                Ok(HeaderOf::Nothing) => (),
                Ok(HeaderOf::Names(names)) => return Ok((number, names)),
                // No name can be at another position then.
                Ok(HeaderOf::TooMany) => return Ok((number, Names::new())),
                Err(error) => {
                    // The error concerns that file.
                    if let Some(file) = self.stream.files().and_then(|list| list.files.get(number)) {
                        self.context.described = Location::File(file.path.clone()).described();
                    }
                    self.context.elsewhere.begin();
                    return Err(error);
                }
            }
        }
        Ok((current, names.clone()))
    }

    #[cold]
    fn is_elsewhere(&self, first: &FirstHeader, names: &Names, moved: usize) -> Error {
        let name = names.get(moved).and_then(Option::as_ref);
        let there = first.names.iter().position(|known| known.as_ref() == name).unwrap_or(0);
        let name = from_server(&CString::new(name.map_or(&[][..], Vec::as_slice)).unwrap_or_default());
        let file = self.stream.files().and_then(|list| list.files.get(first.file));
        let file = file.map(|file| Location::File(file.path.clone()).display().into_owned()).unwrap_or_default();
        let message = format!("header line has columns at other positions than that of file \"{file}\"");
        Error::new(Code::ERRCODE_BAD_COPY_FILE_FORMAT, message)
            .detail(format!("Column \"{name}\" is field {} here and field {} there.", moved + 1, there + 1))
            .hint("Use match_by \"name\" to match the fields of each file by its header, or match_by \"position\" to ignore the header.")
    }

    /// From now on the header of each file names the columns of its fields. A column that the header does not name gets
    /// its default. Before the first header is read, every column has a field.
    pub fn name_by(&mut self, known: Vec<Column>) {
        self.set_columns(known.clone());
        self.layout.known = Some(known);
    }

    /// Whether this file is empty and one of several.
    fn is_empty_file(&self) -> bool {
        self.stream.files().is_some() && is_empty(&self.stream.reader)
    }

    fn match_names(&mut self) -> Result<()> {
        if self.is_empty_file() {
            return Ok(());
        }
        let Some(known) = self.layout.known.clone() else { return Ok(()) };
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
            let relation = from_server(&self.context.relation_name);
            let message = format!("header line names no column of relation \"{relation}\"");
            return Err(Error::new(Code::ERRCODE_BAD_COPY_FILE_FORMAT, message));
        }
        for mut column in left.into_iter().flatten().filter(|column| !column.ignored) {
            if column.taken == Taken::Field {
                column.taken = if column.default.is_none() { Taken::Null } else { Taken::Default };
            }
            columns.push(column);
        }
        self.set_columns(columns);
        self.note_change();
        Ok(())
    }

    /// Checks the header for `HEADER MATCH`.
    pub(super) fn check_header(&mut self) -> Result<()> {
        if !self.reader().dialect().is_csv() && self.reader().record().has_escapes() {
            self.check_escapes(true)?;
        }
        let reader = &self.stream.reader;
        // A table without columns has lines without fields.
        let fields = if self.layout.fields == 0 && reader.raw_line() == Some(&[]) { 0 } else { reader.fields() };
        if self.layout.fields == 0 && fields > 0 {
            return Err(copy_errors::extra_data());
        }
        if fields != self.layout.fields {
            return Err(copy_errors::header_fields(fields, self.layout.fields));
        }
        for (i, column) in self.layout.columns.iter().enumerate().take(self.layout.fields) {
            self.values.unescaped.clear();
            let name = match reader.value(i) {
                Value::Null | Value::Default => {
                    let null = String::from_utf8_lossy(&reader.dialect().null).into_owned();
                    let got = format!("null value (\"{null}\")");
                    return Err(copy_errors::header_mismatch(i + 1, &got, &column.display_name()));
                }
                Value::Plain(name) => name,
                Value::Escaped(raw) => {
                    reader.unescape(raw, &mut self.values.unescaped);
                    &self.values.unescaped
                }
            };
            if name != column.called().as_bytes() {
                let got = format!("\"{}\"", String::from_utf8_lossy(name));
                return Err(copy_errors::header_mismatch(i + 1, &got, &column.display_name()));
            }
        }
        Ok(())
    }

    /// Returns the names in the first header line; None if the file ends before. A field that is the NULL marker has no
    /// name. To be called before the first [`Rows::advance`], on a stream with a header whose fields are read; the
    /// columns may be unknown yet. Guarded.
    pub fn header_names(&mut self) -> Result<Option<Names>> {
        if self.stream.advance()? != Advance::Header {
            return Ok(None);
        }
        if self.is_empty_file() {
            return Ok(None);
        }
        self.names().map(Some)
    }

    /// Returns the names in the header line that was just read.
    fn names(&mut self) -> Result<Names> {
        names_of(&self.stream.reader, &mut self.values.unescaped, true).ok_or_else(|| {
            let message = format!("header line has more than {MOST_FIELDS} fields");
            Error::new(Code::ERRCODE_PROGRAM_LIMIT_EXCEEDED, message)
        })
    }
}

/// Header of a file.
enum HeaderOf {
    /// The file is empty.
    Nothing,
    Names(Names),
    TooMany,
}

impl Stream {
    /// Returns the header of a file of the list, which need not be the open file. Guarded.
    fn header_of(&self, number: usize, unescaped: &mut Vec<u8>) -> Result<HeaderOf> {
        let Some(mut other) = self.beside(number)? else { return Ok(HeaderOf::Nothing) };
        let header = match other.advance()? {
            Advance::Header if !is_blank(&other.reader) => {
                names_of(&other.reader, unescaped, false).map_or(HeaderOf::TooMany, HeaderOf::Names)
            }
            _ => HeaderOf::Nothing,
        };
        other.close()?;
        Ok(header)
    }
}

/// Returns the names in the header line that this reader has just read; None if there are too many fields. With
/// `verifies`, an escape that is invalid in the server's encoding is an error; COPY does not check that.
fn names_of(reader: &Reader, unescaped: &mut Vec<u8>, verifies: bool) -> Option<Names> {
    if reader.fields() > MOST_FIELDS {
        return None;
    }
    let name = |i| match reader.value(i) {
        Value::Null | Value::Default => None,
        Value::Plain(name) => Some(name.to_vec()),
        Value::Escaped(raw) => {
            unescaped.clear();
            if reader.unescape(raw, unescaped) && verifies {
                verify_in_server_encoding(unescaped);
            }
            Some(unescaped.clone())
        }
    };
    Some((0..reader.fields()).map(name).collect())
}
