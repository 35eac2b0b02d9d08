//! Tables of callbacks of nodes that are ours.
//!
//! The server keeps pointers to them, so they are statics; they hold pointers themselves, so they need to be told that any thread
//! may see them. What a node does not do is none in its table.

use pgrx::pg_sys;

/// A table of callbacks.
pub struct Methods<T>(pub T);

// SAFETY: the tables are constants, and the strings in them are.
unsafe impl<T> Sync for Methods<T> {}

/// What the table of a node begins with, which has to name the node, begin, go on, end and start again.
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
