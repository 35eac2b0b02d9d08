//! From bytes to records: the push reader below all formats of files.
//!
//! ```text
//!  source -> Window -> split -> Record -> Value
//!            (verified  (field
//!             bytes)     ends)
//! ```
//!
//! The reader does no I/O. [`Reader::advance`] returns an [`Event`]: a record is ready, more bytes are needed, the data
//! have ended, or COPY would raise this error. The caller adds bytes with [`Reader::space`] and [`Reader::filled`].
//!
//! **The two paths.** The SIMD kernels read the unambiguous records: those of a regular dialect whose line end is
//! known. All others go through [`crate::line`] and [`crate::field`], which implement all rules of COPY: the first
//! record (which decides how lines end), the unterminated end of the data, each record at which the kernels stop, and
//! every record of an irregular dialect. Both paths produce field ends, with a flag where a value differs from its raw
//! bytes.
//!
//! **Order of errors.** COPY verifies the encoding of a block before it looks for lines in it, but raises the error
//! only after the lines ahead of it. So invalid bytes close the window, and the error is raised for the first record
//! that needs bytes beyond the window's end.
//!
//! **Line numbers** are COPY's: one for each record, and in CSV one for each line end inside quotes. The byte that
//! counts there depends on how lines end. Lines are counted on request, from the last position with a known number.

mod ahead;
mod binary;
mod early;
mod exact;
mod input;
mod lines;
mod pass;
mod records;
mod resume;

pub use self::early::Lines;
use crate::binary::{HeaderError, Preamble};
use crate::dialect::{Dialect, Eol};
use crate::field::{self, FieldError};
use crate::line::{LINE_LIMIT, LineError};
use crate::reader::lines::LineCount;
pub use crate::record::{Record, Value};
use crate::scan::kernel::FLAG;
use crate::scan::{Batch, CutState, Level, Needles, RecordEnd, Scanner};
use crate::window::Window;

/// Number of bytes behind a chunk that its reader gets, too: the longest character of any server encoding.
pub const LOOKAHEAD: usize = 4;
/// Size of the blocks in which COPY moves input to its line buffer (`INPUT_BUF_SIZE`).
const COPY_BLOCK: u64 = 65536;
/// The most fields and records of one batch: its arrays fit into the first-level cache.
const BATCH_FIELDS: usize = 4096;
const BATCH_RECORDS: usize = 1024;

/// The result of [`Reader::advance`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A record is ready.
    Record,
    /// A header line is ready ([`Reader::raw_line`]; its fields, too, if [`Settings::header_fields`] is set).
    Header,
    /// More bytes are needed: call [`Reader::space`], read, call [`Reader::filled`].
    NeedData,
    /// The data have ended.
    End,
    /// COPY raises this error here. [`Reader::line_number`] and [`Reader::raw_line`] give its position.
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
    /// The last record is incomplete. Only for records without line ends.
    Partial {
        /// Number of its bytes.
        bytes: usize,
        /// Number of bytes of a complete record.
        length: usize,
    },
    /// The header of the binary format is invalid.
    Header(HeaderError),
    /// Binary data continue behind the marker that ends them.
    AfterMarker,
    /// The line does not fit COPY's line buffer: "Cannot enlarge string buffer containing n bytes by m more bytes."
    TooLong {
        /// n
        containing: u64,
        /// m
        more: u64,
    },
}

/// What the reader does with a record that has invalid bytes, if it verifies the encoding itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Invalid {
    /// It ends the data.
    Ends,
    /// It is an error, and the reader can continue behind it.
    Reported,
    /// It is returned as a record. The caller mends the values that it needs ([`Reader::is_dirty`]).
    Passed,
}

/// Settings of a reader.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The dialect. Its strings are in the server encoding.
    pub dialect: Dialect,
    /// Number of bytes to request from the source at a time.
    pub read_size: usize,
    /// The reader verifies UTF-8 itself. Otherwise the caller verifies the encoding and calls [`Reader::verified`].
    pub utf8: bool,
    /// The most bytes of a character in the encoding that is verified.
    pub max_char: usize,
    /// Skip a UTF-8 byte order mark at the start.
    pub skip_bom: bool,
    /// Header lines before the data.
    pub header_lines: u64,
    /// Split header lines into fields, too.
    pub header_fields: bool,
    /// The most fields to store of a record; further ones are only counted.
    pub max_fields: usize,
    /// The instruction set.
    pub level: Level,
}

/// The start of a record in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordStart {
    /// How lines end.
    pub eol: Eol,
    /// Offset of its first byte.
    pub offset: u64,
    /// Number of lines before it, as COPY counts them.
    pub lines: u64,
}

/// Position of the current record and its fields.
#[derive(Debug, Clone, Copy, Default)]
struct Current {
    /// Start of the record.
    start: usize,
    /// Start of the record behind it.
    next: usize,
    /// Bounds of its field ends in the batch or in `exact_ends`.
    first: usize,
    last: usize,
    /// Its number of fields. In a runaway record, more than are stored.
    fields: usize,
    /// End of its data, if the exact reader read it.
    content: Option<usize>,
}

/// What the caller has chosen. It stays as it is when the reader goes to another chunk.
#[derive(Debug)]
struct Policy {
    utf8: bool,
    header_fields: bool,
    max_fields: usize,
    /// Errors of lines do not end the data.
    tolerant: bool,
    invalid: Invalid,
    /// Lines of this many bytes are too long.
    line_limit: usize,
    /// A `\.` ends the data at any position.
    ends_at_marker: bool,
    /// Most records are skipped by counting, so batches stay small.
    glances: bool,
}

/// The bytes before the first record of a stream that are still to be read: byte order mark, preamble, header.
#[derive(Debug, Default)]
struct Opening {
    bom_pending: bool,
    /// Progress in the header of the binary format.
    preamble: Preamble,
    header_left: u64,
}

/// The kernels of the dialect: `None` before the line end is known, and in an irregular dialect.
#[derive(Debug)]
struct Kernels {
    level: Level,
    eol: Option<Eol>,
    scanner: Option<Scanner>,
}

impl Kernels {
    /// Selects the kernels for lines that end in `eol`.
    fn select(&mut self, dialect: &Dialect, eol: Eol) {
        self.eol = Some(eol);
        self.scanner = Needles::new(dialect, eol).map(|needles| Scanner::new(needles, self.level));
    }
}

/// The search for complete records behind those of the batch.
#[derive(Debug)]
struct Search {
    /// The search for line ends behind `chunk_end`.
    cut: CutState,
    /// No record in this many bytes behind `chunk_end` can be split.
    nothing_in: usize,
    /// The exact reader must read the next record.
    exact_next: bool,
    /// The exact reader needs at least this many bytes to try again.
    retry_at: usize,
}

impl Search {
    fn new() -> Search {
        Search { cut: CutState::watching(), nothing_in: 0, exact_next: false, retry_at: 0 }
    }
}

/// Makes records of bytes.
#[derive(Debug)]
pub struct Reader {
    dialect: Dialect,
    policy: Policy,
    kernels: Kernels,
    window: Window,
    opening: Opening,

    /// Start of the next record that is not in the batch.
    pos: usize,
    /// `pos..chunk_end` are complete records.
    chunk_end: usize,
    search: Search,
    lines: LineCount,
    finished: bool,

    batch: Batch,
    /// Number of earlier batches.
    batch_number: u64,
    /// Index of the next record in the batch.
    cursor: usize,
    current: Current,
    exact_ends: Vec<u32>,
}

impl Reader {
    /// Creates a reader at the start of its data.
    #[must_use]
    pub fn new(s: Settings) -> Reader {
        // Records without line ends are bytes without an encoding: they count as valid.
        let lacks_line_ends = s.dialect.lacks_line_ends();
        Reader {
            policy: Policy {
                utf8: s.utf8 || lacks_line_ends,
                header_fields: s.header_fields,
                max_fields: s.max_fields,
                tolerant: false,
                invalid: Invalid::Ends,
                line_limit: LINE_LIMIT,
                ends_at_marker: false,
                glances: false,
            },
            kernels: Kernels {
                // An instruction set that this machine lacks would crash the process, so fall back to the scalar
                // kernels.
                level: if s.level.is_available() { s.level } else { Level::Scalar },
                // Records without line ends need a line end here, which no search uses.
                eol: lacks_line_ends.then_some(Eol::Nl),
                scanner: None,
            },
            window: Window::new(s.read_size, s.max_char),
            opening: Opening {
                bom_pending: s.skip_bom && !lacks_line_ends,
                preamble: if s.dialect.is_binary() { Preamble::Ahead } else { Preamble::Passed },
                header_left: if lacks_line_ends { 0 } else { s.header_lines },
            },
            pos: 0,
            chunk_end: 0,
            search: Search::new(),
            lines: LineCount::default(),
            finished: false,
            batch: Batch::new(BATCH_FIELDS, BATCH_RECORDS),
            batch_number: 0,
            cursor: 0,
            current: Current::default(),
            exact_ends: Vec::new(),
            dialect: s.dialect,
        }
    }

    /// From now on, an error of a line does not end the data. The caller can look at the line, and [`Reader::advance`]
    /// continues behind it. If the reader verifies the encoding itself, invalid bytes do not close the window either.
    pub fn tolerate(&mut self) {
        self.policy.tolerant = true;
        self.policy.invalid = Invalid::Reported;
    }

    /// Sets a limit of lines below COPY's ([`LINE_LIMIT`]), so that a test can exceed it.
    #[doc(hidden)]
    pub fn limit_lines(&mut self, bytes: usize) {
        self.policy.line_limit = bytes.min(LINE_LIMIT);
    }

    /// Sets what the reader does with records that have invalid bytes from now on.
    pub fn set_invalid(&mut self, invalid: Invalid) {
        self.policy.invalid = invalid;
    }

    /// Whether the current line may have invalid bytes.
    #[inline]
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.current.start < self.window.dirty_end()
    }

    /// From now on, a `\.` behind data ends the data, too, as when a client sends them. In a file, COPY goes on with
    /// the next line (up to 17).
    pub fn end_at_marker(&mut self) {
        self.policy.ends_at_marker = true;
    }

    /// After an error: whether the reader can continue.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        (self.policy.tolerant || self.policy.invalid == Invalid::Reported) && !self.finished
    }

    /// Goes to the next record.
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
            self.lines.base += done as u64;
        }
        self.lines.exact = None;
        self.leave_record();
        if self.finished {
            return Event::End;
        }
        if self.opening.bom_pending && !self.skip_bom() {
            return Event::NeedData;
        }
        if let Some(length) = self.dialect.stride() {
            return self.measure(length);
        }
        if self.dialect.is_binary() {
            return self.frame();
        }
        loop {
            if let Some(event) = self.split_or_read() {
                return event;
            }
            self.leave_record();
        }
    }

    /// Splits the next records, or reads a line with the exact reader. `None` if that was no record.
    fn split_or_read(&mut self) -> Option<Event> {
        loop {
            let Some(scanner) = self.kernels.scanner else { return self.exact() };
            if self.opening.header_left > 0 || self.search.exact_next {
                return self.exact();
            }
            if self.pos < self.chunk_end {
                if self.pos < self.window.dirty_end() {
                    return self.exact();
                }
                if self.chunk_end - self.pos < self.policy.line_limit {
                    self.split(scanner, self.chunk_end);
                    let is_done = self.batch.len == 0 && self.pos == self.batch.resume;
                    self.pos = self.batch.resume;
                    self.search.exact_next = self.batch.odd;
                    if self.batch.len == 0 && !is_done {
                        return self.pass_skipped();
                    }
                }
                if self.batch.len == 0 {
                    return self.exact();
                }
                return Some(self.advance());
            }
            // Lines that are not counted yet are counted on request, or before the bytes go.
            if self.lines.in_chunk.is_some() {
                self.count_lines();
            }
            if self.split_ahead(scanner) {
                return if self.batch.len == 0 { self.pass_skipped() } else { Some(self.advance()) };
            }
            if self.window.is_end_of_chunk(self.pos) {
                // The lines need not be counted.
                (self.finished, self.lines.exact) = (true, Some(self.lines.base + 1));
                return Some(Event::End);
            }
            self.count_lines();
            let tail = self.window.bytes().get(self.chunk_end..self.complete_end()).unwrap_or_default();
            scanner.cut(tail, &mut self.search.cut);
            if let Some(last) = self.search.cut.last {
                self.search.nothing_in = 0;
                self.lines.in_chunk = Some(self.search.cut.lines);
                self.search.cut.taken();
                self.chunk_end += last;
            } else if self.window.is_closed() || tail.len() >= self.policy.line_limit || self.search.cut.odd {
                // COPY raises an error at the byte that shows it. The source may not send more bytes before it has
                // seen the error.
                return self.exact();
            } else {
                return Some(Event::NeedData);
            }
        }
    }

    /// Drops the batch. Returns the number of its records and skipped lines.
    fn drop_batch(&mut self) -> usize {
        self.batch_number += 1;
        self.cursor = 0;
        let skipped = self.batch.skipped.last().map_or(0, |skipped| skipped.lines as usize);
        self.batch.skipped.clear();
        std::mem::take(&mut self.batch.len) + skipped
    }

    /// Moves behind skipped lines, which are all that the batch has.
    fn pass_skipped(&mut self) -> Option<Event> {
        let done = self.drop_batch();
        if !self.dialect.is_csv() {
            self.lines.base += done as u64;
        }
        None
    }

    /// Whether the next record is already split, so that [`Reader::advance`] only moves to it.
    #[inline]
    #[must_use]
    pub fn has_next(&self) -> bool {
        self.cursor < self.batch.len
    }

    /// Position of the current record: the number of its batch, and its index in the batch. `None` if the exact reader
    /// read it.
    #[inline]
    pub fn place_in_batch(&self) -> Option<(u64, usize)> {
        let record = self.cursor.checked_sub(1)?;
        self.current.content.is_none().then_some((self.batch_number, record))
    }

    /// Position of the record that [`Reader::advance`] goes to, if it is already split.
    #[inline]
    pub fn next_in_batch(&self) -> Option<(u64, usize)> {
        self.has_next().then_some((self.batch_number, self.cursor))
    }

    /// The current record and the records behind it in its batch.
    pub fn rest_of_batch(&self) -> &[RecordEnd] {
        self.batch.records.get(self.cursor.saturating_sub(1)..self.batch.len).unwrap_or_default()
    }

    /// Field ends of the batch.
    pub fn batch_ends(&self) -> &[u32] {
        &self.batch.ends
    }

    /// The bytes that positions refer to.
    pub fn bytes(&self) -> &[u8] {
        self.window.bytes()
    }

    /// The instruction set.
    pub fn level(&self) -> Level {
        self.kernels.level
    }

    /// Index of the current record's first field end in the batch.
    pub fn first_end(&self) -> usize {
        self.current.first
    }

    /// Start of the current record.
    pub fn record_start(&self) -> usize {
        self.current.start
    }

    /// The end of the bytes in which lines are complete or certainly wrong.
    ///
    /// In CSV, COPY looks at the byte behind a carriage return before it processes the line that the carriage return
    /// ends. If that byte is invalid, the error belongs to this line. So a carriage return at the end must wait for the
    /// next byte. The start of a possible end marker in text must wait, too.
    fn complete_end(&self) -> usize {
        let bytes = self.window.bytes();
        let open: &[&[u8]] = match self.kernels.eol {
            _ if self.window.is_at_end() => &[],
            Some(Eol::Any) if !self.dialect.is_csv() => &[b"\\.", b"\\.\r", b"\r"],
            Some(Eol::CrNl) if !self.dialect.is_csv() => &[b"\\.", b"\\.\r"],
            _ if !self.dialect.is_csv() => &[b"\\."],
            Some(Eol::Cr | Eol::Nl | Eol::Any) => &[b"\r"],
            _ => &[],
        };
        let open = open.iter().find(|open| bytes.ends_with(open)).map_or(0, |open| open.len());
        let end = bytes.len() - open;
        if end < self.chunk_end { bytes.len() } else { end }
    }

    /// Skips a byte order mark. Returns false if the first bytes have not arrived yet.
    fn skip_bom(&mut self) -> bool {
        const BOM: &[u8] = b"\xef\xbb\xbf";
        let bytes = self.window.bytes();
        if bytes.len() < BOM.len() && !self.window.is_closed() && BOM.starts_with(bytes) {
            return false;
        }
        if bytes.starts_with(BOM) {
            self.pos = BOM.len();
            self.chunk_end = self.pos;
            self.lines.pos = self.pos;
        }
        self.opening.bom_pending = false;
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

    /// Returns the contents of a field of the current record; see [`Record::value`].
    #[inline]
    #[must_use]
    pub fn value(&self, field: usize) -> Value<'_> {
        self.record().value(field)
    }

    /// Appends the value of an escaped field to `out`. True: in text it may be invalid in the server encoding; in CSV,
    /// quotes within the field were dropped.
    pub fn unescape(&self, raw: &[u8], out: &mut Vec<u8>) -> bool {
        if self.dialect.is_csv() {
            field::unescape_csv(&self.dialect, raw, out)
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

    /// Length of the current record in bytes, with its line end and skipped lines behind it.
    #[inline]
    #[must_use]
    pub fn record_len(&self) -> usize {
        self.current.next - self.current.start
    }

    /// The end of the current line. Skipped lines may follow it.
    fn line_end(&self) -> usize {
        let next = self.current.next;
        if self.current.content.is_some() || !self.dialect.skips_lines() {
            return next;
        }
        let Some(end) = self.record().ends.last().map(|end| (end & !FLAG) as usize) else { return next };
        let Some(eol) = self.kernels.eol else { return next };
        let rest = self.window.bytes().get(end..next).unwrap_or_default();
        (0..rest.len()).find_map(|at| eol.behind(rest, at)).map_or(next, |length| end + length)
    }
}
