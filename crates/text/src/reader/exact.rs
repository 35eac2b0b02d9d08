//! The reader's slow path: reads one line with the exact readers, and raises all errors.
//!
//! The result has the same form as a kernel's: field ends with the flag set. The positions are left so that the kernels
//! can continue behind the line.

use super::{COPY_BLOCK, Current, Event, Invalid, ReadError, Reader};
use crate::dialect::Eol;
use crate::field;
use crate::line::{self, Line};
use crate::scan::CutState;
use crate::scan::kernel::FLAG;
use crate::verify::utf8_valid_up_to;

impl Reader {
    /// Reads one line with the exact reader. `None` if it is no record, or if the kernels can read it.
    #[cold]
    pub(super) fn exact(&mut self) -> Option<Event> {
        let closed = self.window.is_closed();
        let tail = self.window.bytes().get(self.pos..).unwrap_or_default();
        if !closed && tail.len() < self.search.retry_at {
            self.search.exact_next = true;
            return Some(Event::NeedData);
        }
        self.count_lines();
        let tail = self.window.bytes().get(self.pos..).unwrap_or_default();
        let line = line::read_line(&self.dialect, &mut self.kernels.eol, tail, closed && !self.window.is_failed());
        // COPY numbers a line when it starts to read it.
        let base = self.lines.base + 1;
        // The last line end of a broken record is in no quotes.
        let most = self.lines.broken.unwrap_or(u64::MAX);
        let number = |embedded: u64| (base + embedded).min(most);
        let length = tail.len();
        let (content, next, embedded, last) = match line {
            Line::Complete { content, next, embedded } => (content, next, embedded, false),
            Line::End { content, next, embedded } => (content, next, embedded, true),
            Line::NeedMore { embedded } => return Some(self.wait(length, number(embedded))),
            Line::Error { kind, .. } if self.policy.tolerant && self.opening.header_left == 0 => {
                let at_end = closed && !self.window.is_failed();
                let Some((content, next, last)) = line::skip_line(&self.dialect, self.kernels.eol, tail, at_end) else {
                    return Some(self.wait(length, base));
                };
                let counted = tail.get(..content).unwrap_or_default();
                let embedded = if self.dialect.is_csv() { Eol::count(self.kernels.eol, counted) } else { 0 };
                if let Some(event) = self.too_long(content, next) {
                    return Some(event);
                }
                return Some(self.leave_out(content, next, number(embedded), last, ReadError::Line(kind)));
            }
            Line::Error { kind, embedded } => {
                return Some(self.fail(self.pos, number(embedded), None, ReadError::Line(kind)));
            }
        };
        if let Some(event) = self.too_long(content, next) {
            return Some(event);
        }
        if self.kernels.scanner.is_none()
            && let Some(eol) = self.kernels.eol
        {
            self.kernels.select(&self.dialect, eol);
            // Now that the line end is known, the kernels can read the line after all. The exception is a line with
            // line ends in it, which COPY has counted while the line end was not known.
            let line = self.window.bytes().get(self.pos..self.pos + content).unwrap_or_default();
            if self.kernels.scanner.is_some()
                && self.opening.header_left == 0
                && memchr::memchr2(b'\n', b'\r', line).is_none()
            {
                self.search.exact_next = false;
                self.search.retry_at = 0;
                return None;
            }
        }
        let line = self.window.bytes().get(self.pos..self.pos + content).unwrap_or_default();
        if self.dialect.skips_lines() && self.dialect.is_skipped(line) {
            self.pass(next, number(embedded), last);
            self.finished = last && (content == 0 || self.policy.ends_at_marker);
            if self.finished {
                return Some(Event::End);
            }
            self.lines.exact = None;
            return None;
        }
        Some(self.finish_exact(content, next, number(embedded), last))
    }

    /// Waits for more bytes: the first `length` bytes of a line do not show its end. `number` is COPY's line number up
    /// to there. If the line has an error already, returns that.
    fn wait(&mut self, length: usize, number: u64) -> Event {
        // The lines within a line that is too long are known only at the end of COPY's block.
        let noticed = self.noticed();
        if length >= noticed
            && let Some(event) = self.too_long(length, length)
        {
            return event;
        }
        if self.window.is_failed() {
            return self.fail(self.pos, number, None, ReadError::Encoding);
        }
        self.search.retry_at = (length + length / 4 + 1).min(noticed);
        self.search.exact_next = true;
        Event::NeedData
    }

    /// Makes a record of a line of `content` bytes.
    fn finish_exact(&mut self, content: usize, next: usize, number: u64, last: bool) -> Event {
        let start = self.pos;
        if start < self.window.dirty_end() && self.opening.header_left == 0 && self.policy.invalid == Invalid::Reported
        {
            let line = self.window.bytes().get(start..start + next).unwrap_or_default();
            if utf8_valid_up_to(line) < line.len() {
                return self.leave_out(content, next, number, last, ReadError::Encoding);
            }
        }
        self.pass(next, number, last);
        let is_header = self.opening.header_left > 0;
        self.opening.header_left = self.opening.header_left.saturating_sub(1);
        if last && self.policy.ends_at_marker {
            self.finished = true;
        }
        if last && (content == 0 || is_header) {
            self.finished = true;
            if !(is_header && self.policy.header_fields) {
                return Event::End;
            }
        }
        self.exact_ends.clear();
        self.current = Current { start, next: self.pos, content: Some(start + content), ..Current::default() };
        if !is_header || self.policy.header_fields {
            let line = self.window.bytes().get(start..start + content).unwrap_or_default();
            match field::split_line(&self.dialect, line, self.policy.max_fields, &mut self.exact_ends) {
                Ok(fields) => self.current.fields = fields,
                Err(e) if self.policy.tolerant && !is_header => return Event::Error(ReadError::Field(e)),
                Err(e) => return self.fail(start, number, Some(start + content), ReadError::Field(e)),
            }
            // As the kernels leave them: offsets in the buffer. No field is marked plain, except in dialects where
            // each one is.
            let flag = if self.dialect.is_literal() { 0 } else { FLAG };
            for end in &mut self.exact_ends {
                *end = (*end + start as u32) | flag;
            }
            self.current.last = self.exact_ends.len();
        }
        if is_header { Event::Header } else { Event::Record }
    }

    /// Moves behind a line.
    fn pass(&mut self, next: usize, number: u64, last: bool) {
        self.search.retry_at = 0;
        self.search.nothing_in = 0;
        self.search.exact_next = false;
        self.pos += next;
        self.lines.base = number;
        self.lines.pos = self.pos;
        self.lines.in_chunk = None;
        self.lines.exact = Some(number);
        if self.pos > self.chunk_end || last {
            self.chunk_end = self.pos;
            self.search.cut = CutState::watching();
        }
    }

    /// Returns the error of a line, and moves behind the line.
    fn leave_out(&mut self, content: usize, next: usize, number: u64, last: bool, error: ReadError) -> Event {
        let start = self.pos;
        self.pass(next, number, last);
        self.exact_ends.clear();
        self.current = Current { start, next: self.pos, content: Some(start + content), ..Current::default() };
        Event::Error(error)
    }

    /// Raises an error of the line at `start`, which ends the data. `content` is the end of the line's data, if it was
    /// found.
    pub(super) fn fail(&mut self, start: usize, number: u64, content: Option<usize>, error: ReadError) -> Event {
        self.finished = true;
        self.lines.exact = Some(number);
        self.current = Current { start, next: self.pos, content, ..Current::default() };
        Event::Error(error)
    }

    /// Length of a line up to the point at which COPY notices that the line does not fit its line buffer.
    ///
    /// COPY appends its input block by block, and notices when it appends the block that does not fit.
    fn noticed(&self) -> usize {
        let start = self.window.stream_offset(self.pos);
        let end = (start + self.policy.line_limit as u64).div_ceil(COPY_BLOCK) * COPY_BLOCK;
        usize::try_from(end - start).unwrap_or(usize::MAX)
    }

    /// Returns the error of a line whose first `len` bytes do not fit COPY's line buffer; `content` excludes the line
    /// end. COPY appends the last bytes after it has found the end of the line, unless it notices before.
    fn too_long(&mut self, content: usize, len: usize) -> Option<Event> {
        if len < self.policy.line_limit {
            return None;
        }
        let noticed = self.noticed();
        let seen = noticed.min(len);
        let line = self.window.bytes().get(self.pos..).unwrap_or_default();
        let line = line.get(..seen.min(content)).unwrap_or(line);
        let embedded = if self.dialect.is_csv() { Eol::count(self.kernels.eol, line) } else { 0 };
        let containing = (noticed as u64).saturating_sub(COPY_BLOCK);
        let number = self.lines.base + 1 + embedded;
        Some(self.fail(self.pos, number, None, ReadError::TooLong { containing, more: seen as u64 - containing }))
    }
}
