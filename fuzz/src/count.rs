//! Records that the reader skips and counts, compared with the records of the naive reader.
//!
//! The reader decides how many it skips. But each skipped record must have the given number of fields, and the records
//! behind them must have the same numbers and offsets as without skipping.

use pg_bulk_text::naive;
use pg_bulk_text::reader::{Event, Reader};
use pg_bulk_text::scan::Level;

use super::reader::{chosen, dialect};

/// Length of the head, in bytes.
pub const HEAD: usize = 8;

/// Counts the records of one input.
pub fn run(input: &[u8]) {
    let Some((&[flags, delimiter, quote, escape, markers, room, fields, level], data)) =
        input.split_first_chunk::<HEAD>()
    else {
        return;
    };
    let Some(dialect) = dialect([flags, delimiter, quote, escape, markers]) else { return };
    let (rows, error) = naive::rows(&dialect, data);
    let fields = 1 + usize::from(fields) % 5;
    let read_size = 1 + usize::from(room) * 5;
    let has_escapes = !dialect.is_csv() && !dialect.is_literal();
    let mut reader = Reader::new(naive::settings(&dialect, read_size, chosen(&Level::available(), level)));
    let (mut rest, mut at) = (data, 0);
    loop {
        match reader.advance() {
            Event::NeedData => {
                reader.give(&mut rest, read_size).unwrap();
            }
            Event::Record => {
                let row = &rows[at];
                assert_eq!((reader.line_number(), reader.record_offset()), (row.number, row.offset));
                assert_eq!((reader.raw_line(), reader.fields()), (Some(row.line.as_slice()), row.cells.len()));
                let passed = usize::try_from(reader.pass_by(fields)).unwrap_or(usize::MAX);
                for row in &rows[at + 1..][..passed] {
                    assert_eq!(row.cells.len(), fields);
                    assert!(!has_escapes || !row.line.contains(&b'\\'), "escapes are to be looked at");
                }
                at += 1 + passed;
                assert_eq!(reader.line_number(), rows[at - 1].number);
            }
            Event::Header => (),
            Event::End => break assert_eq!((at, None), (rows.len(), error)),
            Event::Error(e) => break assert_eq!((at, Some((reader.line_number(), e))), (rows.len(), error)),
        }
    }
}
