//! Files read in stretches, by several readers, against the same files read in order by one.
//!
//! Random files are made of pieces that each dialect writes in its own characters. What decides at an edge is put there:
//! a piece may be filled up to so many bytes before the next one. Some files have something wrong in them, at most
//! twice, since nothing is read behind it.

mod dialects;

use dialects::{EOLS, dialect, levels, line_end};
use pg_bulk_format::chunk::{BLOCK, Cut, Cutter, Edge};
use pg_bulk_format::dialect::{Dialect, EndMarker, Eol};
use pg_bulk_format::naive::stretches::{Plan, in_order, in_stretches};
use pg_bulk_format::reader::{Place, Settings};
use pg_bulk_format::scan::{Level, Needles, Scanner};
use proptest::prelude::*;

/// A plan whose readers take what they read in order 4 KiB at a time.
fn plan(d: &Dialect, len: usize) -> Plan {
    let settings = Settings {
        dialect: d.clone(),
        read_size: 4096,
        utf8: true,
        max_char: 4,
        skip_bom: true,
        header_lines: 0,
        header_fields: false,
        max_fields: usize::MAX,
        level: Level::best(),
    };
    Plan { settings, first: 1, len, room: 64, readers: 2, resume: None }
}

/// At every level, the file says the same however it is read.
fn check(plan: &Plan, file: &[u8]) {
    for level in levels() {
        let mut plan = plan.clone();
        plan.settings.level = level;
        let expected = in_order(&plan.settings, file);
        let found = in_stretches(&plan, file);
        assert_eq!(found, expected, "{plan:?}, {:?}", String::from_utf8_lossy(file));
    }
}

#[derive(Debug, Clone, Copy)]
enum Piece {
    Bytes(&'static [u8]),
    Quote,
    Escape,
    Delimiter,
    Null,
    Eol,
    /// Line ends that end no record.
    Lines,
    Backslashes(usize),
    /// As many bytes as there are to the next edge, but for so many; edges are multiples of [`BLOCK`] from the first
    /// record's end.
    Edge(usize),
}

/// The bytes of `pieces`; edges are counted from the end of `first`.
fn file(d: &Dialect, eol: Eol, first: &[Piece], pieces: &[Piece]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut base = 0;
    for (i, piece) in first.iter().chain(pieces).enumerate() {
        if i == first.len() {
            base = out.len();
        }
        match *piece {
            Piece::Bytes(bytes) => out.extend(bytes),
            Piece::Quote => out.push(d.quote),
            Piece::Escape => out.push(if d.is_csv() { d.escape } else { b'\\' }),
            Piece::Delimiter => out.push(d.delimiter),
            Piece::Null => out.extend(&d.null),
            Piece::Eol => out.extend(line_end(eol)),
            Piece::Lines if !d.is_csv() => out.extend(b"in\\\n\\\r\\\nside"),
            Piece::Lines => out.extend([&[d.quote], &b"in"[..], line_end(eol), b"\n\r\r\nside", &[d.quote]].concat()),
            Piece::Backslashes(n) => out.extend(vec![b'\\'; n]),
            Piece::Edge(before) => {
                let gap = (2 * BLOCK - before - (out.len() - base) % BLOCK) % BLOCK;
                out.extend(vec![b'x'; gap]);
            }
        }
    }
    out
}

/// What ends the data, or is wrong.
const BREAKS: &[&[u8]] = &[
    b"\n",
    b"\r",
    b"\r\n",
    b"\\.",
    b"\\.\n",
    b"\\.\r",
    b"\\.\r\n",
    b"\n\\.\n",
    b"\r\n\\.\r\n",
    b"\r\\.\r",
    b"\xff",
    b"\0",
    b"\xe2\x82",
    b"\xe2",
    b"\n\xf0",
    b"\xf0\x9f\x98",
];

const DATA: &[&[u8]] =
    &[b"a", b"N", b"1", b".", b"\xc3\xa4", "€".as_bytes(), b"\\N", b"e", b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"];

fn piece() -> impl Strategy<Value = Piece> {
    use Piece::{Backslashes, Bytes, Delimiter, Edge, Eol, Escape, Lines, Null, Quote};
    prop_oneof![
        6 => prop::sample::select(DATA).prop_map(Bytes),
        7 => Just(Eol),
        3 => Just(Quote),
        2 => Just(Escape),
        3 => Just(Delimiter),
        1 => Just(Null),
        2 => Just(Lines),
        1 => (1usize..5).prop_map(Backslashes),
        4 => (0usize..4).prop_map(Edge),
        1 => prop::sample::select(&BREAKS[..4]).prop_map(Bytes),
    ]
}

/// Pieces without what is likely to be an error.
fn calm() -> impl Strategy<Value = Piece> {
    use Piece::{Backslashes, Bytes, Delimiter, Edge, Eol, Escape, Lines, Null, Quote};
    prop_oneof![
        6 => prop::sample::select(DATA).prop_map(Bytes),
        6 => Just(Eol),
        1 => Just(Quote),
        2 => Just(Escape),
        3 => Just(Delimiter),
        1 => Just(Null),
        3 => (1usize..3).prop_map(|n| Backslashes(2 * n)),
        4 => (0usize..4).prop_map(Edge),
        1 => Just(Lines),
    ]
}

fn body() -> impl Strategy<Value = Vec<Piece>> {
    let pieces = prop_oneof![
        3 => prop::collection::vec(calm(), 0..100),
        1 => prop::collection::vec(piece(), 0..100),
    ];
    let breaks = prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(BREAKS)), 0..3);
    (pieces, breaks).prop_map(|(mut pieces, breaks)| {
        for (at, bytes) in breaks {
            pieces.insert(at.index(pieces.len() + 1), Piece::Bytes(bytes));
        }
        pieces
    })
}

/// A byte order mark, header lines, and the first record.
fn beginning() -> impl Strategy<Value = (u64, Vec<Piece>)> {
    let record = prop_oneof![
        4 => Just(vec![Piece::Bytes(b"1"), Piece::Eol]),
        1 => prop::collection::vec(calm(), 0..5),
        1 => Just(vec![Piece::Lines, Piece::Eol]),
    ];
    (0u64..3, any::<bool>(), record).prop_map(|(headers, bom, record)| {
        let mut pieces = vec![Piece::Bytes(if bom { b"\xef\xbb\xbf" } else { b"" })];
        for _ in 0..headers {
            pieces.extend([Piece::Bytes(b"a"), Piece::Delimiter, Piece::Lines, Piece::Eol]);
        }
        pieces.extend(record);
        (headers, pieces)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 10 } else { 1500 }))]

    #[test]
    fn random_files(
        which in 0usize..9,
        eol in prop::sample::select(&EOLS),
        (headers, first) in beginning(),
        body in body(),
        blocks in 1usize..5,
        (skip, room, readers) in (1usize..4, 0usize..100, 1usize..4),
        resume in prop::option::weighted(0.2, 0usize..8),
    ) {
        let d = &dialects::regular()[which];
        let mut plan = Plan { first: skip, room, readers, resume, ..plan(d, blocks * BLOCK) };
        plan.settings.header_lines = headers;
        check(&plan, &file(d, eol, &first, &body));
    }
}

/// A record, then up to `before` bytes of the first edge are filled, then `bytes`, then more records.
fn at_edge(d: &Dialect, eol: Eol, opened: bool, before: usize, bytes: &[u8]) -> Vec<u8> {
    let mut out = file(d, eol, &[Piece::Bytes(b"1"), Piece::Eol], &[Piece::Edge(before % BLOCK)]);
    if opened && out.len() > 3 {
        out[3] = d.quote;
    }
    out.extend(bytes);
    out.extend(file(
        d,
        eol,
        &[Piece::Bytes(b"y"), Piece::Eol, Piece::Quote, Piece::Eol, Piece::Delimiter, Piece::Bytes(b"z"), Piece::Eol],
        &[Piece::Edge(3), Piece::Eol, Piece::Bytes(b"last")],
    ));
    out
}

/// Two bytes that matter at each place around an edge, in and out of quotes.
#[test]
fn around_an_edge() {
    for d in dialects::regular() {
        let bytes = [d.quote, d.escape, d.delimiter, b'\\', b'.', b'\n', b'\r', b'\xff'];
        for eol in EOLS {
            for before in 0..4 {
                for first in bytes {
                    for second in bytes {
                        for opened in [false, true] {
                            check(&plan(&d, BLOCK), &at_edge(&d, eol, opened, before, &[first, second]));
                        }
                    }
                }
            }
        }
    }
}

/// A run of escapes that ends before, on or behind an edge, and what it takes or does not take.
#[test]
fn runs_of_escapes() {
    for d in dialects::regular() {
        let escape = if d.is_csv() { d.escape } else { b'\\' };
        for eol in EOLS {
            for behind in [&b"."[..], b".\n", b"\n", b"\r", b"\r\n", &[d.quote], &[d.delimiter]] {
                for (length, before) in (1..6).flat_map(|length| (0..7).map(move |before| (length, before))) {
                    let bytes = [&vec![escape; length], behind].concat();
                    for opened in [false, true] {
                        check(&plan(&d, BLOCK), &at_edge(&d, eol, opened, before, &bytes));
                    }
                }
            }
        }
    }
}

/// `\.`, alone and not alone on its line, everywhere in a file of short records.
#[test]
fn markers_everywhere() {
    for d in dialects::regular() {
        for eol in EOLS {
            let end = line_end(eol);
            let records = [b"1", end, b"22", end, &b"33333"[..], end].concat().repeat(12);
            for marker in [&b"\\."[..], b"\\.x", b"\\\\.", b"x\\."] {
                for at in 0..BLOCK + 9 {
                    let mut file = records.clone();
                    file.splice(at..at, [marker, end].concat());
                    check(&plan(&d, BLOCK), &file);
                }
            }
        }
    }
}

/// What is not valid, near the end of a chunk and behind it, is shown as COPY shows it; and COPY looks past a carriage
/// return even where it ends a line.
#[test]
fn invalid_bytes_near_a_chunks_end() {
    for d in dialects::regular() {
        for eol in EOLS {
            for invalid in [&b"\xff"[..], b"\0", b"\xc3", b"\xe2", b"\xe2\x82", b"\xf0\x9f", b"\xf0\x9f\x98"] {
                for before in 0..9 {
                    for (head, tail) in [(&b""[..], &b""[..]), (b"a", b""), (b"", b"b"), (b"a", b"b")] {
                        let end = line_end(eol);
                        let bytes = [end, head, invalid, tail, end, end].concat();
                        check(&plan(&d, BLOCK), &at_edge(&d, eol, false, before, &bytes));
                    }
                }
            }
        }
    }
}

/// The beginning of a chunk's first record finds room, or has room made, whatever lies there.
#[test]
fn long_records_in_little_room() {
    for d in dialects::regular() {
        for eol in EOLS {
            for length in [63, 64, 65, 200, 700] {
                let mut file = [b"1", line_end(eol)].concat();
                for _ in 0..3 {
                    file.extend([&vec![b'x'; length], line_end(eol), b"2", line_end(eol)].concat());
                }
                for room in [0, 1, 63, 64, 1000] {
                    check(&Plan { room, ..plan(&d, BLOCK) }, &file);
                }
            }
        }
    }
}

/// Any stretch may be the one from which the rest is read in order.
#[test]
fn resuming_anywhere() {
    for d in dialects::regular() {
        for eol in EOLS {
            let lines: &[Piece] = &[Piece::Bytes(b"a"), Piece::Delimiter, Piece::Lines, Piece::Eol, Piece::Edge(5)];
            let file = file(&d, eol, &[Piece::Bytes(b"1"), Piece::Eol], &lines.repeat(8));
            for number in 0..12 {
                check(&Plan { resume: Some(number), ..plan(&d, BLOCK) }, &file);
            }
        }
    }
}

/// The cuts of a file's stretches, which begins at byte 1000 of a larger one, behind its 7th line.
fn cuts(d: &Dialect, eol: Eol, file: &[u8]) -> Vec<Cut> {
    let mut edge = Edge::at(Place { eol, offset: 1000, lines: 7 });
    let mut offset = 1000;
    let all = levels().into_iter().map(|level| {
        let cutter = Cutter::new(d, Scanner::new(Needles::new(d, eol).unwrap(), level));
        let cut = |stretch: &[u8]| {
            let cut = cutter.cut(stretch, offset, edge);
            (edge, offset) = (cut.edge, offset + stretch.len() as u64);
            cut
        };
        let cuts: Vec<Cut> = file.chunks(BLOCK).map(cut).collect();
        (edge, offset) = (Edge::at(Place { eol, offset: 1000, lines: 7 }), 1000);
        cuts
    });
    let all: Vec<Vec<Cut>> = all.collect();
    assert!(all.windows(2).all(|two| two[0] == two[1]), "every level says the same");
    all.into_iter().next().unwrap()
}

fn csv(end_marker: EndMarker) -> Dialect {
    dialect(true, ",", "\"", "\"", "", end_marker)
}

fn text() -> Dialect {
    dialect(false, "\t", "", "", "\\N", EndMarker::Until17)
}

/// Offset behind the last record, records, position of the record at the next edge, lines before it.
fn said(cut: &Cut) -> (Option<usize>, u64, u64, u64) {
    (cut.end, cut.most_records, cut.edge.record, cut.edge.lines_before_record)
}

#[test]
fn a_cut_is_behind_the_last_line_end() {
    let file = [&b"1\n2\n"[..], &[b'x'; 70], b"\n\n3"].concat();
    for d in [text(), csv(EndMarker::Until17)] {
        let cuts = cuts(&d, Eol::Nl, &file);
        assert_eq!(said(&cuts[0]), (Some(4), 2, 1004, 9));
        assert_eq!(said(&cuts[1]), (Some(12), 2, 1076, 11));
        assert_eq!(cuts[1].edge.place(Eol::Nl), Place { eol: Eol::Nl, offset: 1076, lines: 11 });
    }
}

/// A stretch within a record says nothing; the lines in it count where the record ends.
#[test]
fn a_record_may_be_longer_than_a_stretch() {
    let file = [&b"1\n\""[..], &b"x\n".repeat(80), b"\"\n2\n"].concat();
    let cuts = cuts(&csv(EndMarker::Until17), Eol::Nl, &file);
    assert_eq!(said(&cuts[0]), (Some(2), 1, 1002, 8));
    assert_eq!(said(&cuts[1]), (None, 0, 1002, 8));
    // Two records, and the lines in one of them.
    assert_eq!(said(&cuts[2]), (Some(39), 82, 1167, 90));
}

/// The edge knows whether it is in quotes, whether the byte behind it is taken, and whether half a line end is before.
#[test]
fn edges_carry_what_crosses_them() {
    let after = |d: &Dialect, eol: Eol, before: &[u8], behind: &[u8]| {
        let file = [&vec![b'x'; BLOCK - before.len()], before, behind].concat();
        cuts(d, eol, &file)[1].end
    };
    let (csv, text) = (csv(EndMarker::Until17), text());
    let escaping = dialect(true, ",", "\"", "\\", "", EndMarker::Until17);
    assert_eq!(after(&csv, Eol::Nl, b"\"", b"\ny"), None);
    assert_eq!(after(&csv, Eol::Nl, b"\"", b"\"\ny"), Some(2));
    assert_eq!(after(&escaping, Eol::Nl, b"\"\\", b"\"\ny"), None);
    assert_eq!(after(&escaping, Eol::Nl, b"\"\\\\", b"\"\ny"), Some(2));
    assert_eq!(after(&text, Eol::Nl, b"\\", b"\ny"), None);
    assert_eq!(after(&text, Eol::Nl, b"\\\\", b"\ny"), Some(1));
    for d in [&csv, &text] {
        assert_eq!(after(d, Eol::CrNl, b"\r", b"\ny"), Some(1));
        assert_eq!(after(d, Eol::CrNl, b"\rx", b"\ny"), None);
    }
    assert_eq!(after(&csv, Eol::CrNl, b"\"\r", b"\ny"), None);
    assert_eq!(after(&text, Eol::CrNl, b"\\\r", b"\ny"), None);
}

/// A carriage return at the edge is a line before it, for CSV counts bytes; the record behind is where it was.
#[test]
fn a_line_end_in_two_stretches_counts_once() {
    let file = [&[b'x'; BLOCK - 1], &b"\r\ny\r\n"[..]].concat();
    for d in [text(), csv(EndMarker::Until17)] {
        let cuts = cuts(&d, Eol::CrNl, &file);
        assert_eq!(said(&cuts[0]), (None, 0, 1000, 7));
        assert_eq!(said(&cuts[1]), (Some(4), 2, 1068, 9));
    }
}

/// Which stretches may hold an end marker. A stretch too many costs time, so these are the rules to the letter.
#[test]
fn suspicions() {
    let suspicious = |d: &Dialect, eol: Eol, before: &[u8], behind: &[u8]| {
        let file = [&vec![b'x'; BLOCK - before.len()], before, behind].concat();
        let cuts = cuts(d, eol, &file);
        (cuts[0].suspicious, cuts[1].suspicious)
    };
    let (nothing, before, behind) = ((false, false), (true, false), (false, true));
    let old_text = text();
    let new_text = dialect(false, "\t", "", "", "\\N", EndMarker::Since18);
    for d in [&old_text, &new_text] {
        let suspicious = |before: &[u8], behind: &[u8]| suspicious(d, Eol::Nl, before, behind);
        // Anywhere on a line, if no backslash takes the marker's own.
        assert_eq!(suspicious(b"x\\.", b"x\n"), before);
        assert_eq!(suspicious(b"\n\\.", b"\n"), before);
        assert_eq!(suspicious(b"x\\\\.", b"x\n"), nothing);
        assert_eq!(suspicious(b"x\\\\\\.", b"x\n"), before);
        assert_eq!(suspicious(b"\\\\.\\.", b"x\n"), before);
        assert_eq!(suspicious(b"x.", b"\\.\n"), behind);
        // Across the edge, and behind a run of backslashes across it.
        assert_eq!(suspicious(b"\\", b".\n"), behind);
        assert_eq!(suspicious(b"\\\\", b".\n"), nothing);
        assert_eq!(suspicious(b"\\", b"\\.\n"), nothing);
        assert_eq!(suspicious(b"\\", b"\\\\.\n"), behind);
        assert_eq!(suspicious(b"\\\\", b"\\.\n"), behind);
        assert_eq!(suspicious(b"\\", b"x\\.\n"), behind);
    }
    let old = csv(EndMarker::Until17);
    let suspicious = |before: &[u8], behind: &[u8]| suspicious(&old, Eol::Nl, before, behind);
    // At the start of a line only.
    assert_eq!(suspicious(b"\n\\.", b"\n"), before);
    assert_eq!(suspicious(b"\r\\.", b"\n"), before);
    assert_eq!(suspicious(b"x\\.", b"\n"), nothing);
    assert_eq!(suspicious(b"\n", b"\\.\n"), behind);
    assert_eq!(suspicious(b"\nx", b"\\.\n"), nothing);
    assert_eq!(suspicious(b"\n\\", b".\n"), behind);
    assert_eq!(suspicious(b"\nx\\", b".\n"), nothing);
    assert_eq!(suspicious(b"x", b"\n\\."), behind);
    // Where the file's records begin, too.
    let start = |d: &Dialect, bytes: &[u8]| cuts(d, Eol::Nl, bytes)[0].suspicious;
    assert!(start(&old, b"\\.\n"));
    assert!(start(&old_text, b"\\.\n"));
    assert!(!start(&old, b"x\\.\n"));
    // To CSV as of 18 it is data.
    let new = csv(EndMarker::Since18);
    assert!(!start(&new, b"\\.\n") && !start(&new, b"1\n\\.\n"));
}
