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

use std::ptr::null_mut;

use pgrx::pg_sys::NodeTag;
use pgrx::{PgList, pg_sys};

use super::super::insertion::{DEFAULT, Insertion, Reach};
use super::{Answer, no};
use crate::error::OrRaise;
use crate::load::direct::{self, Columns};
use crate::load::wrapper::Wrapper;
use crate::program::volatile;
use crate::server::node::Node;
use crate::server::unguarded;

/// PROPARALLEL_SAFE (pg_proc.h)
const SAFE: i8 = b's' as i8;

/// The foreign table on the outer side of a join, and the processes that may run the join.
#[derive(Debug)]
pub struct Joins {
    pub foreign: pg_sys::Oid,
    /// Its range table index.
    pub place: usize,
    pub reach: Reach,
}

/// Finds the foreign table of an eligible join. Guarded.
///
/// # Safety
/// The planner's structures: the path of a join, and the target of the INSERT.
pub unsafe fn check(root: *mut pg_sys::PlannerInfo, path: *mut pg_sys::Path, target: pg_sys::Oid) -> Answer<Joins> {
    // SAFETY: this function's contract covers the structures; guarded calls.
    unsafe {
        if !(*(*root).glob).subplans.is_null() {
            return no("The SELECT has subqueries.");
        }
        let mut targets = Vec::new();
        let list =
            unguarded::guard(|| unguarded::find_all_inheritors(target, pg_sys::NoLock.cast_signed(), null_mut()));
        let len = list.as_ref().map_or(0, |list| usize::try_from(list.length).unwrap_or(0));
        targets.extend((0..len).map(|i| (*(*list).elements.add(i)).oid_value));
        let mut search = Search { targets, is_temporary: false };
        let (foreign, place) = search.outer(root, path)?;
        let reach = if search.is_temporary { Reach::Leader } else { Reach::Everywhere };
        Ok(Joins { foreign, place, reach })
    }
}

/// Checks the expressions of a query, and finds the processes that may evaluate them. `columns` says which attributes
/// get their default. Guarded.
///
/// # Safety
/// The planner's structures, at the end of planning.
pub unsafe fn of_expressions(root: *mut pg_sys::PlannerInfo, columns: &[i32]) -> Answer<Reach> {
    // SAFETY: this function's contract covers the structures; a copy of a node that is only looked at.
    unsafe {
        let mut query = *(*root).parse;
        let entries = PgList::<pg_sys::TargetEntry>::from_pg((*root).processed_tlist);
        let mut targets = PgList::<pg_sys::TargetEntry>::new();
        let set = entries.iter_ptr().zip(columns).filter(|(_, number)| **number != DEFAULT);
        set.for_each(|(entry, _)| targets.push(entry));
        query.targetList = targets.into_pg();
        let node = (&raw mut query).cast::<pg_sys::Node>();
        // Functions and subqueries of the FROM clause are in the range table.
        if let Some(call) = volatile::call_in(node) {
            return Err(format!("An expression {call}."));
        }
        if pg_sys::contain_volatile_functions(node) {
            return no("An expression calls a volatile function.");
        }
        Ok(if pg_sys::max_parallel_hazard(&raw mut query) == SAFE { Reach::Everywhere } else { Reach::Leader })
    }
}

struct Search {
    /// Targets of the INSERT.
    targets: Vec<pg_sys::Oid>,
    /// The query reads a temporary table, which workers cannot see.
    is_temporary: bool,
}

impl Search {
    /// Checks the outer side, whose rows pass the join.
    ///
    /// # Safety
    /// The planner's structures. Guarded.
    unsafe fn outer(
        &mut self,
        root: *mut pg_sys::PlannerInfo,
        path: *mut pg_sys::Path,
    ) -> Answer<(pg_sys::Oid, usize)> {
        // SAFETY: this function's contract covers the structures; tags give the node types.
        unsafe {
            match (*path).type_ {
                NodeTag::T_ProjectionPath => self.outer(root, (*path.cast::<pg_sys::ProjectionPath>()).subpath),
                NodeTag::T_HashPath | NodeTag::T_NestPath => {
                    let join = &*path.cast::<pg_sys::JoinPath>();
                    if !preserves_outer(join.jointype) {
                        return no("The join returns rows without a row of the file.");
                    }
                    let found = self.outer(root, join.outerjoinpath)?;
                    self.inner(root, join.innerjoinpath)?;
                    if !is_small(path) { no("A joined table is not small.") } else { Ok(found) }
                }
                NodeTag::T_ForeignPath if (*path).param_info.is_null() => {
                    let rel = (*path).parent;
                    if !Wrapper::get().or_raise().has(rel) {
                        return no("The SELECT reads foreign tables of another wrapper.");
                    }
                    let place = (*rel).relid as usize;
                    Ok(((*(*(*root).simple_rte_array.add(place))).relid, place))
                }
                NodeTag::T_AppendPath => no("The SELECT joins more than one foreign table."),
                _ => no("The file is not the outer side of the join."),
            }
        }
    }

    /// Checks an inner side, which each process reads by itself.
    ///
    /// # Safety
    /// As [`Search::outer`].
    unsafe fn inner(&mut self, root: *mut pg_sys::PlannerInfo, path: *mut pg_sys::Path) -> Answer<()> {
        // SAFETY: this function's contract covers the structures; tags give the node types.
        unsafe {
            let rel = (*path).parent;
            macro_rules! below {
                ($path:ident) => {
                    self.inner(root, (*path.cast::<pg_sys::$path>()).subpath)
                };
            }
            match (*path).type_ {
                NodeTag::T_Path => match (*path).pathtype {
                    NodeTag::T_SeqScan => self.table(root, rel),
                    NodeTag::T_FunctionScan | NodeTag::T_ValuesScan | NodeTag::T_Result => Ok(()),
                    _ => no("The SELECT joins other things than tables."),
                },
                NodeTag::T_IndexPath | NodeTag::T_BitmapHeapPath => self.table(root, rel),
                NodeTag::T_GroupResultPath => Ok(()),
                NodeTag::T_SubqueryScanPath => {
                    self.inner((*rel).subroot, (*path.cast::<pg_sys::SubqueryScanPath>()).subpath)
                }
                NodeTag::T_ProjectionPath => below!(ProjectionPath),
                NodeTag::T_MaterialPath => below!(MaterialPath),
                NodeTag::T_MemoizePath => below!(MemoizePath),
                NodeTag::T_UniquePath => below!(UniquePath),
                NodeTag::T_UpperUniquePath => below!(UpperUniquePath),
                NodeTag::T_SortPath | NodeTag::T_IncrementalSortPath => below!(SortPath),
                NodeTag::T_GroupPath => below!(GroupPath),
                NodeTag::T_AggPath => below!(AggPath),
                NodeTag::T_AppendPath => {
                    let paths = PgList::<pg_sys::Path>::from_pg((*path.cast::<pg_sys::AppendPath>()).subpaths);
                    paths.iter_ptr().try_for_each(|path| self.inner(root, path))
                }
                NodeTag::T_MergeAppendPath => {
                    let paths = PgList::<pg_sys::Path>::from_pg((*path.cast::<pg_sys::MergeAppendPath>()).subpaths);
                    paths.iter_ptr().try_for_each(|path| self.inner(root, path))
                }
                NodeTag::T_NestPath | NodeTag::T_MergePath | NodeTag::T_HashPath => {
                    let join = path.cast::<pg_sys::JoinPath>();
                    self.inner(root, (*join).outerjoinpath)?;
                    self.inner(root, (*join).innerjoinpath)
                }
                // The outer side already has one.
                NodeTag::T_ForeignPath if Wrapper::get().or_raise().has(rel) => {
                    no("The SELECT joins more than one foreign table.")
                }
                NodeTag::T_ForeignPath => no("The SELECT reads foreign tables of another wrapper."),
                _ => no("The SELECT joins other things than tables."),
            }
        }
    }

    /// # Safety
    /// As [`Search::outer`]; a base relation.
    unsafe fn table(&mut self, root: *mut pg_sys::PlannerInfo, rel: *const pg_sys::RelOptInfo) -> Answer<()> {
        // SAFETY: this function's contract covers the structures; a guarded catalog lookup.
        unsafe {
            let relid = (*(*(*root).simple_rte_array.add((*rel).relid as usize))).relid;
            if self.targets.contains(&relid) {
                return no("The SELECT reads the table that rows are inserted into.");
            }
            self.is_temporary |= pg_sys::get_rel_persistence(relid).cast_unsigned() == pg_sys::RELPERSISTENCE_TEMP;
            Ok(())
        }
    }
}

/// Does each row of such a join come from a row of its outer side?
fn preserves_outer(kind: pg_sys::JoinType::Type) -> bool {
    use pg_sys::JoinType::{JOIN_ANTI, JOIN_INNER, JOIN_LEFT, JOIN_SEMI};
    [JOIN_INNER, JOIN_LEFT, JOIN_SEMI, JOIN_ANTI].contains(&kind)
}

/// Does the planner expect the inner side of a join to fit into each process's memory?
///
/// # Safety
/// The path of a hash join or a nested loop.
unsafe fn is_small(path: *const pg_sys::Path) -> bool {
    // SAFETY: this function's contract covers the path; a guarded call.
    unsafe {
        if (*path).type_ == NodeTag::T_HashPath {
            return (*path.cast::<pg_sys::HashPath>()).num_batches <= 1;
        }
        let inner = &*(*path.cast::<pg_sys::JoinPath>()).innerjoinpath;
        // A parameterized inner side is looked up for each row, and not kept.
        let bytes = inner.rows * f64::from((*inner.pathtarget).width + 24);
        !inner.param_info.is_null() || bytes <= pg_sys::get_hash_memory_limit() as f64
    }
}

/// The plan that a load runs: the one below core's INSERT. The load's records replace the foreign scan, and columns
/// that the load computes are left out. Guarded; allocates in the current memory context.
///
/// # Safety
/// Core's plan of an INSERT that was found eligible as this insertion, and the state of the statement.
pub unsafe fn plan(
    modify: *const pg_sys::Plan,
    insertion: &Insertion,
    estate: *mut pg_sys::EState,
) -> Answer<*mut pg_sys::Plan> {
    // SAFETY: this function's contract covers the plan, of which a copy is changed; tags give the node types.
    unsafe {
        let mut top = pg_sys::copyObjectImpl((*modify).lefttree.cast()).cast::<pg_sys::Plan>();
        let entries = PgList::<pg_sys::TargetEntry>::from_pg((*top).targetlist);
        for (entry, _) in entries.iter_ptr().zip(&insertion.columns).filter(|(_, number)| **number == DEFAULT) {
            let expression = (*entry).expr.cast::<pg_sys::Node>();
            let (kind, modifier) = (pg_sys::exprType(expression), pg_sys::exprTypmod(expression));
            (*entry).expr = pg_sys::makeNullConst(kind, modifier, pg_sys::exprCollation(expression)).cast();
        }
        let unexpected = || no("The plan is not as expected.");
        if entries.len() != insertion.columns.len() {
            return unexpected();
        }
        let mut place = &raw mut top;
        loop {
            let Some(node) = (*place).as_mut() else { return unexpected() };
            match node.type_ {
                NodeTag::T_Result => (),
                NodeTag::T_HashJoin | NodeTag::T_NestLoop => {
                    if !preserves_outer((*(*place).cast::<pg_sys::Join>()).jointype) {
                        return unexpected();
                    }
                }
                NodeTag::T_ForeignScan => break,
                _ => return unexpected(),
            }
            place = &raw mut node.lefttree;
        }
        let scan = (*place).cast::<pg_sys::ForeignScan>();
        let entries = PgList::<pg_sys::RangeTblEntry>::from_pg((*estate).es_range_table);
        let entry = ((*scan).scan.scanrelid as usize).checked_sub(1).and_then(|place| entries.get_ptr(place));
        if entry.is_none_or(|entry| (*entry).relid != insertion.foreign) {
            return unexpected();
        }
        if (*scan).fsSystemCol {
            return no("The SELECT reads a system column of the foreign table.");
        }
        let Some(node) = Node::from_raw(scan) else { return unexpected() };
        let [by_quals, besides] = (Wrapper::get().or_raise().wanted)(node);
        *place = direct::in_place_of(scan, &Columns { by_quals, besides });
        Ok(top)
    }
}
