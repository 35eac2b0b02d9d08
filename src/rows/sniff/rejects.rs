//! Records of the sample that a load under the proposed options would reject, or change.
//!
//! Reading the sample is the trial of the proposal: the reader is that of loads, with the same options. Each kind of
//! failure is counted, and its first record kept for a note.

use std::ffi::CString;

use super::evidence::ValuePosition;
use crate::input::encoding::shown;
use crate::rows::ragged::{LongRows, RaggedOptions, ShortRows};

/// The failures by kind.
#[derive(Debug)]
pub(super) struct Trial {
    /// The given options about records with another number of fields.
    given: RaggedOptions,
    /// Records with another number of fields that are rejected.
    pub(super) odd: Rejects,
    /// Records that get NULL in place of missing fields.
    pub(super) short: Rejects,
    /// Records whose surplus fields are not read.
    pub(super) long: Rejects,
    /// Blank lines.
    pub(super) blank: Rejects,
    /// Records that cannot be read.
    pub(super) unreadable: Rejects,
    /// Records with invalid bytes.
    pub(super) invalid: Rejects,
}

impl Trial {
    pub(super) fn new(given: RaggedOptions) -> Trial {
        let [odd, short, long, blank, unreadable, invalid] = std::array::from_fn(|_| Rejects::default());
        Trial { given, odd, short, long, blank, unreadable, invalid }
    }

    /// The records with `fields` of `width` fields that become rows, unless the given options say that they are errors.
    pub(super) fn ragged(&mut self, fields: usize, width: usize) -> Option<&mut Rejects> {
        let is_short = fields < width;
        let is_error = if is_short {
            self.given.short_rows == Some(ShortRows::Error)
        } else {
            self.given.long_rows == Some(LongRows::Error)
        };
        (!is_error).then_some(if is_short { &mut self.short } else { &mut self.long })
    }

    /// Number of the records that are not as the others.
    pub(super) fn failures(&self) -> u64 {
        [&self.odd, &self.short, &self.long, &self.unreadable, &self.invalid].into_iter().map(|kind| kind.count).sum()
    }

    /// The notes. `files`: the names, if there are several files.
    pub(super) fn notes(&self, files: &[CString]) -> Vec<String> {
        let fails = "a load fails there";
        let filled = match self.given.short_rows {
            Some(ShortRows::Default) => "missing fields are defaults (short_rows)",
            _ => "missing fields are NULL (short_rows)",
        };
        let kinds = [
            (&self.blank, "they are skipped (skip_blank_lines)"),
            (&self.short, filled),
            (&self.long, "surplus fields are not read (long_rows)"),
            (&self.odd, fails),
            (&self.unreadable, fails),
            (&self.invalid, fails),
        ];
        kinds.into_iter().filter_map(|(kind, consequence)| kind.note(files, consequence)).collect()
    }
}

/// Records with one kind of failure.
#[derive(Debug, Default)]
pub(super) struct Rejects {
    pub(super) count: u64,
    first: Option<First>,
}

#[derive(Debug)]
struct First {
    /// Index of the file.
    file: usize,
    place: ValuePosition,
    reason: String,
}

impl Rejects {
    /// Count a record. `reason` continues a sentence that begins with the name of the line.
    pub(super) fn add(&mut self, file: usize, place: ValuePosition, reason: impl FnOnce() -> String) {
        self.count += 1;
        self.first.get_or_insert_with(|| First { file, place, reason: reason() });
    }

    /// The note, which ends with the consequence for a load. `files`: the names, if there are several files.
    fn note(&self, files: &[CString], consequence: &str) -> Option<String> {
        let First { file, place, reason } = self.first.as_ref()?;
        let line = match place {
            ValuePosition::Line(line) => format!("line {line}"),
            ValuePosition::Offset(offset) => format!("the line at byte {offset}"),
        };
        let of = files.get(*file).map(|file| format!(" of file \"{}\"", shown(file))).unwrap_or_default();
        let count = self.count;
        Some(format!("{line}{of} {reason} (such lines: {count}); {consequence}"))
    }
}
