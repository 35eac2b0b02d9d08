//! The reader that continues behind lines with errors: where such a line ends, and how many bytes are read until this
//! is known.

mod dialects;

use dialects::{dialect, levels};
use pg_bulk_text::dialect::{Dialect, EndMarker, Eol};
use pg_bulk_text::line::{LineError, skip_line};
use pg_bulk_text::naive::settings;
use pg_bulk_text::naive::tolerant::{LineResult, lines, read_in_pieces};
use pg_bulk_text::reader::{ReadError, Reader};
use pg_bulk_text::scan::Level;
use proptest::prelude::*;

/// Lines of this many bytes are too long.
const LIMIT: usize = 20_000;

fn text() -> Dialect {
    dialect(false, "\t", "", "", "\\N", EndMarker::Until17)
}

fn csv() -> Dialect {
    dialect(true, ",", "\"", "\"", "", EndMarker::Until17)
}

/// An irregular dialect, which only the exact reader supports.
fn odd() -> Dialect {
    dialect(true, ",", "\"", ",", "", EndMarker::Until17)
}

/// Returns the lines, which must be equal at every level and with reads of these sizes.
fn said(d: &Dialect, data: &[u8], limit: usize, sizes: &[usize]) -> Vec<LineResult> {
    let expected = lines(d, limit, data);
    for level in levels() {
        for &size in sizes {
            let (found, most) = read_in_pieces(settings(d, size, level), limit, data, size);
            assert!(found == expected, "{level:?}, {size} bytes at a time, {d:?}, {found:?}, not {expected:?}");
            // At most the bytes that COPY has read of a line that is too long, plus one read.
            assert!(most <= limit + 65536 + size, "{most} bytes, {size} at a time");
        }
    }
    expected
}

/// A line, or the number of one and its error.
type Short<'a, E> = Result<&'a str, (u64, E)>;

fn short(said: &[LineResult]) -> Vec<Short<'_, ReadError>> {
    let text = |line| std::str::from_utf8(line).unwrap();
    said.iter()
        .map(|said| match said {
            LineResult::Row(row) => Ok(text(&row.line)),
            LineResult::Wrong { error, number, .. } => Err((*number, *error)),
        })
        .collect()
}

#[test]
fn a_wrong_line_ends_at_the_next_end_of_the_files_kind() {
    use LineError::{CarriageReturn, Newline};
    for d in [text(), csv(), odd()] {
        // If lines end in two bytes, COPY counts the first byte of line ends in quotes.
        let second = if d.is_csv() { 3 } else { 2 };
        let cases: [(&[u8], Vec<Short<'_, LineError>>); 7] = [
            (b"1\r\n2\n3\r\n4\r\n", vec![Ok("1"), Err((2, Newline)), Ok("4")]),
            (b"1\r\n2\r3\r\n4\r\n", vec![Ok("1"), Err((second, CarriageReturn)), Ok("4")]),
            (b"1\r\n2\n3\n", vec![Ok("1"), Err((2, Newline))]),
            (b"1\n2\r3\n4\n", vec![Ok("1"), Err((2, CarriageReturn)), Ok("4")]),
            (b"1\r2\n3\r4\r", vec![Ok("1"), Err((2, Newline)), Ok("4")]),
            (b"1\n2\r\n3\n", vec![Ok("1"), Err((2, CarriageReturn)), Ok("3")]),
            (b"1\n2\r", vec![Ok("1"), Err((2, CarriageReturn))]),
        ];
        for (data, expected) in cases {
            let found = said(&d, data, LIMIT, &[1, 2, 3, 5, 100]);
            let expected: Vec<_> =
                expected.into_iter().map(|line| line.map_err(|(n, e)| (n, ReadError::Line(e)))).collect();
            assert_eq!(short(&found), expected, "{d:?} {:?}", String::from_utf8_lossy(data));
        }
    }
    // Line ends between quotes behind the error do not end the line.
    let found = said(&csv(), b"1\n2\r\"3\n4\n\"5\n6\n", LIMIT, &[1, 2, 3, 5, 100]);
    assert_eq!(short(&found), [Ok("1"), Err((4, ReadError::Line(CarriageReturn))), Ok("6")]);
    // In text, neither does an escaped line end.
    let found = said(&text(), b"1\n2\r\\\n3\n4\n", LIMIT, &[1, 2, 3, 5, 100]);
    assert_eq!(short(&found), [Ok("1"), Err((2, ReadError::Line(CarriageReturn))), Ok("4")]);
}

#[test]
fn what_a_wrong_line_is_passed_to() {
    let nl = Some(Eol::Nl);
    for (d, eol, line, expected) in [
        (csv(), nl, &b"a\rb\nc"[..], Some((3, 4, false))),
        (csv(), nl, b"a\r\"b\nc\n", None),
        (csv(), nl, b"a\r\"b\n\"c\n", Some((7, 8, false))),
        (csv(), Some(Eol::CrNl), b"a\nb\rc\r", None),
        (csv(), Some(Eol::CrNl), b"a\nb\rc\r\n", Some((5, 7, false))),
        (csv(), Some(Eol::Cr), b"a\nb\r", Some((3, 4, false))),
        (text(), nl, b"a\r\\\nb\n", Some((5, 6, false))),
        (text(), Some(Eol::CrNl), b"a\n\\\r\n\r\n", Some((5, 7, false))),
        (text(), None, b"\\.a\rb", Some((3, 4, false))),
        (text(), None, b"\\.a\r", None),
    ] {
        assert_eq!(skip_line(&d, eol, line, false), expected, "{:?}", String::from_utf8_lossy(line));
        let whole = skip_line(&d, eol, line, true);
        match expected {
            None if eol.is_none() => assert_eq!(whole, Some((3, 4, false))),
            None => assert_eq!(whole, Some((line.len(), line.len(), true))),
            some => assert_eq!(whole, some),
        }
    }
}

/// A line with an error and without an end becomes too long as any other, and no more of it is read.
#[test]
fn a_wrong_line_without_an_end_is_too_long() {
    let body = |line: &[u8]| line.repeat(100_000 / line.len());
    for d in [text(), csv(), odd()] {
        for (first, behind) in [
            (&b"a\r\n"[..], body(b"12345678,x\n")),
            (b"a\r\n", body(b"12345678\r")),
            (b"a\n", [b"2\r\"", &body(b"12345678,x\n")[..]].concat()),
            (b"a\n", [b"2\r\\", &body(b"\n\\")[..]].concat()),
            (b"a\r", [b"2\n", &body(b"12345678,x")[..]].concat()),
        ] {
            let data = [first, &behind].concat();
            let found = said(&d, &data, LIMIT, &[1000, 30_000, 1 << 18]);
            let is_passed = matches!((first, d.is_csv()), (b"a\n", csv) if csv == behind.starts_with(b"2\r\\"));
            if is_passed {
                assert!(found.len() > 2, "{d:?} {}", found.len());
                continue;
            }
            assert_eq!(found.len(), 2, "{d:?}");
            let end = ReadError::TooLong { containing: 0, more: 65536 - first.len() as u64 };
            assert!(
                matches!(&found[1], LineResult::Wrong { error, line: None, .. } if *error == end),
                "{d:?} {:?}",
                found[1]
            );
        }
    }
}

/// The longest valid line, and the shortest that is too long, with and without an error in it.
#[test]
fn the_longest_line() {
    for d in [text(), csv(), odd()] {
        for (wrong, eol) in [(&b""[..], &b"\n"[..]), (b"\r", b"\n"), (b"", b"\r\n"), (b"\n", b"\r\n")] {
            for (more, fits) in [(0, true), (1, false)] {
                let mut line = vec![b'x'; LIMIT - 1 + more - wrong.len() - eol.len()];
                line.extend(wrong);
                let data = [b"1", eol, &line, eol, b"2", eol].concat();
                let found = said(&d, &data, LIMIT, &[5000, 1 << 20]);
                assert_eq!(found.len(), if fits { 3 } else { 2 });
                let is_too_long =
                    |said: &LineResult| matches!(said, LineResult::Wrong { error: ReadError::TooLong { .. }, .. });
                assert_eq!(found.iter().any(is_too_long), !fits);
            }
        }
    }
}

/// Positions in the buffer have 31 bits.
#[test]
fn a_buffer_has_an_end() {
    let mut reader = Reader::new(settings(&csv(), 1, Level::best()));
    assert!(reader.chunk_space(1 << 31).is_none());
    assert!(reader.chunk_space((1 << 31) - 63).is_none());
    assert!(reader.chunk_space(1000).is_some());
}

fn soup() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        6 => Just(&b"a"[..]), 2 => Just(&b"\""[..]), 2 => Just(&b","[..]), 1 => Just(&b"\t"[..]), 3 => Just(&b"\n"[..]),
        3 => Just(&b"\r\n"[..]), 2 => Just(&b"\r"[..]), 1 => Just(&b"\\"[..]), 1 => Just(&b"\\.\n"[..]),
        1 => Just(&b"\xff"[..]), 1 => Just(&b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"[..]), 1 => Just("€".as_bytes()),
    ];
    proptest::collection::vec(token, 0..120).prop_map(|v| v.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 10 } else { 1000 }))]

    #[test]
    fn random_files(data in soup(), which in 0usize..3, size in 1usize..200, limit in 10usize..400) {
        let d = [text(), csv(), odd()][which].clone();
        for limit in [limit, LIMIT] {
            said(&d, &data, limit, &[size, 1 << 16]);
        }
    }
}
