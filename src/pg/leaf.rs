//! Many tuples into a B-tree's leaf at once.
//!
//! core inserts tuples one by one: for each a descent from the root, a search in the leaf, a WAL record. Of tuples in the order of
//! their keys many go into the same leaf, so here that is searched for and locked once, and takes as many as belong there and fit:
//!
//! ```text
//!   tuples in order ─► descend with the first ─► leaf, locked ─► those that belong there, and fit ─► records, or the page
//!                                                            └─► none: that one is core's
//! ```
//!
//! Nothing here splits a page, makes room in one, judges equal keys or cuts a posting list: a tuple that wants any of this is left to
//! `index_insert`, and what comes behind it is tried anew. So what happens to a page is what happens to it when tuples are inserted
//! one after the other, and the records are core's own, XLOG_BTREE_INSERT_LEAF, or full pages where these are fewer bytes.
//!
//! The tricky point is uniqueness. Whoever inserts a key holds the lock of the first leaf that it may be on while he looks for
//! others and until his own is there (_bt_doinsert, nbtinsert.c). That leaf is ours if the key lies strictly between two tuples
//! of it, or a tuple and its high key: then no other leaf can have the key, and this one has not. A key that is equal to
//! something, or comes first in its leaf, is core's to judge.

mod fresh;
mod grow;

use pg_bulk_format::btree::{
    BTP_DELETED, BTP_HALF_DEAD, BTP_INCOMPLETE_SPLIT, BTP_LEAF, BTP_META, MAX_ITEM, NO_BLOCK, Opaque,
};
use pgrx::pg_sys;

pub use self::grow::{End, MOST_PAGES};
use super::compat;
use super::unguarded as c;

/// Tuples that go into a leaf at once, at most: as many as there is room for on an empty page.
const MOST: usize = pg_sys::BLCKSZ as usize / (size_of::<pg_sys::IndexTupleData>() + size_of::<pg_sys::ItemIdData>());
const MOST_KEYS: usize = pg_sys::INDEX_MAX_KEYS as usize;
/// INDEX_SIZE_MASK (itup.h)
const SIZE_MASK: u16 = 0x1fff;
/// P_HIKEY, of a leaf that is not the last one (nbtree.h)
const HIGH_KEY: u16 = 1;
/// What only core deals with.
const NOT_ORDINARY: u16 = BTP_DELETED | BTP_META | BTP_HALF_DEAD | BTP_INCOMPLETE_SPLIT;
/// Bytes of an XLOG_BTREE_INSERT_LEAF record beside its tuple: XLogRecord, the headers of a block and of data, xl_btree_insert.
const RECORD: usize = 24 + 20 + 2 + 2;
/// Bytes of WAL that are worth waking the WAL writer: half of a write of its own (wal_writer_flush_after).
const WORTH_TELLING: u64 = 512 << 10;
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
    /// As many as the index has keys.
    scankeys: [pg_sys::ScanKeyData; 0],
}

const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(ScanInsert, nextkey) == 3 && offset_of!(ScanInsert, scantid) == 8);
    assert!(offset_of!(ScanInsert, keysz) == 16 && offset_of!(ScanInsert, scankeys) == 24);
    assert!(size_of::<pg_sys::ScanKeyData>() == 72);
    assert!(pg_sys::BLCKSZ as usize == pg_bulk_format::page::PAGE_SIZE);
    assert!(pg_sys::MAXIMUM_ALIGNOF == 8);
};

/// Puts tuples into an index's leaves.
pub struct LeafWriter {
    index: pg_sys::Relation,
    heap: pg_sys::Relation,
    /// Null if the index is none that tuples can be put into like this.
    key: *mut ScanInsert,
    keys: usize,
    unique: bool,
    /// NULLs are equal to nothing.
    nulls_distinct: bool,
    needs_wal: bool,
    /// The free space map was seen to have no page.
    no_free_pages: bool,
    /// The WAL writer has been told of WAL up to here, or what comes before it is others' to tell; 0 before the first leaf.
    told: pg_sys::XLogRecPtr,
}

/// The keys of a tuple.
struct Keys {
    values: [pg_sys::Datum; MOST_KEYS],
    nulls: [bool; MOST_KEYS],
}

/// What there is of a leaf.
struct Leaf {
    /// First tuple, and last one (P_FIRSTDATAKEY, PageGetMaxOffsetNumber).
    first: u16,
    last: u16,
    leftmost: bool,
    rightmost: bool,
}

/// Where a tuple goes.
enum Position {
    /// Before the tuple of this number.
    Before(u16),
    /// Where it goes is core's to find out.
    Unclear,
}

impl LeafWriter {
    /// For an open B-tree and its heap; `unique` if it is for the index to see that keys are. Allocates in the current memory
    /// context, which must live as long.
    ///
    /// # Safety
    /// A plain frame, and open relations; a tuple of the index, whose bytes do not matter.
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
            // Before version 4, equal keys were in no order.
            let key = if (*key).heapkeyspace { key } else { std::ptr::null_mut() };
            let keys = usize::try_from((*(*index).rd_index).indnkeyatts).unwrap_or(0);
            let needs_wal = compat::needs_wal(index);
            LeafWriter { index, heap, key, keys, unique, nulls_distinct, needs_wal, no_free_pages: false, told: 0 }
        }
    }

    /// Give the memory back.
    ///
    /// # Safety
    /// A plain frame.
    pub unsafe fn free(self) {
        if !self.key.is_null() {
            // SAFETY: what _bt_mkscankey allocated.
            unsafe { c::pfree(self.key.cast()) }
        }
    }

    /// Put tuples that are in the index's order into the leaf that the first one belongs to. Returns how many, from the first one
    /// on, are in the index now; none if that one wants more. What that takes is allocated in the current memory context.
    ///
    /// # Safety
    /// A plain frame, and tuples of the index, none of which is in it.
    pub unsafe fn put(&mut self, tuples: &[pg_sys::IndexTuple]) -> usize {
        // SAFETY: this function's contract covers frame and tuples. The leaf comes pinned and locked, and stays so until it is given back;
        // an error gives it back, too.
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
            self.tell_wal_writer();
            count
        }
    }

    /// Let the WAL writer write what there is: otherwise we would, once the WAL buffers are full, or at the commit, while the
    /// processor that it could use has nothing to do.
    ///
    /// # Safety
    /// A plain frame.
    unsafe fn tell_wal_writer(&mut self) {
        // SAFETY: this function's contract covers the frame; a variable of this process.
        unsafe {
            let end = pg_sys::XactLastRecEnd;
            if !self.needs_wal || (self.told > 0 && end.saturating_sub(self.told) < WORTH_TELLING) {
                return;
            }
            // What is little by the commit is written by it: a WAL writer that syncs would only be waited for.
            if self.told > 0 {
                c::XLogSetAsyncXactLSN(end);
            }
            self.told = end;
        }
    }

    /// How many of the tuples go into a leaf, and where: before which of the tuples that it has.
    ///
    /// # Safety
    /// As [`LeafWriter::put`]; a locked page. The search is for the first tuple, whose keys are the first ones.
    unsafe fn plan(
        &mut self,
        page: *mut u8,
        tuples: &[pg_sys::IndexTuple],
        keys: &mut [Keys; 2],
        positions: &mut [u16; MOST],
    ) -> usize {
        // SAFETY: this function's contract covers all arguments; a page of an index has a special space.
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
                // Tuples are not far from the one before.
                let stride = if count == 0 { u16::MAX } else { 1 };
                match self.position(page, &leaf, position, stride) {
                    Position::Before(next) => {
                        // What is before a tuple of the leaf is before its high key.
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

    /// Put tuples into their places.
    ///
    /// # Safety
    /// As [`LeafWriter::plan`], with what it has found.
    unsafe fn write(
        &self,
        buffer: pg_sys::Buffer,
        page: *mut u8,
        tuples: &[pg_sys::IndexTuple],
        positions: &[u16; MOST],
    ) {
        let places = positions.iter().zip(0u16..).map(|(position, before)| position + before);
        let tuples = tuples.iter().copied().zip(places);
        // SAFETY: this function's contract covers all arguments. From when a page is changed until that is in WAL, nothing is raised but a PANIC
        // (START_CRIT_SECTION, miscadmin.h).
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
    /// One of the index's keys.
    #[inline]
    unsafe fn scan_key(&self, number: usize) -> *mut pg_sys::ScanKeyData {
        // SAFETY: the search has as many as the index, behind its head.
        unsafe { (&raw mut (*self.key).scankeys).cast::<pg_sys::ScanKeyData>().add(number) }
    }

    /// Let the search be for a tuple.
    ///
    /// # Safety
    /// A plain frame, and a tuple of the index.
    unsafe fn search_for(&mut self, tuple: pg_sys::IndexTuple, keys: &mut Keys) {
        // SAFETY: this function's contract covers the tuple; there is room for the keys of any index, of which the search has as many.
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

    /// What is searched for against a tuple of a page.
    ///
    /// # Safety
    /// As [`LeafWriter::plan`], and the number of a tuple.
    #[inline]
    unsafe fn compare(&self, page: *mut u8, number: u16) -> i32 {
        // SAFETY: this function's contract covers all arguments.
        unsafe { c::_bt_compare(self.index, self.key.cast(), page.cast(), number) }
    }

    /// Before which tuple of a leaf goes what is searched for, if it is not before the tuple `from`? It is looked for in strides
    /// that grow, from one of that length on.
    ///
    /// # Safety
    /// As [`LeafWriter::plan`].
    unsafe fn position(&self, page: *mut u8, leaf: &Leaf, from: u16, stride: u16) -> Position {
        // It is not before `low`, and before `high` at the latest.
        let (mut low, mut high, mut stride) = (from, leaf.last + 1, stride);
        while low < high {
            let probe = if stride < high - low { low + stride - 1 } else { low + (high - low) / 2 };
            // SAFETY: this function's contract covers all arguments; a tuple that the page has.
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

    /// Have two tuples equal keys?
    ///
    /// # Safety
    /// A plain frame, and keys of the index.
    unsafe fn is_equal(&self, a: &Keys, b: &Keys) -> bool {
        // SAFETY: this function's contract covers the keys; the search has a function for each.
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
    /// None if it is no leaf, or one that core has something to do with.
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

    /// Does what compares like this to the high key belong to a leaf? If its key is not to be on the next one either, it must be
    /// less.
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

/// Bytes for tuples and their line pointers (PageGetExactFreeSpace, bufpage.c).
///
/// # Safety
/// A locked page.
unsafe fn free_space(page: *const u8) -> usize {
    // SAFETY: this function's contract covers the page.
    let header = unsafe { &*page.cast::<pg_sys::PageHeaderData>() };
    usize::from(header.pd_upper).saturating_sub(header.pd_lower.into())
}

/// Is a page with these tuples added shorter in WAL than the tuples, or to be there anyway?
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
        // XLogRecordAssemble (xloginsert.c): the first change of a page since the last checkpoint brings it all.
        c::GetFullPageWriteInfo(&raw mut redo, &raw mut protects);
        records >= whole || (protects && lsn(page) <= redo)
    }
}

/// Put a tuple into a page, before the one of that number. In a critical section.
///
/// # Safety
/// A locked page with room for it.
unsafe fn add(page: *mut u8, tuple: pg_sys::IndexTuple, place: u16) {
    // SAFETY: this function's contract covers all arguments. PageAddItem (bufpage.h); a page that is not what it was said to be must not be
    // written.
    unsafe {
        if c::PageAddItemExtended(page.cast(), tuple.cast(), aligned_size(tuple), place, 0) == 0 {
            c::errstart_cold(pg_sys::PANIC as i32, std::ptr::null());
            c::errmsg_internal(c"failed to add tuples to an index page".as_ptr());
            c::errfinish(c"leaf.rs".as_ptr(), 0, c"add".as_ptr());
        }
    }
}

/// Log a tuple that was added. In a critical section.
///
/// # Safety
/// As [`add`], in a buffer that is marked dirty.
unsafe fn log(buffer: pg_sys::Buffer, page: *mut u8, tuple: pg_sys::IndexTuple, place: u16) {
    let mut record = place;
    // SAFETY: this function's contract covers all arguments; what is registered stays until it is inserted. xl_btree_insert (nbtxlog.h) is the
    // number.
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
