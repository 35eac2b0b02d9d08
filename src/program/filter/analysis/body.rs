//! Inlines the body of an SQL function that is one SELECT of expressions.
//!
//! inline_function (clauses.c) inlines functions that return one value. This module does it for a function that returns
//! a row, which the planner does not: each column's expression becomes one over the arguments. A WHERE is supported: if
//! it is not true, there is no row, so the result is NULL. STRICT is supported as a condition on the arguments. Each
//! argument is a column of the input row, so its repeated use costs nothing.
//!
//! A function with any other body is called.

use std::ffi::{CString, c_char, c_int};

use pgrx::{PgList, pg_guard, pg_sys};

use super::super::signature::{argument, is_row};
use super::super::{FUNCTION, SQL_LANGUAGE, text_of, with_row};
use super::{FilterAnalysis, MappedColumn};
use crate::program::variable;
use crate::server::compat;
use crate::server::unguarded::{self as c, Opaque};

/// PROVOLATILE_ (pg_proc.h)
const IMMUTABLE: u8 = b'i';
const STABLE: u8 = b's';

/// A body to inline.
#[derive(Debug)]
pub struct Body {
    name: CString,
    /// A copy of the function's row in pg_proc.
    row: pg_sys::HeapTuple,
    /// The body as text; or as nodes, if it was parsed when the function was created.
    text: *mut c_char,
    nodes: *mut pg_sys::Node,
    volatility: u8,
    is_strict: bool,
}

impl Body {
    /// Reads a function's body. None if the function must be called. Guarded; allocates in the current memory context.
    pub fn of(function: pg_sys::Oid) -> Option<Body> {
        let body = with_row(function, |row| {
            // SAFETY: guarded calls on a row that is held.
            unsafe {
                let form = &*pg_sys::GETSTRUCT(row).cast::<pg_sys::FormData_pg_proc>();
                let has_settings =
                    !pg_sys::heap_attisnull(row, pg_sys::Anum_pg_proc_proconfig as c_int, std::ptr::null_mut());
                if form.prolang != pg_sys::Oid::from(SQL_LANGUAGE)
                    || form.prokind.cast_unsigned() != FUNCTION
                    || form.prosecdef
                    || has_settings
                {
                    return None;
                }
                let nodes = text_of(row, pg_sys::Anum_pg_proc_prosqlbody);
                Some(Body {
                    name: std::ffi::CStr::from_ptr(form.proname.data.as_ptr()).to_owned(),
                    row: pg_sys::heap_copytuple(row),
                    text: text_of(row, pg_sys::Anum_pg_proc_prosrc)?,
                    nodes: nodes.map_or(std::ptr::null_mut(), |text| pg_sys::stringToNode(text).cast()),
                    volatility: form.provolatile.cast_unsigned(),
                    is_strict: form.proisstrict,
                })
            }
        });
        // SAFETY: a hook that another library has set, called as core calls it.
        let is_watched = unsafe { pg_sys::needs_fmgr_hook.is_some_and(|hook| c::guard(|| hook(function))) };
        body.flatten().filter(|_| !is_watched)
    }
}

/// Replaces the call by the body, if possible.
///
/// # Safety
/// A plain frame; a valid analysis that nothing else uses.
pub unsafe fn inline(analysis: *mut FilterAnalysis) {
    // SAFETY: this function's contract covers the analysis; nothing in this frame has a destructor.
    unsafe {
        let body = match (*analysis).body.as_ref() {
            Some(body) => &raw const *body,
            None => return,
        };
        let mut context = pg_sys::ErrorContextCallback {
            previous: pg_sys::error_context_stack,
            callback: Some(while_inlining),
            arg: body.cast_mut().cast(),
        };
        pg_sys::error_context_stack = &raw mut context;
        let query = query(analysis, body);
        if !query.is_null() {
            take(analysis, query);
        }
        pg_sys::error_context_stack = context.previous;
    }
}

/// The only statement of the body, analyzed; null if it is not a query.
///
/// # Safety
/// As [`inline`], with its body.
unsafe fn query(analysis: *const FilterAnalysis, body: *const Body) -> *mut pg_sys::Query {
    // SAFETY: this function's contract covers both arguments. The parser makes lists of RawStmt; a body that was parsed
    // is a query, or a list of lists of queries; tags give the node types.
    unsafe {
        let none = std::ptr::null_mut();
        let mut node = (*body).nodes;
        if !node.is_null() {
            // A body without a statement is a list with an empty list, which is null.
            for _ in 0..2 {
                if (*node).type_ == pg_sys::NodeTag::T_List {
                    let list = node.cast::<pg_sys::List>();
                    if (*list).length != 1 {
                        return none;
                    }
                    node = (*(*list).elements).ptr_value.cast();
                    if node.is_null() {
                        return none;
                    }
                }
            }
            return if (*node).type_ == pg_sys::NodeTag::T_Query { node.cast() } else { none };
        }
        let parsed = c::raw_parser((*body).text, pg_sys::RawParseMode::RAW_PARSE_DEFAULT);
        if parsed.is_null() || (*parsed).length != 1 {
            return none;
        }
        let raw = (*(*parsed).elements).ptr_value.cast::<pg_sys::RawStmt>();
        if (*(*raw).stmt).type_ != pg_sys::NodeTag::T_SelectStmt {
            return none;
        }
        let state = c::make_parsestate(std::ptr::null_mut());
        (*state).p_sourcetext = (*body).text;
        let call = (*analysis).call;
        let arguments = c::prepare_sql_fn_parse_info((*body).row, call.cast(), (*call).inputcollid);
        c::sql_fn_parser_setup(state, arguments);
        c::transformTopLevelStmt(state, raw)
    }
}

/// Takes a query's columns and its condition, if it has nothing else.
///
/// # Safety
/// A valid analysis, and a query over its function's arguments.
#[pg_guard]
unsafe extern "C-unwind" fn take(analysis: *mut FilterAnalysis, query: *const pg_sys::Query) {
    // SAFETY: this function's contract covers both arguments; guarded calls on the query's nodes.
    unsafe {
        let (analysis, query) = (&mut *analysis, &*query);
        let Some(body) = analysis.body.as_ref() else { return };
        if !is_simple(query) {
            return;
        }
        let targets = PgList::<pg_sys::TargetEntry>::from_pg(query.targetList);
        let columns: Vec<*mut pg_sys::Node> =
            targets.iter_ptr().filter(|entry| !(**entry).resjunk).map(|entry| (*entry).expr.cast()).collect();
        let condition = (*query.jointree).quals;
        let all = query.targetList.cast::<pg_sys::Node>();
        // The body must not be more volatile than the function's declaration.
        let is_honest = match body.volatility {
            IMMUTABLE => !pg_sys::contain_mutable_functions(all) && !pg_sys::contain_mutable_functions(condition),
            STABLE => !pg_sys::contain_volatile_functions(all) && !pg_sys::contain_volatile_functions(condition),
            _ => true,
        };
        let only = columns.first().copied().filter(|_| columns.len() == 1);
        let is_result = |&node: &*mut pg_sys::Node| pg_sys::getBaseType(pg_sys::exprType(node)) == analysis.result_type;
        let mut whole = only.filter(is_result);
        let mut columns = columns;
        if whole.is_none() && only.is_some_and(|node| stands_for_row(node, analysis.result_type)) {
            return;
        }
        if let Some(node) = only.filter(|&node| pg_sys::exprType(node) == pg_sys::RECORDOID) {
            // The type `record` does not describe such a row, and its columns must be compared with the function's
            // declared result. So only a row constructor, whose columns are visible, is inlined. For any other row the
            // function is called.
            let parts = if (*node).type_ == pg_sys::NodeTag::T_RowExpr {
                PgList::<pg_sys::Node>::from_pg((*node.cast::<pg_sys::RowExpr>()).args)
            } else {
                return;
            };
            let is_alike = |(node, place): (*mut pg_sys::Node, &MappedColumn)| pg_sys::exprType(node) == place.type_oid;
            if analysis.result_type != pg_sys::RECORDOID
                || parts.len() != analysis.places.len()
                || !parts.iter_ptr().zip(&analysis.places).all(is_alike)
            {
                return;
            }
            columns = parts.iter_ptr().collect();
            whole = None;
        }
        if !is_honest || (whole.is_none() && columns.len() != analysis.live.len()) {
            return;
        }
        let descriptor: Opaque = analysis.descriptor.cast();
        let mut quals = PgList::<pg_sys::Node>::new();
        // A row argument itself is never NULL.
        if body.is_strict && !is_row(analysis.descriptor) {
            for number in 0..usize::try_from((*analysis.descriptor).natts).unwrap_or(0) {
                let test = pg_sys::palloc0(size_of::<pg_sys::NullTest>()).cast::<pg_sys::NullTest>();
                (*test).xpr.type_ = pg_sys::NodeTag::T_NullTest;
                (*test).arg = variable(analysis.descriptor, number).cast();
                (*test).nulltesttype = pg_sys::NullTestType::IS_NOT_NULL;
                (*test).location = -1;
                quals.push(test.cast());
            }
        }
        let conditions = pg_sys::make_ands_implicit(over_arguments(condition, descriptor).cast());
        let conditions = PgList::<pg_sys::Node>::from_pg(conditions);
        conditions.iter_ptr().for_each(|node| quals.push(node));
        analysis.quals = quals.into_pg();
        match whole {
            // The argument itself, which is a row of that type.
            Some(row)
                if is_row(analysis.descriptor)
                    && (*row).type_ == pg_sys::NodeTag::T_Param
                    && pg_sys::exprType(row) == analysis.result_type =>
            {
                let column = |at| variable(analysis.descriptor, at).cast();
                let live = |at| analysis.live.contains(&at);
                let columns = (0..analysis.width).map(|at| if live(at) { column(at) } else { std::ptr::null_mut() });
                analysis.columns = columns.collect();
                analysis.row = std::ptr::null_mut();
            }
            Some(row) => analysis.row = over_arguments(row, descriptor),
            None => {
                // Dropped columns get no value.
                analysis.columns = vec![std::ptr::null_mut(); analysis.width];
                for (&at, node) in analysis.live.iter().zip(columns) {
                    if let Some(column) = analysis.columns.get_mut(at) {
                        *column = over_arguments(node, descriptor);
                    }
                }
                analysis.row = std::ptr::null_mut();
            }
        }
    }
}

/// Is the only column of the SELECT the whole row (check_sql_fn_retval, functions.c)? Guarded.
///
/// # Safety
/// An expression.
unsafe fn stands_for_row(node: *mut pg_sys::Node, result_type: pg_sys::Oid) -> bool {
    // SAFETY: this function's contract covers the argument; guarded calls.
    unsafe {
        let given = pg_sys::exprType(node);
        let assignment = pg_sys::CoercionContext::COERCION_ASSIGNMENT;
        given != pg_sys::RECORDOID
            && pg_sys::type_is_rowtype(given)
            && pg_sys::can_coerce_type(1, &raw const given, &raw const result_type, assignment)
    }
}

/// Is the query a SELECT of expressions, perhaps with a condition?
fn is_simple(query: &pg_sys::Query) -> bool {
    if query.commandType != pg_sys::CmdType::CMD_SELECT || query.jointree.is_null() {
        return false;
    }
    // SAFETY: it has a join tree.
    let has_from = unsafe { !(*query.jointree).fromlist.is_null() };
    query.utilityStmt.is_null()
        && !query.hasAggs
        && !query.hasWindowFuncs
        && !query.hasTargetSRFs
        && !query.hasSubLinks
        && !query.hasModifyingCTE
        && query.cteList.is_null()
        && query.rtable.is_null()
        && !has_from
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

/// Replaces the body's parameters by columns of the input row. Guarded.
///
/// # Safety
/// An expression of the body, or null, and the descriptor of the arguments.
unsafe fn over_arguments(node: *mut pg_sys::Node, descriptor: Opaque) -> *mut pg_sys::Node {
    // SAFETY: this function's contract covers both arguments.
    unsafe { with_variables(node, descriptor) }
}

#[pg_guard]
unsafe extern "C-unwind" fn with_variables(node: *mut pg_sys::Node, descriptor: Opaque) -> *mut pg_sys::Node {
    // SAFETY: called with the nodes of an expression; a parameter of the body is an argument.
    unsafe {
        if node.is_null() {
            return node;
        }
        if (*node).type_ == pg_sys::NodeTag::T_Param {
            let number = usize::try_from((*node.cast::<pg_sys::Param>()).paramid - 1).unwrap_or(0);
            let variable = argument(descriptor.cast(), number);
            // With the collation of the call.
            (*variable).varcollid = (*node.cast::<pg_sys::Param>()).paramcollid;
            return variable.cast();
        }
        compat::expression_tree_mutator(node, with_variables, descriptor)
    }
}

/// Takes the columns of a row constructor.
///
/// # Safety
/// A valid analysis with a row.
#[pg_guard]
pub unsafe extern "C-unwind" fn explode(analysis: *mut FilterAnalysis) {
    // SAFETY: this function's contract covers the argument; the tag gives the node type.
    unsafe {
        let analysis = &mut *analysis;
        if (*analysis.row).type_ != pg_sys::NodeTag::T_RowExpr {
            return;
        }
        let columns = PgList::<pg_sys::Node>::from_pg((*analysis.row.cast::<pg_sys::RowExpr>()).args);
        if columns.len() == analysis.width {
            analysis.columns = columns.iter_ptr().collect();
            analysis.row = std::ptr::null_mut();
        }
    }
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
            c::internalerrquery((*body).text);
        }
        c::set_errcontext_domain(std::ptr::null());
        let name = (*body).name.as_ptr();
        c::errcontext_msg(c"SQL function \"%s\" during inlining".as_ptr(), name);
    }
}
