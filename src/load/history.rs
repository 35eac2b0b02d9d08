//! The row of a load in `bulk_history`.
//!
//! The load's own transaction writes the row, so the row disappears if that transaction fails. Only a failed job also
//! gets a row, in the transaction that records the failure. Only [`OwnTable`] writes and reads the table, without the
//! executor. So a row costs next to nothing, needs no privileges and adds no ways to fail. Users read the rows through
//! `bulk_finished_loads()`, which shows a role the rows that it may see.

use std::ffi::CStr;
use std::time::Duration;

use pgrx::{IntoDatum, pg_guard, pg_sys};

use super::report::{COLUMNS, Counts, row};
use super::{Load, files, rejects};
use crate::error::{OrRaise, Result};
use crate::server::database::cluster;
use crate::server::function::version_1;
use crate::server::own_table::{Columns, OwnTable};
use crate::server::role::{owner_here, stored_role_name};

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

/// Text as a datum. Guarded; allocates in the current memory context.
fn text(string: &CStr) -> Option<pg_sys::Datum> {
    // SAFETY: a guarded call that copies the string.
    Some(pg_sys::Datum::from(unsafe { pg_sys::cstring_to_text(string.as_ptr()) }))
}

/// Adds a row. Guarded.
fn add(extension_schema: pg_sys::Oid, values: &[Option<pg_sys::Datum>]) {
    let table = OwnTable::to_write(extension_schema, TABLE, TABLE_COLUMNS).or_raise();
    // SAFETY: every caller passes values of these types.
    unsafe { table.insert(values) };
    table.close();
}

/// Records a load. Guarded; allocates in the current memory context.
pub fn record(load: &Load) {
    // SAFETY: does not raise.
    let (owner, now) = (load.request.owner, unsafe { pg_sys::GetCurrentTimestamp() });
    let [id, figures @ ..] = load.result();
    let mut values = vec![
        id,
        text(&load.target.name),
        text(&load.request.path),
        owner.into_datum(),
        Some(load.measures.started.into()),
        Some(now.into()),
    ];
    values.extend(figures);
    values.extend([
        text(&stored_role_name(owner)),
        cluster().into_datum(),
        load.request.attempt().and_then(IntoDatum::into_datum),
        text(c"succeeded"),
        None,
        None,
        load.measures.files.as_ref().map(files::jsonb),
    ]);
    add(load.request.schema, &values);
}

/// Records a failed load of a job, after its transaction has ended. The current user is the job's owner. `schema` is
/// the extension's. Guarded; allocates in the current memory context.
pub fn record_failed(schema: pg_sys::Oid, load: &Failed) {
    // SAFETY: guarded calls with strings, which return others.
    let (owner, now, target) = unsafe {
        let target = pg_sys::quote_qualified_identifier(load.schema.as_ptr(), load.name.as_ptr());
        (pg_sys::GetUserId(), pg_sys::GetCurrentTimestamp(), CStr::from_ptr(target).to_owned())
    };
    let took = Duration::from_micros(u64::try_from(now - load.started).unwrap_or(0));
    let counts = Counts { rejected: load.rejected, ..Counts::default() };
    let [id, loaded, rejected, duplicate, filtered, _, seconds, _, _, indexes, notes] = row(load.id, &counts, took, "");
    add(
        schema,
        &[
            id,
            text(&target),
            text(load.path),
            owner.into_datum(),
            Some(load.started.into()),
            Some(now.into()),
            loaded,
            rejected,
            duplicate,
            filtered,
            None,
            seconds,
            None,
            None,
            indexes,
            notes,
            text(&stored_role_name(owner)),
            cluster().into_datum(),
            load.attempt.into_datum(),
            text(load.status),
            text(load.sqlstate),
            text(load.message),
            load.files.map(|files| files.jsonb(load.message)),
        ],
    );
}

/// Most rows to remove in one transaction.
const AT_ONCE: usize = 10_000;

/// Removes loads that ended at least `seconds` ago, and their rejects, `AT_ONCE` at a time. True if more are left.
/// `schema` is the extension's. Guarded.
pub fn forget_older(schema: pg_sys::Oid, seconds: i32) -> Result<bool> {
    // SAFETY: does not raise.
    let now = unsafe { pg_sys::GetCurrentTimestamp() };
    let limit = now - i64::from(seconds) * 1_000_000;
    // A timestamp datum is its microseconds.
    let is_old = |value: Option<&pg_sys::Datum>| value.is_some_and(|at| (at.value() as i64) < limit);
    let table = OwnTable::to_write(schema, TABLE, TABLE_COLUMNS)?;
    let mut loads = Vec::new();
    let rows = table.find(None, AT_ONCE, |values, _| {
        let old = is_old(values.get(FINISHED));
        if old {
            loads.push(values.get(LOAD).map_or(0, |id| id.value() as i64));
        }
        old
    });
    let mut left = AT_ONCE;
    // A load has rejects only with a row in the history, so that row leads to them.
    let rejects = OwnTable::to_write(schema, rejects::table::NAME, rejects::table::TABLE_COLUMNS)?;
    for (load, row) in loads.iter().zip(&rows) {
        let old = rejects.find(Some(*load), left, |values, _| is_old(values.get(rejects::table::REJECTED_AT)));
        rejects.remove(&old);
        left -= old.len();
        if left == 0 {
            break;
        }
        table.remove(std::slice::from_ref(row));
        left -= 1;
    }
    rejects.close();
    table.close();
    Ok(left == 0 || rows.len() == AT_ONCE)
}

/// The role in this cluster that a row's owner corresponds to. Guarded.
///
/// # Safety
/// The values of a row.
unsafe fn owner_of(values: &[pg_sys::Datum]) -> pg_sys::Oid {
    let value = |column: usize| values.get(column).copied().unwrap_or(pg_sys::Datum::from(0usize));
    // SAFETY: this function's contract covers the values; the name is a non-null text. Guarded calls.
    unsafe {
        let name = pg_sys::text_to_cstring(pg_sys::pg_detoast_datum_packed(value(OWNER_NAME).cast_mut_ptr()).cast());
        let owner = pg_sys::Oid::from_u32(value(OWNER).value() as u32);
        owner_here(owner, CStr::from_ptr(name), value(CLUSTER).value() as i64)
    }
}

version_1!(pg_finfo_bulk_finished_loads);

/// `bulk_finished_loads()`.
///
/// # Safety
/// Called by the executor.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_finished_loads(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: called by the executor as declared; the tuples are of the declared return type.
    unsafe {
        pg_sys::InitMaterializedSRF(fcinfo, 0);
        let result = (*fcinfo).resultinfo.cast::<pg_sys::ReturnSetInfo>();
        let schema = pg_sys::get_func_namespace((*(*fcinfo).flinfo).fn_oid);
        let user = pg_sys::GetUserId();
        let sees_all = pg_sys::has_privs_of_role(user, pg_sys::ROLE_PG_READ_ALL_STATS.into());
        let table = OwnTable::to_read(schema, TABLE, TABLE_COLUMNS).or_raise();
        table.for_each(|tuple, values, _| {
            if sees_all || pg_sys::has_privs_of_role(user, owner_of(values)) {
                pg_sys::tuplestore_puttuple((*result).setResult, tuple);
            }
        });
        table.close();
    }
    pg_sys::Datum::from(0usize)
}
