//! Feeds some of a source's bytes to a reader.
//!
//! A stream (`input::stream`) reads until there is a record, however long that is. `bulk_sniff` has a budget of bytes, and
//! uses the first ones twice: for the dialect, and as records. So the first bytes are kept, and given to the reader
//! before the others. The end of the budget is not the end of the data: the reader is not told of it, and returns no
//! record.
//!
//! The reader gets valid bytes in the server's encoding. The first byte beyond ASCII decides the encoding, unless it is
//! given. Invalid bytes are replaced, and their positions kept, so that a note can name their lines.

use std::collections::VecDeque;

use pg_bulk_text::dialect::{Dialect, Eol};
use pg_bulk_text::reader::{Event, ReadError, Reader, RecordStart, Settings};
use pg_bulk_text::scan::Level;
use pg_bulk_text::sniff::MOST_FIELDS;

use super::encoding::{by_evidence, is_clearly_utf8};
use crate::error::{Result, out_of_memory};
use crate::guc;
use crate::input::encoding::{Encodings, Treatment};
use crate::input::source::Source;

/// Bytes that are read at a time.
const PIECE: usize = 256 * 1024;

/// Bytes behind an invalid one that are converted together.
const SHORTEST: usize = 64;
/// The most positions of replaced bytes to keep.
const MOST_REPLACED: usize = 1 << 20;

/// Bytes of a source, in the server's encoding.
#[derive(Debug)]
pub struct Feed {
    source: Source,
    encodings: Encodings,
    /// The encoding is given, or was found.
    is_known: bool,
    /// Bytes that are not converted yet.
    raw: Vec<u8>,
    /// Bytes for the reader.
    ready: Vec<u8>,
    given: usize,
    /// Offset of `ready` among all bytes for the reader.
    passed: u64,
    /// Offsets of replaced bytes among all bytes for the reader.
    replaced: VecDeque<u64>,
    /// Bytes that may still be read.
    left: u64,
    ended: bool,
    /// The source goes on behind the budget. One more byte was read to find that out, and is discarded.
    spent: bool,
    /// Some byte is not ASCII, so its meaning depends on the encoding.
    has_others: bool,
    bom_pending: bool,
    /// The encoding is another one, but some part of the file is valid UTF-8.
    seems_utf8: bool,
}

/// Result of [`Feed::advance`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeedStep {
    Record,
    Header,
    /// A record cannot be read. COPY raises this error.
    Error(ReadError),
    /// The data have ended.
    End,
    /// The budget has ended.
    Enough,
}

impl Feed {
    /// `encodings`: those of the session if the encoding is not `given`.
    pub fn new(source: Source, encodings: Encodings, given: bool, budget: u64) -> Feed {
        Feed {
            source,
            encodings,
            is_known: given,
            raw: Vec::new(),
            ready: Vec::new(),
            given: 0,
            passed: 0,
            replaced: VecDeque::new(),
            left: budget,
            ended: false,
            spent: false,
            has_others: false,
            bom_pending: true,
            seems_utf8: false,
        }
    }

    /// A reader for the bytes of this feed.
    pub fn reader(dialect: &Dialect, header_lines: u64) -> Reader {
        let mut reader = Reader::new(Settings {
            dialect: dialect.clone(),
            read_size: guc::chunk_size(),
            utf8: false,
            max_char: 1,
            skip_bom: false,
            header_lines,
            header_fields: true,
            max_fields: MOST_FIELDS + 1,
            level: Level::best(),
        });
        reader.tolerate();
        reader
    }

    /// The encodings, and whether the file's was given or found.
    pub fn encodings(&self) -> (Encodings, bool) {
        (self.encodings, self.is_known)
    }

    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Was there a byte that is not ASCII? Those of a byte order mark count.
    pub fn has_others(&self) -> bool {
        self.has_others
    }

    /// Is some part of the file valid UTF-8, although its encoding is another one?
    pub fn seems_utf8(&self) -> bool {
        self.seems_utf8
    }

    /// Are the reader's positions offsets in the file?
    pub fn has_offsets(&self) -> bool {
        self.encodings.treatment() != Treatment::Convert && self.source.size().is_some()
    }

    /// The first bytes, at least `wanted` if the source has them. To be called before a reader gets any.
    pub fn first(&mut self, wanted: usize) -> Result<&[u8]> {
        while self.ready.len() < wanted && self.fetch()? {}
        Ok(&self.ready)
    }

    /// Has the whole source been read?
    pub fn is_whole(&self) -> bool {
        self.ended
    }

    /// Read more bytes from the source; false at its end, or at the end of the budget.
    fn fetch(&mut self) -> Result<bool> {
        pgrx::check_for_interrupts!();
        if self.ended || self.spent {
            return Ok(false);
        }
        // At the end of the budget, one more byte shows whether the source goes on.
        let most = usize::try_from(self.left.max(1)).unwrap_or(PIECE).min(PIECE);
        let mut piece = vec![0; most];
        let n = self.source.read(&mut piece)?;
        if n == 0 {
            self.ended = true;
        } else if self.left == 0 {
            self.spent = true;
            return Ok(false);
        }
        self.left = self.left.saturating_sub(n as u64);
        self.raw.extend_from_slice(piece.get(..n).unwrap_or_default());
        self.prepare();
        Ok(n > 0)
    }

    /// Make the bytes that were read ready for the reader.
    fn prepare(&mut self) {
        // A character that the end of the piece may cut is no evidence: it waits in `raw`.
        let sure = if self.ended { self.raw.len() } else { self.raw.len().saturating_sub(3) };
        let sure = self.raw.get(..sure).unwrap_or_default();
        self.has_others |= !self.raw.is_ascii();
        if self.is_known && self.encodings.treatment() != Treatment::Utf8 {
            self.seems_utf8 |= is_clearly_utf8(sure);
        }
        if !self.is_known && !sure.is_ascii() {
            self.encodings = by_evidence(&self.raw, self.encodings);
            self.is_known = true;
        }
        if self.bom_pending && (self.raw.len() >= 3 || self.ended) {
            if self.encodings.has_bom() && self.raw.starts_with(b"\xef\xbb\xbf") {
                self.raw.drain(..3);
            }
            self.bom_pending = false;
        }
        let (start, encodings) = (self.passed, self.encodings);
        let used = mend(&encodings, &self.raw, self.ended, &mut self.ready, |at| {
            if self.replaced.len() < MOST_REPLACED {
                self.replaced.push_back(start + at as u64);
            }
        });
        self.raw.drain(..used);
    }

    /// Whether bytes before this offset were replaced, behind those of the last call.
    pub fn were_replaced(&mut self, end: u64) -> bool {
        let number = self.replaced.iter().take_while(|&&at| at < end).count();
        self.replaced.drain(..number);
        number > 0
    }

    /// Go to the next record.
    pub fn advance(&mut self, reader: &mut Reader) -> Result<FeedStep> {
        loop {
            match reader.advance() {
                Event::Record => return Ok(FeedStep::Record),
                Event::Header => return Ok(FeedStep::Header),
                Event::End => return Ok(FeedStep::End),
                Event::NeedData => {
                    if !self.give(reader)? {
                        return Ok(FeedStep::Enough);
                    }
                }
                Event::Error(error) => return Ok(FeedStep::Error(error)),
            }
        }
    }

    fn give(&mut self, reader: &mut Reader) -> Result<bool> {
        if self.given == self.ready.len() {
            self.passed += self.ready.len() as u64;
            self.ready.clear();
            self.given = 0;
            while self.ready.is_empty() && self.fetch()? {}
        }
        let waiting = self.ready.get(self.given..).unwrap_or_default();
        if waiting.is_empty() && !self.ended {
            return Ok(false);
        }
        self.given += give(reader, waiting)?;
        Ok(true)
    }

    /// Whether the data have ended at an end marker, and text is behind it.
    pub fn ended_early(&mut self, reader: &Reader) -> Result<bool> {
        Ok(reader.ended_early() == Some(true) || self.given < self.ready.len() || self.fetch()? || self.spent)
    }

    /// Read `len` bytes at another position of the file. The position of the feed is lost.
    pub fn sample_at(&mut self, offset: u64, len: usize) -> Result<Vec<u8>> {
        pgrx::check_for_interrupts!();
        self.source.seek(offset)?;
        let bytes = self.source.start(len)?;
        if !bytes.is_ascii() {
            self.has_others = true;
            if !self.is_known {
                self.encodings = by_evidence(&bytes, self.encodings);
                self.is_known = true;
            }
        }
        let mut ready = Vec::with_capacity(bytes.len());
        self.replaced.clear();
        let replaced = &mut self.replaced;
        // The last character may be cut.
        mend(&self.encodings, &bytes, false, &mut ready, |at| {
            if replaced.len() < MOST_REPLACED {
                replaced.push_back(offset + at as u64);
            }
        });
        Ok(ready)
    }

    /// Call `look` for the records in these bytes, the first of which begins at `offset` of the file, and for the errors.
    pub fn each_record(
        mut bytes: &[u8],
        dialect: &Dialect,
        eol: Eol,
        offset: u64,
        mut look: impl FnMut(&Reader, Option<ReadError>) -> Result<()>,
    ) -> Result<()> {
        let mut reader = Feed::reader(dialect, 0);
        reader.resume(RecordStart { eol, offset, lines: 0 });
        loop {
            match reader.advance() {
                Event::Record => look(&reader, None)?,
                Event::Error(error) if reader.goes_on() => look(&reader, Some(error))?,
                Event::NeedData if !bytes.is_empty() => {
                    let n = give(&mut reader, bytes)?;
                    bytes = bytes.get(n..).unwrap_or_default();
                }
                _ => return Ok(()),
            }
        }
    }

    /// Close the source. Guarded.
    pub fn close(mut self) -> Result<()> {
        self.source.close()
    }
}

/// Append bytes of a file in the server's encoding to `out`. Invalid bytes are replaced, and `replaced` called with their
/// offset in `out`. Return the number of bytes used up: unless the data have `ended`, a character at their end waits for
/// more. Guarded.
fn mend(encodings: &Encodings, bytes: &[u8], ended: bool, out: &mut Vec<u8>, mut replaced: impl FnMut(usize)) -> usize {
    // Behind invalid bytes, there are often more: a long span would be converted again for each.
    let (mut at, mut span) = (0, bytes.len());
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let used = encodings.take(rest.get(..span).unwrap_or(rest), out);
        at += used;
        if used > 0 {
            span = span.saturating_mul(2);
            continue;
        }
        span = SHORTEST;
        if !Encodings::is_hopeless(rest, ended) {
            break;
        }
        replaced(out.len());
        out.extend_from_slice(encodings.replacement());
        at += encodings.hopeless_len(rest).max(1);
    }
    at
}

/// Give a reader some of these bytes, and return their number.
fn give(reader: &mut Reader, mut bytes: &[u8]) -> Result<usize> {
    let given = reader.give(&mut bytes, usize::MAX).ok_or_else(out_of_memory)?;
    reader.verified(given);
    Ok(given)
}
