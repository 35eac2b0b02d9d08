//! The stretches of a file that several processes share: who has which, whose turn it is to cut, and which error is the
//! first.
//!
//! The struct lies in shared memory. Everything that changes is an atomic or has an owner: the edge between two stretches
//! belongs to whoever's turn it is.
//!
//! **Order.** Stretches are given out in ascending order and cut in that order. When a row is bad, the error that COPY
//! would raise is that of the first bad row in the file. So a process that meets an error says which stretch it came
//! from, no later stretch is given out or finished, and the error waits until all earlier stretches are done; an
//! earlier error then takes its place. [`Stretches::is_earliest`] is that wait. It is for processes that work until they
//! are done; one that hands its rows on to others, who may leave it waiting, must not be waited for.

use std::cell::UnsafeCell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use pg_bulk_format::chunk::{BLOCK, Edge};
use pg_bulk_format::dialect::Eol;
use pg_bulk_format::reader::Place;

use super::changed::Changed;
use crate::guc;

/// Processes at most whose order matters, the leader included.
pub const MOST_PROCESSES: usize = 128;
/// Stretches in a row whose turns are told apart.
const TURNS: usize = 16;
/// No stretch.
const NONE: u64 = u64::MAX;
/// Stretches are this many times as long as what is read of a file at a time by one process.
const STRETCH: usize = 4;
/// Those of a scan: of a longer one, not all is in the second-level cache any more when its rows are looked at, which are
/// done with in no more time than it takes to read them. A load spends so long on a row that it is no matter.
const SCANNED_STRETCH: usize = 2;

/// The stretches of a file.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Grid {
    /// Where the first one begins.
    pub base: u64,
    /// Size of the file.
    pub end: u64,
    /// Length of each but the last one.
    pub len: u64,
}

impl Grid {
    /// The stretches from a record on, of what ends nobody knows where.
    pub fn endless(base: u64) -> Grid {
        Grid::from(base, base.saturating_add(1 << 62))
    }

    /// The stretches from a record on to the end.
    pub fn from(base: u64, end: u64) -> Grid {
        Grid::of_length(base, end, STRETCH)
    }

    /// The same, for a scan.
    pub fn of_scan(base: u64, end: u64) -> Grid {
        Grid::of_length(base, end, SCANNED_STRETCH)
    }

    fn of_length(base: u64, end: u64, reads: usize) -> Grid {
        let size = guc::chunk_size();
        let len = if size < 4096 { size } else { size * reads };
        Grid { base, end, len: len.next_multiple_of(BLOCK) as u64 }
    }

    /// Number of stretches.
    pub fn count(&self) -> u64 {
        self.end.saturating_sub(self.base).div_ceil(self.len.max(1))
    }

    /// Offset and length of a stretch.
    pub fn stretch(&self, number: u64) -> (u64, usize) {
        let offset = self.base + number * self.len;
        (offset, usize::try_from(self.end.saturating_sub(offset).min(self.len)).unwrap_or(0))
    }
}

/// What the processes share.
#[derive(Debug)]
#[repr(C)]
pub struct Stretches {
    pub grid: Grid,
    eol: u32,
    /// Stretches that are to be given out; fewer than the grid's once it is known that the data end before.
    limit: AtomicU64,
    /// The next one.
    next: AtomicU64,
    /// The one whose turn it is to be cut, and the edge before it.
    turn: AtomicU64,
    edge: UnsafeCell<Edge>,
    /// The earliest stretch with an error.
    failed: AtomicU64,
    /// The stretch that each process works on.
    working: [AtomicU64; MOST_PROCESSES],
    /// It is another stretch's turn: for who waits for that of a stretch with such a number, so that nobody else is woken.
    turned: [Changed; TURNS],
    /// Something of the above changed.
    changed: Changed,
}

// SAFETY: all but `edge` is atomic or meant to be shared. Only the process whose turn it is reads or writes the edge, and
// the turn is passed with sequential consistency.
unsafe impl Sync for Stretches {}

pub(super) fn eol_number(eol: Eol) -> u32 {
    match eol {
        Eol::Nl => 0,
        Eol::Cr => 1,
        Eol::CrNl => 2,
    }
}

pub(super) fn eol_of_number(number: u32) -> Eol {
    match number {
        1 => Eol::Cr,
        2 => Eol::CrNl,
        _ => Eol::Nl,
    }
}

impl Stretches {
    /// Those of a file whose records from `place` on are to be read. Guarded.
    pub fn new(grid: Grid, place: Place) -> Stretches {
        Stretches {
            grid,
            eol: eol_number(place.eol),
            limit: AtomicU64::new(grid.count()),
            next: AtomicU64::new(0),
            turn: AtomicU64::new(0),
            edge: UnsafeCell::new(Edge::at(place)),
            failed: AtomicU64::new(NONE),
            working: [const { AtomicU64::new(NONE) }; MOST_PROCESSES],
            turned: std::array::from_fn(|_| Changed::new()),
            changed: Changed::new(),
        }
    }

    pub fn eol(&self) -> Eol {
        eol_of_number(self.eol)
    }

    /// Let those who wait look again.
    pub fn announce(&self) {
        self.changed.announce();
    }

    /// Wait until `answer` has one. Guarded, and interruptible.
    pub fn wait_for<T>(&self, answer: impl Fn() -> Option<T>) -> T {
        self.changed.wait_for(answer)
    }

    /// For who waits for a stretch's turn.
    #[expect(clippy::indexing_slicing, reason = "the remainder is within")]
    fn turned(&self, number: u64) -> &Changed {
        &self.turned[(number % TURNS as u64) as usize]
    }

    /// There may be no use in waiting any more, not even for a turn.
    fn announce_to_all(&self) {
        self.turned.iter().for_each(Changed::announce);
        self.changed.announce();
    }

    fn slot(&self, process: usize) -> &AtomicU64 {
        // A process number is below MOST_PROCESSES; the leader saw to it.
        self.working.get(process).unwrap_or(&self.working[MOST_PROCESSES - 1])
    }

    /// Take the next stretch. The one before is done.
    pub fn claim(&self, process: usize) -> Option<u64> {
        let slot = self.slot(process);
        // Whoever asks what is still being worked on must not look between our taking a number and our saying so.
        slot.store(self.next.load(SeqCst), SeqCst);
        let number = self.next.fetch_add(1, SeqCst);
        if number < self.limit.load(SeqCst) && number < self.failed.load(SeqCst) {
            slot.store(number, SeqCst);
            self.changed.announce();
            return Some(number);
        }
        self.rest(process);
        None
    }

    /// The process works on no stretch any more.
    pub fn rest(&self, process: usize) {
        self.slot(process).store(NONE, SeqCst);
        self.changed.announce();
    }

    /// Is there no use in going on with a stretch: has an earlier one failed, or do the data end before it?
    pub fn is_over(&self, number: u64) -> bool {
        number >= self.limit.load(SeqCst) || self.failed.load(SeqCst) < number
    }

    /// Wait for a stretch's turn. The edge before it; `None` if it [is over](Shared::is_over). Guarded.
    pub fn wait_turn(&self, number: u64) -> Option<Edge> {
        self.turned(number).wait_for(|| {
            if self.is_over(number) {
                return Some(None);
            }
            // SAFETY: it is our turn.
            (self.turn.load(SeqCst) == number).then(|| Some(unsafe { *self.edge.get() }))
        })
    }

    /// Is it this stretch's turn?
    pub fn is_turn(&self, number: u64) -> bool {
        self.turn.load(SeqCst) == number
    }

    /// Pass the turn on.
    pub fn pass_turn(&self, number: u64, edge: Edge) {
        // SAFETY: it is our turn until the next line.
        unsafe { *self.edge.get() = edge };
        self.turn.store(number + 1, SeqCst);
        self.turned(number + 1).announce();
    }

    /// No stretch behind this one is to be given out: whoever has it reads the rest of the file.
    pub fn end_at(&self, number: u64) {
        self.limit.store(number + 1, SeqCst);
        self.announce_to_all();
    }

    /// The stretch that a process works on, if there are stretches.
    pub fn working_on(&self, process: usize) -> Option<u64> {
        let number = self.slot(process).load(SeqCst);
        (number != NONE).then_some(number)
    }

    /// The first stretch that is not known to be done.
    pub fn first_open(&self) -> u64 {
        // In this order: what is taken meanwhile comes behind. Those who asked for more than there is to be given out have moved the next one on.
        let next = self.next.load(SeqCst).min(self.limit.load(SeqCst)).min(self.failed.load(SeqCst));
        self.working.iter().map(|working| working.load(SeqCst)).fold(next, u64::min)
    }

    /// All is going to fail because of a row in one of the stretches that were given out: give out no more.
    pub fn end_here(&self) {
        self.limit.fetch_min(self.next.load(SeqCst), SeqCst);
        self.announce_to_all();
    }

    /// Wait until the stretches before the process's own are done; false if there is no use in going on with it. `meanwhile`
    /// is called now and then. Guarded, and interruptible.
    pub fn wait_for_earlier(&self, process: usize, mut meanwhile: impl FnMut()) -> bool {
        let own = self.slot(process).load(SeqCst);
        loop {
            if self.is_over(own) {
                return false;
            }
            if self.are_done_before(own, process) {
                return true;
            }
            meanwhile();
            self.changed.nap();
        }
    }

    /// Does no other process work on a stretch before this one?
    fn are_done_before(&self, number: u64, process: usize) -> bool {
        let mut others = self.working.iter().enumerate().filter(|&(i, _)| i != process).map(|(_, slot)| slot);
        others.all(|slot| slot.load(SeqCst) >= number)
    }

    /// The earliest stretch with an error.
    pub fn failed(&self) -> Option<u64> {
        let number = self.failed.load(SeqCst);
        (number != NONE).then_some(number)
    }

    /// The process met an error. Wait until the stretches before its own are done; true if none of them failed.
    /// Guarded, and interruptible.
    pub fn is_earliest(&self, process: usize) -> bool {
        self.wait_until_earliest(process, || ())
    }

    /// The same; `meanwhile` is called now and then.
    pub fn wait_until_earliest(&self, process: usize, mut meanwhile: impl FnMut()) -> bool {
        let own = self.slot(process).load(SeqCst);
        self.failed.fetch_min(own, SeqCst);
        self.announce_to_all();
        loop {
            if self.failed.load(SeqCst) < own {
                return false;
            }
            if own == NONE || self.are_done_before(own, process) {
                return true;
            }
            meanwhile();
            self.changed.nap();
        }
    }
}
