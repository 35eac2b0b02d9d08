//! The data that a plan carries to its scan, as lists that can be copied, cached and sent to a worker.

use std::ptr::null_mut;

use pgrx::pg_sys;

use super::order::Ordered;
use crate::server::call::calls;
use crate::server::node::{Node, NodeList};

/// Columns that a scan converts, by attribute number: those that the quals read, and the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    pub by_quals: Vec<i32>,
    pub besides: Vec<i32>,
}

/// An aggregate's function and the number of its column, or 0.
pub type Call = (pg_sys::Oid, i32);

/// The aggregates of a scan, as a plan carries them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aggregates {
    /// Return transition states instead of values.
    pub partial: bool,
    pub list: Vec<Call>,
    /// Numbers of the columns that follow the aggregates in the scan's tuple.
    pub columns: Vec<i32>,
}

impl Aggregates {
    /// As lists for a plan. Guarded.
    fn to_lists<'a>(&self) -> NodeList<'a> {
        let calls: NodeList<'_, i32> = std::iter::once(i32::from(self.partial)).chain(to_numbers(&self.list)).collect();
        let columns: NodeList<'_, i32> = self.columns.iter().copied().collect();
        [calls.node(), columns.node()].into_iter().collect()
    }

    /// The aggregates of a plan's scan; `None` if it returns rows.
    fn from_lists(lists: NodeList<'_>) -> Option<Aggregates> {
        let calls = numbers(lists.first()?);
        let (partial, list) = calls.split_first()?;
        let columns = lists.get(1).map_or_else(Vec::new, numbers);
        Some(Aggregates { partial: *partial != 0, list: from_numbers(list), columns })
    }
}

/// Numbers that a list can carry.
pub fn to_numbers(calls: &[Call]) -> impl Iterator<Item = i32> {
    calls.iter().flat_map(|(function, attribute)| [function.to_u32().cast_signed(), *attribute])
}

pub fn from_numbers(numbers: &[i32]) -> Vec<Call> {
    let (pairs, _) = numbers.as_chunks();
    pairs.iter().map(|[function, attribute]| (pg_sys::Oid::from_u32(function.cast_unsigned()), *attribute)).collect()
}

/// The data of one plan.
#[derive(Debug)]
pub struct Private<'a> {
    pub wanted: Wanted,
    /// Remarks of other modules about the plan's path, which are strings.
    pub remarks: NodeList<'a>,
    /// The aggregates, if the scan returns these instead of rows.
    pub aggregates: Option<Aggregates>,
    /// The columns of the order that the plan relies on.
    pub order: Vec<Ordered>,
}

impl<'a> Private<'a> {
    /// Reads the private list of a plan. Anything else is data without a column.
    pub fn of(list: NodeList<'a>) -> Private<'a> {
        let columns = |index| list.get(index).map_or_else(Vec::new, numbers);
        Private {
            wanted: Wanted { by_quals: columns(0), besides: columns(1) },
            remarks: elements(list.get(2)),
            aggregates: Aggregates::from_lists(elements(list.get(3))),
            order: Ordered::from_numbers(&columns(4)),
        }
    }

    /// Makes the private list of a plan. Guarded.
    pub fn to_list(&self) -> NodeList<'a> {
        let order: Vec<i32> = self.order.iter().copied().flat_map(Ordered::to_numbers).collect();
        let [by_quals, besides, order] = [&self.wanted.by_quals, &self.wanted.besides, &order]
            .map(|numbers| numbers.iter().copied().collect::<NodeList<'_, i32>>().node());
        let aggregates = self.aggregates.as_ref().map_or(NodeList::EMPTY, Aggregates::to_lists);
        [by_quals, besides, self.remarks.node(), aggregates.node(), order].into_iter().collect()
    }

    /// Makes the plan of a scan with these lists, of the relation with this index, or of none. Guarded.
    pub fn make_scan(
        &self,
        targets: NodeList<'_>,
        conditions: NodeList<'_>,
        index: pg_sys::Index,
        tuple: NodeList<'_, pg_sys::TargetEntry>,
        outer_plan: Option<Node<'_, pg_sys::Plan>>,
    ) -> *mut pg_sys::ForeignScan {
        scan(targets, conditions, index, self.to_list(), tuple, outer_plan).as_ptr()
    }
}

// SAFETY: lists of nodes, and a plan or null.
calls! {
    fn scan<'a>(
        targets: NodeList<'_>,
        conditions: NodeList<'_>,
        index: pg_sys::Index,
        private: NodeList<'a>,
        tuple: NodeList<'_, pg_sys::TargetEntry>,
        outer: Option<Node<'_, pg_sys::Plan>>
    ) -> Node<'a, pg_sys::ForeignScan>
        = make_foreignscan(targets, conditions, index, (null_mut()), private, tuple, (null_mut()), outer);
}

/// The elements of a list of nodes; none for any other node.
pub fn elements(node: Option<Node<'_>>) -> NodeList<'_> {
    node.map_or(NodeList::EMPTY, Node::list)
}

/// The elements of a list of integers; none for any other node.
pub fn numbers(node: Node<'_>) -> Vec<i32> {
    node.ints().collect()
}
