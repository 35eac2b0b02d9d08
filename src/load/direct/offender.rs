//! The row that an index may be about to complain about.
//!
//! Keys are inserted in their order, long after the rows: what the server says of one does not say which row it was. So the
//! one that is being inserted is remembered; its line is found when the error has been caught.

use std::ffi::CString;

use pgrx::pg_sys;

/// What an index may be about to complain about.
#[derive(Debug, Default)]
pub struct Offender {
    /// Its number among the load's relations.
    pub relation: usize,
    pub row: Option<pg_sys::ItemPointerData>,
    /// Another row of the load with the same key.
    pub other: Option<pg_sys::ItemPointerData>,
    /// What is found out in the end: a line, and the names of the table and the file that it is of.
    pub line: Option<(u64, CString, CString)>,
}
