//! Skipped records are counted as if they had been read, and the records behind them are the same. Compared with the
//! naive reader, in every dialect, at every buffer size and level.

mod dialects;

use dialects::{levels, pass, regular};
use pg_bulk_text::dialect::{Dialect, Eol};
use pg_bulk_text::naive;
use proptest::prelude::*;

fn check(d: &Dialect, data: &[u8], sizes: &[usize]) -> usize {
    let (rows, error) = naive::rows(d, data);
    let mut most = 0;
    for level in levels() {
        for &size in sizes {
            for fields in 1..4 {
                most = most.max(pass(naive::settings(d, size, level), data, fields, &rows, error));
            }
        }
    }
    most
}

#[test]
fn records_of_one_kind_are_passed_by() {
    for d in regular() {
        let delimiter = d.separator.bytes();
        let last = if d.trailing { delimiter } else { b"" };
        let line = [b"1", delimiter, b"x", delimiter, b"3", last, b"\n"].concat();
        // All but the first one, with reads of any size; the last record has no line end.
        assert_eq!(check(&d, &line.repeat(1000), &[64, 1000, 65536]), 999);
        assert_eq!(check(&d, &[&line.repeat(1000)[..], b"1,x,3"].concat(), &[65536]), 999);
    }
}

/// A CRLF is not divided where the reader stops to look: behind 4,096 bytes, and 4,097 are whole records.
#[test]
fn line_ends_where_splitting_stops() {
    for d in regular() {
        let d = Dialect { line_end: Some(Eol::Any), ..d };
        let last = if d.is_csv() { d.separator.bytes() } else { b"\\x" };
        let record = [&vec![b'x'; 15 - last.len()], last, b"\r\n"].concat();
        check(&d, &record.repeat(10_000), &[65536]);
    }
}

#[test]
fn around_the_edges_of_blocks() {
    let bytes = [b'"', b'\\', b'\n', b'\r', b',', b'\t', b'.', b'\''];
    for d in regular() {
        for at in (58..70).chain(124..132) {
            for first in bytes {
                for second in bytes {
                    let mut file = b"1\n2\n".to_vec();
                    file.extend(vec![b'x'; at]);
                    file.extend([first, second, b'y', d.quote]);
                    file.extend([d.separator.bytes(), b"z\n1", d.separator.bytes(), b"\n2\n"].concat());
                    check(&d, &file, &[64, 4096]);
                }
            }
        }
    }
}

#[test]
fn quotes_around_lines_do_not_matter() {
    let d = &regular()[0];
    let file = b"\"1\",\"a \"\"b\"\"\n\"\n".repeat(300);
    assert_eq!(check(d, &file, &[100, 65536]), 299);
}

fn file() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        9 => Just(&b"a"[..]), 2 => Just(&b"\"b\""[..]), 1 => Just(&b"\""[..]), 4 => Just(&b","[..]), 3 => Just(&b"\t"[..]),
        6 => Just(&b"\n"[..]), 1 => Just(&b"\\"[..]), 1 => Just(&b"\\.\n"[..]), 1 => Just(&b"\r\n"[..]),
        1 => Just(&b"'"[..]), 1 => Just(&b"e"[..]), 1 => Just("€".as_bytes()), 1 => Just(&b"\xff"[..]),
        1 => Just(&b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"[..]), 1 => Just(&b"|"[..]),
        1 => Just(&b"||"[..]), 1 => Just(&b"aa"[..]), 1 => Just(&b",x,"[..]), 1 => Just(&b"||\n"[..]),
    ];
    proptest::collection::vec(token, 0..200).prop_map(|v| v.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn random_files(data in file(), which: prop::sample::Index, size in 1usize..200) {
        check(which.get(&regular()), &data, &[size, 65536]);
    }
}
