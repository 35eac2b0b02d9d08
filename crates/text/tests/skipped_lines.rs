//! Lines that are no records: the reader compared with the naive reader, in every dialect, at every buffer size and
//! level, in order and in chunks.

mod dialects;

use dialects::{EOLS, dialect, levels, line_end, pass, regular};
use pg_bulk_text::chunk::BLOCK;
use pg_bulk_text::dialect::{Dialect, EndMarker, Eol, Format};
use pg_bulk_text::line::LINE_LIMIT;
use pg_bulk_text::naive::chunks::{Plan, in_chunks, in_order};
use pg_bulk_text::naive::{self, Cell, Row, tolerant};
use pg_bulk_text::reader::Settings;
use proptest::prelude::*;

const LINE_ENDS: [Option<Eol>; 5] = [None, Some(Eol::Nl), Some(Eol::CrNl), Some(Eol::Cr), Some(Eol::Any)];
const COMMENTS: [&str; 5] = ["", "#", "--", " #", "x"];

fn skipping(d: &Dialect, blanks: bool, comment: &str) -> Dialect {
    Dialect { skip_blank_lines: blanks, comment: comment.into(), ..d.clone() }
}

/// Dialects that can have such lines, and one that only the exact reader supports.
fn all_dialects() -> Vec<Dialect> {
    let odd = dialect(true, ",", "\"", ",", "", EndMarker::Until17);
    let lenient = regular().into_iter().filter(Dialect::is_csv).take(4).map(|d| Dialect { lenient_quotes: true, ..d });
    regular().into_iter().filter(|d| d.format != Format::Lines).chain([odd]).chain(lenient).collect()
}

/// The reader, in order.
fn check(d: &Dialect, data: &[u8], sizes: &[usize]) {
    let expected = naive::rows(d, data);
    let expected_lines = tolerant::lines(d, LINE_LIMIT, data);
    for level in levels() {
        for &size in sizes {
            let about = || format!("{level:?}, {size} bytes, {d:?}, {:?}", String::from_utf8_lossy(data));
            assert_eq!(naive::read_in_pieces(naive::settings(d, size, level), data, size), expected, "{}", about());
            let (found, _) = tolerant::read_in_pieces(naive::settings(d, size, level), LINE_LIMIT, data, size);
            assert_eq!(found, expected_lines, "{}", about());
            for fields in 1..3 {
                pass(naive::settings(d, size, level), data, fields, &expected.0, expected.1);
            }
        }
    }
}

/// The reader, in chunks.
fn check_chunks(d: &Dialect, headers: u64, blocks: usize, first: usize, data: &[u8]) {
    for level in levels() {
        let settings = Settings { header_lines: headers, ..naive::settings(d, 4096, level) };
        let plan = Plan { settings, first, len: blocks * BLOCK, room: 64, readers: 2, resume: None };
        let expected = in_order(&plan.settings, data);
        assert_eq!(in_chunks(&plan, data), expected, "{plan:?}, {:?}", String::from_utf8_lossy(data));
    }
}

/// Records as `1:a|b`, with their line numbers.
fn short(d: &Dialect, data: &str) -> Vec<String> {
    let (rows, error) = naive::rows(d, data.as_bytes());
    assert_eq!(error, None, "{data:?}");
    check(d, data.as_bytes(), &[1, 2, 3, 64, 65536]);
    check_chunks(d, 0, 1, 1, data.as_bytes());
    let cell = |cell: &Cell| match cell {
        Cell::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Cell::Null | Cell::Default => "N".to_owned(),
    };
    let cells = |row: &Row| row.cells.iter().map(cell).collect::<Vec<_>>().join("|");
    rows.iter().map(|row| format!("{}:{}", row.number, cells(row))).collect()
}

#[test]
fn lines_of_blanks_and_comments() {
    let csv = dialect(true, ",", "\"", "\"", "", EndMarker::Until17);
    let text = dialect(false, "\t", "", "", "\\N", EndMarker::Until17);
    for eol in EOLS {
        let with = |lines: &str| lines.replace('\n', std::str::from_utf8(line_end(eol)).unwrap());
        let both = skipping(&csv, true, "#");
        assert_eq!(short(&both, &with("# a, \"b\n\n1,2\n \t\n#\n3,\"x\"\"y\"\n\n")), ["3:1|2", "6:3|x\"y"]);
        assert_eq!(short(&both, &with("1\n#\"\n2\n#\"\n\"#\"\n #\n#")), ["1:1", "3:2", "5:#", "6: #"]);
        assert_eq!(short(&both, &with("\n#\n \n")), [""; 0]);
        assert_eq!(short(&skipping(&csv, true, ""), &with("#\n\n1\n\"\"\n  ")), ["1:#", "3:1", "4:"]);
        assert_eq!(short(&skipping(&csv, false, "//"), &with("/\n\n//\"\n1\n// ")), ["1:/", "2:N", "4:1"]);
        // In quotes, such lines are data.
        let lines = short(&both, &with("1,\"\n#\"\"\n \n\"\n2,\n"));
        assert_eq!(lines.len(), 2, "{lines:?}");
        let both = skipping(&text, true, "#");
        assert_eq!(short(&both, &with("#\\\n1\t2\n \n3\n\\#\n\t\n")), ["2:1|2", "4:3", "5:#", "6:|"]);
    }
    // An escaped line end ends no line.
    assert_eq!(short(&skipping(&text, true, "#"), "a\\\n#\n#b\n\nc\n"), ["1:a\n#", "4:c"]);
    let bar = dialect(true, " ", "\"", "\"", "", EndMarker::Until17);
    assert_eq!(short(&skipping(&bar, true, ""), "\n \n\t\n1 2\n"), ["2:N|N", "4:1|2"]);
    assert_eq!(short(&Dialect { trailing: true, ..skipping(&csv, true, "#") }, "1,\n#\n\n2,\n"), ["1:1", "4:2"]);
}

/// The line end of a comment is that of the file.
#[test]
fn other_line_ends_are_errors_in_comments_too() {
    let csv = skipping(&dialect(true, ",", "\"", "\"", "", EndMarker::Until17), true, "#");
    for data in ["1\n#a\r\n2\n", "1\r\n#a\n2\r\n", "1\r\n#a\rb\r\n2\r\n", "1\r#a\n2\r", "1\n \r\n"] {
        assert!(naive::rows(&csv, data.as_bytes()).1.is_some(), "{data:?}");
        check(&csv, data.as_bytes(), &[1, 2, 64, 65536]);
    }
}

#[test]
fn given_line_ends() {
    let ends = |line_end, data: &str| {
        let csv = dialect(true, ",", "\"", "\"", "", EndMarker::Until17);
        let text = dialect(false, ",", "", "", "", EndMarker::Until17);
        let [csv, text] = [csv, text].map(|d| short(&Dialect { line_end: Some(line_end), ..d }, data));
        let same = |all: &[String]| all.iter().map(|one| one.split_once(':').unwrap().1.to_owned()).collect::<Vec<_>>();
        assert_eq!(same(&csv), same(&text));
        csv
    };
    let data = "1,a\n2,b\r\n3,c\r4,d\r\n";
    assert_eq!(ends(Eol::Any, data), ["1:1|a", "2:2|b", "3:3|c", "4:4|d"]);
    assert_eq!(ends(Eol::Nl, data), ["1:1|a", "2:2|b\r", "3:3|c\r4|d\r"]);
    assert_eq!(ends(Eol::CrNl, data), ["1:1|a\n2|b", "3:3|c\r4|d"]);
    assert_eq!(ends(Eol::Cr, data), ["1:1|a\n2|b", "2:\n3|c", "3:4|d", "4:\n"]);
    assert_eq!(ends(Eol::Any, "\r\n\n\r\r"), ["1:N", "2:N", "3:N", "4:N"]);
    let csv = Dialect { line_end: Some(Eol::Nl), ..dialect(true, ",", "\"", "\"", "", EndMarker::Until17) };
    assert_eq!(short(&csv, "\"a\"\r\n\"b\"\n"), ["1:a\r", "2:b"]);
    for eol in EOLS {
        let lines = ["1,2", "\"x\"\"y\",\"z\"", "a"].map(|line| line.as_bytes().to_vec()).join(line_end(eol));
        let data = [&lines.repeat(40), &b"\n"[..], &lines.repeat(9), b"\r", &lines.repeat(9)].concat();
        for line_end in LINE_ENDS {
            let d = Dialect { line_end, ..csv.clone() };
            check(&d, &data, &[64, 4096]);
            check_chunks(&d, 0, 1, 1, &data);
        }
    }
}

/// A comment at each position around the edge of a block and of a chunk.
#[test]
fn around_an_edge() {
    for d in all_dialects() {
        for (eol, comment) in EOLS.into_iter().flat_map(|eol| COMMENTS.map(|comment| (eol, comment))) {
            let d = skipping(&d, true, comment);
            for before in BLOCK - 9..BLOCK + 2 {
                let end = line_end(eol);
                let line = [comment.as_bytes(), &[d.quote, d.escape, b'\\'], end].concat();
                let blank = [b" ", end].concat();
                let record = [&[d.quote], end, &line, b"z", &[d.quote], end].concat();
                for skipped in [&line, &blank, &[&record[..], &line].concat()] {
                    let data =
                        [b"1", end, &vec![b'y'; before], end, skipped, skipped, b"2", end, &record, b"3"].concat();
                    check(&d, &data, &[64, 4096]);
                    check_chunks(&d, 0, 1, 1, &data);
                }
            }
        }
    }
}

/// A comment with quotes at any distance from the end of a range, behind open quotes or not.
#[test]
fn far_from_the_end() {
    for escape in ["\"", "\\"] {
        let csv = skipping(&dialect(true, ",", "\"", escape, "", EndMarker::Since18), true, "#");
        for (eol, far) in EOLS.into_iter().flat_map(|eol| [0, 1, 64, 4095, 4096, 70_000].map(|far| (eol, far))) {
            for (quotes, opened) in (0..4).flat_map(|quotes| [(quotes, &b""[..]), (quotes, b"\"")]) {
                let end = line_end(eol);
                let comment = [b"#", &vec![b'"'; quotes][..], end].concat();
                let record = [&vec![b'x'; far], end, opened, end, b"z", end].concat();
                let data = [b"1", end, opened, b"y", end, &comment, &record, &comment, &record].concat();
                for line_end in [None, Some(Eol::Any)] {
                    check_chunks(&Dialect { line_end, ..csv.clone() }, 0, 4000, 1, &data);
                }
            }
        }
    }
}

fn file() -> impl Strategy<Value = (Eol, Vec<u8>)> {
    let token = prop_oneof![
        9 => Just(&b"a"[..]), 2 => Just(&b"\"b\""[..]), 1 => Just(&b"\""[..]), 4 => Just(&b","[..]), 3 => Just(&b"\t"[..]),
        9 => Just(&b"\n"[..]), 1 => Just(&b"\\"[..]), 1 => Just(&b"\\.\n"[..]), 1 => Just(&b"\r"[..]),
        1 => Just(&b"'"[..]), 1 => Just(&b"e"[..]), 1 => Just("€".as_bytes()), 1 => Just(&b"\xff"[..]),
        1 => Just(&b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"[..]), 1 => Just(&b"|"[..]),
        1 => Just(&b"||"[..]), 3 => Just(&b" "[..]), 2 => Just(&b"\n#"[..]), 2 => Just(&b"\n--\""[..]),
        3 => Just(&b"\n\n"[..]), 2 => Just(&b"\n #'\"\n"[..]), 1 => Just(&b"-"[..]),
        2 => Just(&b"\n#\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n"[..]),
    ];
    (prop::sample::select(&EOLS), proptest::collection::vec(token, 0..150)).prop_map(|(eol, v)| {
        let mut data = Vec::new();
        for &byte in v.concat().iter() {
            if byte == b'\n' { data.extend(line_end(eol)) } else { data.push(byte) }
        }
        (eol, data)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 10 } else { 1500 }))]

    #[test]
    fn random_files(
        (_, data) in file(),
        which: prop::sample::Index,
        blanks: bool,
        comment in prop::sample::select(&COMMENTS),
        size in 1usize..200,
        headers in 0u64..3,
        (blocks, first) in (1usize..4, 1usize..3),
        line_end in prop::sample::select(&LINE_ENDS),
    ) {
        let d = Dialect { line_end, ..skipping(&which.get(&all_dialects()).clone(), blanks, comment) };
        check(&d, &data, &[size, 65536]);
        check_chunks(&d, headers, blocks, first, &data);
    }
}
