//! Skips records that the caller only counts.

use super::{Current, Reader};
use crate::scan::kernel::FLAG;

impl Reader {
    /// Skips the records behind the current one. It stops at the first record that is incomplete, has another number of
    /// fields than `fields` (at least one), or must be looked at: escapes in text, a DEFAULT marker.
    ///
    /// Returns the number of skipped records. There is no current record then; the next call of [`Reader::advance`]
    /// goes to the record behind them.
    pub fn pass_by(&mut self, fields: usize) -> u64 {
        if self.dialect.default.is_some() || self.dialect.lacks_line_ends() {
            return 0;
        }
        let mut count = 0;
        while self.next_is_plain(fields) {
            let _ = self.advance();
            count += 1;
        }
        self.policy.glances = true;
        let end = self.complete_end();
        let is_known =
            !(self.finished || self.opening.bom_pending || self.opening.header_left > 0 || self.search.exact_next);
        let is_certain =
            self.pos >= self.window.dirty_end() && self.pos < end && end - self.pos < self.policy.line_limit;
        let Some(scanner) = self.kernels.scanner.filter(|_| !self.has_next() && is_known && is_certain) else {
            return count;
        };
        let tally = scanner.tally(self.window.bytes().get(..end).unwrap_or_default(), self.pos, fields);
        if tally.records > 0 {
            let done = self.drop_batch();
            if self.dialect.is_csv() {
                // Without `in_chunk`, which would no longer be the lines up to the chunk's end.
                self.lines.base += self.lines_before(self.pos) + tally.lines;
                self.lines.pos = tally.resume;
                self.lines.in_chunk = None;
            } else {
                self.lines.base += done as u64 + tally.records;
            }
            self.lines.exact = None;
            self.go_to(tally.resume);
            self.current = Current { start: self.pos, next: self.pos, ..Current::default() };
        }
        count + tally.records
    }

    /// Whether the next record is in the batch and has `fields` fields, and no escapes in text.
    fn next_is_plain(&self, fields: usize) -> bool {
        let Some(end) = self.batch.records.get(self.cursor).filter(|_| self.has_next()) else { return false };
        let ends = self.batch.ends.get(self.current.last..end.fields as usize).unwrap_or_default();
        ends.len() == fields && (self.dialect.is_csv() || ends.iter().all(|&end| end & FLAG == 0))
    }

    /// Skips `records` records of the batch. It has them and the current record.
    pub fn pass_known(&mut self, records: usize) {
        for _ in 0..records {
            let Some(end) = self.batch.records.get(self.cursor) else { return };
            self.cursor += 1;
            self.current.start = self.current.next;
            (self.current.first, self.current.next) = (self.current.last, end.next as usize);
            self.current.last = end.fields as usize;
        }
        self.current.fields = self.current.last - self.current.first;
        self.current.content = None;
    }
}
