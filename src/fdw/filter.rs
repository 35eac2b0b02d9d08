//! The option `filter`: the rows of a table are made by a function of the records of its file.
//!
//! ```text
//!   record ─► the function's arguments ─► function (load::filter) ─► the table's row ─► conditions, order
//! ```
//!
//! So fields are the function's arguments and not the table's columns, and all of them are converted, whichever columns a query asks for.
//! A row that is left out is none: limit, aggregates, samples and order are about the others.

use std::cell::Cell;
use std::ffi::{CStr, CString};

use pg_bulk_format::convert::Session;
use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::options::TableOptions;
use super::scan::Scan;
use crate::error::{Error, OrRaise, Result};
use crate::load::filter::{self, Made, RowFilter};
use crate::pg::column::Column;
use crate::pg::compat;
use crate::pg::copy_options::{CopyOptions, Shape};
use crate::pg::objects;
use crate::pg::option_value::{invalid, stored};
use crate::pg::row::{RowArrays, Rows};
use crate::pg::server_text::from_server;
use crate::pg::soft::Verbosity;

/// The option.
#[derive(Debug, Clone)]
pub struct Filter {
    name: CString,
    /// What it was found to be. Arguments are converted for the function that is called, so one name must not be two of them: between two
    /// looks for it user code may run.
    found: Cell<pg_sys::Oid>,
}

impl Filter {
    pub fn new(name: CString) -> Filter {
        Filter { name, found: Cell::new(pg_sys::InvalidOid) }
    }

    pub fn name(&self) -> &CStr {
        &self.name
    }

    /// The function, which is the same from now on. Guarded.
    fn function(&self) -> Result<pg_sys::Oid> {
        if self.found.get() == pg_sys::InvalidOid {
            self.found.set(filter::function_of(&self.name)?);
        }
        Ok(self.found.get())
    }

    /// Check the option: the function need not be there yet, but it is known by its schema, and by its arguments' types.
    pub fn validate(&self, copy: &CopyOptions) -> Result<()> {
        let bytes = self.name.to_bytes();
        let mut is_quoted = false;
        let mut has_schema = false;
        let mut has_types = false;
        for &byte in bytes {
            match byte {
                b'"' => is_quoted = !is_quoted,
                b'.' if !is_quoted && !has_types => has_schema = true,
                b'(' if !is_quoted => has_types = true,
                _ => (),
            }
        }
        if !has_schema || !has_types || bytes.last() != Some(&b')') {
            let message =
                "argument to option \"filter\" must be a function with its schema and the types of its arguments";
            return Err(invalid(message).hint("Write it as in: myschema.myfunction(text, integer)."));
        }
        let other = match copy.shape {
            Shape::Fixed => "format \"fixed\"",
            _ if copy.by_name => "match_by \"name\"",
            _ => return Ok(()),
        };
        Err(invalid(format!("cannot specify both filter and {other}")))
    }

    /// The columns of the file, which are the function's arguments. Guarded; the current memory context must outlive them.
    pub fn columns(&self, relation: pg_sys::Relation, copy: &CopyOptions, session: &Session) -> Result<Vec<Column>> {
        // SAFETY: guarded catalog lookups of an open relation's attributes; a name is NUL-terminated.
        unsafe {
            for i in 0..usize::try_from((*(*relation).rd_att).natts).unwrap_or(0) {
                let form = &*compat::attribute((*relation).rd_att, i);
                let options = stored(pg_sys::GetForeignColumnOptions((*relation).rd_id, form.attnum));
                if let Some((option, _)) = options.first().filter(|_| !form.attisdropped) {
                    let column = from_server(CStr::from_ptr(form.attname.data.as_ptr()));
                    let message = format!("cannot specify both filter and option {option} of column \"{column}\"");
                    return Err(invalid(message));
                }
            }
        }
        let mut columns = filter::columns_of(self.function()?, relation, session)?;
        copy.force(pg_sys::InvalidOid, &mut columns)?;
        copy.refine(&mut columns, &[])?;
        objects::check_rest(&columns)?;
        Ok(columns)
    }
}

/// The function, for the planner: none if there is none, which is for the execution to say. Guarded.
pub fn planned(options: &TableOptions) -> Option<pg_sys::Oid> {
    options.filter.as_ref().map(|filter| filter::known(&filter.name)).filter(|function| *function != pg_sys::InvalidOid)
}

/// May workers scan the table as far as its filter is concerned? Guarded.
pub fn is_parallel_safe(options: &TableOptions, relid: pg_sys::Oid) -> Result<bool> {
    match (&options.filter, planned(options)) {
        (None, _) => Ok(true),
        (_, Some(function)) => filter::is_parallel_safe(function, relid, options.copy.shape == Shape::Binary),
        _ => Ok(false),
    }
}

/// No query may be run by several processes that calls an unsafe function; core knows of those in the query's text only. What was planned
/// before, a subquery, may have workers nevertheless. Guarded.
///
/// # Safety
/// The planner's structure.
pub unsafe fn forbid_workers(options: &TableOptions, root: *mut pg_sys::PlannerInfo) {
    let Some(function) = planned(options) else { return };
    // SAFETY: the caller vouches for the structure, whose arrays are as long as it says; a guarded call.
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

/// What calling it for a row costs. Guarded.
///
/// # Safety
/// The planner's structure.
pub unsafe fn cost(options: &TableOptions, root: *mut pg_sys::PlannerInfo) -> f64 {
    let mut cost = pg_sys::QualCost::default();
    if let Some(function) = planned(options) {
        // SAFETY: the caller vouches for the structure; a guarded call.
        unsafe { pg_sys::add_function_cost(root, function, std::ptr::null_mut(), &raw mut cost) };
    }
    cost.per_tuple
}

/// A plan is made anew when the function becomes another one. Guarded.
///
/// # Safety
/// The planner's structure.
pub unsafe fn depend(options: &TableOptions, root: *mut pg_sys::PlannerInfo) {
    if let Some(function) = planned(options) {
        // SAFETY: the caller vouches for the structure; a guarded call.
        unsafe { pg_sys::record_plan_function_dependency(root, function) };
    }
}

/// For a scan of the table. Guarded; allocates in the executor's memory.
///
/// # Safety
/// The open table, and the state of a query that is executed; another user than the current one to call it as, if there is one.
pub unsafe fn begin(
    options: &TableOptions,
    relation: pg_sys::Relation,
    estate: *mut pg_sys::EState,
    user: pg_sys::Oid,
) -> Result<Option<RowFilter>> {
    let Some(filter) = &options.filter else { return Ok(None) };
    // SAFETY: passed on.
    unsafe { RowFilter::new(filter.function()?, relation, options.copy.on_error, estate, user) }.map(Some)
}

/// Call the function for the record whose fields were converted.
///
/// # Safety
/// A plain frame; a filter, the rows of its file, and arrays of the table's row. COPY's context is pushed.
pub unsafe fn call(this: *const RowFilter, rows: *mut Rows, arrays: RowArrays) -> Made {
    // SAFETY: the caller vouches for all of it; nothing here has a destructor.
    unsafe {
        // What a function says is about the line, which may hold what the user may not see.
        let before = ((*rows).is_discreet, (*rows).is_converting);
        ((*rows).is_discreet, (*rows).is_converting) = (true, false);
        let made = filter::make(this, arrays);
        ((*rows).is_discreet, (*rows).is_converting) = before;
        made
    }
}

/// Make the table's row of the record whose fields were converted. False if it is none.
///
/// # Safety
/// A plain frame; a scan whose filter this is, its rows, and the arrays of its slot. COPY's context is pushed.
pub unsafe fn make(scan: *mut Scan, this: *const RowFilter, rows: *mut Rows, arrays: RowArrays) -> bool {
    // SAFETY: the caller vouches for all of it; nothing here has a destructor.
    unsafe {
        match call(this, rows, arrays) {
            Made::Row | Made::Tuple(_) => true,
            Made::Nothing => {
                (*scan).be_without();
                false
            }
            Made::Bad(error) => {
                leave_out(scan, error);
                false
            }
        }
    }
}

/// Leave out the record that the function does not like.
///
/// # Safety
/// A valid scan, and the error.
#[pg_guard]
unsafe extern "C-unwind" fn leave_out(scan: *mut Scan, error: *mut pg_sys::ErrorData) {
    // SAFETY: the caller vouches for both; an error has a message.
    unsafe {
        let scan = &mut *scan;
        scan.be_without();
        if let Some(rows) = scan.rows.as_mut().filter(|_| scan.tolerance.verbosity == Verbosity::Verbose) {
            let text = from_server(CStr::from_ptr((*error).message));
            rows.note_record(&Error::new(Code::ERRCODE_SUCCESSFUL_COMPLETION, text));
        }
        scan.tolerance.count().or_raise();
    }
}
