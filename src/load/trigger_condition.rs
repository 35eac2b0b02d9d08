//! Conditions (WHEN) of triggers: may the direct writer evaluate them after the last row? The input is an expression, the output
//! whether its result can depend on the time of evaluation.

use std::ffi::c_void;

use pgrx::{pg_guard, pg_sys};

use crate::rows::type_parts::TypeParts;

/// PROVOLATILE_IMMUTABLE (pg_proc.h)
const IMMUTABLE: u8 = b'i';

/// Whether an expression calls a function that is not both built in and immutable, reads the session (`current_user`),
/// or reads a system column other than tableoid. Comparing a row, an array or a range calls the comparison functions of
/// its elements.
///
/// # Safety
/// An expression, or a list of such. Guarded.
pub unsafe fn is_time_dependent(node: *mut pg_sys::Node) -> bool {
    // SAFETY: this function's contract covers the expression; a guarded call.
    unsafe { walk(node, std::ptr::null_mut()) }
}

#[pg_guard]
unsafe extern "C-unwind" fn walk(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
    // SAFETY: called with the nodes of an expression; guarded calls.
    unsafe {
        !node.is_null()
            && (looks_around(node)
                || pg_sys::check_functions_in_node(node, Some(is_not_built_in), context)
                || pg_sys::expression_tree_walker(node, Some(walk), context))
    }
}

/// # Safety
/// A node of an expression; its tag is set.
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
    match TypeParts::of(type_oid) {
        TypeParts::Composite(columns) => columns.into_iter().all(is_compared_by_server),
        TypeParts::Domain(part)
        | TypeParts::Range { subtype: part, .. }
        | TypeParts::Multirange(part)
        | TypeParts::Array(part) => is_compared_by_server(part),
        // SAFETY: guarded catalog lookups; an entry of the type cache stays.
        TypeParts::Single => unsafe {
            // Any row at all.
            if pg_sys::get_typtype(type_oid).cast_unsigned() == pg_sys::TYPTYPE_PSEUDO {
                return false;
            }
            let entry = &*pg_sys::lookup_type_cache(type_oid, WANTED.cast_signed());
            let equals =
                if entry.eq_opr == pg_sys::InvalidOid { entry.eq_opr } else { pg_sys::get_opcode(entry.eq_opr) };
            [equals, entry.cmp_proc].into_iter().all(|function| function.to_u32() < pg_sys::FirstUnpinnedObjectId)
        },
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn is_not_built_in(function: pg_sys::Oid, _context: *mut c_void) -> bool {
    // SAFETY: a guarded catalog lookup.
    let is_immutable = || unsafe { pg_sys::func_volatile(function) }.cast_unsigned() == IMMUTABLE;
    function.to_u32() >= pg_sys::FirstUnpinnedObjectId || !is_immutable()
}
