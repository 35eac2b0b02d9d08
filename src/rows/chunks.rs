//! The records of one of several processes: its chunks, one after the other, or the whole file in order.
//!
//! A process takes the next chunk and reads and surveys it. It waits until its ticket is next, cuts the chunk, and
//! processes the records that end in it. A cut may find a possible end of the data, a record of COPY's greatest length,
//! or a last line without a line end. Then no process takes a later chunk: this process reads the file in order from
//! there to its current end. The data of a shared compressed file are divided in the same way ([`crate::input::ring`]), except
//! that they cannot grow.

use pg_bulk_text::chunk::Cutter;
use pg_bulk_text::line::LINE_LIMIT;
use pg_bulk_text::reader::RecordStart;

use super::file_chunks::Listed;
use super::row::Rows;
use crate::error::Result;
use crate::input::chunk_order::ChunkOrder;
use crate::input::ring::Arrival;
use crate::server::points::point;
use crate::server::stages::{Stage, Stages};

/// Records of one process.
#[derive(Debug)]
pub enum Chunks {
    /// The whole file, in order, read by this process alone.
    InOrder,
    /// Chunk by chunk.
    Shared {
        cutter: Box<Cutter>,
        /// The ticket of the current chunk.
        ticket: u64,
    },
    /// The files of a list.
    Listed(Box<Listed>),
}

impl Chunks {
    /// Makes the next chunk's records the next ones of `rows`. Returns false at the end of the data. `reserve` is
    /// called in the order of chunks, with an upper bound of the number of records in the chunk. `mark` is called with
    /// the chunk's ticket and the place where its records begin. Guarded.
    pub fn next(
        &mut self,
        rows: &mut Rows,
        shared: &ChunkOrder,
        process: usize,
        stages: &mut Stages,
        mut reserve: impl FnMut(u64) -> Result<()>,
        mark: impl Fn(u64, RecordStart),
    ) -> Result<bool> {
        let (cutter, ticket) = match self {
            Chunks::InOrder => return Ok(false),
            Chunks::Listed(listed) => return listed.next(rows, shared, process, stages, reserve, mark),
            Chunks::Shared { cutter, ticket } => (cutter, ticket),
        };
        loop {
            let Some(claimed) = shared.claim(process) else { return Ok(false) };
            *ticket = claimed;
            point!("chunk.claimed");
            let (offset, len) = shared.grid.chunk(claimed);
            let mut is_last = offset + len as u64 >= shared.grid.end;
            let mut len = len;
            let stream = rows.stream_mut();
            let is_compressed = stream.source().ring().is_some();
            let mut is_lost = false;
            if is_compressed {
                let mut watch = stages.watch();
                let arrival = stream.wait_for_chunk(shared, claimed, offset, len);
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
            let mut uncut = stream.read_chunk(offset, len)?;
            stages.lap(&mut watch, Stage::Read);
            let survey = stream.survey(&mut uncut, cutter);
            stages.lap(&mut watch, Stage::Cut);
            let Some(edge) = shared.wait_to_cut(claimed) else {
                shared.rest(process);
                return Ok(false);
            };
            stages.lap(&mut watch, Stage::WaitToCut);
            point!("chunk.ticket");
            let place = edge.place(shared.eol());
            mark(claimed, place);
            let cut = stream.cut(&mut uncut, cutter, &survey, edge)?;
            stages.lap(&mut watch, Stage::Cut);
            let is_huge = offset + len as u64 - edge.record >= LINE_LIMIT as u64;
            // The file may have grown since, and its last record with it.
            let is_open = is_last && !cut.ends_with_record(len);
            let is_undecided = is_open && (!is_compressed || cutter.is_undecided(&cut));
            if cut.suspicious || is_huge || is_lost || is_undecided {
                shared.end_at(claimed);
                *self = Chunks::InOrder;
                point!("ring.in_order");
                rows.stream_mut().resume(place)?;
                return Ok(true);
            }
            // Decompressed data end with this chunk, even if its last record has no line end.
            let end = if is_open { len } else { cut.end.unwrap_or(0) };
            reserve(cut.most_records + u64::from(is_open))?;
            // Passing the ticket on releases the data before the next record.
            if let Some(ring) = stream.source().ring() {
                ring.hold(process, place.offset);
            }
            shared.pass_edge(claimed, cut.edge);
            if let Some(ring) = stream.source().ring() {
                ring.pass(cut.edge.record);
            }
            if end > 0 {
                stream.begin_chunk(uncut, place, end)?;
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

    /// Whether the current chunk is useless because an earlier one failed or ended the data.
    pub fn is_over(&self, shared: &ChunkOrder) -> bool {
        match self {
            Chunks::InOrder => false,
            Chunks::Shared { ticket, .. } => shared.is_over(*ticket),
            Chunks::Listed(listed) => shared.is_over(listed.ticket),
        }
    }

    /// Whether the number of records before the next chunk is unknown.
    pub fn is_endless(&self) -> bool {
        match self {
            Chunks::InOrder => true,
            Chunks::Shared { .. } | Chunks::Listed(_) => false,
        }
    }
}
