//! The foreign tables that an INSERT reads: one, or several whose rows come one table after the other.
//!
//! ```text
//!   Append ─┬─ ForeignScan                 a partition; an arm of UNION ALL that is just a table
//!           └─ SubqueryScan ─ ForeignScan  any other arm: its target list is between the INSERT's and the table
//! ```
//!
//! [`gather`] descends the paths and translates the INSERT's target list to each table's columns. Conditions are
//! collected again from the plan ([`conditions`]), because the plan has them in the order in which core evaluates them.

use pgrx::pg_sys::{self, NodeTag};

use super::super::translate::{bare, through_subquery, to_row};
use super::{Answer, no, of_select};
use crate::error::OrRaise;
use crate::load::wrapper::Wrapper;
use crate::server::compat;
use crate::server::node::{Node, NodeList};
use crate::server::planner;

const MORE: &str = "The SELECT does more than read rows.";

type Root<'a> = Node<'a, pg_sys::PlannerInfo>;
type Rel<'a> = Node<'a, pg_sys::RelOptInfo>;

/// One foreign table that an INSERT reads.
#[derive(Debug)]
pub struct ForeignInput<'a> {
    pub foreign: pg_sys::Oid,
    /// Its range table index, in the query or in a subquery.
    pub place: usize,
    /// The query itself reads it, neither as a partition nor through a subquery.
    pub is_plain: bool,
    /// The INSERT's target list, and the conditions, over the table's columns.
    pub targets: NodeList<'a, pg_sys::TargetEntry>,
    pub quals: NodeList<'a>,
}

/// The target list and conditions above a path, over the path's columns.
#[derive(Debug, Clone, Copy)]
pub struct Above<'a> {
    pub targets: NodeList<'a, pg_sys::TargetEntry>,
    pub quals: NodeList<'a>,
    /// There is no subquery or partition between the path and the query.
    pub is_plain: bool,
}

/// Finds the tables below a path, in the order of their rows. Guarded.
pub fn gather<'a>(
    root: Root<'a>,
    path: Node<'a, pg_sys::Path>,
    above: Above<'a>,
    found: &mut Vec<ForeignInput<'a>>,
) -> Answer<()> {
    let rel = path.rel();
    let is_free = path.param_info.is_null();
    match path.tag() {
        NodeTag::T_ProjectionPath => path.below().into_iter().try_for_each(|path| gather(root, path, above, found)),
        NodeTag::T_AppendPath => {
            let above = Above { is_plain: false, ..above };
            path.below().into_iter().try_for_each(|path| gather(root, path, above, found))
        }
        NodeTag::T_SubqueryScanPath if is_free => {
            let Some(subroot) = rel.subroot() else { return no(MORE) };
            of_select(subroot)?;
            if subroot.processed_tlist().node().is_some_and(Node::is_volatile) {
                // The value is computed once in the subquery, but would be computed at each use.
                return no("A subquery calls a volatile function.");
            }
            let above = below_subquery(root, rel, above, planner::conditions(rel.conditions()));
            path.below().into_iter().try_for_each(|path| gather(subroot, path, above, found))
        }
        NodeTag::T_ForeignPath if is_free => {
            if !Wrapper::get().or_raise().has(rel) {
                return no("The SELECT reads foreign tables of another wrapper.");
            }
            let place = rel.relid as usize;
            let Above { targets, quals, is_plain } = to_child(root, rel, above);
            found.push(ForeignInput {
                foreign: root.entry(place as u32).map_or(pg_sys::InvalidOid, |entry| entry.relid),
                place,
                is_plain,
                targets: targets.map(bare),
                quals: planner::conditions(rel.conditions()).concat(quals).map(bare),
            });
            Ok(())
        }
        // Another kind of table scan.
        _ if rel.rtekind == pg_sys::RTEKind::RTE_RELATION && is_scan(path.pathtype) => {
            no("The SELECT reads other tables than foreign ones.")
        }
        _ => no(MORE),
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

/// Translates a parent's target list and conditions to a child's columns. Guarded.
fn to_child<'a>(root: Root<'a>, rel: Rel<'a>, above: Above<'a>) -> Above<'a> {
    let adjust = |node| compat::adjust_to_child(root, rel, node);
    Above { targets: above.targets.map(adjust), quals: above.quals.map(adjust), ..above }
}

/// Translates to the columns that a subquery reads, and adds conditions on the subquery. Guarded.
fn below_subquery<'a>(root: Root<'a>, rel: Rel<'a>, above: Above<'a>, own: NodeList<'a>) -> Above<'a> {
    let Above { targets, quals, .. } = to_child(root, rel, above);
    let outputs = rel.subroot().map_or(NodeList::EMPTY, |subroot| subroot.processed_tlist());
    let through = |node| through_subquery(node, rel.relid, outputs);
    Above { targets: targets.map(through), quals: own.concat(quals).map(through), is_plain: false }
}

/// Collects from a plan each table's range table index and conditions, for a load. False if the plan has more than the
/// paths had: partitions that are pruned at run time. Guarded.
pub fn conditions<'a>(
    root: Root<'a>,
    plan: Option<Node<'a, pg_sys::Plan>>,
    quals: NodeList<'a>,
    found: &mut Vec<(usize, NodeList<'a>)>,
) -> bool {
    let Some(plan) = plan else { return false };
    let own = || plan.qual().map(Node::copy);
    let above = Above { targets: NodeList::EMPTY, quals, is_plain: false };
    if let Some(result) = plan.as_a::<pg_sys::Result>() {
        return result.resconstantqual.is_null()
            && plan.qual().is_empty()
            && conditions(root, plan.lefttree(), quals, found);
    }
    if let Some(append) = plan.as_a::<pg_sys::Append>() {
        // A load must not read the file of a partition that core prunes at run time.
        return !compat::prunes_at_run_time(&append)
            && append.appendplans().iter().all(|plan| conditions(root, Some(plan), quals, found));
    }
    if let Some(scan) = plan.as_a::<pg_sys::SubqueryScan>() {
        let Some(rel) = root.rel(scan.scan.scanrelid) else { return false };
        let Some(subroot) = rel.subroot() else { return false };
        let above = below_subquery(root, rel, above, own());
        return conditions(subroot, Some(scan.subplan()), above.quals, found);
    }
    let Some(scan) = plan.as_a::<pg_sys::ForeignScan>() else { return false };
    let Some(rel) = root.rel(scan.scan.scanrelid) else { return false };
    let quals = own().concat(to_child(root, rel, above).quals);
    found.push((rel.relid as usize, quals.map(|quals| to_row(quals, rel.relid))));
    true
}
