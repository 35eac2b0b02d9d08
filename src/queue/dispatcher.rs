//! The dispatcher: which job is next.
//!
//! One process for each database that has something to do (`wake`). It goes from lap to lap: what has become of the
//! workers that ended, which jobs are due, and how many more may run; it starts workers for those, and sleeps until
//! one of them ends, a transaction that has changed the queue commits, or the next job is due. With nothing left to do it
//! stays a second, so that a series of jobs does not start a series of dispatchers, and leaves.
//!
//! It is connected to its database, though, and in the way of those who want to drop or copy that. So while none of its
//! workers runs it looks around every other second, and makes way for them.
//!
//! It decides nothing that could not be decided again: claims are the workers' business. So any error ends it, and the
//! postmaster starts it anew; workers that are busy then go on, and a job that is started twice is claimed once.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use pgrx::{PgLogLevel, PgSqlErrorCode as Code, ereport, pg_guard, pg_sys};

use super::Queue;
use super::choice::{Slots, Targets, Turns, choose};
use super::job::{End, Failure, Queued};
use super::succession::{Place, Places};
use super::wake::NO_LINGERING;
use crate::error::{OrRaise, Result};
use crate::guc;
use crate::load::{history, once};
use crate::pg::background::{self, Handle, Worker, in_transaction};
use crate::pg::lock::{Mode, ObjectLock};
use crate::pg::points::point;
use crate::pg::role::{NoSession, cannot_connect, role_name};

/// How long it stays with nothing to do.
const LINGER: Duration = Duration::from_secs(1);
/// Milliseconds until it tries again to start a worker, or looks after jobs of workers that it has not started.
const RETRY: i64 = 1_000;
/// Milliseconds that it sleeps at most while jobs are running.
const WATCH: i64 = 60_000;
/// Milliseconds that it sleeps at most.
const LONGEST: i64 = 3_600_000;
/// Milliseconds after which it looks around: less than DROP DATABASE waits for others to go (5 seconds).
const LOOK_AROUND: i64 = 2_000;
/// How many jobs of each owner are looked at to find one that may run, at first.
const CANDIDATES: i64 = 32;

/// A worker that was started, and for what.
#[derive(Debug)]
struct Launched {
    job: Queued,
    handle: Handle,
    /// If it may go on to another job.
    place: Option<Place>,
    /// What its session began with.
    beginnings: String,
}

impl Launched {
    /// Has it done with its job?
    fn is_over(&self) -> bool {
        self.place.is_some_and(|place| place.is_over())
    }
}

#[derive(Debug)]
struct Dispatcher {
    queue: Queue,
    launched: Vec<Launched>,
    places: Places,
    turns: Turns,
    /// Jobs that somebody is changing, in a transaction that goes on, and until when they are left alone.
    left_alone: Vec<(i64, Instant)>,
    /// When to sweep next: orphans, and jobs that ended long ago.
    sweep: Option<Instant>,
}

/// What to do after a lap.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Sleep(i64),
    /// There is nothing to do.
    Idle,
    /// The extension is gone.
    Gone,
}

/// Entry point of the dispatcher.
///
/// # Safety
/// Called in a background worker, with the OID of the database.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pg_bulk_dispatcher_main(database: pg_sys::Datum) {
    background::obey_signals();
    background::connect_or_give_up(pg_sys::Oid::from_u32(database.value() as u32));
    // The database's owner may have settings for all of its sessions.
    let settings = [
        (c"role", c"none"),
        (c"search_path", c"pg_catalog, pg_temp"),
        (c"default_transaction_isolation", c"read committed"),
        (c"default_transaction_read_only", c"off"),
        (c"default_transaction_deferrable", c"off"),
        (c"synchronous_commit", c"on"),
        (c"statement_timeout", c"0"),
        (c"lock_timeout", c"0"),
        // It would be compiled anew for each statement.
        (c"jit", c"off"),
        (c"max_parallel_workers_per_gather", c"0"),
    ];
    for (name, value) in settings {
        background::force(name, value);
    }
    background::take_time();
    background::wait_for_starter();
    let queue = in_transaction(|| Queue::of_database().or_raise());
    let Some(queue) = queue.filter(Queue::live) else { return };
    let places = Places::new();
    let (launched, turns, left_alone) = (Vec::new(), Turns::default(), Vec::new());
    let mut dispatcher = Dispatcher { queue, launched, places, turns, left_alone, sweep: None };
    let mut linger = if background::numbers() == NO_LINGERING { Duration::ZERO } else { LINGER };
    let mut idle_since = None;
    loop {
        match dispatcher.lap() {
            Next::Sleep(milliseconds) => {
                (linger, idle_since) = (LINGER, None);
                dispatcher.sleep(milliseconds);
            }
            Next::Idle => {
                // Whatever wakes us meanwhile.
                let left = linger.saturating_sub(idle_since.get_or_insert_with(Instant::now).elapsed());
                if !left.is_zero() {
                    dispatcher.sleep(milliseconds(left));
                } else if dispatcher.leave() {
                    return;
                } else {
                    // Somebody is about to commit, and wakes us.
                    dispatcher.sleep(milliseconds(LINGER));
                }
            }
            Next::Gone => return,
        }
    }
}

/// At least one.
fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(LONGEST).max(1)
}

impl Dispatcher {
    fn lap(&mut self) -> Next {
        let ended = self.reap();
        let now = Instant::now();
        self.left_alone.retain(|(_, until)| *until > now);
        let sweeps = self.sweep.is_none_or(|at| Instant::now() >= at);
        if sweeps {
            self.sweep = Some(Instant::now() + Duration::from_millis(WATCH.unsigned_abs()));
        }
        // What is settled here must be visible to the workers that are started below.
        let known: HashSet<i64> = self.launched.iter().map(|l| l.job.id).collect();
        let mut forgets_more = false;
        let there = in_transaction(|| -> Result<bool> {
            let there = self.still_there()?;
            if there {
                if sweeps {
                    self.queue.disown_copies()?;
                }
                for job in &ended {
                    self.settle(job)?;
                }
                for job in self.queue.running()?.iter().filter(|job| !known.contains(&job.id)) {
                    self.queue.requeue_if_lost(job.id)?;
                }
                // SAFETY: a guarded catalog lookup of a table that is there.
                let schema = unsafe { pg_sys::get_rel_namespace(self.queue.table) };
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
            Ok(false) => return Next::Gone,
            Err(error) => error.raise(),
        }
        let outlook = in_transaction(|| self.look()).or_raise();
        point!("dispatcher.looked");
        let mut full = false;
        for (job, beginnings) in outlook.start {
            // Nor is one handed over that comes later: whoever would take it may leave its slot to this one.
            full = !self.hand_over(job, &beginnings) && !self.start(job, beginnings);
            if full {
                break;
            }
            self.turns.take(job.owner);
        }
        // Whoever offers itself since then has woken us.
        for launched in self.launched.iter().filter(|l| outlook.over.contains(&l.job.id)) {
            if launched.place.is_some_and(|place| place.answer(None)) {
                launched.handle.wake();
            }
        }
        if forgets_more {
            self.sweep = None;
            return Next::Sleep(1);
        }
        match outlook.next {
            Next::Sleep(milliseconds) if full => Next::Sleep(milliseconds.min(RETRY)),
            next => next,
        }
    }

    /// Sleep until woken, or so long; but not when the extension is gone, nor when somebody wants the database.
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

    /// Is the extension there, and does somebody want the database? Guarded.
    fn look_around(&self) -> (bool, bool) {
        // SAFETY: a guarded catalog lookup in a transaction, and a variable of this process.
        let (kind, database) = unsafe { (pg_sys::get_rel_relkind(self.queue.table), pg_sys::MyDatabaseId.to_u32()) };
        // What every session takes when it begins: not to be had while the database is dropped, renamed, moved or copied.
        let lock = ObjectLock::shared(pg_sys::DatabaseRelationId, database);
        (kind != 0, !lock.is_free(Mode::RowExclusive))
    }

    /// The extension may have been dropped, and even made again. Until the end of the transaction it is not dropped.
    fn still_there(&self) -> Result<bool> {
        Ok(Queue::of_database()?.is_some_and(|queue| queue.table == self.queue.table))
    }

    /// The jobs of workers that have ended.
    fn reap(&mut self) -> Vec<Queued> {
        let mut ended = Vec::new();
        let mut at = 0;
        while let Some(launched) = self.launched.get(at) {
            if launched.handle.has_ended() {
                let launched = self.launched.swap_remove(at);
                launched.handle.free();
                // One that was told to go just when it was handed a job leaves that where it was.
                if !launched.place.is_some_and(|place| place.is_untaken()) {
                    ended.push(launched.job);
                }
            } else {
                at += 1;
            }
        }
        ended
    }

    /// The job of a worker that has ended, if that was not the job's doing.
    fn settle(&mut self, job: &Queued) -> Result<()> {
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

    /// Do nothing about a job for a while.
    fn leave_alone(&mut self, id: i64) {
        self.left_alone.push((id, Instant::now() + Duration::from_millis(RETRY.unsigned_abs())));
    }

    /// A job whose owner cannot have a session has failed.
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
        if !self.queue.fail_if_free(job.id, job.attempt, End::Failed, &failure)? {
            self.leave_alone(job.id);
        }
        Ok(true)
    }

    /// Which jobs to start, and what then.
    fn look(&mut self) -> Result<Outlook> {
        // Before the look at the queue: what is over was committed before.
        let over: HashSet<i64> = self.launched.iter().filter(|l| l.is_over()).map(|l| l.job.id).collect();
        let running = self.queue.running()?;
        let known: HashSet<i64> = self.launched.iter().map(|l| l.job.id).collect();
        let is_started = |l: &&Launched| !over.contains(&l.job.id) && running.iter().all(|job| job.id != l.job.id);
        let started = self.launched.iter().filter(is_started).map(|l| l.job);
        let (mut busy, mut owners) = (Targets::default(), Vec::new());
        for (target, alone, owner) in running
            .iter()
            .map(|job| (job.target, job.alone, job.owner))
            .chain(started.map(|job| (job.target, job.alone, job.owner)))
        {
            busy.add(target, alone);
            owners.push(owner);
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
                start = choose(&candidates, may_start, &mut slots, busy.clone(), &self.turns);
                // There may be more of an owner that has slots left.
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
                return Ok(Outlook { start: self.with_beginnings(start)?, over, next: Next::Sleep(1) });
            }
        }

        let is_busy = !owners.is_empty() || !start.is_empty();
        if !is_busy && !self.queue.has_work()? {
            return Ok(Outlook { start: Vec::new(), over, next: Next::Idle });
        }
        let due = if slots.has_room() { self.queue.next_due()? } else { None };
        let longest = if strangers || !self.left_alone.is_empty() { RETRY } else { LONGEST };
        let longest = if is_busy { longest.min(WATCH) } else { longest };
        let start = self.with_beginnings(start)?;
        Ok(Outlook { start, over, next: Next::Sleep(due.map_or(longest, |due| due.clamp(1, longest))) })
    }

    /// Jobs, and what sessions of their owners begin with: looked up before there is one, so that it has that at least.
    fn with_beginnings(&self, jobs: Vec<Queued>) -> Result<Vec<(Queued, String)>> {
        jobs.into_iter().map(|job| Ok((job, self.queue.beginnings(job.owner)?))).collect()
    }

    /// Have a worker go on to this job that has done with another one of the same owner, in a session that began as a new
    /// one would. False if there is none.
    fn hand_over(&mut self, job: Queued, beginnings: &str) -> bool {
        let fits = |l: &&mut Launched| l.job.owner == job.owner && l.beginnings == beginnings;
        let taken = |l: &&mut Launched| l.place.is_some_and(|place| place.answer(Some(job.id)));
        let Some(launched) = self.launched.iter_mut().filter(fits).find(taken) else { return false };
        launched.job = job;
        launched.handle.wake();
        true
    }

    /// Start a worker. False if there is no slot for it.
    fn start(&mut self, job: Queued, beginnings: String) -> bool {
        // SAFETY: a variable of this process.
        let database = unsafe { pg_sys::MyDatabaseId };
        let is_taken = |index| self.launched.iter().any(|l| l.place.is_some_and(|place| place.index == index));
        let place = self.places.free(is_taken);
        let (places, index) = place.map_or((0, 0), |place| (self.places.handle(), place.index));
        let numbers = [database.to_u32(), job.owner.to_u32(), self.queue.table.to_u32(), places, index];
        let name = format!("pg_bulk job {}", job.id);
        let worker = Worker::new(&name, "pg_bulk job", c"pg_bulk_job_main", job.id);
        match worker.with(numbers).telling_us().start() {
            Some(handle) => self.launched.push(Launched { job, handle, place, beginnings }),
            None => return false,
        }
        true
    }

    /// Leave, unless somebody has changed the queue.
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

/// What a lap found.
#[derive(Debug)]
struct Outlook {
    start: Vec<(Queued, String)>,
    /// Jobs whose workers had done with them when it began.
    over: HashSet<i64>,
    next: Next,
}
