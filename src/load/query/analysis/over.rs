//! Completes a query to all of the target's attributes: over a subquery, one row of VALUES, or several. All functions are
//! guarded; the analysis is complete.

use pgrx::pg_sys;

use super::QueryAnalysis;
use crate::server::node::make::{null, select, subquery, target, values, variable};
use crate::server::node::{Node, NodeList};

/// A query of all the target's attributes over this query.
pub(super) fn over(analysis: &QueryAnalysis, below: Node<'static, pg_sys::Query>) -> Node<'static, pg_sys::Query> {
    select(targets(analysis), Some(subquery(below)), false, false)
}

/// A query of all the target's attributes over one row of VALUES, analyzed with this state.
pub(super) fn over_nothing(analysis: &QueryAnalysis, state: &pg_sys::ParseState) -> Node<'static, pg_sys::Query> {
    select(targets(analysis), None, state.p_hasSubLinks, state.p_hasTargetSRFs)
}

/// A query of all the target's attributes over several rows of VALUES, analyzed with this state. The columns are those of the
/// last row, coerced as all are.
pub(super) fn over_rows(analysis: &mut QueryAnalysis, state: &pg_sys::ParseState) -> Node<'static, pg_sys::Query> {
    let rows = values(analysis.rows.iter().copied().collect::<NodeList<'_>>().of(), &analysis.columns);
    for (column, number) in analysis.columns.iter_mut().zip(1..) {
        *column = variable(1, number, (column.type_oid(), column.typmod(), pg_sys::InvalidOid)).node();
    }
    select(targets(analysis), Some(rows), state.p_hasSubLinks, false)
}

/// A value for each of the target's attributes: NULL for one without a column.
fn targets(analysis: &QueryAnalysis) -> NodeList<'static, pg_sys::TargetEntry> {
    let columns = || analysis.attributes.iter().zip(&analysis.columns);
    let value = |form: &pg_sys::FormData_pg_attribute| {
        let column = columns().find(|(attnum, _)| **attnum == form.attnum);
        target(column.map_or_else(|| null(form), |(_, column)| *column), form.attnum, None)
    };
    analysis.relation.descriptor().attributes().map(value).collect()
}
