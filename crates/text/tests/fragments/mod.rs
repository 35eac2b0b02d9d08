//! Files made of parts that each dialect writes with its own characters.
//!
//! Special bytes are put near edges: a part may fill the file up to some bytes before the next edge. Some files have an
//! error, or two at most, because the reader stops behind them.

use pg_bulk_text::chunk::BLOCK;
use pg_bulk_text::dialect::{Dialect, Eol};
use proptest::prelude::*;

use crate::dialects::line_end;

#[derive(Debug, Clone, Copy)]
pub enum Fragment {
    Bytes(&'static [u8]),
    Quote,
    Escape,
    Delimiter,
    /// The first byte of the delimiter, which may not be a delimiter.
    FirstOfDelimiter,
    Null,
    Eol,
    /// A field with doubled quotes.
    Quotes,
    /// An escape character and the bytes that it escapes.
    Escaped,
    /// Line ends that end no record.
    Lines,
    Backslashes(usize),
    /// Fills up to this many bytes before the next edge. Edges are at multiples of [`BLOCK`] bytes behind the end of
    /// the first record.
    Edge(usize),
}

/// Returns the bytes of `pieces`; edges are counted from the end of `first`.
pub fn file(d: &Dialect, eol: Eol, first: &[Fragment], pieces: &[Fragment]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut base = 0;
    for (i, piece) in first.iter().chain(pieces).enumerate() {
        if i == first.len() {
            base = out.len();
        }
        match *piece {
            Fragment::Bytes(bytes) => out.extend(bytes),
            Fragment::Quote => out.push(d.quote),
            Fragment::Escape => out.push(if d.is_csv() { d.escape } else { b'\\' }),
            Fragment::Delimiter => out.extend(d.separator.bytes()),
            Fragment::FirstOfDelimiter => out.push(d.delimiter),
            Fragment::Null => out.extend(&d.null),
            Fragment::Eol => out.extend(line_end(eol)),
            // In these dialects, each line end ends a record.
            Fragment::Lines if d.is_literal() => out.extend(b"\"in side"),
            Fragment::Lines if !d.is_csv() => out.extend(b"in\\\n\\\r\\\nside"),
            Fragment::Lines => {
                out.extend([&[d.quote], &b"in"[..], line_end(eol), b"\n\r\r\nside", &[d.quote]].concat())
            }
            Fragment::Quotes => out.extend([&[d.quote; 3][..], b"q", &[d.quote; 3]].concat()),
            Fragment::Escaped if !d.is_csv() => out.extend(b"\\\\\\x41"),
            Fragment::Escaped => out.extend([d.quote, d.escape, d.quote, d.escape, d.escape, d.quote]),
            Fragment::Backslashes(n) => out.extend(vec![b'\\'; n]),
            Fragment::Edge(before) => {
                let gap = (2 * BLOCK - before - (out.len() - base) % BLOCK) % BLOCK;
                out.extend(vec![b'x'; gap]);
            }
        }
    }
    out
}

/// Bytes that end the data or are errors.
const BREAKS: &[&[u8]] = &[
    b"\n", b"\r", b"\r\n", b"\\.", b"\\.\n", b"\\.\r", b"\\.\r\n", b"\n\\.\n", b"\r\n\\.\r\n", b"\r\\.\r", b"\xff",
    b"\0", b"\xe2\x82", b"\xe2", b"\n\xf0", b"\xf0\x9f\x98",
];

const DATA: &[&[u8]] =
    &[b"a", b"N", b"1", b".", b"\xc3\xa4", "€".as_bytes(), b"\\N", b"e", b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"];

fn piece() -> impl Strategy<Value = Fragment> {
    use Fragment::{Backslashes, Bytes, Delimiter, Edge, Eol, Escape, FirstOfDelimiter, Lines, Null, Quote};
    prop_oneof![
        6 => prop::sample::select(DATA).prop_map(Bytes),
        7 => Just(Eol),
        3 => Just(Quote),
        2 => Just(Escape),
        3 => Just(Delimiter),
        1 => Just(FirstOfDelimiter),
        1 => Just(Null),
        2 => Just(Lines),
        1 => (1usize..5).prop_map(Backslashes),
        4 => (0usize..4).prop_map(Edge),
        1 => prop::sample::select(&BREAKS[..4]).prop_map(Bytes),
    ]
}

/// Parts that are unlikely to be errors.
fn calm() -> impl Strategy<Value = Fragment> {
    use Fragment::{Backslashes, Bytes, Delimiter, Edge, Eol, Escaped, FirstOfDelimiter, Lines, Null, Quotes};
    prop_oneof![
        6 => prop::sample::select(DATA).prop_map(Bytes),
        6 => Just(Eol),
        2 => Just(Quotes),
        2 => Just(Escaped),
        3 => Just(Delimiter),
        1 => Just(FirstOfDelimiter),
        1 => Just(Null),
        3 => (1usize..3).prop_map(|n| Backslashes(2 * n)),
        4 => (0usize..4).prop_map(Edge),
        1 => Just(Lines),
    ]
}

pub fn body() -> impl Strategy<Value = Vec<Fragment>> {
    let pieces = prop_oneof![
        3 => prop::collection::vec(calm(), 0..100),
        1 => prop::collection::vec(piece(), 0..100),
    ];
    // At any position, or before an edge, perhaps on a line of its own.
    let edge = prop_oneof![
        Just(vec![]),
        (0usize..4).prop_map(|n| vec![Fragment::Edge(n)]),
        (1usize..6).prop_map(|n| vec![Fragment::Edge(n), Fragment::Eol]),
    ];
    let wrong = (edge, prop::sample::select(BREAKS), any::<bool>()).prop_map(|(mut edge, bytes, ends)| {
        edge.push(Fragment::Bytes(bytes));
        edge.extend(ends.then_some(Fragment::Eol));
        edge
    });
    let breaks = prop::collection::vec((any::<prop::sample::Index>(), wrong), 0..3);
    let breaks = prop_oneof![Just(Vec::new()), breaks];
    (pieces, breaks).prop_map(|(mut pieces, breaks)| {
        for (at, wrong) in breaks {
            let at = at.index(pieces.len() + 1);
            pieces.splice(at..at, wrong);
        }
        pieces
    })
}

/// A byte order mark, header lines, and the first record.
pub fn beginning() -> impl Strategy<Value = (u64, Vec<Fragment>)> {
    let record = prop_oneof![
        4 => Just(vec![Fragment::Bytes(b"1"), Fragment::Eol]),
        1 => prop::collection::vec(calm(), 0..5),
        1 => Just(vec![Fragment::Lines, Fragment::Eol]),
    ];
    (0u64..3, any::<bool>(), record).prop_map(|(headers, bom, record)| {
        let mut pieces = vec![Fragment::Bytes(if bom { b"\xef\xbb\xbf" } else { b"" })];
        for _ in 0..headers {
            pieces.extend([Fragment::Bytes(b"a"), Fragment::Delimiter, Fragment::Lines, Fragment::Eol]);
        }
        pieces.extend(record);
        (headers, pieces)
    })
}
