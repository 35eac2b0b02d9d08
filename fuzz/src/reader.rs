//! The reader, at a read size and level chosen by the input, compared with the naive reader; also the reader that
//! continues behind lines with errors, with its own twin.
//!
//! The head chooses a dialect of COPY, regular or irregular, or one that COPY does not have: with long delimiters,
//! without quotes, or with delimiters at the end of lines. Its characters come from a short list, so that they are
//! frequent in the data. Data need not be valid UTF-8.

use pg_bulk_text::dialect::{Dialect, EndMarker, FormatOptions};
use pg_bulk_text::line::LINE_LIMIT;
use pg_bulk_text::naive::{self, tolerant};
use pg_bulk_text::scan::Level;

/// Length of the head, in bytes.
pub const HEAD: usize = 8;

const DELIMITERS: &[u8] = b",\t|; A\\e'x.";
const LONG: [&[u8]; 8] = [b"||", b",x,", b"\t,\t", b"\xe2\x82\xac", b"aa", b",\"", b"A\\", b"-=*=-=*=-=*=-=*"];
const QUOTES: &[u8] = b"\"'\\e\n\rq,";
const MARKERS: [&[u8]; 6] = [b"", b"\\N", b"N", b"NULL", b"a", b"\\."];

pub fn chosen<T: Copy>(from: &[T], by: u8) -> T {
    from[usize::from(by) % from.len()]
}

/// Returns the dialect of a head's first bytes, if its options are valid together.
pub fn dialect([flags, delimiter, quote, escape, markers]: [u8; 5]) -> Option<Dialect> {
    let csv = flags & 1 != 0;
    let character = |from: &[u8], by: u8| Some(vec![chosen(from, by)]);
    // Options that COPY does not have.
    let more = flags & 128 != 0;
    let unquoted = more && csv && quote & 128 != 0;
    let options = FormatOptions {
        csv,
        delimiter: match (flags & 2 != 0, more && delimiter & 64 != 0) {
            (false, _) => None,
            (true, false) => character(DELIMITERS, delimiter),
            (true, true) => Some(chosen(&LONG, delimiter).to_vec()),
        },
        trailing: more && delimiter & 128 != 0,
        unquoted,
        quote: if csv && !unquoted && flags & 4 != 0 { character(QUOTES, quote) } else { None },
        escape: if csv && !unquoted && flags & 8 != 0 { character(QUOTES, escape) } else { None },
        null: if flags & 16 != 0 { Some(chosen(&MARKERS, markers).to_vec()) } else { None },
        default: if flags & 32 != 0 { Some(chosen(&MARKERS, markers / 6).to_vec()) } else { None },
        ..FormatOptions::default()
    };
    let end_marker = if flags & 64 != 0 { EndMarker::Since18 } else { EndMarker::Until17 };
    Dialect::check(&options, end_marker).ok()
}

/// Reads one input. Inputs with invalid options are skipped.
pub fn run(input: &[u8]) {
    let Some((&[flags, delimiter, quote, escape, markers, low, high, level], data)) = input.split_first_chunk::<HEAD>()
    else {
        return;
    };
    let Some(dialect) = dialect([flags, delimiter, quote, escape, markers]) else { return };
    let levels = Level::available();
    let level = chosen(&levels, level);
    // Mostly small, so that small files take many reads, too.
    let read_size = match high {
        0..128 => 1 + usize::from(low),
        _ => 1 + (usize::from(low) | usize::from(high & 127) << 8),
    };
    let settings = naive::settings(&dialect, read_size, level);
    let limit = if low % 4 == 0 { 40 } else { LINE_LIMIT };
    let (found, _) = tolerant::read_in_pieces(settings.clone(), limit, data, read_size);
    let expected = tolerant::lines(&dialect, limit, data);
    assert_eq!(found, expected, "{level:?}, {read_size} bytes at a time, {dialect:?}, passing errors");
    let found = naive::read_in_pieces(settings, data, read_size);
    let expected = naive::rows(&dialect, data);
    assert_eq!(found, expected, "{level:?}, {read_size} bytes at a time, {dialect:?}");
}
