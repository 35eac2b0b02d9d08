//! Counts rows and bytes per file of a list. The processes of a load add up their counts.
//!
//! The caller that counts a row names its file. The stream counts bytes, because only it knows where a file begins and
//! ends; a file without rows has bytes, too. Files are read in order, so a load that fails can report how many of them
//! were read completely.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use crate::server::team::{Shareable, SharedRef};

/// Counts of one file. In shared memory if there are workers.
#[derive(Debug, Default)]
#[repr(C)]
pub struct FileFigures {
    /// Rows in the table.
    pub loaded: AtomicU64,
    /// Rows that were left out: rejects, duplicates, and rows filtered by a condition.
    pub rejected: AtomicU64,
    pub duplicate: AtomicU64,
    pub filtered: AtomicU64,
    /// Bytes read; some are read more than once.
    pub bytes: AtomicU64,
}

// SAFETY: atomic values.
unsafe impl Shareable for FileFigures {}

impl FileFigures {
    fn all(&self) -> [&AtomicU64; 5] {
        [&self.loaded, &self.rejected, &self.duplicate, &self.filtered, &self.bytes]
    }

    /// Adds the counts of another process.
    pub fn add(&self, others: &FileFigures) {
        for (to, from) in self.all().into_iter().zip(others.all()) {
            to.fetch_add(from.load(Relaxed), Relaxed);
        }
    }

    /// Resets all counts.
    pub fn clear(&self) {
        self.all().into_iter().for_each(|figure| figure.store(0, Relaxed));
    }
}

/// The counts of a list's files, if they are requested.
#[derive(Debug, Clone, Copy)]
pub struct ByFile {
    figures: Option<SharedRef<[FileFigures]>>,
    /// Number of files, from the first one on, that were read to their ends, if it is requested.
    whole: Option<SharedRef<AtomicUsize>>,
}

impl ByFile {
    /// No counts are requested.
    pub const NONE: ByFile = ByFile { figures: None, whole: None };

    /// Counts in an array.
    pub fn new(figures: SharedRef<[FileFigures]>) -> ByFile {
        ByFile { figures: Some(figures), whole: None }
    }

    /// Also stores the number of files that all processes together have read to their ends.
    pub fn noting(self, whole: SharedRef<AtomicUsize>) -> ByFile {
        ByFile { whole: Some(whole), ..self }
    }

    fn figures(&self) -> &[FileFigures] {
        self.figures.as_deref().unwrap_or_default()
    }

    /// Notes that the files before this one were read to their ends.
    pub fn note_whole(&self, file: usize) {
        if let Some(whole) = &self.whole {
            whole.fetch_max(file.min(self.figures().len()), Relaxed);
        }
    }

    /// Resets all counts.
    pub fn clear(&self) {
        self.all().for_each(FileFigures::clear);
        if let Some(whole) = &self.whole {
            whole.store(0, Relaxed);
        }
    }

    /// Returns the counts of a file.
    #[inline]
    pub fn of(&self, file: usize) -> Option<&FileFigures> {
        self.figures().get(file)
    }

    pub fn is_none(self) -> bool {
        self.figures().is_empty()
    }

    /// Returns the counts of all files.
    pub fn all(&self) -> impl Iterator<Item = &FileFigures> {
        self.figures().iter()
    }
}
