//! Marks rows on the pages of a file, a window of pages at a time.
//!
//! The tricky point is the pages in a window that have no rows to mark. They are read with the others but must not be
//! written: a buffer may be written with a newer version meanwhile.

use pg_bulk_storage::page::Page;

use super::block_of;
use super::page::{Deleter, Mark, is_plain};
use crate::error::Result;
use crate::heap::segment::{RelationFile, Segment, SegmentPages};
use crate::server::compat;
use crate::server::points::point;
use crate::server::relation::Relation;
use crate::server::section::{Redo, Section};

/// Highest number of pages read and written at once, and how many pages without a row may lie between two pages of a
/// window.
const WINDOW: usize = 32;
const GAP: u32 = 2;

/// A heap's file, and the state of the process that marks rows in it.
pub struct Windows {
    relation: Relation<'static>,
    needs_wal: bool,
    deleter: Deleter,
    file: RelationFile<'static>,
    segment: Option<Segment>,
    pages: Vec<Page>,
    /// The redo point when pages were last changed.
    redo: Redo,
}

impl Windows {
    /// Start with a relation, whose file is new in this transaction. No process may read its pages into buffers until a
    /// window is done. Guarded.
    pub fn new(relation: Relation<'static>, needs_wal: bool, deleter: Deleter) -> Result<Windows> {
        let file = RelationFile::new(relation, false)?;
        Ok(Windows { relation, needs_wal, deleter, file, segment: None, pages: Vec::new(), redo: Redo::now() })
    }

    /// Mark these ascending rows. A row that was marked becomes 0; the others must be deleted by heap_delete. Guarded,
    /// and interruptible.
    pub fn mark(&mut self, rows: &mut [u64]) -> Result<()> {
        let mut rest = rows;
        while !rest.is_empty() {
            pgrx::check_for_interrupts!();
            let Some(first) = rest.first().map(|&row| block_of(row)) else { break };
            let (window, others) = self.window(first, rest)?;
            self.mark_window(first, window)?;
            rest = others;
        }
        Ok(())
    }

    /// Split off the rows whose pages are near each other and in one segment, and open that segment.
    fn window<'r>(&mut self, first: u32, rows: &'r mut [u64]) -> Result<(&'r mut [u64], &'r mut [u64])> {
        if self.segment.as_ref().is_none_or(|segment| !segment.has(first)) {
            self.segment = None;
            self.segment = Some(self.file.open_segment(first)?);
        }
        let in_segment = |block| self.segment.as_ref().is_some_and(|segment| segment.has(block));
        let mut last = first;
        let is_far = |&row: &u64| {
            let block = block_of(row);
            let before = std::mem::replace(&mut last, block);
            block - before > GAP || (block - first) as usize >= WINDOW || !in_segment(block)
        };
        let end = rows.iter().position(is_far).unwrap_or(rows.len());
        Ok(rows.split_at_mut(end))
    }

    /// Mark rows that are on the pages of a window.
    fn mark_window(&mut self, first: u32, rows: &mut [u64]) -> Result<()> {
        let last = rows.last().map_or(first, |&row| block_of(row));
        let count = (last - first) as usize + 1;
        self.pages.resize(WINDOW, Page::ZERO);
        let (Some(segment), Some(pages)) = (&self.segment, self.pages.get_mut(..count)) else { return Ok(()) };
        // Look for buffers before the file is read: a page that has left its buffer is written by then, and none enters
        // one meanwhile.
        let mut in_buffer = [false; WINDOW];
        for of_page in rows.chunk_by(|a, b| block_of(*a) == block_of(*b)) {
            let block = of_page.first().map_or(first, |&row| block_of(row));
            if let Some(place) = in_buffer.get_mut((block - first) as usize) {
                *place = compat::is_in_buffer(self.relation, block);
            }
        }
        point!("remove.looked");
        let there = segment.read(first, Page::bytes_of_mut(pages));
        let (mut marks, mut segments) = (Vec::new(), Vec::<SegmentPages>::new());
        for of_page in rows.chunk_by_mut(|a, b| block_of(*a) == block_of(*b)) {
            let Some(&row) = of_page.first() else { continue };
            let (block, known) = (block_of(row), marks.len());
            let page = (block - first) as usize;
            let fits = page < there
                && in_buffer.get(page) == Some(&false)
                && pages.get_mut(page).is_some_and(|page| is_plain(page, block))
                && of_page.iter().all(|&row| {
                    let mark = pages.get(page).and_then(|bytes| Mark::of(bytes, page, row, &mut self.deleter));
                    let is_marked = mark.is_some();
                    marks.extend(mark);
                    is_marked
                });
            if !fits {
                marks.truncate(known);
                continue;
            }
            of_page.fill(0);
            match segments.last_mut().filter(|last| last.first + last.count == page) {
                Some(last) => last.count += 1,
                None => segments.push(segment.segment_pages(block, page, 1)),
            }
        }
        if marks.is_empty() {
            return Ok(());
        }
        if self.needs_wal {
            self.redo.let_checkpoint_pass();
        }
        self.write(first, &marks, &segments)
    }

    /// Mark rows, and write their pages. Nothing may be raised here.
    fn write(&mut self, first: u32, marks: &[Mark], segments: &[SegmentPages]) -> Result<()> {
        let (relation, needs_wal, xid) = (self.relation, self.needs_wal, self.deleter.xid);
        let section = Section::begin(needs_wal);
        section.critically(|| {
            for mark in marks {
                let Some(page) = self.pages.get_mut(mark.page) else { continue };
                mark.delete(page, xid, relation, needs_wal);
            }
        });
        for number in segments.iter().flat_map(|some| some.first..some.first + some.count) {
            if let Some(page) = self.pages.get_mut(number) {
                compat::set_checksum(page, first + number as u32);
            }
        }
        let (_, outcome) = self.file.write(segments, Page::bytes_of(&self.pages), &section);
        drop(section);
        outcome
    }
}
