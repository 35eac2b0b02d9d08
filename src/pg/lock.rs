//! Heavyweight locks on objects of our own.
//!
//! Their tags are `LOCKTAG_OBJECT`, which no SQL command takes for these classes and no SQL function releases: unlike
//! advisory locks, neither `pg_advisory_unlock_all` nor DISCARD ALL of a trigger can let go of one.
//!
//! Two things about locks of the session are not what one expects. A transaction that is aborted takes them all with it;
//! who goes on has to take them again. And the server does not release them when a process exits outside of a
//! transaction: the next process that gets the same entry of the process array would hold them. Hence
//! [`release_at_exit`].

use std::ffi::c_int;

use pgrx::{pg_guard, pg_sys};

/// What is locked: an object of the current database, or one that all databases share.
#[derive(Debug, Clone, Copy)]
pub struct ObjectLock(pg_sys::LOCKTAG);

/// They exclude each other as the server's modes of these names do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Mode {
    AccessShare = 1,
    RowExclusive = 3,
    ShareUpdateExclusive = 4,
    Share = 5,
    Exclusive = 7,
}

/// When a lock ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    TransactionEnd,
    SessionEnd,
}

impl ObjectLock {
    /// `class` is the OID of the catalog or table that the object is in.
    pub fn new(class: pg_sys::Oid, object: u32, part: u16) -> ObjectLock {
        // SAFETY: a variable of this process, set when it connects.
        ObjectLock::within(unsafe { pg_sys::MyDatabaseId }, class, object, part)
    }

    /// `class` is the OID of a catalog that all databases share.
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

    /// Wait for it, and take it. Guarded, and interruptible; a deadlock is an error.
    pub fn take(&self, mode: Mode, until: Until) {
        // SAFETY: a guarded call with a valid tag.
        unsafe { pg_sys::LockAcquire(&raw const self.0, mode as i32, until == Until::SessionEnd, false) };
    }

    /// Take it if it is free for this mode. Guarded.
    pub fn try_take(&self, mode: Mode, until: Until) -> bool {
        // SAFETY: a guarded call with a valid tag.
        let result = unsafe { pg_sys::LockAcquire(&raw const self.0, mode as i32, until == Until::SessionEnd, true) };
        result != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
    }

    /// Let go of it. Guarded.
    pub fn release(&self, mode: Mode, until: Until) {
        // SAFETY: a guarded call with a valid tag.
        unsafe { pg_sys::LockRelease(&raw const self.0, mode as i32, until == Until::SessionEnd) };
    }

    /// Is nobody in the way of this mode, now? Guarded; in a transaction.
    pub fn is_free(&self, mode: Mode) -> bool {
        let free = self.try_take(mode, Until::TransactionEnd);
        if free {
            self.release(mode, Until::TransactionEnd);
        }
        free
    }

    /// The process that holds it in `Exclusive` mode. Guarded; not cheap.
    pub fn holder(&self) -> Option<i32> {
        // SAFETY: a guarded call; the array has as many elements as it says, and lives in the current memory context.
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

/// Release locks of the session when this process exits, after its transaction is aborted: to be called before it
/// connects. Guarded.
pub fn release_at_exit() {
    // SAFETY: a guarded call with a callback that is there as long as the library. Callbacks are called in reverse.
    unsafe { pg_sys::before_shmem_exit(Some(release_all), pg_sys::Datum::from(0usize)) }
}

/// Called when the process exits.
#[pg_guard]
extern "C-unwind" fn release_all(_code: c_int, _argument: pg_sys::Datum) {
    // SAFETY: a guarded call in a process that has an entry yet, and no transaction any more.
    unsafe { pg_sys::LockReleaseAll(pg_sys::DEFAULT_LOCKMETHOD as pg_sys::LOCKMETHODID, true) }
}

/// The process entry of `pid`, null if there is none. It stays where it is when that process is gone. Guarded.
pub fn process(pid: i32) -> *mut pg_sys::PGPROC {
    // SAFETY: a guarded call.
    unsafe { pg_sys::BackendPidGetProc(pid) }
}
