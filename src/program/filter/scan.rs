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
use crate::rows::row::{RowArrays, Rows};
use crate::rows::soft::OnError;
use crate::server::lookup::{find_function, function_schema, is_temporary_schema, result_of};
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
    if is_temporary_schema(function_schema(function)) {
        // Each session would have its own.
        return Err(super::no_filter(function, "It is a temporary function."));
    }
    Ok(function)
}

/// The function of a foreign table's option; InvalidOid unless exactly one function matches. Guarded.
pub fn known(name: &CStr) -> pg_sys::Oid {
    as_role(ANYBODY, || find_function(name))
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
        // SAFETY: a query that is executed has this memory. A guarded call allocates the context there.
        let (memory, econtext) =
            unsafe { (MemoryContext::of_query(estate.as_ptr()), pg_sys::CreateExprContext(estate.as_ptr())) };
        let within = memory.enter();
        // Initializing expressions checks EXECUTE. The search path is the session's, which the function's body may use.
        check(function)?;
        // SAFETY: the closure owns nothing.
        let nodes = unsafe { c::guard(|| analyze(relation, function)) };
        let projection = Projection::over(nodes, super::descriptor(function, relation)?, &[], on_error, memory);
        drop(within);
        Ok(RowFilter { projection, econtext })
    }

    /// The arrays for the arguments.
    pub fn arguments(&self) -> RowArrays<'static> {
        self.projection.arrays()
    }

    /// Calls the function for the record whose fields were converted to its arguments. The values of the table's row live
    /// until the next row.
    ///
    /// # Safety
    /// A plain frame; the rows of the file, and arrays of the table's row. COPY's context is pushed.
    pub unsafe fn call(&self, rows: *mut Rows, arrays: RowArrays) -> Made {
        // SAFETY: the frame is plain; nothing here has a destructor.
        unsafe {
            // Errors in the function are about the line, which may hold data that the user may not see.
            let before = ((*rows).context.is_discreet, (*rows).context.is_converting);
            ((*rows).context.is_discreet, (*rows).context.is_converting) = (true, false);
            let memory = pg_sys::CurrentMemoryContext;
            c::MemoryContextReset((*self.econtext).ecxt_per_tuple_memory);
            pg_sys::CurrentMemoryContext = (*self.econtext).ecxt_per_tuple_memory;
            let made = filter(&raw const self.projection, self.econtext, arrays, false);
            pg_sys::CurrentMemoryContext = memory;
            ((*rows).context.is_discreet, (*rows).context.is_converting) = before;
            made
        }
    }
}
