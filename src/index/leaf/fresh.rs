//! Allocates many pages for new leaves at a time.
//!
//! PostgreSQL allocates index pages one by one. For each page it asks the free space map, takes the extension lock,
//! gets the file's length and writes zeroes. The caller gets its first page in this manner. If that page came from the
//! end of the file, the free space map is empty. So all further pages are added at the end, too: each step extends the
//! file once, and the pages get into shared buffers without being read.
//!
//! The tricky point is that other processes may find such a page before it is used. The free space map may list the
//! page since before a crash. A process that takes pages from the map checks the file's length without a lock. As soon
//! as the file is longer, it may take the new page and keep it locked while it waits for the extension lock. If this
//! module then waited for the page, the server would not detect the deadlock. So this module locks the pages before it
//! extends the file. That process then finds the page locked and tries another one. A process that reads to the end of
//! the file, as VACUUM does, waits, and then finds a leaf or a page of zeroes. VACUUM adds a page of zeroes to the free
//! space map, also one that an error or a crash has left.
//!
//! Extending writes only the last page, as in _hash_alloc_buckets (hashpage.c). The space before that page is allocated
//! first, so that a full disk is an error here and not in the checkpoint that writes the pages. If the file system
//! cannot allocate space, no pages are added here.

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use crate::error::{Error, Result};
use crate::heap::append::{ExtensionLock, Traits};
use crate::heap::segment::RelationFile;
use crate::server::compat;
use crate::server::locked_page::ExclusivePage;
use crate::server::points::point;
use crate::server::relation::Relation;

/// Extends an index by as many pages as `pages` has room for, or fewer, and puts them there, locked for writing, and
/// zeroed. Returns their number; 0 if that is not possible here. Guarded.
pub fn extend(index: Relation<'static>, pages: &mut [Option<ExclusivePage>]) -> Result<usize> {
    let traits = Traits::of(index);
    // A file that only this process uses needs no such care.
    if !traits.shared {
        return Ok(0);
    }
    let file = RelationFile::new(index, traits.temporary)?;
    let lock = ExtensionLock::take(index);
    let first = index.pages();
    // Only within a segment: otherwise the segment before would have to be completed first.
    let rest = pg_sys::RELSEG_SIZE - first % pg_sys::RELSEG_SIZE;
    let count = pages.len().min(rest as usize);
    let Some(last) = (count as u32).checked_sub(1).and_then(|more| first.checked_add(more)) else { return Ok(0) };
    let segments = file.open_segments(first, count)?;
    if !segments.reserved {
        return Ok(0);
    }
    drop(segments);
    for (place, block) in pages.iter_mut().zip(first..=last) {
        point!("leaf.extend");
        // SAFETY: `shared` excludes temporary relations; the block is new.
        let page = place.insert(unsafe { ExclusivePage::zeroed(index, block) });
        // The page was not read; it can only be in memory after a failed extension.
        if !page.is_new() {
            // ReadBuffer_common (bufmgr.c)
            let message = format!("unexpected data beyond EOF in block {block} of relation {}", file.display());
            let hint = "This has been seen to occur with buggy kernels; consider updating your system.";
            return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, message).hint(hint));
        }
    }
    compat::extend_to(index, last);
    point!("leaf.extended");
    drop(lock);
    Ok(count)
}
