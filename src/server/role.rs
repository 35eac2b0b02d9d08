//! Runs pg_bulk's own SQL with the privileges of another role, with names that are resolved safely.
//!
//! The caller may have any search path, with functions, operators and tables of the caller's on it. Code that runs here
//! resolves names in `pg_catalog` first, and never in the caller's schemas. If the session applies changes of another
//! server (`session_replication_role = replica`), changes of this code still count as the server's own.

use std::ffi::{CStr, CString};

use pgrx::pg_sys;

use super::call::{calls, variables};
use super::compat;
use super::database::{cluster, database};
use super::lookup::{CatalogRow, function_name, relation_name};
use super::server_text::from_server;
use super::session_state::SessionState;

/// Run `work` as `role`. Guarded; after an error, the end of the (sub)transaction restores the user and the search
/// path.
pub fn as_role<T>(role: pg_sys::Oid, work: impl FnOnce() -> T) -> T {
    let state = SessionState::note();
    state.switch_to(role, pg_sys::SECURITY_LOCAL_USERID_CHANGE);
    let set = |name: &CStr, value: &CStr| {
        set_option(name, value, pg_sys::GucContext::PGC_SUSET, pg_sys::GucAction::GUC_ACTION_SAVE)
    };
    set(c"search_path", c"pg_catalog, pg_temp");
    // Setting it invalidates all cached plans, so it is set only if needed.
    if applies_changes() {
        set(c"session_replication_role", c"origin");
    }
    let result = work();
    state.restore();
    result
}

// SAFETY: lookups in the catalogs, which accept any OID, and return strings of their own; a setting, whose value is
// copied.
calls! {
    /// The current user. Guarded.
    pub fn current_user() -> pg_sys::Oid = GetUserId();
    /// Changes a setting of the session, until the action ends it. Guarded.
    pub fn set_option(name: &CStr, value: &CStr, context: pg_sys::GucContext::Type, action: pg_sys::GucAction::Type) -> i32
        = set_config_option(name, value, context, (pg_sys::GucSource::PGC_S_SESSION), action, true, 0, false);
    /// Sets a setting until the end of the transaction, or only checks its value. Guarded.
    pub fn set_local(name: &CStr, value: &CStr, context: pg_sys::GucContext::Type, changes: bool) -> i32
        = set_config_option(
            name, value, context, (pg_sys::GucSource::PGC_S_SESSION), (pg_sys::GucAction::GUC_ACTION_LOCAL), changes, 0, false
        );
    /// Whether the current user is a superuser. Guarded.
    pub fn is_superuser() -> bool = superuser();
    /// One of CheckEnableRlsResult, for a role, or for the current user. Raises an error if row_security is off and a policy
    /// applies, unless `quiet`. Guarded.
    pub fn row_security(relation: pg_sys::Oid, role: pg_sys::Oid, quiet: bool) -> i32 = check_enable_rls(relation, role, quiet);
    /// The server's answer whether a role has privileges on a column. Guarded.
    pub fn column_privileges(relation: pg_sys::Oid, column: i16, role: pg_sys::Oid, privileges: pg_sys::AclMode) -> pg_sys::AclResult::Type
        = pg_attribute_aclcheck(relation, column, role, privileges);
    /// Does a role have the privileges of another one? Guarded.
    pub fn has_privileges(member: pg_sys::Oid, role: pg_sys::Oid) -> bool = has_privs_of_role(member, role);
    fn check(relation: pg_sys::Oid, role: pg_sys::Oid, privileges: pg_sys::AclMode) -> pg_sys::AclResult::Type
        = pg_class_aclcheck(relation, role, privileges);
    fn check_columns(relation: pg_sys::Oid, role: pg_sys::Oid, privileges: pg_sys::AclMode) -> pg_sys::AclResult::Type
        = pg_attribute_aclcheck_all(relation, role, privileges, (pg_sys::AclMaskHow::ACLMASK_ANY));
    fn role_named(name: &CStr, missing_ok: bool) -> pg_sys::Oid = get_role_oid(name, missing_ok);
    /// A role's name, if the role exists. Guarded.
    pub fn existing_role_name(role: pg_sys::Oid) -> Option<CString> = GetUserNameFromId(role, true);
    /// Whether the current code runs as the owner of a table, and must have no effects that last. Guarded.
    pub fn is_restricted() -> bool = InSecurityRestrictedOperation();
    /// The user that SET ROLE or the session has chosen, whatever function runs. Guarded.
    pub fn outer_user() -> pg_sys::Oid = GetOuterUserId();
    fn kind_of(relation: pg_sys::Oid) -> u8 = get_rel_relkind(relation);
    fn object_kind(relation_kind: i8) -> pg_sys::ObjectType::Type = get_relkind_objtype(relation_kind);
}

variables! {
    /// The setting session_replication_role.
    pub fn replication_role() -> i32 = SessionReplicationRole;
}

/// Does the current user have the privileges of a role? Guarded.
pub fn has_privileges_of(role: pg_sys::Oid) -> bool {
    has_privileges(current_user(), role)
}

/// Whether policies limit the rows of a relation that the current user sees. Guarded.
pub fn has_policies(relation: pg_sys::Oid) -> bool {
    let answer = row_security(relation, pg_sys::InvalidOid, true);
    answer == pg_sys::CheckEnableRlsResult::RLS_ENABLED.cast_signed()
}

/// The server's answer whether the current user has one of these privileges on a relation. Guarded.
pub fn privileges(relation: pg_sys::Oid, privileges: u32) -> pg_sys::AclResult::Type {
    check(relation, current_user(), pg_sys::AclMode::from(privileges))
}

/// Raises unless the current user has a privilege on a relation. Guarded.
pub fn require(relation: pg_sys::Oid, privilege: u32) {
    let answer = privileges(relation, privilege);
    if answer != pg_sys::AclResult::ACLCHECK_OK {
        refuse_right(relation, answer);
    }
}

/// Raises unless the current user has a privilege on a relation, or on one of its columns. Guarded.
pub fn require_some(relation: pg_sys::Oid, privilege: u32) {
    let (user, privilege) = (current_user(), privilege as pg_sys::AclMode);
    let all = check(relation, user, privilege);
    if ![all, check_columns(relation, user, privilege)].contains(&pg_sys::AclResult::ACLCHECK_OK) {
        refuse_right(relation, all);
    }
}

/// Raises the server's error about a right on a relation that the current user lacks. Guarded.
pub fn refuse_right(relation: pg_sys::Oid, answer: pg_sys::AclResult::Type) {
    compat::refuse(answer, object_kind(kind_of(relation).cast_signed()), relation_name(relation).as_deref());
}

/// Raises unless the current user may call a function of this kind. Guarded.
pub fn require_execute(function: pg_sys::Oid, kind: pg_sys::ObjectType::Type) {
    let answer = compat::may_execute(function);
    if answer != pg_sys::AclResult::ACLCHECK_OK {
        compat::refuse(answer, kind, function_name(function).as_deref());
    }
}

/// Does this session apply changes that were made elsewhere, so that ordinary triggers do not fire?
pub fn applies_changes() -> bool {
    replication_role() == pg_sys::SESSION_REPLICATION_ROLE_REPLICA.cast_signed()
}

/// Returns the reason why a role cannot connect to this database; None if it can. Guarded.
pub fn cannot_connect(role: pg_sys::Oid) -> Option<NoSession> {
    let Some(row) = CatalogRow::<pg_sys::FormData_pg_authid>::find(role) else { return Some(NoSession::Role) };
    if !row.rolcanlogin && !compat::WORKERS_BYPASS_LOGIN {
        return Some(NoSession::Login);
    }
    (!compat::may_connect(database(), role)).then_some(NoSession::Connect)
}

/// Why a role cannot connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoSession {
    /// There is no such role.
    Role,
    Login,
    Connect,
}

/// The role that owns a stored row. In the cluster that wrote the row (`of_cluster`) it is `owner`; in any other one,
/// the role of that name. Invalid if there is none. Guarded.
pub fn owner_here(owner: pg_sys::Oid, name: &CStr, of_cluster: i64) -> pg_sys::Oid {
    if of_cluster == cluster() {
        return owner;
    }
    role_named(name, true)
}

/// A role's name, for a stored row; empty if there is no such role. Guarded.
pub fn stored_role_name(role: pg_sys::Oid) -> CString {
    existing_role_name(role).unwrap_or_default()
}

/// A role's name, or its OID if there is no such role. Guarded.
pub fn role_name(role: pg_sys::Oid) -> String {
    existing_role_name(role).map_or_else(|| role.to_u32().to_string(), |name| from_server(&name))
}
