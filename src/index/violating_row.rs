//! The row whose key is being inserted into an index, for the error that the index may raise.
//!
//! Keys are inserted in their order, long after the rows, and the server's error does not name the row. So the current
//! row is noted, and its line is found after the error was caught.

use std::ffi::CString;

use pgrx::pg_sys;

/// The row whose key is being inserted.
#[derive(Debug, Default)]
pub struct ViolatingRow {
    /// Index of its relation among the load's relations.
    pub relation: usize,
    pub row: Option<pg_sys::ItemPointerData>,
    /// Another row of the load with the same key.
    pub other: Option<pg_sys::ItemPointerData>,
    /// Filled in at the end: the line, and the names of its table and file.
    pub line: Option<(u64, CString, CString)>,
}
