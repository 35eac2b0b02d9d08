//! Figures of each file of a load over several files: its row in `bulk_load_files`.
//!
//! The load's row in the history has an array of objects, one for each file, in the order in which the files were read.
//! The array has at most [`MOST`] objects. If there are more files, those with rejected or left-out rows come first,
//! because users look for these. One object without a path sums up the rest, so that the figures add up.
//!
//! A failed load of a job has stored no rows, so it records no row counts. It records the files that were read to their
//! ends, the file that failed, and the files that were not reached ([`Fate`]). The error is that of the first bad
//! record in the order of the files. So all files before that one are complete, whatever the number of processes.

use std::ffi::{CStr, CString};
use std::rc::Rc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::input::encoding::shown;
use crate::input::file_figures::{ByFile, FileFigures};
use crate::input::files::FileList;
use crate::input::source::Location;
use crate::server::jsonb::{Json, Jsonb};
use crate::server::server_text::from_server;
use crate::server::sql_value::SqlValue;
use crate::server::team::SharedRef;

/// Most objects of single files.
const MOST: usize = 10_000;

/// The files of a load and their figures.
#[derive(Debug)]
pub struct Files {
    list: Rc<FileList>,
    figures: Vec<FileFigures>,
    /// Number of files, from the first one on, that were read to their ends.
    whole: Box<AtomicUsize>,
}

/// The files of a failed load. Survives the load's transaction.
#[derive(Debug)]
pub struct Fate {
    list: Rc<FileList>,
    whole: usize,
    /// The file that the error is about.
    failed: Option<usize>,
}

/// Sums of figures.
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
        Files { list, figures, whole: Box::default() }
    }

    pub fn count(&self) -> usize {
        self.list.files.len()
    }

    /// Handle for counting, valid as long as `self`.
    pub fn by_file(&self) -> ByFile {
        // SAFETY: neither the vector nor the address of the number changes any more.
        unsafe { ByFile::new(SharedRef::new(&*self.figures)).noting(SharedRef::new(&*self.whole)) }
    }

    /// The state to report if the load fails. Allocates nothing, because memory may be exhausted.
    pub fn fate(&self) -> Fate {
        Fate { list: Rc::clone(&self.list), whole: self.whole.load(Relaxed), failed: None }
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
            // Record starts at chunk borders are read more than once, and so are headers.
            bytes: figures.bytes.load(Relaxed).min(listed.identity.size),
        }
    }

    /// Splits the rows that were given to a statement into stored and left-out rows, file by file. `stored` was read
    /// when the last row of a file was done. Numbers that do not add up are ignored.
    pub fn split_rows(&self, stored: &[u64], processed: u64, are_duplicates: bool) {
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

    /// As a value of type jsonb: an array. Guarded.
    pub fn value(&self) -> SqlValue<'static> {
        let count = self.figures.len();
        let mut is_listed = vec![count <= MOST; count];
        if count > MOST {
            let has_left_out = |file: &usize| {
                let sum = self.sum(*file);
                sum.rejected + sum.duplicate > 0
            };
            let others = |file: &usize| !has_left_out(file);
            for file in (0..count).filter(has_left_out).chain((0..count).filter(others)).take(MOST) {
                if let Some(is_listed) = is_listed.get_mut(file) {
                    *is_listed = true;
                }
            }
        }
        let (mut objects, mut rest) = (Vec::new(), Sum::default());
        for (file, listed) in self.list.files.iter().enumerate() {
            let sum = self.sum(file);
            if is_listed.get(file) == Some(&true) {
                objects.push(sum.json(Some(&listed.path)));
            } else {
                rest.add(sum);
            }
        }
        if rest.files > 0 {
            objects.push(rest.json(None));
        }
        SqlValue::owned_jsonb(Jsonb::of(&Json::Array(objects)))
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

    /// Guarded.
    fn json(self, path: Option<&CStr>) -> Json {
        let Sum { files, loaded, rejected, duplicate, filtered, bytes } = self;
        Json::object([
            ("path", path_json(path)),
            ("files", Json::literal(files)),
            ("rows_read", Json::literal(loaded + rejected + duplicate + filtered)),
            ("rows_loaded", Json::literal(loaded)),
            ("rows_rejected", Json::literal(rejected)),
            ("rows_duplicate", Json::literal(duplicate)),
            ("rows_filtered", Json::literal(filtered)),
            ("bytes_read", Json::literal(bytes)),
        ])
    }
}

/// Guarded.
fn path_json(path: Option<&CStr>) -> Json {
    path.map_or(Json::Null, |path| Json::text(&shown(path)))
}

impl Fate {
    /// Records the error that a load failed with. A line of its context names the file. Calls no server functions.
    pub fn blame(&mut self, sqlstate: &CStr, context: &CStr) {
        if is_about_file(sqlstate.to_bytes()) {
            let files = self.list.files.iter().map(|file| Location::File(file.path.clone()).described());
            self.failed = last_named(context, files);
        }
    }

    /// As a value of type jsonb: an array. Guarded.
    pub fn value(&self, message: &CStr) -> SqlValue<'static> {
        let object = |path: Option<&CStr>, files: usize, status: &str| {
            Json::object([("path", path_json(path)), ("files", Json::literal(files)), ("status", Json::text(status))])
        };
        let status = |file: usize| if file < self.whole { "read" } else { "not read" };
        let mut objects = Vec::new();
        if let Some(listed) = self.failed.and_then(|file| self.list.files.get(file)) {
            objects.push(Json::object([
                ("path", path_json(Some(&listed.path))),
                ("files", Json::literal(1)),
                ("status", Json::text("failed")),
                ("error_message", Json::text(&from_server(message))),
            ]));
        }
        let others = || self.list.files.iter().enumerate().filter(|&(file, _)| self.failed != Some(file));
        objects.extend(others().take(MOST).map(|(file, listed)| object(Some(&listed.path), 1, status(file))));
        for wanted in ["read", "not read"] {
            let rest = others().skip(MOST).filter(|&(file, _)| status(file) == wanted).count();
            if rest > 0 {
                objects.push(object(None, rest, wanted));
            }
        }
        SqlValue::owned_jsonb(Jsonb::of(&Json::Array(objects)))
    }
}

/// Is the error about the data at its position? Not if it is a rollback by a conflict, a lack of resources, an
/// intervention, or a lock that is not available.
fn is_about_file(sqlstate: &[u8]) -> bool {
    !matches!(sqlstate.get(..2), Some(b"40" | b"53" | b"57")) && sqlstate != b"55P03"
}

/// The name that ends nearest to the context's end, as whole lines. The context may quote arbitrary data of the file
/// before it, and names may have several lines.
fn last_named(context: &CStr, names: impl Iterator<Item = CString>) -> Option<usize> {
    let lines: Vec<&[u8]> = context.to_bytes().split(|&byte| byte == b'\n').collect();
    let place = |name: CString| {
        let words: Vec<&[u8]> = name.to_bytes().split(|&byte| byte == b'\n').collect();
        let start = lines.windows(words.len()).rposition(|lines| lines == words)?;
        Some((start + words.len(), words.len()))
    };
    let named = names.enumerate().filter_map(|(file, name)| Some((place(name)?, file)));
    named.max().map(|(_, file)| file)
}
