//! Records with too few or too many fields that become rows, because `short_rows` or `long_rows` says so.
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

    /// A notice that these records were `treated` in some way. The first record is in one of the `files`, if there are
    /// several.
    fn notice(self, treated: &str, files: Option<&FileList>) -> Option<Error> {
        let line = self.first & ((1 << LINE_BITS) - 1);
        let file = usize::try_from(self.first >> LINE_BITS).ok().and_then(|number| files?.files.get(number));
        let file = file.map(|file| format!(" of \"{}\"", from_server(&file.path))).unwrap_or_default();
        let message = match self.count {
            0 => return None,
            1 => format!("{treated} in 1 record (line {line}{file})"),
            n => format!("{treated} in {n} records (first in line {line}{file})"),
        };
        Some(Error::new(Code::ERRCODE_SUCCESSFUL_COMPLETION, message))
    }
}

/// Records that became rows although they have another number of fields than the file has columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ragged {
    short: Records,
    long: Records,
}

impl Default for Ragged {
    fn default() -> Ragged {
        Ragged { short: Records::NONE, long: Records::NONE }
    }
}

impl Ragged {
    /// Counts a record in a line of a file, by the number of the file.
    pub fn count(&mut self, is_short: bool, file: usize, line: u64) {
        let first = (file as u64) << LINE_BITS | line.min((1 << LINE_BITS) - 1);
        let records = if is_short { &mut self.short } else { &mut self.long };
        records.add(Records { count: 1, first });
    }

    pub fn add(&mut self, other: &Ragged) {
        self.short.add(other.short);
        self.long.add(other.long);
    }

    /// Notices about these records, read with `short_rows` from one file or from a list.
    pub fn notices(&self, short_rows: ShortRows, files: Option<&FileList>) -> Vec<Error> {
        let filled = match short_rows {
            ShortRows::Default => "missing fields were set to their defaults",
            ShortRows::Error | ShortRows::Null => "missing fields were set to NULL",
        };
        let notices = [self.short.notice(filled, files), self.long.notice("surplus fields were not read", files)];
        notices.into_iter().flatten().collect()
    }
}

/// The records of all processes of a load or a scan.
#[derive(Debug)]
pub struct SharedRagged {
    counts: [AtomicU64; 2],
    firsts: [AtomicU64; 2],
}

impl SharedRagged {
    pub fn new() -> SharedRagged {
        SharedRagged { counts: [const { AtomicU64::new(0) }; 2], firsts: [const { AtomicU64::new(u64::MAX) }; 2] }
    }

    /// Moves the counts of a process here.
    pub fn take(&self, ragged: &mut Ragged) {
        let Ragged { short, long } = std::mem::take(ragged);
        for ((count, first), records) in self.counts.iter().zip(&self.firsts).zip([short, long]) {
            count.fetch_add(records.count, Relaxed);
            first.fetch_min(records.first, Relaxed);
        }
    }

    pub fn total(&self) -> Ragged {
        let [short, long] = [0, 1].map(|i: usize| {
            let of = |numbers: &[AtomicU64; 2]| numbers.get(i).map_or(0, |number| number.load(Relaxed));
            Records { count: of(&self.counts), first: of(&self.firsts) }
        });
        Ragged { short, long }
    }
}
