//! Files of relations, and WAL records about them.

use pgrx::pg_sys;

use super::version::MAJOR;

/// Identifies a relation's storage (RelFileLocator).
#[cfg(feature = "pg15")]
pub type Locator = pg_sys::RelFileNode;
#[cfg(not(feature = "pg15"))]
pub type Locator = pg_sys::RelFileLocator;

/// A relation's `rd_node`, `rd_locator` from 16 on.
///
/// # Safety
/// An open relation.
pub unsafe fn locator(relation: pg_sys::Relation) -> Locator {
    // SAFETY: passed on.
    unsafe {
        #[cfg(feature = "pg15")]
        return (*relation).rd_node;
        #[cfg(not(feature = "pg15"))]
        return (*relation).rd_locator;
    }
}

/// Whether both locators mean one file.
pub fn is_same_file(a: Locator, b: Locator) -> bool {
    #[cfg(feature = "pg15")]
    return (a.spcNode, a.dbNode, a.relNode) == (b.spcNode, b.dbNode, b.relNode);
    #[cfg(not(feature = "pg15"))]
    return (a.spcOid, a.dbOid, a.relNumber) == (b.spcOid, b.dbOid, b.relNumber);
}

/// Whether a relation's file was created in this transaction, so that nothing refers to it after a crash.
///
/// # Safety
/// An open relation, in the process that may have created it.
pub unsafe fn is_new_file(relation: pg_sys::Relation) -> bool {
    // SAFETY: this function's contract covers the relation.
    unsafe {
        #[cfg(feature = "pg15")]
        let renewed = (*relation).rd_firstRelfilenodeSubid;
        #[cfg(not(feature = "pg15"))]
        let renewed = (*relation).rd_firstRelfilelocatorSubid;
        (*relation).rd_createSubid != 0 || renewed != 0
    }
}

/// Returns the subtransaction that assigned a relation's current file, if it belongs to this transaction.
///
/// # Safety
/// An open relation.
pub unsafe fn new_file_subid(relation: pg_sys::Relation) -> pg_sys::SubTransactionId {
    // SAFETY: this function's contract covers the relation.
    unsafe {
        #[cfg(feature = "pg15")]
        return (*relation).rd_newRelfilenodeSubid;
        #[cfg(not(feature = "pg15"))]
        return (*relation).rd_newRelfilelocatorSubid;
    }
}

/// `RelationSetNewRelfilenumber`
///
/// # Safety
/// An open relation that is locked exclusively; a guarded frame.
pub unsafe fn set_new_file(relation: pg_sys::Relation, persistence: std::ffi::c_char) {
    // SAFETY: passed on.
    unsafe {
        #[cfg(feature = "pg15")]
        pg_sys::RelationSetNewRelfilenode(relation, persistence);
        #[cfg(not(feature = "pg15"))]
        pg_sys::RelationSetNewRelfilenumber(relation, persistence);
    }
}

/// `RelationNeedsWAL`: a permanent relation, unless its storage is new in this transaction and wal_level is minimal.
///
/// # Safety
/// An open relation.
pub unsafe fn needs_wal(relation: pg_sys::Relation) -> bool {
    // SAFETY: passed on; wal_level is a setting.
    unsafe {
        let permanent = (*(*relation).rd_rel).relpersistence.cast_unsigned() == pg_sys::RELPERSISTENCE_PERMANENT;
        let minimal = pg_sys::wal_level < pg_sys::WalLevel::WAL_LEVEL_REPLICA.cast_signed();
        permanent && !(minimal && is_new_file(relation))
    }
}

/// Whether a heap page must be dirty before visibilitymap_set logs that it is all-visible: true if the page gets the
/// record's LSN (XLogHintBitIsNeeded). From 17 on, XLogRegisterBuffer asserts a dirty page in any case.
///
/// # Safety
/// An open relation.
pub unsafe fn dirties_visible(relation: pg_sys::Relation) -> bool {
    // SAFETY: passed on; a setting, and a guarded call that reads shared memory.
    unsafe { needs_wal(relation) && (MAJOR >= 17 || pg_sys::wal_log_hints || pg_sys::DataChecksumsEnabled()) }
}

/// `relpath` of the main fork, relative to the data directory. Guarded.
///
/// # Safety
/// A relation of the storage manager.
pub unsafe fn relation_path(smgr: pg_sys::SMgrRelation) -> std::ffi::CString {
    const MAIN: pg_sys::ForkNumber::Type = pg_sys::ForkNumber::MAIN_FORKNUM;
    // SAFETY: passed on; the result is a string that is palloc'd or returned by value.
    unsafe {
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
            copy
        }
        #[cfg(feature = "pg18")]
        std::ffi::CStr::from_ptr(path.str_.as_ptr()).to_owned()
    }
}

/// `log_smgrcreate`.
///
/// # Safety
/// An open relation whose fork was just created; a guarded frame.
pub unsafe fn log_smgrcreate(relation: pg_sys::Relation, fork: pg_sys::ForkNumber::Type) {
    use crate::pg::unguarded as c;
    // SAFETY: passed on; the locator is copied.
    unsafe {
        let locator = locator(relation);
        c::guard(|| c::log_smgrcreate(&raw const locator, fork));
    }
}

/// `log_newpage` of a page with the standard layout.
///
/// # Safety
/// An open relation and one of its pages.
pub unsafe fn log_newpage(
    relation: pg_sys::Relation,
    fork: pg_sys::ForkNumber::Type,
    block: u32,
    page: *mut u8,
) -> pg_sys::XLogRecPtr {
    // SAFETY: passed on; the locator is copied.
    unsafe {
        let mut locator = locator(relation);
        pg_sys::log_newpage(&raw mut locator, fork, block, page.cast(), true)
    }
}

/// `log_newpages` for pages with the standard layout. Sets their LSN.
///
/// # Safety
/// An open relation, and a block number for each page; a guarded frame outside of critical sections.
pub unsafe fn log_newpages(
    relation: pg_sys::Relation,
    fork: pg_sys::ForkNumber::Type,
    blocks: &mut [u32],
    pages: &mut [*mut std::ffi::c_char],
) {
    let count = i32::try_from(blocks.len().min(pages.len())).unwrap_or(0);
    // SAFETY: passed on; the locator is copied.
    unsafe {
        let mut locator = locator(relation);
        pg_sys::log_newpages(&raw mut locator, fork, count, blocks.as_mut_ptr(), pages.as_mut_ptr(), true);
    }
}

/// `XLogRegisterData`. In a critical section an error is a PANIC; otherwise it raises nothing.
///
/// # Safety
/// A guarded frame, between XLogBeginInsert and XLogInsert; the bytes stay valid until the latter.
pub unsafe fn xlog_register_data(data: *mut u8, length: usize) {
    // SAFETY: passed on. A record is far smaller than 2 GB.
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
/// An open relation, and a page that stays valid until the record is inserted.
pub unsafe fn xlog_register_block(
    relation: pg_sys::Relation,
    fork: pg_sys::ForkNumber::Type,
    block: u32,
    page: *mut u8,
    flags: u8,
) {
    // SAFETY: passed on; the locator is copied.
    unsafe {
        let mut locator = locator(relation);
        pg_sys::XLogRegisterBlock(0, &raw mut locator, fork, block, page.cast(), flags);
    }
}

/// `XLogRegisterBufData` of block 0.
///
/// # Safety
/// As [`xlog_register_data`].
pub unsafe fn xlog_register_block_data(data: *mut u8, len: usize) {
    // SAFETY: passed on.
    unsafe { pg_sys::XLogRegisterBufData(0, data.cast(), len as _) }
}

/// Asks the checkpointer to sync a segment (`INIT_MD_FILETAG`, `RegisterSyncRequest`). Returns false if the request
/// queue is full.
///
/// # Safety
/// An open relation that is not temporary.
pub unsafe fn request_sync(relation: pg_sys::Relation, fork: pg_sys::ForkNumber::Type, segment: u32) -> bool {
    // SAFETY: passed on; the tag is copied. Tags are compared byte by byte, hence the zeroes.
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
