//! The filter of a foreign table: the function is asked of each record that is scanned.
//!
//! What it is, when it is known, and as whom it is called:
//!
//! - The option is text, since whoever makes the table may want a function that returns its rows, which cannot be there before. So it is looked
//!   up when the table is used. Nobody's search path has a say in that, nor in what its arguments' types are called.
//! - It is called as functions of a view are: by the current user, who needs EXECUTE, along the session's search path. So nobody has code run
//!   as somebody else by choosing what a name in its body means. Only ANALYZE is the table's owner, whatever it calls.
//!
//! The record is the function's, and what it makes is the table's row: columns of the table have no fields.

use std::ffi::CStr;

use pg_bulk_format::convert::Session;
use pgrx::pg_sys;

use super::analysis;
use super::signature::{Signature, own_type};
use super::{check, resolve};
use crate::error::Result;
use crate::load::direct::{Made, Nodes, Projection, filter};
use crate::pg::column::Column;
use crate::pg::compat;
use crate::pg::hazard::Hazards;
use crate::pg::role::as_role;
use crate::pg::row::RowArrays;
use crate::pg::soft::OnError;
use crate::pg::unguarded as c;

/// Who may look into every schema: names are no secret, and it takes no right to a schema to call what was found there before.
const ANYBODY: pg_sys::Oid = pg_sys::Oid::from_u32(pg_sys::BOOTSTRAP_SUPERUSERID);

/// The function of a foreign table's option, by whatever path, and whoever may look into its schema. Guarded.
pub fn function_of(name: &CStr) -> Result<pg_sys::Oid> {
    let function = as_role(ANYBODY, || resolve(name))?;
    if is_temporary(function) {
        // Each session would have one of its own.
        return Err(super::no_filter(function, "It is a temporary function."));
    }
    Ok(function)
}

/// The same; invalid if there is none that is certain to be meant. Guarded.
pub fn known(name: &CStr) -> pg_sys::Oid {
    // SAFETY: guarded calls; to_regprocedure complains only of what is no name of a function.
    let look = || unsafe {
        let text = pg_sys::cstring_to_text(name.as_ptr());
        let answer = pgrx::direct_function_call_as_datum(pg_sys::to_regprocedure, &[Some(pg_sys::Datum::from(text))]);
        answer.map_or(pg_sys::InvalidOid, |oid| pg_sys::Oid::from((oid.value() & 0xffff_ffff) as u32))
    };
    as_role(ANYBODY, look)
}

/// Is it in a session's own schema? Guarded.
fn is_temporary(function: pg_sys::Oid) -> bool {
    // SAFETY: guarded catalog lookups.
    unsafe { pg_sys::isAnyTempNamespace(pg_sys::get_func_namespace(function)) }
}

/// The columns of the file: the arguments. Guarded; allocates in the current memory context.
pub fn columns_of(function: pg_sys::Oid, relation: pg_sys::Relation, session: &Session) -> Result<Vec<Column>> {
    // SAFETY: an open relation.
    let signature = Signature::of(function, unsafe { own_type(relation) })?;
    Ok(signature.columns(&signature.names, session))
}

/// May a worker call it, make its arguments, by input functions or those that receive, and take what it returns for the table's row as it
/// is? Guarded.
pub fn is_parallel_safe(function: pg_sys::Oid, relid: pg_sys::Oid, receives: bool) -> Result<bool> {
    // SAFETY: a guarded catalog lookup.
    let own = unsafe { pg_sys::get_rel_type_id(relid) };
    let Signature { types, defaults, .. } = Signature::of(function, own)?;
    let hazards = Hazards::new();
    // SAFETY: a function, and expressions of the catalog's; a relation that is locked.
    let is_safe = unsafe {
        hazards.function_is_safe(function)
            && defaults.iter().all(|&node| hazards.is_safe(node))
            && returns_rows_of(function, relid)
    };
    Ok(is_safe && types.into_iter().all(|type_oid| hazards.type_is_safe(type_oid, receives)))
}

/// Has its row the types of the relation's columns? Else there are casts, which may be anything. Guarded.
///
/// # Safety
/// A relation that is locked.
unsafe fn returns_rows_of(function: pg_sys::Oid, relid: pg_sys::Oid) -> bool {
    // SAFETY: guarded catalog lookups; descriptors have as many attributes as they say.
    unsafe {
        let mut row: pg_sys::TupleDesc = std::ptr::null_mut();
        pg_sys::get_func_result_type(function, std::ptr::null_mut(), &raw mut row);
        if row.is_null() {
            return false;
        }
        let types = |descriptor: pg_sys::TupleDesc| {
            let natts = usize::try_from((*descriptor).natts).unwrap_or(0);
            (0..natts)
                .map(|i| &*compat::attribute(descriptor, i))
                .filter(|form| !form.attisdropped)
                .map(|form| form.atttypid)
                .collect::<Vec<_>>()
        };
        let relation = pg_sys::RelationIdGetRelation(relid);
        let are_same = types(row) == types((*relation).rd_att);
        pg_sys::RelationClose(relation);
        are_same
    }
}

/// Ready to run.
#[derive(Debug)]
pub struct RowFilter {
    projection: Projection,
    /// Of its own, since what a scan's is of is the table's row. Its memory is that of the row.
    econtext: *mut pg_sys::ExprContext,
}

impl RowFilter {
    /// For a scan of that table. Guarded; allocates in the executor's memory.
    ///
    /// # Safety
    /// The open table, and the state of a query that is executed.
    pub unsafe fn new(
        function: pg_sys::Oid,
        relation: pg_sys::Relation,
        on_error: OnError,
        estate: *mut pg_sys::EState,
    ) -> Result<RowFilter> {
        // SAFETY: guarded calls; this function's contract covers table and state.
        unsafe {
            let memory = (*estate).es_query_cxt;
            let old = pg_sys::MemoryContextSwitchTo(memory);
            // Rights to functions are asked when expressions are made ready. The path is the session's, which the function's body may use.
            check(function)?;
            let mut nodes = Nodes::NONE;
            let into = &raw mut nodes;
            c::guard(|| analysis::analyze_table(relation, function, into));
            let descriptor = super::descriptor(function, relation)?;
            let projection = Projection::over(nodes, descriptor, &[], on_error, memory);
            let econtext = pg_sys::CreateExprContext(estate);
            pg_sys::MemoryContextSwitchTo(old);
            Ok(RowFilter { projection, econtext })
        }
    }

    /// Where the arguments go.
    pub fn arguments(&self) -> RowArrays {
        self.projection.arrays()
    }
}

/// Make the table's row of the arguments. Values are there until the next row is made.
///
/// # Safety
/// A plain frame; a valid filter that nobody else uses, and arrays of the table's row.
pub unsafe fn make(this: *const RowFilter, arrays: RowArrays) -> Made {
    // SAFETY: this function's contract covers all arguments; nothing here has a destructor.
    unsafe {
        let econtext = (*this).econtext;
        let memory = pg_sys::CurrentMemoryContext;
        c::MemoryContextReset((*econtext).ecxt_per_tuple_memory);
        pg_sys::CurrentMemoryContext = (*econtext).ecxt_per_tuple_memory;
        let made = filter(&raw const (*this).projection, econtext, arrays);
        pg_sys::CurrentMemoryContext = memory;
        made
    }
}
