//! The naive reader: a whole file in memory, the exact line reader and the exact field reader.
//!
//! It is the oracle of the tests and of the fuzz targets: it has no buffers, bitmaps or batches. Tests against a server
//! show that the exact readers themselves agree with COPY.

pub mod chunks;
pub mod lenient;
pub mod tolerant;

use crate::dialect::{Dialect, Eol};
use crate::field;
use crate::line::{self, Line};
use crate::reader::{Event, ReadError, Reader, Settings, Value};
use crate::scan::Level;
use crate::verify::utf8_valid_up_to;

/// The contents of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// The NULL marker.
    Null,
    /// The DEFAULT marker.
    Default,
    /// The value.
    Bytes(Vec<u8>),
}

/// A record with its position, for COPY's messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// COPY's number of its line.
    pub number: u64,
    /// Offset of its start.
    pub offset: u64,
    /// Its line without the line's end.
    pub line: Vec<u8>,
    /// Its fields.
    pub cells: Vec<Cell>,
}

/// Returns the rows of `data`, and the error that ends them with its line number. Data end at the first byte that is
/// not valid UTF-8.
#[must_use]
pub fn rows(d: &Dialect, data: &[u8]) -> (Vec<Row>, Option<(u64, ReadError)>) {
    if let Some(length) = d.stride() {
        return records(length, data);
    }
    let valid = &data[..utf8_valid_up_to(data)];
    let all = valid.len() == data.len();
    let mut rows = Vec::new();
    let (mut eol, mut at, mut number): (Option<Eol>, usize, u64) = (None, 0, 0);
    loop {
        let rest = &valid[at..];
        number += 1;
        let (content, next, embedded, last) = match line::read_line(d, &mut eol, rest, all) {
            Line::Complete { content, next, embedded } => (content, next, embedded, false),
            Line::End { content, next, embedded } => (content, next, embedded, true),
            Line::NeedMore { embedded } => return (rows, Some((number + embedded, ReadError::Encoding))),
            Line::Error { kind, embedded } => return (rows, Some((number + embedded, ReadError::Line(kind)))),
        };
        number += embedded;
        if last && content == 0 {
            return (rows, None);
        }
        if !d.is_skipped(&rest[..content]) {
            match record(d, number, at, &rest[..content]) {
                Ok(row) => rows.push(row),
                Err(e) => return (rows, Some((number, e))),
            }
        }
        at += next;
    }
}

/// Splits a line into the cells of a record.
fn record(d: &Dialect, number: u64, at: usize, line: &[u8]) -> Result<Row, ReadError> {
    let mut ends = Vec::new();
    field::split_line(d, line, usize::MAX, &mut ends).map_err(ReadError::Field)?;
    let mut start = 0;
    let mut cells = Vec::new();
    for end in ends {
        cells.push(cell(d, &line[start..end as usize]));
        start = end as usize + d.separator.len();
    }
    Ok(Row { number, offset: at as u64, line: line.to_vec(), cells })
}

fn records(length: usize, data: &[u8]) -> (Vec<Row>, Option<(u64, ReadError)>) {
    let whole = data.chunks_exact(length);
    let rest = whole.remainder().len();
    let row = |(i, line): (usize, &[u8])| Row {
        number: i as u64 + 1,
        offset: (i * length) as u64,
        line: line.to_vec(),
        cells: vec![Cell::Bytes(line.to_vec())],
    };
    let rows: Vec<Row> = whole.enumerate().map(row).collect();
    let number = rows.len() as u64 + 1;
    (rows, (rest > 0).then_some((number, ReadError::Partial { bytes: rest, length })))
}

fn cell(d: &Dialect, raw: &[u8]) -> Cell {
    if !(d.is_csv() && raw.contains(&d.quote)) {
        if raw == d.null {
            return Cell::Null;
        }
        if d.default.as_deref() == Some(raw) {
            return Cell::Default;
        }
    }
    if d.is_literal() {
        return Cell::Bytes(raw.to_vec());
    }
    let mut value = Vec::new();
    if d.is_csv() {
        field::unescape_csv(d, raw, &mut value);
    } else {
        field::unescape_text(raw, &mut value);
    }
    Cell::Bytes(value)
}

/// Settings of a reader that verifies UTF-8 and reads no header.
#[must_use]
pub fn settings(dialect: &Dialect, read_size: usize, level: Level) -> Settings {
    Settings {
        dialect: dialect.clone(),
        read_size,
        utf8: true,
        max_char: 4,
        skip_bom: false,
        header_lines: 0,
        header_fields: false,
        max_fields: usize::MAX,
        level,
    }
}

/// Returns the rows that a [`Reader`] makes of `data` when it gets `piece` bytes at a time.
#[must_use]
pub fn read_in_pieces(settings: Settings, data: &[u8], piece: usize) -> (Vec<Row>, Option<(u64, ReadError)>) {
    let mut reader = Reader::new(settings);
    let mut rest = data;
    let mut rows = Vec::new();
    loop {
        match reader.advance() {
            Event::NeedData => {
                reader.give(&mut rest, piece).expect("memory");
            }
            Event::Record => rows.push(row(&reader)),
            Event::Header => (),
            Event::End => return (rows, None),
            Event::Error(e) => return (rows, Some((reader.line_number(), e))),
        }
    }
}

/// The current record of a reader.
fn row(reader: &Reader) -> Row {
    let cells = (0..reader.fields()).map(|i| match reader.value(i) {
        Value::Null => Cell::Null,
        Value::Default => Cell::Default,
        Value::Plain(v) => Cell::Bytes(v.to_vec()),
        Value::Escaped(raw) => {
            let mut v = Vec::new();
            reader.unescape(raw, &mut v);
            Cell::Bytes(v)
        }
    });
    Row {
        cells: cells.collect(),
        number: reader.line_number(),
        offset: reader.record_offset(),
        line: reader.raw_line().unwrap_or(b"no line").to_vec(),
    }
}
