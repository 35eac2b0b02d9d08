//! Functions that may look at the table while it is being loaded.
//!
//! Where a default or the condition calls a volatile function, COPY inserts row by row, for the function may query the
//! table and has a right to find the rows before. Pages that are still being built cannot be found. A few of the server's own
//! volatile functions look at nothing; all others are taken to: at a table (query_to_xml), at its file
//! (pg_relation_size), at ids, of which a load takes many at a time (currval), at settings by which it reads fields (set_config).

use std::ffi::{CStr, c_void};

use pgrx::{PgList, pg_guard, pg_sys};

use super::source::Mapping;
use crate::pg::column::default_expression;
use crate::pg::compat;
use crate::pg::server_text::from_server;
use crate::pg::unguarded::{find_all_inheritors, guard};

/// Volatile functions that look at nothing: nextval too, for whoever asks it gets another id.
const HARMLESS: [u32; 6] = [
    pg_sys::F_NEXTVAL,
    // random(), whose name is another one where it has siblings.
    1598,
    pg_sys::F_GEN_RANDOM_UUID,
    pg_sys::F_CLOCK_TIMESTAMP,
    pg_sys::F_TIMEOFDAY,
    pg_sys::F_PG_SLEEP,
];
/// PROVOLATILE_VOLATILE (pg_proc.h)
const VOLATILE: u8 = b'v';
/// PROVOLATILE_IMMUTABLE
const IMMUTABLE: u8 = b'i';

/// The same of the CHECK constraints and domains of a relation that rows are written to. Guarded.
///
/// # Safety
/// An open relation.
pub unsafe fn of_constraints(relation: pg_sys::Relation, found: &mut Vec<String>) {
    // SAFETY: this function's contract covers the relation; what its descriptor says of itself; guarded calls.
    unsafe {
        let descriptor = (*relation).rd_att;
        if let Some(constraints) = (*descriptor).constr.as_ref() {
            for i in 0..usize::from(constraints.num_check) {
                let check = &*constraints.check.add(i);
                if calls_volatile(pg_sys::stringToNode(check.ccbin).cast()) {
                    let name = from_server(CStr::from_ptr(check.ccname));
                    found.push(format!("The constraint \"{name}\" calls a volatile function."));
                }
            }
        }
        for index in 0..usize::try_from((*descriptor).natts).unwrap_or(0) {
            let attribute = &*compat::attribute(descriptor, index);
            if !attribute.attisdropped && type_calls_volatile(attribute.atttypid) {
                let name = from_server(CStr::from_ptr(attribute.attname.data.as_ptr()));
                found.push(format!("The domain of column \"{name}\" calls a volatile function."));
            }
        }
    }
}

/// Do constraints of the relation call such functions, or those of one of its partitions? Guarded.
///
/// # Safety
/// An open relation, whose partitions are locked.
pub unsafe fn in_constraints(relation: pg_sys::Relation) -> bool {
    // SAFETY: this function's contract covers the relation; guarded calls, and a list of as many elements as it says.
    unsafe {
        let calls = |relation| {
            let mut found = Vec::new();
            of_constraints(relation, &mut found);
            !found.is_empty()
        };
        if (*(*relation).rd_rel).relkind.cast_unsigned() != pg_sys::RELKIND_PARTITIONED_TABLE {
            return calls(relation);
        }
        let no_lock = pg_sys::NoLock.cast_signed();
        let list = guard(|| find_all_inheritors((*relation).rd_id, no_lock, std::ptr::null_mut()));
        let count = list.as_ref().map_or(0, |list| usize::try_from(list.length).unwrap_or(0));
        (0..count).any(|at| {
            let one = pg_sys::relation_open((*(*list).elements.add(at)).oid_value, no_lock);
            let calls = calls(one);
            pg_sys::relation_close(one, no_lock);
            calls
        })
    }
}

/// Is there a domain in the type, however deep, that calls such a function? Guarded.
pub fn type_calls_volatile(type_oid: pg_sys::Oid) -> bool {
    // SAFETY: guarded catalog lookups; attributes below natts exist.
    unsafe {
        pg_sys::check_stack_depth();
        match pg_sys::get_typtype(type_oid).cast_unsigned() {
            pg_sys::TYPTYPE_DOMAIN => {
                domain_calls_volatile(type_oid) || type_calls_volatile(pg_sys::getBaseType(type_oid))
            }
            pg_sys::TYPTYPE_COMPOSITE => {
                let descriptor = pg_sys::lookup_rowtype_tupdesc_copy(type_oid, -1);
                let natts = usize::try_from((*descriptor).natts).unwrap_or(0);
                let mut attributes = (0..natts).map(|index| &*compat::attribute(descriptor, index));
                attributes.any(|attribute| !attribute.attisdropped && type_calls_volatile(attribute.atttypid))
            }
            pg_sys::TYPTYPE_RANGE => type_calls_volatile(pg_sys::get_range_subtype(type_oid)),
            pg_sys::TYPTYPE_MULTIRANGE => type_calls_volatile(pg_sys::get_multirange_range(type_oid)),
            _ => {
                let element = pg_sys::get_element_type(type_oid);
                element != pg_sys::InvalidOid && type_calls_volatile(element)
            }
        }
    }
}

/// # Safety
/// A domain. Guarded; allocates in the current memory context.
unsafe fn domain_calls_volatile(domain: pg_sys::Oid) -> bool {
    // SAFETY: guarded calls. The context's callback points into the reference, which lives as long.
    unsafe {
        let constraints = pg_sys::palloc0(size_of::<pg_sys::DomainConstraintRef>());
        let constraints = constraints.cast::<pg_sys::DomainConstraintRef>();
        pg_sys::InitDomainConstraintRef(domain, constraints, pg_sys::CurrentMemoryContext, false);
        let list = PgList::<pg_sys::DomainConstraintState>::from_pg((*constraints).constraints);
        list.iter_ptr().any(|constraint| calls_volatile((*constraint).check_expr.cast()))
    }
}

/// One sentence for each default that rows get, and for the condition, that calls such a function. Without a mapping,
/// every column may get its default. Guarded.
///
/// # Safety
/// An open relation; a list of expressions, or null.
pub unsafe fn obstacles(
    relation: pg_sys::Relation,
    mapping: Option<&Mapping>,
    conditions: *mut pg_sys::List,
) -> Vec<String> {
    let mut found = Vec::new();
    // SAFETY: this function's contract covers the arguments; attributes below natts exist, and names are NUL-terminated.
    unsafe {
        for index in 0..usize::try_from((*(*relation).rd_att).natts).unwrap_or(0) {
            let attribute = &*compat::attribute((*relation).rd_att, index);
            let set = mapping.is_some_and(|mapping| mapping.attributes().any(|attnum| attnum == attribute.attnum));
            if set || attribute.attisdropped || attribute.attgenerated != 0 {
                continue;
            }
            let default = default_expression(relation, index);
            if !default.is_null() && calls_volatile((*default).expr.cast()) {
                let name = from_server(CStr::from_ptr(attribute.attname.data.as_ptr()));
                found.push(format!("The default of column \"{name}\" calls a volatile function."));
            }
        }
        if PgList::<pg_sys::Node>::from_pg(conditions).iter_ptr().any(|node| calls_volatile(node)) {
            found.push("The condition calls a volatile function.".into());
        }
    }
    found
}

/// Also of what is below its queries.
///
/// # Safety
/// An expression, or a query; or a list of such. Guarded.
pub unsafe fn calls_volatile(node: *mut pg_sys::Node) -> bool {
    // SAFETY: this function's contract covers the expression; a guarded call.
    unsafe { walk(node, std::ptr::null_mut()) }
}

#[pg_guard]
unsafe extern "C-unwind" fn walk(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
    // SAFETY: called with the nodes of an expression; guarded calls.
    unsafe {
        if node.is_null() {
            return false;
        }
        if (*node).type_ == pg_sys::NodeTag::T_Query {
            return pg_sys::query_tree_walker(node.cast(), Some(walk), context, 0);
        }
        let is_domain = (*node).type_ == pg_sys::NodeTag::T_CoerceToDomain;
        is_domain && domain_calls_volatile((*node.cast::<pg_sys::CoerceToDomain>()).resulttype)
            || pg_sys::check_functions_in_node(node, Some(is_volatile), context)
            || pg_sys::expression_tree_walker(node, Some(walk), context)
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn is_volatile(function: pg_sys::Oid, _context: *mut c_void) -> bool {
    // SAFETY: a guarded catalog lookup.
    !HARMLESS.contains(&function.to_u32()) && unsafe { pg_sys::func_volatile(function) }.cast_unsigned() == VOLATILE
}

/// Does an expression call anything but functions that are built in and immutable, or look at the session (`current_user`) or at
/// a system column other than tableoid? Comparing a row, an array or a range calls the comparison functions of its parts.
///
/// # Safety
/// An expression, or a list of such. Guarded.
pub unsafe fn calls_users(node: *mut pg_sys::Node) -> bool {
    // SAFETY: this function's contract covers the expression; a guarded call.
    unsafe { walk_users(node, std::ptr::null_mut()) }
}

#[pg_guard]
unsafe extern "C-unwind" fn walk_users(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
    // SAFETY: called with the nodes of an expression; guarded calls.
    unsafe {
        !node.is_null()
            && (looks_around(node)
                || pg_sys::check_functions_in_node(node, Some(is_users), context)
                || pg_sys::expression_tree_walker(node, Some(walk_users), context))
    }
}

/// # Safety
/// A node of an expression, whose tag says what it is.
unsafe fn looks_around(node: *const pg_sys::Node) -> bool {
    use pg_sys::NodeTag::*;
    // SAFETY: this function's contract covers the node.
    unsafe {
        match (*node).type_ {
            T_CoerceToDomain | T_SQLValueFunction | T_NextValueExpr => true,
            T_Var => {
                let attribute = i32::from((*node.cast::<pg_sys::Var>()).varattno);
                attribute < 0 && attribute != pg_sys::TableOidAttributeNumber
                    || !is_compared_by_server(pg_sys::exprType(node))
            }
            T_Const | T_Param | T_RowExpr | T_ArrayExpr | T_MinMaxExpr => {
                !is_compared_by_server(pg_sys::exprType(node))
            }
            _ => false,
        }
    }
}

/// Are values of a type, and those that they are made of, compared by built-in functions? Guarded.
fn is_compared_by_server(type_oid: pg_sys::Oid) -> bool {
    const WANTED: u32 = pg_sys::TYPECACHE_EQ_OPR | pg_sys::TYPECACHE_CMP_PROC;
    // SAFETY: guarded catalog lookups; an entry of the type cache stays; attributes below natts exist.
    unsafe {
        pg_sys::check_stack_depth();
        match pg_sys::get_typtype(type_oid).cast_unsigned() {
            pg_sys::TYPTYPE_DOMAIN => return is_compared_by_server(pg_sys::getBaseType(type_oid)),
            pg_sys::TYPTYPE_COMPOSITE => {
                let descriptor = pg_sys::lookup_rowtype_tupdesc_copy(type_oid, -1);
                let natts = usize::try_from((*descriptor).natts).unwrap_or(0);
                let mut attributes = (0..natts).map(|index| &*compat::attribute(descriptor, index));
                return attributes.all(|attribute| attribute.attisdropped || is_compared_by_server(attribute.atttypid));
            }
            pg_sys::TYPTYPE_RANGE => return is_compared_by_server(pg_sys::get_range_subtype(type_oid)),
            pg_sys::TYPTYPE_MULTIRANGE => return is_compared_by_server(pg_sys::get_multirange_range(type_oid)),
            // Any row at all.
            pg_sys::TYPTYPE_PSEUDO => return false,
            _ => (),
        }
        let element = pg_sys::get_element_type(type_oid);
        if element != pg_sys::InvalidOid {
            return is_compared_by_server(element);
        }
        let entry = &*pg_sys::lookup_type_cache(type_oid, WANTED.cast_signed());
        let equals = if entry.eq_opr == pg_sys::InvalidOid { entry.eq_opr } else { pg_sys::get_opcode(entry.eq_opr) };
        [equals, entry.cmp_proc].into_iter().all(|function| function.to_u32() < pg_sys::FirstUnpinnedObjectId)
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn is_users(function: pg_sys::Oid, _context: *mut c_void) -> bool {
    // SAFETY: a guarded catalog lookup.
    let is_immutable = || unsafe { pg_sys::func_volatile(function) }.cast_unsigned() == IMMUTABLE;
    function.to_u32() >= pg_sys::FirstUnpinnedObjectId || !is_immutable()
}
