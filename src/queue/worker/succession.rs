//! Lets a worker that has finished its job run another one.
//!
//! ```text
//!   worker       working ─► offering ─► (claims job n) working ─► ...
//!                    └──────────┴─────► leaving ─► gone
//!   dispatcher              job n ▲  or leaving
//! ```
//!
//! Starting a process takes longer than loading a small file. So a worker whose job has succeeded offers itself for
//! another job of the same owner, and wakes the dispatcher. The dispatcher chooses the next job as usual. If it would
//! start a worker for that owner, it hands the job over instead. At the end of its cycle it dismisses the other
//! offering workers. No process waits without a limit: a worker that gets no answer leaves. A worker that leaves also
//! reports that, so it does not hold a slot of the next one while it exits.
//!
//! They communicate through a word in shared memory, which the dispatcher creates and which disappears with the
//! processes. It only affects speed: a job that is handed over stays queued until the worker claims it, like one for
//! which a worker is started.
//!
//! The second job must find the state of a new process. A worker offers itself only if it has run no code except the
//! server's own ([`user_code`]), and it discards the state that a session can discard. Roles and databases may get
//! other settings meanwhile, which a new session would have; the dispatcher compares these ([`Queue::beginnings`]). If
//! the server reloads its configuration, the process ends.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use pgrx::pg_sys;

use super::super::Queue;
use super::{TRIES, take};
use crate::error::Result;
use crate::server::background;
use crate::server::database::database;
use crate::server::lock::{Mode, Until};
use crate::server::points::point;
use crate::server::role::{as_role, current_user};
use crate::server::shared_words::SharedWords;
use crate::server::spi::{self, Access};
use crate::server::sql_value::SqlValue;
use crate::server::user_code;

/// Most workers with a shared word. Workers beyond that start as usual, and leave after their job.
const PLACES: usize = 256;

/// Values of a shared word. Any other value is the number of a job that is handed over.
const WORKING: u64 = 0;
const OFFERING: u64 = u64::MAX;
const LEAVING: u64 = u64::MAX - 1;

/// Longest wait for an answer: the dispatcher may be busy, or gone.
const PATIENCE: Duration = Duration::from_millis(500);
/// Most jobs of one process, because each may leave some memory behind.
const MOST_JOBS: u32 = 100;

/// The shared words of a dispatcher's workers.
#[derive(Debug)]
pub struct WorkerWords(Option<SharedWords>);

/// The shared word of one worker.
#[derive(Debug, Clone, Copy)]
pub struct WorkerWord {
    pub index: u32,
    word: &'static AtomicU64,
}

impl WorkerWords {
    /// Creates the shared words. Guarded.
    pub fn new() -> WorkerWords {
        WorkerWords(SharedWords::create(PLACES))
    }

    /// The handle that a worker attaches with.
    pub fn handle(&self) -> u32 {
        self.0.map_or(0, |words| words.handle())
    }

    /// A shared word that no worker uses.
    pub fn free(&self, is_taken: impl Fn(u32) -> bool) -> Option<WorkerWord> {
        let words = self.0?;
        let index = (0..PLACES).find(|index| !is_taken(*index as u32))?;
        let word = words.get(index)?;
        word.store(WORKING, SeqCst);
        Some(WorkerWord { index: index as u32, word })
    }
}

impl WorkerWord {
    /// The worker's own shared word, from the dispatcher's numbers. Guarded.
    pub fn attach(handle: u32, index: u32) -> Option<WorkerWord> {
        let word = SharedWords::attach(handle, PLACES)?.get(index as usize)?;
        Some(WorkerWord { index, word })
    }

    /// Has its worker ended its job?
    pub fn is_over(&self) -> bool {
        matches!(self.word.load(SeqCst), OFFERING | LEAVING)
    }

    /// Has its worker not yet taken the job that was handed to it?
    pub fn is_untaken(&self) -> bool {
        !matches!(self.word.load(SeqCst), WORKING | OFFERING | LEAVING)
    }

    /// Answers a worker that offers itself: a job, or none. False if it is no longer waiting.
    pub fn answer(&self, job: Option<i64>) -> bool {
        let answer = job.map_or(LEAVING, i64::cast_unsigned);
        self.word.compare_exchange(OFFERING, answer, SeqCst, SeqCst).is_ok()
    }

    /// Records that the worker's job has ended, in success or failure, and that it takes no other.
    fn leave(&self) {
        self.word.store(LEAVING, SeqCst);
    }

    /// Offers this worker and waits for a job. None if the server's settings are newer than `loaded` by then. Guarded.
    fn next(&self, loaded: pg_sys::TimestampTz) -> Option<i64> {
        let until = Instant::now() + PATIENCE;
        self.word.store(OFFERING, SeqCst);
        point!("job.offers");
        background::wake_starter();
        loop {
            match self.word.load(SeqCst) {
                OFFERING => {
                    let left = until.saturating_duration_since(Instant::now());
                    // The answer may arrive at the last moment.
                    if left.is_zero() && self.answer(None) {
                        return None;
                    }
                    background::sleep(i64::try_from(left.as_millis()).unwrap_or(0) + 1);
                }
                LEAVING => return None,
                job => {
                    point!("job.handed");
                    // If this process exits here, the job stays queued and unclaimed.
                    pgrx::check_for_interrupts!();
                    if background::has_reloaded(loaded) {
                        return None;
                    }
                    self.word.store(WORKING, SeqCst);
                    return Some(job.cast_signed());
                }
            }
        }
    }
}

/// A worker's state between jobs.
#[derive(Debug)]
pub struct Successor {
    pub place: Option<WorkerWord>,
    pub jobs: u32,
    /// Time at which the server's settings in its session were loaded.
    pub loaded: pg_sys::TimestampTz,
    /// Its job has made settings that a new session lacks, such as empty settings of unknown names.
    pub is_changed: bool,
}

impl Successor {
    /// Leaves after the failure of this worker's job. Guarded.
    pub fn leave(&self) {
        if let Some(place) = self.place {
            place.leave();
            background::wake_starter();
        }
    }

    /// The next job of this worker after a successful one, in a session like a new one. None if this worker must leave.
    /// Guarded.
    pub fn next(&mut self, queue: &Queue, last: i64) -> Option<i64> {
        let place = self.place?;
        self.jobs += 1;
        let goes = queue.let_go(last);
        if self.is_changed
            || user_code::was_run()
            || self.jobs >= MOST_JOBS
            || !goes
            || background::has_reloaded(self.loaded)
        {
            self.leave();
            return None;
        }
        let job = place.next(self.loaded);
        // A cancel request for the next job finds it in the queue.
        background::serve_cancels();
        if job.is_some() {
            background::start_over();
        }
        job
    }
}

impl Queue {
    /// Releases the lock of a finished job, so that no session that cancels this job cancels the next one. False if a
    /// session holds the cancel lock for long. Guarded.
    fn let_go(&self, job: i64) -> bool {
        let lock = self.cancel_lock();
        let alone = take(&lock, TRIES);
        if alone {
            self.job_lock(job).release(Mode::Exclusive, Until::SessionEnd);
            lock.release(Mode::Exclusive, Until::SessionEnd);
        }
        alone
    }

    /// A text that changes whenever the settings change that a session of a role begins with. For the dispatcher.
    /// Guarded.
    pub fn beginnings(&self, role: pg_sys::Oid) -> Result<String> {
        let statement = "SELECT concat_ws(' ',
            (SELECT xmin FROM pg_catalog.pg_authid WHERE oid = $1),
            (SELECT xmin FROM pg_catalog.pg_database WHERE oid = $2),
            (SELECT xmin FROM pg_catalog.pg_extension WHERE extname = 'pg_bulk'),
            (SELECT string_agg(concat_ws(' ', setdatabase, setrole, xmin), ',' ORDER BY setdatabase, setrole)
                FROM pg_catalog.pg_db_role_setting WHERE setdatabase IN (0, $2) AND setrole IN (0, $1)))";
        let arguments = [SqlValue::oid(role), SqlValue::oid(database())];
        let outcome =
            as_role(current_user(), || spi::execute(statement.as_bytes(), &arguments, Access::ReadLatest, &[]))?;
        Ok(outcome.first(0).into_text().to_string_lossy().into_owned())
    }
}
