//! A page of a heap, and rows on it that are marked as deleted.
//!
//! The marks and the WAL records are those of heap_delete, for a row that this transaction has inserted and that has
//! not been touched since.

use pgrx::pg_sys;

use super::{BLCKSZ, block_of, number_of, row_of};
use crate::server::compat;
use crate::server::relation::Relation;

const MAIN: pg_sys::ForkNumber::Type = pg_sys::ForkNumber::MAIN_FORKNUM;
/// XLOG_HEAP_DELETE, XLHL_KEYS_UPDATED (heapam_xlog.h)
const DELETE: u8 = 0x10;
const KEYS_UPDATED: u8 = 0x10;
/// Size of a page's header (SizeOfPageHeaderData) and of a tuple's (SizeofHeapTupleHeader).
const PAGE_HEAD: usize = 24;
const TUPLE_HEAD: usize = 23;
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

const _: () = {
    assert!(std::mem::offset_of!(pg_sys::PageHeaderData, pd_linp) == PAGE_HEAD);
    assert!(std::mem::offset_of!(pg_sys::HeapTupleHeaderData, t_bits) == TUPLE_HEAD);
};

/// The transaction and the command that delete.
#[derive(Debug, Clone, Copy)]
pub struct Deleter {
    pub xid: pg_sys::TransactionId,
    command: pg_sys::CommandId,
    /// The command id for deleted rows that one command has inserted. One command inserts all rows of a load.
    known: Option<CommandIds>,
    /// Outside of parallel mode, where a combo command id can be created.
    may_ask: bool,
}

#[derive(Debug, Clone, Copy)]
struct CommandIds {
    made_by: pg_sys::CommandId,
    command: pg_sys::CommandId,
    is_combo: bool,
}

impl Deleter {
    /// Deletion by the current command. Guarded.
    ///
    /// # Safety
    /// Outside of parallel mode, in a transaction that has an id.
    pub unsafe fn current() -> Deleter {
        // SAFETY: this function's contract covers the argument; guarded calls.
        unsafe {
            let (xid, command) = (pg_sys::GetCurrentTransactionId(), pg_sys::GetCurrentCommandId(true));
            Deleter { xid, command, known: None, may_ask: true }
        }
    }

    /// Is the command id for deleted rows known?
    pub fn knows(&self) -> bool {
        self.known.is_some()
    }

    /// A copy for parallel mode.
    pub fn in_parallel(self) -> Deleter {
        Deleter { may_ask: false, ..self }
    }

    /// The command id for a row, or None if there is none and it cannot be created. Guarded.
    ///
    /// # Safety
    /// A row that this transaction has inserted.
    unsafe fn of(&mut self, tuple: *const pg_sys::HeapTupleHeaderData) -> Option<CommandIds> {
        // SAFETY: this function's contract covers the argument; a guarded call.
        unsafe {
            let made_by = (*tuple).t_choice.t_heap.t_field3.t_cid;
            if let Some(known) = self.known.filter(|known| known.made_by == made_by) {
                return Some(known);
            }
            if !self.may_ask || made_by >= self.command {
                return None;
            }
            let mut known = CommandIds { made_by, command: self.command, is_combo: false };
            pg_sys::HeapTupleHeaderAdjustCmax(tuple.cast_mut(), &raw mut known.command, &raw mut known.is_combo);
            self.known = Some(known);
            self.known
        }
    }
}

/// A row that is going to be marked.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    /// Its index in the window.
    pub page: usize,
    pub row: u64,
    /// Offset of its tuple on the page.
    at: usize,
    known: CommandIds,
}

#[derive(Debug, Clone)]
#[repr(C, align(4096))]
pub struct Page(pub [u8; BLCKSZ]);

/// Pages as bytes.
pub fn bytes_of(pages: &mut [Page]) -> &mut [u8] {
    // SAFETY: pages are arrays of bytes.
    unsafe { std::slice::from_raw_parts_mut(pages.as_mut_ptr().cast::<u8>(), size_of_val(pages)) }
}

impl Page {
    fn head(&mut self) -> *mut pg_sys::PageHeaderData {
        self.0.as_mut_ptr().cast()
    }

    /// Is it an intact heap page on which a deletion only has to mark the row?
    pub fn is_plain(&mut self, block: u32) -> bool {
        // SAFETY: a page has a header; it is aligned. Without checksums, none is set.
        unsafe {
            let head = self.head();
            let checksum = (*head).pd_checksum;
            pg_sys::PageSetChecksumInplace(head.cast(), block);
            let is_intact = std::mem::replace(&mut (*head).pd_checksum, checksum) == checksum;
            let lower = usize::from((*head).pd_lower);
            is_intact
                && (*head).pd_flags & pg_sys::PD_ALL_VISIBLE as u16 == 0
                && (PAGE_HEAD..=BLCKSZ).contains(&lower)
                && usize::from((*head).pd_special) == BLCKSZ
        }
    }

    /// How to mark a row, if it is unchanged since this transaction inserted it. Guarded.
    pub fn mark(&mut self, page: usize, row: u64, deleter: &mut Deleter) -> Option<Mark> {
        let offset = usize::from(row as u16);
        let id_at = PAGE_HEAD + offset.checked_sub(1)? * size_of::<pg_sys::ItemIdData>();
        // SAFETY: the header of a page; a line pointer below `pd_lower`; a tuple in the page; all are aligned.
        unsafe {
            if id_at + size_of::<pg_sys::ItemIdData>() > usize::from((*self.head()).pd_lower) {
                return None;
            }
            let id = self.0.as_ptr().add(id_at).cast::<pg_sys::ItemIdData>();
            let at = (*id).lp_off() as usize;
            let is_there = (*id).lp_flags() == pg_sys::LP_NORMAL
                && at.is_multiple_of(pg_sys::MAXIMUM_ALIGNOF as usize)
                && at >= PAGE_HEAD
                && at + TUPLE_HEAD <= BLCKSZ;
            if !is_there {
                return None;
            }
            let tuple = self.tuple(at);
            let infomask = (*tuple).t_infomask;
            let is_ours = (*tuple).t_choice.t_heap.t_xmin == deleter.xid
                && infomask & WITH == WITH
                && infomask & WITHOUT == 0
                && number_of(&(*tuple).t_ctid) == row;
            if !is_ours {
                return None;
            }
            Some(Mark { page, row, at, known: deleter.of(tuple)? })
        }
    }

    /// # Safety
    /// There is a tuple at this offset.
    unsafe fn tuple(&mut self, at: usize) -> *mut pg_sys::HeapTupleHeaderData {
        // SAFETY: this function's contract covers the argument.
        unsafe { self.0.as_mut_ptr().add(at).cast() }
    }

    /// Mark a row as deleted (heap_delete, heapam.c).
    pub fn delete(&mut self, mark: &Mark, xid: pg_sys::TransactionId) {
        // SAFETY: `mark` has found the tuple.
        unsafe {
            let head = self.head();
            // PageSetPrunable (bufpage.h). While this transaction is in progress, no other id on the page precedes it.
            let prunable = (*head).pd_prune_xid;
            if prunable == pg_sys::InvalidTransactionId || pg_sys::TransactionIdPrecedes(xid, prunable) {
                (*head).pd_prune_xid = xid;
            }
            let tuple = &mut *self.tuple(mark.at);
            tuple.t_infomask &= !((pg_sys::HEAP_XMAX_BITS | pg_sys::HEAP_MOVED | pg_sys::HEAP_COMBOCID) as u16);
            if mark.known.is_combo {
                tuple.t_infomask |= pg_sys::HEAP_COMBOCID as u16;
            }
            tuple.t_infomask2 |= pg_sys::HEAP_KEYS_UPDATED as u16;
            tuple.t_infomask2 &= !(pg_sys::HEAP_HOT_UPDATED as u16);
            tuple.t_choice.t_heap.t_xmax = xid;
            tuple.t_choice.t_heap.t_field3.t_cid = mark.known.command;
            tuple.t_ctid = row_of(mark.row);
        }
    }

    /// PageSetLSN (bufpage.h)
    pub fn set_lsn(&mut self, lsn: pg_sys::XLogRecPtr) {
        // SAFETY: the header of a page.
        unsafe { (*self.head()).pd_lsn = pg_sys::PageXLogRecPtr { xlogid: (lsn >> 32) as u32, xrecoff: lsn as u32 } };
    }
}

/// Log the deletion of a row (heap_delete, heapam.c). Returns the end of the record.
///
/// # Safety
/// A critical section, and the page of the row.
pub unsafe fn log(relation: Relation<'_>, row: u64, page: &mut Page, xid: pg_sys::TransactionId) -> pg_sys::XLogRecPtr {
    // xl_heap_delete: xmax, the row's offset number, the bits that are set, flags.
    let [a, b, c, d] = xid.into_inner().to_ne_bytes();
    let [low, high] = (row as u16).to_ne_bytes();
    let mut record = [a, b, c, d, low, high, KEYS_UPDATED, 0];
    // SAFETY: this function's contract covers all arguments; the data outlive XLogInsert.
    unsafe {
        pg_sys::XLogBeginInsert();
        compat::xlog_register_data(record.as_mut_ptr(), record.len());
        let keep = pg_sys::REGBUF_STANDARD as u8;
        compat::xlog_register_block(relation, MAIN, block_of(row), page.0.as_mut_ptr(), keep);
        pg_sys::XLogInsert(pg_sys::RmgrIds::RM_HEAP_ID as u8, DELETE)
    }
}
