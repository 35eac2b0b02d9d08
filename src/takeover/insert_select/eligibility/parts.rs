//! The foreign tables that an INSERT reads: one, or several whose rows come one table after the other.
//!
//! ```text
//!   Append ─┬─ ForeignScan                 a partition; an arm of UNION ALL that is just a table
//!           └─ SubqueryScan ─ ForeignScan  any other arm: its target list is between the INSERT's and the table
//! ```
//!
//! [`gather`] descends the paths and translates the INSERT's target list to each table's columns. Conditions are
//! collected again from the plan ([`conditions`]), because the plan has them in the order in which core evaluates them.

use pgrx::pg_sys::NodeTag;
use pgrx::{PgList, pg_sys};

use super::super::translate::{bare, through_subquery, to_row};
use super::{Answer, no, of_select};
use crate::error::OrRaise;
use crate::load::wrapper::Wrapper;
use crate::server::compat;

/// One foreign table that an INSERT reads.
#[derive(Debug)]
pub struct ForeignInput {
    pub foreign: pg_sys::Oid,
    /// Its range table index, in the query or in a subquery.
    pub place: usize,
    /// The query itself reads it, neither as a partition nor through a subquery.
    pub is_plain: bool,
    /// The INSERT's target list, and the conditions, over the table's columns.
    pub targets: *mut pg_sys::List,
    pub quals: *mut pg_sys::List,
}

/// The target list and conditions above a path, over the path's columns.
#[derive(Debug, Clone, Copy)]
pub struct Above {
    pub targets: *mut pg_sys::List,
    pub quals: *mut pg_sys::List,
    /// There is no subquery or partition between the path and the query.
    pub is_plain: bool,
}

/// Finds the tables below a path, in the order of their rows. Guarded.
///
/// # Safety
/// The planner's structures: a path, and its query or subquery.
pub unsafe fn gather(
    root: *mut pg_sys::PlannerInfo,
    path: *mut pg_sys::Path,
    above: Above,
    found: &mut Vec<ForeignInput>,
) -> Answer<()> {
    // SAFETY: this function's contract covers the structures; tags give the node types.
    unsafe {
        let rel = (*path).parent;
        match (*path).type_ {
            NodeTag::T_ProjectionPath => gather(root, (*path.cast::<pg_sys::ProjectionPath>()).subpath, above, found),
            NodeTag::T_AppendPath => {
                let append = path.cast::<pg_sys::AppendPath>();
                let above = Above { is_plain: false, ..above };
                let paths = PgList::<pg_sys::Path>::from_pg((*append).subpaths);
                paths.iter_ptr().try_for_each(|path| gather(root, path, above, found))
            }
            NodeTag::T_SubqueryScanPath if (*path).param_info.is_null() => {
                let subroot = (*rel).subroot;
                of_select(subroot)?;
                if pg_sys::contain_volatile_functions((*subroot).processed_tlist.cast()) {
                    // The value is computed once in the subquery, but would be computed at each use.
                    return no("A subquery calls a volatile function.");
                }
                let above = below_subquery(root, rel, above, own_quals(rel));
                gather(subroot, (*path.cast::<pg_sys::SubqueryScanPath>()).subpath, above, found)
            }
            NodeTag::T_ForeignPath if (*path).param_info.is_null() => {
                if !Wrapper::get().or_raise().has(rel) {
                    return no("The SELECT reads foreign tables of another wrapper.");
                }
                let place = (*rel).relid as usize;
                let Above { targets, quals, is_plain } = to_child(root, rel, above);
                let quals = pg_sys::list_concat(own_quals(rel), quals);
                found.push(ForeignInput {
                    foreign: (*(*(*root).simple_rte_array.add(place))).relid,
                    place,
                    is_plain,
                    targets: bare(targets.cast()).cast(),
                    quals: bare(quals.cast()).cast(),
                });
                Ok(())
            }
            // Another kind of table scan.
            _ if (*rel).rtekind == pg_sys::RTEKind::RTE_RELATION && is_scan((*path).pathtype) => {
                no("The SELECT reads other tables than foreign ones.")
            }
            _ => no("The SELECT does more than read rows."),
        }
    }
}

fn is_scan(kind: NodeTag) -> bool {
    [
        NodeTag::T_SeqScan,
        NodeTag::T_SampleScan,
        NodeTag::T_IndexScan,
        NodeTag::T_IndexOnlyScan,
        NodeTag::T_BitmapHeapScan,
        NodeTag::T_TidScan,
        NodeTag::T_TidRangeScan,
    ]
    .contains(&kind)
}

/// A copy of the list of a relation's conditions. Guarded.
///
/// # Safety
/// A relation of the planner.
unsafe fn own_quals(rel: *mut pg_sys::RelOptInfo) -> *mut pg_sys::List {
    // SAFETY: this function's contract covers the argument; a guarded call, which makes a list.
    unsafe { pg_sys::extract_actual_clauses((*rel).baserestrictinfo, false) }
}

/// Translates a parent's target list and conditions to a child's columns. Guarded.
///
/// # Safety
/// The planner's structures.
unsafe fn to_child(root: *mut pg_sys::PlannerInfo, rel: *mut pg_sys::RelOptInfo, above: Above) -> Above {
    // SAFETY: this function's contract covers the structures.
    let adjust = |list: *mut pg_sys::List| unsafe { compat::adjust_to_child(root, rel, list.cast()) }.cast();
    Above { targets: adjust(above.targets), quals: adjust(above.quals), ..above }
}

/// Translates to the columns that a subquery reads, and adds conditions on the subquery. Guarded.
///
/// # Safety
/// The planner's structures; a subquery that was planned.
unsafe fn below_subquery(
    root: *mut pg_sys::PlannerInfo,
    rel: *mut pg_sys::RelOptInfo,
    above: Above,
    own: *mut pg_sys::List,
) -> Above {
    // SAFETY: this function's contract covers the structures.
    unsafe {
        let Above { targets, quals, .. } = to_child(root, rel, above);
        let (place, list) = ((*rel).relid, (*(*rel).subroot).processed_tlist);
        let quals = pg_sys::list_concat(own, quals);
        Above {
            targets: through_subquery(targets.cast(), place, list).cast(),
            quals: through_subquery(quals.cast(), place, list).cast(),
            is_plain: false,
        }
    }
}

/// Collects from a plan each table's range table index and conditions, for a load. False if the plan has more than the
/// paths had: partitions that are pruned at run time. Guarded.
///
/// # Safety
/// A new plan, and the structures of the planner that made it.
pub unsafe fn conditions(
    root: *mut pg_sys::PlannerInfo,
    plan: *mut pg_sys::Plan,
    above: *mut pg_sys::List,
    found: &mut Vec<(usize, *mut pg_sys::List)>,
) -> bool {
    // SAFETY: this function's contract covers the plan; tags give the node types.
    unsafe {
        let Some(node) = plan.as_ref() else { return false };
        let rel_of = |scan: *mut pg_sys::Scan| *(*root).simple_rel_array.add((*scan).scanrelid as usize);
        let own = || pg_sys::copyObjectImpl(node.qual.cast()).cast::<pg_sys::List>();
        let above = Above { targets: std::ptr::null_mut(), quals: above, is_plain: false };
        match node.type_ {
            NodeTag::T_Result => {
                (*plan.cast::<pg_sys::Result>()).resconstantqual.is_null()
                    && node.qual.is_null()
                    && conditions(root, node.lefttree, above.quals, found)
            }
            NodeTag::T_Append => {
                let append = plan.cast::<pg_sys::Append>();
                let plans = PgList::<pg_sys::Plan>::from_pg((*append).appendplans);
                // A load must not read the file of a partition that core prunes at run time.
                !compat::prunes_at_run_time(&*append)
                    && plans.iter_ptr().all(|plan| conditions(root, plan, above.quals, found))
            }
            NodeTag::T_SubqueryScan => {
                let rel = rel_of(plan.cast());
                let above = below_subquery(root, rel, above, own());
                let subplan = (*plan.cast::<pg_sys::SubqueryScan>()).subplan;
                conditions((*rel).subroot, subplan, above.quals, found)
            }
            NodeTag::T_ForeignScan => {
                let rel = rel_of(plan.cast());
                let quals = pg_sys::list_concat(own(), to_child(root, rel, above).quals);
                found.push(((*rel).relid as usize, to_row(quals.cast(), (*rel).relid).cast()));
                true
            }
            _ => false,
        }
    }
}
