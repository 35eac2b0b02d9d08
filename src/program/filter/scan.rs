//! The filter of a foreign table: a function that is called for each scanned record.
//!
//! Its look-up, and the role that calls it:
//!
//! - The option is text, because a function that returns the table's rows cannot exist before the table. So the name is
//!   looked up when the table is used. The session's search path affects neither the look-up nor the names of argument
//!   types.
//! - It is called like functions of a view: by the current user, who must have EXECUTE, with the session's search path.
//!   So no user can make another role run code by choosing the meaning of a name in the function's body. Only ANALYZE
//!   calls it as the table's owner.
//!
//! The record is the function's input, and the function makes the table's row: columns of the table have no fields.

use std::ffi::CStr;

use pg_bulk_types::convert::Session;
use pgrx::pg_sys;

use super::signature::Signature;
use super::{analyze, check, resolve};
use crate::error::Result;
use crate::program::projection::{Made, Projection, filter};
use crate::rows::column::Column;
use crate::rows::hazard::Hazards;
use crate::rows::row::RowArrays;
use crate::rows::soft::OnError;
use crate::server::lookup::result_of;
use crate::server::memory_context::MemoryContext;
use crate::server::node::Node;
use crate::server::relation::{OpenRelation, Relation, TupleDesc};
use crate::server::role::as_role;
use crate::server::unguarded as c;

/// A role that may look into every schema. Names are not secret, and calling a function that was found before requires
/// no right to its schema.
const ANYBODY: pg_sys::Oid = pg_sys::Oid::from_u32(pg_sys::BOOTSTRAP_SUPERUSERID);

/// The function of a foreign table's option, whatever the search path and the rights to its schema. Guarded.
pub fn function_of(name: &CStr) -> Result<pg_sys::Oid> {
    let function = as_role(ANYBODY, || resolve(name))?;
    if is_temporary(function) {
        // Each session would have its own.
        return Err(super::no_filter(function, "It is a temporary function."));
    }
    Ok(function)
}

/// The function of a foreign table's option; InvalidOid unless exactly one function matches. Guarded.
pub fn known(name: &CStr) -> pg_sys::Oid {
    // SAFETY: guarded calls; to_regprocedure raises only for malformed names.
    let look = || unsafe {
        let text = pg_sys::cstring_to_text(name.as_ptr());
        let answer = pgrx::direct_function_call_as_datum(pg_sys::to_regprocedure, &[Some(pg_sys::Datum::from(text))]);
        answer.map_or(pg_sys::InvalidOid, |oid| pg_sys::Oid::from((oid.value() & 0xffff_ffff) as u32))
    };
    as_role(ANYBODY, look)
}

/// Is the function in a session's temporary schema? Guarded.
fn is_temporary(function: pg_sys::Oid) -> bool {
    // SAFETY: guarded catalog lookups.
    unsafe { pg_sys::isAnyTempNamespace(pg_sys::get_func_namespace(function)) }
}

/// The columns of the file: the arguments. Guarded; allocates in the current memory context.
pub fn columns_of(function: pg_sys::Oid, relation: Relation<'_>, session: &Session) -> Result<Vec<Column>> {
    let signature = Signature::of(function, relation.row_type())?;
    Ok(signature.columns(&signature.names, session))
}

/// May a worker call it, make its arguments by input or receive functions, and use its result as the table's row?
/// Guarded.
pub fn is_parallel_safe(function: pg_sys::Oid, relid: pg_sys::Oid, receives: bool) -> Result<bool> {
    let relation = OpenRelation::locked(relid);
    let relation = relation.get();
    let Signature { types, defaults, .. } = Signature::of(function, relation.row_type())?;
    let hazards = Hazards::new();
    Ok(hazards.function_is_safe(function)
        && defaults.iter().all(|node| hazards.is_safe(node))
        && returns_rows_of(function, relation)
        && types.into_iter().all(|type_oid| hazards.type_is_safe(type_oid, receives)))
}

/// Does its row have the types of the relation's columns? Otherwise casts run, which may be any function. Guarded.
fn returns_rows_of(function: pg_sys::Oid, relation: Relation<'_>) -> bool {
    let types = |descriptor: TupleDesc<'_>| descriptor.live().map(|form| form.atttypid).collect::<Vec<_>>();
    result_of(function).2.is_some_and(|row| types(row) == types(relation.descriptor()))
}

/// A filter that is ready to run.
#[derive(Debug)]
pub struct RowFilter {
    projection: Projection,
    /// Separate from the scan's own, whose tuples are the table's rows. Its memory is that of one row.
    econtext: *mut pg_sys::ExprContext,
}

impl RowFilter {
    /// Makes the filter of a scan of that table. Guarded; allocates in the executor's memory.
    pub fn new(
        function: pg_sys::Oid,
        relation: Relation<'_>,
        on_error: OnError,
        estate: Node<'_, pg_sys::EState>,
    ) -> Result<RowFilter> {
        // SAFETY: a query that is executed has this memory.
        let memory = unsafe { MemoryContext::of_query(estate.as_ptr()) };
        let within = memory.enter();
        // Initializing expressions checks EXECUTE. The search path is the session's, which the function's body may use.
        check(function)?;
        // SAFETY: the closure owns nothing.
        let nodes = unsafe { c::guard(|| analyze(relation, function)) };
        let projection = Projection::over(nodes, super::descriptor(function, relation)?, &[], on_error, memory);
        // SAFETY: a guarded call with an executor state.
        let econtext = unsafe { pg_sys::CreateExprContext(estate.as_ptr()) };
        drop(within);
        Ok(RowFilter { projection, econtext })
    }

    /// The arrays for the arguments.
    pub fn arguments(&self) -> RowArrays<'static> {
        self.projection.arrays()
    }
}

/// Makes the table's row from the arguments. The values live until the next row.
///
/// # Safety
/// A plain frame; a valid filter that nothing else uses, and arrays of the table's row.
pub unsafe fn make(this: *const RowFilter, arrays: RowArrays) -> Made {
    // SAFETY: the frame is plain; nothing here has a destructor.
    unsafe {
        let econtext = (*this).econtext;
        let memory = pg_sys::CurrentMemoryContext;
        c::MemoryContextReset((*econtext).ecxt_per_tuple_memory);
        pg_sys::CurrentMemoryContext = (*econtext).ecxt_per_tuple_memory;
        let made = filter(&raw const (*this).projection, econtext, arrays, false);
        pg_sys::CurrentMemoryContext = memory;
        made
    }
}
