//! A source's bytes for somebody who reads only some of them.
//!
//! A stream (`pg::stream`) reads until there is a record, however long that is. Who sniffs has so many bytes to spend, and the first of
//! them are looked at twice: for the dialect, and then as records. So the first bytes are kept, and given to the reader
//! before the others. Where the budget ends the data do not: the reader is told nothing, and has no record.

use pg_bulk_format::dialect::{Dialect, Eol};
use pg_bulk_format::reader::{Event, Place, ReadError, Reader, Settings};
use pg_bulk_format::scan::Level;
use pg_bulk_format::sniff::MOST_FIELDS;

use crate::error::{Error, Result, out_of_memory, read_error};
use crate::guc;
use crate::pg::encoding::{Encodings, Treatment, invalid_bytes};
use crate::pg::source::Source;

/// Bytes that are read at a time.
const PIECE: usize = 256 * 1024;

/// Bytes of a source, in the server's encoding where they need to be converted.
#[derive(Debug)]
pub struct Feed {
    source: Source,
    encodings: Encodings,
    treatment: Treatment,
    /// Not converted yet.
    raw: Vec<u8>,
    /// For the reader.
    ready: Vec<u8>,
    given: usize,
    /// Bytes that may still be read.
    left: u64,
    ended: bool,
    /// Something is behind the bytes that may be read. Its first byte was read, and is lost.
    spent: bool,
    /// Some byte is none of ASCII, and means what the encoding says.
    has_others: bool,
    bom_pending: bool,
}

/// What came of asking for a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Record,
    Header,
    /// The data have ended.
    End,
    /// No more may be read.
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

    /// A reader of what is fed to it.
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

    /// Was there a byte that is none of ASCII? A byte order mark is one, too.
    pub fn has_others(&self) -> bool {
        self.has_others
    }

    /// Where in the file a byte is that the reader was given.
    pub fn has_offsets(&self) -> bool {
        self.treatment != Treatment::Convert && self.source.size().is_some()
    }

    /// The first bytes, at least so many if there are. To be called before anything is fed.
    pub fn first(&mut self, wanted: usize) -> Result<&[u8]> {
        while self.ready.len() < wanted && self.fetch()? {}
        Ok(&self.ready)
    }

    /// Have all bytes been read?
    pub fn is_whole(&self) -> bool {
        self.ended
    }

    /// More bytes from the source; false if there are none, or none may be read.
    fn fetch(&mut self) -> Result<bool> {
        pgrx::check_for_interrupts!();
        if self.ended || self.spent {
            return Ok(false);
        }
        // One byte tells whether there is more than may be read.
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

    /// Go to the next record. An error is COPY's; its detail says where it is.
    pub fn advance(&mut self, reader: &mut Reader) -> Result<Next> {
        loop {
            match reader.advance() {
                Event::Record => return Ok(Next::Record),
                Event::Header => return Ok(Next::Header),
                Event::End => return Ok(Next::End),
                Event::NeedData => {
                    if !self.give(reader)? {
                        return Ok(Next::Enough);
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

    /// So many bytes from somewhere else in the file, of which nothing that was fed before is known any more.
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

    /// Show the records in these bytes, which begin with one at `offset` of the file. What cannot be read ends them.
    pub fn each_record(
        &self,
        mut bytes: &[u8],
        dialect: &Dialect,
        eol: Eol,
        offset: u64,
        mut look: impl FnMut(&Reader) -> Result<()>,
    ) -> Result<()> {
        let mut reader = self.reader(dialect, 0);
        reader.resume(Place { eol, offset, lines: 0 });
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

/// Give a reader some of these bytes. Returns how many.
fn give(reader: &mut Reader, bytes: &[u8], treatment: Treatment, encodings: &Encodings) -> Result<usize> {
    let space = reader.try_space().ok_or_else(out_of_memory)?;
    let n = bytes.len().min(space.len());
    if let (Some(to), Some(from)) = (space.get_mut(..n), bytes.get(..n)) {
        to.copy_from_slice(from);
    }
    reader.filled(n);
    match treatment {
        Treatment::Utf8 => (),
        Treatment::Verify => {
            let valid = encodings.valid_up_to(reader.unverified());
            reader.verified(valid);
        }
        Treatment::Convert | Treatment::Nothing => reader.verified(n),
    }
    Ok(n)
}
