//! An empty table that is free at once is loaded exclusively.
//!
//! With a file that is new in this transaction, nothing refers to the table's pages after a crash: their WAL need not be
//! on disk before them, at wal_level minimal there need not be any, and its indexes can be built when the rows are in.
//! So an empty table gets such a file, if its exclusive lock is to be had without waiting for anybody. It is not a
//! TRUNCATE: no trigger fires, and nothing is said to subscribers.
//!
//! A table with foreign keys gets none. Their check waits for sessions that have locked a parent row. Such a session may
//! itself wait for the table. With the exclusive lock that is a deadlock, which COPY does not have.

use pgrx::{PgList, pg_sys};

use super::leaves::may_refer;
use crate::error::Result;
use crate::pg::compat;
use crate::pg::owner::{along_safe_path, may_run};
use crate::pg::unguarded::guard;

/// A file of fewer bytes is not worth keeping anybody out.
pub const WORTH_EXCLUSIVE: u64 = 1 << 20;

const MAIN: pg_sys::ForkNumber::Type = pg_sys::ForkNumber::MAIN_FORKNUM;
const EXCLUSIVE: pg_sys::LOCKMODE = pg_sys::AccessExclusiveLock.cast_signed();
const NO_LOCK: pg_sys::LOCKMODE = pg_sys::NoLock.cast_signed();

/// Give an empty table a new file, if that may be and can be at once. True if it has one now. Guarded.
///
/// # Safety
/// An open plain table that is locked for writing; the caller holds so many references to it, and if somebody else has
/// one, it is left alone.
pub unsafe fn renew(relation: pg_sys::Relation, references: i32) -> Result<bool> {
    // SAFETY: this function's contract covers the relation; guarded calls.
    unsafe {
        let relid = (*relation).rd_id;
        let persistence = (*(*relation).rd_rel).relpersistence;
        let temporary = persistence.cast_unsigned() == pg_sys::RELPERSISTENCE_TEMP;
        let new = compat::is_new_file(relation);
        if temporary || new || may_refer(relation) || !is_unused(relation, references) || !may_truncate(relid) {
            return Ok(false);
        }
        // A new file takes locks of all that belongs to the table, and whoever waits for one while he has the others keeps
        // everybody out.
        let toast = (*(*relation).rd_rel).reltoastrelid;
        let mut belonging = Vec::new();
        let may_build =
            indexes_of(relid, &mut belonging) && (toast == pg_sys::InvalidOid || indexes_of(toast, &mut belonging));
        belonging.extend((toast != pg_sys::InvalidOid).then_some(toast));
        belonging.push(relid);
        // An index that is not valid would be built, which its rows may not let. And even where there are none, calls of functions with
        // constants are evaluated, as the owner.
        if !may_build || !lock_all(&belonging) {
            return Ok(false);
        }
        // Before we had the lock, somebody may have filled it.
        if !is_unused(relation, references) {
            return Ok(false);
        }
        compat::set_new_file(relation, persistence);
        if toast != pg_sys::InvalidOid {
            let toast = pg_sys::table_open(toast, EXCLUSIVE);
            compat::set_new_file(toast, persistence);
            pg_sys::table_close(toast, NO_LOCK);
        }
        pg_sys::CommandCounterIncrement();
        let flags = pg_sys::REINDEX_REL_PROCESS_TOAST.cast_signed();
        guard(|| along_safe_path(relation, || compat::reindex_relation(relid, flags)));
    }
    Ok(true)
}

/// Add the indexes of a table. False if one of them cannot be used, or must not be built because of the current user. Guarded.
///
/// # Safety
/// A table that is locked, or belongs to one that is.
unsafe fn indexes_of(relid: pg_sys::Oid, found: &mut Vec<pg_sys::Oid>) -> bool {
    // SAFETY: this function's contract covers the table; guarded calls.
    unsafe {
        let table = pg_sys::table_open(relid, pg_sys::AccessShareLock.cast_signed());
        let mut may_build = true;
        for oid in PgList::<pg_sys::Oid>::from_pg(pg_sys::RelationGetIndexList(table)).iter_oid() {
            let index = pg_sys::index_open(oid, pg_sys::AccessShareLock.cast_signed());
            let form = &*(*index).rd_index;
            may_build &= form.indisvalid && form.indisready && form.indislive && may_run(index);
            pg_sys::index_close(index, NO_LOCK);
            found.push(oid);
        }
        pg_sys::table_close(table, NO_LOCK);
        may_build
    }
}

/// Lock all of them, if they are all free at once; else none. Guarded.
fn lock_all(relids: &[pg_sys::Oid]) -> bool {
    for (i, &relid) in relids.iter().enumerate() {
        // SAFETY: guarded calls; locks that were taken here.
        unsafe {
            if !pg_sys::ConditionalLockRelationOid(relid, EXCLUSIVE) {
                relids.iter().take(i).for_each(|&taken| pg_sys::UnlockRelationOid(taken, EXCLUSIVE));
                return false;
            }
        }
    }
    true
}

/// Empty, and nobody else in this session uses it (CheckTableNotInUse, tablecmds.c).
///
/// # Safety
/// An open relation.
unsafe fn is_unused(relation: pg_sys::Relation, references: i32) -> bool {
    // SAFETY: this function's contract covers the relation; guarded calls.
    unsafe {
        pg_sys::RelationGetNumberOfBlocksInFork(relation, MAIN) == 0
            && (*relation).rd_refcnt == references + i32::from((*relation).rd_isnailed)
            && !pg_sys::AfterTriggerPendingOnRel((*relation).rd_id)
    }
}

/// # Safety
/// A table's oid. Guarded.
unsafe fn may_truncate(relid: pg_sys::Oid) -> bool {
    // SAFETY: guarded catalog lookups.
    unsafe {
        let right = pg_sys::ACL_TRUNCATE as pg_sys::AclMode;
        pg_sys::pg_class_aclcheck(relid, pg_sys::GetUserId(), right) == pg_sys::AclResult::ACLCHECK_OK
    }
}
