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
//! removes the rows of dropped tables. Rows that came with a copy of a database are first taken home. The
//! option `truncate` removes a table's rows. TRUNCATE and DELETE commands do not; after these, the user calls
//! `bulk_forget`.
//!
//! A restored dump, and a database made from another as its template, include these rows. That is right, since the
//! tables are there with their data. But the OIDs in the rows mean nothing in the copy, and the names may later belong
//! to other tables. So before the first look-up, rows that were copied are taken home, by name: they get the OIDs of
//! the tables that have these names now.
//!
//! **Home.** A row is at home if it is where it was written: in this database, in this table, by the transaction that
//! the row records. pg_upgrade keeps all of these, and the tables' OIDs, although the cluster is a new one. VACUUM
//! keeps them, even when it freezes. A row that is written again, from a dump or otherwise, has another transaction.
//! The OIDs of database and table are not enough: clusters that are set up the same way have the same OIDs.

use std::collections::HashMap;
use std::ffi::{CStr, CString};

use pgrx::{PgSqlErrorCode as Code, pg_sys};

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
use crate::server::function::{Call, sql_function};
use crate::server::lock::{Mode, ObjectLock, Until};
use crate::server::lookup::{
    QualifiedName, is_temporary, now, qualified_name, relation_name, relation_named, schema_named, see_commits,
};
use crate::server::own_table::{Columns, OwnTable, Row};
use crate::server::points::point;
use crate::server::relation::OpenRelation;
use crate::server::role::{has_privileges_of, owner_here, refuse_right, stored_role_name};
use crate::server::server_text::to_server;
use crate::server::sql_value::SqlValue;
use crate::server::statement::{next_command, transaction_id};

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
        qualified_name(oid).map(|name| LoadedTable { oid, name })
    }

    /// Does a row refer to this table? Guarded.
    fn is_of(&self, records: &OwnTable, row: Row) -> bool {
        if is_home(records, row) {
            row.oid(TARGET) == self.oid
        } else {
            row.value(TARGET_NAME).into_text() == self.name
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

/// May the caller see all rows? Guarded.
fn sees_all() -> bool {
    has_privileges_of(pg_sys::ROLE_PG_READ_ALL_STATS.into())
}

/// May the caller see this row, if it may not see all? Guarded.
fn is_visible(row: Row) -> bool {
    has_privileges_of(owner_here(row.oid(OWNER), &row.value(OWNER_NAME).into_text(), row.number(CLUSTER)))
}

/// Waits for loads of the same files into the same table. Guarded, and interruptible.
fn lock(schema: pg_sys::Oid, target: pg_sys::Oid, met: &[Met]) {
    let class = relation_named(TABLE, schema);
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
    records.for_each(Some(met.digest.key()), |row| {
        let size = row.number(SIZE).cast_unsigned();
        if size != met.identity.size || !row.value(HASH).is_bytes(&met.digest.0) || !table.is_of(records, row) {
            return;
        }
        if is_seen.is_ok() {
            is_seen = row.check_seen();
        }
        let load = row.number(LOAD);
        if found.as_ref().is_none_or(|known| known.load < load) {
            let is_visible = sees_all() || is_visible(row);
            let details =
                is_visible.then(|| LoadDetails { at: row.number(LOADED_AT), path: row.value(PATH).into_text() });
            found = Some(EarlierLoad { load, details });
        }
    });
    is_seen.map(|()| found)
}

/// Reads the files, and leaves out those that were loaded before. True if none is left. Guarded, interruptible; the
/// caller may insert.
pub fn skip_loaded(load: &mut Load) -> Result<bool> {
    if is_temporary(load.target.relid) {
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
    take_home(load.request.schema, Some(&table))?;
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
    drop(records);
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
    let now = now();
    let owner_name = stored_role_name(load.request.owner);
    for met in &load.met {
        pgrx::check_for_interrupts!();
        records.insert(&[
            SqlValue::bigint(met.digest.key()),
            SqlValue::bytes(&met.digest.0),
            SqlValue::count(met.identity.size),
            SqlValue::text(to_server(&shown(&met.path))),
            SqlValue::timestamp(met.identity.modified()),
            SqlValue::bigint(load.id),
            SqlValue::timestamp(now),
            SqlValue::oid(load.target.relid),
            SqlValue::text(&*load.target.name),
            SqlValue::oid(database()),
            SqlValue::oid(load.request.owner),
            SqlValue::text(&*owner_name),
            SqlValue::bigint(cluster()),
            SqlValue::oid(records.oid()),
            SqlValue::xid(transaction_id()),
        ])?;
    }
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
    // Includes files that this command has loaded. Only scans with the server's own snapshot read these changes.
    next_command();
    let mut rows = Vec::new();
    records.for_each(None, |row| {
        if tables.iter().any(|table| table.is_of(&records, row))
            && path.is_none_or(|path| row.value(PATH).into_text().as_c_str() == path)
        {
            rows.push(row.tid());
        }
    });
    let removed = records.remove(&rows);
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
    // An older version of the extension has no such table.
    if !OwnTable::is_there(schema, TABLE) {
        return;
    }
    let mut tables: Vec<LoadedTable> = LoadedTable::of(target.relid).into_iter().collect();
    if target.kind == TargetKind::Partitioned {
        // All are locked.
        let all = OpenRelation::locked(target.relid).get().with_descendants(pg_sys::NoLock);
        tables.extend(all.into_iter().filter(|oid| *oid != target.relid).filter_map(LoadedTable::of));
    }
    forget(schema, &tables, None).or_raise();
}

/// Removes the rows of tables of this database that no longer exist. Guarded.
pub fn forget_dropped(schema: pg_sys::Oid) -> Result<()> {
    if !OwnTable::is_there(schema, TABLE) {
        return Ok(());
    }
    take_home(schema, None)?;
    let records = OwnTable::to_write(schema, TABLE, TABLE_COLUMNS)?;
    let mut is_gone: HashMap<pg_sys::Oid, bool> = HashMap::new();
    records.for_each(None, |row| {
        if is_home(&records, row) {
            is_gone.insert(row.oid(TARGET), false);
        }
    });
    // A fresh catalog snapshot sees commits made meanwhile.
    see_commits();
    is_gone.iter_mut().for_each(|(oid, is_gone)| *is_gone = relation_name(*oid).is_none());
    if is_gone.values().any(|is_gone| *is_gone) {
        let is_dropped = |row: Row| is_home(&records, row) && is_gone.get(&row.oid(TARGET)) == Some(&true);
        records.remove(&records.find(None, usize::MAX, is_dropped));
    }
    Ok(())
}

/// Is a row of this table at home?
fn is_home(records: &OwnTable, row: Row) -> bool {
    row.oid(DATABASE) == database()
        && row.oid(HOME) == records.oid()
        && row.number(MADE_BY) as u32 == row.made_by().into_inner()
}

/// Takes home the copied rows of this table's name, or of all. Guarded.
fn take_home(schema: pg_sys::Oid, table: Option<&LoadedTable>) -> Result<()> {
    let is_copy = |records: &OwnTable, row: Row| {
        !is_home(records, row) && table.is_none_or(|table| row.value(TARGET_NAME).into_text() == table.name)
    };
    let records = OwnTable::to_read(schema, TABLE, TABLE_COLUMNS)?;
    let found = records.find(None, 1, |row| is_copy(&records, row));
    drop(records);
    if found.is_empty() {
        return Ok(());
    }
    let records = OwnTable::to_write(schema, TABLE, TABLE_COLUMNS)?;
    // Other sessions wait until this is done, and then find no copied rows.
    ObjectLock::new(records.oid(), 0, 0).take(Mode::Exclusive, Until::TransactionEnd);
    let mut copies = Vec::new();
    records.for_each(None, |row| {
        if is_copy(&records, row) {
            let owner = owner_here(row.oid(OWNER), &row.value(OWNER_NAME).into_text(), row.number(CLUSTER));
            copies.push((row.tid(), owner, row.all()));
        }
    });
    for (at, owner, mut values) in copies {
        pgrx::check_for_interrupts!();
        let removed = records.remove(std::slice::from_ref(&at));
        let name = values.get(TARGET_NAME).cloned().unwrap_or_else(|| SqlValue::null(pg_sys::TEXTOID)).into_text();
        let target = table.map_or_else(|| named(&name), |table| table.oid);
        if removed == 1 && target != pg_sys::InvalidOid {
            let mut set = |column: usize, new: SqlValue<'static>| {
                if let Some(value) = values.get_mut(column) {
                    *value = new;
                }
            };
            set(TARGET, SqlValue::oid(target));
            set(DATABASE, SqlValue::oid(database()));
            set(HOME, SqlValue::oid(records.oid()));
            set(MADE_BY, SqlValue::xid(transaction_id()));
            // A role that does not exist yet is recorded by its name only.
            if owner != pg_sys::InvalidOid {
                set(OWNER, SqlValue::oid(owner));
                set(CLUSTER, SqlValue::bigint(cluster()));
            }
            records.insert(&values)?;
        }
    }
    // A later removal of these rows must see them.
    next_command();
    Ok(())
}

/// The table with this name, which is schema and table, quoted. Guarded.
fn named(name: &CStr) -> pg_sys::Oid {
    let QualifiedName { schema, name, .. } = QualifiedName::of(name);
    schema.map_or(pg_sys::InvalidOid, |schema| relation_named(&name, schema_named(&schema)))
}

sql_function!(pg_finfo_bulk_loaded_files, bulk_loaded_files, loaded_files);

/// `bulk_loaded_files()`.
fn loaded_files(call: &Call) -> Result<pg_sys::Datum> {
    let (rows, sees_all, mut outcome) = (call.rows(), sees_all(), Ok(()));
    OwnTable::to_read(call.schema(), TABLE, TABLE_COLUMNS)?.for_each(None, |row| {
        if outcome.is_ok() && (sees_all || is_visible(row)) {
            outcome = rows.put_row(&row);
        }
    });
    outcome.map(|()| pg_sys::Datum::from(0usize))
}

sql_function!(pg_finfo_bulk_forget, bulk_forget, forget_files);

/// `bulk_forget(target, path)`.
fn forget_files(call: &Call) -> Result<i64> {
    let target = call.required(0, "target")?.as_oid();
    check_transaction(c"bulk_forget()");
    let Some(table) = LoadedTable::of(target) else {
        let message = format!("relation with OID {} does not exist", target.to_u32());
        return Err(Error::new(Code::ERRCODE_UNDEFINED_TABLE, message));
    };
    if !compat::owns_relation(target) {
        refuse_right(target, pg_sys::AclResult::ACLCHECK_NOT_OWNER);
    }
    let path = call.argument(1)?.into_optional_text();
    let count = forget(call.schema(), &[table], path.as_deref())?;
    Ok(i64::try_from(count).unwrap_or(i64::MAX))
}
