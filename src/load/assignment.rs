//! What is assigned to a column: the value of an expression in the column's type, or the words that refuse it.
//!
//! An expression of the option `columns`, a column of a query and one of a filter's row become values of the target's columns as in an
//! INSERT. Its place can be told in a plain frame alone: where there is none to tell, or a guard is between, it is left out.

use std::ffi::CStr;

use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use crate::error::Error;
use crate::pg::server_text::from_server;
use crate::pg::unguarded as c;

/// A value of this type from an expression, as an assignment makes it; null if it cannot be assigned.
///
/// # Safety
/// A plain frame; a parse state and an expression, which outlive what is returned.
pub unsafe fn assign(
    state: *mut pg_sys::ParseState,
    node: *mut pg_sys::Node,
    type_oid: pg_sys::Oid,
    typmod: i32,
) -> *mut pg_sys::Node {
    // SAFETY: this function's contract covers both arguments.
    unsafe {
        c::coerce_to_target_type(
            state,
            node,
            c::exprType(node),
            type_oid,
            typmod,
            pg_sys::CoercionContext::COERCION_ASSIGNMENT,
            pg_sys::CoercionForm::COERCE_IMPLICIT_CAST,
            -1,
        )
    }
}

/// What transformAssignedExpr (parse_target.c) says of a value that cannot be one of this column, without its place.
///
/// # Safety
/// An expression that cannot become a value of this column.
#[pg_guard]
pub unsafe extern "C-unwind" fn complain(node: *mut pg_sys::Node, form: *const pg_sys::FormData_pg_attribute) {
    // SAFETY: this function's contract covers both arguments; guarded calls, and strings that they return.
    unsafe {
        let name = from_server(CStr::from_ptr((*form).attname.data.as_ptr()));
        let kind = |oid| from_server(CStr::from_ptr(pg_sys::format_type_be(oid)));
        let (wanted, given) = (kind((*form).atttypid), kind(pg_sys::exprType(node)));
        let message = format!("column \"{name}\" is of type {wanted} but expression is of type {given}");
        Error::new(Code::ERRCODE_DATATYPE_MISMATCH, message)
            .hint("You will need to rewrite or cast the expression.")
            .raise();
    }
}

/// What transformAssignedExpr (parse_target.c) says of a value that cannot be one of this column.
///
/// # Safety
/// A plain frame; an expression, the state that it was analyzed with, and a column.
pub unsafe fn complain_at(
    state: *mut pg_sys::ParseState,
    value: *mut pg_sys::Node,
    form: *const pg_sys::FormData_pg_attribute,
) {
    // SAFETY: this function's contract covers all arguments; formats and arguments agree.
    unsafe {
        if c::errstart_cold(pg_sys::PGERROR.cast_signed(), std::ptr::null()) {
            c::errcode(Code::ERRCODE_DATATYPE_MISMATCH as i32);
            c::errmsg(
                c"column \"%s\" is of type %s but expression is of type %s".as_ptr(),
                (*form).attname.data.as_ptr(),
                c::format_type_be((*form).atttypid),
                c::format_type_be(c::exprType(value)),
            );
            c::errhint(c"You will need to rewrite or cast the expression.".as_ptr());
            c::parser_errposition(state, c::exprLocation(value));
            c::errfinish(c"assignment.rs".as_ptr(), 0, c"complain_at".as_ptr());
        }
    }
}
