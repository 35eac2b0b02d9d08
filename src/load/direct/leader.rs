//! The leader of a load: the state of its own process, of its workers, of the files, and of the rejects. The [steps of
//! a load](super::steps) are methods of this state, each in the module that it belongs to.

mod further;
pub mod line;
mod prepare;
pub mod reading;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::pg_sys;

pub use self::further::{Files, Further};
use super::held::HeldRelations;
use super::process::Process;
use super::rejects::TooMuch;
use super::shared::Shared;
use super::spec::Spec;
use super::violating_row::ViolatingRow;
use crate::load::duplicate::Duplicates;
use crate::load::report::Counts;
use crate::pg::file_figures::ByFile;
use crate::pg::parallel::Parallel;
use crate::pg::usage::WorkerUsage;

/// The state of a load.
#[derive(Debug)]
pub struct Leader {
    pub process: Process,
    /// The shared state of a load without workers.
    pub alone: Box<Shared>,
    pub spec: Spec,
    pub parallel: Option<Parallel>,
    /// Appended rows by relation of the spec, counted by running workers.
    pub counters: *const AtomicU64,
    /// Appended rows by relation of the spec, of workers that have ended.
    pub gathered: Vec<u64>,
    /// CPU usage of each worker.
    pub usages: *mut WorkerUsage,
    /// Workers' counts for each file.
    pub by_file: ByFile,
    /// Workers' instrumentation of the plan that their rows went through.
    pub figures: *mut pg_sys::Instrumentation,
    pub files: Files,
    /// Most workers for the current file.
    pub most_workers: usize,
    /// Workers that were started: for the current file, for all files so far, and the most at a time.
    pub launched: usize,
    pub workers: usize,
    pub builders: usize,
    /// The workers know where to leave their keys.
    pub shares_keys: bool,
    /// Rows made of the files that are done.
    pub made: u64,
    pub notes: Vec<String>,
    /// The record that exceeded the reject limit, if there is one.
    pub too_much: Option<TooMuch>,
    /// The file was already read again, so the error is known. A file of a list cannot be read again a second time.
    pub looked_again: bool,
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

impl Leader {
    /// Appended rows of a relation, by all processes.
    pub fn total(&self, index: usize) -> u64 {
        self.process.heaps.rows_of(index) + self.by_workers(index)
    }

    pub fn by_workers(&self, index: usize) -> u64 {
        let gone = self.gathered.get(index).copied().unwrap_or(0);
        if self.counters.is_null() {
            return gone;
        }
        // SAFETY: there is a counter for each relation of the spec.
        gone + unsafe { (*self.counters.add(index)).load(Relaxed) }
    }
}
