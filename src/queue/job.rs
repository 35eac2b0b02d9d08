//! A row of the queue, and its changes of status.
//!
//! ```text
//!              ┌──────────── retry, orphan, transient error ───────────┐
//!              ▼                                                       │
//!   (new) ─► queued ─► running ─► succeeded                            │
//!              │          ├─────► failed ──────────────────────────────┤
//!              └──────────┴─────► canceled ────────────────────────────┘
//! ```
//!
//! Each change names the status that it starts from, so that of two concurrent changes the second finds no row; and
//! each notifies listeners. No lock is taken on the row of a running job before its end, so that sessions that read or
//! cancel a job do not wait for it. Nor does the queue wait for other sessions: a row that a transaction in progress
//! has changed is skipped until that transaction ends.

use std::ffi::{CStr, CString};

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::Queue;
use crate::error::{Error, Result};
use crate::server::database::{cluster, database};
use crate::server::jsonb::Jsonb;
use crate::server::lock::{Mode, Until};
use crate::server::lookup::has_column;
use crate::server::role::stored_role_name;
use crate::server::spi::{Access, StatementResult, value};
use crate::server::sql_value::SqlValue;
use crate::server::unguarded;

/// A job fails after this many ends of its process without a crash of the server.
const MOST_ENDS: i32 = 10;

/// Error of a job whose process has ended.
const LOST: &str = "the process of the job ended before the load did";
/// Error of a job that fails because the server crashed twice in a row while it ran.
const CRASHED: &str = "the server crashed twice while the job was running";
const CRASHED_DETAIL: &str = "The same attempt was ended by two crashes in a row. The job may be their cause.";
const CRASHED_HINT: &str = "The server's log names the process that crashed. Call bulk_retry to run the job again.";

/// A queued or running job as the dispatcher sees it.
#[derive(Debug, Clone, Copy)]
pub struct Queued {
    pub id: i64,
    pub owner: pg_sys::Oid,
    pub target: pg_sys::Oid,
    pub alone: bool,
    pub attempt: i32,
    /// Its priority; at least 0 unless its owner may have lower ones.
    pub rank: i32,
}

/// A new job.
#[derive(Debug)]
pub struct New<'a> {
    pub id: i64,
    pub owner: pg_sys::Oid,
    pub path: &'a CStr,
    pub target: pg_sys::Oid,
    pub schema: &'a CStr,
    pub name: &'a CStr,
    pub options: &'a Jsonb,
    pub settings: &'a [CString],
    pub alone: bool,
    pub priority: i32,
    pub run_at: pg_sys::TimestampTz,
    pub max_attempts: i32,
}

/// A job that a worker has claimed.
#[derive(Debug)]
pub struct Claimed {
    pub id: i64,
    pub path: CString,
    pub target: pg_sys::Oid,
    pub schema: CString,
    pub name: CString,
    pub options: Jsonb,
    pub settings: Vec<CString>,
    pub attempt: i32,
    /// Attempts left after this one.
    pub more_attempts: i32,
    /// Attempts since the job was enqueued or retried, including this one.
    pub tried: i32,
}

/// The figures of a load.
#[derive(Debug, Clone, Copy)]
pub struct Figures {
    pub loaded: u64,
    pub rejected: u64,
    pub duplicate: u64,
    pub bytes_read: u64,
    pub workers: usize,
}

/// The error of a failed load, in the server's encoding.
#[derive(Debug, Default)]
pub struct Failure {
    pub sqlstate: CString,
    pub message: CString,
    pub detail: Option<CString>,
    pub hint: Option<CString>,
    pub context: Option<CString>,
}

impl Failure {
    pub fn new(sqlstate: &CStr, message: &str) -> Failure {
        let message = crate::server::server_text::to_server(message);
        Failure { sqlstate: sqlstate.to_owned(), message, ..Failure::default() }
    }
}

/// The end of an attempt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AttemptEnd {
    Failed,
    Canceled,
    /// Another attempt after this number of seconds.
    Queued(f64),
}

/// Notifies listeners of the channel when this transaction commits. Guarded.
fn notify(id: i64, status: &str) {
    let payload = CString::new(format!("{{\"job_id\":{id},\"status\":\"{status}\"}}")).unwrap_or_default();
    // SAFETY: a guarded call that copies the strings.
    unsafe { unguarded::guard(|| unguarded::Async_Notify(c"pg_bulk".as_ptr(), payload.as_ptr())) }
}

impl Queue {
    /// Runs a statement that changes the status of one job. True if it changed a row.
    fn change(&self, id: i64, status: &str, statement: &str, arguments: &[SqlValue]) -> Result<bool> {
        let changed = self.run(statement, arguments, Access::Write)?.processed > 0;
        if changed {
            notify(id, status);
        }
        Ok(changed)
    }

    /// Adds a job. Guarded.
    pub fn add(&self, job: &New) -> Result<()> {
        let arguments = [
            SqlValue::bigint(job.id),
            SqlValue::oid(job.owner),
            SqlValue::text(job.path),
            SqlValue::oid(job.target),
            SqlValue::text(job.schema),
            SqlValue::text(job.name),
            SqlValue::jsonb(job.options),
            SqlValue::texts(job.settings),
            SqlValue::boolean(job.alone),
            SqlValue::integer(job.priority),
            SqlValue::timestamp(job.run_at),
            SqlValue::integer(job.max_attempts),
            SqlValue::text(stored_role_name(job.owner)),
            SqlValue::oid(database()),
            SqlValue::bigint(cluster()),
        ];
        let statement = "INSERT INTO @.bulk_queue (job_id, owner, path, target, target_schema, target_name, options,
                settings, alone, priority, run_at, max_attempts, owner_name, database, cluster)
            VALUES ($1, $2, $3, $4, $5::name, $6::name, $7, $8, $9, $10, $11, $12, $13::name, $14, $15)";
        self.change(job.id, "queued", statement, &arguments).map(drop)
    }

    /// Claims a queued job, unless another session is changing it. The caller holds its lock. Guarded.
    pub fn claim(&self, id: i64, owner: pg_sys::Oid) -> Result<Option<Claimed>> {
        let statement =
            "UPDATE @.bulk_queue SET status = 'running', attempt = attempt + 1, started_at = clock_timestamp(),
                finished_at = NULL, rows_loaded = NULL, rows_rejected = NULL, rows_duplicate = NULL, bytes_read = NULL,
                bytes_total = NULL, workers = NULL, error_sqlstate = NULL, error_message = NULL, error_detail = NULL,
                error_hint = NULL, error_context = NULL
            WHERE job_id IN (SELECT job_id FROM @.bulk_queue
                WHERE job_id = $1 AND owner = $2 AND status = 'queued' FOR UPDATE SKIP LOCKED)
            RETURNING path::text, target, target_schema::text, target_name::text, options::jsonb, settings::text[], attempt,
                max_attempts - (attempt - attempts_before), attempt - attempts_before";
        let outcome = self.run(statement, &[SqlValue::bigint(id), SqlValue::oid(owner)], Access::Write)?;
        if outcome.rows.is_empty() {
            return Ok(None);
        }
        notify(id, "running");
        let value = |column| outcome.first(column);
        Ok(value(4).into_jsonb().map(|options| Claimed {
            id,
            path: value(0).into_text(),
            target: value(1).as_oid(),
            schema: value(2).into_text(),
            name: value(3).into_text(),
            options,
            settings: value(5).into_texts(),
            attempt: value(6).small(),
            more_attempts: value(7).small(),
            tried: value(8).small(),
        }))
    }

    /// Records success, in the load's own transaction. Guarded.
    pub fn succeed(&self, id: i64, attempt: i32, figures: &Figures) -> Result<()> {
        let arguments = [
            SqlValue::bigint(id),
            SqlValue::integer(attempt),
            SqlValue::count(figures.loaded),
            SqlValue::count(figures.rejected),
            SqlValue::count(figures.duplicate),
            SqlValue::count(figures.bytes_read),
            SqlValue::integer(i32::try_from(figures.workers).unwrap_or(i32::MAX)),
        ];
        let statement =
            "UPDATE @.bulk_queue SET status = 'succeeded', finished_at = clock_timestamp(), rows_loaded = $3,
                rows_rejected = $4, rows_duplicate = $5, bytes_read = $6, bytes_total = $6, workers = $7
            WHERE job_id = $1 AND status = 'running' AND attempt = $2";
        if self.change(id, "succeeded", statement, &arguments)? {
            return Ok(());
        }
        let message = format!("job {id} is no longer running");
        Err(Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message))
    }

    /// Records a failed attempt after its transaction was rolled back. False if the job is no longer in this attempt.
    /// Guarded.
    pub fn fail(&self, id: i64, attempt: i32, end: AttemptEnd, failure: &Failure) -> Result<bool> {
        self.fail_unless(id, attempt, end, failure, "")
    }

    /// Records a failed attempt as [`Queue::fail`]. Also false if another session is changing the job. Guarded.
    pub fn fail_if_free(&self, id: i64, attempt: i32, end: AttemptEnd, failure: &Failure) -> Result<bool> {
        self.fail_unless(id, attempt, end, failure, "SKIP LOCKED")
    }

    fn fail_unless(&self, id: i64, attempt: i32, end: AttemptEnd, failure: &Failure, locked: &str) -> Result<bool> {
        let (status, delay) = match end {
            AttemptEnd::Failed => ("failed", 0.0),
            AttemptEnd::Canceled => ("canceled", 0.0),
            AttemptEnd::Queued(delay) => ("queued", delay),
        };
        let arguments = [
            SqlValue::bigint(id),
            SqlValue::integer(attempt),
            SqlValue::text(CString::new(status).unwrap_or_default()),
            SqlValue::text(&*failure.sqlstate),
            SqlValue::text(&*failure.message),
            SqlValue::optional_text(failure.detail.as_deref()),
            SqlValue::optional_text(failure.hint.as_deref()),
            SqlValue::optional_text(failure.context.as_deref()),
            SqlValue::double(delay),
        ];
        let statement = format!(
            "UPDATE @.bulk_queue SET status = $3, error_sqlstate = $4, error_message = $5, error_detail = $6,
                error_hint = $7, error_context = $8,
                run_at = CASE $3 WHEN 'queued' THEN clock_timestamp() + $9 * interval '1 second' ELSE run_at END,
                finished_at = CASE $3 WHEN 'queued' THEN NULL ELSE clock_timestamp() END
            WHERE job_id IN (SELECT job_id FROM @.bulk_queue
                WHERE job_id = $1 AND attempt = $2 AND status IN ('queued', 'running') FOR UPDATE {locked})"
        );
        self.change(id, status, &statement, &arguments)
    }

    /// Records the number of rejects that were kept of a failed load. Guarded.
    pub fn set_rejected(&self, id: i64, rejected: u64) -> Result<()> {
        let statement = "UPDATE @.bulk_queue SET rows_rejected = $2 WHERE job_id = $1";
        self.run(statement, &[SqlValue::bigint(id), SqlValue::count(rejected)], Access::Write).map(drop)
    }

    /// Records that the rejects of a failed load could not be kept. Guarded.
    pub fn lost_rejects(&self, id: i64, why: &CStr) -> Result<()> {
        let statement = "UPDATE @.bulk_queue SET error_detail = concat_ws(chr(10), error_detail,
                'The rejected rows could not be kept: ' || $2)
            WHERE job_id = $1";
        self.run(statement, &[SqlValue::bigint(id), SqlValue::text(why)], Access::Write).map(drop)
    }

    /// Records that a worker ended without claiming its job: it was killed, or could not connect. False if the job is
    /// no longer queued, or if another session is changing it, which has kept the worker from claiming it. Guarded.
    pub fn did_not_start(&self, id: i64, attempt: i32) -> Result<bool> {
        let statement = "UPDATE @.bulk_queue SET crashes = crashes + 1,
                run_at = greatest(run_at, clock_timestamp() + least(2 ^ crashes, 60) * interval '1 second')
            WHERE job_id IN (SELECT job_id FROM @.bulk_queue
                WHERE job_id = $1 AND attempt = $2 AND status = 'queued' FOR UPDATE SKIP LOCKED)
            RETURNING crashes";
        let outcome = self.run(statement, &[SqlValue::bigint(id), SqlValue::integer(attempt)], Access::Write)?;
        if outcome.first(0).small() > MOST_ENDS {
            let failure = Failure::new(c"58000", "the process of the job ended before the load began");
            self.fail(id, attempt, AttemptEnd::Failed, &failure)?;
        }
        Ok(!outcome.rows.is_empty())
    }

    /// Requeues or fails a running job whose lock is free, unless another session is changing its row. Guarded.
    pub fn requeue_if_lost(&self, id: i64) -> Result<()> {
        if !self.job_lock(id).try_take(Mode::ShareUpdateExclusive, Until::TransactionEnd) {
            return Ok(());
        }
        // A crash resets the server's statistics, a shutdown does not. After the first end of its process the job is
        // retried at once, later with a delay.
        let crashed = "started_at <= (SELECT stats_reset FROM pg_stat_get_archiver())";
        let (counts, in_a_row) = if self.counts_crashes() {
            let counts =
                format!("crashed_in = CASE WHEN {crashed} AND crashed_in IS DISTINCT FROM attempt THEN attempt END,");
            (counts, format!("({crashed} AND crashed_in IS NOT DISTINCT FROM attempt)"))
        } else {
            (String::new(), "false".to_owned())
        };
        let gives_up = format!("({in_a_row} OR crashes >= $2)");
        let statement = format!(
            "UPDATE @.bulk_queue SET crashes = crashes + 1, attempt = attempt - 1, {counts}
                status = CASE WHEN {gives_up} THEN 'failed' ELSE 'queued' END,
                finished_at = CASE WHEN {gives_up} THEN clock_timestamp() END,
                error_sqlstate = '57P02', error_context = NULL,
                error_message = CASE WHEN {in_a_row} THEN $4 ELSE $3 END,
                error_detail = CASE WHEN {in_a_row} THEN $5 END, error_hint = CASE WHEN {in_a_row} THEN $6 END,
                run_at = CASE crashes WHEN 0 THEN run_at
                    ELSE clock_timestamp() + least(2 ^ crashes, 60) * interval '1 second' END
            WHERE job_id IN (SELECT job_id FROM @.bulk_queue
                WHERE job_id = $1 AND status = 'running' FOR UPDATE SKIP LOCKED)
            RETURNING status"
        );
        let texts = [LOST, CRASHED, CRASHED_DETAIL, CRASHED_HINT].map(|text| CString::new(text).unwrap_or_default());
        let mut arguments = vec![SqlValue::bigint(id), SqlValue::integer(MOST_ENDS)];
        arguments.extend(texts.iter().map(|text| SqlValue::text(&**text)));
        let outcome = self.run(&statement, &arguments, Access::Write)?;
        if !outcome.rows.is_empty() {
            notify(id, &outcome.first(0).into_text().to_string_lossy());
        }
        Ok(())
    }

    /// Does the table record the attempt that a crash ended? That of version 0.1.0 of the extension does not. Guarded.
    fn counts_crashes(&self) -> bool {
        has_column(self.table, c"crashed_in")
    }

    /// Cancels a job that is not running. True if it changed a row. Guarded.
    pub fn cancel_queued(&self, id: i64) -> Result<bool> {
        let statement = "UPDATE @.bulk_queue SET status = 'canceled', finished_at = clock_timestamp()
            WHERE job_id = $1 AND status = 'queued'";
        self.change(id, "canceled", statement, &[SqlValue::bigint(id)])
    }

    /// Cancels a running job whose process has exited. The caller holds its lock. Guarded.
    pub fn cancel_lost(&self, id: i64) -> Result<bool> {
        let statement =
            "UPDATE @.bulk_queue SET status = 'canceled', finished_at = clock_timestamp(), attempt = attempt - 1
            WHERE job_id = $1 AND status = 'running'";
        self.change(id, "canceled", statement, &[SqlValue::bigint(id)])
    }

    /// Puts a job into the queue again. True if it changed a row. Guarded.
    pub fn retry(&self, id: i64) -> Result<bool> {
        let counts = if self.counts_crashes() { "crashed_in = NULL," } else { "" };
        let statement = format!(
            "UPDATE @.bulk_queue SET status = 'queued', finished_at = NULL, run_at = now(), crashes = 0, {counts}
                attempts_before = attempt
            WHERE job_id = $1 AND status IN ('failed', 'canceled')"
        );
        self.change(id, "queued", &statement, &[SqlValue::bigint(id)])
    }

    /// The error of a failed job. Guarded.
    pub fn failure(&self, id: i64) -> Result<Failure> {
        let statement = "SELECT error_sqlstate, error_message, error_detail, error_hint, error_context
            FROM @.bulk_queue WHERE job_id = $1";
        let outcome = self.run(statement, &[SqlValue::bigint(id)], Access::ReadLatest)?;
        let text = |column: usize| outcome.first(column).into_optional_text();
        Ok(Failure {
            sqlstate: text(0).unwrap_or_default(),
            message: text(1).unwrap_or_default(),
            detail: text(2),
            hint: text(3),
            context: text(4),
        })
    }

    /// Pauses or resumes the queue. True if that changed the state. Guarded.
    pub fn set_paused(&self, paused: bool) -> Result<bool> {
        let statement = "UPDATE @.bulk_queue_state SET paused = $1 WHERE paused <> $1";
        Ok(self.run(statement, &[SqlValue::boolean(paused)], Access::Write)?.processed > 0)
    }

    /// Is the queue paused? Guarded.
    pub fn is_paused(&self) -> Result<bool> {
        let outcome = self.run("SELECT paused FROM @.bulk_queue_state", &[], Access::ReadLatest)?;
        Ok(outcome.first(0).is_true())
    }

    /// Jobs with the status running. Guarded.
    pub fn running(&self) -> Result<Vec<Queued>> {
        let statement = "SELECT job_id, owner, target, alone, attempt, 0 FROM @.bulk_queue WHERE status = 'running'";
        self.jobs(statement, &[])
    }

    /// The jobs that a query returns: their numbers, owners, targets, `alone`, attempts and ranks.
    fn jobs(&self, query: &str, arguments: &[SqlValue]) -> Result<Vec<Queued>> {
        let outcome = self.run(query, arguments, Access::ReadLatest)?;
        let job = |row: &Vec<SqlValue<'static>>| Queued {
            id: value(Some(row), 0).number(),
            owner: value(Some(row), 1).as_oid(),
            target: value(Some(row), 2).as_oid(),
            alone: value(Some(row), 3).is_true(),
            attempt: value(Some(row), 4).small(),
            rank: value(Some(row), 5).small(),
        };
        Ok(outcome.rows.iter().map(job).collect())
    }

    /// The first `most` due jobs of each owner, in order. A priority below 0 counts as 0 unless the owner may have such
    /// priorities. Guarded.
    pub fn due(&self, most: i64) -> Result<Vec<Queued>> {
        // There are few owners and perhaps many jobs: the index bulk_queue_queued finds each owner's first jobs.
        let statement = "WITH RECURSIVE owners AS (
                (SELECT owner FROM @.bulk_queue WHERE status = 'queued' ORDER BY owner LIMIT 1)
                UNION ALL
                SELECT (SELECT q.owner FROM @.bulk_queue q WHERE q.status = 'queued' AND q.owner > o.owner
                    ORDER BY q.owner LIMIT 1)
                FROM owners o WHERE o.owner IS NOT NULL
            ), entitled AS MATERIALIZED (
                SELECT owner, coalesce(has_function_privilege(owner, $2, 'EXECUTE'), false) AS below_0
                FROM owners WHERE owner IS NOT NULL
            )
            SELECT j.job_id, o.owner, j.target, j.alone, j.attempt, j.rank FROM entitled o CROSS JOIN LATERAL (
                (SELECT job_id, target, alone, attempt, priority AS rank, run_at FROM @.bulk_queue q
                WHERE q.owner = o.owner AND status = 'queued' AND run_at <= clock_timestamp()
                    AND (o.below_0 OR priority >= 0)
                ORDER BY priority, run_at, job_id LIMIT $1)
                UNION ALL
                (SELECT job_id, target, alone, attempt, 0, run_at FROM @.bulk_queue q
                WHERE q.owner = o.owner AND status = 'queued' AND run_at <= clock_timestamp()
                    AND priority < 0 AND NOT o.below_0
                ORDER BY run_at, job_id LIMIT $1)
            ) j ORDER BY j.rank, j.run_at, j.job_id";
        let arguments = [SqlValue::bigint(most), SqlValue::oid(self.right_below_0()?)];
        self.jobs(statement, &arguments)
    }

    /// The function whose EXECUTE privilege allows priorities below 0: `bulk_prioritize`, or `bulk_pause` before the
    /// extension is updated from version 0.1.0. Guarded.
    fn right_below_0(&self) -> Result<pg_sys::Oid> {
        // Another role may have created a function of that name.
        let statement =
            "SELECT p.oid FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
            WHERE p.proname IN ('bulk_prioritize', 'bulk_pause') AND p.pronamespace = $1 AND d.deptype = 'e'
                AND d.refclassid = 'pg_extension'::regclass
                AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pg_bulk')
            ORDER BY p.proname DESC LIMIT 1";
        let outcome = self.run(statement, &[SqlValue::oid(self.schema)], Access::ReadLatest)?;
        Ok(if outcome.rows.is_empty() { pg_sys::InvalidOid } else { outcome.first(0).as_oid() })
    }

    /// May a role have jobs with priorities below 0? Guarded.
    pub fn may_be_below_0(&self, role: pg_sys::Oid) -> Result<bool> {
        let arguments = [SqlValue::oid(role), SqlValue::oid(self.right_below_0()?)];
        let statement = "SELECT coalesce(has_function_privilege($1, $2, 'EXECUTE'), false)";
        Ok(self.run(statement, &arguments, Access::ReadLatest)?.first(0).is_true())
    }

    /// Changes the priority of a queued job. True if it changed a row. Guarded.
    pub fn prioritize(&self, id: i64, priority: i32) -> Result<bool> {
        let statement = "UPDATE @.bulk_queue SET priority = $2 WHERE job_id = $1 AND status = 'queued'";
        let arguments = [SqlValue::bigint(id), SqlValue::integer(priority)];
        Ok(self.run(statement, &arguments, Access::Write)?.processed > 0)
    }

    /// Milliseconds until another job is due; None without such a job. Guarded.
    pub fn next_due(&self) -> Result<Option<i64>> {
        let statement = "SELECT ceil(least(extract(epoch FROM min(run_at) - clock_timestamp()) * 1000, 1e9))::bigint
            FROM @.bulk_queue WHERE status = 'queued' AND run_at > clock_timestamp() AND run_at < 'infinity'";
        let outcome = self.run(statement, &[], Access::ReadLatest)?;
        Ok(outcome.rows.first().filter(|_| !outcome.first(0).is_null()).map(|_| outcome.first(0).number().max(0)))
    }

    /// Is any job queued or running? Guarded.
    pub fn has_work(&self) -> Result<bool> {
        let statement = "SELECT EXISTS (SELECT FROM @.bulk_queue WHERE status = 'queued')
            OR EXISTS (SELECT FROM @.bulk_queue WHERE status = 'running')";
        Ok(self.run(statement, &[], Access::ReadLatest)?.first(0).is_true())
    }

    /// The status of a job, and its attempts. Guarded.
    pub fn look_up(&self, id: i64) -> Result<Option<(String, i32)>> {
        let statement = "SELECT status, attempt FROM @.bulk_queue WHERE job_id = $1";
        let outcome = self.run(statement, &[SqlValue::bigint(id)], Access::ReadLatest)?;
        if outcome.rows.is_empty() {
            return Ok(None);
        }
        let status = outcome.first(0).into_text().to_string_lossy().into_owned();
        Ok(Some((status, outcome.first(1).small())))
    }

    /// Removes jobs that ended more than this number of seconds ago. Guarded.
    pub fn forget_older(&self, seconds: i32) -> Result<StatementResult> {
        // Locked rows are skipped: the queue must not wait for another transaction.
        let statement = "DELETE FROM @.bulk_queue WHERE job_id IN (SELECT job_id FROM @.bulk_queue
            WHERE status NOT IN ('queued', 'running')
            AND finished_at < clock_timestamp() - $1 * interval '1 second' FOR UPDATE SKIP LOCKED)";
        self.run(statement, &[SqlValue::integer(seconds)], Access::Write)
    }
}
