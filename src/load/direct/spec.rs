//! The description of a load for its workers, as bytes in shared memory.
//!
//! A worker makes the same rows from the same input: it gets the user's options and parses them again. The spec adds
//! facts from the leader: the client's encoding, the columns that a header named, the analyzed condition, the relations
//! that are new in this transaction.

use std::ffi::{CStr, CString, c_char};
use std::sync::atomic::AtomicU64;

use pgrx::pg_sys;

use super::join;
use super::rejects::RejectTally;
use super::shared::Shared;
use super::wide::QUEUE;
use crate::heap::append::Traits;
use crate::index::index_keys::Planned;
use crate::input::file_figures::FileFigures;
use crate::program::Text;
use crate::rows::file_chunks::FileState;
use crate::server::sent::sent;
use crate::server::sequence::Parameters;
use crate::server::team::{Array, Exclusive, Shareable, Task};

/// The task of a load's workers.
#[derive(Debug)]
pub struct LoadTask {
    pub shared: Shared,
    /// A [`Spec`], as bytes.
    pub spec: Array<u8>,
    pub sequences: Array<Parameters>,
    /// Appended rows by relation of the spec.
    pub counters: Array<AtomicU64>,
    /// For each chunk, if there is a reject limit.
    pub rejects: Array<RejectTally>,
    /// The workers' instrumentation of the plan that their rows go through, each node of each worker.
    pub figures: Array<Exclusive<pg_sys::Instrumentation>>,
    /// For each file of a list.
    pub states: Array<FileState>,
    pub by_file: Array<FileFigures>,
}

// SAFETY: atomic values, plain data, and types made to be shared; the descriptors are names.
unsafe impl Shareable for LoadTask {}
// SAFETY: the worker is in `super::worker`.
unsafe impl Task for LoadTask {
    const WORKER: &'static CStr = c"pg_bulk_load_worker";
    const QUEUE: usize = QUEUE;
}

sent! {
    /// Description of a load.
    #[derive(Debug, Clone)]
    pub struct Spec {
        pub relation: pg_sys::Oid,
        pub command: pg_sys::CommandId,
        pub frozen: bool,
        /// A dry run: nothing is written.
        pub is_dry: bool,
        /// Rows can be traced to their records.
        pub traces: bool,
        pub input: InputSpec,
        /// The columns that the statement gives values to.
        pub inserted: Vec<i16>,
        /// The condition in nodeToString's format.
        pub condition: Option<CString>,
        /// The projection of rows, if they are not stored unchanged.
        pub projection: Option<Text>,
        /// The plan that rows of the file go through, if they are joined.
        pub join: Option<join::Text>,
        /// The relations that rows may go to.
        pub traits: Vec<(pg_sys::Oid, Traits)>,
        pub keys: KeySpec,
    }
}

sent! {
    /// What a load reads.
    #[derive(Debug, Clone)]
    pub struct InputSpec {
        pub path: CString,
        /// The list of files, serialized; empty for a single file.
        pub files: Vec<u8>,
        /// The options: a jsonb with its header; empty if they are a foreign table's.
        pub options: Vec<u8>,
        pub foreign: Option<pg_sys::Oid>,
        /// The load executes a COPY.
        pub is_copy: bool,
        /// Encoding of the file.
        pub encoding: i32,
        /// The fields' attribute numbers (0 for a field without attribute) and names.
        pub fields: Vec<(i16, CString)>,
        /// The function that takes the fields as arguments.
        pub function: Option<pg_sys::Oid>,
    }
}

sent! {
    /// The keys that the processes of a load collect.
    #[derive(Debug, Clone)]
    pub struct KeySpec {
        /// Indexes whose keys are collected, with their relations.
        pub list: Vec<Planned>,
        /// Bytes for the keys of each index.
        pub memory: usize,
        /// Bytes for each index whose index tuples are sorted.
        pub sort_memory: usize,
        /// Keys in order are packed.
        pub packs: bool,
        /// Handle of the shared files for key runs; 0 without shared files.
        pub files: u32,
        /// Handle of the shared sorts of index tuples, and the most participants of each sort.
        pub sorts: u32,
        pub participants: usize,
        /// Workers of earlier files, which have left keys there, too.
        pub earlier_workers: usize,
    }
}

/// Reads the condition's nodes. Guarded; allocates in the current memory context.
pub fn condition_node(condition: Option<&CString>) -> *mut pg_sys::Node {
    match condition {
        // SAFETY: a guarded call with what nodeToString wrote.
        Some(text) => unsafe { pg_sys::stringToNode(text.as_ptr().cast::<c_char>()).cast() },
        None => std::ptr::null_mut(),
    }
}
