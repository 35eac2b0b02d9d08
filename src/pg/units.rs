//! The files of a list as work for several processes.
//!
//! ```text
//!   files  | a    | b    | c: more than a stretch     | d    |
//!   units  | 0    | 1    | 2  | 3  | 4  | 5           | 6    |
//! ```
//!
//! A unit is a file, which a process reads from its start to its end, or a stretch of a large one. Units are given out and
//! have their turns as the stretches of a single file do ([`super::stretches`]), so which error is the first and in which
//! order ids are taken is as if one process read file after file. A process opens a file when it has its first unit of it.
//!
//! How lines of a large file end and where its first record begins, only its start can tell: whoever has its first unit says so,
//! and who has one of the others waits for that. Where a cut of it finds what stretches cannot deal with, that process reads
//! the rest of the file, the other units of the file are empty, and those of other files are not concerned.
//!
//! Ids are to ascend as the files do. They are taken when it is the unit's turn, for all of its records, whose number is not known
//! then: so line ends are counted, or records of the binary format. Whoever has a turn hands on no row before it has passed it: the queue might be full, and
//! who empties it wait for a turn.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU32, AtomicU64};

use pg_bulk_format::binary;
use pg_bulk_format::chunk::{Cutter, Edge};
use pg_bulk_format::dialect::Eol;
use pg_bulk_format::line::LINE_LIMIT;
use pg_bulk_format::reader::Place;
use pg_bulk_format::walk::Walk;

use super::chunk::changed;
use super::files::FileList;
use super::points::point;
use super::row::Rows;
use super::stages::{Stage, Stages};
use super::stream::Advance;
use super::stretches::{Grid, Stretches, eol_number, eol_of_number};
use crate::error::Result;

/// Where the first record of a large file begins is not known yet.
const UNKNOWN: u64 = u64::MAX;
/// One process reads all of it, or there is none.
const ONE_READS: u64 = u64::MAX - 1;
/// Bytes in which line ends are counted at a time.
const PIECE: u64 = 256 << 10;

/// What processes share of a file.
#[derive(Debug)]
#[repr(C)]
pub struct FileState {
    /// Where its first record begins.
    base: AtomicU64,
    /// Lines before that.
    lines: AtomicU64,
    /// How lines end.
    eol: AtomicU32,
    /// Somebody reads all that is left of it.
    ended: AtomicU32,
}

impl FileState {
    pub fn new() -> FileState {
        FileState {
            base: AtomicU64::new(UNKNOWN),
            lines: AtomicU64::new(0),
            eol: AtomicU32::new(0),
            ended: AtomicU32::new(0),
        }
    }

    fn place(&self) -> Place {
        let (offset, lines) = (self.base.load(SeqCst), self.lines.load(SeqCst));
        Place { eol: eol_of_number(self.eol.load(SeqCst)), offset, lines }
    }

    fn begin_at(&self, place: Place) {
        self.eol.store(eol_number(place.eol), SeqCst);
        self.lines.store(place.lines, SeqCst);
        self.base.store(place.offset, SeqCst);
    }
}

/// Which units there are.
#[derive(Debug)]
pub struct Units {
    /// The first one of each file, and behind them how many there are.
    first: Vec<u64>,
    /// Length of a stretch.
    len: u64,
}

impl Units {
    pub fn of(list: &FileList) -> Units {
        let len = Grid::from(0, 0).len;
        let mut first = vec![0];
        let mut count = 0;
        for file in &list.files {
            count += if file.splits { file.identity.size.div_ceil(len).max(1) } else { 1 };
            first.push(count);
        }
        Units { first, len }
    }

    /// Is a file of so many bytes worth being split?
    pub fn is_large(size: u64) -> bool {
        size > Grid::from(0, 0).len
    }

    pub fn count(&self) -> u64 {
        self.first.last().copied().unwrap_or(0)
    }

    /// A grid with as many stretches.
    pub fn grid(&self) -> Grid {
        Grid { base: 0, end: self.count() * self.len, len: self.len }
    }

    /// Which file a unit is of, the how manieth of how many.
    fn part(&self, unit: u64) -> (usize, u64, u64) {
        let file = self.first.partition_point(|first| *first <= unit).saturating_sub(1);
        let first = self.first.get(file).copied().unwrap_or(0);
        let next = self.first.get(file + 1).copied().unwrap_or(first + 1);
        (file, unit - first, next - first)
    }

    /// Which file a unit is of.
    pub fn file_of(&self, unit: u64) -> usize {
        self.part(unit).0
    }
}

/// One process's way through the units.
#[derive(Debug)]
pub struct Listed {
    units: Units,
    /// One for each file.
    states: *const FileState,
    /// Ids are taken for rows.
    takes_ids: bool,
    /// The large file that is open.
    open: Option<(usize, Box<Cutter>)>,
    /// The unit that is worked on.
    pub number: u64,
}

/// What became of a unit.
enum Step {
    /// There are records.
    Records,
    /// There are none in it.
    Empty,
    /// There is no use in going on.
    Over,
}

impl Listed {
    /// `states` are shared, and there as long as somebody works.
    pub fn new(list: &FileList, states: *const FileState, takes_ids: bool) -> Listed {
        Listed { units: Units::of(list), states, takes_ids, open: None, number: 0 }
    }

    pub fn units(&self) -> &Units {
        &self.units
    }

    fn state(&self, file: usize) -> &FileState {
        // SAFETY: there is one for each file, in memory that is there as long as processes work.
        unsafe { &*self.states.add(file) }
    }

    /// As [`super::chunks::Chunks::next`].
    pub fn next(
        &mut self,
        rows: &mut Rows,
        shared: &Stretches,
        process: usize,
        stages: &mut Stages,
        mut reserve: impl FnMut(u64) -> Result<()>,
        mark: impl Fn(u64, Place),
    ) -> Result<bool> {
        loop {
            let Some(unit) = shared.claim(process) else { return Ok(false) };
            self.number = unit;
            point!("chunk.claimed");
            let (file, part, parts) = self.units.part(unit);
            let step = if parts == 1 {
                self.begin_file(file, rows, shared, stages, &mut reserve, &mark)?
            } else {
                self.begin_part(file, part, rows, shared, stages, &mut reserve, &mark)?
            };
            match step {
                Step::Records => return Ok(true),
                Step::Empty => (),
                Step::Over => {
                    shared.rest(process);
                    return Ok(false);
                }
            }
        }
    }

    /// The unit is a file.
    fn begin_file(
        &mut self,
        file: usize,
        rows: &mut Rows,
        shared: &Stretches,
        stages: &mut Stages,
        reserve: &mut impl FnMut(u64) -> Result<()>,
        mark: &impl Fn(u64, Place),
    ) -> Result<Step> {
        self.open = None;
        let mut watch = stages.watch();
        rows.turn_to(file)?;
        let most = if self.takes_ids { most_records(rows, 0)? } else { 0 };
        point!("unit.counted");
        stages.lap(&mut watch, Stage::Read);
        let Some(edge) = shared.wait_turn(self.number) else { return Ok(Step::Over) };
        stages.lap(&mut watch, Stage::Turn);
        mark(self.number, Place { eol: Eol::Nl, offset: 0, lines: 0 });
        reserve(most)?;
        shared.pass_turn(self.number, edge);
        Ok(Step::Records)
    }

    /// The unit is a part of a large file.
    #[expect(clippy::too_many_arguments, reason = "one step of `next`")]
    fn begin_part(
        &mut self,
        file: usize,
        part: u64,
        rows: &mut Rows,
        shared: &Stretches,
        stages: &mut Stages,
        reserve: &mut impl FnMut(u64) -> Result<()>,
        mark: &impl Fn(u64, Place),
    ) -> Result<Step> {
        let unit = self.number;
        if part == 0 {
            self.open = None;
            rows.turn_to(file)?;
            let begin = first_record(rows)?;
            let state = self.state(file);
            match begin {
                Begin::At(place) => state.begin_at(place),
                Begin::Nowhere | Begin::Broken => state.base.store(ONE_READS, SeqCst),
            }
            shared.announce();
            if matches!(begin, Begin::Broken) {
                return self.begin_file(file, rows, shared, stages, reserve, mark);
            }
        }
        let state = self.state(file);
        let known = shared.wait_for(|| {
            if shared.is_over(unit) {
                return Some(false);
            }
            (state.base.load(SeqCst) != UNKNOWN).then_some(true)
        });
        if !known {
            return Ok(Step::Over);
        }
        let begin = state.place();
        let size = rows.stream().files().and_then(|list| list.files.get(file)).map_or(0, |file| file.identity.size);
        let offset = begin.offset.saturating_add(part.saturating_mul(self.units.len));
        if begin.offset == ONE_READS || offset >= size || state.ended.load(SeqCst) != 0 {
            return Ok(self.pass_by(shared));
        }
        let len = usize::try_from((size - offset).min(self.units.len)).unwrap_or(0);
        if self.open.as_ref().is_none_or(|(open, _)| *open != file) {
            if part > 0 {
                rows.turn_to(file)?;
                rows.take_names()?;
            }
            let Some(cutter) = rows.stream().cutter(begin) else { return Ok(self.pass_by(shared)) };
            self.open = Some((file, Box::new(cutter)));
        }
        let Some((_, cutter)) = &self.open else { return Ok(Step::Empty) };
        let stream = rows.stream_mut();
        stream.shrink(len);
        let mut watch = stages.watch();
        let mut stretch = stream.read_stretch(offset, len)?;
        stages.lap(&mut watch, Stage::Read);
        let survey = stream.survey(&mut stretch, cutter);
        stages.lap(&mut watch, Stage::Cut);
        let Some(edge) = shared.wait_turn(unit) else { return Ok(Step::Over) };
        stages.lap(&mut watch, Stage::Turn);
        point!("chunk.turn");
        // SAFETY: as in `state`, which `self.open` is no part of.
        let state = unsafe { &*self.states.add(file) };
        if state.ended.load(SeqCst) != 0 {
            shared.pass_turn(unit, edge);
            return Ok(Step::Empty);
        }
        let edge = if part == 0 { Edge::at(begin) } else { edge };
        let place = edge.place(begin.eol);
        mark(unit, place);
        let cut = cutter.cut(stream.stretch(&stretch), &survey, offset, edge);
        stages.lap(&mut watch, Stage::Cut);
        let is_last = offset + len as u64 >= size;
        let is_huge = cut.end.is_none() && offset + len as u64 - edge.record >= LINE_LIMIT as u64;
        if cut.suspicious || is_huge || (is_last && !cut.ends_with_record(len)) {
            state.ended.store(1, SeqCst);
            reserve(if self.takes_ids { most_records(rows, place.offset)? } else { 0 })?;
            shared.pass_turn(unit, edge);
            rows.stream_mut().resume(place)?;
            return Ok(Step::Records);
        }
        let end = cut.end.unwrap_or(0);
        reserve(cut.most_records)?;
        shared.pass_turn(unit, cut.edge);
        if end == 0 {
            return Ok(Step::Empty);
        }
        rows.stream_mut().begin_chunk(stretch, place, end)?;
        Ok(Step::Records)
    }

    /// There is nothing in this unit.
    fn pass_by(&self, shared: &Stretches) -> Step {
        match shared.wait_turn(self.number) {
            Some(edge) => {
                shared.pass_turn(self.number, edge);
                Step::Empty
            }
            None => Step::Over,
        }
    }
}

/// Where a file's first record begins.
enum Begin {
    At(Place),
    /// There is none.
    Nowhere,
    /// It cannot be read, or nothing tells how lines end.
    Broken,
}

/// Read a file up to its first record.
fn first_record(rows: &mut Rows) -> Result<Begin> {
    let mut lines = 0;
    loop {
        match rows.stream_mut().advance() {
            Ok(Advance::Header) => {
                lines = rows.reader().line_number();
                rows.take_header()?;
            }
            Ok(Advance::Record) => {
                let offset = rows.reader().record_offset();
                let eol = rows.reader().place_behind().map(|place| place.eol);
                return Ok(eol.map_or(Begin::Broken, |eol| Begin::At(Place { eol, offset, lines })));
            }
            Ok(Advance::End) => return Ok(Begin::Nowhere),
            Err(_) if rows.reader().goes_on() => return Ok(Begin::Broken),
            Err(error) => return Err(error),
        }
    }
}

/// How many records the open file has at most from an offset on. The leader saw to it that it is no compressed one.
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
    let mut buffer = vec![0; usize::try_from(size.min(PIECE)).unwrap_or(0)];
    let (mut count, mut ends_in_cr) = (1, false);
    let (mut walk, mut record) = (Walk::at(begin), begin);
    while offset < size {
        let len = usize::try_from((size - offset).min(PIECE)).unwrap_or(0);
        let piece = buffer.get_mut(..len).unwrap_or_default();
        source.read_exactly(piece, offset)?;
        if let Some(fields) = fields {
            if offset == 0 {
                let Some(first) = binary::first_record(piece) else { break };
                (walk, record) = (Walk::at(first), first);
            }
            let walked = walk.pass(piece, offset, record, fields);
            (count, record) = (count + walked.records, walked.record);
            if walked.is_odd {
                break;
            }
        } else {
            count += line_ends(piece, &mut ends_in_cr);
        }
        offset += len as u64;
    }
    if begin == 0 {
        source.rewind()?;
    }
    // What comes now would have no ids.
    source.end_at(size);
    Ok(count)
}

/// Line ends of any kind in a piece of a file. The piece before it may have ended in the middle of one.
fn line_ends(piece: &[u8], ends_in_cr: &mut bool) -> u64 {
    let mut count = memchr::memchr2_iter(b'\n', b'\r', piece).count();
    count -= memchr::memchr_iter(b'\r', piece).filter(|at| piece.get(at + 1) == Some(&b'\n')).count();
    count -= usize::from(*ends_in_cr && piece.first() == Some(&b'\n'));
    *ends_in_cr = piece.last() == Some(&b'\r');
    count as u64
}

#[cfg(test)]
mod tests {
    use super::line_ends;

    #[test]
    fn a_line_end_is_one_however_long() {
        let count = |pieces: &[&[u8]]| {
            let mut ends_in_cr = false;
            pieces.iter().map(|piece| line_ends(piece, &mut ends_in_cr)).sum::<u64>()
        };
        assert_eq!(count(&[b"a\nb\n\n"]), 3);
        assert_eq!(count(&[b"a\r\nb\r\n"]), 2);
        assert_eq!(count(&[b"a\rb\r\r"]), 3);
        assert_eq!(count(&[b"a\r", b"\nb", b"\n", b"\r", b"\r\n"]), 4);
        assert_eq!(count(&[b""]), 0);
    }
}
