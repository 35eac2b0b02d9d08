//! Loads an empty table exclusively if its lock is free at once.
//!
//! After a crash, nothing refers to the pages of a file that is new in this transaction. So the WAL of its pages need
//! not reach disk before them, `wal_level = minimal` needs no WAL for them, and indexes can be built after the rows. So
//! an empty table gets a new file if its AccessExclusiveLock is available without waiting. Unlike TRUNCATE, this fires
//! no trigger and sends nothing to subscribers.
//!
//! A table with foreign keys gets no new file. The check of a foreign key waits for sessions that have locked a parent
//! row, and such a session may itself wait for the table. With the exclusive lock this is a deadlock, which COPY does
//! not have.

use pgrx::pg_sys;

use crate::error::Result;
use crate::heap::leaves::may_refer;
use crate::server::compat;
use crate::server::lock::try_lock_relation;
use crate::server::owner::{along_safe_path, may_run};
use crate::server::relation::{OpenRelation, Relation};
use crate::server::role::current_user;
use crate::server::statement::next_command;

/// A smaller file (in bytes) does not justify locking other sessions out.
pub const WORTH_EXCLUSIVE: u64 = 1 << 20;

const EXCLUSIVE: u32 = pg_sys::AccessExclusiveLock;

/// Gives an empty table a new file, if this is allowed and the locks are free. True if the table has one now. Guarded.
///
/// The relation is a plain table, locked for writing; the caller holds `references` references to it. With further
/// references the table is left alone.
pub fn renew(relation: Relation<'_>, references: i32) -> Result<bool> {
    let relid = relation.oid();
    let persistence = relation.persistence();
    let temporary = persistence == pg_sys::RELPERSISTENCE_TEMP;
    let new = compat::is_new_file(relation);
    if temporary || new || may_refer(relation) || !is_unused(relation, references) || !may_truncate(relid) {
        return Ok(false);
    }
    // The new file needs locks on all objects of the table. To wait for one of them while holding the others would
    // lock other sessions out, so the locks are taken only if they are all free.
    let toast = Some(relation.toast_table()).filter(|&toast| toast != pg_sys::InvalidOid);
    let mut belonging = Vec::new();
    let may_build = indexes_of(relid, &mut belonging) && toast.is_none_or(|toast| indexes_of(toast, &mut belonging));
    belonging.extend(toast);
    belonging.push(relid);
    // Rebuilding an invalid index could fail because of the table's rows. Even for a table without rows, an index
    // build evaluates function calls with constant arguments, as the owner.
    if !may_build || !lock_all(&belonging) {
        return Ok(false);
    }
    // Another session may have inserted rows before the lock was granted.
    if !is_unused(relation, references) {
        return Ok(false);
    }
    let persistence = persistence.cast_signed();
    compat::set_new_file(relation, persistence);
    if let Some(toast) = toast {
        compat::set_new_file(OpenRelation::open(toast, pg_sys::AccessExclusiveLock).get(), persistence);
    }
    let flags = pg_sys::REINDEX_REL_PROCESS_TOAST.cast_signed();
    next_command();
    along_safe_path(relation, || compat::reindex_relation(relid, flags));
    Ok(true)
}

/// Adds the indexes of a table. False if one of them is unusable, or if the current user must not build it. Guarded.
fn indexes_of(relid: pg_sys::Oid, found: &mut Vec<pg_sys::Oid>) -> bool {
    let mut may_build = true;
    for oid in OpenRelation::open(relid, pg_sys::AccessShareLock).get().indexes() {
        let index = OpenRelation::open(oid, pg_sys::AccessShareLock);
        may_build &= index.get().index().is_some_and(|form| form.is_usable) && may_run(index.get());
        found.push(oid);
    }
    may_build
}

/// Locks all relations if all are free at once, else none. Guarded.
fn lock_all(relids: &[pg_sys::Oid]) -> bool {
    for (i, &relid) in relids.iter().enumerate() {
        if !try_lock_relation(relid, EXCLUSIVE) {
            // SAFETY: guarded calls; locks that were taken here.
            relids
                .iter()
                .take(i)
                .for_each(|&taken| unsafe { pg_sys::UnlockRelationOid(taken, EXCLUSIVE.cast_signed()) });
            return false;
        }
    }
    true
}

/// Is the table empty, and not in use elsewhere in this session (CheckTableNotInUse, tablecmds.c)?
fn is_unused(relation: Relation<'_>, references: i32) -> bool {
    // SAFETY: a guarded call.
    let is_pending = || unsafe { pg_sys::AfterTriggerPendingOnRel(relation.oid()) };
    relation.pages() == 0 && relation.references() == references && !is_pending()
}

/// May the current user truncate the table? Guarded.
fn may_truncate(relid: pg_sys::Oid) -> bool {
    let right = pg_sys::ACL_TRUNCATE as pg_sys::AclMode;
    // SAFETY: a guarded catalog lookup.
    unsafe { pg_sys::pg_class_aclcheck(relid, current_user(), right) == pg_sys::AclResult::ACLCHECK_OK }
}
