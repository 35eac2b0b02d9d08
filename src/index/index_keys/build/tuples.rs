//! Builds an index from index tuples that the server has sorted.
//!
//! Equal keys are adjacent. All of them are of the load's rows, so the second one is an error.

use std::cell::Cell;

use pg_bulk_storage::btree::build::{BuildError, Built};
use pg_bulk_storage::btree::entry::Tid;
use pg_bulk_storage::btree::tuples::TupleBuilder;
use pgrx::pg_sys;

use super::{MayStay, check_total, failed, options, renew};
use crate::error::Result;
use crate::index::index_file::IndexFile;
use crate::index::index_keys::clash::Clash;
use crate::index::index_keys::sources::Sources;
use crate::index::sorted_tuples::{Origin, SortedTuples};
use crate::index::tuple_sort::TupleSort;
use crate::server::relation::Relation;

/// Builds the index; false if the server must build it. See [`super::build`].
pub(super) fn build(
    relation: Relation<'_>,
    oid: pg_sys::Oid,
    keys: &mut TupleSort,
    sources: Sources<'_>,
    may_stay: &mut MayStay<'_>,
) -> Result<bool> {
    let shared = keys.shared();
    if sources.merge || sources.workers > 0 && shared.is_none() {
        return Ok(false);
    }
    keys.finish_for(relation);
    check_total(shared.map_or_else(|| keys.rows(), |shared| shared.rows()), sources)?;
    // The sort reads the index while its tuples are read, so the index stays open until the end.
    let own = Cell::new(None);
    let opened = || {
        own.set(keys.take());
        keys.close();
    };
    let built = renew(relation, oid, sources, opened, |index, _, _| {
        let of_all = |shared| Origin::Shared(shared, sources.memory);
        write_pages(relation, index, shared.map_or_else(|| Origin::Own(own.take()), of_all), may_stay)
    })?;
    if let Some(own) = own.take() {
        own.end();
    }
    Ok(built)
}

/// Writes the index into its new file.
fn write_pages(
    relation: Relation<'_>,
    index: Relation<'_>,
    origin: Origin,
    may_stay: &mut MayStay<'_>,
) -> Result<Built> {
    let options = options(index);
    let mut tuples = SortedTuples::new(relation, index, origin, options.deduplicate, options.all_equal_image);
    let mut builder = TupleBuilder::new(options);
    let mut file = IndexFile::new(index)?;
    let mut before = Tid::default();
    while tuples.advance() {
        for sorted in tuples.batch() {
            let row = sorted.tuple.first_chunk().map_or(before, |tid| Tid::from_bytes(*tid));
            if sorted.equal && !may_stay(Clash::Twin { before, begins: true }, row) {
                tuples.raise_duplicate(&sorted);
            }
            before = row;
            let high_key = |left: &[u8], right: &[u8]| tuples.high_key(left, right);
            match builder.push(sorted.tuple, sorted.same, high_key, &mut file) {
                Ok(()) => (),
                Err(error) => {
                    if let BuildError::TooLong { .. } = error {
                        tuples.refuse(&sorted);
                    }
                    return Err(failed(error, &None));
                }
            }
        }
    }
    let built = builder.finish(|left, right| tuples.high_key(left, right), &mut file);
    let built = built.map_err(|error| failed(error, &None))?;
    tuples.end();
    file.finish()?;
    Ok(built)
}
