//! What remains of a load: its row of `bulk_history`, and a line in the server's log.
//!
//! The row is one of the load's own transaction. It goes into a table that only [`OwnTable`] writes and reads, which is
//! why it costs next to nothing, needs no rights and adds nothing to what can fail. Readers get rows by way of
//! `bulk_finished_loads()`, which shows a role what it may see.

use std::ffi::CStr;

use pgrx::{IntoDatum, pg_guard, pg_sys};

use super::Load;
use super::report::COLUMNS;
use crate::error::{OrRaise, Result};
use crate::pg::own_table::OwnTable;

const TABLE: &CStr = c"bulk_loads";
/// Types of the table's columns: the load, its target, file, owner, begin and end; then the result's, but for the number.
const TYPES: [pg_sys::Oid; 6 + COLUMNS - 1] = [
    pg_sys::INT8OID,
    pg_sys::TEXTOID,
    pg_sys::TEXTOID,
    pg_sys::REGROLEOID,
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
];
/// Where the owner is among them, and the end.
const OWNER: usize = 3;
const FINISHED: usize = 5;

/// Record a load. Guarded; allocates in the current memory context.
pub fn record(load: &Load) {
    // SAFETY: guarded calls that copy the strings.
    let text = |string: &CStr| Some(pg_sys::Datum::from(unsafe { pg_sys::cstring_to_text(string.as_ptr()) }));
    // SAFETY: neither raises.
    let (owner, now) = unsafe { (pg_sys::GetUserId(), pg_sys::GetCurrentTimestamp()) };
    let [id, figures @ ..] = load.result();
    let mut values = vec![
        id,
        text(&load.target.name),
        text(&load.path),
        owner.into_datum(),
        Some(load.started.into()),
        Some(now.into()),
    ];
    values.extend(figures);
    let table = OwnTable::to_write(load.schema, TABLE, &TYPES).or_raise();
    // SAFETY: values of these types.
    unsafe { table.insert(&values) };
    table.close();
}

/// Forget loads that ended so many seconds ago. `schema` is the extension's. Guarded.
pub fn forget_older(schema: pg_sys::Oid, seconds: i32) -> Result<()> {
    // SAFETY: does not raise.
    let now = unsafe { pg_sys::GetCurrentTimestamp() };
    let limit = now - i64::from(seconds) * 1_000_000;
    let table = OwnTable::to_write(schema, TABLE, &TYPES)?;
    // A timestamp is its microseconds.
    table.remove(|values, _| values.get(FINISHED).is_some_and(|finished| (finished.value() as i64) < limit));
    table.close();
    Ok(())
}

static VERSION_1: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };

/// The record that the server asks for before it calls a function of version 1.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pg_finfo_bulk_finished_loads() -> *const pg_sys::Pg_finfo_record {
    &raw const VERSION_1
}

/// `bulk_finished_loads()`.
///
/// # Safety
/// Called by the executor.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_finished_loads(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: the executor vouches for the call; the tuples are of the type that the function is declared to return.
    unsafe {
        pg_sys::InitMaterializedSRF(fcinfo, 0);
        let result = (*fcinfo).resultinfo.cast::<pg_sys::ReturnSetInfo>();
        let schema = pg_sys::get_func_namespace((*(*fcinfo).flinfo).fn_oid);
        let user = pg_sys::GetUserId();
        let sees_all = pg_sys::has_privs_of_role(user, pg_sys::ROLE_PG_READ_ALL_STATS.into());
        let table = OwnTable::to_read(schema, TABLE, &TYPES).or_raise();
        table.for_each(|tuple, values, _| {
            let owner = values.get(OWNER).map_or(pg_sys::InvalidOid, |owner| (owner.value() as u32).into());
            if sees_all || pg_sys::has_privs_of_role(user, owner) {
                pg_sys::tuplestore_puttuple((*result).setResult, tuple);
            }
        });
        table.close();
    }
    pg_sys::Datum::from(0usize)
}
