//! A statement of our own, run inside another one.
//!
//! What SPI would do for us, in a plain frame and without its error context: the statement is a detail of ours, and
//! errors of triggers and constraints keep all their fields and say only where in the file they happened.

use std::ffi::c_char;

use pgrx::pg_sys;

use super::compat;
use super::unguarded as c;

/// Columns that a statement may insert into, whatever the user's rights: they are asked for elsewhere.
#[derive(Debug, Clone, Copy)]
pub struct Checked {
    pub relid: pg_sys::Oid,
    /// As in a range table entry.
    pub inserted: *mut pg_sys::Bitmapset,
}

impl Checked {
    pub const NONE: Checked = Checked { relid: pg_sys::InvalidOid, inserted: std::ptr::null_mut() };
}

/// Run a statement that is one of ours, and say how many rows it processed. `$1` in it is `argument`, a bigint.
/// As in SPI, each query sees what came before it, and what comes after sees them.
///
/// # Safety
/// A plain frame in a transaction; `source` is NUL-terminated and outlives the call, and so does the current memory
/// context, in which everything is allocated.
pub unsafe fn run(source: *const c_char, argument: i64, checked: Checked) -> u64 {
    // SAFETY: passed on; None_Receiver is a constant of the server's.
    unsafe { run_in(source, argument, checked, std::ptr::null_mut(), pg_sys::None_Receiver) }
}

/// The same for a query that knows the relations of an environment: the number of its rows.
///
/// # Safety
/// As [`run`]; the environment outlives the call.
pub unsafe fn count(source: *const c_char, environment: *mut pg_sys::QueryEnvironment) -> u64 {
    // SAFETY: passed on; None_Receiver is a constant of the server's.
    unsafe { run_in(source, 0, Checked::NONE, environment, pg_sys::None_Receiver) }
}

/// The same, with a receiver for the rows.
///
/// # Safety
/// As [`count`]; the receiver outlives the call, and its functions are for plain frames.
pub unsafe fn each(
    source: *const c_char,
    environment: *mut pg_sys::QueryEnvironment,
    receiver: *mut pg_sys::DestReceiver,
) -> u64 {
    // SAFETY: passed on.
    unsafe { run_in(source, 0, Checked::NONE, environment, receiver) }
}

/// # Safety
/// As [`count`]; the environment may be null.
unsafe fn run_in(
    source: *const c_char,
    argument: i64,
    checked: Checked,
    environment: *mut pg_sys::QueryEnvironment,
    receiver: *mut pg_sys::DestReceiver,
) -> u64 {
    // SAFETY: the caller vouches for the frame; lists are walked to their length; an error frees snapshots, executor
    // and memory with the (sub)transaction.
    unsafe {
        let bigint = pg_sys::INT8OID;
        let params = c::makeParamList(1);
        let param = (*params).params.as_mut_ptr();
        (*param).value = pg_sys::Datum::from(argument);
        (*param).isnull = false;
        (*param).pflags = pg_sys::PARAM_FLAG_CONST as u16;
        (*param).ptype = bigint;

        let mut processed = 0;
        let parsed = c::raw_parser(source, pg_sys::RawParseMode::RAW_PARSE_DEFAULT);
        for i in 0..len(parsed) {
            c::CommandCounterIncrement();
            c::PushActiveSnapshot(c::GetTransactionSnapshot());
            let raw = element::<pg_sys::RawStmt>(parsed, i);
            let queries = c::pg_analyze_and_rewrite_fixedparams(raw, source, &raw const bigint, 1, environment);
            let plans = c::pg_plan_queries(queries, source, 0, std::ptr::null_mut());
            for i in 0..len(plans) {
                if i > 0 {
                    c::CommandCounterIncrement();
                    c::UpdateActiveSnapshotCommandId();
                }
                let plan = element(plans, i);
                compat::forgo_insert_rights(plan, checked.relid, checked.inserted);
                processed += execute(plan, source, params, environment, receiver);
            }
            c::PopActiveSnapshot();
        }
        c::CommandCounterIncrement();
        processed
    }
}

/// # Safety
/// As [`run`], with an active snapshot.
unsafe fn execute(
    plan: *mut pg_sys::PlannedStmt,
    source: *const c_char,
    params: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    receiver: *mut pg_sys::DestReceiver,
) -> u64 {
    // SAFETY: the caller vouches for it.
    unsafe {
        if (*plan).commandType == pg_sys::CmdType::CMD_UTILITY {
            let context = pg_sys::ProcessUtilityContext::PROCESS_UTILITY_QUERY;
            let completion = std::ptr::null_mut();
            c::ProcessUtility(plan, source, false, context, std::ptr::null_mut(), environment, receiver, completion);
            return 0;
        }
        let no_crosscheck = std::ptr::null_mut();
        let query =
            c::CreateQueryDesc(plan, source, c::GetActiveSnapshot(), no_crosscheck, receiver, params, environment, 0);
        c::ExecutorStart(query, 0);
        compat::executor_run(query);
        let processed = if (*plan).canSetTag { (*(*query).estate).es_processed } else { 0 };
        c::ExecutorFinish(query);
        c::ExecutorEnd(query);
        c::FreeQueryDesc(query);
        processed
    }
}

/// # Safety
/// A list, or null.
unsafe fn len(list: *const pg_sys::List) -> usize {
    // SAFETY: the caller vouches for the list.
    let len = unsafe { list.as_ref() }.map_or(0, |list| list.length);
    usize::try_from(len).unwrap_or(0)
}

/// # Safety
/// A list of pointers to `T` with more than `index` elements.
unsafe fn element<T>(list: *const pg_sys::List, index: usize) -> *mut T {
    // SAFETY: the caller vouches for the list.
    unsafe { (*(*list).elements.add(index)).ptr_value.cast() }
}
