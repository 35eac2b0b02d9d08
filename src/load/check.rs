//! `bulk_check`: finds the records that a load would reject, and loads nothing.
//!
//! The direct writer reads the file in all its processes as with `on_error = table`, but makes no heap pages. It fires
//! no triggers, builds no indexes and stores no rows. The rejects become the result.

use pgrx::{PgLogLevel, PgSqlErrorCode as Code, ereport, pg_guard, pg_sys};

use super::call::begin_call;
use super::prepare::{prepare, read_header};
use super::{Load, Purpose, analyze, direct, load_context};
use crate::error::OrRaise;
use crate::load::rejects::table::{text, values};
use crate::server::function::version_1;
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
        let load = begin_call(fcinfo, Purpose::Check, false);
        pg_sys::CurrentMemoryContext = (*load).memory;
        guarded(|| (*load).target.reopen());
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
        deliver(load, fcinfo);
        pg_sys::Datum::from(0usize)
    }
}

/// Returns the rejects to the executor, and deletes the load.
///
/// # Safety
/// A load that has read its file, and the call that it was made for. The current memory context is not the load's.
#[pg_guard]
unsafe extern "C-unwind" fn deliver(load: *mut Load, fcinfo: pg_sys::FunctionCallInfo) {
    // SAFETY: this function's contract covers both arguments; deleting the context drops the load.
    unsafe {
        {
            let load = &mut *load;
            load.target.close();
            load.measures.phases.progress.end();
            let result = (*fcinfo).resultinfo.cast::<pg_sys::ReturnSetInfo>();
            let now = pg_sys::Datum::from(pg_sys::GetCurrentTimestamp());
            if let Some(spool) = load.spool.as_mut() {
                let kept = spool.count;
                spool
                    .for_each(|reject| {
                        let old = pg_sys::MemoryContextSwitchTo(load.memory);
                        let [line, offset, column, field, raw, bytes, state, message, constraint, at] =
                            values(&reject, now);
                        let path = text(reject.path.as_deref().unwrap_or(load.request.path.as_bytes()));
                        let row = [line, offset, column, field, raw, bytes, state, message, constraint, at, path];
                        let mut nulls = row.map(|value| value.is_none());
                        let mut values = row.map(|value| value.unwrap_or(pg_sys::Datum::from(0usize)));
                        let (set, descriptor) = ((*result).setResult, (*result).setDesc);
                        pg_sys::tuplestore_putvalues(set, descriptor, values.as_mut_ptr(), nulls.as_mut_ptr());
                        for (at, (value, is_null)) in values.iter().zip(nulls).enumerate() {
                            if !is_null && BY_REFERENCE.contains(&at) {
                                pg_sys::pfree(value.cast_mut_ptr());
                            }
                        }
                        pg_sys::MemoryContextSwitchTo(old);
                        Ok(())
                    })
                    .or_raise();
                spool.close();
                let all = load.measures.counts.rejected + load.measures.counts.duplicate;
                if kept < all {
                    let message = format!("{kept} of {all} rejected rows are shown (pg_bulk.reject_cap)");
                    ereport!(PgLogLevel::NOTICE, Code::ERRCODE_SUCCESSFUL_COMPLETION, message);
                }
            }
        }
        pg_sys::MemoryContextDelete((*load).memory);
    }
}
