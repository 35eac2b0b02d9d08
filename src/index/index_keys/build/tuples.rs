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
use crate::server::violation;

/// Builds the index; false if the server must build it.
///
/// # Safety
/// See [`super::build`].
pub(super) unsafe fn build(
    relation: pg_sys::Relation,
    oid: pg_sys::Oid,
    keys: &mut TupleSort,
    sources: Sources<'_>,
    may_stay: &mut MayStay<'_>,
) -> Result<bool> {
    let shared = keys.shared();
    if sources.merge || sources.workers > 0 && shared.is_none() {
        return Ok(false);
    }
    // SAFETY: this function's contract covers relation and index.
    unsafe {
        keys.finish_for(relation);
        check_total(shared.map_or_else(|| keys.rows(), |shared| shared.rows()), sources)?;
        let own = Cell::new(std::ptr::null_mut());
        // The sort reads the index while its tuples are read, so the index stays open until the end.
        let mut opened = || {
            own.set(keys.take());
            keys.close();
        };
        let built = renew(relation, oid, sources, &mut opened, |index, _, _| {
            let of_all = |shared| Origin::Shared(shared, sources.memory);
            let origin = shared.map_or_else(|| Origin::Own(own.take()), of_all);
            write_pages(relation, index, origin, may_stay)
        })?;
        let own = own.take();
        if !own.is_null() {
            pg_sys::tuplesort_end(own);
        }
        Ok(built)
    }
}

/// Writes the index.
///
/// # Safety
/// The index is open and has a new file.
unsafe fn write_pages(
    relation: pg_sys::Relation,
    index: pg_sys::Relation,
    origin: Origin,
    may_stay: &mut MayStay<'_>,
) -> Result<Built> {
    // SAFETY: this function's contract covers the index.
    let (options, mut tuples) = unsafe {
        let options = options(index);
        (options, SortedTuples::new(relation, index, origin, options.deduplicate, options.all_equal_image))
    };
    let mut builder = TupleBuilder::new(options);
    // SAFETY: the index is open.
    let open = unsafe { Relation::from_raw(index) };
    let mut file = IndexFile::new(open)?;
    let mut before = Tid::default();
    while tuples.advance() {
        for sorted in tuples.batch() {
            let row = sorted.tuple.first_chunk().map_or(before, |tid| Tid::from_bytes(*tid));
            if sorted.equal && !may_stay(Clash::Twin { before, begins: true }, row) {
                // SAFETY: this function's contract covers the relations.
                unsafe { raise_duplicate(relation, index, &tuples, sorted.tuple) };
            }
            before = row;
            let high_key = |left: &[u8], right: &[u8]| tuples.high_key(left, right);
            match builder.push(sorted.tuple, sorted.same, high_key, &mut file) {
                Ok(()) => (),
                Err(error) => {
                    if let BuildError::TooLong { .. } = error {
                        tuples.refuse(sorted.tuple);
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

/// Raises the error for two rows with the same key.
///
/// # Safety
/// The relations are open, and the tuple is one of the tuples. Guarded.
unsafe fn raise_duplicate(relation: pg_sys::Relation, index: pg_sys::Relation, tuples: &SortedTuples, tuple: &[u8]) {
    let mut values = [pg_sys::Datum::from(0usize); pg_sys::INDEX_MAX_KEYS as usize];
    let mut nulls = [false; pg_sys::INDEX_MAX_KEYS as usize];
    // SAFETY: this function's contract covers all arguments; there is a value for each column.
    unsafe {
        tuples.values(tuple, values.as_mut_ptr(), nulls.as_mut_ptr());
        violation::raise_unique(relation, index, values.as_mut_ptr(), nulls.as_mut_ptr());
    }
}
