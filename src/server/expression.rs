//! Expressions that are ready to run.
//!
//! An [`Expression`] lives in the memory context that was current when it was made, and so does its node; only unsafe code deletes
//! contexts. The executor checks the types of the columns that an expression reads when it runs for the first time
//! (CheckExprStillValid, execExprInterp.c).
//!
//! Functions keep their state in the expression that calls them. After an error a function in SQL would continue with
//! the statement that failed (fmgr_sql, functions.c), whatever its new arguments are. So a caller that continues after
//! an error must build its expressions again ([`Expression::renew`]).

use std::ptr::NonNull;

use pgrx::pg_sys;

use super::node::{Node, NodeList};
use super::unguarded as c;

/// An expression, or a list of conditions, that is ready to run.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct Expression(NonNull<pg_sys::ExprState>);

impl Expression {
    /// None for null.
    ///
    /// # Safety
    /// Null, or the state of an expression; it exists as long as handles of it are used.
    pub const unsafe fn from_raw(state: *mut pg_sys::ExprState) -> Option<Expression> {
        match NonNull::new(state) {
            Some(state) => Some(Expression(state)),
            None => None,
        }
    }

    /// Prepares a planned expression. Guarded; in the current memory context.
    pub fn new(node: Node<'_>) -> Expression {
        // SAFETY: a guarded call, which raises an error for a node that is no expression.
        Expression(unsafe { NonNull::new_unchecked(pg_sys::ExecInitExpr(node.as_ptr().cast(), std::ptr::null_mut())) })
    }

    /// Plans an expression, and prepares it. Guarded; in the current memory context.
    pub fn planned(node: Node<'_>) -> Expression {
        // SAFETY: guarded calls: of an expression the planner makes one.
        unsafe {
            let planned = pg_sys::expression_planner(node.as_ptr().cast());
            Expression(NonNull::new_unchecked(pg_sys::ExecInitExpr(planned, std::ptr::null_mut())))
        }
    }

    /// Prepares conditions that must all be true; None for an empty list. Guarded; in the current memory context.
    pub fn conditions(list: NodeList<'_>) -> Option<Expression> {
        // SAFETY: a guarded call, which returns a state, or null for an empty list.
        unsafe { Expression::from_raw(pg_sys::ExecInitQual(list.as_ptr(), std::ptr::null_mut())) }
    }

    /// Returns the pointer for functions of the server.
    #[inline(always)]
    pub const fn as_ptr(self) -> *mut pg_sys::ExprState {
        self.0.as_ptr()
    }

    /// The expression, or the list of conditions.
    pub fn node(self) -> Option<Node<'static>> {
        // SAFETY: a state has the node that it was made of.
        unsafe { Node::from_raw((*self.as_ptr()).expr.cast()) }
    }

    /// Builds the expression again, ready to run from the start. Guarded; in the current memory context.
    pub fn renew(&mut self) {
        let Some(node) = self.node() else { return };
        *self = if node.tag() == pg_sys::NodeTag::T_List {
            Expression::conditions(node.list()).unwrap_or(*self)
        } else {
            Expression::new(node)
        };
    }

    /// Returns the value; None for NULL.
    ///
    /// # Safety
    /// A plain frame; a valid context, whose slots have the row.
    #[inline]
    pub unsafe fn value(self, econtext: *mut pg_sys::ExprContext) -> Option<pg_sys::Datum> {
        let mut is_null = false;
        // SAFETY: the frame is plain; the context and the state are valid.
        let value = unsafe { c::exec_eval_expr(self.as_ptr(), econtext, &raw mut is_null) };
        (!is_null).then_some(value)
    }
}

/// Whether values of an expression may be expanded objects. Guarded.
pub fn expands(node: Node<'_>) -> bool {
    // SAFETY: a guarded catalog lookup.
    unsafe { pg_sys::get_typlen(node.type_oid()) == -1 }
}
