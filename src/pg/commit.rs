//! What a transaction does when it commits: wake a sleeping process, or have a worker started.
//!
//! A worker is started before the commit, while it can still be said that there is no slot for one; it waits for the end
//! of the transaction by itself ([`background::wait_for_starter`](super::background::wait_for_starter)), so that nothing
//! is left to be done afterwards. A process that sleeps is woken after the commit. The tricky point is that an error at
//! that moment stops the server: so everything is made ready before, and then there are two calls to choose from,
//! neither of which raises or allocates. pgrx's own callbacks are not used: they would outlive a PREPARE TRANSACTION and
//! fire at some later commit of the session.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};

use pgrx::memcxt::PgMemoryContexts;
use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::background::Worker;
use super::lock::{self, ObjectLock};
use super::points::point;
use super::unguarded::{self as c, Opaque};
use crate::error::Error;

/// Who is to learn of a commit.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Its holder is woken,
    pub lock: ObjectLock,
    /// or this one is started if there is none,
    pub worker: Worker,
    /// or the holder of this one is woken if there is no slot for a worker,
    pub substitute: ObjectLock,
    /// or this is called if there is nobody. Guarded.
    pub nobody: fn(),
}

/// What was settled before the commit.
#[derive(Debug)]
struct Settled {
    plan: Plan,
    /// Whom to wake, and its pid when that was settled: the entry may have another owner by the time of the commit.
    sleeper: *mut pg_sys::PGPROC,
    pid: i32,
    /// Whom to start if it has.
    worker: pg_sys::BackgroundWorker,
}

/// There is something to do at the commit.
static ARMED: AtomicBool = AtomicBool::new(false);
/// Not null once the callback is registered.
static SETTLED: AtomicPtr<Settled> = AtomicPtr::new(std::ptr::null_mut());

/// Do so when this transaction commits. The last plan counts. Guarded.
pub fn at_commit(plan: Plan) {
    let place = SETTLED.load(Relaxed);
    let settled = Settled { plan, sleeper: std::ptr::null_mut(), pid: 0, worker: plan.worker.raw() };
    // SAFETY: what is settled lives as long as the process, and nobody else looks at it now; a guarded call, once a
    // session.
    unsafe {
        if place.is_null() {
            SETTLED.store(PgMemoryContexts::TopMemoryContext.leak_and_drop_on_delete(settled), Relaxed);
            pg_sys::RegisterXactCallback(Some(at_transaction_end), std::ptr::null_mut());
        } else {
            *place = settled;
        }
    }
    ARMED.store(true, Relaxed);
}

/// # Safety
/// Called by the server.
unsafe extern "C-unwind" fn at_transaction_end(event: pg_sys::XactEvent::Type, _argument: Opaque) {
    use pg_sys::XactEvent::{
        XACT_EVENT_ABORT, XACT_EVENT_COMMIT, XACT_EVENT_PRE_COMMIT, XACT_EVENT_PRE_PREPARE, XACT_EVENT_PREPARE,
    };
    if !ARMED.load(Relaxed) {
        return;
    }
    match event {
        XACT_EVENT_PRE_PREPARE => refuse(),
        XACT_EVENT_PRE_COMMIT => settle(),
        XACT_EVENT_ABORT | XACT_EVENT_PREPARE => ARMED.store(false, Relaxed),
        XACT_EVENT_COMMIT => {
            ARMED.store(false, Relaxed);
            let settled = SETTLED.load(Relaxed);
            // SAFETY: it is there, since we are armed. Process entries stay where they are, and a latch may be set
            // whosever it is by now. The worker is one that was made ready. Neither call raises or allocates.
            unsafe {
                let sleeper = (*settled).sleeper;
                if sleeper.is_null() {
                    // Somebody was started, or nobody can be.
                } else if std::ptr::read_volatile(&raw const (*sleeper).pid) == (*settled).pid {
                    c::SetLatch(&raw mut (*sleeper).procLatch);
                } else {
                    c::RegisterDynamicBackgroundWorker(&raw mut (*settled).worker, std::ptr::null_mut());
                }
            }
        }
        _ => (),
    }
}

/// The transaction is about to commit.
#[pg_guard]
extern "C-unwind" fn settle() {
    // SAFETY: it is there, since we are armed, and nobody else looks at it now.
    let Some(settled) = (unsafe { SETTLED.load(Relaxed).as_mut() }) else { return };
    let plan = settled.plan;
    let mut sleeper = plan.lock.holder();
    if sleeper.is_none() {
        if let Some(handle) = plan.worker.after_this_transaction().start() {
            handle.free();
            point!("commit.started");
            return;
        }
        sleeper = plan.substitute.holder();
    }
    match sleeper {
        Some(pid) => (settled.sleeper, settled.pid) = (lock::process(pid), pid),
        None => (plan.nobody)(),
    }
}

#[pg_guard]
extern "C-unwind" fn refuse() {
    let message = "cannot PREPARE a transaction that has changed the queue of pg_bulk";
    Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message).raise()
}
