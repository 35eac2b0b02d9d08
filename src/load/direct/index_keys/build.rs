//! Builds an index from the collected keys.
//!
//! It also does the steps of reindex_index and index_build (index.c) around a build: a new file, its init fork,
//! statistics. Steps for other cases are left out: the index is valid, its table has no other writer, and no
//! user-defined function is called.
//!
//! An index that has entries can be merged with the new keys. In a unique index, equal keys are then no conflict if an
//! entry's row is dead, so the heap is checked.

mod bytes;
mod range;
mod together;
mod tuples;

use std::cell::Cell;
use std::rc::Rc;

use pg_bulk_format::btree::build::{BuildError, Builder, Built, Options, Page, PageSink};
use pg_bulk_format::btree::entry::{Entry, Tid, Word};
use pg_bulk_format::btree::key::{KeyShape, KeyValue};
use pg_bulk_format::btree::merge::{Merge, Run, Slice};
use pg_bulk_format::btree::unique::Unique;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use self::range::{Between, Seen};
use self::together::Together;
pub use self::together::WORTH_WORKERS;
use super::clash::{Clash, Clashes};
use super::collector::{Collected, Collector, Keys};
use super::leaves::{LeafReader, Leaves};
use super::runs::{RunReader, Runs};
use super::sources::Sources;
use crate::error::{Error, Result, out_of_memory};
use crate::pg::compat;
use crate::pg::index_file::IndexFile;
use crate::pg::points::point;
use crate::pg::shared_files::SharedFiles;
use crate::pg::unguarded::{self as c, guard};
use crate::pg::violation;

const EXCLUSIVE: pg_sys::LOCKMODE = pg_sys::AccessExclusiveLock.cast_signed();
const NO_LOCK: pg_sys::LOCKMODE = pg_sys::NoLock.cast_signed();
const INIT: pg_sys::ForkNumber::Type = pg_sys::ForkNumber::INIT_FORKNUM;

/// The position of a row in the form of index entries.
pub fn tid_of(tid: &pg_sys::ItemPointerData) -> Tid {
    Tid::new(u32::from(tid.ip_blkid.bi_hi) << 16 | u32::from(tid.ip_blkid.bi_lo), tid.ip_posid)
}

/// Decides whether a row may stay in the index in spite of a key conflict; otherwise the conflict is an error.
pub type MayStay<'a> = dyn FnMut(Clash<'_>, Tid) -> bool + 'a;

/// Builds an index of a relation from its keys.
///
/// False if the keys could not be collected, or the old entries could not be read: then the server must build it.
/// Guarded.
///
/// # Safety
/// The relation is open and has no other writer. The index is one of its planned indexes, closed and locked
/// exclusively.
pub unsafe fn build(
    relation: pg_sys::Relation,
    collector: &mut Collector,
    sources: Sources<'_>,
    may_stay: &mut MayStay<'_>,
) -> Result<bool> {
    let index = collector.index;
    let mut others = Vec::new();
    // SAFETY: this function's contract covers both arguments.
    let built = unsafe {
        match &mut collector.keys {
            Keys::Narrow(keys) => build_words(relation, index, keys, &mut others, sources, may_stay),
            Keys::Wide(keys) => build_words(relation, index, keys, &mut others, sources, may_stay),
            Keys::Bytes(keys) => bytes::build(relation, index, keys, &mut others, sources, may_stay),
            Keys::Tuples(keys) => tuples::build(relation, index, keys, sources, may_stay),
        }
    }?;
    collector.close();
    others.iter_mut().for_each(Runs::close);
    Ok(built)
}

/// # Safety
/// See [`build`].
unsafe fn build_words<W: Word>(
    relation: pg_sys::Relation,
    oid: pg_sys::Oid,
    keys: &mut Collected<W>,
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
    keys.sort();
    // SAFETY: this function's contract covers relation and index.
    let built = unsafe {
        renew(relation, oid, sources, &mut || (), |index, old, unfit| {
            match together::build(relation, index, keys, others, old, sources)? {
                Together::Built(built) => return Ok(built),
                // The partly written file is replaced.
                Together::GivenUp => set_new_file(relation, index),
                Together::NotWorth => (),
            }
            let old = old.map(|old| old.reader(keys.shape().clone(), unfit));
            write_pages(relation, index, keys, others, old, sources, may_stay)
        })?
    };
    if built {
        keys.take_entries();
    }
    Ok(built)
}

/// Takes over the runs of all workers. False if one of them could not collect its keys. Guarded.
pub(super) fn all_runs(
    sources: Sources<'_>,
    others: &mut Vec<Runs>,
    mut take_over: impl FnMut(usize, &SharedFiles) -> Result<Option<Runs>>,
) -> Result<bool> {
    for worker in 1..=sources.workers {
        let Some(files) = sources.files else { return Ok(false) };
        let Some(runs) = take_over(worker, &files)? else { return Ok(false) };
        others.push(runs);
    }
    Ok(true)
}

/// Checks that there is a key of each row.
pub(super) fn check_total(total: u64, sources: Sources<'_>) -> Result<()> {
    if total == sources.rows {
        return Ok(());
    }
    let message = format!("{total} keys were collected of {} rows", sources.rows);
    Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, message))
}

/// Checks that an index has a new entry for each collected key.
pub(super) fn check_built(new: u64, total: u64) -> Result<()> {
    if new == total {
        return Ok(());
    }
    let message = format!("{new} of {total} keys were put into an index");
    Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, message))
}

/// The old index's entries that were among the merged runs.
fn seen_of<W: Word>(runs: &[KeyRun<'_, W>]) -> Seen<W> {
    let old = runs.iter().find_map(|run| if let KeyRun::Old(old) = run { Some(old.seen()) } else { None });
    old.unwrap_or_default()
}

/// Gives an index a new file, and lets `write` fill it. False if that failed because something is `unfit`.
///
/// `opened` is called when the index is open, so that other references to it can be closed. Guarded.
///
/// # Safety
/// See [`build`].
unsafe fn renew(
    relation: pg_sys::Relation,
    oid: pg_sys::Oid,
    sources: Sources<'_>,
    opened: &mut dyn FnMut(),
    write: impl FnOnce(pg_sys::Relation, Option<Leaves>, Rc<Cell<bool>>) -> Result<Built>,
) -> Result<bool> {
    // SAFETY: this function's contract covers relation and index; guarded calls.
    unsafe {
        let index = pg_sys::index_open(oid, EXCLUSIVE);
        opened();
        pg_sys::CheckTableNotInUse(index, c"REINDEX INDEX".as_ptr());
        if !sources.merge && compat::first_leaf(index).is_some() {
            // A function that is declared as not doing so has put rows into the table during the load.
            pg_sys::index_close(index, NO_LOCK);
            return Ok(false);
        }
        guard(|| c::TransferPredicateLocksToHeapRelation(index));
        let old = sources.merge.then(|| Leaves::of(index));
        set_new_file(relation, index);
        let unfit = Rc::new(Cell::new(false));
        let built = write(index, old, Rc::clone(&unfit));
        if built.is_err() && unfit.get() {
            pg_sys::index_close(index, NO_LOCK);
            return Ok(false);
        }
        let built = built?;
        set_statistics(index, built);
        if !sources.merge {
            set_table_statistics(relation, sources.rows);
        }
        pg_sys::index_close(index, NO_LOCK);
        pg_sys::CommandCounterIncrement();
        point!("index.built");
    }
    Ok(true)
}

/// Gives an open index a new, empty file. Guarded.
///
/// # Safety
/// The relation is open and has no other writer. The index is one of its indexes, open and locked exclusively.
pub unsafe fn set_new_file(relation: pg_sys::Relation, index: pg_sys::Relation) {
    // SAFETY: this function's contract covers both arguments; guarded calls.
    unsafe {
        let persistence = (*(*relation).rd_rel).relpersistence;
        compat::set_new_file(index, persistence);
        point!("index.renewed");
        if persistence.cast_unsigned() == pg_sys::RELPERSISTENCE_UNLOGGED {
            make_init_fork(index);
        }
    }
}

/// The runs of all processes, in memory and in files.
enum KeyRun<'e, W: Word> {
    Memory(Slice<'e, Entry<W>>),
    File(RunReader<W>),
    Old(Between<W>),
}

impl<W: Word> Run<Entry<W>> for KeyRun<'_, W> {
    type Error = Error;

    fn block(&self) -> &[Entry<W>] {
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

impl PageSink for IndexFile {
    type Error = Error;

    fn page(&mut self, block: u32, page: &mut Page) -> Result<()> {
        self.put(block, &page.0)
    }
}

/// Merges the keys and writes the index.
///
/// # Safety
/// The index is open and has a new file.
unsafe fn write_pages<W: Word>(
    relation: pg_sys::Relation,
    index: pg_sys::Relation,
    keys: &Collected<W>,
    others: &[Runs],
    old: Option<LeafReader<Entry<W>>>,
    sources: Sources<'_>,
    may_stay: &mut MayStay<'_>,
) -> Result<Built> {
    let shape = keys.shape();
    let unfit = old.as_ref().map(LeafReader::unfit);
    let mut runs: Vec<KeyRun<'_, W>> = vec![KeyRun::Memory(Slice::new(keys.entries()))];
    let files = || std::iter::once(&keys.runs).chain(others);
    let block = keys.block(files().map(|runs| runs.list.len()).sum());
    runs.extend(files().flat_map(|runs| runs.readers(block)).map(KeyRun::File));
    runs.extend(old.map(|old| KeyRun::Old(Between::new(old, None, None))));
    let mut merge = Merge::new(runs);
    // SAFETY: this function's contract covers the index.
    let (unique, nulls_equal, options) = unsafe {
        let form = &*(*index).rd_index;
        (form.indisunique, form.indnullsnotdistinct, options(index))
    };
    let mut builder = Builder::new(shape, options);
    let mut file = IndexFile::new(index)?;
    let mut unique_keys = unique.then(|| Unique::new(shape, nulls_equal));
    let mut clashes = Clashes::new(relation, index, sources);
    let mut duplicate = |key: W, rows: &mut Vec<Tid>, row: Tid| -> Result<()> {
        // SAFETY: this function's contract covers the relations.
        unsafe {
            if let Some(clash) = clashes.find(rows, row)
                && !may_stay(clash, row)
            {
                raise_duplicate(relation, index, shape, key)?;
            }
        }
        rows.push(row);
        Ok(())
    };
    feed(&mut merge, &mut unique_keys, &mut duplicate, &mut builder, &mut file, &unfit, || false)?;
    let built = builder.finish(&mut file).map_err(|error| failed(error, &unfit))?;
    check_built(built.entries.saturating_sub(seen_of(merge.runs()).count), keys.total)?;
    file.finish()?;
    Ok(built)
}

/// Decides on equal keys of a unique index.
type Duplicate<'a, W> = dyn FnMut(W, &mut Vec<Tid>, Tid) -> Result<()> + 'a;

/// Passes merged entries to the builder, to their end or until `is_over`. Guarded, and interruptible.
fn feed<W: Word>(
    merge: &mut Merge<Entry<W>, KeyRun<'_, W>>,
    unique: &mut Option<Unique<Entry<W>>>,
    duplicate: &mut Duplicate<'_, W>,
    builder: &mut Builder<W>,
    file: &mut IndexFile,
    unfit: &Unfit,
    is_over: impl Fn() -> bool,
) -> Result<()> {
    while !is_over() {
        let entries = merge.next()?;
        if entries.is_empty() {
            break;
        }
        match unique {
            Some(unique) => unique.push(entries, &mut *duplicate, |rest| push(builder, rest, file, unfit))?,
            None => push(builder, entries, file, unfit)?,
        }
    }
    match unique {
        Some(unique) => unique.finish(|rest| push(builder, rest, file, unfit)),
        None => Ok(()),
    }
}

/// Set if the old entries of an index cannot be merged.
type Unfit = Option<Rc<Cell<bool>>>;

fn push<W: Word>(builder: &mut Builder<W>, entries: &[Entry<W>], file: &mut IndexFile, unfit: &Unfit) -> Result<()> {
    builder.push(entries, file).map_err(|error| failed(error, unfit))
}

fn failed(error: BuildError<Error>, unfit: &Unfit) -> Error {
    match error {
        BuildError::Sink(error) => error,
        BuildError::Order => {
            // The old entries are not in order: the new keys were sorted here.
            if let Some(unfit) = unfit {
                unfit.set(true);
            }
            Error::new(Code::ERRCODE_INDEX_CORRUPTED, "keys of an index are not in order")
        }
        // Then the server builds the index and raises its own error.
        BuildError::TooLong { .. } => Error::new(Code::ERRCODE_PROGRAM_LIMIT_EXCEEDED, "a key of an index is too long"),
        BuildError::Collation => Error::new(Code::ERRCODE_INTERNAL_ERROR, "sort keys of an index are not in its order"),
        BuildError::Memory => out_of_memory(),
        BuildError::Full => Error::new(Code::ERRCODE_PROGRAM_LIMIT_EXCEEDED, "an index cannot have more pages"),
    }
}

/// Raises the error for two rows with the same key, as _bt_check_unique does (nbtinsert.c).
///
/// # Safety
/// The index is open and has keys of that shape. Guarded.
unsafe fn raise_duplicate<W: Word>(
    relation: pg_sys::Relation,
    index: pg_sys::Relation,
    shape: &KeyShape,
    key: W,
) -> Result<()> {
    let mut uuids = [[0u8; 16]; pg_sys::INDEX_MAX_KEYS as usize];
    let mut values = [pg_sys::Datum::from(0usize); pg_sys::INDEX_MAX_KEYS as usize];
    let mut nulls = [false; pg_sys::INDEX_MAX_KEYS as usize];
    for (column, ((value, null), uuid)) in
        values.iter_mut().zip(&mut nulls).zip(&mut uuids).enumerate().take(shape.len())
    {
        match shape.decode(key, column) {
            KeyValue::Null => *null = true,
            KeyValue::Datum(datum) => *value = pg_sys::Datum::from(datum),
            KeyValue::Uuid(bytes) => {
                *uuid = bytes;
                *value = pg_sys::Datum::from(uuid.as_ptr());
            }
        }
    }
    // SAFETY: this function's contract covers the index; there is a value for each of its keys.
    unsafe { violation::raise_unique(relation, index, values.as_mut_ptr(), nulls.as_mut_ptr()) }
    Ok(())
}

/// Makes the init fork for an index with a new main fork, as index_build does (index.c).
///
/// # Safety
/// The index is open and unlogged. Guarded.
unsafe fn make_init_fork(index: pg_sys::Relation) {
    // SAFETY: this function's contract covers the index; guarded calls.
    unsafe {
        if pg_sys::smgrexists(pg_sys::RelationGetSmgr(index), INIT) {
            return;
        }
        pg_sys::smgrcreate(pg_sys::RelationGetSmgr(index), INIT, false);
        compat::log_smgrcreate(index, INIT);
        if let Some(build_empty) = (*(*index).rd_indam).ambuildempty {
            guard(|| build_empty(index));
        }
    }
}

/// Sets the statistics of an index as index_update_stats does (index.c).
///
/// An index with an empty new file keeps its statistics, since its table may be empty.
///
/// # Safety
/// The index is open. Guarded.
unsafe fn set_statistics(index: pg_sys::Relation, built: Built) {
    if built.entries == 0 {
        return;
    }
    // SAFETY: this function's contract covers the argument.
    unsafe { compat::set_index_statistics(index, built.pages, built.entries as f64) };
}

/// Sets the statistics of a table that has only the rows of the load.
///
/// # Safety
/// The table is open. Guarded.
unsafe fn set_table_statistics(relation: pg_sys::Relation, rows: u64) {
    // SAFETY: this function's contract covers the argument; guarded calls.
    unsafe {
        let main = pg_sys::ForkNumber::MAIN_FORKNUM;
        let blocks = pg_sys::RelationGetNumberOfBlocksInFork(relation, main);
        compat::set_table_statistics(relation, blocks, rows as f64);
    }
}

/// BTOptions (nbtree.h)
#[repr(C)]
struct BTOptions {
    varlena_header: i32,
    fillfactor: i32,
    vacuum_cleanup_index_scale_factor: f64,
    deduplicate_items: bool,
}

/// # Safety
/// The index is an open B-tree. Guarded.
pub(super) unsafe fn options(index: pg_sys::Relation) -> Options {
    // SAFETY: this function's contract covers the index; a B-tree's options are BTOptions.
    unsafe {
        let stored = (*index).rd_options.cast::<BTOptions>();
        let (fillfactor, deduplicate) = if stored.is_null() {
            (Options::default().fillfactor, true)
        } else {
            (usize::try_from((*stored).fillfactor).unwrap_or(100), (*stored).deduplicate_items)
        };
        let all_equal_image = guard(|| c::_bt_allequalimage(index, false));
        let deduplicate = deduplicate && all_equal_image && !(*(*index).rd_index).indisunique;
        Options { fillfactor, deduplicate, all_equal_image }
    }
}
