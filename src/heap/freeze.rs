//! `freeze`: rows that are visible to all snapshots as soon as the transaction commits.
//!
//! No other snapshot may see such rows too early, so the conditions are those of COPY FREEZE. A page of frozen rows is
//! marked all-visible; after the last row, the visibility map's bits are set, too.

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use crate::error::{Error, Result};
use crate::server::compat;
use crate::server::relation::Relation;

const MAIN: pg_sys::ForkNumber::Type = pg_sys::ForkNumber::MAIN_FORKNUM;
/// PD_ALL_VISIBLE (bufpage.h)
const ALL_VISIBLE: u16 = pg_sys::PD_ALL_VISIBLE as u16;

/// Checks that rows of this table may be frozen, as CopyFrom does (copyfrom.c). Guarded.
pub fn check_freeze(relation: Relation<'_>) -> Result<()> {
    // SAFETY: guarded calls; the relation is open.
    unsafe {
        if relation.is_partitioned() {
            let message = "cannot perform COPY FREEZE on a partitioned table";
            return Err(Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message));
        }
        pg_sys::InvalidateCatalogSnapshot();
        if !pg_sys::ThereAreNoPriorRegisteredSnapshots() || !pg_sys::ThereAreNoReadyPortals() {
            let message = "cannot perform COPY FREEZE because of prior transaction activity";
            return Err(Error::new(Code::ERRCODE_INVALID_TRANSACTION_STATE, message));
        }
        let own = pg_sys::GetCurrentSubTransactionId();
        if (*relation.as_ptr()).rd_createSubid != own && compat::new_file_subid(relation) != own {
            let message = "cannot perform COPY FREEZE because the table was not created or truncated in the current \
                           subtransaction";
            return Err(Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
    }
    Ok(())
}

/// Sets the visibility map's bits for the pages of frozen rows from `start` on. Guarded.
pub fn set_visibility(relation: Relation<'_>, start: u32) {
    let dirties = compat::dirties_visible(relation);
    let relation = relation.as_ptr();
    // SAFETY: guarded calls on an open relation; as heap_multi_insert (heapam.c) sets the bits, with the page locked.
    unsafe {
        let strategy = pg_sys::GetAccessStrategy(pg_sys::BufferAccessStrategyType::BAS_BULKREAD);
        let mut map = pg_sys::InvalidBuffer.cast_signed();
        for block in start..pg_sys::RelationGetNumberOfBlocksInFork(relation, MAIN) {
            pgrx::check_for_interrupts!();
            pg_sys::visibilitymap_pin(relation, block, &raw mut map);
            let normal = pg_sys::ReadBufferMode::RBM_NORMAL;
            let buffer = pg_sys::ReadBufferExtended(relation, MAIN, block, normal, strategy);
            pg_sys::LockBuffer(buffer, pg_sys::BUFFER_LOCK_EXCLUSIVE.cast_signed());
            let page = pg_sys::BufferGetPage(buffer).cast::<pg_sys::PageHeaderData>();
            if (*page).pd_flags & ALL_VISIBLE != 0 {
                // A function may have locked a row of the page in the meantime. Such a lock leaves the page all-visible
                // (heap_lock_tuple, heapam.c), but VACUUM must find the lock's transaction id before it is too old.
                let has_xmax = (1..=pg_sys::PageGetMaxOffsetNumber(page.cast())).any(|offset| {
                    let id = pg_sys::PageGetItemId(page.cast(), offset);
                    let tuple = pg_sys::PageGetItem(page.cast(), id).cast::<pg_sys::HeapTupleHeaderData>();
                    (*id).lp_flags() == pg_sys::LP_NORMAL && (*tuple).t_infomask & pg_sys::HEAP_XMAX_INVALID as u16 == 0
                });
                let frozen = if has_xmax { 0 } else { pg_sys::VISIBILITYMAP_ALL_FROZEN };
                let bits = pg_sys::VISIBILITYMAP_ALL_VISIBLE | frozen;
                let none = pg_sys::InvalidTransactionId;
                // The page was written past shared buffers with its flag set; still marked dirty as lazy_scan_prune
                // does (vacuumlazy.c).
                if dirties {
                    pg_sys::MarkBufferDirty(buffer);
                }
                pg_sys::visibilitymap_set(relation, block, buffer, 0, map, none, bits as u8);
            }
            pg_sys::UnlockReleaseBuffer(buffer);
        }
        if map != pg_sys::InvalidBuffer.cast_signed() {
            pg_sys::ReleaseBuffer(map);
        }
        pg_sys::FreeAccessStrategy(strategy);
    }
}
