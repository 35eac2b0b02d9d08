//! Checks whether parallel workers may evaluate the expressions and functions of a load.

use std::ffi::CStr;

use pgrx::pg_sys;

use super::column::Column;
use super::compat;
use super::index_functions;
use super::type_parts::{TypeParts, domain_checks};
use super::unguarded;

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
    ///
    /// # Safety
    /// An open index of one of the server's own access methods.
    pub unsafe fn index_is_safe(&self, index: pg_sys::Relation) -> bool {
        // SAFETY: this function's contract covers the index; guarded calls.
        unsafe {
            self.is_safe(pg_sys::RelationGetIndexExpressions(index).cast())
                && self.is_safe(pg_sys::RelationGetIndexPredicate(index).cast())
                && index_functions::all(index, |function| self.function_is_safe(function))
        }
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
        // SAFETY: guarded calls; the relation is locked.
        unsafe {
            let relation = pg_sys::RelationIdGetRelation(relid);
            let natts = usize::try_from((*(*relation).rd_att).natts).unwrap_or(0);
            let safe = (0..natts).all(|i| {
                let attribute = compat::attribute((*relation).rd_att, i);
                let has_field = !(*attribute).attisdropped && (*attribute).attgenerated == 0;
                // Columns with the file name or line number are text in any format.
                let receives = receives && !is_source_column(relid, (*attribute).attnum);
                !has_field || self.type_is_safe((*attribute).atttypid, receives)
            });
            pg_sys::RelationClose(relation);
            safe
        }
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

    /// Whether a relation's CHECK constraints, generated columns and partition bounds are parallel safe.
    ///
    /// # Safety
    /// An open relation.
    pub unsafe fn relation_is_safe(&self, relation: pg_sys::Relation) -> bool {
        // SAFETY: this function's contract covers the relation; guarded calls.
        unsafe {
            let constraints = (*(*relation).rd_att).constr;
            if !constraints.is_null() {
                for i in 0..usize::from((*constraints).num_check) {
                    let check = (*constraints).check.add(i);
                    if !self.is_safe(pg_sys::stringToNode((*check).ccbin).cast()) {
                        return false;
                    }
                }
                if compat::has_generated(constraints) {
                    for i in 0..usize::from((*constraints).num_defval) {
                        let default = (*constraints).defval.add(i);
                        let attribute = usize::try_from((*default).adnum - 1).unwrap_or(0);
                        let generated = (*compat::attribute((*relation).rd_att, attribute)).attgenerated != 0;
                        if generated && !self.is_safe(pg_sys::stringToNode((*default).adbin).cast()) {
                            return false;
                        }
                    }
                }
            }
            let partitioned = (*(*relation).rd_rel).relkind.cast_unsigned() == pg_sys::RELKIND_PARTITIONED_TABLE;
            if partitioned && !self.routing_is_safe(relation) {
                return false;
            }
            let bounds = if (*(*relation).rd_rel).relispartition {
                unguarded::guard(|| unguarded::RelationGetPartitionQual(relation)).cast::<pg_sys::Node>()
            } else {
                std::ptr::null_mut()
            };
            self.is_safe(bounds.cast())
        }
    }

    /// Whether the functions that find a row's partition are parallel safe at each level.
    ///
    /// # Safety
    /// An open partitioned table; it and all its descendants are locked. Guarded.
    unsafe fn routing_is_safe(&self, relation: pg_sys::Relation) -> bool {
        let no_lock = pg_sys::NoLock.cast_signed();
        // SAFETY: this function's contract covers the relation and the locks; guarded calls.
        unsafe {
            let relid = (*relation).rd_id;
            let all = unguarded::guard(|| unguarded::find_all_inheritors(relid, no_lock, std::ptr::null_mut()));
            pgrx::PgList::<pg_sys::Oid>::from_pg(all).iter_oid().all(|table| {
                if pg_sys::get_rel_relkind(table).cast_unsigned() != pg_sys::RELKIND_PARTITIONED_TABLE {
                    return true;
                }
                let table = pg_sys::relation_open(table, no_lock);
                let is_safe = self.is_safe(compat::partition_expressions(table).cast())
                    && compat::partition_functions(table, |function| self.function_is_safe(function));
                pg_sys::relation_close(table, no_lock);
                is_safe
            })
        }
    }
}

/// Whether a foreign table's column holds the file name or line number, and is no field. Guarded.
///
/// # Safety
/// The relation is a foreign table that has the attribute.
unsafe fn is_source_column(relid: pg_sys::Oid, attribute: i16) -> bool {
    // SAFETY: this function's contract covers both arguments; a list of DefElems with names.
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
