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
use crate::server::node::Node;
use crate::server::planner::Planner;
use crate::server::relation::Relation;

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

/// Forbids parallel plans if the function is parallel-unsafe, since core only checks functions in the query's text.
/// Guarded.
pub fn forbid_workers(options: &TableOptions, root: Planner<'_>) {
    // SAFETY: a guarded catalog lookup.
    let is_unsafe = |function| unsafe { pg_sys::func_parallel(function) }.cast_unsigned() == pg_sys::PROPARALLEL_UNSAFE;
    if planned(options).is_some_and(is_unsafe) {
        root.forbid_workers();
    }
}

/// The cost of one call. Guarded.
pub fn cost(options: &TableOptions, root: Planner<'_>) -> f64 {
    planned(options).map_or(0.0, |function| root.function_cost(function))
}

/// Invalidates the plan when the function is replaced. Guarded.
pub fn depend(options: &TableOptions, root: Planner<'_>) {
    if let Some(function) = planned(options) {
        root.depend(function);
    }
}

/// Makes the filter of a scan. Guarded; allocates in the executor's memory.
pub fn begin(
    options: &TableOptions,
    relation: Relation<'_>,
    estate: Node<'_, pg_sys::EState>,
) -> Result<Option<RowFilter>> {
    let Some(filter) = &options.filter else { return Ok(None) };
    RowFilter::new(filter.function()?, relation, options.copy.on_error, estate).map(Some)
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
