//! The leader of a load: the state of its own process, of its workers, of the files, and of the rejects. The [steps of
//! a load](super::steps) are methods of this state, each in the module that it belongs to.

mod further;
pub mod line;
mod prepare;
pub mod reading;

use std::sync::atomic::Ordering::Relaxed;

use pgrx::pg_sys;

pub use self::further::{Files, Further};
use super::held::HeldRelations;
use super::process::Process;
use super::rejects::TooMuch;
use super::shared::Shared;
use super::spec::{LoadTask, Spec};
use crate::index::violating_row::ViolatingRow;
use crate::load::duplicate::Duplicates;
use crate::load::phase::Phases;
use crate::load::report::Counts;
use crate::server::team::Team;

/// The state of a load.
#[derive(Debug)]
pub struct Leader {
    pub process: Process,
    /// The shared state of a load without workers.
    pub alone: Box<Shared>,
    pub spec: Spec,
    pub workers: Workers,
    pub files: Files,
    pub notes: Vec<String>,
    /// The record that exceeded the reject limit, if there is one.
    pub too_much: Option<TooMuch>,
    /// The error context outside of the load's own.
    pub(super) outer: *mut pg_sys::ErrorContextCallback,
    pub counts: Counts,
    /// Action for duplicates, the index that finds them, and the number of rows of the table that were replaced.
    pub duplicates: Duplicates,
    pub arbiter: Option<pg_sys::Oid>,
    pub replaced: u64,
    /// The row for which an index raises an error.
    pub violating_row: ViolatingRow,
    /// The statistics contain the rows.
    pub(super) is_counted: bool,
    /// The relations that rows may go to, open until triggers have fired.
    pub held: HeldRelations,
}

/// The workers of a load, as its leader sees them.
#[derive(Debug, Default)]
pub struct Workers {
    /// The workers for the current file.
    pub team: Option<Team<LoadTask>>,
    /// Appended rows by relation of the spec, of workers that have ended.
    pub gathered: Vec<u64>,
    /// Most workers for the current file.
    pub most: usize,
    /// Workers that were started: for all files so far, and the most at a time.
    pub launched: usize,
    pub at_once: usize,
    /// The workers know where to leave their keys.
    pub share_keys: bool,
}

impl Leader {
    /// The phases of the load.
    pub fn phases(&mut self) -> &mut Phases {
        // SAFETY: the load outlives its leader.
        unsafe { &mut *self.process.progress.phases }
    }

    /// Appended rows of a relation, by all processes.
    pub fn total(&self, index: usize) -> u64 {
        self.process.heaps.rows_of(index) + self.by_workers(index)
    }

    pub fn by_workers(&self, index: usize) -> u64 {
        let gone = self.workers.gathered.get(index).copied().unwrap_or(0);
        let running = |team: &Team<LoadTask>| Some(team.slice(team.task().counters).get(index)?.load(Relaxed));
        gone + self.workers.team.as_ref().and_then(running).unwrap_or(0)
    }
}
