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
//!
//! A file of more than one batch that one process writes is written by a thread ([`super::page_writer`]) while the next batch is
//! built. No checkpoint is kept from beginning meanwhile, for who builds may have to look at rows, which takes its time. Instead
//! what was under way when one began is logged and written once more: the checkpoint may be over before the thread was done, so
//! that neither a crash nor a backup finds the pages in the WAL behind it, nor all of them in the file. Pages whose place is
//! passed wait until nothing is under way, since that may be the zeroes which take their place until then.

use std::ffi::c_char;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use pgrx::pg_sys;

use super::append::Traits;
use super::compat;
use super::page_writer::{AlignedPage, Batch, PageWriter, bytes_of};
use super::points::{point, point_errno, point_quiet};
use super::section::{Redo, Section};
use super::segment::RelationFile;
use crate::error::{Result, out_of_memory};

const BLCKSZ: usize = pg_sys::BLCKSZ as usize;
const MAIN: pg_sys::ForkNumber::Type = pg_sys::ForkNumber::MAIN_FORKNUM;
/// Pages that are written at once: 1 MB, in WAL records of as many as go into one. For each batch the file is opened, its space
/// allocated, a sync asked for, and the WAL writer woken, which took a tenth of a build with batches of one record. What a batch
/// has must be in the processor's cache still when it is logged and written. Where tests can stop a write, small indexes are to
/// have several, and late pages between them, of more than one record.
pub const BATCH: usize = if cfg!(feature = "points") { 40 } else { 4 * pg_sys::XLR_MAX_BLOCK_ID as usize };

/// Pages whose place is passed that are kept at most: a batch's worth of leaves has one or two.
const MOST_LATE: usize = 32;

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
    /// Pages whose place is passed.
    late: Vec<(u32, AlignedPage)>,
    behind: Behind,
}

/// Who writes batches.
#[cfg_attr(
    not(feature = "points"),
    expect(clippy::large_enum_variant, reason = "one an index; a box is memory to run out of")
)]
enum Behind {
    /// This thread, for now.
    NotYet,
    /// This thread.
    Never,
    Thread(WriteBehind),
}

/// What another thread writes.
struct WriteBehind {
    writer: PageWriter,
    /// A segment's file.
    file: Option<(u32, Arc<File>)>,
    /// What is under way: its first block, how many pages, and which of them are there; and where the latest checkpoint began
    /// when they were logged.
    first: u32,
    count: usize,
    present: [bool; BATCH],
    redo: Redo,
    /// Room for the next batch.
    spare: Vec<AlignedPage>,
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
            late: Vec::new(),
            behind: if is_part { Behind::Never } else { Behind::NotYet },
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
            self.late.try_reserve(1).map_err(|_| out_of_memory())?;
            self.late.push((block, AlignedPage(*page)));
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
        self.flush()?;
        self.write_late()
    }

    /// Write the pages whose place is passed. Guarded, and interruptible.
    fn write_late(&mut self) -> Result<()> {
        self.catch_up()?;
        for (block, page) in &mut self.late {
            write(self.relation, &self.file, self.needs_wal, *block, std::slice::from_mut(page), &[true])?;
        }
        self.late.clear();
        Ok(())
    }

    /// Wait until all that was handed over is in the file. Guarded.
    fn catch_up(&mut self) -> Result<()> {
        match &mut self.behind {
            Behind::Thread(behind) => behind.catch_up(self.relation, &self.file, self.needs_wal),
            _ => Ok(()),
        }
    }

    /// Have the batch written by a thread, if there is one, or is to be. False if not. Nothing is under way. Guarded.
    fn write_behind(&mut self) -> Result<bool> {
        if matches!(self.behind, Behind::NotYet) && self.count == BATCH {
            // Where there is no memory for a thread there need not be one.
            self.behind = PageWriter::start().map_or(Behind::Never, |writer| Behind::Thread(WriteBehind::new(writer)));
        }
        let Behind::Thread(behind) = &mut self.behind else { return Ok(false) };
        let segment = RelationFile::segment_of(self.first);
        if RelationFile::segment_of(self.first + self.count as u32 - 1) != segment {
            return Ok(false);
        }
        // Where no descriptor is left for a thread, this one writes.
        let Some(file) = behind.file_of(&self.file, self.first)? else { return Ok(false) };
        // Before anything is logged: with the disk full, a server that had to recover could not make the pages either, nor start.
        self.file.reserve(&file, self.first, self.count)?;
        point!("index.write");
        let (Some(pages), Some(present)) = (self.batch.get_mut(..self.count), self.present.get(..self.count)) else {
            return Ok(false);
        };
        behind.redo = Redo::now();
        {
            let _section = Section::begin(false);
            log(self.relation, self.needs_wal, self.first, pages, present);
        }
        (behind.first, behind.count, behind.present) = (self.first, self.count, self.present);
        let pages = std::mem::replace(&mut self.batch, std::mem::take(&mut behind.spare));
        let batch = Batch { pages, count: self.count, file, offset: RelationFile::offset_of(self.first) };
        behind.writer.hand_over(batch).map_err(|error| self.file.extend_error(&error))?;
        point!("index.handed");
        Ok(true)
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
        self.write_late()?;
        pgrx::check_for_interrupts!();
        if !self.write_behind()? {
            let (Some(pages), Some(present)) = (self.batch.get_mut(..self.count), self.present.get(..self.count))
            else {
                return Ok(());
            };
            write(self.relation, &self.file, self.needs_wal, self.first, pages, present)?;
        }
        self.present.fill(false);
        self.first += self.count as u32;
        self.count = 0;
        Ok(())
    }
}

impl WriteBehind {
    fn new(writer: PageWriter) -> WriteBehind {
        WriteBehind {
            writer,
            file: None,
            first: 0,
            count: 0,
            present: [false; BATCH],
            redo: Redo::now(),
            spare: Vec::new(),
        }
    }

    /// A descriptor for the segment that a block is in. None if there is none left. Guarded.
    fn file_of(&mut self, relation: &RelationFile, block: u32) -> Result<Option<Arc<File>>> {
        let wanted = RelationFile::segment_of(block);
        match &self.file {
            Some((segment, file)) if *segment == wanted => Ok(Some(Arc::clone(file))),
            _ => {
                self.file = relation.own_descriptor(block)?.map(|file| (wanted, Arc::new(file)));
                Ok(self.file.as_ref().map(|(_, file)| Arc::clone(file)))
            }
        }
    }

    /// Wait for what is under way, ask for its sync, and do it again if a checkpoint has begun since it was logged. Guarded.
    fn catch_up(&mut self, relation: pg_sys::Relation, file: &RelationFile, needs_wal: bool) -> Result<()> {
        let Some((pages, outcome)) = self.writer.take() else { return Ok(()) };
        self.spare = pages;
        let outcome = match point_errno!("index.written") {
            Some(errno) => Err(std::io::Error::from_raw_os_error(errno)),
            None => outcome,
        };
        if let Some((_, descriptor)) = &self.file {
            // Also of what was written in part. A checkpoint that begins from here on has to do with the file's pages only.
            file.was_written(descriptor, self.first, &Section::begin(false));
        }
        outcome.map_err(|error| file.extend_error(&error))?;
        if needs_wal && self.redo.is_past() {
            point!("index.again");
            let present = self.present.get(..self.count).unwrap_or_default();
            let pages = self.spare.get_mut(..self.count).unwrap_or_default();
            write(relation, file, needs_wal, self.first, pages, present)?;
        }
        Ok(())
    }
}

impl Drop for WriteBehind {
    fn drop(&mut self) {
        // The way out of an error: nothing writes to the file any more when its transaction takes it away. After a fatal error, which
        // drops nothing, the end of the process ends the thread: what it may still write to is a file that it cannot make, only open.
        let _ = self.writer.take();
    }
}

/// Log those pages that are `present`, and make them ready to be written. Guarded.
fn log(relation: pg_sys::Relation, needs_wal: bool, first: u32, pages: &mut [AlignedPage], present: &[bool]) {
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
    log(relation, needs_wal, first, pages, present);
    let (_, outcome) = file.write(&pieces.list, bytes_of(pages), &section);
    drop(section);
    drop(pieces);
    outcome
}
