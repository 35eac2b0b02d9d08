//! Coming in before the executor runs a query: ExecutorRun_hook, which lost an argument in 18.

use std::sync::OnceLock;

use pgrx::pg_sys;

/// Runs a query to its end in its own way, and says so; or leaves it to the executor.
///
/// # Safety
/// A plain frame; a query that has been started.
pub type Take = unsafe extern "C-unwind" fn(query: *mut pg_sys::QueryDesc) -> bool;

static TAKE: OnceLock<Take> = OnceLock::new();
static PREVIOUS: OnceLock<pg_sys::ExecutorRun_hook_type> = OnceLock::new();

/// From now on `take` is asked of each query that is run to its end, before other hooks that are there already. Called once,
/// when the library is loaded.
pub fn install(take: Take) {
    if TAKE.set(take).is_ok() {
        // SAFETY: a variable of this process, which has one thread.
        unsafe {
            let _ = PREVIOUS.set(pg_sys::ExecutorRun_hook);
            pg_sys::ExecutorRun_hook = Some(run);
        }
    }
}

/// # Safety
/// A plain frame; a query that has been started, and is to be run to its end.
unsafe fn takes(query: *mut pg_sys::QueryDesc, direction: pg_sys::ScanDirection::Type, count: u64) -> bool {
    let to_the_end = direction == pg_sys::ScanDirection::ForwardScanDirection && count == 0;
    // SAFETY: the caller vouches for the query.
    to_the_end && TAKE.get().is_some_and(|take| unsafe { take(query) })
}

#[cfg(not(feature = "pg18"))]
unsafe extern "C-unwind" {
    /// execMain.c. Runs a query; raises what it has to say.
    fn standard_ExecutorRun(
        query: *mut pg_sys::QueryDesc,
        direction: pg_sys::ScanDirection::Type,
        count: u64,
        execute_once: bool,
    );
}

/// # Safety
/// Called by the executor.
#[cfg(not(feature = "pg18"))]
unsafe extern "C-unwind" fn run(
    query: *mut pg_sys::QueryDesc,
    direction: pg_sys::ScanDirection::Type,
    count: u64,
    execute_once: bool,
) {
    // A plain frame: nothing here has a destructor.
    // SAFETY: passed on.
    unsafe {
        if takes(query, direction, count) {
            return;
        }
        match PREVIOUS.get().copied().flatten() {
            Some(previous) => previous(query, direction, count, execute_once),
            None => standard_ExecutorRun(query, direction, count, execute_once),
        }
    }
}

#[cfg(feature = "pg18")]
unsafe extern "C-unwind" {
    /// execMain.c. Runs a query; raises what it has to say.
    fn standard_ExecutorRun(query: *mut pg_sys::QueryDesc, direction: pg_sys::ScanDirection::Type, count: u64);
}

/// # Safety
/// Called by the executor.
#[cfg(feature = "pg18")]
unsafe extern "C-unwind" fn run(query: *mut pg_sys::QueryDesc, direction: pg_sys::ScanDirection::Type, count: u64) {
    // A plain frame: nothing here has a destructor.
    // SAFETY: passed on.
    unsafe {
        if takes(query, direction, count) {
            return;
        }
        match PREVIOUS.get().copied().flatten() {
            Some(previous) => previous(query, direction, count),
            None => standard_ExecutorRun(query, direction, count),
        }
    }
}
