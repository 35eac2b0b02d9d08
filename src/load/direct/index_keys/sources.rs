//! What an index is built from: what the processes of a load have collected, and what was there before.

use std::cell::Cell;
use std::ffi::CString;

use pg_bulk_format::btree::entry::Tid;
use pgrx::pg_sys;

use crate::pg::shared_files::SharedFiles;
use crate::pg::usage::Cpu;

/// What processes have collected, and what was there before.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'w> {
    /// Files of workers, and how many workers there were.
    pub files: Option<SharedFiles>,
    pub workers: usize,
    /// How many may build it together with the leader.
    pub builders: usize,
    /// What is left of maintenance_work_mem beside keys of other indexes, in kB.
    pub memory: i32,
    /// Rows that there must be keys of.
    pub rows: u64,
    /// The entries that the index has are to be in the new one, too. Rows are the load's from this block on, ...
    pub merge: bool,
    pub start: u32,
    /// ... and those that were put before it, ascending.
    pub elsewhere: &'w [Tid],
    /// Workers may be started to build it, if what they have done is told.
    pub help: Option<&'w Cell<Help>>,
}

/// What workers have done for an index.
#[derive(Debug, Clone, Copy, Default)]
pub struct Help {
    pub workers: usize,
    pub cpu: Cpu,
}

impl Sources<'_> {
    /// Is a row one of the load's?
    pub fn is_new(&self, row: Tid) -> bool {
        row.block() >= self.start || self.elsewhere.binary_search(&row).is_ok()
    }
}

/// What a worker's file is called.
pub fn file_name(index: pg_sys::Oid, worker: usize) -> CString {
    CString::new(format!("{}.{worker}", index.to_u32())).unwrap_or_default()
}
