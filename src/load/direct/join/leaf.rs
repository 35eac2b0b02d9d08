//! The node that takes the place of a foreign scan below a join: its rows are the records that the load has for the process.
//!
//! It is a scan of the foreign table to the executor, with the target list and the conditions of the scan that the planner
//! made. The conditions are evaluated before all columns are converted, as they are by the foreign scan.

use std::ffi::CStr;
use std::ptr::null_mut;

use pgrx::{PgList, PgSqlErrorCode as Code, pg_guard, pg_sys};

use crate::error::Error;
use crate::pg::custom_scan::{Methods, NO_CALLBACKS};
use crate::pg::unguarded::{self, Opaque};

const NAME: &CStr = c"Foreign Rows";

static SCAN: Methods<pg_sys::CustomScanMethods> =
    Methods(pg_sys::CustomScanMethods { CustomName: NAME.as_ptr(), CreateCustomScanState: Some(create_state) });

static EXECUTION: Methods<pg_sys::CustomExecMethods> = Methods(pg_sys::CustomExecMethods {
    CustomName: NAME.as_ptr(),
    BeginCustomScan: Some(begin),
    ExecCustomScan: Some(execute),
    EndCustomScan: Some(end),
    ReScanCustomScan: Some(rescan),
    ..NO_CALLBACKS
});

/// Let plans be read back. Called once, when the library is loaded. Guarded.
pub fn register() {
    // SAFETY: a guarded call with a table that lives as long as the process.
    unsafe { pg_sys::RegisterCustomScanMethods(&raw const SCAN.0) }
}

/// Columns of the foreign table by number: those that the conditions look at, and those that are wanted besides.
#[derive(Debug, Clone)]
pub struct Columns {
    pub by_quals: Vec<i16>,
    pub besides: Vec<i16>,
}

/// The node in place of a foreign scan. Guarded; allocates in the current memory context.
///
/// # Safety
/// A plan that is ready to be run. What is made shares its expressions.
pub unsafe fn in_place_of(scan: *const pg_sys::ForeignScan, columns: &Columns) -> *mut pg_sys::Plan {
    // SAFETY: this function's contract covers the plan; zeroed memory is what makeNode starts from, and lists are made here.
    unsafe {
        let leaf = pg_sys::palloc0(size_of::<pg_sys::CustomScan>()).cast::<pg_sys::CustomScan>();
        (*leaf).scan = (*scan).scan;
        (*leaf).scan.plan.type_ = pg_sys::NodeTag::T_CustomScan;
        (*leaf).flags = pg_sys::CUSTOMPATH_SUPPORT_PROJECTION;
        let list = |numbers: &[i16]| {
            numbers.iter().fold(null_mut(), |list, &number| pg_sys::lappend_int(list, i32::from(number)))
        };
        let mut private = PgList::<pg_sys::List>::new();
        private.push(list(&columns.by_quals));
        private.push(list(&columns.besides));
        // EXPLAIN asks which relations there are.
        (*leaf).custom_relids = pg_sys::bms_make_singleton((*scan).scan.scanrelid.cast_signed());
        (*leaf).custom_private = private.into_pg();
        (*leaf).methods = &raw const SCAN.0;
        leaf.cast()
    }
}

/// # Safety
/// A plan made by [`in_place_of`], or a copy.
pub unsafe fn columns_of(leaf: *const pg_sys::CustomScan) -> Columns {
    // SAFETY: this function's contract covers the plan.
    let read = |index: usize| unsafe {
        let private = PgList::<pg_sys::List>::from_pg((*leaf).custom_private);
        let list = private.get_ptr(index).unwrap_or(null_mut());
        let len = list.as_ref().map_or(0, |list| usize::try_from(list.length).unwrap_or(0));
        (0..len).filter_map(|i| i16::try_from((*(*list).elements.add(i)).int_value).ok()).collect()
    };
    Columns { by_quals: read(0), besides: read(1) }
}

/// Makes a process's next record that passes a row in the slot of the scan, and adds how many did not pass. False if there is none.
///
/// To call it is safe from a plain frame, with the process that a [`Leaf`] has beside it, and a number that nobody else uses.
pub type Fetch = unsafe fn(Opaque, *mut u64) -> bool;

/// The state of the node.
#[repr(C)]
#[derive(Debug)]
pub struct Leaf {
    pub custom: pg_sys::CustomScanState,
    /// Whose records they are, and how the next one is had of it; none before that is known.
    pub process: Opaque,
    pub fetch: Option<Fetch>,
    /// There is no further record.
    pub is_done: bool,
}

impl Leaf {
    pub fn plan(&self) -> *const pg_sys::CustomScan {
        self.custom.ss.ps.plan.cast()
    }
}

/// The one that rows come from in a plan. Guarded.
///
/// # Safety
/// The state of a plan.
pub unsafe fn below(top: *mut pg_sys::PlanState) -> Option<*mut Leaf> {
    let mut state = top;
    // SAFETY: this function's contract covers the state; tags say what nodes are.
    unsafe {
        while let Some(node) = state.as_ref() {
            if node.type_ == pg_sys::NodeTag::T_CustomScanState
                && std::ptr::eq((*state.cast::<pg_sys::CustomScanState>()).methods, &raw const EXECUTION.0)
            {
                return Some(state.cast());
            }
            state = node.lefttree;
        }
    }
    None
}

/// # Safety
/// Called by the executor.
#[pg_guard]
unsafe extern "C-unwind" fn create_state(_plan: *mut pg_sys::CustomScan) -> *mut pg_sys::Node {
    // SAFETY: a guarded allocation of this size, zeroed: a valid state but for what is set here.
    unsafe {
        let leaf = pg_sys::palloc0(size_of::<Leaf>()).cast::<Leaf>();
        (*leaf).custom.ss.ps.type_ = pg_sys::NodeTag::T_CustomScanState;
        (*leaf).custom.methods = &raw const EXECUTION.0;
        leaf.cast()
    }
}

/// Whoever runs the plan says whose records they are.
unsafe extern "C-unwind" fn begin(_node: *mut pg_sys::CustomScanState, _estate: *mut pg_sys::EState, _flags: i32) {}

/// # Safety
/// Called by the executor.
unsafe extern "C-unwind" fn execute(node: *mut pg_sys::CustomScanState) -> *mut pg_sys::TupleTableSlot {
    // A plain frame: nothing here has a destructor.
    // SAFETY: the executor's own structure. The conditions are not ExecScan's business.
    unsafe {
        (*node).ss.ps.qual = null_mut();
        unguarded::ExecScan(&raw mut (*node).ss, Some(next), Some(recheck))
    }
}

/// The next row. ExecScan has reset the memory of the one before.
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
            // It holds a record that did not pass.
            unguarded::clear_virtual(slot);
            return slot;
        }
        unguarded::store_virtual(slot);
        slot
    }
}

/// There is nothing that could have changed.
unsafe extern "C-unwind" fn recheck(_node: *mut pg_sys::ScanState, _slot: *mut pg_sys::TupleTableSlot) -> bool {
    true
}

/// Records come once.
///
/// # Safety
/// Called by the executor.
#[pg_guard]
unsafe extern "C-unwind" fn rescan(_node: *mut pg_sys::CustomScanState) {
    Error::new(Code::ERRCODE_INTERNAL_ERROR, "the rows of a load cannot be read twice").raise();
}

/// There is nothing to be released.
unsafe extern "C-unwind" fn end(_node: *mut pg_sys::CustomScanState) {}
