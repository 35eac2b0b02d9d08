//! The reader's slow path: one line through the exact readers, and every error.
//!
//! What comes out looks as if a kernel had made it, field ends with the flag set; and the positions are left so that the
//! kernels can go on behind it.

use super::lines::count;
use super::{COPY_BLOCK, Current, Event, Invalid, ReadError, Reader};
use crate::dialect::Eol;
use crate::field;
use crate::line::{self, Line};
use crate::scan::kernel::FLAG;
use crate::scan::{CutState, Needles, Scanner};
use crate::verify::utf8_valid_up_to;

impl Reader {
    /// One line through the exact reader.
    #[cold]
    pub(super) fn exact(&mut self) -> Event {
        let closed = self.window.is_closed();
        let tail = self.window.bytes().get(self.pos..).unwrap_or_default();
        if !closed && tail.len() < self.retry_at {
            self.exact_next = true;
            return Event::NeedData;
        }
        self.settle_lines();
        let tail = self.window.bytes().get(self.pos..).unwrap_or_default();
        let line = line::read_line(&self.dialect, &mut self.eol, tail, closed && !self.window.is_failed());
        // COPY numbers a line when it starts to read it.
        let base = self.line_base + 1;
        let number = |embedded| base + embedded;
        let length = tail.len();
        let (content, next, embedded, last) = match line {
            Line::Complete { content, next, embedded } => (content, next, embedded, false),
            Line::End { content, next, embedded } => (content, next, embedded, true),
            Line::NeedMore { embedded } => return self.wait(length, number(embedded)),
            Line::Error { kind, .. } if self.tolerant && self.header_left == 0 => {
                let at_end = closed && !self.window.is_failed();
                let Some((content, next, last)) = line::skip_line(&self.dialect, self.eol, tail, at_end) else {
                    return self.wait(length, base);
                };
                let counted = tail.get(..content).unwrap_or_default();
                let embedded = if self.dialect.is_csv() { count(Eol::counted(self.eol), counted) } else { 0 };
                if let Some(event) = self.too_long(content, next) {
                    return event;
                }
                return self.leave_out(content, next, base + embedded, last, ReadError::Line(kind));
            }
            Line::Error { kind, embedded } => {
                return self.fail(self.pos, number(embedded), None, ReadError::Line(kind));
            }
        };
        if let Some(event) = self.too_long(content, next) {
            return event;
        }
        if self.scanner.is_none()
            && let Some(eol) = self.eol
        {
            self.scanner = Needles::new(&self.dialect, eol).map(|n| Scanner::new(n, self.level));
            // Now that it is known how lines end, the kernels may have the line after all, unless line ends within
            // it count for COPY as they did while it was not known.
            let line = self.window.bytes().get(self.pos..self.pos + content).unwrap_or_default();
            if self.scanner.is_some() && self.header_left == 0 && memchr::memchr2(b'\n', b'\r', line).is_none() {
                self.exact_next = false;
                self.retry_at = 0;
                return self.advance_slowly();
            }
        }
        self.finish_exact(content, next, number(embedded), last)
    }

    /// A line's first `length` bytes do not tell where it ends, whatever is wrong with it; `number` is COPY's up to there.
    fn wait(&mut self, length: usize, number: u64) -> Event {
        // How many lines one that is too long has is known at the end of COPY's block.
        let noticed = self.noticed();
        if length >= noticed
            && let Some(event) = self.too_long(length, length)
        {
            return event;
        }
        if self.window.is_failed() {
            return self.fail(self.pos, number, None, ReadError::Encoding);
        }
        self.retry_at = (length + length / 4 + 1).min(noticed);
        self.exact_next = true;
        Event::NeedData
    }

    /// A line of `content` bytes was read; make a record of it.
    fn finish_exact(&mut self, content: usize, next: usize, number: u64, last: bool) -> Event {
        let start = self.pos;
        if start < self.dirty_end && self.header_left == 0 && self.invalid == Invalid::Reported {
            let line = self.window.bytes().get(start..start + next).unwrap_or_default();
            if utf8_valid_up_to(line) < line.len() {
                return self.leave_out(content, next, number, last, ReadError::Encoding);
            }
        }
        self.pass(next, number, last);
        let is_header = self.header_left > 0;
        self.header_left = self.header_left.saturating_sub(1);
        if last && self.ends_at_marker {
            self.finished = true;
        }
        if last && (content == 0 || is_header) {
            self.finished = true;
            if !(is_header && self.header_fields) {
                return Event::End;
            }
        }
        self.exact_ends.clear();
        self.current = Current { start, next: self.pos, content: Some(start + content), ..Current::default() };
        if !is_header || self.header_fields {
            let line = self.window.bytes().get(start..start + content).unwrap_or_default();
            match field::split_line(&self.dialect, line, self.max_fields, &mut self.exact_ends) {
                Ok(fields) => self.current.fields = fields,
                Err(e) if self.tolerant && !is_header => return Event::Error(ReadError::Field(e)),
                Err(e) => return self.fail(start, number, Some(start + content), ReadError::Field(e)),
            }
            // As the kernels leave them: offsets in the buffer, and none is taken for plain, unless nothing else can be.
            let flag = if self.dialect.is_literal() { 0 } else { FLAG };
            for end in &mut self.exact_ends {
                *end = (*end + start as u32) | flag;
            }
            self.current.last = self.exact_ends.len();
        }
        if is_header { Event::Header } else { Event::Record }
    }

    /// Go behind a line.
    fn pass(&mut self, next: usize, number: u64, last: bool) {
        self.retry_at = 0;
        self.nothing_in = 0;
        self.exact_next = false;
        self.pos += next;
        self.line_base = number;
        self.line_pos = self.pos;
        self.chunk_lines = None;
        self.exact_line = Some(number);
        if self.pos > self.chunk_end || last {
            self.chunk_end = self.pos;
            self.cut = CutState::watching();
        }
    }

    /// Say what is wrong with a line, and go on behind it.
    fn leave_out(&mut self, content: usize, next: usize, number: u64, last: bool, error: ReadError) -> Event {
        let start = self.pos;
        self.pass(next, number, last);
        self.exact_ends.clear();
        self.current = Current { start, next: self.pos, content: Some(start + content), ..Current::default() };
        Event::Error(error)
    }

    /// Raise an error about the line at `start`; the data end with it. `content` is where its data end, if it was
    /// read so far.
    pub(super) fn fail(&mut self, start: usize, number: u64, content: Option<usize>, error: ReadError) -> Event {
        self.finished = true;
        self.exact_line = Some(number);
        self.current = Current { start, next: self.pos, content, ..Current::default() };
        Event::Error(error)
    }

    /// The length of which a line that does not fit COPY's line buffer has been read when COPY notices.
    ///
    /// It appends its input block by block, and notices when it appends the block that is too much.
    fn noticed(&self) -> usize {
        let start = self.window.stream_offset(self.pos);
        let end = (start + self.line_limit as u64).div_ceil(COPY_BLOCK) * COPY_BLOCK;
        usize::try_from(end - start).unwrap_or(usize::MAX)
    }

    /// The error for a line if its first `len` bytes do not fit COPY's line buffer; `content` without its end. COPY
    /// appends them when it has found the end, if it has not noticed before.
    fn too_long(&mut self, content: usize, len: usize) -> Option<Event> {
        if len < self.line_limit {
            return None;
        }
        let noticed = self.noticed();
        let seen = noticed.min(len);
        let line = self.window.bytes().get(self.pos..).unwrap_or_default();
        let line = line.get(..seen.min(content)).unwrap_or(line);
        let embedded = if self.dialect.is_csv() { count(Eol::counted(self.eol), line) } else { 0 };
        let containing = (noticed as u64).saturating_sub(COPY_BLOCK);
        let number = self.line_base + 1 + embedded;
        Some(self.fail(self.pos, number, None, ReadError::TooLong { containing, more: seen as u64 - containing }))
    }
}
