//! The input of an index build: the keys that the processes have collected, and the old entries.

use std::cell::Cell;
use std::ffi::CString;

use pg_bulk_storage::btree::entry::Tid;
use pgrx::pg_sys;

use crate::server::shared_files::SharedFiles;
use crate::server::usage::Cpu;

/// The input of an index build.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'w> {
    /// Files of workers, and the number of workers.
    pub files: Option<SharedFiles>,
    pub workers: usize,
    /// Most workers that may build it together with the leader.
    pub builders: usize,
    /// The part of maintenance_work_mem that the keys of other indexes leave, in kB.
    pub memory: i32,
    /// Number of rows whose keys must be present.
    pub rows: u64,
    /// `merge`: the new index gets the old entries, too. `start`: first block of the load's rows, ...
    pub merge: bool,
    pub start: u32,
    /// ... except for these rows in earlier blocks, ascending.
    pub elsewhere: &'w [Tid],
    /// If set, workers may be started for the build, and their work is counted here.
    pub help: Option<&'w Cell<Help>>,
}

/// Work of workers for an index.
#[derive(Debug, Clone, Copy, Default)]
pub struct Help {
    pub workers: usize,
    pub cpu: Cpu,
}

impl Sources<'_> {
    /// Did the load insert this row?
    pub fn is_new(&self, row: Tid) -> bool {
        row.block() >= self.start || self.elsewhere.binary_search(&row).is_ok()
    }
}

/// Name of a worker's file.
pub fn file_name(index: pg_sys::Oid, worker: usize) -> CString {
    CString::new(format!("{}.{worker}", index.to_u32())).unwrap_or_default()
}
