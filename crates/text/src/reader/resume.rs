//! Starts the reader within a file: in a stream that continues at a record, or in a chunk of the file.

use std::ops::Range;

use super::lines::LineCount;
use super::{Current, LOOKAHEAD, Opening, Reader, RecordStart, Search};
use crate::dialect::Eol;

impl Reader {
    /// Restarts the reader within a stream: the next byte is the first of a record, at `place`.
    pub fn resume(&mut self, place: RecordStart) {
        self.window.restart(place.offset);
        self.place(place, 0);
    }

    fn place(&mut self, place: RecordStart, pos: usize) {
        self.opening = Opening::default();
        self.kernels.select(&self.dialect, place.eol);
        (self.pos, self.chunk_end) = (pos, pos);
        self.search = Search::new();
        self.lines = LineCount { base: place.lines, pos, ..LineCount::default() };
        self.finished = false;
        self.drop_batch();
        self.current = Current { start: pos, next: pos, ..Current::default() };
    }

    /// Returns the buffer, at least `len` bytes long, in which the caller assembles a chunk before it calls
    /// [`Reader::begin_chunk`].
    ///
    /// Ends the life of the current record. The reader has no data until then. `None` if memory is exhausted.
    pub fn chunk_space(&mut self, len: usize) -> Option<&mut [u8]> {
        self.finished = true;
        self.drop_batch();
        self.lines.exact = Some(self.lines.base + 1);
        self.current = Current::default();
        self.window.take_chunk(0, 0, 0, 0);
        self.window.chunk_space(len)
    }

    /// Frees the memory that a chunk with a huge record took.
    pub fn shrink_chunk_space(&mut self, len: usize) {
        self.window.shrink(len);
    }

    /// Starts to read a chunk: the records in the bytes `start..end` of the buffer, the first one at `place`. All are
    /// complete, except perhaps the last one at the end of the data.
    ///
    /// Behind them the buffer holds the following bytes of the file, up to `known`: [`LOOKAHEAD`] bytes, or fewer at
    /// the end of the file. Messages about invalid bytes show the bytes behind them, and COPY looks at the byte behind
    /// some line ends (see `complete_end`). Bytes in `plain` are known to be ASCII without a NUL. Unless the reader
    /// verifies the encoding itself, the caller continues with [`Reader::unverified`] and [`Reader::verified`].
    pub fn begin_chunk(&mut self, start: usize, end: usize, known: usize, plain: Range<usize>, place: RecordStart) {
        self.window.take_chunk(start, end, known.min(end + LOOKAHEAD), place.offset);
        self.place(place, start);
        if self.policy.utf8 {
            let plain = plain.start.saturating_sub(start)..plain.end.saturating_sub(start);
            self.verify_around(plain);
        }
    }

    /// How lines end, if it is known.
    #[must_use]
    pub fn eol(&self) -> Option<Eol> {
        self.kernels.eol
    }

    /// Start of the record behind the current one. `None` as long as the line end is not known, and behind a broken or
    /// last record of the binary format.
    #[must_use]
    pub fn place_behind(&self) -> Option<RecordStart> {
        if self.finished && self.dialect.is_binary() {
            return None;
        }
        let offset = self.window.stream_offset(self.line_end());
        Some(RecordStart { eol: self.kernels.eol?, offset, lines: self.line_number() })
    }
}
