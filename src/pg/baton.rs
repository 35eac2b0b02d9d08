//! The right to append, of which a load has one.
//!
//! The members of a lock group jump the queue of an extension lock: while one of them holds it, another one that asks
//! is put in front of every outsider, since the group would otherwise wait for itself (ProcSleep, proc.c). A load
//! whose processes all ask would starve everybody else until it ends. So they take turns among themselves first, and
//! only the one with the baton asks for the lock.
//!
//! Waiting is on a condition variable, not on an LWLock: the wait can be interrupted.

use std::sync::atomic::{AtomicU32, Ordering};

use pgrx::pg_sys;

/// The baton, in shared memory.
#[derive(Debug)]
#[repr(C)]
pub struct Baton {
    held: AtomicU32,
    passed: pg_sys::ConditionVariable,
}

/// The baton is ours; it is passed on when this is dropped.
#[derive(Debug)]
pub struct Held<'a> {
    baton: &'a Baton,
    /// Another process had it when we asked.
    pub waited: bool,
}

impl Baton {
    /// A baton that lies there. Guarded.
    pub fn new() -> Baton {
        let mut baton = Baton { held: AtomicU32::new(0), passed: pg_sys::ConditionVariable::default() };
        // SAFETY: a valid condition variable that nobody waits for.
        unsafe { pg_sys::ConditionVariableInit(&raw mut baton.passed) };
        baton
    }

    fn passed(&self) -> *mut pg_sys::ConditionVariable {
        (&raw const self.passed).cast_mut()
    }

    /// Would nobody have to be waited for now?
    #[inline]
    pub fn is_free(&self) -> bool {
        self.held.load(Ordering::Relaxed) == 0
    }

    /// Wait for the baton. Guarded, and interruptible.
    pub fn take(&self) -> Held<'_> {
        let take = || self.held.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let waited = !take();
        if waited {
            // SAFETY: guarded calls; the condition variable is valid and in memory that all who use it share.
            unsafe {
                pg_sys::ConditionVariablePrepareToSleep(self.passed());
                while !take() {
                    pg_sys::ConditionVariableSleep(self.passed(), pg_sys::PG_WAIT_EXTENSION);
                }
                pg_sys::ConditionVariableCancelSleep();
            }
        }
        Held { baton: self, waited }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.baton.held.store(0, Ordering::Release);
        // SAFETY: as in `take`; raises nothing.
        unsafe { pg_sys::ConditionVariableSignal(self.baton.passed()) };
    }
}
