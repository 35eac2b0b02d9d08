//! The foreign data wrapper `bulk_fdw`: files as tables.
//!
//! One module for each task: `options` parses a table's options, `plan` and `estimate` plan a scan, `scan` runs it;
//! `explain` and `analyze` serve these commands. `order` is the order that `sorted_by` declares, `parallel` a scan by
//! several processes, `aggregate` a scan that returns aggregates only. `servers` has the checks of servers with a
//! directory, `filter_option` the function that makes the rows. `private` is the data that a
//! plan passes to its execution, `import` makes tables of a directory's files. The callbacks are short; `rows::row` and
//! the crate `text` read the file.

mod aggregate;
mod analyze;
mod estimate;
mod explain;
mod filter_option;
mod import;
mod node;
mod options;
mod order;
mod parallel;
mod plan;
mod private;
mod scan;
mod servers;

use std::ffi::c_void;

use pgrx::prelude::*;
use pgrx::{AllocatedByRust, pg_sys};

use self::node::ScanNode;
use self::options::TableOptions;
use self::parallel::{Context, SharedPlace};
use self::private::{Private, Wanted};
use self::scan::Scan;
pub use self::servers::{check_pending, init};
use crate::error::{OrRaise, Result};
use crate::input::source::Location;
use crate::rows::column::Column;
use crate::rows::copy_options::CopyOptions;
use crate::server::callback::{Out, Unused, callback};
use crate::server::explain::Explain;
use crate::server::node::{Node, NodeList};
use crate::server::option_value::stored_in;
use crate::server::planner::{PlannedRelation, Planner};
use crate::server::relation::Relation;

/// A callback that only this wrapper's routines have.
static BEGIN: pg_sys::BeginForeignScan_function = Some(callback!(scan::open::begin, node: ScanNode<'_>, flags: i32));

/// Do these routines belong to this wrapper?
pub fn owns(routine: Option<Node<'_, pg_sys::FdwRoutine>>) -> bool {
    let begin = routine.and_then(|routine| routine.BeginForeignScan);
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

/// The numbers of the columns that a scan's conditions read, and of the others that it returns.
pub fn wanted(scan: Node<'_, pg_sys::ForeignScan>) -> [Vec<i16>; 2] {
    let Wanted { by_quals, besides } = Private::of(scan.private()).wanted;
    [by_quals, besides].map(|numbers| numbers.into_iter().filter_map(|number| i16::try_from(number).ok()).collect())
}

/// Is the node that of a begun scan of this wrapper, whose file a load can read instead, in any order?
pub fn is_replaceable(node: Node<'_, pg_sys::ForeignScanState>) -> bool {
    ScanNode::of(node).is_some_and(|mut node| node.scan().is_some_and(|scan| scan.is_replaceable()))
}

/// Marks the scan as replaced by a load. Guarded.
pub fn replace(node: Node<'_, pg_sys::ForeignScanState>) -> Result<()> {
    ScanNode::of(node).map_or(Ok(()), |mut node| node.scan().map_or(Ok(()), Scan::give_up))
}

/// Adds bytes read and rejected rows, which the load has already reported.
pub fn count(node: Node<'_, pg_sys::ForeignScanState>, bytes: u64, bad_rows: u64) {
    if let Some(scan) = ScanNode::of(node).as_mut().and_then(ScanNode::scan) {
        scan.bytes_before += bytes;
        scan.pump.policy.tolerance.bad_rows += bad_rows;
    }
}

/// The columns of a foreign table's file with these options. Guarded; the current memory context must outlive them.
pub fn columns_of(relation: Relation<'_>, copy: &CopyOptions) -> Result<Vec<Column>> {
    TableOptions { location: None, sorted_by: None, filter: None, copy: copy.clone() }.columns(relation)
}

/// The routines of `bulk_fdw`.
#[pg_extern(volatile, parallel_safe)]
fn bulk_fdw_handler() -> PgBox<pg_sys::FdwRoutine> {
    // SAFETY: a guarded allocation of a node of this type.
    let mut routine =
        unsafe { PgBox::<pg_sys::FdwRoutine, AllocatedByRust>::alloc_node(pg_sys::NodeTag::T_FdwRoutine) };
    routine.GetForeignRelSize =
        Some(callback!(plan::size, root: Planner<'_>, rel: PlannedRelation<'_>, relid: pg_sys::Oid));
    routine.GetForeignPaths =
        Some(callback!(plan::paths, root: Planner<'_>, rel: PlannedRelation<'_>, relid: pg_sys::Oid));
    routine.GetForeignPlan = Some(callback!(
        plan::plan,
        root: Planner<'_>,
        rel: PlannedRelation<'_>,
        relid: pg_sys::Oid,
        path: Node<'_, pg_sys::ForeignPath>,
        targets: NodeList<'_>,
        clauses: NodeList<'_, pg_sys::RestrictInfo>,
        outer_plan: Option<Node<'_, pg_sys::Plan>> => *mut pg_sys::ForeignScan
    ));
    routine.GetForeignUpperPaths = Some(callback!(
        aggregate::upper_paths,
        root: Planner<'_>,
        stage: pg_sys::UpperRelationKind::Type,
        input: PlannedRelation<'_>,
        output: PlannedRelation<'_>,
        extra: Unused<c_void>
    ));
    routine.IsForeignScanParallelSafe = Some(callback!(
        plan::is_parallel_safe,
        root: Planner<'_>,
        rel: PlannedRelation<'_>,
        entry: Node<'_, pg_sys::RangeTblEntry> => bool
    ));
    routine.BeginForeignScan = BEGIN;
    routine.IterateForeignScan = Some(scan::iterate::iterate_foreign_scan);
    routine.RecheckForeignScan = Some(scan::iterate::recheck_foreign_scan);
    routine.ReScanForeignScan = Some(callback!(scan::iterate::rescan, node: ScanNode<'_>));
    routine.EndForeignScan = Some(callback!(scan::iterate::end, node: ScanNode<'_>));
    routine.ExplainForeignScan = Some(callback!(explain::explain, node: ScanNode<'_>, explain: Explain<'_>));
    routine.EstimateDSMForeignScan = Some(callback!(
        parallel::estimate,
        node: ScanNode<'_>,
        context: Unused<pg_sys::ParallelContext> => pg_sys::Size
    ));
    routine.InitializeDSMForeignScan =
        Some(callback!(parallel::initialize, node: ScanNode<'_>, context: Context, place: SharedPlace));
    routine.ReInitializeDSMForeignScan = Some(callback!(
        parallel::reinitialize,
        node: ScanNode<'_>,
        context: Unused<pg_sys::ParallelContext>,
        place: SharedPlace
    ));
    routine.InitializeWorkerForeignScan = Some(callback!(
        parallel::initialize_worker,
        node: ScanNode<'_>,
        toc: Unused<pg_sys::shm_toc>,
        place: SharedPlace
    ));
    routine.ShutdownForeignScan = Some(callback!(parallel::shutdown, node: ScanNode<'_>));
    routine.AnalyzeForeignTable = Some(callback!(
        analyze::analyze,
        relation: Relation<'_>,
        function: Out<'_, pg_sys::AcquireSampleRowsFunc>,
        pages: Out<'_, pg_sys::BlockNumber> => bool
    ));
    routine.ImportForeignSchema = Some(callback!(
        import::import,
        statement: Node<'_, pg_sys::ImportForeignSchemaStmt>,
        server: pg_sys::Oid => *mut pg_sys::List
    ));
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
        let options = stored_in(pgrx::fcinfo::pg_getarg_datum_raw(fcinfo, 0));
        let catalog = pgrx::fcinfo::pg_getarg_datum_raw(fcinfo, 1);
        options::validate(&options, pg_sys::Oid::from_u32(catalog.value() as u32)).or_raise();
    }
}
