//! Makes sure that a dispatcher runs while there is work, and that it exits afterwards.
//!
//! Two locks keep any change of the queue from being missed. The dispatcher holds the *life* lock during its life. A
//! transaction that changes the queue takes the *gate* lock in share mode until its end. Before it commits, it looks
//! for the holder of *life*. After the commit it wakes that process, or starts one if no process holds it. Locks are
//! released after a commit is visible. So if the dispatcher gets *gate* in exclusive mode, every transaction that found
//! it alive has become visible. The dispatcher looks at the queue once more. If there is no work, it releases *life*
//! and then *gate*, in this order. A transaction that waited for *gate* meanwhile finds no dispatcher, and starts
//! another one.
//!
//! A dispatcher that is started before a commit ([`crate::server::commit`]) waits for the end of that transaction, and only
//! then tries to get *life*. If several sessions start dispatchers at once, one of these gets *life*. It may have
//! looked before the other transactions were visible. So each of the others, whose own transaction is visible, wakes it
//! and exits. If a dispatcher is killed after it was found alive, the postmaster restarts it a few seconds later.
//!
//! If there is no slot for a dispatcher, the committing session gets a warning. If the library is preloaded, it wakes
//! the launcher instead, which waits for a slot (`launcher`).

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::{Queue, launcher_lock};
use crate::error::Error;
use crate::server::background::{self, Worker};
use crate::server::commit::{self, Plan};
use crate::server::database::{database, is_upgrade};
use crate::server::lock::{Mode, Until};

/// Seconds until the postmaster restarts a dispatcher that failed.
const RESTART_AFTER: i32 = 5;

/// Arguments of a dispatcher that exits at once if there is no work.
pub const NO_LINGERING: [u32; 5] = [0, 0, 1, 0, 0];

/// The dispatcher of a database, as a background worker.
pub fn dispatcher(database: pg_sys::Oid) -> Worker {
    Worker::new("pg_bulk dispatcher", "pg_bulk dispatcher", c"pg_bulk_dispatcher_main", i64::from(database.to_u32()))
        .restarting_after(RESTART_AFTER)
}

fn own_dispatcher() -> Worker {
    dispatcher(database())
}

/// Warns that the committing transaction has work for a dispatcher, and that none can start.
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
    /// Makes a dispatcher look at the queue when this transaction commits. Guarded.
    pub fn look_at_commit(&self) {
        if !is_upgrade() {
            self.gate_lock().take(Mode::Share, Until::TransactionEnd);
            commit::at_commit(Plan {
                lock: self.life_lock(),
                worker: own_dispatcher(),
                substitute: launcher_lock(),
                nobody,
            });
        }
    }

    /// Makes sure that a dispatcher runs, because there is work. Guarded.
    pub fn look_now(&self) {
        if !is_upgrade()
            && self.life_lock().holder().is_none()
            && let Some(handle) = own_dispatcher().start()
        {
            handle.free();
        }
    }

    /// Makes this process the dispatcher. If there is one already, wakes that and returns false. Guarded.
    pub fn live(&self) -> bool {
        let lives = self.life_lock().try_take(Mode::Exclusive, Until::SessionEnd);
        if !lives && let Some(pid) = self.life_lock().holder() {
            background::wake(pid);
        }
        lives
    }

    /// Stops being the dispatcher, unless there is work. Guarded.
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
