//! Splits records without a search for the last line end: the kernels skip a record whose end has not arrived.
//!
//! Such a search would be one more pass over all bytes. It is done only for an incomplete record, because it continues
//! where it has stopped, for a record of any length.

use super::{Current, Reader};
use crate::line::lenient_line;
use crate::scan::kernel::FLAG;
use crate::scan::{CutState, Scanner};

/// Number of bytes to split at a time if most records are skipped by counting.
const GLANCE: usize = 4096;

impl Reader {
    /// Splits the records before `end` into the batch, with those in which a quote is not at an end of its field.
    pub(super) fn split(&mut self, scanner: Scanner, end: usize) {
        let data = self.window.bytes().get(..end).unwrap_or_default();
        scanner.split(data, self.pos, &mut self.batch);
        // `advance` takes a record's start from the end of the one before it.
        self.current = Current { next: self.batch.start, ..Current::default() };
        while self.batch.odd && self.dialect.lenient_quotes {
            let start = self.batch.resume;
            let rest = data.get(start..).unwrap_or_default();
            let next = lenient_line(&self.dialect, scanner.eol(), rest, &mut self.exact_ends);
            let Some(next) = next else { return };
            for end in &mut self.exact_ends {
                *end = (*end + start as u32) | FLAG;
            }
            if !self.batch.add(&self.exact_ends, start + next) {
                return;
            }
            scanner.split_more(data, &mut self.batch);
        }
    }

    /// Splits the records behind `chunk_end`, where the next record starts. Returns false if no line there is
    /// complete, or none is regular.
    pub(super) fn split_ahead(&mut self, scanner: Scanner) -> bool {
        let end = self.complete_end();
        let len = end.saturating_sub(self.pos);
        // Bytes without a record are split again only after they have doubled, so all attempts together cost at most
        // one more pass.
        if len <= 2 * self.search.nothing_in || len >= self.policy.line_limit || self.pos < self.window.dirty_end() {
            return false;
        }
        let end = if self.policy.glances { self.glance(end) } else { end };
        self.split(scanner, end);
        if self.batch.len == 0 && self.batch.resume == self.pos {
            self.search.nothing_in = len;
            return false;
        }
        // An odd record at the end may only lack its end.
        self.go_to(self.batch.resume);
        true
    }

    /// The end of the next bytes to split, before `end`. A CR there may belong to a CRLF, which must stay whole.
    fn glance(&self, end: usize) -> usize {
        let near = end.min(self.pos + GLANCE);
        let splits = near < end && self.window.bytes().get(near - 1) == Some(&b'\r');
        near - usize::from(splits)
    }

    /// Sets the start of the next record to `pos`, which is not before the next record of the batch.
    pub(super) fn go_to(&mut self, pos: usize) {
        self.pos = pos;
        self.search.nothing_in = 0;
        if pos > self.chunk_end {
            self.chunk_end = pos;
            self.lines.in_chunk = None;
            self.search.cut = CutState::watching();
        }
    }
}
