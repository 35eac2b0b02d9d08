//! Foreign scans of joins and upper relations: their paths, the relations below them, and rights to functions.

use std::ptr::null_mut;

use pgrx::pg_sys;

use crate::server::node::Node;
use crate::server::relation::Relation;

/// The cost of a path, and its number of rows.
#[derive(Debug, Clone, Copy)]
pub struct Estimate {
    pub rows: f64,
    pub startup: f64,
    pub total: f64,
}

/// Calls a function that makes a path, without pathkeys, outer path or private data.
macro_rules! foreign_path {
    ($make:ident, $root:ident, $rel:ident, $cost:ident $(, $lateral:expr)?) => {{
        let (root, rel, none) = ($root.as_ptr(), $rel.as_ptr(), null_mut());
        let Estimate { rows, startup, total } = $cost;
        // SAFETY: a guarded call with the planner's own structures.
        unsafe {
            #[cfg(any(feature = "pg15", feature = "pg16"))]
            return pg_sys::$make(root, rel, null_mut(), rows, startup, total, none, $($lateral,)? null_mut(), none);
            #[cfg(feature = "pg17")]
            return pg_sys::$make(root, rel, null_mut(), rows, startup, total, none, $($lateral,)? null_mut(), none, none);
            #[cfg(feature = "pg18")]
            return pg_sys::$make(root, rel, null_mut(), rows, 0, startup, total, none, $($lateral,)? null_mut(), none, none);
        }
    }};
}

/// `create_foreignscan_path` for a base relation. Guarded.
pub fn create_foreignscan_path(
    root: Node<'_, pg_sys::PlannerInfo>,
    rel: Node<'_, pg_sys::RelOptInfo>,
    cost: Estimate,
) -> *mut pg_sys::ForeignPath {
    foreign_path!(create_foreignscan_path, root, rel, cost, rel.lateral_relids)
}

/// `create_foreign_upper_path` with the relation's own target. Guarded.
pub fn create_foreign_upper_path(
    root: Node<'_, pg_sys::PlannerInfo>,
    rel: Node<'_, pg_sys::RelOptInfo>,
    cost: Estimate,
) -> *mut pg_sys::ForeignPath {
    foreign_path!(create_foreign_upper_path, root, rel, cost)
}

/// Returns a relation of the range table; it stays open until the executor ends. Guarded.
///
/// # Safety
/// A range table index that has a relation.
pub unsafe fn range_table_relation<'a>(estate: Node<'a, pg_sys::EState>, index: pg_sys::Index) -> Relation<'a> {
    // SAFETY: a guarded call, which opens the relation of the index.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
        let relation = pg_sys::ExecGetRangeTableRelation(estate.as_ptr(), index);
        #[cfg(feature = "pg18")]
        let relation = pg_sys::ExecGetRangeTableRelation(estate.as_ptr(), index, false);
        Relation::from_raw(relation)
    }
}
