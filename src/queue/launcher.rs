//! The launcher: with a preloaded library, continues queues when the server starts, and when a standby becomes a
//! primary.
//!
//! It starts a dispatcher in each database, one after the other, because worker slots are few and databases may be
//! many. Each dispatcher exits if it has no work; the launcher waits for that, or until it takes the dispatcher to be
//! busy. Then it sleeps, in its own worker slot, until a transaction that has changed a queue finds no slot for a
//! dispatcher (`wake`). It then visits all databases again, and waits for slots as long as necessary. A backend finds
//! the launcher to wake by the lock that it holds.

use pgrx::{pg_guard, pg_sys};

use super::launcher_lock;
use super::wake::{NO_LINGERING, dispatcher};
use crate::server::background::{self, Worker, in_transaction};
use crate::server::database::{databases, is_upgrade};
use crate::server::lock::{Mode, Until};

/// Milliseconds between two checks of a dispatcher, and the number of checks until it is taken to have work.
const LOOK_EVERY: i64 = 20;
const LOOKS: u32 = 100;
/// Milliseconds until it retries to start a dispatcher.
const RETRY: i64 = 1_000;
const RESTART_AFTER: i32 = 60;
/// Most milliseconds of one sleep.
const LONGEST: i64 = 3_600_000;

/// Called when the library is loaded. Guarded.
pub fn init() {
    if background::is_preloading() && !is_upgrade() {
        Worker::new("pg_bulk launcher", "pg_bulk launcher", c"pg_bulk_launcher_main", 0)
            .restarting_after(RESTART_AFTER)
            .register();
    }
}

/// Entry point of the launcher.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pg_bulk_launcher_main(_argument: pg_sys::Datum) {
    background::obey_signals();
    background::connect_to_none();
    launcher_lock().take(Mode::Exclusive, Until::SessionEnd);
    loop {
        let mut woken = false;
        for database in in_transaction(databases) {
            woken |= ask(database);
        }
        // A wake-up during the round may be about a database that has been visited already.
        while !woken {
            woken = background::sleep(LONGEST);
        }
    }
}

/// Starts a dispatcher, and waits until it has exited or is taken to have work. True if the launcher was woken
/// meanwhile.
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
