//! Files of relations, and WAL records about them.

use pg_bulk_storage::page::Page;
use pgrx::pg_sys;

use super::version::MAJOR;
use crate::server::call::{calls, passed, variables};
use crate::server::relation::Relation;

const MAIN: pg_sys::ForkNumber::Type = pg_sys::ForkNumber::MAIN_FORKNUM;

/// Identifies a relation's storage (RelFileLocator).
#[cfg(feature = "pg15")]
pub type Locator = pg_sys::RelFileNode;
#[cfg(not(feature = "pg15"))]
pub type Locator = pg_sys::RelFileLocator;

/// A relation's `rd_node`, `rd_locator` from 16 on.
pub fn locator(relation: Relation<'_>) -> Locator {
    #[cfg(feature = "pg15")]
    return relation.get().rd_node;
    #[cfg(not(feature = "pg15"))]
    return relation.get().rd_locator;
}

/// Whether both locators mean one file.
pub fn is_same_file(a: Locator, b: Locator) -> bool {
    #[cfg(feature = "pg15")]
    return (a.spcNode, a.dbNode, a.relNode) == (b.spcNode, b.dbNode, b.relNode);
    #[cfg(not(feature = "pg15"))]
    return (a.spcOid, a.dbOid, a.relNumber) == (b.spcOid, b.dbOid, b.relNumber);
}

/// Whether a relation's file was created in this transaction, so that nothing refers to it after a crash. Only the
/// process that has created it can tell.
pub fn is_new_file(relation: Relation<'_>) -> bool {
    let entry = relation.get();
    #[cfg(feature = "pg15")]
    let renewed = entry.rd_firstRelfilenodeSubid;
    #[cfg(not(feature = "pg15"))]
    let renewed = entry.rd_firstRelfilelocatorSubid;
    entry.rd_createSubid != 0 || renewed != 0
}

/// Returns the subtransaction that assigned a relation's current file, if it belongs to this transaction.
pub fn new_file_subid(relation: Relation<'_>) -> pg_sys::SubTransactionId {
    #[cfg(feature = "pg15")]
    return relation.get().rd_newRelfilenodeSubid;
    #[cfg(not(feature = "pg15"))]
    return relation.get().rd_newRelfilelocatorSubid;
}

// SAFETY: the relation is open.
#[cfg(feature = "pg15")]
calls! {
    /// `RelationSetNewRelfilenumber`, of a relation that is locked exclusively. Guarded.
    pub fn set_new_file(relation: Relation<'_>, persistence: std::ffi::c_char)
        = RelationSetNewRelfilenode(relation, persistence);
}
#[cfg(not(feature = "pg15"))]
calls! {
    /// `RelationSetNewRelfilenumber`, of a relation that is locked exclusively. Guarded.
    pub fn set_new_file(relation: Relation<'_>, persistence: std::ffi::c_char)
        = RelationSetNewRelfilenumber(relation, persistence);
}

variables! {
    fn wal_level() -> i32 = wal_level;
    fn wal_log_hints() -> bool = wal_log_hints;
}

// SAFETY: reads shared memory.
calls! {
    fn has_checksums() -> bool = DataChecksumsEnabled();
}

/// `RelationNeedsWAL`: a permanent relation, unless its storage is new in this transaction and wal_level is minimal.
pub fn needs_wal(relation: Relation<'_>) -> bool {
    let permanent = relation.persistence() == pg_sys::RELPERSISTENCE_PERMANENT;
    let minimal = wal_level() < pg_sys::WalLevel::WAL_LEVEL_REPLICA.cast_signed();
    permanent && !(minimal && is_new_file(relation))
}

/// Whether a heap page must be dirty before visibilitymap_set logs that it is all-visible: true if the page gets the
/// record's LSN (XLogHintBitIsNeeded). From 17 on, XLogRegisterBuffer asserts a dirty page in any case. Guarded.
pub fn dirties_visible(relation: Relation<'_>) -> bool {
    needs_wal(relation) && (MAJOR >= 17 || wal_log_hints() || has_checksums())
}

/// `relpath` of the main fork, relative to the data directory. None if another storage manager than the one for magnetic
/// disks has the relation. Guarded.
pub fn relation_path(relation: Relation<'_>) -> Option<std::ffi::CString> {
    // SAFETY: guarded calls; an open relation has a storage manager's entry. The result is a string that is palloc'd or
    // returned by value.
    unsafe {
        let smgr = pg_sys::RelationGetSmgr(relation.as_ptr());
        if (*smgr).smgr_which != 0 {
            return None;
        }
        #[cfg(feature = "pg15")]
        let path = {
            let pg_sys::RelFileNodeBackend { node, backend } = (*smgr).smgr_rnode;
            pg_sys::GetRelationPath(node.dbNode, node.spcNode, node.relNode, backend, MAIN)
        };
        #[cfg(not(feature = "pg15"))]
        let path = {
            let pg_sys::RelFileLocatorBackend { locator, backend } = (*smgr).smgr_rlocator;
            pg_sys::GetRelationPath(locator.dbOid, locator.spcOid, locator.relNumber, backend, MAIN)
        };
        #[cfg(not(feature = "pg18"))]
        {
            let copy = std::ffi::CStr::from_ptr(path).to_owned();
            pg_sys::pfree(path.cast());
            Some(copy)
        }
        #[cfg(feature = "pg18")]
        Some(std::ffi::CStr::from_ptr(path.str_.as_ptr()).to_owned())
    }
}

// SAFETY: the locator is copied.
calls! {
    /// `log_smgrcreate`, for a fork that was just created. Guarded.
    pub fn log_smgrcreate(relation: Relation<'_>, fork: pg_sys::ForkNumber::Type)
        = log_smgrcreate((&locator(relation)), fork) unguarded;
}

// SAFETY: the page is borrowed as long.
passed! {
    &mut Page => pg_sys::Page = |page| page.0.as_mut_ptr().cast();
}

// SAFETY: a page, and a locator, which is copied.
calls! {
    /// `PageSetChecksumInplace`, for the block that a page is going to be.
    pub fn set_checksum(page: &mut Page, block: u32) = PageSetChecksumInplace(page, block);
    /// `log_newpage` of a page of the main fork with the standard layout. Guarded.
    pub fn log_newpage(relation: Relation<'_>, block: u32, page: &mut Page) -> pg_sys::XLogRecPtr
        = log_newpage((&mut locator(relation)), (MAIN), block, page, true);
}

/// `log_newpages` for pages of the main fork with the standard layout, each with its block. Sets their LSN. Guarded,
/// outside of critical sections.
pub fn log_newpages(relation: Relation<'_>, blocks: &mut [u32], pages: &mut [&mut Page]) {
    let count = i32::try_from(blocks.len().min(pages.len())).unwrap_or(0);
    let mut locator = locator(relation);
    // SAFETY: a guarded call, which copies the locator. A reference is a pointer.
    unsafe {
        pg_sys::log_newpages(&raw mut locator, MAIN, count, blocks.as_mut_ptr(), pages.as_mut_ptr().cast(), true);
    }
}

/// A change of a page that WAL describes.
pub struct PageChange<'a> {
    pub block: u32,
    pub page: &'a Page,
    /// REGBUF_STANDARD, …
    pub flags: u32,
    pub data: &'a [u8],
}

/// Inserts a WAL record with a change of a page of the main fork. In a critical section an error is a PANIC. `flags` are
/// those of XLogSetRecordFlags. Returns the end of the record. Guarded.
pub fn log_change(
    relation: Relation<'_>,
    (manager, info): (pg_sys::RmgrIds::Type, u8),
    flags: u8,
    record: &[u8],
    change: PageChange<'_>,
) -> pg_sys::XLogRecPtr {
    let PageChange { block, page, flags: keep, data } = change;
    let mut locator = locator(relation);
    // SAFETY: guarded calls. The locator is copied; the bytes and the page outlive XLogInsert.
    unsafe {
        pg_sys::XLogBeginInsert();
        xlog_register_data(record.as_ptr().cast_mut(), record.len());
        pg_sys::XLogRegisterBlock(0, &raw mut locator, MAIN, block, page.0.as_ptr().cast_mut().cast(), keep as u8);
        if !data.is_empty() {
            pg_sys::XLogRegisterBufData(0, data.as_ptr().cast_mut().cast(), data.len() as _);
        }
        if flags != 0 {
            pg_sys::XLogSetRecordFlags(flags);
        }
        pg_sys::XLogInsert(manager as u8, info)
    }
}

/// `XLogRegisterData`. In a critical section an error is a PANIC; otherwise it raises nothing.
///
/// # Safety
/// A guarded frame, between XLogBeginInsert and XLogInsert; the bytes stay valid until the latter.
pub unsafe fn xlog_register_data(data: *mut u8, length: usize) {
    // SAFETY: valid bytes, by this function's contract. A record is far smaller than 2 GB.
    unsafe {
        #[cfg(feature = "pg15")]
        pg_sys::XLogRegisterData(data.cast(), length as i32);
        #[cfg(not(feature = "pg15"))]
        pg_sys::XLogRegisterData(data.cast(), length as u32);
    }
}

/// Asks the checkpointer to sync a segment of a main fork (`INIT_MD_FILETAG`, `RegisterSyncRequest`). Returns false if the request
/// queue is full. The relation is not temporary. Guarded.
pub fn request_sync(relation: Relation<'_>, segment: u32) -> bool {
    // SAFETY: a guarded call; the tag is copied. Tags are compared byte by byte, hence the zeroes.
    unsafe {
        let mut tag: pg_sys::FileTag = std::mem::zeroed();
        tag.handler = pg_sys::SyncRequestHandler::SYNC_HANDLER_MD as i16;
        tag.forknum = MAIN as i16;
        tag.segno = segment as _;
        #[cfg(feature = "pg15")]
        {
            tag.rnode = locator(relation);
        }
        #[cfg(not(feature = "pg15"))]
        {
            tag.rlocator = locator(relation);
        }
        pg_sys::RegisterSyncRequest(&raw const tag, pg_sys::SyncRequestType::SYNC_REQUEST, false)
    }
}
