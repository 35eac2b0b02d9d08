//! Which record of the file a row of a heap was.
//!
//! What is wrong with a row may turn out when it is in the heap, and the record is long gone: its key is there twice, or what
//! it refers to is not there. Then the file is read once more, from where the row was.
//!
//! ```text
//!   row ─► trail of its heap: stretches of consecutive records on one page ─► append: block numbers
//!             a worker's ─► queue ─┐
//!             the leader's ────────┴─► origins: stretches of all processes ─► record, by reading from there
//! ```
//!
//! A stretch of rows that were consecutive records is one entry: a page of a clean load into one table. So what is remembered
//! of a gigabyte is some megabytes, and it is only remembered where there are indexes or foreign keys that may complain.
//!
//! The tricky point is what "consecutive" means: between two rows of a stretch there is no record at all. Records that are left
//! out, filtered, or sent elsewhere end it, and so does a chunk. Who reads the file again from the stretch's first record comes
//! by the others in their order.
//!
//! Where the file cannot be read again (programs, FIFOs, files that are converted), a position is a line number, and that is all
//! that can be said of a row.
//!
//! A load may have several files, one after the other: a stretch is of one of them, and says of which. Where a file ends, so does the
//! stretch, though pages go on. What it takes to read a file again that is done is kept with it ([`Earlier`]).

mod earlier;
mod find;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

pub use self::earlier::Earlier;
pub use self::find::{Source, Target};
use crate::error::{Error, Result};

/// Stretches of a heap that are kept in memory; more go to a file.
const IN_MEMORY: usize = 1 << 18;
/// Bytes of a file between places from which on it can be read again.
pub const ANCHOR_EVERY: u64 = 1 << 20;

/// Of several files, which one it is stands before the position in it.
const FILE_BITS: u32 = 44;

/// The position in a load of several files that is one in a file.
pub fn in_file(file: u64, position: u64) -> u64 {
    (file << FILE_BITS) | position
}

/// The file of that position.
pub fn file_of(position: u64) -> usize {
    usize::try_from(position >> FILE_BITS).unwrap_or(usize::MAX)
}

/// What is remembered of where rows came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traces {
    Nothing,
    /// Lines, of what cannot be read twice.
    Lines,
    /// Positions in the file.
    Positions,
}

/// A record on its way into a heap.
#[derive(Debug, Clone, Copy)]
pub struct Origin {
    /// Its number among those of its process. After a gap it is more than one higher.
    pub number: u64,
    /// Where it begins in the file, or its line.
    pub position: u64,
}

impl Origin {
    pub const NONE: Origin = Origin { number: 0, position: 0 };
}

/// Rows next to each other that were consecutive records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Stretch {
    /// Of the record that is as many records before the first row as `skip` says.
    position: u64,
    block: u32,
    first: u16,
    count: u16,
    skip: u32,
    /// Number of the file among those of the load.
    file: u32,
}

/// Which record it was: so many behind the one at a position of a file. Ascends in the order of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Place {
    pub file: u32,
    pub position: u64,
    pub behind: u64,
}

impl Stretch {
    /// Where the row at this place of the stretch's block came from, if it is one of its rows.
    fn place(&self, block: u32, offset: u16) -> Option<Place> {
        let behind = offset.checked_sub(self.first).filter(|&behind| behind < self.count)?;
        let behind = u64::from(self.skip) + u64::from(behind);
        let place = Place { file: self.file, position: self.position, behind };
        (self.block == block).then_some(place)
    }
}

/// What a heap remembers of its rows.
#[derive(Debug)]
pub struct Trail {
    /// Positions are lines.
    lines: bool,
    /// On pages that are not appended yet: their blocks are numbers of pages in the batch.
    pending: Vec<Stretch>,
    placed: Vec<Stretch>,
    /// Number of the last record.
    last: u64,
    /// The file that rows come from.
    file: u32,
}

impl Trail {
    pub fn new(lines: bool, file: u32) -> Trail {
        Trail { lines, pending: Vec::new(), placed: Vec::new(), last: 0, file }
    }

    /// From now on rows come from another file.
    pub fn turn_to(&mut self, lines: bool, file: u32) {
        (self.lines, self.file) = (lines, file);
    }

    /// A row went to a page of the batch.
    #[inline]
    pub fn follow(&mut self, page: u32, offset: u16, origin: Origin) {
        if origin.number == self.last.wrapping_add(1)
            && let Some(stretch) = self.pending.last_mut()
            && (stretch.block, stretch.file) == (page, self.file)
            && (!self.lines || origin.position == stretch.position + u64::from(stretch.count))
        {
            stretch.count += 1;
        } else {
            let Origin { position, .. } = origin;
            let file = self.file;
            self.pending.push(Stretch { position, block: page, first: offset, count: 1, file, ..Stretch::default() });
        }
        self.last = origin.number;
    }

    /// The first `pages` pages of the batch are blocks from `first` on. Those behind them are numbered anew.
    pub fn place(&mut self, first: u32, pages: u32) {
        let count = self.pending.partition_point(|stretch| stretch.block < pages);
        self.placed
            .extend(self.pending.drain(..count).map(|stretch| Stretch { block: first + stretch.block, ..stretch }));
        for stretch in &mut self.pending {
            stretch.block -= pages;
        }
    }

    /// The rows of the batch, in order, went to these places.
    pub fn place_each(&mut self, places: impl Iterator<Item = (u32, u16)>) {
        let pending = std::mem::take(&mut self.pending);
        let rows =
            pending.iter().flat_map(|stretch| (0..u32::from(stretch.count)).map(move |behind| (stretch, behind)));
        let begin = self.placed.len();
        let mut from = None;
        for ((stretch, behind), (block, offset)) in rows.zip(places) {
            if let Some(last) = self.placed.get_mut(begin..).and_then(<[_]>::last_mut)
                && behind > 0
                && from == Some(stretch.position)
                && last.block == block
                && last.first + last.count == offset
            {
                last.count += 1;
            } else {
                let skip = stretch.skip + behind;
                self.placed.push(Stretch { block, first: offset, count: 1, skip, ..*stretch });
            }
            from = Some(stretch.position);
        }
    }

    /// A row went there.
    pub fn place_one(&mut self, block: u32, offset: u16, origin: Origin) {
        let Origin { position, number } = origin;
        let file = self.file;
        self.placed.push(Stretch { position, block, first: offset, count: 1, file, ..Stretch::default() });
        self.last = number;
    }

    /// What is known by now of rows that are in.
    pub fn take(&mut self) -> Vec<Stretch> {
        std::mem::take(&mut self.placed)
    }

    pub fn len(&self) -> usize {
        self.placed.len()
    }
}

/// Stretches as bytes.
pub fn bytes_of(stretches: &[Stretch]) -> &[u8] {
    // SAFETY: plain data without padding.
    unsafe { std::slice::from_raw_parts(stretches.as_ptr().cast(), size_of_val(stretches)) }
}

/// Stretches of a relation, as they come.
#[derive(Debug)]
struct Tape {
    memory: Vec<Stretch>,
    file: *mut pg_sys::BufFile,
    /// Stretches in the file.
    spilled: u64,
}

impl Tape {
    const fn new() -> Tape {
        Tape { memory: Vec::new(), file: std::ptr::null_mut(), spilled: 0 }
    }

    /// Guarded.
    fn spill(&mut self) {
        // SAFETY: guarded calls; the file ends with the transaction.
        unsafe {
            if self.file.is_null() {
                let old = pg_sys::MemoryContextSwitchTo(pg_sys::CurTransactionContext);
                pg_sys::PrepareTempTablespaces();
                self.file = pg_sys::BufFileCreateTemp(false);
                pg_sys::MemoryContextSwitchTo(old);
            }
            let bytes = size_of_val(&*self.memory);
            pg_sys::BufFileWrite(self.file, self.memory.as_mut_ptr().cast(), bytes);
        }
        self.spilled += self.memory.len() as u64;
        self.memory.clear();
    }

    /// Look at each stretch. Guarded.
    fn for_each(&mut self, mut look: impl FnMut(&Stretch)) -> Result<()> {
        if !self.file.is_null() {
            self.spill();
            let mut some = vec![Stretch::default(); 4096];
            // SAFETY: guarded calls on an open file, with room for so many.
            unsafe { pg_sys::BufFileSeek(self.file, 0, 0, libc::SEEK_SET) };
            let mut left = self.spilled;
            while left > 0 {
                pgrx::check_for_interrupts!();
                let count = usize::try_from(left).unwrap_or(usize::MAX).min(some.len());
                let len = count * size_of::<Stretch>();
                // SAFETY: as above.
                let got = unsafe { pg_sys::BufFileRead(self.file, some.as_mut_ptr().cast(), len) };
                if got != len {
                    let message = "could not read the positions of the rows of the load";
                    return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, message));
                }
                some.iter().take(count).for_each(&mut look);
                left -= count as u64;
            }
            // What comes is written behind it.
            return Ok(());
        }
        self.memory.iter().for_each(look);
        Ok(())
    }
}

/// Where the rows of all processes came from; the leader's.
#[derive(Debug)]
pub struct Origins {
    /// One for each of the load's relations.
    tapes: Vec<Tape>,
    /// Where records of the current file begin, and the lines before, in no order.
    pub anchors: Vec<(u64, u64)>,
    /// The number of that file.
    pub file: u32,
}

impl Origins {
    pub fn new(relations: usize) -> Origins {
        Origins { tapes: (0..relations).map(|_| Tape::new()).collect(), anchors: Vec::new(), file: 0 }
    }

    /// Remember stretches of a relation. Guarded.
    pub fn add(&mut self, relation: usize, stretches: &[Stretch]) {
        let Some(tape) = self.tapes.get_mut(relation) else { return };
        tape.memory.extend_from_slice(stretches);
        if tape.memory.len() >= IN_MEMORY {
            tape.spill();
        }
    }

    /// The same of what [`bytes_of`] made of a worker's, which are all of the current file. Guarded.
    pub fn add_bytes(&mut self, relation: usize, bytes: &[u8]) {
        let file = self.file;
        let stretch = |bytes: &[u8]| {
            // SAFETY: as long as a stretch, which is plain data.
            let stretch = unsafe { bytes.as_ptr().cast::<Stretch>().read_unaligned() };
            Stretch { file, ..stretch }
        };
        let stretches: Vec<Stretch> = bytes.chunks_exact(size_of::<Stretch>()).map(stretch).collect();
        self.add(relation, &stretches);
    }

    /// Look at all stretches of a relation: block, first offset number, number of rows, and where the first came from.
    /// Guarded.
    pub fn for_each(&mut self, relation: usize, mut look: impl FnMut(u32, u16, u16, Place)) -> Result<()> {
        let Some(tape) = self.tapes.get_mut(relation) else { return Ok(()) };
        tape.for_each(|stretch| {
            let place = Place { file: stretch.file, position: stretch.position, behind: u64::from(stretch.skip) };
            look(stretch.block, stretch.first, stretch.count, place);
        })
    }

    /// Where a row of a relation came from. Guarded.
    pub fn of_row(&mut self, relation: usize, block: u32, offset: u16) -> Result<Option<Place>> {
        let mut found = None;
        let Some(tape) = self.tapes.get_mut(relation) else { return Ok(None) };
        tape.for_each(|stretch| found = found.or_else(|| stretch.place(block, offset)))?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(trail: &mut Trail, rows: &[(u32, u16)]) -> Vec<Option<(u64, u64)>> {
        let stretches = trail.take();
        let find = |&(block, offset): &(u32, u16)| stretches.iter().find_map(|s| s.place(block, offset));
        rows.iter().map(|row| find(row).map(|place| (place.position, place.behind))).collect()
    }

    fn origin(number: u64, position: u64) -> Origin {
        Origin { number, position }
    }

    #[test]
    fn consecutive_records_are_one_stretch() {
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
    fn lines_that_are_not_consecutive_end_a_stretch() {
        let mut trail = Trail::new(true, 0);
        for (number, line) in [(1, 1), (2, 2), (3, 5)] {
            trail.follow(0, number as u16, origin(number, line));
        }
        trail.place(0, 1);
        assert_eq!(places(&mut trail, &[(0, 1), (0, 2), (0, 3)]), [(1, 0), (1, 1), (5, 0)].map(Some));
    }
    #[test]
    fn a_file_ends_a_stretch() {
        let mut trail = Trail::new(false, 0);
        trail.follow(0, 1, origin(1, 0));
        trail.follow(0, 2, origin(2, 10));
        trail.turn_to(false, 1);
        trail.follow(0, 3, origin(3, 0));
        trail.follow(0, 4, origin(4, 10));
        trail.place_each([(1, 1), (1, 2), (1, 3), (1, 4)].into_iter());
        let stretches = trail.take();
        let place = |offset| stretches.iter().find_map(|s| s.place(1, offset));
        let at = |file, position, behind| Some(Place { file, position, behind });
        assert_eq!([1, 2, 3, 4].map(place), [at(0, 0, 0), at(0, 0, 1), at(1, 0, 0), at(1, 0, 1)]);
    }
}
