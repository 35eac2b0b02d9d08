//! Errors that a row violates a constraint or fits no partition, which can be caught without a subtransaction.
//!
//! The executor raises such an error when all user code has returned, so no state is left behind. But a function within
//! a constraint may write rows itself, and the same function of the executor raises the same error for one of those.
//! That user function has not returned then: the current user may be another one (SECURITY DEFINER), settings are the
//! function's own, and SPI is connected. If code catches such an error and raises it again, the error does not show
//! where it came from.
//!
//! So an error counts as the row's own if it is new and is raised while the executor checks the row ([`set_checking`]).
//! Context callbacks run from the innermost to the outermost, and all code that runs statements adds its context line
//! before this callback runs. Code that raises an error again runs no callbacks. The exception is a guard of pgrx,
//! which raises a new error with the same message and no context. Within pg_bulk's own guards, the executor is not
//! checking a row. In a guard of another extension that a constraint calls, this callback has seen the message before.

use pgrx::pg_sys;

use super::compat;
use super::original::{ServerError, copy_of_message};
use super::session_state::user_of_session;
use super::unguarded::{self, Opaque};

/// State of the callback: the errors for which it was called since it was pushed.
#[derive(Debug)]
pub struct RowViolation {
    /// The newest error that reached the callback was one of the row itself.
    is_of_row: bool,
    /// The executor is checking the row.
    is_checking: bool,
    /// The hash ([`words_of`]) of the newest error about another row.
    nested: u64,
    memory: pg_sys::MemoryContext,
    snapshot: pg_sys::Snapshot,
    user: (pg_sys::Oid, i32),
}

impl RowViolation {
    /// Runs code that gets the state of the callback, which is called for its errors. It allocates in the current memory context.
    ///
    /// # Safety
    /// A plain frame, as that of the code.
    pub unsafe fn watch<T>(code: impl FnOnce(*mut RowViolation) -> T) -> T {
        // SAFETY: the state outlives the call; the frame is plain.
        unsafe {
            let mut state = RowViolation {
                is_of_row: false,
                is_checking: false,
                nested: 0,
                memory: pg_sys::CurrentMemoryContext,
                snapshot: unguarded::GetActiveSnapshot(),
                user: user_of_session(),
            };
            let this = &raw mut state;
            unguarded::in_context(hear, this.cast(), || code(this))
        }
    }

    /// Is an error that was just caught about the row itself? To be called once for each error.
    ///
    /// # Safety
    /// An error that was caught while this was pushed.
    pub unsafe fn is_of_row(&mut self, error: *mut pg_sys::ErrorData) -> bool {
        let was_heard = std::mem::take(&mut self.is_of_row);
        self.is_checking = false;
        // SAFETY: the strings of a caught error are NUL-terminated, or null. The active snapshot and the user are unchanged unless the
        // error has left a function without its return.
        unsafe {
            was_heard
                && compat::is_violation(ServerError::from_raw(error).funcname())
                && unguarded::GetActiveSnapshot() == self.snapshot
                && user_of_session() == self.user
        }
    }
}

/// The executor begins or ends its check of a row.
///
/// # Safety
/// The state that was pushed, or null if none was.
#[inline(always)]
pub unsafe fn set_checking(this: *mut RowViolation, is_checking: bool) {
    // SAFETY: null, or the state that was pushed.
    if let Some(this) = unsafe { this.as_mut() } {
        (this.is_checking, this.nested) = (is_checking, 0);
    }
}

/// A hash of an error's SQLSTATE and message, never zero.
fn words_of(error: ServerError) -> u64 {
    let bytes = error.sqlstate().to_ne_bytes().into_iter().chain(error.message().iter().copied());
    // FNV-1a
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)) | 1
}

/// # Safety
/// Called by the server while it makes a message, with the pointer it was pushed with.
unsafe extern "C-unwind" fn hear(this: Opaque) {
    // SAFETY: the state and its memory outlive the push.
    unsafe {
        let this = this.cast::<RowViolation>();
        let (message, memory) = copy_of_message((*this).memory);
        if message.is_error() {
            let words = words_of(message);
            let is_new = message.context().is_empty() && words != (*this).nested;
            (*this).is_of_row = (*this).is_checking && is_new && compat::is_violation(message.funcname());
            if !is_new {
                (*this).nested = words;
            }
        }
        unguarded::MemoryContextDelete(memory);
    }
}
