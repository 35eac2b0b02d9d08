//! What the processes of a load share: counters and the chunks of the file, and the description of the load, as bytes.
//!
//! Both are in dynamic shared memory. In a load without workers, [`Shared`] is in the leader's own memory.
//!
//! A worker makes the same rows from the same input: it gets the user's options and parses them again. The spec adds
//! facts from the leader: the client's encoding, the columns that a header named, the analyzed condition, the relations
//! that are new in this transaction.

use std::ffi::{CStr, CString};
use std::ops::Deref;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use pg_bulk_text::dialect::Eol;
use pg_bulk_text::reader::RecordStart;
use pgrx::pg_sys;

use super::join;
use super::wide::QUEUE;
use crate::heap::append::Traits;
use crate::heap::append_lock::AppendLock;
use crate::index::index_keys::Planned;
use crate::input::chunk_order::{ChunkOrder, Grid};
use crate::input::file_figures::FileFigures;
use crate::input::file_identity::Identity;
use crate::input::source::Descriptor;
use crate::program::Text;
use crate::rows::file_chunks::FileState;
use crate::rows::ragged::SharedRagged;
use crate::server::sent::sent;
use crate::server::sequence::Parameters;
use crate::server::stages::{STAGES, Stage, Stages};
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

/// Counts of a chunk, shared by all processes.
#[derive(Debug)]
#[repr(C)]
pub struct RejectTally {
    /// Rejects of the chunk.
    pub count: AtomicU64,
    /// Position of its first record: the byte, the lines before it, and how lines end. Written by the process that cuts the
    /// chunk, before it announces the cut.
    offset: AtomicU64,
    lines: AtomicU64,
    eol: AtomicU64,
}

// SAFETY: atomic values.
unsafe impl Shareable for RejectTally {}

impl RejectTally {
    pub fn new() -> RejectTally {
        let [count, offset, lines, eol] = [const { AtomicU64::new(0) }; 4];
        RejectTally { count, offset, lines, eol }
    }

    pub fn place(&self) -> RecordStart {
        let (offset, lines) = (self.offset.load(SeqCst), self.lines.load(SeqCst));
        let eol = [Eol::Nl, Eol::Cr, Eol::CrNl, Eol::Any].into_iter().find(|&eol| eol as u64 == self.eol.load(SeqCst));
        RecordStart { eol: eol.unwrap_or(Eol::Nl), offset, lines }
    }
    /// Notes the position.
    pub fn begin_at(&self, place: RecordStart) {
        self.offset.store(place.offset, SeqCst);
        self.lines.store(place.lines, SeqCst);
        self.eol.store(place.eol as u64, SeqCst);
    }
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
        /// The conditions of the where option.
        pub conditions: Text,
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

/// State that the processes of a load share.
#[derive(Debug)]
pub struct Shared {
    pub file: Identity,
    /// Descriptor of the leader's open file.
    pub leaders: Descriptor,
    /// The ring buffer through which processes share a compressed file.
    pub ring: Descriptor,
    order: ChunkOrder,
    pub append_lock: AppendLock,
    /// For progress: rows made, records left out, bytes read.
    pub rows: AtomicU64,
    pub filtered: AtomicU64,
    pub bytes: AtomicU64,
    /// Records with bad values.
    pub bad: AtomicU64,
    /// Of these, the records before the first chunk.
    pub bad_before: u64,
    /// Appended pages and the time of each stage in nanoseconds, of processes that are done.
    pages: AtomicU64,
    stages: [AtomicU64; STAGES],
    /// Records with another number of fields that became rows.
    pub ragged: SharedRagged,
    /// Rejects that were kept.
    pub kept: AtomicU64,
}

impl Deref for Shared {
    type Target = ChunkOrder;

    fn deref(&self) -> &ChunkOrder {
        &self.order
    }
}

impl Shared {
    /// State for a file that one process reads in order. Guarded.
    pub fn alone() -> Shared {
        let place = RecordStart { eol: Eol::Nl, offset: 0, lines: 0 };
        Shared::new(Identity::default(), Grid { base: 0, end: 0, len: 1 }, place, 0)
    }

    /// State for a file that is read from `place` on, after `bad` bad records. Guarded.
    pub fn new(file: Identity, grid: Grid, place: RecordStart, bad: u64) -> Shared {
        Shared {
            file,
            leaders: Descriptor::NONE,
            ring: Descriptor::NONE,
            order: ChunkOrder::new(grid, place),
            append_lock: AppendLock::new(),
            rows: AtomicU64::new(0),
            filtered: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            bad: AtomicU64::new(bad),
            bad_before: bad,
            pages: AtomicU64::new(0),
            stages: [const { AtomicU64::new(0) }; STAGES],
            ragged: SharedRagged::new(),
            kept: AtomicU64::new(0),
        }
    }

    /// Moves the progress counts to `others`, which go on from byte `place` of the file.
    pub fn move_counts(&self, others: &Shared, place: u64) {
        others.rows.store(self.rows.swap(0, Relaxed), Relaxed);
        others.filtered.store(self.filtered.swap(0, Relaxed), Relaxed);
        self.bytes.store(0, Relaxed);
        others.bytes.store(place, Relaxed);
    }

    /// Adds the pages that a process has appended and the time of its stages.
    pub fn account(&self, pages: u64, stages: &Stages) {
        self.pages.fetch_add(pages, Relaxed);
        for (place, (stage, _)) in self.stages.iter().zip(Stage::NAMES) {
            place.fetch_add(u64::try_from(stages.of(stage).as_nanos()).unwrap_or(0), Relaxed);
        }
    }

    /// Adds the figures of [`account`](Self::account) to a total.
    pub fn sum_up(&self, pages: &mut u64, stages: &mut Stages) {
        *pages += self.pages.load(Relaxed);
        for (place, (stage, _)) in self.stages.iter().zip(Stage::NAMES) {
            stages.add(stage, Duration::from_nanos(place.load(Relaxed)));
        }
    }
}
