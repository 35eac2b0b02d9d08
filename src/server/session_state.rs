//! The session's user and settings, saved before user code runs.
//!
//! A function may run as another user (SECURITY DEFINER) or with settings of its own. Both stay in force when an error
//! passes through it; only the end of the transaction restores them (fmgr_security_definer, fmgr.c). Code that catches
//! the error and continues must restore them first. Otherwise it would run as that user.

use pgrx::pg_sys;

use super::unguarded as c;

/// The state that AbortSubTransaction (xact.c) restores.
#[derive(Debug)]
pub struct SessionState {
    user: pg_sys::Oid,
    context: i32,
    level: i32,
}

/// The current user, and the flags of its security context. Raises nothing.
pub fn user_of_session() -> (pg_sys::Oid, i32) {
    let (mut user, mut context) = (pg_sys::InvalidOid, 0);
    // SAFETY: reads two variables of this process, and raises nothing.
    unsafe { c::GetUserIdAndSecContext(&raw mut user, &raw mut context) };
    (user, context)
}

impl SessionState {
    /// Save the current state. Settings changed from now on can be reverted.
    pub fn note() -> SessionState {
        let (user, context) = user_of_session();
        // SAFETY: counts, and raises nothing.
        SessionState { user, context, level: unsafe { c::NewGUCNestLevel() } }
    }

    /// Become another user, with these flags beside those of the saved security context. Raises nothing.
    pub fn switch_to(&self, user: pg_sys::Oid, flags: u32) {
        // SAFETY: sets two variables of this process, and raises nothing.
        unsafe { c::SetUserIdAndSecContext(user, self.context | flags.cast_signed()) }
    }

    /// The user at that time.
    pub const fn user(&self) -> pg_sys::Oid {
        self.user
    }

    /// Keep settings that the code has changed: it has returned.
    pub fn keep(self) {
        self.end_level(true);
    }

    /// Restore the user and the settings: the code has ended, or an error has passed through it.
    pub fn restore(&self) {
        self.switch_to(self.user, 0);
        self.end_level(false);
    }

    fn end_level(&self, keeps_settings: bool) {
        // SAFETY: `note` has begun the level; raises nothing.
        unsafe { c::AtEOXact_GUC(keeps_settings, self.level) }
    }
}
