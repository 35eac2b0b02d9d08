//! Raises errors for constraint violations that pg_bulk finds, with the messages of the functions in core.

use std::ffi::c_int;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::unguarded::{self as c, guard};

/// Raise the error for a duplicate key (_bt_check_unique, nbtinsert.c). Its values are shown if the user may see them.
/// Guarded.
///
/// # Safety
/// An open table, one of its indexes, and a value for each key column of the index.
pub unsafe fn raise_unique(
    relation: pg_sys::Relation,
    index: pg_sys::Relation,
    values: *mut pg_sys::Datum,
    nulls: *mut bool,
) {
    // SAFETY: this function's contract covers all arguments; the closure owns nothing. The last call does not return.
    unsafe {
        let key = pg_sys::BuildIndexValueDescription(index, values, nulls);
        let name = (*(*index).rd_rel).relname.data.as_ptr();
        guard(|| {
            c::errstart_cold(pgrx::PgLogLevel::ERROR as c_int, std::ptr::null());
            c::errcode(Code::ERRCODE_UNIQUE_VIOLATION as c_int);
            c::errmsg(c"duplicate key value violates unique constraint \"%s\"".as_ptr(), name);
            if !key.is_null() {
                c::errdetail(c"Key %s already exists.".as_ptr(), key);
            }
            c::errtableconstraint(relation, name);
            c::errfinish(c"violation.rs".as_ptr(), 0, c"raise_unique".as_ptr());
        });
    }
}
