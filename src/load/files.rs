//! What a load over several files says of each: a row of `bulk_load_files`.
//!
//! With the load's row of the history goes an array of objects, one for each file in the order in which they were read. That
//! is bounded ([`MOST`]): of more files those come first that rows were left out of, for these are looked for; and
//! what is left of them all is one object without a path, so that the figures still add up.

use std::fmt::Write;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use super::report::quoted;
use crate::pg::encoding::{from_server, invalid_in_server_encoding, to_server};
use crate::pg::file_figures::{ByFile, FileFigures};
use crate::pg::files::FileList;

/// Files of a load that are told of one by one.
const MOST: usize = 10_000;

/// The files of a load and what became of them.
#[derive(Debug)]
pub struct Files {
    list: Rc<FileList>,
    figures: Vec<FileFigures>,
}

/// Figures that are added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    files: u64,
    loaded: u64,
    rejected: u64,
    duplicate: u64,
    filtered: u64,
    bytes: u64,
}

impl Files {
    pub fn new(list: Rc<FileList>) -> Files {
        let figures = std::iter::repeat_with(FileFigures::default).take(list.files.len()).collect();
        Files { list, figures }
    }

    pub fn count(&self) -> usize {
        self.list.files.len()
    }

    /// For who counts; as long as this is there.
    pub fn by_file(&self) -> ByFile {
        // SAFETY: the vector does not change any more.
        unsafe { ByFile::new(self.figures.as_ptr(), self.figures.len()) }
    }

    fn sum(&self, file: usize) -> Sum {
        let (Some(figures), Some(listed)) = (self.figures.get(file), self.list.files.get(file)) else {
            return Sum::default();
        };
        Sum {
            files: 1,
            loaded: figures.loaded.load(Relaxed),
            rejected: figures.rejected.load(Relaxed),
            duplicate: figures.duplicate.load(Relaxed),
            filtered: figures.filtered.load(Relaxed),
            // Beginnings of records are read more than once, and so are headers.
            bytes: figures.bytes.load(Relaxed).min(listed.identity.size),
        }
    }

    /// Of the rows that were given to a statement so many were stored: it was asked when the last row of a file was done.
    /// What does not add up is not told.
    pub fn settle(&self, stored: &[u64], processed: u64, are_duplicates: bool) {
        let given: u64 = self.figures.iter().map(|figures| figures.loaded.load(Relaxed)).sum();
        let fits = |(file, figures): (usize, &FileFigures)| {
            stored.get(file).copied().unwrap_or(0) <= figures.loaded.load(Relaxed)
        };
        if given == processed || stored.iter().sum::<u64>() != processed || !self.figures.iter().enumerate().all(fits) {
            return;
        }
        for (file, figures) in self.figures.iter().enumerate() {
            let stored = stored.get(file).copied().unwrap_or(0);
            let left_out = figures.loaded.swap(stored, Relaxed).saturating_sub(stored);
            let others = if are_duplicates { &figures.duplicate } else { &figures.filtered };
            others.fetch_add(left_out, Relaxed);
        }
    }

    /// As a json array. Guarded.
    pub fn json(&self) -> String {
        let count = self.figures.len();
        let mut is_told = vec![count <= MOST; count];
        if count > MOST {
            let has_losses = |file: &usize| {
                let sum = self.sum(*file);
                sum.rejected + sum.duplicate > 0
            };
            let others = |file: &usize| !has_losses(file);
            for file in (0..count).filter(has_losses).chain((0..count).filter(others)).take(MOST) {
                if let Some(is_told) = is_told.get_mut(file) {
                    *is_told = true;
                }
            }
        }
        let (mut out, mut rest) = ("[".to_owned(), Sum::default());
        for (file, listed) in self.list.files.iter().enumerate() {
            let sum = self.sum(file);
            if is_told.get(file) == Some(&true) {
                sum.write(&mut out, Some(&shown(&listed.path)));
            } else {
                rest.add(sum);
            }
        }
        if rest.files > 0 {
            rest.write(&mut out, None);
        }
        out.push(']');
        out
    }
}

impl Sum {
    fn add(&mut self, other: Sum) {
        let Sum { files, loaded, rejected, duplicate, filtered, bytes } = other;
        self.files += files;
        self.loaded += loaded;
        self.rejected += rejected;
        self.duplicate += duplicate;
        self.filtered += filtered;
        self.bytes += bytes;
    }

    fn write(self, out: &mut String, path: Option<&str>) {
        let Sum { files, loaded, rejected, duplicate, filtered, bytes } = self;
        let read = loaded + rejected + duplicate + filtered;
        if out.len() > 1 {
            out.push_str(", ");
        }
        let path = path.map_or_else(|| "null".to_owned(), |path| format!("\"{}\"", quoted(path)));
        // Writing to a string does not fail.
        let _ = write!(
            out,
            "{{\"path\": {path}, \"files\": {files}, \"rows_read\": {read}, \"rows_loaded\": {loaded}, \
             \"rows_rejected\": {rejected}, \"rows_duplicate\": {duplicate}, \"rows_filtered\": {filtered}, \
             \"bytes_read\": {bytes}}}"
        );
    }
}

/// A path as text. The names of files are bytes. Guarded.
fn shown(path: &std::ffi::CStr) -> String {
    if invalid_in_server_encoding(path.to_bytes()).is_none() {
        return from_server(path);
    }
    path.to_bytes().iter().map(|byte| if byte.is_ascii() { char::from(*byte) } else { '?' }).collect()
}

/// As a datum of type jsonb. Guarded; allocates in the current memory context.
pub fn jsonb(files: &Files) -> pgrx::pg_sys::Datum {
    super::report::jsonb(&to_server(&files.json()))
}
