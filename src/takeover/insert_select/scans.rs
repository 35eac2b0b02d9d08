//! The scans of the wrapper's foreign tables anywhere below a path.

use pgrx::pg_sys;

use crate::load::wrapper::Wrapper;
use crate::server::node::Node;

/// Finds them.
pub fn below(path: Node<'_, pg_sys::Path>) -> Vec<Node<'_, pg_sys::ForeignPath>> {
    let is_ours = |path: &Node<'_, pg_sys::ForeignPath>| Wrapper::get().is_ok_and(|wrapper| wrapper.has(path.rel()));
    let mut found: Vec<_> = path.as_a().filter(is_ours).into_iter().collect();
    path.below().into_iter().for_each(|path| found.extend(below(path)));
    found
}
