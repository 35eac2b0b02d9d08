//! Handles an error that ended a process's rows, after it is caught and before it is raised again.

use std::ffi::CStr;

use pgrx::pg_sys;

use super::compat;
use super::original::without_worker;
use super::unguarded;

/// Releases what an error left locked, before the process waits for others: they might wait for those locks. The same
/// steps as at the start of AbortTransaction (xact.c).
///
/// # Safety
/// A plain frame. The error is going to be raised again.
pub unsafe fn recover() {
    // SAFETY: raises nothing.
    unsafe {
        unguarded::LWLockReleaseAll();
        unguarded::ConditionVariableCancelSleep();
        compat::abort_buffer_io();
        unguarded::UnlockBuffers();
        unguarded::XLogResetInsertion();
    }
}

/// A class of SQLSTATEs in its integer form: six bits a character.
fn class_of(class: &[u8; 2]) -> i32 {
    i32::from(class[0] - b'0') + (i32::from(class[1] - b'0') << 6)
}

/// Is an error about a row, so that an error of an earlier row replaces it? Not if the load is canceled or the server
/// fails.
pub fn is_about_a_row(error: &pg_sys::ErrorData) -> bool {
    // Transaction rollback, insufficient resources, object not in the required state (a lock that is not available),
    // operator intervention, system error, internal error.
    ![b"40", b"53", b"55", b"57", b"58", b"XX"].map(class_of).contains(&(error.sqlerrcode & 0xfff))
}

/// May the load do more before an error is raised again? Not if the server lacks a resource or has an internal error.
pub fn leaves_server_well(error: &pg_sys::ErrorData) -> bool {
    ![b"53", b"58", b"XX"].map(class_of).contains(&(error.sqlerrcode & 0xfff))
}

/// Removes the line of an error's context that names the parallel worker (HandleParallelMessage, parallel.c).
///
/// # Safety
/// The error was caught.
pub unsafe fn forget_worker(error: *mut pg_sys::ErrorData) {
    // SAFETY: the error's own, NUL-terminated strings; the context is shortened in place.
    unsafe {
        let context = (*error).context;
        if context.is_null() {
            return;
        }
        match without_worker(CStr::from_ptr(context).to_bytes()) {
            Some([]) => (*error).context = std::ptr::null_mut(),
            Some(rest) => *context.add(rest.len()) = 0,
            None => (),
        }
    }
}
