//! The reader somewhere within a file: in a stream that goes on at a record's place, or in a chunk that was cut out of the file.

use std::ops::Range;

use super::{Current, LOOKAHEAD, Place, Reader};
use crate::binary::Preamble;
use crate::dialect::Eol;
use crate::scan::{CutState, Needles, Scanner};

impl Reader {
    /// Start anew within a stream: the next byte is the first of a record, at `place`.
    pub fn resume(&mut self, place: Place) {
        self.window.restart(place.offset);
        self.place(place, 0);
    }

    fn place(&mut self, place: Place, pos: usize) {
        self.bom_pending = false;
        self.preamble = Preamble::Passed;
        self.header_left = 0;
        self.eol = Some(place.eol);
        self.scanner = Needles::new(&self.dialect, place.eol).map(|n| Scanner::new(n, self.level));
        (self.pos, self.chunk_end, self.line_pos) = (pos, pos, pos);
        self.cut = CutState::watching();
        self.nothing_in = 0;
        self.exact_next = false;
        self.retry_at = 0;
        self.finished = false;
        self.drop_batch();
        self.current = Current { start: pos, next: pos, ..Current::default() };
        self.line_base = place.lines;
        self.chunk_lines = None;
        self.exact_line = None;
        self.dirty_end = 0;
    }

    /// The buffer, at least `len` bytes long, in which a chunk is put together; then comes [`Reader::begin_chunk`].
    /// Ends the life of the current record; the reader has nothing to read until then. `None` if there is no memory.
    pub fn chunk_space(&mut self, len: usize) -> Option<&mut [u8]> {
        self.finished = true;
        self.drop_batch();
        self.exact_line = Some(self.line_base + 1);
        self.current = Current::default();
        self.window.take_chunk(0, 0, 0, 0);
        self.window.chunk_space(len)
    }

    /// Give back what a chunk with a huge record took.
    pub fn shrink_chunk_space(&mut self, len: usize) {
        self.window.shrink(len);
    }

    /// The bytes `start..end` of the chunk's buffer are records, complete but for the last one at the end of the data;
    /// the first one is at `place`. Behind them the buffer holds what follows in the file, up to `known`, which is
    /// [`LOOKAHEAD`] bytes further or where the file ends: invalid bytes at the end are shown with what follows them, and
    /// COPY looks at the byte behind some line ends (see `complete_end`). Those in `plain` are known to be ASCII, without a
    /// NUL. Where the reader does not verify by itself, the caller goes on with [`Reader::unverified`] and
    /// [`Reader::verified`].
    pub fn begin_chunk(&mut self, start: usize, end: usize, known: usize, plain: Range<usize>, place: Place) {
        self.window.take_chunk(start, end, known.min(end + LOOKAHEAD), place.offset);
        self.place(place, start);
        if self.utf8 {
            let plain = plain.start.saturating_sub(start)..plain.end.saturating_sub(start);
            self.verify_around(plain);
        }
    }

    /// How lines end, once that is known.
    #[must_use]
    pub fn eol(&self) -> Option<Eol> {
        self.eol
    }

    /// Where the record behind the current one begins. `None` while it is not known how lines end, and where one of the binary format says
    /// that there is none.
    #[must_use]
    pub fn place_behind(&self) -> Option<Place> {
        if self.finished && self.dialect.is_binary() {
            return None;
        }
        let offset = self.window.stream_offset(self.current.next);
        Some(Place { eol: self.eol?, offset, lines: self.line_number() })
    }
}
