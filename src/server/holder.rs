//! Finds the row that has a key in a unique index, and deletes it.
//!
//! A unique index has entries, not rows: several entries of one key may belong to dead rows, or to versions of one row.
//! As for ON CONFLICT, the search uses a dirty snapshot, which sees all rows that are not known to be dead. It waits
//! for transactions that are inserting or deleting the row.

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::call::variables;
use super::compat;
use super::relation::Relation;
use super::unguarded as c;
use crate::error::{Error, Result};

const MOST_KEYS: usize = pg_sys::INDEX_MAX_KEYS as usize;

/// An invalid TID: no row.
pub const NOBODY: pg_sys::ItemPointerData =
    pg_sys::ItemPointerData { ip_blkid: pg_sys::BlockIdData { bi_hi: 0, bi_lo: 0 }, ip_posid: 0 };

/// Returns the row other than `own` that has a key in a unique B-tree, or [`NOBODY`]. Waits for transactions that may
/// be inserting or deleting such a row (check_exclusion_or_unique_constraint, execIndexing.c).
///
/// # Safety
/// A plain frame; an open heap and index; an IndexInfo from ExecOpenIndices with speculative insertions; a value for
/// each key column; a slot of the heap.
pub unsafe fn find(
    heap: pg_sys::Relation,
    index: pg_sys::Relation,
    info: *const pg_sys::IndexInfo,
    (values, nulls): (*const pg_sys::Datum, *const bool),
    own: pg_sys::ItemPointerData,
    slot: *mut pg_sys::TupleTableSlot,
) -> pg_sys::ItemPointerData {
    // SAFETY: this function's contract covers all arguments; the arrays have room for the keys of any index, and the
    // IndexInfo has an operator, strategy and collation for each. InitDirtySnapshot (snapmgr.h).
    unsafe {
        let keys = (*info).ii_NumIndexKeyAttrs;
        let mut scan_keys = [pg_sys::ScanKeyData::default(); MOST_KEYS];
        for i in 0..usize::try_from(keys).unwrap_or(0) {
            let is_null = *nulls.add(i);
            if is_null && !(*info).ii_NullsNotDistinct {
                return NOBODY;
            }
            let flags = if is_null { pg_sys::SK_ISNULL | pg_sys::SK_SEARCHNULL } else { 0 };
            c::ScanKeyEntryInitialize(
                scan_keys.as_mut_ptr().add(i),
                flags.cast_signed(),
                i16::try_from(i + 1).unwrap_or(i16::MAX),
                *(*info).ii_UniqueStrats.add(i),
                pg_sys::InvalidOid,
                *(*index).rd_indcollation.add(i),
                *(*info).ii_UniqueProcs.add(i),
                *values.add(i),
            );
        }
        loop {
            c::check_for_interrupts();
            let mut snapshot = pg_sys::SnapshotData {
                snapshot_type: pg_sys::SnapshotType::SNAPSHOT_DIRTY,
                ..pg_sys::SnapshotData::default()
            };
            let mut other = pg_sys::InvalidTransactionId;
            let mut found = NOBODY;
            let scan = compat::index_beginscan(heap, index, &raw mut snapshot, keys);
            c::index_rescan(scan, scan_keys.as_mut_ptr(), keys, std::ptr::null_mut(), 0);
            let forward = pg_sys::ScanDirection::ForwardScanDirection;
            while c::index_getnext_slot(scan, forward, slot) {
                let row = (*slot).tts_tid;
                if is_same(&row, &own) {
                    continue;
                }
                found = row;
                other = if snapshot.xmin == pg_sys::InvalidTransactionId { snapshot.xmax } else { snapshot.xmin };
                break;
            }
            c::index_endscan(scan);
            if let Some(clear) = (*(*slot).tts_ops).clear {
                clear(slot);
            }
            if other == pg_sys::InvalidTransactionId {
                return found;
            }
            c::XactLockTableWait(other, heap, &raw mut found, pg_sys::XLTW_Oper::XLTW_InsertIndex);
        }
    }
}

/// Whether two TIDs are equal.
pub fn is_same(a: &pg_sys::ItemPointerData, b: &pg_sys::ItemPointerData) -> bool {
    (a.ip_blkid.bi_hi, a.ip_blkid.bi_lo, a.ip_posid) == (b.ip_blkid.bi_hi, b.ip_blkid.bi_lo, b.ip_posid)
}

variables! {
    fn isolation() -> i32 = XactIsoLevel;
}

/// Whether the transaction has one snapshot for all its statements (IsolationUsesXactSnapshot, xact.h).
pub fn has_one_snapshot() -> bool {
    isolation() >= pg_sys::XACT_REPEATABLE_READ.cast_signed()
}

/// Raises a serialization failure if the row that has a key is not visible to the snapshot of a REPEATABLE READ or
/// SERIALIZABLE transaction (ExecCheckTIDVisible, nodeModifyTable.c).
/// Guarded.
pub fn check_visible(HeapRow { heap, tid: mut row }: HeapRow<'_>) -> Result<()> {
    let heap = heap.as_ptr();
    if !has_one_snapshot() {
        return Ok(());
    }
    // SAFETY: guarded calls on an open heap, a copy of the TID of one of its rows and an own slot. A statement has an active
    // snapshot.
    unsafe {
        let slot = pg_sys::table_slot_create(heap, std::ptr::null_mut());
        let is_there =
            pg_sys::table_tuple_fetch_row_version(heap, &raw mut row, &raw mut pg_sys::SnapshotAnyData, slot);
        let mut sees = is_there && pg_sys::table_tuple_satisfies_snapshot(heap, slot, pg_sys::GetActiveSnapshot());
        if is_there && !sees {
            let mut is_null = false;
            let number = pg_sys::MinTransactionIdAttributeNumber as i16;
            let xmin = pg_sys::slot_getsysattr(slot, number.into(), &raw mut is_null);
            sees = pg_sys::TransactionIdIsCurrentTransactionId(pg_sys::TransactionId::from_inner(xmin.value() as u32));
        }
        pg_sys::ExecDropSingleTupleTableSlot(slot);
        if sees { Ok(()) } else { Err(serialization_failure("update")) }
    }
}

pub(super) fn serialization_failure(what: &str) -> Error {
    let message = format!("could not serialize access due to concurrent {what}");
    Error::new(Code::ERRCODE_T_R_SERIALIZATION_FAILURE, message)
}

/// A row that was found in a heap, which is locked for writing.
#[derive(Debug, Clone, Copy)]
pub struct HeapRow<'a> {
    heap: Relation<'a>,
    tid: pg_sys::ItemPointerData,
}

impl<'a> HeapRow<'a> {
    /// # Safety
    /// The heap is locked for writing, and has a tuple with this TID, which may be dead, as long as the handle is used.
    pub const unsafe fn new(heap: Relation<'a>, tid: pg_sys::ItemPointerData) -> HeapRow<'a> {
        HeapRow { heap, tid }
    }

    pub const fn heap(self) -> Relation<'a> {
        self.heap
    }

    pub const fn tid(self) -> pg_sys::ItemPointerData {
        self.tid
    }
}

/// Deletes a row of the table that has a key. Returns false if it was deleted or updated meanwhile. Waits for
/// transactions that have locked the row. Guarded.
pub fn delete(row: HeapRow<'_>) -> Result<bool> {
    check_visible(row)?;
    match heap_delete(row) {
        pg_sys::TM_Result::TM_Ok => Ok(true),
        pg_sys::TM_Result::TM_Updated if has_one_snapshot() => Err(serialization_failure("update")),
        pg_sys::TM_Result::TM_Deleted if has_one_snapshot() => Err(serialization_failure("delete")),
        pg_sys::TM_Result::TM_Updated | pg_sys::TM_Result::TM_Deleted => Ok(false),
        result => {
            let message = format!("could not replace a row (result {result})");
            Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, message))
        }
    }
}

/// Deletes a row, and returns the result. Waits for transactions that have locked the row. Guarded.
pub fn heap_delete(HeapRow { heap, tid: mut row }: HeapRow<'_>) -> pg_sys::TM_Result::Type {
    // SAFETY: guarded calls with a row of the heap.
    unsafe {
        let mut failure = pg_sys::TM_FailureData::default();
        let command = pg_sys::GetCurrentCommandId(true);
        let nothing = std::ptr::null_mut();
        pg_sys::heap_delete(heap.as_ptr(), &raw mut row, command, nothing, true, &raw mut failure, false)
    }
}
