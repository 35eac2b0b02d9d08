//! Completes a query to all of the target's attributes: over a subquery, one row of VALUES, or several.

use pgrx::{PgList, pg_guard, pg_sys};

use super::super::function;
use super::QueryAnalysis;
use crate::server::compat;

/// A query of all the target's attributes over this query.
///
/// # Safety
/// A valid analysis that is complete, and its query.
#[pg_guard]
pub(super) unsafe extern "C-unwind" fn over(
    analysis: *const QueryAnalysis,
    below: *mut pg_sys::Query,
) -> *mut pg_sys::Query {
    // SAFETY: this function's contract covers both arguments; guarded calls.
    unsafe {
        let query = function::select();
        (*query).targetList = targets(&*analysis);
        function::select_from(query, below);
        query
    }
}

/// A query of all the target's attributes over one row of VALUES.
///
/// # Safety
/// A valid analysis that is complete, and the state that it was made with.
#[pg_guard]
pub(super) unsafe extern "C-unwind" fn over_nothing(
    analysis: *const QueryAnalysis,
    state: *const pg_sys::ParseState,
) -> *mut pg_sys::Query {
    // SAFETY: this function's contract covers both arguments; guarded calls.
    unsafe {
        let query = function::select();
        (*query).targetList = targets(&*analysis);
        ((*query).hasSubLinks, (*query).hasTargetSRFs) = ((*state).p_hasSubLinks, (*state).p_hasTargetSRFs);
        query
    }
}

/// A query of all the target's attributes over several rows of VALUES.
///
/// # Safety
/// A valid analysis that is complete, and the state that it was made with.
#[pg_guard]
pub(super) unsafe extern "C-unwind" fn over_rows(
    analysis: *mut QueryAnalysis,
    state: *const pg_sys::ParseState,
) -> *mut pg_sys::Query {
    // SAFETY: this function's contract covers both arguments; guarded calls; the columns are those of the last row,
    // coerced as all are.
    unsafe {
        let query = function::select();
        function::select_values(query, (*analysis).rows, &(*analysis).columns);
        let of_rows = |(column, number)| {
            let column: *mut pg_sys::Node = column;
            let (kind, modifier) = (pg_sys::exprType(column), pg_sys::exprTypmod(column));
            pg_sys::makeVar(1, number, kind, modifier, pg_sys::InvalidOid, 0).cast()
        };
        (*analysis).columns = (*analysis).columns.iter().copied().zip(1..).map(of_rows).collect();
        (*query).targetList = targets(&*analysis);
        (*query).hasSubLinks = (*state).p_hasSubLinks;
        query
    }
}

/// A value for each of the target's attributes: NULL for one without a column. Guarded.
fn targets(analysis: &QueryAnalysis) -> *mut pg_sys::List {
    let columns = || analysis.attributes.iter().zip(&analysis.columns);
    let mut targets = PgList::<pg_sys::TargetEntry>::new();
    // SAFETY: guarded calls; an open relation, and attributes that it has.
    unsafe {
        let descriptor = (*analysis.relation).rd_att;
        for (index, number) in (0..usize::try_from((*descriptor).natts).unwrap_or(0)).zip(1..) {
            let form = &*compat::attribute(descriptor, index);
            let value: *mut pg_sys::Expr = match columns().find(|(attnum, _)| **attnum == number) {
                Some((_, column)) => (*column).cast(),
                None if form.attisdropped => pg_sys::makeNullConst(pg_sys::INT4OID, -1, pg_sys::InvalidOid).cast(),
                None => pg_sys::makeNullConst(form.atttypid, form.atttypmod, form.attcollation).cast(),
            };
            targets.push(pg_sys::makeTargetEntry(value, number, std::ptr::null_mut(), false));
        }
    }
    targets.into_pg()
}
