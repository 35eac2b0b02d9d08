//! What became of the records of each file of a list: figures that the processes of a load add up, file by file.
//!
//! Whoever counts says of which file. Bytes are counted by the stream, which alone knows when a file begins and ends; files
//! without a single row have some, too. Files have an order, and where a load fails it is to be told how far it came in it.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// Of one file. Lies in shared memory, where there are workers.
#[derive(Debug, Default)]
#[repr(C)]
pub struct FileFigures {
    /// Rows that are in the table.
    pub loaded: AtomicU64,
    /// Rows that were left out: because of what they are, for a row with the same key, or by a condition.
    pub rejected: AtomicU64,
    pub duplicate: AtomicU64,
    pub filtered: AtomicU64,
    /// Bytes that were read; some more than once.
    pub bytes: AtomicU64,
}

impl FileFigures {
    fn all(&self) -> [&AtomicU64; 5] {
        [&self.loaded, &self.rejected, &self.duplicate, &self.filtered, &self.bytes]
    }

    /// Add what others have counted.
    pub fn add(&self, others: &FileFigures) {
        for (to, from) in self.all().into_iter().zip(others.all()) {
            to.fetch_add(from.load(Relaxed), Relaxed);
        }
    }

    /// Begin anew.
    pub fn clear(&self) {
        self.all().into_iter().for_each(|figure| figure.store(0, Relaxed));
    }
}

/// Where the figures of a list's files are, if anybody wants to know them.
#[derive(Debug, Clone, Copy)]
pub struct ByFile {
    first: *const FileFigures,
    count: usize,
    /// So many files, from the first one on, were read to their ends. Null if nobody asks.
    whole: *const AtomicUsize,
}

impl ByFile {
    /// Nobody does.
    pub const NONE: ByFile = ByFile { first: std::ptr::null(), count: 0, whole: std::ptr::null() };

    /// So many, from there on.
    ///
    /// # Safety
    /// They are there for as long as anything is counted by this.
    pub unsafe fn new(first: *const FileFigures, count: usize) -> ByFile {
        ByFile { first, count, whole: std::ptr::null() }
    }

    /// How far all processes together came is noted there, too.
    ///
    /// # Safety
    /// As [`ByFile::new`].
    pub unsafe fn noting(self, whole: *const AtomicUsize) -> ByFile {
        ByFile { whole, ..self }
    }

    /// The files before this one were read to their ends.
    pub fn note_whole(&self, file: usize) {
        // SAFETY: who made this vouches for it.
        if let Some(whole) = unsafe { self.whole.as_ref() } {
            whole.fetch_max(file.min(self.count), Relaxed);
        }
    }

    /// Begin anew.
    pub fn clear(&self) {
        self.all().for_each(FileFigures::clear);
        // SAFETY: who made this vouches for it.
        if let Some(whole) = unsafe { self.whole.as_ref() } {
            whole.store(0, Relaxed);
        }
    }

    /// Those of a file.
    #[inline]
    pub fn of(&self, file: usize) -> Option<&FileFigures> {
        // SAFETY: who made this vouches for so many.
        (file < self.count).then(|| unsafe { &*self.first.add(file) })
    }

    pub fn is_none(self) -> bool {
        self.count == 0
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &FileFigures> {
        (0..self.count).filter_map(|file| self.of(file))
    }
}
