//! From the text of a query to its plan, as in transformInsertStmt (analyze.c) except for DEFAULT.
//!
//! The guarded steps keep their results in a [`QueryAnalysis`]; between them, a plain frame calls the parser's own
//! functions. The columns are coerced first; then a query of all the target's attributes is put over them ([`over`]).
//!
//! **Set-returning functions.** If the query reads from one function in FROM, its rows come one by one.
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

use std::cell::Cell;
use std::ffi::{CString, c_char};

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::Query;
use crate::error::{Error, OrRaise};
use crate::load::options::LoadOptions;
use crate::load::{Program, source};
use crate::program::assignment::{assign, complain_at};
use crate::program::volatile::{self, UserCall};
use crate::server::lookup::{language_of, volatility};
use crate::server::memory_context::MemoryContext;
use crate::server::node::make::{node, null, select, subquery, target, values, variable};
use crate::server::node::{Node, NodeList};
use crate::server::relation::{Relation, TupleDesc, name_of};
use crate::server::unguarded::{self as c, Opaque, guarded};

/// The state of a query's analysis.
#[derive(Debug)]
struct QueryAnalysis {
    relation: Relation<'static>,
    text: CString,
    /// Attributes that the query may have columns for. `is_list`: it must have one for each.
    attributes: Vec<i16>,
    names: Vec<CString>,
    is_list: bool,
    /// The columns of the query, before and after coercion.
    columns: Vec<Node<'static>>,
    /// The coerced rows of VALUES.
    rows: Vec<Node<'static>>,
    call: Option<UserCall>,
}

/// Plans the query of a load, if its options have one, and sets its columns in the options.
///
/// # Safety
/// A plain frame; the relation stays open. The contents of the program live in the current memory context.
pub unsafe fn analyze(relation: Relation<'static>, options: &mut LoadOptions, program: &mut Program) {
    // SAFETY: the frame is plain; objects made here live as long as the analysis, which one step at a time uses.
    unsafe {
        let analysis = guarded(|| begin(relation, options));
        if analysis.is_null() {
            return;
        }
        let text = (*analysis).text.as_ptr();
        let plans = c::in_context(within_text, text.cast_mut().cast(), || plan(analysis, text));
        guarded(|| (*analysis).end(NodeList::from_raw(plans), options, program));
    }
}

/// Analyzes, rewrites and plans the text.
///
/// # Safety
/// As [`analyze`], with its analysis and the analysis's text.
unsafe fn plan(analysis: *mut QueryAnalysis, text: *const c_char) -> *mut pg_sys::List {
    // SAFETY: the frame is plain; objects made here live as long as the analysis, which one step at a time uses.
    unsafe {
        let select = parse(text);
        // As transformInsertStmt (analyze.c), except for DEFAULT.
        let state = c::make_parsestate(std::ptr::null_mut());
        (*state).p_sourcetext = text;
        let rows = rows_of_values(select);
        let query = match rows.len() {
            0 => {
                (*state).p_resolve_unknowns = false;
                let query = c::transformStmt(state, select.as_ptr().cast());
                let query = guarded(|| (*analysis).take_columns(query));
                coerce(analysis, state);
                guarded(|| over(&*analysis, query))
            }
            count => {
                let is_one = count == 1;
                let kind = if is_one {
                    pg_sys::ParseExprKind::EXPR_KIND_VALUES_SINGLE
                } else {
                    pg_sys::ParseExprKind::EXPR_KIND_VALUES
                };
                for at in 0..count {
                    let Some(row) = rows.get(at) else { continue };
                    let row = c::transformExpressionList(state, row.as_ptr(), kind, false);
                    guarded(|| (*analysis).take_values(NodeList::from_raw(row)));
                    coerce(analysis, state);
                    guarded(|| (*analysis).keep_row());
                }
                guarded(|| if is_one { over_nothing(&*analysis, &*state) } else { over_rows(&mut *analysis, &*state) })
            }
        };
        let rewritten = c::pg_rewrite_query(query.as_ptr());
        // Views are expanded.
        guarded(|| (*analysis).call = Node::from_raw(rewritten.cast()).and_then(volatile::call_in));
        c::pg_plan_queries(rewritten, text, 0, std::ptr::null_mut())
    }
}

/// Prepares the analysis; null if there is no query. Guarded.
fn begin(relation: Relation<'static>, options: &LoadOptions) -> *mut QueryAnalysis {
    let Some(text) = options.query.clone() else { return std::ptr::null_mut() };
    let Some(mapping) = source::by_position(relation, options).or_raise() else { return std::ptr::null_mut() };
    let analysis = QueryAnalysis {
        relation,
        text,
        attributes: mapping.fields.into_iter().flatten().collect(),
        names: mapping.names,
        is_list: options.columns.names.is_some(),
        columns: Vec::new(),
        rows: Vec::new(),
        call: None,
    };
    MemoryContext::current().keep(analysis)
}

/// Raises unless the text parses as a query. [`analyze`] does the rest, when the query runs.
///
/// # Safety
/// A plain frame; a string that outlives the call.
pub unsafe fn check(text: *const c_char) {
    // SAFETY: the frame is plain, and the string outlives the parser's call.
    unsafe { c::in_context(within_text, text.cast_mut().cast(), || parse(text)) };
}

/// Parses the text, which must be one query.
///
/// # Safety
/// As [`check`]. The query lives as long as the current memory context.
unsafe fn parse<'a>(text: *const c_char) -> Node<'a, pg_sys::SelectStmt> {
    // SAFETY: the frame is plain. The parser makes a list of statements.
    unsafe {
        let parsed = NodeList::from_raw(c::raw_parser(text, pg_sys::RawParseMode::RAW_PARSE_DEFAULT));
        only_select(parsed).unwrap_or_else(|| {
            let refuse =
                || Error::new(Code::ERRCODE_SYNTAX_ERROR, "query must be one SELECT, VALUES, TABLE or WITH").raise();
            guarded(refuse)
        })
    }
}

/// The query, if it is the only statement. Raises nothing.
fn only_select(parsed: NodeList<'_, pg_sys::RawStmt>) -> Option<Node<'_, pg_sys::SelectStmt>> {
    parsed.first().filter(|_| parsed.len() == 1)?.stmt().as_a()
}

/// The rows, if the query is VALUES and nothing else (`isGeneralSelect`, analyze.c). Raises nothing.
fn rows_of_values(select: Node<'_, pg_sys::SelectStmt>) -> NodeList<'_, pg_sys::List> {
    let is_more = !select.sortClause.is_null()
        || !select.limitOffset.is_null()
        || !select.limitCount.is_null()
        || !select.lockingClause.is_null()
        || !select.withClause.is_null();
    if is_more { NodeList::EMPTY } else { select.rows() }
}

/// Coerces each column to the target's column.
///
/// # Safety
/// A plain frame; a valid analysis with columns, and the state that they were analyzed with.
unsafe fn coerce(analysis: *mut QueryAnalysis, state: *mut pg_sys::ParseState) {
    // SAFETY: the frame is plain, and nothing else uses the analysis.
    unsafe {
        let analysis = &mut *analysis;
        complain_of_count(analysis, state);
        for (at, place) in analysis.columns.iter_mut().enumerate() {
            let Some(form) = attribute(analysis.relation, &analysis.attributes, at) else { continue };
            let value = place.as_ptr();
            let made = assign(state, value, form.atttypid, form.atttypmod);
            let Some(column) = Node::from_raw(made) else { return complain_at(state, value, form) };
            c::assign_expr_collations(state, made);
            *place = column;
        }
    }
}

/// The target's column for this column of the query. Raises nothing.
fn attribute<'a>(relation: Relation<'a>, attributes: &[i16], at: usize) -> Option<&'a pg_sys::FormData_pg_attribute> {
    relation.descriptor().attribute(usize::try_from(attributes.get(at)? - 1).ok()?)
}

fn no_plan() -> Error {
    Error::new(Code::ERRCODE_INTERNAL_ERROR, "the query has no plan")
}

impl QueryAnalysis {
    /// Stores the query's columns, and makes its rows come one by one. Guarded.
    ///
    /// # Safety
    /// An analyzed query that nothing else refers to.
    unsafe fn take_columns(&mut self, query: *mut pg_sys::Query) -> Node<'static, pg_sys::Query> {
        // SAFETY: an analyzed query.
        let query = unsafe { Node::from_raw(query) }.ok_or_else(no_plan).or_raise();
        if query.hasModifyingCTE {
            // The error of INSERT … WITH … (analyzeCTE, parse_cte.c).
            let message = "WITH clause containing a data-modifying statement must be at the top level";
            Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message).raise();
        }
        // SAFETY: nothing else refers to the query.
        unsafe { let_stream(query) };
        self.columns = query.targets().iter().filter(|entry| !entry.resjunk).map(column_of).collect();
        query
    }

    /// Stores the columns of a row of VALUES. Guarded.
    fn take_values(&mut self, row: NodeList<'static>) {
        if !self.rows.is_empty() && row.len() != self.columns.len() {
            let message = "VALUES lists must all be the same length";
            Error::new(Code::ERRCODE_SYNTAX_ERROR, message).raise();
        }
        self.columns = row.iter().collect();
    }

    /// Keeps the columns as a row of VALUES. Guarded.
    fn keep_row(&mut self) {
        let row: NodeList<'_> = self.columns.iter().copied().collect();
        self.rows.extend(row.node());
    }

    /// Makes the load's query of its plan, and sets its columns. Guarded.
    fn end(&self, plans: NodeList<'static, pg_sys::PlannedStmt>, options: &mut LoadOptions, program: &mut Program) {
        let plan = plans.first().ok_or_else(no_plan).or_raise();
        let loaded = self.relation.with_descendants(pg_sys::NoLock);
        let count = self.columns.len();
        // Attributes without a column get their defaults.
        options.columns.names = Some(self.names.iter().take(count).cloned().collect());
        let sets = self.attributes.iter().take(count).filter_map(|attnum| usize::try_from(attnum - 1).ok());
        program.query = Some(MemoryContext::current().keep(Query {
            text: self.text.clone(),
            plan,
            running: Cell::new(std::ptr::null_mut()),
            is_active: Cell::new(false),
            sets: sets.collect(),
            call: self.call,
            reads_target: plan.relations().iter().any(|oid| loaded.contains(&oid)),
        }));
    }
}

/// A subquery's column as an expression of the outer query; unknown-type literals stay literals. Guarded.
fn column_of(entry: Node<'static, pg_sys::TargetEntry>) -> Node<'static> {
    let expression = entry.expr();
    if expression.as_a::<pg_sys::Const>().is_some_and(|constant| constant.consttype == pg_sys::UNKNOWNOID) {
        return expression;
    }
    // SAFETY: guarded calls, which make a node. Nothing else refers to it.
    unsafe {
        let variable = pg_sys::makeVarFromTargetEntry(1, entry.as_ptr());
        (*variable).location = pg_sys::exprLocation(expression.as_ptr());
        Node::from_raw(variable.cast()).unwrap_or(expression)
    }
}

/// A query of all the target's attributes over this query, for a complete analysis. Guarded, as the next functions are.
fn over(analysis: &QueryAnalysis, below: Node<'static, pg_sys::Query>) -> Node<'static, pg_sys::Query> {
    select(targets(analysis), Some(subquery(below)), false, false)
}

/// A query of all the target's attributes over one row of VALUES, analyzed with this state.
fn over_nothing(analysis: &QueryAnalysis, state: &pg_sys::ParseState) -> Node<'static, pg_sys::Query> {
    select(targets(analysis), None, state.p_hasSubLinks, state.p_hasTargetSRFs)
}

/// A query of all the target's attributes over several rows of VALUES, analyzed with this state. The columns are those of the
/// last row, coerced as all are.
fn over_rows(analysis: &mut QueryAnalysis, state: &pg_sys::ParseState) -> Node<'static, pg_sys::Query> {
    let rows = values(analysis.rows.iter().copied().collect::<NodeList<'_>>().of(), &analysis.columns);
    for (column, number) in analysis.columns.iter_mut().zip(1..) {
        *column = variable(1, number, (column.type_oid(), column.typmod(), pg_sys::InvalidOid)).node();
    }
    select(targets(analysis), Some(rows), state.p_hasSubLinks, false)
}

/// A value for each of the target's attributes: NULL for one without a column.
fn targets(analysis: &QueryAnalysis) -> NodeList<'static, pg_sys::TargetEntry> {
    let columns = || analysis.attributes.iter().zip(&analysis.columns);
    let value = |form: &pg_sys::FormData_pg_attribute| {
        let column = columns().find(|(attnum, _)| **attnum == form.attnum);
        target(column.map_or_else(|| null(form), |(_, column)| *column), form.attnum, None)
    };
    analysis.relation.descriptor().attributes().map(value).collect()
}

/// SQL functions (pg_language.dat)
const SQL: u32 = 14;
/// PROVOLATILE_VOLATILE (pg_proc.h)
const VOLATILE: u8 = b'v';

/// Changes an analyzed query so that its rows come one by one, if it reads from a single function. Guarded.
///
/// # Safety
/// Nothing else refers to the query.
unsafe fn let_stream(query: Node<'_, pg_sys::Query>) {
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
    call.funcretset && (language_of(function) != Some(SQL) || volatility(function) == VOLATILE)
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

/// Raises if there are too few or too many columns for the target's.
///
/// # Safety
/// A plain frame; the state that the columns were analyzed with.
unsafe fn complain_of_count(analysis: &QueryAnalysis, state: *mut pg_sys::ParseState) {
    let (most, count) = (analysis.attributes.len(), analysis.columns.len());
    if count <= most && (count == most || !analysis.is_list) {
        return;
    }
    // SAFETY: the frame is plain; formats without arguments.
    unsafe {
        if c::errstart_cold(pg_sys::PGERROR.cast_signed(), std::ptr::null()) {
            c::errcode(Code::ERRCODE_SYNTAX_ERROR as i32);
            match analysis.columns.get(most) {
                Some(first) => {
                    c::errmsg(c"INSERT has more expressions than target columns".as_ptr());
                    c::parser_errposition(state, c::exprLocation(first.as_ptr()));
                }
                None => {
                    c::errmsg(c"INSERT has more target columns than expressions".as_ptr());
                }
            }
            c::errfinish(c"query.rs".as_ptr(), 0, c"complain_of_count".as_ptr());
        }
    }
}

/// An error context callback: the position refers to the option's text, and not to the caller's statement.
///
/// # Safety
/// Called by the server, with the text that is being analyzed.
unsafe extern "C-unwind" fn within_text(text: Opaque) {
    // SAFETY: an error is being reported.
    unsafe {
        let position = c::geterrposition();
        if position > 0 {
            c::errposition(0);
            c::internalerrposition(position);
            c::internalerrquery(text.cast::<c_char>());
        }
    }
}
