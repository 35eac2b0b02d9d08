//! The dispatcher: chooses the next jobs and starts workers for them.
//!
//! There is one dispatcher process for each database with work (`wake`). It works in cycles. It records the fate of
//! workers that have ended, looks for due jobs, and starts as many workers as may run. Then it sleeps until a worker
//! ends, a transaction that has changed the queue commits, or the next job is due. Without any work it stays for a
//! second, so that a series of jobs does not start a series of dispatchers, and exits.
//!
//! Its connection blocks commands such as DROP DATABASE, or the use of the database as a template. So while none of its
//! workers runs, it checks every other second for such commands, and exits to let them run.
//!
//! Its decisions are not final: workers claim the jobs. So any error ends the dispatcher, and the postmaster restarts
//! it. Busy workers continue meanwhile, and a job that is started twice is claimed once.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use pgrx::{PgLogLevel, PgSqlErrorCode as Code, ereport, pg_guard, pg_sys};

use super::choice::{LastStarts, Slots, Targets, choose};
use super::job::{AttemptEnd, Failure, Queued};
use super::wake::NO_LINGERING;
use super::worker::succession::{WorkerWord, WorkerWords};
use super::{Queue, force_settings};
use crate::error::{OrRaise, Result};
use crate::guc;
use crate::load::{history, once};
use crate::server::background::{self, Handle, Worker, in_transaction};
use crate::server::database::database;
use crate::server::lock::{Mode, ObjectLock};
use crate::server::lookup::{relation_name, schema_of};
use crate::server::points::point;
use crate::server::role::{NoSession, cannot_connect, role_name};

/// Time that it stays without work.
const LINGER: Duration = Duration::from_secs(1);
/// Milliseconds until it retries to start a worker, or looks at running jobs that it has not started.
const RETRY: i64 = 1_000;
/// Most milliseconds of sleep while jobs are running.
const WATCH: i64 = 60_000;
/// Most milliseconds of sleep.
const LONGEST: i64 = 3_600_000;
/// Milliseconds between checks for waiting commands: DROP DATABASE waits 5 seconds for other sessions to exit.
const LOOK_AROUND: i64 = 2_000;
/// Number of jobs of each owner that are searched first for one that may run.
const CANDIDATES: i64 = 32;

/// A worker that was started, and its job.
#[derive(Debug)]
struct Launched {
    job: Queued,
    handle: Handle,
    /// Its shared word, if it may go on to another job.
    place: Option<WorkerWord>,
    /// The settings that its session began with.
    beginnings: String,
}

impl Launched {
    /// Has it ended its job?
    fn is_over(&self) -> bool {
        self.place.is_some_and(|place| place.is_over())
    }
}

#[derive(Debug)]
struct Dispatcher {
    queue: Queue,
    launched: Vec<Launched>,
    places: WorkerWords,
    last_starts: LastStarts,
    /// Jobs that another session is changing in a transaction that continues, and until when they are skipped.
    left_alone: Vec<(i64, Instant)>,
    /// Time of the next clean-up of orphaned jobs, and of jobs that ended long ago.
    sweep: Option<Instant>,
}

/// The action after a cycle.
#[derive(Debug, PartialEq, Eq)]
enum NextAction {
    Sleep(i64),
    /// There is no work.
    Idle,
    /// The extension has been dropped.
    Gone,
}

/// Entry point of the dispatcher. Called in a background worker, with the OID of the database.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pg_bulk_dispatcher_main(database: pg_sys::Datum) {
    background::obey_signals();
    background::connect_or_give_up(pg_sys::Oid::from_u32(database.value() as u32));
    // The database's owner may have defined settings for all of its sessions.
    force_settings(&[
        (c"role", c"none"),
        (c"search_path", c"pg_catalog, pg_temp"),
        (c"statement_timeout", c"0"),
        // The server would compile each statement anew.
        (c"jit", c"off"),
        (c"max_parallel_workers_per_gather", c"0"),
    ]);
    background::wait_for_starter();
    let queue = in_transaction(|| Queue::of_database().or_raise());
    let Some(queue) = queue.filter(Queue::live) else { return };
    let places = WorkerWords::new();
    let (launched, last_starts, left_alone) = (Vec::new(), LastStarts::default(), Vec::new());
    let mut dispatcher = Dispatcher { queue, launched, places, last_starts, left_alone, sweep: None };
    let mut linger = if background::numbers() == NO_LINGERING { Duration::ZERO } else { LINGER };
    let mut idle_since = None;
    loop {
        match dispatcher.lap() {
            NextAction::Sleep(milliseconds) => {
                (linger, idle_since) = (LINGER, None);
                dispatcher.sleep(milliseconds);
            }
            NextAction::Idle => {
                // Any wake-up in between ends the sleep.
                let left = linger.saturating_sub(idle_since.get_or_insert_with(Instant::now).elapsed());
                if !left.is_zero() {
                    dispatcher.sleep(milliseconds(left));
                } else if dispatcher.leave() {
                    return;
                } else {
                    // A transaction is about to commit, and will wake this process.
                    dispatcher.sleep(milliseconds(LINGER));
                }
            }
            NextAction::Gone => return,
        }
    }
}

/// A duration in milliseconds, at least one.
fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(LONGEST).max(1)
}

impl Dispatcher {
    fn lap(&mut self) -> NextAction {
        let ended = self.reap();
        let now = Instant::now();
        self.left_alone.retain(|(_, until)| *until > now);
        let sweeps = self.sweep.is_none_or(|at| Instant::now() >= at);
        if sweeps {
            self.sweep = Some(Instant::now() + Duration::from_millis(WATCH.unsigned_abs()));
        }
        // Changes made here must be committed before the workers below start.
        let known: HashSet<i64> = self.launched.iter().map(|l| l.job.id).collect();
        let mut forgets_more = false;
        let there = in_transaction(|| -> Result<bool> {
            let there = self.still_there()?;
            if there {
                if sweeps {
                    self.queue.disown_copies()?;
                }
                for job in &ended {
                    self.record_end(job)?;
                }
                for job in self.queue.running()?.iter().filter(|job| !known.contains(&job.id)) {
                    self.queue.requeue_if_lost(job.id)?;
                }
                let schema = schema_of(self.queue.table);
                if sweeps {
                    once::forget_dropped(schema)?;
                }
                if sweeps && let Some(retention) = guc::job_retention() {
                    self.queue.forget_older(retention)?;
                    forgets_more = history::forget_older(schema, retention)?;
                }
            }
            Ok(there)
        });
        match there {
            Ok(true) => (),
            Ok(false) => return NextAction::Gone,
            Err(error) => error.raise(),
        }
        let outlook = in_transaction(|| self.look()).or_raise();
        point!("dispatcher.looked");
        let mut full = false;
        for (job, beginnings) in outlook.start {
            // If no slot is free, a later job is not handed over either: the worker's slot may go to this job.
            full = !self.hand_over(job, &beginnings) && !self.start(job, beginnings);
            if full {
                break;
            }
            self.last_starts.record(job.owner);
        }
        // A worker that has offered itself since then has woken this process again.
        for launched in self.launched.iter().filter(|l| outlook.over.contains(&l.job.id)) {
            if launched.place.is_some_and(|place| place.answer(None)) {
                launched.handle.wake();
            }
        }
        if forgets_more {
            self.sweep = None;
            return NextAction::Sleep(1);
        }
        match outlook.next {
            NextAction::Sleep(milliseconds) if full => NextAction::Sleep(milliseconds.min(RETRY)),
            next => next,
        }
    }

    /// Sleeps until woken, or this long. Ends early if the extension is dropped; exits if a command waits for the
    /// database.
    fn sleep(&self, milliseconds: i64) {
        let mut left = milliseconds;
        while left > 0 && !background::sleep(left.min(LOOK_AROUND)) {
            left -= LOOK_AROUND;
            if left <= 0 {
                return;
            }
            let (there, wanted) = in_transaction(|| self.look_around());
            if !there {
                return;
            }
            if wanted && self.launched.is_empty() {
                let message = "pg_bulk dispatcher exits for a command that requires its database";
                ereport!(PgLogLevel::LOG, Code::ERRCODE_SUCCESSFUL_COMPLETION, message);
                background::come_back_later();
            }
        }
    }

    /// Does the extension exist, and does a command wait for the database? Guarded.
    fn look_around(&self) -> (bool, bool) {
        // Each session takes this lock at its start. It is not available while the database is dropped, renamed, moved
        // or copied.
        let lock = ObjectLock::shared(pg_sys::DatabaseRelationId, database().to_u32());
        (relation_name(self.queue.table).is_some(), !lock.is_free(Mode::RowExclusive))
    }

    /// Does this extension still exist? It may have been dropped, and created again. Keeps it until the transaction's
    /// end.
    fn still_there(&self) -> Result<bool> {
        Ok(Queue::of_database()?.is_some_and(|queue| queue.table == self.queue.table))
    }

    /// Removes workers that have ended, and returns their jobs.
    fn reap(&mut self) -> Vec<Queued> {
        let mut ended = Vec::new();
        let mut at = 0;
        while let Some(launched) = self.launched.get(at) {
            if launched.handle.has_ended() {
                let launched = self.launched.swap_remove(at);
                launched.handle.free();
                // A worker that was stopped just when it received a job has not touched that job.
                if !launched.place.is_some_and(|place| place.is_untaken()) {
                    ended.push(launched.job);
                }
            } else {
                at += 1;
            }
        }
        ended
    }

    /// Records the end of a worker that did not start or finish its job.
    fn record_end(&mut self, job: &Queued) -> Result<()> {
        match self.queue.look_up(job.id)? {
            Some((status, attempt)) if status == "queued" && attempt == job.attempt => {
                let no_session = self.fail_if_no_session(job)?;
                if !no_session && !self.queue.did_not_start(job.id, attempt)? {
                    self.leave_alone(job.id);
                }
            }
            Some((status, _)) if status == "running" => self.queue.requeue_if_lost(job.id)?,
            _ => (),
        }
        Ok(())
    }

    /// Skips a job for a while.
    fn leave_alone(&mut self, id: i64) {
        self.left_alone.push((id, Instant::now() + Duration::from_millis(RETRY.unsigned_abs())));
    }

    /// Fails a job whose owner cannot have a session.
    fn fail_if_no_session(&mut self, job: &Queued) -> Result<bool> {
        let Some(why) = cannot_connect(job.owner) else { return Ok(false) };
        let role = role_name(job.owner);
        let failure = match why {
            NoSession::Role => Failure::new(c"42704", &format!("role with OID {role} does not exist")),
            NoSession::Login => Failure::new(c"28000", &format!("role \"{role}\" is not permitted to log in")),
            NoSession::Connect => {
                Failure::new(c"42501", &format!("role \"{role}\" may not connect to the database of the queue"))
            }
        };
        if !self.queue.fail_if_free(job.id, job.attempt, AttemptEnd::Failed, &failure)? {
            self.leave_alone(job.id);
        }
        Ok(true)
    }

    /// Chooses the jobs to start, and the next action.
    fn look(&mut self) -> Result<Outlook> {
        // Before reading the queue: workers on this list have committed by now.
        let over: HashSet<i64> = self.launched.iter().filter(|l| l.is_over()).map(|l| l.job.id).collect();
        let running = self.queue.running()?;
        let known: HashSet<i64> = self.launched.iter().map(|l| l.job.id).collect();
        let is_started = |l: &&Launched| !over.contains(&l.job.id) && running.iter().all(|job| job.id != l.job.id);
        let started = self.launched.iter().filter(is_started).map(|l| l.job);
        let (mut busy, mut owners) = (Targets::default(), Vec::new());
        for job in running.iter().copied().chain(started) {
            busy.add(job.target, job.alone);
            owners.push(job.owner);
        }
        let strangers = running.iter().any(|job| !known.contains(&job.id));
        let mut slots = Slots::new(guc::max_running_jobs(), owners.iter().copied());

        let mut start = Vec::new();
        if slots.has_room() && !self.queue.is_paused()? {
            let mut most = CANDIDATES;
            let before = slots.clone();
            loop {
                let mut candidates = self.queue.due(most)?;
                let mut found: HashMap<u32, i64> = HashMap::new();
                for job in &candidates {
                    *found.entry(job.owner.to_u32()).or_default() += 1;
                }
                candidates.retain(|job| !known.contains(&job.id));
                let may_start = |job: &Queued| self.left_alone.iter().all(|(id, _)| *id != job.id);
                slots = before.clone();
                start = choose(&candidates, may_start, &mut slots, busy.clone(), &self.last_starts);
                // An owner with free slots may have more jobs.
                let has_more =
                    |(owner, found): (&u32, &i64)| *found >= most && slots.may_start(pg_sys::Oid::from_u32(*owner));
                if !found.iter().any(has_more) {
                    break;
                }
                most *= 16;
            }
            let mut failed = Vec::new();
            for job in &start {
                if self.fail_if_no_session(job)? {
                    failed.push(job.id);
                }
            }
            start.retain(|job| !failed.contains(&job.id));
            if !failed.is_empty() {
                return Ok(Outlook { start: self.with_beginnings(start)?, over, next: NextAction::Sleep(1) });
            }
        }

        let is_busy = !owners.is_empty() || !start.is_empty();
        if !is_busy && !self.queue.has_work()? {
            return Ok(Outlook { start: Vec::new(), over, next: NextAction::Idle });
        }
        let due = if slots.has_room() { self.queue.next_due()? } else { None };
        let longest = if strangers || !self.left_alone.is_empty() { RETRY } else { LONGEST };
        let longest = if is_busy { longest.min(WATCH) } else { longest };
        let start = self.with_beginnings(start)?;
        Ok(Outlook { start, over, next: NextAction::Sleep(due.map_or(longest, |due| due.clamp(1, longest))) })
    }

    /// Adds the settings that a session of each job's owner begins with. They are read before the session starts, so it
    /// has at least these.
    fn with_beginnings(&self, jobs: Vec<Queued>) -> Result<Vec<(Queued, String)>> {
        jobs.into_iter().map(|job| Ok((job, self.queue.beginnings(job.owner)?))).collect()
    }

    /// Hands the job to a worker that has finished a job of the same owner, in a session that began like a new one.
    /// False if there is no such worker.
    fn hand_over(&mut self, job: Queued, beginnings: &str) -> bool {
        let fits = |l: &&mut Launched| l.job.owner == job.owner && l.beginnings == beginnings;
        let taken = |l: &&mut Launched| l.place.is_some_and(|place| place.answer(Some(job.id)));
        let Some(launched) = self.launched.iter_mut().filter(fits).find(taken) else { return false };
        launched.job = job;
        launched.handle.wake();
        true
    }

    /// Starts a worker. False if there is no slot for it.
    fn start(&mut self, job: Queued, beginnings: String) -> bool {
        let is_taken = |index| self.launched.iter().any(|l| l.place.is_some_and(|place| place.index == index));
        let place = self.places.free(is_taken);
        let (places, index) = place.map_or((0, 0), |place| (self.places.handle(), place.index));
        let numbers = [database().to_u32(), job.owner.to_u32(), self.queue.table.to_u32(), places, index];
        let name = format!("pg_bulk job {}", job.id);
        let worker = Worker::new(&name, "pg_bulk job", c"pg_bulk_job_main", job.id);
        match worker.with(numbers).notifying_us().start() {
            Some(handle) => self.launched.push(Launched { job, handle, place, beginnings }),
            None => return false,
        }
        true
    }

    /// Stops being the dispatcher, unless the queue has been changed.
    fn leave(&mut self) -> bool {
        let queue = self.queue.clone();
        point!("dispatcher.leaves");
        queue.leave_unless(|| {
            let work = in_transaction(|| Ok(self.still_there()? && self.queue.has_work()?)).or_raise();
            point!("dispatcher.gate");
            work
        })
    }
}

/// The result of a cycle.
#[derive(Debug)]
struct Outlook {
    start: Vec<(Queued, String)>,
    /// Jobs that their workers had finished when it began.
    over: HashSet<i64>,
    next: NextAction,
}
