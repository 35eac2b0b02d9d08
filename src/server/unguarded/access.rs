//! Functions for pages, sorts, indexes and triggers.

use std::ffi::{c_char, c_int};

use pgrx::pg_sys;

use super::Opaque;

unsafe extern "C-unwind" {
    /// datum.c. Raises nothing but out of memory.
    pub fn datumCopy(value: pg_sys::Datum, typByVal: bool, typLen: c_int) -> pg_sys::Datum;
    /// predicate.c.
    pub fn TransferPredicateLocksToHeapRelation(relation: pg_sys::Relation);
    /// predicate.c.
    pub fn PredicateLockPageSplit(relation: pg_sys::Relation, old: pg_sys::BlockNumber, new: pg_sys::BlockNumber);
    /// expandeddatum.c. Raises nothing.
    pub fn MakeExpandedObjectReadOnlyInternal(value: pg_sys::Datum) -> pg_sys::Datum;
    /// indexfsm.c.
    pub fn RecordFreeIndexPage(relation: pg_sys::Relation, block: pg_sys::BlockNumber);
    /// xloginsert.c. Not in a critical section.
    pub fn XLogEnsureRecordSpace(max_block_id: c_int, ndatas: c_int);
    /// pg_locale.c. Reads the catalogs; the result is cached. Up to 16, null for the database's locale, unless ICU
    /// provides it.
    pub fn pg_newlocale_from_collation(collation: pg_sys::Oid) -> Opaque;
    /// nbtutils.c, or nbtsearch.c. Frees memory; raises nothing.
    pub fn _bt_freestack(stack: Opaque);
    /// nbtutils.c. Reads the metapage if there is a tuple, and looks up functions.
    pub fn _bt_mkscankey(relation: pg_sys::Relation, tuple: pg_sys::IndexTuple) -> Opaque;
    /// nbtsearch.c. Runs comparison functions.
    pub fn _bt_compare(relation: pg_sys::Relation, key: Opaque, page: *mut c_char, number: u16) -> i32;
    /// bufpage.c. Warns if the page has no space.
    pub fn PageAddItemExtended(page: *mut c_char, item: *mut c_char, size: usize, number: u16, flags: c_int) -> u16;
    /// bufmgr.c. Raises nothing.
    pub fn BufferGetBlockNumber(buffer: pg_sys::Buffer) -> pg_sys::BlockNumber;
    /// bufmgr.c. For a page in a buffer, this and the functions up to XLogInsert raise nothing but a PANIC.
    pub fn MarkBufferDirty(buffer: pg_sys::Buffer);
    /// bufmgr.c.
    pub fn UnlockReleaseBuffer(buffer: pg_sys::Buffer);
    /// xloginsert.c.
    pub fn log_newpage_buffer(buffer: pg_sys::Buffer, standard: bool) -> pg_sys::XLogRecPtr;
    /// xlog.c.
    pub fn GetFullPageWriteInfo(redo: *mut pg_sys::XLogRecPtr, protects: *mut bool);
    /// xloginsert.c.
    pub fn XLogBeginInsert();
    /// xloginsert.c. 15 has an int for the length.
    pub fn XLogRegisterData(data: *const c_char, len: u32);
    /// xloginsert.c.
    pub fn XLogRegisterBuffer(id: u8, buffer: pg_sys::Buffer, flags: u8);
    /// xloginsert.c. 15 has an int for the length.
    pub fn XLogRegisterBufData(id: u8, data: *const c_char, len: u32);
    /// xloginsert.c.
    pub fn XLogInsert(manager: u8, info: u8) -> pg_sys::XLogRecPtr;
    /// xlog.c. Wakes the WAL writer; raises nothing.
    pub fn XLogSetAsyncXactLSN(end: pg_sys::XLogRecPtr);
    /// nbtutils.c. Runs comparison functions. Returns an allocated tuple.
    pub fn _bt_truncate(
        relation: pg_sys::Relation,
        left: pg_sys::IndexTuple,
        right: pg_sys::IndexTuple,
        key: Opaque,
    ) -> pg_sys::IndexTuple;
    /// nbtutils.c. Returns the number of columns needed to distinguish two tuples, and one more if they are equal.
    pub fn _bt_keep_natts_fast(
        relation: pg_sys::Relation,
        left: pg_sys::IndexTuple,
        right: pg_sys::IndexTuple,
    ) -> c_int;
    /// nbtutils.c. Raises the error for a tuple that is too long.
    pub fn _bt_check_third_page(
        relation: pg_sys::Relation,
        heap: pg_sys::Relation,
        needs_tid: bool,
        page: pg_sys::Page,
        tuple: pg_sys::IndexTuple,
    );
    /// nbtutils.c.
    pub fn _bt_allequalimage(relation: pg_sys::Relation, debugmessage: bool) -> bool;
    /// bufmgr.c.
    pub fn ReadBufferExtended(
        relation: pg_sys::Relation,
        fork: pg_sys::ForkNumber::Type,
        block: pg_sys::BlockNumber,
        mode: pg_sys::ReadBufferMode::Type,
        strategy: pg_sys::BufferAccessStrategy,
    ) -> pg_sys::Buffer;
    /// bufmgr.c.
    pub fn RelationGetNumberOfBlocksInFork(
        relation: pg_sys::Relation,
        fork: pg_sys::ForkNumber::Type,
    ) -> pg_sys::BlockNumber;
    /// bufmgr.c.
    pub fn LockBuffer(buffer: pg_sys::Buffer, mode: c_int);
    /// bufmgr.c.
    pub fn ReleaseBuffer(buffer: pg_sys::Buffer);
    /// freelist.c.
    pub fn GetAccessStrategy(kind: pg_sys::BufferAccessStrategyType::Type) -> pg_sys::BufferAccessStrategy;
    /// freelist.c.
    pub fn FreeAccessStrategy(strategy: pg_sys::BufferAccessStrategy);
    /// combocid.c. The command that inserted a tuple of this transaction. Raises nothing.
    pub fn HeapTupleHeaderGetCmin(tuple: *const pg_sys::HeapTupleHeaderData) -> pg_sys::CommandId;
    /// heapam.c. The transaction that updated or deleted a tuple whose xmax is a multixact; reads its members.
    pub fn HeapTupleGetUpdateXid(tuple: *const pg_sys::HeapTupleHeaderData) -> pg_sys::TransactionId;
    /// xact.c. Raises nothing.
    pub fn TransactionIdIsCurrentTransactionId(xid: pg_sys::TransactionId) -> bool;
    /// execTuples.c. The slot gets a pin of its own.
    pub fn ExecStoreBufferHeapTuple(
        tuple: pg_sys::HeapTuple,
        slot: *mut pg_sys::TupleTableSlot,
        buffer: pg_sys::Buffer,
    ) -> *mut pg_sys::TupleTableSlot;
    /// execIndexing.c. Runs immutable functions.
    pub fn ExecOpenIndices(relinfo: *mut pg_sys::ResultRelInfo, speculative: bool);
    /// index.c. Runs the index's expressions.
    pub fn FormIndexDatum(
        info: *mut pg_sys::IndexInfo,
        slot: *mut pg_sys::TupleTableSlot,
        estate: *mut pg_sys::EState,
        values: *mut pg_sys::Datum,
        isnull: *mut bool,
    );
    /// indexam.c.
    pub fn index_insert(
        index: pg_sys::Relation,
        values: *mut pg_sys::Datum,
        isnull: *mut bool,
        tid: pg_sys::ItemPointer,
        heap: pg_sys::Relation,
        check: pg_sys::IndexUniqueCheck::Type,
        unchanged: bool,
        info: *mut pg_sys::IndexInfo,
    ) -> bool;
    /// indextuple.c. Raises nothing.
    pub fn index_deform_tuple(
        tuple: pg_sys::IndexTuple,
        descriptor: pg_sys::TupleDesc,
        values: *mut pg_sys::Datum,
        isnull: *mut bool,
    );
    /// execTuples.c. Without `should_free`, the tuple must live as long as it is in the slot.
    pub fn ExecStoreHeapTuple(
        tuple: pg_sys::HeapTuple,
        slot: *mut pg_sys::TupleTableSlot,
        should_free: bool,
    ) -> *mut pg_sys::TupleTableSlot;
    /// tuplesort.c.
    pub fn tuplesort_putindextuplevalues(
        state: *mut pg_sys::Tuplesortstate,
        index: pg_sys::Relation,
        tid: pg_sys::ItemPointer,
        values: *mut pg_sys::Datum,
        isnull: *mut bool,
    );
    /// tuplesort.c. Runs comparison functions.
    pub fn tuplesort_performsort(state: *mut pg_sys::Tuplesortstate);
    /// tuplesort.c. The result is valid until the next call.
    pub fn tuplesort_getindextuple(state: *mut pg_sys::Tuplesortstate, forward: bool) -> pg_sys::IndexTuple;
    /// tuplesort.c.
    pub fn tuplesort_puttupleslot(state: *mut pg_sys::Tuplesortstate, slot: *mut pg_sys::TupleTableSlot);
    /// tuplesort.c. Without `copy`, the slot's content is valid until the next call.
    pub fn tuplesort_gettupleslot(
        state: *mut pg_sys::Tuplesortstate,
        forward: bool,
        copy: bool,
        slot: *mut pg_sys::TupleTableSlot,
        abbreviated: *mut pg_sys::Datum,
    ) -> bool;
    /// tuplesort.c. For a sort that was begun with random access.
    pub fn tuplesort_rescan(state: *mut pg_sys::Tuplesortstate);
    /// tuplesort.c.
    pub fn tuplesort_end(state: *mut pg_sys::Tuplesortstate);
    /// indexam.c.
    pub fn index_getprocinfo(index: pg_sys::Relation, attnum: i16, procnum: u16) -> *mut pg_sys::FmgrInfo;
    /// fmgr.c. Calls a function.
    pub fn FunctionCall2Coll(
        flinfo: *mut pg_sys::FmgrInfo,
        collation: pg_sys::Oid,
        arg1: pg_sys::Datum,
        arg2: pg_sys::Datum,
    ) -> pg_sys::Datum;
    /// scankey.c. Looks up the function.
    pub fn ScanKeyEntryInitialize(
        entry: pg_sys::ScanKey,
        flags: c_int,
        attnum: pg_sys::AttrNumber,
        strategy: pg_sys::StrategyNumber,
        subtype: pg_sys::Oid,
        collation: pg_sys::Oid,
        procedure: pg_sys::RegProcedure,
        argument: pg_sys::Datum,
    );
    /// indexam.c.
    pub fn index_rescan(
        scan: pg_sys::IndexScanDesc,
        keys: pg_sys::ScanKey,
        key_count: c_int,
        order_bys: pg_sys::ScanKey,
        order_by_count: c_int,
    );
    /// indexam.c. Runs comparison functions.
    pub fn index_getnext_slot(
        scan: pg_sys::IndexScanDesc,
        direction: pg_sys::ScanDirection::Type,
        slot: *mut pg_sys::TupleTableSlot,
    ) -> bool;
    /// indexam.c.
    pub fn index_endscan(scan: pg_sys::IndexScanDesc);
    /// lmgr.c. Waits for another transaction.
    pub fn XactLockTableWait(
        xid: pg_sys::TransactionId,
        relation: pg_sys::Relation,
        row: pg_sys::ItemPointer,
        operation: pg_sys::XLTW_Oper::Type,
    );
    /// trigger.c. Queues row triggers whose conditions hold, and checks of constraints.
    pub fn ExecARUpdateTriggers(
        estate: *mut pg_sys::EState,
        relinfo: *mut pg_sys::ResultRelInfo,
        source: *mut pg_sys::ResultRelInfo,
        destination: *mut pg_sys::ResultRelInfo,
        row: pg_sys::ItemPointer,
        foreign: pg_sys::HeapTuple,
        new: *mut pg_sys::TupleTableSlot,
        recheck: *mut pg_sys::List,
        capture: *mut pg_sys::TransitionCaptureState,
        crosses_partitions: bool,
    );
    /// tuplestore.c.
    pub fn tuplestore_putvalues(
        state: *mut pg_sys::Tuplestorestate,
        descriptor: pg_sys::TupleDesc,
        values: *mut pg_sys::Datum,
        isnull: *mut bool,
    );
    /// tuplestore.c.
    pub fn tuplestore_puttupleslot(state: *mut pg_sys::Tuplestorestate, slot: *mut pg_sys::TupleTableSlot);
    /// tuplestore.c. Without `copy`, the slot's content is valid until the next call.
    pub fn tuplestore_gettupleslot(
        state: *mut pg_sys::Tuplestorestate,
        forward: bool,
        copy: bool,
        slot: *mut pg_sys::TupleTableSlot,
    ) -> bool;
    /// execTuples.c.
    pub fn ExecStoreMinimalTuple(
        tuple: pg_sys::MinimalTuple,
        slot: *mut pg_sys::TupleTableSlot,
        should_free: bool,
    ) -> *mut pg_sys::TupleTableSlot;
    /// fmgr.c. Calls a function.
    pub fn FunctionCall1Coll(
        flinfo: *mut pg_sys::FmgrInfo,
        collation: pg_sys::Oid,
        arg1: pg_sys::Datum,
    ) -> pg_sys::Datum;
    /// execTuples.c.
    pub fn slot_getsomeattrs_int(slot: *mut pg_sys::TupleTableSlot, attnum: c_int);
    /// list.c.
    pub fn list_concat(list: *mut pg_sys::List, more: *const pg_sys::List) -> *mut pg_sys::List;
    /// list.c.
    pub fn list_free(list: *mut pg_sys::List);
    /// trigger.c. Queues row triggers whose conditions hold, and checks of constraints.
    pub fn ExecARInsertTriggers(
        estate: *mut pg_sys::EState,
        relinfo: *mut pg_sys::ResultRelInfo,
        slot: *mut pg_sys::TupleTableSlot,
        recheck: *mut pg_sys::List,
        capture: *mut pg_sys::TransitionCaptureState,
    );
}
