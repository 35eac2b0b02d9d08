//! A job worker: runs a job in a session of its owner, and perhaps further ones (`succession`).
//!
//! ```text
//!   lock the extension, lock the job ─► claim: "running" ─► the load, "succeeded" ─► done
//!                                       (COMMIT, T1)        (COMMIT, T2)  └─ error ─► "failed" (COMMIT, T3)
//! ```
//!
//! The load is a statement of the server (`run_job`), so hooks of other libraries see it like any statement.
//!
//! Both locks are session locks. The job's lock is released after the load's commit; otherwise both are released when
//! the process exits, or when a transaction is aborted, so T3 (`failure`) takes the job's lock again. User code runs
//! only in T2, in plain frames (see `pg`). Its errors are caught as a whole, are written to the log as in any session,
//! and end the transaction. T1 is flushed, although the rows do not need that: if a load crashes the server at once,
//! the queue must show that it ran.
//!
//! Cancel requests are served until T2 ends. Afterwards the row must record the end of the job, and a late request must
//! not affect the next job.

mod failure;
mod run_job;
pub mod succession;

use std::ffi::CString;

use pgrx::memcxt::PgMemoryContexts;
use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use self::failure::record_failure;
use self::run_job::Statement;
use self::succession::{Successor, WorkerWord};
use super::job::{Claimed, Figures};
use super::{EXTENSION, Queue};
use crate::error::{Error, OrRaise};
use crate::load::{Load, settings};
use crate::server::attempt::attempt_logged;
use crate::server::background::{self, begin_transaction, in_transaction};
use crate::server::lock::{Mode, ObjectLock, Until};
use crate::server::lookup::{now, relation_names};
use crate::server::points::point;
use crate::server::server_text::from_server;
use crate::server::unguarded::{self as c, Opaque};
use crate::server::user_code;

/// How often a lock is tried that another session may hold for a moment, and the milliseconds in between.
pub const TRIES: u32 = 200;
const PAUSE: i64 = 5;

/// The job of this process.
#[derive(Debug)]
pub struct Job {
    pub queue: Queue,
    pub claimed: Claimed,
    /// The statement that runs the load, once it is known.
    pub statement: Option<Statement>,
    pub load: *mut Load,
    /// The session's lock_timeout.
    lock_timeout: CString,
    /// Time at which its process was started, or went on to the job.
    pub began: pg_sys::TimestampTz,
    /// Memory context of the job.
    memory: pg_sys::MemoryContext,
    pub process: Successor,
}

impl Job {
    /// Its load while it exists, or null.
    pub fn load(&self) -> *const Load {
        self.load
    }
}

/// Entry point of a worker.
///
/// # Safety
/// Called in a background worker that the dispatcher has started.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pg_bulk_job_main(job: pg_sys::Datum) {
    // A plain frame: nothing here has a destructor.
    // SAFETY: a job lives until the next one is begun.
    unsafe {
        let mut job = begin(job.value() as i64);
        while !job.is_null() {
            let error = attempt_logged(work, job.cast());
            if !error.is_null() {
                record_failure(job, error);
                return;
            }
            job = go_on(job);
        }
    }
}

/// Connects, locks and claims the job. Null if there is nothing to do.
#[pg_guard]
extern "C-unwind" fn begin(id: i64) -> *mut Job {
    let [database, owner, _, places, place] = background::numbers();
    let owner = pg_sys::Oid::from_u32(owner);
    // An invalid OID would make the session a superuser's.
    if owner == pg_sys::InvalidOid {
        return std::ptr::null_mut();
    }
    background::obey_signals();
    background::connect(pg_sys::Oid::from_u32(database), owner);
    let lock_timeout = override_settings();
    user_code::prepare();
    let process = Successor {
        place: WorkerWord::attach(places, place),
        jobs: 0,
        loaded: background::loaded(),
        is_changed: false,
    };
    // SAFETY: a variable of this process.
    let began = unsafe { pg_sys::MyStartTimestamp };
    lock_and_claim(id, lock_timeout, began, process)
}

/// Makes the next job of this process, if there is one. The last job is then freed.
///
/// # Safety
/// The job of this process, which has succeeded.
#[pg_guard]
unsafe extern "C-unwind" fn go_on(last: *mut Job) -> *mut Job {
    // SAFETY: this function's contract covers the argument; guarded calls. Only the activity report refers to the old
    // job.
    unsafe {
        let Job { queue, claimed, process, lock_timeout, memory, .. } = &mut *last;
        let Some(id) = process.next(queue, claimed.id) else { return std::ptr::null_mut() };
        let (lock_timeout, memory) = (lock_timeout.clone(), *memory);
        let process = Successor { ..*process };
        pg_sys::debug_query_string = std::ptr::null();
        pg_sys::MemoryContextDelete(memory);
        background::set(c"role", c"none");
        background::rename(&name(id));
        lock_and_claim(id, lock_timeout, now(), process)
    }
}

/// Overrides settings of the owner and the database that would change the behavior of the job. Returns lock_timeout,
/// which applies to the load only.
fn override_settings() -> CString {
    // SAFETY: a setting.
    let lock_timeout = CString::new(unsafe { pg_sys::LockTimeout }.to_string()).unwrap_or_default();
    let forced = [
        (c"default_transaction_isolation", c"read committed"),
        (c"default_transaction_read_only", c"off"),
        (c"default_transaction_deferrable", c"off"),
        (c"synchronous_commit", c"on"),
        // The job's state must be recorded however long that takes, and after an error, too.
        (c"lock_timeout", c"0"),
        (c"exit_on_error", c"off"),
    ];
    for (name, value) in forced {
        background::force(name, value);
    }
    background::take_time();
    background::set(c"role", c"none");
    lock_timeout
}

/// Locks and claims the job. Null if there is nothing to do.
fn lock_and_claim(id: i64, lock_timeout: CString, began: pg_sys::TimestampTz, process: Successor) -> *mut Job {
    let [_, owner, table, ..] = background::numbers().map(pg_sys::Oid::from_u32);
    // SAFETY: guarded calls; the claimed data live as long as the job, which is dropped with its memory.
    unsafe {
        let memory = pg_sys::AllocSetContextCreateExtended(
            pg_sys::TopMemoryContext,
            c"pg_bulk job".as_ptr(),
            pg_sys::ALLOCSET_SMALL_MINSIZE as usize,
            pg_sys::ALLOCSET_SMALL_INITSIZE as usize,
            pg_sys::ALLOCSET_SMALL_MAXSIZE as usize,
        );
        let Some((queue, claimed)) = claim(id, owner, table) else { return std::ptr::null_mut() };
        let name = name(id);
        background::set(c"application_name", &name);
        let load = std::ptr::null_mut();
        let job = Job { queue, claimed, statement: None, load, lock_timeout, began, memory, process };
        PgMemoryContexts::For(memory).leak_and_drop_on_delete(job)
    }
}

fn name(id: i64) -> CString {
    CString::new(format!("pg_bulk job {id}")).unwrap_or_default()
}

fn claim(id: i64, owner: pg_sys::Oid, table: pg_sys::Oid) -> Option<(Queue, Claimed)> {
    let queue = in_transaction(|| {
        let extension = EXTENSION.as_ptr();
        // SAFETY: a guarded catalog lookup in a transaction.
        let extension = unsafe { pg_sys::get_extension_oid(extension, true) };
        // Serializes this process and DROP EXTENSION.
        ObjectLock::new(pg_sys::ExtensionRelationId, extension.to_u32(), 0).take(Mode::AccessShare, Until::SessionEnd);
        Queue::of_database().or_raise().filter(|queue| queue.table == table)
    })?;
    if !take(&queue.job_lock(id), TRIES) {
        return None;
    }
    point!("job.locked");
    let claimed = in_transaction(|| {
        let claimed = queue.claim(id, owner).or_raise();
        point!("job.claimed");
        claimed
    })?;
    Some((queue, claimed))
}

/// Takes a session lock, with retries, because another process may hold it for a moment. False if it stays held.
pub fn take(lock: &ObjectLock, tries: u32) -> bool {
    (0..tries).any(|_| {
        let taken = lock.try_take(Mode::Exclusive, Until::SessionEnd);
        if !taken {
            background::sleep(PAUSE);
        }
        taken
    })
}

/// Runs the load: T2.
///
/// # Safety
/// A plain frame, and the job of this process.
unsafe extern "C-unwind" fn work(job: Opaque) {
    let job = job.cast::<Job>();
    // SAFETY: the job lives as long as the process; its load as long as the transaction.
    unsafe {
        begin_load(job);
        run_job::run(job);
        pg_sys::CurrentMemoryContext = pg_sys::TopTransactionContext;
        // The last user code. After it, no code can change the state that the commit depends on, or wait for the job's
        // row.
        c::AfterTriggerFireDeferred();
        record_success(job);
        (*job).load = std::ptr::null_mut();
        c::CommitTransactionCommand();
        end_load();
    }
}

/// # Safety
/// The job of this process.
#[pg_guard]
unsafe extern "C-unwind" fn begin_load(job: *mut Job) {
    // SAFETY: this function's contract covers the argument, which nothing else uses now; guarded calls.
    unsafe {
        let job = &mut *job;
        point!("job.begins");
        background::load_session_libraries();
        begin_transaction();
        let statement = job.statement.insert(Statement::of(&job.claimed, job.queue.schema));
        background::report_activity(Some(&statement.text));
        // Parallel workers show this text.
        pg_sys::debug_query_string = statement.text.as_ptr();
        background::set_local(c"lock_timeout", &job.lock_timeout);
        for pair in job.claimed.settings.chunks_exact(2) {
            if let [name, value] = pair {
                background::set(name, value);
            }
        }
        let settings = settings::of_options(&job.claimed.options).or_raise();
        job.process.is_changed = !settings.is_empty();
        settings::apply(&settings);
        check_target(&job.claimed).or_raise();
    }
}

/// Raises unless the OID is still that of the intended table, or the row comes from another database.
fn check_target(job: &Claimed) -> crate::error::Result<()> {
    let is_same = relation_names(job.target).is_some_and(|(schema, name)| schema == job.schema && name == job.name);
    if is_same {
        return Ok(());
    }
    let name = format!("{}.{}", from_server(&job.schema), from_server(&job.name));
    let error = Error::new(Code::ERRCODE_UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"));
    Err(error.detail("The table was dropped, renamed or moved since the job was enqueued."))
}

/// # Safety
/// The job of this process, after its load.
#[pg_guard]
unsafe extern "C-unwind" fn record_success(job: *mut Job) {
    // SAFETY: this function's contract covers the argument; guarded calls.
    unsafe {
        let job = &mut *job;
        user_code::look_away();
        point!("job.loaded");
        background::set_local(c"synchronous_commit", c"on");
        background::set_local(c"lock_timeout", c"0");
        let figures = {
            let counts = &(*job.load).measures.counts;
            Figures {
                loaded: counts.loaded,
                rejected: counts.rejected,
                duplicate: counts.duplicate,
                bytes_read: counts.bytes_read,
                workers: counts.workers,
            }
        };
        job.queue.succeed(job.claimed.id, job.claimed.attempt, &figures).or_raise();
        pg_sys::PopActiveSnapshot();
    }
}

#[pg_guard]
extern "C-unwind" fn end_load() {
    background::hold_cancels();
    point!("job.committed");
    // SAFETY: a guarded call outside of a transaction.
    unsafe { pg_sys::pgstat_report_stat(true) };
    background::report_activity(None);
}
