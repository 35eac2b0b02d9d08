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

use std::cell::Cell;
use std::ffi::CString;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

pub use self::analysis::{analyze, check};
use super::options::LoadOptions;
use crate::error::Error;
use crate::program::volatile::UserCall;
use crate::rows::row::RowArrays;
use crate::server::node::Node;
use crate::server::slot::Slot;
use crate::server::unguarded as c;

/// A planned query.
#[derive(Debug)]
pub struct Query {
    text: CString,
    plan: Node<'static, pg_sys::PlannedStmt>,
    /// The running query; null before its start and after its end.
    running: Cell<*mut pg_sys::QueryDesc>,
    /// Its snapshot is on the active stack.
    is_active: Cell<bool>,
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

    /// Starts the query with a new snapshot.
    ///
    /// # Safety
    /// A plain frame; the load is prepared, and its memory context is current.
    pub unsafe fn start(&self) {
        // SAFETY: a plain frame; text and plan live as long as the query. An error frees snapshot and executor with the
        // (sub)transaction.
        unsafe {
            let null = std::ptr::null_mut();
            c::CommandCounterIncrement();
            c::PushActiveSnapshot(c::GetTransactionSnapshot());
            self.is_active.set(true);
            let (plan, text, receiver) = (self.plan.as_ptr(), self.text.as_ptr(), pg_sys::None_Receiver);
            let running =
                c::CreateQueryDesc(plan, text, c::GetActiveSnapshot(), null, receiver, null.cast(), null.cast(), 0);
            c::ExecutorStart(running, pg_sys::EXEC_FLAG_SKIP_TRIGGERS.cast_signed());
            self.running.set(running);
        }
    }

    /// Fetches the target's attributes of the next row. False at the end. The values live until the next row.
    ///
    /// # Safety
    /// A plain frame; the query's snapshot is active if the query runs, and the arrays are those of the target's descriptor.
    pub unsafe fn next(&self, arrays: RowArrays) -> bool {
        let running = self.running.get();
        if running.is_null() {
            return false;
        }
        // SAFETY: a plain frame and a running query; nothing here has a destructor. Rows have an attribute for each of the
        // target's.
        unsafe {
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
                arrays.take(&self.sets, Slot::from_raw(slot).arrays());
            }
            pg_sys::CurrentMemoryContext = caller;
            more
        }
    }

    /// Fetches the next row as [`Query::next`], and activates the query's snapshot meanwhile.
    ///
    /// # Safety
    /// A plain frame, and arrays of the target's descriptor.
    pub unsafe fn next_in_snapshot(&self, arrays: RowArrays) -> bool {
        let running = self.running.get();
        if running.is_null() {
            return false;
        }
        // SAFETY: a plain frame; a running query has its snapshot.
        unsafe {
            c::PushActiveSnapshot((*running).snapshot);
            let more = self.next(arrays);
            c::PopActiveSnapshot();
            more
        }
    }

    /// Ends the query, if it runs, before its last row or after it.
    ///
    /// # Safety
    /// A plain frame.
    pub unsafe fn finish(&self) {
        let running = self.running.replace(std::ptr::null_mut());
        if running.is_null() {
            return;
        }
        // SAFETY: a plain frame and a running query, which nothing uses any more.
        unsafe {
            c::ExecutorFinish(running);
            c::ExecutorEnd(running);
            c::FreeQueryDesc(running);
        }
    }

    /// Ends the query of a load whose rows are written, and pops its snapshot.
    ///
    /// # Safety
    /// A plain frame. If the query's snapshot is active, it is the innermost one.
    pub unsafe fn leave(&self) {
        // SAFETY: a plain frame, and an active snapshot.
        unsafe {
            self.finish();
            if self.is_active.replace(false) {
                c::PopActiveSnapshot();
            }
        }
    }
}

/// The error if a rule that makes several statements of an INSERT reads the query again. Guarded.
pub fn not_twice(target: &str) -> Error {
    let message = format!("cannot run a query more than once, as rules of \"{target}\" require");
    Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message)
}
