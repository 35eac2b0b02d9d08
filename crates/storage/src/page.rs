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
//! The tricky point is reused memory. A page is not cleared before it is filled again. Tuples and line pointers are
//! written first; the header and the zeros between them follow when the page is complete. So only complete pages are visible
//! outside. The bounds of the current page are in `lower` and `upper`.
//!
//! A page ends at the same tuple as with heap_multi_insert, and its bytes are those that PageInit and PageAddItem would
//! leave. So a standby that replays [`PageBatch::wal_data`] has the same bytes. pd_prune_xid is 0 on all pages: an
//! insert leaves nothing to prune.
#![allow(unsafe_code, reason = "pages are bytes, and tuples are copied in pieces")]

use crate::tuple::{MAX_TUPLE_SIZE, T_CTID, T_INFOMASK2, TUPLE_HEADER, max_align};

/// BLCKSZ
pub const PAGE_SIZE: usize = 8192;
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

/// Offsets in the header.
const PD_FLAGS: usize = 10;
const PD_LOWER: usize = 12;

/// A page, aligned for direct I/O (PG_IO_ALIGN_SIZE).
#[derive(Clone, Debug)]
#[repr(C, align(4096))]
pub struct Page(pub [u8; PAGE_SIZE]);

impl Page {
    /// A page of zeros.
    pub const ZERO: Page = Page([0; PAGE_SIZE]);

    /// Returns the bytes of pages.
    #[must_use]
    pub fn bytes_of(pages: &[Page]) -> &[u8] {
        // SAFETY: pages are arrays of bytes, one after the other.
        unsafe { std::slice::from_raw_parts(pages.as_ptr().cast(), size_of_val(pages)) }
    }

    /// Returns the bytes of pages.
    pub fn bytes_of_mut(pages: &mut [Page]) -> &mut [u8] {
        // SAFETY: pages are arrays of bytes, one after the other; any bytes are a page.
        unsafe { std::slice::from_raw_parts_mut(pages.as_mut_ptr().cast(), size_of_val(pages)) }
    }

    /// Sets pd_lsn.
    pub fn set_lsn(&mut self, lsn: u64) {
        self.put(0, [(lsn >> 32) as u32, lsn as u32].map(u32::to_ne_bytes).as_flattened());
    }

    /// Reads bytes at an offset; zeros beyond the end.
    #[inline(always)]
    #[must_use]
    pub fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
    }

    /// Writes bytes at an offset; nothing beyond the end.
    #[inline(always)]
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        put(&mut self.0, at, bytes);
    }

    /// Number of line pointers.
    #[must_use]
    pub fn rows(&self) -> usize {
        usize::from(u16::from_ne_bytes(self.get(PD_LOWER))).saturating_sub(PAGE_HEADER) / LINE_POINTER
    }

    /// Offset, flags and length in a line pointer, from 1.
    #[inline(always)]
    #[must_use]
    pub fn item(&self, number: usize) -> (usize, u32, usize) {
        item_id(u32::from_ne_bytes(self.get(PAGE_HEADER + number.saturating_sub(1) * LINE_POINTER)))
    }
}

/// Writes bytes at an offset within `to`.
#[inline(always)]
fn put(to: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(to) = to.get_mut(at..at + bytes.len()) {
        to.copy_from_slice(bytes);
    }
}

const _: () = {
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
    /// The pages that have memory.
    pages: Vec<Page>,
    /// The most pages of the batch.
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

impl PageBatch {
    /// Creates a batch of at most `pages` pages. Each page keeps `reserve` bytes free unless it has only one tuple:
    /// RelationGetTargetPageFreeSpace, BLCKSZ × (100 − fillfactor) / 100. With `frozen` tuples, pages are all-visible.
    ///
    /// Returns `None` if memory is exhausted.
    #[must_use]
    pub fn new(pages: usize, reserve: usize, frozen: bool) -> Option<Self> {
        let limit = pages.clamp(1, u32::MAX as usize);
        let flags = if frozen { PD_ALL_VISIBLE } else { 0 };
        let (pages, lower, upper) = (Vec::new(), PAGE_HEADER, PAGE_SIZE);
        let mut batch = Self { pages, limit, reserve, flags, complete: 0, lower, upper, rows: 0 };
        if !batch.grow(limit.min(FIRST_PAGES)) {
            return None;
        }
        batch.pages.push(Page::ZERO);
        Some(batch)
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
        let page = &mut self.pages.get_mut(self.complete)?.0;
        put(page, self.lower, &line_pointer(upper, tuple.len()).to_ne_bytes());
        // At least 24 bytes, with the padding.
        let to = page.get_mut(upper..self.upper)?;
        *to.last_chunk_mut()? = [0; 8];
        copy(tuple, to);
        put(to, T_CTID + 4, &(number as u16).to_ne_bytes());
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
        let to = self.pages.get_mut(self.complete)?.0.get_mut(self.upper..)?;
        put(to, 0, header);
        put(to, T_CTID + 4, &place.1.to_ne_bytes());
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
        if self.complete == self.pages.len() {
            if self.complete == self.pages.capacity() && !self.grow((2 * self.complete).min(self.limit)) {
                // Memory is exhausted: the batch ends with the pages that it has.
                self.limit = self.complete;
                return None;
            }
            // A page is zeroed when it is the next one: zeroing all of them at once would push others out of the cache.
            self.pages.push(Page::ZERO);
        }
        Some(())
    }

    /// Allocates memory for more pages. Returns false if memory runs out.
    fn grow(&mut self, pages: usize) -> bool {
        self.pages.try_reserve_exact(pages.saturating_sub(self.pages.len())).is_ok()
    }

    /// Writes the current page's header and the zeros between line pointers and tuples.
    fn finish_page(&mut self) {
        let Some(Page(page)) = self.pages.get_mut(self.complete) else { return };
        page[..PAGE_HEADER].fill(0);
        let (lower, upper) = (self.lower as u16, self.upper as u16);
        for (i, field) in
            [self.flags, lower, upper, PAGE_SIZE as u16, PAGE_SIZE as u16 | LAYOUT_VERSION].iter().enumerate()
        {
            put(page, PD_FLAGS + 2 * i, &field.to_ne_bytes());
        }
        if let Some(hole) = page.get_mut(self.lower..self.upper) {
            hole.fill(0);
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
        if self.lower > PAGE_HEADER
            && let Some(([Page(to), ..], [Page(from), ..])) = self.pages.split_at_mut_checked(self.complete)
        {
            for part in [PAGE_HEADER..self.lower, self.upper..PAGE_SIZE] {
                put(to, part.start, from.get(part).unwrap_or_default());
            }
        }
        self.complete = 0;
        self.rows = 0;
    }

    /// Frees memory that only a larger batch needs. Does nothing if there are complete pages.
    pub fn shrink(&mut self) {
        let kept = self.limit.min(FIRST_PAGES);
        let mut pages = Vec::new();
        if self.complete == 0 && self.pages.capacity() > kept && pages.try_reserve_exact(kept).is_ok() {
            pages.extend(self.pages.drain(..kept.min(self.pages.len())));
            self.pages = pages;
        }
    }

    /// Size of the allocated memory, in bytes.
    #[must_use]
    pub fn allocated(&self) -> usize {
        self.pages.capacity() * PAGE_SIZE
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
        Page::bytes_of(self.complete_pages())
    }

    fn complete_pages(&self) -> &[Page] {
        self.pages.get(..self.complete).unwrap_or_default()
    }

    /// Returns a complete page.
    #[must_use]
    pub fn page_mut(&mut self, page: usize) -> Option<&mut Page> {
        self.pages.get_mut(..self.complete)?.get_mut(page)
    }

    /// Number of tuples on a complete page.
    #[must_use]
    pub fn page_rows(&self, page: usize) -> usize {
        self.complete_pages().get(page).map_or(0, Page::rows)
    }

    /// The tuples of a complete page with their offset numbers.
    pub fn tuples(&self, page: usize) -> impl Iterator<Item = (u16, &[u8])> {
        self.complete_pages().get(page).into_iter().flat_map(|page| {
            (1..=page.rows()).filter_map(|number| {
                let (at, _, length) = page.item(number);
                Some((number as u16, page.0.get(at..at + length)?))
            })
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
        let halves = [(block >> 16) as u16, block as u16].map(u16::to_ne_bytes);
        let Some(page) = self.page_mut(page) else { return };
        for number in 1..=page.rows() {
            page.put(page.item(number).0 + T_CTID, halves.as_flattened());
        }
    }

    /// Appends the block data of the XLOG_HEAP2_MULTI_INSERT record with INIT_PAGE that creates a complete page.
    /// Returns the number of its tuples, which another part of the record needs.
    pub fn wal_data(&self, page: usize, out: &mut Vec<u8>) -> u16 {
        let start = out.len();
        // A tuple takes fewer bytes in WAL, padding included, than it and its line pointer take on the page.
        out.resize(start + PAGE_SIZE, 0);
        let to = out.get_mut(start..).unwrap_or_default();
        let mut at = 0;
        for (_, tuple) in self.tuples(page) {
            // Tuples begin on even addresses, as counted from the beginning of the block's data.
            at += at % 2;
            put(to, at, &((tuple.len() - TUPLE_HEADER) as u16).to_ne_bytes());
            let logged = tuple.get(T_INFOMASK2..).unwrap_or_default();
            copy(logged, to.get_mut(at + 2..).unwrap_or_default());
            at += 2 + logged.len();
        }
        out.truncate(start + at);
        self.page_rows(page) as u16
    }
}

/// Copies a tuple. Most tuples are short, and a call of memcpy takes longer than copying them in pieces. The last piece
/// overlaps the one before it.
/// Copies nothing if `to` is too short.
#[inline(always)]
fn copy(from: &[u8], to: &mut [u8]) {
    type Lane = [u64; 2];
    const LANE: usize = size_of::<Lane>();
    let len = from.len();
    let Some(to) = to.get_mut(..len) else { return };
    if !(LANE..=16 * LANE).contains(&len) {
        return to.copy_from_slice(from);
    }
    let (from, to, last) = (from.as_ptr(), to.as_mut_ptr(), len - LANE);
    let mut at = 0;
    // SAFETY: both have `len` bytes, and all pieces are within these.
    unsafe {
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

/// Returns the offset, the flags and the length in a line pointer.
#[inline(always)]
#[must_use]
pub fn item_id(pointer: u32) -> (usize, u32, usize) {
    let (low, flags, high) = ((pointer & 0x7fff) as usize, pointer >> 15 & 3, (pointer >> 17) as usize);
    if cfg!(target_endian = "big") { (high, flags, low) } else { (low, flags, high) }
}
