//! A worker: one job, in a session of its owner.
//!
//! ```text
//!   lock the extension, lock the job ─► claim: "running" ─► the load, "succeeded" ─► done
//!                                       (COMMIT, T1)        (COMMIT, T2)  └─ error ─► "failed" (COMMIT, T3)
//! ```
//!
//! Both locks are the session's: they go when the process goes, or when a transaction is aborted. So T3 takes the job's
//! lock again. Should the dispatcher have taken the job for lost in between, it is run again; that is none the worse,
//! since by then nothing is left of the first time. User code runs in T2 only, in plain frames (see
//! `pg`): its errors are caught whole, are written to the log as any session's, and end the transaction. T3 has the rows
//! that the load rejected, too, but not at any price: they are written in a subtransaction. T1 is
//! flushed, though to the rows it is all the same: a load that crashes the server at once must be seen to have run.
//!
//! Cancel requests are served up to the end of T2. Then the row has to say how it ended.

use std::ffi::{CStr, CString};

use pgrx::memcxt::PgMemoryContexts;
use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::job::{Claimed, End, Failure, Figures};
use super::{EXTENSION, Queue};
use crate::error::{Error, OrRaise};
use crate::load::history;
use crate::load::rejects::table::write_spooled;
use crate::load::{self, JobNumber, Load, Purpose};
use crate::pg::attempt::{attempt_logged, in_subtransaction};
use crate::pg::background::{self, begin_transaction, in_transaction};
use crate::pg::encoding::from_server;
use crate::pg::lock::{Mode, ObjectLock, Until};
use crate::pg::points::point;
use crate::pg::unguarded::{self as c, Opaque, guard};

/// How often a lock is tried that somebody may look at for a moment, and the milliseconds between.
const TRIES: u32 = 200;
/// The same for a job that has failed: if that is not recorded, it runs again.
const MORE_TRIES: u32 = 2_000;
const PAUSE: i64 = 5;

/// Seconds until a job is tried again: doubled each time, up to the last.
const FIRST_DELAY: f64 = 1.0;
const LAST_DELAY: f64 = 300.0;

/// The job of this process.
#[derive(Debug)]
struct Job {
    queue: Queue,
    claimed: Claimed,
    /// For pg_stat_activity and the log.
    described: CString,
    load: *mut Load,
    /// The session's lock_timeout.
    lock_timeout: CString,
}

/// Entry point of a worker.
///
/// # Safety
/// Called in a background worker that the dispatcher has started.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pg_bulk_job_main(job: pg_sys::Datum) {
    // A plain frame: nothing here has a destructor.
    // SAFETY: the job lives as long as the process.
    unsafe {
        let job = begin(job.value() as i64);
        if job.is_null() {
            return;
        }
        let error = attempt_logged(work, job.cast());
        if !error.is_null() {
            record_failure(job, error);
        }
    }
}

/// Connect, lock and claim. Null if there is nothing to do.
#[pg_guard]
extern "C-unwind" fn begin(id: i64) -> *mut Job {
    let [database, owner, table, _] = background::numbers();
    let owner = pg_sys::Oid::from_u32(owner);
    // That would be the superuser.
    if owner == pg_sys::InvalidOid {
        return std::ptr::null_mut();
    }
    background::obey_signals();
    background::connect(pg_sys::Oid::from_u32(database), owner);
    let lock_timeout = settle_settings();
    match lock_and_claim(id, owner, pg_sys::Oid::from_u32(table), lock_timeout) {
        Some(job) => PgMemoryContexts::TopMemoryContext.leak_and_drop_on_delete(job),
        None => std::ptr::null_mut(),
    }
}

/// The owner's and the database's settings are those of any session, but some would make something else of the job. The
/// one that counts for the load only is returned.
fn settle_settings() -> CString {
    // SAFETY: a setting.
    let lock_timeout = CString::new(unsafe { pg_sys::LockTimeout }.to_string()).unwrap_or_default();
    let forced = [
        (c"default_transaction_isolation", c"read committed"),
        (c"default_transaction_read_only", c"off"),
        (c"default_transaction_deferrable", c"off"),
        (c"synchronous_commit", c"on"),
        // What the job is and has become is to be written down however long that takes, and after an error, too.
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

fn lock_and_claim(id: i64, owner: pg_sys::Oid, table: pg_sys::Oid, lock_timeout: CString) -> Option<Job> {
    let queue = in_transaction(|| {
        let extension = EXTENSION.as_ptr();
        // SAFETY: a guarded catalog lookup in a transaction.
        let extension = unsafe { pg_sys::get_extension_oid(extension, true) };
        // DROP EXTENSION waits for us, or we for it.
        ObjectLock::new(pg_sys::ExtensionRelationId, extension.to_u32(), 0).take(Mode::AccessShare, Until::SessionEnd);
        Queue::of_database().or_raise().filter(|queue| queue.table == table)
    })?;
    if !take_job_lock(&queue, id, TRIES) {
        return None;
    }
    point!("job.locked");
    let claimed = in_transaction(|| {
        let claimed = queue.claim(id, owner).or_raise();
        point!("job.claimed");
        // SAFETY: a guarded call; what it copies outlives the transaction.
        claimed.map(|claimed| unsafe { claimed.keep() })
    })?;
    let name = CString::new(format!("pg_bulk job {id}")).unwrap_or_default();
    background::set(c"application_name", &name);
    let parts: [&CStr; 5] = [&name, c": load of \"", &claimed.path, c"\" into ", &claimed.name];
    let described = CString::new(parts.map(CStr::to_bytes).concat()).unwrap_or_default();
    Some(Job { queue, claimed, described, load: std::ptr::null_mut(), lock_timeout })
}

/// False if another process has it. Somebody who waits for the job may hold it for a moment.
fn take_job_lock(queue: &Queue, id: i64, tries: u32) -> bool {
    let lock = queue.job_lock(id);
    (0..tries).any(|_| {
        let taken = lock.try_take(Mode::Exclusive, Until::SessionEnd);
        if !taken {
            background::sleep(PAUSE);
        }
        taken
    })
}

/// The load: T2.
///
/// # Safety
/// A plain frame, and the job of this process.
unsafe extern "C-unwind" fn work(job: Opaque) {
    let job = job.cast::<Job>();
    // SAFETY: the job lives as long as the process; its load as long as the transaction.
    unsafe {
        begin_load(job);
        load::perform((*job).load);
        pg_sys::CurrentMemoryContext = pg_sys::TopTransactionContext;
        // The last of the user's code: after it nobody changes what the commit depends on, or waits for the job's row.
        c::AfterTriggerFireDeferred();
        record_success(job);
        c::CommitTransactionCommand();
        end_load();
    }
}

/// # Safety
/// The job of this process.
#[pg_guard]
unsafe extern "C-unwind" fn begin_load(job: *mut Job) {
    // SAFETY: the caller vouches for it, and nobody else looks at it now; guarded calls.
    unsafe {
        let job = &mut *job;
        point!("job.begins");
        background::report_activity(Some(&job.described));
        // Parallel workers show it.
        pg_sys::debug_query_string = job.described.as_ptr();
        begin_transaction();
        background::set_local(c"lock_timeout", &job.lock_timeout);
        for pair in job.claimed.settings.chunks_exact(2) {
            if let [name, value] = pair {
                background::set(name, value);
            }
        }
        check_target(&job.claimed).or_raise();
        let Claimed { path, target, options, .. } = &job.claimed;
        let number = JobNumber { id: job.claimed.id, attempt: job.claimed.attempt };
        job.load = load::begin(path, *target, *options, job.queue.schema, Purpose::Job(number));
    }
}

/// The OID is that of the table which was meant, unless the row comes from elsewhere.
fn check_target(job: &Claimed) -> crate::error::Result<()> {
    // SAFETY: guarded catalog lookups, and the strings that they return.
    let is_same = unsafe {
        let name = pg_sys::get_rel_name(job.target);
        let schema = pg_sys::get_namespace_name(pg_sys::get_rel_namespace(job.target));
        !name.is_null()
            && !schema.is_null()
            && CStr::from_ptr(name) == job.name.as_c_str()
            && CStr::from_ptr(schema) == job.schema.as_c_str()
    };
    if is_same {
        return Ok(());
    }
    let name = format!("{}.{}", from_server(&job.schema), from_server(&job.name));
    let error = Error::new(Code::ERRCODE_UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"));
    Err(error.detail("The table was dropped, renamed or moved since the job was enqueued."))
}

/// # Safety
/// The job of this process, whose load is performed.
#[pg_guard]
unsafe extern "C-unwind" fn record_success(job: *mut Job) {
    // SAFETY: the caller vouches for it; guarded calls.
    unsafe {
        let job = &mut *job;
        point!("job.loaded");
        background::set_local(c"synchronous_commit", c"on");
        background::set_local(c"lock_timeout", c"0");
        let figures = {
            let counts = &(*job.load).counts;
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
    point!("job.committed");
    // SAFETY: a guarded call outside of a transaction.
    unsafe { pg_sys::pgstat_report_stat(true) };
    background::report_activity(None);
}

/// The load has failed: T3.
///
/// # Safety
/// The job of this process, and the error that was caught.
#[pg_guard]
unsafe extern "C-unwind" fn record_failure(job: *mut Job, error: *mut pg_sys::ErrorData) {
    // SAFETY: the caller vouches for both; guarded calls. What PostgresMain (postgres.c) does after an error, for those
    // things that a load can leave behind; from here on requests to cancel are not served.
    unsafe {
        let job = &*job;
        guard(|| c::disable_all_timeouts(false));
        pg_sys::QueryCancelHoldoffCount += 1;
        pg_sys::InterruptHoldoffCount += 1;
        pg_sys::AbortCurrentTransaction();
        pg_sys::InterruptHoldoffCount -= 1;
        point!("job.aborted");
        if !take_job_lock(&job.queue, job.claimed.id, MORE_TRIES) {
            return;
        }
        point!("job.failed");
        let failure = Failure {
            sqlstate: sqlstate((*error).sqlerrcode),
            message: text((*error).message).unwrap_or_default(),
            detail: text((*error).detail),
            hint: text((*error).hint),
            context: text((*error).context),
        };
        let end = match end((*error).sqlerrcode, &job.claimed) {
            // Whoever has asked for that since does not want to see it again.
            End::Queued(_) if std::ptr::read_volatile(&raw const pg_sys::QueryCancelPending) != 0 => End::Canceled,
            end => end,
        };
        in_transaction(|| {
            let Claimed { id, attempt, .. } = job.claimed;
            if job.queue.fail(id, attempt, end, &failure).or_raise() {
                let rejected = keep_rejects(&job.queue, id);
                remember(job, end, &failure, rejected);
            }
        });
        background::report_activity(None);
    }
}

/// The rejects are there when the job has failed, and so many of them; but if they cannot be kept, that must not undo that
/// it has. Guarded.
fn keep_rejects(queue: &Queue, id: i64) -> u64 {
    let mut rejected = 0u64;
    // SAFETY: the body is a guard, and its argument lives as long; in a transaction. An error that is returned lives, too.
    let why = unsafe {
        let error = in_subtransaction(write_rejects, (&raw mut rejected).cast());
        (!error.is_null()).then(|| text((*error).message).unwrap_or_default())
    };
    if let Some(why) = why {
        Error::new(Code::ERRCODE_WARNING, format!("the rejected rows of job {id} could not be kept"))
            .detail(from_server(&why))
            .warn();
        queue.lost_rejects(id, &why).or_raise();
    } else if rejected > 0 {
        queue.set_rejected(id, rejected).or_raise();
        return rejected;
    }
    0
}

/// # Safety
/// Where to put how many there were.
#[pg_guard]
unsafe extern "C-unwind" fn write_rejects(rejected: Opaque) {
    let written = write_spooled().or_raise();
    // SAFETY: the caller vouches for it.
    unsafe { *rejected.cast::<u64>() = written }
}

/// The history has attempts that failed, too; but on the same terms. Guarded.
fn remember(job: &Job, end: End, failure: &Failure, rejected: u64) {
    let Claimed { id, attempt, path, schema, name, .. } = &job.claimed;
    let mut failed = Remembered(
        job.queue.schema,
        history::Failed {
            id: *id,
            attempt: *attempt,
            path,
            schema,
            name,
            // SAFETY: a variable of this process.
            started: unsafe { pg_sys::MyStartTimestamp },
            rejected,
            status: if matches!(end, End::Canceled) { c"canceled" } else { c"failed" },
            sqlstate: &failure.sqlstate,
            message: &failure.message,
        },
    );
    // SAFETY: the body is a guard, and its argument lives as long; in a transaction. An error that is returned lives, too.
    let why = unsafe {
        let error = in_subtransaction(write_history, (&raw mut failed).cast());
        (!error.is_null()).then(|| text((*error).message).unwrap_or_default())
    };
    if let Some(why) = why {
        Error::new(Code::ERRCODE_WARNING, format!("the history of job {id} could not be kept"))
            .detail(from_server(&why))
            .warn();
    }
}

/// The extension's schema, and what is to be told.
struct Remembered<'a>(pg_sys::Oid, history::Failed<'a>);

/// # Safety
/// A [`Remembered`].
#[pg_guard]
unsafe extern "C-unwind" fn write_history(failed: Opaque) {
    // SAFETY: the caller vouches for it.
    let Remembered(schema, failed) = unsafe { &*failed.cast::<Remembered>() };
    history::record_failed(*schema, failed);
}

/// # Safety
/// A string, or null.
unsafe fn text(string: *const std::ffi::c_char) -> Option<CString> {
    // SAFETY: the caller vouches for it.
    (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) }.to_owned())
}

/// `unpack_sql_state` (elog.c)
fn sqlstate(code: i32) -> CString {
    let letters: Vec<u8> = (0..5).map(|i| ((code >> (6 * i)) & 0x3f) as u8 + b'0').collect();
    CString::new(letters).unwrap_or_default()
}

/// What an error means for the job: some go away by themselves.
fn end(code: i32, job: &Claimed) -> End {
    let state = sqlstate(code);
    match state.to_bytes() {
        b"57014" => End::Canceled,
        state if is_transient(state) && job.more_attempts > 0 => {
            let before = job.tried - 1;
            End::Queued((FIRST_DELAY * f64::from(before.clamp(0, 30)).exp2()).min(LAST_DELAY))
        }
        _ => End::Failed,
    }
}

/// Deadlocks and serialization failures, everything that there was not enough of, an administrator's shutdown.
fn is_transient(sqlstate: &[u8]) -> bool {
    matches!(sqlstate, b"40001" | b"40P01" | b"57P01" | b"57P02" | b"57P03") || sqlstate.starts_with(b"53")
}
