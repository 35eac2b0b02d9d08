//! The data that a plan carries to its scan, as lists that can be copied, cached and sent to a worker.

use pgrx::pg_sys;

use super::aggregate::Aggregates;
use super::order::Ordered;
use crate::server::node::{Node, NodeList};

/// Columns that a scan converts, by attribute number: those that the quals read, and the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    pub by_quals: Vec<i32>,
    pub besides: Vec<i32>,
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
        let order = self.order.iter().flat_map(Ordered::to_numbers);
        let aggregates = self.aggregates.as_ref().map(Aggregates::to_lists);
        list([
            list_of(self.wanted.by_quals.iter().copied()),
            list_of(self.wanted.besides.iter().copied()),
            self.remarks.node(),
            aggregates.and_then(NodeList::node),
            list_of(order),
        ])
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
        let (none, outer) = (std::ptr::null_mut(), outer_plan.map_or(std::ptr::null_mut(), Node::as_ptr));
        let (targets, conditions) = (targets.as_ptr(), conditions.as_ptr());
        let (private, tuple) = (self.to_list().as_ptr(), tuple.as_ptr());
        // SAFETY: a guarded call with lists of nodes.
        unsafe { pg_sys::make_foreignscan(targets, conditions, index, none, private, tuple, none, outer) }
    }
}

/// Makes a list of nodes, some of which may be missing. Guarded.
pub fn list<'a>(nodes: impl IntoIterator<Item = Option<Node<'a>>>) -> NodeList<'a> {
    let pointer = |node: Option<Node<'a>>| node.map_or(std::ptr::null_mut(), Node::as_ptr);
    // SAFETY: guarded calls on a list that is made here.
    unsafe {
        NodeList::from_raw(
            nodes.into_iter().fold(std::ptr::null_mut(), |list, node| pg_sys::lappend(list, pointer(node).cast())),
        )
    }
}

/// The elements of a list of nodes; none for any other node.
pub fn elements(node: Option<Node<'_>>) -> NodeList<'_> {
    // SAFETY: the tag says that the node is a list of nodes.
    node.filter(|node| node.tag() == pg_sys::NodeTag::T_List)
        .map_or(NodeList::EMPTY, |node| unsafe { NodeList::from_raw(node.as_ptr().cast()) })
}

/// Makes a list of integers; None without any. Guarded.
pub fn list_of<'a>(numbers: impl Iterator<Item = i32>) -> Option<Node<'a>> {
    // SAFETY: guarded calls on a list that is made here.
    unsafe {
        let list = numbers.fold(std::ptr::null_mut(), |list, number| pg_sys::lappend_int(list, number));
        Node::from_raw(list.cast())
    }
}

/// The elements of a list of integers; none for any other node.
pub fn numbers(node: Node<'_>) -> Vec<i32> {
    if node.tag() != pg_sys::NodeTag::T_IntList {
        return Vec::new();
    }
    // SAFETY: the tag says that the node is a list of integers.
    unsafe {
        let list = &*node.as_ptr().cast::<pg_sys::List>();
        let len = usize::try_from(list.length).unwrap_or(0);
        (0..len).map(|index| (*list.elements.add(index)).int_value).collect()
    }
}
