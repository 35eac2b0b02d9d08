//! From bytes to records: the push reader that everything else sits on.
//!
//! ```text
//!  source -> Window -> split -> Record -> Value
//!            (verified  (field
//!             bytes)     ends)
//! ```
//!
//! The reader does no I/O. [`Reader::advance`] says what it wants: here is a record, give me bytes, the data have
//! ended, COPY would raise this error. A caller gives bytes with [`Reader::space`] and [`Reader::filled`].
//!
//! **The two paths.** The SIMD kernels read what is beyond doubt: records of a regular dialect whose line end is
//! known. Whatever they stop at, the first record (which decides how lines end), the unterminated tail of the data
//! and every record of an irregular dialect go through [`crate::line`] and [`crate::field`], which know all of COPY's
//! rules. Both leave the same thing behind: field ends, flagged where a value is more than its raw bytes.
//!
//! **Order of errors.** COPY verifies a block's encoding before it looks for lines in it, yet raises the error only
//! when the lines before are used up. So invalid bytes close the window, and only a record that needs bytes beyond
//! the window's end meets the error.
//!
//! **Line numbers** are COPY's: one a record, and in CSV one for each line end inside quotes, of a kind that
//! depends on how lines end. They are counted when somebody asks, from the last position where they were known.

mod ahead;
mod binary;
mod exact;
mod input;
mod lines;
mod pass;
mod records;
mod resume;

use crate::binary::{HeaderError, Preamble};
use crate::dialect::{Dialect, Eol};
use crate::field::{self, FieldError};
use crate::line::{LINE_LIMIT, LineError};
pub use crate::record::{Record, Value};
use crate::scan::{Batch, CutState, Level, RecordEnd, Scanner};
use crate::window::Window;

/// Bytes behind a chunk that its reader wants to see: the longest character of any server encoding.
pub const LOOKAHEAD: usize = 4;
/// COPY moves input to its line buffer in pieces of this size (`INPUT_BUF_SIZE`).
const COPY_BLOCK: u64 = 65536;
/// Most fields and records of one batch: its arrays stay in the first-level cache.
const BATCH_FIELDS: usize = 4096;
const BATCH_RECORDS: usize = 1024;

/// What [`Reader::advance`] wants or has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A record is there.
    Record,
    /// A header line is there ([`Reader::raw_line`], and its fields if they were asked for).
    Header,
    /// Call [`Reader::space`], read, call [`Reader::filled`].
    NeedData,
    /// The data have ended.
    End,
    /// COPY raises this error here; [`Reader::line_number`] and [`Reader::raw_line`] say where.
    Error(ReadError),
}

/// COPY's errors about lines and fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadError {
    /// An error of the line reader.
    Line(LineError),
    /// An error of the field reader.
    Field(FieldError),
    /// The bytes at [`Reader::unverified`] are not valid.
    Encoding,
    /// Of the last record only so many bytes are there; of records without line ends.
    Partial {
        /// How many.
        bytes: usize,
        /// And how many there should be.
        length: usize,
    },
    /// The header of the binary format is none.
    Header(HeaderError),
    /// Binary data go on behind the marker that ends them.
    AfterMarker,
    /// The line does not fit COPY's line buffer: "Cannot enlarge string buffer containing n bytes by m more bytes."
    TooLong {
        /// n
        containing: u64,
        /// m
        more: u64,
    },
}

/// What becomes of a record with invalid bytes, where the reader verifies by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invalid {
    /// The data end with it.
    Ends,
    /// It is an error, behind which there is more to come.
    Reported,
    /// It is a record: who wants values of it mends them ([`Reader::is_dirty`]).
    Passed,
}

/// How a reader is to read.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The dialect, of bytes in the server's encoding.
    pub dialect: Dialect,
    /// Bytes asked of the source at a time.
    pub read_size: usize,
    /// The reader verifies UTF-8 itself; else the caller does, with [`Reader::verified`].
    pub utf8: bool,
    /// Most bytes that one character takes in the encoding that is verified.
    pub max_char: usize,
    /// Skip a UTF-8 byte order mark at the start.
    pub skip_bom: bool,
    /// Header lines before the data.
    pub header_lines: u64,
    /// Split header lines into fields, too.
    pub header_fields: bool,
    /// Most fields stored of a record; more are only counted.
    pub max_fields: usize,
    /// Instruction set.
    pub level: Level,
}

/// Where in a stream a record begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// How lines end.
    pub eol: Eol,
    /// Position of its first byte.
    pub offset: u64,
    /// Lines before it, as COPY counts them.
    pub lines: u64,
}

/// Where the current record and its fields are.
#[derive(Debug, Clone, Copy, Default)]
struct Current {
    /// Start of the record.
    start: usize,
    /// Start of the record behind it.
    next: usize,
    /// Its field ends, in the batch or in `exact_ends`.
    first: usize,
    last: usize,
    /// Its number of fields (more than are stored, in a runaway record).
    fields: usize,
    /// End of its data, if the exact reader read it.
    content: Option<usize>,
}

/// Records out of bytes.
#[derive(Debug)]
pub struct Reader {
    dialect: Dialect,
    level: Level,
    window: Window,
    utf8: bool,
    bom_pending: bool,
    /// The binary format's own header.
    preamble: Preamble,
    header_left: u64,
    header_fields: bool,
    max_fields: usize,

    eol: Option<Eol>,
    scanner: Option<Scanner>,
    /// Start of the next record that is not in the batch.
    pos: usize,
    /// `pos..chunk_end` are complete records.
    chunk_end: usize,
    /// The search for line ends behind `chunk_end`.
    cut: CutState,
    /// So many bytes behind `chunk_end` have no record that can be split.
    nothing_in: usize,
    /// Most records are passed by.
    glances: bool,
    /// The next record is for the exact reader.
    exact_next: bool,
    /// The exact reader needs at least this many bytes to try again.
    retry_at: usize,
    finished: bool,

    batch: Batch,
    /// How many batches there were before.
    batch_number: u64,
    /// Next record of the batch.
    cursor: usize,
    current: Current,
    exact_ends: Vec<u32>,

    /// COPY's line number of the record that ends at `line_pos`.
    line_base: u64,
    line_pos: usize,
    /// Lines between `line_pos` and `chunk_end`, where the search counted them.
    chunk_lines: Option<u64>,
    /// Line number of the current record, if the exact reader read it.
    exact_line: Option<u64>,

    /// Lines with errors are passed.
    tolerant: bool,
    invalid: Invalid,
    /// Lines of so many bytes do not fit.
    line_limit: usize,
    /// Nothing is read behind a `\.`, wherever it stands.
    ends_at_marker: bool,
    /// Bytes before this position may be invalid.
    dirty_end: usize,
}

impl Reader {
    /// A reader at the start of its data.
    #[must_use]
    pub fn new(s: Settings) -> Reader {
        Reader {
            window: Window::new(s.read_size, s.max_char),
            // What this machine cannot run is not run, whoever asks for it.
            level: if Level::available().contains(&s.level) { s.level } else { Level::Scalar },
            // Records without line ends are bytes: they are taken for valid.
            utf8: s.utf8 || s.dialect.lacks_line_ends(),
            bom_pending: s.skip_bom && !s.dialect.lacks_line_ends(),
            preamble: if s.dialect.is_binary() { Preamble::Ahead } else { Preamble::Passed },
            header_left: if s.dialect.lacks_line_ends() { 0 } else { s.header_lines },
            header_fields: s.header_fields,
            max_fields: s.max_fields,
            // Records without line ends have one that nobody looks for.
            eol: s.dialect.lacks_line_ends().then_some(Eol::Nl),
            scanner: None,
            pos: 0,
            chunk_end: 0,
            cut: CutState::watching(),
            nothing_in: 0,
            glances: false,
            exact_next: false,
            retry_at: 0,
            finished: false,
            batch: Batch::new(BATCH_FIELDS, BATCH_RECORDS),
            batch_number: 0,
            cursor: 0,
            current: Current::default(),
            exact_ends: Vec::new(),
            line_base: 0,
            line_pos: 0,
            chunk_lines: None,
            exact_line: None,
            tolerant: false,
            line_limit: LINE_LIMIT,
            invalid: Invalid::Ends,
            ends_at_marker: false,
            dirty_end: 0,
            dialect: s.dialect,
        }
    }

    /// From now on an error about a line is not the end: the line can be looked at, and [`Reader::advance`] goes on behind
    /// it. Its invalid bytes do not close the window, either, where the reader verifies by itself.
    pub fn tolerate(&mut self) {
        self.tolerant = true;
        self.invalid = Invalid::Reported;
    }

    /// Lines that do not fit are shorter than COPY's ([`LINE_LIMIT`]), so that a test can have some.
    #[doc(hidden)]
    pub fn limit_lines(&mut self, bytes: usize) {
        self.line_limit = bytes.min(LINE_LIMIT);
    }

    /// Records with invalid bytes become this from now on.
    pub fn set_invalid(&mut self, invalid: Invalid) {
        self.invalid = invalid;
    }

    /// May the current line have invalid bytes?
    #[inline]
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.current.start < self.dirty_end
    }

    /// A `\.` behind data ends the data, too, as where a client sends them. Of a file COPY goes on to read the next line (up to 17).
    pub fn end_at_marker(&mut self) {
        self.ends_at_marker = true;
    }

    /// After an error: is there more to come?
    #[must_use]
    pub fn goes_on(&self) -> bool {
        (self.tolerant || self.invalid == Invalid::Reported) && !self.finished
    }

    /// Go to the next record.
    #[inline]
    pub fn advance(&mut self) -> Event {
        if self.cursor < self.batch.len
            && let Some(end) = self.batch.records.get(self.cursor)
        {
            self.cursor += 1;
            let (first, last) = (self.current.last, end.fields as usize);
            self.current = Current {
                start: self.current.next,
                first,
                last,
                fields: last - first,
                next: end.next as usize,
                content: None,
            };
            return Event::Record;
        }
        self.advance_slowly()
    }

    #[inline(never)]
    fn advance_slowly(&mut self) -> Event {
        let done = self.drop_batch();
        if !self.dialect.is_csv() {
            self.line_base += done as u64;
        }
        self.exact_line = None;
        if self.finished {
            return Event::End;
        }
        if self.bom_pending && !self.skip_bom() {
            return Event::NeedData;
        }
        if let Some(length) = self.dialect.stride() {
            return self.measure(length);
        }
        if self.dialect.is_binary() {
            return self.frame();
        }
        loop {
            let Some(scanner) = self.scanner else { return self.exact() };
            if self.header_left > 0 || self.exact_next {
                return self.exact();
            }
            if self.pos < self.chunk_end {
                if self.pos < self.dirty_end {
                    return self.exact();
                }
                if self.chunk_end - self.pos < self.line_limit {
                    let data = self.window.bytes().get(..self.chunk_end).unwrap_or_default();
                    scanner.split(data, self.pos, &mut self.batch);
                    self.pos = self.batch.resume;
                    self.exact_next = self.batch.odd;
                }
                if self.batch.len == 0 {
                    return self.exact();
                }
                // `advance` takes a record's start from the end of the one before.
                self.current = Current { next: self.batch.start, ..Current::default() };
                return self.advance();
            }
            // What was not counted waits until somebody asks, or the bytes go: those of a chunk mostly are never counted.
            if self.chunk_lines.is_some() {
                self.settle_lines();
            }
            if self.split_ahead(scanner) {
                return self.advance();
            }
            self.settle_lines();
            let tail = self.window.bytes().get(self.chunk_end..self.complete_end()).unwrap_or_default();
            scanner.cut(tail, &mut self.cut);
            if let Some(last) = self.cut.last {
                self.nothing_in = 0;
                self.chunk_lines = Some(self.cut.lines);
                self.cut.taken();
                self.chunk_end += last;
            } else if self.window.is_closed() || tail.len() >= self.line_limit || self.cut.odd {
                // COPY raises an error when it comes to the byte that shows it, and a source may wait for that.
                return self.exact();
            } else {
                return Event::NeedData;
            }
        }
    }

    /// Forget the batch. Returns how many records it had.
    fn drop_batch(&mut self) -> usize {
        self.batch_number += 1;
        self.cursor = 0;
        std::mem::take(&mut self.batch.len)
    }

    /// Is the next record known, so that [`Reader::advance`] has next to nothing to do?
    #[inline]
    #[must_use]
    pub fn has_next(&self) -> bool {
        self.cursor < self.batch.len
    }

    /// The current record's place among all that are known: the number of its batch, and its number in it. `None` if it
    /// is in none.
    #[inline]
    pub(crate) fn place_in_batch(&self) -> Option<(u64, usize)> {
        let record = self.cursor.checked_sub(1)?;
        self.current.content.is_none().then_some((self.batch_number, record))
    }

    /// The place of the record that [`Reader::advance`] goes to, if that is known.
    #[inline]
    pub(crate) fn next_in_batch(&self) -> Option<(u64, usize)> {
        self.has_next().then_some((self.batch_number, self.cursor))
    }

    /// The current record and those behind it in its batch.
    pub(crate) fn rest_of_batch(&self) -> &[RecordEnd] {
        self.batch.records.get(self.cursor.saturating_sub(1)..self.batch.len).unwrap_or_default()
    }

    /// Where the fields of a batch end.
    pub(crate) fn batch_ends(&self) -> &[u32] {
        &self.batch.ends
    }

    /// Bytes that positions refer to.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.window.bytes()
    }

    /// The instruction set.
    pub(crate) fn level(&self) -> Level {
        self.level
    }

    /// Which of a batch's field ends is the current record's first one.
    pub(crate) fn first_end(&self) -> usize {
        self.current.first
    }

    /// Position of the current record.
    pub(crate) fn record_start(&self) -> usize {
        self.current.start
    }

    /// How far lines behind the chunk may be complete, or it may be certain that they are wrong.
    ///
    /// In CSV COPY looks at the byte behind a carriage return before it takes the line that this ends. That matters
    /// where the byte turns out to be invalid: the error is this line's. So one at the end has to wait; as does what may
    /// become an end marker in text.
    fn complete_end(&self) -> usize {
        let bytes = self.window.bytes();
        let open: &[&[u8]] = match self.eol {
            _ if self.window.is_at_end() => &[],
            Some(Eol::CrNl) if !self.dialect.is_csv() => &[b"\\.", b"\\.\r"],
            _ if !self.dialect.is_csv() => &[b"\\."],
            Some(Eol::Cr | Eol::Nl) => &[b"\r"],
            _ => &[],
        };
        let open = open.iter().find(|open| bytes.ends_with(open)).map_or(0, |open| open.len());
        let end = bytes.len() - open;
        if end < self.chunk_end { bytes.len() } else { end }
    }

    /// Skip a byte order mark; false if the first bytes are not there yet.
    fn skip_bom(&mut self) -> bool {
        const BOM: &[u8] = b"\xef\xbb\xbf";
        let bytes = self.window.bytes();
        if bytes.len() < BOM.len() && !self.window.is_closed() && BOM.starts_with(bytes) {
            return false;
        }
        if bytes.starts_with(BOM) {
            self.pos = BOM.len();
            self.chunk_end = self.pos;
            self.line_pos = self.pos;
        }
        self.bom_pending = false;
        true
    }

    /// Number of fields of the current record.
    #[inline]
    #[must_use]
    pub fn fields(&self) -> usize {
        self.current.fields
    }

    /// The current record's fields.
    #[inline]
    #[must_use]
    pub fn record(&self) -> Record<'_> {
        let ends: &[u32] = if self.current.content.is_some() { &self.exact_ends } else { &self.batch.ends };
        Record {
            bytes: self.window.bytes(),
            start: self.current.start,
            ends: ends.get(self.current.first..self.current.last).unwrap_or_default(),
            dialect: &self.dialect,
            separator: self.dialect.separator.len(),
        }
    }

    /// What a field of the current record says; see [`Record::value`].
    #[inline]
    #[must_use]
    pub fn value(&self, field: usize) -> Value<'_> {
        self.record().value(field)
    }

    /// Make the value of an escaped field, appended to `out`. True if it must be checked for validity in the server
    /// encoding (see [`field::unescape_text`]).
    pub fn unescape(&self, raw: &[u8], out: &mut Vec<u8>) -> bool {
        if self.dialect.is_csv() {
            field::unescape_csv(&self.dialect, raw, out);
            false
        } else {
            field::unescape_text(raw, out)
        }
    }

    /// The dialect.
    #[inline]
    #[must_use]
    pub fn dialect(&self) -> &Dialect {
        &self.dialect
    }

    /// Bytes of the current record, its end included.
    #[inline]
    #[must_use]
    pub fn record_len(&self) -> usize {
        self.current.next - self.current.start
    }
}
