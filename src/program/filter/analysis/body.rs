//! Inlines the body of an SQL function that is one SELECT of expressions.
//!
//! inline_function (clauses.c) inlines functions that return one value. This module does it for a function that returns
//! a row, which the planner does not: each column's expression becomes one over the arguments. A WHERE is supported: if
//! it is not true, there is no row, so the result is NULL. STRICT is supported as a condition on the arguments. Each
//! argument is a column of the input row, so its repeated use costs nothing.
//!
//! A function with any other body is called.

use std::ffi::CString;

use pgrx::pg_sys;

use super::super::SQL_LANGUAGE;
use super::super::signature::{argument, is_row};
use super::{FilterAnalysis, MappedColumn};
use crate::program::variable;
use crate::server::lookup::{CatalogRow, base_type, can_assign, function_name, type_kind};
use crate::server::node::make;
use crate::server::node::{Node, NodeList};
use crate::server::relation::TupleDesc;
use crate::server::unguarded::{self as c, Opaque, guarded};

/// A body to inline.
#[derive(Debug)]
pub struct Body {
    name: CString,
    /// A copy of the function's row in pg_proc.
    row: pg_sys::HeapTuple,
    /// The body as text; or as nodes, if it was parsed when the function was created.
    text: CString,
    nodes: Option<Node<'static>>,
    volatility: u8,
    is_strict: bool,
}

impl Body {
    /// Reads a function's body. None if the function must be called. Guarded; allocates in the current memory context.
    pub fn of(function: pg_sys::Oid) -> Option<Body> {
        let row = CatalogRow::<pg_sys::FormData_pg_proc>::find(function)?;
        // SAFETY: a hook that another library has set, called as core calls it.
        let is_watched = || unsafe { pg_sys::needs_fmgr_hook.is_some_and(|hook| c::guard(|| hook(function))) };
        if row.prolang != pg_sys::Oid::from(SQL_LANGUAGE)
            || row.prokind.cast_unsigned() != pg_sys::PROKIND_FUNCTION
            || row.prosecdef
            || row.has_settings()
            || is_watched()
        {
            return None;
        }
        Some(Body {
            name: function_name(function)?,
            row: row.copied(),
            text: row.source()?,
            nodes: row.body(),
            volatility: row.provolatile.cast_unsigned(),
            is_strict: row.proisstrict,
        })
    }

    /// The only statement of a body that was parsed when the function was created, if it is a query.
    fn parsed(&self) -> Option<Node<'static, pg_sys::Query>> {
        let mut node = self.nodes?;
        // A list of lists of queries. A body without a statement is a list with an empty list, which is null.
        for _ in 0..2 {
            if let Some(list) = node.as_a::<pg_sys::List>() {
                let list: NodeList<'_> = list.list();
                node = list.first().filter(|_| list.len() == 1)?;
            }
        }
        node.as_a()
    }
}

/// Replaces the call by the body, if possible.
///
/// # Safety
/// A plain frame; a valid analysis that nothing else uses.
pub unsafe fn inline(analysis: *mut FilterAnalysis) {
    // SAFETY: the frame is plain; nothing in it has a destructor.
    unsafe {
        let Some(body) = (*analysis).body.as_ref() else { return };
        let body = &raw const *body;
        // The only statement of the body, analyzed; None if it is not a query.
        let query = || {
            if (*body).nodes.is_some() {
                return (*body).parsed();
            }
            let text = (*body).text.as_ptr();
            let parsed =
                NodeList::<pg_sys::RawStmt>::from_raw(c::raw_parser(text, pg_sys::RawParseMode::RAW_PARSE_DEFAULT));
            let raw = parsed.first().filter(|_| parsed.len() == 1)?;
            raw.stmt().as_a::<pg_sys::SelectStmt>()?;
            let state = c::make_parsestate(std::ptr::null_mut());
            (*state).p_sourcetext = text;
            let call = (*analysis).call;
            let arguments = c::prepare_sql_fn_parse_info((*body).row, call.node().as_ptr(), call.inputcollid);
            c::sql_fn_parser_setup(state, arguments);
            Node::from_raw(c::transformTopLevelStmt(state, raw.as_ptr()))
        };
        c::in_context(while_inlining, body.cast_mut().cast(), || {
            if let Some(query) = query() {
                guarded(|| (*analysis).take(query));
            }
        });
    }
}

impl FilterAnalysis {
    /// Takes the columns and the condition of a query over the function's arguments, if it has nothing else. Guarded.
    fn take(&mut self, query: Node<'static, pg_sys::Query>) {
        let (Some(body), Some(join), true) = (self.body.as_ref(), query.jointree(), is_simple(&query)) else { return };
        if !join.fromlist.is_null() {
            return;
        }
        let mut columns: Vec<Node<'static>> =
            query.targets().iter().filter(|entry| !entry.resjunk).map(Node::expr).collect();
        let condition = join.quals();
        // The body must not be more volatile than the function's declaration.
        let is_honest = [query.targets().node(), condition].into_iter().flatten().all(|node| match body.volatility {
            pg_sys::PROVOLATILE_IMMUTABLE => !node.is_mutable(),
            pg_sys::PROVOLATILE_STABLE => !node.is_volatile(),
            _ => true,
        });
        let only = columns.first().copied().filter(|_| columns.len() == 1);
        let is_result = |node: &Node<'_>| base_type(node.type_oid()) == self.result_type;
        let mut whole = only.filter(is_result);
        if whole.is_none() && only.is_some_and(|node| stands_for_row(node.type_oid(), self.result_type)) {
            return;
        }
        if let Some(node) = only.filter(|node| node.type_oid() == pg_sys::RECORDOID) {
            // The type `record` does not describe such a row, and its columns must be compared with the function's
            // declared result. So only a row constructor, whose columns are visible, is inlined. For any other row the
            // function is called.
            let Some(row) = node.as_a::<pg_sys::RowExpr>() else { return };
            let is_alike = |(node, place): (Node<'_>, &MappedColumn)| node.type_oid() == place.type_oid;
            if self.result_type != pg_sys::RECORDOID
                || row.args().len() != self.places.len()
                || !row.args().iter().zip(&self.places).all(is_alike)
            {
                return;
            }
            columns = row.args().iter().collect();
            whole = None;
        }
        if !is_honest || (whole.is_none() && columns.len() != self.live.len()) {
            return;
        }
        let descriptor = self.descriptor;
        let column = |at| variable(descriptor, at).map(Node::node);
        let conditions = condition.map_or(NodeList::EMPTY, |node| over_arguments(node, descriptor).conjuncts());
        // A row argument itself is never NULL.
        let strict = if body.is_strict && !is_row(descriptor) { descriptor.len() } else { 0 };
        let tests = (0..strict).filter_map(column).map(|value| make::is_not_null(value).node());
        self.quals = tests.chain(conditions.iter()).collect();
        self.row = None;
        match whole {
            // The argument itself, which is a row of that type.
            Some(row) if is_row(descriptor) && is_parameter(row) && row.type_oid() == self.result_type => {
                let live = |at: usize| self.live.contains(&at).then(|| column(at)).flatten();
                self.columns = (0..self.width).map(live).collect();
            }
            Some(row) => self.row = Some(over_arguments(row, descriptor)),
            None => {
                // Dropped columns get no value.
                self.columns = vec![None; self.width];
                for (&at, node) in self.live.iter().zip(columns) {
                    if let Some(column) = self.columns.get_mut(at) {
                        *column = Some(over_arguments(node, descriptor));
                    }
                }
            }
        }
    }
}

fn is_parameter(node: Node<'_>) -> bool {
    node.tag() == pg_sys::NodeTag::T_Param
}

/// Is the only column of the SELECT, of this type, the whole row (check_sql_fn_retval, functions.c)? Guarded.
fn stands_for_row(given: pg_sys::Oid, result_type: pg_sys::Oid) -> bool {
    // As type_is_rowtype (lsyscache.c).
    let is_row = type_kind(base_type(given)) == pg_sys::TYPTYPE_COMPOSITE;
    given != pg_sys::RECORDOID && is_row && can_assign(given, result_type)
}

/// Is the query a SELECT of expressions, perhaps with a condition?
fn is_simple(query: &pg_sys::Query) -> bool {
    query.commandType == pg_sys::CmdType::CMD_SELECT
        && query.utilityStmt.is_null()
        && !query.hasAggs
        && !query.hasWindowFuncs
        && !query.hasTargetSRFs
        && !query.hasSubLinks
        && !query.hasModifyingCTE
        && query.cteList.is_null()
        && query.rtable.is_null()
        && query.groupClause.is_null()
        && query.groupingSets.is_null()
        && query.havingQual.is_null()
        && query.windowClause.is_null()
        && query.distinctClause.is_null()
        && query.sortClause.is_null()
        && query.limitOffset.is_null()
        && query.limitCount.is_null()
        && query.setOperations.is_null()
}

/// Replaces the body's parameters by columns of the input row, with the collation of the call. Guarded.
fn over_arguments(node: Node<'static>, descriptor: TupleDesc<'static>) -> Node<'static> {
    node.replace(|node| {
        let parameter = node.as_a::<pg_sys::Param>()?;
        let column = argument(descriptor, usize::try_from(parameter.paramid - 1).ok()?)?;
        let (varno, number, collation) = (column.varno as _, column.varattno, parameter.paramcollid);
        Some(make::variable(varno, number, (column.vartype, column.vartypmod, collation)).node())
    })
}

/// As sql_inline_error_callback (clauses.c).
///
/// # Safety
/// Called by the server while an error is being reported, with the body.
unsafe extern "C-unwind" fn while_inlining(body: Opaque) {
    // SAFETY: the body outlives the push; the strings are copied.
    unsafe {
        let body = body.cast::<Body>();
        let position = c::geterrposition();
        if position > 0 {
            c::errposition(0);
            c::internalerrposition(position);
            c::internalerrquery((*body).text.as_ptr());
        }
        c::set_errcontext_domain(std::ptr::null());
        let name = (*body).name.as_ptr();
        c::errcontext_msg(c"SQL function \"%s\" during inlining".as_ptr(), name);
    }
}
