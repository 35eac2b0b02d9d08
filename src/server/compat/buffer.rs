//! Tests whether a page is in shared buffers.

use pgrx::pg_sys;

use super::locator;
use crate::server::relation::Relation;

/// Whether a page of the main fork is in a shared buffer. Works like PrefetchSharedBuffer (bufmgr.c), but does not ask
/// the kernel to read a missing page, which takes longer than the rest. The relation is not temporary. Another process
/// may change the result at any time. Guarded.
pub fn is_in_buffer(relation: Relation<'_>, block: u32) -> bool {
    // SAFETY: guarded calls. Tags are compared byte by byte, hence the
    // zeroes. NUM_BUFFER_PARTITIONS is the number of locks (BufMappingPartitionLock, buf_internals.h).
    unsafe {
        let mut tag: pg_sys::BufferTag = std::mem::zeroed();
        let locator = locator(relation);
        #[cfg(feature = "pg15")]
        {
            tag.rnode = locator;
        }
        #[cfg(not(feature = "pg15"))]
        {
            (tag.spcOid, tag.dbOid, tag.relNumber) = (locator.spcOid, locator.dbOid, locator.relNumber);
        }
        tag.forkNum = pg_sys::ForkNumber::MAIN_FORKNUM;
        tag.blockNum = block;
        let hash = pg_sys::BufTableHashCode(&raw mut tag);
        let number = pg_sys::BUFFER_MAPPING_LWLOCK_OFFSET + hash % pg_sys::NUM_BUFFER_PARTITIONS;
        let lock = &raw mut (*pg_sys::MainLWLockArray.add(number as usize)).lock;
        pg_sys::LWLockAcquire(lock, pg_sys::LWLockMode::LW_SHARED);
        let buffer = pg_sys::BufTableLookup(&raw mut tag, hash);
        pg_sys::LWLockRelease(lock);
        buffer >= 0
    }
}
