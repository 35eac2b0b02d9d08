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

use std::ptr::null_mut;

use pg_bulk_storage::btree::extension::{Extension, lead_to};
use pg_bulk_storage::btree::{BTP_LEAF, BTP_ROOT, NO_BLOCK, Opaque, SPECIAL_START};
use pgrx::pg_sys;

use super::{LINE_POINTER, LeafWriter, NOT_ORDINARY, fresh};
use crate::error::OrRaise;
use crate::server::compat;
use crate::server::index_tuple::IndexTuple;
use crate::server::locked_page::{ExclusivePage, LockedPage};
use crate::server::points::{point_plain, point_quiet};
use crate::server::section::{Critical, critical};
use crate::server::unguarded as c;

/// Maximum number of new leaves per step: these, the last leaf and its parent are the blocks of one record
/// (XLR_MAX_BLOCK_ID, xlogrecord.h).
pub const MOST_PAGES: usize = pg_sys::XLR_MAX_BLOCK_ID as usize + 1 - 2;
/// XLOG_FPI (pg_control.h)
const FULL_PAGES: u8 = 0xB0;
const MAIN: pg_sys::ForkNumber::Type = pg_sys::ForkNumber::MAIN_FORKNUM;
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
    pub unsafe fn end(&mut self, tuple: IndexTuple<'_>) -> Option<IndexEnd> {
        // SAFETY: a plain frame and a tuple of the index, by this function's contract.
        unsafe {
            if !self.is_supported() {
                return None;
            }
            self.search_for(tuple, &mut super::Keys::new());
            let page = compat::leaf_to_write(self.index, self.heap, self.key.as_ptr().cast())?;
            let (leaf, room) = (page.block(), self.room_behind(&page, tuple));
            page.release();
            let room = room?;
            // The leaf is not the root, so it has a parent level.
            let page = compat::end_of_level(self.index, 1, true)?;
            let (parent, parent_room) = (page.block(), room_for_links(&page, leaf));
            page.release();
            let may_deduplicate = self.key().allequalimage;
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
        first: IndexTuple<'_>,
        tuples: &[IndexTuple<'_>],
        leaves: &mut Extension,
        border: &Border<'_>,
    ) -> bool {
        let (index, count) = (self.index, leaves.len());
        // SAFETY: a plain frame and tuples of the index, by this function's contract. An error leaves pages pinned and
        // locked until the abort; a page without tuples is empty then.
        unsafe {
            // New leaves, the last leaf, its parent.
            let (mut held, mut blocks) = ([const { None }; MOST_PAGES + 2], [NO_BLOCK; MOST_PAGES]);
            let (Some((pages, [leaf, parent, ..])), Some(blocks), true) =
                (held.split_at_mut_checked(count), blocks.get_mut(..count), count > 0)
            else {
                return false;
            };
            if self.needs_wal {
                c::XLogEnsureRecordSpace(pg_sys::XLR_MAX_BLOCK_ID as i32, 0);
            }
            // New pages, locked and zeroed. An error leaves them like this, as an error in _bt_split does, and VACUUM finds
            // them.
            let mut got = 0;
            while got < pages.len() {
                if self.no_free_pages {
                    let room = pages.get_unchecked_mut(got..);
                    got += c::guarded(|| fresh::extend(index, room).or_raise());
                }
                if let Some(place) = pages.get_mut(got) {
                    point_plain!("leaf.page");
                    let end = c::RelationGetNumberOfBlocksInFork(index.as_ptr(), MAIN);
                    let page = place.insert(compat::new_index_page(index, self.heap));
                    page.bytes().fill(0);
                    self.no_free_pages = page.block() >= end;
                    got += 1;
                }
            }
            for (place, page) in blocks.iter_mut().zip(pages.iter().flatten()) {
                *place = page.block();
            }
            leaves.place(blocks, end.leaf);
            self.search_for(first, &mut super::Keys::new());
            let leaf = leaf.insert(ExclusivePage::read(index, end.leaf));
            let parent = parent.insert(ExclusivePage::read(index, end.parent));
            let mut key = Link([0; LONGEST_LINK]);
            let is_same = self.room_behind(leaf, first) == Some(end.room)
                && room_for_links(parent, end.leaf) == Some(end.parent_room);
            let length = if is_same { border(leaves, last_item(leaf, tuples), &mut key.0) } else { None };
            let length = length.filter(|&length| fits(end, tuples, length, leaves));
            let Some(key) = length.and_then(|length| key.0.get_mut(..length)) else {
                release(held);
                for &block in blocks.iter() {
                    c::RecordFreeIndexPage(index.as_ptr(), block);
                }
                return false;
            };
            c::CheckForSerializableConflictIn(index.as_ptr(), null_mut(), end.leaf);
            point_quiet!("leaf.grow");
            critical(|critical| {
                write_end(pages, leaf, parent, tuples, key, leaves);
                if self.needs_wal {
                    log(critical, pages, leaf, parent);
                }
            });
            point_quiet!("leaf.grown");
            // A transaction that has read up to the end has also read the range of the new pages.
            for &block in blocks.iter() {
                c::PredicateLockPageSplit(index.as_ptr(), end.leaf, block);
            }
            release(held);
            self.wake_wal_writer();
            true
        }
    }

    /// Returns the free space of a leaf, if it is the last one and a tuple, that of the scan key, belongs behind all its
    /// tuples.
    ///
    /// # Safety
    /// A plain frame.
    unsafe fn room_behind(&mut self, page: &LockedPage, tuple: IndexTuple<'_>) -> Option<usize> {
        let Opaque { prev, flags, .. } = last_of_level(page, BTP_LEAF)?;
        let last = page.count();
        // If the leaf is alone on its level, it may be the fast root (btm_fastroot), which a split must update.
        if flags & BTP_ROOT != 0 || prev == NO_BLOCK || last == 0 {
            return None;
        }
        // Dead rows count, too.
        self.key().scantid = if self.unique { null_mut() } else { tuple.row() };
        let (index, key) = (self.index.as_ptr(), self.key.as_ptr().cast());
        // SAFETY: a plain frame, the number of a tuple of the leaf, and the scan key of a tuple that is valid.
        let is_behind = unsafe { c::_bt_compare(index, key, page.as_ptr(), last) } > 0;
        self.key().scantid = tuple.row();
        is_behind.then(|| page.free_space())
    }
}

/// Whether the free space suffices for the tuples, a high key of that length, and the downlinks to the leaves.
fn fits(end: &IndexEnd, tuples: &[IndexTuple<'_>], high_key: usize, leaves: &Extension) -> bool {
    let size = |bytes: usize| bytes.next_multiple_of(8) + LINE_POINTER;
    let tuples_size: usize = tuples.iter().map(|tuple| size(tuple.size())).sum();
    let links_size: usize = size(high_key) + leaves.links().map(|link| size(link.len())).sum::<usize>();
    tuples_size + size(high_key) <= end.room && links_size <= end.parent_room
}

/// Changes the pages, whose free space was checked: new leaves, the last leaf, its parent. Raises nothing but a PANIC.
fn write_end(
    new: &mut [Option<ExclusivePage>],
    leaf: &mut ExclusivePage,
    parent: &mut ExclusivePage,
    tuples: &[IndexTuple<'_>],
    key: &mut [u8],
    leaves: &Extension,
) {
    let first = new.iter().flatten().next().map_or(NO_BLOCK, |page| page.block());
    for tuple in tuples {
        leaf.add(tuple.bytes(), leaf.count() + 1);
    }
    leaf.add(key, 1);
    // btpo_next
    leaf.bytes()[SPECIAL_START + 4..SPECIAL_START + 8].copy_from_slice(&first.to_ne_bytes());
    leaf.mark_dirty();
    lead_to(key, first);
    parent.add(key, parent.count() + 1);
    for link in leaves.links() {
        parent.add(link, parent.count() + 1);
    }
    parent.mark_dirty();
    for (page, bytes) in new.iter_mut().flatten().zip(leaves.pages()) {
        *page.bytes() = *bytes;
        page.mark_dirty();
    }
}

/// Logs pages, which are marked dirty, in full.
fn log(_: &Critical, new: &mut [Option<ExclusivePage>], leaf: &mut ExclusivePage, parent: &mut ExclusivePage) {
    let flags = (pg_sys::REGBUF_FORCE_IMAGE | pg_sys::REGBUF_STANDARD) as u8;
    // SAFETY: pages that are locked for writing, in a critical section.
    let at = unsafe {
        c::XLogBeginInsert();
        for (id, page) in (0u8..).zip(new.iter().flatten().chain([&*leaf, &*parent])) {
            c::XLogRegisterBuffer(id, page.buffer(), flags);
        }
        c::XLogInsert(pg_sys::RmgrIds::RM_XLOG_ID as u8, FULL_PAGES)
    };
    new.iter_mut().flatten().chain([leaf, parent]).for_each(|page| page.set_lsn(at));
}

fn release<const N: usize>(pages: [Option<ExclusivePage>; N]) {
    pages.into_iter().flatten().for_each(ExclusivePage::release);
}

/// Returns the special space of a page if it is the last one of its level, and is not left to `index_insert`. `leaf` is
/// BTP_LEAF for the leaf level, 0 for the level above.
fn last_of_level(page: &LockedPage, leaf: u16) -> Option<Opaque> {
    let opaque = Opaque::of(&page.get(SPECIAL_START)?);
    let is_level = opaque.level == u32::from(leaf == 0) && opaque.flags & BTP_LEAF == leaf;
    let is_last = is_level && opaque.flags & NOT_ORDINARY == 0 && opaque.next == NO_BLOCK;
    (page.special() == SPECIAL_START && is_last).then_some(opaque)
}

/// Returns the free space of a page, if it is the last one above the leaves and its last downlink leads to this leaf.
fn room_for_links(page: &LockedPage, leaf: u32) -> Option<usize> {
    last_of_level(page, 0)?;
    let (at, _) = page.item(page.count())?;
    // A downlink begins with the halves of the block number, high one first.
    let [high, low] = [page.get(at)?, page.get(at + 2)?].map(u16::from_ne_bytes);
    (u32::from(high) << 16 | u32::from(low) == leaf).then(|| page.free_space())
}

/// Returns the last item of a leaf once it has these tuples, too.
fn last_item<'a>(leaf: &'a mut ExclusivePage, tuples: &[IndexTuple<'a>]) -> &'a [u8] {
    if let Some(last) = tuples.last() {
        return last.bytes();
    }
    let item = leaf.item(leaf.count());
    item.and_then(|(at, length)| leaf.bytes().get(at..at + length)).unwrap_or_default()
}
