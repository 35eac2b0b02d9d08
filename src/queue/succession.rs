//! A worker that has done its job, and the next one.
//!
//! ```text
//!   worker       working ─► offering ─► (claims job n) working ─► ...
//!                    └──────────┴─────► leaving ─► gone
//!   dispatcher              job n ▲  or leaving
//! ```
//!
//! To start a process takes longer than to load a small file. So a worker whose job has succeeded offers itself for
//! another one of the same owner, and wakes the dispatcher. Which job is next is the dispatcher's decision as ever; if
//! it would start a worker for that owner, it hands the job over instead, and whoever is still offering at the end of
//! its lap is told to leave. Nobody waits for anybody: a worker that gets no answer leaves. And a worker that leaves says
//! so, and does not take a place from the next one while it exits.
//!
//! What they say is a word in shared memory, which the dispatcher makes and which goes with the processes. Nothing
//! depends on it but speed: a job that is handed over is queued until the worker claims it, as one for which a worker is
//! started.
//!
//! The second job must find what it would find in a new process. A worker offers itself only if no code but the
//! server's own was run in it ([`user_code`]), and discards what a session can. Roles and databases may get other
//! settings meanwhile, which a new session has: [`Queue::beginnings`] tells the dispatcher. If the server's own are loaded
//! again, the process ends.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use pgrx::pg_sys;

use super::Queue;
use super::worker::{TRIES, take};
use crate::error::Result;
use crate::pg::background;
use crate::pg::database::database;
use crate::pg::lock::{Mode, Until};
use crate::pg::points::point;
use crate::pg::role::as_role;
use crate::pg::shared_words::SharedWords;
use crate::pg::spi::{self, Access, Argument};
use crate::pg::user_code;

/// Workers that have a place; those above start as ever, and leave after their job.
const PLACES: usize = 256;

/// What a word says. Else it is a job that is handed over.
const WORKING: u64 = 0;
const OFFERING: u64 = u64::MAX;
const LEAVING: u64 = u64::MAX - 1;

/// How long a worker waits for an answer: the dispatcher may be at something else, or gone.
const PATIENCE: Duration = Duration::from_millis(500);
/// Jobs of one process: what is left of each is little, but not nothing.
const MOST_JOBS: u32 = 100;

/// The places of a dispatcher's workers.
#[derive(Debug)]
pub struct Places(Option<SharedWords>);

/// That of one worker.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub index: u32,
    word: &'static AtomicU64,
}

impl Places {
    /// Guarded.
    pub fn new() -> Places {
        Places(SharedWords::create(PLACES))
    }

    /// What a worker needs to find its place.
    pub fn handle(&self) -> u32 {
        self.0.map_or(0, |words| words.handle())
    }

    /// One that nobody has.
    pub fn free(&self, is_taken: impl Fn(u32) -> bool) -> Option<Place> {
        let words = self.0?;
        let index = (0..PLACES).find(|index| !is_taken(*index as u32))?;
        let word = words.get(index)?;
        word.store(WORKING, SeqCst);
        Some(Place { index: index as u32, word })
    }
}

impl Place {
    /// The worker's own, as the dispatcher said. Guarded.
    pub fn attach(handle: u32, index: u32) -> Option<Place> {
        let word = SharedWords::attach(handle, PLACES)?.get(index as usize)?;
        Some(Place { index, word })
    }

    /// Has its worker done with its job?
    pub fn is_over(&self) -> bool {
        matches!(self.word.load(SeqCst), OFFERING | LEAVING)
    }

    /// Has its worker not even taken the job that was handed to it?
    pub fn is_untaken(&self) -> bool {
        !matches!(self.word.load(SeqCst), WORKING | OFFERING | LEAVING)
    }

    /// Answer a worker that offers itself: a job, or none. False if it is not waiting any more.
    pub fn answer(&self, job: Option<i64>) -> bool {
        let answer = job.map_or(LEAVING, i64::cast_unsigned);
        self.word.compare_exchange(OFFERING, answer, SeqCst, SeqCst).is_ok()
    }

    /// The worker's job has ended, whichever way, and it takes no other.
    fn leave(&self) {
        self.word.store(LEAVING, SeqCst);
    }

    /// Offer, and wait for the answer. Not for one that comes when settings are not those of `loaded` any more. Guarded.
    fn next(&self, loaded: pg_sys::TimestampTz) -> Option<i64> {
        let until = Instant::now() + PATIENCE;
        self.word.store(OFFERING, SeqCst);
        point!("job.offers");
        background::wake_starter();
        loop {
            match self.word.load(SeqCst) {
                OFFERING => {
                    let left = until.saturating_duration_since(Instant::now());
                    // The answer may come just then.
                    if left.is_zero() && self.answer(None) {
                        return None;
                    }
                    background::sleep(i64::try_from(left.as_millis()).unwrap_or(0) + 1);
                }
                LEAVING => return None,
                job => {
                    point!("job.handed");
                    // Until it is taken, the job is nobody's if this process ends.
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

/// A worker, and how many jobs it has had.
#[derive(Debug)]
pub struct Successor {
    pub place: Option<Place>,
    pub jobs: u32,
    /// When the server's settings were loaded that its session has begun with.
    pub loaded: pg_sys::TimestampTz,
    /// Its job has set what a new session does not have, as empty settings of unknown names.
    pub is_changed: bool,
}

impl Successor {
    /// This worker's job has failed: it has no next one. Guarded.
    pub fn leave(&self) {
        if let Some(place) = self.place {
            place.leave();
            background::wake_starter();
        }
    }

    /// The next job of this worker, whose last one has succeeded; in a session as new. None if there is none. Guarded.
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
        // Whoever cancels the next one finds it in the queue.
        background::serve_cancels();
        if job.is_some() {
            background::start_over();
        }
        job
    }
}

impl Queue {
    /// Let go of the lock of a job that is done, so that nobody who wants to cancel it cancels the next one. False if
    /// somebody is about to for long. Guarded.
    fn let_go(&self, job: i64) -> bool {
        let lock = self.cancel_lock();
        let alone = take(&lock, TRIES);
        if alone {
            self.job_lock(job).release(Mode::Exclusive, Until::SessionEnd);
            lock.release(Mode::Exclusive, Until::SessionEnd);
        }
        alone
    }

    /// What a session of a role begins with, as a text that changes whenever that does. For the dispatcher. Guarded.
    pub fn beginnings(&self, role: pg_sys::Oid) -> Result<String> {
        let statement = "SELECT concat_ws(' ',
            (SELECT xmin FROM pg_catalog.pg_authid WHERE oid = $1),
            (SELECT xmin FROM pg_catalog.pg_database WHERE oid = $2),
            (SELECT xmin FROM pg_catalog.pg_extension WHERE extname = 'pg_bulk'),
            (SELECT string_agg(concat_ws(' ', setdatabase, setrole, xmin), ',' ORDER BY setdatabase, setrole)
                FROM pg_catalog.pg_db_role_setting WHERE setdatabase IN (0, $2) AND setrole IN (0, $1)))";
        let arguments = [Argument::oid(role), Argument::oid(database())];
        // SAFETY: a variable of this process.
        let caller = unsafe { pg_sys::GetUserId() };
        let outcome = as_role(caller, || spi::execute(statement.as_bytes(), &arguments, Access::ReadLatest, &[]))?;
        // SAFETY: the column is of type text.
        Ok(unsafe { outcome.first(0).text() }.to_string_lossy().into_owned())
    }
}
