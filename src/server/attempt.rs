//! `PG_TRY` for plain frames: returns an error as a complete ErrorData instead of a Rust panic.
//!
//! pgrx's guards turn an error into a Rust panic and drop its CONTEXT and constraint fields. Code that holds an error
//! back and raises it again later catches it with these functions instead.
//!
//! A caught error aborts nothing: locks, pins and a changed user that the failed code left behind are still there. So
//! an error that is caught here must be raised again. Before that, only server functions that are documented to work in
//! this state may be called.

use std::ffi::c_int;

use cee_scape::{SigJmpBufFields, call_with_sigsetjmp};
use pgrx::pg_sys;

use super::server_text::{copied, from_server};
use super::unguarded;
use crate::error::Error;

/// Runs `body`. Returns null on success, else the error, allocated in the caller's memory context.
///
/// # Safety
/// The caller is a plain frame. So is `body`: it owns nothing that has a destructor, and no panic leaves it.
pub unsafe fn attempt(body: impl FnOnce()) -> *mut pg_sys::ErrorData {
    // SAFETY: the body is plain code; an error was just caught.
    unsafe {
        if returns(body) {
            return std::ptr::null_mut();
        }
        let error = unguarded::CopyErrorData();
        unguarded::FlushErrorState();
        error
    }
}

/// Runs a guarded step, and drops its error. Only before the error of a transaction is raised: locks and pins that the
/// step has left behind stay.
///
/// # Safety
/// A plain frame, with no lightweight lock held.
pub unsafe fn ignoring_errors(step: impl FnOnce()) {
    // SAFETY: the frame is plain; the error is this function's own.
    unsafe {
        let error = attempt(|| unguarded::guarded(step));
        if !error.is_null() {
            unguarded::LWLockReleaseAll();
            unguarded::FreeErrorData(error);
        }
    }
}

/// Runs `body` in a process of its own, and writes an error to the server log. The caller does not raise the
/// error again but must abort the transaction.
///
/// # Safety
/// As [`attempt`].
pub unsafe fn attempt_logged(body: impl FnOnce()) -> *mut pg_sys::ErrorData {
    // SAFETY: the body is plain code; an error was just caught.
    unsafe {
        if returns(body) {
            return std::ptr::null_mut();
        }
        unguarded::EmitErrorReport();
        let error = unguarded::CopyErrorData();
        unguarded::FlushErrorState();
        error
    }
}

/// Runs `body` from a guarded frame and returns its error, which is not raised again. The body is C code that
/// only reads its arguments and allocates, or the caller rolls back a subtransaction around it.
///
/// # Safety
/// As [`attempt`], except that the caller is a guarded frame.
pub unsafe fn complaint(body: impl FnOnce()) -> *mut pg_sys::ErrorData {
    // SAFETY: the body is plain code; guarded calls.
    unsafe {
        if returns(body) {
            return std::ptr::null_mut();
        }
        let error = pg_sys::CopyErrorData();
        pg_sys::FlushErrorState();
        error
    }
}

/// As [`complaint`], for an error that is never raised: no callback adds context to it.
///
/// # Safety
/// As [`complaint`].
pub unsafe fn quiet_complaint(body: impl FnOnce()) -> *mut pg_sys::ErrorData {
    // SAFETY: the same frame and body. A caught error leaves the variable as the body has it.
    unsafe {
        let context = pg_sys::error_context_stack;
        pg_sys::error_context_stack = std::ptr::null_mut();
        let error = complaint(body);
        pg_sys::error_context_stack = context;
        error
    }
}

/// As [`quiet_complaint`], with the error's message, DETAIL and HINT.
///
/// # Safety
/// As [`complaint`].
pub unsafe fn error_of(body: impl FnOnce()) -> Option<Error> {
    // SAFETY: the same frame and body; the strings of an error that was caught are valid, or null.
    unsafe {
        let error = quiet_complaint(body).as_ref()?;
        let text = |string| copied(string).map(|string| from_server(&string));
        let mut own = Error::new(error.sqlerrcode.into(), text(error.message).unwrap_or_default());
        if let Some(detail) = text(error.detail) {
            own = own.detail(detail);
        }
        if let Some(hint) = text(error.hint) {
            own = own.hint(hint);
        }
        Some(own)
    }
}

/// Runs `body` from a guarded frame in a subtransaction, which is rolled back if there is an error.
///
/// # Safety
/// As [`attempt`], except that the caller is a guarded frame; in a transaction, and not in parallel mode.
pub unsafe fn in_subtransaction(body: impl FnOnce()) -> *mut pg_sys::ErrorData {
    // SAFETY: the body is plain code, and there is a transaction; guarded calls. The subtransaction begins
    // and ends under one resource owner and in one memory context.
    unsafe {
        let (owner, context) = (pg_sys::CurrentResourceOwner, pg_sys::CurrentMemoryContext);
        // An error resets the counters of held-off interrupts.
        let held_off = (pg_sys::InterruptHoldoffCount, pg_sys::QueryCancelHoldoffCount);
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::MemoryContextSwitchTo(context);
        let error = complaint(body);
        (pg_sys::InterruptHoldoffCount, pg_sys::QueryCancelHoldoffCount) = held_off;
        if error.is_null() {
            pg_sys::ReleaseCurrentSubTransaction();
        } else {
            pg_sys::RollbackAndReleaseCurrentSubTransaction();
        }
        pg_sys::MemoryContextSwitchTo(context);
        pg_sys::CurrentResourceOwner = owner;
        error
    }
}

/// Returns true if `body` returns, and false if it raises an error, which is then on top of the server's
/// error stack.
///
/// # Safety
/// As [`attempt`].
unsafe fn returns(body: impl FnOnce()) -> bool {
    // SAFETY: PG_TRY and PG_CATCH (elog.h). The jump buffer outlives its use: the exception stack is restored before
    // this frame is left, with or without an error. Only frames of the body are skipped.
    unsafe {
        let memory = pg_sys::CurrentMemoryContext;
        let exception_stack = pg_sys::PG_exception_stack;
        let context_stack = pg_sys::error_context_stack;
        let jumped: c_int = call_with_sigsetjmp(false, |buffer| {
            pg_sys::PG_exception_stack = std::ptr::from_ref::<SigJmpBufFields>(buffer).cast_mut().cast();
            body();
            0
        });
        pg_sys::PG_exception_stack = exception_stack;
        pg_sys::error_context_stack = context_stack;
        if jumped == 0 {
            return true;
        }
        pg_sys::CurrentMemoryContext = memory;
        false
    }
}
