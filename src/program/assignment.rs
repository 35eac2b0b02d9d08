//! Assignment of an expression to a column of the target: coercion to the column's type, or an error.
//!
//! Expressions of the option `columns`, columns of a query and columns of a filter's row are assigned as INSERT assigns
//! them. An error has a cursor position only in a plain frame; [`complain`] is behind a guard and leaves the position
//! out.

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use crate::error::Error;
use crate::server::lookup::type_name;
use crate::server::node::Node;
use crate::server::relation::attribute_name;
use crate::server::unguarded as c;

/// Coerces an expression to a type as an assignment does; null if there is no assignment cast.
///
/// # Safety
/// A plain frame; a parse state and an expression, which outlive the result.
pub unsafe fn assign(
    state: *mut pg_sys::ParseState,
    node: *mut pg_sys::Node,
    type_oid: pg_sys::Oid,
    typmod: i32,
) -> *mut pg_sys::Node {
    // SAFETY: the frame is plain; both arguments are valid.
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

/// Raises transformAssignedExpr's error (parse_target.c) about a value of the wrong type, without its position. Guarded.
pub fn complain(node: Node<'_>, form: &pg_sys::FormData_pg_attribute) -> ! {
    let (name, wanted, given) = (attribute_name(form), type_name(form.atttypid), type_name(node.type_oid()));
    let message = format!("column \"{name}\" is of type {wanted} but expression is of type {given}");
    Error::new(Code::ERRCODE_DATATYPE_MISMATCH, message)
        .hint("You will need to rewrite or cast the expression.")
        .raise()
}

/// Raises transformAssignedExpr's error (parse_target.c) about a value of the wrong type, with its position.
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
