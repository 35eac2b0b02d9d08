//! Expressions that an error has left in the middle.
//!
//! Functions keep what they are at in the expression that calls them: one in SQL goes on with the statement that it was at (fmgr_sql,
//! functions.c), whatever its arguments are by then. After an error nothing of it is to be called any more. Whoever has to go on calling makes
//! the same expressions once more.

use pgrx::pg_sys;

/// The same expression, or the same conditions, ready to run from the start; null for null. Guarded; allocates in the current memory context.
///
/// # Safety
/// Null, or what ExecInitExpr or ExecInitQual has made without a node of a plan, of nodes that are still there.
pub unsafe fn anew(state: *mut pg_sys::ExprState) -> *mut pg_sys::ExprState {
    if state.is_null() {
        return state;
    }
    // SAFETY: this function's contract covers the argument; both keep what they were given.
    unsafe {
        let node = (*state).expr;
        if (*node).type_ == pg_sys::NodeTag::T_List {
            pg_sys::ExecInitQual(node.cast(), std::ptr::null_mut())
        } else {
            pg_sys::ExecInitExpr(node, std::ptr::null_mut())
        }
    }
}
