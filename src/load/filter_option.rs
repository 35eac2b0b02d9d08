//! The option `filter` of a load.

use pgrx::{pg_guard, pg_sys};

use super::Load;
use crate::error::OrRaise;
use crate::program::Nodes;
use crate::program::filter::{self, check, resolve};

/// Makes the load's projection of its filter, if it has one.
///
/// # Safety
/// A plain frame; a load whose relation is open. Its memory context is current.
pub unsafe fn analyze(load: *mut Load) {
    // SAFETY: this function's contract covers the load; parse trees live as long as its memory. Nothing here has a
    // destructor.
    unsafe {
        let function = begin(load);
        if function != pg_sys::InvalidOid {
            let mut nodes = Nodes::NONE;
            filter::analyze((*load).target.relation, function, &raw mut nodes);
            (*load).projection = Some(nodes);
        }
    }
}

/// Looks the function up, and locks it; InvalidOid if there is no filter.
///
/// # Safety
/// As [`analyze`].
#[pg_guard]
unsafe extern "C-unwind" fn begin(load: *mut Load) -> pg_sys::Oid {
    // SAFETY: this function's contract covers the load.
    let load = unsafe { &mut *load };
    let Some(name) = &load.options.filter else { return pg_sys::InvalidOid };
    let function = resolve(name).or_raise();
    // SAFETY: a guarded call. The lock keeps the function from being dropped, since workers look it up too.
    unsafe {
        pg_sys::LockDatabaseObject(pg_sys::ProcedureRelationId, function, 0, pg_sys::AccessShareLock.cast_signed())
    };
    check(function).or_raise();
    load.options.function = Some(function);
    function
}
