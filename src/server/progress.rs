//! `pg_stat_progress_copy` for scans and loads.
//!
//! A backend has one progress slot and no stack of them. A scan or load uses the slot only if it is free when the scan
//! or load begins. A COPY TO over a foreign table, a CREATE INDEX, an ANALYZE keep theirs, and a second foreign table
//! of a join is not reported. A command that runs inside (a trigger's COPY, a subtransaction that fails) may take the
//! slot or end it. So each update checks the slot, and takes it again if it is free. After an error the server clears
//! the slot.
//!
//! A load sets COPY's parameters, and some that COPY does not use. These are indexes of `st_progress_param`, which
//! start at 0. The columns of `pg_stat_get_progress_info('COPY')` start at 1; it shows all parameters, with the
//! privileges of `pg_stat_activity`:
//!
//! | index | column | |
//! |--:|---|---|
//! | 7 | `param8` | the phase: a number of [`Phase`](crate::load::phase::Phase); 0 except in a load |
//! | 17 | `param18` | parallel workers |
//! | 18 | `param19` | rows rejected |
//! | 19 | `param20` | the load id |
//!
//! The remaining parameters are not set because CREATE INDEX uses them, also for an index build inside a load. Then 9
//! to 12, 15 and 16 show the progress of the build, as in `pg_stat_progress_create_index`.

use pgrx::pg_sys;

use super::call::calls;
use super::compat;

const PHASE: u32 = 7;
const WORKERS: u32 = 17;
const REJECTED: u32 = 18;
const LOAD: u32 = 19;

/// Type of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceKind {
    File,
    Program,
    Client,
    /// The rows come from the executor, and not from a file.
    Inside,
}

/// The figures of the report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    pub bytes: u64,
    pub rows: u64,
    /// Rows that a condition excluded.
    pub excluded: u64,
    pub rejected: u64,
    pub workers: usize,
    pub phase: u32,
}

/// A report in the backend's progress slot, if that was free.
#[derive(Debug)]
pub struct Progress {
    relid: pg_sys::Oid,
    /// The load id; 0 for a scan.
    load: i64,
    kind: u32,
    total: u64,
    /// The slot was free at the start.
    wanted: bool,
    pub figures: Figures,
}

fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

impl Progress {
    /// A report that shows nothing.
    pub fn none() -> Progress {
        let (relid, kind) = (pg_sys::InvalidOid, pg_sys::PROGRESS_COPY_TYPE_FILE);
        Progress { relid, load: 0, kind, total: 0, wanted: false, figures: Figures::default() }
    }

    /// Take the slot for a scan, if it is free. Guarded.
    pub fn start(relid: pg_sys::Oid, program: bool, total: Option<u64>) -> Progress {
        let kind = if program { SourceKind::Program } else { SourceKind::File };
        Progress::of_load(relid, 0, kind, total, Figures::default())
    }

    /// Take the slot for a load, if it is free. Guarded.
    pub fn of_load(relid: pg_sys::Oid, load: i64, kind: SourceKind, total: Option<u64>, figures: Figures) -> Progress {
        let kind = match kind {
            SourceKind::File => pg_sys::PROGRESS_COPY_TYPE_FILE,
            SourceKind::Program => pg_sys::PROGRESS_COPY_TYPE_PROGRAM,
            SourceKind::Client => pg_sys::PROGRESS_COPY_TYPE_PIPE,
            SourceKind::Inside => pg_sys::PROGRESS_COPY_TYPE_CALLBACK,
        };
        let total = total.unwrap_or(0);
        let progress = Progress { relid, load, kind, total, wanted: is_free(), figures };
        progress.show();
        progress
    }

    /// Show the bytes and rows of a scan so far. Guarded.
    pub fn update(&mut self, bytes: u64, rows: u64) {
        (self.figures.bytes, self.figures.rows) = (bytes, rows);
        self.show();
    }

    /// Show the figures. Guarded.
    pub fn show(&self) {
        if !self.wanted || (!self.is_ours() && !self.take()) {
            return;
        }
        let Figures { bytes, rows, excluded, rejected, workers, phase } = self.figures;
        // The beginnings of some records are read more than once.
        let bytes = if self.total > 0 { bytes.min(self.total) } else { bytes };
        let figures = [
            (pg_sys::PROGRESS_COPY_BYTES_PROCESSED, number(bytes)),
            (pg_sys::PROGRESS_COPY_BYTES_TOTAL, number(self.total)),
            (pg_sys::PROGRESS_COPY_TUPLES_PROCESSED, number(rows)),
            (pg_sys::PROGRESS_COPY_TUPLES_EXCLUDED, number(excluded)),
            (pg_sys::PROGRESS_COPY_COMMAND, pg_sys::PROGRESS_COPY_COMMAND_FROM.into()),
            (pg_sys::PROGRESS_COPY_TYPE, self.kind.into()),
            (PHASE, phase.into()),
            (WORKERS, number(workers as u64)),
            (REJECTED, number(rejected)),
            (LOAD, self.load),
            (compat::PROGRESS_SKIPPED.unwrap_or(REJECTED), number(rejected)),
        ];
        let indexes = figures.map(|(index, _)| index.cast_signed());
        let values = figures.map(|(_, value)| value);
        // SAFETY: a guarded call; as many values as indexes, all of the slot's array.
        unsafe {
            let count = i32::try_from(indexes.len()).unwrap_or(0);
            pg_sys::pgstat_progress_update_multi_param(count, indexes.as_ptr(), values.as_ptr());
        }
    }

    fn is_ours(&self) -> bool {
        shown() == Some((pg_sys::ProgressCommandType::PROGRESS_COMMAND_COPY, self.relid, self.load))
    }

    fn take(&self) -> bool {
        let free = is_free();
        if free {
            let copy = pg_sys::ProgressCommandType::PROGRESS_COMMAND_COPY;
            start_command(copy, self.relid);
        }
        free
    }

    /// Release the slot. Guarded.
    pub fn end(&mut self) {
        if self.wanted && self.is_ours() {
            end_command();
        }
        self.wanted = false;
    }
}

// SAFETY: this backend's entry, whose first parameters are cleared; any OID is shown.
calls! {
    fn start_command(kind: pg_sys::ProgressCommandType::Type, relid: pg_sys::Oid) = pgstat_progress_start_command(kind, relid);
    fn end_command() = pgstat_progress_end_command();
}

/// The command in this backend's slot, its relation, and the load id.
#[expect(clippy::indexing_slicing, reason = "one of the server's own parameters")]
fn shown() -> Option<(pg_sys::ProgressCommandType::Type, pg_sys::Oid, i64)> {
    // SAFETY: this backend's own entry, which only this backend writes. The values are copied.
    let entry = unsafe { pg_sys::MyBEEntry.as_ref() }?;
    Some((entry.st_progress_command, entry.st_progress_command_target, entry.st_progress_param[LOAD as usize]))
}

fn is_free() -> bool {
    shown().is_some_and(|(command, ..)| command == pg_sys::ProgressCommandType::PROGRESS_COMMAND_INVALID)
}
