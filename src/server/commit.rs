//! Wakes a sleeping process when a transaction commits, or has a worker started.
//!
//! A worker is started before the commit, while a lack of worker slots can still be reported. It waits for the end of
//! the transaction itself ([`background::wait_for_starter`](super::background::wait_for_starter)), so nothing remains
//! to be done after the commit. A sleeping process is woken after the commit. The tricky point: an error at that moment
//! stops the server. So everything is prepared before the commit, and after it only one of two calls is made, neither
//! of which raises or allocates. pgrx's own callbacks are not used: they would outlive a PREPARE TRANSACTION and fire
//! at a later commit of the session.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};

use pgrx::memcxt::PgMemoryContexts;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::background::Worker;
use super::lock::{self, ObjectLock, Process};
use super::points::point;
use super::unguarded::{self as c, Opaque};
use crate::error::Error;

/// The process to be informed of a commit: the first of these that exists.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The holder of this lock is woken.
    pub lock: ObjectLock,
    /// Without a holder, this worker is started.
    pub worker: Worker,
    /// Without a free worker slot, the holder of this lock is woken.
    pub substitute: ObjectLock,
    /// Without such a holder, this function is called. Guarded.
    pub nobody: fn(),
}

/// Wakeup made just before the commit.
#[derive(Debug)]
struct Wakeup {
    plan: Plan,
    /// The process to wake, and its pid at the time of the decision: the entry may have another owner by the commit.
    sleeper: Option<Process>,
    pid: i32,
    /// The worker to start if the entry has another owner.
    worker: pg_sys::BackgroundWorker,
}

/// The current transaction has a plan.
static ARMED: AtomicBool = AtomicBool::new(false);
/// Not null once the callback is registered.
static WAKEUP: AtomicPtr<Wakeup> = AtomicPtr::new(std::ptr::null_mut());

/// Carries out `plan` when this transaction commits. A later plan replaces an earlier one. Guarded.
pub fn at_commit(plan: Plan) {
    let place = WAKEUP.load(Relaxed);
    let wakeup = Wakeup { plan, sleeper: None, pid: 0, worker: plan.worker.raw() };
    // SAFETY: the struct lives as long as the process, and has no other user now; a guarded call, once per session.
    unsafe {
        if place.is_null() {
            WAKEUP.store(PgMemoryContexts::TopMemoryContext.leak_and_drop_on_delete(wakeup), Relaxed);
            pg_sys::RegisterXactCallback(Some(at_transaction_end), std::ptr::null_mut());
        } else {
            *place = wakeup;
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
        // SAFETY: a plain frame.
        XACT_EVENT_PRE_PREPARE | XACT_EVENT_PRE_COMMIT => unsafe {
            c::guarded(|| {
                if event == XACT_EVENT_PRE_PREPARE {
                    let message = "cannot PREPARE a transaction that has changed the queue of pg_bulk";
                    Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message).raise();
                }
                choose_wakeup();
            })
        },
        XACT_EVENT_ABORT | XACT_EVENT_PREPARE => ARMED.store(false, Relaxed),
        XACT_EVENT_COMMIT => {
            ARMED.store(false, Relaxed);
            let wakeup = WAKEUP.load(Relaxed);
            // SAFETY: a plan exists, so WAKEUP is set. Process entries are never freed, and setting a wrong latch is
            // harmless. The worker was prepared. Neither call raises or allocates.
            unsafe {
                // Without a sleeper, the worker was started, or there is no process to wake.
                if let Some(sleeper) = (*wakeup).sleeper.map(Process::as_ptr) {
                    if std::ptr::read_volatile(&raw const (*sleeper).pid) == (*wakeup).pid {
                        c::SetLatch(&raw mut (*sleeper).procLatch);
                    } else {
                        c::RegisterDynamicBackgroundWorker(&raw mut (*wakeup).worker, std::ptr::null_mut());
                    }
                }
            }
        }
        _ => (),
    }
}

/// Decides which process to wake, just before the commit. Guarded.
fn choose_wakeup() {
    // SAFETY: a plan exists, so WAKEUP is set; it has no other user now.
    let Some(wakeup) = (unsafe { WAKEUP.load(Relaxed).as_mut() }) else { return };
    let plan = wakeup.plan;
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
        Some(pid) => (wakeup.sleeper, wakeup.pid) = (lock::process(pid), pid),
        None => (plan.nobody)(),
    }
}
