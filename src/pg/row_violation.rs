//! Errors that say of a row that it violates a constraint, or that no partition is for it, and that can be caught without a
//! subtransaction.
//!
//! The executor says so when all that users may have written has returned, so that nothing is left behind. But of a row that a function
//! writes, somewhere within a constraint, it is said in the same words, by the same function of the server's; and then that function has
//! not returned: the user may be another one (SECURITY DEFINER), settings are its own, SPI is connected. Who handles such
//! an error and raises it again leaves nothing to see of where it comes from.
//!
//! So what counts is the moment when an error is new, and that the row is being judged then: context callbacks are asked
//! from the inside out, and all that runs statements has added its line before it is our turn. Who raises an error again
//! does not ask, but for a guard of pgrx, which raises another one with the same words and no context. Where such a guard
//! is ours, no row is being judged; where it is another extension's, called by a constraint, the words have been heard
//! before.

use pgrx::pg_sys;

use super::compat;
use super::original::{copy_of_message, text};
use super::unguarded::{self, Opaque};

/// What was heard of errors since it was pushed.
#[derive(Debug)]
pub struct RowViolation {
    /// The newest error that callbacks were asked about was one of the row itself.
    is_of_row: bool,
    /// The executor is judging the row.
    is_judging: bool,
    /// What was said meanwhile of another row ([`words_of`]).
    nested: u64,
    memory: pg_sys::MemoryContext,
    snapshot: pg_sys::Snapshot,
    user: (pg_sys::Oid, i32),
}

impl RowViolation {
    /// Listen to errors. Memory for them is of the current context.
    ///
    /// # Safety
    /// A plain frame; both outlive the push, which ends when the caller puts `previous` back.
    pub unsafe fn push(callback: *mut pg_sys::ErrorContextCallback, this: *mut RowViolation) {
        // SAFETY: this function's contract covers both arguments.
        unsafe {
            this.write(RowViolation {
                is_of_row: false,
                is_judging: false,
                nested: 0,
                memory: pg_sys::CurrentMemoryContext,
                snapshot: unguarded::GetActiveSnapshot(),
                user: user(),
            });
            (*callback).previous = pg_sys::error_context_stack;
            (*callback).callback = Some(hear);
            (*callback).arg = this.cast();
            pg_sys::error_context_stack = callback;
        }
    }

    /// Is an error that was just caught about the row itself? It is asked once of each.
    ///
    /// # Safety
    /// An error that was caught while this was pushed.
    pub unsafe fn is_of_row(&mut self, error: *const pg_sys::ErrorData) -> bool {
        let was_heard = std::mem::take(&mut self.is_of_row);
        self.is_judging = false;
        // SAFETY: this function's contract covers the error. What the server has of a statement's snapshot and user is where it was,
        // unless somebody has been left.
        unsafe {
            was_heard
                && compat::is_violation((*error).funcname)
                && unguarded::GetActiveSnapshot() == self.snapshot
                && user() == self.user
        }
    }
}

/// The executor begins to judge a row, or has.
///
/// # Safety
/// What was pushed, or null if nothing was.
#[inline(always)]
pub unsafe fn judge(this: *mut RowViolation, is_judging: bool) {
    // SAFETY: this function's contract covers the argument.
    if let Some(this) = unsafe { this.as_mut() } {
        (this.is_judging, this.nested) = (is_judging, 0);
    }
}

/// What an error says, as a number that another one hardly has. Not zero.
///
/// # Safety
/// An error.
unsafe fn words_of(error: *const pg_sys::ErrorData) -> u64 {
    // SAFETY: this function's contract covers the argument.
    let (code, message) = unsafe { ((*error).sqlerrcode, text((*error).message)) };
    let bytes = code.to_ne_bytes().into_iter().chain(message.iter().copied());
    // FNV-1a
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)) | 1
}

/// # Safety
/// A plain frame.
unsafe fn user() -> (pg_sys::Oid, i32) {
    let (mut user, mut context) = (pg_sys::InvalidOid, 0);
    // SAFETY: fills what it is given.
    unsafe { unguarded::GetUserIdAndSecContext(&raw mut user, &raw mut context) };
    (user, context)
}

/// # Safety
/// Called by the server while it makes a message, with the pointer it was pushed with.
unsafe extern "C-unwind" fn hear(this: Opaque) {
    // SAFETY: what was pushed outlives the push, and its memory.
    unsafe {
        let this = this.cast::<RowViolation>();
        let (message, memory) = copy_of_message((*this).memory);
        if (*message).elevel >= pgrx::PgLogLevel::ERROR as i32 {
            let words = words_of(message);
            let is_new = text((*message).context).is_empty() && words != (*this).nested;
            (*this).is_of_row = (*this).is_judging && is_new && compat::is_violation((*message).funcname);
            if !is_new {
                (*this).nested = words;
            }
        }
        unguarded::MemoryContextDelete(memory);
    }
}
