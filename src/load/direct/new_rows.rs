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
use pg_bulk_storage::tuple::Stamp;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::heap::block_of;
use crate::error::Error;
use crate::server::relation::Relation;
use crate::server::unguarded::{self as c, guard};

const MAIN: pg_sys::ForkNumber::Type = pg_sys::ForkNumber::MAIN_FORKNUM;

/// New rows of a relation. The relation stays open as long as this value is used.
#[derive(Debug)]
pub struct NewRows {
    relation: Relation<'static>,
    /// First block of the rows ...
    start: u32,
    /// ... except for these.
    elsewhere: Vec<pg_sys::ItemPointerData>,
    stamp: Stamp,
    /// The load deletes rejects and duplicates from the table. Then deleted rows do not count as its rows.
    removes: bool,
    /// A slot for a row, and another one. Null after they are closed.
    slots: [*mut pg_sys::TupleTableSlot; 2],
}

impl NewRows {
    /// The rows with this stamp: from a block on, and a few elsewhere. Guarded; allocates in the current memory context.
    pub fn new(
        relation: Relation<'static>,
        stamp: Stamp,
        (start, elsewhere): (u32, Vec<pg_sys::ItemPointerData>),
        removes: bool,
    ) -> NewRows {
        // SAFETY: a guarded call on an open relation.
        let slots = [(); 2].map(|()| unsafe { pg_sys::table_slot_create(relation.as_ptr(), std::ptr::null_mut()) });
        NewRows { relation, start, elsewhere, stamp, removes, slots }
    }

    pub fn relation(&self) -> Relation<'static> {
        self.relation
    }

    /// The slot in which rows are visited.
    pub fn slot(&self) -> *mut pg_sys::TupleTableSlot {
        self.slots[0]
    }

    /// Frees the slots. Guarded.
    pub fn close(&mut self) {
        for slot in self.slots.iter_mut().filter(|slot| !slot.is_null()) {
            // SAFETY: a guarded call; made by `new`.
            unsafe { pg_sys::ExecDropSingleTupleTableSlot(std::mem::replace(slot, std::ptr::null_mut())) };
        }
    }

    /// Calls `visit` with each row in the slot, in the order of the heap. Guarded.
    ///
    /// # Safety
    /// `visit` is plain: it owns nothing that has a destructor, and no panic leaves it. It may read the slot's row. The
    /// slots were not closed.
    pub unsafe fn for_each(&self, mut visit: impl FnMut(*mut pg_sys::TupleTableSlot)) {
        // SAFETY: the relation is open and has these blocks; the closure is plain, as `visit` is.
        unsafe {
            guard(|| {
                let strategy = c::GetAccessStrategy(pg_sys::BufferAccessStrategyType::BAS_BULKREAD);
                let end = c::RelationGetNumberOfBlocksInFork(self.relation.as_ptr(), MAIN);
                for block in self.start..end {
                    self.visit_page(block, None, strategy, self.slot(), &mut visit);
                }
                for tid in &self.elsewhere {
                    self.visit_page(block_of(tid), Some(tid.ip_posid), strategy, self.slot(), &mut visit);
                }
                c::FreeAccessStrategy(strategy);
            });
        }
    }

    /// Calls `visit` with one of the rows in the slot.
    ///
    /// # Safety
    /// As [`NewRows::for_each`], and the caller's frame is plain; `row` is a row of the relation.
    pub unsafe fn visit(&self, row: &pg_sys::ItemPointerData, mut visit: impl FnMut(*mut pg_sys::TupleTableSlot)) {
        // SAFETY: the row's block is in the relation.
        unsafe { self.visit_page(block_of(row), Some(row.ip_posid), std::ptr::null_mut(), self.slot(), &mut visit) };
    }

    /// Is a row of the relation one of the rows? Uses the other slot.
    ///
    /// # Safety
    /// A plain frame; `row` is a row of the relation.
    pub unsafe fn has(&self, row: &pg_sys::ItemPointerData) -> bool {
        let mut found = false;
        let mut visit = |_| found = true;
        // SAFETY: the row's block is in the relation; the closure owns nothing.
        unsafe { self.visit_page(block_of(row), Some(row.ip_posid), std::ptr::null_mut(), self.slots[1], &mut visit) };
        found
    }

    /// # Safety
    /// See [`NewRows::for_each`]; `block` is in the relation.
    unsafe fn visit_page(
        &self,
        block: u32,
        only: Option<u16>,
        strategy: pg_sys::BufferAccessStrategy,
        slot: *mut pg_sys::TupleTableSlot,
        visit: &mut impl FnMut(*mut pg_sys::TupleTableSlot),
    ) {
        let relation = self.relation.as_ptr();
        // SAFETY: an open relation, and a slot for its buffered tuples. The page is read under a pin and a lock, rows under
        // a pin: they are uncommitted, and do not move while the page is pinned.
        unsafe {
            c::check_for_interrupts();
            let normal = pg_sys::ReadBufferMode::RBM_NORMAL;
            let buffer = c::ReadBufferExtended(relation, MAIN, block, normal, strategy);
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
                    if !points_to(&*header, block, offset) {
                        c::guarded::<()>(|| updated(self.relation).raise());
                    }
                    continue;
                }
                let mut tuple = pg_sys::HeapTupleData {
                    t_len: (*id).lp_len(),
                    t_self: pg_sys::ItemPointerData {
                        ip_blkid: pg_sys::BlockIdData { bi_hi: (block >> 16) as u16, bi_lo: block as u16 },
                        ip_posid: offset,
                    },
                    t_tableOid: self.relation.oid(),
                    t_data: pg_sys::PageGetItem(page, id).cast(),
                };
                c::ExecStoreBufferHeapTuple(&raw mut tuple, slot, buffer);
                visit(slot);
                // The slot must not point to the tuple above after this block.
                if let Some(clear) = (*(*slot).tts_ops).clear {
                    clear(slot);
                }
            }
            c::ReleaseBuffer(buffer);
        }
    }

    /// Did this load insert the tuple? A combo command id hides the command (HeapTupleHeaderGetCmin, combocid.c).
    ///
    /// # Safety
    /// The header is on a page that is locked.
    unsafe fn is_ours(&self, tuple: *const pg_sys::HeapTupleHeaderData) -> bool {
        // SAFETY: a tuple on a page of the heap has these fields. If this transaction has inserted it, the server knows its
        // combo command id, and raises nothing. Only the fixed part of the header is copied and read.
        unsafe {
            let heap = (*tuple).t_choice.t_heap;
            if heap.t_xmin.into_inner() != self.stamp.xmin {
                return false;
            }
            let cid = heap.t_field3.t_cid;
            let infomask = (*tuple).t_infomask;
            if infomask & pg_sys::HEAP_COMBOCID as u16 != 0 {
                let mut head = std::mem::zeroed::<pg_sys::HeapTupleHeaderData>();
                (head.t_choice, head.t_infomask) = ((*tuple).t_choice, infomask);
                return c::HeapTupleHeaderGetCmin(&raw mut head) == self.stamp.cid;
            }
            // A deleted frozen row does not show this. A load of frozen rows has raised an error by now (Held).
            cid == self.stamp.cid
        }
    }
}

/// Has this transaction deleted or updated the tuple?
///
/// # Safety
/// This transaction has inserted the tuple, and its page is pinned.
unsafe fn is_gone(tuple: *const pg_sys::HeapTupleHeaderData) -> bool {
    const UNTOUCHED: u16 = (pg_sys::HEAP_XMAX_INVALID | pg_sys::HEAP_XMAX_LOCK_ONLY) as u16;
    // SAFETY: the header stays in place. No other transaction can delete an uncommitted row. Neither function
    // raises anything: the members of a multixact of this transaction are in memory.
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
fn points_to(tuple: &pg_sys::HeapTupleHeaderData, block: u32, offset: u16) -> bool {
    block_of(&tuple.t_ctid) == block && tuple.t_ctid.ip_posid == offset
}

/// The error for an updated row that the load may have to remove. Guarded.
fn updated(relation: Relation<'_>) -> Error {
    let name = relation.name_text();
    let message = format!("a function has updated rows of table \"{name}\" while they were being loaded");
    Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        .detail("With on_error = table or on_duplicate, the load may have to remove them.")
        .hint("Load without these options, or without the function.")
}
