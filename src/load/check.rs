//! `bulk_check`: finds the records that a load would reject, and loads nothing.
//!
//! The direct writer reads the file in all its processes as with `on_error = table`, but makes no heap pages. It fires
//! no triggers, builds no indexes and stores no rows. The rejects become the result.

use pgrx::{PgLogLevel, PgSqlErrorCode as Code, ereport, pg_sys};

use super::call::answer;
use super::{Load, Purpose};
use crate::error::Result;
use crate::load::rejects::table::values;
use crate::server::function::{Call, version_1};
use crate::server::lookup::now;
use crate::server::sql_value::SqlValue;

version_1!(pg_finfo_bulk_check);

/// `bulk_check(path, target, options, allow)`.
///
/// # Safety
/// Called by the executor, with three arguments, or with four.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_check(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: the executor's call, in a frame that owns nothing.
    unsafe { answer(fcinfo, Purpose::Check, false, deliver) }
}

/// Returns the rejects to the executor. Guarded.
fn deliver(load: &Load, call: &Call<'_>) -> Result<()> {
    let Some(spool) = load.spool else { return Ok(()) };
    let (rows, now, kept) = (call.rows(), now(), spool.count());
    spool.for_each(|reject| {
        let [line, offset, column, field, raw, bytes, state, message, constraint, at] = values(&reject, now);
        let path = SqlValue::text_of(reject.path.as_deref().unwrap_or(load.request.path.as_bytes()));
        rows.put(&[line, offset, column, field, raw, bytes, state, message, constraint, at, path])
    })?;
    spool.close();
    let all = load.measures.counts.rejected + load.measures.counts.duplicate;
    if kept < all {
        let message = format!("{kept} of {all} rejected rows are shown (pg_bulk.reject_cap)");
        ereport!(PgLogLevel::NOTICE, Code::ERRCODE_SUCCESSFUL_COMPLETION, message);
    }
    Ok(())
}
