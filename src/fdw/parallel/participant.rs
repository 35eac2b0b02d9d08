//! The state that the processes of a parallel scan share, and the part of each process.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

use pg_bulk_text::dialect::Eol;
use pg_bulk_text::reader::RecordStart;

use crate::error::Result;
use crate::input::chunk_order::{ChunkOrder, Grid};
use crate::input::file_identity::{Identity, changed};
use crate::input::files::FileList;
use crate::input::source::Descriptor;
use crate::rows::chunks::Chunks;
use crate::rows::file_chunks::{FileChunks, FileState, Listed};
use crate::rows::ragged::{Ragged, SharedRagged};
use crate::rows::row::Rows;
use crate::server::changed::Changed;
use crate::server::points::point;
use crate::server::stages::Stages;
use crate::server::team::{Array, Image, Memory, Shareable, SharedRef};

/// No process has arrived yet.
const NEW: u32 = 0;
/// A process reads the first row.
const OPENING: u32 = 1;
/// The chunks can be taken.
const OPEN: u32 = 2;
/// The first process reads the whole file.
const ALONE: u32 = 3;

/// The list of files of a parallel scan, and its arrays in shared memory.
#[derive(Debug)]
pub struct SharedList {
    list: Option<Rc<FileList>>,
    pub(super) image: Image,
    bytes: Array<u8>,
    states: Array<FileState>,
}

impl SharedList {
    pub(super) fn new(list: Option<Rc<FileList>>) -> SharedList {
        let mut image = Image::new();
        let bytes = image.array(list.as_ref().map_or_else(Vec::new, |list| list.write()));
        let files = list.as_ref().map_or(0, |list| list.files.len());
        let states = image.array((0..files).map(|_| FileState::new()));
        SharedList { list, image, bytes, states }
    }
}

/// The shared state of a parallel scan.
#[derive(Debug)]
pub struct Shared {
    /// The identity of the leader's file when the scan began; the default if it is not a regular file.
    pub(super) file: Identity,
    /// The leader's open file descriptor.
    pub(super) descriptor: Descriptor,
    /// The file's encoding, because a worker does not know the client's.
    pub(super) encoding: i32,
    /// The shared list as bytes, and the states of its files; empty without a list.
    pub(super) list: Array<u8>,
    states: Array<FileState>,
    state: AtomicU32,
    changed: Changed,
    /// Most workers that may read, and the number that have asked.
    places: u32,
    came: AtomicU32,
    /// Initialized when the state becomes [`OPEN`].
    order: UnsafeCell<MaybeUninit<ChunkOrder>>,
    /// Totals of the workers.
    bytes: AtomicU64,
    rows: AtomicU64,
    ragged: SharedRagged,
}

// SAFETY: only the process that sets the state to OPENING writes the order, and the others read it after they
// have seen OPEN. The rest is atomic, made to be shared, or not written once there are workers.
unsafe impl Sync for Shared {}
// SAFETY: see above; the descriptor is a name.
unsafe impl Shareable for Shared {}

impl Shared {
    pub(super) fn new(rows: &Rows, shared: &SharedList, places: u32) -> Shared {
        let list = shared.list.as_ref();
        let stream = rows.stream();
        let mut file = stream.identity().unwrap_or_default();
        // The size that the leader saw, since it opened the file first: other processes may not see the same later
        // size.
        file.size = stream.size().unwrap_or(file.size);
        let mut order = MaybeUninit::uninit();
        if let Some(list) = list {
            let start = RecordStart { eol: Eol::Nl, offset: 0, lines: 0 };
            order.write(ChunkOrder::new(FileChunks::of(list).grid(), start));
        }
        Shared {
            file,
            descriptor: stream.descriptor(),
            encoding: stream.encoding(),
            list: shared.bytes,
            states: shared.states,
            // Every process that opens a file of the list sees its header.
            state: AtomicU32::new(if list.is_some() { OPEN } else { NEW }),
            changed: Changed::new(),
            places,
            came: AtomicU32::new(0),
            order: UnsafeCell::new(order),
            bytes: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            ragged: SharedRagged::new(),
        }
    }

    /// May one more process read? The leader always may.
    fn admits(&self, number: usize) -> bool {
        number == 0 || self.came.fetch_add(1, SeqCst) < self.places
    }

    /// Joins the scan: [`OPENING`] for the first process, else the final state. Guarded, and interruptible.
    fn arrive(&self) -> u32 {
        if self.state.compare_exchange(NEW, OPENING, SeqCst, SeqCst).is_ok() {
            return OPENING;
        }
        self.changed.wait_for(|| Some(self.state.load(SeqCst)).filter(|state| *state != OPENING))
    }

    fn become_state(&self, state: u32) {
        self.state.store(state, SeqCst);
        self.changed.announce();
    }

    /// Lets other processes read after the current row, if the file can be read in chunks. Guarded.
    fn open(&self, rows: &Rows) -> bool {
        let stream = rows.stream();
        let may_share = stream.has_chunks() && self.file != Identity::default();
        let place = rows.reader().place_behind().filter(|&place| may_share && stream.cutter(place).is_some());
        if let Some(place) = place {
            let order = ChunkOrder::new(Grid::of_scan(place.offset, self.file.size), place);
            // SAFETY: this process has set the state to OPENING.
            unsafe { (*self.order.get()).write(order) };
        }
        self.become_state(if place.is_some() { OPEN } else { ALONE });
        place.is_some()
    }

    /// The chunks, once the state is [`OPEN`].
    fn order(&self) -> Option<&ChunkOrder> {
        // SAFETY: written before the state was set.
        (self.state.load(SeqCst) == OPEN).then(|| unsafe { (*self.order.get()).assume_init_ref() })
    }
}

/// The next step of a process.
#[derive(Debug)]
enum ScanStep {
    Arrive,
    /// Reads the file from its start, up to the first row.
    First,
    /// Reads the rest in order.
    Alone,
    /// Takes chunks, after dropping data that was read in order. True: the header has not been read.
    Join(bool),
    Chunks(Chunks),
    Over,
}

/// A process's part in a parallel scan.
#[derive(Debug)]
pub struct Participant {
    /// None when the leader's workers have ended.
    shared: Option<Memory<Shared>>,
    /// A callback announces the end of the shared memory.
    announces_end: bool,
    /// 0 for the leader.
    number: usize,
    step: ScanStep,
    /// Bytes and rows that were reported to the leader.
    reported: (u64, u64),
}

impl Participant {
    pub(super) fn new(memory: Memory<Shared>, number: usize, announces_end: bool) -> Participant {
        Participant { shared: Some(memory), announces_end, number, step: ScanStep::Arrive, reported: (0, 0) }
    }

    /// Goes to this process's next record; false at the end. `skip` counts the file's records that are still to be left
    /// out: by the first process, for all. Guarded.
    #[inline]
    pub fn advance(&mut self, rows: &mut Rows, skip: &mut u64) -> Result<bool> {
        if let ScanStep::Chunks(_) = &self.step
            && rows.advance()?
        {
            return Ok(true);
        }
        self.advance_slowly(rows, skip)
    }

    fn advance_slowly(&mut self, rows: &mut Rows, skip: &mut u64) -> Result<bool> {
        let Some(memory) = &self.shared else { return Ok(false) };
        let shared = memory.task();
        loop {
            match &mut self.step {
                ScanStep::Arrive if !shared.admits(self.number) => self.step = ScanStep::Over,
                ScanStep::Arrive => {
                    let state = shared.arrive();
                    self.step = match state {
                        OPENING => ScanStep::First,
                        OPEN => ScanStep::Join(true),
                        _ => ScanStep::Over,
                    };
                    if state != OPENING {
                        *skip = 0;
                    }
                }
                ScanStep::First => {
                    if !rows.advance()? {
                        shared.become_state(ALONE);
                        self.step = ScanStep::Over;
                    } else if *skip == 0 {
                        self.step = if shared.open(rows) { ScanStep::Join(false) } else { ScanStep::Alone };
                        return Ok(true);
                    } else {
                        return Ok(true);
                    }
                }
                ScanStep::Alone => return rows.advance(),
                ScanStep::Join(_) if !memory.slice(shared.states).is_empty() => {
                    // SAFETY: the executor frees the shared memory after the last scan.
                    let states = unsafe { SharedRef::new(memory.slice(shared.states)) };
                    let Some(list) = rows.stream().files().cloned() else {
                        return Err(changed(rows.stream().source().name()));
                    };
                    rows.stream_mut().let_caller_switch();
                    rows.end_stream();
                    self.step = ScanStep::Chunks(Chunks::Listed(Box::new(Listed::new(&list, states, false))));
                }
                ScanStep::Join(is_new) => {
                    if *is_new {
                        rows.take_names()?;
                    }
                    let place = shared.order().map(|s| pg_bulk_text::reader::RecordStart {
                        eol: s.eol(),
                        offset: s.grid.base,
                        lines: 0,
                    });
                    let Some(cutter) = place.and_then(|place| rows.stream().cutter(place)) else {
                        return Err(changed(rows.stream().source().name()));
                    };
                    rows.end_stream();
                    self.step = ScanStep::Chunks(Chunks::Shared { cutter: Box::new(cutter), ticket: 0 });
                }
                ScanStep::Chunks(chunks) => {
                    let Some(order) = shared.order() else { return Ok(false) };
                    point!("scan.chunk");
                    pgrx::check_for_interrupts!();
                    let mut stages = Stages::default();
                    if !chunks.next(rows, order, self.number, &mut stages, |_| Ok(()), |_, _| ())? {
                        self.step = ScanStep::Over;
                    }
                    report(shared, self.number, &mut self.reported, rows);
                    if matches!(self.step, ScanStep::Chunks(_)) && rows.advance()? {
                        return Ok(true);
                    }
                }
                ScanStep::Over => return Ok(false),
            }
        }
    }

    fn shared(&self) -> Option<&Shared> {
        self.shared.as_ref().map(Memory::task)
    }

    /// Do the reader's next records belong to this process?
    #[inline]
    pub fn goes_on(&self) -> bool {
        matches!(self.step, ScanStep::Chunks(_) | ScanStep::Alone)
    }

    /// Bytes and rows of the workers, as known to the leader.
    pub fn others(&self) -> (u64, u64) {
        match self.shared() {
            Some(shared) if self.number == 0 => (shared.bytes.load(Relaxed), shared.rows.load(Relaxed)),
            _ => (0, 0),
        }
    }

    /// The workers' records with another number of fields that became rows.
    pub fn ragged_of_others(&self) -> Ragged {
        self.shared().map_or_else(Ragged::default, |shared| shared.ragged.total())
    }

    /// Reports this worker's bytes and rows to the leader.
    pub fn report(&mut self, rows: &mut Rows) {
        if let Some(memory) = &self.shared {
            report(memory.task(), self.number, &mut self.reported, rows);
        }
    }

    /// Reads the file again from its start.
    pub fn again(&mut self) {
        self.step = ScanStep::Arrive;
    }

    /// Ends the part: no more rows are requested, and the shared memory will be released.
    pub fn end(&mut self) {
        self.step = ScanStep::Over;
        if !self.announces_end {
            self.shared = None;
        }
    }
}

/// Adds a worker's bytes and rows since its last report.
fn report(shared: &Shared, number: usize, reported: &mut (u64, u64), rows: &mut Rows) {
    let now = (rows.stream().bytes_read(), rows.count());
    if number != 0 {
        shared.bytes.fetch_add(now.0.saturating_sub(reported.0), Relaxed);
        shared.rows.fetch_add(now.1.saturating_sub(reported.1), Relaxed);
        shared.ragged.take(&mut rows.ragged);
        *reported = now;
    }
}
