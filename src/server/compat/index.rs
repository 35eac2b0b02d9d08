//! Index access: functions whose signature differs between versions.

use std::ptr::null_mut;

use pg_bulk_storage::btree::build::Page;
use pg_bulk_storage::page::PAGE_SIZE;
use pgrx::pg_sys;

use super::Locator;
use crate::server::call::calls;
use crate::server::locked_page::{ExclusivePage, LockedPage};
use crate::server::relation::Relation;
use crate::server::unguarded as c;

const WRITE: i32 = pg_sys::BUFFER_LOCK_EXCLUSIVE.cast_signed();

/// `ExecInsertIndexTuples` for a new row: returns the indexes whose constraints are to be checked later.
///
/// # Safety
/// A plain frame; a result relation with its indexes open, and a slot with a row that has a TID.
pub unsafe fn insert_index_tuples(
    relinfo: *mut pg_sys::ResultRelInfo,
    slot: *mut pg_sys::TupleTableSlot,
    estate: *mut pg_sys::EState,
) -> *mut pg_sys::List {
    // SAFETY: valid arguments, by this function's contract.
    unsafe {
        #[cfg(feature = "pg15")]
        return c::ExecInsertIndexTuples(relinfo, slot, estate, false, false, null_mut(), null_mut());
        #[cfg(not(feature = "pg15"))]
        return c::ExecInsertIndexTuples(relinfo, slot, estate, false, false, null_mut(), null_mut(), false);
    }
}

/// `ExecCheckIndexConstraints` for a new row without a TID, over all its indexes. Returns false if it conflicts with
/// another row.
///
/// # Safety
/// A plain frame; a result relation with its indexes open, and a slot with a row.
pub unsafe fn check_index_constraints(
    relinfo: *mut pg_sys::ResultRelInfo,
    slot: *mut pg_sys::TupleTableSlot,
    estate: *mut pg_sys::EState,
    conflict: pg_sys::ItemPointer,
) -> bool {
    // SAFETY: valid arguments, by this function's contract.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        return c::ExecCheckIndexConstraints(relinfo, slot, estate, conflict, null_mut());
        #[cfg(feature = "pg18")]
        {
            // ItemPointerSetInvalid (itemptr.h): the new row has no TID to be excluded.
            let mut own = pg_sys::ItemPointerData {
                ip_blkid: pg_sys::BlockIdData { bi_hi: u16::MAX, bi_lo: u16::MAX },
                ip_posid: 0,
            };
            c::ExecCheckIndexConstraints(relinfo, slot, estate, conflict, &raw mut own, null_mut())
        }
    }
}

/// `index_beginscan` for keys only.
///
/// # Safety
/// A plain frame; an open heap, one of its indexes, and a snapshot that lives as long as the scan.
pub unsafe fn index_beginscan(
    heap: pg_sys::Relation,
    index: pg_sys::Relation,
    snapshot: pg_sys::Snapshot,
    keys: std::ffi::c_int,
) -> pg_sys::IndexScanDesc {
    // SAFETY: open relations and a live snapshot, by this function's contract.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        return c::index_beginscan(heap, index, snapshot, keys, 0);
        #[cfg(feature = "pg18")]
        return c::index_beginscan(heap, index, snapshot, null_mut(), keys, 0);
    }
}

// SAFETY: OIDs, which the functions check. They only read the parameters.
#[cfg(any(feature = "pg15", feature = "pg16"))]
calls! {
    /// `reindex_index` without a statement of the user. Guarded, outside of parallel mode.
    pub fn reindex_index(index: pg_sys::Oid, persistence: u8)
        = reindex_index(index, false, (persistence.cast_signed()), (&mut pg_sys::ReindexParams::default()));
    /// `reindex_relation` without a statement of the user, for a table that is locked exclusively. Guarded, outside of
    /// parallel mode.
    pub fn reindex_relation(relid: pg_sys::Oid, flags: i32) -> bool
        = reindex_relation(relid, flags, (&mut pg_sys::ReindexParams::default()));
}
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
calls! {
    /// `reindex_index` without a statement of the user. Guarded, outside of parallel mode.
    pub fn reindex_index(index: pg_sys::Oid, persistence: u8) = reindex_index(
        (std::ptr::null()), index, false, (persistence.cast_signed()), (&pg_sys::ReindexParams::default()));
    /// `reindex_relation` without a statement of the user, for a table that is locked exclusively. Guarded, outside of
    /// parallel mode.
    pub fn reindex_relation(relid: pg_sys::Oid, flags: i32) -> bool
        = reindex_relation((std::ptr::null()), relid, flags, (&pg_sys::ReindexParams::default()));
}

/// Copies a block of a main fork, found by its locator (`ReadBufferWithoutRelcache`). Guarded.
///
/// # Safety
/// A relation that is not temporary, and has the block; a strategy, or null.
pub unsafe fn read_block(
    file: Locator,
    block: u32,
    strategy: pg_sys::BufferAccessStrategy,
    permanent: bool,
) -> [u8; PAGE_SIZE] {
    let (fork, mode) = (pg_sys::ForkNumber::MAIN_FORKNUM, pg_sys::ReadBufferMode::RBM_NORMAL);
    // SAFETY: guarded calls, for such a file. The buffer is pinned, then locked.
    let page = unsafe {
        let buffer = pg_sys::ReadBufferWithoutRelcache(file, fork, block, mode, strategy, permanent);
        pg_sys::LockBuffer(buffer, pg_sys::BUFFER_LOCK_SHARE.cast_signed());
        LockedPage::from_buffer(buffer)
    };
    let bytes = page.copy();
    page.release();
    bytes
}

/// Returns the first leaf of a B-tree (`_bt_get_endpoint`); None if the index is empty, or no B-tree. Guarded.
pub fn first_leaf(index: Relation<'_>) -> Option<u32> {
    if index.access_method() != pg_sys::BTREE_AM_OID {
        return None;
    }
    // SAFETY: an open B-tree, and a closure that owns nothing.
    let page = unsafe { c::guard(|| end_of_level(index, 0, false))? };
    let block = page.block();
    page.release();
    Some(block)
}

/// Returns the first or the last page of a level, locked for reading; None if the index is empty. Raises an error if only
/// the level does not exist.
///
/// # Safety
/// A plain frame, and a B-tree.
pub unsafe fn end_of_level(index: Relation<'_>, level: u32, is_last: bool) -> Option<LockedPage> {
    let index = index.as_ptr();
    // SAFETY: a plain frame, and an open relation. The page is returned pinned and locked.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        let buffer = c::_bt_get_endpoint(index, level, is_last, null_mut());
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        let buffer = c::_bt_get_endpoint(index, level, is_last);
        (buffer != 0).then(|| LockedPage::from_buffer(buffer))
    }
}

/// Returns an unused page of an index, locked for writing, and empty.
///
/// # Safety
/// A plain frame; a B-tree and its heap.
pub unsafe fn new_index_page(index: Relation<'_>, heap: Relation<'_>) -> ExclusivePage {
    // SAFETY: a plain frame, and open relations. P_NEW, BT_WRITE (nbtree.h). The page is returned pinned and locked.
    unsafe {
        #[cfg(feature = "pg15")]
        let (_, buffer) = (heap, c::_bt_getbuf(index.as_ptr(), pg_sys::InvalidBlockNumber, WRITE));
        #[cfg(not(feature = "pg15"))]
        let buffer = c::_bt_allocbuf(index.as_ptr(), heap.as_ptr());
        ExclusivePage::from_buffer(buffer)
    }
}

/// Extends the main fork of a relation, whose extension lock is held, to end with `block`, which is written as zeroes.
/// Guarded.
pub fn extend_to(relation: Relation<'_>, block: u32) {
    let mut zeroes = Page([0; PAGE_SIZE]);
    // SAFETY: guarded calls on an open relation; the page is only read.
    unsafe {
        let smgr = pg_sys::RelationGetSmgr(relation.as_ptr());
        pg_sys::smgrextend(smgr, pg_sys::ForkNumber::MAIN_FORKNUM, block, zeroes.0.as_mut_ptr().cast(), false);
    }
}

/// `_bt_search` for a leaf to write to; None if the index is empty.
///
/// # Safety
/// A plain frame; a B-tree and its heap, and a scan key from `_bt_mkscankey`.
pub unsafe fn leaf_to_write(index: Relation<'_>, heap: Relation<'_>, key: c::Opaque) -> Option<ExclusivePage> {
    let (index, mut buffer) = (index.as_ptr(), 0);
    // SAFETY: a plain frame, and open relations; the stack of parents is freed unused. The page is returned pinned and
    // locked.
    unsafe {
        #[cfg(feature = "pg15")]
        let (_, stack) = (heap, c::_bt_search(index, key, &raw mut buffer, WRITE, null_mut()));
        #[cfg(feature = "pg16")]
        let stack = c::_bt_search(index, heap.as_ptr(), key, &raw mut buffer, WRITE, null_mut());
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        let stack = c::_bt_search(index, heap.as_ptr(), key, &raw mut buffer, WRITE);
        if !stack.is_null() {
            c::_bt_freestack(stack);
        }
        (buffer != 0).then(|| ExclusivePage::from_buffer(buffer))
    }
}
