//! Checks whether parallel workers may evaluate the expressions and functions of a load.

use std::ffi::CStr;

use pgrx::pg_sys;

use super::column::Column;
use super::type_parts::{TypeParts, domain_checks};
use crate::server::compat;
use crate::server::index_functions;
use crate::server::relation::{OpenRelation, Relation};

/// PROPARALLEL_SAFE (pg_proc.h)
const SAFE: i8 = b's' as i8;

/// Checks expressions for parallel safety. Guarded.
#[derive(Debug)]
pub struct Hazards(*mut pg_sys::PlannerInfo);

impl Hazards {
    pub fn new() -> Hazards {
        // SAFETY: guarded allocations; plan_create_index_workers (planner.c) builds the same nodes for this check.
        unsafe {
            let root = zeroed::<pg_sys::PlannerInfo>(pg_sys::NodeTag::T_PlannerInfo);
            (*root).parse = zeroed(pg_sys::NodeTag::T_Query);
            (*root).glob = zeroed(pg_sys::NodeTag::T_PlannerGlobal);
            (*(*root).glob).maxParallelHazard = b'u' as i8;
            Hazards(root)
        }
    }

    /// # Safety
    /// An expression, a list of them, or null.
    pub unsafe fn is_safe(&self, node: *mut pg_sys::Node) -> bool {
        // SAFETY: this function's contract covers the node; a guarded call.
        node.is_null() || unsafe { pg_sys::is_parallel_safe(self.0, node) }
    }

    /// Whether a function is parallel safe. Guarded.
    pub fn function_is_safe(&self, function: pg_sys::Oid) -> bool {
        // SAFETY: a guarded catalog lookup.
        unsafe { pg_sys::func_parallel(function) == SAFE }
    }

    /// Whether all functions with which an index forms and compares its keys are parallel safe. Guarded.
    pub fn index_is_safe(&self, index: Relation<'_>) -> bool {
        // SAFETY: guarded calls, which return copies of the index's expressions, or null.
        let stored_is_safe = unsafe {
            self.is_safe(pg_sys::RelationGetIndexExpressions(index.as_ptr()).cast())
                && self.is_safe(pg_sys::RelationGetIndexPredicate(index.as_ptr()).cast())
        };
        stored_is_safe && index_functions::all(index, |function| self.function_is_safe(function))
    }

    /// Whether a worker may convert the values of this column.
    pub fn column_is_safe(&self, column: &Column) -> bool {
        // The input function of a domain is parallel restricted because its constraints may be. So the constraints are
        // checked instead.
        // SAFETY: guarded catalog lookups.
        let is_domain = unsafe { pg_sys::get_typtype(column.type_oid) }.cast_unsigned() == pg_sys::TYPTYPE_DOMAIN;
        // SAFETY: as above.
        let function_is_safe = is_domain || unsafe { pg_sys::func_parallel(column.input.function.fn_oid) } == SAFE;
        function_is_safe && self.type_is_safe(column.type_oid, column.input.is_receive)
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
                // SAFETY: expressions.
                domain_checks(type_oid).into_iter().all(|check| unsafe { self.is_safe(check) }) && is_safe(base)
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
        let (mut function, mut typioparam) = (pg_sys::InvalidOid, pg_sys::InvalidOid);
        if receives {
            function = receive_function(type_oid);
        } else {
            // SAFETY: a guarded catalog lookup.
            unsafe { pg_sys::getTypeInputInfo(type_oid, &raw mut function, &raw mut typioparam) };
        }
        function != pg_sys::InvalidOid && self.function_is_safe(function)
    }

    /// Whether a relation's CHECK constraints, generated columns and partition bounds are parallel safe. If it is
    /// partitioned, all its descendants are locked. Guarded.
    pub fn relation_is_safe(&self, relation: Relation<'_>) -> bool {
        let descriptor = relation.descriptor();
        let mut generated = descriptor.defaults().filter(|(attribute, _)| attribute.attgenerated != 0);
        // SAFETY: expressions that were just parsed.
        let columns_are_safe = descriptor.checks().all(|(_, check)| unsafe { self.is_safe(check) })
            // SAFETY: as above.
            && (!descriptor.has_generated() || generated.all(|(_, expression)| unsafe { self.is_safe(expression) }));
        // SAFETY: an expression or null.
        columns_are_safe
            && (!relation.is_partitioned() || self.routing_is_safe(relation))
            && unsafe { self.is_safe(relation.partition_bound()) }
    }

    /// Whether the functions that find a row's partition are parallel safe at each level. All descendants of the
    /// relation are locked. Guarded.
    fn routing_is_safe(&self, relation: Relation<'_>) -> bool {
        relation.with_descendants(pg_sys::NoLock).into_iter().all(|table| {
            // SAFETY: a guarded catalog lookup.
            if unsafe { pg_sys::get_rel_relkind(table) }.cast_unsigned() != pg_sys::RELKIND_PARTITIONED_TABLE {
                return true;
            }
            let table = OpenRelation::locked(table);
            // SAFETY: the expressions of an open table's key.
            let expressions_are_safe = unsafe { self.is_safe(compat::partition_expressions(table.get()).cast()) };
            expressions_are_safe && compat::partition_functions(table.get(), |function| self.function_is_safe(function))
        })
    }
}

/// Whether a foreign table's column holds the file name or line number, and is no field. Guarded.
fn is_source_column(relid: pg_sys::Oid, attribute: i16) -> bool {
    // SAFETY: a guarded catalog lookup; a list of DefElems with names.
    unsafe {
        let options = pg_sys::GetForeignColumnOptions(relid, attribute);
        pgrx::PgList::<pg_sys::DefElem>::from_pg(options)
            .iter_ptr()
            .any(|option| CStr::from_ptr((*option).defname) == c"source")
    }
}

/// Returns the receive function of a type, if it has one. Guarded.
fn receive_function(type_oid: pg_sys::Oid) -> pg_sys::Oid {
    // SAFETY: guarded catalog lookups; the tuple is released after its use.
    unsafe {
        let cache = pg_sys::SysCacheIdentifier::TYPEOID.cast_signed();
        let tuple = pg_sys::SearchSysCache1(cache, pg_sys::Datum::from(type_oid));
        if tuple.is_null() {
            return pg_sys::InvalidOid;
        }
        let function = (*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_type>()).typreceive;
        pg_sys::ReleaseSysCache(tuple);
        function
    }
}

/// `makeNode`
///
/// # Safety
/// `T` is the struct of `tag`. Guarded.
unsafe fn zeroed<T>(tag: pg_sys::NodeTag) -> *mut T {
    // SAFETY: zeroed memory, as in makeNode.
    unsafe {
        let node = pg_sys::palloc0(size_of::<T>()).cast::<pg_sys::Node>();
        (*node).type_ = tag;
        node.cast()
    }
}
