//! Reads and writes a table of the extension without executing a statement.
//!
//! Writing an entry about pg_bulk's work must neither fail nor change the result of that work. So rows are inserted
//! with heap_insert, not with an INSERT: no rights are checked, no user-defined code runs, no setting matters, and no
//! SQL command can call this. The changes are not decoded logically: a subscriber to all tables does not need them, and
//! may lack the table.
//!
//! **SERIALIZABLE.** Reading takes no predicate locks. It uses no MVCC snapshot: it sees all rows that are committed
//! now, and those of this transaction. Rows are inserted and deleted but never updated, so each row is seen once.
//! Without predicate locks of readers a writer has no conflicts. So an append-only table causes no serialization
//! failures in users' transactions.

use std::ffi::CStr;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::compat;
use super::handle::Handle;
use super::holder::{has_one_snapshot, serialization_failure};
use super::lookup::{extension_named, extension_of, relation_named};
use super::relation::{OpenRelation, TupleDesc};
use super::result_relation::new_result_relation;
use super::sql_value::SqlValue;
use super::unguarded::guard;
use crate::error::{Error, OrRaise, Result};

/// Column types of a table. The library file is replaced before the extension is updated, so it also works with tables
/// of earlier versions. These lack the last columns, which may be null.
#[derive(Debug, Clone, Copy)]
pub struct Columns {
    pub types: &'static [pg_sys::Oid],
    /// Number of columns in version 0.1.0.
    pub oldest: usize,
}

/// An open table of the extension, whose columns have the types that the library knows.
#[derive(Debug)]
pub struct OwnTable {
    relation: OpenRelation,
    columns: Columns,
}

/// A row that a scan of an own table visits. It exists as long as `'a`.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    table: &'a OwnTable,
    /// A tuple of the table.
    tuple: Handle<'a, pg_sys::HeapTupleData>,
    values: &'a [pg_sys::Datum],
    nulls: &'a [bool],
}

/// Whether a table belongs to the extension, so that only its scripts create it. Guarded.
fn is_made(oid: pg_sys::Oid) -> bool {
    oid != pg_sys::InvalidOid && extension_of(pg_sys::RelationRelationId, oid) == extension_named(c"pg_bulk")
}

impl Row<'_> {
    pub(super) fn descriptor(&self) -> TupleDesc<'_> {
        self.table.relation.get().descriptor()
    }

    pub(super) fn as_ptr(&self) -> pg_sys::HeapTuple {
        self.tuple.as_ptr()
    }

    /// The transaction that inserted the row, and its flags.
    fn header(&self) -> (pg_sys::TransactionId, u16) {
        // SAFETY: a tuple of the table begins with its header, which has this member of the union.
        unsafe {
            let header = self.tuple.get().t_data;
            ((*header).t_choice.t_heap.t_xmin, (*header).t_infomask)
        }
    }

    pub fn tid(&self) -> pg_sys::ItemPointerData {
        self.tuple.get().t_self
    }

    /// A copy of a value. Guarded.
    pub fn value(&self, column: usize) -> SqlValue<'static> {
        let kind = self.table.columns.types.get(column).copied().unwrap_or(pg_sys::InvalidOid);
        let is_there = self.nulls.get(column) == Some(&false);
        let datum = self.values.get(column).copied().filter(|_| is_there);
        // SAFETY: `open` has compared the types of the table's columns.
        unsafe { SqlValue::from_datum(kind, datum) }.or_raise()
    }

    /// Copies of all values. Guarded.
    pub fn all(&self) -> Vec<SqlValue<'static>> {
        (0..self.values.len()).map(|column| self.value(column)).collect()
    }

    /// The number of a column that is passed by value.
    pub fn number(&self, column: usize) -> i64 {
        self.values.get(column).map_or(0, |datum| datum.value() as i64)
    }

    pub fn oid(&self, column: usize) -> pg_sys::Oid {
        pg_sys::Oid::from_u32(self.number(column) as u32)
    }

    /// Returns the transaction that inserted the row, even if the row is frozen, as HeapTupleHeaderGetRawXmin
    /// (htup_details.h) does.
    pub fn made_by(&self) -> pg_sys::TransactionId {
        self.header().0
    }

    /// Fails if the row, which is committed or this transaction's own, is not visible to the transaction's snapshot, as
    /// ExecCheckTupleVisible (nodeModifyTable.c) does. Guarded.
    pub fn check_seen(&self) -> Result<()> {
        const FROZEN: u16 = pg_sys::HEAP_XMIN_FROZEN as u16;
        let (by, flags) = self.header();
        // SAFETY: guarded calls, in a transaction.
        let is_seen = !has_one_snapshot()
            || unsafe {
                flags & FROZEN == FROZEN
                    || pg_sys::TransactionIdIsCurrentTransactionId(by)
                    || !pg_sys::XidInMVCCSnapshot(by, pg_sys::GetTransactionSnapshot())
            };
        if is_seen { Ok(()) } else { Err(serialization_failure("update")) }
    }
}

impl OwnTable {
    /// Opens the table to insert rows. The lock is kept to the end of the transaction. Guarded.
    pub fn to_write(schema: pg_sys::Oid, name: &CStr, columns: Columns) -> Result<OwnTable> {
        OwnTable::open(schema, name, columns, pg_sys::RowExclusiveLock)
    }

    /// Opens the table to read rows. Guarded.
    pub fn to_read(schema: pg_sys::Oid, name: &CStr, columns: Columns) -> Result<OwnTable> {
        let OwnTable { relation, columns } = OwnTable::open(schema, name, columns, pg_sys::AccessShareLock)?;
        Ok(OwnTable { relation: relation.releasing(), columns })
    }

    /// Whether the table exists. It may be missing before the extension is updated, or a user may have created another
    /// one. Guarded.
    pub fn is_there(schema: pg_sys::Oid, name: &CStr) -> bool {
        is_made(relation_named(name, schema))
    }

    pub fn oid(&self) -> pg_sys::Oid {
        self.relation.get().oid()
    }

    fn as_ptr(&self) -> pg_sys::Relation {
        self.relation.get().as_ptr()
    }

    fn open(schema: pg_sys::Oid, name: &CStr, columns: Columns, lock: u32) -> Result<OwnTable> {
        let shown = name.to_string_lossy();
        let oid = relation_named(name, schema);
        if oid == pg_sys::InvalidOid {
            let message = format!("relation \"{shown}\" does not exist");
            return Err(Error::new(Code::ERRCODE_UNDEFINED_TABLE, message));
        }
        let relation = OpenRelation::open(oid, lock);
        let number = relation.get().descriptor().len();
        let mut attributes = relation.get().descriptor().attributes().zip(columns.types);
        let fits = is_made(oid)
            && relation.get().access_method() == pg_sys::HEAP_TABLE_AM_OID
            && (columns.oldest..=columns.types.len()).contains(&number)
            && attributes.all(|(one, &wanted)| one.atttypid == wanted && !one.attisdropped);
        drop(attributes);
        if !fits {
            let message = format!("table \"{shown}\" does not have the definition that pg_bulk expects");
            let error = Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message);
            return Err(if number > columns.types.len() {
                error.hint(
                    "If the extension has been updated, this process has an older library: reconnect, or restart the \
                     server if shared_preload_libraries names it.",
                )
            } else {
                error
            });
        }
        Ok(OwnTable { relation, columns })
    }

    /// Inserts a row, which has a value for each column that the library has. A table that has only the first columns
    /// gets their values. Guarded.
    pub fn insert(&self, row: &[SqlValue]) -> Result<()> {
        if !row.iter().map(SqlValue::kind).eq(self.columns.types.iter().copied()) {
            return Err(Error::new(
                Code::ERRCODE_INTERNAL_ERROR,
                "the values of a row do not have the types of its table",
            ));
        }
        let row: Vec<_> = row.iter().map(SqlValue::datum).collect();
        let mut nulls: Vec<bool> = row.iter().map(Option::is_none).collect();
        let mut values: Vec<_> = row.iter().map(|value| value.unwrap_or(pg_sys::Datum::from(0usize))).collect();
        let relation = self.as_ptr();
        // SAFETY: guarded calls on an open relation, on the tuple made here and on structures made here. The values have
        // the types of the relation's columns.
        unsafe {
            let descriptor = self.relation.get().descriptor().as_ptr();
            let tuple = pg_sys::heap_form_tuple(descriptor, values.as_mut_ptr(), nulls.as_mut_ptr());
            let options = pg_sys::HEAP_INSERT_NO_LOGICAL.cast_signed();
            let command = pg_sys::GetCurrentCommandId(true);
            pg_sys::heap_insert(relation, tuple, command, options, std::ptr::null_mut());
            // The extension creates no indexes, but an administrator may.
            if self.relation.get().has_indexes() {
                let estate = pg_sys::CreateExecutorState();
                let old = pg_sys::MemoryContextSwitchTo((*estate).es_query_cxt);
                let relinfo = new_result_relation();
                pg_sys::InitResultRelInfo(relinfo, relation, 0, std::ptr::null_mut(), 0);
                pg_sys::ExecOpenIndices(relinfo, false);
                let slot = pg_sys::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsHeapTuple);
                pg_sys::ExecStoreHeapTuple(tuple, slot, false);
                guard(|| compat::insert_index_tuples(relinfo, slot, estate));
                pg_sys::ExecDropSingleTupleTableSlot(slot);
                pg_sys::ExecCloseIndices(relinfo);
                pg_sys::MemoryContextSwitchTo(old);
                pg_sys::FreeExecutorState(estate);
            }
            pg_sys::heap_freetuple(tuple);
        }
        Ok(())
    }

    /// Visits each row, or those whose first column, a bigint, has a value. Guarded.
    pub fn for_each(&self, first: Option<i64>, mut visit: impl FnMut(Row)) {
        self.scan(first, |row| {
            visit(row);
            true
        });
    }

    /// Visits rows until `visit` returns false: all rows, or those whose first column, a bigint, has a value. Can use
    /// an index on that column. Guarded.
    fn scan(&self, first: Option<i64>, mut visit: impl FnMut(Row) -> bool) {
        let index = if first.is_some() { self.first_index() } else { pg_sys::InvalidOid };
        // SAFETY: guarded calls on an open relation; the arrays are as long as its descriptor. SnapshotSelfData is a
        // static of the server. The key has the first column's type.
        unsafe {
            let descriptor = self.relation.get().descriptor();
            let mut values = vec![pg_sys::Datum::from(0usize); descriptor.len()];
            let mut nulls = vec![false; descriptor.len()];
            let mut key = pg_sys::ScanKeyData::default();
            if let Some(value) = first {
                let equal = pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber;
                let value = pg_sys::Datum::from(value);
                pg_sys::ScanKeyInit(&raw mut key, 1, equal, pg_sys::F_INT8EQ.into(), value);
            }
            let keys = i32::from(first.is_some());
            let snapshot = &raw mut pg_sys::SnapshotSelfData;
            let use_index = index != pg_sys::InvalidOid;
            let scan = pg_sys::systable_beginscan(self.as_ptr(), index, use_index, snapshot, keys, &raw mut key);
            loop {
                pgrx::check_for_interrupts!();
                let Some(tuple) = Handle::or_null(pg_sys::systable_getnext(scan)) else { break };
                pg_sys::heap_deform_tuple(tuple.as_ptr(), descriptor.as_ptr(), values.as_mut_ptr(), nulls.as_mut_ptr());
                if !visit(Row { table: self, tuple, values: &values, nulls: &nulls }) {
                    break;
                }
            }
            pg_sys::systable_endscan(scan);
        }
    }

    /// Returns the TIDs of at most `most` rows that `which` accepts: of all rows, or of those whose first column has a
    /// value. Guarded.
    pub fn find(
        &self,
        first: Option<i64>,
        most: usize,
        mut which: impl FnMut(Row) -> bool,
    ) -> Vec<pg_sys::ItemPointerData> {
        let mut rows = Vec::new();
        self.scan(first, |row| {
            if rows.len() < most && which(row) {
                rows.push(row.tid());
            }
            rows.len() < most
        });
        rows
    }

    /// Returns a B-tree on the first column only, without a predicate; InvalidOid if the table has no such index.
    /// Guarded.
    fn first_index(&self) -> pg_sys::Oid {
        let fits = |&oid: &pg_sys::Oid| {
            let index = OpenRelation::open(oid, pg_sys::AccessShareLock);
            let index = index.get();
            index.access_method() == pg_sys::BTREE_AM_OID
                && index.index().is_some_and(|form| form.is_valid)
                && index.descriptor().len() == 1
                && index.key_columns() == [1]
                && !index.is_partial()
        };
        self.relation.get().indexes().into_iter().find(fits).unwrap_or(pg_sys::InvalidOid)
    }

    /// Deletes rows, except those that another transaction deletes. Returns their number. Guarded.
    pub fn remove(&self, rows: &[pg_sys::ItemPointerData]) -> usize {
        let mut removed = 0;
        for row in rows {
            let mut tid = *row;
            // SAFETY: guarded calls on an open relation. Without a replica identity, the delete is not decoded.
            unsafe {
                let command = pg_sys::GetCurrentCommandId(true);
                let (snapshot, mut failure) = (std::ptr::null_mut(), pg_sys::TM_FailureData::default());
                // Waits for a transaction that is deleting the row.
                let result =
                    pg_sys::heap_delete(self.as_ptr(), &raw mut tid, command, snapshot, true, &raw mut failure, false);
                removed += usize::from(result == pg_sys::TM_Result::TM_Ok);
            }
        }
        removed
    }
}
