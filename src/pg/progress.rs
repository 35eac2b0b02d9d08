//! `pg_stat_progress_copy` for a scan.
//!
//! A backend has one progress slot and no stack of them. A scan uses it only if nobody else does, and from then on
//! only as long as it is still its own: a COPY TO over a foreign table, a CREATE INDEX, an ANALYZE keep theirs, and a
//! second foreign table of a join goes unreported. After an error the server clears the slot by itself.

use pgrx::pg_sys;

const BYTES_PROCESSED: u32 = pg_sys::PROGRESS_COPY_BYTES_PROCESSED;
const BYTES_TOTAL: u32 = pg_sys::PROGRESS_COPY_BYTES_TOTAL;
const TUPLES_PROCESSED: u32 = pg_sys::PROGRESS_COPY_TUPLES_PROCESSED;
const COMMAND: u32 = pg_sys::PROGRESS_COPY_COMMAND;
const TYPE: u32 = pg_sys::PROGRESS_COPY_TYPE;

/// The slot, if it is ours.
#[derive(Debug)]
pub struct Progress {
    relid: pg_sys::Oid,
    owned: bool,
}

impl Progress {
    /// Nothing to report.
    pub fn none() -> Progress {
        Progress { relid: pg_sys::InvalidOid, owned: false }
    }

    /// Take the slot if it is free. Guarded.
    pub fn start(relid: pg_sys::Oid, program: bool, total: Option<u64>) -> Progress {
        // SAFETY: the entry is this backend's own; only this backend writes it.
        let owned = unsafe {
            let entry = pg_sys::MyBEEntry;
            !entry.is_null() && (*entry).st_progress_command == pg_sys::ProgressCommandType::PROGRESS_COMMAND_INVALID
        };
        let progress = Progress { relid, owned };
        if owned {
            // SAFETY: a guarded call with valid arguments.
            unsafe { pg_sys::pgstat_progress_start_command(pg_sys::ProgressCommandType::PROGRESS_COMMAND_COPY, relid) }
            progress.set(COMMAND, pg_sys::PROGRESS_COPY_COMMAND_FROM.into());
            let kind = if program { pg_sys::PROGRESS_COPY_TYPE_PROGRAM } else { pg_sys::PROGRESS_COPY_TYPE_FILE };
            progress.set(TYPE, kind.into());
            progress.set(BYTES_TOTAL, total.map_or(0, |t| i64::try_from(t).unwrap_or(i64::MAX)));
        }
        progress
    }

    fn is_ours(&self) -> bool {
        // SAFETY: as in `start`.
        self.owned
            && unsafe {
                let entry = pg_sys::MyBEEntry;
                (*entry).st_progress_command == pg_sys::ProgressCommandType::PROGRESS_COMMAND_COPY
                    && (*entry).st_progress_command_target == self.relid
            }
    }

    fn set(&self, index: u32, value: i64) {
        // SAFETY: a guarded call; the index is one of the slot's.
        unsafe { pg_sys::pgstat_progress_update_param(index.cast_signed(), value) }
    }

    /// So far. Guarded.
    pub fn update(&self, bytes: u64, rows: u64) {
        if self.is_ours() {
            self.set(BYTES_PROCESSED, i64::try_from(bytes).unwrap_or(i64::MAX));
            self.set(TUPLES_PROCESSED, i64::try_from(rows).unwrap_or(i64::MAX));
        }
    }

    /// Give the slot back. Guarded.
    pub fn end(&mut self) {
        if self.is_ours() {
            // SAFETY: a guarded call.
            unsafe { pg_sys::pgstat_progress_end_command() }
        }
        self.owned = false;
    }
}
