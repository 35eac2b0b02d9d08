//! Calls a function before the executor runs a query: ExecutorRun_hook, which lost an argument in 18.

use std::sync::OnceLock;

use pgrx::pg_sys;

/// A function that inspects a query before it runs to its end.
///
/// # Safety
/// A plain frame; a query that has been started.
pub type Look = unsafe extern "C-unwind" fn(query: *mut pg_sys::QueryDesc);

static LOOK: OnceLock<Look> = OnceLock::new();
static PREVIOUS: OnceLock<pg_sys::ExecutorRun_hook_type> = OnceLock::new();

/// Makes the executor call `look` before it runs a query to its end. Called once, when the library is loaded.
pub fn install(look: Look) {
    if LOOK.set(look).is_ok() {
        // SAFETY: a variable of this process, which only the server's thread uses.
        unsafe {
            let _ = PREVIOUS.set(pg_sys::ExecutorRun_hook);
            pg_sys::ExecutorRun_hook = Some(run);
        }
    }
}

/// The function to call before a query that runs to its end.
fn look(direction: pg_sys::ScanDirection::Type, count: u64) -> Option<Look> {
    let is_whole = direction == pg_sys::ScanDirection::ForwardScanDirection && count == 0;
    LOOK.get().copied().filter(|_| is_whole)
}

#[cfg(not(feature = "pg18"))]
unsafe extern "C-unwind" {
    /// execMain.c. Runs a query; raises its errors.
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
    // SAFETY: the executor has started the query, which is about to run.
    unsafe {
        if let Some(look) = look(direction, count) {
            look(query);
        }
        match PREVIOUS.get().copied().flatten() {
            Some(previous) => previous(query, direction, count, execute_once),
            None => standard_ExecutorRun(query, direction, count, execute_once),
        }
    }
}

#[cfg(feature = "pg18")]
unsafe extern "C-unwind" {
    /// execMain.c. Runs a query; raises its errors.
    fn standard_ExecutorRun(query: *mut pg_sys::QueryDesc, direction: pg_sys::ScanDirection::Type, count: u64);
}

/// # Safety
/// Called by the executor.
#[cfg(feature = "pg18")]
unsafe extern "C-unwind" fn run(query: *mut pg_sys::QueryDesc, direction: pg_sys::ScanDirection::Type, count: u64) {
    // A plain frame: nothing here has a destructor.
    // SAFETY: the executor has started the query, which is about to run.
    unsafe {
        if let Some(look) = look(direction, count) {
            look(query);
        }
        match PREVIOUS.get().copied().flatten() {
            Some(previous) => previous(query, direction, count),
            None => standard_ExecutorRun(query, direction, count),
        }
    }
}
