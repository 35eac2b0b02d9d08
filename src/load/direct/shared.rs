//! What the processes of a load share.
//!
//! The struct lies in dynamic shared memory; without workers, in the leader's own. Everything that changes is an atomic
//! or has an owner: the edge between two stretches belongs to whoever's turn it is.
//!
//! **Order.** Stretches are given out in ascending order and cut in that order. When a row is bad, the error that COPY
//! would raise is that of the first bad row in the file. So a process that meets an error says which stretch it came
//! from, no later stretch is given out or finished, and the error waits until all earlier stretches are done; an
//! earlier error then takes its place. [`Shared::is_earliest`] is that wait.

use std::cell::UnsafeCell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use pg_bulk_format::chunk::Edge;
use pg_bulk_format::dialect::Eol;
use pg_bulk_format::reader::Place;
use pgrx::pg_sys;

use crate::pg::baton::Baton;
use crate::pg::chunk::Identity;
use crate::pg::stages::{STAGES, Stage, Stages};
use crate::pg::usage::Cpu;

/// Processes of a load at most, the leader included.
pub const MOST_PROCESSES: usize = 128;
/// No stretch.
const NONE: u64 = u64::MAX;

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

/// What the processes of a load share.
#[derive(Debug)]
#[repr(C)]
pub struct Shared {
    /// The build of the leader's library.
    pub build: u64,
    pub file: Identity,
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
    /// Something of the above changed.
    changed: pg_sys::ConditionVariable,
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
    /// Processor time of workers that are done, user and system, in microseconds.
    cpu: [AtomicU64; 2],
    /// Rejects that were kept.
    pub kept: AtomicU64,
    /// The stretch that each process works on.
    working: [AtomicU64; MOST_PROCESSES],
}

// SAFETY: all but `edge` is atomic or meant to be shared. Only the process whose turn it is reads or writes the edge, and
// the turn is passed with sequential consistency.
unsafe impl Sync for Shared {}

fn eol_number(eol: Eol) -> u32 {
    match eol {
        Eol::Nl => 0,
        Eol::Cr => 1,
        Eol::CrNl => 2,
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
        let mut changed = pg_sys::ConditionVariable::default();
        // SAFETY: a valid condition variable that nobody waits for.
        unsafe { pg_sys::ConditionVariableInit(&raw mut changed) };
        Shared {
            build,
            file,
            grid,
            eol: eol_number(place.eol),
            limit: AtomicU64::new(grid.count()),
            next: AtomicU64::new(0),
            turn: AtomicU64::new(0),
            edge: UnsafeCell::new(Edge::at(place)),
            failed: AtomicU64::new(NONE),
            changed,
            baton: Baton::new(),
            rows: AtomicU64::new(0),
            filtered: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            bad: AtomicU64::new(bad),
            bad_before: bad,
            pages: AtomicU64::new(0),
            stages: [const { AtomicU64::new(0) }; STAGES],
            cpu: [const { AtomicU64::new(0) }; 2],
            kept: AtomicU64::new(0),
            working: [const { AtomicU64::new(NONE) }; MOST_PROCESSES],
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

    /// A worker took so much of the processor.
    pub fn account_cpu(&self, cpu: Cpu) {
        for (place, time) in self.cpu.iter().zip([cpu.user, cpu.system]) {
            place.fetch_add(u64::try_from(time.as_micros()).unwrap_or(0), Relaxed);
        }
    }

    /// Add what was accounted for.
    pub fn sum_up(&self, pages: &mut u64, stages: &mut Stages, cpu: &mut Cpu) {
        *pages += self.pages.load(Relaxed);
        for (place, (stage, _)) in self.stages.iter().zip(Stage::NAMES) {
            stages.add(stage, Duration::from_nanos(place.load(Relaxed)));
        }
        let [user, system] = &self.cpu;
        cpu.user += Duration::from_micros(user.load(Relaxed));
        cpu.system += Duration::from_micros(system.load(Relaxed));
    }

    pub fn eol(&self) -> Eol {
        match self.eol {
            1 => Eol::Cr,
            2 => Eol::CrNl,
            _ => Eol::Nl,
        }
    }

    fn changed(&self) -> *mut pg_sys::ConditionVariable {
        (&raw const self.changed).cast_mut()
    }

    fn announce(&self) {
        // SAFETY: a valid condition variable; raises nothing.
        unsafe { pg_sys::ConditionVariableBroadcast(self.changed()) };
    }

    /// Wait until `answer` has one. Guarded, and interruptible.
    fn wait_for<T>(&self, answer: impl Fn() -> Option<T>) -> T {
        if let Some(answer) = answer() {
            return answer;
        }
        // SAFETY: guarded calls; the condition variable is valid and shared by all who use it.
        unsafe {
            pg_sys::ConditionVariablePrepareToSleep(self.changed());
            loop {
                if let Some(answer) = answer() {
                    pg_sys::ConditionVariableCancelSleep();
                    return answer;
                }
                pg_sys::ConditionVariableSleep(self.changed(), pg_sys::PG_WAIT_EXTENSION);
            }
        }
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
            self.announce();
            return Some(number);
        }
        self.rest(process);
        None
    }

    /// The process works on no stretch any more.
    pub fn rest(&self, process: usize) {
        self.slot(process).store(NONE, SeqCst);
        self.announce();
    }

    /// Is there no use in going on with a stretch: has an earlier one failed, or do the data end before it?
    pub fn is_over(&self, number: u64) -> bool {
        number >= self.limit.load(SeqCst) || self.failed.load(SeqCst) < number
    }

    /// Wait for a stretch's turn. The edge before it; `None` if it [is over](Shared::is_over). Guarded.
    pub fn wait_turn(&self, number: u64) -> Option<Edge> {
        self.wait_for(|| {
            if self.is_over(number) {
                return Some(None);
            }
            // SAFETY: it is our turn.
            (self.turn.load(SeqCst) == number).then(|| Some(unsafe { *self.edge.get() }))
        })
    }

    /// Pass the turn on.
    pub fn pass_turn(&self, number: u64, edge: Edge) {
        // SAFETY: it is our turn until the next line.
        unsafe { *self.edge.get() = edge };
        self.turn.store(number + 1, SeqCst);
        self.announce();
    }

    /// No stretch behind this one is to be given out: whoever has it reads the rest of the file.
    pub fn end_at(&self, number: u64) {
        self.limit.store(number + 1, SeqCst);
        self.announce();
    }

    /// The stretch that a process works on, if there are stretches.
    pub fn working_on(&self, process: usize) -> Option<u64> {
        let number = self.slot(process).load(SeqCst);
        (number != NONE).then_some(number)
    }

    /// The load is going to fail because of a row in one of the stretches that were given out: give out no more.
    pub fn end_here(&self) {
        self.limit.fetch_min(self.next.load(SeqCst), SeqCst);
        self.announce();
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
            // SAFETY: as in `wait_for`.
            unsafe {
                pg_sys::ConditionVariableTimedSleep(self.changed(), 10, pg_sys::PG_WAIT_EXTENSION);
            }
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
        self.announce();
        loop {
            if self.failed.load(SeqCst) < own {
                return false;
            }
            if own == NONE || self.are_done_before(own, process) {
                return true;
            }
            meanwhile();
            // SAFETY: as in `wait_for`.
            unsafe {
                pg_sys::ConditionVariableTimedSleep(self.changed(), 10, pg_sys::PG_WAIT_EXTENSION);
            }
        }
    }
}
