//! The launcher: with a preloaded library, queues go on when the server starts, and when a standby becomes a primary.
//!
//! It asks each database by way of a dispatcher, which leaves again if there is nothing to do, and waits for its answer
//! before it asks the next: the slots of workers are few, and databases may be many.

use pgrx::{pg_guard, pg_sys};

use super::wake::{dispatcher, may_start};

use crate::pg::background::{self, Worker, in_transaction};
use crate::pg::database::databases;

/// Milliseconds between two looks at a dispatcher, and how many looks it is given before it is taken to have work.
const LOOK_EVERY: i64 = 50;
const LOOKS: u32 = 40;
/// Milliseconds until it is tried again to start one.
const RETRY: i64 = 1_000;
const RESTART_AFTER: i32 = 60;

/// Called when the library is loaded. Guarded.
pub fn init() {
    // SAFETY: a variable of this process.
    if unsafe { pg_sys::process_shared_preload_libraries_in_progress } && may_start() {
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
    for database in in_transaction(databases) {
        ask(database);
    }
}

/// Start a dispatcher, and wait until it has left or settled down.
fn ask(database: pg_sys::Oid) {
    let handle = loop {
        match dispatcher(database).telling_us().start() {
            Some(handle) => break handle,
            None => background::sleep(RETRY),
        }
    };
    for _ in 0..LOOKS {
        if handle.has_ended() {
            break;
        }
        background::sleep(LOOK_EVERY);
    }
    handle.free();
}
