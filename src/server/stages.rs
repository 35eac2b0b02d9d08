//! Measures how the processes of a load spend their time (`pg_bulk.log_timing`).
//!
//! The clock is read a few times for each chunk of a file, each batch of records or rows and each batch of pages, and
//! never for each row. Work on single rows, such as putting tuples on pages, is timed for one row in [`SAMPLE`], less
//! the time for reading the clock. The remaining time that a process spends on rows is [`Stage::Rest`].

use std::time::{Duration, Instant};

use crate::guc;

/// One of this many rows is timed, and stands for all. The number is odd, so that both of two alternating steps are
/// timed.
const SAMPLE: u32 = 61;

/// A part of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Reading the file.
    Read,
    /// Waiting until all chunks before this one are cut.
    WaitToCut,
    /// Finding the ends of a chunk's records.
    Cut,
    /// Finding the ends of fields.
    Scan,
    /// Converting fields to values.
    Convert,
    /// Forming tuples from values.
    Tuple,
    /// Putting tuples on pages.
    Page,
    /// Waiting for the append lock.
    WaitToAppend,
    /// Taking the extension lock, finding the file's end, allocating space on disk.
    Space,
    /// Writing WAL into its buffers.
    Log,
    /// Flushing WAL to disk.
    Flush,
    /// Computing checksums, and writing pages to the kernel.
    Write,
    /// All other work: conditions, constraints, the step from row to row.
    Rest,
}

/// Number of stages.
pub const STAGES: usize = 13;

impl Stage {
    /// The stages in the order of their numbers, with their names in the log.
    pub const NAMES: [(Stage, &str); STAGES] = [
        (Stage::Read, "read"),
        (Stage::WaitToCut, "wait to cut"),
        (Stage::Cut, "cut"),
        (Stage::Scan, "scan"),
        (Stage::Convert, "convert"),
        (Stage::Tuple, "tuple"),
        (Stage::Page, "page"),
        (Stage::WaitToAppend, "wait to append"),
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
    /// Time that reading the clock takes.
    clock: Duration,
    /// Rows since one was timed.
    rows: u32,
}

impl Stages {
    /// Empty times. They stay empty unless the setting is on.
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

    /// Add the time since the watch was started, or since its last lap, to a stage.
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

    /// Add the time for this row to a stage, and the same time for each row that is not timed.
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

    /// Add the times of another process.
    pub fn merge(&mut self, others: &Stages) {
        self.spent.iter_mut().zip(others.spent).for_each(|(spent, other)| *spent += other);
    }

    pub fn of(&self, stage: Stage) -> Duration {
        self.spent.get(stage as usize).copied().unwrap_or_default()
    }

    /// Subtract the other stages from one whose time includes them.
    pub fn set_rest(&mut self, stage: Stage) {
        let others = self.spent.iter().sum::<Duration>() - self.of(stage);
        if let Some(spent) = self.spent.get_mut(stage as usize) {
            *spent = spent.saturating_sub(others);
        }
    }
}

/// Time that reading the clock takes.
fn clock() -> Duration {
    const TIMES: u32 = 64;
    let start = Instant::now();
    (1..TIMES).for_each(|_| {
        std::hint::black_box(Instant::now());
    });
    start.elapsed() / TIMES
}
