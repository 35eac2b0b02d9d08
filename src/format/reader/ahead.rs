//! Records are split where nobody has looked for the last line end before: a kernel leaves alone what has no end yet.
//!
//! To look for it first would be to go over all bytes once more. It is done only for a record that is not complete, since
//! that search goes on where it has stopped, however long the record gets.

use super::{Current, Reader};
use crate::scan::{CutState, Scanner};

/// So many bytes are split when most records are going to be passed by.
const GLANCE: usize = 4096;

impl Reader {
    /// Split records behind `chunk_end`, where the next record starts. False if none is complete there, or none is regular.
    pub(super) fn split_ahead(&mut self, scanner: Scanner) -> bool {
        let end = self.complete_end();
        let len = end.saturating_sub(self.pos);
        // What had none is not looked at again before there is twice as much, so that all such looks take no more than one.
        if len <= 2 * self.nothing_in || len >= self.line_limit || self.pos < self.dirty_end {
            return false;
        }
        let end = if self.glances { end.min(self.pos + GLANCE) } else { end };
        scanner.split(self.window.bytes().get(..end).unwrap_or_default(), self.pos, &mut self.batch);
        if self.batch.len == 0 {
            self.nothing_in = len;
            return false;
        }
        // That the record behind is odd may be due to its missing end.
        self.go_to(self.batch.resume);
        // `advance` takes a record's start from the end of the one before.
        self.current = Current { next: self.batch.start, ..Current::default() };
        true
    }

    /// A record starts at `pos`, which is not before the next one of the batch.
    pub(super) fn go_to(&mut self, pos: usize) {
        self.pos = pos;
        self.nothing_in = 0;
        if pos > self.chunk_end {
            self.chunk_end = pos;
            self.chunk_lines = None;
            self.cut = CutState::watching();
        }
    }
}
