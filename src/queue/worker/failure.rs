//! Records the failure of a job's load.
//!
//! The load's transaction is rolled back, which releases the lock on the job, and the lock is taken again. If the
//! dispatcher finds the lock free in between, it takes the job for lost and requeues it. That is harmless, since
//! nothing is left of the first attempt by then. Rejects and history are written in subtransactions, so that an error
//! there does not undo the record of the failure.

use std::ffi::{CStr, CString};

use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::super::Queue;
use super::super::job::{AttemptEnd, Claimed, Failure};
use super::{Job, take};
use crate::error::{Error, OrRaise};
use crate::load::history;
use crate::load::rejects::table::write_spooled;
use crate::load::{self, Fate};
use crate::server::attempt::in_subtransaction;
use crate::server::background::{self, in_transaction};
use crate::server::points::point;
use crate::server::server_text::from_server;
use crate::server::unguarded::{self as c, Opaque, guard};

/// How often the job's lock is tried: a job whose failure is not recorded runs again.
const TRIES: u32 = 2_000;

/// Seconds until the next attempt: doubled for each attempt, up to [`LAST_DELAY`].
const FIRST_DELAY: f64 = 1.0;
const LAST_DELAY: f64 = 300.0;

/// Records the failure: T3.
///
/// # Safety
/// The job of this process, and the error that was caught, in a memory context that outlives the transaction.
#[pg_guard]
pub unsafe extern "C-unwind" fn record_failure(job: *mut Job, error: *mut pg_sys::ErrorData) {
    // SAFETY: this function's contract covers both arguments; guarded calls. As PostgresMain (postgres.c) after an
    // error, for the state that a load can leave behind; from here on cancel requests are not served.
    unsafe {
        let job = &*job;
        // Before the abort frees the load. Allocates nothing: the error may be a lack of memory, which the abort ends.
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
            // A cancel request since the error ends the job.
            AttemptEnd::Queued(_) if std::ptr::read_volatile(&raw const pg_sys::QueryCancelPending) != 0 => {
                AttemptEnd::Canceled
            }
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

/// Writes the rejects and their number after the job's failure. An error here must not undo the record of the failure.
/// Guarded.
fn keep_rejects(queue: &Queue, id: i64) -> u64 {
    let mut rejected = 0u64;
    // SAFETY: the body is guarded, and its argument outlives it; in a transaction. A returned error lives in the memory
    // context of this call.
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
/// A pointer to the number of rejects.
#[pg_guard]
unsafe extern "C-unwind" fn write_rejects(rejected: Opaque) {
    let written = write_spooled().or_raise();
    // SAFETY: this function's contract covers the argument.
    unsafe { *rejected.cast::<u64>() = written }
}

/// Adds the failed attempt to the history. An error here must not undo the record of the failure. Guarded.
fn remember(job: &Job, end: AttemptEnd, failure: &Failure, rejected: u64, files: Option<&Fate>) {
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
            status: if matches!(end, AttemptEnd::Canceled) { c"canceled" } else { c"failed" },
            sqlstate: &failure.sqlstate,
            message: &failure.message,
            files,
        },
    );
    // SAFETY: the body is guarded, and its argument outlives it; in a transaction. A returned error lives in the memory
    // context of this call.
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

/// The extension's schema, and the failed load.
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

/// The result of an attempt that ended with an error: transient errors are retried.
fn end(code: i32, job: &Claimed) -> AttemptEnd {
    let state = sqlstate(code);
    match state.to_bytes() {
        b"57014" => AttemptEnd::Canceled,
        state if is_transient(state) && job.more_attempts > 0 => {
            let before = job.tried - 1;
            AttemptEnd::Queued((FIRST_DELAY * f64::from(before.clamp(0, 30)).exp2()).min(LAST_DELAY))
        }
        _ => AttemptEnd::Failed,
    }
}

/// Is it a deadlock or serialization failure, a lack of resources, or an administrator's shutdown?
fn is_transient(sqlstate: &[u8]) -> bool {
    matches!(sqlstate, b"40001" | b"40P01" | b"57P01" | b"57P02" | b"57P03") || sqlstate.starts_with(b"53")
}
