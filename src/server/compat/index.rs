//! Index access: functions whose signature differs between versions.

use pgrx::pg_sys;

use super::Locator;
use crate::server::relation::Relation;

/// `ExecInsertIndexTuples` for a new row: returns the indexes whose constraints are to be checked later.
///
/// # Safety
/// A plain frame; a result relation with its indexes open, and a slot with a row that has a TID.
pub unsafe fn insert_index_tuples(
    relinfo: *mut pg_sys::ResultRelInfo,
    slot: *mut pg_sys::TupleTableSlot,
    estate: *mut pg_sys::EState,
) -> *mut pg_sys::List {
    use std::ptr::null_mut;

    use crate::server::unguarded::ExecInsertIndexTuples;
    // SAFETY: the indexes are open, the row is stored, and the frame is plain.
    unsafe {
        #[cfg(feature = "pg15")]
        return ExecInsertIndexTuples(relinfo, slot, estate, false, false, null_mut(), null_mut());
        #[cfg(not(feature = "pg15"))]
        return ExecInsertIndexTuples(relinfo, slot, estate, false, false, null_mut(), null_mut(), false);
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
    use std::ptr::null_mut;

    use crate::server::unguarded::ExecCheckIndexConstraints;
    // SAFETY: the indexes are open, the slot has a row, and the frame is plain.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        return ExecCheckIndexConstraints(relinfo, slot, estate, conflict, null_mut());
        #[cfg(feature = "pg18")]
        {
            // ItemPointerSetInvalid (itemptr.h): the new row has no TID to be excluded.
            let mut own = crate::server::holder::NOBODY;
            ExecCheckIndexConstraints(relinfo, slot, estate, conflict, &raw mut own, null_mut())
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
    use crate::server::unguarded::index_beginscan;
    // SAFETY: both relations are open and the snapshot outlives the scan; the frame is plain.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        return index_beginscan(heap, index, snapshot, keys, 0);
        #[cfg(feature = "pg18")]
        return index_beginscan(heap, index, snapshot, std::ptr::null_mut(), keys, 0);
    }
}

/// `reindex_index` without a statement of the user. Guarded, outside of parallel mode.
pub fn reindex_index(index: pg_sys::Oid, persistence: u8) {
    use crate::server::unguarded::{guard, reindex_index};
    let params = pg_sys::ReindexParams::default();
    let persistence = persistence.cast_signed();
    // SAFETY: a guarded call, which only reads the parameters; the closure owns nothing.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        guard(|| reindex_index(index, false, persistence, (&raw const params).cast_mut()));
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        guard(|| reindex_index(std::ptr::null(), index, false, persistence, &raw const params));
    }
}

/// Reads a block of a relation's main fork by its locator (`ReadBufferWithoutRelcache`).
///
/// # Safety
/// A file of a relation that is not temporary, and has the block; a guarded frame.
pub unsafe fn read_block(
    file: Locator,
    block: u32,
    strategy: pg_sys::BufferAccessStrategy,
    permanent: bool,
) -> pg_sys::Buffer {
    const MAIN: pg_sys::ForkNumber::Type = pg_sys::ForkNumber::MAIN_FORKNUM;
    let normal = pg_sys::ReadBufferMode::RBM_NORMAL;
    // SAFETY: a guarded call; the file has the block.
    unsafe { pg_sys::ReadBufferWithoutRelcache(file, MAIN, block, normal, strategy, permanent) }
}

/// Returns the first leaf of a B-tree; None if the index is empty. Guarded.
pub fn first_leaf(index: Relation<'_>) -> Option<u32> {
    end_leaf(index, false)
}

/// Returns the last leaf of a B-tree; None if the index is empty. Guarded.
pub fn last_leaf(index: Relation<'_>) -> Option<u32> {
    end_leaf(index, true)
}

/// `_bt_get_endpoint`
fn end_leaf(index: Relation<'_>, last: bool) -> Option<u32> {
    use crate::server::unguarded as c;
    let index = index.as_ptr();
    // SAFETY: guarded calls on an open index, which raise an error if it is no B-tree; the closure owns nothing. The
    // page is returned pinned and locked.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        let buffer = c::guard(|| c::_bt_get_endpoint(index, 0, last, std::ptr::null_mut()));
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        let buffer = c::guard(|| c::_bt_get_endpoint(index, 0, last));
        (buffer != 0).then(|| {
            let block = pg_sys::BufferGetBlockNumber(buffer);
            pg_sys::UnlockReleaseBuffer(buffer);
            block
        })
    }
}

/// Returns the last page of a level, pinned and locked for reading. Raises an error if the level does not exist.
///
/// # Safety
/// A plain frame; an open B-tree that has entries.
pub unsafe fn last_of_level(index: pg_sys::Relation, level: u32) -> pg_sys::Buffer {
    use crate::server::unguarded as c;
    // SAFETY: an open B-tree, whose root is a page; the frame is plain.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        return c::_bt_get_endpoint(index, level, true, std::ptr::null_mut());
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        return c::_bt_get_endpoint(index, level, true);
    }
}

/// Returns an unused page of an index, pinned, locked for writing, and empty.
///
/// # Safety
/// A plain frame; an open B-tree and its heap.
pub unsafe fn new_index_page(index: pg_sys::Relation, heap: pg_sys::Relation) -> pg_sys::Buffer {
    use crate::server::unguarded as c;
    // SAFETY: an open B-tree and its heap; the frame is plain. P_NEW, BT_WRITE (nbtree.h).
    unsafe {
        #[cfg(feature = "pg15")]
        let (_, buffer) =
            (heap, c::_bt_getbuf(index, pg_sys::InvalidBlockNumber, pg_sys::BUFFER_LOCK_EXCLUSIVE.cast_signed()));
        #[cfg(not(feature = "pg15"))]
        let buffer = c::_bt_allocbuf(index, heap);
        buffer
    }
}

/// Extends the main fork of a relation to end with `block`, which is written as zeroes. Guarded.
///
/// # Safety
/// An open relation whose extension lock is held; its file ends before `block`.
pub unsafe fn extend_to(relation: pg_sys::Relation, block: u32) {
    /// Aligned for direct I/O (PG_IO_ALIGN_SIZE, from 16 on).
    #[repr(C, align(4096))]
    struct Zeroes([u8; pg_sys::BLCKSZ as usize]);
    let mut zeroes = Zeroes([0; pg_sys::BLCKSZ as usize]);
    // SAFETY: guarded calls; the extension lock is held. The page is only read.
    unsafe {
        let smgr = pg_sys::RelationGetSmgr(relation);
        pg_sys::smgrextend(smgr, pg_sys::ForkNumber::MAIN_FORKNUM, block, zeroes.0.as_mut_ptr().cast(), false);
    }
}

/// `reindex_relation` without a statement of the user, for a table that is locked exclusively. Guarded, outside of
/// parallel mode.
pub fn reindex_relation(relid: pg_sys::Oid, flags: i32) {
    use crate::server::unguarded::{guard, reindex_relation};
    let params = pg_sys::ReindexParams::default();
    // SAFETY: a guarded call, which only reads the parameters; the closure owns nothing.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        guard(|| reindex_relation(relid, flags, (&raw const params).cast_mut()));
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        guard(|| reindex_relation(std::ptr::null(), relid, flags, &raw const params));
    }
}

/// `_bt_search` for a leaf to write to: returns its buffer, or 0.
///
/// # Safety
/// A plain frame; an open B-tree and its heap, and a scan key from `_bt_mkscankey`.
pub unsafe fn leaf_to_write(
    index: pg_sys::Relation,
    heap: pg_sys::Relation,
    key: crate::server::unguarded::Opaque,
) -> pg_sys::Buffer {
    use crate::server::unguarded as c;
    const WRITE: i32 = pg_sys::BUFFER_LOCK_EXCLUSIVE.cast_signed();
    let mut buffer = 0;
    // SAFETY: _bt_mkscankey has made the key for this open B-tree. The stack of parents is freed unused.
    unsafe {
        #[cfg(feature = "pg15")]
        let (_, stack) = (heap, c::_bt_search(index, key, &raw mut buffer, WRITE, std::ptr::null_mut()));
        #[cfg(feature = "pg16")]
        let stack = c::_bt_search(index, heap, key, &raw mut buffer, WRITE, std::ptr::null_mut());
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        let stack = c::_bt_search(index, heap, key, &raw mut buffer, WRITE);
        if !stack.is_null() {
            c::_bt_freestack(stack);
        }
    }
    buffer
}
