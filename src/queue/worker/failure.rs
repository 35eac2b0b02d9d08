//! Records the failure of a job's load.
//!
//! The load's transaction is rolled back, which releases the lock on the job, and the lock is taken again. If the
//! dispatcher finds the lock free in between, it takes the job for lost and requeues it. That is harmless, since
//! nothing is left of the first attempt by then. Rejects and history are written in subtransactions, so that an error
//! there does not undo the record of the failure.

use std::ffi::CString;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::super::Queue;
use super::super::job::{AttemptEnd, Claimed, Failure};
use super::{Job, take};
use crate::error::{Error, OrRaise};
use crate::load::history;
use crate::load::rejects::table::write_spooled;
use crate::load::{Fate, Load};
use crate::server::attempt::in_subtransaction;
use crate::server::background::{self, in_transaction};
use crate::server::points::point;
use crate::server::server_text::{copied, from_server};
use crate::server::unguarded::guarded;

/// How often the job's lock is tried: a job whose failure is not recorded runs again.
const TRIES: u32 = 2_000;

/// Seconds until the next attempt: doubled for each attempt, up to [`LAST_DELAY`].
const FIRST_DELAY: f64 = 1.0;
const LAST_DELAY: f64 = 300.0;

/// Records the failure: T3. The error is in a memory context that outlives the transaction. Guarded.
pub fn record_failure(job: &Job, error: &pg_sys::ErrorData) {
    // Before the abort frees the load. Allocates nothing: the error may be a lack of memory, which the abort ends.
    // SAFETY: null, or the load of this transaction, which the abort frees.
    let mut files = unsafe { job.load.as_ref() }.and_then(Load::fate);
    background::abort_transaction();
    point!("job.aborted");
    if !take(&job.queue.job_lock(job.claimed.id), TRIES) {
        return;
    }
    point!("job.failed");
    // SAFETY: the strings of an error are NUL-terminated, or null.
    let text = |string: *const std::ffi::c_char| unsafe { copied(string) };
    let failure = Failure {
        sqlstate: sqlstate(error.sqlerrcode),
        message: text(error.message).unwrap_or_default(),
        detail: text(error.detail),
        hint: text(error.hint),
        context: text(error.context),
    };
    if let Some(files) = &mut files {
        files.blame(&failure.sqlstate, failure.context.as_deref().unwrap_or_default());
    }
    let end = match end(error.sqlerrcode, &job.claimed) {
        // A cancel request since the error ends the job.
        AttemptEnd::Queued(_) if background::is_canceled() => AttemptEnd::Canceled,
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

/// Runs `work` in a subtransaction. Returns the message of its error, which rolls the subtransaction back. Guarded, in a
/// transaction.
fn survive(work: impl FnOnce()) -> Option<CString> {
    // SAFETY: the body is a guard, which drops what `work` owns before an error leaves it. The error's string lives in
    // the memory context of this call.
    unsafe {
        let error = in_subtransaction(|| guarded(work));
        error.as_ref().map(|error| copied(error.message).unwrap_or_default())
    }
}

/// Writes the rejects and their number after the job's failure. An error here must not undo the record of the failure.
/// Guarded.
fn keep_rejects(queue: &Queue, id: i64) -> u64 {
    let mut rejected = 0u64;
    if let Some(why) = survive(|| rejected = write_spooled().or_raise()) {
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

/// Adds the failed attempt to the history. An error here must not undo the record of the failure. Guarded.
fn remember(job: &Job, end: AttemptEnd, failure: &Failure, rejected: u64, files: Option<&Fate>) {
    let Claimed { id, attempt, path, schema, name, .. } = &job.claimed;
    let failed = history::Failed {
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
    };
    if let Some(why) = survive(|| history::record_failed(job.queue.schema, &failed)) {
        Error::new(Code::ERRCODE_WARNING, format!("the history of job {id} could not be kept"))
            .detail(from_server(&why))
            .warn();
    }
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
