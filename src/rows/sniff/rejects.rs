//! Records of the sample that a load under the proposed options would reject, or change.
//!
//! Reading the sample is the trial of the proposal: the reader is that of loads, with the same options. Each kind of
//! failure is counted, and its first record kept for a note.

use std::ffi::CString;

use super::evidence::ValuePosition;
use crate::input::encoding::shown;

/// The failures by kind.
#[derive(Debug, Default)]
pub(super) struct Trial {
    /// Blank lines, where records have several fields.
    pub(super) blank: Rejects,
    /// Other records with fewer fields.
    pub(super) short: Rejects,
    /// Records with more fields.
    pub(super) long: Rejects,
    /// Lines that are equal to the header.
    pub(super) repeated: Rejects,
    /// Records that cannot be read.
    pub(super) unreadable: Rejects,
    /// Records with invalid bytes.
    pub(super) invalid: Rejects,
    /// End markers with text behind them.
    pub(super) marker: Rejects,
    /// Records with line ends in quotes, if those from which the dialect was found had none.
    pub(super) spanning: Rejects,
    /// One of those from which the dialect was found has line ends in quotes.
    pub(super) spans_early: bool,
}

/// Records with one kind of failure.
#[derive(Debug, Default)]
pub(super) struct Rejects {
    pub(super) count: u64,
    /// Index of the file, position and reason of the first one.
    first: Option<(usize, ValuePosition, String)>,
}

impl Rejects {
    /// Count a record. `reason` continues a sentence that begins with the name of the line.
    pub(super) fn add(&mut self, file: usize, place: impl FnOnce() -> ValuePosition, reason: impl FnOnce() -> String) {
        self.count += 1;
        self.first.get_or_insert_with(|| (file, place(), reason()));
    }

    /// The note, which ends with the consequence for a load. `files`: the names, if there are several files.
    pub(super) fn note(&self, files: &[CString], consequence: &str) -> Option<String> {
        let (file, place, reason) = self.first.as_ref()?;
        let (line, count) = (line(files, *file, *place), self.count);
        Some(format!("{line} {reason} (such lines: {count}); {consequence}"))
    }
}

/// A line as notes name it. `files`: the names, if there are several files.
pub(super) fn line(files: &[CString], file: usize, place: ValuePosition) -> String {
    let line = match place {
        ValuePosition::Line(line) => format!("line {line}"),
        ValuePosition::Offset(offset) => format!("the line at byte {offset}"),
    };
    let of = files.get(file).map(|file| format!(" of file \"{}\"", shown(file))).unwrap_or_default();
    line + &of
}
