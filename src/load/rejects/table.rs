//! Writes rejects to the table bulk_reject.
//!
//! Only superusers have rights on that table, so no statement of another user writes to it. This module forms the rows
//! and inserts them into heap and indexes as into a catalog, as the table's owner. So code that a superuser has
//! attached to the table runs as its owner, and not as the loading role.

use std::ffi::CStr;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::spool::{self, About, Spool};
use super::{Complaint, Reject};
use crate::error::{Error, Result};
use crate::server::lookup::{now, relation_named, sql_state};
use crate::server::own_table::Columns;
use crate::server::relation::{OpenRelation, Relation};
use crate::server::role::as_role;
use crate::server::sql_value::SqlValue;
use crate::server::statement::next_command;

/// Columns of the table.
const COLUMNS: usize = 16;

/// The table's name, column types and time column, for the code that removes old rows.
pub const NAME: &CStr = c"bulk_reject";
const TYPES: [pg_sys::Oid; COLUMNS] = [
    pg_sys::INT8OID,
    pg_sys::INT4OID,
    pg_sys::OIDOID,
    pg_sys::OIDOID,
    pg_sys::TEXTOID,
    pg_sys::TEXTOID,
    pg_sys::INT8OID,
    pg_sys::INT8OID,
    pg_sys::TEXTOID,
    pg_sys::TEXTOID,
    pg_sys::TEXTOID,
    pg_sys::BYTEAOID,
    pg_sys::TEXTOID,
    pg_sys::TEXTOID,
    pg_sys::TEXTOID,
    pg_sys::TIMESTAMPTZOID,
];
pub const TABLE_COLUMNS: Columns = Columns { types: &TYPES, oldest: COLUMNS };
pub const REJECTED_AT: usize = 15;

/// Writes the rejects of a job's failed load in the current transaction, after the load's own has ended. Returns their
/// number. After a successful load the rejects are already in the table, and nothing is written. Guarded.
pub fn write_spooled() -> Result<u64> {
    match spool::take() {
        Some(spool) => write(&spool),
        None => Ok(0),
    }
}

/// Writes a load's rejects. Guarded.
pub fn write(spool: &Spool) -> Result<u64> {
    let count = spool.count();
    if count == 0 {
        spool.close();
        return Ok(0);
    }
    let relid = relation_named(NAME, spool.about.schema);
    if relid == pg_sys::InvalidOid {
        return Err(Error::new(Code::ERRCODE_UNDEFINED_TABLE, "table \"bulk_reject\" does not exist"));
    }
    let table = OpenRelation::open(relid, pg_sys::RowExclusiveLock);
    let relation = table.get();
    let descriptor = relation.descriptor();
    let fits = descriptor.len() == COLUMNS
        && descriptor.attributes().zip(TYPES).all(|(column, wanted)| column.atttypid == wanted && !column.attisdropped);
    if !fits || relation.access_method() != pg_sys::HEAP_TABLE_AM_OID {
        let message = "table \"bulk_reject\" was changed after the extension was created";
        return Err(Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message));
    }
    as_role(relation.owner(), || -> Result<()> {
        let (indexes, now) = (open_indexes(relation)?, now());
        spool.for_each(|reject| {
            let row = row(&spool.about, &reject, now).each_ref().map(SqlValue::datum);
            let mut nulls = row.map(|value| value.is_none());
            let mut values = row.map(|value| value.unwrap_or(pg_sys::Datum::from(0usize)));
            // SAFETY: guarded calls on a table that is open and locked, with values of its types, which were compared.
            unsafe {
                let (values, nulls) = (values.as_mut_ptr(), nulls.as_mut_ptr());
                let tuple = pg_sys::heap_form_tuple(descriptor.as_ptr(), values, nulls);
                pg_sys::CatalogTupleInsertWithInfo(relation.as_ptr(), tuple, indexes);
            }
            Ok(())
        })?;
        // SAFETY: a guarded call; the indexes are open, and not used any more.
        unsafe { pg_sys::CatalogCloseIndexes(indexes) };
        Ok(())
    })?;
    drop(table);
    // Later commands must see the rows.
    next_command();
    spool.close();
    Ok(count)
}

/// Opens the indexes of the table. Guarded.
fn open_indexes(relation: Relation<'_>) -> Result<pg_sys::CatalogIndexState> {
    // SAFETY: a guarded call on a table that is open and locked. The result has this number of indexes.
    unsafe {
        let indexes = pg_sys::CatalogOpenIndexes(relation.as_ptr());
        // CatalogIndexInsert (indexing.c) evaluates no index expressions and predicates.
        let is_computed = |i| {
            let info = *(*indexes).ri_IndexRelationInfo.add(i);
            !((*info).ii_Expressions.is_null() && (*info).ii_Predicate.is_null())
        };
        if (0..usize::try_from((*indexes).ri_NumIndices).unwrap_or(0)).any(is_computed) {
            let message = "table \"bulk_reject\" was changed after the extension was created";
            let error = Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message);
            return Err(error.detail("It has an index with an expression or a condition."));
        }
        Ok(indexes)
    }
}

/// The bytes as text; NULL if there are none, or if they are not valid text. Guarded.
fn text(bytes: &Option<Vec<u8>>) -> SqlValue<'static> {
    bytes.as_deref().map_or_else(|| SqlValue::null(pg_sys::TEXTOID), SqlValue::text_of)
}

/// The values of a reject from `line_number` on. Guarded.
pub fn values(reject: &Reject, now: pg_sys::TimestampTz) -> [SqlValue<'_>; 10] {
    let Complaint { code, message, column, field, constraint } = &reject.complaint;
    let raw = text(&reject.raw);
    let bytes = reject.raw.as_deref().filter(|_| raw.is_null());
    let state = sql_state(*code).unwrap_or_default();
    [
        SqlValue::count(reject.line),
        reject.offset.map_or_else(|| SqlValue::null(pg_sys::INT8OID), SqlValue::count),
        text(column),
        text(field),
        raw,
        bytes.map_or_else(|| SqlValue::null(pg_sys::BYTEAOID), SqlValue::bytes),
        SqlValue::text(state),
        SqlValue::text_of(message),
        text(constraint),
        SqlValue::timestamp(now),
    ]
}

/// A row of the table. Guarded.
fn row<'a>(about: &'a About, reject: &'a Reject, now: pg_sys::TimestampTz) -> [SqlValue<'a>; COLUMNS] {
    let [line, offset, column, field, raw, bytes, state, message, constraint, at] = values(reject, now);
    let path = text(&reject.path);
    [
        SqlValue::bigint(about.load_id),
        SqlValue::integer(about.attempt),
        SqlValue::oid(about.owner),
        SqlValue::oid(about.relid),
        SqlValue::text(&*about.target),
        if path.is_null() { SqlValue::text_of(about.path.as_bytes()) } else { path },
        line,
        offset,
        column,
        field,
        raw,
        bytes,
        state,
        message,
        constraint,
        at,
    ]
}
