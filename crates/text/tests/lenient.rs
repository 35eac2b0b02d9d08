//! Quotes that count only at both ends of a field: the exact reader, the kernels and the chunks read what the
//! description of the option says.

mod dialects;

use dialects::{EOLS, dialect, lenient, levels, line_end};
use pg_bulk_text::chunk::BLOCK;
use pg_bulk_text::dialect::{Dialect, EndMarker, Eol};
use pg_bulk_text::naive::chunks::{Plan, in_chunks, in_order};
use pg_bulk_text::naive::lenient::values;
use pg_bulk_text::naive::{self, Cell, read_in_pieces, rows};
use pg_bulk_text::scan::Level;
use proptest::prelude::*;

/// Reads the data in all ways; the results must be those of the description.
fn check(d: &Dialect, data: &[u8], size: usize) -> Vec<Vec<Cell>> {
    let expected = values(d, data);
    let (exact, error) = rows(d, data);
    let context = || format!("{d:?} {:?}", String::from_utf8_lossy(data));
    let cells: Vec<_> = exact.iter().map(|row| row.cells.clone()).collect();
    assert_eq!((&cells, error), (&expected, None), "{}", context());
    for level in levels() {
        for size in [size, 1 << 16] {
            let found = read_in_pieces(naive::settings(d, size, level), data, size);
            assert_eq!(found, (exact.clone(), None), "{level:?} {size} {}", context());
        }
        for readers in [1, 2] {
            check_chunks(d, [1, 2, 3, 7, 20][size % 5], readers, level, data);
        }
    }
    expected
}

/// Reads the data in chunks; the result must be that of the data in order.
fn check_chunks(d: &Dialect, blocks: usize, readers: usize, level: Level, data: &[u8]) {
    let settings = naive::settings(d, 4096, level);
    let plan = Plan { settings, first: 1, len: blocks * BLOCK, room: 64, readers, resume: None };
    let context = || format!("{plan:?} {:?}", String::from_utf8_lossy(data));
    assert_eq!(in_chunks(&plan, data), in_order(&plan.settings, data), "{}", context());
}

fn lenient_csv(escape: &str) -> Dialect {
    lenient(dialect(true, ",", "\"", escape, "", EndMarker::Since18))
}

#[test]
fn quotes_that_count_and_those_that_do_not() {
    for (line, expected) in [
        (r#""bla",1"#, &["bla", "1"][..]),
        (r#""bla"x,2"#, &[r#""bla"x"#, "2"]),
        (r#""a "b" c",3"#, &[r#"a "b" c"#, "3"]),
        (r#""CC-9,$4,"Throw",x"#, &[r#""CC-9"#, "$4", "Throw", "x"]),
        (r#""3,"q,r""#, &[r#""3"#, "q,r"]),
        (r#"5'6",a"b,"c""d""#, &[r#"5'6""#, r#"a"b"#, r#"c"d"#]),
        (r#""a,b","c"#, &["a,b", r#""c"#]),
        (r#""","x""#, &["", "x"]),
        (r#""a""#, &["a"]),
    ] {
        let found = check(&lenient_csv("\""), line.as_bytes(), 7);
        let expected: Vec<_> = expected.iter().map(|value| Cell::Bytes(value.as_bytes().to_vec())).collect();
        assert_eq!(found, [expected], "{line}");
    }
    let found = check(&lenient_csv("\\"), br#""a\"b","c""d","e\\","f\"#, 7);
    let expected = [r#"a"b"#, r#"c""d"#, r"e\", r#""f\"#].map(|value| Cell::Bytes(value.as_bytes().to_vec()));
    assert_eq!(found, [expected]);
}

/// The lines behind a quote that does not count are records.
#[test]
fn lines_behind_a_quote_are_records() {
    let d = lenient_csv("\"");
    for (data, records) in [
        (&b"1\n\"3,q\n4,\"s,t\"\n5,u\n"[..], 4),
        (b"1\n\"3,q\n4,s\n5,u\n", 4),
        (b"1\n\"3,q\n4,s\"\n5,u\n", 3),
        (b"1\n\"3\"\"\n4\n", 3),
        (b"1\nx\"y\n\"4\n5\"\n6\n", 4),
    ] {
        let filled = [data, &b"7,8,9,\"10\"\n".repeat(50)].concat();
        assert_eq!(check(&d, &filled, 64).len(), records + 50, "{:?}", String::from_utf8_lossy(data));
    }
    // One range, whose last line ends are behind its whole blocks.
    check_chunks(&d, 3, 1, Level::best(), &[&b"1\n"[..], &[b'q'; 128], b"\na\"b\n", &b"1\n".repeat(20)].concat());
}

/// Quotes that do not count, and end markers, at each position around an edge, before ranges with and without quotes.
#[test]
fn around_an_edge() {
    // So long that no line near the end of a range begins a record.
    let long = format!("\"{}\"", "a,\n\"\"x\"\": \"\",\"\"\n\n".repeat(20));
    let strays =
        ["\"", "\"a", "\"a\n\\.\n", "x\"y", "\"a\"b", "\"\"\"", "\"#\n#\"z", "\"a\\\"\n", "\"a\"\r", "#\"\n\"a\"\n"];
    let strays = [&strays[..], &["x\"y,\"a", &long]].concat();
    let (plain, levels) = ("1,2\n".repeat(50), levels());
    let tails = ["7,8\n", "\"7\",\"8\"\n", "5\"6,\"7\"\n", "\"\",\"\n"].map(|line| line.repeat(30));
    let mut rests = vec![("\n", "b,\"y\"".to_string()), ("\n", format!("b,\"y\",{}", "x".repeat(150)))];
    for tail in tails {
        rests.extend([("\n", format!("{tail}{plain}{tail}")), (",", format!(",{plain}{tail}"))]);
    }
    for eol in EOLS {
        let with = |text: &str| text.as_bytes().split(|&b| b == b'\n').collect::<Vec<_>>().join(line_end(eol));
        for (escape, line_end) in [("\"", None), ("\\", None), ("\"", Some(eol)), ("\"", Some(Eol::Any))] {
            let d = Dialect { line_end, ..lenient(dialect(true, ",", "\"", escape, "", EndMarker::Until17)) };
            let dialects = ["", "#"].map(|comment| Dialect { comment: comment.into(), ..d.clone() });
            for (stray, (separator, rest)) in
                strays.iter().flat_map(|stray| rests.iter().map(move |rest| (stray, rest)))
            {
                for before in if cfg!(miri) { 8..9 } else { 2..13 } {
                    for (d, blocks) in dialects.iter().zip([1, 3]) {
                        let fill = "y".repeat(blocks * BLOCK - before);
                        let data = with(&format!("1\n{fill}{separator}{stray}{rest}"));
                        check_chunks(d, blocks, 2, levels[before % levels.len()], &data);
                    }
                }
            }
        }
    }
}

fn dialects_to_test() -> Vec<Dialect> {
    let new = EndMarker::Since18;
    let mut all = vec![lenient_csv("\""), lenient_csv("\\"), lenient(dialect(true, "|", "'", "'", "N", new))];
    all.push(Dialect { trailing: true, ..lenient_csv("\"") });
    // Only the exact reader reads these.
    all.push(lenient(dialect(true, "||", "\"", "\"", "", new)));
    all.push(lenient(dialect(true, ",x,", "\"", "\\", "", new)));
    all
}

fn soup() -> impl Strategy<Value = (usize, Vec<u8>)> {
    let token = prop_oneof![
        4 => Just(0u8), 3 => Just(1), 2 => Just(2), 3 => Just(3), 1 => Just(4), 1 => Just(5), 1 => Just(6),
    ];
    (0..dialects_to_test().len(), proptest::collection::vec(token, 0..250)).prop_map(|(which, tokens)| {
        let d = &dialects_to_test()[which];
        let bytes = tokens.iter().flat_map(|token| match token {
            0 => vec![d.quote],
            1 => d.separator.bytes().to_vec(),
            2 => b"\n".to_vec(),
            3 => b"a".to_vec(),
            4 => b"\\".to_vec(),
            5 => vec![d.delimiter],
            _ => [&[d.quote], &b"xxxxxxxxxxxxxxxxxxxxxxxxxxx"[..], &[d.quote]].concat(),
        });
        (which, bytes.collect())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 10 } else { 1000 }))]

    #[test]
    fn random_files((which, data) in soup(), size in 1usize..200) {
        check(&dialects_to_test()[which], &data, size);
    }
}
