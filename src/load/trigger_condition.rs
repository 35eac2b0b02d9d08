//! Conditions (WHEN) of triggers: may the direct writer evaluate them after the last row? The input is an expression, the output
//! whether its result can depend on the time of evaluation.

use pgrx::pg_sys;

use crate::rows::type_parts::TypeParts;
use crate::server::node::Node;

/// PROVOLATILE_IMMUTABLE (pg_proc.h)
const IMMUTABLE: u8 = b'i';

/// Whether an expression calls a function that is not both built in and immutable, reads the session (`current_user`),
/// or reads a system column other than tableoid. Comparing a row, an array or a range calls the comparison functions of
/// its elements. Guarded.
pub fn is_time_dependent(expression: Node<'_>) -> bool {
    expression.any(|node| looks_around(node) || node.calls(is_not_built_in))
}

fn looks_around(node: Node<'_>) -> bool {
    use pg_sys::NodeTag::*;
    if let Some(var) = node.as_a::<pg_sys::Var>() {
        let attribute = i32::from(var.varattno);
        return attribute < 0 && attribute != pg_sys::TableOidAttributeNumber
            || !is_compared_by_server(node.type_oid());
    }
    match node.tag() {
        T_CoerceToDomain | T_SQLValueFunction | T_NextValueExpr => true,
        T_Const | T_Param | T_RowExpr | T_ArrayExpr | T_MinMaxExpr => !is_compared_by_server(node.type_oid()),
        _ => false,
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

fn is_not_built_in(function: pg_sys::Oid) -> bool {
    // SAFETY: a guarded catalog lookup.
    let is_immutable = || unsafe { pg_sys::func_volatile(function) }.cast_unsigned() == IMMUTABLE;
    function.to_u32() >= pg_sys::FirstUnpinnedObjectId || !is_immutable()
}
