//! The planner's data about a query and its relations, as callbacks receive it.

use std::ptr::null_mut;

use pgrx::pg_sys;

use super::call::calls;
use super::compat;
pub use super::compat::Estimate;
use super::node::{Node, NodeList};

/// The planner's data about a query.
pub type Planner<'a> = Node<'a, pg_sys::PlannerInfo>;

/// The planner's data about a relation.
pub type PlannedRelation<'a> = Node<'a, pg_sys::RelOptInfo>;

/// The processes that run a scan.
#[derive(Debug, Clone, Copy)]
pub enum Processes {
    /// One process. `is_safe`: it may be a worker.
    One { is_safe: bool },
    /// This many workers, and the leader.
    Workers(i32),
}

/// The order of a path's rows: pathkeys of the current planning, or none.
#[derive(Debug, Clone, Copy)]
pub struct PathOrder<'a>(NodeList<'a, pg_sys::PathKey>);

impl<'a> PathOrder<'a> {
    pub const NONE: PathOrder<'a> = PathOrder(NodeList::EMPTY);

    /// The first pathkeys that the query can use, and their number. Guarded.
    pub fn useful(
        root: Planner<'a>,
        rel: PlannedRelation<'a>,
        pathkeys: Vec<Node<'a, pg_sys::PathKey>>,
    ) -> (PathOrder<'a>, usize) {
        let pathkeys: NodeList<'a, pg_sys::PathKey> = pathkeys.into_iter().collect();
        let useful = root.useful(rel, pathkeys);
        (PathOrder(useful), useful.len())
    }
}

impl<'a> Planner<'a> {
    /// The relation with this index of the range table.
    pub fn rel(self, place: pg_sys::Index) -> Option<Node<'a, pg_sys::RelOptInfo>> {
        let is_there = (1..self.simple_rel_array_size).contains(&i32::try_from(place).ok()?);
        // SAFETY: the array has this many elements, from 1 on, each a relation or null.
        unsafe { is_there.then(|| Node::from_raw(*self.simple_rel_array.add(place as usize)))? }
    }

    /// The range table entry of a base relation.
    pub fn entry(self, index: pg_sys::Index) -> Option<Node<'a, pg_sys::RangeTblEntry>> {
        let root = *self;
        let size = usize::try_from(root.simple_rel_array_size).unwrap_or(0);
        let index = usize::try_from(index).ok().filter(|&index| index < size)?;
        // SAFETY: the array has an element for each relation, which may be null.
        unsafe { Node::from_raw(*root.simple_rte_array.add(index)) }
    }

    // SAFETY: the planner's data and a list of its pathkeys, of which the first function returns some.
    calls! {
        fn useful(self, rel: PlannedRelation<'a>, keys: NodeList<'a, pg_sys::PathKey>) -> NodeList<'a, pg_sys::PathKey>
            = truncate_useless_pathkeys(self, rel, keys);
        /// Invalidates the plan when the function is replaced. Guarded.
        pub fn depend(self, function: pg_sys::Oid) = record_plan_function_dependency(self, function);
        fn evaluation(self, cost: &mut pg_sys::QualCost, condition: Node<'_>) = cost_qual_eval_node(cost, condition, self);
        fn calling(self, function: pg_sys::Oid, cost: &mut pg_sys::QualCost) = add_function_cost(self, function, (null_mut()), cost);
        fn selectivity(self, conditions: NodeList<'a, pg_sys::RestrictInfo>) -> f64
            = clauselist_selectivity(self, conditions, 0, (pg_sys::JoinType::JOIN_INNER), (null_mut()));
    }

    /// Whether the query reads only this relation. Guarded.
    pub fn is_only(self, rel: PlannedRelation<'_>) -> bool {
        // SAFETY: a guarded call, which compares two sets.
        unsafe { pg_sys::bms_equal(rel.relids, self.all_baserels) }
    }

    /// The cost of a condition for each row. Guarded.
    pub fn cost_of_row(self, condition: Node<'_>) -> f64 {
        let mut cost = pg_sys::QualCost::default();
        self.evaluation(&mut cost, condition);
        cost.per_tuple
    }

    /// Forbids parallel plans of the query. A subquery that was planned before may still have workers.
    pub fn forbid_workers(self) {
        // SAFETY: the planner has global data; a relation's array is as long as it says; nothing else uses them.
        unsafe {
            (*(*self.as_ptr()).glob).parallelModeOK = false;
            let mut level = self.as_ptr();
            while let Some(root) = level.as_ref() {
                for at in 1..usize::try_from(root.simple_rel_array_size).unwrap_or(0) {
                    if let Some(rel) = (*root.simple_rel_array.add(at)).as_mut() {
                        rel.consider_parallel = false;
                    }
                }
                level = root.parent_root;
            }
        }
    }

    /// The cost of one call of a function. Guarded.
    pub fn function_cost(self, function: pg_sys::Oid) -> f64 {
        let mut cost = pg_sys::QualCost::default();
        self.calling(function, &mut cost);
        cost.per_tuple
    }
}

impl<'a> PlannedRelation<'a> {
    /// The expressions that the relation returns.
    pub fn targets(self) -> NodeList<'a> {
        // SAFETY: the target has a list of expressions.
        unsafe { NodeList::from_raw(self.target().exprs) }
    }

    /// The width and cost of what the relation returns.
    pub fn target(self) -> pg_sys::PathTarget {
        // SAFETY: a relation has a target.
        unsafe { *self.reltarget }
    }

    /// Sets the number of rows, before and after the conditions, and the number of pages. Guarded.
    pub fn set_size(self, root: Planner<'a>, tuples: f64, pages: u32) {
        let tuples = clamped_rows(tuples);
        // SAFETY: the planner's relation, to which no reference exists.
        unsafe {
            ((*self.as_ptr()).tuples, (*self.as_ptr()).pages) = (tuples, pages);
            // The selectivity may depend on the number of tuples.
            (*self.as_ptr()).rows = clamped_rows(tuples * root.selectivity(self.conditions()));
        }
    }

    // SAFETY: the planner's data, and a setting.
    calls! {
        fn workers_for(self, pages: f64) -> i32
            = compute_parallel_worker(self, pages, (-1.0), (pg_sys::max_parallel_workers_per_gather));
    }

    /// The number of workers for a parallel scan of the relation. Guarded.
    pub fn workers(self) -> i32 {
        self.workers_for(f64::from(self.pages))
    }

    /// Adds a path for a scan. Guarded.
    ///
    /// # Safety
    /// No path of this relation and no list of its paths is used any more: the server frees dearer paths.
    pub unsafe fn add_scan(self, root: Planner<'a>, cost: Estimate, order: PathOrder<'a>, by: Processes) {
        // SAFETY: a path that was just made; nothing uses the paths of the relation.
        unsafe {
            let path = compat::create_foreignscan_path(root, self, cost);
            (*path).path.pathkeys = order.0.as_ptr();
            self.add(path, by);
        }
    }

    /// Adds a path that returns this upper relation from a scan: all of it, or with workers a part of it. Guarded.
    ///
    /// # Safety
    /// No path of this relation and no list of its paths is used any more: the server frees dearer paths.
    pub unsafe fn add_upper(self, root: Planner<'a>, cost: Estimate, private: NodeList<'a>, by: Processes) {
        // SAFETY: as in `add_scan`.
        unsafe {
            let path = compat::create_foreign_upper_path(root, self, cost);
            (*path).fdw_private = private.as_ptr();
            self.add(path, by);
        }
    }

    /// # Safety
    /// As [`PlannedRelation::add_scan`]; a path that was just made.
    unsafe fn add(self, path: *mut pg_sys::ForeignPath, by: Processes) {
        // SAFETY: a guarded call with a new path.
        unsafe {
            match by {
                Processes::One { is_safe } => {
                    (*path).path.parallel_safe &= is_safe;
                    pg_sys::add_path(self.as_ptr(), path.cast());
                }
                Processes::Workers(workers) => {
                    (*path).path.parallel_aware = true;
                    (*path).path.parallel_workers = workers;
                    pg_sys::add_partial_path(self.as_ptr(), path.cast());
                }
            }
        }
    }
}

impl<'a> Node<'a, pg_sys::Path> {
    /// The paths right below this one, the outer one of a join first. Empty for scans, and for paths that are not in the
    /// table.
    pub fn below(self) -> Vec<Node<'a, pg_sys::Path>> {
        macro_rules! only {
            ($($path:ident),*) => {
                $(if let Some(path) = self.as_a::<pg_sys::$path>() {
                    return vec![path.subpath()];
                })*
            };
        }
        only!(AggPath, GroupPath, LimitPath, LockRowsPath, MaterialPath, MemoizePath, ProjectionPath, ProjectSetPath);
        only!(SortPath, SubqueryScanPath, UniquePath, UpperUniquePath, WindowAggPath);
        if let Some(join) = self.as_a::<pg_sys::JoinPath>() {
            return vec![join.outerjoinpath(), join.innerjoinpath()];
        }
        let append = self.as_a::<pg_sys::AppendPath>().map(|append| append.subpaths());
        let merge = self.as_a::<pg_sys::MergeAppendPath>().map(|append| append.subpaths());
        append.or(merge).map_or_else(Vec::new, |paths| paths.iter().collect())
    }
}

/// The conditions of clauses, without those that are constant (`extract_actual_clauses`). Guarded.
pub fn conditions<'a>(clauses: NodeList<'a, pg_sys::RestrictInfo>) -> NodeList<'a> {
    actual_clauses(clauses.iter().collect())
}

// SAFETY: a number, and a list of clauses only, which `conditions` has made.
calls! {
    /// A number of rows as the planner has it. Guarded.
    pub fn clamped_rows(rows: f64) -> f64 = clamp_row_est(rows);
    fn actual_clauses<'a>(clauses: NodeList<'a, pg_sys::RestrictInfo>) -> NodeList<'a> = extract_actual_clauses(clauses, false);
}
