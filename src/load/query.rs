//! A query as the input of a load: its text in, rows of the target out.
//!
//! ```text
//!   text ─► parser ─► analysis ─► columns for the target's ─► rewriter ─► planner ─► executor ─┬─► direct: row_loop
//!                                 (INSERT's coercions)                                         └─► buffered: feed
//! ```
//!
//! The module runs `INSERT INTO t (…) query` without the INSERT. The query is one SELECT, VALUES, TABLE or WITH without
//! parameters. Its columns are coerced as in an assignment, with the errors of transformInsertRow and
//! transformAssignedExpr (analyze.c, parse_target.c). The plan's rows have an attribute for each of the target's. The
//! writer fetches them one by one in its own process, keeps none, and stops fetching at `limit`. From there on it
//! treats a row like one of a file; the row's number replaces the line number.
//!
//! **Snapshot.** The query sees the snapshot that was current at its start, before statement triggers fire and before
//! the first row is written. That snapshot stays active while rows are made, as in an INSERT, so functions that are not
//! volatile use it too. A function that may look for earlier rows of the load requires the buffered writer
//! ([`volatile`]).
//!
//! All functions that fold constants or run user code are plain frames. A guard would also drop the positions of
//! errors, which refer to the option's text.

mod analysis;
mod function;

use std::ffi::CString;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

pub use self::analysis::{analyze, check};
use super::Program;
use super::options::LoadOptions;
use crate::error::Error;
use crate::program::volatile::UserCall;
use crate::rows::row::RowArrays;
use crate::server::node::Node;
use crate::server::unguarded as c;

/// A planned query.
#[derive(Debug)]
pub struct Query {
    text: CString,
    plan: Node<'static, pg_sys::PlannedStmt>,
    /// The running query; null before its start and after its end.
    running: *mut pg_sys::QueryDesc,
    /// Its snapshot is on the active stack.
    is_active: bool,
    /// The target's attributes that the query has columns for, from 0.
    sets: Vec<usize>,
    /// A call that keeps rows out of the direct writer.
    call: Option<UserCall>,
    /// The query reads the table that is loaded.
    reads_target: bool,
}

impl Query {
    /// Reason why the direct writer cannot write the rows, if there is one.
    pub fn obstacle(&self, options: &LoadOptions) -> Option<String> {
        if let Some(call) = self.call {
            return Some(format!("The query {call}."));
        }
        // All sessions see frozen rows at once.
        (options.table.freeze && self.reads_target).then(|| "The query reads the table.".into())
    }
}

/// The query of a load, or null. Raises nothing.
pub fn of(program: &mut Program) -> *mut Query {
    program.query.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut)
}

/// Starts the query with a new snapshot.
///
/// # Safety
/// A plain frame; the query of a prepared load, whose memory context is current, or null.
pub unsafe fn start(query: *mut Query) {
    // SAFETY: this function's contract covers the query, whose text and plan live as long as it; an error frees
    // snapshot and executor with the (sub)transaction.
    unsafe {
        if query.is_null() {
            return;
        }
        c::CommandCounterIncrement();
        c::PushActiveSnapshot(c::GetTransactionSnapshot());
        (*query).is_active = true;
        let running = c::CreateQueryDesc(
            (*query).plan.as_ptr(),
            (*query).text.as_ptr(),
            c::GetActiveSnapshot(),
            std::ptr::null_mut(),
            pg_sys::None_Receiver,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            0,
        );
        c::ExecutorStart(running, pg_sys::EXEC_FLAG_SKIP_TRIGGERS.cast_signed());
        (*query).running = running;
    }
}

/// Fetches the target's attributes of the next row. False at the end. The values live until the next row.
///
/// # Safety
/// A plain frame; a running query, whose snapshot is active, and arrays of the target's descriptor.
pub unsafe fn next(query: *mut Query, arrays: RowArrays) -> bool {
    // SAFETY: this function's contract covers all arguments; nothing here has a destructor. Rows have an attribute for
    // each of the target's.
    unsafe {
        let running = (*query).running;
        if running.is_null() {
            return false;
        }
        let (top, estate) = ((*running).planstate, (*running).estate);
        let caller = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = (*estate).es_query_cxt;
        // As ExecutePlan (execMain.c).
        let per_tuple = (*estate).es_per_tuple_exprcontext;
        if !per_tuple.is_null() {
            c::MemoryContextReset((*per_tuple).ecxt_per_tuple_memory);
        }
        let slot = match (*top).ExecProcNode {
            Some(process) => process(top),
            None => std::ptr::null_mut(),
        };
        let more = !slot.is_null() && u32::from((*slot).tts_flags) & pg_sys::TTS_FLAG_EMPTY == 0;
        if more {
            let natts = (*(*slot).tts_tupleDescriptor).natts;
            if i32::from((*slot).tts_nvalid) < natts {
                c::slot_getsomeattrs_int(slot, natts);
            }
            let sets = &raw const (*query).sets;
            for i in 0..(*sets).len() {
                let at = *(*sets).as_ptr().add(i);
                *arrays.values().add(at) = *(*slot).tts_values.add(at);
                *arrays.nulls().add(at) = *(*slot).tts_isnull.add(at);
            }
        }
        pg_sys::CurrentMemoryContext = caller;
        more
    }
}

/// Fetches the next row as [`next`], and activates the query's snapshot meanwhile.
///
/// # Safety
/// As [`next`].
pub unsafe fn next_in_snapshot(query: *mut Query, arrays: RowArrays) -> bool {
    // SAFETY: same contract; a running query has its snapshot.
    unsafe {
        if (*query).running.is_null() {
            return false;
        }
        c::PushActiveSnapshot((*(*query).running).snapshot);
        let more = next(query, arrays);
        c::PopActiveSnapshot();
        more
    }
}

/// Ends the query before its last row.
///
/// # Safety
/// A plain frame; a query, or null.
pub unsafe fn finish(query: *mut Query) {
    // SAFETY: this function's contract covers the query.
    unsafe {
        if query.is_null() || (*query).running.is_null() {
            return;
        }
        let running = (*query).running;
        c::ExecutorFinish(running);
        c::ExecutorEnd(running);
        c::FreeQueryDesc(running);
        (*query).running = std::ptr::null_mut();
    }
}

/// Ends the query of a load whose rows are written, and pops its snapshot.
///
/// # Safety
/// A plain frame; a query, or null. If its snapshot is active, it is the innermost one.
pub unsafe fn leave(query: *mut Query) {
    // SAFETY: this function's contract covers the query.
    unsafe {
        finish(query);
        if !query.is_null() && (*query).is_active {
            c::PopActiveSnapshot();
            (*query).is_active = false;
        }
    }
}

/// The error if a rule that makes several statements of an INSERT reads the query again. Guarded.
pub fn not_twice(target: &str) -> Error {
    let message = format!("cannot run a query more than once, as rules of \"{target}\" require");
    Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message)
}
