//! Records without line ends: read in parts of any size, by any number of readers, they equal the computed ones.

mod dialects;

use dialects::levels;
use pg_bulk_text::chunk::BLOCK;
use pg_bulk_text::dialect::Dialect;
use pg_bulk_text::naive::chunks::{Plan, in_chunks, in_order};
use pg_bulk_text::naive::{self, Cell};
use pg_bulk_text::reader::{ReadError, Settings};
use pg_bulk_text::scan::Level;
use proptest::prelude::*;

fn settings(length: usize, read_size: usize, level: Level) -> Settings {
    let settings = naive::settings(&Dialect::records(length), read_size, level);
    Settings { skip_bom: true, header_lines: 1, max_fields: 1, ..settings }
}

fn check(length: usize, data: &[u8], sizes: &[usize], first: usize, resume: Option<usize>) {
    let expected = naive::rows(&Dialect::records(length), data);
    for level in levels() {
        for &size in sizes {
            assert_eq!(naive::read_in_pieces(settings(length, size, level), data, size), expected, "{length} {size}");
        }
        let plan = Plan { settings: settings(length, 50, level), first, len: BLOCK, room: 7, readers: 2, resume };
        let whole = in_order(&plan.settings, data);
        assert_eq!(in_chunks(&plan, data), whole, "{length} {}", data.len());
        let found = (whole.rows, whole.failure.map(|failure| (failure.number, failure.error)));
        assert_eq!(found, expected);
    }
}

/// No byte has a meaning: line ends, quotes, end markers of other formats.
#[test]
fn no_byte_means_anything() {
    let data = b"\xef\xbb\xbf\n\r\n\"\\.\n,\\N\t\r\r\"x\n\n";
    for length in 1..=data.len() + 1 {
        check(length, data, &[1, 2, 7, 64, 1000], 1, None);
    }
    let (rows, error) = naive::read_in_pieces(settings(5, 3, Level::best()), b"abcdefghijkl", 3);
    assert_eq!(rows.iter().map(|row| (row.number, row.offset)).collect::<Vec<_>>(), [(1, 0), (2, 5)]);
    assert_eq!(rows[1].cells, [Cell::Bytes(b"fghij".to_vec())]);
    assert_eq!(error, Some((3, ReadError::Partial { bytes: 2, length: 5 })));
}

/// More records than a batch holds.
#[test]
fn many_records() {
    let data: Vec<u8> = (0..5000u32).map(|n| b'a' + (n % 26) as u8).collect();
    for length in [1, 2, 3, 63, 64, 65, 1000] {
        check(length, &data, &[64, 65536], 1, None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 10 } else { 500 }))]

    #[test]
    fn random_records(
        data in prop::collection::vec(prop::sample::select(&b"\n\r\"\\., \x01ab"[..]), 0..600),
        (length, size) in (1usize..200, 1usize..100),
        first in 1usize..4,
        resume in prop::option::weighted(0.2, 0usize..8),
    ) {
        check(length, &data, &[size], first, resume);
    }
}
