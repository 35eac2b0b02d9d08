//! The rules of a cut, one by one: the record ends, the number of records, the state that crosses an edge, possible end
//! markers.

mod dialects;

use dialects::{dialect, levels};
use pg_bulk_text::chunk::{BLOCK, Cut, Cutter, Edge};
use pg_bulk_text::dialect::{Dialect, EndMarker, Eol};
use pg_bulk_text::reader::RecordStart;
use pg_bulk_text::scan::{Needles, Scanner};

/// Cuts the ranges of a file that begins at byte 1000 of a larger one, behind its 7th line.
fn cuts(d: &Dialect, eol: Eol, file: &[u8]) -> Vec<Cut> {
    let mut edge = Edge::at(RecordStart { eol, offset: 1000, lines: 7 });
    let mut offset = 1000;
    let all = levels().into_iter().map(|level| {
        let cutter = Cutter::new(d, Scanner::new(Needles::new(d, eol).unwrap(), level));
        let cut = |range: &[u8]| {
            let cut = cutter.cut(range, &cutter.survey(range), offset, edge);
            (edge, offset) = (cut.edge, offset + range.len() as u64);
            cut
        };
        let cuts: Vec<Cut> = file.chunks(BLOCK).map(cut).collect();
        (edge, offset) = (Edge::at(RecordStart { eol, offset: 1000, lines: 7 }), 1000);
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

/// Offset behind the last record, number of records, start of the record at the next edge, lines before it.
fn summary(cut: &Cut) -> (Option<usize>, u64, u64, u64) {
    (cut.end, cut.most_records, cut.edge.record, cut.edge.lines_before_record)
}

#[test]
fn a_cut_is_behind_the_last_line_end() {
    let file = [&b"1\n2\n"[..], &[b'x'; 70], b"\n\n3"].concat();
    for d in [text(), csv(EndMarker::Until17)] {
        let cuts = cuts(&d, Eol::Nl, &file);
        assert_eq!(summary(&cuts[0]), (Some(4), 2, 1004, 9));
        assert_eq!(summary(&cuts[1]), (Some(12), 2, 1076, 11));
        assert_eq!(cuts[1].edge.place(Eol::Nl), RecordStart { eol: Eol::Nl, offset: 1076, lines: 11 });
    }
}

/// A range within a record has no record end; the lines in it count where the record ends.
#[test]
fn a_record_may_be_longer_than_a_chunk() {
    let file = [&b"1\n\""[..], &b"x\n".repeat(80), b"\"\n2\n"].concat();
    let cuts = cuts(&csv(EndMarker::Until17), Eol::Nl, &file);
    assert_eq!(summary(&cuts[0]), (Some(2), 1, 1002, 8));
    assert_eq!(summary(&cuts[1]), (None, 0, 1002, 8));
    // Two records, and the lines in one of them.
    assert_eq!(summary(&cuts[2]), (Some(39), 82, 1167, 90));
}

/// The state at an edge: whether it is in quotes, whether the byte behind it is escaped, and whether half a line end is
/// before it.
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

/// A carriage return at the edge is a line before it, because the count in CSV is one of bytes. The next record's start
/// stays.
#[test]
fn a_line_end_in_two_ranges_counts_once() {
    let file = [&[b'x'; BLOCK - 1], &b"\r\ny\r\n"[..]].concat();
    for d in [text(), csv(EndMarker::Until17)] {
        let cuts = cuts(&d, Eol::CrNl, &file);
        assert_eq!(summary(&cuts[0]), (None, 0, 1000, 7));
        assert_eq!(summary(&cuts[1]), (Some(4), 2, 1068, 9));
    }
}

/// A survey is valid if nothing crosses the edge. Otherwise the cut corrects it.
#[test]
fn what_crosses_an_edge_counts() {
    let behind = |d: &Dialect, eol: Eol, before: &[u8], behind: &[u8]| {
        let file = [&vec![b'x'; BLOCK - before.len()], before, behind].concat();
        let cut = cuts(d, eol, &file)[1];
        (cut.end, cut.most_records, cut.edge.lines_before_record)
    };
    // An escaped newline ends no line. The backslashes behind it make the survey search the range itself.
    assert_eq!(behind(&text(), Eol::Nl, b"", b"\nA\\N\nB\n"), (Some(7), 3, 10));
    assert_eq!(behind(&text(), Eol::Nl, b"\\", b"\nA\\N\nB\n"), (Some(7), 2, 9));
    assert_eq!(behind(&text(), Eol::Nl, b"\\", b"\nA\nB\n"), (Some(5), 2, 9));
    assert_eq!(behind(&text(), Eol::Nl, b"\\", b"\\\nB\n"), (Some(4), 2, 9));
    // Half a line end.
    for d in [text(), csv(EndMarker::Until17)] {
        assert_eq!(behind(&d, Eol::CrNl, b"\r", b"\nA\r\nB\r\n"), (Some(7), 3, 10));
        assert_eq!(behind(&d, Eol::CrNl, b"", b"A\r\nB\r\n").0, Some(6));
    }
    // A quote before the edge swaps quoted and unquoted bytes; the lines count in both cases.
    let old = csv(EndMarker::Until17);
    assert_eq!(behind(&old, Eol::Nl, b"", b"A\n\"B\n\"\n\"C\n"), (Some(7), 3, 10));
    assert_eq!(behind(&old, Eol::Nl, b"\"", b"A\n\"B\n\"\n\"C\n"), (Some(10), 4, 11));
    // An escape character that escapes a quote, and one that does not.
    let escaping = dialect(true, ",", "\"", "e", "", EndMarker::Until17);
    assert_eq!(behind(&escaping, Eol::Nl, b"\"e", b"\"\n\"\n"), (Some(4), 2, 9));
    assert_eq!(behind(&escaping, Eol::Nl, b"\"ee", b"\"\n\"\n"), (Some(2), 1, 8));
    assert_eq!(behind(&escaping, Eol::Nl, b"\"", b"e\"\n\"\n"), (Some(5), 2, 9));
    assert_eq!(behind(&escaping, Eol::Nl, b"e", b"\"\n\"\n"), (Some(4), 2, 9));
}

/// The ranges that may contain an end marker. A wrong positive costs time, so this test is exact.
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
        // At any position of a line, unless a backslash escapes the marker's own.
        assert_eq!(suspicious(b"x\\.", b"x\n"), before);
        assert_eq!(suspicious(b"\n\\.", b"\n"), before);
        assert_eq!(suspicious(b"x\\\\.", b"x\n"), nothing);
        assert_eq!(suspicious(b"x\\\\\\.", b"x\n"), before);
        assert_eq!(suspicious(b"\\\\.\\.", b"x\n"), before);
        assert_eq!(suspicious(b"x.", b"\\.\n"), behind);
        // Across the edge, and behind backslashes across it.
        assert_eq!(suspicious(b"\\", b".\n"), behind);
        assert_eq!(suspicious(b"\\\\", b".\n"), nothing);
        assert_eq!(suspicious(b"\\", b"\\.\n"), nothing);
        assert_eq!(suspicious(b"\\", b"\\\\.\n"), behind);
        assert_eq!(suspicious(b"\\\\", b"\\.\n"), behind);
        assert_eq!(suspicious(b"\\", b"x\\.\n"), behind);
    }
    let old = csv(EndMarker::Until17);
    let suspicious = |before: &[u8], behind: &[u8]| suspicious(&old, Eol::Nl, before, behind);
    // Only at the start of a line.
    assert_eq!(suspicious(b"\n\\.", b"\n"), before);
    assert_eq!(suspicious(b"\r\\.", b"\n"), before);
    assert_eq!(suspicious(b"x\\.", b"\n"), nothing);
    assert_eq!(suspicious(b"\n", b"\\.\n"), behind);
    assert_eq!(suspicious(b"\nx", b"\\.\n"), nothing);
    assert_eq!(suspicious(b"\n\\", b".\n"), behind);
    assert_eq!(suspicious(b"\nx\\", b".\n"), nothing);
    assert_eq!(suspicious(b"x", b"\n\\."), behind);
    // Also at the start of the file's records.
    let start = |d: &Dialect, bytes: &[u8]| cuts(d, Eol::Nl, bytes)[0].suspicious;
    assert!(start(&old, b"\\.\n"));
    assert!(start(&old_text, b"\\.\n"));
    assert!(!start(&old, b"x\\.\n"));
    // In CSV from 18 on it is data.
    let new = csv(EndMarker::Since18);
    assert!(!start(&new, b"\\.\n") && !start(&new, b"1\n\\.\n"));
}
