//! Quotes that count only at both ends of a field ([`Dialect::lenient_quotes`]), read as the option is described.

use super::Cell;
use crate::dialect::Dialect;

/// Returns the values of each record. Lines end in `\n`, and no `\.` ends the data.
#[must_use]
pub fn values(d: &Dialect, data: &[u8]) -> Vec<Vec<Cell>> {
    let mut records = Vec::new();
    let mut at = 0;
    while at < data.len() {
        let mut record = Vec::new();
        loop {
            let (cell, end) = quoted(d, data, at).unwrap_or_else(|| unquoted(d, data, at));
            record.push(cell);
            at = end;
            if !data[at..].starts_with(d.separator.bytes()) {
                break;
            }
            at += d.separator.len();
            if d.trailing && ends_line(data, at) {
                break;
            }
        }
        records.push(record);
        at += 1;
    }
    records
}

fn ends_line(data: &[u8], at: usize) -> bool {
    data.get(at).is_none_or(|&c| c == b'\n')
}

/// A field whose quotes count, and its end.
fn quoted(d: &Dialect, data: &[u8], start: usize) -> Option<(Cell, usize)> {
    let mut at = start + 1;
    let mut value = Vec::new();
    if data.get(start) != Some(&d.quote) {
        return None;
    }
    loop {
        match data[at..] {
            [c, next, ..] if c == d.escape && (next == d.escape || next == d.quote) => {
                value.push(next);
                at += 2;
            }
            [c, ..] if c == d.quote => break,
            [c, ..] => {
                value.push(c);
                at += 1;
            }
            [] => return None,
        }
    }
    at += 1;
    let is_end = ends_line(data, at) || data[at..].starts_with(d.separator.bytes());
    is_end.then_some((Cell::Bytes(value), at))
}

/// A field whose quotes are data, except one at both ends, and its end.
fn unquoted(d: &Dialect, data: &[u8], start: usize) -> (Cell, usize) {
    let mut end = start;
    while !ends_line(data, end) && !data[end..].starts_with(d.separator.bytes()) {
        end += 1;
    }
    let raw = &data[start..end];
    let cell = match raw {
        _ if raw == d.null => Cell::Null,
        [first, inner @ .., last] if *first == d.quote && *last == d.quote => Cell::Bytes(inner.to_vec()),
        _ => Cell::Bytes(raw.to_vec()),
    };
    (cell, end)
}
