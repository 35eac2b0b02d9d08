//! A file in chunks, as the processes of a load read it, compared with the same file in order.
//!
//! The head chooses the dialect as in [`super::reader`], and how the file is read. A file with an irregular dialect is
//! not divided into chunks; the leader then reads it to its end, which is a test as well.

use pg_bulk_text::chunk::BLOCK;
use pg_bulk_text::naive::chunks::{Plan, in_chunks, in_order};
use pg_bulk_text::reader::Settings;
use pg_bulk_text::scan::Level;

use super::reader::{chosen, dialect};

/// Length of the head, in bytes.
pub const HEAD: usize = 8;

/// Reads one input. Inputs with invalid options are skipped.
pub fn run(input: &[u8]) {
    let Some((&[flags, delimiter, quote, escape, markers, how, room, level], data)) = input.split_first_chunk::<HEAD>()
    else {
        return;
    };
    let Some(dialect) = dialect([flags, delimiter, quote, escape, markers]) else { return };
    let settings = Settings {
        dialect,
        read_size: 1 + usize::from(room) * 3,
        utf8: true,
        max_char: 4,
        skip_bom: how & 1 != 0,
        header_lines: u64::from(how >> 1 & 1),
        header_fields: false,
        max_fields: usize::MAX,
        level: chosen(&Level::available(), level),
    };
    let plan = Plan {
        settings,
        first: 1 + usize::from(how >> 2 & 1),
        len: BLOCK * (1 + usize::from(how >> 3 & 3)),
        room: usize::from(room),
        readers: 1 + usize::from(how >> 5 & 1),
        resume: (how >> 6 == 3).then_some(usize::from(level >> 4)),
    };
    let found = in_chunks(&plan, data);
    let expected = in_order(&plan.settings, data);
    assert_eq!(found, expected, "{plan:?}");
}
