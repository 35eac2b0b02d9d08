//! The target of a load: privileges, lock, and the kind of relation.
//!
//! TRUNCATE and ownership rights are checked before the lock is requested, because a lock without them would do harm.
//! The INSERT privilege is checked on the columns, as COPY checks it, once these are known. The [eligibility
//! check](super::obstacle) collects all reasons against building pages for the table, for either writer.

use std::ffi::{CStr, CString};

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::duplicate::Keep;
use super::options::{LoadOptions, LockOption, Truncate};
use crate::error::{Error, Result};
use crate::input::directory::check_usage;
use crate::input::source::Location;
use crate::program::copy_question::{self, Insertion};
use crate::program::mapping::Mapping;
use crate::server::call::calls;
use crate::server::compat::{self, Rights};
use crate::server::database::require_writes;
use crate::server::lock::lock_relation;
use crate::server::lookup::{qualified_name, relation_name};
use crate::server::relation::{OpenRelation, Relation};
use crate::server::role::{current_user, has_privileges_of, refuse_right, require, row_security};
use crate::server::server_text::from_server;

/// The kind of relation that a target is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetKind {
    /// A table that stores rows, perhaps a partition.
    Plain,
    Partitioned,
    /// A view or a foreign table.
    Other,
}

/// The target of a load, open and locked.
#[derive(Debug)]
pub struct Target {
    /// None while a command of pg_bulk requires that it is closed. The load has opened it, and closes it.
    relation: Option<Relation<'static>>,
    pub relid: pg_sys::Oid,
    pub kind: TargetKind,
    /// Schema and name, quoted.
    pub name: CString,
    /// Reasons why its pages cannot be built, one sentence each; empty if they can.
    pub obstacles: Vec<String>,
}

/// Raises errors that forbid any load in this transaction. Guarded.
pub fn check_transaction(function: &CStr) {
    not_in_recovery(function);
    require_writes(function);
    not_in_parallel_mode(function);
}

// SAFETY: look at the state of the transaction, and raise an error with the string.
calls! {
    fn not_in_recovery(function: &CStr) = PreventCommandDuringRecovery(function);
    fn not_in_parallel_mode(function: &CStr) = PreventCommandIfParallelMode(function);
}

/// Raises unless the current user may read files, read files below a server's directory, or run programs. Runs before
/// any test whether the file exists. Guarded.
pub fn check_location(location: &Location) -> Result<()> {
    let (role, name, what) = match location {
        Location::Below(below) => return check_usage(below.server, current_user()),
        Location::File(_) | Location::Files(_) => (pg_sys::ROLE_PG_READ_SERVER_FILES, "pg_read_server_files", "a file"),
        Location::Program(_) => {
            (pg_sys::ROLE_PG_EXECUTE_SERVER_PROGRAM, "pg_execute_server_program", "an external program")
        }
        Location::LargeObject(object) => {
            object.check();
            return Ok(());
        }
        Location::Client(_) | Location::Bytes(_) | Location::Query => return Ok(()),
    };
    if has_privileges_of(role.into()) {
        return Ok(());
    }
    let message = format!("permission denied to load from {what}");
    let detail = format!("Only roles with privileges of the \"{name}\" role may load from {what}.");
    Err(Error::new(Code::ERRCODE_INSUFFICIENT_PRIVILEGE, message).detail(detail))
}

/// Raises the error that the table to be created already exists. Guarded.
pub fn raise_exists(relid: pg_sys::Oid) {
    // A missing table is reported elsewhere.
    if let Some(name) = relation_name(relid) {
        let name = from_server(&name);
        Error::new(Code::ERRCODE_DUPLICATE_TABLE, format!("relation \"{name}\" already exists")).raise();
    }
}

impl Target {
    /// Locks the table and inspects it. Guarded.
    pub fn open(relid: pg_sys::Oid, options: &LoadOptions) -> Result<Target> {
        check_lock_rights(relid, options);
        let lock = match options.table.lock {
            _ if options.table.truncate == Truncate::Yes => pg_sys::AccessExclusiveLock,
            LockOption::Online => pg_sys::RowExclusiveLock,
            LockOption::Share => pg_sys::ShareRowExclusiveLock,
        };
        let missing = || {
            let message = format!("relation with OID {} does not exist", relid.to_u32());
            Error::new(Code::ERRCODE_UNDEFINED_TABLE, message)
        };
        let opened = OpenRelation::find(relid, lock).ok_or_else(missing)?;
        // The lock of an INSERT, in addition to any stronger lock: the executor requires it.
        lock_relation(relid, pg_sys::RowExclusiveLock);
        let kind = kind(opened.get())?;
        if kind == TargetKind::Partitioned && options.table.lock == LockOption::Share {
            // At once, so that no lock is upgraded later, when the indexes of a partition are rebuilt.
            opened.get().with_descendants(lock);
        }
        let name = qualified_name(relid).unwrap_or_default();
        // SAFETY: the relation stays open until `close`.
        let relation = unsafe { Relation::from_raw(opened.keep()) };
        Ok(Target { relation: Some(relation), relid, kind, name, obstacles: Vec::new() })
    }

    /// Makes the target of a plain or partitioned table that is open and locked. Guarded.
    ///
    /// # Safety
    /// The load closes the table; nothing else uses it then.
    pub unsafe fn of_open(relation: Relation<'static>) -> Result<Target> {
        let (relid, kind, name) = (relation.oid(), kind(relation)?, qualified_name(relation.oid()).unwrap_or_default());
        Ok(Target { relation: Some(relation), relid, kind, name, obstacles: Vec::new() })
    }

    /// The relation, or an error while it is closed.
    pub fn relation(&self) -> Result<Relation<'_>> {
        self.relation.ok_or_else(|| Error::new(Code::ERRCODE_INTERNAL_ERROR, "the table of the load is not open"))
    }

    /// Closes it, and keeps the lock. Guarded.
    pub fn close(&mut self) {
        if let Some(relation) = self.relation.take() {
            // SAFETY: a guarded call on a relation that this load has opened. No handle of it is left.
            unsafe { pg_sys::relation_close(relation.as_ptr(), pg_sys::NoLock.cast_signed()) }
        }
    }

    /// Opens it again under the lock that is held, unless it is open. Guarded.
    pub fn reopen(&mut self) -> Relation<'_> {
        // SAFETY: the relation stays open until `close`.
        *self.relation.get_or_insert_with(|| unsafe { Relation::from_raw(OpenRelation::locked(self.relid).keep()) })
    }

    /// Raises if rows cannot be checked: the result of an INSERT into a view or a foreign table is unknown beforehand.
    pub fn check_rows(&self) -> Result<()> {
        if self.kind != TargetKind::Other {
            return Ok(());
        }
        let message = format!("cannot check rows for \"{}\"", self.display_name());
        Err(Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message).detail("It is not a table."))
    }

    /// Raises unless the current user may replace rows. Guarded.
    pub fn check_replace(&self, keep: Keep) {
        if keep != Keep::New {
            return;
        }
        require(self.relid, pg_sys::ACL_DELETE);
    }

    /// The name without the schema, for messages. Guarded.
    pub fn display_name(&self) -> String {
        from_server(&relation_name(self.relid).unwrap_or_default())
    }

    /// Raises unless the current user may INSERT into the columns that the file has fields for, and SELECT those that
    /// `where` reads. Without a mapping: into any column. Guarded.
    pub fn check_insert(&self, mapping: Option<&Mapping>, rights: Rights) -> Result<()> {
        self.insertion(mapping, rights)?.check();
        self.check_policies();
        Ok(())
    }

    /// Checks as [`check_insert`](Target::check_insert), and calls the hooks of other libraries as a COPY from this
    /// location does. They see the text `by`. Guarded.
    pub fn check_copy(&self, mapping: Option<&Mapping>, rights: Rights, location: &Location, by: &CStr) -> Result<()> {
        let insertion = self.insertion(mapping, rights)?;
        match mapping {
            Some(_) => copy_question::may_insert(location, insertion, by),
            None => copy_question::may_insert_some(location, insertion),
        }
        self.check_policies();
        Ok(())
    }

    /// The range table entry that an INSERT would check. Guarded.
    fn insertion(&self, mapping: Option<&Mapping>, rights: Rights) -> Result<Insertion<'_>> {
        let columns = mapping.into_iter().flat_map(Mapping::attributes).collect();
        Ok(Insertion { relation: self.relation()?, columns, rights })
    }

    /// Raises if row_security is off and a policy applies. Guarded.
    fn check_policies(&self) {
        row_security(self.relid, pg_sys::InvalidOid, false);
    }
}

/// Raises unless the user may take a lock that blocks other sessions. [`Target::open`] reports a missing relation.
fn check_lock_rights(relid: pg_sys::Oid, options: &LoadOptions) {
    if relation_name(relid).is_none() {
        return;
    }
    if options.table.truncate == Truncate::Yes {
        require(relid, pg_sys::ACL_TRUNCATE);
    }
    if options.table.lock == LockOption::Share && !compat::owns_relation(relid) {
        refuse_right(relid, pg_sys::AclResult::ACLCHECK_NOT_OWNER);
    }
}

/// The kind of relation; raises CopyFrom's errors (copyfrom.c) if it cannot take rows.
fn kind(relation: Relation) -> Result<TargetKind> {
    let (relkind, other_session) = (relation.kind(), relation.is_other_temporary());
    let what = match relkind {
        _ if other_session => {
            let message = "cannot access temporary tables of other sessions";
            return Err(Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message));
        }
        pg_sys::RELKIND_RELATION => return Ok(TargetKind::Plain),
        pg_sys::RELKIND_PARTITIONED_TABLE => return Ok(TargetKind::Partitioned),
        pg_sys::RELKIND_VIEW | pg_sys::RELKIND_FOREIGN_TABLE => return Ok(TargetKind::Other),
        pg_sys::RELKIND_MATVIEW => "materialized view",
        pg_sys::RELKIND_SEQUENCE => "sequence",
        _ => "non-table relation",
    };
    let message = format!("cannot copy to {what} \"{}\"", relation.name_text());
    Err(Error::new(Code::ERRCODE_WRONG_OBJECT_TYPE, message))
}
