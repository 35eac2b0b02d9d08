//! The chunks of a file that several processes share: their assignment, the order in which they are cut, and the first
//! error.
//!
//! The struct lies in shared memory. All changing fields are atomics, or belong to one process: the edge between two
//! chunks belongs to the process whose chunk may be cut now.
//!
//! **Order.** Chunks have tickets. They are assigned and cut in ascending order of tickets. If a row is bad, the error
//! that COPY would raise is that of the first bad row in the file. So a process with an error records the ticket of its
//! chunk. No later chunk is assigned or finished then, and the error waits until all earlier chunks are done; an
//! earlier error replaces it. [`ChunkOrder::is_earliest`] is that wait. It may wait only for processes that work until
//! they are done. A process that passes rows to a consumer is not waited for, since the consumer may let it wait.

use std::cell::UnsafeCell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use pg_bulk_text::chunk::{BLOCK, Edge};
use pg_bulk_text::dialect::Eol;
use pg_bulk_text::reader::RecordStart;

use crate::guc;
use crate::server::changed::Changed;

/// Highest number of processes of which the order matters, including the leader.
pub const MOST_PROCESSES: usize = 128;
/// Number of condition variables for tickets in a row.
const TICKET_CONDITIONS: usize = 16;
/// No chunk.
const NONE: u64 = u64::MAX;
/// Length of a chunk, as a multiple of the bytes that one process reads at a time.
const LOAD_READS: usize = 4;
/// The same multiple for a scan. A longer chunk would not fit the second-level cache until its rows are processed, and
/// a scan spends no more time on rows than on reading. A load spends so much time on a row that the cache does not
/// matter.
const SCAN_READS: usize = 2;

/// Division of a file into chunks.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Grid {
    /// Offset of the first chunk.
    pub base: u64,
    /// Size of the file.
    pub end: u64,
    /// Length of each chunk but the last one.
    pub len: u64,
}

impl Grid {
    /// Chunks from a record on, for a stream of unknown length.
    pub fn endless(base: u64) -> Grid {
        Grid::from(base, base.saturating_add(1 << 62))
    }

    /// Chunks from a record to the end of the file.
    pub fn from(base: u64, end: u64) -> Grid {
        Grid::of_length(base, end, LOAD_READS)
    }

    /// Chunks for a scan.
    pub fn of_scan(base: u64, end: u64) -> Grid {
        Grid::of_length(base, end, SCAN_READS)
    }

    fn of_length(base: u64, end: u64, reads: usize) -> Grid {
        let size = guc::chunk_size();
        let len = if size < 4096 { size } else { size * reads };
        Grid { base, end, len: len.next_multiple_of(BLOCK) as u64 }
    }

    /// Number of chunks.
    pub fn count(&self) -> u64 {
        self.end.saturating_sub(self.base).div_ceil(self.len.max(1))
    }

    /// Offset and length of a chunk.
    pub fn chunk(&self, ticket: u64) -> (u64, usize) {
        let offset = self.base + ticket * self.len;
        (offset, usize::try_from(self.end.saturating_sub(offset).min(self.len)).unwrap_or(0))
    }
}

/// State that the processes share.
#[derive(Debug)]
#[repr(C)]
pub struct ChunkOrder {
    pub grid: Grid,
    eol: Eol,
    /// Number of chunks to be assigned; lowered once an earlier end of the data is known.
    limit: AtomicU64,
    /// Ticket of the next chunk to be assigned.
    next: AtomicU64,
    /// Ticket of the chunk that may be cut now. `edge` is the edge before that chunk.
    cutting: AtomicU64,
    edge: UnsafeCell<Edge>,
    /// Ticket of the earliest chunk with an error.
    failed: AtomicU64,
    /// Ticket of the chunk that each process works on.
    working: [AtomicU64; MOST_PROCESSES],
    /// Signaled when another chunk may be cut. A waiting process uses the one for its ticket, so that others are not
    /// woken.
    conditions: [Changed; TICKET_CONDITIONS],
    /// Signaled at any change of the fields above.
    changed: Changed,
}

// SAFETY: all fields but `edge` are atomic or made for sharing. Only the process whose ticket is `cutting` uses the
// edge, and `cutting` is advanced with sequential consistency.
unsafe impl Sync for ChunkOrder {}

impl ChunkOrder {
    /// Chunks of a file whose records are read from `place` on. Guarded.
    pub fn new(grid: Grid, place: RecordStart) -> ChunkOrder {
        ChunkOrder {
            grid,
            eol: place.eol,
            limit: AtomicU64::new(grid.count()),
            next: AtomicU64::new(0),
            cutting: AtomicU64::new(0),
            edge: UnsafeCell::new(Edge::at(place)),
            failed: AtomicU64::new(NONE),
            working: [const { AtomicU64::new(NONE) }; MOST_PROCESSES],
            conditions: std::array::from_fn(|_| Changed::new()),
            changed: Changed::new(),
        }
    }

    pub fn eol(&self) -> Eol {
        self.eol
    }

    /// Wake the waiting processes, so that they look again.
    pub fn announce(&self) {
        self.changed.announce();
    }

    /// Wait until `answer` returns a value. Guarded, and interruptible.
    pub fn wait_for<T>(&self, answer: impl Fn() -> Option<T>) -> T {
        self.changed.wait_for(answer)
    }

    /// The condition variable for a ticket.
    #[expect(clippy::indexing_slicing, reason = "the remainder is within")]
    fn condition(&self, ticket: u64) -> &Changed {
        &self.conditions[(ticket % TICKET_CONDITIONS as u64) as usize]
    }

    /// Wake all processes, because a wait may have become pointless.
    fn announce_to_all(&self) {
        self.conditions.iter().for_each(Changed::announce);
        self.changed.announce();
    }

    fn slot(&self, process: usize) -> &AtomicU64 {
        // The leader has made sure that a process number is below MOST_PROCESSES.
        self.working.get(process).unwrap_or(&self.working[MOST_PROCESSES - 1])
    }

    /// Take the next chunk. The process has finished its previous one.
    pub fn claim(&self, process: usize) -> Option<u64> {
        let slot = self.slot(process);
        // Store a lower bound first: another process must not find this one idle between the two steps.
        slot.store(self.next.load(SeqCst), SeqCst);
        let ticket = self.next.fetch_add(1, SeqCst);
        if ticket < self.limit.load(SeqCst) && ticket < self.failed.load(SeqCst) {
            slot.store(ticket, SeqCst);
            self.changed.announce();
            return Some(ticket);
        }
        self.rest(process);
        None
    }

    /// The process works on no chunk any more.
    pub fn rest(&self, process: usize) {
        self.slot(process).store(NONE, SeqCst);
        self.changed.announce();
    }

    /// Is work on a chunk pointless: has an earlier one failed, or do the data end before it?
    pub fn is_over(&self, ticket: u64) -> bool {
        ticket >= self.limit.load(SeqCst) || self.failed.load(SeqCst) < ticket
    }

    /// Wait until all earlier chunks are cut, and return the edge before this one; `None` if it [is
    /// over](Self::is_over). Guarded.
    pub fn wait_to_cut(&self, ticket: u64) -> Option<Edge> {
        self.condition(ticket).wait_for(|| {
            if self.is_over(ticket) {
                return Some(None);
            }
            // SAFETY: this process may cut now.
            (self.cutting.load(SeqCst) == ticket).then(|| Some(unsafe { *self.edge.get() }))
        })
    }

    /// Are all earlier chunks cut?
    pub fn may_cut(&self, ticket: u64) -> bool {
        self.cutting.load(SeqCst) == ticket
    }

    /// Let the next chunk be cut.
    pub fn pass_edge(&self, ticket: u64, edge: Edge) {
        // SAFETY: this process may cut until the next line.
        unsafe { *self.edge.get() = edge };
        self.cutting.store(ticket + 1, SeqCst);
        self.condition(ticket + 1).announce();
    }

    /// Assign no chunk after this one: its process reads the rest of the file.
    pub fn end_at(&self, ticket: u64) {
        self.limit.store(ticket + 1, SeqCst);
        self.announce_to_all();
    }

    /// The chunk that a process works on, if any.
    pub fn working_on(&self, process: usize) -> Option<u64> {
        let ticket = self.slot(process).load(SeqCst);
        (ticket != NONE).then_some(ticket)
    }

    /// The first chunk that may not be done yet.
    pub fn first_open(&self) -> u64 {
        // In this order: chunks assigned meanwhile are later ones. `next` may exceed the limit, because failed requests
        // advance it too.
        let next = self.next.load(SeqCst).min(self.limit.load(SeqCst)).min(self.failed.load(SeqCst));
        self.working.iter().map(|working| working.load(SeqCst)).fold(next, u64::min)
    }

    /// Assign no more chunks: the load will fail because of a row in one that was assigned.
    pub fn end_here(&self) {
        self.limit.fetch_min(self.next.load(SeqCst), SeqCst);
        self.announce_to_all();
    }

    /// Wait until the chunks before the process's own are done; false if work on its own has become pointless.
    /// `meanwhile` is called now and then. Guarded, and interruptible.
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

    /// Does no other process work on an earlier chunk?
    fn are_done_before(&self, ticket: u64, process: usize) -> bool {
        let mut others = self.working.iter().enumerate().filter(|&(i, _)| i != process).map(|(_, slot)| slot);
        others.all(|slot| slot.load(SeqCst) >= ticket)
    }

    /// The earliest chunk with an error.
    pub fn failed(&self) -> Option<u64> {
        let ticket = self.failed.load(SeqCst);
        (ticket != NONE).then_some(ticket)
    }

    /// Record an error of the process, and wait until the chunks before its own are done; true if none of them failed.
    /// Guarded, and interruptible.
    pub fn is_earliest(&self, process: usize) -> bool {
        self.wait_until_earliest(process, || ())
    }

    /// Wait like [`Self::is_earliest`]; `meanwhile` is called now and then.
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
