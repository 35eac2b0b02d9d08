//! Where the time of a load's processes goes, if somebody wants to know (`pg_bulk.log_timing`).
//!
//! The clock is read a few times for each stretch of a file, each batch of records or rows and each batch of pages, and
//! never for each row. What is done row by row, tuples put on pages, is timed for one row of [`SAMPLE`], without what
//! reading the clock takes. What is left of the time that a process spends on rows is [`Stage::Rest`].

use std::time::{Duration, Instant};

use crate::guc;

/// Of so many rows one is timed, and stands for all. Odd, so that where two things are done to each row both have their
/// turns.
const SAMPLE: u32 = 61;

/// A part of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Reading the file.
    Read,
    /// Waiting for the turn to cut a stretch.
    Turn,
    /// Finding the ends of a stretch's records.
    Cut,
    /// Finding the ends of fields.
    Scan,
    /// Values out of fields.
    Convert,
    /// Tuples out of values.
    Tuple,
    /// Tuples onto pages.
    Page,
    /// Waiting for the turn to append.
    Baton,
    /// The extension lock, the file's end, space on disk.
    Space,
    /// WAL into its buffers.
    Log,
    /// WAL to disk.
    Flush,
    /// Checksums, pages to the kernel.
    Write,
    /// Everything that is none of the others: conditions, constraints, the way from row to row.
    Rest,
}

/// How many there are.
pub const STAGES: usize = 13;

impl Stage {
    /// In the order of their numbers, with what they are called.
    pub const NAMES: [(Stage, &str); STAGES] = [
        (Stage::Read, "read"),
        (Stage::Turn, "wait to cut"),
        (Stage::Cut, "cut"),
        (Stage::Scan, "scan"),
        (Stage::Convert, "convert"),
        (Stage::Tuple, "tuple"),
        (Stage::Page, "page"),
        (Stage::Baton, "wait to append"),
        (Stage::Space, "extend"),
        (Stage::Log, "log"),
        (Stage::Flush, "flush"),
        (Stage::Write, "write"),
        (Stage::Rest, "rest"),
    ];
}

/// A watch that runs from one lap to the next.
#[derive(Debug)]
pub struct Watch(Option<Instant>);

/// Time by stage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stages {
    on: bool,
    spent: [Duration; STAGES],
    /// What reading the clock takes.
    clock: Duration,
    /// Rows since one was timed.
    rows: u32,
}

impl Stages {
    /// Nothing yet, and nothing ever unless the setting says so.
    pub fn new() -> Stages {
        let on = guc::log_timing();
        let clock = if on { clock() } else { Duration::ZERO };
        Stages { on, clock, ..Stages::default() }
    }

    /// Is anything timed?
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on
    }

    pub fn watch(&self) -> Watch {
        Watch(self.on.then(Instant::now))
    }

    /// What passed since the watch was started, or its last lap, was that stage.
    pub fn lap(&mut self, watch: &mut Watch, stage: Stage) {
        if let Some(since) = &mut watch.0 {
            let now = Instant::now();
            self.add(stage, now - *since);
            *since = now;
        }
    }

    /// A watch for one row of many; for the others one that does not run.
    #[inline(always)]
    pub fn sample(&mut self) -> Watch {
        if !self.on {
            return Watch(None);
        }
        self.rows += 1;
        if self.rows < SAMPLE {
            return Watch(None);
        }
        self.rows = 0;
        Watch(Some(Instant::now()))
    }

    /// What passed for this row was that stage, and as much for each that is not timed.
    #[inline(always)]
    pub fn lap_sample(&mut self, watch: &mut Watch, stage: Stage) {
        if let Some(since) = &mut watch.0 {
            self.add_sample(since, stage);
        }
    }

    #[cold]
    fn add_sample(&mut self, since: &mut Instant, stage: Stage) {
        let now = Instant::now();
        self.add(stage, (now - *since).saturating_sub(self.clock) * SAMPLE);
        *since = now;
    }

    pub fn add(&mut self, stage: Stage, time: Duration) {
        if let Some(spent) = self.spent.get_mut(stage as usize) {
            *spent += time;
        }
    }

    /// Add others' times.
    pub fn merge(&mut self, others: &Stages) {
        self.spent.iter_mut().zip(others.spent).for_each(|(spent, other)| *spent += other);
    }

    pub fn of(&self, stage: Stage) -> Duration {
        self.spent.get(stage as usize).copied().unwrap_or_default()
    }

    /// What was taken for one stage included the others.
    pub fn set_rest(&mut self, stage: Stage) {
        let others = self.spent.iter().sum::<Duration>() - self.of(stage);
        if let Some(spent) = self.spent.get_mut(stage as usize) {
            *spent = spent.saturating_sub(others);
        }
    }
}

/// What reading the clock takes.
fn clock() -> Duration {
    const TIMES: u32 = 64;
    let start = Instant::now();
    (1..TIMES).for_each(|_| {
        std::hint::black_box(Instant::now());
    });
    start.elapsed() / TIMES
}
