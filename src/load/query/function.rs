//! Lets a set-returning function in FROM return its rows one by one.
//!
//! A function scan collects all rows before the first one is used. ProjectSet returns the rows of a function in a
//! select list one by one, if the function supports that (ExecProjectSet). So if a query reads from one function only,
//! the function moves into the select list of a subquery:
//!
//! ```text
//!   SELECT a, b FROM f(…)        SELECT a, b FROM (SELECT (r).a, (r).b FROM (SELECT f(…) AS r) …)
//! ```
//!
//! SQL functions that are not volatile stay where they are, because the planner inlines them. So do functions with a
//! column definition list, and those WITH ORDINALITY.

use pgrx::pg_sys;

use crate::server::lookup::language_of;
use crate::server::node::make::{node, null, select, subquery, target};
use crate::server::node::{Node, NodeList};
use crate::server::relation::{TupleDesc, name_of};

/// SQL functions (pg_language.dat)
const SQL: u32 = 14;
/// PROVOLATILE_VOLATILE (pg_proc.h)
const VOLATILE: u8 = b'v';

/// Changes an analyzed query so that its rows come one by one, if it reads from a single function. Guarded.
///
/// # Safety
/// Nothing else refers to the query.
pub unsafe fn let_stream(query: Node<'_, pg_sys::Query>) {
    let Some(entry) = only_function(query) else { return };
    let Some(call) = entry.functions().first().and_then(|function| function.call()) else { return };
    let (mut kind, mut descriptor) = (pg_sys::InvalidOid, std::ptr::null_mut());
    // SAFETY: a guarded call with an expression.
    let class = unsafe { pg_sys::get_expr_result_type(call.as_ptr(), &raw mut kind, &raw mut descriptor) };
    let row = match class {
        pg_sys::TypeFuncClass::TYPEFUNC_SCALAR => None,
        // SAFETY: a composite type has a descriptor.
        pg_sys::TypeFuncClass::TYPEFUNC_COMPOSITE => Some(unsafe { TupleDesc::from_raw(descriptor) }),
        _ => return,
    };
    // SAFETY: a guarded call; nothing else refers to the query. The call is now one level deeper, or two.
    unsafe { pg_sys::IncrementVarSublevelsUp(call.as_ptr(), 1 + i32::from(row.is_some()), 0) };
    let column = target(call, 1, Some(c"r"));
    let below = select([column].into_iter().collect(), None, false, true);
    let below = row.map_or(below, |row| select(fields_of(column, row), Some(subquery(below)), false, false));
    // SAFETY: nothing else refers to the query.
    unsafe {
        (*entry.as_ptr()).functions = std::ptr::null_mut();
        (*entry.as_ptr()).rtekind = pg_sys::RTEKind::RTE_SUBQUERY;
        (*entry.as_ptr()).subquery = below.as_ptr();
    }
}

/// The function that the query reads from, if it reads from nothing else and its rows can come one by one. Guarded.
fn only_function(query: Node<'_, pg_sys::Query>) -> Option<Node<'_, pg_sys::RangeTblEntry>> {
    let from = query.jointree()?.fromlist();
    let place = from.first().filter(|_| from.len() == 1)?.as_a::<pg_sys::RangeTblRef>()?.rtindex;
    let entry = query.rtable().get(usize::try_from(place - 1).ok()?)?;
    if entry.rtekind != pg_sys::RTEKind::RTE_FUNCTION || entry.funcordinality || entry.lateral {
        return None;
    }
    let function = entry.functions().first().filter(|_| entry.functions().len() == 1)?;
    let is_fit = function.funccolnames.is_null() && is_worth_it(function.call()?) && !names_whole_row(query, place);
    is_fit.then_some(entry)
}

/// Does the call return a set, and is it not inlined (inline_set_returning_function, clauses.c)? Guarded.
fn is_worth_it(call: Node<'_>) -> bool {
    let Some(call) = call.as_a::<pg_sys::FuncExpr>() else { return false };
    let function = call.funcid;
    // SAFETY: a guarded catalog lookup.
    let is_volatile = || unsafe { pg_sys::func_volatile(function) }.cast_unsigned() == VOLATILE;
    call.funcretset && (language_of(function) != Some(SQL) || is_volatile())
}

/// Does the query use whole rows or system columns of the relation, or sublinks, CTEs or row marks? Guarded.
fn names_whole_row(query: Node<'_, pg_sys::Query>, place: i32) -> bool {
    // References from nested levels are not searched for.
    if query.hasSubLinks || !query.cteList.is_null() || !query.rowMarks.is_null() {
        return true;
    }
    let quals = query.jointree().and_then(|from| from.quals());
    let expressions = [query.targets().node(), quals, query.having()];
    let attributes = |node: Node<'_>| node.attributes(place.cast_unsigned()).numbers();
    expressions.into_iter().flatten().flat_map(attributes).any(|attnum| attnum <= 0)
}

/// The fields of a query's only column, which has this row type. Guarded.
fn fields_of<'a>(column: Node<'a, pg_sys::TargetEntry>, row: TupleDesc<'_>) -> NodeList<'a, pg_sys::TargetEntry> {
    let field = |form: &pg_sys::FormData_pg_attribute| {
        let value = if form.attisdropped { null(form) } else { field_of(column, form) };
        target(value, form.attnum, Some(name_of(form)))
    };
    row.attributes().map(field).collect()
}

/// A field of a column of the only relation. Guarded.
fn field_of<'a>(column: Node<'a, pg_sys::TargetEntry>, form: &pg_sys::FormData_pg_attribute) -> Node<'a> {
    // SAFETY: a guarded call, and the fields of such a node.
    unsafe {
        let field = node(pg_sys::FieldSelect {
            xpr: pg_sys::Expr { type_: pg_sys::NodeTag::T_FieldSelect },
            arg: pg_sys::makeVarFromTargetEntry(1, column.as_ptr()).cast(),
            fieldnum: form.attnum,
            resulttype: form.atttypid,
            resulttypmod: form.atttypmod,
            resultcollid: form.attcollation,
        });
        field.node()
    }
}
