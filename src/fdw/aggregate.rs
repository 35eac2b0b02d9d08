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

use std::ptr::null_mut;

use pgrx::{PgList, pg_guard, pg_sys};

use self::accumulator::AggregateKind;
use super::estimate::divisor;
use super::options::TableOptions;
use super::private::Wanted;
use crate::error::OrRaise;
use crate::guc;
use crate::server::compat;

/// The aggregates of a scan, as a plan carries them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aggregates {
    /// Return transition states instead of values.
    pub partial: bool,
    /// Each function, and the number of its column, or 0.
    pub list: Vec<(pg_sys::Oid, i32)>,
    /// Numbers of the columns that follow the aggregates in the scan's tuple.
    pub columns: Vec<i32>,
}

impl Aggregates {
    /// As lists for a plan. Guarded.
    fn to_lists(&self) -> *mut pg_sys::List {
        // SAFETY: guarded calls on lists made here; the numbers of a catalog's functions are small.
        unsafe {
            let mut list = pg_sys::lappend_int(null_mut(), i32::from(self.partial));
            for (function, attribute) in &self.list {
                list = pg_sys::lappend_int(list, function.to_u32().cast_signed());
                list = pg_sys::lappend_int(list, *attribute);
            }
            let columns = self.columns.iter().fold(null_mut(), |list, &column| pg_sys::lappend_int(list, column));
            let both = pg_sys::lappend(null_mut(), list.cast());
            pg_sys::lappend(both, columns.cast())
        }
    }

    /// The aggregates of a plan's scan; `None` if it returns rows.
    ///
    /// # Safety
    /// The private list of a plan that this module made; a guarded frame.
    pub unsafe fn from_private(private: *mut pg_sys::List) -> Option<Aggregates> {
        // SAFETY: this function's contract covers the list.
        let numbers = |list: *mut pg_sys::List| unsafe {
            let list = list.as_ref();
            let len = list.map_or(0, |list| usize::try_from(list.length).unwrap_or(0));
            let number = |i| list.map_or(0, |list| (*list.elements.add(i)).int_value);
            (0..len).map(number).collect::<Vec<i32>>()
        };
        // SAFETY: as above.
        let both = unsafe {
            let lists = PgList::<pg_sys::List>::from_pg(private).get_ptr(3).filter(|lists| !lists.is_null())?;
            PgList::<pg_sys::List>::from_pg(lists)
        };
        let aggregates = numbers(both.get_ptr(0).unwrap_or(null_mut()));
        let (partial, list) = aggregates.split_first()?;
        let pair = |pair: &[i32]| match pair {
            [function, attribute] => Some((pg_sys::Oid::from_u32(function.cast_unsigned()), *attribute)),
            _ => None,
        };
        Some(Aggregates {
            partial: *partial != 0,
            list: list.chunks(2).filter_map(pair).collect(),
            columns: numbers(both.get_ptr(1).unwrap_or(null_mut())),
        })
    }
}

/// Adds paths for aggregates over a foreign table. A plain frame.
///
/// # Safety
/// Called by the planner, for a query that reads only foreign tables of this wrapper.
pub unsafe extern "C-unwind" fn get_foreign_upper_paths(
    root: *mut pg_sys::PlannerInfo,
    stage: pg_sys::UpperRelationKind::Type,
    input: *mut pg_sys::RelOptInfo,
    output: *mut pg_sys::RelOptInfo,
    _extra: *mut std::ffi::c_void,
) {
    // SAFETY: the planner's own structures.
    unsafe {
        match stage {
            pg_sys::UpperRelationKind::UPPERREL_GROUP_AGG => add_path(root, input, output, false),
            pg_sys::UpperRelationKind::UPPERREL_PARTIAL_GROUP_AGG => add_path(root, input, output, true),
            _ => (),
        }
    }
}

/// Adds a path that computes the query's aggregates, if possible.
///
/// # Safety
/// As [`get_foreign_upper_paths`].
#[pg_guard]
unsafe extern "C-unwind" fn add_path(
    root: *mut pg_sys::PlannerInfo,
    input: *mut pg_sys::RelOptInfo,
    output: *mut pg_sys::RelOptInfo,
    partial: bool,
) {
    // SAFETY: this function's contract covers the structures.
    unsafe {
        if !is_simple(root, input) {
            return;
        }
        let Some(quals) = quals(root, input) else { return };
        let Some(aggregates) = aggregates((*(*output).reltarget).exprs, (*input).relid, partial) else { return };
        let workers = if partial { workers(input) } else { 0 };
        let needed = i32::try_from(places(quals.is_null())).map_or(workers, |places| workers.min(places));
        if partial && (needed == 0 || !(*output).consider_parallel) {
            return;
        }
        // Like a scan's cost, but without forming and passing on rows, except for quals. More workers than may read
        // would not make the scan faster. But core's own plans count these workers, so this cost counts as many, or
        // core's plan would always win.
        let looks = aggregates.iter().filter(|(_, (_, attribute))| *attribute != 0).count();
        let mut per_row = (1.0 + looks as f64) * pg_sys::cpu_operator_cost;
        if !quals.is_null() {
            per_row += pg_sys::cpu_tuple_cost + (*input).baserestrictcost.per_tuple;
        }
        let rows = if partial { (*input).tuples / divisor(workers) } else { (*input).tuples };
        let target = &(*(*output).reltarget).cost;
        let startup = (*input).baserestrictcost.startup
            + pg_sys::seq_page_cost * f64::from((*input).pages)
            + per_row * rows
            + target.startup;
        let mut nodes = null_mut();
        let mut pairs = null_mut();
        for (node, (function, attribute)) in aggregates {
            nodes = pg_sys::lappend(nodes, node.cast());
            pairs = pg_sys::lappend_int(pairs, function.to_u32().cast_signed());
            pairs = pg_sys::lappend_int(pairs, attribute);
        }
        let private = [nodes, pairs, quals].into_iter().fold(null_mut(), |all, list| pg_sys::lappend(all, list.cast()));
        let total = startup + target.per_tuple;
        let path = compat::create_foreign_upper_path(root, output, startup, total, private);
        if partial {
            (*path).path.parallel_aware = true;
            (*path).path.parallel_workers = needed;
            pg_sys::add_partial_path(output, path.cast());
        } else {
            // As the scan that core would aggregate.
            (*path).path.parallel_safe &= (*(*input).cheapest_total_path).parallel_safe;
            pg_sys::add_path(output, path.cast());
        }
    }
}

/// Does the query only compute aggregates of one table's rows?
///
/// # Safety
/// As [`get_foreign_upper_paths`].
unsafe fn is_simple(root: *mut pg_sys::PlannerInfo, input: *mut pg_sys::RelOptInfo) -> bool {
    // SAFETY: this function's contract covers the structures; a base relation has its place in the range table.
    unsafe {
        let parse = (*root).parse;
        let is_one = (*input).reloptkind == pg_sys::RelOptKind::RELOPT_BASEREL
            && (*input).rtekind == pg_sys::RTEKind::RTE_RELATION
            && pg_sys::bms_equal((*input).relids, (*root).all_baserels);
        if !is_one {
            return false;
        }
        let entry = *(*root).simple_rte_array.add((*input).relid as usize);
        // A filter must be called to know whether a record is a row.
        if (*entry).inh || TableOptions::of_table((*entry).relid).or_raise().filter.is_some() {
            return false;
        }
        (*parse).hasAggs
            && (*parse).groupClause.is_null()
            && (*parse).groupingSets.is_null()
            && (*parse).havingQual.is_null()
            && !(*parse).hasTargetSRFs
            && (*root).qual_security_level == 0
    }
}

/// The quals in the order in which core evaluates them (`order_qual_clauses`). `None` if a scan needs more than a row's
/// columns to evaluate them. Guarded.
///
/// # Safety
/// As [`get_foreign_upper_paths`].
unsafe fn quals(root: *mut pg_sys::PlannerInfo, input: *mut pg_sys::RelOptInfo) -> Option<*mut pg_sys::List> {
    // SAFETY: this function's contract covers the structures, whose list has nodes of one type; guarded calls.
    unsafe {
        let clauses = PgList::<pg_sys::RestrictInfo>::from_pg((*input).baserestrictinfo);
        let mut quals = Vec::new();
        for clause in clauses.iter_ptr() {
            let columns = columns((*clause).clause.cast(), (*input).relid)?;
            if (*clause).pseudoconstant || columns.iter().any(|&column| column <= 0) {
                return None;
            }
            let mut cost = pg_sys::QualCost::default();
            pg_sys::cost_qual_eval_node(&raw mut cost, clause.cast(), root);
            quals.push((cost.per_tuple, (*clause).clause));
        }
        quals.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        Some(quals.into_iter().fold(null_mut(), |list, (_, qual)| pg_sys::lappend(list, qual.cast())))
    }
}

/// Numbers of the columns of a relation that an expression reads. `None` if it reads anything else. Guarded.
///
/// # Safety
/// A valid expression.
unsafe fn columns(expression: *mut pg_sys::Node, relation: pg_sys::Index) -> Option<Vec<i32>> {
    // SAFETY: this function's contract covers the argument; tags give the node types.
    unsafe {
        let include = pg_sys::PVC_INCLUDE_PLACEHOLDERS | pg_sys::PVC_INCLUDE_AGGREGATES;
        let found = pg_sys::pull_var_clause(expression, include.cast_signed());
        let found = PgList::<pg_sys::Node>::from_pg(found);
        found.iter_ptr().map(|node| column(node.cast(), relation)).collect()
    }
}

/// The number of a relation's column. `None` for any other node.
///
/// # Safety
/// A valid node.
unsafe fn column(node: *mut pg_sys::Node, relation: pg_sys::Index) -> Option<i32> {
    // SAFETY: this function's contract covers the argument; tags give the node types.
    unsafe {
        if (*node).type_ != pg_sys::NodeTag::T_Var {
            return None;
        }
        let var = node.cast::<pg_sys::Var>();
        let is_of_relation = u32::try_from((*var).varno) == Ok(relation) && (*var).varlevelsup == 0;
        is_of_relation.then(|| i32::from((*var).varattno))
    }
}

/// An aggregate's node, its function and the number of its column.
type Aggregate = (*mut pg_sys::Aggref, (pg_sys::Oid, i32));

/// The aggregates of a target list, each once. `None` if it has anything that a scan does not compute. Guarded.
///
/// # Safety
/// The expressions of a target list.
unsafe fn aggregates(target: *mut pg_sys::List, relation: pg_sys::Index, partial: bool) -> Option<Vec<Aggregate>> {
    // SAFETY: this function's contract covers the list; tags give the node types; guarded calls.
    unsafe {
        let include =
            pg_sys::PVC_INCLUDE_PLACEHOLDERS | pg_sys::PVC_INCLUDE_AGGREGATES | pg_sys::PVC_INCLUDE_WINDOWFUNCS;
        let found = PgList::<pg_sys::Node>::from_pg(pg_sys::pull_var_clause(target.cast(), include.cast_signed()));
        let mut aggregates: Vec<Aggregate> = Vec::new();
        for node in found.iter_ptr() {
            if (*node).type_ != pg_sys::NodeTag::T_Aggref {
                return None;
            }
            let node = node.cast::<pg_sys::Aggref>();
            if aggregates.iter().any(|(known, _)| pg_sys::equal(known.cast(), node.cast())) {
                continue;
            }
            aggregates.push((node, aggregate(node, relation, partial)?));
        }
        (!aggregates.is_empty()).then_some(aggregates)
    }
}

/// The function of an aggregate and the number of its column. `None` if a scan does not compute it.
///
/// # Safety
/// A valid node.
unsafe fn aggregate(node: *mut pg_sys::Aggref, relation: pg_sys::Index, partial: bool) -> Option<(pg_sys::Oid, i32)> {
    // SAFETY: this function's contract covers the argument; tags give the node types.
    unsafe {
        let kind = AggregateKind::of((*node).aggfnoid)?;
        let split = if partial { pg_sys::AggSplit::AGGSPLIT_INITIAL_SERIAL } else { pg_sys::AggSplit::AGGSPLIT_SIMPLE };
        let is_plain = (*node).aggdistinct.is_null()
            && (*node).aggorder.is_null()
            && (*node).aggfilter.is_null()
            && (*node).agglevelsup == 0
            && (*node).aggsplit == split
            && (!partial || kind.has_partial_state());
        if !is_plain {
            return None;
        }
        if kind == AggregateKind::Rows {
            return Some(((*node).aggfnoid, 0));
        }
        let arguments = PgList::<pg_sys::TargetEntry>::from_pg((*node).args);
        let mut argument = (*arguments.get_ptr(0).filter(|_| arguments.len() == 1)?).expr.cast::<pg_sys::Node>();
        // A domain's values have the base type's representation.
        if (*argument).type_ == pg_sys::NodeTag::T_RelabelType {
            argument = (*argument.cast::<pg_sys::RelabelType>()).arg.cast();
        }
        let is_constant = (*argument).type_ == pg_sys::NodeTag::T_Const;
        if is_constant && kind == AggregateKind::Values && !(*argument.cast::<pg_sys::Const>()).constisnull {
            return Some((pg_sys::Oid::from_u32(pg_sys::F_COUNT_), 0));
        }
        let column = column(argument, relation).filter(|&column| column > 0)?;
        Some(((*node).aggfnoid, column))
    }
}

/// The number of workers that core would plan for a scan of the table; 0 if none.
///
/// # Safety
/// As [`get_foreign_upper_paths`].
unsafe fn workers(input: *mut pg_sys::RelOptInfo) -> i32 {
    // SAFETY: this function's contract covers the structure.
    unsafe {
        let paths = PgList::<pg_sys::Path>::from_pg((*input).partial_pathlist);
        paths.get_ptr(0).map_or(0, |path| (*path).parallel_workers)
    }
}

/// Most workers that may read (`fdw::parallel`): without conditions, which may call user code, as many as keep all
/// processors busy; else no limit.
pub fn places(is_unconditional: bool) -> u32 {
    if !is_unconditional {
        return u32::MAX;
    }
    // SAFETY: reads a setting.
    let leads = unsafe { pg_sys::parallel_leader_participation };
    let processes = guc::aggregate_processes();
    if leads { processes.saturating_sub(1) } else { processes }
}

/// The plan of a path that this module made. Guarded.
///
/// # Safety
/// The planner's own structures.
pub unsafe fn plan(
    path: *mut pg_sys::ForeignPath,
    tlist: *mut pg_sys::List,
    outer_plan: *mut pg_sys::Plan,
) -> *mut pg_sys::ForeignScan {
    // SAFETY: this function's contract covers the structures; guarded calls on lists made in `add_path`.
    unsafe {
        let private = PgList::<pg_sys::List>::from_pg((*path).fdw_private);
        let list = |i| private.get_ptr(i).unwrap_or(null_mut());
        let (nodes, pairs, quals) = (list(0), list(1), list(2));
        let pairs = pairs.as_ref();
        let number = |i: usize| pairs.map_or(0, |pairs| (*pairs.elements.add(i)).int_value);
        let len = pairs.map_or(0, |pairs| usize::try_from(pairs.length).unwrap_or(0));
        let pair = |i: usize| (pg_sys::Oid::from_u32(number(2 * i).cast_unsigned()), number(2 * i + 1));
        let list: Vec<_> = (0..len / 2).map(pair).collect();

        let vars = pg_sys::pull_var_clause(quals.cast(), 0);
        let tuple = pg_sys::add_to_flat_tlist(null_mut(), nodes);
        let tuple = pg_sys::add_to_flat_tlist(tuple, vars);
        let entries = PgList::<pg_sys::TargetEntry>::from_pg(tuple);
        let column_of = |entry: *mut pg_sys::TargetEntry| i32::from((*(*entry).expr.cast::<pg_sys::Var>()).varattno);
        let columns: Vec<i32> = entries.iter_ptr().skip(list.len()).map(column_of).collect();
        let mut besides: Vec<i32> = list.iter().map(|&(_, column)| column).filter(|&column| column > 0).collect();
        besides.sort_unstable();
        besides.dedup();
        besides.retain(|column| !columns.contains(column));
        let mut by_quals = columns.clone();
        by_quals.sort_unstable();
        let wanted = Wanted { by_quals, besides };
        let aggregates = Aggregates { partial: (*path).path.parallel_aware, list, columns };
        let private = pg_sys::lappend(wanted.into_private(null_mut()), aggregates.to_lists().cast());
        pg_sys::make_foreignscan(tlist, quals, 0, null_mut(), private, tuple, null_mut(), outer_plan)
    }
}
