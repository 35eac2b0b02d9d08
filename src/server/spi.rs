//! Statements on the extension's own tables, through SPI.

use std::ffi::{CString, c_char};

use pgrx::{PgList, PgSqlErrorCode as Code, pg_sys};

use super::relation::TupleDesc;
use super::sql_value::SqlValue;
use crate::error::{Error, Result};

/// The rows that a statement returned, and the number of rows that it processed.
#[derive(Debug)]
pub struct StatementResult {
    pub rows: Vec<Vec<SqlValue<'static>>>,
    pub processed: u64,
}

impl StatementResult {
    /// A value of the first row.
    pub fn first(&self, column: usize) -> SqlValue<'static> {
        value(self.rows.first(), column)
    }
}

/// A value of a row; NULL if the row or the column does not exist.
pub fn value(row: Option<&Vec<SqlValue<'static>>>, column: usize) -> SqlValue<'static> {
    row.and_then(|row| row.get(column)).cloned().unwrap_or_else(|| SqlValue::null(pg_sys::InvalidOid))
}

/// What a statement may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read the rows committed by now, at any isolation level.
    ReadLatest,
    /// Read the same rows, and change them. Above READ COMMITTED, a row that another transaction changes before this
    /// one does is an error.
    Write,
}

/// Run one statement. Guarded; arguments are allocated in the current memory context.
///
/// It may use only `tables` and the server's catalogs. Their names alone are not safe. The owner of the extension's
/// schema may rename it, and create other tables under the names in the statement. Their triggers and functions would
/// then run as the extension's owner. So the relations to which parse analysis has resolved the names are checked. They
/// cannot change afterwards: parse analysis has locked them, so planning takes no new lock. Only with a new lock would
/// the server notice a renamed schema, and analyze the statement again.
pub fn execute(
    statement: &[u8],
    arguments: &[SqlValue],
    access: Access,
    tables: &[pg_sys::Oid],
) -> Result<StatementResult> {
    let source = CString::new(statement).unwrap_or_default();
    let mut kinds: Vec<_> = arguments.iter().map(SqlValue::kind).collect();
    let data: Vec<_> = arguments.iter().map(SqlValue::datum).collect();
    let mut values: Vec<_> = data.iter().map(|datum| datum.unwrap_or(pg_sys::Datum::from(0usize))).collect();
    let nulls: Vec<c_char> = data.iter().map(|datum| if datum.is_some() { b' ' } else { b'n' } as c_char).collect();
    let number = i32::try_from(arguments.len()).unwrap_or(0);
    let is_known = |oid: pg_sys::Oid| oid.to_u32() < pg_sys::FirstNormalObjectId || tables.contains(&oid);
    // SAFETY: guarded calls with arrays of that length. A plan has sources, each with the relations that parse analysis
    // found. The result has `numvals` tuples of the descriptor's attributes; they are copied before SPI_finish frees them.
    unsafe {
        let fails = |what: i32| {
            let message = format!("statement on the queue failed with {what}");
            Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, message))
        };
        let connected = pg_sys::SPI_connect();
        if connected != pg_sys::SPI_OK_CONNECT.cast_signed() {
            return fails(connected);
        }
        // Planning evaluates functions, which need a snapshot.
        pg_sys::PushActiveSnapshot(pg_sys::GetLatestSnapshot());
        let plan = pg_sys::SPI_prepare(source.as_ptr(), number, kinds.as_mut_ptr());
        if plan.is_null() {
            return fails(pg_sys::SPI_result);
        }
        let sources = PgList::<pg_sys::CachedPlanSource>::from_pg(pg_sys::SPI_plan_get_plan_sources(plan));
        let mut relations = sources.iter_ptr().map(|source| PgList::<pg_sys::Oid>::from_pg((*source).relationOids));
        if !relations.all(|relations| relations.iter_oid().all(is_known)) {
            let message = "the tables of pg_bulk have another schema than expected";
            return Err(Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                .hint("The extension's schema may have been renamed concurrently. Try again."));
        }
        let read_only = access == Access::ReadLatest;
        let (values, nulls) = (values.as_mut_ptr(), nulls.as_ptr());
        let (snapshot, any) = (pg_sys::GetLatestSnapshot(), std::ptr::null_mut());
        let result = pg_sys::SPI_execute_snapshot(plan, values, nulls, snapshot, any, read_only, true, 0);
        pg_sys::PopActiveSnapshot();
        if result < 0 {
            return fails(result);
        }
        let processed = pg_sys::SPI_processed;
        let mut rows = Vec::new();
        if let Some(table) = pg_sys::SPI_tuptable.as_ref() {
            let descriptor = TupleDesc::from_raw(table.tupdesc);
            for row in 0..usize::try_from(table.numvals).unwrap_or(0) {
                let tuple = *table.vals.add(row);
                let read = |(number, attribute): (i32, &pg_sys::FormData_pg_attribute)| {
                    let mut is_null = false;
                    let datum = pg_sys::SPI_getbinval(tuple, descriptor.as_ptr(), number, &raw mut is_null);
                    SqlValue::from_datum(attribute.atttypid, (!is_null).then_some(datum))
                };
                rows.push((1..).zip(descriptor.attributes()).map(read).collect::<Result<Vec<_>>>()?);
            }
        }
        pg_sys::SPI_finish();
        Ok(StatementResult { rows, processed })
    }
}
