//! Heap pages built in private memory, and the WAL that describes them.
//!
//! ```text
//!  0        8          10      12       14       16         18                   20            24
//!  pd_lsn | checksum | flags | lower  | upper  | special  | pagesize_version   | prune_xid   | pointers -> 0 <- tuples
//! ```
//!
//! A [`PageBatch`] takes tuples until it has all pages that are appended to a table at once. Pages get their block
//! numbers when the batch is appended, not while they are filled. The last, partly filled page need not be appended:
//! [`PageBatch::take_full`] moves it to the next batch.
//!
//! The tricky point is reused memory. A page is not cleared before it is filled. Tuples and line pointers are written
//! first; the header and the zeros between them follow when the page is complete. So only complete pages are visible
//! outside. The bounds of the current page are in `lower` and `upper`.
//!
//! A page ends at the same tuple as with heap_multi_insert, and its bytes are those that PageInit and PageAddItem would
//! leave. So a standby that replays [`PageBatch::wal_data`] has the same bytes. pd_prune_xid is 0 on all pages: an
//! insert leaves nothing to prune.
#![allow(unsafe_code, reason = "pages are memory with an alignment and uninitialised parts")]

use std::alloc::{Layout as Memory, alloc, dealloc};
use std::ptr::{self, NonNull};
use std::slice;

use crate::tuple::{MAX_TUPLE_SIZE, T_CTID, T_INFOMASK2, TUPLE_HEADER, max_align};

/// BLCKSZ
pub const PAGE_SIZE: usize = 8192;
/// PG_IO_ALIGN_SIZE
pub const IO_ALIGN: usize = 4096;
/// SizeOfPageHeaderData
pub const PAGE_HEADER: usize = 24;
/// sizeof(ItemIdData)
pub const LINE_POINTER: usize = 4;
/// MaxHeapTuplesPerPage
pub const MAX_TUPLES: usize = (PAGE_SIZE - PAGE_HEADER) / (max_align(TUPLE_HEADER) + LINE_POINTER);
/// SizeOfMultiInsertTuple: bytes that WAL has for a tuple before the tuple's bytes from TUPLE_HEADER on.
pub const MULTI_INSERT_TUPLE: usize = 7;
/// PD_ALL_VISIBLE
pub const PD_ALL_VISIBLE: u16 = 0x0004;
/// PG_PAGE_LAYOUT_VERSION
const LAYOUT_VERSION: u16 = 4;
/// LP_NORMAL
const LP_NORMAL: u32 = 1;
/// Number of pages in the first allocation.
const FIRST_PAGES: usize = 2;

/// PageHeaderData, without line pointers.
#[repr(C)]
#[derive(Clone, Copy)]
struct PageHeaderData {
    pd_lsn: [u32; 2],
    pd_checksum: u16,
    pd_flags: u16,
    pd_lower: u16,
    pd_upper: u16,
    pd_special: u16,
    pd_pagesize_version: u16,
    pd_prune_xid: u32,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<PageHeaderData>() == PAGE_HEADER);
    assert!(offset_of!(PageHeaderData, pd_lower) == 12);
    assert!(offset_of!(PageHeaderData, pd_prune_xid) == 20);
    assert!(MAX_TUPLES == 291);
    // A page without dead line pointers is full before it can reach this limit.
    assert!(PAGE_HEADER + (MAX_TUPLES + 1) * (LINE_POINTER + max_align(TUPLE_HEADER)) > PAGE_SIZE);
    assert!(MAX_TUPLE_SIZE == PAGE_SIZE - max_align(PAGE_HEADER + LINE_POINTER));
    // The tuple's length, infomask2, infomask and hoff.
    assert!(MULTI_INSERT_TUPLE == 2 + TUPLE_HEADER - T_INFOMASK2);
};

/// Pages under construction.
#[derive(Debug)]
pub struct PageBatch {
    pages: NonNull<u8>,
    /// Pages in the allocated memory, and the most pages of the batch.
    capacity: usize,
    limit: usize,
    /// Bytes to leave free on each page.
    reserve: usize,
    flags: u16,
    /// Number of complete pages. The next one is being filled unless this equals `limit`.
    complete: usize,
    /// Bounds of the page that is being filled: the end of its line pointers, and the start of its tuples.
    lower: usize,
    upper: usize,
    /// Tuples on complete pages.
    rows: u64,
}

// SAFETY: the batch owns the memory.
unsafe impl Send for PageBatch {}

impl Drop for PageBatch {
    fn drop(&mut self) {
        // SAFETY: allocated with the same layout.
        unsafe { dealloc(self.pages.as_ptr(), memory(self.capacity)) };
    }
}

fn memory(pages: usize) -> Memory {
    // SAFETY: the alignment is a power of two, and the size of at most `limit` pages does not overflow.
    unsafe { Memory::from_size_align_unchecked(pages * PAGE_SIZE, IO_ALIGN) }
}

impl PageBatch {
    /// Creates a batch of at most `pages` pages. Each page keeps `reserve` bytes free unless it has only one tuple:
    /// RelationGetTargetPageFreeSpace, BLCKSZ × (100 − fillfactor) / 100. With `frozen` tuples, pages are all-visible.
    ///
    /// Returns `None` if memory is exhausted.
    #[must_use]
    pub fn new(pages: usize, reserve: usize, frozen: bool) -> Option<Self> {
        let limit = pages.clamp(1, u32::MAX as usize);
        let capacity = limit.min(FIRST_PAGES);
        // SAFETY: not of size zero.
        let pages = NonNull::new(unsafe { alloc(memory(capacity)) })?;
        let flags = if frozen { PD_ALL_VISIBLE } else { 0 };
        let (lower, upper) = (PAGE_HEADER, PAGE_SIZE);
        Some(Self { pages, capacity, limit, reserve, flags, complete: 0, lower, upper, rows: 0 })
    }

    /// Adds a tuple. Returns its page, counted from 0, and its offset number.
    ///
    /// Returns `None`, without adding the tuple, if the batch is full. It also does so for a tuple shorter than its
    /// header or longer than [`MAX_TUPLE_SIZE`]; the caller must check the length before.
    #[inline]
    pub fn add(&mut self, tuple: &[u8]) -> Option<(u32, u16)> {
        if !(TUPLE_HEADER..=MAX_TUPLE_SIZE).contains(&tuple.len()) || self.complete == self.limit {
            return None;
        }
        let room = max_align(tuple.len());
        if !self.has_room(room) {
            self.next_page()?;
        }
        let upper = self.upper - room;
        let number = (self.lower - PAGE_HEADER) / LINE_POINTER + 1;
        // SAFETY: the page has room for a line pointer and the tuple, of at least 24 bytes with its padding.
        unsafe {
            let page = self.page(self.complete);
            page.add(self.lower).cast::<u32>().write(line_pointer(upper, tuple.len()));
            let to = page.add(upper);
            to.add(room - 8).cast::<u64>().write(0);
            copy(tuple.as_ptr(), to, tuple.len());
            to.add(T_CTID + 4).cast::<u16>().write(number as u16);
        }
        self.lower += LINE_POINTER;
        self.upper = upper;
        Some((self.complete as u32, number as u16))
    }

    /// [`PageBatch::add`] if the current page has room for the tuple; else returns `None` and changes nothing.
    #[inline]
    pub fn add_here(&mut self, tuple: &[u8]) -> Option<(u32, u16)> {
        if self.has_room(max_align(tuple.len())) { self.add(tuple) } else { None }
    }

    /// [`PageBatch::add_here`] with `header` in place of the tuple's own header.
    #[inline]
    pub fn add_with_header(&mut self, tuple: &[u8], header: &[u8; TUPLE_HEADER]) -> Option<(u32, u16)> {
        let place = self.add_here(tuple)?;
        // SAFETY: `add_here` has put the tuple at `upper` of the current page, and a tuple has a header.
        unsafe {
            let to = self.page(self.complete).add(self.upper);
            to.cast::<[u8; TUPLE_HEADER]>().write(*header);
            to.add(T_CTID + 4).cast::<u16>().write(place.1);
        }
        Some(place)
    }

    /// Whether the current page has room for a tuple of `room` bytes, padding included.
    #[inline(always)]
    fn has_room(&self, room: usize) -> bool {
        self.lower + LINE_POINTER + room + self.reserve <= self.upper || self.lower == PAGE_HEADER
    }

    /// Completes the current page and goes on to the next.
    #[cold]
    #[inline(never)]
    fn next_page(&mut self) -> Option<()> {
        self.finish_page();
        if self.complete == self.limit {
            return None;
        }
        if self.complete == self.capacity && !self.grow() {
            // Memory is exhausted: the batch ends with the pages that it has.
            self.limit = self.capacity;
            return None;
        }
        Some(())
    }

    fn grow(&mut self) -> bool {
        let capacity = (self.capacity * 2).min(self.limit);
        // SAFETY: not of size zero.
        let Some(pages) = NonNull::new(unsafe { alloc(memory(capacity)) }) else { return false };
        // SAFETY: both have at least `complete` pages; the old memory is not used any more.
        unsafe {
            ptr::copy_nonoverlapping(self.pages.as_ptr(), pages.as_ptr(), self.complete * PAGE_SIZE);
            dealloc(self.pages.as_ptr(), memory(self.capacity));
        }
        (self.pages, self.capacity) = (pages, capacity);
        true
    }

    /// Writes the current page's header and the zeros between line pointers and tuples.
    fn finish_page(&mut self) {
        let header = PageHeaderData {
            pd_lsn: [0; 2],
            pd_checksum: 0,
            pd_flags: self.flags,
            pd_lower: self.lower as u16,
            pd_upper: self.upper as u16,
            pd_special: PAGE_SIZE as u16,
            pd_pagesize_version: PAGE_SIZE as u16 | LAYOUT_VERSION,
            pd_prune_xid: 0,
        };
        // SAFETY: the current page has memory, and lower is not above upper.
        unsafe {
            let page = self.page(self.complete);
            page.cast::<PageHeaderData>().write(header);
            ptr::write_bytes(page.add(self.lower), 0, self.upper - self.lower);
        }
        self.rows += self.partial_rows() as u64;
        self.complete += 1;
        (self.lower, self.upper) = (PAGE_HEADER, PAGE_SIZE);
    }

    /// Completes the page that is being filled, unless it is empty, and returns the number of complete pages. The next
    /// tuple begins another page.
    pub fn finish(&mut self) -> usize {
        if self.lower > PAGE_HEADER {
            // Without memory for another page, the batch is full.
            let _ = self.next_page();
        }
        self.complete
    }

    /// Number of complete pages.
    #[must_use]
    pub fn complete(&self) -> usize {
        self.complete
    }

    /// Tuples on complete pages.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Tuples on the page that is being filled.
    #[must_use]
    pub fn partial_rows(&self) -> usize {
        (self.lower - PAGE_HEADER) / LINE_POINTER
    }

    /// Removes the complete pages. The page that is being filled becomes page 0 and keeps its tuples.
    pub fn take_full(&mut self) {
        if self.complete > 0 && self.lower > PAGE_HEADER {
            // SAFETY: both pages have memory; the copied bytes have been written, and the pages are not the same
            // one.
            unsafe {
                let (from, to) = (self.page(self.complete), self.page(0));
                let (line_pointers, tuples) = (self.lower - PAGE_HEADER, PAGE_SIZE - self.upper);
                ptr::copy_nonoverlapping(from.add(PAGE_HEADER), to.add(PAGE_HEADER), line_pointers);
                ptr::copy_nonoverlapping(from.add(self.upper), to.add(self.upper), tuples);
            }
        }
        self.complete = 0;
        self.rows = 0;
    }

    /// Frees memory that only a larger batch needs. Does nothing if there are complete pages.
    pub fn shrink(&mut self) {
        let capacity = self.limit.min(FIRST_PAGES);
        if self.complete > 0 || self.capacity <= capacity {
            return;
        }
        // SAFETY: not of size zero.
        let Some(pages) = NonNull::new(unsafe { alloc(memory(capacity)) }) else { return };
        // SAFETY: the written parts of the page that is being filled are copied to the same offsets; the old memory
        // is not used any more.
        unsafe {
            let (from, to) = (self.pages.as_ptr(), pages.as_ptr());
            ptr::copy_nonoverlapping(from.add(PAGE_HEADER), to.add(PAGE_HEADER), self.lower - PAGE_HEADER);
            ptr::copy_nonoverlapping(from.add(self.upper), to.add(self.upper), PAGE_SIZE - self.upper);
            dealloc(self.pages.as_ptr(), memory(self.capacity));
        }
        (self.pages, self.capacity) = (pages, capacity);
    }

    /// Size of the allocated memory, in bytes.
    #[must_use]
    pub fn allocated(&self) -> usize {
        self.capacity * PAGE_SIZE
    }

    /// Removes all pages.
    pub fn clear(&mut self) {
        self.complete = 0;
        self.rows = 0;
        (self.lower, self.upper) = (PAGE_HEADER, PAGE_SIZE);
    }

    /// Returns the complete pages as one slice. Adding tuples may move them.
    #[must_use]
    pub fn pages(&self) -> &[u8] {
        // SAFETY: complete pages are initialised.
        unsafe { slice::from_raw_parts(self.pages.as_ptr(), self.complete * PAGE_SIZE) }
    }

    /// Returns a complete page for server functions that write to it; null if there is no such page.
    #[must_use]
    pub fn as_ptr(&mut self, page: usize) -> *mut u8 {
        if page < self.complete { self.page(page) } else { ptr::null_mut() }
    }

    /// Number of tuples on a complete page.
    #[must_use]
    pub fn page_rows(&self, page: usize) -> usize {
        self.header(page).map_or(0, |header| (usize::from(header.pd_lower) - PAGE_HEADER) / LINE_POINTER)
    }

    /// The tuples of a complete page with their offset numbers.
    pub fn tuples(&self, page: usize) -> impl Iterator<Item = (u16, &[u8])> {
        (1..=self.page_rows(page)).map(move |number| {
            // SAFETY: the page is complete and has tuples up to `number`.
            let tuple = unsafe {
                let (tuple, length) = find(self.page(page), number);
                slice::from_raw_parts(tuple.cast_const(), length)
            };
            (number as u16, tuple)
        })
    }

    /// All tuples on complete pages: page, offset number, bytes.
    pub fn all_tuples(&self) -> impl Iterator<Item = (u32, u16, &[u8])> {
        (0..self.complete).flat_map(|page| self.tuples(page).map(move |(number, tuple)| (page as u32, number, tuple)))
    }

    /// Makes the complete pages the blocks from `first` on: sets t_ctid of all their tuples.
    pub fn set_block_numbers(&mut self, first: u32) {
        for page in 0..self.complete {
            self.set_block_number(page, first.wrapping_add(page as u32));
        }
    }

    /// Makes a complete page the block `block`: sets t_ctid of all its tuples.
    pub fn set_block_number(&mut self, page: usize, block: u32) {
        let halves = [(block >> 16) as u16, block as u16];
        for number in 1..=self.page_rows(page) {
            // SAFETY: the page is complete and has tuples up to `number`, each with a header; it is borrowed
            // exclusively.
            unsafe {
                let (tuple, _) = find(self.page(page), number);
                tuple.add(T_CTID).cast::<[u16; 2]>().write(halves);
            }
        }
    }

    /// Sets pd_lsn of a complete page.
    pub fn set_lsn(&mut self, page: usize, lsn: u64) {
        if page < self.complete {
            // SAFETY: a complete page begins with a header; it is borrowed exclusively.
            unsafe { (*self.page(page).cast::<PageHeaderData>()).pd_lsn = [(lsn >> 32) as u32, lsn as u32] };
        }
    }

    /// Appends the block data of the XLOG_HEAP2_MULTI_INSERT record with INIT_PAGE that creates a complete page.
    /// Returns the number of its tuples, which another part of the record needs.
    pub fn wal_data(&self, page: usize, out: &mut Vec<u8>) -> u16 {
        let start = out.len();
        // A tuple takes fewer bytes in WAL, padding included, than it and its line pointer take on the page.
        out.reserve(PAGE_SIZE);
        let mut at = 0;
        // SAFETY: PAGE_SIZE bytes are reserved, see above; `add` takes no tuple shorter than its header.
        unsafe {
            let to = out.as_mut_ptr().add(start);
            for (_, tuple) in self.tuples(page) {
                // Tuples begin on even addresses, as counted from the beginning of the block's data.
                if at % 2 == 1 {
                    to.add(at).write(0);
                    at += 1;
                }
                to.add(at).cast::<u16>().write_unaligned((tuple.len() - TUPLE_HEADER) as u16);
                let logged = tuple.len() - T_INFOMASK2;
                copy(tuple.as_ptr().add(T_INFOMASK2), to.add(at + 2), logged);
                at += 2 + logged;
            }
            out.set_len(start + at);
        }
        self.page_rows(page) as u16
    }

    /// Start of a page. The page must have memory.
    #[inline(always)]
    fn page(&self, page: usize) -> *mut u8 {
        self.pages.as_ptr().wrapping_add(page * PAGE_SIZE)
    }

    fn header(&self, page: usize) -> Option<&PageHeaderData> {
        // SAFETY: a complete page begins with a header.
        (page < self.complete).then(|| unsafe { &*self.page(page).cast::<PageHeaderData>() })
    }
}

/// Copies a tuple. Most tuples are short, and a call of memcpy takes longer than copying them in pieces. The last piece
/// overlaps the one before it.
///
/// # Safety
/// As [`ptr::copy_nonoverlapping`].
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    type Lane = [u64; 2];
    const LANE: usize = size_of::<Lane>();
    // SAFETY: this function's contract; all pieces are within `len` bytes.
    unsafe {
        if !(LANE..=16 * LANE).contains(&len) {
            return ptr::copy_nonoverlapping(from, to, len);
        }
        let last = len - LANE;
        let mut at = 0;
        while at < last {
            to.add(at).cast::<Lane>().write_unaligned(from.add(at).cast::<Lane>().read_unaligned());
            at += LANE;
        }
        to.add(last).cast::<Lane>().write_unaligned(from.add(last).cast::<Lane>().read_unaligned());
    }
}

/// ItemIdData: 15 bits of offset, 2 of flags, 15 of length, as C compilers lay out bit fields.
#[inline(always)]
fn line_pointer(at: usize, length: usize) -> u32 {
    let (at, length) = (at as u32, length as u32);
    if cfg!(target_endian = "big") { at << 17 | LP_NORMAL << 15 | length } else { at | LP_NORMAL << 15 | length << 17 }
}

/// Finds tuple `number` of a page. Returns its address and length.
///
/// # Safety
/// The page is complete and has that many tuples.
#[inline(always)]
unsafe fn find(page: *mut u8, number: usize) -> (*mut u8, usize) {
    // SAFETY: this function's contract.
    unsafe {
        let pointer = page.add(PAGE_HEADER + (number - 1) * LINE_POINTER).cast::<u32>().read();
        let (low, high) = ((pointer & 0x7fff) as usize, (pointer >> 17) as usize);
        let (at, length) = if cfg!(target_endian = "big") { (high, low) } else { (low, high) };
        (page.add(at), length)
    }
}
