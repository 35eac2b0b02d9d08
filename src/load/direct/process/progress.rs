//! What a process counts, adds to the counts of all processes, and shows to other sessions.

use std::sync::atomic::Ordering::Relaxed;

use super::advance::ROUND;
use crate::input::file_figures::ByFile;
use crate::load::direct::shared::Shared;
use crate::load::phase::Phases;
use crate::rows::chunks::Chunks;
use crate::rows::row::Rows;
use crate::server::progress::Figures;
use crate::server::stages::Stages;

/// The counts of a process.
#[derive(Debug)]
pub struct Progress {
    /// Rows that were stored or checked, and rows that did not pass a condition; both not yet reported.
    pub(super) rows: u64,
    pub filtered: u64,
    /// Bytes of the file that are reported.
    pub(super) reported: u64,
    /// Rows since the last check for interrupts.
    pub(super) round: u32,
    /// In the leader: the progress that other sessions see. Null in a worker.
    pub phases: *mut Phases,
    /// Progress figures of the files before this one.
    pub before: Figures,
    /// Counts for each file, and the file of the rows counted last.
    pub by_file: ByFile,
    pub(super) file: usize,
    /// Time of the stages, without the stages of the heaps.
    pub stages: Stages,
}

impl Progress {
    pub fn new(by_file: ByFile, phases: *mut Phases) -> Progress {
        Progress {
            rows: 0,
            filtered: 0,
            reported: 0,
            round: 0,
            phases,
            before: Figures::default(),
            by_file,
            file: 0,
            stages: Stages::new(),
        }
    }

    /// Counts a row of a query; true when progress is to be shown. Raises nothing.
    pub fn ends_round(&mut self) -> bool {
        self.round = (self.round + 1) % ROUND;
        self.round == 0
    }

    /// Adds the counts to the shared ones.
    pub(super) fn report(&mut self, read: &Rows, shared: &Shared) {
        let bytes = read.stream().bytes_read();
        shared.bytes.fetch_add(bytes.saturating_sub(self.reported), Relaxed);
        let rows = std::mem::take(&mut self.rows);
        shared.rows.fetch_add(rows, Relaxed);
        let filtered = std::mem::take(&mut self.filtered);
        shared.filtered.fetch_add(filtered, Relaxed);
        if let Some(figures) = self.by_file.of(self.file) {
            figures.loaded.fetch_add(rows, Relaxed);
            figures.filtered.fetch_add(filtered, Relaxed);
        }
        self.reported = bytes;
    }

    /// Shows the progress of all processes.
    pub(super) fn show(&self, read: &Rows, chunks: &Chunks, shared: &Shared) {
        // SAFETY: null, or the load's, which outlives its processes; no other reference is in use.
        let Some(phases) = (unsafe { self.phases.as_mut() }) else { return };
        let in_order = matches!(chunks, Chunks::InOrder);
        // A second reading begins again at the start of the file.
        let unreported = if in_order { read.stream().bytes_read().saturating_sub(self.reported) } else { 0 };
        let before = self.before;
        phases.show(|figures| {
            figures.bytes = before.bytes + shared.bytes.load(Relaxed) + unreported;
            figures.rows = before.rows + shared.rows.load(Relaxed) + self.rows;
            figures.excluded = before.excluded + shared.filtered.load(Relaxed) + self.filtered;
            figures.rejected = before.rejected + shared.bad.load(Relaxed);
        });
    }
}
