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

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use self::body::Body;
use super::no_filter;
use super::signature::{Signature, arguments};
use crate::error::{Error, OrRaise, Result};
use crate::program::assignment::{assign, complain};
use crate::program::{Nodes, mapping};
use crate::server::lookup::{base_type, result_of, signature_of, type_name};
use crate::server::node::make;
use crate::server::node::{Node, NodeList};
use crate::server::relation::{Relation, TupleDesc};
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
    relation: Relation<'static>,
    /// The arguments.
    descriptor: TupleDesc<'static>,
    call: Node<'static, pg_sys::FuncExpr>,
    /// The result type; the base type if it is a domain.
    result_type: pg_sys::Oid,
    /// The number of its columns, and those that are not dropped.
    width: usize,
    live: Vec<usize>,
    places: Vec<MappedColumn>,
    /// The body, if it can be inlined.
    body: Option<Body>,
    /// The columns' expressions, if it was inlined; else the row. Dropped columns have none.
    columns: Vec<Option<Node<'static>>>,
    row: Option<Node<'static>>,
    quals: NodeList<'static>,
    targets: NodeList<'static, pg_sys::TargetEntry>,
}

/// Makes the projection for a table whose filter this function is.
///
/// # Safety
/// A plain frame; a function that can be a filter. The nodes live in the current memory context, as long as the relation is
/// open.
pub unsafe fn analyze(relation: Relation<'_>, function: pg_sys::Oid) -> Nodes {
    // SAFETY: the frame is plain; the relation is open as long as the analysis is used, and nothing else uses the latter.
    unsafe {
        let relation = Relation::from_raw(relation.as_ptr());
        let analysis = guarded(|| FilterAnalysis::of(relation, function).or_raise());
        let state = c::make_parsestate(std::ptr::null_mut());
        c::assign_expr_collations(state, (*analysis).call.node().as_ptr());
        body::inline(analysis);
        if let Some(row) = (*analysis).row {
            (*analysis).row = Node::from_raw(c::eval_const_expressions(std::ptr::null_mut(), row.as_ptr()));
            guarded(|| (*analysis).explode());
        }
        let quals = c::eval_const_expressions(std::ptr::null_mut(), (*analysis).quals.as_ptr().cast());
        (*analysis).quals = NodeList::from_raw(quals.cast());
        for at in 0..(*analysis).places.len() {
            let place = *(*analysis).places.as_ptr().add(at);
            let node = guarded(|| (*analysis).value(&place));
            // To the declared type (coerce_fn_result_column, functions.c), then as transformAssignedExpr
            // (parse_target.c).
            let made = assign(state, node.as_ptr(), place.type_oid, place.typmod);
            if made.is_null() {
                guarded::<()>(|| (*analysis).complain_of_body(node, &place));
            }
            let Some(form) = (*analysis).target(&place) else { continue };
            let assigned = assign(state, made, form.atttypid, form.atttypmod);
            if assigned.is_null() {
                guarded::<()>(|| complain(Node::from_raw(made).unwrap_or(node), form));
            }
            c::assign_expr_collations(state, assigned);
            let value = Node::from_raw(c::eval_const_expressions(std::ptr::null_mut(), assigned)).unwrap_or(node);
            guarded(|| (*analysis).targets.push(make::target(value, place.to, None)));
        }
        Nodes { targets: (*analysis).targets, quals: (*analysis).quals, row: (*analysis).row, filters: true }
    }
}

impl FilterAnalysis {
    /// Analyzes the call of a function. The result lives as long as the current memory context. Guarded.
    fn of(relation: Relation<'static>, function: pg_sys::Oid) -> Result<*mut FilterAnalysis> {
        let descriptor = Signature::of(function, relation.row_type())?.descriptor();
        let (class, mut result_type, result) = result_of(function);
        let call = make::call(function, arguments(descriptor));
        if result.is_none() && class != pg_sys::TypeFuncClass::TYPEFUNC_RECORD {
            let name = type_name(call.funcresulttype);
            return Err(no_filter(function, &format!("It returns {name}, which is not a row type.")));
        }
        let is_domain = class == pg_sys::TypeFuncClass::TYPEFUNC_COMPOSITE_DOMAIN;
        if is_domain {
            result_type = base_type(result_type);
        }
        let places = places(relation, function, result, result_type)?;
        let analysis = FilterAnalysis {
            relation,
            descriptor,
            call,
            result_type,
            width: result.map_or(places.len(), TupleDesc::len),
            live: result.map_or_else(|| (0..places.len()).collect(), live),
            places,
            // A domain's constraints apply to the whole row.
            body: if result.is_none() || is_domain { None } else { Body::of(function) },
            columns: Vec::new(),
            row: Some(call.node()),
            quals: NodeList::EMPTY,
            targets: NodeList::EMPTY,
        };
        Ok(pgrx::memcxt::PgMemoryContexts::CurrentMemoryContext.leak_and_drop_on_delete(analysis))
    }

    /// The value of a column: the body's expression, or the column of the row. Guarded.
    fn value(&self, place: &MappedColumn) -> Node<'static> {
        self.columns.get(place.from).copied().flatten().unwrap_or_else(|| {
            let number = i16::try_from(place.from + 1).unwrap_or(i16::MAX);
            make::variable(pg_sys::OUTER_VAR as _, number, (place.type_oid, place.typmod, place.collation)).node()
        })
    }

    /// The target's column. Raises nothing.
    fn target(&self, place: &MappedColumn) -> Option<&'static pg_sys::FormData_pg_attribute> {
        self.relation.descriptor().attribute(usize::try_from(place.to - 1).ok()?)
    }

    /// Takes the columns of a row constructor.
    fn explode(&mut self) {
        let Some(row) = self.row.and_then(Node::as_a::<pg_sys::RowExpr>) else { return };
        if row.args().len() == self.width {
            self.columns = row.args().iter().map(Some).collect();
            self.row = None;
        }
    }

    /// Raises the error that the body no longer returns the declared type. Guarded.
    fn complain_of_body(&self, node: Node<'_>, place: &MappedColumn) -> ! {
        let declared = type_name(self.call.funcresulttype);
        let (given, wanted, number) = (type_name(node.type_oid()), type_name(place.type_oid), place.from + 1);
        let message = format!("return type mismatch in function declared to return {declared}");
        let detail = format!("Final statement returns {given} instead of {wanted} at column {number}.");
        Error::new(Code::ERRCODE_INVALID_FUNCTION_DEFINITION, message).detail(detail).raise()
    }
}

/// Maps the columns of the function's row to the relation's. Without a descriptor, the row must have the relation's.
/// Guarded.
fn places(
    relation: Relation<'_>,
    function: pg_sys::Oid,
    result: Option<TupleDesc<'_>>,
    result_type: pg_sys::Oid,
) -> Result<Vec<MappedColumn>> {
    let place = |from: usize, descriptor: TupleDesc<'_>, attribute: usize, to: i16| {
        let form = descriptor.attribute(attribute)?;
        let (type_oid, typmod, collation) = (form.atttypid, form.atttypmod, form.attcollation);
        Some(MappedColumn { from, type_oid, typmod, collation, to })
    };
    let index = |attnum: i16| usize::try_from(attnum - 1).unwrap_or(0);
    let targets: Vec<i16> = mapping::attributes(relation).map(|(attnum, _)| attnum).collect();
    let Some(result) = result else {
        let own = |(from, &to): (usize, &i16)| {
            Some(MappedColumn { typmod: -1, ..place(from, relation.descriptor(), index(to), to)? })
        };
        return Ok(targets.iter().enumerate().filter_map(own).collect());
    };
    if result_type == relation.row_type() {
        return Ok(targets.iter().filter_map(|&to| place(index(to), result, index(to), to)).collect());
    }
    let given = live(result);
    if given.len() != targets.len() {
        let (given, taken) = (given.len(), targets.len());
        let table = relation.name_text();
        let message = format!("function {} cannot be a filter for \"{table}\"", signature_of(function));
        let detail = format!("It returns {given} columns, and the relation takes {taken}.");
        return Err(Error::new(Code::ERRCODE_DATATYPE_MISMATCH, message).detail(detail));
    }
    Ok(given.into_iter().zip(targets).filter_map(|(from, to)| place(from, result, from, to)).collect())
}

/// The positions of the attributes that are not dropped.
fn live(descriptor: TupleDesc<'_>) -> Vec<usize> {
    descriptor.live().filter_map(|form| usize::try_from(form.attnum - 1).ok()).collect()
}
