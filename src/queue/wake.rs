//! A dispatcher whenever there is something to do, and none otherwise.
//!
//! Two locks see to it that no change of the queue goes unnoticed. The dispatcher holds *life* for as long as it is there.
//! Who changes the queue takes *gate* in share mode to the end of the transaction, and then looks for the holder of
//! *life*: that process is to be woken at the commit, or if there is none, one is to be started. Locks are released after
//! a commit is visible. So if the dispatcher gets *gate* in exclusive mode, then every change that knew of it can be seen:
//! it looks once more, and if there is nothing, lets go of *life* and then of *gate*, in this order. Who waited for
//! *gate* meanwhile finds nobody, and starts another one.
//!
//! What is to be done at the commit is settled before it: see [`crate::pg::commit`]. Should several sessions start a
//! dispatcher at once, one of these gets *life* and the others leave. Should a dispatcher be killed after it was found
//! alive, the postmaster starts it again a few seconds later.

use pgrx::pg_sys;

use super::Queue;
use crate::pg::background::Worker;
use crate::pg::commit;
use crate::pg::lock::{Mode, Until};

/// Seconds after which the postmaster starts a dispatcher again that failed.
const RESTART_AFTER: i32 = 5;

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

impl Queue {
    /// This transaction changes the queue; when it commits, a dispatcher looks. Guarded.
    pub fn look_at_commit(&self) {
        if may_start() {
            self.gate_lock().take(Mode::Share, Until::TransactionEnd);
            commit::wake_or_start(self.life_lock().holder(), &own_dispatcher());
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

    /// Become the dispatcher, if there is none. Guarded.
    pub fn live(&self) -> bool {
        self.life_lock().try_take(Mode::Exclusive, Until::SessionEnd)
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
