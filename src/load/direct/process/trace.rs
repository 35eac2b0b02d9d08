//! Tuple positions that a process notes for its rows.

use pg_bulk_format::reader::RecordStart;

use super::Process;
use crate::error::Result;
use crate::load::direct::origin::{ANCHOR_EVERY, Origin, Traces, in_file};
use crate::load::direct::wide::Received;

impl Process {
    /// The tuple position of the current row.
    #[inline]
    pub fn origin(&mut self) -> Origin {
        match self.traces {
            Traces::Nothing => Origin::NONE,
            Traces::Positions if self.rows.stream().files().is_some() => {
                let position = self.rows.reader().record_offset();
                let file = self.rows.stream().file_number() as u64;
                Origin { number: self.rows.count() + self.gaps, position: in_file(file, position) }
            }
            Traces::Positions => {
                let position = self.rows.reader().record_offset();
                if position - self.last_anchor.min(position) >= ANCHOR_EVERY {
                    self.anchor_here();
                }
                Origin { number: self.rows.count() + self.gaps, position }
            }
            Traces::Lines => {
                let reader = &mut self.rows.stream_mut().reader;
                reader.store_line_number();
                let position = reader.line_number();
                Origin { number: self.rows.count() + self.gaps, position }
            }
        }
    }

    /// Notes that the file can be read again from the record after the current one.
    #[cold]
    fn anchor_here(&mut self) {
        self.rows.stream_mut().reader.store_line_number();
        if let Some(place) = self.rows.reader().place_behind() {
            self.anchor(place);
        }
    }

    pub(super) fn anchor(&mut self, place: RecordStart) {
        if self.traces == Traces::Positions && self.rows.stream().files().is_none() {
            self.last_anchor = place.offset;
            self.anchors.push((place.offset, place.lines));
        }
    }

    /// Sends tuple positions to the leader, or, in the leader, stores them; only if there are more than `least`.
    /// Guarded; waits for room in the queue, so this process must hold neither the append lock nor the current ticket.
    pub(super) fn report_origins(&mut self, least: usize) -> Result<()> {
        if self.traces == Traces::Nothing {
            return Ok(());
        }
        for heap in &mut self.heaps {
            let Some(trail) = &mut heap.trail else { continue };
            if trail.len() <= least {
                continue;
            }
            let ranges = trail.take();
            if self.wide.is_worker() {
                // SAFETY: the relation is open.
                self.wide.send_ranges(unsafe { (*heap.relation).rd_id }, &ranges)?;
            } else {
                self.origins.add(heap.index, &ranges);
            }
        }
        if least == 0 || self.anchors.len() > least {
            let anchors = std::mem::take(&mut self.anchors);
            if self.wide.is_worker() {
                self.wide.send_anchors(&anchors)?;
            } else {
                self.origins.anchors.extend(anchors);
            }
        }
        Ok(())
    }

    /// In the leader: stores tuple positions that a worker has sent. Guarded.
    pub(super) fn remember(&mut self, received: Received) {
        match received {
            Received::Ranges(relation, bytes) => {
                if let Some(index) = self.traits.iter().position(|(oid, _)| *oid == relation) {
                    // SAFETY: the bytes were received last.
                    self.origins.add_bytes(index, unsafe { &*bytes });
                }
            }
            Received::Anchors(bytes) => {
                // SAFETY: the bytes were received last.
                let bytes = unsafe { &*bytes };
                let number = |bytes: Option<&[u8; 8]>| bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes));
                let anchor = |pair: &[u8]| (number(pair.first_chunk()), number(pair.last_chunk()));
                self.origins.anchors.extend(bytes.chunks_exact(16).map(anchor));
            }
            _ => (),
        }
    }
}
