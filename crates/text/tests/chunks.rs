//! Files read in chunks by several readers, compared with the same files read in order by one.

mod dialects;
mod fragments;

use dialects::{EOLS, levels, line_end};
use fragments::{Fragment, beginning, body, file};
use pg_bulk_text::chunk::BLOCK;
use pg_bulk_text::dialect::{Dialect, Eol};
use pg_bulk_text::line::LINE_LIMIT;
use pg_bulk_text::naive;
use pg_bulk_text::naive::chunks::{Plan, Reading, in_chunks, in_order};
use pg_bulk_text::reader::{Event, ReadError, Reader, RecordStart, Settings, Value};
use pg_bulk_text::scan::Level;
use proptest::prelude::*;

/// A plan whose readers read 4 KiB at a time if they read in order.
fn plan(d: &Dialect, len: usize) -> Plan {
    let settings = Settings { skip_bom: true, ..naive::settings(d, 4096, Level::best()) };
    Plan { settings, first: 1, len, room: 64, readers: 2, resume: None }
}

/// At every level, both ways of reading give the same result.
fn check(plan: &Plan, file: &[u8]) {
    for level in levels() {
        let mut plan = plan.clone();
        plan.settings.level = level;
        let expected = in_order(&plan.settings, file);
        let found = in_chunks(&plan, file);
        assert_eq!(found, expected, "{plan:?}, {:?}", String::from_utf8_lossy(file));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 10 } else { 1500 }))]

    #[test]
    fn random_files(
        which: prop::sample::Index,
        eol in prop::sample::select(&EOLS),
        (headers, first) in beginning(),
        body in body(),
        blocks in 1usize..5,
        (skip, room, readers) in (1usize..4, 0usize..100, 1usize..4),
        resume in prop::option::weighted(0.2, 0usize..8),
    ) {
        let d = &which.get(&dialects::regular()).clone();
        let mut plan = Plan { first: skip, room, readers, resume, ..plan(d, blocks * BLOCK) };
        plan.settings.header_lines = headers;
        check(&plan, &file(d, eol, &first, &body));
    }
}

/// A file with a record, filled up to `before` bytes ahead of the first edge, then `bytes`, then more records.
fn at_edge(d: &Dialect, eol: Eol, opened: bool, before: usize, bytes: &[u8]) -> Vec<u8> {
    let mut out = file(d, eol, &[Fragment::Bytes(b"1"), Fragment::Eol], &[Fragment::Edge(before % BLOCK)]);
    if opened && out.len() > 3 {
        out[3] = d.quote;
    }
    out.extend(bytes);
    out.extend(file(
        d,
        eol,
        &[
            Fragment::Bytes(b"y"),
            Fragment::Eol,
            Fragment::Quote,
            Fragment::Eol,
            Fragment::Delimiter,
            Fragment::Bytes(b"z"),
            Fragment::Eol,
        ],
        &[Fragment::Edge(3), Fragment::Eol, Fragment::Bytes(b"last")],
    ));
    out
}

/// Two special bytes at each position around an edge, in and out of quotes.
#[test]
fn around_an_edge() {
    for (d, eol) in dialects::regular_with(&EOLS) {
        let bytes = [d.quote, d.escape, d.delimiter, b'\\', b'.', b'\n', b'\r', b'\xff'];
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

/// Escape characters that end before, on or behind an edge, and the bytes that they escape or do not escape.
#[test]
fn runs_of_escapes() {
    for (d, eol) in dialects::regular_with(&EOLS) {
        let escape = if d.is_csv() { d.escape } else { b'\\' };
        for behind in [&b"."[..], b".\n", b"\n", b"\r", b"\r\n", &[d.quote], d.separator.bytes()] {
            for (length, before) in (1..6).flat_map(|length| (0..7).map(move |before| (length, before))) {
                let bytes = [&vec![escape; length], behind].concat();
                for opened in [false, true] {
                    check(&plan(&d, BLOCK), &at_edge(&d, eol, opened, before, &bytes));
                }
            }
        }
    }
}

/// `\.`, alone on its line or not, at every position of a file of short records.
#[test]
fn markers_everywhere() {
    for (d, eol) in dialects::regular_with(&EOLS) {
        let end = line_end(eol);
        let records = [b"1", end, b"22", end, &b"33333"[..], end].concat().repeat(12);
        for (at, length) in (0..14).chain(BLOCK - 4..BLOCK + 9).flat_map(|at| (1..12).map(move |n| (at, n))) {
            for marker in [&b"\\."[..], b"\\.x", b"\\\\."] {
                let first = [&vec![b'1'; length], end].concat();
                let (before, behind) = records.split_at(at);
                check(&plan(&d, BLOCK), &[&first, before, marker, end, behind].concat());
            }
        }
    }
}

/// A marker at a chunk's first byte, behind a CR that may be half of a CRLF.
#[test]
fn markers_behind_a_cr() {
    for d in dialects::regular() {
        let any = Dialect { line_end: Some(Eol::Any), ..d };
        for before in [&b"x\r"[..], b"xx\\\r"] {
            for marker in [&b"\\.\r"[..], b".\r", b"\\\\.\r"] {
                let range =
                    [&b"x\r".repeat((BLOCK - before.len()) / 2)[..], &b"y"[..(BLOCK - before.len()) % 2], before]
                        .concat();
                let file = [b"1\r", &range[..], marker, &b"z\r".repeat(200)].concat();
                check(&plan(&any, BLOCK), &file);
            }
        }
    }
}

/// Messages about invalid bytes near the end of a chunk, or behind it, equal COPY's. COPY looks past a carriage return
/// even if it ends a line.
#[test]
fn invalid_bytes_near_a_chunks_end() {
    for (d, eol) in dialects::regular_with(&EOLS) {
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

/// The beginning of a chunk's first record fits into the room before the chunk, or room is made for it.
#[test]
fn long_records_in_little_room() {
    for (d, eol) in dialects::regular_with(&EOLS) {
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

/// COPY's error for a line that is too long, from any of the readers, and the longest valid line.
#[test]
#[ignore = "takes gigabytes"]
fn huge_records() {
    let d = dialects::regular().remove(0);
    let mut plan = Plan { room: 1 << 16, ..plan(&d, 1 << 24) };
    plan.settings.read_size = 1 << 16;
    // COPY's blocks end at multiples of 64 KiB; the line begins at 2.
    let block = 0x4001_0000 - 2;
    let (start, before) = (LINE_LIMIT - 1, block - 65536);
    // The line's length with its end, and the number of its bytes that COPY has read.
    let lengths = [
        (start, None),
        (start + 1, Some(start + 1)),
        (start + 60_001, Some(start + 60_001)),
        (block, Some(block)),
        (block + 1, Some(block)),
        (start + 200_001, Some(block)),
    ];
    for (length, seen) in lengths {
        for tail in [&b"\n2\n"[..], b"\n"] {
            let mut file = b"1\n\"".to_vec();
            file.extend(b"x\n".repeat((length - 3) / 2));
            file.resize(2 + length - 2, b'x');
            file.extend([b"\"", tail].concat());
            let (expected, found) = (in_order(&plan.settings, &file), in_chunks(&plan, &file));
            assert!(found == expected, "{length} {tail:?} {:?} {:?}", found.failure, expected.failure);
            let failure = found.failure.map(|f| (f.number, f.error));
            let expected = seen.map(|seen| {
                // The quote, pairs of `x` and a line end, perhaps another `x`, the quote, the line's end.
                let embedded = ((length - 3) / 2).min((seen - 1) / 2);
                let (containing, more) = (before as u64, (seen - before) as u64);
                (2 + embedded as u64, ReadError::TooLong { containing, more })
            });
            assert_eq!(failure, expected, "{length}");
        }
    }
}

/// The rest of the file can be read in order from any chunk on.
#[test]
fn resuming_anywhere() {
    for (d, eol) in dialects::regular_with(&EOLS) {
        let lines: &[Fragment] =
            &[Fragment::Bytes(b"a"), Fragment::Delimiter, Fragment::Lines, Fragment::Eol, Fragment::Edge(5)];
        let file = file(&d, eol, &[Fragment::Bytes(b"1"), Fragment::Eol], &lines.repeat(8));
        for number in 0..12 {
            check(&Plan { resume: Some(number), ..plan(&d, BLOCK) }, &file);
        }
    }
}

/// A reader in any state can continue at any record as if it had read up to it, and with the kernels.
#[test]
fn from_anything_to_anywhere() {
    let records: &[Fragment] =
        &[Fragment::Quotes, Fragment::Eol, Fragment::Lines, Fragment::Eol, Fragment::Edge(5), Fragment::Eol];
    for (d, eol) in dialects::regular_with(&EOLS) {
        let first =
            [Fragment::Bytes(b"\xef\xbb\xbf"), Fragment::Quote, Fragment::Bytes(b"1"), Fragment::Quote, Fragment::Eol];
        // Records that begin like a file with a byte order mark.
        let records = [&first[..], records].concat().repeat(3);
        for wrong in [&b""[..], b"\xff", b"\r\n\r"] {
            let data = file(&d, eol, &first, &[&records[..], &[Fragment::Bytes(wrong)], &records].concat());
            from_anything(&d, eol, &data);
        }
    }
}

fn from_anything(d: &Dialect, eol: Eol, data: &[u8]) {
    let settings = Settings { read_size: 50, ..plan(d, BLOCK).settings };
    let whole = in_order(&settings, data);
    for calls in 0..40 {
        for at in [1, 2, whole.rows.len() - 1] {
            let place = RecordStart { eol, offset: whole.rows[at].offset, lines: whole.rows[at - 1].number };
            let rest = &data[usize::try_from(place.offset).unwrap()..];
            let expected = Reading { rows: whole.rows[at..].to_vec(), failure: whole.failure.clone() };
            for chunk in [false, true] {
                let mut reader = after(&settings, data, calls);
                let mut found = Reading::default();
                let begun;
                if chunk {
                    reader.chunk_space(rest.len() + 7).expect("memory")[7..7 + rest.len()].copy_from_slice(rest);
                    reader.begin_chunk(7, 7 + rest.len(), 7 + rest.len(), 0..0, place);
                    begun = reader.place_behind();
                    found.rest(&mut reader, None);
                } else {
                    reader.resume(place);
                    begun = reader.place_behind();
                    found.rest(&mut reader, Some(rest));
                }
                assert_eq!(begun, Some(place));
                assert_eq!(found, expected, "{chunk} {calls} {at} {d:?} {:?}", String::from_utf8_lossy(data));
            }
        }
    }
}

/// Returns a reader after this many calls.
fn after(settings: &Settings, data: &[u8], calls: usize) -> Reader {
    let mut reader = Reader::new(settings.clone());
    let mut rest = data;
    for _ in 0..calls {
        if reader.advance() == Event::NeedData {
            reader.give(&mut rest, usize::MAX).unwrap();
        }
    }
    reader
}

/// The kernels mark a quoted field as plain; the exact reader does not.
#[test]
fn the_first_record_of_a_chunk_is_for_the_kernels() {
    let place = RecordStart { eol: Eol::Nl, offset: 1000, lines: 7 };
    let d = dialects::regular().remove(0);
    let mut reader = Reader::new(plan(&d, BLOCK).settings);
    reader.chunk_space(7).expect("memory")[..6].copy_from_slice(b"\"a\",b\n");
    reader.begin_chunk(0, 6, 6, 0..0, place);
    assert_eq!(reader.advance(), Event::Record);
    assert_eq!(reader.value(0), Value::Plain(b"a"));
    // A reader that waits for the rest of a line that only the exact reader reads.
    let mut reader = after(&Settings { read_size: 4, ..plan(&d, BLOCK).settings }, b"\"aaaaaaaa", 2);
    reader.resume(place);
    assert_eq!(reader.advance(), Event::NeedData);
    reader.space().copy_from_slice(b"\"a\"\n");
    reader.filled(4);
    assert_eq!(reader.advance(), Event::Record);
    assert_eq!(reader.value(0), Value::Plain(b"a"));
}

/// A reader that has waited for a long line does not read behind the end of the data.
#[test]
fn nothing_is_asked_for_behind_the_end() {
    let d = dialects::regular().remove(0);
    let mut reader = after(&Settings { read_size: 100, ..plan(&d, BLOCK).settings }, &[b'x'; 200], 2);
    reader.resume(RecordStart { eol: Eol::Nl, offset: 1000, lines: 7 });
    assert_eq!(reader.advance(), Event::NeedData);
    reader.space()[..5].copy_from_slice(b"\\.\nx\n");
    reader.filled(5);
    assert_eq!(reader.advance(), Event::End);
}
