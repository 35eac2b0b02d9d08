//! An error of a line is raised as soon as the bytes that show it have arrived, as in COPY, and not at the end of the
//! line: the sender may wait for the error.

mod dialects;

use dialects::{EOLS, levels, line_end, regular, regular_with};
use pg_bulk_text::dialect::{Dialect, Eol};
use pg_bulk_text::line::{self, Line};
use pg_bulk_text::naive;
use pg_bulk_text::reader::{Event, ReadError, Reader};
use pg_bulk_text::scan::Level;
use proptest::prelude::*;

/// The results of a reader before it learns that the data end.
#[derive(Debug, PartialEq, Eq)]
struct ReaderResult {
    records: usize,
    /// The error, and the number of bytes that had arrived.
    error: Option<(ReadError, usize)>,
}

fn read_at_once(d: &Dialect, level: Level, data: &[u8], piece: usize) -> ReaderResult {
    let mut reader = Reader::new(naive::settings(d, piece, level));
    let (mut fed, mut records) = (0, 0);
    loop {
        match reader.advance() {
            Event::NeedData if fed == data.len() => return ReaderResult { records, error: None },
            Event::NeedData => {
                let space = reader.space();
                let n = (data.len() - fed).min(space.len());
                space[..n].copy_from_slice(&data[fed..fed + n]);
                fed += n;
                reader.filled(n);
            }
            Event::Record => records += 1,
            Event::Error(error) => return ReaderResult { records, error: Some((error, fed)) },
            Event::Header | Event::End => return ReaderResult { records, error: None },
        }
    }
}

/// Returns the error of the last line, if it has one, and the number of bytes that show it.
fn shown_by(d: &Dialect, data: &[u8]) -> Option<(ReadError, usize)> {
    let (mut eol, mut at) = (None, 0);
    loop {
        match line::read_line(d, &mut eol, &data[at..], false) {
            Line::End { content: 0, .. } => return None,
            // COPY continues behind an end marker that is not alone on its line.
            Line::Complete { next, .. } | Line::End { next, .. } => at += next,
            Line::NeedMore { .. } | Line::Error { .. } => break,
        }
    }
    (at..=data.len()).find_map(|end| match line::read_line(d, &mut eol.clone(), &data[at..end], false) {
        Line::Error { kind, .. } => Some((ReadError::Line(kind), end)),
        _ => None,
    })
}

/// The error may come this many bytes late: they may begin an end marker, or be bytes behind which COPY itself waits.
const OPEN: usize = 3;

/// With reads of any size, the error comes with the read that shows it, or at most `OPEN` bytes later.
fn check(d: &Dialect, data: &[u8], pieces: &[usize]) {
    if d.lenient_quotes {
        // The exact reader waits until it knows whether a quote counts.
        return;
    }
    let expected = shown_by(d, data);
    for level in levels() {
        for &piece in pieces {
            let outcome = read_at_once(d, level, data, piece);
            let context =
                || format!("{level:?} {piece} {outcome:?} {expected:?} {d:?} {:?}", String::from_utf8_lossy(data));
            match (expected, outcome.error) {
                (None, None) => (),
                (Some((error, shown)), Some((found, fed))) => {
                    assert_eq!(found, error, "{}", context());
                    assert!((shown..=(shown + OPEN).next_multiple_of(piece)).contains(&fed), "{}", context());
                }
                (Some((_, shown)), None) if shown + OPEN > data.len() => (),
                _ => panic!("{}", context()),
            }
        }
    }
}

/// Another kind of line end, near a record's start and far from it, in and out of quotes.
#[test]
fn other_line_ends() {
    for (d, eol) in regular_with(&EOLS) {
        for other in [&b"\n"[..], b"\r", b"\n\r"] {
            for before in [0, 1, 5, 62, 63, 64, 65, 127, 200, 5000] {
                for quoted in [false, true] {
                    let quote: &[u8] = if quoted { &[d.quote] } else { b"" };
                    let end = line_end(eol);
                    let data = [b"1", end, b"2", end, quote, &vec![b'x'; before], other, b"yz"].concat();
                    check(&d, &data, &[1, 3, 64, 100_000]);
                }
            }
        }
    }
}

/// One plain line, with the expected result.
#[test]
fn one_line_of_a_client() {
    let d = &regular()[0];
    for (data, fed) in [(&b"1\r\n2\n"[..], 5), (b"1\r\n2\rx", 6), (b"1\n2\rx", 5), (b"1\r2\n", 4)] {
        let outcome = read_at_once(d, Level::best(), data, 1);
        assert!(
            matches!(outcome, ReaderResult { records: 1, error: Some((ReadError::Line(_), at)) } if at == fed),
            "{outcome:?}"
        );
    }
}

/// Bytes that may still become a line do not raise an error.
#[test]
fn lines_that_are_not_complete() {
    for (d, eol) in regular_with(&EOLS) {
        let end = line_end(eol);
        let mut records =
            vec![b"2".to_vec(), [b"x".repeat(3000), b"\r".repeat(usize::from(eol == Eol::CrNl))].concat()];
        if d.is_csv() && !d.is_literal() {
            records.push([&[d.quote], &b"a\r\nb\nc\rd".repeat(500)[..]].concat());
        }
        for record in records {
            let data = [b"1", end, &record].concat();
            for level in levels() {
                for piece in [1, 64, 1000] {
                    let outcome = read_at_once(&d, level, &data, piece);
                    assert_eq!(outcome, ReaderResult { records: 1, error: None }, "{piece} {d:?} {eol:?}");
                }
            }
        }
    }
}

fn soup() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        6 => Just(&b"a"[..]), 2 => Just(&b"\""[..]), 2 => Just(&b","[..]), 1 => Just(&b"'"[..]), 1 => Just(&b"\n"[..]),
        1 => Just(&b"\r\n"[..]), 1 => Just(&b"\r"[..]), 1 => Just(&b"\\"[..]), 1 => Just(&b"\\."[..]),
        2 => Just(&b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"[..]),
    ];
    proptest::collection::vec(token, 0..80).prop_map(|v| v.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 10 } else { 1500 }))]

    #[test]
    fn random_files(which: prop::sample::Index, eol in prop::sample::select(&EOLS), data in soup(), piece in 1usize..100) {
        let d = &which.get(&regular()).clone();
        check(d, &[b"1", line_end(eol), &data].concat(), &[piece]);
    }
}
