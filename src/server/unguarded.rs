//! C functions for plain frames: declared here without pgrx's guard.
//!
//! A function here may raise an error and then jumps past its caller (see the rules in [`super`]). If it cannot raise,
//! its comment states that.
#![allow(non_snake_case)]

mod access;
mod client;
mod process;

use std::ffi::{c_char, c_int, c_void};

use pgrx::pg_sys;

pub use self::access::*;
pub use self::client::*;
pub use self::process::*;
pub use super::compat::unguarded::*;

unsafe extern "C-unwind" {
    /// fmgr.c. Runs a type's input function; null `str` for NULL.
    pub fn InputFunctionCall(
        flinfo: *mut pg_sys::FmgrInfo,
        str: *mut c_char,
        typioparam: pg_sys::Oid,
        typmod: i32,
    ) -> pg_sys::Datum;
    /// fmgr.c. Runs a type's receive function; null `buf` for NULL.
    pub fn ReceiveFunctionCall(
        flinfo: *mut pg_sys::FmgrInfo,
        buf: pg_sys::StringInfo,
        typioparam: pg_sys::Oid,
        typmod: i32,
    ) -> pg_sys::Datum;
    /// mbutils.c. Raises nothing.
    pub fn pg_get_client_encoding() -> c_int;
    /// elog.c. Starts a message; false if its level goes nowhere. Raises nothing but out of memory, nor do the
    /// functions that fill in the message.
    pub fn errstart_cold(elevel: c_int, domain: *const c_char) -> bool;
    /// elog.c. Sets the message without translation.
    pub fn errmsg_internal(fmt: *const c_char, ...) -> c_int;
    /// elog.c. Sets the SQLSTATE of the current message.
    pub fn errcode(sqlerrcode: c_int) -> c_int;
    /// elog.c. Sets the message, translated.
    pub fn errmsg(fmt: *const c_char, ...) -> c_int;
    /// elog.c. Sets the detail, translated.
    pub fn errdetail(fmt: *const c_char, ...) -> c_int;
    /// relcache.c. Sets the names of schema, table and constraint; reads the catalogs.
    pub fn errtableconstraint(rel: pg_sys::Relation, conname: *const c_char) -> c_int;
    /// elog.c. Hides STATEMENT in the log.
    pub fn errhidestmt(hide_stmt: bool) -> c_int;
    /// elog.c. Hides CONTEXT in the log.
    pub fn errhidecontext(hide_ctx: bool) -> c_int;
    /// elog.c. Sends the message; jumps only for an ERROR.
    pub fn errfinish(filename: *const c_char, lineno: c_int, funcname: *const c_char);
    /// elog.c. Only within an error context callback.
    pub fn errcontext_msg(fmt: *const c_char, ...) -> c_int;
    /// elog.c. Only within an error context callback; stores a pointer.
    pub fn set_errcontext_domain(domain: *const c_char) -> c_int;
    /// elog.c. Sets a name of the current error that is not set yet.
    pub fn err_generic_string(field: c_int, str: *const c_char) -> c_int;
    /// lwlock.c. Raises nothing.
    pub fn LWLockReleaseAll();
    /// condition_variable.c. Raises nothing.
    pub fn ConditionVariableCancelSleep();
    /// aset.c. Raises nothing but out of memory.
    pub fn AllocSetContextCreateInternal(
        parent: pg_sys::MemoryContext,
        name: *const c_char,
        min: usize,
        init: usize,
        max: usize,
    ) -> pg_sys::MemoryContext;
    /// mcxt.c. Raises nothing for memory that pg_bulk has allocated.
    pub fn pfree(pointer: *mut c_void);
    /// mcxt.c. Frees memory; raises nothing.
    pub fn MemoryContextDelete(context: pg_sys::MemoryContext);
    /// mcxt.c. Frees memory; raises nothing.
    pub fn MemoryContextReset(context: pg_sys::MemoryContext);
    /// mbutils.c. Raises the error for invalid bytes.
    pub fn report_invalid_encoding(encoding: c_int, mbstr: *const c_char, len: c_int) -> !;
    /// wchar.c. Reads bytes; raises nothing.
    pub fn pg_encoding_verifymbstr(encoding: c_int, mbstr: *const c_char, len: c_int) -> c_int;
    /// mbutils.c. Raises nothing.
    pub fn GetDatabaseEncoding() -> c_int;
    /// mbutils.c. Reads bytes; raises nothing.
    pub fn pg_mbcliplen(mbstr: *const c_char, len: c_int, limit: c_int) -> c_int;
    /// elog.c. Copies the error that was just caught; raises nothing but out of memory.
    pub fn CopyErrorData() -> *mut pg_sys::ErrorData;
    /// lsyscache.c. Returns provolatile of a function; raises an error if it does not exist.
    pub fn func_volatile(funcid: pg_sys::Oid) -> c_char;
    /// dsm.c. Creates a segment; raises an error if there is no space for it.
    pub fn dsm_create(size: usize, flags: c_int) -> *mut pg_sys::dsm_segment;
    /// dsm.c. Attaches to a segment; null if it does not exist. Raises an error if it cannot be mapped.
    pub fn dsm_attach(handle: pg_sys::dsm_handle) -> *mut pg_sys::dsm_segment;
    /// elog.c. Frees a copy; raises nothing.
    pub fn FreeErrorData(edata: *mut pg_sys::ErrorData);
    /// mcxt.c. Raises nothing but out of memory.
    pub fn MemoryContextAlloc(context: pg_sys::MemoryContext, size: usize) -> *mut c_void;
    /// bufmgr.c. Raises nothing.
    pub fn UnlockBuffers();
    /// xloginsert.c. Raises nothing.
    pub fn XLogResetInsertion();
    /// elog.c. Clears the error that was just caught.
    pub fn FlushErrorState();
    /// elog.c. Raises a copied error again, unchanged.
    pub fn ReThrowError(edata: *mut pg_sys::ErrorData) -> !;
    /// xact.c. Increments a counter; raises nothing in parallel mode without workers.
    pub fn EnterParallelMode();
    pub fn ExitParallelMode();
    /// execPartition.c. Prepares the routing of rows; has no binding of its own.
    pub fn ExecSetupPartitionTupleRouting(
        estate: *mut pg_sys::EState,
        rel: pg_sys::Relation,
    ) -> *mut pg_sys::PartitionTupleRouting;
    /// execPartition.c. Finds the leaf for the row in a slot.
    pub fn ExecFindPartition(
        mtstate: *mut pg_sys::ModifyTableState,
        root: *mut pg_sys::ResultRelInfo,
        routing: *mut pg_sys::PartitionTupleRouting,
        slot: *mut pg_sys::TupleTableSlot,
        estate: *mut pg_sys::EState,
    ) -> *mut pg_sys::ResultRelInfo;
    /// execPartition.c. Closes the leaves.
    pub fn ExecCleanupTupleRouting(mtstate: *mut pg_sys::ModifyTableState, routing: *mut pg_sys::PartitionTupleRouting);
    /// tupconvert.c. Converts a row to another relation's row type.
    pub fn execute_attr_map_slot(
        map: *mut pg_sys::AttrMap,
        from: *mut pg_sys::TupleTableSlot,
        to: *mut pg_sys::TupleTableSlot,
    ) -> *mut pg_sys::TupleTableSlot;
    /// nodeModifyTable.c
    pub fn ExecComputeStoredGenerated(
        relinfo: *mut pg_sys::ResultRelInfo,
        estate: *mut pg_sys::EState,
        slot: *mut pg_sys::TupleTableSlot,
        command: pg_sys::CmdType::Type,
    );
    /// instrument.c. Raises an error only if it is called twice.
    pub fn InstrStartNode(instr: *mut pg_sys::Instrumentation);
    /// instrument.c. Raises an error only without a start.
    pub fn InstrStopNode(instr: *mut pg_sys::Instrumentation, nTuples: f64);
    /// execMain.c. Checks NOT NULL and CHECK.
    pub fn ExecConstraints(
        relinfo: *mut pg_sys::ResultRelInfo,
        slot: *mut pg_sys::TupleTableSlot,
        estate: *mut pg_sys::EState,
    );
    /// execMain.c
    pub fn ExecPartitionCheck(
        relinfo: *mut pg_sys::ResultRelInfo,
        slot: *mut pg_sys::TupleTableSlot,
        estate: *mut pg_sys::EState,
        emit_error: bool,
    ) -> bool;
    /// partcache.c. Returns a partitioned table's key.
    pub fn RelationGetPartitionKey(relation: pg_sys::Relation) -> *mut c_void;
    /// partcache.c. Returns the partition constraint.
    pub fn RelationGetPartitionQual(relation: pg_sys::Relation) -> *mut pg_sys::List;
    /// predicate.c. For SERIALIZABLE: a writer has changed a relation.
    pub fn CheckForSerializableConflictIn(
        relation: pg_sys::Relation,
        tid: pg_sys::ItemPointer,
        block: pg_sys::BlockNumber,
    );
    /// postgres.c. Serves pending interrupts.
    pub fn ProcessInterrupts();
    /// elog.c. Returns the position of the current error in the statement, or 0. This function and the next three are
    /// valid only in an error context callback.
    pub fn geterrposition() -> c_int;
    /// elog.c. Sets that position.
    pub fn errposition(cursorpos: c_int) -> c_int;
    /// elog.c. Sets the position in an internal query.
    pub fn internalerrposition(cursorpos: c_int) -> c_int;
    /// elog.c. Sets the internal query; copies the string.
    pub fn internalerrquery(query: *const c_char) -> c_int;
    /// elog.c. Sets the hint, translated.
    pub fn errhint(fmt: *const c_char, ...) -> c_int;
    /// parse_node.c. Sets the position in the parse state's text; only while an error is made.
    pub fn parser_errposition(pstate: *mut pg_sys::ParseState, location: c_int) -> c_int;
    /// nodeFuncs.c. Reads nodes; raises nothing.
    pub fn exprLocation(expr: *const pg_sys::Node) -> c_int;
    /// format_type.c. Reads the catalogs.
    pub fn format_type_be(type_oid: pg_sys::Oid) -> *mut c_char;
    /// execScan.c. Applies filter and projection to the rows of the access method.
    pub fn ExecScan(
        node: *mut pg_sys::ScanState,
        accessMtd: pg_sys::ExecScanAccessMtd,
        recheckMtd: pg_sys::ExecScanRecheckMtd,
    ) -> *mut pg_sys::TupleTableSlot;
    /// parser.c.
    pub fn raw_parser(str: *const c_char, mode: pg_sys::RawParseMode::Type) -> *mut pg_sys::List;
    /// parse_node.c.
    pub fn make_parsestate(parent: *mut pg_sys::ParseState) -> *mut pg_sys::ParseState;
    /// parse_relation.c.
    pub fn addRangeTableEntryForRelation(
        pstate: *mut pg_sys::ParseState,
        rel: pg_sys::Relation,
        lockmode: c_int,
        alias: *mut pg_sys::Alias,
        inh: bool,
        inFromCl: bool,
    ) -> *mut pg_sys::ParseNamespaceItem;
    /// parse_relation.c.
    pub fn addNSItemToQuery(
        pstate: *mut pg_sys::ParseState,
        nsitem: *mut pg_sys::ParseNamespaceItem,
        addToJoinList: bool,
        addToRelNameSpace: bool,
        addToVarNameSpace: bool,
    );
    /// parse_expr.c.
    pub fn transformExpr(
        pstate: *mut pg_sys::ParseState,
        expr: *mut pg_sys::Node,
        exprKind: pg_sys::ParseExprKind::Type,
    ) -> *mut pg_sys::Node;
    /// parse_coerce.c.
    pub fn coerce_to_boolean(
        pstate: *mut pg_sys::ParseState,
        node: *mut pg_sys::Node,
        constructName: *const c_char,
    ) -> *mut pg_sys::Node;
    /// parse_coerce.c. Runs input functions.
    pub fn coerce_to_target_type(
        pstate: *mut pg_sys::ParseState,
        expr: *mut pg_sys::Node,
        exprtype: pg_sys::Oid,
        targettype: pg_sys::Oid,
        targettypmod: i32,
        ccontext: pg_sys::CoercionContext::Type,
        cformat: pg_sys::CoercionForm::Type,
        location: c_int,
    ) -> *mut pg_sys::Node;
    /// nodeFuncs.c.
    pub fn exprType(expr: *const pg_sys::Node) -> pg_sys::Oid;
    /// parse_collate.c.
    pub fn assign_expr_collations(pstate: *mut pg_sys::ParseState, expr: *mut pg_sys::Node);
    /// clauses.c. Runs immutable functions.
    pub fn eval_const_expressions(root: *mut pg_sys::PlannerInfo, node: *mut pg_sys::Node) -> *mut pg_sys::Node;
    /// prepqual.c.
    pub fn canonicalize_qual(qual: *mut pg_sys::Expr, is_check: bool) -> *mut pg_sys::Expr;
    /// makefuncs.c.
    pub fn make_ands_implicit(clause: *mut pg_sys::Expr) -> *mut pg_sys::List;
    /// functions.c. Prepares the names that the body of an SQL function may use.
    pub fn prepare_sql_fn_parse_info(
        procedureTuple: pg_sys::HeapTuple,
        call_expr: *mut pg_sys::Node,
        inputCollation: pg_sys::Oid,
    ) -> *mut c_void;
    /// functions.c. Sets hooks; raises nothing.
    pub fn sql_fn_parser_setup(pstate: *mut pg_sys::ParseState, pinfo: *mut c_void);
    /// analyze.c.
    pub fn transformTopLevelStmt(
        pstate: *mut pg_sys::ParseState,
        parseTree: *mut pg_sys::RawStmt,
    ) -> *mut pg_sys::Query;
    /// heaptuple.c. Raises nothing.
    pub fn heap_deform_tuple(
        tuple: pg_sys::HeapTuple,
        tupleDesc: pg_sys::TupleDesc,
        values: *mut pg_sys::Datum,
        isnull: *mut bool,
    );
    /// fmgr.c. Returns a plain copy of a compressed or out-of-line value, or the value itself.
    pub fn pg_detoast_datum(datum: *mut pg_sys::varlena) -> *mut pg_sys::varlena;
    pub fn assign_record_type_identifier(type_id: pg_sys::Oid, typmod: i32) -> u64;
    /// analyze.c.
    pub fn parse_analyze_fixedparams(
        parseTree: *mut pg_sys::RawStmt,
        sourceText: *const c_char,
        paramTypes: *const pg_sys::Oid,
        numParams: c_int,
        queryEnv: *mut pg_sys::QueryEnvironment,
    ) -> *mut pg_sys::Query;
    /// analyze.c. Locks the named relations; runs input functions.
    pub fn transformStmt(pstate: *mut pg_sys::ParseState, parseTree: *mut pg_sys::Node) -> *mut pg_sys::Query;
    /// parse_target.c. Runs input functions.
    pub fn transformExpressionList(
        pstate: *mut pg_sys::ParseState,
        exprlist: *mut pg_sys::List,
        exprKind: pg_sys::ParseExprKind::Type,
        allowDefault: bool,
    ) -> *mut pg_sys::List;
    /// postgres.c. Expands views and policies.
    pub fn pg_rewrite_query(query: *mut pg_sys::Query) -> *mut pg_sys::List;
    /// postgres.c.
    pub fn pg_plan_queries(
        querytrees: *mut pg_sys::List,
        query_string: *const c_char,
        cursorOptions: c_int,
        boundParams: pg_sys::ParamListInfo,
    ) -> *mut pg_sys::List;
    /// params.c.
    pub fn makeParamList(numParams: c_int) -> pg_sys::ParamListInfo;
    /// pquery.c.
    pub fn CreateQueryDesc(
        plannedstmt: *mut pg_sys::PlannedStmt,
        sourceText: *const c_char,
        snapshot: pg_sys::Snapshot,
        crosscheck_snapshot: pg_sys::Snapshot,
        dest: *mut pg_sys::DestReceiver,
        params: pg_sys::ParamListInfo,
        queryEnv: *mut pg_sys::QueryEnvironment,
        instrument_options: c_int,
    ) -> *mut pg_sys::QueryDesc;
    /// execMain.c.
    pub fn ExecutorStart(queryDesc: *mut pg_sys::QueryDesc, eflags: c_int);
    /// execMain.c.
    pub fn ExecutorFinish(queryDesc: *mut pg_sys::QueryDesc);
    /// execMain.c.
    pub fn ExecutorEnd(queryDesc: *mut pg_sys::QueryDesc);
    /// pquery.c.
    pub fn FreeQueryDesc(qdesc: *mut pg_sys::QueryDesc);
    /// utility.c.
    pub fn ProcessUtility(
        pstmt: *mut pg_sys::PlannedStmt,
        queryString: *const c_char,
        readOnlyTree: bool,
        context: pg_sys::ProcessUtilityContext::Type,
        params: pg_sys::ParamListInfo,
        queryEnv: *mut pg_sys::QueryEnvironment,
        dest: *mut pg_sys::DestReceiver,
        qc: *mut pg_sys::QueryCompletion,
    );
    /// utility.c. ProcessUtility without hooks.
    pub fn standard_ProcessUtility(
        pstmt: *mut pg_sys::PlannedStmt,
        queryString: *const c_char,
        readOnlyTree: bool,
        context: pg_sys::ProcessUtilityContext::Type,
        params: pg_sys::ParamListInfo,
        queryEnv: *mut pg_sys::QueryEnvironment,
        dest: *mut pg_sys::DestReceiver,
        qc: *mut pg_sys::QueryCompletion,
    );
    /// jsonfuncs.c. Parses JSON, escapes included.
    pub fn json_strip_nulls(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum;
    /// fmgr.c.
    pub fn DirectFunctionCall1Coll(
        func: pg_sys::PGFunction,
        collation: pg_sys::Oid,
        arg1: pg_sys::Datum,
    ) -> pg_sys::Datum;
    /// copyfuncs.c.
    pub fn copyObjectImpl(from: *const c_void) -> *mut c_void;
    /// postgres.c.
    pub fn check_stack_depth();
    /// sequence.c.
    pub fn nextval_internal(relid: pg_sys::Oid, check_permissions: bool) -> i64;
    /// partition.c. Reads the catalogs.
    pub fn get_partition_ancestors(relation: pg_sys::Oid) -> *mut pg_sys::List;
    /// pg_inherits.c.
    pub fn find_all_inheritors(
        parentrelId: pg_sys::Oid,
        lockmode: c_int,
        numparents: *mut *mut pg_sys::List,
    ) -> *mut pg_sys::List;
    /// bitmapset.c. Changes the first set; raises nothing.
    pub fn bms_del_members(a: *mut pg_sys::Bitmapset, b: *const pg_sys::Bitmapset) -> *mut pg_sys::Bitmapset;
    /// xact.c.
    pub fn CommandCounterIncrement();
    /// miscinit.c. Raises nothing.
    pub fn GetUserIdAndSecContext(user: *mut pg_sys::Oid, context: *mut c_int);
    /// miscinit.c. Raises nothing.
    pub fn SetUserIdAndSecContext(user: pg_sys::Oid, context: c_int);
    /// guc.c. Raises nothing.
    pub fn NewGUCNestLevel() -> c_int;
    /// guc.c. Reverts the settings of a nest level, unless `is_commit`. Raises nothing, as the end of a transaction calls it.
    pub fn AtEOXact_GUC(is_commit: bool, level: c_int);
    /// snapmgr.c.
    pub fn GetTransactionSnapshot() -> pg_sys::Snapshot;
    /// snapmgr.c.
    pub fn GetActiveSnapshot() -> pg_sys::Snapshot;
    /// snapmgr.c.
    pub fn PushActiveSnapshot(snapshot: pg_sys::Snapshot);
    /// snapmgr.c.
    pub fn PopActiveSnapshot();
    /// snapmgr.c.
    pub fn UpdateActiveSnapshotCommandId();
}

/// `INTERRUPTS_PENDING_CONDITION()` (miscadmin.h).
#[inline(always)]
pub fn are_interrupts_pending() -> bool {
    // SAFETY: a signal handler sets the flag; a volatile read, as in miscadmin.h, is all that is needed.
    unsafe { std::ptr::read_volatile(&raw const pg_sys::InterruptPending) != 0 }
}

/// `CHECK_FOR_INTERRUPTS()` for plain frames.
///
/// # Safety
/// The caller is a plain frame.
#[inline(always)]
pub unsafe fn check_for_interrupts() {
    if are_interrupts_pending() {
        // SAFETY: the caller is a plain frame.
        unsafe { ProcessInterrupts() }
    }
}

/// `ExecEvalExprSwitchContext` (executor.h).
///
/// # Safety
/// The caller is a plain frame; both pointers are valid.
#[inline]
pub unsafe fn exec_eval_expr(
    state: *mut pg_sys::ExprState,
    econtext: *mut pg_sys::ExprContext,
    is_null: *mut bool,
) -> pg_sys::Datum {
    // SAFETY: the expression was initialized for this context; the evaluation function is set by ExecInitExpr.
    unsafe {
        let old = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = (*econtext).ecxt_per_tuple_memory;
        let value = match (*state).evalfunc {
            Some(eval) => eval(state, econtext, is_null),
            None => pg_sys::Datum::from(0usize),
        };
        pg_sys::CurrentMemoryContext = old;
        value
    }
}

/// MakeExpandedObjectReadOnly (expandeddatum.h) of a value that is not null and of variable length.
///
/// # Safety
/// The caller is a plain frame; such a value.
#[inline]
pub unsafe fn read_only(value: pg_sys::Datum) -> pg_sys::Datum {
    // SAFETY: the frame is plain, and the value is of variable length.
    unsafe { MakeExpandedObjectReadOnlyInternal(value) }
}

/// `ExecQual` (executor.h): a NULL qual is true, a NULL result false.
///
/// # Safety
/// The caller is a plain frame; `econtext` is valid, `qual` valid or null.
#[inline]
pub unsafe fn exec_qual(qual: *mut pg_sys::ExprState, econtext: *mut pg_sys::ExprContext) -> bool {
    if qual.is_null() {
        return true;
    }
    let mut is_null = false;
    // SAFETY: the frame is plain, and the qual is not null; ExecInitQual makes expressions whose result is never NULL.
    unsafe { exec_eval_expr(qual, econtext, &raw mut is_null) }.value() != 0
}

/// Call a function declared above from a guarded frame.
///
/// # Safety
/// As for that function; the closure owns no value with a destructor.
pub unsafe fn guard<T>(call: impl FnOnce() -> T) -> T {
    // SAFETY: an error jumps over the closure's frame only, which owns nothing.
    unsafe { pg_sys::ffi::pg_guard_ffi_boundary(call) }
}

/// Runs code of a plain frame with a callback that completes the messages about its errors.
///
/// # Safety
/// A plain frame; the callback expects this argument, which outlives the call.
pub unsafe fn in_context<T>(callback: unsafe extern "C-unwind" fn(Opaque), arg: Opaque, code: impl FnOnce() -> T) -> T {
    // SAFETY: an error restores the server's list of callbacks before this frame's entry could be used again.
    unsafe {
        let previous = pg_sys::error_context_stack;
        let mut entry = pg_sys::ErrorContextCallback { previous, callback: Some(callback), arg };
        pg_sys::error_context_stack = &raw mut entry;
        let done = code();
        pg_sys::error_context_stack = previous;
        done
    }
}

/// Runs code without the callback of the innermost [`in_context`], for errors that are not about its argument.
///
/// # Safety
/// A plain frame within the code of [`in_context`], in which no other callback has been added.
pub unsafe fn out_of_context<T>(code: impl FnOnce() -> T) -> T {
    // SAFETY: the entry of `in_context`, whose frame lasts longer than this one.
    unsafe {
        let own = pg_sys::error_context_stack;
        pg_sys::error_context_stack = (*own).previous;
        let done = code();
        pg_sys::error_context_stack = own;
        done
    }
}

/// Runs a step of a plain frame in a guarded one, in which Rust code may fail and own values.
///
/// # Safety
/// The caller's frame is plain.
#[inline]
pub unsafe fn guarded<T: Copy>(step: impl FnOnce() -> T) -> T {
    // SAFETY: the caller's frame and this one own nothing that has a destructor.
    unsafe { pg_sys::panic::pgrx_extern_c_guard(step) }
}

/// `ExecClearTuple` (tuptable.h).
///
/// # Safety
/// A plain frame and a valid slot.
#[inline(always)]
pub unsafe fn clear_virtual(slot: *mut pg_sys::TupleTableSlot) {
    // SAFETY: a slot has its operations; the frame is plain.
    unsafe {
        if let Some(clear) = (*(*slot).tts_ops).clear {
            clear(slot);
        }
    }
}

/// `ExecStoreVirtualTuple` (execTuples.c).
///
/// # Safety
/// A valid slot whose arrays are filled.
#[inline(always)]
pub unsafe fn store_virtual(slot: *mut pg_sys::TupleTableSlot) {
    // SAFETY: a slot has its descriptor.
    unsafe {
        (*slot).tts_flags &= !(pg_sys::TTS_FLAG_EMPTY as u16);
        (*slot).tts_nvalid = (*(*slot).tts_tupleDescriptor).natts as pg_sys::AttrNumber;
    }
}

/// An argument of callbacks that take any pointer.
pub type Opaque = *mut c_void;
