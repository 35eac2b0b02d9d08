//! Reads back the rows that a load has put into a relation.
//!
//! The rows are behind all earlier ones, except for a few that heap_insert put elsewhere, and other sessions' rows may
//! be between them. A row is the load's if its xid and command id are: no other transaction has this xid, and no other
//! command this command id. Pages are read through shared buffers, because other sessions may use them from here on.
//!
//! The tricky point: a function that ran during the load may have deleted, updated or locked rows of the load, and its
//! changes may have been rolled back. COPY inserts index entries and queues triggers before such a function can see the
//! row. So a row counts whatever its xmax is. Its command is the one that inserted it, even when it is hidden by a
//! combo command id.

use pg_bulk_storage::page::MAX_TUPLES;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::heap::block_of;
use crate::error::Error;
use crate::server::relation::Relation;
use crate::server::unguarded as c;

const MAIN: pg_sys::ForkNumber::Type = pg_sys::ForkNumber::MAIN_FORKNUM;

/// New rows of a relation.
#[derive(Debug)]
pub struct NewRows {
    pub relation: pg_sys::Relation,
    /// First block of the rows ...
    pub start: u32,
    /// ... except for these.
    pub elsewhere: Vec<pg_sys::ItemPointerData>,
    pub xmin: u32,
    pub cid: u32,
    /// The load deletes rejects and duplicates from the table. Then deleted rows do not count as its rows.
    pub removes: bool,
}

impl NewRows {
    /// Calls `visit` with each row in the slot, in the order of the heap.
    ///
    /// # Safety
    /// A plain frame, an open relation, and a slot for its buffered tuples. `visit` owns nothing that has a destructor.
    pub unsafe fn for_each(&self, slot: *mut pg_sys::TupleTableSlot, mut visit: impl FnMut()) {
        // SAFETY: this function's contract covers frame, relation and slot.
        unsafe {
            let strategy = c::GetAccessStrategy(pg_sys::BufferAccessStrategyType::BAS_BULKREAD);
            let end = c::RelationGetNumberOfBlocksInFork(self.relation, MAIN);
            for block in self.start..end {
                self.visit_page(block, None, strategy, slot, &mut visit);
            }
            for tid in &self.elsewhere {
                self.visit_page(block_of(tid), Some(tid.ip_posid), strategy, slot, &mut visit);
            }
            c::FreeAccessStrategy(strategy);
        }
    }

    /// Calls `visit` with one of the rows in the slot.
    ///
    /// # Safety
    /// See [`NewRows::for_each`]; `row` is a row of the relation.
    pub unsafe fn visit(
        &self,
        row: &pg_sys::ItemPointerData,
        slot: *mut pg_sys::TupleTableSlot,
        mut visit: impl FnMut(),
    ) {
        // SAFETY: this function's contract covers frame, relation and slot, and the row, whose block the relation has.
        unsafe { self.visit_page(block_of(row), Some(row.ip_posid), std::ptr::null_mut(), slot, &mut visit) };
    }

    /// # Safety
    /// See [`NewRows::for_each`]; `block` is in the relation.
    unsafe fn visit_page(
        &self,
        block: u32,
        only: Option<u16>,
        strategy: pg_sys::BufferAccessStrategy,
        slot: *mut pg_sys::TupleTableSlot,
        visit: &mut impl FnMut(),
    ) {
        // SAFETY: this function's contract covers frame, relation and slot. The page is read under a pin and a lock,
        // rows under a pin: they are uncommitted, and do not move while the page is pinned.
        unsafe {
            c::check_for_interrupts();
            let normal = pg_sys::ReadBufferMode::RBM_NORMAL;
            let buffer = c::ReadBufferExtended(self.relation, MAIN, block, normal, strategy);
            c::LockBuffer(buffer, pg_sys::BUFFER_LOCK_SHARE.cast_signed());
            let page = pg_sys::BufferGetPage(buffer);
            let mut own = [0u16; MAX_TUPLES];
            let mut count = 0;
            for offset in 1..=pg_sys::PageGetMaxOffsetNumber(page) {
                let id = pg_sys::PageGetItemId(page, offset);
                let tuple = pg_sys::PageGetItem(page, id).cast::<pg_sys::HeapTupleHeaderData>();
                let is_normal = (*id).lp_flags() == pg_sys::LP_NORMAL;
                if is_normal
                    && self.is_ours(tuple)
                    && only.is_none_or(|only| only == offset)
                    && let Some(place) = own.get_mut(count)
                {
                    *place = offset;
                    count += 1;
                }
            }
            c::LockBuffer(buffer, pg_sys::BUFFER_LOCK_UNLOCK.cast_signed());
            for &offset in own.iter().take(count) {
                let id = pg_sys::PageGetItemId(page, offset);
                let header = pg_sys::PageGetItem(page, id).cast::<pg_sys::HeapTupleHeaderData>();
                if self.removes && is_gone(header) {
                    // The load deletes and never updates. An update within the page leaves no index entry for the new
                    // row version.
                    if !points_to(header, block, offset) {
                        let relation = Relation::from_raw(self.relation);
                        c::guarded::<()>(|| updated(relation).raise());
                    }
                    continue;
                }
                let mut tuple = pg_sys::HeapTupleData {
                    t_len: (*id).lp_len(),
                    t_self: pg_sys::ItemPointerData {
                        ip_blkid: pg_sys::BlockIdData { bi_hi: (block >> 16) as u16, bi_lo: block as u16 },
                        ip_posid: offset,
                    },
                    t_tableOid: (*self.relation).rd_id,
                    t_data: pg_sys::PageGetItem(page, id).cast(),
                };
                c::ExecStoreBufferHeapTuple(&raw mut tuple, slot, buffer);
                visit();
                // The slot must not point to the tuple above after this block.
                if let Some(clear) = (*(*slot).tts_ops).clear {
                    clear(slot);
                }
            }
            c::ReleaseBuffer(buffer);
        }
    }

    /// Did this load insert the tuple?
    ///
    /// # Safety
    /// The header is on a page that is locked.
    unsafe fn is_ours(&self, tuple: *const pg_sys::HeapTupleHeaderData) -> bool {
        // SAFETY: this function's contract covers the argument.
        unsafe {
            let heap = (*tuple).t_choice.t_heap;
            if heap.t_xmin.into_inner() != self.xmin {
                return false;
            }
            let cid = heap.t_field3.t_cid;
            let infomask = (*tuple).t_infomask;
            if infomask & pg_sys::HEAP_COMBOCID as u16 != 0 {
                return inserting_command(tuple) == self.cid;
            }
            // A deleted frozen row does not show this. A load of frozen rows has raised an error by now (Held).
            cid == self.cid
        }
    }
}

/// The command that inserted a tuple with a combo command id (HeapTupleHeaderGetCmin, combocid.c).
///
/// # Safety
/// This transaction has inserted the tuple.
unsafe fn inserting_command(tuple: *const pg_sys::HeapTupleHeaderData) -> pg_sys::CommandId {
    // SAFETY: this function's contract covers the argument; only the fixed part of the header is copied and read. The
    // function raises nothing.
    unsafe {
        let mut head = std::mem::zeroed::<pg_sys::HeapTupleHeaderData>();
        head.t_choice = (*tuple).t_choice;
        head.t_infomask = (*tuple).t_infomask;
        c::HeapTupleHeaderGetCmin(&raw mut head)
    }
}

/// Has this transaction deleted or updated the tuple?
///
/// # Safety
/// This transaction has inserted the tuple, and its page is pinned.
unsafe fn is_gone(tuple: *const pg_sys::HeapTupleHeaderData) -> bool {
    const UNTOUCHED: u16 = (pg_sys::HEAP_XMAX_INVALID | pg_sys::HEAP_XMAX_LOCK_ONLY) as u16;
    // SAFETY: this function's contract covers the argument. No other transaction can delete an uncommitted row. Neither
    // function raises anything: the members of a multixact of this transaction are in memory.
    unsafe {
        let infomask = (*tuple).t_infomask;
        if infomask & UNTOUCHED != 0 {
            return false;
        }
        let xmax = if infomask & pg_sys::HEAP_XMAX_IS_MULTI as u16 != 0 {
            c::HeapTupleGetUpdateXid(tuple)
        } else {
            (*tuple).t_choice.t_heap.t_xmax
        };
        c::TransactionIdIsCurrentTransactionId(xmax)
    }
}

/// Is this the last version of its row?
///
/// # Safety
/// The header of a tuple.
unsafe fn points_to(tuple: *const pg_sys::HeapTupleHeaderData, block: u32, offset: u16) -> bool {
    // SAFETY: this function's contract covers the argument.
    unsafe { block_of(&(*tuple).t_ctid) == block && (*tuple).t_ctid.ip_posid == offset }
}

/// The error for an updated row that the load may have to remove. Guarded.
fn updated(relation: Relation<'_>) -> Error {
    let name = relation.name_text();
    let message = format!("a function has updated rows of table \"{name}\" while they were being loaded");
    Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        .detail("With on_error = table or on_duplicate, the load may have to remove them.")
        .hint("Load without these options, or without the function.")
}
