//! Tuple positions that a process notes for its rows.

use pg_bulk_text::reader::RecordStart;

use crate::error::Result;
use crate::input::stream::Stream;
use crate::load::direct::heap::Heap;
use crate::load::direct::origin::{ANCHOR_EVERY, Origin, Origins, Traces, Trail, in_file};
use crate::load::direct::wide::{MessageKind, Wide};
use crate::rows::row::Rows;

/// Traces the rows of a process to their records.
#[derive(Debug)]
pub struct Tracer {
    /// How rows are traced.
    pub traces: Traces,
    /// Grows at each chunk, so that the numbers of records before and after a chunk of another process are not
    /// consecutive.
    pub(super) gaps: u64,
    /// New positions from which the file can be read again: byte and line.
    anchors: Vec<(u64, u64)>,
    /// Byte of the last of these.
    last_anchor: u64,
    /// In the leader: the tuple positions of all processes' rows.
    pub origins: Origins,
}

impl Tracer {
    /// Traces rows of a number of relations.
    pub fn new(traces: Traces, relations: usize) -> Tracer {
        Tracer { traces, gaps: 0, anchors: Vec::new(), last_anchor: 0, origins: Origins::new(relations) }
    }

    /// Goes on with another file.
    pub(super) fn switch_to_file(&mut self, traces: Traces) {
        self.origins.file += 1;
        (self.traces, self.last_anchor) = (traces, 0);
    }

    /// Tuple positions of a new heap's rows, if errors may need them.
    pub(super) fn trail(&self) -> Option<Trail> {
        (self.traces != Traces::Nothing).then(|| Trail::new(self.traces == Traces::Lines, self.origins.file))
    }

    /// The tuple position of the current row.
    #[inline]
    pub(super) fn origin(&mut self, rows: &mut Rows) -> Origin {
        match self.traces {
            Traces::Nothing => Origin::NONE,
            Traces::Positions if rows.stream().files().is_some() => {
                let position = rows.reader().record_offset();
                let file = rows.stream().file_number() as u64;
                Origin { number: rows.count() + self.gaps, position: in_file(file, position) }
            }
            Traces::Positions => {
                let position = rows.reader().record_offset();
                if position - self.last_anchor.min(position) >= ANCHOR_EVERY {
                    self.anchor_here(rows);
                }
                Origin { number: rows.count() + self.gaps, position }
            }
            Traces::Lines => {
                let reader = &mut rows.stream_mut().reader;
                reader.store_line_number();
                let position = reader.line_number();
                Origin { number: rows.count() + self.gaps, position }
            }
        }
    }

    /// Notes that the file can be read again from the record after the current one.
    #[cold]
    fn anchor_here(&mut self, rows: &mut Rows) {
        if rows.reader().is_in_broken_record() {
            return;
        }
        rows.stream_mut().reader.store_line_number();
        if let Some(place) = rows.reader().place_behind() {
            self.anchor(place, rows);
        }
    }

    pub(super) fn anchor(&mut self, place: RecordStart, rows: &Rows) {
        if self.traces == Traces::Positions && rows.stream().files().is_none() {
            self.last_anchor = place.offset;
            self.anchors.push((place.offset, place.lines));
        }
    }

    /// Notes that a record at this offset of the open file ended early, after `length` bytes. Guarded.
    pub(super) fn end_early(&mut self, stream: &Stream, offset: u64, length: usize, wide: &mut Wide) -> Result<()> {
        if self.traces != Traces::Positions {
            return Ok(());
        }
        let early = [(in_file(stream.file_number() as u64, offset), length as u64)];
        if wide.is_worker() {
            return wide.send_pairs(MessageKind::EarlyEnds, &early);
        }
        self.origins.add_early_ends(early);
        Ok(())
    }

    /// In the leader: stores tuple positions that a worker has sent, of a relation with this index. Guarded.
    pub(super) fn remember(&mut self, kind: MessageKind, relation: Option<usize>, content: &[u8]) {
        match kind {
            MessageKind::Ranges => {
                if let Some(relation) = relation {
                    self.origins.add_bytes(relation, content);
                }
            }
            MessageKind::Anchors => self.origins.anchors.extend(pairs(content)),
            MessageKind::EarlyEnds => self.origins.add_early_ends(pairs(content)),
            MessageKind::Row | MessageKind::Reject => (),
        }
    }

    /// Sends tuple positions to the leader, or, in the leader, stores them; only if there are more than `least`.
    /// Guarded; waits for room in the queue, so this process must hold neither the append lock nor the current ticket.
    pub(super) fn report(&mut self, least: usize, heaps: &mut [Heap], wide: &mut Wide) -> Result<()> {
        if self.traces == Traces::Nothing {
            return Ok(());
        }
        for heap in heaps {
            let Some(trail) = &mut heap.trail else { continue };
            if trail.len() <= least {
                continue;
            }
            let ranges = trail.take();
            if wide.is_worker() {
                wide.send_ranges(heap.relation().oid(), &ranges)?;
            } else {
                self.origins.add(heap.written.index, &ranges);
            }
        }
        if least == 0 || self.anchors.len() > least {
            let anchors = std::mem::take(&mut self.anchors);
            if wide.is_worker() {
                wide.send_pairs(MessageKind::Anchors, &anchors)?;
            } else {
                self.origins.anchors.extend(anchors);
            }
        }
        Ok(())
    }
}

/// The pairs of a message.
fn pairs(bytes: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    let number = |bytes: Option<&[u8; 8]>| bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    bytes.chunks_exact(16).map(move |pair| (number(pair.first_chunk()), number(pair.last_chunk())))
}
