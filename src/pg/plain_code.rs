//! Code that means the same whoever has it run, and after whatever else.
//!
//! Functions of the server's own and those in C do what they do. All others may be made to do something else by what a session
//! did before, whatever the search path is now: names in functions of procedural languages and in SQL mean what the search path
//! says, and what they once were found to mean is kept. PL/pgSQL keeps the types of variables; the type cache keeps
//! conditions of domains as they were planned for whoever came first, with bodies of functions in SQL in the place of calls, and within a
//! transaction the plan of what a range calls.
//!
//! So here code is plain if it calls nothing but such functions, and makes no values of types that call others. Expressions call
//! only those that are immutable, for of the others some call more than they say. What is not known to be plain is not. Expressions
//! are looked at as the catalog has them: those of the relation cache have been planned, for which functions may have been run.

use std::ffi::c_void;

use pgrx::{PgList, pg_guard, pg_sys};

use super::compat;
use super::index_functions;

const INDEXES: i32 = pg_sys::SysCacheIdentifier::INDEXRELID.cast_signed();
/// ClanguageId (pg_language.dat)
const C_LANGUAGE: u32 = 13;
/// PROVOLATILE_IMMUTABLE (pg_proc.h)
const IMMUTABLE: u8 = b'i';

/// Functions of the server's own that are not immutable and call nobody else's. Others do: some run what a text says, some the input
/// function of a type that they are told; a value becomes text, or JSON, by a cast that its type's owner has made.
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

/// Is all plain that is run while an index is built? Also where others build it, the server asks how many workers it should have, and
/// is told what extended statistics the table has: plan_create_index_workers (planner.c), get_relation_statistics (plancat.c). Guarded.
///
/// # Safety
/// An open index of a table that is locked.
pub unsafe fn build_is_plain(index: pg_sys::Relation) -> bool {
    // SAFETY: this function's contract covers the index; guarded calls.
    unsafe { index_is_plain(index) && statistics_are_plain((*(*index).rd_index).indrelid) }
}

/// # Safety
/// A table that is locked. Guarded.
unsafe fn statistics_are_plain(table: pg_sys::Oid) -> bool {
    let cache = pg_sys::SysCacheIdentifier::STATEXTOID.cast_signed();
    // SAFETY: guarded calls; the list is ours, and tuples are released when they were looked at.
    unsafe {
        let table = pg_sys::table_open(table, pg_sys::NoLock.cast_signed());
        let list = pg_sys::RelationGetStatExtList(table);
        pg_sys::table_close(table, pg_sys::NoLock.cast_signed());
        PgList::<pg_sys::Oid>::from_pg(list).iter_oid().all(|statistics| {
            let tuple = pg_sys::SearchSysCache1(cache, pg_sys::Datum::from(statistics));
            if tuple.is_null() {
                return true;
            }
            let are_plain = stored_is_plain(cache, tuple, compat::STATISTIC_EXPRESSIONS);
            pg_sys::ReleaseSysCache(tuple);
            are_plain
        })
    }
}

/// Are the expressions, conditions, types and operator classes of an index plain?
///
/// # Safety
/// An open index. Guarded.
unsafe fn index_is_plain(index: pg_sys::Relation) -> bool {
    // SAFETY: this function's contract covers the index, which has so many keys; guarded calls.
    unsafe {
        let form = &*(*index).rd_index;
        let keys = usize::try_from(form.indnkeyatts).unwrap_or(0);
        // The type of an expression is looked at with it.
        let column_is_plain = |&attnum: &i16| {
            attnum == 0 || type_is_plain(pg_sys::getBaseType(pg_sys::get_atttype(form.indrelid, attnum)))
        };
        form.indkey.values.as_slice(keys).iter().all(column_is_plain)
            && index_functions::all(index, function_is_plain)
            && stored_is_plain(INDEXES, (*index).rd_indextuple, pg_sys::Anum_pg_index_indexprs)
            && stored_is_plain(INDEXES, (*index).rd_indextuple, pg_sys::Anum_pg_index_indpred)
    }
}

/// Are the types and defaults of a table plain? Guarded.
///
/// # Safety
/// An open table.
pub unsafe fn table_is_plain(table: pg_sys::Relation) -> bool {
    // SAFETY: this function's contract covers the table, whose descriptor has so many attributes and defaults; guarded calls.
    unsafe {
        let descriptor = (*table).rd_att;
        let types_are_plain = (0..usize::try_from((*descriptor).natts).unwrap_or(0)).all(|place| {
            let attribute = compat::attribute(descriptor, place);
            (*attribute).attisdropped || type_is_plain((*attribute).atttypid)
        });
        let constraints = (*descriptor).constr;
        types_are_plain
            && (constraints.is_null()
                || (0..usize::from((*constraints).num_defval)).all(|number| {
                    let default = (*constraints).defval.add(number);
                    expression_is_plain(pg_sys::stringToNode((*default).adbin).cast())
                }))
    }
}

/// Is what a row of a catalog has in this attribute plain, if it has anything there?
///
/// # Safety
/// A row of that cache's catalog; the number of an attribute that is an expression, or a list of such. Guarded.
unsafe fn stored_is_plain(cache: i32, tuple: pg_sys::HeapTuple, attribute: u32) -> bool {
    let mut is_null = true;
    // SAFETY: this function's contract covers all arguments; guarded calls.
    unsafe {
        let value = pg_sys::SysCacheGetAttr(cache, tuple, attribute as pg_sys::AttrNumber, &raw mut is_null);
        if is_null {
            return true;
        }
        let text = pg_sys::text_to_cstring(value.cast_mut_ptr());
        let is_plain = expression_is_plain(pg_sys::stringToNode(text).cast());
        pg_sys::pfree(text.cast());
        is_plain
    }
}

/// Does an expression call nothing that is not plain, and make no value that is not? Guarded.
///
/// # Safety
/// An expression, a list of them, or null.
unsafe fn expression_is_plain(node: *mut pg_sys::Node) -> bool {
    // SAFETY: this function's contract covers the argument; a guarded call.
    unsafe { !is_other(node, std::ptr::null_mut()) }
}

/// Is it built in, or in C, and does it evaluate no defaults of its arguments? Guarded.
fn function_is_plain(function: pg_sys::Oid) -> bool {
    if is_built_in(function) {
        return true;
    }
    let cache = pg_sys::SysCacheIdentifier::PROCOID.cast_signed();
    // SAFETY: guarded catalog lookups; the tuple is released when it was looked at.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(cache, pg_sys::Datum::from(function));
        if tuple.is_null() {
            return false;
        }
        let form = &*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_proc>();
        let is_plain = form.prolang.to_u32() == C_LANGUAGE && form.pronargdefaults == 0;
        pg_sys::ReleaseSysCache(tuple);
        is_plain
    }
}

/// Are values of a type made and compared by nothing but functions that are plain? Those of domains, and of types that are made of others,
/// may call what these say. Guarded.
fn type_is_plain(type_oid: pg_sys::Oid) -> bool {
    // SAFETY: guarded catalog lookups.
    unsafe {
        let element = pg_sys::get_element_type(type_oid);
        if element != pg_sys::InvalidOid {
            return type_is_plain(element) && is_compared_plainly(element);
        }
        let kind = pg_sys::get_typtype(type_oid).cast_unsigned();
        // A type's own functions are in C.
        is_built_in(type_oid) || kind == pg_sys::TYPTYPE_ENUM || kind == pg_sys::TYPTYPE_BASE
    }
}

/// Is what the type's cache compares and hashes values with plain, which need not be the type's own?
fn is_compared_plainly(type_oid: pg_sys::Oid) -> bool {
    const WANTED: u32 = pg_sys::TYPECACHE_EQ_OPR | pg_sys::TYPECACHE_CMP_PROC | pg_sys::TYPECACHE_HASH_PROC;
    // SAFETY: guarded catalog lookups; an entry of the type cache stays.
    unsafe {
        let entry = &*pg_sys::lookup_type_cache(type_oid, WANTED.cast_signed());
        let equals = if entry.eq_opr == pg_sys::InvalidOid { entry.eq_opr } else { pg_sys::get_opcode(entry.eq_opr) };
        [equals, entry.cmp_proc, entry.hash_proc]
            .into_iter()
            .all(|function| function == pg_sys::InvalidOid || function_is_plain(function))
    }
}

/// What initdb has made, and nobody drops or makes.
fn is_built_in(oid: pg_sys::Oid) -> bool {
    oid.to_u32() < pg_sys::FirstUnpinnedObjectId
}

/// Is there a node in an expression that is not plain?
///
/// # Safety
/// Called with the nodes of an expression.
#[pg_guard]
unsafe extern "C-unwind" fn is_other(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
    use pg_sys::NodeTag::*;
    // SAFETY: this function's contract covers the node, whose tag says what it is; guarded calls.
    unsafe {
        if node.is_null() {
            return false;
        }
        let makes_plain = match (*node).type_ {
            T_List | T_CaseWhen => true,
            // A column is there already, and of a domain it is what its base type is.
            T_Var => type_is_plain(pg_sys::getBaseType(pg_sys::exprType(node))),
            // What the type's cache compares with.
            T_MinMaxExpr => {
                let type_oid = pg_sys::exprType(node);
                type_is_plain(type_oid) && is_compared_plainly(type_oid)
            }
            T_Const | T_FuncExpr | T_OpExpr | T_DistinctExpr | T_NullIfExpr | T_ScalarArrayOpExpr | T_BoolExpr
            | T_RelabelType | T_CoerceViaIO | T_ArrayCoerceExpr | T_ArrayExpr | T_CaseExpr | T_CaseTestExpr
            | T_CoalesceExpr | T_NullTest | T_BooleanTest | T_CollateExpr | T_FieldSelect | T_SubscriptingRef
            | T_SQLValueFunction => type_is_plain(pg_sys::exprType(node)),
            // Not the operators are called, but what their families sort by.
            T_RowCompareExpr => {
                let families = (*node.cast::<pg_sys::RowCompareExpr>()).opfamilies;
                PgList::<pg_sys::Oid>::from_pg(families).iter_oid().all(is_built_in)
            }
            _ => false,
        };
        !makes_plain
            || pg_sys::check_functions_in_node(node, Some(is_other_function), context)
            || pg_sys::expression_tree_walker(node, Some(is_other), context)
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn is_other_function(function: pg_sys::Oid, _context: *mut c_void) -> bool {
    // SAFETY: a guarded catalog lookup.
    let only_computes = || unsafe { pg_sys::func_volatile(function) }.cast_unsigned() == IMMUTABLE;
    !function_is_plain(function) || !(HARMLESS.contains(&function.to_u32()) || only_computes())
}
