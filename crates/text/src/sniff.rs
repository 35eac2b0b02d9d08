//! Detects the properties of a file: its dialect, its header, the types of its values.
//!
//! ```text
//!   first bytes ─► dialect ─► header ─► names        guesses, made once
//!   records     ─► shape of each value               evidence, for as many records as the caller reads
//! ```
//!
//! This module has no reader of its own. It tries each guess with the [`Reader`](crate::reader::Reader) that a load of
//! the file would use, so a load reads the same records. A wrong guess costs a wrong proposal. If a proposal must be
//! correct, the caller reads the whole file and validates the values with the server.

mod cell;
mod column;
pub mod dialect;
pub mod family;
pub mod finding;
pub mod header;
pub mod place;
mod preamble;
pub mod shape;
pub mod style;
#[cfg(test)]
mod tests;
mod tokens;
mod trial;

use crate::dialect::Dialect;
use crate::reader::{Event, Reader, Settings};
use crate::record::Record;
use crate::scan::Level;

/// The most fields of a record to examine.
pub const MOST_FIELDS: usize = 4096;

/// Creates a reader of a sample, without verification of its bytes.
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

/// Result of reading a sample.
struct Read {
    /// Number of bytes behind the last record.
    unread: usize,
    /// Reading ended with an error.
    failed: bool,
}

/// Calls `look` with each record of a sample and its number of fields, until it returns false. Unless the sample is the
/// `whole` file, its last record is left out, because the sample may cut it.
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
                let Some(given) = reader.give(&mut rest, usize::MAX) else { break };
                reader.verified(given);
            }
            // Bytes behind an end-of-data marker are not read.
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

/// Whether a raw field begins and ends with a quote.
fn is_quoted(raw: &[u8], dialect: &Dialect) -> bool {
    raw.len() >= 2 && raw.first() == Some(&dialect.quote) && raw.last() == Some(&dialect.quote)
}

/// Whether quotes are only at the ends of a field, or doubled or escaped within it.
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
