//! What is done with a record between its fields and the table's row: conditions, expressions, filters.
//!
//! [`Nodes`] are the expressions that make a row of the target from a row of the file. A Var of INDEX_VAR is a column of
//! the input row, for an INSERT … SELECT of the foreign table. Workers read the nodes from nodeToString's text.

pub mod assignment;
mod call;
pub mod copy_question;
pub mod defaults;
pub mod filter;
pub mod mapping;
pub mod projection;
mod row_value;
pub mod volatile;
pub mod where_clause;

use std::ffi::CString;

use pgrx::pg_sys;

use self::mapping::Mapping;
use crate::server::column_set::ColumnSet;
use crate::server::node::make;
use crate::server::node::{Node, NodeList, Tagged, written};
use crate::server::relation::TupleDesc;
use crate::server::sent::sent;

/// Nodes of a plan.
#[derive(Debug, Clone, Copy)]
pub struct Nodes {
    /// A TargetEntry for each attribute that is set from the file, or an expression.
    pub targets: NodeList<'static, pg_sys::TargetEntry>,
    /// Conditions that must all hold.
    pub quals: NodeList<'static>,
    /// A row from which the targets are made, as columns of OUTER_VAR; when it is NULL, the record is filtered out.
    /// None: the targets are made from the row of the file.
    pub row: Option<Node<'static>>,
    /// The nodes replace the call of a filter function. It sees the whole row of the file, and its errors may be
    /// survived.
    pub filters: bool,
}

impl Nodes {
    pub const NONE: Nodes = Nodes { targets: NodeList::EMPTY, quals: NodeList::EMPTY, row: None, filters: false };

    /// The nodes as text, for workers. Guarded.
    pub fn text(self) -> Text {
        let (targets, quals) = (written(self.targets.node()), written(self.quals.node()));
        Text { targets, quals, row: written(self.row), filters: self.filters }
    }

    /// All nodes in one list; None without any. Guarded.
    pub fn all(self) -> Option<Node<'static>> {
        let all = self.targets.iter().map(Node::node).chain(self.quals.iter()).chain(self.row);
        all.collect::<NodeList>().node()
    }

    /// Completes the mapping: the attributes that are set, and the columns of the file that the nodes use. Guarded.
    pub fn complete(self, mapping: &mut Mapping) {
        mapping.computed = self.targets.iter().map(|entry| entry.resno).collect();
        mapping.wanted = Some(columns_of(self.targets).chain(columns_of(self.quals)).collect());
    }
}

sent! {
    /// [`Nodes`] as text.
    #[derive(Debug, Clone)]
    pub struct Text {
        pub targets: CString,
        pub quals: CString,
        pub row: CString,
        pub filters: bool,
    }
}

impl Text {
    /// Reads the nodes. Guarded; allocates in the current memory context.
    pub fn nodes(&self) -> Nodes {
        // SAFETY: only `Nodes::text` makes these texts.
        let read = |text: &CString| unsafe { Node::<pg_sys::Node>::read(text.as_ptr()) };
        let (targets, quals) = (read(&self.targets), read(&self.quals));
        Nodes {
            targets: targets.map_or(NodeList::EMPTY, Node::list),
            quals: quals.map_or(NodeList::EMPTY, Node::list),
            row: read(&self.row),
            filters: self.filters,
        }
    }
}

/// The numbers of the columns that the nodes use. Guarded.
pub fn columns_of<T: Tagged>(nodes: NodeList<'_, T>) -> impl Iterator<Item = i16> {
    let set = nodes.node().map_or(ColumnSet::EMPTY, |nodes| nodes.attributes(pg_sys::INDEX_VAR as _));
    set.numbers()
}

/// An attribute of the input row, counted from 0; None if the row does not have it. Guarded.
pub fn variable<'a>(descriptor: TupleDesc<'_>, attribute: usize) -> Option<Node<'a, pg_sys::Var>> {
    let form = descriptor.attribute(attribute)?;
    let number = i16::try_from(attribute + 1).ok()?;
    Some(make::variable(pg_sys::INDEX_VAR as _, number, (form.atttypid, form.atttypmod, form.attcollation)))
}
