//! Every difference between the supported versions of PostgreSQL.

use pg_bulk_format::dialect::EndMarker;
use pgrx::pg_sys;

/// Major version this library was built for; the server refuses to load it into another.
pub const MAJOR: u32 = pg_sys::PG_VERSION_NUM / 10000;

/// What `\.` means to this server's COPY.
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

/// Where a relation's storage is.
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

/// `RelationNeedsWAL`: a permanent relation, unless its storage is new in this transaction and wal_level is minimal.
///
/// # Safety
/// An open relation.
pub unsafe fn needs_wal(relation: pg_sys::Relation) -> bool {
    // SAFETY: passed on; wal_level is a setting.
    unsafe {
        #[cfg(feature = "pg15")]
        let new_storage = (*relation).rd_firstRelfilenodeSubid;
        #[cfg(not(feature = "pg15"))]
        let new_storage = (*relation).rd_firstRelfilelocatorSubid;
        let permanent = (*(*relation).rd_rel).relpersistence.cast_unsigned() == pg_sys::RELPERSISTENCE_PERMANENT;
        let minimal = pg_sys::wal_level < pg_sys::WalLevel::WAL_LEVEL_REPLICA.cast_signed();
        const NONE: pg_sys::SubTransactionId = 0; // InvalidSubTransactionId
        let old = (*relation).rd_createSubid == NONE && new_storage == NONE;
        permanent && (!minimal || old)
    }
}

/// `XLogRegisterData`. Raises nothing but a PANIC where the caller is in a critical section.
///
/// # Safety
/// A guarded frame, between XLogBeginInsert and XLogInsert; the bytes stay there until the latter.
pub unsafe fn xlog_register_data(data: *mut u8, length: usize) {
    // SAFETY: passed on. A record is far smaller than 2 GB.
    unsafe {
        #[cfg(feature = "pg15")]
        pg_sys::XLogRegisterData(data.cast(), length as i32);
        #[cfg(not(feature = "pg15"))]
        pg_sys::XLogRegisterData(data.cast(), length as u32);
    }
}

/// What an input function made of a string.
#[derive(Debug)]
pub enum Soft {
    /// A value.
    Good(pg_sys::Datum),
    /// Nothing: the string is no value of the type.
    Bad,
    /// Another error. Only before 16, where it was caught; from 16 on it goes its way.
    #[cfg_attr(not(feature = "pg15"), expect(dead_code, reason = "raised, not returned"))]
    Raises,
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

/// `ExecutorRun` to the end.
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

/// Is the current user the owner of the relation, or as good as? Guarded.
pub fn owns_relation(relid: pg_sys::Oid) -> bool {
    // SAFETY: guarded catalog lookups.
    unsafe {
        #[cfg(feature = "pg15")]
        return pg_sys::pg_class_ownercheck(relid, pg_sys::GetUserId());
        #[cfg(not(feature = "pg15"))]
        return pg_sys::object_ownercheck(pg_sys::RelationRelationId, relid, pg_sys::GetUserId());
    }
}

/// Rights that an expression over a relation wants: those of a range table entry.
///
/// # Safety
/// A valid entry.
pub unsafe fn wanted_rights(item: *const pg_sys::ParseNamespaceItem) -> Rights {
    // SAFETY: the caller vouches for it.
    unsafe {
        #[cfg(feature = "pg15")]
        let entry = (*item).p_rte;
        #[cfg(not(feature = "pg15"))]
        let entry = (*item).p_perminfo;
        Rights {
            selects: (*entry).requiredPerms & pg_sys::AclMode::from(pg_sys::ACL_SELECT) != 0,
            selected: (*entry).selectedCols,
        }
    }
}

/// Let a plan insert into these columns of a relation without asking for the right to.
///
/// # Safety
/// A plan that nobody else uses, and a set of columns as in a range table entry. Raises nothing.
pub unsafe fn forgo_insert_rights(
    plan: *mut pg_sys::PlannedStmt,
    relid: pg_sys::Oid,
    columns: *const pg_sys::Bitmapset,
) {
    use super::unguarded::bms_del_members;

    // SAFETY: the caller vouches for the plan, whose list has nodes of one type.
    unsafe {
        #[cfg(feature = "pg15")]
        let (list, insert) = ((*plan).rtable, pg_sys::ACL_INSERT);
        #[cfg(not(feature = "pg15"))]
        let (list, insert) = ((*plan).permInfos, u64::from(pg_sys::ACL_INSERT));
        let Some(list) = list.as_ref() else { return };
        for i in 0..usize::try_from(list.length).unwrap_or(0) {
            #[cfg(feature = "pg15")]
            let entry = (*list.elements.add(i)).ptr_value.cast::<pg_sys::RangeTblEntry>();
            #[cfg(not(feature = "pg15"))]
            let entry = (*list.elements.add(i)).ptr_value.cast::<pg_sys::RTEPermissionInfo>();
            if (*entry).relid == relid && (*entry).requiredPerms & insert != 0 {
                (*entry).insertedCols = bms_del_members((*entry).insertedCols, columns);
            }
        }
    }
}

/// What is read of a relation.
#[derive(Debug, Clone, Copy)]
pub struct Rights {
    pub selects: bool,
    /// Columns, as in a range table entry.
    pub selected: *mut pg_sys::Bitmapset,
}

/// Raise an error unless the current user may INSERT into these columns, and may read what `rights` says. Guarded.
///
/// # Safety
/// An open relation; `inserted` is a set of columns as in a range table entry.
pub unsafe fn check_insert_rights(relation: pg_sys::Relation, inserted: *mut pg_sys::Bitmapset, rights: Rights) {
    use pg_sys::NodeTag::T_RangeTblEntry;
    use pgrx::{AllocatedByRust, PgBox, PgList};

    let mut wanted = pg_sys::AclMode::from(pg_sys::ACL_INSERT);
    if rights.selects {
        wanted |= pg_sys::AclMode::from(pg_sys::ACL_SELECT);
    }
    // SAFETY: guarded calls, and nodes of the types that they have; the caller vouches for the rest.
    unsafe {
        let mut entry = PgBox::<pg_sys::RangeTblEntry, AllocatedByRust>::alloc_node(T_RangeTblEntry);
        entry.rtekind = pg_sys::RTEKind::RTE_RELATION;
        entry.relid = (*relation).rd_id;
        entry.relkind = (*(*relation).rd_rel).relkind;
        entry.rellockmode = pg_sys::RowExclusiveLock.cast_signed();
        let mut table = PgList::<pg_sys::RangeTblEntry>::new();
        #[cfg(feature = "pg15")]
        {
            entry.requiredPerms = wanted;
            entry.insertedCols = inserted;
            entry.selectedCols = rights.selected;
            table.push(entry.into_pg());
            pg_sys::ExecCheckRTPerms(table.into_pg(), true);
        }
        #[cfg(not(feature = "pg15"))]
        {
            use pg_sys::NodeTag::T_RTEPermissionInfo;
            entry.perminfoindex = 1;
            let mut info = PgBox::<pg_sys::RTEPermissionInfo, AllocatedByRust>::alloc_node(T_RTEPermissionInfo);
            info.relid = entry.relid;
            info.requiredPerms = wanted;
            info.insertedCols = inserted;
            info.selectedCols = rights.selected;
            table.push(entry.into_pg());
            let mut infos = PgList::<pg_sys::RTEPermissionInfo>::new();
            infos.push(info.into_pg());
            pg_sys::ExecCheckPermissions(table.into_pg(), infos.into_pg(), true);
        }
    }
}

/// `TupleDescAttr`: attribute `index`, from 0.
///
/// # Safety
/// A valid descriptor with more than `index` attributes.
pub unsafe fn attribute(descriptor: pg_sys::TupleDesc, index: usize) -> *mut pg_sys::FormData_pg_attribute {
    // SAFETY: passed on. From 18 on the attributes stand behind the array of compact ones.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        return (*descriptor).attrs.as_mut_ptr().add(index);
        #[cfg(feature = "pg18")]
        return pg_sys::TupleDescAttr(descriptor, i32::try_from(index).unwrap_or(0));
    }
}

/// `InputFunctionCallSafe`. Before 16 the error is caught (see [`super::soft`]). Guarded.
///
/// # Safety
/// `function` is the input function of `type_oid`; `string` is NUL-terminated, or null for NULL.
#[cfg(not(feature = "pg15"))]
pub unsafe fn input_function_call_soft(
    function: *mut pg_sys::FmgrInfo,
    string: *mut std::ffi::c_char,
    typioparam: pg_sys::Oid,
    typmod: i32,
    _type_oid: pg_sys::Oid,
) -> crate::error::Result<Soft> {
    let mut context = pg_sys::ErrorSaveContext { type_: pg_sys::NodeTag::T_ErrorSaveContext, ..Default::default() };
    let mut datum = pg_sys::Datum::from(0usize);
    // SAFETY: passed on; the context outlives the call.
    let good = unsafe {
        pg_sys::InputFunctionCallSafe(
            function,
            string,
            typioparam,
            typmod,
            (&raw mut context).cast::<pg_sys::Node>(),
            &raw mut datum,
        )
    };
    Ok(if good { Soft::Good(datum) } else { Soft::Bad })
}

/// `InputFunctionCallSafe`. Before 16 the error is caught (see [`super::soft`]). Guarded.
///
/// # Safety
/// `function` is the input function of `type_oid`; `string` is NUL-terminated, or null for NULL.
#[cfg(feature = "pg15")]
pub unsafe fn input_function_call_soft(
    function: *mut pg_sys::FmgrInfo,
    string: *mut std::ffi::c_char,
    typioparam: pg_sys::Oid,
    typmod: i32,
    type_oid: pg_sys::Oid,
) -> crate::error::Result<Soft> {
    use crate::error::Error;
    use pgrx::PgSqlErrorCode as Code;

    // SAFETY: guarded calls; a subtransaction is begun and ended by the same owner and in the same context.
    unsafe {
        let call = || pg_sys::InputFunctionCall(function, string, typioparam, typmod);
        if is_plain_scalar(type_oid) {
            return Ok(catch_bad_value(type_oid, call, || ()));
        }
        if pg_sys::IsInParallelMode() {
            let message = "cannot survive bad values of this type during a parallel operation";
            return Err(Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message)
                .hint("Set max_parallel_workers_per_gather to 0, or use on_error 'stop'."));
        }
        let (owner, context) = (pg_sys::CurrentResourceOwner, pg_sys::CurrentMemoryContext);
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::MemoryContextSwitchTo(context);
        let roll_back = || {
            pg_sys::MemoryContextSwitchTo(context);
            pg_sys::RollbackAndReleaseCurrentSubTransaction();
            pg_sys::MemoryContextSwitchTo(context);
            pg_sys::CurrentResourceOwner = owner;
        };
        let caught = catch_bad_value(type_oid, call, roll_back);
        if matches!(caught, Soft::Good(_)) {
            pg_sys::ReleaseCurrentSubTransaction();
            pg_sys::MemoryContextSwitchTo(context);
            pg_sys::CurrentResourceOwner = owner;
        }
        Ok(caught)
    }
}

/// Is this one of the server's own scalar types, whose input function is C and leaves nothing behind when it raises?
/// Types that look things up (regclass and its kin), hold other types or run user code are not.
#[cfg(feature = "pg15")]
unsafe fn is_plain_scalar(type_oid: pg_sys::Oid) -> bool {
    // SAFETY: guarded catalog lookups.
    unsafe {
        let (mut category, mut preferred) = (0, false);
        pg_sys::get_type_category_preferred(type_oid, &raw mut category, &raw mut preferred);
        // Arrays (A), composites (C), enums (E), pseudo-types (P), ranges (R) and what is unknown are left out.
        let scalar = matches!(category.cast_unsigned(), b'B' | b'D' | b'G' | b'I' | b'N' | b'S' | b'T' | b'V' | b'U');
        type_oid.to_u32() < pg_sys::FirstGenbkiObjectId
            && scalar
            && pg_sys::get_typtype(type_oid).cast_unsigned() == b'b'
            && !is_reg_type(type_oid)
    }
}

#[cfg(feature = "pg15")]
fn is_reg_type(type_oid: pg_sys::Oid) -> bool {
    [
        pg_sys::REGPROCOID,
        pg_sys::REGPROCEDUREOID,
        pg_sys::REGOPEROID,
        pg_sys::REGOPERATOROID,
        pg_sys::REGCLASSOID,
        pg_sys::REGCOLLATIONOID,
        pg_sys::REGTYPEOID,
        pg_sys::REGROLEOID,
        pg_sys::REGNAMESPACEOID,
        pg_sys::REGCONFIGOID,
        pg_sys::REGDICTIONARYOID,
    ]
    .contains(&type_oid)
}

/// Run `call`; and tell an error that says that the value is bad from others. After either, `clean_up`
/// has run: a subtransaction left open would outlive the statement.
#[cfg(feature = "pg15")]
fn catch_bad_value(type_oid: pg_sys::Oid, call: impl FnOnce() -> pg_sys::Datum, clean_up: impl FnOnce()) -> Soft {
    use pgrx::pg_sys::panic::CaughtError;
    use pgrx::{PgSqlErrorCode as Code, PgTryBuilder};
    use std::panic::AssertUnwindSafe;

    let outcome = PgTryBuilder::new(AssertUnwindSafe(|| Ok(call()))).catch_others(|e| Err(Box::new(e))).execute();
    let error = match outcome {
        Ok(datum) => return Soft::Good(datum),
        Err(error) => error,
    };
    clean_up();
    let code = match &*error {
        CaughtError::PostgresError(e) | CaughtError::ErrorReport(e) => Some(e.sql_error_code()),
        CaughtError::RustPanic { .. } => None,
    };
    let bad_value = code.is_some_and(|code| {
        // The class is the code's lowest twelve bits (ERRCODE_TO_CATEGORY).
        const CLASS: i32 = (1 << 12) - 1;
        (code as i32) & CLASS == (Code::ERRCODE_DATA_EXCEPTION as i32) & CLASS
            || matches!(code, Code::ERRCODE_CHECK_VIOLATION | Code::ERRCODE_NOT_NULL_VIOLATION)
            || (type_oid.to_u32() < pg_sys::FirstGenbkiObjectId && is_builtin_complaint(code))
    });
    if bad_value { Soft::Bad } else { Soft::Raises }
}

/// Further codes with which input functions of the server's own types say that a value is bad: of text search and
/// JSON paths, and of types that look names up.
#[cfg(feature = "pg15")]
fn is_builtin_complaint(code: pgrx::PgSqlErrorCode) -> bool {
    use pgrx::PgSqlErrorCode as Code;
    matches!(
        code,
        Code::ERRCODE_SYNTAX_ERROR
            | Code::ERRCODE_INVALID_NAME
            | Code::ERRCODE_PROGRAM_LIMIT_EXCEEDED
            | Code::ERRCODE_UNDEFINED_OBJECT
            | Code::ERRCODE_UNDEFINED_FUNCTION
            | Code::ERRCODE_UNDEFINED_TABLE
            | Code::ERRCODE_INVALID_SCHEMA_NAME
            | Code::ERRCODE_AMBIGUOUS_FUNCTION
    )
}

/// DELAY_CHKPT_START (proc.h)
pub const DELAY_CHKPT_START: i32 = 1;

/// `relpath` of the main fork, from the data directory. Guarded.
///
/// # Safety
/// A relation of the storage manager.
pub unsafe fn relation_path(smgr: pg_sys::SMgrRelation) -> std::ffi::CString {
    const MAIN: pg_sys::ForkNumber::Type = pg_sys::ForkNumber::MAIN_FORKNUM;
    // SAFETY: passed on; the result is a string in memory of its own, or by value.
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
/// An open relation, and a page that stays until the record is inserted.
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

/// Ask the checkpointer to sync a segment (`INIT_MD_FILETAG` and `RegisterSyncRequest`); false if it cannot take the
/// request now.
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

/// `ExecInitRangeTable` for one relation that rows are inserted into (DoCopy).
///
/// # Safety
/// An executor state and an open relation; a guarded frame.
pub unsafe fn init_range_table(estate: *mut pg_sys::EState, relation: pg_sys::Relation, inserted: &[i16]) {
    // SAFETY: guarded calls; nodes are made in the current memory context.
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

/// `ExecInsertIndexTuples` for a new row: the indexes whose constraints are to be checked later.
///
/// # Safety
/// A result relation with its indexes open, and a slot with a row that has a TID; a guarded frame.
pub unsafe fn insert_index_tuples(
    relinfo: *mut pg_sys::ResultRelInfo,
    slot: *mut pg_sys::TupleTableSlot,
    estate: *mut pg_sys::EState,
) -> *mut pg_sys::List {
    use std::ptr::null_mut;
    // SAFETY: passed on.
    unsafe {
        #[cfg(feature = "pg15")]
        return pg_sys::ExecInsertIndexTuples(relinfo, slot, estate, false, false, null_mut(), null_mut());
        #[cfg(not(feature = "pg15"))]
        return pg_sys::ExecInsertIndexTuples(relinfo, slot, estate, false, false, null_mut(), null_mut(), false);
    }
}

/// How PartitionKeyData (partcache.h), which has no binding, begins in all versions: the strategy, one byte or four, and
/// the number of columns fill the first word.
#[repr(C)]
struct PartitionKeyHead {
    strategy_and_columns: u64,
    columns: *mut i16,
    expressions: *mut pg_sys::List,
}

/// The expressions of a partitioned table's key.
///
/// # Safety
/// An open partitioned table; a guarded frame.
pub unsafe fn partition_expressions(relation: pg_sys::Relation) -> *mut pg_sys::List {
    // SAFETY: the caller vouches for the relation, which has a key then.
    unsafe {
        let key = super::unguarded::guard(|| super::unguarded::RelationGetPartitionKey(relation));
        (*key.cast::<PartitionKeyHead>()).expressions
    }
}

/// The subtransaction that gave a relation its present file, if it is of this transaction.
///
/// # Safety
/// An open relation.
pub unsafe fn new_file_subid(relation: pg_sys::Relation) -> pg_sys::SubTransactionId {
    // SAFETY: the caller vouches for the relation.
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

/// `reindex_relation` without a statement of the user's.
///
/// # Safety
/// A table that is locked exclusively; a guarded frame outside of parallel mode.
pub unsafe fn reindex_relation(relid: pg_sys::Oid, flags: i32) {
    let mut params = pg_sys::ReindexParams::default();
    // SAFETY: passed on.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        pg_sys::reindex_relation(relid, flags, &raw mut params);
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        pg_sys::reindex_relation(std::ptr::null(), relid, flags, &raw const params);
    }
}
