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
//! only in T2. Its errors are caught as a whole, are written to the log as in any session, and end the transaction. T1
//! is flushed, although the rows do not need that: if a load crashes the server at once, the queue must show that it
//! ran.
//!
//! Cancel requests are served until T2 ends. Afterwards the row must record the end of the job, and a late request must
//! not affect the next job.

mod failure;
mod run_job;
pub mod succession;

use std::ffi::CString;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use self::failure::record_failure;
use self::run_job::Statement;
use self::succession::{Successor, WorkerWord};
use super::job::{Claimed, Figures};
use super::{EXTENSION, Queue, force_settings};
use crate::error::{Error, OrRaise, Result};
use crate::load::{Load, settings};
use crate::server::attempt::attempt_logged;
use crate::server::background::{self, ActiveSnapshot, begin_transaction, in_transaction};
use crate::server::lock::{Mode, ObjectLock, Until};
use crate::server::lookup::{extension_named, now, relation_names};
use crate::server::points::point;
use crate::server::server_text::from_server;
use crate::server::unguarded::{self as c, guarded};
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
    /// That of the transaction of the load.
    snapshot: Option<ActiveSnapshot>,
    pub load: *mut Load,
    /// The session's lock_timeout.
    lock_timeout: CString,
    /// Time at which its process was started, or went on to the job.
    pub began: pg_sys::TimestampTz,
    pub process: Successor,
}

/// Entry point of a worker.
///
/// # Safety
/// Called in a background worker that the dispatcher has started.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pg_bulk_job_main(job: pg_sys::Datum) {
    // A plain frame: nothing here has a destructor.
    // SAFETY: the process keeps its job, and the next one takes its place. Nothing else uses a job meanwhile.
    unsafe {
        let id = job.value() as i64;
        let job = guarded(|| begin(id).map_or(std::ptr::null_mut(), |job| Box::into_raw(Box::new(job))));
        let Some(job) = job.as_mut() else { return };
        loop {
            let error = attempt_logged(|| work(job));
            if let Some(error) = error.as_ref() {
                guarded(|| record_failure(job, error));
                return;
            }
            if !guarded(|| go_on(job)) {
                return;
            }
        }
    }
}

/// Connects, locks and claims the job. None if there is nothing to do. Guarded.
fn begin(id: i64) -> Option<Job> {
    let [database, owner, _, places, place] = background::numbers();
    let owner = pg_sys::Oid::from_u32(owner);
    // An invalid OID would make the session a superuser's.
    if owner == pg_sys::InvalidOid {
        return None;
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
    lock_and_claim(id, lock_timeout, background::started(), process)
}

/// Replaces a job that has succeeded by the next job of this process. False if this process has no further job.
/// Guarded.
fn go_on(job: &mut Job) -> bool {
    let Some(id) = job.process.next(&job.queue, job.claimed.id) else { return false };
    background::set(c"role", c"none");
    background::rename(&name(id));
    let process = Successor { ..job.process };
    match lock_and_claim(id, job.lock_timeout.clone(), now(), process) {
        Some(next) => {
            *job = next;
            true
        }
        None => false,
    }
}

/// Overrides settings of the owner and the database that would change the behavior of the job. Returns lock_timeout,
/// which applies to the load only.
fn override_settings() -> CString {
    let lock_timeout = CString::new(background::lock_timeout().to_string()).unwrap_or_default();
    // The job's state must be recorded after an error, too.
    force_settings(&[(c"exit_on_error", c"off")]);
    background::set(c"role", c"none");
    lock_timeout
}

/// Locks and claims the job. None if there is nothing to do. Guarded.
fn lock_and_claim(id: i64, lock_timeout: CString, began: pg_sys::TimestampTz, process: Successor) -> Option<Job> {
    let [_, owner, table, ..] = background::numbers().map(pg_sys::Oid::from_u32);
    let (queue, claimed) = claim(id, owner, table)?;
    background::set(c"application_name", &name(id));
    Some(Job {
        queue,
        claimed,
        statement: None,
        snapshot: None,
        load: std::ptr::null_mut(),
        lock_timeout,
        began,
        process,
    })
}

fn name(id: i64) -> CString {
    CString::new(format!("pg_bulk job {id}")).unwrap_or_default()
}

fn claim(id: i64, owner: pg_sys::Oid, table: pg_sys::Oid) -> Option<(Queue, Claimed)> {
    let queue = in_transaction(|| {
        let extension = extension_named(EXTENSION);
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
unsafe fn work(job: &mut Job) {
    // SAFETY: the frame is plain. The job's load lives as long as the transaction.
    unsafe {
        guarded(|| begin_load(job).or_raise());
        run_job::run(job);
        pg_sys::CurrentMemoryContext = pg_sys::TopTransactionContext;
        // The last user code. After it, no code can change the state that the commit depends on, or wait for the job's
        // row.
        c::AfterTriggerFireDeferred();
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
        guarded(|| record_success(job, &figures).or_raise());
        c::CommitTransactionCommand();
        guarded(end_load);
    }
}

/// Begins the transaction of a load, and its settings. Guarded.
fn begin_load(job: &mut Job) -> Result<()> {
    point!("job.begins");
    background::load_session_libraries();
    job.snapshot = Some(begin_transaction());
    let statement = job.statement.insert(Statement::of(&job.claimed, job.queue.schema));
    background::report_activity(Some(statement.text.clone()));
    background::set_local(c"lock_timeout", &job.lock_timeout);
    for pair in job.claimed.settings.chunks_exact(2) {
        if let [name, value] = pair {
            background::set(name, value);
        }
    }
    let settings = settings::of_options(&job.claimed.options)?;
    job.process.is_changed = !settings.is_empty();
    settings::apply(&settings);
    check_target(&job.claimed)
}

/// Raises unless the OID is still that of the intended table, or the row comes from another database.
fn check_target(job: &Claimed) -> Result<()> {
    let is_same = relation_names(job.target).is_some_and(|(schema, name)| schema == job.schema && name == job.name);
    if is_same {
        return Ok(());
    }
    let name = format!("{}.{}", from_server(&job.schema), from_server(&job.name));
    let error = Error::new(Code::ERRCODE_UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"));
    Err(error.detail("The table was dropped, renamed or moved since the job was enqueued."))
}

/// Records the success of a job after its load, before its commit. Guarded.
fn record_success(job: &mut Job, figures: &Figures) -> Result<()> {
    user_code::look_away();
    point!("job.loaded");
    background::set_local(c"synchronous_commit", c"on");
    background::set_local(c"lock_timeout", c"0");
    job.queue.succeed(job.claimed.id, job.claimed.attempt, figures)?;
    job.snapshot.take().into_iter().for_each(ActiveSnapshot::end);
    job.load = std::ptr::null_mut();
    Ok(())
}

/// Guarded.
fn end_load() {
    background::hold_cancels();
    point!("job.committed");
    background::report_statistics(true);
    background::report_activity(None);
}
