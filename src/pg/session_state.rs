//! Who the session is, and by which settings, before code of users runs.
//!
//! A function that is another user's (SECURITY DEFINER) or has settings of its own leaves both behind when an error passes through it:
//! the end of the transaction is what puts them back (fmgr_security_definer, fmgr.c). Where an error is caught and more is to
//! be done before it is raised again, that must not be done as that user.

use pgrx::pg_sys;

use super::unguarded as c;

/// As AbortSubTransaction (xact.c) has it.
#[derive(Debug, Clone, Copy)]
pub struct SessionState {
    user: pg_sys::Oid,
    context: i32,
    level: i32,
}

impl SessionState {
    /// What it is now; settings that are made from now on can be taken back.
    ///
    /// # Safety
    /// [`Self::keep`] or [`Self::restore`] comes at the same level of nesting, or an error ends the transaction.
    pub unsafe fn note() -> SessionState {
        let (mut user, mut context) = (pg_sys::InvalidOid, 0);
        // SAFETY: fills what it is given; counts.
        unsafe {
            c::GetUserIdAndSecContext(&raw mut user, &raw mut context);
            SessionState { user, context, level: c::NewGUCNestLevel() }
        }
    }

    /// All has returned.
    ///
    /// # Safety
    /// As [`Self::note`] says.
    pub unsafe fn keep(self) {
        // SAFETY: this function's contract covers the argument.
        unsafe { c::AtEOXact_GUC(true, self.level) }
    }

    /// An error has passed through whatever ran.
    ///
    /// # Safety
    /// As [`Self::note`] says.
    pub unsafe fn restore(self) {
        // SAFETY: this function's contract covers the argument.
        unsafe {
            c::SetUserIdAndSecContext(self.user, self.context);
            c::AtEOXact_GUC(false, self.level);
        }
    }
}
