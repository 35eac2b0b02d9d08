//! How the processes of a load divide `pg_bulk.memory_limit`.
//!
//! ```text
//!  limit ─┬─ 1/16  bytes of one read of the file (guc::chunk_size); 1/4 a chunk, which is four of them
//!         ├─ 1/16  rejects, before they go to a temporary file
//!         ├─ 1/8   pages of one heap
//!         └─ 1/4   pages of all heaps; 1/2 where there are many
//! ```
//!
//! The rest is for memory that cannot be measured beforehand: the field positions and values of some rows, and the
//! process itself. A record or a row that exceeds the limit is still loaded, with memory of its size. Each heap needs
//! at least a page that is being filled and one more. With many partitions these pages may take more than half of the
//! limit.
//!
//! Index keys do not count: they are collected and sorted in maintenance_work_mem.

use pgrx::pg_sys;

use crate::guc;

/// Most pages of a batch: 2 MB. Smaller batches cost more for the WAL flush and for passing the append lock. Larger
/// batches have left the CPU cache when they are logged and written, and hold the extension lock for longer.
const BATCH: usize = 256;
/// Fewest pages of a batch.
const SMALLEST_BATCH: usize = 4;
/// Pages for each heap, if memory permits.
const GOOD_PAGES: usize = 4;
/// Pages that a heap needs from its first row on.
const LEAST_PAGES: usize = 2;
/// Most bytes of rejects.
const REJECTS: usize = 1 << 20;

const PAGE: usize = pg_sys::BLCKSZ as usize;

/// Pages that are appended to a heap at once.
pub fn batch_pages() -> usize {
    (guc::memory_limit() / 8 / PAGE).clamp(SMALLEST_BATCH, BATCH)
}

/// Bytes of pages of all heaps, for this number of heaps.
pub fn page_bytes(heaps: usize) -> usize {
    let limit = guc::memory_limit();
    (heaps * GOOD_PAGES * PAGE).clamp(limit / 4, limit / 2).max(heaps * LEAST_PAGES * PAGE)
}

/// Bytes of rejects that are kept in memory.
pub fn reject_bytes() -> usize {
    (guc::memory_limit() / 16).min(REJECTS)
}
