//! What a transaction does once it is committed: wake a sleeping process, or have a worker started.
//!
//! The tricky point is that an error at that moment stops the server. So everything is made ready before; then there are
//! two calls to choose from, neither of which raises or allocates. pgrx's own callbacks are not used: they would
//! outlive a PREPARE TRANSACTION and fire at some later commit of the session.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering::Relaxed};

use pgrx::memcxt::PgMemoryContexts;
use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::background::Worker;
use super::lock;
use super::unguarded::{self as c, Opaque};
use crate::error::Error;

/// Something is to be done at the commit.
static ARMED: AtomicBool = AtomicBool::new(false);
/// Whom to wake, and its pid when that was settled: the entry may have another owner by the time of the commit.
static SLEEPER: AtomicPtr<pg_sys::PGPROC> = AtomicPtr::new(std::ptr::null_mut());
static PID: AtomicI32 = AtomicI32::new(0);
/// Whom to start if there is nobody to wake. Not null once the callback is registered.
static WORKER: AtomicPtr<pg_sys::BackgroundWorker> = AtomicPtr::new(std::ptr::null_mut());

/// When this transaction commits, wake `sleeper`, or start `worker` if there is no such process (any more). Guarded.
pub fn wake_or_start(sleeper: Option<i32>, worker: &Worker) {
    let process = sleeper.map_or(std::ptr::null_mut(), lock::process);
    let place = WORKER.load(Relaxed);
    // SAFETY: the worker lives as long as the process, and nobody else looks at it now; a guarded call, once a session.
    unsafe {
        if place.is_null() {
            let place = PgMemoryContexts::TopMemoryContext.leak_and_drop_on_delete(worker.raw());
            WORKER.store(place, Relaxed);
            pg_sys::RegisterXactCallback(Some(at_transaction_end), std::ptr::null_mut());
        } else {
            *place = worker.raw();
        }
    }
    SLEEPER.store(process, Relaxed);
    PID.store(sleeper.unwrap_or(0), Relaxed);
    ARMED.store(true, Relaxed);
}

/// # Safety
/// Called by the server.
unsafe extern "C-unwind" fn at_transaction_end(event: pg_sys::XactEvent::Type, _argument: Opaque) {
    use pg_sys::XactEvent::{XACT_EVENT_ABORT, XACT_EVENT_COMMIT, XACT_EVENT_PRE_PREPARE, XACT_EVENT_PREPARE};
    if !ARMED.load(Relaxed) {
        return;
    }
    match event {
        XACT_EVENT_PRE_PREPARE => refuse(),
        XACT_EVENT_ABORT | XACT_EVENT_PREPARE => ARMED.store(false, Relaxed),
        XACT_EVENT_COMMIT => {
            ARMED.store(false, Relaxed);
            let process = SLEEPER.load(Relaxed);
            // SAFETY: process entries stay where they are, and a latch may be set whosever it is by now. The worker is
            // one that was made ready. Neither call raises or allocates.
            unsafe {
                if !process.is_null() && std::ptr::read_volatile(&raw const (*process).pid) == PID.load(Relaxed) {
                    c::SetLatch(&raw mut (*process).procLatch);
                } else {
                    c::RegisterDynamicBackgroundWorker(WORKER.load(Relaxed), std::ptr::null_mut());
                }
            }
        }
        _ => (),
    }
}

#[pg_guard]
extern "C-unwind" fn refuse() {
    let message = "cannot PREPARE a transaction that has changed the queue of pg_bulk";
    Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message).raise()
}
