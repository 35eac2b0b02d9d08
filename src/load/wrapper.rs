//! The functions of the foreign data wrapper that loads call.
//!
//! The wrapper and loads do not import each other: lib.rs passes these functions to [`init`] when the library is
//! loaded.

use std::sync::OnceLock;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use crate::error::{Error, Result};
use crate::input::source::Location;
use crate::rows::column::Column;
use crate::rows::copy_options::CopyOptions;
use crate::server::node::Node;
use crate::server::relation::Relation;

/// Callbacks of the foreign data wrapper about its tables.
#[derive(Debug)]
pub struct Wrapper {
    /// Are the routines those of this wrapper?
    pub owns: fn(Option<Node<'_, pg_sys::FdwRoutine>>) -> bool,
    /// A table's file, and its format. Guarded.
    pub file: fn(pg_sys::Oid) -> Result<(Location, CopyOptions)>,
    /// The columns of an open table's file. Guarded; the current memory context must outlive them.
    pub columns: fn(Relation<'_>, &CopyOptions) -> Result<Vec<Column>>,
    /// Does one of its tables have a filter? Guarded.
    pub filters: fn(pg_sys::Oid) -> Result<bool>,
    /// The columns that a scan's conditions read, and the other columns that it returns.
    pub wanted: fn(Node<'_, pg_sys::ForeignScan>) -> [Vec<i16>; 2],
    /// Is the state that of a scan of this wrapper, of a file that a load can read instead?
    pub is_replaceable: fn(Node<'_, pg_sys::ForeignScanState>) -> bool,
    /// Announces that a load replaces the scan. Guarded.
    pub replace: fn(Node<'_, pg_sys::ForeignScanState>) -> Result<()>,
    /// Adds bytes read and rejected rows to the scan's figures.
    pub count: fn(Node<'_, pg_sys::ForeignScanState>, u64, u64),
}

static WRAPPER: OnceLock<Wrapper> = OnceLock::new();

impl Wrapper {
    pub fn get() -> Result<&'static Wrapper> {
        WRAPPER.get().ok_or_else(|| Error::new(Code::ERRCODE_INTERNAL_ERROR, "there is no foreign data wrapper"))
    }

    /// Is this one of its tables?
    pub fn has(&self, rel: Node<'_, pg_sys::RelOptInfo>) -> bool {
        // SAFETY: a relation has valid routines, or null.
        (self.owns)(unsafe { Node::from_raw(rel.fdwroutine) })
    }
}

/// Called once, when the library is loaded.
pub fn init(wrapper: Wrapper) {
    let _ = WRAPPER.set(wrapper);
}
