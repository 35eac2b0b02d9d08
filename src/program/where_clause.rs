//! The `where` option: from text to an expression over the target's columns.
//!
//! It is COPY's WHERE, so COPY's grammar parses it: the text after `COPY … WHERE ` must leave one COPY statement and
//! nothing after it. The transformation and the errors are those of DoCopy (copy.c). Positions in errors refer to the
//! option's text, not to the user's statement.
//!
//! Analysis runs in a plain frame: constant folding runs user code, and a guard would drop the positions.

use std::ffi::{CStr, CString, c_char, c_int};

use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use crate::error::Error;
use crate::server::compat::{self, Rights};
use crate::server::server_text::from_server;
use crate::server::unguarded::{self as c, Opaque, guarded};

const COPY: &[u8] = b"COPY t FROM STDIN WHERE ";

/// The statement to be parsed.
pub fn statement(option: &CStr) -> CString {
    CString::new([COPY, option.to_bytes()].concat()).unwrap_or_default()
}

/// An analyzed clause.
#[derive(Debug, Clone, Copy)]
pub struct WhereClause {
    /// Expressions that must all be true.
    pub conditions: *mut pg_sys::List,
    pub rights: Rights,
}

impl WhereClause {
    pub const NONE: WhereClause = WhereClause {
        conditions: std::ptr::null_mut(),
        rights: Rights { selects: false, selected: std::ptr::null_mut() },
    };
}

/// Analyzes a clause over `relation`.
///
/// # Safety
/// A plain frame; an open relation; `statement` is made by [`statement`] and outlives the call. The result lives as
/// long as the current memory context.
pub unsafe fn analyze(relation: pg_sys::Relation, statement: *const c_char) -> WhereClause {
    // SAFETY: this function's contract covers the arguments; parse trees are freed with the context.
    unsafe {
        let mut context = pg_sys::ErrorContextCallback {
            previous: pg_sys::error_context_stack,
            callback: Some(within_option),
            arg: statement.cast_mut().cast(),
        };
        pg_sys::error_context_stack = &raw mut context;
        let expression = only_clause(c::raw_parser(statement, pg_sys::RawParseMode::RAW_PARSE_DEFAULT));
        if expression.is_null() {
            guarded::<()>(|| Error::new(Code::ERRCODE_SYNTAX_ERROR, "where must be one expression").raise());
        }
        let state = c::make_parsestate(std::ptr::null_mut());
        (*state).p_sourcetext = statement;
        let clause = transform(state, relation, expression);
        pg_sys::error_context_stack = context.previous;
        clause
    }
}

/// Transforms an expression as DoCopy (copy.c) does with its WHERE.
///
/// # Safety
/// A plain frame; an open relation; an expression that the parser made of the state's text and that nothing else uses.
/// The result lives as long as the current memory context.
pub unsafe fn transform(
    state: *mut pg_sys::ParseState,
    relation: pg_sys::Relation,
    expression: *mut pg_sys::Node,
) -> WhereClause {
    // SAFETY: this function's contract covers the arguments.
    unsafe {
        let lock = pg_sys::RowExclusiveLock.cast_signed();
        let item = c::addRangeTableEntryForRelation(state, relation, lock, std::ptr::null_mut(), false, false);
        compat::want_insert(item);
        c::addNSItemToQuery(state, item, false, true, true);
        let kind = pg_sys::ParseExprKind::EXPR_KIND_COPY_WHERE;
        let node = c::transformExpr(state, expression, kind);
        let node = c::coerce_to_boolean(state, node, c"WHERE".as_ptr());
        c::assign_expr_collations(state, node);
        refuse_generated(relation, node);
        let node = c::eval_const_expressions(std::ptr::null_mut(), node);
        let node = c::canonicalize_qual(node.cast(), false);
        let conditions = c::make_ands_implicit(node);
        WhereClause { conditions, rights: compat::wanted_rights(item) }
    }
}

/// The clause, if the text is one COPY statement.
///
/// # Safety
/// The parser's result.
pub unsafe fn only_clause(parsed: *mut pg_sys::List) -> *mut pg_sys::Node {
    // SAFETY: the parser makes lists of RawStmt; the tag gives the node type.
    unsafe {
        if parsed.is_null() || (*parsed).length != 1 {
            return std::ptr::null_mut();
        }
        let raw = (*(*parsed).elements).ptr_value.cast::<pg_sys::RawStmt>();
        let statement = (*raw).stmt;
        if (*statement).type_ != pg_sys::NodeTag::T_CopyStmt {
            return std::ptr::null_mut();
        }
        (*statement.cast::<pg_sys::CopyStmt>()).whereClause
    }
}

/// Raises if the clause reads a generated column, which is computed after the clause.
///
/// # Safety
/// An open relation, and an expression over it alone.
#[pg_guard]
unsafe extern "C-unwind" fn refuse_generated(relation: pg_sys::Relation, node: *mut pg_sys::Node) {
    let first = pg_sys::FirstLowInvalidHeapAttributeNumber;
    // SAFETY: guarded calls; this function's contract covers relation and expression.
    unsafe {
        let mut attributes: *mut pg_sys::Bitmapset = std::ptr::null_mut();
        pg_sys::pull_varattnos(node, 1, &raw mut attributes);
        let whole_row = pg_sys::bms_is_member(-first, attributes);
        for index in 0..usize::try_from((*(*relation).rd_att).natts).unwrap_or(0) {
            let form = &*compat::attribute((*relation).rd_att, index);
            let member = pg_sys::bms_is_member(c_int::from(form.attnum) - first, attributes);
            if form.attgenerated != 0 && !form.attisdropped && (member || whole_row) {
                let name = from_server(CStr::from_ptr(form.attname.data.as_ptr()));
                let message = "generated columns are not supported in COPY FROM WHERE conditions";
                Error::new(Code::ERRCODE_INVALID_COLUMN_REFERENCE, message)
                    .detail(format!("Column \"{name}\" is a generated column."))
                    .raise();
            }
        }
    }
}

/// An error context callback: turns a position in the statement into one in the option.
///
/// # Safety
/// Called by the server, with the statement that is being analyzed.
pub unsafe extern "C-unwind" fn within_option(statement: Opaque) {
    // SAFETY: an error is being reported, and the statement is COPY followed by the option.
    unsafe {
        let position = c::geterrposition();
        if position > 0 {
            let before = COPY.len() as c_int;
            c::errposition(0);
            c::internalerrposition((position - before).max(1));
            c::internalerrquery(statement.cast::<c_char>().add(COPY.len()));
        }
    }
}
