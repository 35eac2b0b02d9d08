//! From the text of a query to its plan, as in transformInsertStmt (analyze.c) except for DEFAULT.
//!
//! The guarded steps keep their results in a [`QueryAnalysis`]; between them, a plain frame calls the parser's own
//! functions. The columns are coerced first; then a query of all the target's attributes is put over them ([`over`]).

mod over;

use std::ffi::{CString, c_char};

use pgrx::memcxt::PgMemoryContexts;
use pgrx::{PgList, PgSqlErrorCode as Code, pg_sys};

use self::over::{over, over_nothing, over_rows};
use super::{Query, function};
use crate::error::{Error, OrRaise};
use crate::load::options::LoadOptions;
use crate::load::{Program, source};
use crate::program::assignment::{assign, complain_at};
use crate::program::volatile::{self, UserCall};
use crate::server::compat;
use crate::server::node::Node;
use crate::server::relation::Relation;
use crate::server::unguarded::{self as c, Opaque, guarded};

/// The state of a query's analysis.
#[derive(Debug)]
struct QueryAnalysis {
    relation: pg_sys::Relation,
    text: CString,
    /// Attributes that the query may have columns for. `is_list`: it must have one for each.
    attributes: Vec<i16>,
    names: Vec<CString>,
    is_list: bool,
    /// The columns of the query, before and after coercion.
    columns: Vec<*mut pg_sys::Node>,
    /// The coerced rows of VALUES, as lists.
    rows: *mut pg_sys::List,
    call: Option<UserCall>,
}

/// Plans the query of a load, if its options have one, and sets its columns in the options.
///
/// # Safety
/// A plain frame; an open relation. The contents of the program live in the current memory context.
pub unsafe fn analyze(relation: pg_sys::Relation, options: &mut LoadOptions, program: &mut Program) {
    // SAFETY: this function's contract covers the relation; objects made here live as long as the analysis.
    unsafe {
        let analysis = guarded(|| begin(Relation::from_raw(relation), options));
        if analysis.is_null() {
            return;
        }
        let text = (*analysis).text.as_ptr();
        let mut context = pg_sys::ErrorContextCallback {
            previous: pg_sys::error_context_stack,
            callback: Some(within_text),
            arg: text.cast_mut().cast(),
        };
        pg_sys::error_context_stack = &raw mut context;
        let select = only_select(c::raw_parser(text, pg_sys::RawParseMode::RAW_PARSE_DEFAULT));
        if select.is_null() {
            guarded(refuse);
        }
        // As transformInsertStmt (analyze.c), except for DEFAULT.
        let state = c::make_parsestate(std::ptr::null_mut());
        (*state).p_sourcetext = text;
        let query = match number_of_values(select) {
            0 => {
                (*state).p_resolve_unknowns = false;
                let query = c::transformStmt(state, select.cast());
                guarded(|| (*analysis).take_columns(query));
                coerce(analysis, state);
                over(analysis, query)
            }
            1 => {
                let kind = pg_sys::ParseExprKind::EXPR_KIND_VALUES_SINGLE;
                let row = c::transformExpressionList(state, row_of_values(select, 0), kind, false);
                guarded(|| (*analysis).take_values(row));
                coerce(analysis, state);
                over_nothing(analysis, state)
            }
            count => {
                for at in 0..count {
                    let kind = pg_sys::ParseExprKind::EXPR_KIND_VALUES;
                    let row = c::transformExpressionList(state, row_of_values(select, at), kind, false);
                    guarded(|| (*analysis).take_values(row));
                    coerce(analysis, state);
                    guarded(|| (*analysis).keep_row());
                }
                over_rows(analysis, state)
            }
        };
        let rewritten = c::pg_rewrite_query(query);
        // Views are expanded.
        guarded(|| (*analysis).call = Node::from_raw(rewritten.cast()).and_then(volatile::call_in));
        let plans = c::pg_plan_queries(rewritten, text, 0, std::ptr::null_mut());
        pg_sys::error_context_stack = context.previous;
        guarded(|| (*analysis).end(plans, options, program));
    }
}

/// Prepares the analysis; null if there is no query.
///
/// # Safety
/// As [`analyze`]. Guarded.
unsafe fn begin(relation: Relation, options: &LoadOptions) -> *mut QueryAnalysis {
    let Some(text) = options.query.clone() else { return std::ptr::null_mut() };
    let Some(mapping) = source::by_position(relation, options).or_raise() else { return std::ptr::null_mut() };
    let analysis = QueryAnalysis {
        relation: relation.as_ptr(),
        text,
        attributes: mapping.fields.into_iter().flatten().collect(),
        names: mapping.names,
        is_list: options.columns.names.is_some(),
        columns: Vec::new(),
        rows: std::ptr::null_mut(),
        call: None,
    };
    PgMemoryContexts::CurrentMemoryContext.leak_and_drop_on_delete(analysis)
}

/// Raises unless the text parses as a query. [`analyze`] does the rest, when the query runs.
///
/// # Safety
/// A plain frame; a string that outlives the call.
pub unsafe fn check(text: *const c_char) {
    // SAFETY: this function's contract covers the string; parse trees are freed with the current memory context.
    unsafe {
        let mut context = pg_sys::ErrorContextCallback {
            previous: pg_sys::error_context_stack,
            callback: Some(within_text),
            arg: text.cast_mut().cast(),
        };
        pg_sys::error_context_stack = &raw mut context;
        if only_select(c::raw_parser(text, pg_sys::RawParseMode::RAW_PARSE_DEFAULT)).is_null() {
            guarded(refuse);
        }
        pg_sys::error_context_stack = context.previous;
    }
}

/// The query, if it is the only statement.
///
/// # Safety
/// The parser's result. Raises nothing.
unsafe fn only_select(parsed: *mut pg_sys::List) -> *mut pg_sys::SelectStmt {
    // SAFETY: the parser makes lists of RawStmt; the tag gives the node type.
    unsafe {
        if parsed.is_null() || (*parsed).length != 1 {
            return std::ptr::null_mut();
        }
        let raw = (*(*parsed).elements).ptr_value.cast::<pg_sys::RawStmt>();
        let statement = (*raw).stmt;
        if (*statement).type_ == pg_sys::NodeTag::T_SelectStmt { statement.cast() } else { std::ptr::null_mut() }
    }
}

/// The number of rows, if the query is VALUES and nothing else (`isGeneralSelect`, analyze.c); else 0.
///
/// # Safety
/// The parser's result. Raises nothing.
unsafe fn number_of_values(select: *const pg_sys::SelectStmt) -> usize {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        let select = &*select;
        let is_more = !select.sortClause.is_null()
            || !select.limitOffset.is_null()
            || !select.limitCount.is_null()
            || !select.lockingClause.is_null()
            || !select.withClause.is_null();
        if is_more {
            0
        } else {
            select.valuesLists.as_ref().map_or(0, |list| usize::try_from(list.length).unwrap_or(0))
        }
    }
}

/// # Safety
/// VALUES with a row of this number. Raises nothing.
unsafe fn row_of_values(select: *const pg_sys::SelectStmt, at: usize) -> *mut pg_sys::List {
    // SAFETY: this function's contract covers the argument: a list of lists.
    unsafe { (*(*(*select).valuesLists).elements.add(at)).ptr_value.cast() }
}

/// Coerces each column to the target's column.
///
/// # Safety
/// A plain frame; a valid analysis with columns, and the state that they were analyzed with.
unsafe fn coerce(analysis: *mut QueryAnalysis, state: *mut pg_sys::ParseState) {
    // SAFETY: this function's contract covers both arguments.
    unsafe {
        complain_of_count(analysis, state);
        let count = (*analysis).columns.len();
        for at in 0..count {
            let place = {
                let columns = &raw mut (*analysis).columns;
                (*columns).as_mut_ptr().add(at)
            };
            let (value, form) = (*place, (*analysis).column(at));
            let made = assign(state, value, (*form).atttypid, (*form).atttypmod);
            if made.is_null() {
                complain_at(state, value, form);
            }
            c::assign_expr_collations(state, made);
            *place = made;
        }
    }
}

/// Guarded.
fn refuse() {
    Error::new(Code::ERRCODE_SYNTAX_ERROR, "query must be one SELECT, VALUES, TABLE or WITH").raise();
}

impl QueryAnalysis {
    /// Stores the query's columns, and makes its rows come one by one. Guarded.
    ///
    /// # Safety
    /// An analyzed query.
    unsafe fn take_columns(&mut self, query: *mut pg_sys::Query) {
        // SAFETY: this function's contract covers the query.
        unsafe {
            if (*query).hasModifyingCTE {
                // The error of INSERT … WITH … (analyzeCTE, parse_cte.c).
                let message = "WITH clause containing a data-modifying statement must be at the top level";
                Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message).raise();
            }
            function::let_stream(query);
            let entries = PgList::<pg_sys::TargetEntry>::from_pg((*query).targetList);
            self.columns =
                entries.iter_ptr().filter(|entry| !(**entry).resjunk).map(|entry| column_of(entry)).collect();
        }
    }

    /// Stores the columns of a row of VALUES. Guarded.
    ///
    /// # Safety
    /// A list of analyzed expressions.
    unsafe fn take_values(&mut self, row: *mut pg_sys::List) {
        // SAFETY: this function's contract covers the list.
        let columns: Vec<_> = unsafe { PgList::<pg_sys::Node>::from_pg(row) }.iter_ptr().collect();
        if !self.rows.is_null() && columns.len() != self.columns.len() {
            let message = "VALUES lists must all be the same length";
            Error::new(Code::ERRCODE_SYNTAX_ERROR, message).raise();
        }
        self.columns = columns;
    }

    /// Keeps the columns as a row of VALUES. Guarded.
    fn keep_row(&mut self) {
        let mut row = PgList::<pg_sys::Node>::new();
        self.columns.iter().for_each(|column| row.push(*column));
        // SAFETY: a guarded call that makes a list.
        self.rows = unsafe { pg_sys::lappend(self.rows, row.into_pg().cast()) };
    }

    /// The target's column for this column of the query. It lives as long as the relation is open. Raises nothing.
    fn column(&self, at: usize) -> *const pg_sys::FormData_pg_attribute {
        let attnum = self.attributes.get(at).copied().unwrap_or(1);
        // SAFETY: an analysis has an open relation, in which `by_position` has found the attributes.
        unsafe { compat::attribute((*self.relation).rd_att, usize::try_from(attnum - 1).unwrap_or(0)) }
    }

    /// Makes the load's query, and sets its columns. Guarded.
    ///
    /// # Safety
    /// The plan.
    unsafe fn end(&self, plans: *mut pg_sys::List, options: &mut LoadOptions, program: &mut Program) {
        let no_plan = || Error::new(Code::ERRCODE_INTERNAL_ERROR, "the query has no plan");
        let no_lock = pg_sys::NoLock.cast_signed();
        // SAFETY: this function's contract covers the plan; guarded calls on the open relation of the analysis.
        let (plan, read, loaded) = unsafe {
            let plan = PgList::<pg_sys::PlannedStmt>::from_pg(plans).get_ptr(0).ok_or_else(no_plan).or_raise();
            let target = (*self.relation).rd_id;
            let loaded = c::guard(|| c::find_all_inheritors(target, no_lock, std::ptr::null_mut()));
            let read = PgList::<pg_sys::Oid>::from_pg((*plan).relationOids);
            (plan, read, PgList::<pg_sys::Oid>::from_pg(loaded))
        };
        let read: Vec<pg_sys::Oid> = read.iter_oid().collect();
        let count = self.columns.len();
        // Attributes without a column get their defaults.
        options.columns.names = Some(self.names.iter().take(count).cloned().collect());
        let sets = self.attributes.iter().take(count).filter_map(|attnum| usize::try_from(attnum - 1).ok());
        program.query = Some(Query {
            text: self.text.clone(),
            plan,
            running: std::ptr::null_mut(),
            is_active: false,
            sets: sets.collect(),
            call: self.call,
            reads_target: loaded.iter_oid().any(|oid| read.contains(&oid)),
        });
    }
}

/// A subquery's column as an expression of the outer query; unknown-type literals stay literals. Guarded.
///
/// # Safety
/// An entry of a target list.
unsafe fn column_of(entry: *mut pg_sys::TargetEntry) -> *mut pg_sys::Node {
    // SAFETY: this function's contract covers the argument; guarded calls; a tag gives the node type.
    unsafe {
        let expression = (*entry).expr.cast::<pg_sys::Node>();
        let is_constant = (*expression).type_ == pg_sys::NodeTag::T_Const;
        if is_constant && pg_sys::exprType(expression) == pg_sys::UNKNOWNOID {
            return expression;
        }
        let variable = pg_sys::makeVarFromTargetEntry(1, entry);
        (*variable).location = pg_sys::exprLocation(expression);
        variable.cast()
    }
}

/// Raises if there are too few or too many columns for the target's.
///
/// # Safety
/// A plain frame; a valid analysis with columns, and the state that they were analyzed with.
unsafe fn complain_of_count(analysis: *const QueryAnalysis, state: *mut pg_sys::ParseState) {
    // SAFETY: this function's contract covers both arguments; formats without arguments.
    unsafe {
        let (most, count) = ((*analysis).attributes.len(), (*analysis).columns.len());
        if count <= most && (count == most || !(*analysis).is_list) {
            return;
        }
        if c::errstart_cold(pg_sys::PGERROR.cast_signed(), std::ptr::null()) {
            c::errcode(Code::ERRCODE_SYNTAX_ERROR as i32);
            if count > most {
                c::errmsg(c"INSERT has more expressions than target columns".as_ptr());
                let columns = &raw const (*analysis).columns;
                let first = *(*columns).as_ptr().add(most);
                c::parser_errposition(state, c::exprLocation(first));
            } else {
                c::errmsg(c"INSERT has more target columns than expressions".as_ptr());
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
