//! Builds an index whose keys are strings of bytes.

use std::cell::Cell;
use std::rc::Rc;

use pg_bulk_format::btree::build::{BuildError, Built};
use pg_bulk_format::btree::bytes::build::Builder;
use pg_bulk_format::btree::bytes::shape::{ByteShape, StoredValue};
use pg_bulk_format::btree::bytes::store::{Store, StoreRun};
use pg_bulk_format::btree::entry::Tid;
use pg_bulk_format::btree::merge::{Merge, Run};
use pg_bulk_format::btree::unique::Unique;
use pgrx::pg_sys;

use super::{MayStay, all_runs, check_built, check_total, failed, options, renew};
use crate::error::{Error, Result};
use crate::load::direct::index_keys::byte_keys::ByteKeys;
use crate::load::direct::index_keys::clash::Clashes;
use crate::load::direct::index_keys::leaves::LeafReader;
use crate::load::direct::index_keys::runs::{RecordReader, Runs};
use crate::load::direct::index_keys::sources::Sources;
use crate::pg::compat;
use crate::pg::index_file::IndexFile;
use crate::pg::shared_files::SharedFiles;
use crate::pg::violation;

/// Builds the index; false if the server must build it.
///
/// # Safety
/// See [`super::build`].
pub(super) unsafe fn build(
    relation: pg_sys::Relation,
    oid: pg_sys::Oid,
    keys: &mut ByteKeys,
    others: &mut Vec<Runs>,
    sources: Sources<'_>,
    may_stay: &mut MayStay<'_>,
) -> Result<bool> {
    let take_over = |worker, files: &SharedFiles| keys.take_over(files, worker, oid);
    if !all_runs(sources, others, take_over)? {
        return Ok(false);
    }
    if keys.given_up {
        return Ok(false);
    }
    check_total(keys.total, sources)?;
    keys.sort()?;
    // SAFETY: this function's contract covers relation and index.
    let built = unsafe {
        renew(relation, oid, sources, &mut || (), |index, old, unfit| {
            let old = old.map(|old| old.reader(keys.shape().clone(), Rc::clone(&unfit)));
            write_pages(relation, index, keys, others, old, sources, may_stay, &unfit)
        })?
    };
    if built {
        keys.store = Store::new(0);
    }
    Ok(built)
}

/// The runs of all processes, in memory and in files.
enum KeyRun<'s> {
    Memory(StoreRun<'s>),
    File(RecordReader),
    Old(LeafReader<u8>),
}

impl Run<u8> for KeyRun<'_> {
    type Error = Error;

    fn block(&self) -> &[u8] {
        match self {
            KeyRun::Memory(run) => run.block(),
            KeyRun::File(run) => run.block(),
            KeyRun::Old(run) => run.block(),
        }
    }

    fn advance(&mut self) -> Result<()> {
        match self {
            KeyRun::Memory(run) => run.advance().map_err(|never| match never {}),
            KeyRun::File(run) => run.advance(),
            KeyRun::Old(run) => run.advance(),
        }
    }
}

/// Merges the keys and writes the index. Sets `unfit` for a key that is too long, and for keys that the server would
/// order differently.
///
/// # Safety
/// The index is open and has a new file.
#[allow(clippy::too_many_arguments, reason = "what a build is made of")]
unsafe fn write_pages(
    relation: pg_sys::Relation,
    index: pg_sys::Relation,
    keys: &ByteKeys,
    others: &[Runs],
    old: Option<LeafReader<u8>>,
    sources: Sources<'_>,
    may_stay: &mut MayStay<'_>,
    unfit: &Cell<bool>,
) -> Result<Built> {
    let shape = keys.shape();
    let merges = old.as_ref().map(LeafReader::unfit);
    let mut runs: Vec<KeyRun<'_>> = vec![KeyRun::Memory(keys.store.run())];
    let files = || std::iter::once(&keys.runs).chain(others);
    let block = keys.block(files().map(|runs| runs.list.len()).sum());
    runs.extend(files().flat_map(|runs| runs.record_readers(block)).map(KeyRun::File));
    runs.extend(old.map(KeyRun::Old));
    let mut merge = Merge::new(runs);
    // SAFETY: this function's contract covers the index.
    let (unique, nulls_equal, options) = unsafe {
        let form = &*(*index).rd_index;
        (form.indisunique, form.indnullsnotdistinct, options(index))
    };
    let mut builder = Builder::new(shape, options);
    let mut file = IndexFile::new(index)?;
    let mut unique_keys = Unique::new(shape, nulls_equal);
    let mut clashes = Clashes::new(relation, index, sources);
    let mut duplicate = |key: &[u8], rows: &mut Vec<Tid>, row: Tid| -> Result<()> {
        // SAFETY: this function's contract covers the relations.
        unsafe {
            if let Some(clash) = clashes.find(rows, row)
                && !may_stay(clash, row)
            {
                raise_duplicate(relation, index, shape, key);
            }
        }
        rows.push(row);
        Ok(())
    };
    let failed = |error| {
        unfit.set(unfit.get() || matches!(error, BuildError::TooLong { .. } | BuildError::Collation));
        failed(error, &merges)
    };
    loop {
        let records = merge.next()?;
        if records.is_empty() {
            break;
        }
        if unique {
            unique_keys.push(records, &mut duplicate, |rest| builder.push(rest, &mut file).map_err(failed))?;
        } else {
            builder.push(records, &mut file).map_err(failed)?;
        }
    }
    if unique {
        unique_keys.finish(|rest| builder.push(rest, &mut file).map_err(failed))?;
    }
    let built = builder.finish(&mut file).map_err(failed)?;
    // The number of old entries is not known.
    check_built(if merges.is_some() { built.entries.min(keys.total) } else { built.entries }, keys.total)?;
    file.finish()?;
    Ok(built)
}

/// Raises the error for two rows with the same key.
///
/// # Safety
/// The index is open and has keys of that shape. Guarded; allocates in the current memory context.
unsafe fn raise_duplicate(relation: pg_sys::Relation, index: pg_sys::Relation, shape: &ByteShape, key: &[u8]) {
    let mut values = [pg_sys::Datum::from(0usize); pg_sys::INDEX_MAX_KEYS as usize];
    let mut nulls = [false; pg_sys::INDEX_MAX_KEYS as usize];
    // SAFETY: this function's contract covers the index, which has an attribute for each column; there is a value for
    // each.
    unsafe {
        shape.decode(key, |column, value| {
            let attribute = &*compat::attribute((*index).rd_att, column);
            if let (Some(to), Some(null)) = (values.get_mut(column), nulls.get_mut(column)) {
                match value {
                    StoredValue::Null => *null = true,
                    StoredValue::Bytes(bytes) => *to = datum(attribute, bytes),
                }
            }
        });
        violation::raise_unique(relation, index, values.as_mut_ptr(), nulls.as_mut_ptr());
    }
}

/// Makes the datum from an attribute's bytes; a varlena's bytes are those after its header. Guarded; allocates in the
/// current memory context.
fn datum(attribute: &pg_sys::FormData_pg_attribute, bytes: &[u8]) -> pg_sys::Datum {
    if attribute.attbyval {
        // fetch_att
        return match *bytes {
            [a] => pg_sys::Datum::from(i8::from_ne_bytes([a])),
            [a, b] => pg_sys::Datum::from(i16::from_ne_bytes([a, b])),
            [a, b, c, d] => pg_sys::Datum::from(i32::from_ne_bytes([a, b, c, d])),
            _ => pg_sys::Datum::from(bytes.first_chunk().map_or(0, |bytes| i64::from_ne_bytes(*bytes))),
        };
    }
    let header = if attribute.attlen == -1 { pg_sys::VARHDRSZ } else { 0 };
    // SAFETY: a guarded call; the memory has room for header and bytes.
    unsafe {
        let place = pg_sys::palloc(header + bytes.len()).cast::<u8>();
        if header > 0 {
            pgrx::set_varsize_4b(place.cast(), i32::try_from(header + bytes.len()).unwrap_or(i32::MAX));
        }
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.add(header), bytes.len());
        pg_sys::Datum::from(place)
    }
}
