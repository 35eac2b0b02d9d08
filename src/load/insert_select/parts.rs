//! The foreign tables that an INSERT takes its rows from: one, or several of which the rows come one after the other.
//!
//! ```text
//!   Append ─┬─ ForeignScan                 a partition; an arm of UNION ALL that is no more than a table
//!           └─ SubqueryScan ─ ForeignScan  any other arm: its target list is between the INSERT's and the table
//! ```
//!
//! [`gather`] goes down the paths, and says the INSERT's target list in terms of each table's columns. Conditions are taken
//! once more when the plan is there ([`conditions`]): in it they are in the order in which core evaluates them.

use pgrx::pg_sys::NodeTag;
use pgrx::{PgList, pg_sys};

use super::judge::{Answer, no, of_select};
use super::translate::{bare, through_subquery, to_row};
use crate::error::OrRaise;
use crate::load::wrapper::Wrapper;
use crate::pg::compat;

/// One of them.
#[derive(Debug)]
pub struct Part {
    pub foreign: pg_sys::Oid,
    /// Its place in the range table, of the query or of a subquery.
    pub place: usize,
    /// It is what the query itself reads, and not a part or a subquery of it.
    pub is_plain: bool,
    /// The INSERT's target list, and the conditions, in terms of its columns.
    pub targets: *mut pg_sys::List,
    pub quals: *mut pg_sys::List,
}

/// What is above a path, in terms of what the path returns.
#[derive(Debug, Clone, Copy)]
pub struct Above {
    pub targets: *mut pg_sys::List,
    pub quals: *mut pg_sys::List,
    /// Nothing is between it and the query.
    pub is_plain: bool,
}

/// Find the tables below a path, in the order of their rows. Guarded.
///
/// # Safety
/// The planner's structures: a path, and the query or subquery it is of.
pub unsafe fn gather(
    root: *mut pg_sys::PlannerInfo,
    path: *mut pg_sys::Path,
    above: Above,
    found: &mut Vec<Part>,
) -> Answer<()> {
    // SAFETY: this function's contract covers the structures; tags say what nodes are.
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
                    // What is computed once there would be computed wherever it is used.
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
                found.push(Part {
                    foreign: (*(*(*root).simple_rte_array.add(place))).relid,
                    place,
                    is_plain,
                    targets: bare(targets.cast()).cast(),
                    quals: bare(quals.cast()).cast(),
                });
                Ok(())
            }
            // What else scans a table.
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

/// The conditions of a relation, as a list of its own. Guarded.
///
/// # Safety
/// A relation of the planner's.
unsafe fn own_quals(rel: *mut pg_sys::RelOptInfo) -> *mut pg_sys::List {
    // SAFETY: this function's contract covers the argument; a guarded call, which makes a list.
    unsafe { pg_sys::extract_actual_clauses((*rel).baserestrictinfo, false) }
}

/// In terms of a child of what it was said of. Guarded.
///
/// # Safety
/// The planner's structures.
unsafe fn to_child(root: *mut pg_sys::PlannerInfo, rel: *mut pg_sys::RelOptInfo, above: Above) -> Above {
    // SAFETY: this function's contract covers the structures.
    let adjust = |list: *mut pg_sys::List| unsafe { compat::adjust_to_child(root, rel, list.cast()) }.cast();
    Above { targets: adjust(above.targets), quals: adjust(above.quals), ..above }
}

/// In terms of what a subquery reads, together with conditions of the subquery as a relation. Guarded.
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

/// The same on the way down a plan: the place of each table, and its conditions, as a load has them. False if there is more in
/// the plan than there was in the paths: partitions that are chosen when it runs. Guarded.
///
/// # Safety
/// A plan that was just made, by the planner whose structures these are.
pub unsafe fn conditions(
    root: *mut pg_sys::PlannerInfo,
    plan: *mut pg_sys::Plan,
    above: *mut pg_sys::List,
    found: &mut Vec<(usize, *mut pg_sys::List)>,
) -> bool {
    // SAFETY: this function's contract covers the plan; tags say what nodes are.
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
                // What is in a file that core would not read does not count, even if it passes.
                !compat::prunes_at_run_time(append)
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
