//! Makes expressions usable again after an error.
//!
//! Functions keep their state in the expression that calls them. After an error a function in SQL would continue with
//! the statement that failed (fmgr_sql, functions.c), whatever its new arguments are. So a caller that continues after
//! an error must build its expressions again.

use pgrx::pg_sys;

/// Builds the expression or the conditions again, ready to run from the start; null for null. Guarded; allocates in the
/// current memory context.
///
/// # Safety
/// Null, or the result of ExecInitExpr or ExecInitQual without a plan node, whose expression nodes still exist.
pub unsafe fn anew(state: *mut pg_sys::ExprState) -> *mut pg_sys::ExprState {
    if state.is_null() {
        return state;
    }
    // SAFETY: this function's contract covers the argument; both functions keep their input in the state.
    unsafe {
        let node = (*state).expr;
        if (*node).type_ == pg_sys::NodeTag::T_List {
            pg_sys::ExecInitQual(node.cast(), std::ptr::null_mut())
        } else {
            pg_sys::ExecInitExpr(node, std::ptr::null_mut())
        }
    }
}
