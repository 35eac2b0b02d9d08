//! Where the time of a load's processes goes, if somebody wants to know (`pg_bulk.log_timing`).
//!
//! The clock is read a few times for each stretch of a file and each batch of pages, never for a row. What is left of the
//! time that a process spends on rows is [`Stage::Rows`]: parsing, converting, checking and forming them.

use std::time::{Duration, Instant};

use crate::guc;

/// A part of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Reading the file.
    Read,
    /// Waiting for the turn to cut a stretch.
    Turn,
    /// Everything that is none of the others.
    Rows,
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
}

/// How many there are.
pub const STAGES: usize = 8;

impl Stage {
    /// In the order of their numbers, with what they are called.
    pub const NAMES: [(Stage, &str); STAGES] = [
        (Stage::Read, "read"),
        (Stage::Turn, "wait to cut"),
        (Stage::Rows, "rows"),
        (Stage::Baton, "wait to append"),
        (Stage::Space, "extend"),
        (Stage::Log, "log"),
        (Stage::Flush, "flush"),
        (Stage::Write, "write"),
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
}

impl Stages {
    /// Nothing yet, and nothing ever unless the setting says so.
    pub fn new() -> Stages {
        Stages { on: guc::log_timing(), ..Stages::default() }
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
