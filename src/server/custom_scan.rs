//! Callback tables of pg_bulk's custom scan nodes.
//!
//! The server keeps pointers to the tables, so they are statics. They contain pointers, so they must be declared Sync.
//! Callbacks that a node does not support are None.

use pgrx::pg_sys;

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
