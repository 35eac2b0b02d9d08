//! Runs code of a table's owner for another user.
//!
//! The expressions, predicates and compare functions of an index belong to the table's owner. An index build runs them
//! as that owner, in a security-restricted operation whose effects end with it (index_build, index.c). Otherwise the
//! owner of a table could run code with the rights of a user who loads it. The loading user in turn must not choose the
//! search path for that code: functions of that user would run with the owner's rights.
//!
//! The tricky point: a safe search path is not sufficient. The session may have cached what names in the code refer to,
//! when the user ran it with another search path ([`plain_code`](super::plain_code)), and no function clears that
//! cache. So if the user does not have the owner's privileges, only plain code runs as the owner ([`may_run`]). All
//! other code runs as the user, as in an INSERT.

use pgrx::pg_sys;

use super::attempt::attempt;
use super::compat;
use super::plain_code::build_is_plain;
use super::relation::Relation;
use super::role::has_privileges_of;
use super::session_state::SessionState;
use super::unguarded as c;

const RESTRICTED: u32 = pg_sys::SECURITY_RESTRICTED_OPERATION;

/// Whether the code of an index may run as its owner, for the current user. The table has the same owner. Guarded.
pub fn may_run(index: Relation<'_>) -> bool {
    has_privileges_of(index.owner()) || build_is_plain(index)
}

/// Runs `work` with a search path that is safe for code of a table's owner. The callee changes the user. After an
/// error, the end of the (sub)transaction restores the search path. Guarded.
pub fn along_safe_path<T>(table: Relation<'_>, work: impl FnOnce() -> T) -> T {
    let state = SessionState::note();
    restrict_path(&state, table);
    let done = work();
    state.restore();
    done
}

/// Runs `work` as the owner of a table. The user and the settings are restored when `work` returns, or when an error
/// unwinds it, because the transaction may end much later. Guarded.
pub fn as_owner<T>(table: Relation<'_>, work: impl FnOnce() -> T) -> T {
    struct Restored(SessionState);
    impl Drop for Restored {
        fn drop(&mut self) {
            self.0.restore();
        }
    }
    let state = Restored(SessionState::note());
    state.0.switch_to(table.owner(), RESTRICTED);
    restrict_path(&state.0, table);
    work()
}

fn restrict_path(state: &SessionState, table: Relation<'_>) {
    let (user, owner) = (state.user(), table.owner());
    // SAFETY: a guarded call, whose closure owns nothing; the state has begun a nest level.
    unsafe { c::guard(|| compat::restrict_search_path(user, owner)) };
}

/// Runs `body` like [`as_owner`], in a plain frame, so that its error keeps all fields.
///
/// # Safety
/// A plain frame, as the body is.
pub unsafe fn as_owner_plainly(table: Relation<'_>, body: impl FnOnce()) {
    // SAFETY: a plain frame; the state has begun a nest level.
    unsafe {
        let (state, owner) = (SessionState::note(), table.owner());
        state.switch_to(owner, RESTRICTED);
        compat::restrict_search_path(state.user(), owner);
        let error = attempt(body);
        state.restore();
        if !error.is_null() {
            c::ReThrowError(error);
        }
    }
}
