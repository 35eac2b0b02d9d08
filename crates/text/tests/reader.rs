//! The reader compared with the naive reader: a table of files and random ones, in every dialect, at every buffer size
//! and level.

mod dialects;

use dialects::{dialect, levels};
use pg_bulk_text::dialect::{Dialect, EndMarker};
use pg_bulk_text::line::LINE_LIMIT;
use pg_bulk_text::naive::{self, tolerant};
use pg_bulk_text::reader::{Event, ReadError, Reader, Value};
use pg_bulk_text::scan::Level;
use proptest::prelude::*;

/// Regular dialects, and irregular ones, which only the exact reader supports.
fn all_dialects() -> Vec<Dialect> {
    let old = EndMarker::Until17;
    let irregular = [
        dialect(false, "A", "", "", "\\N", old),
        dialect(true, ",", "\n", "\n", "", old),
        dialect(true, ",", "\"", ",", "", old),
        dialect(true, "\\", "\"", "\"", "", old),
        dialect(true, ",", "\\", "\\", "", old),
        dialect(true, ",a", "\"", "a", "", old),
        dialects::trailing(dialect(false, "AA", "", "", "", old)),
    ];
    dialects::regular().into_iter().chain(irregular).collect()
}

fn check(d: &Dialect, data: &[u8], sizes: &[usize]) {
    let expected = naive::rows(d, data);
    let expected_lines = tolerant::lines(d, LINE_LIMIT, data);
    for level in levels() {
        for &size in sizes {
            let (got, _) = tolerant::read_in_pieces(naive::settings(d, size, level), LINE_LIMIT, data, size);
            assert!(
                got == expected_lines,
                "{level:?}, {size} bytes at a time, {d:?}, {:?}",
                String::from_utf8_lossy(data)
            );
            let got = naive::read_in_pieces(naive::settings(d, size, level), data, size);
            assert_eq!(got, expected, "{level:?}, {size} bytes at a time, {d:?}, {:?}", String::from_utf8_lossy(data));
        }
    }
}

const SIZES: &[usize] = &[1, 2, 3, 7, 63, 64, 65, 128, 1000, 65536];

#[test]
fn hand_written() {
    let files: &[&[u8]] = &[
        b"",
        b"\n",
        b"\n\n",
        b"a",
        b"a,b\tc\nd,e\tf\n",
        b"a,b\r\nc,d\r\n",
        b"a,b\rc,d\r",
        b"a\nb\r\n",
        b"a\r\nb\n",
        b"a\r\nb\rc\r\n",
        b"a\rb\n",
        b"a\r\nb\r",
        b"\"a\",\"b\"\n\"\",\"c\"\"d\"\n",
        b"\"a\nb\",1\n2,\"c\r\nd\"\n",
        b"a\"b,c\"d\n,\n",
        b"\"abc\"def,1\n\"x\"\"\",\"\"\"y\"\n",
        b"\"unterminated,1\n2,3\n",
        b"\"a\\\"b\",\"c\\\\\",d\\\n\"\\n\"\n",
        b"'a','b''c'\t''\n",
        b"\\N\ta\\tb\\\\\t\\\tx\n\\\nz\n",
        b"a\\.\nb\n",
        b"\\.\nb\n",
        b"x\n\\.\nb\n",
        b"x\n\\.",
        b"x\n\\.y\nz\n",
        b"x\r\n\\.\r\nb\r\n",
        b"x\r\n\\.\nb\r\n",
        b"x\r\n\\.y\r\n",
        b"\"x\n\\.\n\"\ny\n",
        b"a\\",
        b"\"e\"e\"\"ee\"|x\n",
        b"x\\x4A1A\\x4\n",
        b"\xef\xbb\xbfa\n",
        b"a||b|||c||||d||\n|||\n||\n|\n",
        b"a||\"b||c\"||\"d\"|||\r\n\"x\"\"||y\"||\r\n||z\r\n",
        b"aaaaa\tb\r\naaa\raa\nbaa\r\n",
        "1€'2€'€€3\n\u{20ac}\n\u{20ad}€\n".as_bytes(),
        b"1,x,x,2,x,\n,x\n\"1\",x,\"e\"\",x,\"\n,x,,x,\n",
        b"\\|||a||\\||b||\n\\N||\\.||\nc||\\",
    ];
    for d in all_dialects() {
        for file in files {
            check(&d, file, SIZES);
        }
    }
}

/// Each structural byte at each position around the edges of a block.
#[test]
fn block_edges() {
    let bytes = [b'"', b'\\', b'\n', b'\r', b',', b'\t', b'.', b'\''];
    for d in all_dialects() {
        for at in (58..70).chain(124..132) {
            for first in bytes {
                for second in bytes {
                    for opened in [false, true] {
                        let mut file = vec![b'x'; at];
                        if opened {
                            file[0] = d.quote;
                        }
                        file.extend([first, second, b'y', d.quote]);
                        file.extend([d.separator.bytes(), b"z\n1", d.separator.bytes(), b"\n"].concat());
                        check(&d, &file, &[64, 4096]);
                    }
                }
            }
        }
    }
}

#[test]
fn more_fields_than_a_batch_holds() {
    for d in all_dialects() {
        let mut file = b"1\n".to_vec();
        for _ in 0..10_000 {
            file.extend([b"b", d.separator.bytes()].concat());
        }
        file.extend(b"\n2\n3\n");
        check(&d, &file, &[777, 65536]);
    }
}

#[test]
fn more_records_than_a_batch_holds() {
    for d in all_dialects() {
        for line in [&b"\n"[..], b"1\n", b"1\r\n", b"1234\n"] {
            check(&d, &line.repeat(3000), &[777, 65536]);
        }
    }
}

#[test]
fn invalid_bytes_end_the_data_where_they_stand() {
    for d in all_dialects() {
        for (data, rows) in [
            (&b"1\n2\n\xff3\n"[..], 2),
            (b"1\n2\n3\xe2\x82", 2),
            (b"1\n2\n3\0\n", 2),
            (b"1\n\xc3\xa4\xe2\x82\xac\n\xe2\x82\n", 2),
        ] {
            for &size in SIZES {
                let (got, error) = naive::read_in_pieces(naive::settings(&d, size, Level::best()), data, size);
                if d.quote == b'\n' {
                    continue;
                }
                assert_eq!((got.len(), error), (rows, Some((3, ReadError::Encoding))), "{size} {data:?} {d:?}");
            }
        }
    }
}

/// The first record shows how lines end; after that, the kernels read it like any other.
#[test]
fn a_plain_first_record_is_plain() {
    let mut s = naive::settings(&all_dialects()[0], 1000, Level::best());
    s.read_size = 1000;
    let file = format!("1,\"{}\"\n2,b\n", "x".repeat(5000));
    let mut reader = Reader::new(s);
    let mut rest = file.as_bytes();
    loop {
        match reader.advance() {
            Event::NeedData => {
                reader.give(&mut rest, usize::MAX).unwrap();
            }
            Event::Record => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(reader.value(1), Value::Plain(v) if v.len() == 5000), "{:?}", reader.value(1));
    assert_eq!(reader.line_number(), 1);
}

/// COPY looks past a carriage return, in CSV even if it ends a line, and finds invalid bytes there.
#[test]
fn invalid_bytes_behind_a_carriage_return() {
    for d in all_dialects() {
        check(&d, b"a\rb\r\xff\r", SIZES);
        check(&d, b"a\r\nb\r\xff\r\n", SIZES);
        check(&d, b"a\rb\r", SIZES);
    }
}

fn soup() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        8 => Just(&b"a"[..]), 3 => Just(&b"\""[..]), 2 => Just(&b","[..]), 2 => Just(&b"\t"[..]), 3 => Just(&b"\n"[..]),
        1 => Just(&b"\r\n"[..]), 1 => Just(&b"\r"[..]), 2 => Just(&b"\\"[..]), 1 => Just(&b"\\.\n"[..]),
        1 => Just(&b"'"[..]), 1 => Just(&b"e"[..]), 1 => Just(&b"\\N"[..]), 1 => Just("€".as_bytes()),
        1 => Just(&b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"[..]), 1 => Just(&b"A"[..]), 1 => Just(&b"|"[..]),
        1 => Just(&b"||"[..]), 1 => Just(&b",x,"[..]), 1 => Just(&b"\t,\t"[..]),
    ];
    proptest::collection::vec(token, 0..120).prop_map(|v| v.concat())
}

/// Random tokens whose line ends are all of one kind, so that more than the first line is read.
fn orderly() -> impl Strategy<Value = Vec<u8>> {
    (soup(), prop_oneof![Just(&b"\n"[..]), Just(&b"\r\n"[..]), Just(&b"\r"[..])]).prop_map(|(v, eol)| {
        let mut out = Vec::new();
        for b in v {
            match b {
                b'\r' => (),
                b'\n' => out.extend(eol),
                b => out.push(b),
            }
        }
        out
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn random_files(data in prop_oneof![soup(), orderly()], which: prop::sample::Index, size in 1usize..200) {
        check(which.get(&all_dialects()), &data, &[size, 65536]);
    }
}
