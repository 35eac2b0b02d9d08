//! Rows of the file joined with other tables: what an INSERT … SELECT with a join makes of them.
//!
//! ```text
//!   row loop ─► top of the plan ─► joins ─► ... ─► leaf ─► the load's own records: chunks, decoders, conditions of the scan
//!                                    └─► inner sides, as the executor always runs them
//! ```
//!
//! The plan is core's. Only its scan of the file is another node, the [leaf](self::leaf), which takes the place of the foreign
//! scan and asks the load for its next record. The plan pulls, so it is run once in each process, whatever
//! the number of chunks: a hash table is built once, and one that is spilled to disk is right, since the end of the
//! process's last chunk is the end of the scan. In the leader the leaf is also where workers are started, when the first
//! record is done with and the plan asks for the second.
//!
//! The leader's plan is part of the statement's, so EXPLAIN shows it. A worker gets it as text, as one of a parallel query does
//! (ExecSerializePlan, execParallel.c), with the parameters of the statement, and runs it with the statement's snapshot.
//!
//! The tricky point is what a record's values live in. A row of the file may have many rows in the join, and what is done
//! to one of these must not take the values of the next. So fields are converted in the memory of the leaf, which is reset when
//! the next record is wanted, and all else in that of the row, as in any load.

pub mod figures;
pub mod leaf;

use std::ffi::{CStr, CString, c_char};

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use self::leaf::{Columns, Fetch, Leaf};
use super::projection::Projection;
use crate::error::{Error, Result};
use crate::load::source::Mapping;
use crate::pg::column::Column;
use crate::pg::compat;
use crate::pg::row::RowArrays;
use crate::pg::soft::OnError;
use crate::pg::unguarded::{self, Opaque};

/// A plan that has been made ready to run.
#[derive(Debug, Clone, Copy)]
pub struct Joined {
    top: *mut pg_sys::PlanState,
    leaf: *mut Leaf,
    /// May any process run it?
    pub is_safe: bool,
}

/// As a worker gets it.
#[derive(Debug, Clone)]
pub struct Text {
    /// A PlannedStmt.
    pub statement: CString,
    /// The parameters of the statement.
    pub parameters: Vec<u8>,
    /// The attributes of the target that get something of it.
    pub sets: Vec<i16>,
    /// What is measured of its nodes (`InstrumentOption`).
    pub instrument: i32,
    /// How many nodes are measured. A process that prunes in another way may have others.
    pub nodes: usize,
}

/// What a process has of it.
#[derive(Debug)]
pub struct Join {
    joined: Joined,
    /// The attributes of the target that get something of it, from 0. The others are NULL in the plan's rows.
    sets: Vec<usize>,
    /// In a worker, the query that it is; else null.
    query: *mut pg_sys::QueryDesc,
    /// In a worker, how many nodes the leader measures.
    measured: usize,
}

impl Joined {
    /// None if the plan does not read a file. Guarded.
    ///
    /// # Safety
    /// The state of a plan, which outlives what is made of it.
    pub unsafe fn new(top: *mut pg_sys::PlanState, is_safe: bool) -> Option<Joined> {
        // SAFETY: this function's contract covers the state.
        let leaf = unsafe { leaf::below(top) }?;
        Some(Joined { top, leaf, is_safe })
    }

    /// The columns of the foreign table that are looked at.
    fn columns(&self) -> Columns {
        // SAFETY: a state that has begun, of a plan that was made for it.
        unsafe { leaf::columns_of((*self.leaf).plan()) }
    }

    /// What a mapping must know. Guarded.
    pub fn complete(&self, mapping: &mut Mapping) {
        let Columns { by_quals, besides } = self.columns();
        mapping.wanted = Some(by_quals.into_iter().chain(besides).collect());
    }

    /// What becomes of a record on its way to the plan. Guarded.
    pub fn projection(&self, columns: &[Column], on_error: OnError) -> Projection {
        // SAFETY: a state that has begun.
        unsafe {
            let scan = &(*self.leaf).custom.ss;
            Projection::of_scan(scan.ss_ScanTupleSlot, scan.ps.qual, &self.columns().by_quals, columns, on_error)
        }
    }

    /// Where fields are converted.
    pub fn fields(&self) -> *mut pg_sys::ExprContext {
        // SAFETY: as above.
        unsafe { (*self.leaf).custom.ss.ps.ps_ExprContext }
    }

    /// For workers. Guarded.
    pub fn text(&self, sets: Vec<i16>) -> Text {
        // SAFETY: guarded calls on the state of a plan; the parameters are written to as many bytes as they want.
        unsafe {
            let estate = (*self.top).state;
            let statement = compat::statement_for_workers((*self.top).plan, estate);
            let statement = CStr::from_ptr(pg_sys::nodeToString(statement.cast())).to_owned();
            let list = (*estate).es_param_list_info;
            let mut parameters = vec![0u8; pg_sys::EstimateParamListSpace(list)];
            let mut to = parameters.as_mut_ptr().cast::<c_char>();
            pg_sys::SerializeParamList(list, &raw mut to);
            let nodes = if (*estate).es_instrument == 0 { 0 } else { compat::nodes_of(self.top).len() };
            Text { statement, parameters, sets, instrument: (*estate).es_instrument, nodes }
        }
    }
}

impl Text {
    /// In a worker: make the plan ready to run. Guarded.
    pub fn attach(&self) -> Result<Join> {
        // SAFETY: guarded calls with what the leader wrote; the worker has the snapshot of the statement.
        unsafe {
            let statement = pg_sys::stringToNode(self.statement.as_ptr()).cast::<pg_sys::PlannedStmt>();
            let mut parameters = self.parameters.clone();
            let mut from = parameters.as_mut_ptr().cast::<c_char>();
            let parameters = pg_sys::RestoreParamList(&raw mut from);
            let query = pg_sys::CreateQueryDesc(
                statement,
                c"".as_ptr(),
                pg_sys::GetActiveSnapshot(),
                std::ptr::null_mut(),
                pg_sys::None_Receiver,
                parameters,
                std::ptr::null_mut(),
                self.instrument,
            );
            pg_sys::ExecutorStart(query, pg_sys::EXEC_FLAG_SKIP_TRIGGERS.cast_signed());
            let joined = Joined::new((*query).planstate, true);
            let no_file = || Error::new(Code::ERRCODE_INTERNAL_ERROR, "the plan of the load reads no file");
            Ok(Join { joined: joined.ok_or_else(no_file)?, sets: places(&self.sets), query, measured: self.nodes })
        }
    }
}

fn places(attributes: &[i16]) -> Vec<usize> {
    attributes.iter().filter_map(|attnum| usize::try_from(attnum - 1).ok()).collect()
}

impl Join {
    pub fn new(joined: Joined, sets: &[i16]) -> Join {
        Join { joined, sets: places(sets), query: std::ptr::null_mut(), measured: 0 }
    }

    pub fn joined(&self) -> &Joined {
        &self.joined
    }

    /// The records are this process's, which stays where it is; `fetch` asks it for the next one.
    ///
    /// # Safety
    /// The process that this belongs to, and a function for it.
    pub unsafe fn belong(&self, process: Opaque, fetch: Fetch) {
        // SAFETY: a state that has begun.
        unsafe { ((*self.joined.leaf).process, (*self.joined.leaf).fetch) = (process, Some(fetch)) }
    }

    /// All records have been read; more rows may come of them.
    pub fn has_read_all(&self) -> bool {
        // SAFETY: a state that has begun.
        unsafe { (*self.joined.leaf).is_done }
    }

    /// In a worker: the plan is done with. Guarded.
    pub fn end(&self) {
        if !self.query.is_null() {
            // SAFETY: guarded calls on a query that was started.
            unsafe {
                pg_sys::ExecutorFinish(self.query);
                pg_sys::ExecutorEnd(self.query);
                pg_sys::FreeQueryDesc(self.query);
            }
        }
    }
}

/// Make the target's attributes of the plan's next row, but for defaults that are expressions. False if there is none.
///
/// # Safety
/// A plain frame; a join that belongs to a process, and the arrays of the process's slot.
pub unsafe fn next(join: *const Join, arrays: RowArrays) -> bool {
    // SAFETY: this function's contract covers all arguments; nothing here has a destructor. The plan's rows have an attribute for each of
    // the target's.
    unsafe {
        let top = (*join).joined.top;
        let caller = pg_sys::CurrentMemoryContext;
        // Where the executor makes what lives as long as the query: the nodes' hash tables.
        pg_sys::CurrentMemoryContext = (*(*top).state).es_query_cxt;
        // ExecProcNode (executor.h) of a node without parameters.
        let slot = match (*top).ExecProcNode {
            Some(process) => process(top),
            None => std::ptr::null_mut(),
        };
        pg_sys::CurrentMemoryContext = caller;
        if slot.is_null() || u32::from((*slot).tts_flags) & pg_sys::TTS_FLAG_EMPTY != 0 {
            return false;
        }
        let natts = (*(*slot).tts_tupleDescriptor).natts;
        if i32::from((*slot).tts_nvalid) < natts {
            unguarded::slot_getsomeattrs_int(slot, natts);
        }
        let sets = &raw const (*join).sets;
        for i in 0..(*sets).len() {
            let at = *(*sets).as_ptr().add(i);
            *arrays.values.add(at) = *(*slot).tts_values.add(at);
            *arrays.nulls.add(at) = *(*slot).tts_isnull.add(at);
        }
        true
    }
}
