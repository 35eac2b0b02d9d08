//! Frames records of equal length without line ends, without reading their bytes.

use super::{BATCH_RECORDS, Current, Event, ReadError, Reader};
use crate::scan::RecordEnd;
use crate::scan::kernel::FLAG;

impl Reader {
    /// Makes a batch of the complete records in the window.
    #[inline(never)]
    pub(super) fn measure(&mut self, length: usize) -> Event {
        let end = self.window.bytes().len();
        // An offset and FLAG share a word.
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
        (self.chunk_end, self.lines.pos) = (self.pos, self.pos);
        // `advance` takes a record's start from the end of the one before it.
        self.current = Current { next: self.batch.start, ..Current::default() };
        self.advance()
    }

    /// Handles the bytes of an incomplete record.
    fn measure_rest(&mut self, end: usize, length: usize) -> Event {
        if !self.window.is_closed() {
            return Event::NeedData;
        }
        let start = self.pos;
        (self.pos, self.chunk_end) = (end, end);
        self.finished = !self.policy.tolerant || start == end;
        if start == end {
            return Event::End;
        }
        self.lines.base += 1;
        self.lines.pos = end;
        self.lines.exact = Some(self.lines.base);
        self.exact_ends.clear();
        self.current = Current { start, next: end, content: Some(end), ..Current::default() };
        Event::Error(ReadError::Partial { bytes: end - start, length })
    }
}
