//! The slow twin: a whole file in memory, the exact line reader, the exact field reader, nothing else.
//!
//! It is the oracle of the tests and of the fuzz target: no buffers, no bitmaps, no batches, no positions that move.
//! That the exact readers themselves agree with COPY is shown against a server.

use crate::dialect::{Dialect, Eol};
use crate::field;
use crate::line::{self, Line};
use crate::reader::{Event, ReadError, Reader, Settings, Value};

/// A row: COPY's line number, and each field's value, `None` for NULL.
pub type Row = (u64, Vec<Option<Vec<u8>>>);

/// The rows of `data`, and the error that ends them, with its line number.
#[must_use]
pub fn rows(d: &Dialect, data: &[u8]) -> (Vec<Row>, Option<(u64, ReadError)>) {
    let mut rows = Vec::new();
    let (mut eol, mut at, mut number): (Option<Eol>, usize, u64) = (None, 0, 0);
    loop {
        let rest = &data[at..];
        number += 1;
        let (content, next, embedded, last) = match line::read_line(d, &mut eol, rest, true) {
            Line::Complete { content, next, embedded } => (content, next, embedded, false),
            Line::End { content, next, embedded } => (content, next, embedded, true),
            Line::NeedMore { .. } => unreachable!("all there is was given"),
            Line::Error { kind, embedded } => return (rows, Some((number + embedded, ReadError::Line(kind)))),
        };
        number += embedded;
        if last && content == 0 {
            return (rows, None);
        }
        let text = &rest[..content];
        let mut ends = Vec::new();
        if let Err(e) = field::split_line(d, text, usize::MAX, &mut ends) {
            return (rows, Some((number, ReadError::Field(e))));
        }
        let mut start = 0;
        let mut row = Vec::new();
        for end in ends {
            let raw = &text[start..end as usize];
            start = end as usize + 1;
            let quoted = d.is_csv() && raw.contains(&d.quote);
            if !quoted && raw == d.null {
                row.push(None);
                continue;
            }
            let mut value = Vec::new();
            if d.is_csv() {
                field::unescape_csv(d, raw, &mut value);
            } else {
                field::unescape_text(raw, &mut value);
            }
            row.push(Some(value));
        }
        rows.push((number, row));
        at += next;
    }
}

/// The same from a [`Reader`] that is fed `piece` bytes at a time.
#[must_use]
pub fn read_in_pieces(settings: Settings, data: &[u8], piece: usize) -> (Vec<Row>, Option<(u64, ReadError)>) {
    let mut reader = Reader::new(settings);
    let mut rest = data;
    let mut rows = Vec::new();
    loop {
        match reader.advance() {
            Event::NeedData => {
                let space = reader.space();
                let n = rest.len().min(piece).min(space.len());
                space[..n].copy_from_slice(&rest[..n]);
                rest = &rest[n..];
                reader.filled(n);
            }
            Event::Record => {
                let row = (0..reader.fields()).map(|i| match reader.value(i) {
                    Value::Null | Value::Default => None,
                    Value::Plain(v) => Some(v.to_vec()),
                    Value::Escaped(raw) => {
                        let mut v = Vec::new();
                        reader.unescape(raw, &mut v);
                        Some(v)
                    }
                });
                let row = row.collect();
                rows.push((reader.line_number(), row));
            }
            Event::Header => (),
            Event::End => return (rows, None),
            Event::Error(e) => return (rows, Some((reader.line_number(), e))),
        }
    }
}
