//! Joins that a load can run: one foreign table with small tables, if the file's rows can pass the join one by one.
//!
//! ```text
//!   HashPath ─┬─ outer: HashPath ─┬─ outer: ForeignPath       the file, a record at a time
//!             └─ inner: small     └─ inner: small, or looked up by an index
//! ```
//!
//! Each process of the load runs the whole plan over its chunks of the file, with its own inner sides. A full or right
//! join also returns rows without a row of the file, and each process would return these; such joins stay core's. An
//! inner side must be the same in each process, and small enough that sharing does not pay. If a part of the plan is
//! not parallel-safe or reads a table that workers cannot see, the leader alone runs it.
//!
//! The eligibility check reads the paths; [`plan`] takes the finished plan when the statement runs.

use pgrx::pg_sys::{self, NodeTag};

use super::super::insertion::{DEFAULT, Insertion, Reach};
use super::{Answer, no};
use crate::error::OrRaise;
use crate::load::direct::{self, Columns};
use crate::load::wrapper::Wrapper;
use crate::program::volatile;
use crate::server::lookup::is_temporary;
use crate::server::node::{Node, NodeList};
use crate::server::relation::OpenRelation;

type Root<'a> = Node<'a, pg_sys::PlannerInfo>;
type Path<'a> = Node<'a, pg_sys::Path>;

/// The foreign table on the outer side of a join, and the processes that may run the join.
#[derive(Debug)]
pub struct Joins {
    pub foreign: pg_sys::Oid,
    /// Its range table index.
    pub place: usize,
    pub reach: Reach,
}

/// Finds the foreign table of an eligible join below the INSERT into a target. Guarded.
pub fn check(root: Root<'_>, path: Path<'_>, target: pg_sys::Oid) -> Answer<Joins> {
    if !root.glob().subplans.is_null() {
        return no("The SELECT has subqueries.");
    }
    let targets = OpenRelation::locked(target).get().with_descendants(pg_sys::NoLock);
    let mut search = Search { targets, is_temporary: false };
    let (foreign, place) = search.outer(root, path)?;
    let reach = if search.is_temporary { Reach::Leader } else { Reach::Everywhere };
    Ok(Joins { foreign, place, reach })
}

/// Checks the expressions of a query at the end of its planning, and finds the processes that may evaluate them.
/// `columns` says which attributes get their default. Guarded.
pub fn of_expressions(root: Root<'_>, columns: &[i32]) -> Answer<Reach> {
    let set = root.processed_tlist().iter().zip(columns).filter(|(_, number)| **number != DEFAULT);
    let targets: NodeList<'_, pg_sys::TargetEntry> = set.map(|(entry, _)| entry).collect();
    // SAFETY: a copy of a node, which only this function looks at, by guarded calls.
    unsafe {
        let mut query = *root.query();
        query.targetList = targets.as_ptr();
        let node = (&raw mut query).cast::<pg_sys::Node>();
        // Functions and subqueries of the FROM clause are in the range table.
        if let Some(call) = Node::from_raw(node).and_then(volatile::call_in) {
            return Err(format!("An expression {call}."));
        }
        if pg_sys::contain_volatile_functions(node) {
            return no("An expression calls a volatile function.");
        }
        Ok(if pg_sys::max_parallel_hazard(&raw mut query).cast_unsigned() == pg_sys::PROPARALLEL_SAFE {
            Reach::Everywhere
        } else {
            Reach::Leader
        })
    }
}

struct Search {
    /// Targets of the INSERT.
    targets: Vec<pg_sys::Oid>,
    /// The query reads a temporary table, which workers cannot see.
    is_temporary: bool,
}

impl Search {
    /// Checks the outer side, whose rows pass the join. Guarded.
    fn outer(&mut self, root: Root<'_>, path: Path<'_>) -> Answer<(pg_sys::Oid, usize)> {
        match path.tag() {
            NodeTag::T_HashPath | NodeTag::T_NestPath => {
                let Some(join) = path.as_a::<pg_sys::JoinPath>() else { return no(OTHER) };
                if !preserves_outer(join.jointype) {
                    return no("The join returns rows without a row of the file.");
                }
                let found = self.outer(root, join.outerjoinpath())?;
                self.inner(root, join.innerjoinpath())?;
                if !is_small(path) { no("A joined table is not small.") } else { Ok(found) }
            }
            NodeTag::T_ForeignPath if path.param_info.is_null() => {
                let rel = path.rel();
                if !Wrapper::get().or_raise().has(rel) {
                    return no("The SELECT reads foreign tables of another wrapper.");
                }
                let place = rel.relid as usize;
                Ok((root.entry(place as u32).map_or(pg_sys::InvalidOid, |entry| entry.relid), place))
            }
            NodeTag::T_AppendPath => no("The SELECT joins more than one foreign table."),
            _ => match path.as_a::<pg_sys::ProjectionPath>() {
                Some(projection) => self.outer(root, projection.subpath()),
                None => no("The file is not the outer side of the join."),
            },
        }
    }

    /// Checks an inner side, which each process reads by itself. Guarded.
    fn inner(&mut self, root: Root<'_>, path: Path<'_>) -> Answer<()> {
        let rel = path.rel();
        match path.tag() {
            NodeTag::T_Path => match path.pathtype {
                NodeTag::T_SeqScan => self.table(root, rel),
                NodeTag::T_FunctionScan | NodeTag::T_ValuesScan | NodeTag::T_Result => Ok(()),
                _ => no(OTHER),
            },
            NodeTag::T_IndexPath | NodeTag::T_BitmapHeapPath => self.table(root, rel),
            NodeTag::T_GroupResultPath => Ok(()),
            NodeTag::T_SubqueryScanPath => match rel.subroot() {
                Some(subroot) => self.all_inner(subroot, path),
                None => no(OTHER),
            },
            NodeTag::T_ProjectionPath
            | NodeTag::T_MaterialPath
            | NodeTag::T_MemoizePath
            | NodeTag::T_UniquePath
            | NodeTag::T_UpperUniquePath
            | NodeTag::T_SortPath
            | NodeTag::T_IncrementalSortPath
            | NodeTag::T_GroupPath
            | NodeTag::T_AggPath
            | NodeTag::T_AppendPath
            | NodeTag::T_MergeAppendPath
            | NodeTag::T_NestPath
            | NodeTag::T_MergePath
            | NodeTag::T_HashPath => self.all_inner(root, path),
            // The outer side already has one.
            NodeTag::T_ForeignPath if Wrapper::get().or_raise().has(rel) => {
                no("The SELECT joins more than one foreign table.")
            }
            NodeTag::T_ForeignPath => no("The SELECT reads foreign tables of another wrapper."),
            _ => no(OTHER),
        }
    }

    fn all_inner(&mut self, root: Root<'_>, path: Path<'_>) -> Answer<()> {
        path.below().into_iter().try_for_each(|path| self.inner(root, path))
    }

    /// Checks a base relation. Guarded.
    fn table(&mut self, root: Root<'_>, rel: Node<'_, pg_sys::RelOptInfo>) -> Answer<()> {
        let Some(entry) = root.entry(rel.relid) else { return no(OTHER) };
        if self.targets.contains(&entry.relid) {
            return no("The SELECT reads the table that rows are inserted into.");
        }
        self.is_temporary |= is_temporary(entry.relid);
        Ok(())
    }
}

const OTHER: &str = "The SELECT joins other things than tables.";

/// Does each row of such a join come from a row of its outer side?
fn preserves_outer(kind: pg_sys::JoinType::Type) -> bool {
    use pg_sys::JoinType::{JOIN_ANTI, JOIN_INNER, JOIN_LEFT, JOIN_SEMI};
    [JOIN_INNER, JOIN_LEFT, JOIN_SEMI, JOIN_ANTI].contains(&kind)
}

/// Does the planner expect the inner side of a hash join or a nested loop to fit into each process's memory? Guarded.
fn is_small(path: Path<'_>) -> bool {
    if let Some(hash) = path.as_a::<pg_sys::HashPath>() {
        return hash.num_batches <= 1;
    }
    let Some(inner) = path.as_a::<pg_sys::JoinPath>().map(|join| join.innerjoinpath()) else { return false };
    // SAFETY: the planner's path has a target; a guarded call.
    let (width, memory) = unsafe { ((*inner.pathtarget).width, pg_sys::get_hash_memory_limit()) };
    // A parameterized inner side is looked up for each row, and not kept.
    !inner.param_info.is_null() || inner.rows * f64::from(width + 24) <= memory as f64
}

/// The plan that a load runs: the one below core's INSERT. The load's records replace the foreign scan, and columns
/// that the load computes are left out. `table` is the range table of the statement. Guarded; allocates in the current
/// memory context.
pub fn plan<'a>(
    modify: Node<'a, pg_sys::Plan>,
    insertion: &Insertion,
    table: NodeList<'_, pg_sys::RangeTblEntry>,
) -> Answer<Node<'a, pg_sys::Plan>> {
    let unexpected = || no("The plan is not as expected.");
    let Some(top) = modify.lefttree().map(Node::copy) else { return unexpected() };
    if top.targetlist().len() != insertion.columns.len() {
        return unexpected();
    }
    for (entry, _) in top.targetlist().iter().zip(&insertion.columns).filter(|(_, number)| **number == DEFAULT) {
        let expression = entry.expr().as_ptr();
        // SAFETY: guarded calls with an expression; the entry is part of the copy, to which nothing else refers.
        unsafe {
            let (kind, modifier) = (pg_sys::exprType(expression), pg_sys::exprTypmod(expression));
            (*entry.as_ptr()).expr = pg_sys::makeNullConst(kind, modifier, pg_sys::exprCollation(expression)).cast();
        }
    }
    let (mut above, mut node) = (None, top);
    let scan = loop {
        match node.tag() {
            NodeTag::T_Result => (),
            NodeTag::T_HashJoin | NodeTag::T_NestLoop => {
                if node.as_a::<pg_sys::Join>().is_none_or(|join| !preserves_outer(join.jointype)) {
                    return unexpected();
                }
            }
            _ => match node.as_a::<pg_sys::ForeignScan>() {
                Some(scan) => break scan,
                None => return unexpected(),
            },
        }
        above = Some(node);
        let Some(below) = node.lefttree() else { return unexpected() };
        node = below;
    };
    let entry = (scan.scan.scanrelid as usize).checked_sub(1).and_then(|place| table.get(place));
    if entry.is_none_or(|entry| entry.relid != insertion.foreign) {
        return unexpected();
    }
    if scan.fsSystemCol {
        return no("The SELECT reads a system column of the foreign table.");
    }
    // SAFETY: a scan of the wrapper's table; the node above it is part of the copy, to which nothing else refers.
    unsafe {
        let [by_quals, besides] = (Wrapper::get().or_raise().wanted)(scan);
        let leaf = direct::in_place_of(&scan, &Columns { by_quals, besides });
        match above {
            Some(above) => (*above.as_ptr()).lefttree = leaf,
            None => return Node::from_raw(leaf).map_or_else(unexpected, Ok),
        }
    }
    Ok(top)
}
