//! Planner functions whose signature differs between versions.

use pgrx::pg_sys;

use crate::server::call::calls;
use crate::server::node::Node;

/// Whether a plan node prunes its children at run time.
pub fn prunes_at_run_time(append: &pg_sys::Append) -> bool {
    #[cfg(feature = "pg18")]
    return append.part_prune_index >= 0;
    #[cfg(not(feature = "pg18"))]
    !append.part_prune_info.is_null()
}

/// Translates a node about an inheritance parent or partitioned table to one of its children
/// (`adjust_appendrel_attrs_multilevel`). Returns the node itself if the relation is no child. Guarded.
pub fn adjust_to_child<'a>(
    root: Node<'a, pg_sys::PlannerInfo>,
    rel: Node<'a, pg_sys::RelOptInfo>,
    node: Node<'a>,
) -> Node<'a> {
    if rel.reloptkind != pg_sys::RelOptKind::RELOPT_OTHER_MEMBER_REL {
        return node;
    }
    // SAFETY: a guarded call on the planner's structures; a child relation has a link to its parent. It returns a copy.
    unsafe {
        let (root, old) = (root.as_ptr(), node.as_ptr());
        #[cfg(feature = "pg15")]
        let copy = pg_sys::adjust_appendrel_attrs_multilevel(root, old, rel.relids, rel.top_parent_relids);
        #[cfg(not(feature = "pg15"))]
        let copy = pg_sys::adjust_appendrel_attrs_multilevel(root, old, rel.as_ptr(), rel.top_parent);
        Node::from_raw(copy).unwrap_or(node)
    }
}

/// Returns the equivalence class of a column that is sorted by this family, with its operator `equality`
/// (`get_eclass_for_sort_expr`); None if the query has none. Guarded.
pub fn known_eclass<'a>(
    root: Node<'a, pg_sys::PlannerInfo>,
    rel: Node<'a, pg_sys::RelOptInfo>,
    column: Node<'a, pg_sys::Var>,
    equality: pg_sys::Oid,
    input: pg_sys::Oid,
    collation: pg_sys::Oid,
) -> Option<Node<'a, pg_sys::EquivalenceClass>> {
    let (root, expression, relids) = (root.as_ptr(), column.as_ptr().cast(), rel.relids);
    // SAFETY: guarded calls with the planner's own structures, which return a class or null.
    unsafe {
        let families = pg_sys::get_mergejoin_opfamilies(equality);
        #[cfg(feature = "pg15")]
        let class = pg_sys::get_eclass_for_sort_expr(
            root,
            expression,
            std::ptr::null_mut(),
            families,
            input,
            collation,
            0,
            relids,
            false,
        );
        #[cfg(not(feature = "pg15"))]
        let class = pg_sys::get_eclass_for_sort_expr(root, expression, families, input, collation, 0, relids, false);
        Node::from_raw(class)
    }
}

/// Whether all members of the class equal a constant, so that sorting by it is redundant (`EC_MUST_BE_REDUNDANT`).
pub fn is_constant(class: Node<'_, pg_sys::EquivalenceClass>) -> bool {
    #[cfg(feature = "pg15")]
    return class.ec_has_const && !class.ec_below_outer_join;
    #[cfg(not(feature = "pg15"))]
    class.ec_has_const
}

/// Returns the sort order of an ordering operator (`get_ordering_op_properties`): operator family, input type of the
/// family, and the B-tree strategy "less" or "greater". CompareType has the same numbers. `None` if the operator does
/// not order. Guarded.
pub fn ordering_of(operator: pg_sys::Oid) -> Option<(pg_sys::Oid, pg_sys::Oid, i16)> {
    let (mut family, mut input) = (pg_sys::InvalidOid, pg_sys::InvalidOid);
    let mut strategy = 0;
    let orders = orders(operator, &mut family, &mut input, &mut strategy);
    #[cfg(feature = "pg18")]
    let strategy = strategy as i16;
    orders.then_some((family, input, strategy))
}

/// `make_canonical_pathkey` for a strategy from [`ordering_of`]. Guarded.
pub fn canonical_pathkey<'a>(
    root: Node<'a, pg_sys::PlannerInfo>,
    class: Node<'a, pg_sys::EquivalenceClass>,
    family: pg_sys::Oid,
    strategy: i16,
    nulls_first: bool,
) -> Node<'a, pg_sys::PathKey> {
    canonical(root, class, family, strategy, nulls_first)
}

// Strategies are numbers up to 17, and from 18 on an enum with equal values.
#[cfg(not(feature = "pg18"))]
type OrderStrategy = i16;
#[cfg(not(feature = "pg18"))]
type PathStrategy = i32;
#[cfg(feature = "pg18")]
type OrderStrategy = pg_sys::CompareType::Type;
#[cfg(feature = "pg18")]
type PathStrategy = OrderStrategy;

// SAFETY: a lookup in the catalogs; the planner's own structures, of which it makes a pathkey.
calls! {
    fn orders(operator: pg_sys::Oid, family: &mut pg_sys::Oid, input: &mut pg_sys::Oid, strategy: &mut OrderStrategy) -> bool
        = get_ordering_op_properties(operator, family, input, strategy);
    fn canonical<'a>(
        root: Node<'a, pg_sys::PlannerInfo>,
        class: Node<'a, pg_sys::EquivalenceClass>,
        family: pg_sys::Oid,
        strategy: i16,
        nulls_first: bool
    ) -> Node<'a, pg_sys::PathKey> = make_canonical_pathkey(root, class, family, (strategy as PathStrategy), nulls_first);
}
