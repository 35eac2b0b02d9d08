//! `bulk_check`: finds the records that a load would reject, and loads nothing.
//!
//! The direct writer reads the file in all its processes as with `on_error = table`, but makes no heap pages. It fires
//! no triggers, builds no indexes and stores no rows. The rejects become the result.

use pgrx::{PgLogLevel, PgSqlErrorCode as Code, ereport, pg_sys};

use super::call::begin_call;
use super::prepare::{prepare, read_header};
use super::{Load, Purpose, analyze, direct, load_context};
use crate::error::{OrRaise, Result};
use crate::load::rejects::table::{text, values};
use crate::server::function::{Call, version_1};
use crate::server::lookup::now;
use crate::server::unguarded::guarded;

/// Columns of the result whose values are pointers.
const BY_REFERENCE: [usize; 8] = [2, 3, 4, 5, 6, 7, 8, 10];

version_1!(pg_finfo_bulk_check);

/// `bulk_check(path, target, options, allow)`.
///
/// # Safety
/// Called by the executor, with three arguments, or with four.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_check(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // A plain frame: nothing here has a destructor.
    // SAFETY: the load that `begin_call` makes is used by one step at a time; its strings live as long as it.
    unsafe {
        let caller = pg_sys::CurrentMemoryContext;
        let load = guarded(|| begin_call(&Call::from_raw(fcinfo), Purpose::Check, false));
        pg_sys::CurrentMemoryContext = (*load).memory;
        guarded(|| {
            (*load).target.reopen();
        });
        analyze(load);
        guarded(|| prepare(&mut *load));
        let mut context = pg_sys::ErrorContextCallback {
            previous: pg_sys::error_context_stack,
            callback: Some(load_context),
            arg: load.cast(),
        };
        pg_sys::error_context_stack = &raw mut context;
        if (*load).request.options.copy.by_name() {
            guarded(|| read_header(&mut *load));
        }
        direct::load(load);
        pg_sys::error_context_stack = context.previous;
        pg_sys::CurrentMemoryContext = caller;
        guarded(|| deliver(&mut *load, &Call::from_raw(fcinfo)).or_raise());
        guarded(|| pg_sys::MemoryContextDelete((*load).memory));
        pg_sys::Datum::from(0usize)
    }
}

/// Returns the rejects to the executor. Guarded.
fn deliver(load: &mut Load, call: &Call<'_>) -> Result<()> {
    load.target.close();
    load.measures.phases.progress.end();
    let (rows, now) = (call.rows(), pg_sys::Datum::from(now()));
    // SAFETY: the spool of this load, which lives as long, or null.
    let Some(spool) = (unsafe { load.spool.as_mut() }) else { return Ok(()) };
    let kept = spool.count;
    spool.for_each(|reject| {
        // SAFETY: the load's context exists until the load is dropped.
        let old = unsafe { pg_sys::MemoryContextSwitchTo(load.memory) };
        let [line, offset, column, field, raw, bytes, state, message, constraint, at] = values(&reject, now);
        let path = text(reject.path.as_deref().unwrap_or(load.request.path.as_bytes()));
        let row = [line, offset, column, field, raw, bytes, state, message, constraint, at, path];
        // SAFETY: values of the columns of the result, copied when they are put, and the context that was current.
        unsafe {
            rows.put_datums(&row);
            for value in BY_REFERENCE.iter().filter_map(|&at| row.get(at).copied().flatten()) {
                pg_sys::pfree(value.cast_mut_ptr());
            }
            pg_sys::MemoryContextSwitchTo(old);
        }
        Ok(())
    })?;
    spool.close();
    let all = load.measures.counts.rejected + load.measures.counts.duplicate;
    if kept < all {
        let message = format!("{kept} of {all} rejected rows are shown (pg_bulk.reject_cap)");
        ereport!(PgLogLevel::NOTICE, Code::ERRCODE_SUCCESSFUL_COMPLETION, message);
    }
    Ok(())
}
