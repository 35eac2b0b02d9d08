//! A dispatcher whenever there is something to do, and none otherwise.
//!
//! Two locks see to it that no change of the queue goes unnoticed. The dispatcher holds *life* for as long as it is there.
//! Who changes the queue takes *gate* in share mode to the end of the transaction, and before it commits looks for the
//! holder of *life*: that process is woken after the commit, or if there is none, one is started. Locks are released
//! after a commit is visible. So if the dispatcher gets *gate* in exclusive mode, then every change that knew of it can be
//! seen: it looks once more, and if there is nothing, lets go of *life* and then of *gate*, in this order. Who waited for
//! *gate* meanwhile finds nobody, and starts another one.
//!
//! One that is started before a commit ([`crate::pg::commit`]) waits for the end of that transaction, and only then tries
//! for *life*. Should several sessions start a dispatcher at once, one of these gets *life*. It may have looked before the
//! others' transactions were visible; so each of the others, whose own transaction is, wakes it and leaves. Should a
//! dispatcher be killed after it was found alive, the postmaster starts it again a few seconds later.
//!
//! If there is no slot for a dispatcher, whoever commits is told so; or, where the library is preloaded, the launcher is
//! woken, which finds its way by itself (`launcher`).

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::Queue;
use super::launcher;
use crate::error::Error;
use crate::pg::background::{self, Worker};
use crate::pg::commit::{self, Plan};
use crate::pg::lock::{Mode, Until};

/// Seconds after which the postmaster starts a dispatcher again that failed.
const RESTART_AFTER: i32 = 5;

/// Numbers for a dispatcher that leaves at once if there is nothing to do.
pub const NO_LINGERING: [u32; 5] = [0, 0, 1, 0, 0];

/// A dispatcher for a database.
pub fn dispatcher(database: pg_sys::Oid) -> Worker {
    Worker::new("pg_bulk dispatcher", "pg_bulk dispatcher", c"pg_bulk_dispatcher_main", i64::from(database.to_u32()))
        .restarting_after(RESTART_AFTER)
}

/// pg_upgrade runs servers that must do nothing of their own.
pub fn may_start() -> bool {
    // SAFETY: a variable that is set when the server starts.
    !unsafe { pg_sys::IsBinaryUpgrade }
}

fn own_dispatcher() -> Worker {
    // SAFETY: a variable of this process.
    dispatcher(unsafe { pg_sys::MyDatabaseId })
}

/// The transaction that is about to commit has work for a dispatcher, and there will be none.
fn nobody() {
    Error::new(Code::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED, "out of background worker slots")
        .detail("The dispatcher of the queue requires a slot; jobs stay queued until it starts.")
        .hint(
            "Call one of the queue's functions, such as bulk_wait or bulk_resume, when there is a slot. You might need to \
             increase max_worker_processes.",
        )
        .warn();
}

impl Queue {
    /// This transaction changes the queue; when it commits, a dispatcher looks. Guarded.
    pub fn look_at_commit(&self) {
        if may_start() {
            self.gate_lock().take(Mode::Share, Until::TransactionEnd);
            commit::at_commit(Plan {
                lock: self.life_lock(),
                worker: own_dispatcher(),
                substitute: launcher::lock(),
                nobody,
            });
        }
    }

    /// There is something to do: make sure that there is a dispatcher. Guarded.
    pub fn look_now(&self) {
        if may_start()
            && self.life_lock().holder().is_none()
            && let Some(handle) = own_dispatcher().start()
        {
            handle.free();
        }
    }

    /// Become the dispatcher. If there is one already, it looks again. Guarded.
    pub fn live(&self) -> bool {
        let lives = self.life_lock().try_take(Mode::Exclusive, Until::SessionEnd);
        if !lives && let Some(pid) = self.life_lock().holder() {
            background::wake(pid);
        }
        lives
    }

    /// Stop being the dispatcher, unless there is something to do. Guarded.
    pub fn leave_unless(&self, something_to_do: impl FnOnce() -> bool) -> bool {
        if !self.gate_lock().try_take(Mode::Exclusive, Until::SessionEnd) {
            return false;
        }
        let leaves = !something_to_do();
        if leaves {
            self.life_lock().release(Mode::Exclusive, Until::SessionEnd);
        }
        self.gate_lock().release(Mode::Exclusive, Until::SessionEnd);
        leaves
    }
}
