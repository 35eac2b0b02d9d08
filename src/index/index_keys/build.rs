//! Builds an index from the collected keys.
//!
//! It also does the steps of reindex_index and index_build (index.c) around a build: a new file, its init fork,
//! statistics. Steps for other cases are left out: the index is valid, its table has no other writer, and no
//! user-defined function is called.
//!
//! An index that has entries can be merged with the new keys. In a unique index, equal keys are then no conflict if an
//! entry's row is dead, so the heap is checked.

mod range;
mod together;
mod tuples;

use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;

use pg_bulk_storage::btree::build::{BuildError, BuildFamily, Builder, Built, Options, Page, PageSink};
use pg_bulk_storage::btree::collect::{CollectedFamily, KeyStore as _, Value};
use pg_bulk_storage::btree::entry::Tid;
use pg_bulk_storage::btree::family::KeyFamily;
use pg_bulk_storage::btree::merge::{Merge, Run};
use pg_bulk_storage::btree::unique::Unique;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use self::together::Together;
pub use self::together::WORTH_WORKERS;
use super::clash::{Clash, Clashes};
use super::collected::{Collected, Keys as _};
use super::collector::{CollectedForm, Collector};
use super::leaves::{LeafReader, Leaves};
use super::runs::{Runs, readers};
use super::sources::Sources;
use crate::error::{Error, Result, out_of_memory};
use crate::heap::removal::number_of;
use crate::index::index_file::IndexFile;
use crate::server::compat;
use crate::server::points::point;
use crate::server::relation::{OpenRelation, Relation};
use crate::server::statement::next_command;
use crate::server::unguarded::{self as c, guard};
use crate::server::violation;

const INIT: pg_sys::ForkNumber::Type = pg_sys::ForkNumber::INIT_FORKNUM;

/// The position of a row in the form of index entries.
pub fn tid_of(tid: &pg_sys::ItemPointerData) -> Tid {
    Tid::from_u64(number_of(tid))
}

/// Decides whether a row may stay in the index in spite of a key conflict; otherwise the conflict is an error.
pub type MayStay<'a> = dyn FnMut(Clash<'_>, Tid) -> bool + 'a;

/// Builds an index of a relation from its keys.
///
/// False if the keys could not be collected, or the old entries could not be read: then the server must build it. The
/// relation has no other writer. The index is one of its planned indexes, closed and locked exclusively. Guarded.
pub fn build(
    relation: Relation<'_>,
    collector: &mut Collector,
    sources: Sources<'_>,
    may_stay: &mut MayStay<'_>,
) -> Result<bool> {
    let index = collector.index;
    let built = match &mut collector.form {
        CollectedForm::Narrow(keys) => build_keys(relation, index, keys, sources, together::build, may_stay),
        CollectedForm::Wide(keys) => build_keys(relation, index, keys, sources, together::build, may_stay),
        CollectedForm::Bytes(keys) => {
            build_keys(relation, index, keys, sources, |_, _, _, _, _, _| Ok(Together::NotWorth), may_stay)
        }
        CollectedForm::Tuples(keys) => tuples::build(relation, index, keys, sources, may_stay),
    }?;
    collector.close();
    Ok(built)
}

/// Builds an index in its new file with the help of workers, if they are worth their start. All keys are present and
/// sorted. Guarded, and interruptible.
type BuildTogether<F> =
    fn(Relation<'_>, Relation<'_>, &mut Collected<F>, &[Runs], Option<Leaves>, Sources<'_>) -> Result<Together>;

/// Builds an index from keys of one family: see [`build`].
fn build_keys<F: CollectedFamily>(
    relation: Relation<'_>,
    oid: pg_sys::Oid,
    keys: &mut Collected<F>,
    sources: Sources<'_>,
    build_together: BuildTogether<F>,
    may_stay: &mut MayStay<'_>,
) -> Result<bool> {
    let mut others = Vec::new();
    if !keys.take_over(sources, oid, &mut others)? {
        others.iter_mut().for_each(Runs::close);
        return Ok(false);
    }
    check_total(keys.total, sources)?;
    keys.sort()?;
    let write = |index: Relation<'_>, old: Option<Leaves>, unfit: Rc<Cell<bool>>| {
        match build_together(relation, index, keys, &others, old, sources)? {
            Together::Built(built) => return Ok(built),
            // The partly written file is replaced.
            Together::GivenUp => set_new_file(relation, index),
            Together::NotWorth => (),
        }
        let old = old.map(|old| old.reader(keys.shape().clone(), Rc::clone(&unfit)));
        write_pages(relation, index, keys, &others, old, sources, may_stay, &unfit)
    };
    let built = renew(relation, oid, sources, || (), write)?;
    if built {
        keys.store = F::Store::default();
    }
    others.iter_mut().for_each(Runs::close);
    Ok(built)
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

/// Gives an index a new file, and lets `write` fill it. False if that failed because something is `unfit`.
///
/// `opened` is called when the index is open, so that other references to it can be closed. Guarded.
fn renew(
    relation: Relation<'_>,
    oid: pg_sys::Oid,
    sources: Sources<'_>,
    opened: impl FnOnce(),
    write: impl FnOnce(Relation<'_>, Option<Leaves>, Rc<Cell<bool>>) -> Result<Built>,
) -> Result<bool> {
    let open = OpenRelation::open(oid, pg_sys::AccessExclusiveLock);
    let index = open.get();
    opened();
    index.check_unused(c"REINDEX INDEX");
    if !sources.merge && compat::first_leaf(index).is_some() {
        // A function that is declared as not doing so has put rows into the table during the load.
        return Ok(false);
    }
    index.move_predicate_locks();
    let old = sources.merge.then(|| Leaves::of(index));
    set_new_file(relation, index);
    let unfit = Rc::new(Cell::new(false));
    let built = write(index, old, Rc::clone(&unfit));
    if built.is_err() && unfit.get() {
        return Ok(false);
    }
    let built = built?;
    // As index_update_stats does (index.c): an index with an empty new file keeps its statistics, since its table may
    // be empty.
    if built.entries > 0 {
        compat::set_index_statistics(index, built.pages, built.entries as f64);
    }
    if !sources.merge {
        // The table has only the rows of the load.
        compat::set_table_statistics(relation, relation.pages(), sources.rows as f64);
    }
    drop(open);
    next_command();
    point!("index.built");
    Ok(true)
}

/// Gives an open index a new, empty file. The index is locked exclusively, and its relation has no other writer. Guarded.
pub fn set_new_file(relation: Relation<'_>, index: Relation<'_>) {
    let persistence = relation.persistence();
    compat::set_new_file(index, persistence.cast_signed());
    point!("index.renewed");
    if persistence == pg_sys::RELPERSISTENCE_UNLOGGED {
        make_init_fork(index);
    }
}

/// The runs of all processes, in memory and in files, and the entries of the old index.
enum KeyRun<M, R, O> {
    Memory(M),
    File(R),
    Old(O),
}

impl<F, M, R, O> Run<F> for KeyRun<M, R, O>
where
    F: KeyFamily,
    M: Run<F, Error = Infallible>,
    R: Run<F, Error = Error>,
    O: Run<F, Error = Error>,
{
    type Error = Error;

    fn block(&self) -> &[F] {
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

impl PageSink for IndexFile<'_> {
    type Error = Error;

    fn page(&mut self, block: u32, page: &mut Page) -> Result<()> {
        self.put(block, &page.0)
    }
}

/// Merges the keys and writes the index into its new file. Sets `unfit` for a key that is too long, and for keys that
/// the server would order differently.
#[allow(clippy::too_many_arguments, reason = "what a build is made of")]
fn write_pages<F: CollectedFamily>(
    relation: Relation<'_>,
    index: Relation<'_>,
    keys: &Collected<F>,
    others: &[Runs],
    old: Option<LeafReader<F>>,
    sources: Sources<'_>,
    may_stay: &mut MayStay<'_>,
    unfit: &Cell<bool>,
) -> Result<Built> {
    let shape = keys.shape();
    let old_unfit = old.as_ref().map(LeafReader::unfit);
    let mut runs = vec![KeyRun::Memory(keys.store.run())];
    let files = readers::<F>(std::iter::once(&keys.runs).chain(others), keys.memory);
    runs.extend(files.into_iter().map(KeyRun::File));
    runs.extend(old.map(KeyRun::Old));
    let mut merge = Merge::<F, _>::new(runs);
    let mut builder = Builder::<F>::new(shape, options(index));
    let mut file = IndexFile::new(index)?;
    let form = index.index().filter(|form| form.is_unique);
    let mut unique_keys = form.map(|form| Unique::new(shape, form.nulls_equal));
    let mut clashes = Clashes::new(relation, index, sources);
    let failed = |error| {
        unfit.set(unfit.get() || matches!(error, BuildError::TooLong { .. } | BuildError::Collation));
        failed(error, &old_unfit)
    };
    let duplicate: &mut Duplicate<'_, F> = &mut |key, rows, row| {
        if let Some(clash) = clashes.find(rows, row)
            && !may_stay(clash, row)
        {
            // As _bt_check_unique does (nbtinsert.c).
            let mut values = [pg_sys::Datum::from(0usize); pg_sys::INDEX_MAX_KEYS as usize];
            let mut nulls = [false; pg_sys::INDEX_MAX_KEYS as usize];
            let attributes = index.descriptor().attributes();
            F::decode(shape, key, &mut |column, value| {
                if let (Some(to), Some(null)) = (values.get_mut(column), nulls.get_mut(column)) {
                    match (value, attributes.clone().nth(column)) {
                        (Value::Datum(datum), _) => *to = pg_sys::Datum::from(datum),
                        (Value::Bytes(bytes), Some(attribute)) => *to = datum(attribute, bytes),
                        (Value::Null | Value::Bytes(_), _) => *null = true,
                    }
                }
            });
            // SAFETY: the key is of the index, and its shape has the types of the columns.
            unsafe { violation::raise_unique(relation, index, &mut values, &mut nulls) };
        }
        rows.push(row);
        Ok(())
    };
    feed(&mut merge, &mut unique_keys, duplicate, &mut builder, &mut file, &failed, || false)?;
    let built = builder.finish(&mut file).map_err(failed)?;
    let old = merge.runs().iter().find_map(|run| if let KeyRun::Old(old) = run { Some(old.entries()) } else { None });
    check_built(built.entries.saturating_sub(old.unwrap_or(0)), keys.total)?;
    file.finish()?;
    Ok(built)
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

/// Decides on equal keys of a unique index.
type Duplicate<'a, F> = dyn FnMut(<F as KeyFamily>::Key<'_>, &mut Vec<Tid>, Tid) -> Result<()> + 'a;

/// Passes merged items to the builder, to their end or until `is_over`. Guarded, and interruptible.
fn feed<F: BuildFamily, R: Run<F, Error = Error>>(
    merge: &mut Merge<F, R>,
    unique: &mut Option<Unique<F>>,
    duplicate: &mut Duplicate<'_, F>,
    builder: &mut Builder<F>,
    file: &mut IndexFile<'_>,
    failed: &dyn Fn(BuildError<Error>) -> Error,
    is_over: impl Fn() -> bool,
) -> Result<()> {
    let mut push = |units: &[F]| builder.push(units, file).map_err(failed);
    while !is_over() {
        let units = merge.next()?;
        if units.is_empty() {
            break;
        }
        match unique {
            Some(unique) => unique.push(units, &mut *duplicate, &mut push)?,
            None => push(units)?,
        }
    }
    match unique {
        Some(unique) => unique.finish(push),
        None => Ok(()),
    }
}

/// Set if the old entries of an index cannot be merged.
type Unfit = Option<Rc<Cell<bool>>>;

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

/// Makes the init fork for an index with a new main fork, as index_build does (index.c). Guarded.
fn make_init_fork(index: Relation<'_>) {
    let relation = index.as_ptr();
    // SAFETY: guarded calls on an open index; the closure owns nothing.
    unsafe {
        if pg_sys::smgrexists(pg_sys::RelationGetSmgr(relation), INIT) {
            return;
        }
        pg_sys::smgrcreate(pg_sys::RelationGetSmgr(relation), INIT, false);
        compat::log_smgrcreate(index, INIT);
        if let Some(build_empty) = (*(*relation).rd_indam).ambuildempty {
            guard(|| build_empty(relation));
        }
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

/// The options of a B-tree. Guarded.
pub(super) fn options(index: Relation<'_>) -> Options {
    // SAFETY: an open B-tree, whose options are BTOptions; a guarded call, whose closure owns nothing.
    let (stored, all_equal_image) = unsafe {
        let stored = (*index.as_ptr()).rd_options.cast::<BTOptions>().as_ref();
        (stored, guard(|| c::_bt_allequalimage(index.as_ptr(), false)))
    };
    let (fillfactor, deduplicate) = stored.map_or((Options::default().fillfactor, true), |stored| {
        (usize::try_from(stored.fillfactor).unwrap_or(100), stored.deduplicate_items)
    });
    let is_unique = index.index().is_some_and(|form| form.is_unique);
    Options { fillfactor, deduplicate: deduplicate && all_equal_image && !is_unique, all_equal_image }
}
