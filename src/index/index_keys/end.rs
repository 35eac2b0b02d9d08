//! Are the new keys all after the keys of an index?
//!
//! This is so for keys that grow with time. Then appending to the index is cheaper than merging: the old entries are
//! not read, and no session waits for a new file.
//!
//! The tricky point is that the answer is needed before the keys are used: runs of workers are opened, read and closed
//! again.

use pg_bulk_storage::btree::entry::{Entry, Word};

use super::collected::{Collected, Keys as _};
use super::leaves::last_entry;
use super::runs::Runs;
use super::sources::{Sources, file_name};
use crate::error::Result;
use crate::server::relation::Relation;

/// See [`Collector::is_behind`](super::Collector::is_behind).
pub(super) fn is_behind<W: Word>(
    keys: &mut Collected<Entry<W>>,
    index: Relation<'_>,
    sources: Sources<'_>,
) -> Result<bool> {
    let Some(last) = last_entry::<W>(index, keys.shape()) else { return Ok(false) };
    let last = last.key();
    if keys.given_up {
        return Ok(false);
    }
    keys.sort()?;
    if keys.store.list.first().is_some_and(|entry| entry.key() <= last) || !are_behind(&keys.runs, last)? {
        return Ok(false);
    }
    for worker in 1..=sources.workers {
        let Some(files) = sources.files else { return Ok(false) };
        let Some(mut runs) = Runs::open(&files, &file_name(index.oid(), worker))? else {
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

fn are_behind<W: Word>(runs: &Runs, last: W) -> Result<bool> {
    Ok(runs.first_keys::<W>()?.iter().all(|key| *key > last))
}
