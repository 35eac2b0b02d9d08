//! An empty table that is free at once is loaded exclusively.
//!
//! With a file that is new in this transaction, nothing refers to the table's pages after a crash: their WAL need not be
//! on disk before them, at wal_level minimal there need not be any, and its indexes can be built when the rows are in.
//! So an empty table gets such a file, if its exclusive lock is to be had without waiting for anybody. It is not a
//! TRUNCATE: no trigger fires, and nothing is said to subscribers.

use pgrx::pg_sys;

use crate::error::Result;
use crate::pg::compat;

/// A file of fewer bytes is not worth keeping anybody out.
pub const WORTH_EXCLUSIVE: u64 = 1 << 20;

const MAIN: pg_sys::ForkNumber::Type = pg_sys::ForkNumber::MAIN_FORKNUM;
const EXCLUSIVE: pg_sys::LOCKMODE = pg_sys::AccessExclusiveLock.cast_signed();
const NO_LOCK: pg_sys::LOCKMODE = pg_sys::NoLock.cast_signed();

/// Give an empty table a new file, if that may be and can be at once. True if it has one now. Guarded.
///
/// # Safety
/// An open plain table that is locked for writing; the caller holds the only reference to it, or it is left alone.
pub unsafe fn renew(relation: pg_sys::Relation) -> Result<bool> {
    // SAFETY: the caller vouches for the relation; guarded calls.
    unsafe {
        let relid = (*relation).rd_id;
        let persistence = (*(*relation).rd_rel).relpersistence;
        let temporary = persistence.cast_unsigned() == pg_sys::RELPERSISTENCE_TEMP;
        let new = compat::is_new_file(relation);
        if temporary || new || !is_unused(relation) || !may_truncate(relid) {
            return Ok(false);
        }
        if !pg_sys::ConditionalLockRelation(relation, EXCLUSIVE) {
            return Ok(false);
        }
        // Before we had the lock, somebody may have filled it.
        if !is_unused(relation) {
            return Ok(false);
        }
        compat::set_new_file(relation, persistence);
        let toast = (*(*relation).rd_rel).reltoastrelid;
        if toast != pg_sys::InvalidOid {
            let toast = pg_sys::table_open(toast, EXCLUSIVE);
            compat::set_new_file(toast, persistence);
            pg_sys::table_close(toast, NO_LOCK);
        }
        pg_sys::CommandCounterIncrement();
        compat::reindex_relation(relid, pg_sys::REINDEX_REL_PROCESS_TOAST.cast_signed());
    }
    Ok(true)
}

/// Empty, and nobody else in this session uses it (CheckTableNotInUse, tablecmds.c).
///
/// # Safety
/// An open relation.
unsafe fn is_unused(relation: pg_sys::Relation) -> bool {
    // SAFETY: the caller vouches for the relation; guarded calls.
    unsafe {
        pg_sys::RelationGetNumberOfBlocksInFork(relation, MAIN) == 0
            && (*relation).rd_refcnt == if (*relation).rd_isnailed { 2 } else { 1 }
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
