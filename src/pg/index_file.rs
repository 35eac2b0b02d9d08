//! Writing the file of an index that is new in this transaction, page by page.
//!
//! Pages come nearly in order: those of the leaf level one after the other, those above them when they are full, to take a
//! place that was passed long before. So what is passed is written as zeroes first, as nbtsort.c does it. Nobody reads the
//! index meanwhile.
//!
//! Where several processes write parts of the file, each has blocks of its own, which it goes on to as they come. What nobody
//! has used in the end is written as zeroes by one of them. Only within a segment may pages be missing meanwhile: the one before
//! is made complete first, or the server would not look beyond it if it has to recover.
//!
//! WAL are full pages, as of any index that is built. It is not flushed, since nothing refers to the file after a crash
//! unless the transaction commits. But as with a heap ([`super::append`]) no checkpoint may come between a page's WAL and
//! the page, and each segment is to be synced after it was written.

use std::ffi::c_char;
use std::ops::Range;

use pgrx::pg_sys;

use super::append::Traits;
use super::compat;
use super::points::{point, point_quiet};
use super::section::Section;
use super::segment::RelationFile;
use crate::error::{Result, out_of_memory};

const BLCKSZ: usize = pg_sys::BLCKSZ as usize;
const MAIN: pg_sys::ForkNumber::Type = pg_sys::ForkNumber::MAIN_FORKNUM;
/// Pages that are written at once: 1 MB, in WAL records of as many as go into one. For each batch the file is opened, its space
/// allocated, a sync asked for, and the WAL writer woken, which took a tenth of a build with batches of one record. What a batch
/// has must be in the processor's cache still when it is logged and written. Where tests can stop a write, small indexes are to
/// have several, and late pages between them, of more than one record.
pub const BATCH: usize = if cfg!(feature = "points") { 40 } else { 4 * pg_sys::XLR_MAX_BLOCK_ID as usize };

#[repr(C, align(4096))]
struct AlignedPage([u8; BLCKSZ]);

/// The file of an index.
pub struct IndexFile {
    relation: pg_sys::Relation,
    file: RelationFile,
    needs_wal: bool,
    /// Room for pages to be written next, from block `first` on, as many as there have been at once; `count` of them, and which
    /// are there.
    batch: Vec<AlignedPage>,
    present: [bool; BATCH],
    first: u32,
    count: usize,
    /// What lies between two pages is others'.
    is_part: bool,
    /// Segments that are known to be complete then.
    complete: u32,
}

impl IndexFile {
    /// For an open relation whose file is new in this transaction, and empty. Guarded.
    pub fn new(relation: pg_sys::Relation) -> Result<IndexFile> {
        // SAFETY: the caller's relation.
        let traits = unsafe { Traits::of(relation) };
        Self::with_traits(relation, traits, false)
    }

    /// One of several that write to such a file, each its own blocks. Who has made the file knows its traits. Guarded.
    pub fn part(relation: pg_sys::Relation, traits: Traits) -> Result<IndexFile> {
        Self::with_traits(relation, traits, true)
    }

    fn with_traits(relation: pg_sys::Relation, traits: Traits, is_part: bool) -> Result<IndexFile> {
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
        })
    }

    /// Put a page in its place. Guarded, and interruptible.
    pub fn put(&mut self, block: u32, page: &[u8; BLCKSZ]) -> Result<()> {
        if self.is_part {
            if block != self.first + self.count as u32 || self.count >= BATCH {
                self.flush()?;
                self.first = block;
            }
        } else if block < self.first {
            let mut late = AlignedPage(*page);
            return write(self.relation, &self.file, self.needs_wal, block, std::slice::from_mut(&mut late), &[true]);
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

    /// Write zeroes where nobody has written a page. Guarded, and interruptible.
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

    /// Write what is left. Guarded.
    pub fn finish(mut self) -> Result<()> {
        self.flush()
    }

    /// Room for so many pages in a batch.
    fn make_room(&mut self, count: usize) -> Result<()> {
        if let Some(more) = count.checked_sub(self.batch.len()) {
            self.batch.try_reserve(more).map_err(|_| out_of_memory())?;
            self.batch.resize_with(count, || AlignedPage([0; BLCKSZ]));
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
            // Others may have blocks there that they have not written yet.
            self.file.complete_segments(self.complete..segment)?;
            self.complete = segment;
        }
        write(self.relation, &self.file, self.needs_wal, self.first, pages, present)?;
        present.fill(false);
        self.first += self.count as u32;
        self.count = 0;
        Ok(())
    }
}

/// Write pages; those that are `present` are logged. Guarded.
fn write(
    relation: pg_sys::Relation,
    file: &RelationFile,
    needs_wal: bool,
    first: u32,
    pages: &mut [AlignedPage],
    present: &[bool],
) -> Result<()> {
    pgrx::check_for_interrupts!();
    let pieces = file.open_pieces(first, pages.len())?;
    point!("index.write");
    let section = Section::begin(needs_wal);
    let mut blocks: Vec<u32> = Vec::with_capacity(pages.len());
    let mut logged: Vec<*mut c_char> = Vec::with_capacity(pages.len());
    for ((block, page), _) in (first..).zip(&mut *pages).zip(present).filter(|(_, present)| **present) {
        blocks.push(block);
        logged.push(page.0.as_mut_ptr().cast());
    }
    if needs_wal && !blocks.is_empty() {
        // SAFETY: guarded calls on pages of our own, as many as there are block numbers; the relation is open.
        unsafe {
            compat::log_newpages(relation, MAIN, &mut blocks, &mut logged);
            // What the WAL writer has on disk by the commit need not be waited for.
            pg_sys::XLogSetAsyncXactLSN(pg_sys::XactLastRecEnd);
        }
    }
    point_quiet!("index.logged");
    for (&block, &page) in blocks.iter().zip(&logged) {
        // SAFETY: a page of our own.
        unsafe { pg_sys::PageSetChecksumInplace(page, block) };
    }
    // SAFETY: pages are arrays of bytes, one after the other.
    let bytes = unsafe { std::slice::from_raw_parts(pages.as_ptr().cast::<u8>(), size_of_val(pages)) };
    let (_, outcome) = file.write(&pieces.list, bytes, &section);
    drop(section);
    drop(pieces);
    outcome
}
