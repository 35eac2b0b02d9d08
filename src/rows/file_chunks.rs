//! Divides a list of files among several processes.
//!
//! ```text
//!   files  | a    | b    | c: a large file             | d    |
//!   chunks | 0    | 1    | 2  | 3  | 4  | 5           | 6    |
//! ```
//!
//! A chunk is a whole file, which a process reads from start to end, or a part of a large one. Chunks are assigned and
//! cut in order like those of a single file ([`crate::input::chunk_order`]). So the first error and the order of ids are the
//! same as if one process read file after file. A process opens a file when it gets its first chunk of it.
//!
//! Only the start of a large file shows its line ends and the beginning of its first record. The process with the first
//! chunk publishes both, and processes with later chunks of the file wait for that. If a cut finds input that chunks do
//! not support, that process reads the rest of the file. The other chunks of this file are empty then; other files are
//! not affected.
//!
//! Ids ascend in the order of files. A process takes them when its chunk may be cut, for all of its records, whose
//! number is not known then. So line ends are counted first, or records of the binary format. A process passes rows to
//! its consumer only after it has let the next chunk be cut. Otherwise the queue might be full while the process that
//! empties it waits to cut.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU32, AtomicU64};

use pg_bulk_text::binary;
use pg_bulk_text::chunk::{Cutter, Edge};
use pg_bulk_text::dialect::Eol;
use pg_bulk_text::line::LINE_LIMIT;
use pg_bulk_text::reader::RecordStart;
use pg_bulk_text::walk::Walk;

use super::row::Rows;
use crate::error::Result;
use crate::input::chunk_order::{ChunkOrder, Grid};
use crate::input::file_identity::changed;
use crate::input::files::FileList;
use crate::input::stream::Advance;
use crate::server::points::point;
use crate::server::stages::{Stage, Stages};
use crate::server::team::{Shareable, SharedRef};

/// The beginning of a large file's first record is not known yet.
const UNKNOWN: u64 = u64::MAX;
/// One process reads the whole file, or the file has no record.
const ONE_READS: u64 = u64::MAX - 1;
/// Bytes in which line ends are counted at a time.
const COUNTED_AT_ONCE: u64 = 256 << 10;

/// State of a file that processes share.
#[derive(Debug)]
#[repr(C)]
pub struct FileState {
    /// Offset of its first record.
    base: AtomicU64,
    /// Lines before that record.
    lines: AtomicU64,
    /// Its line ends.
    eol: AtomicU32,
    /// Set when one process reads the rest of the file.
    ended: AtomicU32,
}

// SAFETY: atomic values.
unsafe impl Shareable for FileState {}

impl FileState {
    pub fn new() -> FileState {
        FileState {
            base: AtomicU64::new(UNKNOWN),
            lines: AtomicU64::new(0),
            eol: AtomicU32::new(0),
            ended: AtomicU32::new(0),
        }
    }

    fn place(&self) -> RecordStart {
        let (offset, lines) = (self.base.load(SeqCst), self.lines.load(SeqCst));
        let eol = [Eol::Nl, Eol::Cr, Eol::CrNl, Eol::Any].into_iter().find(|&eol| eol as u32 == self.eol.load(SeqCst));
        RecordStart { eol: eol.unwrap_or(Eol::Nl), offset, lines }
    }

    fn begin_at(&self, place: RecordStart) {
        self.eol.store(place.eol as u32, SeqCst);
        self.lines.store(place.lines, SeqCst);
        self.base.store(place.offset, SeqCst);
    }
}

/// Numbers of the chunks of all files.
#[derive(Debug)]
pub struct FileChunks {
    /// The first chunk of each file, followed by the total number of chunks.
    first: Vec<u64>,
    /// Length of a chunk of a large file.
    len: u64,
}

impl FileChunks {
    pub fn of(list: &FileList) -> FileChunks {
        let len = Grid::from(0, 0).len;
        let mut first = vec![0];
        let mut count = 0;
        for file in &list.files {
            count += if file.splits { file.identity.size.div_ceil(len).max(1) } else { 1 };
            first.push(count);
        }
        FileChunks { first, len }
    }

    /// Is a file of this size divided into chunks?
    pub fn is_large(size: u64) -> bool {
        size > Grid::from(0, 0).len
    }

    pub fn count(&self) -> u64 {
        self.first.last().copied().unwrap_or(0)
    }

    /// A grid with the same number of chunks.
    pub fn grid(&self) -> Grid {
        Grid { base: 0, end: self.count() * self.len, len: self.len }
    }

    /// The file of a chunk, the chunk's index in that file, and the number of the file's chunks.
    fn part(&self, ticket: u64) -> (usize, u64, u64) {
        let file = self.first.partition_point(|first| *first <= ticket).saturating_sub(1);
        let first = self.first.get(file).copied().unwrap_or(0);
        let next = self.first.get(file + 1).copied().unwrap_or(first + 1);
        (file, ticket - first, next - first)
    }

    /// The file of a chunk.
    pub fn file_of(&self, ticket: u64) -> usize {
        self.part(ticket).0
    }
}

/// State of one process that works on the chunks of a list.
#[derive(Debug)]
pub struct Listed {
    chunks: FileChunks,
    /// One for each file.
    states: SharedRef<[FileState]>,
    /// Rows need ids of a sequence.
    takes_ids: bool,
    /// The large file that is open.
    open: Option<(usize, Box<Cutter>)>,
    /// The current chunk.
    pub ticket: u64,
}

/// Result of the start of a chunk.
enum ChunkStart {
    /// The chunk has records.
    Records,
    /// The chunk has no records.
    Empty,
    /// Work on this and later chunks is pointless.
    Over,
}

impl Listed {
    /// `states` are in shared memory, one for each file.
    pub fn new(list: &FileList, states: SharedRef<[FileState]>, takes_ids: bool) -> Listed {
        Listed { chunks: FileChunks::of(list), states, takes_ids, open: None, ticket: 0 }
    }

    pub fn chunks(&self) -> &FileChunks {
        &self.chunks
    }

    /// Go to the next chunk, like [`super::chunks::Chunks::next`].
    pub fn next(
        &mut self,
        rows: &mut Rows,
        shared: &ChunkOrder,
        process: usize,
        stages: &mut Stages,
        mut reserve: impl FnMut(u64) -> Result<()>,
        mark: impl Fn(u64, RecordStart),
    ) -> Result<bool> {
        loop {
            let Some(ticket) = shared.claim(process) else { return Ok(false) };
            self.ticket = ticket;
            point!("chunk.claimed");
            let (file, part, parts) = self.chunks.part(ticket);
            let step = if parts == 1 {
                self.begin_file(file, rows, shared, stages, &mut reserve, &mark)?
            } else {
                self.begin_part(file, part, rows, shared, stages, &mut reserve, &mark)?
            };
            match step {
                ChunkStart::Records => return Ok(true),
                ChunkStart::Empty => (),
                ChunkStart::Over => {
                    shared.rest(process);
                    return Ok(false);
                }
            }
        }
    }

    /// Begin a chunk that is a whole file.
    fn begin_file(
        &mut self,
        file: usize,
        rows: &mut Rows,
        shared: &ChunkOrder,
        stages: &mut Stages,
        reserve: &mut impl FnMut(u64) -> Result<()>,
        mark: &impl Fn(u64, RecordStart),
    ) -> Result<ChunkStart> {
        self.open = None;
        let mut watch = stages.watch();
        rows.switch_to_file(file)?;
        let most = if self.takes_ids { most_records(rows, 0)? } else { 0 };
        point!("files.counted");
        stages.lap(&mut watch, Stage::Read);
        let Some(edge) = shared.wait_to_cut(self.ticket) else { return Ok(ChunkStart::Over) };
        stages.lap(&mut watch, Stage::WaitToCut);
        mark(self.ticket, RecordStart { eol: Eol::Nl, offset: 0, lines: 0 });
        reserve(most)?;
        shared.pass_edge(self.ticket, edge);
        Ok(ChunkStart::Records)
    }

    /// Begin a chunk of a large file.
    #[expect(clippy::too_many_arguments, reason = "one step of `next`")]
    fn begin_part(
        &mut self,
        file: usize,
        part: u64,
        rows: &mut Rows,
        shared: &ChunkOrder,
        stages: &mut Stages,
        reserve: &mut impl FnMut(u64) -> Result<()>,
        mark: &impl Fn(u64, RecordStart),
    ) -> Result<ChunkStart> {
        let ticket = self.ticket;
        if part == 0 {
            self.open = None;
            rows.switch_to_file(file)?;
            let begin = first_record(rows)?;
            let states = self.states;
            let Some(state) = states.get(file) else { return Ok(ChunkStart::Over) };
            match begin {
                Begin::At(place) => state.begin_at(place),
                Begin::Nowhere | Begin::Broken => state.base.store(ONE_READS, SeqCst),
            }
            shared.announce();
            if matches!(begin, Begin::Broken) {
                return self.begin_file(file, rows, shared, stages, reserve, mark);
            }
        }
        let states = self.states;
        let Some(state) = states.get(file) else { return Ok(ChunkStart::Over) };
        let known = shared.wait_for(|| {
            if shared.is_over(ticket) {
                return Some(false);
            }
            (state.base.load(SeqCst) != UNKNOWN).then_some(true)
        });
        if !known {
            return Ok(ChunkStart::Over);
        }
        let begin = state.place();
        let size = rows.stream().files().and_then(|list| list.files.get(file)).map_or(0, |file| file.identity.size);
        let offset = begin.offset.saturating_add(part.saturating_mul(self.chunks.len));
        if begin.offset == ONE_READS || offset >= size || state.ended.load(SeqCst) != 0 {
            return Ok(self.pass_by(shared));
        }
        let len = usize::try_from((size - offset).min(self.chunks.len)).unwrap_or(0);
        if self.open.as_ref().is_none_or(|(open, _)| *open != file) {
            if part > 0 {
                rows.switch_to_file(file)?;
                rows.take_names()?;
            }
            let Some(cutter) = rows.stream().cutter(begin) else { return Ok(self.pass_by(shared)) };
            self.open = Some((file, Box::new(cutter)));
        }
        let Some((_, cutter)) = &self.open else { return Ok(ChunkStart::Empty) };
        let stream = rows.stream_mut();
        stream.shrink(len);
        let mut watch = stages.watch();
        let mut uncut = stream.read_chunk(offset, len)?;
        stages.lap(&mut watch, Stage::Read);
        let survey = stream.survey(&mut uncut, cutter);
        stages.lap(&mut watch, Stage::Cut);
        let Some(edge) = shared.wait_to_cut(ticket) else { return Ok(ChunkStart::Over) };
        stages.lap(&mut watch, Stage::WaitToCut);
        point!("chunk.ticket");
        let states = self.states;
        let Some(state) = states.get(file) else { return Ok(ChunkStart::Over) };
        if state.ended.load(SeqCst) != 0 {
            shared.pass_edge(ticket, edge);
            return Ok(ChunkStart::Empty);
        }
        let edge = if part == 0 { Edge::at(begin) } else { edge };
        let place = edge.place(begin.eol);
        mark(ticket, place);
        let cut = stream.cut(&mut uncut, cutter, &survey, edge)?;
        stages.lap(&mut watch, Stage::Cut);
        let is_last = offset + len as u64 >= size;
        let is_huge = offset + len as u64 - edge.record >= LINE_LIMIT as u64;
        if cut.suspicious || is_huge || (is_last && !cut.ends_with_record(len)) {
            state.ended.store(1, SeqCst);
            reserve(if self.takes_ids { most_records(rows, place.offset)? } else { 0 })?;
            shared.pass_edge(ticket, edge);
            rows.stream_mut().resume(place)?;
            return Ok(ChunkStart::Records);
        }
        let end = cut.end.unwrap_or(0);
        reserve(cut.most_records)?;
        shared.pass_edge(ticket, cut.edge);
        if end == 0 {
            return Ok(ChunkStart::Empty);
        }
        rows.stream_mut().begin_chunk(uncut, place, end)?;
        Ok(ChunkStart::Records)
    }

    /// Skip a chunk without records.
    fn pass_by(&self, shared: &ChunkOrder) -> ChunkStart {
        match shared.wait_to_cut(self.ticket) {
            Some(edge) => {
                shared.pass_edge(self.ticket, edge);
                ChunkStart::Empty
            }
            None => ChunkStart::Over,
        }
    }
}

/// The beginning of a file's first record.
enum Begin {
    At(RecordStart),
    /// The file has no record.
    Nowhere,
    /// The record cannot be read, or nothing shows the line ends.
    Broken,
}

/// Read a file up to its first record.
fn first_record(rows: &mut Rows) -> Result<Begin> {
    loop {
        match rows.stream_mut().advance() {
            Ok(Advance::Header) => rows.take_header()?,
            Ok(Advance::Record) => {
                let reader = rows.reader();
                let line = reader.raw_line().filter(|_| reader.dialect().is_csv()).unwrap_or_default();
                let offset = reader.record_offset();
                let at = |place: RecordStart| {
                    let within = Eol::count(Some(place.eol), line);
                    // None: COPY read the record before it knew the line end, and counted other lines in it.
                    let lines = place.lines.checked_sub(1 + within)?;
                    Some(RecordStart { offset, lines, ..place })
                };
                // Files that are not cut into chunks have no cutter.
                let place = reader.place_behind().and_then(at);
                let place = place.filter(|&place| rows.stream().cutter(place).is_some());
                return Ok(place.map_or(Begin::Broken, Begin::At));
            }
            Ok(Advance::End) => return Ok(Begin::Nowhere),
            Err(_) if rows.reader().goes_on() => return Ok(Begin::Broken),
            Err(error) => return Err(error),
        }
    }
}

/// The highest possible number of records in the open file from an offset on. The leader has made sure that the file is
/// not compressed.
fn most_records(rows: &mut Rows, begin: u64) -> Result<u64> {
    let mut offset = begin;
    let dialect = rows.reader().dialect();
    let (stride, fields) = (dialect.stride(), dialect.is_binary().then_some(dialect.record_length));
    let source = rows.stream_mut().source_mut();
    let size = source.size().ok_or_else(|| changed(source.name()))?;
    if let Some(length) = stride {
        if begin == 0 {
            source.rewind()?;
        }
        source.end_at(size);
        return Ok(size.saturating_sub(begin).div_ceil(length as u64));
    }
    let mut buffer = vec![0; usize::try_from(size.min(COUNTED_AT_ONCE)).unwrap_or(0)];
    let (mut count, mut ends_in_cr) = (1, false);
    let (mut walk, mut record) = (Walk::at(begin), begin);
    while offset < size {
        let len = usize::try_from((size - offset).min(COUNTED_AT_ONCE)).unwrap_or(0);
        let bytes = buffer.get_mut(..len).unwrap_or_default();
        source.read_exactly(bytes, offset)?;
        if let Some(fields) = fields {
            if offset == 0 {
                let Some(first) = binary::first_record(bytes) else { break };
                (walk, record) = (Walk::at(first), first);
            }
            let walked = walk.pass(bytes, offset, record, fields);
            (count, record) = (count + walked.records, walked.record);
            if walked.is_odd {
                break;
            }
        } else {
            count += line_ends(bytes, &mut ends_in_cr);
        }
        offset += len as u64;
    }
    if begin == 0 {
        source.rewind()?;
    }
    // Records added to the file from now on would have no ids.
    source.end_at(size);
    Ok(count)
}

/// Count line ends of any kind in a block of a file. The previous block may have ended between CR and LF.
fn line_ends(bytes: &[u8], ends_in_cr: &mut bool) -> u64 {
    let splits = std::mem::replace(ends_in_cr, bytes.last() == Some(&b'\r')) && bytes.first() == Some(&b'\n');
    Eol::count(Some(Eol::Any), bytes) - u64::from(splits)
}

#[cfg(test)]
mod tests {
    use super::line_ends;

    #[test]
    fn a_line_end_is_one_however_long() {
        let mut ends_in_cr = false;
        let counts = [&b"a\r"[..], b"\nb", b"\n", b"\r", b"\r\n", b"c"].map(|block| line_ends(block, &mut ends_in_cr));
        assert_eq!(counts, [1, 0, 1, 1, 1, 0]);
    }
}
