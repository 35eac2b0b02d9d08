//! The number and the text of the current line.
//!
//! Lines are counted on request, from the last position with a known number ([`LineCount`]). In CSV this is a
//! search for line ends in bytes that must still be in the window.

use super::Reader;
use crate::dialect::Eol;
use crate::scan::kernel::FLAG;

/// COPY's count of lines, up to a position.
#[derive(Debug, Default)]
pub(super) struct LineCount {
    /// COPY's line number of the record that ends at `pos`.
    pub(super) base: u64,
    pub(super) pos: usize,
    /// Number of lines between `pos` and the end of the complete records, if the search counted them.
    pub(super) in_chunk: Option<u64>,
    /// Line number of the current record, if the exact reader read it.
    pub(super) exact: Option<u64>,
    /// Line number of the broken record whose lines are read as records.
    pub(super) broken: Option<u64>,
}

impl Reader {
    /// Counts the lines up to the next record into `lines`.
    pub(super) fn count_lines(&mut self) {
        if self.dialect.is_csv() {
            match self.lines.in_chunk.take() {
                Some(lines) if self.pos == self.chunk_end => self.lines.base += lines,
                _ => self.lines.base += self.lines_before(self.pos),
            }
        }
        self.lines.pos = self.pos;
    }

    /// Number of lines between `lines.pos` and `position`, for CSV.
    pub(super) fn lines_before(&self, position: usize) -> u64 {
        let bytes = self.window.bytes().get(self.lines.pos..position).unwrap_or_default();
        Eol::count(self.kernels.eol, bytes)
    }

    /// COPY's number of the current line.
    #[must_use]
    pub fn line_number(&self) -> u64 {
        match self.lines.exact {
            Some(number) => number,
            None if self.dialect.is_csv() => self.lines.base + self.lines_before(self.line_end()),
            None => self.lines.base + self.cursor as u64 + self.skipped(),
        }
    }

    /// Number of skipped lines in the batch before the current record.
    fn skipped(&self) -> u64 {
        let skipped = &self.batch.skipped;
        let before = skipped.partition_point(|skipped| (skipped.record as usize) < self.cursor);
        before.checked_sub(1).and_then(|last| skipped.get(last)).map_or(0, |skipped| u64::from(skipped.lines))
    }

    /// Sets the line number of a record that the caller reads without this reader.
    pub fn set_line_number(&mut self, number: u64) {
        self.lines.exact = Some(number);
    }

    /// Stores the number of the current line, so that the next request counts from here.
    pub fn store_line_number(&mut self) {
        if self.lines.exact.is_none() && self.dialect.is_csv() {
            let end = self.line_end();
            let lines = self.lines_before(end);
            self.lines.base += lines;
            self.lines.pos = end;
            self.lines.in_chunk = self.lines.in_chunk.map(|all| all - lines);
        }
    }

    /// Whether an end marker has ended the data, and text is behind it. None if the bytes behind it were not read.
    #[must_use]
    pub fn ended_early(&self) -> Option<bool> {
        let behind = self.window.bytes().get(self.pos..).unwrap_or_default();
        let has_text = self.finished && !behind.trim_ascii().is_empty();
        (has_text || !self.finished || self.window.is_closed()).then_some(has_text)
    }

    /// The current line without its end; `None` if its end was not found.
    #[must_use]
    pub fn raw_line(&self) -> Option<&[u8]> {
        let end = match self.current.content {
            Some(end) => end,
            None if self.lines.exact.is_some() => return None,
            None => {
                let end = self.record().ends.last().map_or(0, |&e| (e & !FLAG) as usize);
                let rest = self.window.bytes().get(end..self.current.next).unwrap_or_default();
                // The last field may end before the delimiter that ends the line.
                let is_trailing = self.dialect.trailing && self.dialect.separator.begins(rest);
                end + if is_trailing { self.dialect.separator.len() } else { 0 }
            }
        };
        self.window.bytes().get(self.current.start..end)
    }

    /// Offset of the current line's first byte in the stream.
    #[must_use]
    pub fn record_offset(&self) -> u64 {
        self.window.stream_offset(self.current.start)
    }
}
