//! Errors of a plan's parallel workers, with their own CONTEXT.
//!
//! The leader raises a worker's error wherever it receives it (HandleParallelMessage, parallel.c). The error has the
//! worker's CONTEXT and the callbacks of the frame that started the workers, which is outside of all scans. But below
//! one of pgrx's guards, the error is raised again, without that CONTEXT and with the leader's current callbacks. The
//! error would then name the line that the leader has read last. So a callback for errors of workers copies the error
//! first ([`watch`]). The callback of the scan then adds the copy's CONTEXT in place of its own line ([`tell`]).
//!
//! **A later error must not be taken for the copied one**, and a query that runs twice may raise the same error twice.
//! So the copy is dropped when the workers are gone. They are gone before the end of a failed transaction or
//! subtransaction.

use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use pgrx::pg_sys;

use super::original::{ServerError, copy_of_message};
use super::unguarded::{self as c, Opaque};

/// The last error of a worker that was raised here; null if there was none.
static RAISED: AtomicPtr<pg_sys::ErrorData> = AtomicPtr::new(std::ptr::null_mut());

/// Copy errors of a context's workers into this memory, until [`forget`]. Guarded.
///
/// # Safety
/// A valid context. The memory outlives it, and may be freed after [`forget`].
pub unsafe fn watch(context: *mut pg_sys::ParallelContext, memory: pg_sys::MemoryContext) {
    // SAFETY: this function's contract covers both arguments; a guarded call, and all of the memory is written.
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

/// Drop the copy: the workers are gone, and so is the query if they failed.
pub fn forget() {
    RAISED.store(std::ptr::null_mut(), Relaxed);
}

/// # Safety
/// Called by the server while it makes a message of a worker, with the memory context.
unsafe extern "C-unwind" fn remember(memory: Opaque) {
    // SAFETY: only HandleParallelMessage calls it, with a message that has all fields of the worker's.
    unsafe {
        let (copy, copy_memory) = copy_of_message(memory.cast());
        if copy.is_error() {
            RAISED.store(copy.as_ptr(), Relaxed);
        } else {
            c::MemoryContextDelete(copy_memory);
        }
    }
}

/// Add the CONTEXT and names that a worker's error has lost, if it is the current message. False if it is not.
///
/// # Safety
/// A plain frame, in an error context callback.
pub unsafe fn add_context() -> bool {
    let raised = RAISED.load(Relaxed);
    if raised.is_null() {
        return false;
    }
    // SAFETY: the copy is valid until it is dropped; strings of errors are NUL-terminated or null. The fields set are
    // those of a new error, where they are still empty.
    unsafe {
        let (copied, memory) = copy_of_message(pg_sys::TopMemoryContext);
        let (first, copy) = (ServerError::from_raw(raised), copied.as_ptr());
        // An inner callback may have added the CONTEXT already.
        let is_it = first.is_now(copied)
            && (*copy).elevel == (*raised).elevel
            && ((*copy).context.is_null() || !copied.context().starts_with(first.context()));
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
