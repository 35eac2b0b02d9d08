//! Inserts many tuples into a leaf of a B-tree at once.
//!
//! PostgreSQL inserts index tuples one by one: each takes a descent from the root, a search in the leaf and a WAL
//! record. If tuples arrive in key order, many belong to one leaf. So this module searches for and locks a leaf once,
//! and inserts all tuples that belong there and fit:
//!
//! ```text
//!   tuples in order ─► descend with the first ─► leaf, locked ─► tuples that belong there and fit ─► records, or page
//!                                                            └─► none: index_insert takes the first tuple
//! ```
//!
//! This module never splits a page, frees space in one, checks the uniqueness of equal keys or splits a posting list. A
//! tuple that requires any of this is left to `index_insert`, and the tuples after it are tried again here. So a page
//! changes as if its tuples were inserted one after the other. The WAL records are XLOG_BTREE_INSERT_LEAF, or full
//! pages where these are smaller.
//!
//! The tricky point is uniqueness. An inserter holds the lock of the first leaf that may have its key while it searches
//! for duplicates and until its own tuple is inserted (_bt_doinsert, nbtinsert.c). The lock of this module's leaf is
//! that lock if the key lies strictly between two tuples of the leaf, or between a tuple and the high key. Then no
//! other leaf can have the key, and this one does not have it. A key that equals another one, or that comes first in
//! its leaf, is left to `index_insert`.

mod fresh;
mod grow;

use pg_bulk_storage::btree::{
    BTP_DELETED, BTP_HALF_DEAD, BTP_INCOMPLETE_SPLIT, BTP_LEAF, BTP_META, MAX_ITEM, NO_BLOCK, Opaque,
};
use pgrx::pg_sys;

pub use self::grow::{IndexEnd, MOST_PAGES};
use crate::server::compat;
use crate::server::relation::Relation;
use crate::server::unguarded as c;

/// Maximum number of tuples that are inserted into a leaf at once: as many as fit on an empty page.
const MOST: usize = pg_sys::BLCKSZ as usize / (size_of::<pg_sys::IndexTupleData>() + size_of::<pg_sys::ItemIdData>());
const MOST_KEYS: usize = pg_sys::INDEX_MAX_KEYS as usize;
/// INDEX_SIZE_MASK (itup.h)
const SIZE_MASK: u16 = 0x1fff;
/// P_HIKEY, of a leaf that is not the last one (nbtree.h)
const HIGH_KEY: u16 = 1;
/// Flags of pages that are left to `index_insert`.
const NOT_ORDINARY: u16 = BTP_DELETED | BTP_META | BTP_HALF_DEAD | BTP_INCOMPLETE_SPLIT;
/// Bytes of an XLOG_BTREE_INSERT_LEAF record besides its tuple: XLogRecord, the headers of a block and of data,
/// xl_btree_insert.
const RECORD: usize = 24 + 20 + 2 + 2;
/// Bytes of WAL after which the WAL writer is woken: half of wal_writer_flush_after's default.
const WAKE_AFTER: u64 = 512 << 10;
/// XLOG_BTREE_INSERT_LEAF (nbtxlog.h)
const INSERT_LEAF: u8 = 0x00;

/// BTScanInsertData (nbtree.h)
#[repr(C)]
pub struct ScanInsert {
    heapkeyspace: bool,
    allequalimage: bool,
    anynullkeys: bool,
    nextkey: bool,
    /// pivotsearch, and backward from 17 on
    other: bool,
    scantid: pg_sys::ItemPointer,
    keysz: std::ffi::c_int,
    /// One for each key column.
    scankeys: [pg_sys::ScanKeyData; 0],
}

const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(ScanInsert, nextkey) == 3 && offset_of!(ScanInsert, scantid) == 8);
    assert!(offset_of!(ScanInsert, keysz) == 16 && offset_of!(ScanInsert, scankeys) == 24);
    assert!(size_of::<pg_sys::ScanKeyData>() == 72);
    assert!(pg_sys::BLCKSZ as usize == pg_bulk_storage::page::PAGE_SIZE);
    assert!(pg_sys::MAXIMUM_ALIGNOF == 8);
};

/// Inserts tuples into an index's leaves.
pub struct LeafWriter {
    index: pg_sys::Relation,
    heap: pg_sys::Relation,
    /// Null if the index is older than nbtree version 4, which this module does not support.
    key: *mut ScanInsert,
    keys: usize,
    unique: bool,
    /// A NULL equals no other NULL.
    nulls_distinct: bool,
    needs_wal: bool,
    /// The latest page came from the end of the file, so the free space map is empty.
    no_free_pages: bool,
    /// End of WAL when the WAL writer was woken most recently, or when the first leaf was written; 0 before that.
    woken_at: pg_sys::XLogRecPtr,
}

/// The key values of a tuple.
struct Keys {
    values: [pg_sys::Datum; MOST_KEYS],
    nulls: [bool; MOST_KEYS],
}

/// Properties of a leaf page.
struct Leaf {
    /// First and last tuple (P_FIRSTDATAKEY, PageGetMaxOffsetNumber).
    first: u16,
    last: u16,
    leftmost: bool,
    rightmost: bool,
}

/// Position of a new tuple in a leaf.
enum Position {
    /// Before the tuple with this offset number.
    Before(u16),
    /// Equal to a tuple: left to `index_insert`.
    Unclear,
}

impl LeafWriter {
    /// Creates a writer for an open B-tree and its heap. `unique`: the index must check uniqueness. Allocates in the
    /// current memory context, which must outlive the writer.
    ///
    /// # Safety
    /// A plain frame, and open relations; a tuple of the index, whose contents do not matter.
    pub unsafe fn new(
        heap: pg_sys::Relation,
        index: pg_sys::Relation,
        unique: bool,
        nulls_distinct: bool,
        any: pg_sys::IndexTuple,
    ) -> LeafWriter {
        // SAFETY: this function's contract covers all arguments.
        unsafe {
            let key = c::_bt_mkscankey(index, any).cast::<ScanInsert>();
            // Before version 4, equal keys were not ordered by TID.
            let key = if (*key).heapkeyspace { key } else { std::ptr::null_mut() };
            let keys = usize::try_from((*(*index).rd_index).indnkeyatts).unwrap_or(0);
            let needs_wal = compat::needs_wal(Relation::from_raw(index));
            LeafWriter { index, heap, key, keys, unique, nulls_distinct, needs_wal, no_free_pages: false, woken_at: 0 }
        }
    }

    /// Frees the memory.
    ///
    /// # Safety
    /// A plain frame.
    pub unsafe fn free(self) {
        if !self.key.is_null() {
            // SAFETY: allocated by _bt_mkscankey.
            unsafe { c::pfree(self.key.cast()) }
        }
    }

    /// Inserts tuples, which are in the index's order, into the leaf of the first one. Returns how many tuples, from
    /// the first one on, were inserted; 0 if the first one requires `index_insert`. Allocates in the current memory
    /// context.
    ///
    /// # Safety
    /// A plain frame, and tuples of the index, none of which is in the index yet.
    pub unsafe fn put(&mut self, tuples: &[pg_sys::IndexTuple]) -> usize {
        // SAFETY: this function's contract covers frame and tuples. The leaf stays pinned and locked until it is
        // released, also by an error.
        unsafe {
            let Some(&first) = tuples.first() else { return 0 };
            if self.key.is_null() {
                return 0;
            }
            let mut keys = [Keys::new(), Keys::new()];
            self.search_for(first, &mut keys[0]);
            let buffer = compat::leaf_to_write(self.index, self.heap, self.key.cast());
            if buffer == 0 {
                return 0;
            }
            let mut positions = [0u16; MOST];
            let page = page_of(buffer);
            let count = self.plan(page, tuples, &mut keys, &mut positions);
            if count > 0 {
                let block = c::BufferGetBlockNumber(buffer);
                c::CheckForSerializableConflictIn(self.index, std::ptr::null_mut(), block);
                self.write(buffer, page, tuples.get_unchecked(..count), &positions);
            }
            c::UnlockReleaseBuffer(buffer);
            self.wake_wal_writer();
            count
        }
    }

    /// Wakes the WAL writer. Otherwise this process would write the WAL when the WAL buffers are full or at commit,
    /// while another processor is idle.
    ///
    /// # Safety
    /// A plain frame.
    unsafe fn wake_wal_writer(&mut self) {
        // SAFETY: this function's contract covers the frame; a variable of this process.
        unsafe {
            let end = pg_sys::XactLastRecEnd;
            if !self.needs_wal || (self.woken_at > 0 && end.saturating_sub(self.woken_at) < WAKE_AFTER) {
                return;
            }
            // The first leaf does not wake it: the commit of a small insert would have to wait until the WAL writer has
            // synced.
            if self.woken_at > 0 {
                c::XLogSetAsyncXactLSN(end);
            }
            self.woken_at = end;
        }
    }

    /// Returns how many of the tuples belong to the leaf and fit, and sets the position of each.
    ///
    /// # Safety
    /// As [`LeafWriter::put`]; a locked page. The scan key and the first `keys` are those of the first tuple.
    unsafe fn plan(
        &mut self,
        page: *mut u8,
        tuples: &[pg_sys::IndexTuple],
        keys: &mut [Keys; 2],
        positions: &mut [u16; MOST],
    ) -> usize {
        // SAFETY: this function's contract covers all arguments; an index page has a special space.
        unsafe {
            let Some(leaf) = Leaf::of(page) else { return 0 };
            let mut room = free_space(page);
            let mut position = leaf.first;
            let [mut now, mut before] = keys.each_mut();
            for (count, (&tuple, place)) in tuples.iter().zip(positions.iter_mut()).enumerate() {
                let taken = aligned_size(tuple) + size_of::<pg_sys::ItemIdData>();
                if taken > room || aligned_size(tuple) > MAX_ITEM {
                    return count;
                }
                if count > 0 {
                    std::mem::swap(&mut now, &mut before);
                    self.search_for(tuple, now);
                }
                let strict = self.unique && !(self.nulls_distinct && now.any_null(self.keys));
                if strict {
                    (*self.key).scantid = std::ptr::null_mut();
                }
                // A tuple is usually close to the previous one.
                let stride = if count == 0 { u16::MAX } else { 1 };
                match self.position(page, &leaf, position, stride) {
                    Position::Before(next) => {
                        // A position before a tuple of the leaf is also before its high key.
                        let is_last = next > leaf.last && !leaf.rightmost;
                        if is_last && !leaf.is_before_end(self.compare(page, HIGH_KEY), strict) {
                            return count;
                        }
                        let beside = count > 0 && next == position;
                        if strict && ((next == leaf.first && !leaf.leftmost) || beside && self.is_equal(now, before)) {
                            return count;
                        }
                        position = next;
                    }
                    Position::Unclear => return count,
                }
                *place = position;
                room -= taken;
            }
            tuples.len().min(MOST)
        }
    }

    /// Inserts tuples at their positions.
    ///
    /// # Safety
    /// As [`LeafWriter::plan`], with its result.
    unsafe fn write(
        &self,
        buffer: pg_sys::Buffer,
        page: *mut u8,
        tuples: &[pg_sys::IndexTuple],
        positions: &[u16; MOST],
    ) {
        let places = positions.iter().zip(0u16..).map(|(position, before)| position + before);
        let tuples = tuples.iter().copied().zip(places);
        // SAFETY: this function's contract covers all arguments. An error between a page change and its WAL record is a
        // PANIC (START_CRIT_SECTION, miscadmin.h).
        unsafe {
            if self.needs_wal && !is_shorter_whole(page, tuples.clone().map(|(tuple, _)| tuple)) {
                for (tuple, place) in tuples {
                    pg_sys::CritSectionCount += 1;
                    add(page, tuple, place);
                    c::MarkBufferDirty(buffer);
                    log(buffer, page, tuple, place);
                    pg_sys::CritSectionCount -= 1;
                }
                return;
            }
            pg_sys::CritSectionCount += 1;
            for (tuple, place) in tuples {
                add(page, tuple, place);
            }
            c::MarkBufferDirty(buffer);
            if self.needs_wal {
                c::log_newpage_buffer(buffer, true);
            }
            pg_sys::CritSectionCount -= 1;
        }
    }

    /// # Safety
    /// The number of a key column.
    #[inline]
    unsafe fn scan_key(&self, number: usize) -> *mut pg_sys::ScanKeyData {
        // SAFETY: the scan key has an entry for each key column, behind its head.
        unsafe { (&raw mut (*self.key).scankeys).cast::<pg_sys::ScanKeyData>().add(number) }
    }

    /// Sets the scan key to a tuple.
    ///
    /// # Safety
    /// A plain frame, and a tuple of the index.
    unsafe fn search_for(&mut self, tuple: pg_sys::IndexTuple, keys: &mut Keys) {
        // SAFETY: this function's contract covers the tuple; the arrays have room for the keys of any index, and the
        // scan key has one entry per key.
        unsafe {
            let (values, nulls) = (keys.values.as_mut_ptr(), keys.nulls.as_mut_ptr());
            c::index_deform_tuple(tuple, (*self.index).rd_att, values, nulls);
            let mut any_null = false;
            for i in 0..self.keys {
                let key = &mut *self.scan_key(i);
                let is_null = *keys.nulls.get_unchecked(i);
                let flag = pg_sys::SK_ISNULL.cast_signed();
                key.sk_flags = if is_null { key.sk_flags | flag } else { key.sk_flags & !flag };
                key.sk_argument = if is_null { pg_sys::Datum::from(0usize) } else { *keys.values.get_unchecked(i) };
                any_null |= is_null;
            }
            (*self.key).scantid = &raw mut (*tuple).t_tid;
            (*self.key).anynullkeys = any_null;
        }
    }

    /// Compares the scan key with a tuple of a page.
    ///
    /// # Safety
    /// As [`LeafWriter::plan`], and the offset number of a tuple.
    #[inline]
    unsafe fn compare(&self, page: *mut u8, number: u16) -> i32 {
        // SAFETY: this function's contract covers all arguments.
        unsafe { c::_bt_compare(self.index, self.key.cast(), page.cast(), number) }
    }

    /// Returns the tuple of a leaf before which the scan key belongs. It belongs behind the tuples before `from`. The
    /// search doubles its stride, beginning with `stride`.
    ///
    /// # Safety
    /// As [`LeafWriter::plan`].
    unsafe fn position(&self, page: *mut u8, leaf: &Leaf, from: u16, stride: u16) -> Position {
        // The position is at least `low` and at most `high`.
        let (mut low, mut high, mut stride) = (from, leaf.last + 1, stride);
        while low < high {
            let probe = if stride < high - low { low + stride - 1 } else { low + (high - low) / 2 };
            // SAFETY: this function's contract covers all arguments; the page has this tuple.
            match unsafe { self.compare(page, probe) } {
                0 => return Position::Unclear,
                1.. => {
                    low = probe + 1;
                    stride = stride.saturating_mul(2);
                }
                ..0 => {
                    high = probe;
                    stride = u16::MAX;
                }
            }
        }
        Position::Before(low)
    }

    /// Whether two tuples have equal keys.
    ///
    /// # Safety
    /// A plain frame, and keys of the index.
    unsafe fn is_equal(&self, a: &Keys, b: &Keys) -> bool {
        // SAFETY: this function's contract covers the keys; the scan key has a function for each.
        unsafe {
            for i in 0..self.keys {
                let (a_null, b_null) = (*a.nulls.get_unchecked(i), *b.nulls.get_unchecked(i));
                if a_null || b_null {
                    if a_null != b_null {
                        return false;
                    }
                    continue;
                }
                let key = self.scan_key(i);
                let (a, b) = (*a.values.get_unchecked(i), *b.values.get_unchecked(i));
                let order = c::FunctionCall2Coll(&raw mut (*key).sk_func, (*key).sk_collation, a, b);
                if order.value() as i32 != 0 {
                    return false;
                }
            }
            true
        }
    }
}

impl Keys {
    const fn new() -> Keys {
        Keys { values: [pg_sys::Datum::null(); MOST_KEYS], nulls: [false; MOST_KEYS] }
    }

    fn any_null(&self, count: usize) -> bool {
        self.nulls.iter().take(count).any(|&null| null)
    }
}

impl Leaf {
    /// None for a page that is no leaf, or is left to `index_insert`.
    ///
    /// # Safety
    /// A locked page of a B-tree.
    unsafe fn of(page: *mut u8) -> Option<Leaf> {
        // SAFETY: this function's contract covers the page.
        unsafe {
            let header = &*page.cast::<pg_sys::PageHeaderData>();
            let opaque = &*page.add(usize::from(header.pd_special)).cast::<Opaque>();
            if opaque.flags & BTP_LEAF == 0 || opaque.flags & NOT_ORDINARY != 0 {
                return None;
            }
            let rightmost = opaque.next == NO_BLOCK;
            let pointers = usize::from(header.pd_lower) - size_of::<pg_sys::PageHeaderData>();
            let last = u16::try_from(pointers / size_of::<pg_sys::ItemIdData>()).ok()?;
            Some(Leaf { first: if rightmost { 1 } else { 2 }, last, leftmost: opaque.prev == NO_BLOCK, rightmost })
        }
    }

    /// Whether a key that compares like this with the high key belongs to the leaf. With `strict` the key must be less,
    /// so that it cannot be on the next leaf either.
    fn is_before_end(&self, order: i32, strict: bool) -> bool {
        if strict { order < 0 } else { order <= 0 }
    }
}

/// BufferGetPage (bufmgr.h)
///
/// # Safety
/// A pinned buffer.
unsafe fn page_of(buffer: pg_sys::Buffer) -> *mut u8 {
    // SAFETY: this function's contract covers the buffer.
    unsafe { pg_sys::BufferGetPage(buffer).cast() }
}

/// MAXALIGN(IndexTupleSize)
///
/// # Safety
/// A tuple.
unsafe fn aligned_size(tuple: pg_sys::IndexTuple) -> usize {
    // SAFETY: this function's contract covers the tuple.
    usize::from(unsafe { (*tuple).t_info } & SIZE_MASK).next_multiple_of(8)
}

/// Free bytes for tuples and their line pointers (PageGetExactFreeSpace, bufpage.c).
///
/// # Safety
/// A locked page.
unsafe fn free_space(page: *const u8) -> usize {
    // SAFETY: this function's contract covers the page.
    let header = unsafe { &*page.cast::<pg_sys::PageHeaderData>() };
    usize::from(header.pd_upper).saturating_sub(header.pd_lower.into())
}

/// Whether a full page image with these tuples takes less WAL than records for them, or is required in any case.
///
/// # Safety
/// A locked page, and tuples.
unsafe fn is_shorter_whole(page: *const u8, tuples: impl Iterator<Item = pg_sys::IndexTuple>) -> bool {
    let (mut redo, mut protects) = (0, false);
    let (mut alone, mut records) = (0, 0);
    // SAFETY: this function's contract covers page and tuples.
    unsafe {
        for tuple in tuples {
            alone += aligned_size(tuple) + size_of::<pg_sys::ItemIdData>();
            records += aligned_size(tuple) + RECORD;
        }
        let whole = pg_sys::BLCKSZ as usize - free_space(page) + alone;
        // XLogRecordAssemble (xloginsert.c): the first change of a page after a checkpoint logs the full page.
        c::GetFullPageWriteInfo(&raw mut redo, &raw mut protects);
        records >= whole || (protects && lsn(page) <= redo)
    }
}

/// Adds a tuple to a page, before the one with this offset number. In a critical section.
///
/// # Safety
/// A locked page with room for the tuple.
unsafe fn add(page: *mut u8, tuple: pg_sys::IndexTuple, place: u16) {
    // SAFETY: this function's contract covers all arguments. PageAddItem (bufpage.h); on an inconsistent page it fails,
    // and the page must not be written.
    unsafe {
        if c::PageAddItemExtended(page.cast(), tuple.cast(), aligned_size(tuple), place, 0) == 0 {
            c::errstart_cold(pg_sys::PANIC as i32, std::ptr::null());
            c::errmsg_internal(c"failed to add tuples to an index page".as_ptr());
            c::errfinish(c"leaf.rs".as_ptr(), 0, c"add".as_ptr());
        }
    }
}

/// Logs an added tuple. In a critical section.
///
/// # Safety
/// As [`add`], in a buffer that is marked dirty.
unsafe fn log(buffer: pg_sys::Buffer, page: *mut u8, tuple: pg_sys::IndexTuple, place: u16) {
    let mut record = place;
    // SAFETY: this function's contract covers all arguments; registered data stay valid until XLogInsert.
    // xl_btree_insert (nbtxlog.h) holds only the offset number.
    unsafe {
        c::XLogBeginInsert();
        c::XLogRegisterData((&raw mut record).cast(), size_of::<u16>() as u32);
        c::XLogRegisterBuffer(0, buffer, pg_sys::REGBUF_STANDARD as u8);
        c::XLogRegisterBufData(0, tuple.cast(), u32::from((*tuple).t_info & SIZE_MASK));
        let end = c::XLogInsert(pg_sys::RmgrIds::RM_BTREE_ID as u8, INSERT_LEAF);
        let header = &mut *page.cast::<pg_sys::PageHeaderData>();
        header.pd_lsn.xlogid = (end >> 32) as u32;
        header.pd_lsn.xrecoff = end as u32;
    }
}

/// PageGetLSN (bufpage.h)
///
/// # Safety
/// A locked page.
unsafe fn lsn(page: *const u8) -> u64 {
    // SAFETY: this function's contract covers the page.
    let lsn = unsafe { (*page.cast::<pg_sys::PageHeaderData>()).pd_lsn };
    (u64::from(lsn.xlogid) << 32) | u64::from(lsn.xrecoff)
}
