//! `PG_TRY`, for plain frames.
//!
//! pgrx's guards turn an error into a Rust panic and drop its CONTEXT and constraint fields on the way. Whoever has to
//! hold an error back for a while, and raise the very same one later, catches it here instead, whole.
//!
//! Catching is not aborting: what the error skipped is still held (locks, pins, a changed user). So an error that is
//! caught here must be raised again; nothing of PostgreSQL's but what says so may be called before that.

use std::ffi::c_int;

use cee_scape::{SigJmpBufFields, call_with_sigsetjmp};
use pgrx::pg_sys;

use super::unguarded::{self, Opaque};

/// Run `body(argument)`. Null if it returned, else the error that it raised, allocated in the caller's memory context.
///
/// # Safety
/// The caller is a plain frame. `body` is one, too: it owns nothing that has a destructor, and no panic leaves it.
pub unsafe fn attempt(body: unsafe extern "C-unwind" fn(Opaque), argument: Opaque) -> *mut pg_sys::ErrorData {
    // SAFETY: this function's contract covers the body.
    unsafe {
        if returns(body, argument) {
            return std::ptr::null_mut();
        }
        let error = unguarded::CopyErrorData();
        unguarded::FlushErrorState();
        error
    }
}

/// The same for a process of its own: the error is written to the log, and is not raised again but ends the transaction,
/// which the caller sees to.
///
/// # Safety
/// As [`attempt`].
pub unsafe fn attempt_logged(body: unsafe extern "C-unwind" fn(Opaque), argument: Opaque) -> *mut pg_sys::ErrorData {
    // SAFETY: this function's contract covers the body; an error was just caught.
    unsafe {
        if returns(body, argument) {
            return std::ptr::null_mut();
        }
        unguarded::EmitErrorReport();
        let error = unguarded::CopyErrorData();
        unguarded::FlushErrorState();
        error
    }
}

/// The same for a guarded frame, and for an error that is not going to be raised again: the body is C that looks at
/// what it is given and allocates, or there is a subtransaction around it that the caller rolls back.
///
/// # Safety
/// As [`attempt`], but for the caller's frame.
pub unsafe fn complaint(body: unsafe extern "C-unwind" fn(Opaque), argument: Opaque) -> *mut pg_sys::ErrorData {
    // SAFETY: this function's contract covers the body; guarded calls.
    unsafe {
        if returns(body, argument) {
            return std::ptr::null_mut();
        }
        let error = pg_sys::CopyErrorData();
        pg_sys::FlushErrorState();
        error
    }
}

/// The same in a subtransaction of its own, which is rolled back if there is an error. For a guarded frame.
///
/// # Safety
/// As [`attempt`], but for the caller's frame; in a transaction, and not in parallel mode.
pub unsafe fn in_subtransaction(body: unsafe extern "C-unwind" fn(Opaque), argument: Opaque) -> *mut pg_sys::ErrorData {
    // SAFETY: this function's contract covers the body and the transaction; guarded calls. A subtransaction is begun and ended by
    // the same owner and in the same context.
    unsafe {
        let (owner, context) = (pg_sys::CurrentResourceOwner, pg_sys::CurrentMemoryContext);
        // An error serves interrupts again that were held off.
        let held_off = (pg_sys::InterruptHoldoffCount, pg_sys::QueryCancelHoldoffCount);
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::MemoryContextSwitchTo(context);
        let error = complaint(body, argument);
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

/// Does it return? Else the error is the newest of the server's stack.
///
/// # Safety
/// As [`attempt`].
unsafe fn returns(body: unsafe extern "C-unwind" fn(Opaque), argument: Opaque) -> bool {
    // SAFETY: what PG_TRY and PG_CATCH (elog.h) do. The jump buffer outlives its use: the exception stack is put back
    // before the frame is left, on both ways. Only the body's frames are jumped over.
    unsafe {
        let memory = pg_sys::CurrentMemoryContext;
        let exception_stack = pg_sys::PG_exception_stack;
        let context_stack = pg_sys::error_context_stack;
        let jumped: c_int = call_with_sigsetjmp(false, |buffer| {
            pg_sys::PG_exception_stack = std::ptr::from_ref::<SigJmpBufFields>(buffer).cast_mut().cast();
            body(argument);
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
