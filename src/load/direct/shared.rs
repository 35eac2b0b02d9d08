//! State that the processes of a load share.
//!
//! The struct is in dynamic shared memory; in a load without workers, in the leader's own memory. It holds the chunks
//! of the file and counters.

use std::ops::Deref;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use pg_bulk_text::dialect::Eol;
use pg_bulk_text::reader::RecordStart;

use crate::heap::append_lock::AppendLock;
use crate::input::chunk_order::{ChunkOrder, Grid};
use crate::input::file_identity::Identity;
use crate::input::source::Descriptor;
use crate::rows::ragged::SharedRagged;
use crate::server::stages::{STAGES, Stage, Stages};

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
