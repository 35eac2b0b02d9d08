//! The append lock of a load: only its holder may request the relation extension lock.
//!
//! Members of a lock group jump the queue of an extension lock. While one member holds the lock, the server puts
//! another member that requests it ahead of all other processes: otherwise the group would wait for itself (ProcSleep,
//! proc.c). If all processes of a load requested the lock, other sessions would starve until the load ends. So the
//! processes of a load first queue for the append lock.
//!
//! The wait uses a condition variable, not an LWLock, because it must be interruptible.

use std::sync::atomic::{AtomicU32, Ordering};

use pgrx::pg_sys;

/// The append lock, in shared memory.
#[derive(Debug)]
#[repr(C)]
pub struct AppendLock {
    held: AtomicU32,
    passed: pg_sys::ConditionVariable,
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
        let mut lock = AppendLock { held: AtomicU32::new(0), passed: pg_sys::ConditionVariable::default() };
        // SAFETY: a valid condition variable without waiters.
        unsafe { pg_sys::ConditionVariableInit(&raw mut lock.passed) };
        lock
    }

    fn passed(&self) -> *mut pg_sys::ConditionVariable {
        (&raw const self.passed).cast_mut()
    }

    /// Returns true if no process holds the lock now.
    #[inline]
    pub fn is_free(&self) -> bool {
        self.held.load(Ordering::Relaxed) == 0
    }

    /// Waits for the append lock and takes it. Guarded, and interruptible.
    pub fn take(&self) -> AppendLockGuard<'_> {
        let take = || self.held.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let waited = !take();
        if waited {
            // SAFETY: guarded calls; the condition variable is valid and in memory that all its users share.
            unsafe {
                pg_sys::ConditionVariablePrepareToSleep(self.passed());
                while !take() {
                    pg_sys::ConditionVariableSleep(self.passed(), pg_sys::PG_WAIT_EXTENSION);
                }
                pg_sys::ConditionVariableCancelSleep();
            }
        }
        AppendLockGuard { lock: self, waited }
    }
}

impl Drop for AppendLockGuard<'_> {
    fn drop(&mut self) {
        self.lock.held.store(0, Ordering::Release);
        // SAFETY: as in `take`; raises nothing.
        unsafe { pg_sys::ConditionVariableSignal(self.lock.passed()) };
    }
}
