//! B-trees, mainly with keys of fixed width: built from the leaves up and read back, in the layout of nbtree version 4.
//!
//! ```text
//!   heap pages ──► read ──► entries ──► sort ──► runs ──► merge ──► unique ──► build ──► pages
//!                  KeyReader  (key, tid)             ▲               check      levels    (block, bytes)
//!   leaf pages ──► leaf ─────────────────────────────┘
//! ```
//!
//! The tricky point is the key. Building an index is slow if attributes are compared one by one, each with a function
//! call. Here a whole key, of one or several columns, is one integer. Its order is the index's order, and the columns'
//! bytes can be restored from it: [`key::KeyShape`]. Many other keys are strings of bytes: [`bytes`].
//!
//! Pages equal those that core's CREATE INDEX makes of the same rows, block for block. The exceptions are pd_lsn,
//! pd_checksum and the hole between line pointers and tuples. Core leaves remains of moved items in the hole, which
//! neither WAL nor a standby has; here it is zero. The layout is the same in PostgreSQL 15 to 18: version 17 has
//! changed how a build writes pages, not their contents.

pub mod build;
pub mod bytes;
pub mod collect;
pub mod descend;
pub mod entry;
pub mod extension;
pub mod family;
mod form;
pub mod key;
pub mod leaf;
mod levels;
pub mod merge;
pub mod packed;
pub mod read;
mod sink;
pub mod sort;
mod tuple;
pub mod tuples;
pub mod unique;

use crate::page::{LINE_POINTER, PAGE_HEADER, PAGE_SIZE, item_id};
use crate::tuple::max_align;

/// MAXALIGN(sizeof(BTPageOpaqueData)): the special space.
pub const SPECIAL: usize = 16;
/// pd_special: offset of the special space.
pub const SPECIAL_START: usize = PAGE_SIZE - SPECIAL;
/// sizeof(IndexTupleData)
pub const TUPLE_HEADER: usize = 8;
/// IndexInfoFindDataOffset of a tuple with nulls: a bitmap of INDEX_MAX_KEYS bits follows the header.
pub const TUPLE_HEADER_WITH_NULLS: usize = max_align(TUPLE_HEADER + MAX_KEYS / 8);
/// INDEX_MAX_KEYS
pub const MAX_KEYS: usize = 32;
/// sizeof(ItemPointerData)
pub const ITEM_POINTER: usize = 6;
/// BTREE_METAPAGE
pub const METAPAGE: u32 = 0;
/// P_NONE: no such page.
pub const NO_BLOCK: u32 = 0;
/// BTREE_MAGIC
pub const MAGIC: u32 = 0x05_3162;
/// BTREE_VERSION
pub const VERSION: u32 = 4;
/// BTREE_DEFAULT_FILLFACTOR
pub const DEFAULT_FILLFACTOR: usize = 90;
/// BTREE_NONLEAF_FILLFACTOR
pub const NONLEAF_FILLFACTOR: usize = 70;

/// BTP_LEAF
pub const BTP_LEAF: u16 = 1 << 0;
/// BTP_ROOT
pub const BTP_ROOT: u16 = 1 << 1;
/// BTP_DELETED
pub const BTP_DELETED: u16 = 1 << 2;
/// BTP_META
pub const BTP_META: u16 = 1 << 3;
/// BTP_HALF_DEAD
pub const BTP_HALF_DEAD: u16 = 1 << 4;
/// BTP_INCOMPLETE_SPLIT
pub const BTP_INCOMPLETE_SPLIT: u16 = 1 << 7;

/// INDEX_SIZE_MASK
const INDEX_SIZE_MASK: u16 = 0x1fff;
/// INDEX_ALT_TID_MASK
const INDEX_ALT_TID: u16 = 0x2000;
/// INDEX_VAR_MASK
const INDEX_VAR: u16 = 0x4000;
/// INDEX_NULL_MASK
const INDEX_NULL: u16 = 0x8000;
/// BT_OFFSET_MASK
const BT_OFFSET_MASK: u16 = 0x0fff;
/// BT_PIVOT_HEAP_TID_ATTR
const BT_PIVOT_HEAP_TID: u16 = 0x1000;
/// BT_IS_POSTING
const BT_IS_POSTING: u16 = 0x2000;
/// P_HIKEY
const P_HIKEY: usize = 1;
/// P_FIRSTKEY
const P_FIRSTKEY: usize = 2;
/// The longest posting list tuple that a build makes: nbtsort.c, _bt_load.
const MAX_POSTING_SIZE: usize = (PAGE_SIZE * 10 / 100) / 8 * 8 - LINE_POINTER;

/// BTMaxItemSize: the longest tuple of a leaf.
pub const MAX_ITEM: usize =
    (PAGE_SIZE - max_align(PAGE_HEADER + 3 * LINE_POINTER + 3 * ITEM_POINTER) - max_align(SPECIAL)) / 3 / 8 * 8;

/// BTPageOpaqueData: a page's special space.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Opaque {
    /// Block of the left sibling, or [`NO_BLOCK`].
    pub prev: u32,
    /// Block of the right sibling, or [`NO_BLOCK`].
    pub next: u32,
    /// Level; 0 for leaves.
    pub level: u32,
    /// `BTP_` flags.
    pub flags: u16,
    /// Cycle id of a VACUUM in progress.
    pub cycle_id: u16,
}

impl Opaque {
    /// Reads the special space of a page.
    #[must_use]
    pub fn of(special: &[u8; SPECIAL]) -> Opaque {
        Opaque {
            prev: u32_at(special, 0),
            next: u32_at(special, 4),
            level: u32_at(special, 8),
            flags: u16_at(special, 12),
            cycle_id: u16_at(special, 14),
        }
    }
}

/// BTMetaPageData
#[repr(C)]
struct Meta {
    magic: u32,
    version: u32,
    root: u32,
    level: u32,
    fast_root: u32,
    fast_level: u32,
    last_cleanup_num_delpages: u32,
    last_cleanup_num_heap_tuples: f64,
    all_equal_image: bool,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Opaque>() == SPECIAL);
    assert!(offset_of!(Opaque, prev) == 0 && offset_of!(Opaque, next) == 4 && offset_of!(Opaque, level) == 8);
    assert!(offset_of!(Opaque, flags) == 12 && offset_of!(Opaque, cycle_id) == 14);
    assert!(size_of::<Meta>() == 48);
    assert!(offset_of!(Meta, magic) == 0 && offset_of!(Meta, version) == 4 && offset_of!(Meta, root) == 8);
    assert!(offset_of!(Meta, level) == 12 && offset_of!(Meta, fast_root) == 16 && offset_of!(Meta, fast_level) == 20);
    assert!(offset_of!(Meta, last_cleanup_num_delpages) == 24);
    assert!(offset_of!(Meta, last_cleanup_num_heap_tuples) == 32 && offset_of!(Meta, all_equal_image) == 40);
    assert!(TUPLE_HEADER == ITEM_POINTER + size_of::<u16>());
    assert!(TUPLE_HEADER_WITH_NULLS == 16);
    assert!(MAX_POSTING_SIZE == 812);
    assert!(SPECIAL_START == max_align(SPECIAL_START));
    assert!(MAX_ITEM == 2704);
    // Two tuples of the maximum size and a high key with a heap TID fit on each page. Posting lists are much shorter.
    assert!(3 * (MAX_ITEM + LINE_POINTER) + max_align(ITEM_POINTER) + PAGE_HEADER + SPECIAL <= PAGE_SIZE);
    assert!(MAX_POSTING_SIZE < MAX_ITEM);
};

/// Reads a number of a page; 0 beyond its end.
#[inline(always)]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u16::from_ne_bytes(*bytes))
}

/// Reads a number of a page; 0 beyond its end.
#[inline(always)]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

/// Writes bytes at an offset within `to`.
#[inline(always)]
fn put(to: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(to) = to.get_mut(at..at + bytes.len()) {
        to.copy_from_slice(bytes);
    }
}

/// LP_NORMAL
const LP_NORMAL: u32 = 1;
/// LP_DEAD
const LP_DEAD: u32 = 3;
