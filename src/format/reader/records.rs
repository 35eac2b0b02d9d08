//! Records of the same length without anything between them: where they end is known without a look at them.

use super::{BATCH_RECORDS, Current, Event, ReadError, Reader};
use crate::scan::RecordEnd;
use crate::scan::kernel::FLAG;

impl Reader {
    /// The records that are there become a batch.
    #[inline(never)]
    pub(super) fn measure(&mut self, length: usize) -> Event {
        let end = self.window.bytes().len();
        // Offsets share their word with FLAG.
        let there = end.min(FLAG as usize - 1).saturating_sub(self.pos);
        let count = (there / length).min(BATCH_RECORDS);
        if count == 0 {
            return self.measure_rest(end, length);
        }
        self.batch.start = self.pos;
        for (i, (end, record)) in self.batch.ends.iter_mut().zip(&mut self.batch.records).take(count).enumerate() {
            self.pos += length;
            *end = self.pos as u32;
            *record = RecordEnd { fields: i as u32 + 1, next: self.pos as u32 };
        }
        (self.batch.len, self.batch.resume, self.batch.odd) = (count, self.pos, false);
        (self.chunk_end, self.line_pos) = (self.pos, self.pos);
        // `advance` takes a record's start from the end of the one before.
        self.current = Current { next: self.batch.start, ..Current::default() };
        self.advance()
    }

    /// No record is complete.
    fn measure_rest(&mut self, end: usize, length: usize) -> Event {
        if !self.window.is_closed() {
            return Event::NeedData;
        }
        let start = self.pos;
        (self.pos, self.chunk_end) = (end, end);
        self.finished = !self.tolerant || start == end;
        if start == end {
            return Event::End;
        }
        self.line_base += 1;
        self.line_pos = end;
        self.exact_line = Some(self.line_base);
        self.exact_ends.clear();
        self.current = Current { start, next: end, content: Some(end), ..Current::default() };
        Event::Error(ReadError::Partial { bytes: end - start, length })
    }
}
