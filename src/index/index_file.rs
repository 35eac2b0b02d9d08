//! Writes the file of an index that is new in this transaction, page by page.
//!
//! Pages arrive nearly in order. A page of an upper level arrives when it is full, long after its position among the
//! leaf pages was passed. As in nbtsort.c, a passed position is first filled with zeroes. No process reads the index
//! meanwhile.
//!
//! If several processes write parts of the file, each has blocks of its own, and reaches them as its pages arrive. One
//! process finally writes zeroes to the blocks that were not used. Pages may be missing only within a segment: earlier
//! segments are completed first, because crash recovery does not look beyond an incomplete segment.
//!
//! WAL contains full pages, as for any index build. It is not flushed: nothing refers to the file after a crash unless
//! the transaction commits. But as for a heap ([`crate::heap::append`]), no checkpoint may come between the WAL of a page and
//! its write, and each segment must be synced after it was written.

use std::ops::Range;

use pg_bulk_storage::page::Page;
use pgrx::pg_sys;

use crate::error::{Result, out_of_memory};
use crate::heap::append::Traits;
use crate::heap::segment::RelationFile;
use crate::server::call::{calls, variables};
use crate::server::compat;
use crate::server::points::{point, point_quiet};
use crate::server::relation::Relation;
use crate::server::section::{Redo, Section};

const BLCKSZ: usize = pg_sys::BLCKSZ as usize;
/// Pages per write: 1 MB, in WAL records with as many pages as possible. Each batch opens the file, allocates its
/// space, requests a sync and wakes the WAL writer. With batches of one record, this took a tenth of a build. A batch
/// must still be in the processor's cache when it is logged and written. With test points, batches are smaller: a small
/// index then has several batches of more than one record, with late pages between them.
pub const BATCH: usize = if cfg!(feature = "points") { 40 } else { 4 * pg_sys::XLR_MAX_BLOCK_ID as usize };

/// Maximum number of late pages that are kept. One batch of leaves produces one or two.
const MOST_LATE: usize = 32;

/// The file of an index.
pub struct IndexFile<'r> {
    relation: Relation<'r>,
    file: RelationFile<'r>,
    needs_wal: bool,
    /// Buffer for the next pages, from block `first` on. It grows to the largest batch so far. `count` pages are in
    /// use; `present` marks those that have arrived.
    batch: Vec<Page>,
    present: [bool; BATCH],
    first: u32,
    count: usize,
    /// Blocks between two pages belong to other processes.
    is_part: bool,
    /// With `is_part`: number of segments that are known to be complete.
    complete: u32,
    /// Pages that arrived after their position was passed.
    late: Vec<(u32, Page)>,
    /// Redo point when the latest batch was written.
    redo: Redo,
}

impl<'r> IndexFile<'r> {
    /// Creates a writer for an open relation whose file is new in this transaction, and empty. Guarded.
    pub fn new(relation: Relation<'r>) -> Result<IndexFile<'r>> {
        Self::with_traits(relation, Traits::of(relation), false)
    }

    /// Creates one of several writers to such a file, each with its own blocks. The leader determines the traits.
    /// Guarded.
    pub fn part(relation: Relation<'r>, traits: Traits) -> Result<IndexFile<'r>> {
        Self::with_traits(relation, traits, true)
    }

    fn with_traits(relation: Relation<'r>, traits: Traits, is_part: bool) -> Result<IndexFile<'r>> {
        Ok(IndexFile {
            relation,
            file: RelationFile::new(relation, traits.temporary)?,
            needs_wal: traits.needs_wal,
            batch: Vec::new(),
            present: [false; BATCH],
            first: 0,
            count: 0,
            is_part,
            complete: 0,
            late: Vec::new(),
            redo: Redo::now(),
        })
    }

    /// Writes a page to its block, or keeps it for the next batch. Guarded, and interruptible.
    pub fn put(&mut self, block: u32, page: &[u8; BLCKSZ]) -> Result<()> {
        if self.is_part {
            if block != self.first + self.count as u32 || self.count >= BATCH {
                self.flush()?;
                self.first = block;
            }
        } else if block < self.first {
            self.late.try_reserve(1).map_err(|_| out_of_memory())?;
            self.late.push((block, Page(*page)));
            return if self.late.len() < MOST_LATE { Ok(()) } else { self.write_late() };
        }
        while (block - self.first) as usize >= BATCH {
            self.make_room(BATCH)?;
            self.count = BATCH;
            self.flush()?;
        }
        let at = (block - self.first) as usize;
        self.make_room(at + 1)?;
        if let (Some(place), Some(present)) = (self.batch.get_mut(at), self.present.get_mut(at)) {
            place.0 = *page;
            *present = true;
            self.count = self.count.max(at + 1);
        }
        Ok(())
    }

    /// Writes zeroes to unused blocks. Guarded, and interruptible.
    pub fn blank(&mut self, blocks: Range<u32>) -> Result<()> {
        self.flush()?;
        for first in blocks.clone().step_by(BATCH) {
            let count = ((blocks.end - first) as usize).min(BATCH);
            self.make_room(count)?;
            let (Some(pages), Some(present)) = (self.batch.get_mut(..count), self.present.get_mut(..count)) else {
                break;
            };
            pages.iter_mut().for_each(|page| page.0.fill(0));
            present.fill(false);
            write(self.relation, &self.file, self.needs_wal, first, pages, present)?;
        }
        Ok(())
    }

    /// Writes all remaining pages. Guarded.
    pub fn finish(mut self) -> Result<()> {
        self.flush()?;
        self.write_late()
    }

    /// Writes the late pages. Guarded, and interruptible.
    fn write_late(&mut self) -> Result<()> {
        for (block, page) in &mut self.late {
            write(self.relation, &self.file, self.needs_wal, *block, std::slice::from_mut(page), &[true])?;
        }
        self.late.clear();
        Ok(())
    }

    /// Makes room for `count` pages in a batch.
    fn make_room(&mut self, count: usize) -> Result<()> {
        if let Some(more) = count.checked_sub(self.batch.len()) {
            self.batch.try_reserve(more).map_err(|_| out_of_memory())?;
            self.batch.resize_with(count, || Page::ZERO);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let (Some(pages), Some(present)) = (self.batch.get_mut(..self.count), self.present.get_mut(..self.count))
        else {
            return Ok(());
        };
        if pages.is_empty() {
            return Ok(());
        }
        for (page, _) in pages.iter_mut().zip(&*present).filter(|(_, present)| !**present) {
            page.0.fill(0);
        }
        let segment = RelationFile::segment_of(self.first + self.count as u32 - 1);
        if self.is_part && self.complete < segment {
            // Other processes may not have written their blocks there yet.
            self.file.complete_segments(self.complete..segment)?;
            self.complete = segment;
        }
        self.write_late()?;
        pgrx::check_for_interrupts!();
        if self.needs_wal {
            self.redo.let_checkpoint_pass();
        }
        let (Some(pages), Some(present)) = (self.batch.get_mut(..self.count), self.present.get(..self.count)) else {
            return Ok(());
        };
        write(self.relation, &self.file, self.needs_wal, self.first, pages, present)?;
        self.present.fill(false);
        self.first += self.count as u32;
        self.count = 0;
        Ok(())
    }
}

variables! {
    /// The end of the last WAL record of this transaction.
    pub fn last_record() -> u64 = XactLastRecEnd;
}

// SAFETY: the position is that of a record of this process.
calls! {
    fn wake_wal_writer(position: u64) = XLogSetAsyncXactLSN(position);
}

/// Logs the `present` pages, and sets their checksums. Guarded.
fn log(relation: Relation<'_>, needs_wal: bool, first: u32, pages: &mut [Page], present: &[bool]) {
    let present = (first..).zip(&mut *pages).zip(present).filter_map(|(page, present)| present.then_some(page));
    let (mut blocks, mut logged): (Vec<u32>, Vec<&mut Page>) = present.unzip();
    if needs_wal && !blocks.is_empty() {
        compat::log_newpages(relation, &mut blocks, &mut logged);
        // The commit need not wait for WAL that the WAL writer has flushed before.
        wake_wal_writer(last_record());
    }
    point_quiet!("index.logged");
    for (&block, page) in blocks.iter().zip(logged) {
        compat::set_checksum(page, block);
    }
}

/// Writes pages; those that are `present` are logged. Guarded.
fn write(
    relation: Relation<'_>,
    file: &RelationFile<'_>,
    needs_wal: bool,
    first: u32,
    pages: &mut [Page],
    present: &[bool],
) -> Result<()> {
    pgrx::check_for_interrupts!();
    let segments = file.open_segments(first, pages.len())?;
    point!("index.write");
    let section = Section::begin(needs_wal);
    log(relation, needs_wal, first, pages, present);
    let (_, outcome) = file.write(&segments.list, Page::bytes_of(pages), &section);
    drop(section);
    drop(segments);
    outcome
}
