//! An error about a line is raised when the bytes are there that show it, as COPY does, and not when the line ends: who sends
//! them may wait for that.

mod dialects;

use dialects::{EOLS, levels, line_end, regular};
use pg_bulk_format::dialect::{Dialect, Eol};
use pg_bulk_format::line::{self, Line};
use pg_bulk_format::reader::{Event, ReadError, Reader, Settings};
use pg_bulk_format::scan::Level;
use proptest::prelude::*;

/// What a reader says before it is told that the data end.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    records: usize,
    /// The error, and how many bytes it had then.
    error: Option<(ReadError, usize)>,
}

fn say(d: &Dialect, level: Level, data: &[u8], piece: usize) -> Said {
    let mut reader = Reader::new(Settings {
        dialect: d.clone(),
        read_size: piece,
        utf8: true,
        max_char: 4,
        skip_bom: false,
        header_lines: 0,
        header_fields: false,
        max_fields: usize::MAX,
        level,
    });
    let (mut fed, mut records) = (0, 0);
    loop {
        match reader.advance() {
            Event::NeedData if fed == data.len() => return Said { records, error: None },
            Event::NeedData => {
                let space = reader.space();
                let n = (data.len() - fed).min(space.len());
                space[..n].copy_from_slice(&data[fed..fed + n]);
                fed += n;
                reader.filled(n);
            }
            Event::Record => records += 1,
            Event::Error(error) => return Said { records, error: Some((error, fed)) },
            Event::Header | Event::End => return Said { records, error: None },
        }
    }
}

/// How many bytes show the error about the last line, if there is one.
fn shown_by(d: &Dialect, data: &[u8]) -> Option<(ReadError, usize)> {
    let (mut eol, mut at) = (None, 0);
    loop {
        match line::read_line(d, &mut eol, &data[at..], false) {
            Line::End { content: 0, .. } => return None,
            // COPY reads on behind an end marker that is not alone.
            Line::Complete { next, .. } | Line::End { next, .. } => at += next,
            Line::NeedMore { .. } | Line::Error { .. } => break,
        }
    }
    (at..=data.len()).find_map(|end| match line::read_line(d, &mut eol.clone(), &data[at..end], false) {
        Line::Error { kind, .. } => Some((ReadError::Line(kind), end)),
        _ => None,
    })
}

/// As many bytes at the end may be waited behind: they may begin an end marker, or what COPY itself waits behind.
const OPEN: usize = 3;

/// In pieces of any size, the error is there with the piece that shows it, or hardly later.
fn check(d: &Dialect, data: &[u8], pieces: &[usize]) {
    let expected = shown_by(d, data);
    for level in levels() {
        for &piece in pieces {
            let said = say(d, level, data, piece);
            let context =
                || format!("{level:?} {piece} {said:?} {expected:?} {d:?} {:?}", String::from_utf8_lossy(data));
            match (expected, said.error) {
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

/// A line end of another kind, near a record's start and far from it, in and out of quotes.
#[test]
fn other_line_ends() {
    for d in regular() {
        for eol in EOLS {
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
}

/// The plain case, with what it must be.
#[test]
fn one_line_of_a_client() {
    let d = &regular()[0];
    for (data, fed) in [(&b"1\r\n2\n"[..], 5), (b"1\r\n2\rx", 6), (b"1\n2\rx", 5), (b"1\r2\n", 4)] {
        let said = say(d, Level::best(), data, 1);
        assert!(matches!(said, Said { records: 1, error: Some((ReadError::Line(_), at)) } if at == fed), "{said:?}");
    }
}

/// What may yet become a line is waited for.
#[test]
fn lines_that_are_not_complete() {
    for d in regular() {
        for eol in EOLS {
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
                        let said = say(&d, level, &data, piece);
                        assert_eq!(said, Said { records: 1, error: None }, "{piece} {d:?} {eol:?}");
                    }
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
