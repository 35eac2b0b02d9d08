//! From the call of a filter to a projection.
//!
//! An SQL function whose body is one SELECT of expressions is not called: its expressions over the arguments become the
//! columns of the target, and its WHERE a condition of the projection, so no row is formed ([`body`]). The planner does
//! so only with functions of one value. For any other function the call is the [row](Nodes) that
//! the columns are taken from.
//!
//! Either way each column is assigned as INSERT assigns it. Analysis runs in a plain frame, since it parses the body
//! and folds constants.

mod body;

use std::ffi::CStr;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use self::body::Body;
use super::signature::{Signature, arguments, own_type};
use super::{display_name, no_filter};
use crate::error::{Error, OrRaise, Result};
use crate::program::assignment::{assign, complain};
use crate::program::mapping;
use crate::program::{Nodes, with_target};
use crate::server::compat;
use crate::server::server_text::from_server;
use crate::server::unguarded::{self as c, guarded};

/// A column of the function's row, and its target.
#[derive(Debug, Clone, Copy)]
struct MappedColumn {
    /// Position in the row, from 0.
    from: usize,
    /// The type that the function declares.
    type_oid: pg_sys::Oid,
    typmod: i32,
    collation: pg_sys::Oid,
    /// The target's attribute.
    to: i16,
}

/// The state of a filter's analysis.
struct FilterAnalysis {
    relation: pg_sys::Relation,
    /// The arguments.
    descriptor: pg_sys::TupleDesc,
    call: *mut pg_sys::FuncExpr,
    /// The result type; the base type if it is a domain.
    result_type: pg_sys::Oid,
    /// The number of its columns, and those that are not dropped.
    width: usize,
    live: Vec<usize>,
    places: Vec<MappedColumn>,
    /// The body, if it can be inlined.
    body: Option<Body>,
    /// The columns' expressions, if it was inlined; else the row.
    columns: Vec<*mut pg_sys::Node>,
    row: *mut pg_sys::Node,
    quals: *mut pg_sys::List,
    targets: *mut pg_sys::List,
}

/// Makes the projection for a table whose filter this function is.
///
/// # Safety
/// A plain frame; an open relation, and a function that can be a filter. The contents of `nodes` live in the current
/// memory context.
pub unsafe fn analyze(relation: pg_sys::Relation, function: pg_sys::Oid, nodes: *mut Nodes) {
    // SAFETY: the caller's relation is open while `of` reads it, and `of` makes the analysis.
    unsafe {
        let analysis = guarded(|| FilterAnalysis::of(relation, function).or_raise());
        complete(analysis);
        *nodes = (*analysis).nodes();
    }
}

/// Makes the expressions of the target's columns.
///
/// # Safety
/// A plain frame; a valid analysis that nothing else uses.
unsafe fn complete(analysis: *mut FilterAnalysis) {
    // SAFETY: `analyze` has made the analysis, and uses nothing else of it meanwhile.
    unsafe {
        let state = c::make_parsestate(std::ptr::null_mut());
        c::assign_expr_collations(state, (*analysis).call.cast());
        body::inline(analysis);
        let row = (*analysis).row;
        if !row.is_null() {
            (*analysis).row = c::eval_const_expressions(std::ptr::null_mut(), row);
            body::explode(analysis);
        }
        let quals = (*analysis).quals;
        (*analysis).quals = c::eval_const_expressions(std::ptr::null_mut(), quals.cast()).cast();
        for at in 0..(*analysis).places.len() {
            let place = *(*analysis).places.as_ptr().add(at);
            let node = guarded(|| (*analysis).value(&place));
            // To the declared type (coerce_fn_result_column, functions.c), then as transformAssignedExpr
            // (parse_target.c).
            let made = assign(state, node, place.type_oid, place.typmod);
            if made.is_null() {
                guarded(|| (*analysis).complain_of_body(node, &place));
            }
            let form = (*analysis).target(&place);
            let assigned = assign(state, made, (*form).atttypid, (*form).atttypmod);
            if assigned.is_null() {
                complain(made, form);
            }
            c::assign_expr_collations(state, assigned);
            let node = c::eval_const_expressions(std::ptr::null_mut(), assigned);
            guarded(|| (*analysis).targets = with_target((*analysis).targets, node.cast(), place.to));
        }
    }
}

impl FilterAnalysis {
    /// Analyzes the call of a function. The result lives as long as the current memory context. Guarded.
    fn of(relation: pg_sys::Relation, function: pg_sys::Oid) -> Result<*mut FilterAnalysis> {
        // SAFETY: guarded calls on an open relation; the descriptor is the arguments'.
        unsafe {
            let descriptor = Signature::of(function, own_type(relation))?.descriptor();
            let mut result_type = pg_sys::InvalidOid;
            let mut result: pg_sys::TupleDesc = std::ptr::null_mut();
            let class = pg_sys::get_func_result_type(function, &raw mut result_type, &raw mut result);
            let call = pg_sys::makeFuncExpr(
                function,
                pg_sys::get_func_rettype(function),
                arguments(descriptor),
                pg_sys::InvalidOid,
                pg_sys::InvalidOid,
                pg_sys::CoercionForm::COERCE_EXPLICIT_CALL,
            );
            let is_row = !result.is_null() || class == pg_sys::TypeFuncClass::TYPEFUNC_RECORD;
            if !is_row {
                let name = from_server(CStr::from_ptr(pg_sys::format_type_be((*call).funcresulttype)));
                return Err(no_filter(function, &format!("It returns {name}, which is not a row type.")));
            }
            let is_domain = class == pg_sys::TypeFuncClass::TYPEFUNC_COMPOSITE_DOMAIN;
            if is_domain {
                result_type = pg_sys::getBaseType(result_type);
            }
            let places = places(relation, function, result, result_type)?;
            let live = if result.is_null() { (0..places.len()).collect() } else { live(result) };
            let width = if result.is_null() { places.len() } else { usize::try_from((*result).natts).unwrap_or(0) };
            let analysis = FilterAnalysis {
                relation,
                descriptor,
                call,
                result_type,
                width,
                live,
                places,
                // A domain's constraints apply to the whole row.
                body: if result.is_null() || is_domain { None } else { Body::of(function) },
                columns: Vec::new(),
                row: call.cast(),
                quals: std::ptr::null_mut(),
                targets: std::ptr::null_mut(),
            };
            Ok(pgrx::memcxt::PgMemoryContexts::CurrentMemoryContext.leak_and_drop_on_delete(analysis))
        }
    }

    /// The nodes of a complete analysis. Raises nothing.
    fn nodes(&self) -> Nodes {
        Nodes { targets: self.targets, quals: self.quals, row: self.row, filters: true }
    }

    /// The value of a column: the body's expression, or the column of the row. Guarded.
    fn value(&self, place: &MappedColumn) -> *mut pg_sys::Node {
        if let Some(&node) = self.columns.get(place.from) {
            return node;
        }
        let number = i16::try_from(place.from + 1).unwrap_or(i16::MAX);
        let (varno, type_oid) = (pg_sys::OUTER_VAR as _, place.type_oid);
        // SAFETY: a guarded call.
        unsafe { pg_sys::makeVar(varno, number, type_oid, place.typmod, place.collation, 0) }.cast()
    }

    /// The target's column. It lives as long as the relation is open. Raises nothing.
    fn target(&self, place: &MappedColumn) -> *const pg_sys::FormData_pg_attribute {
        // SAFETY: an analysis has an open relation, in which `places` has found the attributes.
        unsafe { compat::attribute((*self.relation).rd_att, usize::try_from(place.to - 1).unwrap_or(0)) }
    }

    /// Raises the error that the body no longer returns the declared type. Guarded.
    ///
    /// # Safety
    /// The value of this column.
    unsafe fn complain_of_body(&self, node: *mut pg_sys::Node, place: &MappedColumn) {
        // SAFETY: this function's contract covers the node; guarded calls, and strings that they return.
        unsafe {
            let kind = |oid| from_server(CStr::from_ptr(pg_sys::format_type_be(oid)));
            let declared = kind((*self.call).funcresulttype);
            let (given, wanted, number) = (kind(pg_sys::exprType(node)), kind(place.type_oid), place.from + 1);
            let message = format!("return type mismatch in function declared to return {declared}");
            let detail = format!("Final statement returns {given} instead of {wanted} at column {number}.");
            Error::new(Code::ERRCODE_INVALID_FUNCTION_DEFINITION, message).detail(detail).raise();
        }
    }
}

/// Maps the columns of the function's row to the relation's. Without a descriptor, the row must have the relation's.
/// Guarded.
fn places(
    relation: pg_sys::Relation,
    function: pg_sys::Oid,
    result: pg_sys::TupleDesc,
    result_type: pg_sys::Oid,
) -> Result<Vec<MappedColumn>> {
    // SAFETY: an open relation, and a valid descriptor or null; attributes below natts exist.
    unsafe {
        let own = (*relation).rd_att;
        let place = |from: usize, descriptor: pg_sys::TupleDesc, attribute: usize, to: i16| {
            let form = &*compat::attribute(descriptor, attribute);
            let (type_oid, typmod, collation) = (form.atttypid, form.atttypmod, form.attcollation);
            MappedColumn { from, type_oid, typmod, collation, to }
        };
        let index = |attnum: i16| usize::try_from(attnum - 1).unwrap_or(0);
        let targets: Vec<i16> = mapping::attributes(relation).map(|(attnum, _)| attnum).collect();
        if result.is_null() {
            let places = targets
                .iter()
                .enumerate()
                .map(|(from, &to)| MappedColumn { typmod: -1, ..place(from, own, index(to), to) });
            return Ok(places.collect());
        }
        if result_type == (*(*relation).rd_rel).reltype {
            return Ok(targets.iter().map(|&to| place(index(to), result, index(to), to)).collect());
        }
        let given = live(result);
        if given.len() != targets.len() {
            let (given, taken) = (given.len(), targets.len());
            let table = from_server(CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr()));
            let message = format!("function {} cannot be a filter for \"{table}\"", display_name(function));
            let detail = format!("It returns {given} columns, and the relation takes {taken}.");
            return Err(Error::new(Code::ERRCODE_DATATYPE_MISMATCH, message).detail(detail));
        }
        Ok(given.into_iter().zip(targets).map(|(from, to)| place(from, result, from, to)).collect())
    }
}

/// The attributes of a descriptor that are not dropped.
///
/// # Safety
/// A valid descriptor.
unsafe fn live(descriptor: pg_sys::TupleDesc) -> Vec<usize> {
    // SAFETY: this function's contract covers the argument; attributes below natts exist.
    unsafe {
        let natts = usize::try_from((*descriptor).natts).unwrap_or(0);
        (0..natts).filter(|&i| !(*compat::attribute(descriptor, i)).attisdropped).collect()
    }
}
