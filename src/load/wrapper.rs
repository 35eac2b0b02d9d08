//! What loads ask of the foreign data wrapper.
//!
//! The two do not know each other: who knows both says at the start what the one tells of its tables.

use std::sync::OnceLock;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use crate::error::{Error, Result};
use crate::pg::column::Column;
use crate::pg::copy_options::CopyOptions;
use crate::pg::source::Location;

/// What the foreign data wrapper tells of its tables.
#[derive(Debug)]
pub struct Wrapper {
    /// Are these its routines?
    pub owns: unsafe fn(*const pg_sys::FdwRoutine) -> bool,
    /// A table's file, and what it means.
    pub file: fn(pg_sys::Oid) -> Result<(Location, CopyOptions)>,
    /// The columns of an open table's file.
    pub columns: fn(pg_sys::Relation, &CopyOptions) -> Result<Vec<Column>>,
    /// Are the rows of one of its tables made by a filter? Guarded.
    pub filters: fn(pg_sys::Oid) -> Result<bool>,
    /// The columns that the conditions of a scan look at, and those that are wanted besides.
    pub wanted: unsafe fn(*const pg_sys::ForeignScan) -> [Vec<i16>; 2],
    /// Is it the wrapper's scan, of a file that a load can read in its place?
    pub is_replaceable: unsafe fn(*const pg_sys::ForeignScanState) -> bool,
    /// A load is going to. Guarded.
    pub replace: unsafe fn(*mut pg_sys::ForeignScanState) -> Result<()>,
    /// It has read so many bytes, and met so many rows with bad values.
    pub count: unsafe fn(*mut pg_sys::ForeignScanState, u64, u64),
}

static WRAPPER: OnceLock<Wrapper> = OnceLock::new();

impl Wrapper {
    pub fn get() -> Result<&'static Wrapper> {
        WRAPPER.get().ok_or_else(|| Error::new(Code::ERRCODE_INTERNAL_ERROR, "there is no foreign data wrapper"))
    }

    /// Is this one of its tables?
    ///
    /// # Safety
    /// A relation of the planner's.
    pub unsafe fn has(&self, rel: *const pg_sys::RelOptInfo) -> bool {
        // SAFETY: this function's contract covers the argument.
        unsafe { (self.owns)((*rel).fdwroutine) }
    }

    /// Guarded.
    pub fn file_of(&self, relid: pg_sys::Oid) -> Result<(Location, CopyOptions)> {
        (self.file)(relid)
    }

    /// Guarded; the current memory context must outlive the columns.
    pub fn columns_of(&self, relation: pg_sys::Relation, copy: &CopyOptions) -> Result<Vec<Column>> {
        (self.columns)(relation, copy)
    }
}

/// Called once, when the library is loaded.
pub fn init(wrapper: Wrapper) {
    let _ = WRAPPER.set(wrapper);
}
