//! ExecutorCheckPerms_hook, which took one more argument from 16 on.

use pgrx::pg_sys;

use crate::pg::copy_question;

/// Tells the question that is open ([`copy_question`]) that the server asks for rights; then the hooks of other libraries see it.
///
/// # Safety
/// Called by the server, while a question is open.
#[cfg(feature = "pg15")]
pub unsafe extern "C-unwind" fn rights_are_asked(table: *mut pg_sys::List, raises: bool) -> bool {
    // A plain frame: nothing here has a destructor.
    // SAFETY: passed on.
    unsafe {
        match copy_question::hear(table) {
            Some(previous) => previous(table, raises),
            None => true,
        }
    }
}

/// Tells the question that is open ([`copy_question`]) that the server asks for rights; then the hooks of other libraries see it.
///
/// # Safety
/// Called by the server, while a question is open.
#[cfg(not(feature = "pg15"))]
pub unsafe extern "C-unwind" fn rights_are_asked(
    table: *mut pg_sys::List,
    infos: *mut pg_sys::List,
    raises: bool,
) -> bool {
    // A plain frame: nothing here has a destructor.
    // SAFETY: passed on.
    unsafe {
        match copy_question::hear(table) {
            Some(previous) => previous(table, infos, raises),
            None => true,
        }
    }
}
