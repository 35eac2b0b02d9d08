//! Records that a load or scan reports: those with too few or too many fields that become rows, because `short_rows` or
//! `long_rows` says so, those with quotes or keys that may be wrong, and end markers.
//!
//! Such a record is never changed silently. Each process counts its own in a [`Ragged`], and adds them to the
//! [`SharedRagged`] of its load or scan. A note or notice has the number and the first line.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::PgSqlErrorCode as Code;

use crate::error::Error;
use crate::input::files::FileList;
use crate::server::server_text::from_server;

/// Meaning of a record that lacks fields at its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ShortRows {
    #[default]
    Error,
    /// The missing fields are NULL.
    Null,
    /// The missing fields are the defaults of their columns, or NULL in columns without a default.
    Default,
}

/// Meaning of a record with more fields than columns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LongRows {
    #[default]
    Error,
    /// The fields after the last column are not read.
    Cut,
}

/// The options about records with another number of fields; `None` if not given.
#[derive(Debug, Clone, Copy, Default)]
pub struct RaggedOptions {
    pub short_rows: Option<ShortRows>,
    pub long_rows: Option<LongRows>,
}

/// Bits of a line number in [`Records::first`]. The number of the file is above them.
const LINE_BITS: u32 = 40;

/// A number of records, and the first of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Records {
    count: u64,
    first: u64,
}

impl Records {
    const NONE: Records = Records { count: 0, first: u64::MAX };

    fn add(&mut self, other: Records) {
        self.count += other.count;
        self.first = self.first.min(other.first);
    }

    /// A notice that these records, or lines, were `treated` in some way. The first record is in one of the `files`, if there are
    /// several.
    fn notice(self, treated: &str, unit: &str, files: Option<&FileList>) -> Option<Error> {
        let line = self.first & ((1 << LINE_BITS) - 1);
        let file = usize::try_from(self.first >> LINE_BITS).ok().and_then(|number| files?.files.get(number));
        let file = file.map(|file| format!(" of \"{}\"", from_server(&file.path))).unwrap_or_default();
        let message = match self.count {
            0 => return None,
            1 => format!("{treated} in 1 {unit} (line {line}{file})"),
            n => format!("{treated} in {n} {unit}s (first in line {line}{file})"),
        };
        Some(Error::new(Code::ERRCODE_SUCCESSFUL_COMPLETION, message))
    }
}

/// Why records are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remark {
    /// Fields were missing.
    Short,
    /// There were surplus fields.
    Long,
    /// Quotes within a field were dropped.
    StrayQuote,
    /// A key of an object was there twice, and its last value was taken.
    RepeatedKey,
    /// No member of an object was that of a column.
    ForeignKeys,
    /// A reject ended at a line from which the file was in order again.
    EndedEarly,
    /// A line of a reject that has several because of quotes.
    Swallowed,
    /// An end marker, and text is behind it.
    EndMarker,
}

/// Number of remarks.
const REMARKS: usize = 8;

/// The records that are reported, by remark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ragged([Records; REMARKS]);

impl Default for Ragged {
    fn default() -> Ragged {
        Ragged([Records::NONE; REMARKS])
    }
}

impl Ragged {
    /// Counts records, the first of them in a line of a file, by the number of the file.
    pub fn count(&mut self, remark: Remark, count: u64, file: usize, line: u64) {
        let first = (file as u64) << LINE_BITS | line.min((1 << LINE_BITS) - 1);
        if let Some(records) = self.0.get_mut(remark as usize) {
            records.add(Records { count, first });
        }
    }

    pub fn add(&mut self, other: &Ragged) {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| own.add(other));
    }

    /// Notices about these records, read with `short_rows` from one file or from a list.
    pub fn notices(&self, short_rows: ShortRows, files: Option<&FileList>) -> Vec<Error> {
        let filled = match short_rows {
            ShortRows::Default => "missing fields were set to their defaults",
            ShortRows::Error | ShortRows::Null => "missing fields were set to NULL",
        };
        let treated = [
            (filled, "record"),
            ("surplus fields were not read", "record"),
            ("quotes within fields were dropped", "record"),
            ("only the last value of equal keys was read", "record"),
            ("no column had the key of a member", "record"),
            ("a quote is not closed, and reading went on at the next good line,", "record"),
            ("line ends in quotes are part of rejects,", "line"),
            ("data ended at \\., and text behind it was not read,", "line"),
        ];
        let notices = self.0.iter().zip(treated);
        notices.filter_map(|(records, (treated, unit))| records.notice(treated, unit, files)).collect()
    }
}

/// The records of all processes of a load or a scan.
#[derive(Debug)]
pub struct SharedRagged {
    counts: [AtomicU64; REMARKS],
    firsts: [AtomicU64; REMARKS],
}

impl SharedRagged {
    pub fn new() -> SharedRagged {
        SharedRagged {
            counts: [const { AtomicU64::new(0) }; REMARKS],
            firsts: [const { AtomicU64::new(u64::MAX) }; REMARKS],
        }
    }

    /// Moves the counts of a process here.
    pub fn take(&self, ragged: &mut Ragged) {
        for ((count, first), records) in self.counts.iter().zip(&self.firsts).zip(std::mem::take(ragged).0) {
            count.fetch_add(records.count, Relaxed);
            first.fetch_min(records.first, Relaxed);
        }
    }

    pub fn total(&self) -> Ragged {
        let mut all = Ragged::default();
        for (records, (count, first)) in all.0.iter_mut().zip(self.counts.iter().zip(&self.firsts)) {
            *records = Records { count: count.load(Relaxed), first: first.load(Relaxed) };
        }
        all
    }
}
