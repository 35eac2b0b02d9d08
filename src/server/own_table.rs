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
use super::unguarded::guard;
use crate::error::{Error, Result};

/// Column types of a table. The library file is replaced before the extension is updated, so it also works with tables
/// of earlier versions. These lack the last columns, which may be null.
#[derive(Debug, Clone, Copy)]
pub struct Columns {
    pub types: &'static [pg_sys::Oid],
    /// Number of columns in version 0.1.0.
    pub oldest: usize,
}

/// An open table of the extension.
#[derive(Debug)]
pub struct OwnTable {
    relation: pg_sys::Relation,
    lock: pg_sys::LOCKMODE,
}

/// Whether a table belongs to the extension, so that only its scripts create it. Guarded.
fn is_made(oid: pg_sys::Oid) -> bool {
    // SAFETY: guarded catalog lookups.
    unsafe {
        let extension = pg_sys::get_extension_oid(c"pg_bulk".as_ptr(), true);
        oid != pg_sys::InvalidOid && pg_sys::getExtensionOfObject(pg_sys::RelationRelationId, oid) == extension
    }
}

/// Returns the transaction that inserted a row, even if the row is frozen.
///
/// # Safety
/// A tuple of a table.
pub unsafe fn made_by(tuple: pg_sys::HeapTuple) -> pg_sys::TransactionId {
    // SAFETY: this function's contract covers the tuple. As HeapTupleHeaderGetRawXmin (htup_details.h).
    unsafe { (*(*tuple).t_data).t_choice.t_heap.t_xmin }
}

/// Fails if a row that is committed, or this transaction's own, is not visible to the transaction's snapshot, as
/// ExecCheckTupleVisible (nodeModifyTable.c) does. Guarded.
///
/// # Safety
/// A tuple of a table.
pub unsafe fn check_seen(tuple: pg_sys::HeapTuple) -> Result<()> {
    const FROZEN: u16 = pg_sys::HEAP_XMIN_FROZEN as u16;
    // SAFETY: this function's contract covers the tuple; guarded calls.
    unsafe {
        let by = made_by(tuple);
        if pg_sys::XactIsoLevel < pg_sys::XACT_REPEATABLE_READ.cast_signed()
            || (*(*tuple).t_data).t_infomask & FROZEN == FROZEN
            || pg_sys::TransactionIdIsCurrentTransactionId(by)
            || !pg_sys::XidInMVCCSnapshot(by, pg_sys::GetTransactionSnapshot())
        {
            return Ok(());
        }
    }
    let message = "could not serialize access due to concurrent update";
    Err(Error::new(Code::ERRCODE_T_R_SERIALIZATION_FAILURE, message))
}

impl OwnTable {
    /// Opens the table to insert rows. Guarded.
    pub fn to_write(schema: pg_sys::Oid, name: &CStr, columns: Columns) -> Result<OwnTable> {
        OwnTable::open(schema, name, columns, pg_sys::RowExclusiveLock.cast_signed())
    }

    /// Opens the table to read rows. Guarded.
    pub fn to_read(schema: pg_sys::Oid, name: &CStr, columns: Columns) -> Result<OwnTable> {
        OwnTable::open(schema, name, columns, pg_sys::AccessShareLock.cast_signed())
    }

    /// Whether the table exists. It may be missing before the extension is updated, or a user may have created another
    /// one. Guarded.
    pub fn is_there(schema: pg_sys::Oid, name: &CStr) -> bool {
        // SAFETY: a guarded catalog lookup.
        is_made(unsafe { pg_sys::get_relname_relid(name.as_ptr(), schema) })
    }

    pub fn oid(&self) -> pg_sys::Oid {
        // SAFETY: an open relation.
        unsafe { (*self.relation).rd_id }
    }

    fn open(schema: pg_sys::Oid, name: &CStr, columns: Columns, lock: pg_sys::LOCKMODE) -> Result<OwnTable> {
        let shown = name.to_string_lossy();
        // SAFETY: guarded calls.
        let (relation, is_made) = unsafe {
            let oid = pg_sys::get_relname_relid(name.as_ptr(), schema);
            if oid == pg_sys::InvalidOid {
                let message = format!("relation \"{shown}\" does not exist");
                return Err(Error::new(Code::ERRCODE_UNDEFINED_TABLE, message));
            }
            (pg_sys::table_open(oid, lock), is_made(oid))
        };
        // SAFETY: an open relation; its descriptor has natts attributes.
        let (number, fits) = unsafe {
            let descriptor = (*relation).rd_att;
            let number = usize::try_from((*descriptor).natts).unwrap_or(0);
            let fits = is_made
                && (*(*relation).rd_rel).relam == pg_sys::HEAP_TABLE_AM_OID
                && (columns.oldest..=columns.types.len()).contains(&number)
                && columns.types.iter().take(number).enumerate().all(|(i, &wanted)| {
                    let attribute = &*compat::attribute(descriptor, i);
                    attribute.atttypid == wanted && !attribute.attisdropped
                });
            (number, fits)
        };
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
        Ok(OwnTable { relation, lock })
    }

    /// Inserts a row. A table that has only the first columns gets their values. Guarded.
    ///
    /// # Safety
    /// A value of its type for each column that the library has.
    pub unsafe fn insert(&self, row: &[Option<pg_sys::Datum>]) {
        let mut nulls: Vec<bool> = row.iter().map(Option::is_none).collect();
        let mut values: Vec<_> = row.iter().map(|value| value.unwrap_or(pg_sys::Datum::from(0usize))).collect();
        // SAFETY: this function's contract covers the values; guarded calls on an open relation.
        unsafe {
            let descriptor = (*self.relation).rd_att;
            let tuple = pg_sys::heap_form_tuple(descriptor, values.as_mut_ptr(), nulls.as_mut_ptr());
            let options = pg_sys::HEAP_INSERT_NO_LOGICAL.cast_signed();
            let command = pg_sys::GetCurrentCommandId(true);
            pg_sys::heap_insert(self.relation, tuple, command, options, std::ptr::null_mut());
            if (*(*self.relation).rd_rel).relhasindex {
                self.insert_into_indexes(tuple);
            }
            pg_sys::heap_freetuple(tuple);
        }
    }

    /// Inserts a row into the table's indexes. The extension creates none, but an administrator may.
    ///
    /// # Safety
    /// A tuple that was inserted. Guarded.
    unsafe fn insert_into_indexes(&self, tuple: pg_sys::HeapTuple) {
        // SAFETY: this function's contract covers the tuple; guarded calls on structures made here.
        unsafe {
            let estate = pg_sys::CreateExecutorState();
            let old = pg_sys::MemoryContextSwitchTo((*estate).es_query_cxt);
            let relinfo = pg_sys::palloc0(size_of::<pg_sys::ResultRelInfo>()).cast::<pg_sys::ResultRelInfo>();
            (*relinfo).type_ = pg_sys::NodeTag::T_ResultRelInfo;
            pg_sys::InitResultRelInfo(relinfo, self.relation, 0, std::ptr::null_mut(), 0);
            pg_sys::ExecOpenIndices(relinfo, false);
            let ops = &raw const pg_sys::TTSOpsHeapTuple;
            let slot = pg_sys::MakeSingleTupleTableSlot((*self.relation).rd_att, ops);
            pg_sys::ExecStoreHeapTuple(tuple, slot, false);
            guard(|| compat::insert_index_tuples(relinfo, slot, estate));
            pg_sys::ExecDropSingleTupleTableSlot(slot);
            pg_sys::ExecCloseIndices(relinfo);
            pg_sys::MemoryContextSwitchTo(old);
            pg_sys::FreeExecutorState(estate);
        }
    }

    /// Visits each row: the tuple and its values. Guarded.
    pub fn for_each(&self, mut visit: impl FnMut(pg_sys::HeapTuple, &[pg_sys::Datum], &[bool])) {
        self.scan(pg_sys::InvalidOid, None, |tuple, values, nulls| {
            visit(tuple, values, nulls);
            true
        });
    }

    /// Visits each row whose first column, a bigint, has this value. Guarded.
    pub fn for_each_of(&self, first: i64, mut visit: impl FnMut(pg_sys::HeapTuple, &[pg_sys::Datum])) {
        self.scan(self.first_index(), Some(first), |tuple, values, _| {
            visit(tuple, values);
            true
        });
    }

    /// Returns the values of a row, none of which is null. Guarded.
    ///
    /// # Safety
    /// A tuple of this table.
    pub unsafe fn values(&self, tuple: pg_sys::HeapTuple) -> Vec<pg_sys::Datum> {
        // SAFETY: this function's contract covers the tuple; the arrays are as long as the descriptor. A guarded call.
        unsafe {
            let descriptor = (*self.relation).rd_att;
            let natts = usize::try_from((*descriptor).natts).unwrap_or(0);
            let (mut values, mut nulls) = (vec![pg_sys::Datum::from(0usize); natts], vec![false; natts]);
            pg_sys::heap_deform_tuple(tuple, descriptor, values.as_mut_ptr(), nulls.as_mut_ptr());
            values
        }
    }

    /// Visits rows until `visit` returns false: all rows, or those whose first column, a bigint, has a value. Can use
    /// an index on that column. Guarded.
    fn scan(
        &self,
        index: pg_sys::Oid,
        first: Option<i64>,
        mut visit: impl FnMut(pg_sys::HeapTuple, &[pg_sys::Datum], &[bool]) -> bool,
    ) {
        // SAFETY: guarded calls on an open relation; the arrays are as long as its descriptor. SnapshotSelfData is a
        // static of the server. The key has the first column's type.
        unsafe {
            let descriptor = (*self.relation).rd_att;
            let natts = usize::try_from((*descriptor).natts).unwrap_or(0);
            let mut values = vec![pg_sys::Datum::from(0usize); natts];
            let mut nulls = vec![false; natts];
            let mut key = pg_sys::ScanKeyData::default();
            if let Some(value) = first {
                let equal = pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber;
                let value = pg_sys::Datum::from(value);
                pg_sys::ScanKeyInit(&raw mut key, 1, equal, pg_sys::F_INT8EQ.into(), value);
            }
            let keys = i32::from(first.is_some());
            let snapshot = &raw mut pg_sys::SnapshotSelfData;
            let use_index = index != pg_sys::InvalidOid;
            let scan = pg_sys::systable_beginscan(self.relation, index, use_index, snapshot, keys, &raw mut key);
            loop {
                pgrx::check_for_interrupts!();
                let tuple = pg_sys::systable_getnext(scan);
                if tuple.is_null() {
                    break;
                }
                pg_sys::heap_deform_tuple(tuple, descriptor, values.as_mut_ptr(), nulls.as_mut_ptr());
                if !visit(tuple, &values, &nulls) {
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
        mut which: impl FnMut(&[pg_sys::Datum], &[bool]) -> bool,
    ) -> Vec<pg_sys::ItemPointerData> {
        let mut rows = Vec::new();
        let index = if first.is_some() { self.first_index() } else { pg_sys::InvalidOid };
        self.scan(index, first, |tuple, values, nulls| {
            if rows.len() < most && which(values, nulls) {
                // SAFETY: a valid tuple.
                rows.push(unsafe { (*tuple).t_self });
            }
            rows.len() < most
        });
        rows
    }

    /// Returns a B-tree on the first column only, without a predicate; InvalidOid if the table has no such index.
    /// Guarded.
    fn first_index(&self) -> pg_sys::Oid {
        // SAFETY: guarded calls; the list has `length` elements, each an index of the relation.
        unsafe {
            let list = pg_sys::RelationGetIndexList(self.relation);
            let number = list.as_ref().map_or(0, |list| usize::try_from(list.length).unwrap_or(0));
            for i in 0..number {
                let oid = (*(*list).elements.add(i)).oid_value;
                let index = pg_sys::index_open(oid, pg_sys::AccessShareLock.cast_signed());
                let form = (*index).rd_index;
                let fits = (*(*index).rd_rel).relam == pg_sys::BTREE_AM_OID
                    && (*form).indisvalid
                    && (*form).indnatts == 1
                    && *(*form).indkey.values.as_ptr() == 1
                    && pg_sys::RelationGetIndexPredicate(index).is_null();
                pg_sys::index_close(index, pg_sys::NoLock.cast_signed());
                if fits {
                    return oid;
                }
            }
        }
        pg_sys::InvalidOid
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
                    pg_sys::heap_delete(self.relation, &raw mut tid, command, snapshot, true, &raw mut failure, false);
                removed += usize::from(result == pg_sys::TM_Result::TM_Ok);
            }
        }
        removed
    }

    /// Closes the table. A lock for writing is kept to the end of the transaction. Guarded.
    pub fn close(self) {
        let writes = self.lock != pg_sys::AccessShareLock.cast_signed();
        let release = if writes { pg_sys::NoLock.cast_signed() } else { self.lock };
        // SAFETY: opened by `open`.
        unsafe { pg_sys::table_close(self.relation, release) }
    }
}
