//! The rows of a query, as a load's.
//!
//! ```text
//!   text ─► parser ─► analysis ─► columns for the target's ─► rewriter ─► planner ─► executor ─┬─► direct: row_loop
//!                                 (what INSERT makes of it)                                    └─► buffered: feed
//! ```
//!
//! It is what `INSERT INTO t (…) query` would run, without the INSERT: one SELECT, VALUES, TABLE or WITH, without parameters, whose
//! columns are coerced as an assignment does, in the words of transformInsertRow and transformAssignedExpr (analyze.c,
//! parse_target.c). Its plan makes rows that have an attribute for each of the target's, and a writer asks it for one after the
//! other, in its own process: nothing is kept of them, and who has enough does not ask any more. What is done to a row then is
//! what is done to a row of a file; its number stands where a line's would.
//!
//! **What it sees** is the snapshot that it is started with, before statement triggers are fired and before the first row is
//! written. That snapshot is the active one as long as rows are made, as in an INSERT, so functions that are not volatile see
//! the same. Volatile functions may look for the rows before: then the writer is the buffered one ([`volatile`]).
//!
//! Plain frames, since constants are folded and user code is run, and the places of errors would not pass a guard. These are
//! places in the option's text.

mod analysis;
mod function;
mod over;

use std::ffi::CString;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

pub use self::analysis::{analyze, check};
use super::Load;
use super::options::LoadOptions;
use super::volatile::UserCall;
use crate::error::Error;
use crate::pg::row::RowArrays;
use crate::pg::unguarded as c;

/// A query that has been planned.
#[derive(Debug)]
pub struct Query {
    text: CString,
    plan: *mut pg_sys::PlannedStmt,
    /// Once it has begun, and until it is done; else null.
    running: *mut pg_sys::QueryDesc,
    /// Its snapshot is an active one.
    is_active: bool,
    /// The target's attributes that it has columns for, from 0.
    sets: Vec<usize>,
    call: Option<UserCall>,
    /// It reads the table that is loaded.
    reads_target: bool,
}

impl Query {
    /// Why its rows cannot be put into pages, if they cannot.
    pub fn obstacle(&self, options: &LoadOptions) -> Option<String> {
        if let Some(call) = self.call {
            return Some(format!("The query {call}."));
        }
        // Frozen rows are there for all, at once.
        (options.freeze && self.reads_target).then(|| "The query reads the table.".into())
    }
}

/// The query of a load; null if there is none. Raises nothing.
///
/// # Safety
/// A valid load.
pub unsafe fn of(load: *mut Load) -> *mut Query {
    // SAFETY: this function's contract covers the argument.
    match unsafe { &mut (*load).query } {
        Some(query) => query,
        None => std::ptr::null_mut(),
    }
}

/// Begin to run it, as of now.
///
/// # Safety
/// A plain frame; a load that is prepared, whose memory context is current.
pub unsafe fn start(load: *mut Load) {
    // SAFETY: this function's contract covers the load, with which text and plan live; an error frees snapshot and executor with the
    // (sub)transaction.
    unsafe {
        let query = of(load);
        if query.is_null() {
            return;
        }
        c::CommandCounterIncrement();
        c::PushActiveSnapshot(c::GetTransactionSnapshot());
        (*query).is_active = true;
        let running = c::CreateQueryDesc(
            (*query).plan,
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

/// Make the target's attributes of the next row. False if there is none. The row's values live until the next one.
///
/// # Safety
/// A plain frame; a query that runs, in its snapshot, and arrays of the target's descriptor.
pub unsafe fn next(query: *mut Query, arrays: RowArrays) -> bool {
    // SAFETY: this function's contract covers all arguments; nothing here has a destructor. Rows have an attribute for each of the target's.
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
                *arrays.values.add(at) = *(*slot).tts_values.add(at);
                *arrays.nulls.add(at) = *(*slot).tts_isnull.add(at);
            }
        }
        pg_sys::CurrentMemoryContext = caller;
        more
    }
}

/// The same, outside of its snapshot.
///
/// # Safety
/// As [`next`].
pub unsafe fn next_in_snapshot(query: *mut Query, arrays: RowArrays) -> bool {
    // SAFETY: passed on; a query that runs has its snapshot.
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

/// No more rows are wanted: let go of what it has open.
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

/// The load is written.
///
/// # Safety
/// A plain frame; a valid load. The query's snapshot is the innermost active one, if it is active.
pub unsafe fn leave(load: *mut Load) {
    // SAFETY: this function's contract covers the load.
    unsafe {
        let query = of(load);
        finish(query);
        if !query.is_null() && (*query).is_active {
            c::PopActiveSnapshot();
            (*query).is_active = false;
        }
    }
}

/// What a rule that makes several statements of an INSERT asks for. Guarded.
pub fn not_twice(target: &str) -> Error {
    let message = format!("cannot run a query more than once, as rules of \"{target}\" require");
    Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message)
}
