//! Handles an error that ended a process's rows, after it is caught and before it is raised again.

use pgrx::pg_sys;

use super::compat;
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
