//! A condition variable in shared memory: waiters check again when shared data have changed.

use std::cell::UnsafeCell;

use pgrx::pg_sys;

/// Length of a nap in milliseconds.
const NAP: i64 = 10;

/// A condition variable, in shared memory.
#[derive(Debug)]
#[repr(transparent)]
pub struct Changed(UnsafeCell<pg_sys::ConditionVariable>);

// SAFETY: a condition variable is made to be shared.
unsafe impl Sync for Changed {}

impl Changed {
    /// Creates a condition variable without waiters. Guarded.
    pub fn new() -> Changed {
        let mut variable = pg_sys::ConditionVariable::default();
        // SAFETY: a valid condition variable without waiters.
        unsafe { pg_sys::ConditionVariableInit(&raw mut variable) };
        Changed(UnsafeCell::new(variable))
    }

    /// Wakes all waiters, so that they check again.
    pub fn announce(&self) {
        // SAFETY: a valid condition variable; raises nothing.
        unsafe { pg_sys::ConditionVariableBroadcast(self.0.get()) };
    }

    /// Wakes the waiter that has waited longest.
    pub fn announce_to_one(&self) {
        // SAFETY: a valid condition variable; raises nothing.
        unsafe { pg_sys::ConditionVariableSignal(self.0.get()) };
    }

    /// Waits until `answer` returns a value. Guarded, and interruptible.
    pub fn wait_for<T>(&self, answer: impl Fn() -> Option<T>) -> T {
        if let Some(answer) = answer() {
            return answer;
        }
        // SAFETY: guarded calls; the condition variable is valid and shared by all its users.
        unsafe {
            pg_sys::ConditionVariablePrepareToSleep(self.0.get());
            loop {
                if let Some(answer) = answer() {
                    pg_sys::ConditionVariableCancelSleep();
                    return answer;
                }
                pg_sys::ConditionVariableSleep(self.0.get(), pg_sys::PG_WAIT_EXTENSION);
            }
        }
    }

    /// Waits for a change for at most a few milliseconds. Guarded, and interruptible.
    pub fn nap(&self) {
        // SAFETY: as in `wait_for`.
        unsafe { pg_sys::ConditionVariableTimedSleep(self.0.get(), NAP, pg_sys::PG_WAIT_EXTENSION) };
    }
}
