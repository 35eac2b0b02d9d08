//! An error that ended a process's rows, between being caught and being raised again.

use std::ffi::CStr;

use pgrx::pg_sys;

use crate::pg::compat;
use crate::pg::original::without_worker;
use crate::pg::unguarded;

/// After an error was caught, before anything is waited for: whatever the error left locked would make others wait.
/// As AbortTransaction (xact.c) begins.
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

/// A class of SQLSTATEs as it is in a number: six bits a character.
fn class_of(class: &[u8; 2]) -> i32 {
    i32::from(class[0] - b'0') + (i32::from(class[1] - b'0') << 6)
}

/// Is an error about a row, so that an earlier row's comes before it? Not if somebody or something wants the load to
/// end.
///
/// # Safety
/// An error that was caught.
pub unsafe fn is_about_a_row(error: *const pg_sys::ErrorData) -> bool {
    // SAFETY: this function's contract covers the argument.
    let class = unsafe { (*error).sqlerrcode } & 0xfff;
    // Transaction rollback, insufficient resources, object not in the state it must be in (a lock that is not to be had),
    // operator intervention, system error, internal error.
    ![b"40", b"53", b"55", b"57", b"58", b"XX"].map(class_of).contains(&class)
}

/// May more be done before an error is raised again? Not if the server is short of something, or wrong.
///
/// # Safety
/// An error that was caught.
pub unsafe fn leaves_server_well(error: *const pg_sys::ErrorData) -> bool {
    // SAFETY: this function's contract covers the argument.
    let class = unsafe { (*error).sqlerrcode } & 0xfff;
    ![b"53", b"58", b"XX"].map(class_of).contains(&class)
}

/// Take the line off an error's context that says that it comes from a parallel worker (HandleParallelMessage,
/// parallel.c).
///
/// # Safety
/// An error that was caught.
pub unsafe fn forget_worker(error: *mut pg_sys::ErrorData) {
    // SAFETY: the error's own strings, allocated and NUL-terminated; it is shortened in place.
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
