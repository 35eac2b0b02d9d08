//! Callback tables of pg_bulk's custom scan nodes.
//!
//! The server keeps pointers to the tables, so they are statics. They contain pointers, so they must be declared Sync.
//! Callbacks that a node does not support are None.

use pgrx::pg_sys::{self, NodeTag};

use super::node::{Node, NodeList};

/// A table of callbacks.
pub struct Methods<T>(pub T);

// SAFETY: the tables and the strings in them are constants.
unsafe impl<T> Sync for Methods<T> {}

/// A table without callbacks. Each node sets its name and the callbacks to begin, execute, end and rescan.
pub const NO_CALLBACKS: pg_sys::CustomExecMethods = pg_sys::CustomExecMethods {
    CustomName: std::ptr::null(),
    BeginCustomScan: None,
    ExecCustomScan: None,
    EndCustomScan: None,
    ReScanCustomScan: None,
    MarkPosCustomScan: None,
    RestrPosCustomScan: None,
    EstimateDSMCustomScan: None,
    InitializeDSMCustomScan: None,
    ReInitializeDSMCustomScan: None,
    InitializeWorkerCustomScan: None,
    ShutdownCustomScan: None,
    ExplainCustomScan: None,
};

/// Makes a node known by its name, so that serialized plans can be read. Called once, when the library is loaded. Guarded.
pub fn register(methods: &'static Methods<pg_sys::CustomScanMethods>) {
    // SAFETY: a guarded call with a table that lives as long as the process.
    unsafe { pg_sys::RegisterCustomScanMethods(&raw const methods.0) }
}

/// The fields of a path that this table of callbacks plans.
pub fn path(
    methods: &'static Methods<pg_sys::CustomPathMethods>,
    rel: Node<'_, pg_sys::RelOptInfo>,
) -> pg_sys::CustomPath {
    let mut path = pg_sys::CustomPath { methods: &raw const methods.0, ..Default::default() };
    (path.path.type_, path.path.pathtype) = (NodeTag::T_CustomPath, NodeTag::T_CustomScan);
    path.path.parent = rel.as_ptr();
    path
}

/// The fields of a plan with these columns and conditions.
pub fn plan(
    methods: &'static Methods<pg_sys::CustomScanMethods>,
    targets: NodeList<'_, pg_sys::TargetEntry>,
    quals: NodeList<'_>,
) -> pg_sys::CustomScan {
    let mut scan = pg_sys::CustomScan { methods: &raw const methods.0, ..Default::default() };
    scan.scan.plan.type_ = NodeTag::T_CustomScan;
    (scan.scan.plan.targetlist, scan.scan.plan.qual) = (targets.as_ptr(), quals.as_ptr());
    scan
}

/// The fields of a node's state.
pub fn state(methods: &'static Methods<pg_sys::CustomExecMethods>) -> pg_sys::CustomScanState {
    let mut state = pg_sys::CustomScanState { methods: &raw const methods.0, ..Default::default() };
    state.ss.ps.type_ = NodeTag::T_CustomScanState;
    state
}
