//! Starts background workers, and implements the parts that run inside one.
//!
//! pgrx's wrapper is not used: its SIGTERM handler sets a flag that the server does not check. Such a worker would
//! finish its load before it exits. Here SIGTERM works as in a session: the next CHECK_FOR_INTERRUPTS ends the process.
//! No Rust frame is unwound then.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_int};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use pgrx::memcxt::PgMemoryContexts;
use pgrx::{PgSqlErrorCode as Code, check_for_interrupts, pg_sys};

use super::call::{calls, variables};
use super::compat;
use super::lock;
use super::points::point;
use super::role::set_option;
use super::unguarded::{self as c, Opaque};
use crate::error::Error;

/// Bytes of data that a worker receives from the process that starts it, besides a number.
const EXTRA: usize = 20;

/// A worker to be started.
#[derive(Debug, Clone, Copy)]
pub struct Worker(pg_sys::BackgroundWorker);

fn put(text: &[u8], into: &mut [std::ffi::c_char]) {
    // The last byte stays 0.
    let space = into.len().saturating_sub(1);
    for (to, from) in into.iter_mut().take(space).zip(text) {
        *to = *from as std::ffi::c_char;
    }
}

impl Worker {
    /// Describes a worker that runs `function` of this library and will connect to a database. pg_stat_activity shows
    /// `kind` as its backend type.
    pub fn new(name: &str, kind: &str, function: &CStr, argument: i64) -> Worker {
        let mut worker = pg_sys::BackgroundWorker::default();
        put(name.as_bytes(), &mut worker.bgw_name);
        put(kind.as_bytes(), &mut worker.bgw_type);
        put(b"$libdir/pg_bulk", &mut worker.bgw_library_name);
        put(function.to_bytes(), &mut worker.bgw_function_name);
        let flags = pg_sys::BGWORKER_SHMEM_ACCESS | pg_sys::BGWORKER_BACKEND_DATABASE_CONNECTION;
        worker.bgw_flags = flags.cast_signed();
        worker.bgw_start_time = pg_sys::BgWorkerStartTime::BgWorkerStart_RecoveryFinished;
        worker.bgw_restart_time = pg_sys::BGW_NEVER_RESTART;
        worker.bgw_main_arg = pg_sys::Datum::from(argument);
        Worker(worker)
    }

    /// Makes the postmaster restart the worker after a crash of the server, and `seconds` after a failure of the
    /// worker.
    pub fn restarting_after(mut self, seconds: i32) -> Worker {
        self.0.bgw_restart_time = seconds;
        self
    }

    /// Makes the server set this process's latch when the worker starts and when it ends.
    pub fn notifying_us(mut self) -> Worker {
        self.0.bgw_notify_pid = own_pid();
        self
    }

    /// Passes numbers to the worker.
    pub fn with(mut self, numbers: [u32; EXTRA / 4]) -> Worker {
        let bytes = numbers.iter().flat_map(|n| n.to_ne_bytes());
        for (to, from) in self.0.bgw_extra.iter_mut().zip(bytes) {
            *to = from as std::ffi::c_char;
        }
        self
    }

    /// Lets the worker wait for the end of the current transaction ([`wait_for_starter`]). Uses the first two numbers.
    pub fn after_this_transaction(self) -> Worker {
        // SAFETY: a process that is connected has its entry.
        let transaction = unsafe { compat::virtual_transaction(&*pg_sys::MyProc).localTransactionId };
        self.with([own_pid().cast_unsigned(), transaction, 0, 0, 0])
    }

    /// Returns the server's struct.
    pub fn raw(&self) -> pg_sys::BackgroundWorker {
        self.0
    }

    /// Asks the postmaster to start the worker. Returns None if no worker slot is free. Guarded.
    pub fn start(mut self) -> Option<Handle> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: guarded calls with a valid worker. The handle lives until it is freed.
        unsafe {
            let old = pg_sys::MemoryContextSwitchTo(pg_sys::TopMemoryContext);
            let started = pg_sys::RegisterDynamicBackgroundWorker(&raw mut self.0, &raw mut handle);
            pg_sys::MemoryContextSwitchTo(old);
            started.then_some(Handle(handle))
        }
    }

    /// Registers the worker while the postmaster loads preloaded libraries. Guarded.
    pub fn register(mut self) {
        // SAFETY: a guarded call that copies the worker.
        unsafe { pg_sys::RegisterBackgroundWorker(&raw mut self.0) }
    }
}

/// A worker that this process has started.
#[derive(Debug)]
pub struct Handle(*mut pg_sys::BackgroundWorkerHandle);

impl Handle {
    /// The status, and the pid of a worker that runs.
    fn status(&self) -> (pg_sys::BgwHandleStatus::Type, i32) {
        let mut pid = 0;
        // SAFETY: a guarded call with a valid handle.
        (unsafe { pg_sys::GetBackgroundWorkerPid(self.0, &raw mut pid) }, pid)
    }

    /// Returns true if the worker has ended. Guarded.
    pub fn has_ended(&self) -> bool {
        use pg_sys::BgwHandleStatus::{BGWH_NOT_YET_STARTED, BGWH_STARTED};
        !matches!(self.status().0, BGWH_NOT_YET_STARTED | BGWH_STARTED)
    }

    /// Wakes the worker, if it runs. Guarded.
    pub fn wake(&self) {
        if let (pg_sys::BgwHandleStatus::BGWH_STARTED, pid) = self.status() {
            wake(pid);
        }
    }

    /// Frees the handle; the worker goes on. Guarded.
    pub fn free(self) {
        // SAFETY: the handle was allocated by the server, for this process.
        unsafe { pg_sys::pfree(self.0.cast()) }
    }
}

variables! {
    fn own_pid() -> i32 = MyProcPid;
    fn cancel_pending() -> i32 = QueryCancelPending;
    fn reload_pending() -> i32 = ConfigReloadPending;
    /// Returns the time when the server's configuration was loaded.
    pub fn loaded() -> pg_sys::TimestampTz = PgReloadTime;
    /// Returns the time when this process was started.
    pub fn started() -> pg_sys::TimestampTz = MyStartTimestamp;
    /// Returns lock_timeout in milliseconds, 0 if locks may be waited for without limit.
    pub fn lock_timeout() -> i32 = LockTimeout;
    /// Whether the postmaster loads preloaded libraries.
    pub fn is_preloading() -> bool = process_shared_preload_libraries_in_progress;
}

/// The entry of this worker; None in other processes.
fn own_entry() -> Option<pg_sys::BackgroundWorker> {
    // SAFETY: a background worker has an entry for its whole life, which does not change.
    unsafe { pg_sys::MyBgworkerEntry.as_ref() }.copied()
}

/// Returns the pid of this process if it is a background worker.
pub fn worker_pid() -> Option<i32> {
    own_entry().map(|_| own_pid())
}

/// Returns the numbers that this worker was started with.
pub fn numbers() -> [u32; EXTRA / 4] {
    let mut numbers = [0; EXTRA / 4];
    let extra = own_entry().unwrap_or_default().bgw_extra;
    for (number, bytes) in numbers.iter_mut().zip(extra.chunks_exact(4)) {
        let mut word = [0; 4];
        for (to, from) in word.iter_mut().zip(bytes) {
            *to = from.cast_unsigned();
        }
        *number = u32::from_ne_bytes(word);
    }
    numbers
}

/// Waits for the end of the transaction that started this worker ([`Worker::after_this_transaction`]), so that its
/// changes are visible. Returns at once if the worker was started without that. Guarded.
pub fn wait_for_starter() {
    let [pid, transaction, ..] = numbers();
    if pid == 0 {
        return;
    }
    let process = lock::process(pid.cast_signed());
    in_transaction(|| {
        let waited_for = process.map(|process| compat::virtual_transaction(process.get()));
        // There is no wait for a process that has ended or is in its next transaction.
        if let Some(waited_for) = waited_for.filter(|its| its.localTransactionId == transaction) {
            wait_for_end(waited_for);
        }
    });
}

/// Wakes another process, if it still exists. Guarded.
pub fn wake(pid: i32) {
    if let Some(process) = lock::process(pid) {
        // SAFETY: process entries are never freed; setting the latch of the wrong process is harmless.
        unsafe { c::SetLatch(&raw mut (*process.as_ptr()).procLatch) }
    }
}

/// Cancels the work of a process and of its workers, as pg_cancel_backend does. False if it has exited.
pub fn cancel(pid: i32) -> bool {
    // SAFETY: a signal to a process of the server, which cancels its work on it.
    unsafe { libc::kill(-pid, libc::SIGINT) == 0 || libc::kill(pid, libc::SIGINT) == 0 }
}

/// Wakes the process that started this worker, if it asked for that and still exists. Guarded.
pub fn wake_starter() {
    if let Some(entry) = own_entry().filter(|entry| entry.bgw_notify_pid != 0) {
        wake(entry.bgw_notify_pid);
    }
}

/// Installs the signal handlers and unblocks signals. The server's SIGINT handler is already in place: it cancels.
/// Guarded.
pub fn obey_signals() {
    // SAFETY: the server's own handlers, in a process that has a latch.
    unsafe {
        compat::set_signal_handler(libc::SIGTERM, c::die);
        compat::set_signal_handler(libc::SIGHUP, c::SignalHandlerForConfigReload);
        pg_sys::BackgroundWorkerUnblockSignals();
    }
}

// SAFETY: functions for a background worker without a connection, and strings that are copied.
calls! {
    fn connect_by_oid(database: pg_sys::Oid, role: pg_sys::Oid, flags: u32)
        = BackgroundWorkerInitializeConnectionByOid(database, role, flags);
    fn connect_by_name(database: Option<&CStr>, role: Option<&CStr>, flags: u32)
        = BackgroundWorkerInitializeConnection(database, role, flags);
    fn set_for_session(name: &CStr, value: &CStr, context: pg_sys::GucContext::Type, source: pg_sys::GucSource::Type)
        = SetConfigOption(name, value, context, source);
    fn load_libraries() = process_session_preload_libraries();
    fn load_configuration() = ProcessConfigFile((pg_sys::GucContext::PGC_SIGHUP));
    fn wait_on_latch(events: u32, milliseconds: i64) -> i32
        = WaitLatch((pg_sys::MyLatch), (events.cast_signed()), milliseconds, (pg_sys::PG_WAIT_EXTENSION));
    /// Waits for this process's latch and for a descriptor. Guarded.
    pub fn wait_on_latch_or_socket(events: u32, descriptor: i32) -> i32
        = WaitLatchOrSocket((pg_sys::MyLatch), (events.cast_signed()), descriptor, (-1), (pg_sys::PG_WAIT_EXTENSION));
    /// Resets this process's latch. Guarded.
    pub fn reset_latch() = ResetLatch((pg_sys::MyLatch));
    fn has_snapshot() -> bool = ActiveSnapshotSet();
    fn pop_snapshot() = PopActiveSnapshot();
    fn wait_for_end(transaction: pg_sys::VirtualTransactionId) -> bool = VirtualXactLock(transaction, true);
    /// Reports the statistics of transactions that have ended; at once if `now`. Guarded, outside of a transaction.
    pub fn report_statistics(now: bool) -> i64 = pgstat_report_stat(now);
    /// Sets the title of this process in ps. Guarded.
    pub fn rename(name: &CStr) = init_ps_display(name);
}

/// Only a background worker has the entry that the server looks at when it connects, once.
fn require_worker() {
    if worker_pid().is_none() || processing_mode() != pg_sys::ProcessingMode::InitProcessing {
        Error::new(Code::ERRCODE_INTERNAL_ERROR, "this process is no background worker that can connect").raise();
    }
}

variables! {
    fn processing_mode() -> pg_sys::ProcessingMode::Type = Mode;
}

/// Connects to a database as `role`, or as the bootstrap superuser if `role` is invalid. Does not return on failure.
/// Guarded.
pub fn connect(database: pg_sys::Oid, role: pg_sys::Oid) {
    require_worker();
    lock::release_at_exit();
    connect_by_oid(database, role, compat::CONNECT_FLAGS);
}

/// Connects to no database: only shared catalogs can be read. Guarded.
pub fn connect_to_none() {
    require_worker();
    lock::release_at_exit();
    connect_by_name(None, None, 0);
}

static CONNECTING: AtomicBool = AtomicBool::new(false);
/// SQLSTATE of the latest message while this process connects.
static SAID: AtomicI32 = AtomicI32::new(0);

/// Connects like [`connect`], in a worker that the postmaster restarts after a failure. A missing database will not
/// come back, so the process then ends without a failure. Guarded.
pub fn connect_or_give_up(database: pg_sys::Oid) {
    CONNECTING.store(true, Ordering::Relaxed);
    // SAFETY: guarded calls; the callbacks exist as long as the library. The context callback stays allocated because
    // an error that leaves this frame is raised again with it.
    unsafe {
        pg_sys::on_proc_exit(Some(give_up), pg_sys::Datum::from(0usize));
        let previous = pg_sys::error_context_stack;
        let context = pg_sys::ErrorContextCallback { previous, callback: Some(listen), arg: std::ptr::null_mut() };
        pg_sys::error_context_stack = PgMemoryContexts::TopMemoryContext.leak_and_drop_on_delete(context);
        point!("dispatcher.connects");
        connect(database, pg_sys::InvalidOid);
        pg_sys::error_context_stack = previous;
    }
    CONNECTING.store(false, Ordering::Relaxed);
}

/// Error context callback: runs for each message.
unsafe extern "C-unwind" fn listen(_argument: Opaque) {
    // SAFETY: within an error context callback, geterrcode does not raise.
    SAID.store(unsafe { c::geterrcode() }, Ordering::Relaxed);
}

/// Called when the process exits, after it has released all shared resources.
unsafe extern "C-unwind" fn give_up(_code: c_int, _argument: pg_sys::Datum) {
    // The database does not exist, or does not accept connections.
    let gone = [Code::ERRCODE_INVALID_CATALOG_NAME as i32, Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE as i32];
    if CONNECTING.load(Ordering::Relaxed) && gone.contains(&SAID.load(Ordering::Relaxed)) {
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) }
    }
}

/// Ends this process with a failure, so that the postmaster restarts it later. Guarded.
pub fn come_back_later() -> ! {
    compat::proc_exit(1)
}

/// Overrides a setting for this session; settings of its role and database do not apply. Guarded.
pub fn force(name: &CStr, value: &CStr) {
    set_for_session(name, value, pg_sys::GucContext::PGC_SUSET, pg_sys::GucSource::PGC_S_OVERRIDE);
}

/// Holds cancel requests back until [`serve_cancels`]: they are not meant for the current work of this process.
/// Guarded.
pub fn hold_cancels() {
    // SAFETY: a variable that only the server's own thread uses; no signal handler writes it.
    unsafe { pg_sys::QueryCancelHoldoffCount += 1 }
}

/// Drops the cancel requests that arrived meanwhile, and accepts new ones. Guarded.
pub fn serve_cancels() {
    // SAFETY: variables of this process. Pending signals are delivered when a system call returns.
    unsafe {
        libc::getppid();
        std::ptr::write_volatile(&raw mut pg_sys::QueryCancelPending, 0);
        pg_sys::QueryCancelHoldoffCount -= 1;
    }
}

/// Whether a cancel request has arrived that was not served yet.
pub fn is_canceled() -> bool {
    cancel_pending() != 0
}

/// Aborts the transaction after an error, as PostgresMain (postgres.c) does for the state that a load can leave behind. From
/// here on cancel requests are held back. Guarded.
pub fn abort_transaction() {
    hold_cancels();
    // SAFETY: guarded calls, and a variable that only the server's own thread uses. The closure owns nothing.
    unsafe {
        c::guard(|| c::disable_all_timeouts(false));
        pg_sys::InterruptHoldoffCount += 1;
        pg_sys::AbortCurrentTransaction();
        pg_sys::InterruptHoldoffCount -= 1;
    }
}

/// Loads the libraries of `session_preload_libraries` and `local_preload_libraries`, which a session loads and a
/// background worker does not. Hooks of these libraries then run as in a session of the same role. Guarded.
pub fn load_session_libraries() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !DONE.swap(true, Ordering::Relaxed) {
        load_libraries();
    }
}

/// Returns true if the configuration was loaded again after `since`, or a reload is pending.
pub fn has_reloaded(since: pg_sys::TimestampTz) -> bool {
    reload_pending() != 0 || loaded() != since
}

/// Resets the session as DISCARD ALL does. Settings from [`force`], the role and the database remain. Guarded.
pub fn start_over() {
    in_transaction(|| {
        let mut statement =
            pg_sys::DiscardStmt { type_: pg_sys::NodeTag::T_DiscardStmt, target: pg_sys::DiscardMode::DISCARD_ALL };
        // SAFETY: a valid statement; outside of a transaction block.
        unsafe { c::guard(|| c::DiscardCommand(&raw mut statement, true)) }
    });
}

/// Disables transaction_timeout for this session. Guarded.
pub fn take_time() {
    if compat::HAS_TRANSACTION_TIMEOUT {
        force(c"transaction_timeout", c"0");
    }
}

/// Changes a setting of this session, as SET does. Guarded.
pub fn set(name: &CStr, value: &CStr) {
    set_for_session(name, value, pg_sys::GucContext::PGC_USERSET, pg_sys::GucSource::PGC_S_SESSION);
}

/// Changes a setting until the end of the transaction, as SET LOCAL does. Guarded.
pub fn set_local(name: &CStr, value: &CStr) {
    set_option(name, value, pg_sys::GucContext::PGC_USERSET, pg_sys::GucAction::GUC_ACTION_LOCAL);
}

/// The snapshot of a transaction that was begun.
#[derive(Debug)]
#[must_use]
pub struct ActiveSnapshot(());

impl ActiveSnapshot {
    /// Ends the use of the snapshot. Guarded.
    pub fn end(self) {
        // The end of the transaction has ended it, too.
        if has_snapshot() {
            pop_snapshot();
        }
    }
}

/// Begins a transaction, with a snapshot. Guarded.
pub fn begin_transaction() -> ActiveSnapshot {
    // SAFETY: guarded calls outside of a transaction. now() is the statement's timestamp.
    unsafe {
        pg_sys::SetCurrentStatementStartTimestamp();
        pg_sys::StartTransactionCommand();
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
    }
    ActiveSnapshot(())
}

/// Runs `work` in a transaction of its own. Handles cannot be sent, so none is the result; `work` must keep none elsewhere. Guarded.
pub fn in_transaction<T: Send>(work: impl FnOnce() -> T) -> T {
    let snapshot = begin_transaction();
    let result = work();
    snapshot.end();
    // SAFETY: a guarded call in the transaction that was begun.
    unsafe { pg_sys::CommitTransactionCommand() };
    report_statistics(false);
    result
}

thread_local! {
    /// The text of the statement that this process runs.
    static STATEMENT: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Shows the current statement in pg_stat_activity and in the log, and passes it to parallel workers. None shows an idle
/// process. Guarded.
pub fn report_activity(what: Option<CString>) {
    use pg_sys::BackendState::{STATE_IDLE, STATE_RUNNING};
    let state = if what.is_some() { STATE_RUNNING } else { STATE_IDLE };
    let text = what.as_ref().map_or(std::ptr::null(), |what| what.as_ptr());
    let before = STATEMENT.replace(what);
    // SAFETY: a variable of this process, and a guarded call with a string, which is copied. This process keeps the text
    // until another one is in the variable.
    unsafe {
        pg_sys::debug_query_string = text;
        pg_sys::pgstat_report_activity(state, text);
    }
    drop(before);
}

/// Sleeps until the latch is set or the time is over, and serves interrupts. Returns true if the latch was set.
/// Guarded.
pub fn pause(milliseconds: i64) -> bool {
    let events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    let event = wait_on_latch(events, milliseconds);
    reset_latch();
    check_for_interrupts!();
    event.cast_unsigned() & pg_sys::WL_LATCH_SET != 0
}

/// Sleeps like [`pause`] in a background worker, and reloads the configuration if that is pending. Guarded.
pub fn sleep(milliseconds: i64) -> bool {
    let woken = pause(milliseconds);
    if reload_pending() != 0 {
        // SAFETY: a flag that a signal handler sets.
        unsafe { pg_sys::ConfigReloadPending = 0 };
        load_configuration();
    }
    woken
}
