//! A page of a heap, and rows on it that are marked as deleted.
//!
//! The marks and the WAL records are those of heap_delete, for a row that this transaction has inserted and that has
//! not been touched since.

use std::mem::offset_of;

use pg_bulk_storage::btree::entry::Tid;
use pg_bulk_storage::page::{PAGE_HEADER, PAGE_SIZE, Page};
use pg_bulk_storage::tuple::{MAX_ALIGN, T_CTID, T_INFOMASK, T_INFOMASK2, TUPLE_HEADER};
use pgrx::pg_sys;

use crate::server::compat::{self, PageChange};
use crate::server::relation::Relation;

/// XLOG_HEAP_DELETE, XLHL_KEYS_UPDATED (heapam_xlog.h)
const DELETE: u8 = 0x10;
const KEYS_UPDATED: u8 = 0x10;
/// Offsets in the header of a page (PageHeaderData) and of a tuple (HeapTupleHeaderData).
const PD_CHECKSUM: usize = offset_of!(pg_sys::PageHeaderData, pd_checksum);
const PD_FLAGS: usize = offset_of!(pg_sys::PageHeaderData, pd_flags);
const PD_LOWER: usize = offset_of!(pg_sys::PageHeaderData, pd_lower);
const PD_SPECIAL: usize = offset_of!(pg_sys::PageHeaderData, pd_special);
const PD_PRUNE_XID: usize = offset_of!(pg_sys::PageHeaderData, pd_prune_xid);
const T_XMAX: usize = offset_of!(pg_sys::HeapTupleFields, t_xmax);
const T_CID: usize = offset_of!(pg_sys::HeapTupleFields, t_field3);
/// Bits of t_infomask that a row must have: this transaction has inserted it, it has not been touched since, and all
/// its values are in the tuple.
const WITH: u16 = pg_sys::HEAP_XMAX_INVALID as u16;
/// Bits that such a row must not have.
const WITHOUT: u16 = (pg_sys::HEAP_HASEXTERNAL
    | pg_sys::HEAP_COMBOCID
    | pg_sys::HEAP_XMAX_KEYSHR_LOCK
    | pg_sys::HEAP_XMAX_EXCL_LOCK
    | pg_sys::HEAP_XMAX_LOCK_ONLY
    | pg_sys::HEAP_XMIN_COMMITTED
    | pg_sys::HEAP_XMIN_INVALID
    | pg_sys::HEAP_XMAX_COMMITTED
    | pg_sys::HEAP_XMAX_IS_MULTI
    | pg_sys::HEAP_UPDATED
    | pg_sys::HEAP_MOVED) as u16;

/// The transaction and the command that delete.
#[derive(Debug, Clone, Copy)]
pub struct Deleter {
    pub xid: pg_sys::TransactionId,
    command: pg_sys::CommandId,
    /// The command id for deleted rows that one command has inserted. One command inserts all rows of a load.
    known: Option<CommandIds>,
}

#[derive(Debug, Clone, Copy)]
struct CommandIds {
    made_by: pg_sys::CommandId,
    command: pg_sys::CommandId,
    is_combo: bool,
}

impl Deleter {
    /// Deletion by the current command, outside of parallel mode, which has no new combo command ids. Guarded.
    pub fn current() -> Deleter {
        // SAFETY: guarded calls.
        let (xid, command) = unsafe { (pg_sys::GetCurrentTransactionId(), pg_sys::GetCurrentCommandId(true)) };
        Deleter { xid, command, known: None }
    }
}

/// A row that is going to be marked.
#[derive(Debug)]
pub struct Mark {
    /// Its index in the window.
    pub page: usize,
    pub row: u64,
    /// Offset of its tuple on the page.
    at: usize,
    known: CommandIds,
}

/// Is it an intact heap page on which a deletion only has to mark the row?
pub fn is_plain(page: &mut Page, block: u32) -> bool {
    let checksum: [u8; 2] = page.get(PD_CHECKSUM);
    // Without checksums, none is set.
    compat::set_checksum(page, block);
    let is_intact = page.get(PD_CHECKSUM) == checksum;
    page.put(PD_CHECKSUM, &checksum);
    let [flags, lower, special] = [PD_FLAGS, PD_LOWER, PD_SPECIAL].map(|at| u16::from_ne_bytes(page.get(at)));
    is_intact
        && flags & pg_sys::PD_ALL_VISIBLE as u16 == 0
        && (PAGE_HEADER..=PAGE_SIZE).contains(&usize::from(lower))
        && usize::from(special) == PAGE_SIZE
}

impl Mark {
    /// How to mark a row of a page, if it is unchanged since this transaction inserted it. `number`: the page's index in
    /// the window. Guarded.
    pub fn of(page: &Page, number: usize, row: u64, deleter: &mut Deleter) -> Option<Mark> {
        let offset = usize::from(row as u16);
        if offset == 0 || offset > page.rows() {
            return None;
        }
        let (at, flags, _) = page.item(offset);
        let is_there = flags == pg_sys::LP_NORMAL
            && at.is_multiple_of(MAX_ALIGN)
            && (PAGE_HEADER..=PAGE_SIZE - TUPLE_HEADER).contains(&at);
        let infomask = u16::from_ne_bytes(page.get(at + T_INFOMASK));
        let ctid = Tid::from_bytes(page.get(at + T_CTID));
        let is_ours = is_there
            && u32::from_ne_bytes(page.get(at)) == deleter.xid.into_inner()
            && infomask & WITH == WITH
            && infomask & WITHOUT == 0
            && ctid.to_u64() == row;
        if !is_ours {
            return None;
        }
        let made_by = u32::from_ne_bytes(page.get(at + T_CID));
        let known = deleter.known.filter(|known| known.made_by == made_by);
        let known = known.or_else(|| {
            (made_by < deleter.command).then(|| {
                let (mut command, mut is_combo) = (deleter.command, false);
                // SAFETY: a guarded call. The page has the aligned header of a tuple, without a combo command id, which
                // is only read.
                unsafe {
                    let tuple = page.0.as_ptr().add(at).cast_mut().cast();
                    pg_sys::HeapTupleHeaderAdjustCmax(tuple, &raw mut command, &raw mut is_combo);
                }
                *deleter.known.insert(CommandIds { made_by, command, is_combo })
            })
        })?;
        Some(Mark { page: number, row, at, known })
    }

    /// Mark the row as deleted (heap_delete, heapam.c), and log that (`logs`). In a critical section. Guarded.
    pub fn delete(&self, page: &mut Page, xid: pg_sys::TransactionId, relation: Relation<'_>, logs: bool) {
        let (at, CommandIds { command, is_combo, .. }) = (self.at, self.known);
        let xid_bytes = xid.into_inner().to_ne_bytes();
        // PageSetPrunable (bufpage.h). While this transaction is in progress, no other id on the page precedes it.
        let prunable = pg_sys::TransactionId::from(u32::from_ne_bytes(page.get(PD_PRUNE_XID)));
        // SAFETY: a guarded call.
        if prunable == pg_sys::InvalidTransactionId || unsafe { pg_sys::TransactionIdPrecedes(xid, prunable) } {
            page.put(PD_PRUNE_XID, &xid_bytes);
        }
        let [infomask, infomask2] = [T_INFOMASK, T_INFOMASK2].map(|mask| u16::from_ne_bytes(page.get(at + mask)));
        let infomask = infomask & !((pg_sys::HEAP_XMAX_BITS | pg_sys::HEAP_MOVED | pg_sys::HEAP_COMBOCID) as u16)
            | if is_combo { pg_sys::HEAP_COMBOCID as u16 } else { 0 };
        let infomask2 = (infomask2 | pg_sys::HEAP_KEYS_UPDATED as u16) & !(pg_sys::HEAP_HOT_UPDATED as u16);
        let row = Tid::from_u64(self.row);
        page.put(at + T_INFOMASK, &infomask.to_ne_bytes());
        page.put(at + T_INFOMASK2, &infomask2.to_ne_bytes());
        page.put(at + T_XMAX, &xid_bytes);
        page.put(at + T_CID, &command.to_ne_bytes());
        page.put(at + T_CTID, &row.to_bytes());
        if logs {
            // xl_heap_delete: xmax, the row's offset number, the bits that are set, flags.
            let [a, b, c, d] = xid_bytes;
            let [low, high] = row.offset().to_ne_bytes();
            let record = [a, b, c, d, low, high, KEYS_UPDATED, 0];
            let id = (pg_sys::RmgrIds::RM_HEAP_ID, DELETE);
            let change = PageChange { block: row.block(), page, flags: pg_sys::REGBUF_STANDARD, data: &[] };
            page.set_lsn(compat::log_change(relation, id, 0, &record, change));
        }
    }
}
