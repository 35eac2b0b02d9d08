//! Heavyweight locks on objects of pg_bulk.
//!
//! Their tags are `LOCKTAG_OBJECT`. No SQL command locks objects of these classes and no SQL function releases them.
//! Advisory locks, in contrast, could be released by `pg_advisory_unlock_all` or DISCARD ALL in a trigger.
//!
//! Session-level locks have two unexpected properties. An aborted transaction releases all of them, so a process that
//! continues must take them again. And the server does not release them when a process exits outside of a transaction:
//! the next process with the same entry of the process array would hold them. [`release_at_exit`] prevents that.

use std::ffi::c_int;

use pgrx::pg_sys;

use super::call::calls;
use super::database::database;
use super::handle::Handle;
use super::unguarded::guarded;

/// A lock on an object of the current database, or on a shared object.
#[derive(Debug, Clone, Copy)]
pub struct ObjectLock(pg_sys::LOCKTAG);

/// Lock modes; they conflict as the server's modes of these names do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Mode {
    AccessShare = 1,
    RowExclusive = 3,
    ShareUpdateExclusive = 4,
    Share = 5,
    Exclusive = 7,
}

/// Duration of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    TransactionEnd,
    SessionEnd,
}

impl ObjectLock {
    /// Creates a lock on an object of this database. `class` is the OID of its catalog or table.
    pub fn new(class: pg_sys::Oid, object: u32, part: u16) -> ObjectLock {
        ObjectLock::within(database(), class, object, part)
    }

    /// Creates a lock on a shared object. `class` is the OID of a shared catalog.
    pub fn shared(class: pg_sys::Oid, object: u32) -> ObjectLock {
        ObjectLock::within(pg_sys::InvalidOid, class, object, 0)
    }

    fn within(database: pg_sys::Oid, class: pg_sys::Oid, object: u32, part: u16) -> ObjectLock {
        ObjectLock(pg_sys::LOCKTAG {
            locktag_field1: database.to_u32(),
            locktag_field2: class.to_u32(),
            locktag_field3: object,
            locktag_field4: part,
            locktag_type: pg_sys::LockTagType::LOCKTAG_OBJECT as u8,
            locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
        })
    }

    /// Waits for the lock and takes it. Guarded, and interruptible; a deadlock is an error.
    pub fn take(&self, mode: Mode, until: Until) {
        self.acquire(mode, until, false);
    }

    fn acquire(&self, mode: Mode, until: Until, only_if_free: bool) -> pg_sys::LockAcquireResult::Type {
        // SAFETY: a guarded call with a valid tag.
        unsafe { pg_sys::LockAcquire(&raw const self.0, mode as i32, until == Until::SessionEnd, only_if_free) }
    }

    /// Takes the lock if that is possible without waiting. Guarded.
    pub fn try_take(&self, mode: Mode, until: Until) -> bool {
        self.acquire(mode, until, true) != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
    }

    /// Releases the lock. Guarded.
    pub fn release(&self, mode: Mode, until: Until) {
        // SAFETY: a guarded call with a valid tag.
        unsafe { pg_sys::LockRelease(&raw const self.0, mode as i32, until == Until::SessionEnd) };
    }

    /// Whether the lock is free for this mode now. Guarded; in a transaction.
    pub fn is_free(&self, mode: Mode) -> bool {
        let free = self.try_take(mode, Until::TransactionEnd);
        if free {
            self.release(mode, Until::TransactionEnd);
        }
        free
    }

    /// Returns the pid of the process that holds the lock in `Exclusive` mode. Slow: copies the lock table. Guarded.
    pub fn holder(&self) -> Option<i32> {
        // SAFETY: a guarded call; the array has `nelements` elements, and lives in the current memory context.
        unsafe {
            let data = pg_sys::GetLockStatusData();
            let locks = (*data).locks;
            let number = usize::try_from((*data).nelements).unwrap_or(0);
            (0..number)
                .map(|i| &*locks.add(i))
                .find(|lock| self.is(&lock.locktag) && lock.holdMask & (1 << Mode::Exclusive as i32) != 0)
                .map(|lock| lock.pid)
        }
    }

    fn is(&self, tag: &pg_sys::LOCKTAG) -> bool {
        let fields = |t: &pg_sys::LOCKTAG| {
            (t.locktag_field1, t.locktag_field2, t.locktag_field3, t.locktag_field4, t.locktag_type)
        };
        fields(&self.0) == fields(tag) && self.0.locktag_lockmethodid == tag.locktag_lockmethodid
    }
}

// SAFETY: an OID that no relation has can be locked, too.
calls! {
    /// Locks a relation to the end of the transaction. Guarded.
    pub fn lock_relation(relation: pg_sys::Oid, lock: u32) = LockRelationOid(relation, (lock.cast_signed()));
    /// Locks a relation like [`lock_relation`], if the lock is free. Guarded.
    pub fn try_lock_relation(relation: pg_sys::Oid, lock: u32) -> bool
        = ConditionalLockRelationOid(relation, (lock.cast_signed()));
}

/// Releases a lock on a relation that this transaction has taken. Guarded.
pub fn unlock_relation(relation: pg_sys::Oid, lock: u32) {
    // SAFETY: a guarded call.
    unsafe { pg_sys::UnlockRelationOid(relation, lock.cast_signed()) }
}

/// Releases session-level locks when this process exits, after its transaction is aborted. Must be called before the
/// process connects. Guarded.
pub fn release_at_exit() {
    // SAFETY: a guarded call; the callback exists as long as the library. Callbacks run in reverse order.
    unsafe { pg_sys::before_shmem_exit(Some(release_all), pg_sys::Datum::from(0usize)) }
}

/// Called when the process exits.
unsafe extern "C-unwind" fn release_all(_code: c_int, _argument: pg_sys::Datum) {
    // SAFETY: a plain frame. The process still has an entry, and no transaction.
    unsafe { guarded(|| pg_sys::LockReleaseAll(pg_sys::DEFAULT_LOCKMETHOD as pg_sys::LOCKMETHODID, true)) }
}

/// A process entry. It stays valid memory after the process has ended.
pub type Process = Handle<'static, pg_sys::PGPROC>;

// SAFETY: process entries are never freed.
calls! {
    /// Returns the process entry of `pid`, if there is such a process. Guarded.
    pub fn process(pid: i32) -> Option<Process> = BackendPidGetProc(pid);
}
