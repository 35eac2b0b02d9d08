//! Tuple positions: the record of the file that a row of a heap was made from.
//!
//! Some errors of a row are found only when it is in the heap and its record is gone: a duplicate key, or a missing
//! parent. Then the file is read again, from the row's position on.
//!
//! ```text
//!   row ─► positions of its heap: ranges of consecutive records on one page ─► append: block numbers
//!             a worker's ─► queue ─┐
//!             the leader's ────────┴─► ranges of all processes ─► record, by reading the file from there
//! ```
//!
//! A range of rows that were consecutive records is one entry; in a load without rejects into one table, that is one
//! entry a page. So a gigabyte of input needs some megabytes of entries. They are kept only if indexes or foreign keys
//! may raise an error.
//!
//! The tricky point is "consecutive": between two rows of a range there is no record at all. A record that is rejected,
//! filtered, or sent to the leader ends the range, and so does a chunk. So reading on from the range's first record
//! returns the records of its rows in order.
//!
//! If the file cannot be read again (programs, FIFOs, files that are converted), a position is a line number, and
//! nothing else is known of the row.
//!
//! A load may have several files, one after the other. Each range names its file and ends with it, though the page goes
//! on. The state to read an earlier file again is kept in [`Earlier`].

mod find;

use std::collections::BTreeMap;

use pgrx::PgSqlErrorCode as Code;

pub use self::find::{Earlier, FileProperties, ReadPosition};
use crate::error::{Error, Result};
use crate::server::buf_file::{BufFile, Place};
use crate::server::memory_context::MemoryContext;

/// Ranges of a heap that are kept in memory; further ranges go to a temporary file.
const IN_MEMORY: usize = 1 << 18;
/// Bytes of a file between positions from which it can be read again.
pub const ANCHOR_EVERY: u64 = 1 << 20;

/// In a list of files, the file's number is in the bits above the byte position.
const FILE_BITS: u32 = 44;

/// Combines a file of a list and a position in it into one number.
pub fn in_file(file: u64, position: u64) -> u64 {
    (file << FILE_BITS) | position
}

/// The file of such a position.
pub fn file_of(position: u64) -> usize {
    usize::try_from(position >> FILE_BITS).unwrap_or(usize::MAX)
}

/// Kind of tuple positions that are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traces {
    Nothing,
    /// Line numbers, of a file that cannot be read twice.
    Lines,
    /// Positions in the file.
    Positions,
}

/// The tuple position of a record.
#[derive(Debug, Clone, Copy)]
pub struct Origin {
    /// Number of the record in its process. It grows by more than one after a gap.
    pub number: u64,
    /// First byte of the record in the file, or its line.
    pub position: u64,
}

impl Origin {
    pub const NONE: Origin = Origin { number: 0, position: 0 };
}

/// Adjacent rows that were consecutive records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct TidRange {
    /// Position of the record that is `skip` records before the first row.
    position: u64,
    block: u32,
    first: u16,
    count: u16,
    skip: u32,
    /// Number of the file among the load's files.
    file: u32,
}

/// A record: the record at a position of a file, or the one that is `behind` records after it. Ordered by file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct RecordPosition {
    pub file: u32,
    pub position: u64,
    pub behind: u64,
}

impl TidRange {
    /// The record of the row at this position of the range's block, if the row is in the range.
    fn place(&self, block: u32, offset: u16) -> Option<RecordPosition> {
        let behind = offset.checked_sub(self.first).filter(|&behind| behind < self.count)?;
        let behind = u64::from(self.skip) + u64::from(behind);
        let place = RecordPosition { file: self.file, position: self.position, behind };
        (self.block == block).then_some(place)
    }
}

/// Tuple positions of a heap's rows.
#[derive(Debug)]
pub struct Trail {
    /// Positions are line numbers.
    lines: bool,
    /// Ranges on pages that are not appended yet: their blocks are numbers of pages in the batch.
    pending: Vec<TidRange>,
    placed: Vec<TidRange>,
    /// Number of the last record.
    last: u64,
    /// The file that rows come from.
    file: u32,
}

impl Trail {
    pub fn new(lines: bool, file: u32) -> Trail {
        Trail { lines, pending: Vec::new(), placed: Vec::new(), last: 0, file }
    }

    /// Goes on with another file.
    pub fn switch_file(&mut self, lines: bool, file: u32) {
        (self.lines, self.file) = (lines, file);
    }

    /// Notes a row on a page of the batch.
    #[inline]
    pub fn follow(&mut self, page: u32, offset: u16, origin: Origin) {
        if origin.number == self.last.wrapping_add(1)
            && let Some(range) = self.pending.last_mut()
            && (range.block, range.file) == (page, self.file)
            && (!self.lines || origin.position == range.position + u64::from(range.count))
        {
            range.count += 1;
        } else {
            let Origin { position, .. } = origin;
            let file = self.file;
            self.pending.push(TidRange { position, block: page, first: offset, count: 1, file, ..TidRange::default() });
        }
        self.last = origin.number;
    }

    /// The first `pages` pages of the batch were appended from block `first` on. Later pages are renumbered.
    pub fn place(&mut self, first: u32, pages: u32) {
        let count = self.pending.partition_point(|range| range.block < pages);
        self.placed.extend(self.pending.drain(..count).map(|range| TidRange { block: first + range.block, ..range }));
        for range in &mut self.pending {
            range.block -= pages;
        }
    }

    /// The rows of the batch, in order, were inserted at these positions.
    pub fn place_each(&mut self, places: impl Iterator<Item = (u32, u16)>) {
        let pending = std::mem::take(&mut self.pending);
        let rows = pending.iter().flat_map(|range| (0..u32::from(range.count)).map(move |behind| (range, behind)));
        let begin = self.placed.len();
        let mut from = None;
        for ((range, behind), (block, offset)) in rows.zip(places) {
            if let Some(last) = self.placed.get_mut(begin..).and_then(<[_]>::last_mut)
                && behind > 0
                && from == Some(range.position)
                && last.block == block
                && last.first + last.count == offset
            {
                last.count += 1;
            } else {
                let skip = range.skip + behind;
                self.placed.push(TidRange { block, first: offset, count: 1, skip, ..*range });
            }
            from = Some(range.position);
        }
    }

    /// Notes a row that was inserted on its own.
    pub fn place_one(&mut self, block: u32, offset: u16, origin: Origin) {
        let Origin { position, number } = origin;
        let file = self.file;
        self.placed.push(TidRange { position, block, first: offset, count: 1, file, ..TidRange::default() });
        self.last = number;
    }

    /// Takes the ranges of appended rows.
    pub fn take(&mut self) -> Vec<TidRange> {
        std::mem::take(&mut self.placed)
    }

    pub fn len(&self) -> usize {
        self.placed.len()
    }
}

/// Ranges as bytes.
pub fn bytes_of(ranges: &[TidRange]) -> &[u8] {
    // SAFETY: plain data without padding.
    unsafe { std::slice::from_raw_parts(ranges.as_ptr().cast(), size_of_val(ranges)) }
}

/// Bytes as ranges.
fn ranges_of(bytes: &[u8]) -> impl Iterator<Item = TidRange> {
    // SAFETY: the bytes are as long as a range, which is plain data.
    bytes.chunks_exact(size_of::<TidRange>()).map(|one| unsafe { one.as_ptr().cast::<TidRange>().read_unaligned() })
}

/// Ranges of a relation, in the order of arrival.
#[derive(Debug)]
struct Tape {
    memory: Vec<TidRange>,
    file: Option<BufFile>,
    /// Number of ranges in the file.
    spilled: u64,
}

impl Tape {
    const fn new() -> Tape {
        Tape { memory: Vec::new(), file: None, spilled: 0 }
    }

    /// Writes the ranges to the file. Guarded.
    fn spill(&mut self) {
        let file = self.file.get_or_insert_with(|| BufFile::temporary(MemoryContext::of_transaction()));
        file.write(bytes_of(&self.memory));
        self.spilled += self.memory.len() as u64;
        self.memory.clear();
    }

    /// Visits each range. Guarded.
    fn for_each(&mut self, mut look: impl FnMut(&TidRange)) -> Result<()> {
        if self.file.is_some() {
            self.spill();
        }
        let Some(file) = &self.file else {
            self.memory.iter().for_each(look);
            return Ok(());
        };
        file.go_to(Place::default());
        let mut some = vec![0; 4096 * size_of::<TidRange>()];
        let mut left = self.spilled;
        while left > 0 {
            pgrx::check_for_interrupts!();
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(4096);
            let bytes = some.get_mut(..count * size_of::<TidRange>()).unwrap_or_default();
            if !file.fill(bytes) {
                let message = "could not read the positions of the rows of the load";
                return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, message));
            }
            ranges_of(bytes).for_each(|range| look(&range));
            left -= count as u64;
        }
        // The file position is at the end again, for further writes.
        Ok(())
    }
}

/// Tuple positions of all processes' rows, in the leader.
#[derive(Debug)]
pub struct Origins {
    /// One for each of the load's relations.
    tapes: Vec<Tape>,
    /// Bytes at which records of the current file begin, and the number of lines before them; unordered.
    pub anchors: Vec<(u64, u64)>,
    /// Lengths of the records that [ended early](crate::rows::row::Rows::end_early), by file and position.
    early_ends: BTreeMap<(u32, u64), u64>,
    /// The number of that file.
    pub file: u32,
}

impl Origins {
    pub fn new(relations: usize) -> Origins {
        Origins {
            tapes: (0..relations).map(|_| Tape::new()).collect(),
            anchors: Vec::new(),
            early_ends: BTreeMap::new(),
            file: 0,
        }
    }

    /// Adds records of the current file that ended early: position and length.
    pub fn add_early_ends(&mut self, ends: impl IntoIterator<Item = (u64, u64)>) {
        let file = self.file;
        self.early_ends.extend(ends.into_iter().map(|(position, length)| ((file, position), length)));
    }

    /// Adds ranges of a relation. Guarded.
    pub fn add(&mut self, relation: usize, ranges: &[TidRange]) {
        let Some(tape) = self.tapes.get_mut(relation) else { return };
        tape.memory.extend_from_slice(ranges);
        if tape.memory.len() >= IN_MEMORY {
            tape.spill();
        }
    }

    /// Adds a worker's ranges, made by [`bytes_of`], all of the current file. Guarded.
    pub fn add_bytes(&mut self, relation: usize, bytes: &[u8]) {
        let file = self.file;
        let ranges: Vec<TidRange> = ranges_of(bytes).map(|range| TidRange { file, ..range }).collect();
        self.add(relation, &ranges);
    }

    /// Visits all ranges of a relation: block, first offset number, number of rows, and the record of the first row.
    /// Guarded.
    pub fn for_each(&mut self, relation: usize, mut look: impl FnMut(u32, u16, u16, RecordPosition)) -> Result<()> {
        let Some(tape) = self.tapes.get_mut(relation) else { return Ok(()) };
        tape.for_each(|range| {
            let place = RecordPosition { file: range.file, position: range.position, behind: u64::from(range.skip) };
            look(range.block, range.first, range.count, place);
        })
    }

    /// The record of a row of a relation. Guarded.
    pub fn of_row(&mut self, relation: usize, block: u32, offset: u16) -> Result<Option<RecordPosition>> {
        let mut found = None;
        let Some(tape) = self.tapes.get_mut(relation) else { return Ok(None) };
        tape.for_each(|range| found = found.or_else(|| range.place(block, offset)))?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(trail: &mut Trail, rows: &[(u32, u16)]) -> Vec<Option<(u64, u64)>> {
        let ranges = trail.take();
        let find = |&(block, offset): &(u32, u16)| ranges.iter().find_map(|s| s.place(block, offset));
        rows.iter().map(|row| find(row).map(|place| (place.position, place.behind))).collect()
    }

    fn origin(number: u64, position: u64) -> Origin {
        Origin { number, position }
    }

    #[test]
    fn consecutive_records_are_one_range() {
        let mut trail = Trail::new(false, 0);
        trail.follow(0, 1, origin(1, 0));
        trail.follow(0, 2, origin(2, 10));
        trail.follow(0, 3, origin(4, 30));
        trail.follow(1, 1, origin(5, 40));
        trail.follow(1, 2, origin(6, 50));
        trail.place(7, 1);
        assert_eq!(trail.len(), 2);
        trail.follow(0, 3, origin(7, 60));
        trail.place(20, 1);
        let rows = [(7, 1), (7, 2), (7, 3), (7, 4), (20, 1), (20, 3), (8, 1)];
        let expected = [Some((0, 0)), Some((0, 1)), Some((30, 0)), None, Some((40, 0)), Some((40, 2)), None];
        assert_eq!(places(&mut trail, &rows), expected);
    }

    #[test]
    fn rows_are_found_wherever_they_went() {
        let mut trail = Trail::new(false, 0);
        for number in 1..=4 {
            trail.follow(0, number as u16, origin(number, number * 10));
        }
        trail.follow(0, 5, origin(6, 60));
        trail.place_each([(3, 9), (4, 1), (4, 2), (4, 5), (4, 6)].into_iter());
        trail.place_one(9, 2, origin(7, 70));
        let rows = [(3, 9), (4, 1), (4, 2), (4, 5), (4, 6), (9, 2)];
        let expected = [(10, 0), (10, 1), (10, 2), (10, 3), (60, 0), (70, 0)].map(Some);
        assert_eq!(places(&mut trail, &rows), expected);
    }

    #[test]
    fn lines_that_are_not_consecutive_end_a_range() {
        let mut trail = Trail::new(true, 0);
        for (number, line) in [(1, 1), (2, 2), (3, 5)] {
            trail.follow(0, number as u16, origin(number, line));
        }
        trail.place(0, 1);
        assert_eq!(places(&mut trail, &[(0, 1), (0, 2), (0, 3)]), [(1, 0), (1, 1), (5, 0)].map(Some));
    }
    #[test]
    fn a_file_ends_a_range() {
        let mut trail = Trail::new(false, 0);
        trail.follow(0, 1, origin(1, 0));
        trail.follow(0, 2, origin(2, 10));
        trail.switch_file(false, 1);
        trail.follow(0, 3, origin(3, 0));
        trail.follow(0, 4, origin(4, 10));
        trail.place_each([(1, 1), (1, 2), (1, 3), (1, 4)].into_iter());
        let ranges = trail.take();
        let place = |offset| ranges.iter().find_map(|s| s.place(1, offset));
        let at = |file, position, behind| Some(RecordPosition { file, position, behind });
        assert_eq!([1, 2, 3, 4].map(place), [at(0, 0, 0), at(0, 0, 1), at(1, 0, 0), at(1, 0, 1)]);
    }
}
