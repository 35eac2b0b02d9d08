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
    // SAFETY: what PG_TRY and PG_CATCH (elog.h) do. The jump buffer outlives its use: the exception stack is put back
    // before the frame is left, on both ways.
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
            return std::ptr::null_mut();
        }
        pg_sys::CurrentMemoryContext = memory;
        let error = unguarded::CopyErrorData();
        unguarded::FlushErrorState();
        error
    }
}
