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

use std::ptr::{NonNull, null_mut};

use pg_bulk_storage::btree::{
    BTP_DELETED, BTP_HALF_DEAD, BTP_INCOMPLETE_SPLIT, BTP_LEAF, BTP_META, MAX_ITEM, NO_BLOCK, Opaque,
};
use pgrx::pg_sys;

pub use self::grow::{IndexEnd, MOST_PAGES};
use crate::server::compat;
use crate::server::index_tuple::IndexTuple;
use crate::server::locked_page::{ExclusivePage, LockedPage};
use crate::server::relation::Relation;
use crate::server::section::{Critical, critical};
use crate::server::unguarded as c;

/// Maximum number of tuples that are inserted into a leaf at once: as many as fit on an empty page.
const MOST: usize = pg_sys::BLCKSZ as usize / (size_of::<pg_sys::IndexTupleData>() + LINE_POINTER);
const MOST_KEYS: usize = pg_sys::INDEX_MAX_KEYS as usize;
const LINE_POINTER: usize = size_of::<pg_sys::ItemIdData>();
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

/// Inserts tuples into an index's leaves. All tuples that its methods get are of that index.
pub struct LeafWriter {
    index: Relation<'static>,
    heap: Relation<'static>,
    /// Allocated by `_bt_mkscankey`. Its values are those of the latest tuple of `search_for`.
    key: NonNull<ScanInsert>,
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

impl LeafWriter {
    /// Creates a writer for an open B-tree and its heap. `unique`: the index must check uniqueness. Allocates in the
    /// current memory context, which must outlive the writer.
    ///
    /// # Safety
    /// A plain frame, a B-tree, and a tuple of it, whose contents do not matter.
    pub unsafe fn new(
        heap: Relation<'static>,
        index: Relation<'static>,
        unique: bool,
        nulls_distinct: bool,
        any: IndexTuple<'_>,
    ) -> LeafWriter {
        // SAFETY: a plain frame; `_bt_mkscankey` returns a key.
        let key =
            unsafe { NonNull::new_unchecked(c::_bt_mkscankey(index.as_ptr(), any.as_ptr()).cast::<ScanInsert>()) };
        let keys = index.index().map_or(0, |form| form.keys.min(MOST_KEYS));
        let needs_wal = compat::needs_wal(index);
        LeafWriter { index, heap, key, keys, unique, nulls_distinct, needs_wal, no_free_pages: false, woken_at: 0 }
    }

    /// Frees the memory.
    pub fn free(self) {
        // SAFETY: allocated by _bt_mkscankey in a context that still lives; raises nothing.
        unsafe { c::pfree(self.key.as_ptr().cast()) }
    }

    fn key(&mut self) -> &mut ScanInsert {
        // SAFETY: the writer owns the key.
        unsafe { self.key.as_mut() }
    }

    /// Whether the index is of nbtree version 4. Before, equal keys were not ordered by TID, which this module does not
    /// support.
    fn is_supported(&mut self) -> bool {
        self.key().heapkeyspace
    }

    fn scan_keys(&mut self) -> &mut [pg_sys::ScanKeyData] {
        // SAFETY: the writer owns the key, which has an entry for each key column behind its head.
        unsafe { std::slice::from_raw_parts_mut((&raw mut (*self.key.as_ptr()).scankeys).cast(), self.keys) }
    }

    /// Inserts tuples, which are in the index's order, into the leaf of the first one. Returns how many tuples, from
    /// the first one on, were inserted; 0 if the first one requires `index_insert`. Allocates in the current memory
    /// context.
    ///
    /// # Safety
    /// A plain frame, and tuples of the index, none of which is in the index yet.
    pub unsafe fn put(&mut self, tuples: &[IndexTuple<'_>]) -> usize {
        // SAFETY: a plain frame. An error leaves the leaf pinned and locked until the abort.
        unsafe {
            let Some(&first) = tuples.first() else { return 0 };
            if !self.is_supported() {
                return 0;
            }
            let mut keys = [Keys::new(), Keys::new()];
            self.search_for(first, &mut keys[0]);
            let Some(mut page) = compat::leaf_to_write(self.index, self.heap, self.key.as_ptr().cast()) else {
                return 0;
            };
            let mut positions = [0u16; MOST];
            let count = self.plan(&page, tuples, &mut keys, &mut positions);
            if count > 0 {
                c::CheckForSerializableConflictIn(self.index.as_ptr(), null_mut(), page.block());
                self.write(&mut page, tuples.get_unchecked(..count), &positions);
            }
            page.release();
            self.wake_wal_writer();
            count
        }
    }

    /// Wakes the WAL writer. Otherwise this process would write the WAL when the WAL buffers are full or at commit,
    /// while another processor is idle. Raises nothing.
    fn wake_wal_writer(&mut self) {
        // SAFETY: a variable of this process, and a call that raises nothing.
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

    /// Returns how many of the tuples belong to the leaf and fit, and sets the position of each: the tuple of the leaf
    /// before which it belongs. The scan key and the first `keys` are those of the first tuple.
    ///
    /// # Safety
    /// A plain frame.
    unsafe fn plan(
        &mut self,
        page: &LockedPage,
        tuples: &[IndexTuple<'_>],
        keys: &mut [Keys; 2],
        positions: &mut [u16; MOST],
    ) -> usize {
        let Some(leaf) = Leaf::of(page) else { return 0 };
        let mut room = page.free_space();
        let mut position = leaf.first;
        let [mut now, mut before] = keys.each_mut();
        for (count, (&tuple, place)) in tuples.iter().zip(positions.iter_mut()).enumerate() {
            let taken = tuple.aligned_size() + LINE_POINTER;
            if taken > room || tuple.aligned_size() > MAX_ITEM {
                return count;
            }
            if count > 0 {
                std::mem::swap(&mut now, &mut before);
                self.search_for(tuple, now);
            }
            let strict = self.unique && !(self.nulls_distinct && now.any_null(self.keys));
            if strict {
                self.key().scantid = null_mut();
            }
            let (index, key) = (self.index.as_ptr(), self.key.as_ptr().cast());
            // SAFETY: a plain frame; the number of a tuple of the leaf, and the scan key of a tuple that is valid.
            let compare = |number| unsafe { c::_bt_compare(index, key, page.as_ptr(), number) };
            // A tuple is usually close to the previous one.
            let stride = if count == 0 { u16::MAX } else { 1 };
            let Some(next) = leaf.position(position, stride, compare) else { return count };
            // A position before a tuple of the leaf is also before its high key.
            let is_last = next > leaf.last && !leaf.rightmost;
            if is_last && !leaf.is_before_end(compare(HIGH_KEY), strict) {
                return count;
            }
            if strict && next == leaf.first && !leaf.leftmost {
                return count;
            }
            // SAFETY: a plain frame.
            if strict && count > 0 && next == position && unsafe { self.is_equal(now, before) } {
                return count;
            }
            position = next;
            *place = position;
            room -= taken;
        }
        tuples.len().min(MOST)
    }

    /// Inserts tuples at their positions. Raises nothing but a PANIC.
    fn write(&self, page: &mut ExclusivePage, tuples: &[IndexTuple<'_>], positions: &[u16; MOST]) {
        let places = positions.iter().zip(0u16..).map(|(position, before)| position + before);
        if self.needs_wal && !is_shorter_whole(page, tuples) {
            for (tuple, place) in tuples.iter().zip(places) {
                critical(|critical| {
                    page.add(tuple.bytes(), place);
                    page.mark_dirty();
                    log(critical, page, *tuple, place);
                });
            }
            return;
        }
        critical(|_| {
            for (tuple, place) in tuples.iter().zip(places) {
                page.add(tuple.bytes(), place);
            }
            page.mark_dirty();
            if self.needs_wal {
                // SAFETY: a page that is locked for writing and marked dirty, in a critical section.
                unsafe { c::log_newpage_buffer(page.buffer(), true) };
            }
        });
    }

    /// Sets the scan key to a tuple. Raises nothing.
    fn search_for(&mut self, tuple: IndexTuple<'_>, keys: &mut Keys) {
        let (values, nulls) = (keys.values.as_mut_ptr(), keys.nulls.as_mut_ptr());
        // SAFETY: a tuple of the index; the arrays have room for the keys of any index.
        unsafe { c::index_deform_tuple(tuple.as_ptr(), self.index.descriptor().as_ptr(), values, nulls) };
        let mut any_null = false;
        for (key, (&value, &is_null)) in self.scan_keys().iter_mut().zip(keys.values.iter().zip(&keys.nulls)) {
            let flag = pg_sys::SK_ISNULL.cast_signed();
            key.sk_flags = if is_null { key.sk_flags | flag } else { key.sk_flags & !flag };
            key.sk_argument = if is_null { pg_sys::Datum::from(0usize) } else { value };
            any_null |= is_null;
        }
        let key = self.key();
        key.scantid = tuple.row();
        key.anynullkeys = any_null;
    }

    /// Whether two tuples have equal keys.
    ///
    /// # Safety
    /// A plain frame, and keys of the index.
    unsafe fn is_equal(&mut self, a: &Keys, b: &Keys) -> bool {
        let (a, b) = (a.values.iter().zip(&a.nulls), b.values.iter().zip(&b.nulls));
        self.scan_keys().iter_mut().zip(a.zip(b)).all(|(key, ((&a, &a_null), (&b, &b_null)))| {
            if a_null || b_null {
                return a_null == b_null;
            }
            // SAFETY: a plain frame; the scan key has the comparison function of these values.
            unsafe { c::FunctionCall2Coll(&raw mut key.sk_func, key.sk_collation, a, b).value() as i32 == 0 }
        })
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
    fn of(page: &LockedPage) -> Option<Leaf> {
        let Opaque { prev, next, flags, .. } = Opaque::of(&page.get(page.special())?);
        if flags & BTP_LEAF == 0 || flags & NOT_ORDINARY != 0 {
            return None;
        }
        let rightmost = next == NO_BLOCK;
        let first = if rightmost { 1 } else { 2 };
        Some(Leaf { first, last: page.count(), leftmost: prev == NO_BLOCK, rightmost })
    }

    /// Returns the tuple of the leaf before which a key belongs; None if it equals a tuple. `compare` compares the key
    /// with a tuple of the leaf. The key belongs behind the tuples before `from`. The search doubles its stride,
    /// beginning with `stride`.
    #[inline]
    fn position(&self, from: u16, stride: u16, compare: impl Fn(u16) -> i32) -> Option<u16> {
        // The position is at least `low` and at most `high`.
        let (mut low, mut high, mut stride) = (from, self.last + 1, stride);
        while low < high {
            let probe = if stride < high - low { low + stride - 1 } else { low + (high - low) / 2 };
            match compare(probe) {
                0 => return None,
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
        Some(low)
    }

    /// Whether a key that compares like this with the high key belongs to the leaf. With `strict` the key must be less,
    /// so that it cannot be on the next leaf either.
    fn is_before_end(&self, order: i32, strict: bool) -> bool {
        if strict { order < 0 } else { order <= 0 }
    }
}

/// Whether a full page image with these tuples takes less WAL than records for them, or is required in any case.
fn is_shorter_whole(page: &LockedPage, tuples: &[IndexTuple<'_>]) -> bool {
    let size: usize = tuples.iter().map(|tuple| tuple.aligned_size()).sum();
    let whole = pg_sys::BLCKSZ as usize - page.free_space() + size + tuples.len() * LINE_POINTER;
    let (mut redo, mut protects) = (0, false);
    // XLogRecordAssemble (xloginsert.c): the first change of a page after a checkpoint logs the full page.
    // SAFETY: copies two variables of this process.
    unsafe { c::GetFullPageWriteInfo(&raw mut redo, &raw mut protects) };
    size + tuples.len() * RECORD >= whole || (protects && page.lsn() <= redo)
}

/// Logs a tuple that was added to a page, which is marked dirty.
fn log(_: &Critical, page: &mut ExclusivePage, tuple: IndexTuple<'_>, place: u16) {
    // SAFETY: in a critical section; registered data stay valid until XLogInsert. xl_btree_insert (nbtxlog.h) holds only
    // the offset number.
    let end = unsafe {
        c::XLogBeginInsert();
        c::XLogRegisterData((&raw const place).cast(), size_of::<u16>() as u32);
        c::XLogRegisterBuffer(0, page.buffer(), pg_sys::REGBUF_STANDARD as u8);
        c::XLogRegisterBufData(0, tuple.as_ptr().cast(), tuple.size() as u32);
        c::XLogInsert(pg_sys::RmgrIds::RM_BTREE_ID as u8, INSERT_LEAF)
    };
    page.set_lsn(end);
}
