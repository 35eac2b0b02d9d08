//! Checks whether parallel workers may evaluate the expressions and functions of a load.

use pgrx::pg_sys;

use super::column::Column;
use super::type_parts::{TypeParts, domain_checks};
use crate::server::call::calls;
use crate::server::compat;
use crate::server::index_functions;
use crate::server::lookup::{CatalogRow, column_options, type_kind};
use crate::server::node::{Node, NodeList};
use crate::server::relation::{OpenRelation, Relation};

/// PROPARALLEL_SAFE (pg_proc.h)
const SAFE: i8 = b's' as i8;

/// Checks expressions for parallel safety. Guarded.
#[derive(Debug)]
pub struct Hazards(Node<'static, pg_sys::PlannerInfo>);

// SAFETY: reads the tree.
calls! {
    fn is_safe(root: Node<'_, pg_sys::PlannerInfo>, node: Node<'_>) -> bool = is_parallel_safe(root, node);
}

impl Hazards {
    pub fn new() -> Hazards {
        // SAFETY: guarded allocations of zeroed memory with a tag, as in makeNode; plan_create_index_workers (planner.c)
        // builds the same nodes for this check.
        unsafe {
            let zeroed = |size, tag| {
                let node = pg_sys::palloc0(size).cast::<pg_sys::Node>();
                (*node).type_ = tag;
                node
            };
            let root = zeroed(size_of::<pg_sys::PlannerInfo>(), pg_sys::NodeTag::T_PlannerInfo);
            let root = root.cast::<pg_sys::PlannerInfo>();
            (*root).parse = zeroed(size_of::<pg_sys::Query>(), pg_sys::NodeTag::T_Query).cast();
            (*root).glob = zeroed(size_of::<pg_sys::PlannerGlobal>(), pg_sys::NodeTag::T_PlannerGlobal).cast();
            (*(*root).glob).maxParallelHazard = b'u' as i8;
            Hazards(Node::from_raw(root).unwrap_unchecked())
        }
    }

    /// Whether an expression, or a list of them, is parallel safe. Guarded.
    pub fn is_safe(&self, node: Node<'_>) -> bool {
        is_safe(self.0, node)
    }

    /// Whether a function is parallel safe. Guarded.
    pub fn function_is_safe(&self, function: pg_sys::Oid) -> bool {
        CatalogRow::<pg_sys::FormData_pg_proc>::find(function).is_some_and(|row| row.proparallel == SAFE)
    }

    /// Whether all functions with which an index forms and compares its keys are parallel safe. Guarded.
    pub fn index_is_safe(&self, index: Relation<'_>) -> bool {
        index.index_nodes().into_iter().filter_map(NodeList::node).all(|nodes| self.is_safe(nodes))
            && index_functions::all(index, |function| self.function_is_safe(function))
    }

    /// Whether a worker may convert the values of this column.
    pub fn column_is_safe(&self, column: &Column) -> bool {
        // The input function of a domain is parallel restricted because its constraints may be. So the constraints are
        // checked instead.
        let is_domain = type_kind(column.type_oid) == pg_sys::TYPTYPE_DOMAIN;
        (is_domain || self.function_is_safe(column.input.function.fn_oid))
            && self.type_is_safe(column.type_oid, column.input.is_receive)
    }

    /// Whether workers may convert the values of all columns of a relation's file. `receives`: with receive functions
    /// instead of input functions. Guarded.
    pub fn types_are_safe(&self, relid: pg_sys::Oid, receives: bool) -> bool {
        OpenRelation::locked(relid).get().descriptor().attributes().all(|attribute| {
            let has_field = !attribute.attisdropped && attribute.attgenerated == 0;
            // Columns with the file name or line number are text in any format.
            let receives = receives && !is_source_column(relid, attribute.attnum);
            !has_field || self.type_is_safe(attribute.atttypid, receives)
        })
    }

    /// Whether a type, and the types that it consists of, are parallel safe. Guarded.
    pub fn type_is_safe(&self, type_oid: pg_sys::Oid, receives: bool) -> bool {
        let is_safe = |part| self.type_is_safe(part, receives);
        match TypeParts::of(type_oid) {
            TypeParts::Domain(base) => {
                domain_checks(type_oid).into_iter().all(|check| self.is_safe(check)) && is_safe(base)
            }
            TypeParts::Composite(columns) => columns.into_iter().all(is_safe),
            // Functions of the type compare the bounds, and may convert them to a canonical form.
            TypeParts::Range { subtype, compare, canonical } => {
                self.function_is_safe(compare)
                    && canonical.is_none_or(|function| self.function_is_safe(function))
                    && is_safe(subtype)
            }
            TypeParts::Multirange(range) => is_safe(range),
            TypeParts::Array(element) => self.input_is_safe(type_oid, receives) && is_safe(element),
            TypeParts::Single => self.input_is_safe(type_oid, receives),
        }
    }

    fn input_is_safe(&self, type_oid: pg_sys::Oid, receives: bool) -> bool {
        CatalogRow::<pg_sys::FormData_pg_type>::find(type_oid)
            .is_some_and(|row| self.function_is_safe(if receives { row.typreceive } else { row.typinput }))
    }

    /// Whether a relation's CHECK constraints, generated columns and partition bounds are parallel safe. If it is
    /// partitioned, all its descendants are locked. Guarded.
    pub fn relation_is_safe(&self, relation: Relation<'_>) -> bool {
        let descriptor = relation.descriptor();
        let mut generated = descriptor.defaults().filter(|(attribute, _)| attribute.attgenerated != 0);
        descriptor.checks().all(|(_, check)| self.is_safe(check))
            && (!descriptor.has_generated() || generated.all(|(_, expression)| self.is_safe(expression)))
            && (!relation.is_partitioned() || self.routing_is_safe(relation))
            && relation.partition_bound().node().is_none_or(|bound| self.is_safe(bound))
    }

    /// Whether the functions that find a row's partition are parallel safe at each level. All descendants of the
    /// relation are locked. Guarded.
    fn routing_is_safe(&self, relation: Relation<'_>) -> bool {
        relation.with_descendants(pg_sys::NoLock).into_iter().all(|table| {
            let kind = CatalogRow::<pg_sys::FormData_pg_class>::find(table).map(|row| row.relkind.cast_unsigned());
            if kind != Some(pg_sys::RELKIND_PARTITIONED_TABLE) {
                return true;
            }
            let table = OpenRelation::locked(table);
            let expressions = compat::partition_expressions(table.get()).node();
            expressions.is_none_or(|expressions| self.is_safe(expressions))
                && compat::partition_functions(table.get(), |function| self.function_is_safe(function))
        })
    }
}

/// Whether a foreign table's column holds the file name or line number, and is no field. Guarded.
fn is_source_column(relid: pg_sys::Oid, attribute: i16) -> bool {
    column_options(relid, attribute).iter().any(|(name, _)| name == "source")
}
