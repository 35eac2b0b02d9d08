//! ExecutorCheckPerms_hook, which has one more argument from 16 on.

use pgrx::pg_sys;

use crate::pg::copy_question;

/// Informs the open question ([`copy_question`]) that the server checks rights, and then calls the hooks of other
/// libraries.
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

/// Informs the open question ([`copy_question`]) that the server checks rights, and then calls the hooks of other
/// libraries.
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
