//! Writes rejects to the table bulk_reject.
//!
//! Only superusers have rights on that table, so no statement of another user writes to it. This module forms the rows
//! and inserts them into heap and indexes as into a catalog, as the table's owner. So code that a superuser has
//! attached to the table runs as its owner, and not as the loading role.

use std::ffi::CStr;

use pg_bulk_storage::tuple::TOAST_TUPLE_THRESHOLD;
use pgrx::{IntoDatum, PgSqlErrorCode as Code, pg_sys};

use super::spool::{self, About, Spool};
use super::{Complaint, Reject};
use crate::error::{Error, Result};
use crate::server::lookup::{now, relation_named};
use crate::server::memory_context::MemoryContext;
use crate::server::own_table::Columns;
use crate::server::relation::{OpenRelation, Relation};
use crate::server::role::as_role;
use crate::server::statement::next_command;

/// Most rows of one insertion.
const BATCH: usize = 500;
/// Most bytes of one insertion.
const BATCH_BYTES: usize = 1 << 20;
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

/// A row of the table.
type RejectRow = [Option<pg_sys::Datum>; COLUMNS];

/// Writes the rejects of a job's failed load in the current transaction, after the load's own has ended. Returns their
/// number. After a successful load the rejects are already in the table, and nothing is written. Guarded.
pub fn write_spooled() -> Result<u64> {
    match spool::take() {
        Some(mut spool) => write(&mut spool),
        None => Ok(0),
    }
}

/// Writes a load's rejects. Guarded.
pub fn write(spool: &mut Spool) -> Result<u64> {
    let count = spool.count;
    if count == 0 {
        spool.close();
        return Ok(0);
    }
    let about = spool.about.clone();
    let relid = relation_named(NAME, about.schema);
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
        let mut writer = RejectInserter::new(relation)?;
        let now = pg_sys::Datum::from(now());
        spool.for_each(|reject| {
            writer.add(&about, &reject, now);
            Ok(())
        })?;
        writer.finish();
        Ok(())
    })?;
    drop(table);
    // Later commands must see the rows.
    next_command();
    spool.close();
    Ok(count)
}

/// Inserts rows.
struct RejectInserter<'a> {
    relation: Relation<'a>,
    indexes: pg_sys::CatalogIndexState,
    slots: Vec<*mut pg_sys::TupleTableSlot>,
    /// Number of filled slots.
    used: usize,
    bytes: usize,
    /// Memory context of the rows.
    memory: pg_sys::MemoryContext,
}

impl<'a> RejectInserter<'a> {
    /// Guarded.
    fn new(relation: Relation<'a>) -> Result<RejectInserter<'a>> {
        let memory = MemoryContext::current().child(c"pg_bulk rejects").as_ptr();
        // SAFETY: guarded calls on a table that is open and locked.
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
            Ok(RejectInserter { relation, indexes, slots: Vec::new(), used: 0, bytes: 0, memory })
        }
    }

    /// Adds a row. Guarded.
    fn add(&mut self, about: &About, reject: &Reject, now: pg_sys::Datum) {
        // SAFETY: guarded calls; the slot has the relation's descriptor, and its number of columns.
        unsafe {
            if self.used == self.slots.len() {
                let descriptor = self.relation.descriptor().as_ptr();
                self.slots.push(pg_sys::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsHeapTuple));
            }
            let Some(&slot) = self.slots.get(self.used) else { return };
            let old = pg_sys::MemoryContextSwitchTo(self.memory);
            let row = row(about, reject, now);
            let mut nulls = row.map(|value| value.is_none());
            let mut values = row.map(|value| value.unwrap_or(pg_sys::Datum::from(0usize)));
            let tuple =
                pg_sys::heap_form_tuple(self.relation.descriptor().as_ptr(), values.as_mut_ptr(), nulls.as_mut_ptr());
            if (*tuple).t_len as usize > TOAST_TUPLE_THRESHOLD {
                // A long row is inserted alone: heap_multi_insert stores a toasted copy, and its TID would not reach
                // the indexes.
                pg_sys::CatalogTupleInsertWithInfo(self.relation.as_ptr(), tuple, self.indexes);
                pg_sys::heap_freetuple(tuple);
                pg_sys::MemoryContextSwitchTo(old);
                return;
            }
            pg_sys::ExecStoreHeapTuple(tuple, slot, false);
            pg_sys::MemoryContextSwitchTo(old);
            self.used += 1;
            self.bytes += (*tuple).t_len as usize;
            if self.used == BATCH || self.bytes >= BATCH_BYTES {
                self.flush();
            }
        }
    }

    /// Inserts the collected rows. Guarded.
    fn flush(&mut self) {
        let count = i32::try_from(self.used).unwrap_or(0);
        if count > 0 {
            // SAFETY: guarded calls; this number of slots have rows.
            unsafe {
                let old = pg_sys::MemoryContextSwitchTo(self.memory);
                let slots = self.slots.as_mut_ptr();
                pg_sys::CatalogTuplesMultiInsertWithInfo(self.relation.as_ptr(), slots, count, self.indexes);
                for &slot in self.slots.iter().take(self.used) {
                    pg_sys::ExecClearTuple(slot);
                }
                pg_sys::MemoryContextSwitchTo(old);
                pg_sys::MemoryContextReset(self.memory);
            }
        }
        (self.used, self.bytes) = (0, 0);
    }

    /// Inserts the rest, and closes the table. Guarded.
    fn finish(mut self) {
        self.flush();
        // SAFETY: guarded calls on objects of `new` and `add`.
        unsafe {
            pg_sys::CatalogCloseIndexes(self.indexes);
            self.slots.iter().for_each(|&slot| pg_sys::ExecDropSingleTupleTableSlot(slot));
            pg_sys::MemoryContextDelete(self.memory);
        }
    }
}

/// The bytes as a text value, if they are valid text. Guarded; allocates in the current memory context.
pub fn text(bytes: &[u8]) -> Option<pg_sys::Datum> {
    let len = i32::try_from(bytes.len()).ok()?;
    // SAFETY: guarded calls that look at the bytes, and copy them.
    unsafe {
        let valid = pg_sys::pg_encoding_verifymbstr(pg_sys::GetDatabaseEncoding(), bytes.as_ptr().cast(), len);
        (valid == len).then(|| pg_sys::Datum::from(pg_sys::cstring_to_text_with_len(bytes.as_ptr().cast(), len)))
    }
}

/// The values of a reject from `line_number` on. Guarded; allocates in the current memory context.
pub fn values(reject: &Reject, now: pg_sys::Datum) -> [Option<pg_sys::Datum>; 10] {
    let Complaint { code, message, column, field, constraint } = &reject.complaint;
    let number = |n: u64| pg_sys::Datum::from(i64::try_from(n).unwrap_or(i64::MAX));
    let line = reject.raw.as_deref().and_then(text);
    let bytes = if line.is_none() { reject.raw.as_deref().and_then(|raw| raw.into_datum()) } else { None };
    // SAFETY: returns a string of five characters in a static buffer.
    let state = unsafe { CStr::from_ptr(pg_sys::unpack_sql_state(*code)) };
    [
        Some(number(reject.line)),
        reject.offset.map(number),
        column.as_deref().and_then(text),
        field.as_deref().and_then(text),
        line,
        bytes,
        text(state.to_bytes()),
        text(message),
        constraint.as_deref().and_then(text),
        Some(now),
    ]
}

/// A row of the table. Guarded; allocates in the current memory context.
fn row(about: &About, reject: &Reject, now: pg_sys::Datum) -> RejectRow {
    let [line, offset, column, field, raw, bytes, state, message, constraint, at] = values(reject, now);
    [
        Some(pg_sys::Datum::from(about.load_id)),
        about.attempt.into_datum(),
        Some(pg_sys::Datum::from(about.owner)),
        Some(pg_sys::Datum::from(about.relid)),
        text(about.target.as_bytes()),
        reject.path.as_deref().and_then(text).or_else(|| text(about.path.as_bytes())),
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
