//! What a file looks like: its dialect, whether it has a header, what its values are written like.
//!
//! ```text
//!   first bytes ─► dialect ─► header ─► names        guesses, made once
//!   records     ─► shape of each value               evidence, as long as somebody reads on
//! ```
//!
//! Nothing here is a reader of its own: each guess is tried out with the [`Reader`](crate::reader::Reader) that a load of the
//! file would use, so what is sniffed is what is loaded. A wrong guess costs a wrong proposal; it is the caller who reads all of
//! the file and asks the server where a proposal has to hold.

pub mod dialect;
pub mod header;
pub mod names;
pub mod place;
pub mod preamble;
pub mod shape;

use crate::dialect::Dialect;
use crate::reader::{Event, Reader, Settings};
use crate::record::Record;
use crate::scan::Level;

/// Most fields of a record that are looked at.
pub const MOST_FIELDS: usize = 4096;

/// A reader of a sample, whose bytes are not verified.
fn reader(dialect: &Dialect) -> Reader {
    Reader::new(Settings {
        dialect: dialect.clone(),
        read_size: 64 * 1024,
        utf8: false,
        max_char: 1,
        skip_bom: true,
        header_lines: 0,
        header_fields: false,
        max_fields: MOST_FIELDS + 1,
        level: Level::best(),
    })
}

/// How a sample was read.
struct Read {
    /// Bytes behind the last record.
    unread: usize,
    /// It ended with an error.
    failed: bool,
}

/// Show each record of a sample, and how many fields it has, until somebody has seen enough. The last one is none if the data go on behind it.
fn each_record(sample: &[u8], whole: bool, dialect: &Dialect, mut look: impl FnMut(&Reader, usize) -> bool) -> Read {
    let mut reader = reader(dialect);
    let (mut rest, mut known, mut failed) = (sample, 0, false);
    loop {
        match reader.advance() {
            Event::Record => {
                known = usize::try_from(reader.record_offset()).unwrap_or(0) + reader.record_len();
                if !look(&reader, reader.fields()) {
                    known = sample.len();
                    break;
                }
            }
            Event::Header => (),
            Event::NeedData => {
                if rest.is_empty() && !whole {
                    break;
                }
                let Some(space) = reader.try_space() else { break };
                let (now, later) = rest.split_at(rest.len().min(space.len()));
                if let Some(space) = space.get_mut(..now.len()) {
                    space.copy_from_slice(now);
                }
                rest = later;
                reader.filled(now.len());
                reader.verified(now.len());
            }
            // Nothing is read behind an end-of-data marker.
            Event::End => {
                known = sample.len();
                break;
            }
            Event::Error(_) => {
                failed = true;
                break;
            }
        }
    }
    Read { unread: sample.len().saturating_sub(known), failed }
}

/// Is a raw field a value in quotes, and nothing else?
fn is_quoted(raw: &[u8], dialect: &Dialect) -> bool {
    raw.len() >= 2 && raw.first() == Some(&dialect.quote) && raw.last() == Some(&dialect.quote)
}

/// Do quotes stand where they belong: at the borders of a field, and in it only doubled or escaped?
fn has_its_quotes(raw: &[u8], dialect: &Dialect) -> bool {
    if !is_quoted(raw, dialect) {
        return memchr::memchr(dialect.quote, raw).is_none();
    }
    let inner = raw.get(1..raw.len() - 1).unwrap_or_default();
    let mut bytes = inner.iter();
    while let Some(&byte) = bytes.next() {
        if byte == dialect.escape && byte != dialect.quote {
            bytes.next();
        } else if byte == dialect.quote && bytes.next() != Some(&dialect.quote) {
            return false;
        }
    }
    true
}

/// The raw fields of a record.
fn raw_fields<'a>(record: Record<'a>, fields: usize) -> impl Iterator<Item = &'a [u8]> {
    (0..fields.min(MOST_FIELDS)).map(move |field| record.raw(field))
}
