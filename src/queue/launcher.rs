//! The launcher: with a preloaded library, queues go on when the server starts, and when a standby becomes a primary.
//!
//! It asks each database by way of a dispatcher, which leaves again if there is nothing to do, and waits for its answer
//! before it asks the next: the slots of workers are few, and databases may be many. Then it sleeps, in a slot of its
//! own, until a transaction that has changed a queue finds no slot for a dispatcher (`wake`): it asks them all again, and
//! waits for slots as long as it takes. Whoever wakes it looks it up by the lock that it holds.

use pgrx::{pg_guard, pg_sys};

use super::wake::{NO_LINGERING, dispatcher, may_start};
use crate::pg::background::{self, Worker, in_transaction};
use crate::pg::database::databases;
use crate::pg::lock::{Mode, ObjectLock, Until};

/// Milliseconds between two looks at a dispatcher, and how many looks it is given before it is taken to have work.
const LOOK_EVERY: i64 = 20;
const LOOKS: u32 = 100;
/// Milliseconds until it is tried again to start one.
const RETRY: i64 = 1_000;
const RESTART_AFTER: i32 = 60;
/// Milliseconds that it sleeps at a time.
const LONGEST: i64 = 3_600_000;

/// Called when the library is loaded. Guarded.
pub fn init() {
    // SAFETY: a variable of this process.
    if unsafe { pg_sys::process_shared_preload_libraries_in_progress } && may_start() {
        Worker::new("pg_bulk launcher", "pg_bulk launcher", c"pg_bulk_launcher_main", 0)
            .restarting_after(RESTART_AFTER)
            .register();
    }
}

/// Held, in exclusive mode, by the launcher as long as it lives.
pub fn lock() -> ObjectLock {
    ObjectLock::shared(pg_sys::ExtensionRelationId, 0)
}

/// Entry point of the launcher.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pg_bulk_launcher_main(_argument: pg_sys::Datum) {
    background::obey_signals();
    background::connect_to_none();
    lock().take(Mode::Exclusive, Until::SessionEnd);
    loop {
        let mut woken = false;
        for database in in_transaction(databases) {
            woken |= ask(database);
        }
        // Who wakes us in the middle may mean a database that has been asked already.
        while !woken {
            woken = background::sleep(LONGEST);
        }
    }
}

/// Start a dispatcher, and wait until it has left or settled down. Were we woken meanwhile?
fn ask(database: pg_sys::Oid) -> bool {
    let mut woken = false;
    let handle = loop {
        match dispatcher(database).with(NO_LINGERING).start() {
            Some(handle) => break handle,
            None => woken |= background::sleep(RETRY),
        }
    };
    for _ in 0..LOOKS {
        if handle.has_ended() {
            break;
        }
        woken |= background::sleep(LOOK_EVERY);
    }
    handle.free();
    woken
}
