//! Aggregates computed by the scan: a single row leaves it, and no other row is formed.
//!
//! ```text
//!   serial                         by several processes
//!   Foreign Scan: count(*)         Finalize Aggregate ◄─ Gather ◄─┬─ Foreign Scan: PARTIAL count(*)
//!                                                                 └─ Foreign Scan: PARTIAL count(*)
//! ```
//!
//! Passing a row to the executor and aggregating it there takes several times as long as reading it. If a query has
//! only aggregates of one table's rows, without GROUP BY, and each is an [`accumulator::AggregateKind`], the planner
//! gets a path for a scan that returns their values. Below core's Gather it gets one that returns the transition
//! states, which core then combines. The node's projection computes expressions over the aggregates. Core runs all
//! other queries.
//!
//! The tuple of such a scan is its `fdw_scan_tlist`: the aggregates, and after them the columns that the quals read.
//! Only the quals use these columns, with the row's values in the scan's slot. In the returned row they are NULL, and
//! no node reads them.
//!
//! The result and the errors must be those of core's plan. So the scan converts the columns that core's scan would
//! convert, for their errors. A role that may not call an aggregate gets core's error, and quals are evaluated in
//! core's order.

pub mod accumulator;
pub mod run;
pub mod sums;

use std::ffi::c_void;

use pgrx::pg_sys;

use self::accumulator::AggregateKind;
use super::estimate::{costs, divisor, leads};
use super::options::TableOptions;
use super::private::{Aggregates, Call, Private, Wanted, elements, from_numbers, numbers, to_numbers};
use crate::error::Result;
use crate::guc;
use crate::server::callback::Unused;
use crate::server::node::{Node, NodeList, make};
use crate::server::planner::{Estimate, PlannedRelation, Planner, Processes};

/// GetForeignUpperPaths: adds a path that computes the query's aggregates, if possible.
///
/// The query reads only foreign tables of this wrapper.
pub fn upper_paths(
    root: Planner<'_>,
    stage: pg_sys::UpperRelationKind::Type,
    input: PlannedRelation<'_>,
    output: PlannedRelation<'_>,
    _extra: Unused<c_void>,
) -> Result<()> {
    let partial = match stage {
        pg_sys::UpperRelationKind::UPPERREL_GROUP_AGG => false,
        pg_sys::UpperRelationKind::UPPERREL_PARTIAL_GROUP_AGG => true,
        _ => return Ok(()),
    };
    if !is_simple(root, input)? {
        return Ok(());
    }
    let Some(quals) = quals(root, input) else { return Ok(()) };
    let Some((nodes, calls)) = aggregates(output, input.relid, partial) else { return Ok(()) };
    let workers = if partial { workers(input) } else { 0 };
    let needed = i32::try_from(places(quals.is_empty())).map_or(workers, |places| workers.min(places));
    if partial && (needed == 0 || !output.consider_parallel) {
        return Ok(());
    }
    let [per_row, per_operator, per_page] = costs();
    // Like a scan's cost, but without forming and passing on rows, except for quals. More workers than may read would not
    // make the scan faster. But core's own plans count these workers, so this cost counts as many, or core's plan would
    // always win.
    let looks = calls.iter().filter(|(_, attribute)| *attribute != 0).count();
    let mut per_tuple = (1.0 + looks as f64) * per_operator;
    if !quals.is_empty() {
        per_tuple += per_row + input.baserestrictcost.per_tuple;
    }
    let rows = if partial { input.tuples / divisor(workers) } else { input.tuples };
    let target = output.target().cost;
    let startup =
        input.baserestrictcost.startup + per_page * f64::from(input.pages) + per_tuple * rows + target.startup;
    let calls: NodeList<'_, i32> = to_numbers(&calls).collect();
    let private = [nodes.node(), calls.node(), quals.node()].into_iter().collect();
    let cost = Estimate { rows: 1.0, startup, total: startup + target.per_tuple };
    let by = if partial {
        Processes::Workers(needed)
    } else {
        // As the scan that core would aggregate.
        Processes::One { is_safe: input.cheapest().is_some_and(|path| path.parallel_safe) }
    };
    // SAFETY: neither this function nor core holds a path of the output: core calls this before set_cheapest (planner.c).
    unsafe { output.add_upper(root, cost, private, by) };
    Ok(())
}

/// Does the query only compute aggregates of one table's rows? Guarded.
fn is_simple(root: Planner<'_>, input: PlannedRelation<'_>) -> Result<bool> {
    let is_one = input.reloptkind == pg_sys::RelOptKind::RELOPT_BASEREL
        && input.rtekind == pg_sys::RTEKind::RTE_RELATION
        && root.is_only(input);
    let Some(entry) = root.entry(input.relid).filter(|_| is_one) else { return Ok(false) };
    // A filter must be called to know whether a record is a row.
    if entry.inh || TableOptions::of_table(entry.relid)?.filter.is_some() {
        return Ok(false);
    }
    let query = root.query();
    Ok(query.hasAggs
        && query.groupClause.is_null()
        && query.groupingSets.is_null()
        && query.havingQual.is_null()
        && !query.hasTargetSRFs
        && root.qual_security_level == 0)
}

/// The quals in the order in which core evaluates them (`order_qual_clauses`). `None` if a scan needs more than a row's
/// columns to evaluate them. Guarded.
fn quals<'a>(root: Planner<'a>, input: PlannedRelation<'a>) -> Option<NodeList<'a>> {
    let mut quals = Vec::new();
    for clause in input.conditions().iter() {
        let columns = columns(clause.clause(), input.relid)?;
        if clause.pseudoconstant || columns.iter().any(|&column| column <= 0) {
            return None;
        }
        quals.push((root.cost_of_row(clause.node()), clause.clause()));
    }
    quals.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    Some(quals.into_iter().map(|(_, qual)| qual).collect())
}

/// Numbers of the columns of a relation that an expression reads. `None` if it reads anything else. Guarded.
fn columns(expression: Node<'_>, relation: pg_sys::Index) -> Option<Vec<i32>> {
    let include = pg_sys::PVC_INCLUDE_PLACEHOLDERS | pg_sys::PVC_INCLUDE_AGGREGATES;
    expression.variables(include).iter().map(|node| column(node, relation)).collect()
}

/// The number of a relation's column. `None` for any other node.
fn column(node: Node<'_>, relation: pg_sys::Index) -> Option<i32> {
    let var = node.as_a::<pg_sys::Var>()?;
    let is_of_relation = u32::try_from(var.varno) == Ok(relation) && var.varlevelsup == 0;
    is_of_relation.then(|| i32::from(var.varattno))
}

/// The aggregates of a target list, each once. `None` if it has anything that a scan does not compute. Guarded.
fn aggregates(
    output: PlannedRelation<'_>,
    relation: pg_sys::Index,
    partial: bool,
) -> Option<(NodeList<'_, pg_sys::Aggref>, Vec<Call>)> {
    let include = pg_sys::PVC_INCLUDE_PLACEHOLDERS | pg_sys::PVC_INCLUDE_AGGREGATES | pg_sys::PVC_INCLUDE_WINDOWFUNCS;
    let mut nodes: Vec<Node<'_, pg_sys::Aggref>> = Vec::new();
    let mut calls = Vec::new();
    for node in output.targets().node()?.variables(include).iter() {
        let node = node.as_a::<pg_sys::Aggref>()?;
        if !nodes.iter().any(|known| known.is_equal(node.node())) {
            calls.push(aggregate(node, relation, partial)?);
            nodes.push(node);
        }
    }
    (!nodes.is_empty()).then(|| (nodes.into_iter().collect(), calls))
}

/// The function of an aggregate and the number of its column. `None` if a scan does not compute it.
fn aggregate(node: Node<'_, pg_sys::Aggref>, relation: pg_sys::Index, partial: bool) -> Option<Call> {
    let kind = AggregateKind::of(node.aggfnoid)?;
    let split = if partial { pg_sys::AggSplit::AGGSPLIT_INITIAL_SERIAL } else { pg_sys::AggSplit::AGGSPLIT_SIMPLE };
    let is_plain = node.aggdistinct.is_null()
        && node.aggorder.is_null()
        && node.aggfilter.is_null()
        && node.agglevelsup == 0
        && node.aggsplit == split
        && (!partial || kind.has_partial_state());
    if !is_plain {
        return None;
    }
    if kind == AggregateKind::Rows {
        return Some((node.aggfnoid, 0));
    }
    let mut argument = node.args().first().filter(|_| node.args().len() == 1)?.expr();
    // A domain's values have the base type's representation.
    if let Some(relabel) = argument.as_a::<pg_sys::RelabelType>() {
        argument = relabel.arg();
    }
    let is_value = argument.as_a::<pg_sys::Const>().is_some_and(|constant| !constant.constisnull);
    if is_value && kind == AggregateKind::Values {
        return Some((pg_sys::Oid::from_u32(pg_sys::F_COUNT_), 0));
    }
    let column = column(argument, relation).filter(|&column| column > 0)?;
    Some((node.aggfnoid, column))
}

/// The number of workers that core would plan for a scan of the table; 0 if none.
fn workers(input: PlannedRelation<'_>) -> i32 {
    input.partial_paths().first().map_or(0, |path| path.parallel_workers)
}

/// Most workers that may read (`fdw::parallel`): without conditions, which may call user code, as many as keep all
/// processors busy; else no limit.
pub fn places(is_unconditional: bool) -> u32 {
    if !is_unconditional {
        return u32::MAX;
    }
    let processes = guc::aggregate_processes();
    if leads() { processes.saturating_sub(1) } else { processes }
}

/// The plan of a path that [`upper_paths`] has made. Guarded.
pub fn plan(
    path: Node<'_, pg_sys::ForeignPath>,
    targets: NodeList<'_>,
    outer_plan: Option<Node<'_, pg_sys::Plan>>,
) -> *mut pg_sys::ForeignScan {
    let lists = path.private();
    let (nodes, quals) = (elements(lists.first()), elements(lists.get(2)));
    let list = from_numbers(&lists.get(1).map_or_else(Vec::new, numbers));
    let vars = quals.node().map_or(NodeList::EMPTY, |quals| quals.variables(0));
    let tuple = make::targets(nodes.concat(vars));
    let columns = tuple.iter().skip(list.len()).filter_map(|entry| entry.expr().as_a::<pg_sys::Var>());
    let columns: Vec<i32> = columns.map(|variable| i32::from(variable.varattno)).collect();
    let mut besides: Vec<i32> = list.iter().map(|&(_, column)| column).filter(|&column| column > 0).collect();
    besides.sort_unstable();
    besides.dedup();
    besides.retain(|column| !columns.contains(column));
    let mut by_quals = columns.clone();
    by_quals.sort_unstable();
    let aggregates = Some(Aggregates { partial: path.path.parallel_aware, list, columns });
    let wanted = Wanted { by_quals, besides };
    let private = Private { wanted, remarks: NodeList::EMPTY, aggregates, order: Vec::new() };
    private.make_scan(targets, quals, 0, tuple, outer_plan)
}
