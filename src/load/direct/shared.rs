//! What the processes of a load share.
//!
//! The struct lies in dynamic shared memory; without workers, in the leader's own. It holds the stretches of the file, and
//! counters.

use std::ops::Deref;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use pg_bulk_format::dialect::Eol;
use pg_bulk_format::reader::Place;

use crate::pg::baton::Baton;
use crate::pg::chunk::Identity;
use crate::pg::source::Descriptor;
use crate::pg::stages::{STAGES, Stage, Stages};
use crate::pg::stretches::{Grid, Stretches};

/// Keys of what is in shared memory.
pub const KEY_SHARED: u64 = 1;
pub const KEY_COUNTERS: u64 = 2;
pub const KEY_SPEC: u64 = 3;
pub const KEY_QUEUES: u64 = 4;
pub const KEY_REJECTS: u64 = 5;
pub const KEY_SHARES: u64 = 6;
pub const KEY_FIGURES: u64 = 7;
pub const KEY_FILES: u64 = 8;
pub const KEY_BY_FILE: u64 = 9;

/// What the processes of a load share.
#[derive(Debug)]
#[repr(C)]
pub struct Shared {
    /// The build of the leader's library.
    pub build: u64,
    pub file: Identity,
    /// What the leader has open.
    pub leaders: Descriptor,
    /// What a compressed file is shared by.
    pub ring: Descriptor,
    stretches: Stretches,
    pub baton: Baton,
    /// For progress: rows made, records left out, bytes read.
    pub rows: AtomicU64,
    pub filtered: AtomicU64,
    pub bytes: AtomicU64,
    /// Rows with bad values.
    pub bad: AtomicU64,
    /// Of these, those before the first stretch.
    pub bad_before: u64,
    /// Pages that were appended, and where the time went, in nanoseconds; of processes that are done.
    pages: AtomicU64,
    stages: [AtomicU64; STAGES],
    /// Rejects that were kept.
    pub kept: AtomicU64,
}

impl Deref for Shared {
    type Target = Stretches;

    fn deref(&self) -> &Stretches {
        &self.stretches
    }
}

impl Shared {
    /// For a file that is read in order by one process. Guarded.
    pub fn alone() -> Shared {
        let place = Place { eol: Eol::Nl, offset: 0, lines: 0 };
        Shared::new(Identity::default(), Grid { base: 0, end: 0, len: 1 }, place, 0, 0)
    }

    /// For a file whose records from `place` on are to be read; `bad` rows came before. Guarded.
    pub fn new(file: Identity, grid: Grid, place: Place, bad: u64, build: u64) -> Shared {
        Shared {
            build,
            file,
            leaders: Descriptor::NONE,
            ring: Descriptor::NONE,
            stretches: Stretches::new(grid, place),
            baton: Baton::new(),
            rows: AtomicU64::new(0),
            filtered: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            bad: AtomicU64::new(bad),
            bad_before: bad,
            pages: AtomicU64::new(0),
            stages: [const { AtomicU64::new(0) }; STAGES],
            kept: AtomicU64::new(0),
        }
    }

    /// Let others go on counting, of the file from byte `place` on.
    pub fn move_counts(&self, others: &Shared, place: u64) {
        others.rows.store(self.rows.swap(0, Relaxed), Relaxed);
        others.filtered.store(self.filtered.swap(0, Relaxed), Relaxed);
        self.bytes.store(0, Relaxed);
        others.bytes.store(place, Relaxed);
    }

    /// A process has appended so many pages, and this is where its time went.
    pub fn account(&self, pages: u64, stages: &Stages) {
        self.pages.fetch_add(pages, Relaxed);
        for (place, (stage, _)) in self.stages.iter().zip(Stage::NAMES) {
            place.fetch_add(u64::try_from(stages.of(stage).as_nanos()).unwrap_or(0), Relaxed);
        }
    }

    /// Add what was accounted for.
    pub fn sum_up(&self, pages: &mut u64, stages: &mut Stages) {
        *pages += self.pages.load(Relaxed);
        for (place, (stage, _)) in self.stages.iter().zip(Stage::NAMES) {
            stages.add(stage, Duration::from_nanos(place.load(Relaxed)));
        }
    }
}
