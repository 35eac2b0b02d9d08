//! How `pg_bulk.memory_limit` is divided: what each process of a load may keep in memory of its own.
//!
//! ```text
//!  limit ─┬─ 1/16  bytes asked of the file at a time (guc::chunk_size); 1/4 a stretch, which is four of them
//!         ├─ 1/16  rejects, before they go to a temporary file
//!         ├─ 1/8   pages of one heap
//!         └─ 1/4   pages of all heaps; 1/2 where there are many
//! ```
//!
//! The rest is for what has no measure beforehand: the field positions and values of some rows, and the process itself. A
//! record, or a row, that is longer than all of that is loaded all the same: its own size is what a load cannot do
//! without. Nor can it do without a page that is being filled for each heap, and one beside it; more than half of the limit is
//! taken by these if there are that many partitions.
//!
//! Keys of indexes are not part of this: they are collected and sorted in maintenance_work_mem.

use pgrx::pg_sys;

use crate::guc;

/// Pages of a heap at most: 2 MB. Smaller batches pay for the flush of WAL, and for handing over the baton; larger ones have
/// left the cache by the time they are logged and written, and keep others waiting for the extension lock.
const BATCH: usize = 256;
/// ... and at least.
const SMALLEST_BATCH: usize = 4;
/// Pages for each heap, where there is room for so many.
const GOOD_PAGES: usize = 4;
/// Pages that a heap takes as soon as there is a row for it.
const LEAST_PAGES: usize = 2;
/// Bytes of rejects at most.
const REJECTS: usize = 1 << 20;

const PAGE: usize = pg_sys::BLCKSZ as usize;

/// Pages that are appended to a heap at once.
pub fn batch_pages() -> usize {
    (guc::memory_limit() / 8 / PAGE).clamp(SMALLEST_BATCH, BATCH)
}

/// Bytes of pages, over so many heaps.
pub fn page_bytes(heaps: usize) -> usize {
    let limit = guc::memory_limit();
    (heaps * GOOD_PAGES * PAGE).clamp(limit / 4, limit / 2).max(heaps * LEAST_PAGES * PAGE)
}

/// Bytes of rejects.
pub fn reject_bytes() -> usize {
    (guc::memory_limit() / 16).min(REJECTS)
}
