//! A job whose load has failed.
//!
//! The transaction of the load is rolled back, and with it the lock on the job, which is taken again. Should the dispatcher
//! have taken the job for lost in between, it is run again; that is none the worse, since by then nothing is left of the
//! first time. What is recorded has the rows that the load rejected, too, but not at any price: they are written in a
//! subtransaction, and so is the history.

use std::ffi::{CStr, CString};

use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::Queue;
use super::job::{Claimed, End, Failure};
use super::worker::{Job, take};
use crate::error::{Error, OrRaise};
use crate::load::history;
use crate::load::rejects::table::write_spooled;
use crate::load::{self, Fate};
use crate::pg::attempt::in_subtransaction;
use crate::pg::background::{self, in_transaction};
use crate::pg::points::point;
use crate::pg::server_text::from_server;
use crate::pg::unguarded::{self as c, Opaque, guard};

/// How often the job's lock is tried: if it is not recorded that the job has failed, it runs again.
const TRIES: u32 = 2_000;

/// Seconds until a job is tried again: doubled each time, up to the last.
const FIRST_DELAY: f64 = 1.0;
const LAST_DELAY: f64 = 300.0;

/// What is recorded: T3.
///
/// # Safety
/// The job of this process, and the error that was caught.
#[pg_guard]
pub unsafe extern "C-unwind" fn record_failure(job: *mut Job, error: *mut pg_sys::ErrorData) {
    // SAFETY: this function's contract covers both arguments; guarded calls. What PostgresMain (postgres.c) does after an error, for those
    // things that a load can leave behind; from here on requests to cancel are not served.
    unsafe {
        let job = &*job;
        // Before the load is gone. The error may be that there is no memory, and what there is of it is had again behind the abort.
        let mut files = load::fate(job.load());
        guard(|| c::disable_all_timeouts(false));
        pg_sys::QueryCancelHoldoffCount += 1;
        pg_sys::InterruptHoldoffCount += 1;
        pg_sys::AbortCurrentTransaction();
        pg_sys::InterruptHoldoffCount -= 1;
        point!("job.aborted");
        if !take(&job.queue.job_lock(job.claimed.id), TRIES) {
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
        if let Some(files) = &mut files {
            files.blame(&failure.sqlstate, failure.context.as_deref().unwrap_or_default());
        }
        let end = match end((*error).sqlerrcode, &job.claimed) {
            // Whoever has asked for that since does not want to see it again.
            End::Queued(_) if std::ptr::read_volatile(&raw const pg_sys::QueryCancelPending) != 0 => End::Canceled,
            end => end,
        };
        in_transaction(|| {
            let Claimed { id, attempt, .. } = job.claimed;
            if job.queue.fail(id, attempt, end, &failure).or_raise() {
                let rejected = keep_rejects(&job.queue, id);
                remember(job, end, &failure, rejected, files.as_ref());
            }
        });
        background::report_activity(None);
        job.process.leave();
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
    // SAFETY: this function's contract covers the argument.
    unsafe { *rejected.cast::<u64>() = written }
}

/// The history has attempts that failed, too; but on the same terms. Guarded.
fn remember(job: &Job, end: End, failure: &Failure, rejected: u64, files: Option<&Fate>) {
    let Claimed { id, attempt, path, schema, name, .. } = &job.claimed;
    let mut failed = Remembered(
        job.queue.schema,
        history::Failed {
            id: *id,
            attempt: *attempt,
            path,
            schema,
            name,
            started: job.began,
            rejected,
            status: if matches!(end, End::Canceled) { c"canceled" } else { c"failed" },
            sqlstate: &failure.sqlstate,
            message: &failure.message,
            files,
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
    // SAFETY: this function's contract covers the argument.
    let Remembered(schema, failed) = unsafe { &*failed.cast::<Remembered>() };
    history::record_failed(*schema, failed);
}

/// # Safety
/// A string, or null.
unsafe fn text(string: *const std::ffi::c_char) -> Option<CString> {
    // SAFETY: this function's contract covers the argument.
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
