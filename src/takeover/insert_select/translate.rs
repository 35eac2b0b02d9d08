//! Translates expressions between levels of a query: a subquery's columns to its target list, and a table's columns to
//! the row that a load reads.

use pgrx::pg_sys;

use crate::server::node::{Node, NodeList, make};

/// A copy in which a subquery's columns are replaced by its target list. Guarded.
pub fn through_subquery<'a>(node: Node<'a>, place: u32, targets: NodeList<'a, pg_sys::TargetEntry>) -> Node<'a> {
    translate(node, &|var| {
        let is_column = |entry: &Node<'a, pg_sys::TargetEntry>| entry.resno == var.varattno;
        let entry = if is_column_of(var, place) { targets.iter().find(is_column) } else { None };
        entry.map(|entry| entry.expr().copy())
    })
}

/// A copy in which a table's columns are those of the row that a load reads, as in the plan of a custom scan. Guarded.
pub fn to_row(node: Node<'_>, place: u32) -> Node<'_> {
    let copy = translate(node, &|var| {
        if !is_column_of(var, place) {
            return None;
        }
        let kind = (var.vartype, var.vartypmod, var.varcollid);
        Some(make::variable(pg_sys::INDEX_VAR as _, var.varattno, kind).node())
    });
    // SAFETY: a guarded call that completes a copy, as in set_plan_references (setrefs.c).
    unsafe { pg_sys::fix_opfuncids(copy.as_ptr()) };
    copy
}

/// A copy without PlaceHolderVars: expressions are always evaluated where the rows are read. Guarded.
pub fn bare(node: Node<'_>) -> Node<'_> {
    translate(node, &|_| None)
}

/// Whether a variable is a column of a relation. Whole-row and system columns stay; no load reads them.
fn is_column_of(var: Node<'_, pg_sys::Var>, place: u32) -> bool {
    u32::try_from(var.varno) == Ok(place) && var.varlevelsup == 0 && var.varattno > 0
}

/// A copy without PlaceHolderVars, with replacements for variables. Guarded.
fn translate<'a>(node: Node<'a>, replaced: &dyn Fn(Node<'a, pg_sys::Var>) -> Option<Node<'a>>) -> Node<'a> {
    node.replace(|node| match node.as_a::<pg_sys::PlaceHolderVar>() {
        Some(holder) => Some(translate(holder.phexpr(), replaced)),
        None => node.as_a().and_then(replaced),
    })
}
