//! Delimiters of several bytes, lines without quotes, and delimiters at the end of lines.
//!
//! Each file is compared with an equivalent file in COPY's form, which has one-byte delimiters and none at the end of
//! lines, or with a program that only splits. The other tests include such dialects ([`dialects::regular`]), but they
//! compare the reader with its twin, which finds field ends with the same functions. These tests do not use them.

mod dialects;

use dialects::{EOLS, dialect, levels, line_end, trailing, unquoted};
use pg_bulk_text::dialect::{Dialect, EndMarker, Eol};
use pg_bulk_text::naive::{self, Cell, Row};
use pg_bulk_text::reader::ReadError;
use proptest::prelude::*;

/// Delimiters, and a byte that is neither in them nor in fields.
const LONG: &[&str] = &["||", "~|~", "aa", "€", "\u{1}\u{2}", ", ", "aba", "-0123456789abcd-"];
const SHORT: &str = "\u{1f}";

/// Reads the file at every level, `size` bytes at a time. All results must be equal.
fn read(d: &Dialect, file: &[u8], size: usize) -> (Vec<Row>, Option<(u64, ReadError)>) {
    let settings = |level| naive::settings(d, size, level);
    let mut found: Vec<_> =
        levels().into_iter().map(|level| naive::read_in_pieces(settings(level), file, size)).collect();
    assert!(found.windows(2).all(|two| two[0] == two[1]), "every level says the same");
    assert_eq!(found[0], naive::rows(d, file), "{d:?} {:?}", String::from_utf8_lossy(file));
    found.remove(0)
}

fn cells(rows: &[Row]) -> Vec<&[Cell]> {
    rows.iter().map(|row| row.cells.as_slice()).collect()
}

/// Records of fields; each field is a list of parts. A part may be the beginning of the delimiter.
type Table = Vec<Vec<Vec<u8>>>;

fn table() -> impl Strategy<Value = Table> {
    let field = proptest::collection::vec(0u8..12, 0..4);
    proptest::collection::vec(proptest::collection::vec(field, 1..6), 1..30)
}

/// Returns the bytes of a part. A field without quotes must not contain a delimiter, not even together with the
/// delimiter behind it. So a beginning of the delimiter is only used before a letter that no delimiter has.
fn piece(d: &Dialect, delimiter: &str, piece: u8) -> Vec<u8> {
    let beginning = |bytes: usize| {
        let mut beginning = delimiter.as_bytes()[..bytes.min(delimiter.len())].to_vec();
        // Not a part of a character.
        if std::str::from_utf8(&beginning).is_err() {
            beginning.clear();
        }
        beginning
    };
    let csv = d.is_csv();
    match piece {
        0 => beginning(1),
        1 => beginning(delimiter.len() - 1),
        2 if csv => [&[d.quote], delimiter.as_bytes(), &[d.quote]].concat(),
        3 if csv => [&[d.quote, d.quote, d.quote], &beginning(1)[..], &[d.quote]].concat(),
        4 if csv => [&[d.quote][..], b"x\ny", &[d.quote]].concat(),
        2..5 if !d.is_literal() => b"\\\\".to_vec(),
        2 => b"\"".to_vec(),
        3 => b"\\.".to_vec(),
        4 => b"\\".to_vec(),
        5 => "ß".into(),
        6 => vec![b'z'; 61],
        _ => b"z".to_vec(),
    }
}

/// Writes a file with `put` between fields, and also at the end of records for which `ends` returns true. Parts that
/// are beginnings are those of `delimiter`.
fn file(d: &Dialect, table: &Table, delimiter: &str, put: &str, eol: Eol, ends: impl Fn(usize) -> bool) -> Vec<u8> {
    let mut out = b"z".to_vec();
    out.extend(line_end(eol));
    for (i, record) in table.iter().enumerate() {
        for (j, field) in record.iter().enumerate() {
            if j > 0 {
                out.extend(put.bytes());
            }
            for &one in field {
                out.extend(piece(d, delimiter, one));
                // Otherwise the end of this part and the start of the next could form a delimiter.
                if one < 2 {
                    out.push(b'z');
                }
            }
        }
        if ends(i) {
            out.extend(put.bytes());
        }
        out.extend(line_end(eol));
    }
    out
}

/// A dialect with one of [`LONG`], and the same dialect with [`SHORT`].
fn pair(kind: usize, delimiter: &str) -> (Dialect, Dialect) {
    let of = |delimiter: &str| match kind {
        0 => dialect(true, delimiter, "\"", "\"", "z", EndMarker::Until17),
        1 => dialect(true, delimiter, "'", "e", "", EndMarker::Since18),
        2 => unquoted(delimiter, "z", false),
        _ => dialect(false, delimiter, "", "", "z", EndMarker::Since18),
    };
    (of(delimiter), of(SHORT))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 10 } else { 1500 }))]

    /// A long delimiter gives the same records as a short one.
    #[test]
    fn as_with_one_byte(
        table in table(),
        (kind, which) in (0usize..4, 0..LONG.len()),
        eol in prop::sample::select(&EOLS),
        size in 1usize..300,
    ) {
        // The text format does not allow some of these delimiters. Nor does `piece` write its escapes.
        let delimiter = if kind == 3 { "||" } else { LONG[which] };
        // A newline within quotes is one more line; the kind of line end does not matter here.
        let eol = if kind < 2 { Eol::Nl } else { eol };
        let (long, short) = pair(kind, delimiter);
        let with = |d: &Dialect, put: &str| file(d, &table, delimiter, put, eol, |_| false);
        let (rows, error) = read(&long, &with(&long, delimiter), size);
        let (expected, none) = read(&short, &with(&short, SHORT), size);
        prop_assert_eq!((error, none), (None, None));
        prop_assert_eq!(cells(&rows), cells(&expected));
        let numbers = |rows: &[Row]| rows.iter().map(|row| row.number).collect::<Vec<_>>();
        prop_assert_eq!(numbers(&rows), numbers(&expected));
    }

    /// Delimiters at the end of all or some lines do not change the records.
    #[test]
    fn as_without_the_last_one(
        table in table(),
        (kind, which) in (0usize..4, 0..=LONG.len()),
        eol in prop::sample::select(&EOLS),
        (some, size) in (1usize..4, 1usize..300),
    ) {
        let delimiter = if kind == 3 { "||" } else { LONG.get(which).copied().unwrap_or("|") };
        let eol = if kind < 2 { Eol::Nl } else { eol };
        let (d, _) = pair(kind, delimiter);
        // An empty last field needs its delimiter.
        let is_empty = |i: usize| table[i].len() > 1 && table[i].last().is_some_and(|field| field.is_empty());
        let ended = file(&d, &table, delimiter, delimiter, eol, |i| is_empty(i) || i % some == 0);
        let bare = file(&d, &table, delimiter, delimiter, eol, |_| false);
        let (rows, error) = read(&trailing(d.clone()), &ended, size);
        let (expected, none) = read(&d, &bare, size);
        prop_assert_eq!((error, none), (None, None));
        prop_assert_eq!(cells(&rows), cells(&expected));
    }

    /// Without quotes, a file's lines and fields are the result of splitting at line ends and delimiters, with any
    /// other bytes in them.
    #[test]
    fn as_if_only_split(
        tokens in proptest::collection::vec((0usize..9, 0u8..12), 0..150),
        which in 0..=LONG.len(),
        size in 1usize..300,
    ) {
        let delimiter = LONG.get(which).copied().unwrap_or("\"");
        let d = unquoted(delimiter, "NULL", false);
        let mut text = "first\n".to_owned();
        for (token, other) in tokens {
            let byte = delimiter.chars().next().unwrap();
            match token {
                0 | 1 => text.push_str(delimiter),
                2 => text.push('\n'),
                3 => text.push(byte),
                4 => text.push_str("NULL"),
                _ => text.push_str(["\"", "'", "\\", "\\.", "\\N", "a", "b", "ä", "€", " ", "|", "~"][usize::from(other)]),
            }
        }
        let lines = text.strip_suffix('\n').unwrap_or(&text).split('\n');
        let cell = |field: &str| match field {
            "NULL" => Cell::Null,
            field => Cell::Bytes(field.into()),
        };
        let expected: Vec<Vec<Cell>> = lines.map(|line| line.split(delimiter).map(cell).collect()).collect();
        let (rows, error) = read(&d, text.as_bytes(), size);
        prop_assert_eq!(error, None);
        prop_assert_eq!(rows.len(), expected.len());
        for (row, expected) in rows.iter().zip(expected) {
            prop_assert_eq!(&row.cells, &expected);
        }
    }
}

/// A delimiter on each side of the edges of blocks, whole and in incomplete halves.
#[test]
fn around_the_edges_of_blocks() {
    for delimiter in LONG {
        for kind in 0..3 {
            let (long, short) = pair(kind, delimiter);
            for at in 40..70 {
                let line = |delimiter: &str, part: &str| {
                    let quoted = if kind == 2 { String::new() } else { char::from(long.quote).to_string() };
                    let x = "x".repeat(at);
                    format!(
                        "z\n{x}{delimiter}{quoted}y{quoted}{delimiter}{part}z{delimiter}{delimiter}\nz{delimiter}\n"
                    )
                };
                let part =
                    delimiter.chars().next().filter(|_| delimiter.is_ascii()).map_or(String::new(), String::from);
                let (rows, _) = read(&long, line(delimiter, &part).as_bytes(), 4096);
                let (expected, _) = read(&short, line(SHORT, &part).as_bytes(), 4096);
                assert_eq!(cells(&rows), cells(&expected), "{delimiter:?} {kind} {at}");
                let (rows, _) = read(&trailing(long.clone()), line(delimiter, &part).as_bytes(), 4096);
                let count = |rows: &[Row]| rows.iter().map(|row| row.cells.len()).collect::<Vec<_>>();
                assert_eq!(count(&rows), [1, 4, 1], "{delimiter:?} {kind} {at}");
            }
        }
    }
}

/// Every byte as the delimiter of a file without quotes.
#[test]
fn any_byte_as_delimiter() {
    for byte in (1u8..128).filter(|&byte| byte != b'\n' && byte != b'\r' && byte != b'z') {
        let delimiter = char::from(byte).to_string();
        let d = unquoted(&delimiter, "", false);
        let file = format!("z{delimiter}z\nz{delimiter}\n{delimiter}{delimiter}zz\n");
        let (rows, error) = read(&d, file.as_bytes(), 100);
        assert_eq!(error, None);
        let z = |n: usize| if n == 0 { Cell::Null } else { Cell::Bytes(vec![b'z'; n]) };
        assert_eq!(cells(&rows), [&[z(1), z(1)][..], &[z(1), z(0)], &[z(0), z(0), z(2)]], "{byte}");
    }
}
