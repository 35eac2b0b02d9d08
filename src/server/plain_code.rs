//! Plain code: its effect depends neither on the user nor on earlier commands of the session.
//!
//! Built-in functions and functions in C always do the same. The session may change what any other function does,
//! whatever the search path is now. In functions of procedural languages and in SQL, names are resolved with the search
//! path, and the result is cached. PL/pgSQL caches the types of variables. The type cache keeps conditions of domains
//! as they were planned for the first user, with SQL functions inlined. Within a transaction it also keeps the plan of
//! a function that a range type calls.
//!
//! So code is plain if it calls only built-in functions and functions in C, and makes no values of types that call
//! others. Expressions may call only immutable functions, because some of the others call more than is visible. Code
//! that is not known to be plain counts as not plain. Expressions are read from the catalog: those of the relation
//! cache have been planned, and planning may have run functions.

use pgrx::pg_sys;

use super::index_functions;
use super::lookup::{
    CatalogRow, attribute_type, base_type, element_type, operator_function, type_entry, type_kind, volatility,
};
use super::node::Node;
use super::relation::{IndexForm, OpenRelation, Relation};

/// ClanguageId (pg_language.dat)
const C_LANGUAGE: u32 = 13;
/// PROVOLATILE_IMMUTABLE (pg_proc.h)
const IMMUTABLE: u8 = b'i';

/// Built-in functions that are not immutable and yet call no other user's code. Other such functions do: some run SQL
/// text, some call the input function of a type that is an argument. Conversion to text or JSON calls a cast that the
/// type's owner defined.
const HARMLESS: &[u32] = &[
    pg_sys::F_NOW,
    pg_sys::F_TRANSACTION_TIMESTAMP,
    pg_sys::F_STATEMENT_TIMESTAMP,
    pg_sys::F_CLOCK_TIMESTAMP,
    pg_sys::F_NEXTVAL,
    pg_sys::F_GEN_RANDOM_UUID,
    pg_sys::F_DATE_TIMESTAMPTZ,
    pg_sys::F_TIMESTAMP_TIMESTAMPTZ,
];

/// Is all code plain that runs while an index is built? Also when core builds the index: it then plans the number of
/// workers, for which it reads the table's extended statistics (plan_create_index_workers in planner.c,
/// get_relation_statistics in plancat.c). The table is locked. Guarded.
pub fn build_is_plain(index: Relation<'_>) -> bool {
    index_is_plain(index) && index.index().is_some_and(|form| statistics_are_plain(form.table))
}

/// Are the expressions of a table's extended statistics plain? The table is locked. Guarded.
fn statistics_are_plain(table: pg_sys::Oid) -> bool {
    let statistics = OpenRelation::locked(table).get().statistics();
    statistics
        .into_iter()
        .filter_map(CatalogRow::<pg_sys::FormData_pg_statistic_ext>::find)
        .all(|row| row.expressions().is_none_or(expression_is_plain))
}

/// Are the expressions, conditions, types and operator classes of an index plain? Guarded.
fn index_is_plain(index: Relation<'_>) -> bool {
    let Some(IndexForm { table, .. }) = index.index() else { return false };
    // The check of the expressions covers their types.
    let column_is_plain = |attnum: i16| attnum == 0 || type_is_plain(base_type(attribute_type(table, attnum)));
    index.key_columns().into_iter().all(column_is_plain)
        && index_functions::all(index, function_is_plain)
        && CatalogRow::<pg_sys::FormData_pg_index>::find(index.oid())
            .is_none_or(|row| row.expressions().all(expression_is_plain))
}

/// Are the types and defaults of a table plain? Guarded.
pub fn table_is_plain(table: Relation<'_>) -> bool {
    let descriptor = table.descriptor();
    descriptor.live().all(|attribute| type_is_plain(attribute.atttypid))
        && descriptor.defaults().all(|(_, expression)| expression_is_plain(expression))
}

/// Is an expression, or a list of them, plain: does it call only plain functions, and make only values of plain types?
/// Guarded.
fn expression_is_plain(expression: Node<'_>) -> bool {
    let is_other = |function: pg_sys::Oid| {
        !function_is_plain(function) || !(HARMLESS.contains(&function.to_u32()) || volatility(function) == IMMUTABLE)
    };
    !expression.any(|node| !makes_plain(node) || node.calls(is_other))
}

/// Is a function built in, or in C and without defaults of its arguments, which are evaluated? Guarded.
fn function_is_plain(function: pg_sys::Oid) -> bool {
    if is_built_in(function) {
        return true;
    }
    CatalogRow::<pg_sys::FormData_pg_proc>::find(function)
        .is_some_and(|row| row.prolang.to_u32() == C_LANGUAGE && row.pronargdefaults == 0)
}

/// Are values of a type made and compared by plain functions only? Domains, and types composed of other types, may call
/// functions of their definitions. Guarded.
fn type_is_plain(type_oid: pg_sys::Oid) -> bool {
    let element = element_type(type_oid);
    if element != pg_sys::InvalidOid {
        return type_is_plain(element) && is_compared_plainly(element);
    }
    // The functions of a base type are in C.
    is_built_in(type_oid) || matches!(type_kind(type_oid), pg_sys::TYPTYPE_ENUM | pg_sys::TYPTYPE_BASE)
}

/// Are the functions plain with which the type cache compares and hashes values? They need not be the type's own.
fn is_compared_plainly(type_oid: pg_sys::Oid) -> bool {
    const WANTED: u32 = pg_sys::TYPECACHE_EQ_OPR | pg_sys::TYPECACHE_CMP_PROC | pg_sys::TYPECACHE_HASH_PROC;
    let entry = type_entry(type_oid, WANTED);
    let equals = if entry.eq_opr == pg_sys::InvalidOid { entry.eq_opr } else { operator_function(entry.eq_opr) };
    [equals, entry.cmp_proc, entry.hash_proc]
        .into_iter()
        .all(|function| function == pg_sys::InvalidOid || function_is_plain(function))
}

/// Was the object created by initdb? Such objects can be neither dropped nor created later.
fn is_built_in(oid: pg_sys::Oid) -> bool {
    oid.to_u32() < pg_sys::FirstUnpinnedObjectId
}

/// Does a node of an expression make only values of plain types? Guarded.
fn makes_plain(node: Node<'_>) -> bool {
    use pg_sys::NodeTag::*;
    match node.tag() {
        T_List | T_CaseWhen => true,
        // The value of a column exists already; for a domain, its base type counts.
        T_Var => type_is_plain(base_type(node.type_oid())),
        // GREATEST and LEAST compare with the function of the type cache.
        T_MinMaxExpr => type_is_plain(node.type_oid()) && is_compared_plainly(node.type_oid()),
        T_Const | T_FuncExpr | T_OpExpr | T_DistinctExpr | T_NullIfExpr | T_ScalarArrayOpExpr | T_BoolExpr
        | T_RelabelType | T_CoerceViaIO | T_ArrayCoerceExpr | T_ArrayExpr | T_CaseExpr | T_CaseTestExpr
        | T_CoalesceExpr | T_NullTest | T_BooleanTest | T_CollateExpr | T_FieldSelect | T_SubscriptingRef
        | T_SQLValueFunction => type_is_plain(node.type_oid()),
        // A row comparison calls the functions of the operator families, not the operators.
        T_RowCompareExpr => {
            node.as_a::<pg_sys::RowCompareExpr>().is_some_and(|row| row.families().iter().all(is_built_in))
        }
        _ => false,
    }
}
