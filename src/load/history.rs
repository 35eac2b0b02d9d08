//! The row of a load in `bulk_history`.
//!
//! The load's own transaction writes the row, so the row disappears if that transaction fails. Only a failed job also
//! gets a row, in the transaction that records the failure. Only [`OwnTable`] writes and reads the table, without the
//! executor. So a row costs next to nothing, needs no privileges and adds no ways to fail. Users read the rows through
//! `bulk_finished_loads()`, which shows a role the rows that it may see.

use std::ffi::CStr;
use std::time::Duration;

use pgrx::pg_sys;

use super::report::{COLUMNS, Counts, row};
use super::{Load, files, rejects};
use crate::error::{OrRaise, Result};
use crate::server::database::cluster;
use crate::server::function::{Call, sql_function};
use crate::server::lookup::{now, qualified};
use crate::server::own_table::{Columns, OwnTable};
use crate::server::role::{current_user, has_privileges_of, owner_here, stored_role_name};
use crate::server::sql_value::SqlValue;

const TABLE: &CStr = c"bulk_loads";
const WIDTH: usize = 6 + COLUMNS - 1 + 7;
const TABLE_COLUMNS: Columns = Columns { types: &TYPES, oldest: WIDTH - 1 };
/// Types of the table's columns: the load, its target, file, owner, begin and end; then the result's columns without
/// the load's number; then the owner's name and cluster, the attempt, the status and the error; and since 0.2.0 the
/// files.
const TYPES: [pg_sys::Oid; WIDTH] = [
    pg_sys::INT8OID,
    pg_sys::TEXTOID,
    pg_sys::TEXTOID,
    pg_sys::OIDOID,
    pg_sys::TIMESTAMPTZOID,
    pg_sys::TIMESTAMPTZOID,
    pg_sys::INT8OID,
    pg_sys::INT8OID,
    pg_sys::INT8OID,
    pg_sys::INT8OID,
    pg_sys::INT8OID,
    pg_sys::FLOAT8OID,
    pg_sys::TEXTOID,
    pg_sys::INT4OID,
    pg_sys::JSONBOID,
    pg_sys::TEXTARRAYOID,
    pg_sys::TEXTOID,
    pg_sys::INT8OID,
    pg_sys::INT4OID,
    pg_sys::TEXTOID,
    pg_sys::TEXTOID,
    pg_sys::TEXTOID,
    pg_sys::JSONBOID,
];
/// Column numbers: load, owner, end, owner's name and cluster.
const LOAD: usize = 0;
const OWNER: usize = 3;
const FINISHED: usize = 5;
const OWNER_NAME: usize = 16;
const CLUSTER: usize = 17;

/// A failed load of a job.
#[derive(Debug)]
pub struct Failed<'a> {
    pub id: i64,
    pub attempt: i32,
    pub path: &'a CStr,
    /// The target's schema and name.
    pub schema: &'a CStr,
    pub name: &'a CStr,
    pub started: pg_sys::TimestampTz,
    /// Rejects that are kept.
    pub rejected: u64,
    /// `failed` or `canceled`.
    pub status: &'a CStr,
    pub sqlstate: &'a CStr,
    pub message: &'a CStr,
    /// Present if the load has several files.
    pub files: Option<&'a files::Fate>,
}

/// Adds a row. Guarded.
fn add(extension_schema: pg_sys::Oid, values: &[SqlValue]) {
    let table = OwnTable::to_write(extension_schema, TABLE, TABLE_COLUMNS).or_raise();
    table.insert(values).or_raise();
}

/// Records a load. Guarded.
pub fn record(load: &Load) {
    let (owner, attempt) = (load.request.owner, load.request.attempt());
    let owner_name = stored_role_name(owner);
    let [id, figures @ ..] = load.result();
    let mut values = vec![
        id,
        SqlValue::text(&*load.target.name),
        SqlValue::text(&*load.request.path),
        SqlValue::oid(owner),
        SqlValue::timestamp(load.measures.started),
        SqlValue::timestamp(now()),
    ];
    values.extend(figures);
    values.extend([
        SqlValue::text(&*owner_name),
        SqlValue::bigint(cluster()),
        attempt.map_or_else(|| SqlValue::null(pg_sys::INT4OID), SqlValue::integer),
        SqlValue::text(c"succeeded"),
        SqlValue::null(pg_sys::TEXTOID),
        SqlValue::null(pg_sys::TEXTOID),
        load.measures.files.as_ref().map_or_else(|| SqlValue::null(pg_sys::JSONBOID), files::Files::value),
    ]);
    add(load.request.schema, &values);
}

/// Records a failed load of a job, after its transaction has ended. The current user is the job's owner. `schema` is
/// the extension's. Guarded.
pub fn record_failed(schema: pg_sys::Oid, load: &Failed) {
    let (owner, now, target) = (current_user(), now(), qualified(load.schema, load.name));
    let owner_name = stored_role_name(owner);
    let took = Duration::from_micros(u64::try_from(now - load.started).unwrap_or(0));
    let counts = Counts { rejected: load.rejected, ..Counts::default() };
    let [id, loaded, rejected, duplicate, filtered, _, seconds, _, _, indexes, notes] = row(load.id, &counts, took, "");
    add(
        schema,
        &[
            id,
            SqlValue::text(target),
            SqlValue::text(load.path),
            SqlValue::oid(owner),
            SqlValue::timestamp(load.started),
            SqlValue::timestamp(now),
            loaded,
            rejected,
            duplicate,
            filtered,
            SqlValue::null(pg_sys::INT8OID),
            seconds,
            SqlValue::null(pg_sys::TEXTOID),
            SqlValue::null(pg_sys::INT4OID),
            indexes,
            notes,
            SqlValue::text(owner_name),
            SqlValue::bigint(cluster()),
            SqlValue::integer(load.attempt),
            SqlValue::text(load.status),
            SqlValue::text(load.sqlstate),
            SqlValue::text(load.message),
            load.files.map_or_else(|| SqlValue::null(pg_sys::JSONBOID), |files| files.value(load.message)),
        ],
    );
}

/// Most rows to remove in one transaction.
const AT_ONCE: usize = 10_000;

/// Removes loads that ended at least `seconds` ago, and their rejects, `AT_ONCE` at a time. True if more are left.
/// `schema` is the extension's. Guarded.
pub fn forget_older(schema: pg_sys::Oid, seconds: i32) -> Result<bool> {
    let limit = now() - i64::from(seconds) * 1_000_000;
    let table = OwnTable::to_write(schema, TABLE, TABLE_COLUMNS)?;
    let mut loads = Vec::new();
    let rows = table.find(None, AT_ONCE, |row| {
        let old = row.number(FINISHED) < limit;
        if old {
            loads.push(row.number(LOAD));
        }
        old
    });
    let mut left = AT_ONCE;
    // A load has rejects only with a row in the history, so that row leads to them.
    let rejects = OwnTable::to_write(schema, rejects::table::NAME, rejects::table::TABLE_COLUMNS)?;
    for (load, row) in loads.iter().zip(&rows) {
        let old = rejects.find(Some(*load), left, |row| row.number(rejects::table::REJECTED_AT) < limit);
        rejects.remove(&old);
        left -= old.len();
        if left == 0 {
            break;
        }
        table.remove(std::slice::from_ref(row));
        left -= 1;
    }
    Ok(left == 0 || rows.len() == AT_ONCE)
}

sql_function!(pg_finfo_bulk_finished_loads, bulk_finished_loads, finished_loads);

/// `bulk_finished_loads()`.
fn finished_loads(call: &Call) -> Result<pg_sys::Datum> {
    let rows = call.rows();
    let sees_all = has_privileges_of(pg_sys::ROLE_PG_READ_ALL_STATS.into());
    let mut outcome = Ok(());
    OwnTable::to_read(call.schema(), TABLE, TABLE_COLUMNS)?.for_each(None, |row| {
        let owner = || owner_here(row.oid(OWNER), &row.value(OWNER_NAME).into_text(), row.number(CLUSTER));
        if outcome.is_ok() && (sees_all || has_privileges_of(owner())) {
            outcome = rows.put_row(&row);
        }
    });
    outcome.map(|()| pg_sys::Datum::from(0usize))
}
