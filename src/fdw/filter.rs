//! The option `filter`: a function makes the rows of a foreign table from the records of its file.
//!
//! ```text
//!   record ─► the function's arguments ─► function (program::filter) ─► the table's row ─► conditions, order
//! ```
//!
//! So the fields are the function's arguments and not the table's columns, and all of them are converted, whichever
//! columns a query reads. A record that the function leaves out is not a row: limit, aggregates, samples and order
//! ignore it.

use pgrx::pg_sys;

use super::options::TableOptions;
use crate::error::Result;
use crate::program::filter::{self, RowFilter};
use crate::program::projection::Made;
use crate::rows::copy_options::RecordShape;
use crate::rows::row::{RowArrays, Rows};

/// The function, for the planner. None if there is no filter, or if the execution will fail to find the function.
/// Guarded.
pub fn planned(options: &TableOptions) -> Option<pg_sys::Oid> {
    options
        .filter
        .as_ref()
        .map(|filter| filter::known(filter.name()))
        .filter(|function| *function != pg_sys::InvalidOid)
}

/// Does the table's filter permit workers? Guarded.
pub fn is_parallel_safe(options: &TableOptions, relid: pg_sys::Oid) -> Result<bool> {
    match (&options.filter, planned(options)) {
        (None, _) => Ok(true),
        (_, Some(function)) => filter::is_parallel_safe(function, relid, options.copy.shape() == RecordShape::Binary),
        _ => Ok(false),
    }
}

/// Forbids parallel plans if the function is parallel-unsafe, since core only checks functions in the query's text. A
/// subquery that was planned before may still have workers. Guarded.
///
/// # Safety
/// The planner's structure.
pub unsafe fn forbid_workers(options: &TableOptions, root: *mut pg_sys::PlannerInfo) {
    let Some(function) = planned(options) else { return };
    // SAFETY: this function's contract covers the structure, whose arrays are as long as it says; a guarded call.
    unsafe {
        if pg_sys::func_parallel(function).cast_unsigned() != pg_sys::PROPARALLEL_UNSAFE {
            return;
        }
        (*(*root).glob).parallelModeOK = false;
        let mut level = root;
        while let Some(root) = level.as_ref() {
            for at in 1..usize::try_from(root.simple_rel_array_size).unwrap_or(0) {
                if let Some(rel) = (*root.simple_rel_array.add(at)).as_mut() {
                    rel.consider_parallel = false;
                }
            }
            level = root.parent_root;
        }
    }
}

/// The cost of one call. Guarded.
///
/// # Safety
/// The planner's structure.
pub unsafe fn cost(options: &TableOptions, root: *mut pg_sys::PlannerInfo) -> f64 {
    let mut cost = pg_sys::QualCost::default();
    if let Some(function) = planned(options) {
        // SAFETY: this function's contract covers the structure; a guarded call.
        unsafe { pg_sys::add_function_cost(root, function, std::ptr::null_mut(), &raw mut cost) };
    }
    cost.per_tuple
}

/// Invalidates the plan when the function is replaced. Guarded.
///
/// # Safety
/// The planner's structure.
pub unsafe fn depend(options: &TableOptions, root: *mut pg_sys::PlannerInfo) {
    if let Some(function) = planned(options) {
        // SAFETY: this function's contract covers the structure; a guarded call.
        unsafe { pg_sys::record_plan_function_dependency(root, function) };
    }
}

/// Makes the filter of a scan. Guarded; allocates in the executor's memory.
///
/// # Safety
/// The open table, and the state of a query that is executed.
pub unsafe fn begin(
    options: &TableOptions,
    relation: pg_sys::Relation,
    estate: *mut pg_sys::EState,
) -> Result<Option<RowFilter>> {
    let Some(filter) = &options.filter else { return Ok(None) };
    // SAFETY: same contract.
    unsafe { RowFilter::new(filter.function()?, relation, options.copy.on_error, estate) }.map(Some)
}

/// Calls the function for the record whose fields were converted.
///
/// # Safety
/// A plain frame; a filter, the rows of its file, and arrays of the table's row. COPY's context is pushed.
pub unsafe fn call(this: *const RowFilter, rows: *mut Rows, arrays: RowArrays) -> Made {
    // SAFETY: this function's contract covers all arguments; nothing here has a destructor.
    unsafe {
        // Errors in the function are about the line, which may hold data that the user may not see.
        let before = ((*rows).context.is_discreet, (*rows).context.is_converting);
        ((*rows).context.is_discreet, (*rows).context.is_converting) = (true, false);
        let made = filter::make(this, arrays);
        ((*rows).context.is_discreet, (*rows).context.is_converting) = before;
        made
    }
}
