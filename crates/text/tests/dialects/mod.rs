//! Shared by the tests of records: dialects, and the levels of the structural scan.
#![allow(dead_code, reason = "each test takes what it needs")]

use pg_bulk_text::dialect::{Dialect, EndMarker, Eol, FormatOptions};
use pg_bulk_text::naive::Row;
use pg_bulk_text::reader::{Event, ReadError, Reader, Settings};
use pg_bulk_text::scan::Level;

pub const EOLS: [Eol; 3] = [Eol::Nl, Eol::Cr, Eol::CrNl];

pub fn line_end(eol: Eol) -> &'static [u8] {
    match eol {
        Eol::Nl => b"\n",
        Eol::Cr => b"\r",
        Eol::CrNl | Eol::Any => b"\r\n",
    }
}

/// Replaces `EOL`, outside and inside quotes, by the line end.
pub fn with_line_ends(tokens: &[impl AsRef<[u8]>], eol: Eol) -> Vec<u8> {
    let bytes = |token: &[u8]| if token == b"EOL" { line_end(eol).to_vec() } else { token.to_vec() };
    tokens.iter().flat_map(|token| bytes(token.as_ref())).collect()
}

pub fn dialect(csv: bool, delimiter: &str, quote: &str, escape: &str, null: &str, end_marker: EndMarker) -> Dialect {
    let bytes = |s: &str| Some(s.as_bytes().to_vec());
    let mut o = FormatOptions { csv, delimiter: bytes(delimiter), null: bytes(null), ..FormatOptions::default() };
    if csv {
        (o.quote, o.escape) = (bytes(quote), bytes(escape));
    }
    Dialect::check(&o, end_marker).unwrap()
}

/// CSV without quotes.
pub fn unquoted(delimiter: &str, null: &str, trailing: bool) -> Dialect {
    let bytes = |s: &str| Some(s.as_bytes().to_vec());
    let (delimiter, null) = (bytes(delimiter), bytes(null));
    let o = FormatOptions { csv: true, unquoted: true, delimiter, null, trailing, ..FormatOptions::default() };
    Dialect::check(&o, EndMarker::Until17).unwrap()
}

/// A dialect in which a delimiter at the end of a line begins no field.
pub fn trailing(d: Dialect) -> Dialect {
    Dialect { trailing: true, ..d }
}

/// A dialect in which quotes count only at both ends of a field.
pub fn lenient(d: Dialect) -> Dialect {
    Dialect { lenient_quotes: true, ..d }
}

/// Dialects that the kernels support.
pub fn regular() -> Vec<Dialect> {
    let (old, new) = (EndMarker::Until17, EndMarker::Since18);
    let mut regular = copys();
    regular.extend([
        unquoted("\t", "\\N", false),
        unquoted("\"", "", true),
        unquoted("aa", "N", true),
        dialect(true, "||", "\"", "\"", "", old),
        dialect(true, "€", "'", "'", "N", new),
        trailing(dialect(true, "|", "\"", "\"", "", old)),
        trailing(dialect(true, ",x,", "\"", "e", "", old)),
        trailing(dialect(false, "||", "", "", "\\N", old)),
        dialect(false, "\t,\t", "", "", "N", new),
        lenient(dialect(true, ",", "\"", "\"", "", old)),
        lenient(dialect(true, ",", "\"", "\\", "N", new)),
        lenient(trailing(dialect(true, "|", "'", "'", "", new))),
    ]);
    regular
}

/// These dialects, each with each of the line ends.
pub fn regular_with(eols: &[Eol]) -> Vec<(Dialect, Eol)> {
    regular().iter().flat_map(|d| eols.iter().map(|&eol| (d.clone(), eol))).collect()
}

/// The dialects of COPY among them, and lines.
pub fn copys() -> Vec<Dialect> {
    let (old, new) = (EndMarker::Until17, EndMarker::Since18);
    vec![
        dialect(true, ",", "\"", "\"", "", old),
        dialect(true, ",", "\"", "\"", "", new),
        dialect(true, "\t", "'", "'", "\\N", old),
        dialect(true, ",", "\"", "\\", "N", old),
        dialect(true, ",", "\"", "\\", "", new),
        dialect(true, "|", "\"", "e", "", old),
        dialect(false, "\t", "", "", "\\N", old),
        dialect(false, "\t", "", "", "\\N", new),
        dialect(false, ",", "", "", "", old),
        Dialect::lines(None),
    ]
}

/// The levels to test: all of them, or the one that PG_BULK_SIMD names.
pub fn levels() -> Vec<Level> {
    match std::env::var("PG_BULK_SIMD").as_deref() {
        Ok("scalar") => vec![Level::Scalar],
        _ => Level::available(),
    }
}

/// Reads a file and, after each record, skips the records with `fields` fields that can be skipped. Returns their
/// number.
pub fn pass(s: Settings, data: &[u8], fields: usize, expected: &[Row], error: Option<(u64, ReadError)>) -> usize {
    let (size, csv) = (s.read_size, s.dialect.is_csv() || s.dialect.is_literal());
    let mut reader = Reader::new(s);
    let mut rest = data;
    let (mut at, mut passed) = (0, 0);
    loop {
        match reader.advance() {
            Event::NeedData => {
                reader.give(&mut rest, size).unwrap();
            }
            Event::Record => {
                let row = &expected[at];
                if at.is_multiple_of(3) {
                    reader.store_line_number();
                }
                assert_eq!((reader.line_number(), reader.record_offset()), (row.number, row.offset));
                assert_eq!((reader.raw_line(), reader.fields()), (Some(row.line.as_slice()), row.cells.len()));
                at += 1;
                let count = usize::try_from(reader.pass_by(fields)).unwrap();
                for row in &expected[at..at + count] {
                    assert_eq!(row.cells.len(), fields);
                    assert!(csv || !row.line.contains(&b'\\'), "escapes are to be looked at");
                }
                (at, passed) = (at + count, passed + count);
                assert_eq!(reader.line_number(), expected[at - 1].number);
            }
            Event::Header => (),
            other => {
                assert_eq!(at, expected.len());
                let found = if let Event::Error(e) = other { Some((reader.line_number(), e)) } else { None };
                assert_eq!(found, error);
                return passed;
            }
        }
    }
}
