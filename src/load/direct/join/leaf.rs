//! The node that replaces a foreign scan below a join: its rows are the process's records of the load.
//!
//! For the executor it is a scan of the foreign table, with the planner's target list and conditions. As in the foreign
//! scan, the conditions are evaluated before all columns are converted.

use std::ffi::CStr;
use std::ptr::null_mut;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use crate::error::{Error, Result};
use crate::server::callback::{Unused, callback};
use crate::server::custom_scan::{self, Methods, NO_CALLBACKS};
use crate::server::node::Node;
use crate::server::node::make::node;
use crate::server::unguarded::{self, Opaque};

const NAME: &CStr = c"Foreign Rows";

static SCAN: Methods<pg_sys::CustomScanMethods> = Methods(pg_sys::CustomScanMethods {
    CustomName: NAME.as_ptr(),
    CreateCustomScanState: Some(callback!(create_state, plan: Unused<pg_sys::CustomScan> => *mut pg_sys::Node)),
});

static EXECUTION: Methods<pg_sys::CustomExecMethods> = Methods(pg_sys::CustomExecMethods {
    CustomName: NAME.as_ptr(),
    BeginCustomScan: Some(begin),
    ExecCustomScan: Some(execute),
    EndCustomScan: Some(end),
    ReScanCustomScan: Some(callback!(rescan, leaf: Unused<pg_sys::CustomScanState>)),
    ..NO_CALLBACKS
});

/// Registers the node, so that workers can read plans with it. Called once, when the library is loaded. Guarded.
pub fn register() {
    custom_scan::register(&SCAN);
}

/// Columns of the foreign table by number: those in the conditions, and the other ones that the plan uses.
#[derive(Debug, Clone)]
pub struct Columns {
    pub by_quals: Vec<i16>,
    pub besides: Vec<i16>,
}

/// Makes the node that replaces a foreign scan. Guarded; allocates in the current memory context.
/// The new node shares the expressions of the scan, which is complete.
pub fn in_place_of(scan: &pg_sys::ForeignScan, columns: &Columns) -> *mut pg_sys::Plan {
    let (flags, methods) = (pg_sys::CUSTOMPATH_SUPPORT_PROJECTION, &raw const SCAN.0);
    let mut leaf = pg_sys::CustomScan { scan: scan.scan, flags, methods, ..Default::default() };
    leaf.scan.plan.type_ = pg_sys::NodeTag::T_CustomScan;
    // SAFETY: guarded calls on lists that are made here; the fields of a plan.
    unsafe {
        for numbers in [&columns.by_quals, &columns.besides] {
            let add = |list, &number: &i16| pg_sys::lappend_int(list, i32::from(number));
            leaf.custom_private = pg_sys::lappend(leaf.custom_private, numbers.iter().fold(null_mut(), add).cast());
        }
        // EXPLAIN reads this set.
        leaf.custom_relids = pg_sys::bms_make_singleton(scan.scan.scanrelid.cast_signed());
        node(leaf).as_ptr().cast()
    }
}

/// Stores the process's next record that passes the conditions in the slot of the scan.
///
/// Adds the number of records that did not pass to the number at the pointer. False at the end.
///
/// Calling it is safe from a plain frame, with the process of a [`Leaf`], and a number without other references.
pub type Fetch = unsafe fn(Opaque, *mut u64) -> bool;

/// The state of the node. Only the executor makes one.
#[repr(C)]
#[derive(Debug)]
pub struct Leaf {
    custom: pg_sys::CustomScanState,
    /// The process whose records it returns, and the function that gets the next one; unset until the process is known.
    pub(super) process: Opaque,
    pub(super) fetch: Option<Fetch>,
    /// There is no further record.
    pub(super) is_done: bool,
}

impl Leaf {
    /// Is the state of a plan's node a leaf?
    pub(super) fn is(node: &pg_sys::PlanState) -> bool {
        let state = std::ptr::from_ref(node).cast::<pg_sys::CustomScanState>();
        // SAFETY: a node's tag is its type.
        node.type_ == pg_sys::NodeTag::T_CustomScanState
            && unsafe { std::ptr::eq((*state).methods, &raw const EXECUTION.0) }
    }

    pub(super) fn scan(&self) -> &pg_sys::ScanState {
        &self.custom.ss
    }

    /// The columns of the foreign table that the plan uses.
    pub(super) fn columns(&self) -> Columns {
        // SAFETY: the plan of this state.
        let plan = unsafe { Node::<pg_sys::CustomScan>::from_raw(self.custom.ss.ps.plan.cast()) };
        // Lists of integers, as `in_place_of` has made them. An empty one is null.
        let read = |index: usize| {
            let numbers = plan.and_then(|plan| plan.private().get(index));
            numbers.into_iter().flat_map(Node::ints).filter_map(|number| i16::try_from(number).ok()).collect()
        };
        Columns { by_quals: read(0), besides: read(1) }
    }
}

/// Called by the executor.
fn create_state(_plan: Unused<pg_sys::CustomScan>) -> Result<*mut pg_sys::Node> {
    let leaf = Leaf { custom: custom_scan::state(&EXECUTION), process: null_mut(), fetch: None, is_done: false };
    // SAFETY: the fields of a state.
    Ok(unsafe { node(leaf) }.as_ptr().cast())
}

/// Does nothing: [`Join::belong`](super::Join::belong) sets the process.
extern "C-unwind" fn begin(_node: *mut pg_sys::CustomScanState, _estate: *mut pg_sys::EState, _flags: i32) {}

/// # Safety
/// Called by the executor.
unsafe extern "C-unwind" fn execute(node: *mut pg_sys::CustomScanState) -> *mut pg_sys::TupleTableSlot {
    // A plain frame: nothing here has a destructor.
    // SAFETY: the executor's own structure. ExecScan must not evaluate the conditions a second time.
    unsafe {
        (*node).ss.ps.qual = null_mut();
        unguarded::ExecScan(&raw mut (*node).ss, Some(next), Some(recheck))
    }
}

/// Returns the next row. ExecScan has reset the memory of the row before.
///
/// # Safety
/// Called by ExecScan, from a plain frame.
unsafe extern "C-unwind" fn next(node: *mut pg_sys::ScanState) -> *mut pg_sys::TupleTableSlot {
    // A plain frame: nothing here has a destructor.
    // SAFETY: this function's contract covers the scan, whose slot the process fills.
    unsafe {
        let slot = (*node).ss_ScanTupleSlot;
        unguarded::clear_virtual(slot);
        let leaf = node.cast::<Leaf>();
        let Some(fetch) = (*leaf).fetch.filter(|_| !(*leaf).is_done) else { return slot };
        let caller = pg_sys::CurrentMemoryContext;
        let mut filtered = 0;
        let more = fetch((*leaf).process, &raw mut filtered);
        pg_sys::CurrentMemoryContext = caller;
        if let Some(instrument) = (*node).ps.instrument.as_mut() {
            instrument.nfiltered1 += filtered as f64;
        }
        if !more {
            (*leaf).is_done = true;
            // The slot contains a record that did not pass.
            unguarded::clear_virtual(slot);
            return slot;
        }
        unguarded::store_virtual(slot);
        slot
    }
}

/// Returns true: a record of a file cannot have changed.
extern "C-unwind" fn recheck(_node: *mut pg_sys::ScanState, _slot: *mut pg_sys::TupleTableSlot) -> bool {
    true
}

/// Raises an error, because records can be read only once.
fn rescan(_leaf: Unused<pg_sys::CustomScanState>) -> Result<()> {
    Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, "the rows of a load cannot be read twice"))
}

/// Does nothing: there is nothing to be released.
extern "C-unwind" fn end(_node: *mut pg_sys::CustomScanState) {}
