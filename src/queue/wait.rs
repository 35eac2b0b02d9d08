//! `bulk_wait`: waits until a job has ended.
//!
//! Without a time limit and without `lock_timeout`, the caller waits for the lock of a running job. So the server
//! detects and resolves a deadlock if the job waits for a lock of the caller. In all other cases, and on a standby, the
//! function polls, at growing intervals. If the job waits for itself, for instance through a trigger of its table, the
//! server cannot detect that, so this function raises an error. Each poll sees all commits before it, whatever the
//! isolation level.

use std::time::{Duration, Instant};

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode as Code, pg_sys};

use super::Queue;
use super::functions::unknown;
use crate::error::{Error, Result};
use crate::server::background;
use crate::server::database::{is_in_recovery, is_own_transaction};
use crate::server::function::{Call, sql_function};
use crate::server::lock::{Mode, Until};
use crate::server::role::current_user;
use crate::server::server_text::{from_server, to_server};
use crate::server::sql_value::SqlValue;

/// Milliseconds between two polls: at first, and at most.
const FIRST_PAUSE: i64 = 1;
const LAST_PAUSE: i64 = 100;
/// Interval at which it makes sure that a dispatcher runs.
const CARE_EVERY: Duration = Duration::from_secs(1);
/// First such check without a time limit: a dispatcher that has just been started may not have begun yet.
const CARE_AFTER: Duration = Duration::from_millis(50);

sql_function!(pg_finfo_bulk_wait, bulk_wait, wait_call);

/// `bulk_wait(job_id, timeout)`.
fn wait_call(call: &Call) -> Result<pg_sys::Datum> {
    let job = call.required(0, "job_id")?.number();
    let timeout = call.argument(1)?.interval();
    // SAFETY: a guarded call with a string.
    unsafe { pg_sys::PreventCommandIfParallelMode(c"bulk_wait()".as_ptr()) };
    let queue = Queue::in_schema(call.schema())?;
    let status = wait(&queue, job, timeout.map(|timeout| Instant::now() + duration(&timeout)))?;
    if status == "failed" {
        report_failure(&queue, job)?;
    }
    Ok(SqlValue::text(to_server(&status)).datum().unwrap_or(pg_sys::Datum::from(0usize)))
}

/// The length of an interval; a month counts 30 days.
fn duration(interval: &pg_sys::Interval) -> Duration {
    let days = i64::from(interval.month) * 30 + i64::from(interval.day);
    let microseconds = days.saturating_mul(86_400_000_000).saturating_add(interval.time);
    // Longer than any wait, and no overflow when it is added to the current time.
    Duration::from_micros(u64::try_from(microseconds).unwrap_or(0).min(1 << 60))
}

fn wait(queue: &Queue, job: i64, deadline: Option<Instant>) -> Result<String> {
    let caller = current_user();
    let may_lock = deadline.is_none() && background::lock_timeout() == 0;
    let is_own = background::worker_pid().is_some_and(|pid| queue.job_lock(job).holder() == Some(pid));
    let mut pause = FIRST_PAUSE;
    let mut care_at = Instant::now() + if may_lock { CARE_AFTER } else { Duration::ZERO };
    let mut waited = false;
    loop {
        let (status, xmin) = queue.status(job, caller)?.ok_or_else(|| unknown(job))?;
        if is_own_transaction(xmin) {
            let message = format!("cannot wait for job {job} in the transaction that has changed it");
            return Err(Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                .hint("The job can begin when the transaction has committed."));
        }
        // A standby may be promoted meanwhile, and then has jobs of its own.
        let in_recovery = is_in_recovery();
        let now = Instant::now();
        if !matches!(status.as_str(), "queued" | "running") {
            return Ok(status);
        }
        // Even if no time is left.
        if !in_recovery && !is_own && now >= care_at {
            queue.look_now();
            care_at = now + CARE_EVERY;
        }
        if deadline.is_some_and(|at| at <= now) {
            return Ok(status);
        }
        if is_own {
            let message = format!("cannot wait for job {job} in the process that runs it");
            return Err(Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        // If the job is still running when its lock is free, its process has exited.
        if status == "running" && may_lock && !in_recovery && !waited {
            let lock = queue.job_lock(job);
            lock.take(Mode::Share, Until::TransactionEnd);
            lock.release(Mode::Share, Until::TransactionEnd);
            waited = true;
            continue;
        }
        waited = false;
        let left = deadline.map_or(pause, |at| i64::try_from((at - now).as_millis()).unwrap_or(pause) + 1);
        background::pause(pause.min(left));
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

/// Reports why the job failed, with the complete error, as a NOTICE.
fn report_failure(queue: &Queue, job: i64) -> Result<()> {
    let failure = queue.failure(job)?;
    let message = format!("job {job} failed: {}", from_server(&failure.message));
    let lines = [failure.detail, failure.context].into_iter().flatten();
    let lines: Vec<String> = lines.map(|text| from_server(&text)).collect();
    let mut report = ErrorReport::new(Code::ERRCODE_SUCCESSFUL_COMPLETION, message, "pg_bulk");
    if !lines.is_empty() {
        report = report.set_detail(lines.join("\n"));
    }
    if let Some(hint) = failure.hint {
        report = report.set_hint(from_server(&hint));
    }
    report.report(PgLogLevel::NOTICE);
    Ok(())
}
