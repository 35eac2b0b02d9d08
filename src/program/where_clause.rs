//! The `where` option: from text to an expression over the target's columns.
//!
//! It is COPY's WHERE, so COPY's grammar parses it: the text after `COPY … WHERE ` must leave one COPY statement and
//! nothing after it. The transformation and the errors are those of DoCopy (copy.c). Positions in errors refer to the
//! option's text, not to the user's statement.
//!
//! Analysis runs in a plain frame: constant folding runs user code, and a guard would drop the positions.

use std::ffi::{CStr, CString, c_char, c_int};

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use crate::error::{Error, OrRaise, Result};
use crate::server::column_set::ColumnSet;
use crate::server::compat::{self, Rights};
use crate::server::node::{Node, NodeList};
use crate::server::relation::{Relation, attribute_name};
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
    pub conditions: NodeList<'static>,
    pub rights: Rights,
}

impl WhereClause {
    pub const NONE: WhereClause =
        WhereClause { conditions: NodeList::EMPTY, rights: Rights { selects: false, selected: ColumnSet::EMPTY } };
}

/// Analyzes a clause over `relation`.
///
/// # Safety
/// A plain frame; `statement` is made by [`statement`] and outlives the call. The result lives as long as the current memory
/// context.
pub unsafe fn analyze(relation: Relation<'_>, statement: *const c_char) -> WhereClause {
    // SAFETY: the frame is plain; parse trees are freed with the context.
    unsafe {
        c::in_context(within_option, statement.cast_mut().cast(), || {
            let parsed = NodeList::from_raw(c::raw_parser(statement, pg_sys::RawParseMode::RAW_PARSE_DEFAULT));
            let Some(expression) = only_clause(parsed) else {
                guarded::<()>(|| Error::new(Code::ERRCODE_SYNTAX_ERROR, "where must be one expression").raise());
                return WhereClause::NONE;
            };
            let state = c::make_parsestate(std::ptr::null_mut());
            (*state).p_sourcetext = statement;
            transform(state, relation, expression)
        })
    }
}

/// Transforms an expression as DoCopy (copy.c) does with its WHERE.
///
/// # Safety
/// A plain frame; an expression that the parser made of the state's text and that nothing else uses. The result lives as long
/// as the current memory context.
pub unsafe fn transform(state: *mut pg_sys::ParseState, relation: Relation<'_>, expression: Node<'_>) -> WhereClause {
    // SAFETY: the frame is plain, the relation is open, and the functions return nodes.
    unsafe {
        let lock = pg_sys::RowExclusiveLock.cast_signed();
        let item = c::addRangeTableEntryForRelation(state, relation.as_ptr(), lock, std::ptr::null_mut(), false, false);
        compat::want_insert(item);
        c::addNSItemToQuery(state, item, false, true, true);
        let kind = pg_sys::ParseExprKind::EXPR_KIND_COPY_WHERE;
        let node = c::transformExpr(state, expression.as_ptr(), kind);
        let node = c::coerce_to_boolean(state, node, c"WHERE".as_ptr());
        c::assign_expr_collations(state, node);
        if let Some(node) = Node::from_raw(node) {
            guarded(|| refuse_generated(relation, node).or_raise());
        }
        let node = c::eval_const_expressions(std::ptr::null_mut(), node);
        let node = c::canonicalize_qual(node.cast(), false);
        WhereClause { conditions: NodeList::from_raw(c::make_ands_implicit(node)), rights: compat::wanted_rights(item) }
    }
}

/// The clause, if the text is one COPY statement. Raises nothing.
pub fn only_clause<'a>(parsed: NodeList<'a, pg_sys::RawStmt>) -> Option<Node<'a>> {
    let only = parsed.first().filter(|_| parsed.len() == 1)?;
    only.stmt().as_a::<pg_sys::CopyStmt>()?.clause()
}

/// Fails if the clause over this relation alone reads a generated column, which is computed after the clause. Guarded.
fn refuse_generated(relation: Relation<'_>, node: Node<'_>) -> Result<()> {
    let read: Vec<i16> = node.attributes(1).numbers().collect();
    let is_read = |attnum| read.contains(&attnum) || read.contains(&0);
    let mut generated = relation.descriptor().live().filter(|form| form.attgenerated != 0);
    let Some(form) = generated.find(|form| is_read(form.attnum)) else { return Ok(()) };
    let message = "generated columns are not supported in COPY FROM WHERE conditions";
    let detail = format!("Column \"{}\" is a generated column.", attribute_name(form));
    Err(Error::new(Code::ERRCODE_INVALID_COLUMN_REFERENCE, message).detail(detail))
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
