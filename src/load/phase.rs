//! The phases of a load, for progress reports and timing.
//!
//! A load enters one phase after the other. With partitions, it enters the phases from indexes on once for each
//! partition.

use std::time::{Duration, Instant};

use crate::server::progress::{Figures, Progress};

/// A phase of a load. `pg_stat_get_progress_info` shows its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Phase {
    /// Rights, locks, TRUNCATE, opening the file: no progress is shown yet.
    Prepare = 0,
    /// Rows are read and written.
    Rows = 1,
    /// Keys are sorted and inserted.
    Indexes = 2,
    /// Indexes are rebuilt.
    Rebuild = 3,
    ForeignKeys = 4,
    Triggers = 5,
    /// ANALYZE, which has its own progress view.
    Analyze = 6,
}

impl Phase {
    /// Phases in the order of their numbers, with their names.
    pub const NAMES: [(Phase, &str); 7] = [
        (Phase::Prepare, "prepare"),
        (Phase::Rows, "rows"),
        (Phase::Indexes, "indexes"),
        (Phase::Rebuild, "rebuild"),
        (Phase::ForeignKeys, "foreign keys"),
        (Phase::Triggers, "triggers"),
        (Phase::Analyze, "analyze"),
    ];
}

/// The current phase of a load, its progress, and the duration of earlier phases.
#[derive(Debug)]
pub struct Phases {
    now: Phase,
    since: Instant,
    spent: [Option<Duration>; Phase::NAMES.len()],
    pub progress: Progress,
}

impl Phases {
    pub fn begin() -> Phases {
        let spent = [None; Phase::NAMES.len()];
        Phases { now: Phase::Prepare, since: Instant::now(), spent, progress: Progress::none() }
    }

    /// Enters a phase. Guarded.
    pub fn enter(&mut self, phase: Phase) {
        self.leave();
        self.now = phase;
        self.progress.figures.phase = phase as u32;
        self.progress.show();
    }

    /// Changes and shows the figures. Guarded.
    pub fn show(&mut self, change: impl FnOnce(&mut Figures)) {
        change(&mut self.progress.figures);
        self.progress.show();
    }

    fn leave(&mut self) {
        let now = Instant::now();
        if let Some(spent) = self.spent.get_mut(self.now as usize) {
            *spent = Some(spent.unwrap_or_default() + (now - self.since));
        }
        self.since = now;
    }

    /// The duration of each phase that the load has entered.
    pub fn spent(&mut self) -> impl Iterator<Item = (&'static str, Duration)> {
        self.leave();
        Phase::NAMES.iter().zip(self.spent).filter_map(|((_, name), spent)| Some((*name, spent?)))
    }
}
