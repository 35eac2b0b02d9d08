//! The option `once`: skips a file that was loaded into the table before.
//!
//! The bytes of a file on disk identify it: a copy under another name is the same file, and a file with one more line
//! is another one. So pg_bulk reads the bytes into a [`Digest`] before the load, and checks after the load that the
//! file has not changed. Of several files, it leaves out those that were loaded before, and those that are equal to
//! another one of them.
//!
//! Loaded files are rows of a table that only [`OwnTable`] writes and reads. The load's own transaction writes them, so
//! a rollback removes them. Two concurrent loads of the same file take the same lock before they look the file up, and
//! hold it until their transactions end. So the second load waits until the first one has committed or aborted.
//!
//! **Which table.** A row belongs to a table's OID, so a later table of the same name starts without rows. pg_bulk
//! removes the rows of dropped tables. Rows that came with a copy of a database are first taken home ([`home`]). The
//! option `truncate` removes a table's rows. TRUNCATE and DELETE commands do not; after these, the user calls
//! `bulk_forget`.

mod home;

use std::collections::HashMap;
use std::ffi::{CStr, CString};

use pgrx::{IntoDatum, PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::Load;
use super::options::Once;
use super::target::{Target, TargetKind, check_transaction};
use crate::error::{Error, OrRaise, Result};
use crate::input::digest::Digest;
use crate::input::encoding::shown;
use crate::input::file_identity::{self, Identity};
use crate::input::files::FileList;
use crate::input::source::Location;
use crate::server::compat;
use crate::server::database::{cluster, database};
use crate::server::function::version_1;
use crate::server::lock::{Mode, ObjectLock, Until};
use crate::server::own_table::{Columns, OwnTable, check_seen};
use crate::server::points::point;
use crate::server::role::{owner_here, stored_role_name};
use crate::server::server_text::to_server;
use crate::server::unguarded::{find_all_inheritors, guard};

const TABLE: &CStr = c"bulk_loaded";
const WIDTH: usize = 15;
const TABLE_COLUMNS: Columns = Columns { types: &TYPES, oldest: WIDTH };
const TYPES: [pg_sys::Oid; WIDTH] = [
    pg_sys::INT8OID,
    pg_sys::BYTEAOID,
    pg_sys::INT8OID,
    pg_sys::TEXTOID,
    pg_sys::TIMESTAMPTZOID,
    pg_sys::INT8OID,
    pg_sys::TIMESTAMPTZOID,
    pg_sys::OIDOID,
    pg_sys::TEXTOID,
    pg_sys::OIDOID,
    pg_sys::OIDOID,
    pg_sys::TEXTOID,
    pg_sys::INT8OID,
    pg_sys::OIDOID,
    pg_sys::XIDOID,
];
/// Column numbers.
const HASH: usize = 1;
const SIZE: usize = 2;
const PATH: usize = 3;
const LOAD: usize = 5;
const LOADED_AT: usize = 6;
const TARGET: usize = 7;
const TARGET_NAME: usize = 8;
const DATABASE: usize = 9;
const OWNER: usize = 10;
const OWNER_NAME: usize = 11;
const CLUSTER: usize = 12;
const HOME: usize = 13;
const MADE_BY: usize = 14;

/// Most files with a lock each. A load of more files locks out all other `once` loads of the table.
const MOST_LOCKS: usize = 64;
/// Most notices about skipped files. A last notice counts the others.
const MOST_NOTICES: usize = 10;

/// A file to be loaded.
#[derive(Debug)]
pub struct Met {
    path: CString,
    digest: Digest,
    /// The file's identity when its bytes were read.
    identity: Identity,
}

impl Met {
    fn new(location: &Location) -> Result<Met> {
        let name = location.name();
        // Opening a FIFO would wake up its writer.
        let is_special =
            location.is_allowed() && location.metadata().is_ok_and(|meta| !meta.is_file() && !meta.is_dir());
        let met = if is_special { None } else { Digest::of(location)? };
        let Some((digest, identity)) = met else {
            let message = format!("\"{}\" is not a regular file", location.display());
            return Err(Error::new(Code::ERRCODE_WRONG_OBJECT_TYPE, message)
                .detail("The option once identifies files by their contents, which it must read twice."));
        };
        Ok(Met { path: name.to_owned(), digest, identity })
    }

    fn is_same(&self, other: &Met) -> bool {
        self.digest == other.digest && self.identity.size == other.identity.size
    }
}

/// A table, as rows refer to it.
struct LoadedTable {
    oid: pg_sys::Oid,
    /// Schema and name, quoted.
    name: CString,
}

impl LoadedTable {
    /// None if there is no such table. Guarded.
    fn of(oid: pg_sys::Oid) -> Option<LoadedTable> {
        // SAFETY: guarded catalog lookups, and the strings that they return.
        unsafe {
            let name = pg_sys::get_rel_name(oid);
            let schema = pg_sys::get_namespace_name(pg_sys::get_rel_namespace(oid));
            if name.is_null() || schema.is_null() {
                return None;
            }
            Some(LoadedTable { oid, name: CStr::from_ptr(pg_sys::quote_qualified_identifier(schema, name)).to_owned() })
        }
    }

    /// Does a row refer to this table? Guarded.
    ///
    /// # Safety
    /// A row and its values.
    unsafe fn is_of(&self, records: &OwnTable, row: pg_sys::HeapTuple, values: &[pg_sys::Datum]) -> bool {
        // SAFETY: this function's contract covers the row.
        unsafe {
            if home::is_home(records, row, values) {
                oid(values, TARGET) == self.oid
            } else {
                text(values, TARGET_NAME) == self.name
            }
        }
    }
}

/// The row of a file that was loaded before.
struct EarlierLoad {
    load: i64,
    /// Details of that load; None if the caller may not see it in `bulk_history`.
    details: Option<LoadDetails>,
}

/// Details of an earlier load of a file, as in `bulk_once`.
struct LoadDetails {
    at: pg_sys::TimestampTz,
    /// Its path then.
    path: CString,
}

fn value(values: &[pg_sys::Datum], column: usize) -> pg_sys::Datum {
    values.get(column).copied().unwrap_or(pg_sys::Datum::from(0usize))
}

fn number(values: &[pg_sys::Datum], column: usize) -> i64 {
    value(values, column).value() as i64
}

fn oid(values: &[pg_sys::Datum], column: usize) -> pg_sys::Oid {
    pg_sys::Oid::from_u32(value(values, column).value() as u32)
}

/// A text among a row's values. Guarded.
///
/// # Safety
/// The values of a row; this one is a text.
unsafe fn text(values: &[pg_sys::Datum], column: usize) -> CString {
    // SAFETY: this function's contract covers the value, which is not null; guarded calls.
    unsafe {
        let value = pg_sys::pg_detoast_datum_packed(value(values, column).cast_mut_ptr());
        let string = pg_sys::text_to_cstring(value.cast());
        let owned = CStr::from_ptr(string).to_owned();
        pg_sys::pfree(string.cast());
        owned
    }
}

/// Does a row have this digest? Guarded.
///
/// # Safety
/// The values of a row; the second one is a bytea.
unsafe fn is_digest(values: &[pg_sys::Datum], digest: Digest) -> bool {
    use pgrx::FromDatum;
    // SAFETY: this function's contract covers the value, which is not null.
    unsafe { <&[u8]>::from_datum(value(values, HASH), false) }.is_some_and(|bytes| bytes == digest.0)
}

/// May the caller see all rows? Guarded.
fn sees_all() -> bool {
    // SAFETY: guarded calls.
    unsafe { pg_sys::has_privs_of_role(pg_sys::GetUserId(), pg_sys::ROLE_PG_READ_ALL_STATS.into()) }
}

/// May the caller see this row, if it may not see all? Guarded.
///
/// # Safety
/// The values of a row.
unsafe fn is_visible(values: &[pg_sys::Datum]) -> bool {
    // SAFETY: this function's contract covers the values; guarded calls.
    unsafe {
        let owner = owner_here(oid(values, OWNER), &text(values, OWNER_NAME), number(values, CLUSTER));
        pg_sys::has_privs_of_role(pg_sys::GetUserId(), owner)
    }
}

/// Waits for loads of the same files into the same table. Guarded, and interruptible.
fn lock(schema: pg_sys::Oid, target: pg_sys::Oid, met: &[Met]) {
    // SAFETY: a guarded catalog lookup.
    let class = unsafe { pg_sys::get_relname_relid(TABLE.as_ptr(), schema) };
    let single = met.len() <= MOST_LOCKS;
    let mode = if single { Mode::RowExclusive } else { Mode::Exclusive };
    ObjectLock::new(class, target.to_u32(), 0).take(mode, Until::TransactionEnd);
    if !single {
        return;
    }
    // All loads use this order. A collision of keys only makes two loads wait for each other.
    let mut keys: Vec<i64> = met.iter().map(|met| met.digest.key()).collect();
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        let object = (key as u32) ^ target.to_u32();
        let part = ((key >> 32) as u16) | 1;
        ObjectLock::new(class, object, part).take(Mode::Exclusive, Until::TransactionEnd);
    }
}

/// The last load of a file into a table.
fn look_up(records: &OwnTable, table: &LoadedTable, met: &Met) -> Result<Option<EarlierLoad>> {
    let mut found: Option<EarlierLoad> = None;
    let mut is_seen = Ok(());
    records.for_each_of(met.digest.key(), |row, values| {
        let size = number(values, SIZE).cast_unsigned();
        // SAFETY: the values of a row.
        unsafe {
            if size == met.identity.size && is_digest(values, met.digest) && table.is_of(records, row, values) {
                if is_seen.is_ok() {
                    is_seen = check_seen(row);
                }
                let load = number(values, LOAD);
                if found.as_ref().is_none_or(|known| known.load < load) {
                    let is_visible = sees_all() || is_visible(values);
                    let details =
                        is_visible.then(|| LoadDetails { at: number(values, LOADED_AT), path: text(values, PATH) });
                    found = Some(EarlierLoad { load, details });
                }
            }
        }
    });
    is_seen.map(|()| found)
}

/// Reads the files, and leaves out those that were loaded before. True if none is left. Guarded, interruptible; the
/// caller may insert.
pub fn skip_loaded(load: &mut Load) -> Result<bool> {
    // SAFETY: a guarded catalog lookup.
    let persistence = unsafe { pg_sys::get_rel_persistence(load.target.relid) };
    if persistence.cast_unsigned() == pg_sys::RELPERSISTENCE_TEMP {
        let message = format!("cannot load files once into temporary table \"{}\"", load.target.display_name());
        return Err(Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message)
            .detail("The record of loaded files would outlive the table."));
    }
    let list = load.request.options.copy.files(&load.request.options.location)?;
    let mut met = match &list {
        Some(list) => list.files.iter().map(|file| Met::new(&list.location(file))).collect::<Result<Vec<_>>>()?,
        None => vec![Met::new(&load.request.options.location)?],
    };
    point!("once.looked");
    lock(load.request.schema, load.target.relid, &met);
    let table = LoadedTable { oid: load.target.relid, name: load.target.name.clone() };
    home::take_home(load.request.schema, Some(&table))?;
    let records = OwnTable::to_read(load.request.schema, TABLE, TABLE_COLUMNS)?;
    let (count, mut skipped) = (met.len(), 0);
    // Positions of the remaining files in the list.
    let mut stay: Vec<usize> = Vec::with_capacity(count);
    let mut first: HashMap<Digest, usize> = HashMap::new();
    let is_forced = load.request.options.once == Once::Forced;
    let mut loads = Vec::new();
    for (at, file) in met.iter().enumerate() {
        pgrx::check_for_interrupts!();
        let known = if is_forced { None } else { look_up(&records, &table, file)? };
        let twin = first.get(&file.digest).and_then(|&at| met.get(at)).filter(|twin| file.is_same(twin));
        let detail = match (&known, twin) {
            (Some(known), _) => {
                loads.push(known.details.as_ref().map(|_| known.load));
                known.detail(&file.path)
            }
            (None, Some(twin)) if !is_forced => Some(format!("It has the same contents as \"{}\".", shown(&twin.path))),
            _ => {
                first.entry(file.digest).or_insert(at);
                stay.push(at);
                continue;
            }
        };
        skipped += 1;
        if skipped <= MOST_NOTICES {
            let (path, target) = (shown(&file.path), load.target.display_name());
            let what = if known.is_some() { "was loaded before" } else { "occurs twice" };
            let message = format!("file \"{path}\" {what}, and is not loaded into \"{target}\"");
            let notice = Error::new(Code::ERRCODE_SUCCESSFUL_COMPLETION, message);
            let notice = notice.hint("Use the option force to load the file again.");
            match detail {
                Some(detail) => notice.detail(detail).notice(),
                None => notice.notice(),
            }
        }
    }
    records.close();
    if skipped > MOST_NOTICES {
        let more = skipped - MOST_NOTICES;
        Error::new(Code::ERRCODE_SUCCESSFUL_COMPLETION, format!("{more} more files are not loaded")).notice();
    }
    if skipped > 0 {
        load.measures.counts.notes.push(match (&list, loads.first()) {
            (None, Some(Some(number))) => format!("The file was loaded before, by load {number}."),
            (None, Some(None)) => "The file was loaded before.".into(),
            _ => format!("{skipped} of {count} files were loaded before and were skipped."),
        });
    }
    if let Some(list) = list {
        let files = stay.iter().filter_map(|&at| list.files.get(at).cloned()).collect();
        load.request.options.location = Location::Files(FileList::clone(&list).keeping(files).into());
    }
    let mut at = 0;
    met.retain(|_| {
        at += 1;
        stay.binary_search(&(at - 1)).is_ok()
    });
    load.met = met;
    Ok(load.met.is_empty())
}

impl EarlierLoad {
    /// Detail about the earlier load of a file, whose path is now `path`. Guarded.
    fn detail(&self, path: &CStr) -> Option<String> {
        let LoadDetails { at, path: earlier } = self.details.as_ref()?;
        // SAFETY: a guarded call; its string is valid until the next one.
        let at = unsafe { CStr::from_ptr(pg_sys::timestamptz_to_str(*at)) }.to_string_lossy().into_owned();
        let name = if earlier.as_c_str() == path { String::new() } else { format!(" as \"{}\"", shown(earlier)) };
        Some(format!("Load {} has loaded it{name} at {at}.", self.load))
    }
}

/// Checks that the open file is the one whose bytes were read, and that it stays unchanged, since its digest stands for
/// the loaded data. Of several files, each is checked when it is opened and when it is closed, and the list must match.
/// A file that is replaced meanwhile was complete when it was opened. Guarded.
pub fn check_opened(load: &mut Load) -> Result<()> {
    if load.request.options.once == Once::No {
        return Ok(());
    }
    let Some(stream) = load.rows.as_mut().map(|rows| rows.stream_mut()) else { return Ok(()) };
    let changed = match stream.files() {
        Some(list) => {
            list.files.iter().zip(&load.met).find(|(file, met)| file.identity != met.identity).map(|(_, met)| met)
        }
        None => load.met.first().filter(|met| stream.identity() != Some(met.identity)),
    };
    if let Some(met) = changed {
        return Err(file_identity::changed(&shown(&met.path)));
    }
    load.met.first().map_or(Ok(()), |met| stream.insist(met.identity))
}

/// Records the files of a load that is done. Guarded; allocates in the current memory context.
pub fn record(load: &Load) -> Result<()> {
    if load.met.is_empty() {
        return Ok(());
    }
    let records = OwnTable::to_write(load.request.schema, TABLE, TABLE_COLUMNS)?;
    // SAFETY: does not raise.
    let now = unsafe { pg_sys::GetCurrentTimestamp() };
    // SAFETY: a guarded call that copies the string.
    let text = |string: &CStr| Some(pg_sys::Datum::from(unsafe { pg_sys::cstring_to_text(string.as_ptr()) }));
    let owner_name = stored_role_name(load.request.owner);
    for met in &load.met {
        pgrx::check_for_interrupts!();
        let row: [Option<pg_sys::Datum>; WIDTH] = [
            met.digest.key().into_datum(),
            met.digest.0.as_slice().into_datum(),
            i64::try_from(met.identity.size).unwrap_or(i64::MAX).into_datum(),
            text(&to_server(&shown(&met.path))),
            Some(met.identity.modified().into()),
            load.id.into_datum(),
            Some(now.into()),
            load.target.relid.into_datum(),
            text(&load.target.name),
            database().into_datum(),
            load.request.owner.into_datum(),
            text(&owner_name),
            cluster().into_datum(),
            records.oid().into_datum(),
            Some(home::transaction()),
        ];
        // SAFETY: values of the columns' types.
        unsafe { records.insert(&row) };
    }
    records.close();
    Ok(())
}

/// Removes the rows of these tables, with this path or any. Returns the number of files. Guarded.
fn forget(schema: pg_sys::Oid, tables: &[LoadedTable], path: Option<&CStr>) -> Result<usize> {
    let records = OwnTable::to_write(schema, TABLE, TABLE_COLUMNS)?;
    let mut oids: Vec<u32> = tables.iter().map(|table| table.oid.to_u32()).collect();
    oids.sort_unstable();
    for oid in oids {
        ObjectLock::new(records.oid(), oid, 0).take(Mode::Exclusive, Until::TransactionEnd);
    }
    // Includes files that this command has loaded. SAFETY: a guarded call; only scans with the server's own snapshot
    // read these changes.
    unsafe { pg_sys::CommandCounterIncrement() };
    let mut rows = Vec::new();
    // SAFETY: rows and their values.
    records.for_each(|row, values, _| unsafe {
        if tables.iter().any(|table| table.is_of(&records, row, values))
            && path.is_none_or(|path| text(values, PATH).as_c_str() == path)
        {
            rows.push((*row).t_self);
        }
    });
    let removed = records.remove(&rows);
    records.close();
    if removed < rows.len() {
        // Another session has removed a row meanwhile, for instance to take it home.
        let message = "could not serialize access due to concurrent delete";
        return Err(Error::new(Code::ERRCODE_T_R_SERIALIZATION_FAILURE, message));
    }
    Ok(removed)
}

/// Removes the rows of a table that the option `truncate` has emptied, and of its partitions.
/// `schema` is the extension's. Guarded.
pub fn forget_emptied(target: &Target, schema: pg_sys::Oid) {
    // SAFETY: guarded calls. The list has as many elements as it says, and all are locked.
    unsafe {
        // An older version of the extension has no such table.
        if !OwnTable::is_there(schema, TABLE) {
            return;
        }
        let mut tables: Vec<LoadedTable> = LoadedTable::of(target.relid).into_iter().collect();
        if target.kind == TargetKind::Partitioned {
            let lock = pg_sys::NoLock.cast_signed();
            let list = guard(|| find_all_inheritors(target.relid, lock, std::ptr::null_mut()));
            let count = list.as_ref().map_or(0, |list| usize::try_from(list.length).unwrap_or(0));
            let others = (0..count).map(|i| (*(*list).elements.add(i)).oid_value);
            tables.extend(others.filter(|oid| *oid != target.relid).filter_map(LoadedTable::of));
        }
        forget(schema, &tables, None).or_raise();
    }
}

/// Removes the rows of tables of this database that no longer exist. Guarded.
pub fn forget_dropped(schema: pg_sys::Oid) -> Result<()> {
    if !OwnTable::is_there(schema, TABLE) {
        return Ok(());
    }
    home::take_home(schema, None)?;
    let records = OwnTable::to_write(schema, TABLE, TABLE_COLUMNS)?;
    let mut is_gone: HashMap<pg_sys::Oid, bool> = HashMap::new();
    records.for_each(|row, values, _| {
        // SAFETY: a row and its values.
        if unsafe { home::is_home(&records, row, values) } {
            is_gone.insert(oid(values, TARGET), false);
        }
    });
    // A fresh catalog snapshot sees commits made meanwhile. SAFETY: guarded calls.
    unsafe {
        pg_sys::InvalidateCatalogSnapshot();
        is_gone.iter_mut().for_each(|(oid, is_gone)| *is_gone = pg_sys::get_rel_name(*oid).is_null());
    }
    if is_gone.values().any(|is_gone| *is_gone) {
        let mut rows = Vec::new();
        // SAFETY: rows and their values.
        records.for_each(|row, values, _| unsafe {
            if home::is_home(&records, row, values) && is_gone.get(&oid(values, TARGET)) == Some(&true) {
                rows.push((*row).t_self);
            }
        });
        records.remove(&rows);
    }
    records.close();
    Ok(())
}

version_1!(pg_finfo_bulk_loaded_files);

/// `bulk_loaded_files()`.
///
/// # Safety
/// Called by the executor.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_loaded_files(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: called by the executor as declared; the tuples are of the declared return type.
    unsafe {
        pg_sys::InitMaterializedSRF(fcinfo, 0);
        let result = (*fcinfo).resultinfo.cast::<pg_sys::ReturnSetInfo>();
        let schema = pg_sys::get_func_namespace((*(*fcinfo).flinfo).fn_oid);
        let sees_all = sees_all();
        let records = OwnTable::to_read(schema, TABLE, TABLE_COLUMNS).or_raise();
        records.for_each(|tuple, values, _| {
            if sees_all || is_visible(values) {
                pg_sys::tuplestore_puttuple((*result).setResult, tuple);
            }
        });
        records.close();
    }
    pg_sys::Datum::from(0usize)
}

version_1!(pg_finfo_bulk_forget);

/// `bulk_forget(target, path)`.
///
/// # Safety
/// Called by the executor, with two arguments.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_forget(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: the executor passes arguments of the declared types; guarded calls.
    unsafe {
        let argument = |index: usize| {
            let argument = *(*fcinfo).args.as_ptr().add(index);
            (!argument.isnull).then_some(argument.value)
        };
        let Some(target) = argument(0) else {
            Error::new(Code::ERRCODE_NULL_VALUE_NOT_ALLOWED, "target must not be null").raise();
        };
        check_transaction(c"bulk_forget()");
        let target = pg_sys::Oid::from_u32(target.value() as u32);
        let Some(table) = LoadedTable::of(target) else {
            let message = format!("relation with OID {} does not exist", target.to_u32());
            Error::new(Code::ERRCODE_UNDEFINED_TABLE, message).raise();
        };
        if !compat::owns_relation(target) {
            let object = pg_sys::get_relkind_objtype(pg_sys::get_rel_relkind(target));
            let name = pg_sys::get_rel_name(target);
            pg_sys::aclcheck_error(pg_sys::AclResult::ACLCHECK_NOT_OWNER, object, name);
        }
        let path = argument(1).map(|path| {
            CStr::from_ptr(pg_sys::text_to_cstring(pg_sys::pg_detoast_datum_packed(path.cast_mut_ptr()).cast()))
        });
        let schema = pg_sys::get_func_namespace((*(*fcinfo).flinfo).fn_oid);
        let count = forget(schema, &[table], path).or_raise();
        pg_sys::Datum::from(i64::try_from(count).unwrap_or(i64::MAX))
    }
}
