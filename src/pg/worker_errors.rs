//! Errors of a plan's parallel workers, as they were raised.
//!
//! The leader raises the error of a worker wherever it notices it, with the worker's own CONTEXT and the callbacks of whoever
//! started the workers, which is outside of all scans (HandleParallelMessage, parallel.c). If it notices it in one of pgrx's
//! guards, the error is raised anew, without that CONTEXT and with the callbacks of where the leader is just then: it
//! would be about the line that the leader has read last. So a callback before those that are there for errors of workers
//! takes a copy ([`watch`]), and the callback of whoever reads says what the copy says, in place of its own line ([`tell`]).
//!
//! **No later error must be taken for it**, and a query that runs twice may say the same twice. So it is forgotten when
//! the workers are gone, which they are before a transaction or subtransaction that has failed is over.

use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use pgrx::pg_sys;

use super::original::{copy_of_message, is_same, text};
use super::unguarded::{self as c, Opaque};

/// The last one that was raised here; null if there was none.
static RAISED: AtomicPtr<pg_sys::ErrorData> = AtomicPtr::new(std::ptr::null_mut());

/// Remember errors of a context's workers, in this memory, until [`forget`]. Guarded.
///
/// # Safety
/// A valid context. The memory outlives it; what was forgotten may go.
pub unsafe fn watch(context: *mut pg_sys::ParallelContext, memory: pg_sys::MemoryContext) {
    // SAFETY: this function's contract covers both arguments; a guarded call, and all of the room is written.
    unsafe {
        let size = size_of::<pg_sys::ErrorContextCallback>();
        let callback = pg_sys::MemoryContextAlloc(memory, size).cast::<pg_sys::ErrorContextCallback>();
        callback.write(pg_sys::ErrorContextCallback {
            previous: (*context).error_context_stack,
            callback: Some(remember),
            arg: memory.cast(),
        });
        (*context).error_context_stack = callback;
    }
}

/// Workers are gone, and with them the query if they failed.
pub fn forget() {
    RAISED.store(std::ptr::null_mut(), Relaxed);
}

/// # Safety
/// Called by the server while it makes a message of a worker's, with the memory.
unsafe extern "C-unwind" fn remember(memory: Opaque) {
    // SAFETY: nobody but HandleParallelMessage calls it, which has given the message all that the worker said.
    unsafe {
        let (copy, copy_memory) = copy_of_message(memory.cast());
        if (*copy).elevel >= pgrx::PgLogLevel::ERROR as i32 {
            RAISED.store(copy, Relaxed);
        } else {
            c::MemoryContextDelete(copy_memory);
        }
    }
}

/// If the message that is being made is a worker's error that was raised anew, say what it has lost. False if it is not.
///
/// # Safety
/// A plain frame, in an error context callback.
pub unsafe fn tell() -> bool {
    let raised = RAISED.load(Relaxed);
    if raised.is_null() {
        return false;
    }
    // SAFETY: what is remembered is valid until it is forgotten; strings of errors are NUL-terminated or null. The fields
    // are those of a new error, in which nobody else has set them.
    unsafe {
        let (copy, memory) = copy_of_message(pg_sys::TopMemoryContext);
        // A callback further inside may have said it.
        let is_it = is_same(raised, copy)
            && (*copy).elevel == (*raised).elevel
            && ((*copy).context.is_null() || !text((*copy).context).starts_with(text((*raised).context)));
        let has_names = [(*copy).schema_name, (*copy).table_name, (*copy).column_name, (*copy).datatype_name]
            .iter()
            .chain(&[(*copy).constraint_name, (*copy).internalquery])
            .any(|name| !name.is_null());
        c::MemoryContextDelete(memory);
        if !is_it {
            return false;
        }
        if !(*raised).context.is_null() {
            c::set_errcontext_domain(std::ptr::null());
            c::errcontext_msg(c"%s".as_ptr(), (*raised).context);
        }
        if has_names {
            return true;
        }
        for (field, name) in [
            (pg_sys::PG_DIAG_SCHEMA_NAME, (*raised).schema_name),
            (pg_sys::PG_DIAG_TABLE_NAME, (*raised).table_name),
            (pg_sys::PG_DIAG_COLUMN_NAME, (*raised).column_name),
            (pg_sys::PG_DIAG_DATATYPE_NAME, (*raised).datatype_name),
            (pg_sys::PG_DIAG_CONSTRAINT_NAME, (*raised).constraint_name),
        ] {
            if !name.is_null() {
                c::err_generic_string(c_int::from(field), name);
            }
        }
        if !(*raised).internalquery.is_null() {
            c::internalerrquery((*raised).internalquery);
            c::internalerrposition((*raised).internalpos);
        }
        true
    }
}
