//! The filter of a foreign table: the function is asked of each record that is scanned.
//!
//! What it is, when it is known, and as whom it is called:
//!
//! - The option is text, since whoever makes the table may want a function that returns its rows, which cannot be there before. So it is looked
//!   up when the table is used. Nobody's search path has a say in that, nor in what its arguments' types are called.
//! - It is called as whoever the table is read as, who needs EXECUTE: of a view, its owner. The rest of the query is not.
//!
//! The record is the function's, and what it makes is the table's row: columns of the table have no fields.

use std::ffi::CStr;

use pg_bulk_format::convert::Session;
use pgrx::pg_sys;

use super::analysis;
use super::{Signature, check, resolve};
use crate::error::Result;
use crate::load::direct::{Made, Nodes, Projection, filter};
use crate::load::source::Mapping;
use crate::pg::column::Column;
use crate::pg::hazard::Hazards;
use crate::pg::role::as_role;
use crate::pg::row::RowArrays;
use crate::pg::soft::OnError;
use crate::pg::unguarded as c;

/// The function of a foreign table's option, by whatever path. Guarded.
pub fn function_of(name: &CStr) -> Result<pg_sys::Oid> {
    // SAFETY: a guarded call.
    as_role(unsafe { pg_sys::GetUserId() }, || resolve(name))
}

/// The same; invalid if there is none that is certain to be meant. Guarded.
pub fn known(name: &CStr) -> pg_sys::Oid {
    // SAFETY: guarded calls; to_regprocedure complains only of what is no name of a function.
    let look = || unsafe {
        let text = pg_sys::cstring_to_text(name.as_ptr());
        let answer = pgrx::direct_function_call_as_datum(pg_sys::to_regprocedure, &[Some(pg_sys::Datum::from(text))]);
        answer.map_or(pg_sys::InvalidOid, |oid| pg_sys::Oid::from((oid.value() & 0xffff_ffff) as u32))
    };
    // SAFETY: a guarded call.
    as_role(unsafe { pg_sys::GetUserId() }, look)
}

/// The columns of the file: the arguments. Guarded; allocates in the current memory context.
pub fn columns_of(function: pg_sys::Oid, session: &Session) -> Result<Vec<Column>> {
    let Signature { names, .. } = Signature::of(function)?;
    super::columns(function, &Mapping { names, ..Mapping::default() }, session)
}

/// May a worker call it, and make its arguments, by input functions or those that receive? Guarded.
pub fn is_parallel_safe(function: pg_sys::Oid, receives: bool) -> Result<bool> {
    let Signature { types, defaults, .. } = Signature::of(function)?;
    let hazards = Hazards::new();
    // SAFETY: a function, and expressions of the catalog's.
    let is_safe = unsafe { hazards.function_is_safe(function) && defaults.iter().all(|&node| hazards.is_safe(node)) };
    Ok(is_safe && types.into_iter().all(|type_oid| hazards.type_is_safe(type_oid, receives)))
}

/// Do `work` as that user. Guarded; an error leaves it to the end of the (sub)transaction to bring the user back.
fn as_user<T>(other: pg_sys::Oid, work: impl FnOnce() -> T) -> T {
    let (mut user, mut context) = (pg_sys::InvalidOid, 0);
    // SAFETY: guarded calls with valid pointers, in a transaction.
    unsafe {
        pg_sys::GetUserIdAndSecContext(&raw mut user, &raw mut context);
        if user == other {
            return work();
        }
        pg_sys::SetUserIdAndSecContext(other, context | pg_sys::SECURITY_LOCAL_USERID_CHANGE.cast_signed());
        let done = work();
        pg_sys::SetUserIdAndSecContext(user, context);
        done
    }
}

/// Ready to run.
#[derive(Debug)]
pub struct RowFilter {
    projection: Projection,
    /// Of its own, since what a scan's is of is the table's row. Its memory is that of the row.
    econtext: *mut pg_sys::ExprContext,
    user: pg_sys::Oid,
}

impl RowFilter {
    /// For a scan of that table as that user; no user is the current one. Guarded; allocates in the executor's memory.
    ///
    /// # Safety
    /// The open table, and the state of a query that is executed.
    pub unsafe fn new(
        name: &CStr,
        relation: pg_sys::Relation,
        on_error: OnError,
        estate: *mut pg_sys::EState,
        user: pg_sys::Oid,
    ) -> Result<RowFilter> {
        // SAFETY: guarded calls; the caller vouches for table and state.
        unsafe {
            let user = if user == pg_sys::InvalidOid { pg_sys::GetUserId() } else { user };
            let function = as_role(user, || {
                let function = resolve(name)?;
                check(function).map(|()| function)
            })?;
            let memory = (*estate).es_query_cxt;
            let old = pg_sys::MemoryContextSwitchTo(memory);
            // Rights to functions are asked when expressions are made ready. The path is the session's, which the function's body may use.
            let projection = as_user(user, || {
                let mut nodes = Nodes::NONE;
                let into = &raw mut nodes;
                c::guard(|| analysis::analyze_table(relation, function, into));
                let descriptor = super::descriptor(function)?;
                Result::Ok(Projection::over(nodes, descriptor, &[], on_error, memory))
            })?;
            let econtext = pg_sys::CreateExprContext(estate);
            pg_sys::MemoryContextSwitchTo(old);
            Ok(RowFilter { projection, econtext, user })
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
    // SAFETY: the caller vouches for all of it; nothing here has a destructor. An error leaves it to the end of the (sub)transaction to
    // bring the user back, as of a security-definer function (fmgr.c).
    unsafe {
        let econtext = (*this).econtext;
        let memory = pg_sys::CurrentMemoryContext;
        c::MemoryContextReset((*econtext).ecxt_per_tuple_memory);
        pg_sys::CurrentMemoryContext = (*econtext).ecxt_per_tuple_memory;
        let (mut user, mut context) = (pg_sys::InvalidOid, 0);
        c::GetUserIdAndSecContext(&raw mut user, &raw mut context);
        let is_other = user != (*this).user;
        if is_other {
            c::SetUserIdAndSecContext((*this).user, context | pg_sys::SECURITY_LOCAL_USERID_CHANGE.cast_signed());
        }
        let made = filter(&raw const (*this).projection, econtext, arrays);
        if is_other {
            c::SetUserIdAndSecContext(user, context);
        }
        pg_sys::CurrentMemoryContext = memory;
        made
    }
}
