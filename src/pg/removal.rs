//! Rows that this transaction has put into a heap, taken out of it again.
//!
//! heap_delete could do it for each of them. But it reads the row's page into a shared buffer, which takes several times as long
//! as to mark the row, and rows to be removed are on nearly every page as soon as they are a hundredth of all. So where the heap's
//! file is new in this transaction, pages are changed where they are:
//!
//! ```text
//!   rows, by page ─┬─ file that others know ──────────────────────────────────────────────► heap_delete
//!                  └─ new file ─► window of pages, read ─┬─ page in a buffer, or not plain ─► heap_delete
//!                                                        └─ mark rows ─► WAL ─► write ─► sync request
//! ```
//!
//! Nobody else sees such a file, and only this process uses it now; so a page that is in no shared buffer stays out of them while
//! it is changed here, and who reads it afterwards reads it from the file. A page that is in a buffer may be newer there, and is left
//! to heap_delete; so are pages and rows for which that would do more than mark them: pages that are all-visible, rows with
//! values out of line, rows that are not as this transaction has left them.
//!
//! A row is marked, and logged, as heap_delete does it, so redo knows the records; a page that a checkpoint came after goes
//! into WAL whole (XLogRegisterBlock sees to that). As with pages that are appended ([`super::append`]), no checkpoint may come
//! between the WAL and the write, and each write is followed by a sync request. WAL need not be on disk before the page is: if it
//! never is, the transaction has not committed, and nothing refers to the file. If a write fails, so does the load, and what is on its
//! pages are nobody's rows; a page of a file that was made before a savepoint may then be left half written.
//!
//! The tricky point are pages in a window that have no such rows: they are read along and must not be written, for what was read
//! may be older than what a buffer of theirs is written with meanwhile.

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::append::Traits;
use super::compat;
use super::points::point;
use super::section::{Redo, Section};
use super::segment::{Piece, RelationFile, Segment};
use crate::error::{Error, Result};

const BLCKSZ: usize = pg_sys::BLCKSZ as usize;
const MAIN: pg_sys::ForkNumber::Type = pg_sys::ForkNumber::MAIN_FORKNUM;
/// Rows that are kept until they are removed, at most.
const MOST: usize = 1 << 16;
/// Pages that are read and written at once, and how many pages without a row are read along rather than begin anew.
const WINDOW: usize = 32;
const GAP: u32 = 2;
/// XLOG_HEAP_DELETE, XLHL_KEYS_UPDATED (heapam_xlog.h)
const DELETE: u8 = 0x10;
const KEYS_UPDATED: u8 = 0x10;
/// The head of a page (SizeOfPageHeaderData), and that of a tuple (SizeofHeapTupleHeader).
const PAGE_HEAD: usize = 24;
const TUPLE_HEAD: usize = 23;
/// What a row's t_infomask has, that this transaction has inserted, nothing has happened to since, and everything of which is
/// in its place, ...
const WITH: u16 = pg_sys::HEAP_XMAX_INVALID as u16;
/// ... and what it has not.
const WITHOUT: u16 = (pg_sys::HEAP_HASEXTERNAL
    | pg_sys::HEAP_COMBOCID
    | pg_sys::HEAP_XMAX_KEYSHR_LOCK
    | pg_sys::HEAP_XMAX_EXCL_LOCK
    | pg_sys::HEAP_XMAX_LOCK_ONLY
    | pg_sys::HEAP_XMIN_COMMITTED
    | pg_sys::HEAP_XMIN_INVALID
    | pg_sys::HEAP_XMAX_COMMITTED
    | pg_sys::HEAP_XMAX_IS_MULTI
    | pg_sys::HEAP_UPDATED
    | pg_sys::HEAP_MOVED) as u16;

const _: () = {
    assert!(std::mem::offset_of!(pg_sys::PageHeaderData, pd_linp) == PAGE_HEAD);
    assert!(std::mem::offset_of!(pg_sys::HeapTupleHeaderData, t_bits) == TUPLE_HEAD);
};

/// A row's place in its relation, as a number that ascends.
pub fn number_of(row: &pg_sys::ItemPointerData) -> u64 {
    let block = u32::from(row.ip_blkid.bi_hi) << 16 | u32::from(row.ip_blkid.bi_lo);
    (u64::from(block) << 16) | u64::from(row.ip_posid)
}

/// The same the other way round.
pub fn row_of(number: u64) -> pg_sys::ItemPointerData {
    let block = block_of(number);
    pg_sys::ItemPointerData {
        ip_blkid: pg_sys::BlockIdData { bi_hi: (block >> 16) as u16, bi_lo: block as u16 },
        ip_posid: number as u16,
    }
}

fn block_of(number: u64) -> u32 {
    (number >> 16) as u32
}

/// Rows of a heap that are to go.
#[derive(Debug)]
pub struct Removal {
    relation: pg_sys::Relation,
    needs_wal: bool,
    /// If pages may be changed where they are: the heap's file, and the segment of it that is open.
    file: Option<RelationFile>,
    segment: Option<Segment>,
    rows: Vec<u64>,
    pages: Vec<Page>,
    /// The redo point when pages were last changed.
    redo: Redo,
}

#[derive(Debug, Clone)]
#[repr(C, align(4096))]
struct Page([u8; BLCKSZ]);

/// A row that is going to be marked.
#[derive(Debug, Clone, Copy)]
struct Mark {
    /// Of the window.
    page: usize,
    row: u64,
    /// Where on the page its tuple is.
    at: usize,
    command: pg_sys::CommandId,
    is_combo: bool,
}

impl Removal {
    /// Of an open relation. Guarded.
    ///
    /// # Safety
    /// The relation stays open; outside of parallel mode.
    pub unsafe fn new(relation: pg_sys::Relation) -> Result<Removal> {
        // SAFETY: the caller vouches for the relation.
        let Traits { existed, needs_wal, logical, temporary, .. } = unsafe { Traits::of(relation) };
        let redo = Redo::now();
        let file = if existed || logical || temporary { None } else { Some(RelationFile::new(relation, false)?) };
        Ok(Removal { relation, needs_wal, file, segment: None, rows: Vec::new(), pages: Vec::new(), redo })
    }

    /// A row is to go. Guarded.
    ///
    /// # Safety
    /// This transaction has put it there.
    pub unsafe fn put(&mut self, row: u64) -> Result<()> {
        self.rows.push(row);
        if self.rows.len() < MOST { Ok(()) } else { self.run() }
    }

    /// Let them go. Guarded.
    pub fn run(&mut self) -> Result<()> {
        point!("remove.begin");
        let mut rows = std::mem::take(&mut self.rows);
        rows.sort_unstable();
        if self.file.is_some() {
            let mut rest = rows.as_slice();
            while let Some(&first) = rest.first() {
                pgrx::check_for_interrupts!();
                let (window, others) = self.window(block_of(first), rest)?;
                self.remove(block_of(first), window)?;
                rest = others;
            }
            self.segment = None;
        } else {
            self.delete_all(&rows)?;
        }
        rows.clear();
        self.rows = rows;
        Ok(())
    }

    /// The rows that are on pages near each other, in one segment, and the others. That segment is open then.
    fn window<'r>(&mut self, first: u32, rows: &'r [u64]) -> Result<(&'r [u64], &'r [u64])> {
        if let Some(file) = &self.file
            && self.segment.as_ref().is_none_or(|segment| !segment.has(first))
        {
            self.segment = None;
            self.segment = Some(file.open_segment(first)?);
        }
        let in_segment = |block| self.segment.as_ref().is_some_and(|segment| segment.has(block));
        let mut last = first;
        let is_far = |&row: &u64| {
            let block = block_of(row);
            let before = std::mem::replace(&mut last, block);
            block - before > GAP || (block - first) as usize >= WINDOW || !in_segment(block)
        };
        Ok(rows.split_at(rows.iter().position(is_far).unwrap_or(rows.len())))
    }

    /// Remove rows that are on the pages of a window, in order.
    fn remove(&mut self, first: u32, rows: &[u64]) -> Result<()> {
        let last = rows.last().map_or(first, |&row| block_of(row));
        let count = (last - first) as usize + 1;
        self.pages.resize(WINDOW, Page([0; BLCKSZ]));
        let (Some(segment), Some(pages)) = (&self.segment, self.pages.get_mut(..count)) else { return Ok(()) };
        // Asked before the file is read: a page that leaves its buffer has been written by then, and none gets into one meanwhile.
        let mut in_buffer = [false; WINDOW];
        for of_page in rows.chunk_by(|a, b| block_of(*a) == block_of(*b)) {
            let block = of_page.first().map_or(first, |&row| block_of(row));
            if let Some(place) = in_buffer.get_mut((block - first) as usize) {
                // SAFETY: an open relation, which nobody else uses.
                *place = unsafe { compat::is_in_buffer(self.relation, block) };
            }
        }
        point!("remove.looked");
        // SAFETY: bytes of pages, which are nothing else.
        let bytes = unsafe { std::slice::from_raw_parts_mut(pages.as_mut_ptr().cast::<u8>(), count * BLCKSZ) };
        let there = segment.read(first, bytes);
        let (mut marks, mut pieces, mut left) = (Vec::new(), Vec::<Piece>::new(), Vec::new());
        for of_page in rows.chunk_by(|a, b| block_of(*a) == block_of(*b)) {
            let Some(&row) = of_page.first() else { continue };
            let (block, known) = (block_of(row), marks.len());
            let page = (block - first) as usize;
            let fits = page < there
                && in_buffer.get(page) == Some(&false)
                && pages.get_mut(page).is_some_and(|page| page.is_plain(block))
                && of_page.iter().all(|&row| {
                    let mark = pages.get_mut(page).and_then(|bytes| bytes.mark(page, row));
                    marks.extend(mark);
                    mark.is_some()
                });
            if !fits {
                marks.truncate(known);
                left.extend_from_slice(of_page);
                continue;
            }
            match pieces.last_mut().filter(|piece| piece.first + piece.count == page) {
                Some(piece) => piece.count += 1,
                None => pieces.push(segment.piece(block, page, 1)),
            }
        }
        if !marks.is_empty() {
            if self.needs_wal {
                self.redo.let_checkpoint_pass();
            }
            self.write(first, &marks, &pieces)?;
        }
        // SAFETY: as for `new`.
        marks.iter().for_each(|_| unsafe { pg_sys::pgstat_count_heap_delete(self.relation) });
        self.delete_all(&left)
    }

    /// By way of the server, which may have to read a page for each. Guarded, and interruptible.
    fn delete_all(&self, rows: &[u64]) -> Result<()> {
        rows.iter().try_for_each(|&row| {
            pgrx::check_for_interrupts!();
            // SAFETY: whoever has put the row here vouches for it.
            unsafe { delete(self.relation, row) }
        })
    }

    /// Mark rows, and write their pages. Nothing may be raised here.
    fn write(&mut self, first: u32, marks: &[Mark], pieces: &[Piece]) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let (relation, needs_wal) = (self.relation, self.needs_wal);
        // SAFETY: this transaction has an id: that of its rows.
        let xid = unsafe { pg_sys::GetCurrentTransactionId() };
        let section = Section::begin(needs_wal);
        section.critically(|| {
            for mark in marks {
                let Some(page) = self.pages.get_mut(mark.page) else { continue };
                page.delete(mark, xid);
                if needs_wal {
                    // SAFETY: in a critical section; the page of a block of the relation.
                    unsafe {
                        let end = log(relation, mark.row, page, xid);
                        page.set_lsn(end);
                    }
                }
            }
        });
        for number in pieces.iter().flat_map(|piece| piece.first..piece.first + piece.count) {
            if let Some(page) = self.pages.get_mut(number) {
                // SAFETY: a page of the window.
                unsafe { pg_sys::PageSetChecksumInplace(page.0.as_mut_ptr().cast(), first + number as u32) };
            }
        }
        // SAFETY: bytes of pages, which are nothing else.
        let bytes = unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast::<u8>(), self.pages.len() * BLCKSZ) };
        let (_, outcome) = file.write(pieces, bytes, &section);
        drop(section);
        outcome
    }
}

impl Page {
    fn head(&mut self) -> *mut pg_sys::PageHeaderData {
        self.0.as_mut_ptr().cast()
    }

    /// Is it a page of a heap, all in order, on which to mark a row is all that there is to do?
    fn is_plain(&mut self, block: u32) -> bool {
        // SAFETY: a page has a head; it is aligned. Without checksums, none is set.
        unsafe {
            let head = self.head();
            let checksum = (*head).pd_checksum;
            pg_sys::PageSetChecksumInplace(head.cast(), block);
            let is_intact = std::mem::replace(&mut (*head).pd_checksum, checksum) == checksum;
            let lower = usize::from((*head).pd_lower);
            is_intact
                && (*head).pd_flags & pg_sys::PD_ALL_VISIBLE as u16 == 0
                && (PAGE_HEAD..=BLCKSZ).contains(&lower)
                && usize::from((*head).pd_special) == BLCKSZ
        }
    }

    /// How a row is to be marked, if it is as this transaction has inserted it. Guarded.
    fn mark(&mut self, page: usize, row: u64) -> Option<Mark> {
        let offset = usize::from(row as u16);
        let id_at = PAGE_HEAD + offset.checked_sub(1)? * size_of::<pg_sys::ItemIdData>();
        // SAFETY: the head of a page; a line pointer below what it says; a tuple in the page, all of which are aligned. Guarded
        // calls.
        unsafe {
            if id_at + size_of::<pg_sys::ItemIdData>() > usize::from((*self.head()).pd_lower) {
                return None;
            }
            let id = self.0.as_ptr().add(id_at).cast::<pg_sys::ItemIdData>();
            let at = (*id).lp_off() as usize;
            let is_there = (*id).lp_flags() == pg_sys::LP_NORMAL
                && at.is_multiple_of(pg_sys::MAXIMUM_ALIGNOF as usize)
                && at >= PAGE_HEAD
                && at + TUPLE_HEAD <= BLCKSZ;
            if !is_there {
                return None;
            }
            let tuple = self.tuple(at);
            let heap = (*tuple).t_choice.t_heap;
            let infomask = (*tuple).t_infomask;
            let mut command = pg_sys::GetCurrentCommandId(true);
            let is_ours = heap.t_xmin == pg_sys::GetCurrentTransactionId()
                && infomask & WITH == WITH
                && infomask & WITHOUT == 0
                && heap.t_field3.t_cid < command
                && number_of(&(*tuple).t_ctid) == row;
            if !is_ours {
                return None;
            }
            let mut is_combo = false;
            pg_sys::HeapTupleHeaderAdjustCmax(tuple, &raw mut command, &raw mut is_combo);
            Some(Mark { page, row, at, command, is_combo })
        }
    }

    /// # Safety
    /// There is one.
    unsafe fn tuple(&mut self, at: usize) -> *mut pg_sys::HeapTupleHeaderData {
        // SAFETY: the caller vouches for it.
        unsafe { self.0.as_mut_ptr().add(at).cast() }
    }

    /// Mark a row as deleted (heap_delete, heapam.c).
    fn delete(&mut self, mark: &Mark, xid: pg_sys::TransactionId) {
        // SAFETY: `mark` has found the tuple.
        unsafe {
            let head = self.head();
            // PageSetPrunable (bufpage.h): as long as this transaction is not at its end, none is before it.
            let prunable = (*head).pd_prune_xid;
            if prunable == pg_sys::InvalidTransactionId || pg_sys::TransactionIdPrecedes(xid, prunable) {
                (*head).pd_prune_xid = xid;
            }
            let tuple = &mut *self.tuple(mark.at);
            tuple.t_infomask &= !((pg_sys::HEAP_XMAX_BITS | pg_sys::HEAP_MOVED | pg_sys::HEAP_COMBOCID) as u16);
            if mark.is_combo {
                tuple.t_infomask |= pg_sys::HEAP_COMBOCID as u16;
            }
            tuple.t_infomask2 |= pg_sys::HEAP_KEYS_UPDATED as u16;
            tuple.t_infomask2 &= !(pg_sys::HEAP_HOT_UPDATED as u16);
            tuple.t_choice.t_heap.t_xmax = xid;
            tuple.t_choice.t_heap.t_field3.t_cid = mark.command;
            tuple.t_ctid = row_of(mark.row);
        }
    }

    /// PageSetLSN (bufpage.h)
    fn set_lsn(&mut self, lsn: pg_sys::XLogRecPtr) {
        // SAFETY: the head of a page.
        unsafe { (*self.head()).pd_lsn = pg_sys::PageXLogRecPtr { xlogid: (lsn >> 32) as u32, xrecoff: lsn as u32 } };
    }
}

/// Log that a row was deleted (heap_delete, heapam.c). Returns the end of the record.
///
/// # Safety
/// A critical section, an open relation, and the page of the row.
unsafe fn log(relation: pg_sys::Relation, row: u64, page: &mut Page, xid: pg_sys::TransactionId) -> pg_sys::XLogRecPtr {
    // xl_heap_delete: xmax, the row's number, which bits are set, flags.
    let [a, b, c, d] = xid.into_inner().to_ne_bytes();
    let [low, high] = (row as u16).to_ne_bytes();
    let mut record = [a, b, c, d, low, high, KEYS_UPDATED, 0];
    // SAFETY: the caller vouches for all; the data outlive XLogInsert.
    unsafe {
        pg_sys::XLogBeginInsert();
        compat::xlog_register_data(record.as_mut_ptr(), record.len());
        let keep = pg_sys::REGBUF_STANDARD as u8;
        compat::xlog_register_block(relation, MAIN, block_of(row), page.0.as_mut_ptr(), keep);
        pg_sys::XLogInsert(pg_sys::RmgrIds::RM_HEAP_ID as u8, DELETE)
    }
}

/// Delete a row as anybody would. Guarded.
///
/// # Safety
/// An open relation, and a row that this transaction has put there.
pub unsafe fn delete(relation: pg_sys::Relation, row: u64) -> Result<()> {
    // SAFETY: the caller vouches for both; guarded calls. Nobody else can have touched a row of a transaction that has not ended. It is an
    // earlier command's, or it would not be there yet; and all are deleted by one, since each pair of commands that made and
    // deleted a row is remembered to the end of the transaction.
    unsafe {
        let mut row = row_of(row);
        let mut failure = pg_sys::TM_FailureData::default();
        let command = pg_sys::GetCurrentCommandId(true);
        let nothing = std::ptr::null_mut();
        // Nobody is waited for: that it may wait lets it have rows that this transaction has locked itself.
        let result = pg_sys::heap_delete(relation, &raw mut row, command, nothing, true, &raw mut failure, false);
        if result != pg_sys::TM_Result::TM_Ok {
            let message = format!("could not take back a row of the load (result {result})");
            return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, message));
        }
    }
    Ok(())
}
