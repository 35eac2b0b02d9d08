//! The session's user and settings, saved before user code runs.
//!
//! A function may run as another user (SECURITY DEFINER) or with settings of its own. Both stay in force when an error
//! passes through it; only the end of the transaction restores them (fmgr_security_definer, fmgr.c). Code that catches
//! the error and continues must restore them first. Otherwise it would run as that user.

use pgrx::pg_sys;

use super::owner::user_of_session;
use super::unguarded as c;

/// The state that AbortSubTransaction (xact.c) restores.
#[derive(Debug, Clone, Copy)]
pub struct SessionState {
    user: pg_sys::Oid,
    context: i32,
    level: i32,
}

impl SessionState {
    /// Save the current state. Settings changed from now on can be reverted.
    pub fn note() -> SessionState {
        let (user, context) = user_of_session();
        // SAFETY: counts, and raises nothing.
        SessionState { user, context, level: unsafe { c::NewGUCNestLevel() } }
    }

    /// Keep settings that the code has changed: it has returned.
    pub fn keep(self) {
        // SAFETY: `note` has begun the level; raises nothing.
        unsafe { c::AtEOXact_GUC(true, self.level) }
    }

    /// Restore the user and the settings: an error has passed through the code.
    pub fn restore(self) {
        // SAFETY: `note` has begun the level and read the user; raises nothing.
        unsafe {
            c::SetUserIdAndSecContext(self.user, self.context);
            c::AtEOXact_GUC(false, self.level);
        }
    }
}
