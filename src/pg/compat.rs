//! All code that depends on the version of PostgreSQL.

mod background;
mod buffer;
mod collation;
pub mod copy_words;
mod encoding;
mod executor_hook;
mod foreign;
mod generated;
mod index;
mod planned;
mod planner;
mod rights;
mod rights_hook;
mod soft;
mod statistics;
pub mod unguarded;
mod version;

use pg_bulk_format::dialect::EndMarker;
use pgrx::pg_sys;

use self::version::MAJOR;

pub use self::background::{
    CONNECT_FLAGS, WORKERS_BYPASS_LOGIN, may_connect, proc_exit, set_signal_handler, virtual_transaction,
};
pub use self::buffer::is_in_buffer;
pub use self::collation::{collates_bytes, icu_collator};
pub use self::encoding::{char_to_encoding, encoding_to_char};
pub use self::executor_hook::install as install_executor_hook;
pub use self::foreign::{create_foreign_upper_path, may_execute, range_table_relation};
pub use self::generated::{has_generated, has_virtual_not_null, is_virtual};
pub use self::index::{
    check_index_constraints, extend_to, first_leaf, index_beginscan, insert_index_tuples, last_of_level, leaf_to_write,
    new_index_page, read_block, reindex_index, reindex_relation,
};
pub use self::planned::{nodes_of, statement_for_workers};
pub use self::planner::{
    adjust_to_child, canonical_pathkey, expression_tree_mutator, is_constant, known_eclass, ordering_of,
    prunes_at_run_time,
};
pub use self::rights::{
    Rights, check_insert_rights, check_server_usage, forgo_insert_rights, insert_into, may_use_schema, owns_relation,
    restrict_search_path, want_insert, wanted_rights,
};
pub(in crate::pg) use self::rights_hook::rights_hook;
pub use self::soft::{Soft, input_function_call_soft, is_survivable};
pub use self::statistics::{set_index_statistics, set_table_statistics};
pub use self::version::{COPY_HAS_DEFAULT, HAS_TRANSACTION_TIMEOUT, ZONE_LETTERS};

/// Returns the meaning of `\.` in this server's COPY.
pub fn end_marker() -> EndMarker {
    if MAJOR >= 18 { EndMarker::Since18 } else { EndMarker::Until17 }
}

/// `create_foreignscan_path` for a base relation without pathkeys, outer path or private data.
///
/// # Safety
/// Planner pointers of the current planning; called from a guarded frame.
pub unsafe fn create_foreignscan_path(
    root: *mut pg_sys::PlannerInfo,
    rel: *mut pg_sys::RelOptInfo,
    rows: f64,
    startup_cost: f64,
    total_cost: f64,
) -> *mut pg_sys::ForeignPath {
    use std::ptr::null_mut;
    // SAFETY: passed on.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        return pg_sys::create_foreignscan_path(
            root,
            rel,
            null_mut(),
            rows,
            startup_cost,
            total_cost,
            null_mut(),
            (*rel).lateral_relids,
            null_mut(),
            null_mut(),
        );
        #[cfg(feature = "pg17")]
        return pg_sys::create_foreignscan_path(
            root,
            rel,
            null_mut(),
            rows,
            startup_cost,
            total_cost,
            null_mut(),
            (*rel).lateral_relids,
            null_mut(),
            null_mut(),
            null_mut(),
        );
        #[cfg(feature = "pg18")]
        return pg_sys::create_foreignscan_path(
            root,
            rel,
            null_mut(),
            rows,
            0,
            startup_cost,
            total_cost,
            null_mut(),
            (*rel).lateral_relids,
            null_mut(),
            null_mut(),
            null_mut(),
        );
    }
}

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

/// Anum_pg_statistic_ext_stxexprs, which is not among the bindings of 18.
pub const STATISTIC_EXPRESSIONS: u32 = 9;

/// Returns the number of rows that this session has inserted, updated and deleted in a relation, including rolled-back
/// changes. None if track_counts is off. Guarded.
///
/// # Safety
/// An open relation.
pub unsafe fn changed_rows(relation: pg_sys::Relation) -> Option<i64> {
    // SAFETY: this function's contract covers the relation; its counters are null or valid, with a chain of open
    // subtransactions.
    unsafe {
        if !(*relation).pgstat_enabled {
            return None;
        }
        if (*relation).pgstat_info.is_null() {
            // Earlier statements may have counted rows in an entry that is not yet linked to this relcache entry.
            pg_sys::pgstat_assoc_relation(relation);
        }
        let status = (*relation).pgstat_info.as_ref()?;
        #[cfg(feature = "pg15")]
        let done =
            status.t_counts.t_tuples_inserted + status.t_counts.t_tuples_updated + status.t_counts.t_tuples_deleted;
        #[cfg(not(feature = "pg15"))]
        let done = status.counts.tuples_inserted + status.counts.tuples_updated + status.counts.tuples_deleted;
        let mut open = status.trans;
        let mut changed = done;
        while let Some(level) = open.as_ref() {
            changed += level.tuples_inserted + level.tuples_updated + level.tuples_deleted;
            open = level.upper;
        }
        Some(changed)
    }
}

/// Whether both locators mean one file.
pub fn is_same_file(a: Locator, b: Locator) -> bool {
    #[cfg(feature = "pg15")]
    return (a.spcNode, a.dbNode, a.relNode) == (b.spcNode, b.dbNode, b.relNode);
    #[cfg(not(feature = "pg15"))]
    return (a.spcOid, a.dbOid, a.relNumber) == (b.spcOid, b.dbOid, b.relNumber);
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

/// Whether rows that an old snapshot sees may be pruned (EarlyPruningEnabled). A new index then cannot be used by older
/// snapshots.
pub fn prunes_early() -> bool {
    // SAFETY: reads a setting.
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    return unsafe { pg_sys::old_snapshot_threshold } >= 0;
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    false
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

/// `vacuum_delay_point` of an ANALYZE.
///
/// # Safety
/// Called from a guarded frame during ANALYZE.
pub unsafe fn vacuum_delay_point() {
    // SAFETY: passed on.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        pg_sys::vacuum_delay_point();
        #[cfg(feature = "pg18")]
        pg_sys::vacuum_delay_point(true);
    }
}

/// `ExecutorRun`, to the end of the query.
///
/// # Safety
/// A plain frame, and a query that was started.
pub unsafe fn executor_run(query: *mut pg_sys::QueryDesc) {
    use super::unguarded::ExecutorRun;
    let direction = pg_sys::ScanDirection::ForwardScanDirection;
    // SAFETY: passed on.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        ExecutorRun(query, direction, 0, true);
        #[cfg(feature = "pg18")]
        ExecutorRun(query, direction, 0);
    }
}

/// Returns the table that the receiver of CREATE TABLE AS has created. The fields of `DR_intorel` (createas.c) that are
/// read here did not change from 9.5 to 18.
///
/// # Safety
/// A receiver of the kind DestIntoRel that has been started.
pub unsafe fn into_relation(receiver: *mut pg_sys::DestReceiver) -> pg_sys::Relation {
    #[repr(C)]
    struct IntoReceiver {
        receiver: pg_sys::DestReceiver,
        into: *mut pg_sys::IntoClause,
        relation: pg_sys::Relation,
    }
    // SAFETY: this function's contract covers the receiver.
    unsafe { (*receiver.cast::<IntoReceiver>()).relation }
}

/// `TupleDescAttr`: attribute `index`, from 0.
///
/// # Safety
/// A valid descriptor with more than `index` attributes.
pub unsafe fn attribute(descriptor: pg_sys::TupleDesc, index: usize) -> *mut pg_sys::FormData_pg_attribute {
    // SAFETY: passed on. From 18 on the attributes follow the array of compact attributes.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        return (*descriptor).attrs.as_mut_ptr().add(index);
        #[cfg(feature = "pg18")]
        return pg_sys::TupleDescAttr(descriptor, i32::try_from(index).unwrap_or(0));
    }
}

/// `AbortBufferIO`: ends a read of a buffer that failed. From 16 on, the resource owner does this.
///
/// # Safety
/// After an error, before the transaction is aborted.
pub unsafe fn abort_buffer_io() {
    #[cfg(feature = "pg15")]
    {
        unsafe extern "C-unwind" {
            fn AbortBufferIO();
        }
        // SAFETY: AbortTransaction (xact.c) calls it first, too; raises nothing.
        unsafe { AbortBufferIO() };
    }
}

/// DSM_HANDLE_INVALID (dsm_impl.h), which is a cast from 17 on and so has no binding.
pub const NO_SEGMENT: pg_sys::dsm_handle = 0;

/// DELAY_CHKPT_START (proc.h)
pub const DELAY_CHKPT_START: i32 = 1;

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

/// `ExecInitRangeTable` for one relation that is the target of an INSERT (DoCopy).
///
/// # Safety
/// An executor state and an open relation; a guarded frame.
pub unsafe fn init_range_table(estate: *mut pg_sys::EState, relation: pg_sys::Relation, inserted: &[i16]) {
    // SAFETY: guarded calls; nodes are allocated in the current memory context.
    unsafe {
        let entry = pg_sys::palloc0(size_of::<pg_sys::RangeTblEntry>()).cast::<pg_sys::RangeTblEntry>();
        (*entry).type_ = pg_sys::NodeTag::T_RangeTblEntry;
        (*entry).rtekind = pg_sys::RTEKind::RTE_RELATION;
        (*entry).relid = (*relation).rd_id;
        (*entry).relkind = (*(*relation).rd_rel).relkind;
        (*entry).rellockmode = pg_sys::RowExclusiveLock.cast_signed();
        let mut columns = std::ptr::null_mut();
        for attnum in inserted {
            let member = i32::from(*attnum) - pg_sys::FirstLowInvalidHeapAttributeNumber;
            columns = pg_sys::bms_add_member(columns, member);
        }
        let table = pg_sys::lappend(std::ptr::null_mut(), entry.cast());
        #[cfg(feature = "pg15")]
        {
            (*entry).requiredPerms = pg_sys::ACL_INSERT;
            (*entry).insertedCols = columns;
            pg_sys::ExecInitRangeTable(estate, table);
        }
        #[cfg(not(feature = "pg15"))]
        {
            let info = pg_sys::palloc0(size_of::<pg_sys::RTEPermissionInfo>()).cast::<pg_sys::RTEPermissionInfo>();
            (*info).type_ = pg_sys::NodeTag::T_RTEPermissionInfo;
            (*info).relid = (*relation).rd_id;
            (*info).requiredPerms = pg_sys::ACL_INSERT.into();
            (*info).insertedCols = columns;
            (*entry).perminfoindex = 1;
            let infos = pg_sys::lappend(std::ptr::null_mut(), info.cast());
            #[cfg(not(feature = "pg18"))]
            pg_sys::ExecInitRangeTable(estate, table, infos);
            #[cfg(feature = "pg18")]
            pg_sys::ExecInitRangeTable(estate, table, infos, pg_sys::bms_make_singleton(1));
        }
    }
}

/// Progress parameter for skipped rows, in versions whose COPY reports them (progress.h).
pub const PROGRESS_SKIPPED: Option<u32> = if MAJOR >= 17 { Some(6) } else { None };

/// The first fields of PartitionKeyData (partcache.h), which has no binding. In all versions the strategy (one byte or
/// four) and the number of columns fill the first word.
#[repr(C)]
struct PartitionKeyHead {
    strategy_and_columns: u64,
    columns: *mut i16,
    expressions: *mut pg_sys::List,
    families: *mut pg_sys::Oid,
    types: *mut pg_sys::Oid,
    functions: *mut pg_sys::FmgrInfo,
    collations: *mut pg_sys::Oid,
    value_types: *mut pg_sys::Oid,
}

/// Returns the expressions of a partitioned table's key.
///
/// # Safety
/// An open partitioned table; a guarded frame.
pub unsafe fn partition_expressions(relation: pg_sys::Relation) -> *mut pg_sys::List {
    // SAFETY: this function's contract covers the relation; a partitioned table has a key.
    unsafe {
        let key = super::unguarded::guard(|| super::unguarded::RelationGetPartitionKey(relation));
        (*key.cast::<PartitionKeyHead>()).expressions
    }
}

/// Whether all functions that compare or hash a partitioned table's key pass the test.
///
/// # Safety
/// An open partitioned table; a guarded frame.
pub unsafe fn partition_functions(relation: pg_sys::Relation, mut test: impl FnMut(pg_sys::Oid) -> bool) -> bool {
    // SAFETY: this function's contract covers the relation; a partitioned table has a key with one function per column.
    // The number of columns follows the strategy, which has one byte in 15 and four from 16 on.
    unsafe {
        let key = super::unguarded::guard(|| super::unguarded::RelationGetPartitionKey(relation));
        let count = *key.cast::<i16>().add(if MAJOR >= 16 { 2 } else { 1 });
        let functions = (*key.cast::<PartitionKeyHead>()).functions;
        (0..usize::try_from(count).unwrap_or(0)).all(|i| test((*functions.add(i)).fn_oid))
    }
}

/// Whether a node is a JSON_TABLE, JSON_QUERY or JSON_VALUE expression, which PostgreSQL has since 17.
pub fn is_json_expression(tag: pg_sys::NodeTag) -> bool {
    #[cfg(any(feature = "pg17", feature = "pg18"))]
    return tag == pg_sys::NodeTag::T_JsonExpr;
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    {
        let _ = tag;
        false
    }
}

/// Returns the types of the columns of a partitioned table's key.
///
/// # Safety
/// An open partitioned table; a guarded frame.
pub unsafe fn partition_types(relation: pg_sys::Relation) -> Vec<pg_sys::Oid> {
    // SAFETY: as in `partition_functions`; the key has one type per column.
    unsafe {
        let key = super::unguarded::guard(|| super::unguarded::RelationGetPartitionKey(relation));
        let count = *key.cast::<i16>().add(if MAJOR >= 16 { 2 } else { 1 });
        let types = (*key.cast::<PartitionKeyHead>()).value_types;
        (0..usize::try_from(count).unwrap_or(0)).map(|i| *types.add(i)).collect()
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

/// `log_smgrcreate`.
///
/// # Safety
/// An open relation whose fork was just created; a guarded frame.
pub unsafe fn log_smgrcreate(relation: pg_sys::Relation, fork: pg_sys::ForkNumber::Type) {
    use super::unguarded as c;
    // SAFETY: passed on; the locator is copied.
    unsafe {
        let locator = locator(relation);
        c::guard(|| c::log_smgrcreate(&raw const locator, fork));
    }
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

/// Whether `function` reports a constraint violation, or that there is no partition for a row. It runs after all
/// user-defined code has returned, so nothing is left behind when such an error is caught.
///
/// # Safety
/// `function` is the function name of an error (ErrorData.funcname): a string, or null.
pub unsafe fn is_violation(function: *const std::ffi::c_char) -> bool {
    // SAFETY: this function's contract covers the argument.
    let name = if function.is_null() { c"" } else { unsafe { std::ffi::CStr::from_ptr(function) } };
    // ReportNotNullViolationError exists from 18 on; ExecPartitionCheck calls ExecPartitionCheckEmitError.
    [c"ExecConstraints", c"ReportNotNullViolationError", c"ExecPartitionCheckEmitError", c"ExecFindPartition"]
        .contains(&name)
}

/// Returns the conversion of rows of the partitioned table to rows of a leaf; null if none is needed
/// (`ExecGetRootToChildMap`).
///
/// # Safety
/// A leaf that ExecFindPartition returned; a plain frame.
pub unsafe fn root_to_leaf(
    relinfo: *mut pg_sys::ResultRelInfo,
    _estate: *mut pg_sys::EState,
) -> *mut pg_sys::TupleConversionMap {
    // SAFETY: passed on.
    unsafe {
        #[cfg(feature = "pg15")]
        return (*relinfo).ri_RootToPartitionMap;
        #[cfg(not(feature = "pg15"))]
        {
            unsafe extern "C-unwind" {
                fn ExecGetRootToChildMap(
                    relinfo: *mut pg_sys::ResultRelInfo,
                    estate: *mut pg_sys::EState,
                ) -> *mut pg_sys::TupleConversionMap;
            }
            ExecGetRootToChildMap(relinfo, _estate)
        }
    }
}

/// `CheckValidResultRel` for an INSERT.
///
/// # Safety
/// A valid result relation; a guarded frame.
pub unsafe fn check_valid_result_rel(target: *mut pg_sys::ResultRelInfo) {
    let insert = pg_sys::CmdType::CMD_INSERT;
    // SAFETY: passed on.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        pg_sys::CheckValidResultRel(target, insert);
        #[cfg(feature = "pg17")]
        pg_sys::CheckValidResultRel(target, insert, std::ptr::null_mut());
        #[cfg(feature = "pg18")]
        {
            let none = pg_sys::OnConflictAction::ONCONFLICT_NONE;
            pg_sys::CheckValidResultRel(target, insert, none, std::ptr::null_mut());
        }
    }
}
