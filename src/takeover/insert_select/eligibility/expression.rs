//! Restrictions on the expressions of an INSERT that a load replaces.

use pgrx::pg_sys::{self, NodeTag};

use super::{Answer, no};
use crate::program::volatile;
use crate::server::lookup::is_generated;
use crate::server::node::Node;

/// Checks an expression over the rows of the file. `place` is the range table index of the foreign table. Guarded.
pub fn of_expression(expression: Node<'_>, place: usize, foreign: pg_sys::Oid) -> Answer<()> {
    let mut why = "";
    let is_other = |node: Node<'_>| {
        why = match node.tag() {
            NodeTag::T_Param => "An expression has a parameter.",
            NodeTag::T_SubPlan | NodeTag::T_AlternativeSubPlan | NodeTag::T_SubLink => "An expression has a subquery.",
            _ if node.as_a::<pg_sys::Var>().is_some_and(|var| !is_column(&var, place, foreign)) => {
                "An expression reads a generated column, a system column, a whole row or another table."
            }
            _ => return false,
        };
        true
    };
    if expression.any(is_other) {
        return no(why);
    }
    if let Some(call) = volatile::call_in(expression) {
        return Err(format!("An expression {call}."));
    }
    if takes_ids(expression) {
        // Defaults may take ids of the same sequence, and take many at a time.
        return no("An expression calls nextval.");
    }
    Ok(())
}

/// Whether a variable is a column of the foreign table that the file has. Guarded.
pub fn is_column(var: &pg_sys::Var, place: usize, foreign: pg_sys::Oid) -> bool {
    usize::try_from(var.varno) == Ok(place)
        && var.varlevelsup == 0
        && var.varattno > 0
        && !is_generated(foreign, var.varattno)
}

/// Does an expression call currval or lastval? A load takes many ids at a time without updating these. Guarded.
pub fn asks_for_last_id(expression: Node<'_>) -> bool {
    expression.any(|node| node.calls(|function| [pg_sys::F_CURRVAL, pg_sys::F_LASTVAL].contains(&function.to_u32())))
}

/// Does an expression call nextval? Guarded.
pub fn takes_ids(expression: Node<'_>) -> bool {
    let is_nextval = |function: pg_sys::Oid| function.to_u32() == pg_sys::F_NEXTVAL;
    expression.any(|node| node.tag() == NodeTag::T_NextValueExpr || node.calls(is_nextval))
}
