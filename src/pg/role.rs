//! Code of ours that is to run with somebody else's rights, and with names that mean what they say.
//!
//! The caller may have any search path, and functions, operators and tables of his own on it. Whatever is run here sees
//! `pg_catalog` first, and the caller's schemas not at all. Nor is it taken for changes that the session applies for another
//! server, even if the session does that.

use std::ffi::{CStr, CString};

use pgrx::pg_sys;

use super::database::cluster;

/// Do `work` as `role`. Guarded; an error leaves it to the end of the (sub)transaction to bring the user and the path
/// back.
pub fn as_role<T>(role: pg_sys::Oid, work: impl FnOnce() -> T) -> T {
    let (mut user, mut context) = (pg_sys::InvalidOid, 0);
    // SAFETY: guarded calls with valid pointers, in a transaction. What a security-definer function does (fmgr.c).
    unsafe {
        pg_sys::GetUserIdAndSecContext(&raw mut user, &raw mut context);
        pg_sys::SetUserIdAndSecContext(role, context | pg_sys::SECURITY_LOCAL_USERID_CHANGE.cast_signed());
        let nest = pg_sys::NewGUCNestLevel();
        let set = |name: &CStr, value: &CStr| {
            pg_sys::set_config_option(
                name.as_ptr(),
                value.as_ptr(),
                pg_sys::GucContext::PGC_SUSET,
                pg_sys::GucSource::PGC_S_SESSION,
                pg_sys::GucAction::GUC_ACTION_SAVE,
                true,
                0,
                false,
            )
        };
        set(c"search_path", c"pg_catalog, pg_temp");
        // To set it makes the server forget all plans.
        if applies_changes() {
            set(c"session_replication_role", c"origin");
        }
        let result = work();
        pg_sys::AtEOXact_GUC(false, nest);
        pg_sys::SetUserIdAndSecContext(user, context);
        result
    }
}

/// Does this session apply changes that were made elsewhere, so that triggers are not to be fired?
pub fn applies_changes() -> bool {
    // SAFETY: a setting.
    let role = unsafe { pg_sys::SessionReplicationRole };
    role == pg_sys::SESSION_REPLICATION_ROLE_REPLICA.cast_signed()
}

/// What keeps a role from being a session of this database; None if nothing does. Guarded.
pub fn cannot_connect(role: pg_sys::Oid) -> Option<NoSession> {
    // SAFETY: guarded catalog lookups in a transaction; the tuple is released after it was looked at.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(pg_sys::SysCacheIdentifier::AUTHOID as i32, pg_sys::Datum::from(role));
        if tuple.is_null() {
            return Some(NoSession::Role);
        }
        let form = pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_authid>();
        let can_login = (*form).rolcanlogin || super::compat::WORKERS_BYPASS_LOGIN;
        pg_sys::ReleaseSysCache(tuple);
        if !can_login {
            return Some(NoSession::Login);
        }
        if !super::compat::may_connect(pg_sys::MyDatabaseId, role) {
            return Some(NoSession::Connect);
        }
        None
    }
}

/// What a role lacks to have a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoSession {
    /// There is no such role.
    Role,
    Login,
    Connect,
}

/// The role that a row is of which was written in `of_cluster`: there it was `owner`, elsewhere it is the one of that name;
/// invalid if there is none. Guarded.
pub fn owner_here(owner: pg_sys::Oid, name: &CStr, of_cluster: i64) -> pg_sys::Oid {
    if of_cluster == cluster() {
        return owner;
    }
    // SAFETY: a guarded catalog lookup.
    unsafe { pg_sys::get_role_oid(name.as_ptr(), true) }
}

/// A role's name, to be stored; empty if there is no such role. Guarded.
pub fn stored_role_name(role: pg_sys::Oid) -> CString {
    // SAFETY: a guarded catalog lookup, and the string that it returns.
    unsafe {
        let name = pg_sys::GetUserNameFromId(role, true);
        if name.is_null() { CString::default() } else { CStr::from_ptr(name).to_owned() }
    }
}

/// A role's name, or its number if there is no such role. Guarded.
pub fn role_name(role: pg_sys::Oid) -> String {
    // SAFETY: a guarded catalog lookup, and the string that it returns.
    unsafe {
        let name = pg_sys::GetUserNameFromId(role, true);
        if name.is_null() {
            return role.to_u32().to_string();
        }
        super::server_text::from_server(CStr::from_ptr(name))
    }
}
