//! Raises errors for constraint violations that pg_bulk finds, with the messages of the functions in core.

use std::ffi::c_int;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::relation::Relation;
use super::unguarded::{self as c, guard};

const MOST_KEYS: usize = pg_sys::INDEX_MAX_KEYS as usize;

/// Raise the error for a duplicate key (_bt_check_unique, nbtinsert.c). Its values are shown if the user may see them.
/// Guarded.
///
/// # Safety
/// The index is one of the table, and has these values in its key columns.
pub unsafe fn raise_unique(
    relation: Relation<'_>,
    index: Relation<'_>,
    values: &mut [pg_sys::Datum; MOST_KEYS],
    nulls: &mut [bool; MOST_KEYS],
) {
    let (relation, index) = (relation.as_ptr(), index.as_ptr());
    // SAFETY: guarded calls on open relations, with a value for each key; the closure owns nothing. The last call does
    // not return.
    unsafe {
        let key = pg_sys::BuildIndexValueDescription(index, values.as_mut_ptr(), nulls.as_mut_ptr());
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
