//! Walks that replace nodes of an expression.

use std::ffi::c_void;

use pgrx::pg_sys;

/// A function that replaces a node.
pub type Mutator = unsafe extern "C-unwind" fn(*mut pg_sys::Node, *mut c_void) -> *mut pg_sys::Node;

/// `expression_tree_mutator`
///
/// # Safety
/// A node, and the context of the mutator; called from a guarded frame.
pub unsafe fn expression_tree_mutator(
    node: *mut pg_sys::Node,
    mutator: Mutator,
    context: *mut c_void,
) -> *mut pg_sys::Node {
    // SAFETY: a guarded call with this node and context. Up to 15 the mutator is declared without arguments, but called with them.
    unsafe {
        #[cfg(feature = "pg15")]
        {
            type Undeclared = unsafe extern "C-unwind" fn() -> *mut pg_sys::Node;
            let mutator = std::mem::transmute::<Mutator, Undeclared>(mutator);
            pg_sys::expression_tree_mutator(node, Some(mutator), context)
        }
        #[cfg(not(feature = "pg15"))]
        pg_sys::expression_tree_mutator_impl(node, Some(mutator), context)
    }
}
