//! Frames records of COPY's binary format by the sizes of their fields.

use super::{BATCH_RECORDS, Current, Event, ReadError, Reader};
use crate::binary::{self, HEADER, HeaderError, NextItem, Preamble};
use crate::scan::RecordEnd;
use crate::scan::kernel::FLAG;

impl Reader {
    /// Sets the number of fields of each record. Of a record with another number, only the count is read.
    pub fn expect_fields(&mut self, fields: usize) {
        self.dialect.record_length = Some(fields);
    }

    /// Makes a batch of the complete records in the window.
    #[inline(never)]
    pub(super) fn frame(&mut self) -> Event {
        if let Some(event) = self.pass_preamble() {
            return event;
        }
        let bytes = self.window.bytes();
        // An offset and FLAG share a word.
        let bytes = bytes.get(..FLAG as usize - 1).unwrap_or(bytes);
        let start = self.pos;
        let (mut at, mut count, mut last) = (start, 0, NextItem::Partial);
        let places = self.batch.ends.iter_mut().zip(&mut self.batch.records).take(BATCH_RECORDS);
        for (i, (end, record)) in places.enumerate() {
            last = binary::next(bytes.get(at..).unwrap_or_default(), self.dialect.record_length);
            let NextItem::Record(length) = last else { break };
            at += length;
            count = i + 1;
            *end = at as u32;
            *record = RecordEnd { fields: count as u32, next: at as u32 };
        }
        if count == 0 {
            return self.frame_rest(last);
        }
        (self.batch.start, self.batch.len, self.batch.resume, self.batch.odd) = (start, count, at, false);
        self.go_behind(at);
        // `advance` takes a record's start from the end of the one before it.
        self.current = Current { next: start, ..Current::default() };
        self.advance()
    }

    fn go_behind(&mut self, pos: usize) {
        (self.pos, self.chunk_end, self.lines.pos) = (pos, pos, pos);
    }

    /// Skips the header. Returns the event that prevents this, if any.
    fn pass_preamble(&mut self) -> Option<Event> {
        let closed = self.window.is_closed();
        if self.opening.preamble == Preamble::Ahead {
            let bytes = self.window.bytes().get(self.pos..).unwrap_or_default();
            match binary::extension(bytes, closed) {
                Ok(Some(length)) => {
                    self.go_behind(self.pos + HEADER);
                    self.opening.preamble = Preamble::Extension(length);
                }
                Ok(None) => return Some(Event::NeedData),
                Err(error) => return Some(self.fail(self.pos, 0, None, ReadError::Header(error))),
            }
        }
        if let Preamble::Extension(left) = self.opening.preamble {
            let there = left.min(self.window.bytes().len() - self.pos);
            self.go_behind(self.pos + there);
            self.opening.preamble = if there < left { Preamble::Extension(left - there) } else { Preamble::Passed };
            if there < left {
                let wrong = ReadError::Header(HeaderError::WrongLength);
                return Some(if closed { self.fail(self.pos, 0, None, wrong) } else { Event::NeedData });
            }
        }
        None
    }

    /// Handles the bytes from which no complete record can be framed.
    fn frame_rest(&mut self, next: NextItem) -> Event {
        let closed = self.window.is_closed();
        let (start, end) = (self.pos, self.window.bytes().len());
        let length = match next {
            NextItem::Marker if end - start > 2 => {
                return self.fail(start, self.lines.base + 1, None, ReadError::AfterMarker);
            }
            NextItem::Broken(length) => length,
            _ if !closed => return Event::NeedData,
            // COPY ignores a single byte at the end.
            NextItem::Partial if end - start >= 2 => end - start,
            _ => {
                self.finished = true;
                self.go_behind(end);
                return Event::End;
            }
        };
        // Fields before the damage are converted before its error is raised.
        self.finished = true;
        self.go_behind(start + length);
        self.lines.base += 1;
        self.lines.exact = Some(self.lines.base);
        self.exact_ends.clear();
        self.current = Current { start, next: self.pos, content: Some(self.pos), ..Current::default() };
        Event::Record
    }
}
