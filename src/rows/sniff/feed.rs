//! Feeds some of a source's bytes to a reader.
//!
//! A stream (`input::stream`) reads until there is a record, however long that is. `bulk_sniff` has a budget of bytes, and
//! uses the first ones twice: for the dialect, and as records. So the first bytes are kept, and given to the reader
//! before the others. The end of the budget is not the end of the data: the reader is not told of it, and returns no
//! record.

use pg_bulk_text::dialect::{Dialect, Eol};
use pg_bulk_text::reader::{Event, ReadError, Reader, RecordStart, Settings};
use pg_bulk_text::scan::Level;
use pg_bulk_text::sniff::MOST_FIELDS;

use crate::error::{Error, Result, out_of_memory};
use crate::guc;
use crate::input::encoding::{Encodings, Treatment, invalid_bytes};
use crate::input::source::Source;
use crate::server::copy_errors::read_error;

/// Bytes that are read at a time.
const PIECE: usize = 256 * 1024;

/// Bytes of a source, converted to the server's encoding if necessary.
#[derive(Debug)]
pub struct Feed {
    source: Source,
    encodings: Encodings,
    treatment: Treatment,
    /// Bytes that are not converted yet.
    raw: Vec<u8>,
    /// Bytes for the reader.
    ready: Vec<u8>,
    given: usize,
    /// Bytes that may still be read.
    left: u64,
    ended: bool,
    /// The source goes on behind the budget. One more byte was read to find that out, and is discarded.
    spent: bool,
    /// Some byte is not ASCII, so its meaning depends on the encoding.
    has_others: bool,
    bom_pending: bool,
}

/// Result of [`Feed::advance`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeedStep {
    Record,
    Header,
    /// The data have ended.
    End,
    /// The budget has ended.
    Enough,
}

impl Feed {
    pub fn new(source: Source, encodings: Encodings, budget: u64) -> Feed {
        let treatment = encodings.treatment();
        let bom_pending = treatment == Treatment::Convert && encodings.has_bom();
        Feed {
            source,
            encodings,
            treatment,
            raw: Vec::new(),
            ready: Vec::new(),
            given: 0,
            left: budget,
            ended: false,
            spent: false,
            has_others: false,
            bom_pending,
        }
    }

    /// A reader for the bytes of this feed.
    pub fn reader(&self, dialect: &Dialect, header_lines: u64) -> Reader {
        Reader::new(Settings {
            dialect: dialect.clone(),
            read_size: guc::chunk_size(),
            utf8: self.treatment == Treatment::Utf8,
            max_char: self.encodings.max_char(),
            skip_bom: self.treatment != Treatment::Convert && self.encodings.has_bom(),
            header_lines,
            header_fields: true,
            max_fields: MOST_FIELDS + 1,
            level: Level::best(),
        })
    }

    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Was there a byte that is not ASCII? Those of a byte order mark count.
    pub fn has_others(&self) -> bool {
        self.has_others
    }

    /// Are the reader's positions offsets in the file?
    pub fn has_offsets(&self) -> bool {
        self.treatment != Treatment::Convert && self.source.size().is_some()
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
        let piece = piece.get(..n).unwrap_or_default();
        self.has_others |= !piece.is_ascii();
        if self.treatment != Treatment::Convert {
            self.ready.extend_from_slice(piece);
            return Ok(n > 0);
        }
        self.raw.extend_from_slice(piece);
        if self.bom_pending && (self.raw.len() >= 3 || self.ended) {
            if self.raw.starts_with(b"\xef\xbb\xbf") {
                self.raw.drain(..3);
            }
            self.bom_pending = false;
        }
        loop {
            let used = self.encodings.convert(&self.raw, &mut self.ready);
            self.raw.drain(..used);
            if used == 0 {
                return Ok(!self.ended && !Encodings::is_hopeless(&self.raw, false));
            }
        }
    }

    /// Go to the next record. An error is COPY's; its detail gives the line.
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
                Event::Error(error) => return Err(self.located(error, reader)),
            }
        }
    }

    fn give(&mut self, reader: &mut Reader) -> Result<bool> {
        if self.given == self.ready.len() {
            self.ready.clear();
            self.given = 0;
            while self.ready.is_empty() && self.fetch()? {}
        }
        if self.ready.is_empty() {
            if Encodings::is_hopeless(&self.raw, self.ended) {
                reader.fail_encoding();
                return Ok(true);
            }
            if !self.ended {
                return Ok(false);
            }
            let _ = reader.try_space().ok_or_else(out_of_memory)?;
            reader.filled(0);
            // The data may end within a character, which is an error only now.
            verify(reader, 0, self.treatment, &self.encodings);
            return Ok(true);
        }
        let waiting = self.ready.get(self.given..).unwrap_or_default();
        self.given += give(reader, waiting, self.treatment, &self.encodings)?;
        Ok(true)
    }

    fn located(&self, error: ReadError, reader: &Reader) -> Error {
        let detail = format!("Line {} of \"{}\".", reader.line_number(), self.source.name());
        let error = match error {
            ReadError::Encoding if self.treatment == Treatment::Convert => self.encodings.raise(&self.raw),
            ReadError::Encoding => {
                let bytes = reader.unverified();
                let error = invalid_bytes(self.encodings.of_file(), bytes);
                match bytes.first() {
                    Some(0) => error,
                    _ => error.hint("Set the option \"encoding\" to the encoding of the file."),
                }
            }
            other => read_error(other, reader.dialect().format),
        };
        error.detail(detail)
    }

    /// Read `len` bytes at another position of the file. The position of the feed is lost.
    pub fn sample_at(&mut self, offset: u64, len: usize) -> Result<Vec<u8>> {
        pgrx::check_for_interrupts!();
        self.source.seek(offset)?;
        let (mut bytes, mut n) = (vec![0; len], 0);
        while let Some(space) = bytes.get_mut(n..)
            && !space.is_empty()
        {
            match self.source.read(space)? {
                0 => break,
                more => n += more,
            }
        }
        bytes.truncate(n);
        self.has_others |= !bytes.is_ascii();
        Ok(bytes)
    }

    /// Call `look` for the records in these bytes, the first of which begins at `offset` of the file. Stops at an
    /// error.
    pub fn each_record(
        &self,
        mut bytes: &[u8],
        dialect: &Dialect,
        eol: Eol,
        offset: u64,
        mut look: impl FnMut(&Reader) -> Result<()>,
    ) -> Result<()> {
        let mut reader = self.reader(dialect, 0);
        reader.resume(RecordStart { eol, offset, lines: 0 });
        loop {
            match reader.advance() {
                Event::Record => look(&reader)?,
                Event::NeedData if !bytes.is_empty() => {
                    let n = give(&mut reader, bytes, self.treatment, &self.encodings)?;
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

/// Give a reader some of these bytes, and return their number.
fn give(reader: &mut Reader, bytes: &[u8], treatment: Treatment, encodings: &Encodings) -> Result<usize> {
    let space = reader.try_space().ok_or_else(out_of_memory)?;
    let n = bytes.len().min(space.len());
    if let (Some(to), Some(from)) = (space.get_mut(..n), bytes.get(..n)) {
        to.copy_from_slice(from);
    }
    reader.filled(n);
    verify(reader, n, treatment, encodings);
    Ok(n)
}

/// Reports to a reader how many of its bytes are valid, `n` of which are new.
fn verify(reader: &mut Reader, n: usize, treatment: Treatment, encodings: &Encodings) {
    match treatment {
        Treatment::Utf8 => (),
        Treatment::Verify => {
            let valid = encodings.valid_up_to(reader.unverified());
            reader.verified(valid);
        }
        Treatment::Convert | Treatment::Nothing => reader.verified(n),
    }
}
