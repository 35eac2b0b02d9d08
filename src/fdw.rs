//! The foreign data wrapper `bulk_fdw`: files as tables.
//!
//! One module for each task: `options` parses a table's options, `plan` and `estimate` plan a scan, `scan` runs it;
//! `explain` and `analyze` serve these commands. `order` is the order that `sorted_by` declares, `parallel` a scan by
//! several processes, `aggregate` a scan that returns aggregates only. `servers` has the checks of servers with a
//! directory, `filter` the function that makes the rows, and `filter_option` its name. `private` is the data that a
//! plan passes to its execution, `import` makes tables of a directory's files. The callbacks are short; `rows::row` and
//! the pure crate read the file.

mod aggregate;
mod analyze;
mod estimate;
mod explain;
mod filter;
mod filter_option;
mod import;
mod options;
mod order;
mod parallel;
mod plan;
mod private;
mod scan;
mod servers;

use pgrx::prelude::*;
use pgrx::{AllocatedByRust, pg_sys};

use self::options::TableOptions;
use self::scan::Scan;
pub use self::servers::{end_statement, init};
use crate::error::{OrRaise, Result};
use crate::input::source::Location;
use crate::rows::column::Column;
use crate::rows::copy_options::CopyOptions;
use crate::server::option_value::stored;

/// A callback that only this wrapper's routines have.
static BEGIN: pg_sys::BeginForeignScan_function = Some(scan::open::begin_foreign_scan);

/// Do these routines belong to this wrapper?
///
/// # Safety
/// Valid routines, or null.
pub unsafe fn owns(routine: *const pg_sys::FdwRoutine) -> bool {
    // SAFETY: this function's contract covers them.
    let begin = unsafe { routine.as_ref() }.and_then(|routine| routine.BeginForeignScan);
    begin.map(|begin| begin as usize) == BEGIN.map(|begin| begin as usize)
}

/// A foreign table's file, and its format. Guarded.
pub fn file_of(relid: pg_sys::Oid) -> Result<(Location, CopyOptions)> {
    let options = TableOptions::of_table(relid)?;
    Ok((options.location()?.clone(), options.copy))
}

/// Does the table have a filter? Guarded.
pub fn filters(relid: pg_sys::Oid) -> Result<bool> {
    Ok(TableOptions::of_table(relid)?.filter.is_some())
}

/// The numbers of the columns that a scan's conditions read, and of the others that it returns. Guarded.
///
/// # Safety
/// The plan of a scan of this wrapper.
pub unsafe fn wanted(scan: *const pg_sys::ForeignScan) -> [Vec<i16>; 2] {
    // SAFETY: this function's contract covers the plan.
    let private::Wanted { by_quals, besides } = unsafe { private::Wanted::from_private((*scan).fdw_private) };
    [by_quals, besides].map(|numbers| numbers.into_iter().filter_map(|number| i16::try_from(number).ok()).collect())
}

/// Is the state that of a begun scan of this wrapper, whose file a load can read instead, in any order?
///
/// # Safety
/// A valid state.
pub unsafe fn is_replaceable(node: *const pg_sys::ForeignScanState) -> bool {
    // SAFETY: this function's contract covers the state; a scan that has our routines was begun by them.
    unsafe {
        let begin = (*node).fdwroutine.as_ref().and_then(|routine| routine.BeginForeignScan);
        begin.is_some_and(|begin| begin as usize == scan::open::begin_foreign_scan as *const () as usize)
            && (*node).fdw_state.cast::<Scan>().as_ref().is_some_and(Scan::is_replaceable)
    }
}

/// Marks the scan as replaced by a load. Guarded.
///
/// # Safety
/// A scan that is replaceable.
pub unsafe fn replace(node: *mut pg_sys::ForeignScanState) -> Result<()> {
    // SAFETY: this function's contract covers the state.
    unsafe { (*node).fdw_state.cast::<Scan>().as_mut() }.map_or(Ok(()), Scan::give_up)
}

/// Adds bytes read and rejected rows, which the load has already reported.
///
/// # Safety
/// A scan that was replaced.
pub unsafe fn count(node: *mut pg_sys::ForeignScanState, bytes: u64, bad_rows: u64) {
    // SAFETY: this function's contract covers the state.
    if let Some(scan) = unsafe { (*node).fdw_state.cast::<Scan>().as_mut() } {
        scan.bytes_before += bytes;
        scan.pump.policy.tolerance.bad_rows += bad_rows;
    }
}

/// The columns of a foreign table's file with these options. Guarded; the current memory context must outlive them.
pub fn columns_of(relation: pg_sys::Relation, copy: &CopyOptions) -> Result<Vec<Column>> {
    TableOptions { location: None, sorted_by: None, filter: None, copy: copy.clone() }.columns(relation)
}

/// The routines of `bulk_fdw`.
#[pg_extern(volatile, parallel_safe)]
fn bulk_fdw_handler() -> PgBox<pg_sys::FdwRoutine> {
    // SAFETY: a guarded allocation of a node of this type.
    let mut routine =
        unsafe { PgBox::<pg_sys::FdwRoutine, AllocatedByRust>::alloc_node(pg_sys::NodeTag::T_FdwRoutine) };
    routine.GetForeignRelSize = Some(plan::get_foreign_rel_size);
    routine.GetForeignPaths = Some(plan::get_foreign_paths);
    routine.GetForeignPlan = Some(plan::get_foreign_plan);
    routine.IsForeignScanParallelSafe = Some(plan::is_foreign_scan_parallel_safe);
    routine.BeginForeignScan = BEGIN;
    routine.IterateForeignScan = Some(scan::iterate::iterate_foreign_scan);
    routine.ReScanForeignScan = Some(scan::iterate::rescan_foreign_scan);
    routine.EndForeignScan = Some(scan::iterate::end_foreign_scan);
    routine.ExplainForeignScan = Some(explain::explain_foreign_scan);
    routine.EstimateDSMForeignScan = Some(parallel::estimate_dsm);
    routine.InitializeDSMForeignScan = Some(parallel::initialize_dsm);
    routine.ReInitializeDSMForeignScan = Some(parallel::reinitialize_dsm);
    routine.InitializeWorkerForeignScan = Some(parallel::initialize_worker);
    routine.ShutdownForeignScan = Some(parallel::shutdown_foreign_scan);
    routine.AnalyzeForeignTable = Some(analyze::analyze_foreign_table);
    routine.GetForeignUpperPaths = Some(aggregate::get_foreign_upper_paths);
    routine.ImportForeignSchema = Some(import::import_foreign_schema);
    routine.RecheckForeignScan = Some(scan::iterate::recheck_foreign_scan);
    routine.into_pg_boxed()
}

/// Checks the options of an object of `bulk_fdw`: `options` are `name=value`, `catalog` is the object's catalog.
///
/// The array's texts are in the server's encoding, which need not be UTF-8.
#[pg_extern(sql = "
CREATE FUNCTION bulk_fdw_validator(options text[], catalog oid) RETURNS void
STRICT VOLATILE PARALLEL SAFE
LANGUAGE c
AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
")]
fn bulk_fdw_validator(fcinfo: pg_sys::FunctionCallInfo) {
    // SAFETY: called with the two arguments of its declaration, neither of them NULL.
    unsafe {
        let options = pgrx::fcinfo::pg_getarg_datum_raw(fcinfo, 0);
        let catalog = pgrx::fcinfo::pg_getarg_datum_raw(fcinfo, 1);
        let options = stored(pg_sys::untransformRelOptions(options));
        options::validate(&options, pg_sys::Oid::from_u32(catalog.value() as u32)).or_raise();
    }
}
