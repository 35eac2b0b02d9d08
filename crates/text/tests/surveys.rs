//! Sums over blocks compared with step-by-step results: a surveyed cut with the search through all bytes, and records
//! counted by blocks with records counted one by one.

mod dialects;

use dialects::{levels, line_end, with_line_ends};
use pg_bulk_text::dialect::{Dialect, Eol};
use pg_bulk_text::scan::{Carry, CutState, Level, Needles, Scanner};
use proptest::prelude::*;

const EOLS: [Eol; 4] = [Eol::Nl, Eol::Cr, Eol::CrNl, Eol::Any];

fn check_cuts(d: &Dialect, eol: Eol, file: &[u8], len: usize) {
    check_ranges(d, eol, &file.chunks(len).collect::<Vec<_>>());
}

/// Checks each range of a file, behind the bytes before it, and alone.
fn check_ranges(d: &Dialect, eol: Eol, ranges: &[&[u8]]) {
    for level in levels() {
        let scanner = Scanner::new(Needles::new(d, eol).unwrap(), level);
        let mut carry = Carry::default();
        for (number, range) in ranges.iter().enumerate() {
            let survey = scanner.survey(range);
            assert_eq!(scanner.is_plain(&survey), range.iter().all(|byte| (1..128).contains(byte)));
            assert!(scanner.has_backslash(&survey) || !range.contains(&b'\\'));
            let mut next = carry;
            for before in [Carry::default(), carry] {
                let mut expected = CutState::behind(before);
                scanner.cut(range, &mut expected);
                let found = scanner.cut_surveyed(range, &survey, before);
                assert_eq!(found, expected, "{level:?} {eol:?} {number}, {d:?} {:?}", shown(&ranges.concat()));
                next = expected.carry();
            }
            carry = next;
        }
    }
}

fn shown(file: &[u8]) -> String {
    let shown = String::from_utf8_lossy(file).replace(&"x".repeat(100), "<100 x>");
    shown.replace(&"\n".repeat(100), "<100 newlines>")
}

/// Few special bytes and many others: a survey searches for the last line end 4,096 bytes at a time.
fn tokens() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let token = prop_oneof![
        4 => Just(b"\"".to_vec()), 4 => Just(b"EOL".to_vec()), 2 => Just(b",".to_vec()), 1 => Just(b"\\".to_vec()),
        1 => Just(b"\r".to_vec()), 1 => Just(b"\n".to_vec()), 1 => Just(b"'".to_vec()), 1 => Just(b"\xe2\x82".to_vec()),
        1 => Just(b"\0".to_vec()), 1 => Just(b"e".to_vec()), 1 => Just(b"\\.".to_vec()),
        3 => (1usize..200).prop_map(|n| vec![b'x'; n]),
        2 => (4000usize..4200).prop_map(|n| vec![b'x'; n]),
        1 => (4000usize..4200).prop_map(|n| vec![b'\n'; n]),
    ];
    proptest::collection::vec(token, 0..30)
}

/// If a range ends with one long record, the bytes before the record are searched forwards.
#[test]
fn long_records() {
    for (d, eol) in dialects::regular_with(&EOLS) {
        for blob in [15 * 4096 - 100, 16 * 4096 - 8, 17 * 4096 + 30, 40 * 4096] {
            let newlines = [&b"x\n".repeat(blob / 2)[..], b"\""].concat();
            for blob in [vec![b'x'; blob], [b"\"", &newlines[..]].concat(), newlines] {
                let tokens = [b"a,b".to_vec(), b"EOL".to_vec(), b"\"c\"".to_vec(), b"EOL".to_vec(), blob];
                let file = with_line_ends(&tokens, eol);
                check_cuts(&d, eol, &file, file.len().next_multiple_of(64));
                check_cuts(&d, eol, &file, 20 * 4096);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 5 } else { 600 }))]

    #[test]
    fn surveyed_cuts(tokens in tokens(), which: prop::sample::Index, eol in prop::sample::select(&EOLS), blocks in 1usize..200) {
        let file = with_line_ends(&tokens, eol);
        let d = &which.get(&dialects::regular()).clone();
        check_cuts(d, eol, &file, blocks * 64);
        check_cuts(d, eol, &file, 64);
        check_cuts(d, eol, &file, 4096);
    }

    #[test]
    fn tallies(
        records in proptest::collection::vec((0usize..60, 0usize..8), 0..60),
        which: prop::sample::Index,
        eol in prop::sample::select(&EOLS),
        (fields, wrong) in (1usize..70, 0usize..200),
    ) {
        let d = &which.get(&dialects::regular()).clone();
        let mut file = Vec::new();
        for (i, (length, quoted)) in records.into_iter().enumerate() {
            for field in 0..fields + usize::from(i == wrong) {
                if field > 0 {
                    file.extend(d.separator.bytes());
                }
                if field == quoted && d.is_csv() {
                    file.extend([&[d.quote], line_end(eol), &[d.delimiter, d.quote]].concat());
                }
            }
            file.resize(file.len() + length, b'x');
            file.extend(line_end(eol));
        }
        let scanner = |level| Scanner::new(Needles::new(d, eol).unwrap(), level);
        let expected = scanner(Level::Scalar).tally(&file, 0, fields);
        for level in levels() {
            prop_assert_eq!(scanner(level).tally(&file, 0, fields), expected, "{:?} {:?}", level, shown(&file));
        }
    }
}

/// With an even or odd number of quotes, the last line end is found at any distance from the end.
#[test]
fn far_from_the_end() {
    for (d, eol) in dialects::regular_with(&EOLS) {
        let all = [0, 1, 63, 64, 4094, 4095, 4096, 4097, 8191, 8192, 12345];
        for &far in if cfg!(miri) { &all[..3] } else { &all[..] } {
            for quotes in 0..3 {
                let quotes = vec![d.quote; quotes];
                let file = [b"1", line_end(eol), &quotes, b"2", line_end(eol), &vec![b'x'; far]].concat();
                check_cuts(&d, eol, &file, file.len());
                check_cuts(&d, eol, &[&[b'y'; 64], &file[..]].concat(), 64);
            }
        }
    }
}

/// An escape before the edge matters in a range without escapes, which is searched at its end only.
#[test]
fn an_escape_far_from_the_end() {
    for (d, eol) in dialects::regular_with(&EOLS) {
        let escape = if d.is_csv() { d.escape } else { b'\\' };
        for escapes in 1..4 {
            for taken in [&[d.quote][..], b"\n", b"\r", b"y"] {
                let mut before = vec![b'x'; 64 - escapes];
                before[0] = d.quote;
                before.resize(64, escape);
                let end = line_end(eol);
                let behind = [taken, end, &[d.quote], end, &[b'x'; 5000], &[d.quote], end, b"y", end, b"z"].concat();
                check_ranges(&d, eol, &[&before, &behind]);
            }
        }
    }
}

/// Half a line end at the end of the bytes that are not searched, in and out of quotes.
#[test]
fn a_line_end_at_the_edge_of_a_piece() {
    for (d, eol) in dialects::regular_with(&EOLS) {
        for quotes in 0..3 {
            for before in if cfg!(miri) { 4095..4096 } else { 4088..4100 } {
                let mut file = vec![d.quote; quotes];
                file.resize(before, b'x');
                file.extend([line_end(eol), &[b'x'; 100]].concat());
                check_cuts(&d, eol, &file, file.len());
            }
        }
    }
}

/// More line ends at one byte position of the blocks than a byte can count.
#[test]
#[cfg_attr(miri, ignore = "slow")]
fn many_line_ends() {
    for (d, eol) in dialects::regular_with(&EOLS) {
        for blocks in [255, 256, 600] {
            let file = [line_end(eol).repeat(blocks * 64), vec![b'x'; 5000]].concat();
            check_cuts(&d, eol, &file, file.len());
        }
    }
}
