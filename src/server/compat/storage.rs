//! Files of relations, and WAL records about them.

use pgrx::pg_sys;

use super::version::MAJOR;
use crate::server::relation::Relation;

/// Identifies a relation's storage (RelFileLocator).
#[cfg(feature = "pg15")]
pub type Locator = pg_sys::RelFileNode;
#[cfg(not(feature = "pg15"))]
pub type Locator = pg_sys::RelFileLocator;

/// A relation's `rd_node`, `rd_locator` from 16 on.
pub fn locator(relation: Relation<'_>) -> Locator {
    // SAFETY: the relation is open.
    unsafe {
        #[cfg(feature = "pg15")]
        return (*relation.as_ptr()).rd_node;
        #[cfg(not(feature = "pg15"))]
        return (*relation.as_ptr()).rd_locator;
    }
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
    // SAFETY: the relation is open.
    unsafe {
        let relation = relation.as_ptr();
        #[cfg(feature = "pg15")]
        let renewed = (*relation).rd_firstRelfilenodeSubid;
        #[cfg(not(feature = "pg15"))]
        let renewed = (*relation).rd_firstRelfilelocatorSubid;
        (*relation).rd_createSubid != 0 || renewed != 0
    }
}

/// Returns the subtransaction that assigned a relation's current file, if it belongs to this transaction.
pub fn new_file_subid(relation: Relation<'_>) -> pg_sys::SubTransactionId {
    // SAFETY: the relation is open.
    unsafe {
        let relation = relation.as_ptr();
        #[cfg(feature = "pg15")]
        return (*relation).rd_newRelfilenodeSubid;
        #[cfg(not(feature = "pg15"))]
        return (*relation).rd_newRelfilelocatorSubid;
    }
}

/// `RelationSetNewRelfilenumber`, of a relation that is locked exclusively. Guarded.
pub fn set_new_file(relation: Relation<'_>, persistence: std::ffi::c_char) {
    // SAFETY: a guarded call; the relation is open.
    unsafe {
        let relation = relation.as_ptr();
        #[cfg(feature = "pg15")]
        pg_sys::RelationSetNewRelfilenode(relation, persistence);
        #[cfg(not(feature = "pg15"))]
        pg_sys::RelationSetNewRelfilenumber(relation, persistence);
    }
}

/// `RelationNeedsWAL`: a permanent relation, unless its storage is new in this transaction and wal_level is minimal.
pub fn needs_wal(relation: Relation<'_>) -> bool {
    let permanent = relation.persistence() == pg_sys::RELPERSISTENCE_PERMANENT;
    // SAFETY: a setting.
    let minimal = unsafe { pg_sys::wal_level } < pg_sys::WalLevel::WAL_LEVEL_REPLICA.cast_signed();
    permanent && !(minimal && is_new_file(relation))
}

/// Whether a heap page must be dirty before visibilitymap_set logs that it is all-visible: true if the page gets the
/// record's LSN (XLogHintBitIsNeeded). From 17 on, XLogRegisterBuffer asserts a dirty page in any case. Guarded.
pub fn dirties_visible(relation: Relation<'_>) -> bool {
    // SAFETY: a setting, and a guarded call that reads shared memory.
    needs_wal(relation) && (MAJOR >= 17 || unsafe { pg_sys::wal_log_hints || pg_sys::DataChecksumsEnabled() })
}

/// `relpath` of the main fork, relative to the data directory. None if another storage manager than the one for magnetic
/// disks has the relation. Guarded.
pub fn relation_path(relation: Relation<'_>) -> Option<std::ffi::CString> {
    const MAIN: pg_sys::ForkNumber::Type = pg_sys::ForkNumber::MAIN_FORKNUM;
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

/// `log_smgrcreate`, for a fork that was just created. Guarded.
pub fn log_smgrcreate(relation: Relation<'_>, fork: pg_sys::ForkNumber::Type) {
    use crate::server::unguarded as c;
    let locator = locator(relation);
    // SAFETY: the locator is copied; the closure owns nothing.
    unsafe { c::guard(|| c::log_smgrcreate(&raw const locator, fork)) };
}

/// `log_newpage` of a page with the standard layout.
///
/// # Safety
/// A page.
pub unsafe fn log_newpage(
    relation: Relation<'_>,
    fork: pg_sys::ForkNumber::Type,
    block: u32,
    page: *mut u8,
) -> pg_sys::XLogRecPtr {
    let mut locator = locator(relation);
    // SAFETY: a guarded call; the page has BLCKSZ bytes. The locator is copied.
    unsafe { pg_sys::log_newpage(&raw mut locator, fork, block, page.cast(), true) }
}

/// `log_newpages` for pages with the standard layout. Sets their LSN.
///
/// # Safety
/// Pages, outside of critical sections. Guarded.
pub unsafe fn log_newpages(
    relation: Relation<'_>,
    fork: pg_sys::ForkNumber::Type,
    blocks: &mut [u32],
    pages: &mut [*mut std::ffi::c_char],
) {
    let count = i32::try_from(blocks.len().min(pages.len())).unwrap_or(0);
    let mut locator = locator(relation);
    // SAFETY: a guarded call; each page has BLCKSZ bytes, and there is a block for each. The locator is
    // copied.
    unsafe { pg_sys::log_newpages(&raw mut locator, fork, count, blocks.as_mut_ptr(), pages.as_mut_ptr(), true) };
}

/// `XLogRegisterData`. In a critical section an error is a PANIC; otherwise it raises nothing.
///
/// # Safety
/// A guarded frame, between XLogBeginInsert and XLogInsert; the bytes stay valid until the latter.
pub unsafe fn xlog_register_data(data: *mut u8, length: usize) {
    // SAFETY: the data stay in place until the record is inserted. A record is far smaller than 2 GB.
    unsafe {
        #[cfg(feature = "pg15")]
        pg_sys::XLogRegisterData(data.cast(), length as i32);
        #[cfg(not(feature = "pg15"))]
        pg_sys::XLogRegisterData(data.cast(), length as u32);
    }
}

/// `XLogRegisterBlock`, block 0.
///
/// # Safety
/// Between XLogBeginInsert and XLogInsert; a page that stays valid until the latter. Guarded.
pub unsafe fn xlog_register_block(
    relation: Relation<'_>,
    fork: pg_sys::ForkNumber::Type,
    block: u32,
    page: *mut u8,
    flags: u8,
) {
    let mut locator = locator(relation);
    // SAFETY: a guarded call; the page has BLCKSZ bytes. The locator is copied.
    unsafe { pg_sys::XLogRegisterBlock(0, &raw mut locator, fork, block, page.cast(), flags) };
}

/// `XLogRegisterBufData` of block 0.
///
/// # Safety
/// As [`xlog_register_data`].
pub unsafe fn xlog_register_block_data(data: *mut u8, len: usize) {
    // SAFETY: the data stay in place until the record is inserted.
    unsafe { pg_sys::XLogRegisterBufData(0, data.cast(), len as _) }
}

/// Asks the checkpointer to sync a segment (`INIT_MD_FILETAG`, `RegisterSyncRequest`). Returns false if the request
/// queue is full. The relation is not temporary. Guarded.
pub fn request_sync(relation: Relation<'_>, fork: pg_sys::ForkNumber::Type, segment: u32) -> bool {
    // SAFETY: a guarded call; the tag is copied. Tags are compared byte by byte, hence the zeroes.
    unsafe {
        let mut tag: pg_sys::FileTag = std::mem::zeroed();
        tag.handler = pg_sys::SyncRequestHandler::SYNC_HANDLER_MD as i16;
        tag.forknum = fork as i16;
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
