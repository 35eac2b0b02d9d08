//! Errors that are survived: each in a subtransaction of its own.

use pgrx::pg_sys;

use super::attempt::attempt;
use super::original;
use super::unguarded::{self as c, Opaque};

/// Run `body(argument)` in a subtransaction. Null if it returned, else the error that it raised, allocated in the current memory
/// context: what it did is undone. An error of another code than those in `survived` is raised again.
///
/// # Safety
/// The caller is a plain frame outside of parallel mode. `body` is one, too: it owns nothing that has a destructor, and no panic
/// leaves it.
pub unsafe fn survive(
    body: unsafe extern "C-unwind" fn(Opaque),
    argument: Opaque,
    survived: &[pgrx::PgSqlErrorCode],
) -> *mut pg_sys::ErrorData {
    // SAFETY: the caller vouches for the frame; a subtransaction is begun and ended by the same owner and in the same context.
    unsafe {
        let (owner, memory) = (pg_sys::CurrentResourceOwner, pg_sys::CurrentMemoryContext);
        c::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::CurrentMemoryContext = memory;
        let error = attempt(body, argument);
        // One that is left open would be taken for the caller's own by whoever survives the error.
        if error.is_null() {
            c::ReleaseCurrentSubTransaction();
        } else {
            c::RollbackAndReleaseCurrentSubTransaction();
        }
        pg_sys::CurrentMemoryContext = memory;
        pg_sys::CurrentResourceOwner = owner;
        if !error.is_null() {
            if !survived.iter().any(|&code| code as i32 == (*error).sqlerrcode) {
                c::ReThrowError(error);
            }
            original::forget();
        }
        error
    }
}
