//! Are the new keys all after the keys of an index?
//!
//! This is so for keys that grow with time. Then appending to the index is cheaper than merging: the old entries are
//! not read, and no session waits for a new file.
//!
//! The tricky point is that the answer is needed before the keys are used: runs of workers are opened, read and closed
//! again.

use pg_bulk_storage::btree::entry::{Entry, Word};
use pgrx::pg_sys;

use super::collector::{Collected, Collector, Keys};
use super::leaves::last_entry;
use super::runs::Runs;
use super::sources::{Sources, file_name};
use crate::error::Result;
use crate::server::relation::Relation;

impl Collector {
    /// Are all collected keys greater than those of the index? Only for integer keys. Guarded; the files' memory is in
    /// the current memory context.
    ///
    /// # Safety
    /// The index is the collector's, open, and has no other writer.
    pub unsafe fn is_behind(&mut self, index: pg_sys::Relation, sources: Sources<'_>) -> Result<bool> {
        // SAFETY: this function's contract covers the index.
        unsafe {
            match &mut self.keys {
                Keys::Narrow(keys) => keys.is_behind(index, sources),
                Keys::Wide(keys) => keys.is_behind(index, sources),
                Keys::Bytes(_) | Keys::Tuples(_) => Ok(false),
            }
        }
    }
}

impl<W: Word> Collected<W> {
    /// # Safety
    /// See [`Collector::is_behind`].
    unsafe fn is_behind(&mut self, index: pg_sys::Relation, sources: Sources<'_>) -> Result<bool> {
        // SAFETY: the index is open.
        let open = unsafe { Relation::from_raw(index) };
        let Some(last) = last_entry::<W>(open, self.shape()) else { return Ok(false) };
        let last = last.key();
        if self.given_up {
            return Ok(false);
        }
        self.sort();
        if self.entries().first().is_some_and(|entry| entry.key() <= last) || !are_behind(&self.runs, last)? {
            return Ok(false);
        }
        // SAFETY: the index is open.
        let oid = unsafe { (*index).rd_id };
        for worker in 1..=sources.workers {
            let Some(files) = sources.files else { return Ok(false) };
            let Some(mut runs) = Runs::open(&files, &file_name(oid, worker), size_of::<Entry<W>>())? else {
                return Ok(false);
            };
            let behind = are_behind(&runs, last);
            runs.close();
            if !behind? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn are_behind<W: Word>(runs: &Runs, last: W) -> Result<bool> {
    Ok(runs.first_keys::<W>()?.iter().all(|key| *key > last))
}
