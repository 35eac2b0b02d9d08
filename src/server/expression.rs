//! Expressions that are ready to run.
//!
//! An [`Expression`] lives in the memory context that was current when it was made, and so does its node; only unsafe code deletes
//! contexts. The executor checks the types of the columns that an expression reads when it runs for the first time
//! (CheckExprStillValid, execExprInterp.c).
//!
//! Functions keep their state in the expression that calls them. After an error a function in SQL would continue with
//! the statement that failed (fmgr_sql, functions.c), whatever its new arguments are. So a caller that continues after
//! an error must build its expressions again ([`Expression::renew`]).

use std::ptr::null_mut;

use pgrx::pg_sys;

use super::call::calls;
use super::handle::Handle;
use super::lookup::type_length;
use super::node::{Node, NodeList};
use super::unguarded as c;

/// An expression, or a list of conditions, that is ready to run, with its node.
pub type Expression = Handle<'static, pg_sys::ExprState>;

impl Expression {
    // SAFETY: the functions raise an error for a node that is no expression. A node lives as long as its state.
    calls! {
        /// Prepares a planned expression. Guarded; in the current memory context.
        pub fn new(node: Node<'static>) -> Expression = ExecInitExpr(node, (null_mut()));
        fn plan(node: Node<'static>) -> Node<'static> = expression_planner(node);
        fn all(list: NodeList<'static>) -> Option<Expression> = ExecInitQual(list, (null_mut()));
    }

    /// Prepares planned conditions that must all be true; None for an empty list. Guarded; in the current memory context.
    pub fn conditions(list: NodeList<'static>) -> Option<Expression> {
        // The function takes no null.
        Expression::all(list.iter().collect())
    }

    /// Plans an expression, and prepares it. Guarded; in the current memory context.
    pub fn planned(node: Node<'static>) -> Expression {
        Expression::new(Expression::plan(node))
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
