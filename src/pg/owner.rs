//! Code of a table's owner, run by somebody else.
//!
//! What an index is made with (expressions, conditions, functions that compare) is its table's owner's, and while an index is
//! built it runs as him, where it can do nothing that outlives it: index_build (index.c). Otherwise whoever owns a table
//! could have his code run by whoever loads it. And whoever loads must not choose what names in that code mean: what
//! he puts into their place would run with the owner's rights.
//!
//! The tricky point is that a search path does not see to that alone. What names mean may be kept by the session since the user had the
//! same code run along a path of his choice ([`plain_code`](super::plain_code)), and nothing has that forgotten. So whoever may not have the
//! owner's rights anyway has nothing run with them but what is plain ([`may_run`]). The rest is run as he is, as in an INSERT.

use pgrx::pg_sys;

use super::attempt::attempt;
use super::compat;
use super::plain_code::build_is_plain;
use super::unguarded::{self as c, Opaque};

const RESTRICTED: i32 = pg_sys::SECURITY_RESTRICTED_OPERATION.cast_signed();

/// May what an index is made with be run as its table's owner, because of the current user? Guarded.
///
/// # Safety
/// An open index.
pub unsafe fn may_run(index: pg_sys::Relation) -> bool {
    // SAFETY: this function's contract covers the index, whose owner is its table's; guarded calls.
    unsafe { pg_sys::has_privs_of_role(pg_sys::GetUserId(), (*(*index).rd_rel).relowner) || build_is_plain(index) }
}

/// Run `work` with the search path that code of a table's owner is to have. The user is changed by what is called. An error leaves
/// it to the end of the (sub)transaction to put the path back.
///
/// # Safety
/// A plain frame; an open table.
pub unsafe fn along_safe_path(table: pg_sys::Relation, work: impl FnOnce()) {
    // SAFETY: this function's contract covers frame and table.
    unsafe {
        let (mut user, mut context) = (pg_sys::InvalidOid, 0);
        c::GetUserIdAndSecContext(&raw mut user, &raw mut context);
        let level = c::NewGUCNestLevel();
        compat::restrict_search_path(user, (*(*table).rd_rel).relowner);
        work();
        c::AtEOXact_GUC(false, level);
    }
}

/// Run `body(argument)` as the owner of a table. An error goes on with the user put back: it may take a while until it ends
/// the transaction.
///
/// # Safety
/// A plain frame, as the body is; an open table.
pub unsafe fn as_owner(table: pg_sys::Relation, body: unsafe extern "C-unwind" fn(Opaque), argument: Opaque) {
    // SAFETY: this function's contract covers frame and table. Settings that the body has made go with its nest level; after an
    // error, with the transaction.
    unsafe {
        let (mut user, mut context) = (pg_sys::InvalidOid, 0);
        c::GetUserIdAndSecContext(&raw mut user, &raw mut context);
        let owner = (*(*table).rd_rel).relowner;
        c::SetUserIdAndSecContext(owner, context | RESTRICTED);
        let level = c::NewGUCNestLevel();
        compat::restrict_search_path(user, owner);
        let error = attempt(body, argument);
        if error.is_null() {
            c::AtEOXact_GUC(false, level);
        }
        c::SetUserIdAndSecContext(user, context);
        if !error.is_null() {
            c::ReThrowError(error);
        }
    }
}
