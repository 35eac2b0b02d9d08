//! Adds whole leaves behind the last leaf of a B-tree that other transactions use.
//!
//! Growing keys, such as sequence numbers and timestamps, belong behind all keys of an index. They need no search and
//! no page split: their leaves are built beforehand, and linked behind the last leaf in one step.
//!
//! ```text
//!   parent, the last one of level 1     │ ... last │ + new + new + new
//!                                                     ▲
//!   last leaf, new leaves           ... ── last ──── new ── new ── new
//!                                          + tuples that fit, + a high key
//! ```
//!
//! The new pages are allocated first, so that no process waits for that. Then the last leaf and its parent are locked,
//! in the order of _bt_split and _bt_insert_parent (nbtinsert.c). One WAL record holds all pages in full. So a crash
//! leaves neither unreachable leaves nor an incomplete split. Redo restores the pages in the order of the record: first
//! the new leaves, then the old last leaf, which links to them, then the parent. A reader on a standby meanwhile
//! reaches them from the left, as after a split.
//!
//! This module never splits the parent, or a leaf that is alone on its level. Tuples are then inserted by
//! `index_insert`, until it has split these pages and updated the fast root.
//!
//! The tricky point is that nothing is locked while the leaves are built. The properties of the last leaf and its
//! parent at that time only determine how much space there is. Once both are locked, they must still be the last pages
//! with the same free space, and the first new tuple must belong behind the last tuple there. For a unique index the
//! keys alone decide this: if all new keys are greater, no row of the index has one of them. A process that is about to
//! insert one of them waits for the last leaf's lock, and then finds the new tuple.

use pg_bulk_storage::btree::extension::{Extension, lead_to};
use pg_bulk_storage::btree::{BTP_LEAF, BTP_ROOT, NO_BLOCK, Opaque, SPECIAL_START};
use pg_bulk_storage::page::PAGE_SIZE;
use pgrx::pg_sys;

use super::{LeafWriter, NOT_ORDINARY, add, aligned_size, free_space, fresh, page_of};
use crate::error::OrRaise;
use crate::server::compat;
use crate::server::points::{point_plain, point_quiet};
use crate::server::relation::Relation;
use crate::server::unguarded as c;

/// Maximum number of new leaves per step: these, the last leaf and its parent are the blocks of one record
/// (XLR_MAX_BLOCK_ID, xlogrecord.h).
pub const MOST_PAGES: usize = pg_sys::XLR_MAX_BLOCK_ID as usize + 1 - 2;
/// XLOG_FPI (pg_control.h)
const FULL_PAGES: u8 = 0xB0;
const LINE_POINTER: usize = size_of::<pg_sys::ItemIdData>();
const MAIN: pg_sys::ForkNumber::Type = pg_sys::ForkNumber::MAIN_FORKNUM;
const EXCLUSIVE: i32 = pg_sys::BUFFER_LOCK_EXCLUSIVE.cast_signed();
/// Maximum length of a high key or downlink.
const LONGEST_LINK: usize = 128;

/// Bytes of a tuple, with its alignment.
#[repr(align(8))]
struct Link([u8; LONGEST_LINK]);

/// Writes the high key between an item and the new leaves. Returns its length, or None if it is not possible.
pub type Border<'a> = dyn Fn(&Extension, &[u8], &mut [u8]) -> Option<usize> + 'a;

/// State of the end of an index without locks: the last leaf, its parent, and their free space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEnd {
    leaf: u32,
    /// Bytes for tuples and line pointers.
    pub room: usize,
    parent: u32,
    pub parent_room: usize,
    /// Deduplication is allowed according to the metapage, which is also correct after pg_upgrade from a version before
    /// 13.
    pub may_deduplicate: bool,
}

impl LeafWriter {
    /// Returns the state of the index's end, if a tuple belongs there and leaves can be added. Allocates in the current
    /// memory context.
    ///
    /// # Safety
    /// As [`LeafWriter::put`].
    pub unsafe fn end(&mut self, tuple: pg_sys::IndexTuple) -> Option<IndexEnd> {
        // SAFETY: this function's contract covers frame and tuple. Pages are returned pinned and locked, and are
        // released.
        unsafe {
            if self.key.is_null() {
                return None;
            }
            self.search(tuple);
            let buffer = compat::leaf_to_write(self.index, self.heap, self.key.cast());
            if buffer == 0 {
                return None;
            }
            let leaf = c::BufferGetBlockNumber(buffer);
            let room = self.room_behind(page_of(buffer), tuple);
            c::UnlockReleaseBuffer(buffer);
            let room = room?;
            // The leaf is not the root, so it has a parent level.
            let buffer = compat::last_of_level(self.index, 1);
            let parent = c::BufferGetBlockNumber(buffer);
            let parent_room = room_for_links(page_of(buffer), leaf);
            c::UnlockReleaseBuffer(buffer);
            let may_deduplicate = (*self.key).allequalimage;
            Some(IndexEnd { leaf, room, parent, parent_room: parent_room?, may_deduplicate })
        }
    }

    /// Adds `leaves` at the end, and `tuples` to the current last leaf, which has room for them. `border` writes the
    /// high key between that leaf's last item and the new leaves. All tuples are in the index's order, beginning with
    /// `first`. Returns false without a change if the end has changed or does not allow it.
    ///
    /// # Safety
    /// As [`LeafWriter::put`]; `leaves` has at most [`MOST_PAGES`] leaf pages, made for this index; `border` raises
    /// nothing.
    pub unsafe fn grow(
        &mut self,
        end: &IndexEnd,
        first: pg_sys::IndexTuple,
        tuples: &[pg_sys::IndexTuple],
        leaves: &mut Extension,
        border: &Border<'_>,
    ) -> bool {
        // SAFETY: this function's contract covers frame and tuples. Buffers stay pinned and locked until they are
        // released, also by an error; a page without tuples is empty then.
        unsafe {
            if leaves.is_empty() || leaves.len() > MOST_PAGES {
                return false;
            }
            if self.needs_wal {
                c::XLogEnsureRecordSpace(pg_sys::XLR_MAX_BLOCK_ID as i32, 0);
            }
            let (mut held, mut blocks) = (LockedPages::new(), [NO_BLOCK; MOST_PAGES]);
            self.get_pages(leaves.len(), &mut held);
            let blocks = blocks.get_unchecked_mut(..leaves.len());
            for (place, &buffer) in blocks.iter_mut().zip(held.buffers()) {
                *place = c::BufferGetBlockNumber(buffer);
            }
            leaves.place(blocks, end.leaf);
            self.search(first);
            let leaf = held.lock(self.index, end.leaf);
            let parent = held.lock(self.index, end.parent);
            let mut key = Link([0; LONGEST_LINK]);
            let is_same = self.room_behind(leaf, first) == Some(end.room)
                && room_for_links(parent, end.leaf) == Some(end.parent_room);
            let length = if is_same { border(leaves, last_item(leaf, tuples), &mut key.0) } else { None };
            let Some(length) = length.filter(|&length| fits(end, tuples, length, leaves)) else {
                held.release();
                for &block in blocks.iter() {
                    c::RecordFreeIndexPage(self.index, block);
                }
                return false;
            };
            c::CheckForSerializableConflictIn(self.index, std::ptr::null_mut(), end.leaf);
            point_quiet!("leaf.grow");
            pg_sys::CritSectionCount += 1;
            self.write_end(&held, tuples, key.0.get_unchecked_mut(..length), leaves);
            pg_sys::CritSectionCount -= 1;
            point_quiet!("leaf.grown");
            // A transaction that has read up to the end has also read the range of the new pages.
            for &block in blocks.iter() {
                c::PredicateLockPageSplit(self.index, end.leaf, block);
            }
            held.release();
            self.wake_wal_writer();
            true
        }
    }

    /// Allocates pages, locked and zeroed. An error leaves them like this, as an error in _bt_split does, and VACUUM
    /// finds them.
    ///
    /// # Safety
    /// As [`LeafWriter::put`]; `held` is empty, and has room for the pages.
    unsafe fn get_pages(&mut self, wanted: usize, held: &mut LockedPages) {
        // SAFETY: this function's contract covers frame and room; buffers are pinned and locked.
        unsafe {
            while held.count < wanted {
                if self.no_free_pages {
                    let index = Relation::from_raw(self.index);
                    let room = held.list.get_unchecked_mut(held.count..wanted);
                    held.count += c::guarded(|| fresh::extend(index, room).or_raise());
                }
                if held.count < wanted {
                    point_plain!("leaf.page");
                    let end = c::RelationGetNumberOfBlocksInFork(self.index, MAIN);
                    let buffer = compat::new_index_page(self.index, self.heap);
                    std::ptr::write_bytes(page_of(buffer), 0, PAGE_SIZE);
                    self.no_free_pages = held.add(buffer) >= end;
                }
            }
        }
    }

    /// Changes the pages and logs them. In a critical section.
    ///
    /// # Safety
    /// As [`LeafWriter::grow`], which has checked the free space.
    unsafe fn write_end(&self, held: &LockedPages, tuples: &[pg_sys::IndexTuple], key: &mut [u8], leaves: &Extension) {
        // SAFETY: this function's contract covers all arguments: the leaf, its parent and a page for each new leaf are
        // locked.
        unsafe {
            let [new @ .., leaf, parent] = held.buffers() else { return };
            let first = new.first().map_or(NO_BLOCK, |&buffer| c::BufferGetBlockNumber(buffer));
            let page = page_of(*leaf);
            for &tuple in tuples {
                add(page, tuple, count(page) + 1);
            }
            add(page, key.as_mut_ptr().cast(), 1);
            (*opaque(page)).next = first;
            c::MarkBufferDirty(*leaf);
            let page = page_of(*parent);
            lead_to(key, first);
            add(page, key.as_mut_ptr().cast(), count(page) + 1);
            for link in leaves.links() {
                add(page, link.as_ptr().cast_mut().cast(), count(page) + 1);
            }
            c::MarkBufferDirty(*parent);
            for (&buffer, bytes) in new.iter().zip(leaves.pages()) {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), page_of(buffer), PAGE_SIZE);
                c::MarkBufferDirty(buffer);
            }
            if !self.needs_wal {
                return;
            }
            c::XLogBeginInsert();
            let flags = (pg_sys::REGBUF_FORCE_IMAGE | pg_sys::REGBUF_STANDARD) as u8;
            for (id, &buffer) in (0u8..).zip(held.buffers()) {
                c::XLogRegisterBuffer(id, buffer, flags);
            }
            let at = c::XLogInsert(pg_sys::RmgrIds::RM_XLOG_ID as u8, FULL_PAGES);
            for &buffer in held.buffers() {
                let header = &mut *page_of(buffer).cast::<pg_sys::PageHeaderData>();
                header.pd_lsn.xlogid = (at >> 32) as u32;
                header.pd_lsn.xrecoff = at as u32;
            }
        }
    }

    /// Sets the scan key to a tuple.
    ///
    /// # Safety
    /// As [`LeafWriter::put`].
    unsafe fn search(&mut self, tuple: pg_sys::IndexTuple) {
        let mut keys = super::Keys::new();
        // SAFETY: passed on.
        unsafe { self.search_for(tuple, &mut keys) }
    }

    /// Returns the free space of a leaf, if it is the last one and the scan key belongs behind all its tuples.
    ///
    /// # Safety
    /// As [`LeafWriter::put`]; a locked page of the index.
    unsafe fn room_behind(&mut self, page: *mut u8, tuple: pg_sys::IndexTuple) -> Option<usize> {
        // SAFETY: this function's contract covers all arguments.
        unsafe {
            let Opaque { prev, flags, .. } = *opaque(page);
            // If the leaf is alone on its level, it may be the fast root (btm_fastroot), which a split must update.
            if !is_last(page, BTP_LEAF) || flags & BTP_ROOT != 0 || prev == NO_BLOCK {
                return None;
            }
            let last = count(page);
            // Dead rows count, too.
            (*self.key).scantid = if self.unique { std::ptr::null_mut() } else { &raw mut (*tuple).t_tid };
            let is_behind = last > 0 && self.compare(page, last) > 0;
            (*self.key).scantid = &raw mut (*tuple).t_tid;
            is_behind.then(|| free_space(page))
        }
    }
}

/// Whether the free space suffices for the tuples, a high key of that length, and the downlinks to the leaves.
///
/// # Safety
/// Tuples.
unsafe fn fits(end: &IndexEnd, tuples: &[pg_sys::IndexTuple], high_key: usize, leaves: &Extension) -> bool {
    let size = |bytes: usize| bytes.next_multiple_of(8) + LINE_POINTER;
    // SAFETY: this function's contract covers the tuples.
    let tuples_size: usize = tuples.iter().map(|&tuple| size(unsafe { aligned_size(tuple) })).sum();
    let links_size: usize = size(high_key) + leaves.links().map(|link| size(link.len())).sum::<usize>();
    tuples_size + size(high_key) <= end.room && links_size <= end.parent_room
}

/// Pages that are pinned and locked: new leaves, the last leaf, its parent.
struct LockedPages {
    list: [pg_sys::Buffer; MOST_PAGES + 2],
    count: usize,
}

impl LockedPages {
    const fn new() -> LockedPages {
        LockedPages { list: [0; MOST_PAGES + 2], count: 0 }
    }

    /// Adds a locked page. Returns its block number.
    ///
    /// # Safety
    /// A buffer that is pinned and locked; `list` has room for it.
    unsafe fn add(&mut self, buffer: pg_sys::Buffer) -> u32 {
        // SAFETY: this function's contract covers the argument.
        unsafe {
            *self.list.get_unchecked_mut(self.count) = buffer;
            self.count += 1;
            c::BufferGetBlockNumber(buffer)
        }
    }

    /// # Safety
    /// A plain frame; an open index that has this block.
    unsafe fn lock(&mut self, index: pg_sys::Relation, block: u32) -> *mut u8 {
        // SAFETY: this function's contract covers both arguments.
        unsafe {
            let mode = pg_sys::ReadBufferMode::RBM_NORMAL;
            let buffer = c::ReadBufferExtended(index, MAIN, block, mode, std::ptr::null_mut());
            c::LockBuffer(buffer, EXCLUSIVE);
            self.add(buffer);
            page_of(buffer)
        }
    }

    fn buffers(&self) -> &[pg_sys::Buffer] {
        self.list.get(..self.count).unwrap_or_default()
    }

    /// Releases all pages.
    ///
    /// # Safety
    /// All pages are pinned and locked.
    unsafe fn release(&self) {
        for &buffer in self.buffers() {
            // SAFETY: this function's contract covers the argument.
            unsafe { c::UnlockReleaseBuffer(buffer) };
        }
    }
}

/// BTPageGetOpaque (nbtree.h)
///
/// # Safety
/// A pinned page of a B-tree.
unsafe fn opaque(page: *mut u8) -> *mut Opaque {
    // SAFETY: this function's contract covers the page; the special space has a fixed position.
    unsafe { page.add(SPECIAL_START).cast() }
}

/// PageGetMaxOffsetNumber (bufpage.h)
///
/// # Safety
/// A pinned page.
unsafe fn count(page: *const u8) -> u16 {
    // SAFETY: this function's contract covers the page.
    let lower = usize::from(unsafe { (*page.cast::<pg_sys::PageHeaderData>()).pd_lower });
    (lower.saturating_sub(size_of::<pg_sys::PageHeaderData>()) / LINE_POINTER) as u16
}

/// Whether a page is the last one of the leaf level (`leaf` is BTP_LEAF) or of the level above (`leaf` is 0), and is
/// not left to `index_insert`.
///
/// # Safety
/// A locked page.
unsafe fn is_last(page: *mut u8, leaf: u16) -> bool {
    // SAFETY: this function's contract covers the page.
    unsafe {
        let special = usize::from((*page.cast::<pg_sys::PageHeaderData>()).pd_special);
        let Opaque { next, level, flags, .. } = *opaque(page);
        let is_level = level == u32::from(leaf == 0) && flags & BTP_LEAF == leaf;
        special == SPECIAL_START && is_level && flags & NOT_ORDINARY == 0 && next == NO_BLOCK
    }
}

/// Returns the free space of a page, if it is the last one above the leaves and its last downlink leads to this leaf.
///
/// # Safety
/// A locked page.
unsafe fn room_for_links(page: *mut u8, leaf: u32) -> Option<usize> {
    // SAFETY: this function's contract covers the page.
    unsafe {
        let last = if is_last(page, 0) { count(page) } else { 0 };
        let link = (last > 0).then(|| tuple_at(page, last))?;
        let block = u32::from((*link).t_tid.ip_blkid.bi_hi) << 16 | u32::from((*link).t_tid.ip_blkid.bi_lo);
        (block == leaf).then(|| free_space(page))
    }
}

/// PageGetItem (bufpage.h)
///
/// # Safety
/// A locked page that has an item with this number.
unsafe fn tuple_at(page: *mut u8, number: u16) -> pg_sys::IndexTuple {
    // SAFETY: this function's contract covers the page.
    unsafe {
        let pointers = page.add(size_of::<pg_sys::PageHeaderData>()).cast::<pg_sys::ItemIdData>();
        let pointer = &*pointers.add(usize::from(number) - 1);
        page.add(pointer.lp_off() as usize).cast()
    }
}

/// Returns the last item of a leaf once it has these tuples, too.
///
/// # Safety
/// As [`LeafWriter::grow`]; a locked page that has items.
unsafe fn last_item<'a>(page: *mut u8, tuples: &[pg_sys::IndexTuple]) -> &'a [u8] {
    // SAFETY: this function's contract covers all arguments; the tuple's header holds its length.
    unsafe {
        let last = tuples.last().copied().unwrap_or_else(|| tuple_at(page, count(page)));
        std::slice::from_raw_parts(last.cast::<u8>(), usize::from((*last).t_info & super::SIZE_MASK))
    }
}
