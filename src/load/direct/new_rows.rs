//! The rows that a load has put into a relation, read back.
//!
//! They are where no row was before, but for a few that heap_insert put elsewhere, and others may have inserted theirs in
//! between. A row is ours if its xid and command are: nobody else has this xid, and no other command of ours has this
//! command id. Pages are read through shared buffers, as anybody reads them: from here on they may be in use.

use pg_bulk_format::page::MAX_TUPLES;
use pgrx::pg_sys;

use super::heap::block_of;
use crate::pg::unguarded as c;

const MAIN: pg_sys::ForkNumber::Type = pg_sys::ForkNumber::MAIN_FORKNUM;

/// New rows of a relation.
#[derive(Debug)]
pub struct NewRows {
    pub relation: pg_sys::Relation,
    /// They are in this block and behind it, ...
    pub start: u32,
    /// ... but for these.
    pub elsewhere: Vec<pg_sys::ItemPointerData>,
    pub xmin: u32,
    pub cid: u32,
}

impl NewRows {
    /// Call `visit` with each row in the slot, in the order of the heap.
    ///
    /// # Safety
    /// A plain frame, an open relation, and a slot for its buffered tuples. `visit` owns nothing that has a destructor.
    pub unsafe fn for_each(&self, slot: *mut pg_sys::TupleTableSlot, mut visit: impl FnMut()) {
        // SAFETY: the caller vouches for frame, relation and slot.
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

    /// The same for one of the rows.
    ///
    /// # Safety
    /// As [`NewRows::for_each`].
    pub unsafe fn visit(
        &self,
        row: &pg_sys::ItemPointerData,
        slot: *mut pg_sys::TupleTableSlot,
        mut visit: impl FnMut(),
    ) {
        // SAFETY: the caller vouches for frame, relation and slot.
        unsafe { self.visit_page(block_of(row), Some(row.ip_posid), std::ptr::null_mut(), slot, &mut visit) };
    }

    /// # Safety
    /// As [`NewRows::for_each`]; a block of the relation.
    unsafe fn visit_page(
        &self,
        block: u32,
        only: Option<u16>,
        strategy: pg_sys::BufferAccessStrategy,
        slot: *mut pg_sys::TupleTableSlot,
        visit: &mut impl FnMut(),
    ) {
        // SAFETY: the caller vouches for frame, relation and slot. The page is looked at under a pin and a lock, rows under
        // a pin: they are ours, and nobody moves them while the page is pinned.
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
                // The slot must not point to the tuple above when that is gone.
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
    /// A tuple's header.
    unsafe fn is_ours(&self, tuple: *const pg_sys::HeapTupleHeaderData) -> bool {
        // SAFETY: the caller vouches for it. A row of ours that nobody has deleted has no combo command id.
        unsafe {
            let heap = (*tuple).t_choice.t_heap;
            let is_deleted = (*tuple).t_infomask & pg_sys::HEAP_COMBOCID as u16 != 0;
            heap.t_xmin.into_inner() == self.xmin && heap.t_field3.t_cid == self.cid && !is_deleted
        }
    }
}
