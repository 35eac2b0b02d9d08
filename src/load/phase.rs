//! What a load is doing: for whoever watches, and for the clock.
//!
//! A load goes from phase to phase; with partitions, indexes and what follows come once for each of them.

use std::time::{Duration, Instant};

use pgrx::pg_guard;

use crate::pg::progress::{Figures, Progress};

/// A part of a load. Its number is what `pg_stat_get_progress_info` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Phase {
    /// Rights, locks, TRUNCATE, opening the file: nothing is shown yet.
    Prepare = 0,
    /// Rows are read and written.
    Rows = 1,
    /// Keys are sorted and inserted.
    Indexes = 2,
    /// Indexes are built anew.
    Rebuild = 3,
    ForeignKeys = 4,
    Triggers = 5,
    /// ANALYZE, which has a view of its own to be watched in.
    Analyze = 6,
}

impl Phase {
    /// In the order of their numbers, with what they are called.
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

/// The phases of a load: the current one, what is shown of it, and what those before took.
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

    /// Go to the next phase. Guarded.
    pub fn enter(&mut self, phase: Phase) {
        self.leave();
        self.now = phase;
        self.progress.figures.phase = phase as u32;
        self.progress.show();
    }

    /// Show what changed. Guarded.
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

    /// What each took that there was.
    pub fn spent(&mut self) -> impl Iterator<Item = (&'static str, Duration)> {
        self.leave();
        Phase::NAMES.iter().zip(self.spent).filter_map(|((_, name), spent)| Some((*name, spent?)))
    }
}

/// Go to the next phase.
///
/// # Safety
/// The load's phases, which nobody else uses now.
#[pg_guard]
pub unsafe extern "C-unwind" fn enter(phases: *mut Phases, phase: Phase) {
    // SAFETY: this function's contract covers the argument.
    unsafe { &mut *phases }.enter(phase);
}
