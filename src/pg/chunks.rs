//! Where one of several processes gets its records from: its chunks, one after the other, or the whole file in order.
//!
//! A process takes the next stretch, reads and surveys it, waits for its turn to cut it, and has the records that end in it. When
//! a cut finds what may be the end of the data, a record of COPY's greatest length, or the file's last line without an
//! end, nobody takes a stretch behind it: the process reads the file in order from there on, to where it ends then.
//! What a compressed file stands for is divided in the same way where it is shared ([`super::ring`]); it cannot grow.

use pg_bulk_format::chunk::Cutter;
use pg_bulk_format::line::LINE_LIMIT;
use pg_bulk_format::reader::Place;

use super::points::point;
use super::ring::Arrival;
use super::row::Rows;
use super::stages::{Stage, Stages};
use super::stretches::Stretches;
use super::units::Listed;
use crate::error::Result;

/// Records of one process.
#[derive(Debug)]
pub enum Chunks {
    /// The file, in order, by this process alone.
    InOrder,
    /// Stretch by stretch.
    Shared {
        cutter: Box<Cutter>,
        /// The stretch that is worked on.
        number: u64,
    },
    /// The files of a list.
    Listed(Box<Listed>),
}

impl Chunks {
    /// Make the next chunk's records the ones that `rows` has next. False when there is no further one. `reserve` is
    /// called in the order of chunks, with the most records that a chunk can have; `mark` with the number of a stretch, and
    /// where it begins. Guarded.
    pub fn next(
        &mut self,
        rows: &mut Rows,
        shared: &Stretches,
        process: usize,
        stages: &mut Stages,
        mut reserve: impl FnMut(u64) -> Result<()>,
        mark: impl Fn(u64, Place),
    ) -> Result<bool> {
        let (cutter, number) = match self {
            Chunks::InOrder => return Ok(false),
            Chunks::Listed(listed) => return listed.next(rows, shared, process, stages, reserve, mark),
            Chunks::Shared { cutter, number } => (cutter, number),
        };
        loop {
            let Some(claimed) = shared.claim(process) else { return Ok(false) };
            *number = claimed;
            point!("chunk.claimed");
            let (offset, len) = shared.grid.stretch(claimed);
            let mut is_last = offset + len as u64 >= shared.grid.end;
            let mut len = len;
            let stream = rows.stream_mut();
            let is_compressed = stream.source().ring().is_some();
            let mut is_lost = false;
            if is_compressed {
                let mut watch = stages.watch();
                let arrival = stream.wait_for_stretch(shared, claimed, offset, len);
                stages.lap(&mut watch, Stage::Read);
                match arrival {
                    None | Some(Arrival::Last(0)) => {
                        shared.rest(process);
                        return Ok(false);
                    }
                    Some(Arrival::Whole) => (),
                    Some(Arrival::Last(all)) => (len, is_last) = (all, true),
                    Some(Arrival::Never) => (len, is_lost) = (0, true),
                }
            }
            stream.shrink(len);
            let mut watch = stages.watch();
            let mut stretch = stream.read_stretch(offset, len)?;
            stages.lap(&mut watch, Stage::Read);
            let survey = stream.survey(&mut stretch, cutter);
            stages.lap(&mut watch, Stage::Cut);
            let Some(edge) = shared.wait_turn(claimed) else {
                shared.rest(process);
                return Ok(false);
            };
            stages.lap(&mut watch, Stage::Turn);
            point!("chunk.turn");
            let place = edge.place(shared.eol());
            mark(claimed, place);
            let cut = cutter.cut(stream.stretch(&stretch), &survey, offset, edge);
            stages.lap(&mut watch, Stage::Cut);
            let is_huge = cut.end.is_none() && offset + len as u64 - edge.record >= LINE_LIMIT as u64;
            // The file may have grown since, and its last record with it.
            let is_open = is_last && !cut.ends_with_record(len);
            if cut.suspicious || is_huge || is_lost || (is_open && !is_compressed) {
                shared.end_at(claimed);
                *self = Chunks::InOrder;
                point!("ring.in_order");
                rows.stream_mut().resume(place)?;
                return Ok(true);
            }
            // What is shared ends with it, whatever it is.
            let end = if is_open { len } else { cut.end.unwrap_or(0) };
            reserve(cut.most_records + u64::from(is_open))?;
            // The turn lets go of what is before the next record.
            if let Some(ring) = stream.source().ring() {
                ring.hold(process, place.offset);
            }
            shared.pass_turn(claimed, cut.edge);
            if let Some(ring) = stream.source().ring() {
                ring.pass(cut.edge.record);
            }
            if end > 0 {
                stream.begin_chunk(stretch, place, end)?;
            }
            if let Some(ring) = stream.source().ring() {
                ring.let_go(process);
            }
            if end == 0 {
                continue;
            }
            return Ok(true);
        }
    }

    /// Is there no use in going on with the chunk that is worked on?
    pub fn is_over(&self, shared: &Stretches) -> bool {
        match self {
            Chunks::InOrder => false,
            Chunks::Shared { number, .. } => shared.is_over(*number),
            Chunks::Listed(listed) => shared.is_over(listed.number),
        }
    }

    /// Is it unknown how many records come before the next chunk?
    pub fn is_endless(&self) -> bool {
        match self {
            Chunks::InOrder => true,
            Chunks::Shared { .. } | Chunks::Listed(_) => false,
        }
    }
}
