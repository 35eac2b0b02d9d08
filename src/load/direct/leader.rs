//! The leader of a load: what it knows of its own process and of its workers, of the files, and of the rows that are left out. What it
//! does is a [course](super::course), of which each part sees to its own.

mod further;
pub mod line;
mod prepare;
pub mod reading;

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::pg_sys;

pub use self::further::Further;
use super::held::Held;
use super::offender::Offender;
use super::origin::{Earlier, Target};
use super::process::Process;
use super::rejects::TooMuch;
use super::shared::Shared;
use super::spec::Spec;
use crate::load::duplicate::Duplicates;
use crate::load::options::LoadOptions;
use crate::load::report::Counts;
use crate::load::source::Mapping;
use crate::pg::file_figures::ByFile;
use crate::pg::parallel::Parallel;
use crate::pg::stream::Header;
use crate::pg::usage::Share;

/// The state of a load.
#[derive(Debug)]
pub struct Leader {
    pub process: Process,
    /// The shared state of a load without workers.
    pub alone: Box<Shared>,
    pub spec: Spec,
    pub parallel: Option<Parallel>,
    /// Rows appended by workers, for each relation of the spec.
    pub counters: *const AtomicU64,
    /// The same of workers that are gone.
    pub gathered: Vec<u64>,
    /// What workers have used, for each of them.
    pub shares: *mut Share,
    /// What they have counted of each file.
    pub by_file: ByFile,
    /// And what was measured of the plan that their rows went through.
    pub figures: *mut pg_sys::Instrumentation,
    /// The files that are done and those that are still to be read.
    pub earlier: Vec<Earlier>,
    pub further: VecDeque<Further>,
    /// What the rows of the current file are made by, if there are others behind it.
    current: Option<(LoadOptions, Mapping)>,
    /// Workers that there may be for this one.
    pub most_workers: usize,
    /// Workers that were started for it, for all files up to it, and most of them at a time.
    pub launched: usize,
    pub workers: usize,
    pub builders: usize,
    /// Workers know where to leave keys.
    pub shares_keys: bool,
    /// Rows that were made of the files that are done.
    pub made: u64,
    pub notes: Vec<String>,
    /// The row that is to blame, if too many were left out.
    pub too_much: Option<TooMuch>,
    /// It was looked for again: what is wrong is known, and a file of a list cannot be begun like that once more.
    pub looked_again: bool,
    /// The error context outside of the load's own.
    pub(super) outer: *mut pg_sys::ErrorContextCallback,
    pub counts: Counts,
    /// What becomes of duplicates, by which of the target's indexes, and how many rows of the table were replaced.
    pub duplicates: Duplicates,
    pub arbiter: Option<pg_sys::Oid>,
    pub replaced: u64,
    /// What an index may complain about.
    pub offender: Offender,
    /// The record that was looked for last.
    pub target: Target,
    /// Of the file, for reading it again.
    pub header: Header,
    pub name: String,
    /// The statistics know of the rows.
    pub(super) told: bool,
    /// The relations that rows may go to, open until triggers have fired.
    pub held: Held,
}

impl Leader {
    /// Rows of a relation, of all processes.
    pub fn total(&self, index: usize) -> u64 {
        self.process.rows_of(index) + self.by_workers(index)
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
