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
use super::unguarded as c;

const RESTRICTED: i32 = pg_sys::SECURITY_RESTRICTED_OPERATION.cast_signed();

/// Whether the code of an index may run as its owner, for the current user. The table has the same owner. Guarded.
pub fn may_run(index: Relation<'_>) -> bool {
    has_privileges_of(index.owner()) || build_is_plain(index)
}

/// Runs `work` with a search path that is safe for code of a table's owner. The callee changes the user. After an
/// error, the end of the (sub)transaction restores the search path. Guarded.
pub fn along_safe_path<T>(table: Relation<'_>, work: impl FnOnce() -> T) -> T {
    with_safe_path(user_of_session().0, table.owner(), work)
}

/// Runs `work` as the owner of a table. The user is restored when `work` returns, or when an error unwinds it, because
/// the transaction may end much later. Settings of `work` end with it, or after an error with the transaction. Guarded.
pub fn as_owner<T>(table: Relation<'_>, work: impl FnOnce() -> T) -> T {
    struct Restored(pg_sys::Oid, i32);
    impl Drop for Restored {
        fn drop(&mut self) {
            // SAFETY: sets two variables of this process, and raises nothing.
            unsafe { c::SetUserIdAndSecContext(self.0, self.1) }
        }
    }
    let (user, context) = user_of_session();
    let restored = Restored(user, context);
    // SAFETY: sets two variables of this process, and raises nothing.
    unsafe { c::SetUserIdAndSecContext(table.owner(), context | RESTRICTED) };
    let done = with_safe_path(user, table.owner(), work);
    drop(restored);
    done
}

/// The current user, and the flags of its security context. Raises nothing.
pub fn user_of_session() -> (pg_sys::Oid, i32) {
    let (mut user, mut context) = (pg_sys::InvalidOid, 0);
    // SAFETY: reads two variables of this process, and raises nothing.
    unsafe { c::GetUserIdAndSecContext(&raw mut user, &raw mut context) };
    (user, context)
}

fn with_safe_path<T>(user: pg_sys::Oid, owner: pg_sys::Oid, work: impl FnOnce() -> T) -> T {
    // SAFETY: guarded calls; the closure owns nothing. The nest level is this function's own.
    unsafe {
        let level = pg_sys::NewGUCNestLevel();
        c::guard(|| compat::restrict_search_path(user, owner));
        let done = work();
        pg_sys::AtEOXact_GUC(false, level);
        done
    }
}

/// Runs `body` like [`as_owner`], in a plain frame, so that its error keeps all fields.
///
/// # Safety
/// A plain frame, as the body is.
pub unsafe fn as_owner_plainly(table: Relation<'_>, body: impl FnOnce()) {
    // SAFETY: a plain frame. Settings of the body end with its nest level, or after
    // an error with the transaction.
    unsafe {
        let (user, context) = user_of_session();
        let owner = table.owner();
        c::SetUserIdAndSecContext(owner, context | RESTRICTED);
        let level = c::NewGUCNestLevel();
        compat::restrict_search_path(user, owner);
        let error = attempt(body);
        if error.is_null() {
            c::AtEOXact_GUC(false, level);
        }
        c::SetUserIdAndSecContext(user, context);
        if !error.is_null() {
            c::ReThrowError(error);
        }
    }
}
