//! Code of a table's owner, run by somebody else.
//!
//! What an index is made with (expressions, conditions, functions that compare) is its table's owner's, and while an index is
//! built it runs as him, where it can do nothing that outlives it: index_build (index.c). Otherwise whoever owns a table
//! could have his code run by whoever loads it. And whoever loads must not choose what names in that code mean: what
//! he puts into their place would run with the owner's rights.
//!
//! The tricky point is that names may have got their meaning before. The relation cache keeps expressions and conditions as the
//! planner makes them for whoever asks first: calls of functions in SQL are their bodies then, with names along the path of that
//! moment ([`forget_expressions`]).

use pgrx::pg_sys;

use super::attempt::attempt;
use super::compat;
use super::unguarded::{self as c, Opaque};

const RESTRICTED: i32 = pg_sys::SECURITY_RESTRICTED_OPERATION.cast_signed();

/// Run `work` with the search path that code of a table's owner is to have. The user is changed by what is called. An error leaves
/// it to the end of the (sub)transaction to put the path back.
///
/// # Safety
/// A plain frame; an open table.
pub unsafe fn along_safe_path(table: pg_sys::Relation, work: impl FnOnce()) {
    // SAFETY: the caller vouches for frame and table.
    unsafe {
        let (mut user, mut context) = (pg_sys::InvalidOid, 0);
        c::GetUserIdAndSecContext(&raw mut user, &raw mut context);
        forget_expressions(table);
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
    // SAFETY: the caller vouches for frame and table. Settings that the body has made go with its nest level; after an
    // error, with the transaction.
    unsafe {
        let (mut user, mut context) = (pg_sys::InvalidOid, 0);
        c::GetUserIdAndSecContext(&raw mut user, &raw mut context);
        let owner = (*(*table).rd_rel).relowner;
        forget_expressions(table);
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

/// Have the expressions and conditions of a table's indexes read anew by who asks next (RelationGetIndexExpressions and
/// RelationGetIndexPredicate, relcache.c, which give away copies). What was kept stays in the entry's memory as long as the entry.
///
/// # Safety
/// A plain frame; an open table, whose indexes nobody can drop.
unsafe fn forget_expressions(table: pg_sys::Relation) {
    // SAFETY: the caller vouches for frame and table; so many elements are in a list, which is ours.
    unsafe {
        let list = c::RelationGetIndexList(table);
        let count = if list.is_null() { 0 } else { usize::try_from((*list).length).unwrap_or(0) };
        for number in 0..count {
            let index = c::RelationIdGetRelation((*(*list).elements.add(number)).oid_value);
            if !index.is_null() {
                (*index).rd_indexprs = std::ptr::null_mut();
                (*index).rd_indpred = std::ptr::null_mut();
                c::RelationClose(index);
            }
        }
        c::list_free(list);
    }
}
