//! Runs an SQL statement of pg_bulk inside the user's statement.
//!
//! This replaces SPI, in a plain frame and without SPI's error context: the statement is an internal detail. Errors of
//! triggers and constraints keep all their fields, and their CONTEXT names only the position in the file.
//!
//! The text of a statement names tables and functions. Since the text was composed, user code may have run. The owner
//! of a schema may have given a name to another object: a table with other columns, a view, or a better matching
//! function. So the objects to which the names resolve are checked before the statement is used any further
//! ([`About`]).

use std::ffi::c_char;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::call::calls;
use super::column_set::ColumnSet;
use super::compat;
use super::lookup::row_type;
use super::node::{Node, NodeList};
use super::unguarded as c;
use crate::error::Error;

/// Columns that a statement may insert into without a check of the user's privileges, which were checked elsewhere.
#[derive(Debug, Clone, Copy)]
pub struct Checked {
    pub relid: pg_sys::Oid,
    pub inserted: ColumnSet,
}

impl Checked {
    pub const NONE: Checked = Checked { relid: pg_sys::InvalidOid, inserted: ColumnSet::EMPTY };
}

/// The objects that a statement may name.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub enum About {
    /// Any: the user runs the statement, and it does nothing that the user could not do.
    Anything,
    /// No table but this one.
    Table(pg_sys::Oid),
    /// No table but this one, and no function but this one, which returns the table's rows.
    Rows { table: pg_sys::Oid, function: pg_sys::Oid },
    /// A SELECT of a call of this function, and of nothing else.
    Call(pg_sys::Oid),
}

/// What a query reads and where its rows go, beside tables.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings {
    /// The relations of an environment that the query knows, or null.
    pub environment: *mut pg_sys::QueryEnvironment,
    /// Null if the rows go nowhere.
    pub receiver: *mut pg_sys::DestReceiver,
}

impl Surroundings {
    pub const NONE: Surroundings = Surroundings { environment: std::ptr::null_mut(), receiver: std::ptr::null_mut() };
}

/// Run a statement, and return the number of rows that it processed. `$1` in it is `argument`, a bigint. As in SPI,
/// each query sees the effects of earlier queries, and later ones see its own.
///
/// # Safety
/// A plain frame in a transaction; `source` is NUL-terminated and outlives the call, and so does the current memory
/// context, in which everything is allocated. The surroundings outlive the call, and the receiver's functions are for
/// plain frames.
pub unsafe fn run(
    source: *const c_char,
    argument: i64,
    about: About,
    checked: Checked,
    Surroundings { environment, receiver }: Surroundings,
) -> u64 {
    // SAFETY: the frame is plain; lists are walked to their length; an error frees snapshots, executor and memory with
    // the (sub)transaction.
    unsafe {
        let receiver = if receiver.is_null() { pg_sys::None_Receiver } else { receiver };
        let bigint = pg_sys::INT8OID;
        let params = c::makeParamList(1);
        let param = (*params).params.as_mut_ptr();
        (*param).value = pg_sys::Datum::from(argument);
        (*param).isnull = false;
        (*param).pflags = pg_sys::PARAM_FLAG_CONST as u16;
        (*param).ptype = bigint;

        let mut processed = 0;
        let parsed = c::raw_parser(source, pg_sys::RawParseMode::RAW_PARSE_DEFAULT);
        for raw in NodeList::<pg_sys::RawStmt>::from_raw(parsed).iter() {
            c::CommandCounterIncrement();
            c::PushActiveSnapshot(c::GetTransactionSnapshot());
            let query = c::parse_analyze_fixedparams(raw.as_ptr(), source, &raw const bigint, 1, environment);
            c::guarded(|| {
                if !Node::from_raw(query).is_some_and(|query| is_about(query, about)) {
                    replaced().raise();
                }
            });
            // The argument is a constant of the plan: planners of other extensions may not support parameters.
            let plans = c::pg_plan_queries(c::pg_rewrite_query(query), source, 0, params);
            let plans = NodeList::<pg_sys::PlannedStmt>::from_raw(plans);
            for (i, plan) in plans.iter().map(Node::as_ptr).enumerate() {
                if i > 0 {
                    c::CommandCounterIncrement();
                    c::UpdateActiveSnapshotCommandId();
                }
                compat::forgo_insert_rights(plan, checked.relid, checked.inserted);
                processed += execute(plan, source, params, environment, receiver);
            }
            c::PopActiveSnapshot();
        }
        c::CommandCounterIncrement();
        processed
    }
}

// SAFETY: only counts; an error in parallel mode.
calls! {
    /// The current command. `used`: to mark rows, so that the next command gets another id. Guarded.
    pub fn current_command(used: bool) -> pg_sys::CommandId = GetCurrentCommandId(used);
    /// The id of the current transaction, which is assigned now if it has none. Guarded.
    pub fn transaction_id() -> pg_sys::TransactionId = GetCurrentTransactionId();
    /// The id of the current transaction; invalid if it has none. Guarded.
    pub fn assigned_transaction_id() -> pg_sys::TransactionId = GetCurrentTransactionIdIfAny();
    /// The number of transactions and subtransactions that are open. Guarded.
    pub fn nest_level() -> i32 = GetCurrentTransactionNestLevel();
    /// Begins the next command, which sees the changes of those before. Guarded, and outside of parallel mode.
    pub fn next_command() = CommandCounterIncrement();
}

/// The error for a name that resolves to another object than before.
pub fn replaced() -> Error {
    let message = "a table or function of the load was renamed or replaced concurrently";
    Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message)
}

/// Whether all names of an analyzed query resolve to these objects. Guarded.
fn is_about(query: Node<'_, pg_sys::Query>, about: About) -> bool {
    let (table, function) = match about {
        About::Anything => return true,
        About::Table(table) => (table, pg_sys::InvalidOid),
        About::Rows { table, function } => (table, function),
        About::Call(function) => (pg_sys::InvalidOid, function),
    };
    let called = |node: Node<'_>| {
        let call = node.as_a::<pg_sys::FuncExpr>().filter(|call| call.funcid == function);
        call.map(|call| call.funcresulttype)
    };
    if matches!(about, About::Call(_)) {
        let targets = query.targets();
        let are_calls = targets.iter().all(|target| called(target.expr()).is_some());
        return are_calls && targets.len() == 1 && query.rtable().is_empty();
    }
    query.rtable().iter().all(|entry| match entry.rtekind {
        pg_sys::RTEKind::RTE_RELATION => entry.relid == table,
        pg_sys::RTEKind::RTE_SUBQUERY => entry.subquery().is_some_and(|query| is_about(query, about)),
        pg_sys::RTEKind::RTE_FUNCTION => {
            let row = row_type(table);
            entry.functions().iter().all(|one| one.call().and_then(called) == Some(row))
        }
        _ => true,
    })
}

/// # Safety
/// As for [`run`], with an active snapshot.
unsafe fn execute(
    plan: *mut pg_sys::PlannedStmt,
    source: *const c_char,
    params: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    receiver: *mut pg_sys::DestReceiver,
) -> u64 {
    // SAFETY: the planner has made the plan; the frame is plain, and the snapshot stays active.
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
