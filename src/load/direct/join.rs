//! Rows of the file joined with other tables, for an INSERT … SELECT with a join.
//!
//! ```text
//!   row loop ─► top of the plan ─► joins ─► ... ─► leaf ─► the load's own records: chunks, decoders, scan conditions
//!                                    └─► inner sides, which the executor runs as usual
//! ```
//!
//! The plan is core's. Only its foreign scan is replaced by another node, the [leaf](self::leaf), which asks the load
//! for its next record. The plan pulls rows, so each process runs it once, for all of its chunks: a hash table is built
//! once. Batches spilled to disk are complete, since the scan ends with the process's last chunk. In the leader, the
//! leaf also starts the workers, when the plan asks for the second record.
//!
//! The leader's plan is part of the statement's plan, so EXPLAIN shows it. A worker gets the plan as text, as in a
//! parallel query (ExecSerializePlan, execParallel.c), with the statement's parameters, and runs it with the
//! statement's snapshot.
//!
//! The tricky point is the memory of a record's values. One record may have many rows in the join, and resetting the
//! memory of one row must not free the record's values. So fields are converted in the memory of the leaf, which is
//! reset at the next record. All other values are in the memory of the row, as in any load.
//!
//! Instrumentation of a plan that several processes run, for EXPLAIN ANALYZE. The figures of all processes are added
//! for each node, as in a parallel query (ExecParallelReportInstrumentation, ExecParallelRetrieveInstrumentation,
//! execParallel.c).

pub mod leaf;

use std::ffi::{CStr, CString, c_char};

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use self::leaf::{Columns, Fetch, Leaf};
use crate::error::{Error, Result};
use crate::program::mapping::Mapping;
use crate::program::projection::Projection;
use crate::rows::column::Column;
use crate::rows::row::RowArrays;
use crate::rows::soft::OnError;
use crate::server::compat;
use crate::server::expression::Expression;
use crate::server::sent::sent;
use crate::server::slot::{ExprContext, Slot};
use crate::server::unguarded::{self, Opaque};

/// A plan that is ready to run.
#[derive(Debug, Clone, Copy)]
pub struct Joined {
    top: *mut pg_sys::PlanState,
    leaf: *mut Leaf,
    /// Is the plan parallel safe?
    pub is_safe: bool,
}

sent! {
    /// A plan in the form that workers read.
    #[derive(Debug, Clone)]
    pub struct Text {
        /// A PlannedStmt in nodeToString's format.
        pub statement: CString,
        /// The serialized parameters of the statement.
        pub parameters: Vec<u8>,
        /// The attributes of the target that the plan sets.
        pub sets: Vec<i16>,
        /// The figures to measure for its nodes (`InstrumentOption`).
        pub instrument: i32,
        /// Number of measured nodes. Partition pruning may differ between processes, and so may this number.
        pub nodes: usize,
    }
}

/// A process's own state of the plan.
#[derive(Debug)]
pub struct Join {
    joined: Joined,
    /// The attributes of the target that the plan sets, from 0. The others are NULL in the plan's rows.
    sets: Vec<usize>,
    /// In a worker, the started query; else null.
    query: *mut pg_sys::QueryDesc,
    /// In a worker, the number of nodes that the leader measures.
    pub measured: usize,
}

impl Joined {
    /// Finds the leaf in a plan; None if the plan does not read a file. Guarded.
    ///
    /// # Safety
    /// `top` is the state of a plan, and outlives the result.
    pub unsafe fn new(top: *mut pg_sys::PlanState, is_safe: bool) -> Option<Joined> {
        let mut state = top;
        // SAFETY: a plan state's children are plan states; a node's tag is its type.
        while let Some(node) = unsafe { state.as_ref() } {
            if Leaf::is(node) {
                return Some(Joined { top, leaf: state.cast(), is_safe });
            }
            state = node.lefttree;
        }
        None
    }

    /// The leaf. No reference to it outlives an accessor.
    fn leaf(&self) -> &Leaf {
        // SAFETY: the state has begun, and outlives this value.
        unsafe { &*self.leaf }
    }

    /// Sets the columns of the file that the plan uses. Guarded.
    pub fn complete(&self, mapping: &mut Mapping) {
        let Columns { by_quals, besides } = self.leaf().columns();
        mapping.wanted = Some(by_quals.into_iter().chain(besides).collect());
    }

    /// The projection of records below the plan. Guarded.
    pub fn projection(&self, columns: &[Column], on_error: OnError) -> Projection {
        let (scan, quals) = (self.leaf().scan(), self.leaf().columns().by_quals);
        // SAFETY: the state has begun.
        let (slot, condition) = unsafe { (Slot::from_raw(scan.ss_ScanTupleSlot), Expression::or_null(scan.ps.qual)) };
        Projection::of_scan(slot, condition, &quals, columns, on_error)
    }

    /// The context in which fields are converted.
    pub fn fields(&self) -> ExprContext<'static> {
        // SAFETY: the state has begun.
        unsafe { ExprContext::from_raw(self.leaf().scan().ps.ps_ExprContext) }
    }

    /// The measured nodes; none without instrumentation. Guarded.
    fn nodes(&self) -> Vec<*mut pg_sys::PlanState> {
        // SAFETY: the state has begun; guarded calls.
        unsafe { if (*(*self.top).state).es_instrument == 0 { Vec::new() } else { compat::nodes_of(self.top) } }
    }

    /// The plan in the form that workers read. Guarded.
    pub fn text(&self, sets: Vec<i16>) -> Text {
        // SAFETY: guarded calls on the state of a plan; the parameters are written to memory of their estimated size.
        unsafe {
            let estate = (*self.top).state;
            let statement = compat::statement_for_workers((*self.top).plan, estate);
            let statement = CStr::from_ptr(pg_sys::nodeToString(statement.cast())).to_owned();
            let list = (*estate).es_param_list_info;
            let mut parameters = vec![0u8; pg_sys::EstimateParamListSpace(list)];
            let mut to = parameters.as_mut_ptr().cast::<c_char>();
            pg_sys::SerializeParamList(list, &raw mut to);
            Text { statement, parameters, sets, instrument: (*estate).es_instrument, nodes: self.nodes().len() }
        }
    }
}

impl Text {
    /// In a worker: makes the plan ready to run. Guarded.
    pub fn attach(&self) -> Result<Join> {
        // SAFETY: guarded calls with text that the leader wrote; the worker has the statement's snapshot.
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

    /// Lets the leaf take records from `process`, which must not move, by calls of `fetch`.
    ///
    /// # Safety
    /// The join belongs to the process, and `fetch` is for it.
    pub unsafe fn belong(&self, process: Opaque, fetch: Fetch) {
        // SAFETY: the state has begun.
        unsafe { ((*self.joined.leaf).process, (*self.joined.leaf).fetch) = (process, Some(fetch)) }
    }

    /// Have all records been read? Further rows may come from batches on disk.
    pub fn has_read_all(&self) -> bool {
        self.joined.leaf().is_done
    }

    /// The measured nodes; none without instrumentation. Guarded.
    pub fn nodes(&self) -> Vec<*mut pg_sys::PlanState> {
        self.joined.nodes()
    }

    /// In a worker that is done: adds its figures to its own in shared memory. Guarded.
    pub fn report(&self, figures: &mut [pg_sys::Instrumentation]) {
        let nodes = self.nodes();
        // With another number of nodes, the nodes cannot be matched with the leader's.
        if nodes.len() != self.measured {
            return;
        }
        for (node, figure) in nodes.into_iter().zip(figures) {
            // SAFETY: guarded calls; the state has begun.
            unsafe {
                let own = (*node).instrument;
                if !own.is_null() {
                    pg_sys::InstrEndLoop(own);
                    pg_sys::InstrAggNode(figure, own);
                }
            }
        }
    }

    /// In the leader: adds the figures of this many workers. Guarded.
    pub fn add_figures(&self, figures: &mut [pg_sys::Instrumentation], workers: usize) {
        let nodes = self.nodes();
        for figures in figures.chunks_exact_mut(nodes.len().max(1)).take(workers) {
            for (&node, figure) in nodes.iter().zip(figures) {
                // SAFETY: guarded calls; the state has begun.
                unsafe {
                    if !(*node).instrument.is_null() {
                        pg_sys::InstrAggNode((*node).instrument, figure);
                    }
                }
            }
        }
    }

    /// In a worker: ends the plan. Guarded.
    pub fn end(self) {
        if !self.query.is_null() {
            // SAFETY: guarded calls on a started query.
            unsafe {
                pg_sys::ExecutorFinish(self.query);
                pg_sys::ExecutorEnd(self.query);
                pg_sys::FreeQueryDesc(self.query);
            }
        }
    }
}

/// Makes the target's attributes of the plan's next row, without defaults that are expressions. False at the end.
///
/// # Safety
/// A plain frame; the join belongs to a process, and the arrays are of the process's slot.
pub unsafe fn next(join: *const Join, arrays: RowArrays) -> bool {
    // SAFETY: a plain frame, and a join of a process; nothing here has a destructor. The plan's rows have all of
    // the target's attributes.
    unsafe {
        let top = (*join).joined.top;
        let caller = pg_sys::CurrentMemoryContext;
        // Nodes allocate memory of the query, such as hash tables, in the current context.
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
        arrays.take(&(*join).sets, Slot::from_raw(slot).arrays());
        true
    }
}
