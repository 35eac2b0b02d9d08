//! The append lock of a load: only its holder may request the relation extension lock.
//!
//! Members of a lock group jump the queue of an extension lock. While one member holds the lock, the server puts
//! another member that requests it ahead of all other processes: otherwise the group would wait for itself (ProcSleep,
//! proc.c). If all processes of a load requested the lock, other sessions would starve until the load ends. So the
//! processes of a load first queue for the append lock.
//!
//! The wait uses a condition variable, not an LWLock, because it must be interruptible.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::server::changed::Changed;

/// The append lock, in shared memory.
#[derive(Debug)]
#[repr(C)]
pub struct AppendLock {
    held: AtomicU32,
    passed: Changed,
}

/// The append lock is held by this process, until this guard is dropped.
#[derive(Debug)]
pub struct AppendLockGuard<'a> {
    lock: &'a AppendLock,
    /// Another process held the lock when this one asked for it.
    pub waited: bool,
}

impl AppendLock {
    /// Creates a free append lock. Guarded.
    pub fn new() -> AppendLock {
        AppendLock { held: AtomicU32::new(0), passed: Changed::new() }
    }

    /// Returns true if no process holds the lock now.
    #[inline]
    pub fn is_free(&self) -> bool {
        self.held.load(Ordering::Relaxed) == 0
    }

    /// Waits for the append lock and takes it. Guarded, and interruptible.
    pub fn take(&self) -> AppendLockGuard<'_> {
        let take = || self.held.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).ok();
        let waited = take().is_none();
        if waited {
            self.passed.wait_for(take);
        }
        AppendLockGuard { lock: self, waited }
    }
}

impl Drop for AppendLockGuard<'_> {
    fn drop(&mut self) {
        self.lock.held.store(0, Ordering::Release);
        self.lock.passed.announce_to_one();
    }
}
