//! Expressions that are ready to run.
//!
//! An [`Expression`] lives in the memory context that was current when it was made, and so does its node; only unsafe code deletes
//! contexts. The executor checks the types of the columns that an expression reads when it runs for the first time
//! (CheckExprStillValid, execExprInterp.c).
//!
//! Functions keep their state in the expression that calls them. After an error a function in SQL would continue with
//! the statement that failed (fmgr_sql, functions.c), whatever its new arguments are. So a caller that continues after
//! an error must build its expressions again ([`Expression::renew`]).

use pgrx::pg_sys;

use super::handle::Handle;
use super::lookup::type_length;
use super::node::{Node, NodeList};
use super::unguarded as c;

/// An expression, or a list of conditions, that is ready to run, with its node.
pub type Expression = Handle<'static, pg_sys::ExprState>;

impl Expression {
    /// Prepares a planned expression. Guarded; in the current memory context.
    pub fn new(node: Node<'static>) -> Expression {
        // SAFETY: a guarded call, which raises an error for a node that is no expression. The node lives as long as the state.
        unsafe { Expression::from_raw(pg_sys::ExecInitExpr(node.as_ptr().cast(), std::ptr::null_mut())) }
    }

    /// Plans an expression, and prepares it. Guarded; in the current memory context.
    pub fn planned(node: Node<'static>) -> Expression {
        // SAFETY: a guarded call: of an expression the planner makes one, in the current memory context.
        let planned = unsafe { Node::from_raw(pg_sys::expression_planner(node.as_ptr().cast()).cast()) };
        Expression::new(planned.unwrap_or(node))
    }

    /// Prepares planned conditions that must all be true; None for an empty list. Guarded; in the current memory context.
    pub fn conditions(list: NodeList<'static>) -> Option<Expression> {
        // SAFETY: a guarded call, which returns null for an empty list. The list lives as long as the state.
        unsafe { Expression::or_null(pg_sys::ExecInitQual(list.as_ptr(), std::ptr::null_mut())) }
    }

    /// The expression, or the list of conditions.
    pub fn node(self) -> Option<Node<'static>> {
        // SAFETY: a state has the node that it was made of.
        unsafe { Node::from_raw(self.get().expr.cast()) }
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
    /// A plain frame; a planned expression; a valid context, whose slots have the row.
    #[inline]
    pub unsafe fn value(self, econtext: *mut pg_sys::ExprContext) -> Option<pg_sys::Datum> {
        let mut is_null = false;
        // SAFETY: the frame is plain; the context is valid, and so is the state of a planned expression.
        let value = unsafe { c::exec_eval_expr(self.as_ptr(), econtext, &raw mut is_null) };
        (!is_null).then_some(value)
    }
}

/// Whether values of an expression may be expanded objects. Guarded.
pub fn expands(node: Node<'_>) -> bool {
    type_length(node.type_oid()) == -1
}
