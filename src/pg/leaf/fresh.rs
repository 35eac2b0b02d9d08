//! Pages for new leaves, many at a time.
//!
//! core gets pages for an index one by one: each asks the free space map, takes the extension lock, looks for the end of the file
//! and writes a page of zeroes. So the first page is core's. If it was the end of the file that gave it, the map has
//! none, and all others come from there, too: for each step the file is made longer once, and the pages come into shared buffers
//! without being read.
//!
//! The tricky point is who else comes to such a page. The free space map may have it from before a crash, and whoever takes pages
//! from there looks at the file's length without a lock: in that moment the page is his to take, and he keeps it locked while he
//! waits for the extension lock, where nobody looks for deadlocks. So the pages are locked before they are there. Then he finds
//! them locked, and looks on; whoever reads on to the end of the file, as VACUUM does, waits, and finds a leaf or a page of
//! zeroes. Such a page VACUUM notes as free, also one that an error or a crash leaves.
//!
//! The file ends where it is written to last, as in _hash_alloc_buckets (hashpage.c). The space before is asked of the file system
//! first, so that a full disk is an error here, and not one of the checkpoint that writes the pages. Where the file system cannot
//! promise it, pages are core's.

use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::page_of;
use crate::error::{Error, OrRaise, Result};
use crate::pg::append::{ExtensionLock, Traits};
use crate::pg::compat;
use crate::pg::points::point;
use crate::pg::segment::RelationFile;

const MAIN: pg_sys::ForkNumber::Type = pg_sys::ForkNumber::MAIN_FORKNUM;

/// Make an open index longer by so many pages, or fewer, and put them into `buffers`, pinned, locked as for writing, and all
/// zeroes. Returns how many there are; none if that is not possible here. Guarded.
///
/// # Safety
/// An open index, and room for so many.
#[pg_guard]
pub unsafe extern "C-unwind" fn extend(index: pg_sys::Relation, buffers: *mut pg_sys::Buffer, wanted: usize) -> usize {
    // SAFETY: this function's contract covers both arguments.
    unsafe { pages_behind(index, std::slice::from_raw_parts_mut(buffers, wanted)).or_raise() }
}

/// # Safety
/// An open index.
unsafe fn pages_behind(index: pg_sys::Relation, buffers: &mut [pg_sys::Buffer]) -> Result<usize> {
    // SAFETY: guarded calls on the caller's index.
    unsafe {
        let traits = Traits::of(index);
        // Where the file is this process's alone, nothing is at stake.
        if !traits.shared {
            return Ok(0);
        }
        let file = RelationFile::new(index, traits.temporary)?;
        let lock = ExtensionLock::take(index);
        let first = pg_sys::RelationGetNumberOfBlocksInFork(index, MAIN);
        // Only within a segment: the one before would have to be made complete first.
        let rest = pg_sys::RELSEG_SIZE - first % pg_sys::RELSEG_SIZE;
        let count = buffers.len().min(rest as usize);
        let Some(last) = (count as u32).checked_sub(1).and_then(|more| first.checked_add(more)) else { return Ok(0) };
        let pieces = file.open_pieces(first, count)?;
        if !pieces.reserved {
            return Ok(0);
        }
        drop(pieces);
        for (place, block) in buffers.iter_mut().zip(first..=last) {
            point!("leaf.extend");
            let mode = pg_sys::ReadBufferMode::RBM_ZERO_AND_LOCK;
            let buffer = pg_sys::ReadBufferExtended(index, MAIN, block, mode, std::ptr::null_mut());
            // PageIsNew (bufpage.h), of a page that is not read, and may only be in memory if an extension failed before.
            if (*page_of(buffer).cast::<pg_sys::PageHeaderData>()).pd_upper != 0 {
                // ReadBuffer_common (bufmgr.c)
                let message = format!("unexpected data beyond EOF in block {block} of relation {}", file.display());
                let hint = "This has been seen to occur with buggy kernels; consider updating your system.";
                return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, message).hint(hint));
            }
            *place = buffer;
        }
        compat::extend_to(index, last);
        point!("leaf.extended");
        drop(lock);
        Ok(count)
    }
}
