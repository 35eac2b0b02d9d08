//! The search for line ends compared with the exact line reader, for every prefix of a file.
//!
//! The search may stop and continue at any byte. With any division, its result must be the last of the line ends that
//! [`line::read_line`] finds in the same bytes, with COPY's count of lines. Files are those of regular dialects, up to
//! the first error of COPY or the end of its data: bytes behind that are never searched.

mod dialects;

use dialects::{EOLS, levels, with_line_ends};
use pg_bulk_text::dialect::{Dialect, Eol};
use pg_bulk_text::line::{self, Line};
use pg_bulk_text::scan::{CutState, Needles, Scanner};
use proptest::prelude::*;

/// A line end, and COPY's count of lines up to it.
type Found = (usize, u64);

/// Returns the line ends of the file, and the number of bytes that COPY reads as lines.
fn by_read_line(d: &Dialect, eol: Eol, file: &[u8]) -> (Vec<Found>, usize) {
    let (mut known, mut at, mut lines) = (Some(eol), 0, 0);
    let mut ends = Vec::new();
    loop {
        match line::read_line(d, &mut known, &file[at..], true) {
            Line::Complete { next, embedded, .. } => {
                at += next;
                lines += 1 + embedded;
                ends.push((at, lines));
            }
            // The search covers an unterminated line, but not the bytes behind an end marker.
            Line::End { content, .. } if at + content == file.len() => return (ends, file.len()),
            Line::End { .. } | Line::Error { .. } => return (ends, at),
            Line::NeedMore { .. } => unreachable!("all there is was given"),
        }
    }
}

fn last_within(ends: &[Found], seen: usize) -> Option<Found> {
    ends.iter().copied().take_while(|&(end, _)| end <= seen).last()
}

/// Searches each prefix from its start.
fn check_prefixes(d: &Dialect, eol: Eol, file: &[u8]) {
    // Where bytes behind a line end decide whether quotes count, only whole ranges are compared (tests/lenient.rs).
    if d.lenient_quotes {
        return;
    }
    let (ends, readable) = by_read_line(d, eol, file);
    for level in levels() {
        let scanner = Scanner::new(Needles::new(d, eol).unwrap(), level);
        for seen in 0..=readable {
            let mut state = CutState::default();
            scanner.cut(&file[..seen], &mut state);
            let found = state.last.map(|last| (last, state.lines));
            assert_eq!(found, last_within(&ends, seen), "{level:?} {eol:?} {seen} of {} {d:?}", shown(file));
        }
    }
}

/// Searches the file in parts, as the reader does: complete lines are removed.
fn check_pieces(d: &Dialect, eol: Eol, file: &[u8], pieces: &[usize]) {
    if d.lenient_quotes {
        return;
    }
    let (ends, readable) = by_read_line(d, eol, file);
    for level in levels() {
        let scanner = Scanner::new(Needles::new(d, eol).unwrap(), level);
        let mut state = CutState::default();
        let (mut taken, mut lines, mut seen) = (0, 0, 0);
        let mut sizes = pieces.iter().cycle();
        while seen < readable {
            seen = readable.min(seen + sizes.next().unwrap());
            scanner.cut(&file[taken..seen], &mut state);
            if let Some(last) = state.last {
                lines += state.lines;
                taken += last;
                state.taken();
            }
            let expected = last_within(&ends, seen).unwrap_or_default();
            assert_eq!((taken, lines), expected, "{level:?} {eol:?} {seen}, {pieces:?} of {} {d:?}", shown(file));
        }
    }
}

fn shown(file: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(file))
}

/// Two structural bytes at each position around the edges of two blocks, in and out of quotes, cut at every byte.
#[test]
fn block_edges() {
    let bytes: &[u8] = if cfg!(miri) { b"\"\n" } else { b"\"\\\n\r,e'" };
    let places: Vec<usize> = if cfg!(miri) { vec![62] } else { (60..66).chain(125..129).collect() };
    for (d, eol) in dialects::regular_with(&EOLS) {
        for &at in &places {
            for &first in bytes {
                for &second in bytes {
                    for opened in [false, true] {
                        let mut file = with_line_ends(&[&b"1"[..], b"EOL"], eol);
                        file.resize(at, b'x');
                        if opened {
                            file[4] = d.quote;
                        }
                        file.extend([first, second]);
                        file.extend(with_line_ends(&[&b"y"[..], b"EOL"], eol));
                        file.push(d.quote);
                        file.extend(with_line_ends(&[&b"EOL"[..], b"z", b"EOL"], eol));
                        check_pieces(&d, eol, &file, &[64]);
                        check_pieces(&d, eol, &file, &[at + 1, 1, 1]);
                    }
                }
            }
        }
    }
}

/// Line ends on, before and behind the edges of blocks.
#[test]
fn every_length() {
    for (d, eol) in dialects::regular_with(&EOLS) {
        for length in if cfg!(miri) { 62..66 } else { 0..140 } {
            let mut file = vec![b'x'; length];
            file.extend(with_line_ends(&[&b"EOL"[..], b"EOL", b"y", b"EOL", b"z"], eol));
            check_prefixes(&d, eol, &file);
            check_pieces(&d, eol, &file, &[1]);
            check_pieces(&d, eol, &file, &[length + 1, 1, 2]);
        }
    }
}

fn tokens() -> impl Strategy<Value = Vec<&'static [u8]>> {
    let token = prop_oneof![
        6 => Just(&b"a"[..]), 4 => Just(&b"\""[..]), 2 => Just(&b","[..]), 1 => Just(&b"\t"[..]),
        4 => Just(&b"EOL"[..]), 2 => Just(&b"\\\\"[..]), 1 => Just(&b"\\"[..]), 1 => Just(&b"\\\""[..]),
        1 => Just(&b"'"[..]), 1 => Just(&b"e"[..]), 1 => Just(&b"\"\n\r\r\n\""[..]), 1 => Just("€".as_bytes()),
        1 => Just(&b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"[..]), 1 => Just(&b"\\x"[..]),
    ];
    proptest::collection::vec(token, 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 10 } else { 1000 }))]

    #[test]
    fn random_files(
        tokens in tokens(),
        which: prop::sample::Index,
        eol in prop::sample::select(&EOLS),
        pieces in prop::collection::vec(prop_oneof![1usize..4, 1usize..200], 1..8),
    ) {
        let d = &which.get(&dialects::regular()).clone();
        let file = with_line_ends(&tokens, eol);
        check_prefixes(d, eol, &file);
        check_pieces(d, eol, &file, &pieces);
        check_pieces(d, eol, &file, &[1]);
    }
}
