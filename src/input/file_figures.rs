//! Counts rows and bytes per file of a list. The processes of a load add up their counts.
//!
//! The caller that counts a row names its file. The stream counts bytes, because only it knows where a file begins and
//! ends; a file without rows has bytes, too. Files are read in order, so a load that fails can report how many of them
//! were read completely.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use crate::server::team::Shareable;

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
    first: *const FileFigures,
    count: usize,
    /// Number of files, from the first one on, that were read to their ends. Null if it is not requested.
    whole: *const AtomicUsize,
}

impl ByFile {
    /// No counts are requested.
    pub const NONE: ByFile = ByFile { first: std::ptr::null(), count: 0, whole: std::ptr::null() };

    /// Counts for `count` files, from `first` on.
    ///
    /// # Safety
    /// The counts outlive this struct and all its copies.
    pub unsafe fn new(first: *const FileFigures, count: usize) -> ByFile {
        ByFile { first, count, whole: std::ptr::null() }
    }

    /// Also stores the number of files that all processes together have read to their ends.
    ///
    /// # Safety
    /// As [`ByFile::new`].
    pub unsafe fn noting(self, whole: *const AtomicUsize) -> ByFile {
        ByFile { whole, ..self }
    }

    /// Notes that the files before this one were read to their ends.
    pub fn note_whole(&self, file: usize) {
        // SAFETY: null, or a number that outlives this struct.
        if let Some(whole) = unsafe { self.whole.as_ref() } {
            whole.fetch_max(file.min(self.count), Relaxed);
        }
    }

    /// Resets all counts.
    pub fn clear(&self) {
        self.all().for_each(FileFigures::clear);
        // SAFETY: null, or a number that outlives this struct.
        if let Some(whole) = unsafe { self.whole.as_ref() } {
            whole.store(0, Relaxed);
        }
    }

    /// Returns the counts of a file.
    #[inline]
    pub fn of(&self, file: usize) -> Option<&FileFigures> {
        // SAFETY: there are `count` figures, which outlive this struct.
        (file < self.count).then(|| unsafe { &*self.first.add(file) })
    }

    pub fn is_none(self) -> bool {
        self.count == 0
    }

    /// Returns the counts of all files.
    pub fn all(&self) -> impl Iterator<Item = &FileFigures> {
        (0..self.count).filter_map(|file| self.of(file))
    }
}
