//! Functions for processes, signals and transactions.

use std::ffi::{c_char, c_int};

use pgrx::pg_sys;

/// The handler that `pqsignal` takes.
pub type SignalHandler = unsafe extern "C-unwind" fn(c_int);

unsafe extern "C-unwind" {
    /// postgres.c. Handler of SIGTERM: ends the process at the next interrupt that is served.
    pub fn die(signal: c_int);
    /// interrupt.c. Handler of SIGHUP.
    pub fn SignalHandlerForConfigReload(signal: c_int);
    /// latch.c. Raises nothing.
    pub fn SetLatch(latch: *mut pg_sys::Latch);
    /// bgworker.c. Raises nothing for a worker that it has accepted before; without a handle it allocates nothing.
    pub fn RegisterDynamicBackgroundWorker(
        worker: *mut pg_sys::BackgroundWorker,
        handle: *mut *mut pg_sys::BackgroundWorkerHandle,
    ) -> bool;
    /// async.c.
    pub fn Async_Notify(channel: *const c_char, payload: *const c_char);
    /// trigger.c. To be called outside of any query.
    pub fn AfterTriggerFireDeferred();
    /// discard.c. To be called outside of a transaction block.
    pub fn DiscardCommand(statement: *mut pg_sys::DiscardStmt, is_top_level: bool);
    /// xact.c.
    pub fn CommitTransactionCommand();
    /// elog.c. Returns the SQLSTATE of the current message; only within an error context callback, where it raises
    /// nothing.
    pub fn geterrcode() -> c_int;
    /// elog.c. Writes the error that was just caught to the log.
    pub fn EmitErrorReport();
    /// timeout.c. Raises nothing.
    pub fn disable_all_timeouts(keep_indicators: bool);
}
