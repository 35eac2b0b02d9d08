//! Background workers: starting them, and being one.
//!
//! pgrx's own wrapper is not used: its handler of SIGTERM sets a flag that nothing in the server looks at, so that a
//! worker in the middle of a load would not end before the load does. Here SIGTERM is what it is to a session: the next
//! interrupt that is served ends the process. No Rust frame is unwound then.

use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use pgrx::memcxt::PgMemoryContexts;
use pgrx::{PgSqlErrorCode as Code, check_for_interrupts, pg_sys};

use super::compat;
use super::lock;
use super::points::point;
use super::unguarded::{self as c, Opaque};

/// How many bytes of its starter's choice a worker gets, besides a number.
const EXTRA: usize = 20;

/// A worker that is to be started.
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
    /// A worker that runs `function` of this library, with a database connection to be made. `kind` is what
    /// pg_stat_activity calls it.
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

    /// The postmaster starts it again when it has failed, after so many seconds, or when the server has crashed.
    pub fn restarting_after(mut self, seconds: i32) -> Worker {
        self.0.bgw_restart_time = seconds;
        self
    }

    /// Our latch is set when it has started or ended.
    pub fn telling_us(mut self) -> Worker {
        // SAFETY: a variable of this process.
        self.0.bgw_notify_pid = unsafe { pg_sys::MyProcPid };
        self
    }

    /// Numbers for it.
    pub fn with(mut self, numbers: [u32; EXTRA / 4]) -> Worker {
        let bytes = numbers.iter().flat_map(|n| n.to_ne_bytes());
        for (to, from) in self.0.bgw_extra.iter_mut().zip(bytes) {
            *to = from as std::ffi::c_char;
        }
        self
    }

    /// It can wait for the end of our transaction ([`wait_for_starter`]). Takes its first two numbers.
    pub fn after_this_transaction(self) -> Worker {
        // SAFETY: variables of this process.
        let (pid, transaction) =
            unsafe { (pg_sys::MyProcPid, compat::virtual_transaction(pg_sys::MyProc).localTransactionId) };
        self.with([pid.cast_unsigned(), transaction, 0, 0, 0])
    }

    /// As the server knows it.
    pub fn raw(&self) -> pg_sys::BackgroundWorker {
        self.0
    }

    /// Have it started. None if there is no slot for it. Guarded.
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

    /// Have it started by the postmaster, which is what we are: while it loads preloaded libraries. Guarded.
    pub fn register(mut self) {
        // SAFETY: a guarded call that copies the worker.
        unsafe { pg_sys::RegisterBackgroundWorker(&raw mut self.0) }
    }
}

/// A worker that we have started.
#[derive(Debug)]
pub struct Handle(*mut pg_sys::BackgroundWorkerHandle);

impl Handle {
    fn status(&self) -> pg_sys::BgwHandleStatus::Type {
        let mut pid = 0;
        // SAFETY: a guarded call with a valid handle.
        unsafe { pg_sys::GetBackgroundWorkerPid(self.0, &raw mut pid) }
    }

    /// Has it ended? Guarded.
    pub fn has_ended(&self) -> bool {
        use pg_sys::BgwHandleStatus::{BGWH_NOT_YET_STARTED, BGWH_STARTED};
        !matches!(self.status(), BGWH_NOT_YET_STARTED | BGWH_STARTED)
    }

    /// Wake it, if it runs. Guarded.
    pub fn wake(&self) {
        let mut pid = 0;
        // SAFETY: a guarded call with a valid handle.
        let status = unsafe { pg_sys::GetBackgroundWorkerPid(self.0, &raw mut pid) };
        if status == pg_sys::BgwHandleStatus::BGWH_STARTED {
            wake(pid);
        }
    }

    /// Forget it. Guarded.
    pub fn free(self) {
        // SAFETY: allocated by the server, for whoever started the worker.
        unsafe { pg_sys::pfree(self.0.cast()) }
    }
}

/// The numbers that this worker was started with.
pub fn numbers() -> [u32; EXTRA / 4] {
    let mut numbers = [0; EXTRA / 4];
    // SAFETY: a background worker has an entry, which stays.
    let extra = unsafe { &(*pg_sys::MyBgworkerEntry).bgw_extra };
    for (number, bytes) in numbers.iter_mut().zip(extra.chunks_exact(4)) {
        let mut word = [0; 4];
        for (to, from) in word.iter_mut().zip(bytes) {
            *to = from.cast_unsigned();
        }
        *number = u32::from_ne_bytes(word);
    }
    numbers
}

/// Wait until the transaction has ended in which this worker was started, if it was ([`Worker::after_this_transaction`]):
/// then what it did can be seen. Guarded.
pub fn wait_for_starter() {
    let [pid, transaction, ..] = numbers();
    if pid == 0 {
        return;
    }
    let process = lock::process(pid.cast_signed());
    in_transaction(|| {
        // SAFETY: process entries stay where they are; a guarded call. A process that has ended, or has gone on to its
        // next transaction, is not waited for.
        unsafe {
            if let Some(process) = process.as_ref() {
                let waited_for = compat::virtual_transaction(process);
                if waited_for.localTransactionId == transaction {
                    pg_sys::VirtualXactLock(waited_for, true);
                }
            }
        }
    });
}

/// Wake another process, if it is still there. Guarded.
pub fn wake(pid: i32) {
    let process = lock::process(pid);
    if !process.is_null() {
        // SAFETY: process entries stay where they are, and a latch may be set whosever it is by now.
        unsafe { c::SetLatch(&raw mut (*process).procLatch) }
    }
}

/// Wake who started this worker and wanted to be told of it, if it is still there. Guarded.
pub fn wake_starter() {
    // SAFETY: a background worker has an entry, which stays.
    let pid = unsafe { (*pg_sys::MyBgworkerEntry).bgw_notify_pid };
    if pid != 0 {
        wake(pid);
    }
}

/// Obey signals. SIGINT is seen to already: it cancels. Guarded.
pub fn obey_signals() {
    // SAFETY: handlers of the server's own, in a process that has a latch.
    unsafe {
        compat::set_signal_handler(libc::SIGTERM, c::die);
        compat::set_signal_handler(libc::SIGHUP, c::SignalHandlerForConfigReload);
        pg_sys::BackgroundWorkerUnblockSignals();
    }
}

/// Become a session of `role`; of the superuser that the cluster was made by if that is invalid. Guarded; does not
/// return if that is not possible.
pub fn connect(database: pg_sys::Oid, role: pg_sys::Oid) {
    lock::release_at_exit();
    // SAFETY: a guarded call in a background worker that has no connection yet.
    unsafe { pg_sys::BackgroundWorkerInitializeConnectionByOid(database, role, compat::CONNECT_FLAGS) }
}

/// Become a process that sees the catalogs which all databases share, and no others. Guarded.
pub fn connect_to_none() {
    lock::release_at_exit();
    // SAFETY: as in `connect`.
    unsafe { pg_sys::BackgroundWorkerInitializeConnection(std::ptr::null(), std::ptr::null(), 0) }
}

static CONNECTING: AtomicBool = AtomicBool::new(false);
/// The SQLSTATE of what was said last while this process connected.
static SAID: AtomicI32 = AtomicI32::new(0);

/// As [`connect`], in a worker that the postmaster starts again when it has failed. A database that is gone will not come
/// back; so if that is why we cannot connect, it is no failure. Guarded.
pub fn connect_or_give_up(database: pg_sys::Oid) {
    CONNECTING.store(true, Ordering::Relaxed);
    // SAFETY: guarded calls with callbacks that are there as long as the library. The context stays where it is, since an
    // error that leaves this frame is raised again with it.
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

/// Called while a message is made.
unsafe extern "C-unwind" fn listen(_argument: Opaque) {
    // SAFETY: within an error context callback; raises nothing there.
    SAID.store(unsafe { c::geterrcode() }, Ordering::Relaxed);
}

/// Called when the process exits, after it has let go of everything shared.
unsafe extern "C-unwind" fn give_up(_code: c_int, _argument: pg_sys::Datum) {
    // It is not there, or nobody may connect to it.
    let gone = [Code::ERRCODE_INVALID_CATALOG_NAME as i32, Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE as i32];
    if CONNECTING.load(Ordering::Relaxed) && gone.contains(&SAID.load(Ordering::Relaxed)) {
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) }
    }
}

/// End this process as one that has failed, so that the postmaster starts it again after a while. Guarded.
pub fn come_back_later() -> ! {
    compat::proc_exit(1)
}

/// A setting that this session begins with, whatever its role and database have. Guarded.
pub fn force(name: &CStr, value: &CStr) {
    // SAFETY: a guarded call with strings.
    unsafe {
        pg_sys::SetConfigOption(
            name.as_ptr(),
            value.as_ptr(),
            pg_sys::GucContext::PGC_SUSET,
            pg_sys::GucSource::PGC_S_OVERRIDE,
        );
    }
}

/// Serve no requests to cancel until [`serve_cancels`]: they are not about what this process does now. Guarded.
pub fn hold_cancels() {
    // SAFETY: a variable of this process.
    unsafe { pg_sys::QueryCancelHoldoffCount += 1 }
}

/// Forget those that came, and serve them again. Guarded.
pub fn serve_cancels() {
    // SAFETY: variables of this process. Signals that were sent are delivered when a system call returns.
    unsafe {
        libc::getppid();
        std::ptr::write_volatile(&raw mut pg_sys::QueryCancelPending, 0);
        pg_sys::QueryCancelHoldoffCount -= 1;
    }
}

/// Load the libraries that `session_preload_libraries` and `local_preload_libraries` name, as every session does and no background worker. Their
/// hooks then see what they see in a session of the same role. Guarded.
pub fn load_session_libraries() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !DONE.swap(true, Ordering::Relaxed) {
        // SAFETY: a guarded call. It loads each library once.
        unsafe { pg_sys::process_session_preload_libraries() }
    }
}

/// When the server's settings were loaded.
pub fn loaded() -> pg_sys::TimestampTz {
    // SAFETY: a variable of this process.
    unsafe { pg_sys::PgReloadTime }
}

/// Were they loaded again since, or are they to be?
pub fn has_reloaded(since: pg_sys::TimestampTz) -> bool {
    // SAFETY: variables of this process, one of which a signal handler sets.
    unsafe { std::ptr::read_volatile(&raw const pg_sys::ConfigReloadPending) != 0 || loaded() != since }
}

/// Begin the session anew, as DISCARD ALL does: what was forced or set by role and database remains. Guarded.
pub fn start_over() {
    in_transaction(|| {
        let mut statement =
            pg_sys::DiscardStmt { type_: pg_sys::NodeTag::T_DiscardStmt, target: pg_sys::DiscardMode::DISCARD_ALL };
        // SAFETY: a valid statement; outside of a transaction block.
        unsafe { c::guard(|| c::DiscardCommand(&raw mut statement, true)) }
    });
}

/// What ps calls this process. Guarded.
pub fn rename(name: &CStr) {
    // SAFETY: a guarded call with a string, which is copied.
    unsafe { pg_sys::init_ps_display(name.as_ptr()) }
}

/// Let no transaction of this session be ended for its length. Guarded.
pub fn take_time() {
    if compat::HAS_TRANSACTION_TIMEOUT {
        force(c"transaction_timeout", c"0");
    }
}

/// A setting of this session, as SET makes it. Guarded.
pub fn set(name: &CStr, value: &CStr) {
    let source = pg_sys::GucSource::PGC_S_SESSION;
    // SAFETY: a guarded call with strings.
    unsafe { pg_sys::SetConfigOption(name.as_ptr(), value.as_ptr(), pg_sys::GucContext::PGC_USERSET, source) };
}

/// A setting until the end of the transaction, as SET LOCAL makes it. Guarded.
pub fn set_local(name: &CStr, value: &CStr) {
    // SAFETY: a guarded call with strings, in a transaction.
    unsafe {
        pg_sys::set_config_option(
            name.as_ptr(),
            value.as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
            pg_sys::GucAction::GUC_ACTION_LOCAL,
            true,
            0,
            false,
        );
    }
}

/// Begin a transaction, with a snapshot. Guarded.
pub fn begin_transaction() {
    // SAFETY: guarded calls outside of a transaction. now() is the statement's timestamp.
    unsafe {
        pg_sys::SetCurrentStatementStartTimestamp();
        pg_sys::StartTransactionCommand();
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
    }
}

/// Do `work` in a transaction of its own. Guarded.
pub fn in_transaction<T>(work: impl FnOnce() -> T) -> T {
    begin_transaction();
    let result = work();
    // SAFETY: guarded calls in the transaction that was begun.
    unsafe {
        pg_sys::PopActiveSnapshot();
        pg_sys::CommitTransactionCommand();
        pg_sys::pgstat_report_stat(false);
    }
    result
}

/// Show in pg_stat_activity what is going on. Guarded.
pub fn report_activity(what: Option<&CStr>) {
    let (state, text) = match what {
        Some(what) => (pg_sys::BackendState::STATE_RUNNING, what.as_ptr()),
        None => (pg_sys::BackendState::STATE_IDLE, std::ptr::null()),
    };
    // SAFETY: a guarded call with a string, which is copied.
    unsafe { pg_sys::pgstat_report_activity(state, text) }
}

/// Sleep until the latch is set, or so long; serve interrupts. Was it set? Guarded.
pub fn pause(milliseconds: i64) -> bool {
    let events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    // SAFETY: guarded calls on this process's latch.
    let event = unsafe {
        let event = pg_sys::WaitLatch(pg_sys::MyLatch, events.cast_signed(), milliseconds, pg_sys::PG_WAIT_EXTENSION);
        pg_sys::ResetLatch(pg_sys::MyLatch);
        event
    };
    check_for_interrupts!();
    event.cast_unsigned() & pg_sys::WL_LATCH_SET != 0
}

/// The same in a background worker, which reads settings that have changed. Guarded.
pub fn sleep(milliseconds: i64) -> bool {
    let woken = pause(milliseconds);
    // SAFETY: a flag that a signal handler sets, and a guarded call.
    unsafe {
        if std::ptr::read_volatile(&raw const pg_sys::ConfigReloadPending) != 0 {
            pg_sys::ConfigReloadPending = 0;
            pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP);
        }
    }
    woken
}
