//! Ends a record early: lines of a broken record are read as records of their own.
//!
//! A quote that is not closed makes the lines behind it a part of its record, up to the next quote of this kind or to the
//! end of the file. The caller [tries](Reader::try_record) lines of such a record as records. If it finds good ones, it
//! [ends](Reader::end_early) the broken record before them. What the record had is then read on its own: the bytes behind
//! it are not touched, so records behind it begin where they began before, also for other processes.

use super::lines::LineCount;
use super::{Current, Reader, Search};
use crate::dialect::Eol;
use crate::field;
use crate::line::{self, Line};
use crate::scan::kernel::FLAG;
use crate::verify::utf8_valid_up_to;

/// A record with several lines.
#[derive(Debug, Clone, Copy)]
pub struct Lines {
    record: Current,
    /// Its end. Skipped lines may follow it.
    end: usize,
    /// How they end: as in the file, or, if the record is its first, as the first of them.
    eol: Eol,
    /// [`LineCount::exact`] of the record.
    exact: Option<u64>,
}

impl Reader {
    /// The lines of the current record, which has an error, if it has several ones because of quotes.
    #[must_use]
    pub fn lines_of_record(&self) -> Option<Lines> {
        let quotes = self.dialect.is_csv() && !self.dialect.lenient_quotes && self.goes_on();
        let line = self.raw_line().filter(|_| quotes)?;
        let eol = self.kernels.eol.or_else(|| Eol::first(line))?;
        let lines = Lines { record: self.current, end: self.line_end(), eol, exact: self.lines.exact };
        self.line_behind(&lines, None).map(|_| lines)
    }

    /// Start of the next line of the record behind the position `at`, or behind its first line.
    #[must_use]
    pub fn line_behind(&self, lines: &Lines, at: Option<usize>) -> Option<usize> {
        let at = at.unwrap_or(lines.record.start);
        let rest = self.window.bytes().get(at..lines.end)?;
        let mut ends = memchr::memchr2_iter(b'\n', b'\r', rest);
        let length = ends.find_map(|end| lines.eol.behind(rest, end))?;
        Some(at + length).filter(|&start| start < lines.end)
    }

    /// Makes the bytes at `at` within the record, up to the end of a line, the current record. Returns the start of the
    /// next one. `None` if they are no record of `fields` fields, or not within `left` bytes, from which those are taken
    /// that were read.
    pub fn try_record(&mut self, lines: &Lines, at: usize, fields: usize, left: &mut usize) -> Option<usize> {
        let bytes = self.window.bytes().get(at..lines.end.min(at + *left))?;
        let mut eol = Some(lines.eol);
        let Line::Complete { content, next, .. } = line::read_line(&self.dialect, &mut eol, bytes, true) else {
            *left -= bytes.len();
            return None;
        };
        *left = left.saturating_sub(next);
        let line = bytes.get(..content)?;
        self.exact_ends.clear();
        let found = field::split_line(&self.dialect, line, self.policy.max_fields, &mut self.exact_ends);
        if found != Ok(fields) || (at < self.window.dirty_end() && utf8_valid_up_to(line) < content) {
            return None;
        }
        for end in &mut self.exact_ends {
            *end = (*end + at as u32) | FLAG;
        }
        // The record is only tried: its lines are not counted.
        self.lines.exact = self.lines.exact.or(Some(0));
        self.current = Current {
            start: at,
            next: at + next,
            first: 0,
            last: self.exact_ends.len(),
            fields,
            content: Some(at + content),
        };
        Some(at + next)
    }

    /// Makes the broken record the current one again. With `end`, the start of one of its lines, the record ends there,
    /// and the bytes behind are read as records, as if the data ended with the bytes that the record had.
    pub fn end_early(&mut self, lines: &Lines, end: Option<usize>) {
        (self.current, self.lines.exact) = (lines.record, lines.exact);
        let (Some(end), Some(line)) = (end, self.raw_line()) else { return };
        let broken = self.lines.broken.unwrap_or_else(|| self.line_number());
        let before = self.line_number().saturating_sub(1 + Eol::count(self.kernels.eol, line));
        let own = line.get(..end - self.current.start).unwrap_or_default();
        let number = before + Eol::count(Some(lines.eol), own);
        let is_two = matches!(lines.eol, Eol::CrNl | Eol::Any) && own.ends_with(b"\r\n");
        let content = end - if is_two { 2 } else { 1 };
        if self.kernels.eol.is_none() {
            self.kernels.select(&self.dialect, lines.eol);
        }
        self.drop_batch();
        self.window.limit(lines.end);
        self.begin_at(end);
        let broken = Some(broken);
        self.lines = LineCount { broken, base: number, pos: end, exact: Some(number), ..LineCount::default() };
        self.current = Current { start: self.current.start, next: end, content: Some(content), ..Current::default() };
    }

    /// [`Reader::end_early`] of the current record, `length` bytes behind its start.
    pub fn end_early_at(&mut self, length: usize) {
        if let Some(lines) = self.lines_of_record() {
            self.end_early(&lines, Some(lines.record.start + length).filter(|&end| end < lines.end));
        }
    }

    /// Whether the current record is one of the lines that a broken record had.
    #[must_use]
    pub fn is_in_broken_record(&self) -> bool {
        self.window.limited().is_some()
    }

    /// Goes on behind a record that ended early, if the bytes that it had are read.
    pub(super) fn leave_record(&mut self) {
        if self.window.limited().is_some_and(|limit| self.pos >= limit) {
            self.window.unlimit();
            let base = self.lines.broken.take().unwrap_or_default();
            self.lines = LineCount { base, pos: self.pos, ..LineCount::default() };
            self.begin_at(self.pos);
        }
    }

    /// Searches for records from `pos` on.
    fn begin_at(&mut self, pos: usize) {
        (self.pos, self.chunk_end) = (pos, pos);
        self.search = Search::new();
        self.finished = false;
    }
}
