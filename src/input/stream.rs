//! A source with its reader: the records of a file, in the server's encoding.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use pg_bulk_text::dialect::Dialect;
use pg_bulk_text::file_kind::{self, FileKind};
use pg_bulk_text::json_text::Charset;
use pg_bulk_text::reader::{Event, Invalid, ReadError, Reader, Settings};
use pg_bulk_text::scan::Level;
use pg_bulk_text::verify::utf8_valid_up_to;

use super::coding::Coding;
use super::encoding::{EncodingErrors, Encodings, Treatment, invalid_bytes, invalid_utf16, mark, unmark};
use super::file_figures::ByFile;
use super::file_identity::{Identity, changed};
use super::files::{FileList, Listed};
use super::source::{Descriptor, Source};
use crate::error::{Error, Result, out_of_memory};
use crate::guc;
use crate::server::copy_errors::read_error;
use crate::server::stages::{Stage, Stages};

/// Bytes that are converted at a time after invalid bytes were found.
const PIECE: usize = 512;

/// Fields that are kept of a record with too many fields. No file has more columns.
pub const MOST_FIELDS: usize = 4096;

/// Reads records from a source.
#[derive(Debug)]
pub struct Stream {
    source: Source,
    pub reader: Reader,
    encodings: Encodings,
    /// For converted encodings only: bytes of the file that are not converted yet.
    raw: Vec<u8>,
    raw_ended: bool,
    bom_pending: bool,
    /// Converted bytes that the reader has not taken yet.
    converted: Vec<u8>,
    taken: usize,
    tolerant: bool,
    invalid: EncodingErrors,
    /// Raw bytes that are converted at a time.
    piece: usize,
    list: Option<List>,
    /// The identity that the open file must have and keep: see [`Stream::insist`].
    expected: Option<Identity>,
    /// Time by stage; off unless the owner of the stream switches it on.
    pub stages: Stages,
}

/// The files of a stream, if there are several.
#[derive(Debug)]
struct List {
    files: Rc<FileList>,
    /// Index of the open file.
    current: usize,
    /// Bytes that were read of earlier files.
    before: u64,
    /// How each file is read.
    coding: Coding,
    header: Header,
    /// After a file the next one is read.
    goes_on: bool,
    /// Counts bytes by file, too.
    figures: ByFile,
}

/// What the stream does with header lines.
#[derive(Debug, Clone, Copy, Default)]
pub struct Header {
    /// Lines before the data.
    pub lines: u64,
    /// Return the fields of header lines.
    pub fields: bool,
}

impl Stream {
    /// A stream at the start of `source`.
    pub fn new(source: Source, dialect: Dialect, encodings: Encodings, header: Header) -> Stream {
        Stream {
            source,
            reader: Stream::reader(dialect, encodings, header),
            encodings,
            raw: Vec::new(),
            raw_ended: false,
            bom_pending: encodings.has_bom(),
            converted: Vec::new(),
            taken: 0,
            tolerant: false,
            invalid: EncodingErrors::Stop,
            piece: usize::MAX,
            list: None,
            expected: None,
            stages: Stages::default(),
        }
    }

    /// Set the list of files, the first of which is the source.
    pub fn with_files(mut self, files: Rc<FileList>, coding: Coding, header: Header) -> Stream {
        self.list = Some(List { files, current: 0, before: 0, coding, header, goes_on: true, figures: ByFile::NONE });
        self
    }

    /// The files, if there are several.
    pub fn files(&self) -> Option<&Rc<FileList>> {
        self.list.as_ref().map(|list| &list.files)
    }

    /// Count the bytes of each file in `figures` from now on.
    pub fn count_by_file(&mut self, figures: ByFile) {
        if let Some(list) = &mut self.list {
            list.figures = figures;
        }
    }

    /// Add the bytes of the open file to the counts before it is closed.
    fn count_file(&mut self) {
        let read = self.source.bytes_read();
        if let Some(figures) = self.list.as_ref().and_then(|list| list.figures.of(list.current)) {
            figures.bytes.fetch_add(read, Relaxed);
        }
    }

    /// Do several files have headers whose fields are read?
    pub fn wants_names(&self) -> bool {
        self.list.as_ref().is_some_and(|list| list.header.fields)
    }

    /// Open another stream, at the start of a file of the list. Guarded.
    pub fn beside(&self, number: usize) -> Result<Option<Stream>> {
        let Some((list, file)) = self.list.as_ref().and_then(|list| Some((list, list.files.files.get(number)?))) else {
            return Ok(None);
        };
        let source = Source::open(&list.files.location(file), list.coding)?;
        let mut stream = Stream::new(source, self.reader.dialect().clone(), self.encodings, list.header);
        stream.tolerate(self.tolerant, self.invalid);
        if !stream.identity().is_some_and(|identity| identity.continues(file.identity)) {
            return Err(changed(stream.source.name()));
        }
        if self.expected.is_some() {
            stream.insist(file.identity)?;
        }
        Ok(Some(stream))
    }

    /// Require that the open file is this one, or the listed one if there are several, and that it does not change
    /// until it is closed. Files opened later must meet the same conditions. Guarded.
    pub fn insist(&mut self, single: Identity) -> Result<()> {
        let listed = self.list.as_ref().and_then(|list| list.files.files.get(list.current)).map(|file| file.identity);
        self.expected = Some(listed.unwrap_or(single));
        self.check_unchanged()
    }

    /// Check the descriptor: the path may lead to another file by now.
    fn check_unchanged(&self) -> Result<()> {
        if self.expected.is_some() && self.source.is_open() && self.identity() != self.expected {
            return Err(changed(self.source.name()));
        }
        Ok(())
    }

    /// Index of the open file.
    pub fn file_number(&self) -> usize {
        self.list.as_ref().map_or(0, |list| list.current)
    }

    /// From now on the caller determines the next file, with [`Stream::switch_to_file`].
    pub fn let_caller_switch(&mut self) {
        if let Some(list) = &mut self.list {
            list.goes_on = false;
        }
    }

    /// Mark the files that several processes can read at once, in chunks. Guarded, and interruptible.
    pub fn mark_splits(&mut self, is_large: impl Fn(u64) -> bool) {
        let Some(list) = &mut self.list else { return };
        let coding = list.coding;
        let splits = |files: &FileList, file: &Listed| {
            pgrx::check_for_interrupts!();
            is_large(file.identity.size) && files.location(file).plain_size(coding).is_some()
        };
        let splits: Vec<bool> = list.files.files.iter().map(|file| splits(&list.files, file)).collect();
        for (file, splits) in Rc::make_mut(&mut list.files).files.iter_mut().zip(splits) {
            file.splits = splits;
        }
    }

    /// The file after the current one, if it is read next.
    pub fn next_file(&self) -> Option<usize> {
        let list = self.list.as_ref().filter(|list| list.goes_on)?;
        Some(list.current + 1).filter(|&next| next < list.files.files.len())
    }

    /// Go to the start of a file of the list. Guarded.
    pub fn switch_to_file(&mut self, number: usize) -> Result<()> {
        self.check_unchanged()?;
        self.count_file();
        let Some(list) = &mut self.list else { return Ok(()) };
        let Some(file) = list.files.files.get(number) else { return Ok(()) };
        list.before += self.source.bytes_read();
        list.current = number;
        let header = list.header;
        let other = Source::open(&list.files.location(file), list.coding)?;
        self.source.replace(other)?;
        let earlier = file.identity;
        if !self.identity().is_some_and(|identity| identity.continues(earlier)) {
            return Err(changed(self.source.name()));
        }
        if self.expected.is_some() {
            self.insist(earlier)?;
        }
        self.begin_anew(header);
        Ok(())
    }

    fn reader(dialect: Dialect, encodings: Encodings, header: Header) -> Reader {
        let treatment = encodings.treatment();
        Reader::new(Settings {
            dialect,
            read_size: guc::chunk_size(),
            utf8: treatment == Treatment::Utf8,
            max_char: encodings.max_char(),
            skip_bom: treatment != Treatment::Convert && encodings.has_bom(),
            header_lines: header.lines,
            header_fields: header.fields,
            // A record with more fields than columns is an error, but COPY checks all its fields for invalid escapes
            // first.
            max_fields: MOST_FIELDS + 1,
            level: Level::best(),
        })
    }

    /// With `lines`, errors of single records do not end the stream ([`Error::is_about_record`]): the caller gets the
    /// error and may go on to the next record. `invalid` is the action for invalid bytes. They can be errors of single
    /// records only in UTF-8: in the file, or in the text that it is converted to.
    pub fn tolerate(&mut self, lines: bool, invalid: EncodingErrors) {
        (self.tolerant, self.invalid) = (lines, invalid);
        self.configure_reader();
    }

    fn configure_reader(&mut self) {
        if self.tolerant {
            self.reader.tolerate();
        }
        self.reader.set_invalid(match self.invalid {
            EncodingErrors::Stop => Invalid::Ends,
            EncodingErrors::Reject => Invalid::Reported,
            EncodingErrors::Replace => Invalid::Passed,
        });
    }

    /// Action for invalid bytes.
    pub fn invalid(&self) -> EncodingErrors {
        self.invalid
    }

    /// Go to the next record or header line; false at the end. Guarded.
    #[inline]
    pub fn advance(&mut self) -> Result<Advance> {
        match self.reader.advance() {
            Event::Record => Ok(Advance::Record),
            other => self.advance_slowly(other),
        }
    }

    fn advance_slowly(&mut self, mut event: Event) -> Result<Advance> {
        loop {
            match event {
                Event::Record => return Ok(Advance::Record),
                Event::Header => return Ok(Advance::Header),
                Event::End => {
                    self.source.ignore_rest()?;
                    if let Some(list) = self.list.as_ref().filter(|list| list.goes_on) {
                        list.figures.note_whole(list.current + 1);
                    }
                    return Ok(Advance::End);
                }
                Event::NeedData => self.feed()?,
                Event::Error(error) if self.reader.goes_on() => return Err(self.about_record(error)),
                Event::Error(ReadError::Encoding) => {
                    let bytes =
                        if self.treatment() == Treatment::Convert { &self.raw } else { self.reader.unverified() };
                    let utf16 = self.source.is_utf16().then(|| invalid_utf16(bytes)).flatten();
                    return Err(utf16.unwrap_or_else(|| self.encodings.raise(bytes)));
                }
                Event::Error(e) => return Err(read_error(e, self.reader.dialect().format)),
            }
            event = self.reader.advance();
        }
    }

    /// An error of a single record, after which the stream goes on.
    #[cold]
    fn about_record(&self, error: ReadError) -> Error {
        if error == ReadError::Encoding {
            let line = self.reader.raw_line().unwrap_or_default();
            let bytes = line.get(utf8_valid_up_to(line)..).unwrap_or_default();
            if self.marks_invalid() {
                return self.encodings.unconvertible(bytes);
            }
            let utf16 = self.source.is_utf16().then(|| invalid_utf16(bytes)).flatten();
            return utf16.map_or_else(|| invalid_bytes(self.encodings.of_file(), bytes), Error::about_record);
        }
        read_error(error, self.reader.dialect().format).about_record()
    }

    /// Whether an end marker has ended the data, and text is behind it. It is looked for in a regular file only, because
    /// others may keep the reader waiting. COPY does not read there, so an error there ends nothing. Guarded.
    pub fn ended_early(&mut self) -> bool {
        if let Some(known) = self.reader.ended_early() {
            return known;
        }
        // In UTF-16, blanks have bytes of zero, too.
        let has_text = |bytes: &[u8]| bytes.iter().any(|byte| !(byte.is_ascii_whitespace() || *byte == 0));
        if has_text(self.converted.get(self.taken..).unwrap_or_default()) || has_text(&self.raw) {
            return true;
        }
        let mut more = [0; 4096];
        while self.source.file_size().is_some() {
            let n = self.source.read(&mut more).unwrap_or(0);
            if n == 0 || has_text(more.get(..n).unwrap_or_default()) {
                return n > 0;
            }
        }
        false
    }

    /// Give the reader more bytes.
    fn feed(&mut self) -> Result<()> {
        let mut watch = self.stages.watch();
        if self.treatment() == Treatment::Convert {
            self.feed_converted()?;
        } else {
            let n = self.source.read(self.reader.try_space().ok_or_else(out_of_memory)?)?;
            self.reader.filled(n);
            self.verify_chunk();
        }
        self.stages.lap(&mut watch, Stage::Read);
        Ok(())
    }

    fn feed_converted(&mut self) -> Result<()> {
        let marks = self.marks_invalid();
        loop {
            let waiting = self.converted.get(self.taken..).unwrap_or_default();
            if !waiting.is_empty() {
                let space = self.reader.try_space().ok_or_else(out_of_memory)?;
                let mut n = waiting.len().min(space.len());
                if marks {
                    // No character is cut in two, because the reader verifies all of these bytes.
                    n = (1..=n).rev().find(|&n| waiting.get(n).is_none_or(|next| next & 0xc0 != 0x80)).unwrap_or(n);
                }
                if let (Some(to), Some(from)) = (space.get_mut(..n), waiting.get(..n)) {
                    to.copy_from_slice(from);
                }
                self.taken += n;
                self.reader.filled(n);
                if marks {
                    self.reader.verify();
                } else {
                    self.reader.verified(n);
                }
                return Ok(());
            }
            self.converted.clear();
            self.taken = 0;
            let begun = self.skip_bom();
            let piece = self.raw.get(..self.piece).unwrap_or(&self.raw);
            let used = if begun { self.encodings.convert(piece, &mut self.converted) } else { 0 };
            self.raw.drain(..used);
            if used > 0 {
                self.piece = self.piece.saturating_mul(2);
                continue;
            }
            if Encodings::is_hopeless(&self.raw, self.raw_ended) && (marks || self.invalid == EncodingErrors::Replace) {
                let len = self.encodings.hopeless_len(&self.raw);
                let bytes = self.raw.drain(..len);
                if marks {
                    mark(bytes.as_slice(), &mut self.converted);
                } else {
                    self.converted.extend_from_slice(self.encodings.replacement());
                }
                drop(bytes);
                // Conversion of a large piece up to each of further invalid bytes would be wasted.
                self.piece = PIECE;
                continue;
            }
            if Encodings::is_hopeless(&self.raw, self.raw_ended) {
                self.reader.fail_encoding();
                return Ok(());
            }
            if self.raw_ended {
                let _ = self.reader.try_space().ok_or_else(out_of_memory)?;
                self.reader.filled(0);
                if marks {
                    // Invalid bytes at the end waited for more.
                    self.reader.verify();
                }
                return Ok(());
            }
            let old = self.raw.len();
            self.raw.resize(old + guc::chunk_size(), 0);
            let n = self.source.read(self.raw.get_mut(old..).unwrap_or_default())?;
            self.raw.truncate(old + n);
            self.raw_ended = n == 0;
        }
    }

    /// The bytes of a line in the reader's window; those that could not be converted are as in the file.
    pub fn bytes_of(&self, line: &[u8]) -> Vec<u8> {
        if self.marks_invalid() { unmark(line) } else { line.to_vec() }
    }

    /// Are bytes that cannot be converted errors of their records?
    fn marks_invalid(&self) -> bool {
        self.invalid == EncodingErrors::Reject && self.encodings.are_marked()
    }

    /// Remove a byte order mark from the raw bytes; false if there are too few bytes to recognize it.
    fn skip_bom(&mut self) -> bool {
        const BOM: &[u8] = b"\xef\xbb\xbf";
        if self.bom_pending {
            if self.raw.len() < BOM.len() && !self.raw_ended && BOM.starts_with(&self.raw) {
                return false;
            }
            if self.raw.starts_with(BOM) {
                self.raw.drain(..BOM.len());
            }
            self.bom_pending = false;
        }
        true
    }

    /// Go back to the start. False if the source must be opened again. Guarded.
    pub fn restart(&mut self, header: Header) -> Result<bool> {
        if self.list.is_some() {
            self.switch_to_file(0)?;
            if let Some(list) = &mut self.list {
                (list.before, list.goes_on) = (0, true);
            }
            return Ok(true);
        }
        if !self.source.rewind()? {
            return Ok(false);
        }
        self.begin_anew(header);
        Ok(true)
    }

    /// Reset the reader for a source that is at its start.
    fn begin_anew(&mut self, header: Header) {
        self.reader = Stream::reader(self.reader.dialect().clone(), self.encodings, header);
        self.configure_reader();
        self.raw.clear();
        self.raw_ended = false;
        self.bom_pending = self.encodings.has_bom();
        self.converted.clear();
        self.taken = 0;
    }

    pub fn encodings(&self) -> &Encodings {
        &self.encodings
    }

    pub fn source(&self) -> &Source {
        &self.source
    }

    pub fn source_and_reader(&mut self) -> (&mut Source, &mut Reader) {
        (&mut self.source, &mut self.reader)
    }

    /// How the bytes of the file are treated.
    fn treatment(&self) -> Treatment {
        self.encodings.treatment()
    }

    /// Verify the bytes that the reader has been given, unless the reader has verified them.
    pub fn verify_chunk(&mut self) {
        match self.treatment() {
            Treatment::Verify => self.verify(),
            Treatment::Nothing => self.reader.verified(self.reader.unverified().len()),
            Treatment::Utf8 | Treatment::Convert => (),
        }
    }

    /// Verify the reader's bytes with the server's function.
    fn verify(&mut self) {
        loop {
            let valid = self.encodings.valid_up_to(self.reader.unverified());
            self.reader.verified(valid);
            if self.invalid != EncodingErrors::Replace || !self.reader.mend(b'?') {
                return;
            }
        }
    }

    /// The source, for callers that do not read it in order.
    pub fn source_mut(&mut self) -> &mut Source {
        &mut self.source
    }

    /// The descriptor by which other processes of the load can open the file, even if its name is removed.
    pub fn descriptor(&self) -> Descriptor {
        self.source.descriptor()
    }

    /// Bytes read from the source so far.
    pub fn bytes_read(&self) -> u64 {
        self.list.as_ref().map_or(0, |list| list.before) + self.source.bytes_read()
    }

    /// The file's encoding.
    pub fn encoding(&self) -> i32 {
        self.encodings.of_file()
    }

    /// Are positions in the stream offsets in the file?
    pub fn has_offsets(&self) -> bool {
        self.treatment() != Treatment::Convert
    }

    /// Character set of the server's encoding.
    pub fn charset(&self) -> Charset {
        self.encodings.charset()
    }

    /// What the open file is, if its first bytes show that it is no file of the format.
    pub fn kind(&self) -> Option<FileKind> {
        if self.reader.dialect().lacks_line_ends() { None } else { file_kind::of(&self.source.first()) }
    }

    /// Size of the source, if it is a single regular file that is not compressed.
    pub fn size(&self) -> Option<u64> {
        self.source.size().filter(|_| self.list.is_none())
    }

    /// Size of a regular file, compressed or not, or of all files: [`Stream::bytes_read`] at the end.
    pub fn file_size(&self) -> Option<u64> {
        self.files().map_or_else(|| self.source.file_size(), |list| Some(list.size()))
    }

    /// Close the source. Guarded.
    pub fn close(&mut self) -> Result<()> {
        self.check_unchanged()?;
        self.count_file();
        self.count_by_file(ByFile::NONE);
        self.source.close()
    }
}

/// Result of [`Stream::advance`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advance {
    Record,
    Header,
    End,
}
