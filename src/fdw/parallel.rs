//! A scan of one file by several processes.
//!
//! ```text
//!   first to come:   header, first row ─► opens the stretches ─┬─► chunk ─► chunk ─► …
//!   the others:      wait ─────────────────────────────────────┴─► chunk ─► chunk ─► …
//! ```
//!
//! How lines end, whether the header is right, and where the first row begins, only who reads the file from its start can
//! tell. That is whoever asks for a row first, leader or worker, so that an error there is raised where COPY's context is,
//! and no row is lost if the leader takes no part. The rest is the loader's way through a file (`pg::stretches`).
//!
//! **Nobody waits for a process that may be waiting itself.** A row is handed on to the plan above, which may not ask for
//! the next one for long, or ever: a queue is full, a hash table is being built, there is a LIMIT. So whoever has a stretch
//! or opens them returns no row before others can go on without it. It is also why a bad row's error does not wait for the
//! rows before it, as a load's does: of several, any may be raised.
//!
//! **Who only adds rows up waits for nothing but processors.** More processes than there are of those do no more work: they
//! take turns at a processor, and one that waits for it with a stretch that is not cut keeps others waiting who have
//! theirs. So such a scan, where no condition is anybody's code, has places for as many workers as keep all processors busy,
//! beside the leader if that takes part, and a worker that finds none goes home without a stretch ([`Shared::admits`]). No
//! stretch is left behind: whoever has a place takes the last one, since there is nobody above that might stop it before
//! (core's LIMIT gets one row of each process), and an error ends the query.
//!
//! A file that grows is read as far as it was when the leader opened it, up to a last line without an end. One that has been
//! replaced since is read all the same: who does not find it by its name any more asks the system for what the leader has open.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

use pg_bulk_format::dialect::Eol;
use pg_bulk_format::reader::Place;
use pgrx::{pg_guard, pg_sys};

use super::aggregate;
use super::scan::{self, Scan};
use crate::error::{OrRaise, Result};
use crate::pg::build_id::{build_id, check_build};
use crate::pg::changed::Changed;
use crate::pg::chunk::{Identity, changed};
use crate::pg::chunks::Chunks;
use crate::pg::files::FileList;
use crate::pg::parallel::at_detach;
use crate::pg::points::point;
use crate::pg::row::Rows;
use crate::pg::source::Descriptor;
use crate::pg::stages::Stages;
use crate::pg::stretches::{Grid, Stretches};
use crate::pg::units::{FileState, Listed, Units};
use crate::pg::worker_errors;

/// Nobody has come yet.
const NEW: u32 = 0;
/// Somebody reads the first row.
const OPENING: u32 = 1;
/// There are stretches.
const OPEN: u32 = 2;
/// Whoever came first reads all of it.
const ALONE: u32 = 3;

/// What the processes of a scan share.
#[derive(Debug)]
#[repr(C)]
pub struct Shared {
    /// The build of the leader's library.
    build: u64,
    /// The leader's file, as it was when the scan began; none that is not a regular one has this identity.
    file: Identity,
    /// What the leader has open.
    descriptor: Descriptor,
    /// The file's encoding: a worker does not know the client's.
    encoding: i32,
    /// Files of a list, with a state for each behind this, and then the list itself. 0 if it is not shared.
    files: usize,
    state: AtomicU32,
    changed: Changed,
    /// Workers that have a place in the scan at most, and those that have come for one.
    places: u32,
    came: AtomicU32,
    /// Made when the state becomes [`OPEN`].
    stretches: UnsafeCell<MaybeUninit<Stretches>>,
    /// What workers have read.
    bytes: AtomicU64,
    rows: AtomicU64,
}

// SAFETY: whoever brings the state to OPENING is the only one who writes the stretches, and all others look at them after
// they have seen OPEN. The rest is atomic, made to be shared, or not written once there are workers.
unsafe impl Sync for Shared {}

impl Shared {
    fn new(rows: &Rows, list: Option<&FileList>, places: u32) -> Shared {
        let stream = rows.stream();
        let mut file = stream.identity().unwrap_or_default();
        // As long as the leader takes it for, who has opened it before all others: what is behind that, not all of them see.
        file.size = stream.size().unwrap_or(file.size);
        let mut stretches = MaybeUninit::uninit();
        if let Some(list) = list {
            let start = Place { eol: Eol::Nl, offset: 0, lines: 0 };
            stretches.write(Stretches::new(Units::of(list).grid(), start));
        }
        Shared {
            build: build_id(),
            file,
            descriptor: stream.descriptor(),
            encoding: stream.encoding(),
            files: list.map_or(0, |list| list.files.len()),
            // What each file begins with, whoever opens it sees.
            state: AtomicU32::new(if list.is_some() { OPEN } else { NEW }),
            changed: Changed::new(),
            places,
            came: AtomicU32::new(0),
            stretches: UnsafeCell::new(stretches),
            bytes: AtomicU64::new(0),
            rows: AtomicU64::new(0),
        }
    }

    /// Is there a place for one more process? The leader always has its own.
    fn admits(&self, number: usize) -> bool {
        number == 0 || self.came.fetch_add(1, SeqCst) < self.places
    }

    /// Come to the scan: [`OPENING`] for the first one, else how it is read. Guarded, and interruptible.
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

    /// Let others read what is behind the current row, if it can be read in stretches. Guarded.
    fn open(&self, rows: &Rows) -> bool {
        let stream = rows.stream();
        let place = rows.reader().place_behind().filter(|_| stream.has_chunks() && self.file != Identity::default());
        if let Some(place) = place {
            let stretches = Stretches::new(Grid::of_scan(place.offset, self.file.size), place);
            // SAFETY: we have brought the state to OPENING.
            unsafe { (*self.stretches.get()).write(stretches) };
        }
        self.become_state(if place.is_some() { OPEN } else { ALONE });
        place.is_some()
    }

    /// What processes share of each file.
    fn states(&self) -> *const FileState {
        // SAFETY: behind the struct, if there are files.
        unsafe { std::ptr::from_ref(self).add(1).cast() }
    }

    /// The stretches, once the state is [`OPEN`].
    fn stretches(&self) -> Option<&Stretches> {
        // SAFETY: written before the state was.
        (self.state.load(SeqCst) == OPEN).then(|| unsafe { (*self.stretches.get()).assume_init_ref() })
    }
}

/// What a process does next.
#[derive(Debug)]
enum Step {
    Arrive,
    /// Read the file from its start, up to the first row.
    First,
    /// Read on in order.
    Alone,
    /// Take chunks, once what was read in order is forgotten. If nothing was, the header has not been read.
    Join(bool),
    Chunks(Chunks),
    Over,
}

/// A process's part in a scan with others.
#[derive(Debug)]
pub struct Part {
    /// There until the leader's workers are gone; then null.
    shared: *const Shared,
    /// Somebody tells when it is going to be gone.
    told: bool,
    /// 0 for the leader.
    number: usize,
    step: Step,
    /// Bytes and rows that the others know of.
    reported: (u64, u64),
}

impl Part {
    fn new(shared: *const Shared, number: usize, told: bool) -> Part {
        Part { shared, told, number, step: Step::Arrive, reported: (0, 0) }
    }

    /// Go to this process's next record; false when there is none. `skip` are the records of the file that are still to be
    /// left out: by the first process, for all. Guarded.
    #[inline]
    pub fn advance(&mut self, rows: &mut Rows, skip: &mut u64) -> Result<bool> {
        if let Step::Chunks(_) = &self.step
            && rows.advance()?
        {
            return Ok(true);
        }
        self.advance_slowly(rows, skip)
    }

    fn advance_slowly(&mut self, rows: &mut Rows, skip: &mut u64) -> Result<bool> {
        // SAFETY: as in `shared`.
        let Some(shared) = (unsafe { self.shared.as_ref() }) else { return Ok(false) };
        loop {
            match &mut self.step {
                Step::Arrive if !shared.admits(self.number) => self.step = Step::Over,
                Step::Arrive => {
                    let state = shared.arrive();
                    self.step = match state {
                        OPENING => Step::First,
                        OPEN => Step::Join(true),
                        _ => Step::Over,
                    };
                    if state != OPENING {
                        *skip = 0;
                    }
                }
                Step::First => {
                    if !rows.advance()? {
                        shared.become_state(ALONE);
                        self.step = Step::Over;
                    } else if *skip == 0 {
                        self.step = if shared.open(rows) { Step::Join(false) } else { Step::Alone };
                        return Ok(true);
                    } else {
                        return Ok(true);
                    }
                }
                Step::Alone => return rows.advance(),
                Step::Join(_) if shared.files > 0 => {
                    let states = shared.states();
                    let Some(list) = rows.stream().files().cloned() else {
                        return Err(changed(rows.stream().source().name()));
                    };
                    rows.stream_mut().wait_for_turns();
                    rows.end_stream();
                    self.step = Step::Chunks(Chunks::Listed(Box::new(Listed::new(&list, states, false))));
                }
                Step::Join(is_new) => {
                    if *is_new {
                        rows.take_names()?;
                    }
                    let place = shared.stretches().map(|s| pg_bulk_format::reader::Place {
                        eol: s.eol(),
                        offset: s.grid.base,
                        lines: 0,
                    });
                    let Some(cutter) = place.and_then(|place| rows.stream().cutter(place)) else {
                        return Err(changed(rows.stream().source().name()));
                    };
                    rows.end_stream();
                    self.step = Step::Chunks(Chunks::Shared { cutter: Box::new(cutter), number: 0 });
                }
                Step::Chunks(chunks) => {
                    let Some(stretches) = shared.stretches() else { return Ok(false) };
                    point!("scan.chunk");
                    pgrx::check_for_interrupts!();
                    let mut stages = Stages::default();
                    if !chunks.next(rows, stretches, self.number, &mut stages, |_| Ok(()), |_, _| ())? {
                        self.step = Step::Over;
                    }
                    self.report(rows);
                    if matches!(self.step, Step::Chunks(_)) && rows.advance()? {
                        return Ok(true);
                    }
                }
                Step::Over => return Ok(false),
            }
        }
    }

    fn shared(&self) -> Option<&Shared> {
        // SAFETY: null once it is gone.
        unsafe { self.shared.as_ref() }
    }

    /// Are the records that the reader has next this process's?
    #[inline]
    pub fn goes_on(&self) -> bool {
        matches!(self.step, Step::Chunks(_) | Step::Alone)
    }

    /// Bytes and rows of the others, as far as the leader knows.
    pub fn others(&self) -> (u64, u64) {
        match self.shared() {
            Some(shared) if self.number == 0 => (shared.bytes.load(Relaxed), shared.rows.load(Relaxed)),
            _ => (0, 0),
        }
    }

    /// Let the leader know what this worker has read.
    pub fn report(&mut self, rows: &Rows) {
        let now = (rows.stream().bytes_read(), rows.count());
        if let Some(shared) = self.shared()
            && self.number != 0
        {
            shared.bytes.fetch_add(now.0.saturating_sub(self.reported.0), Relaxed);
            shared.rows.fetch_add(now.1.saturating_sub(self.reported.1), Relaxed);
            self.reported = now;
        }
    }

    /// The file is read once more, from its start.
    pub fn again(&mut self) {
        self.step = Step::Arrive;
    }

    /// Rows are not asked for any more, and what is shared is going to be gone.
    pub fn end(&mut self) {
        self.step = Step::Over;
        if !self.told {
            self.shared = std::ptr::null();
        }
    }
}

/// # Safety
/// Called by the executor.
#[pg_guard]
pub unsafe extern "C-unwind" fn estimate_dsm(
    node: *mut pg_sys::ForeignScanState,
    _context: *mut pg_sys::ParallelContext,
) -> pg_sys::Size {
    // SAFETY: a scan that BeginForeignScan made.
    let scan = unsafe { (*node).fdw_state.cast::<Scan>().as_mut() };
    let list = scan.and_then(shared_list);
    size_of::<Shared>() + list.map_or(0, |(list, bytes)| room_for(&list, &bytes))
}

/// The files that the processes of a scan share, and the same as bytes.
fn shared_list(scan: &mut Scan) -> Option<(Rc<FileList>, Vec<u8>)> {
    let skips_nothing = scan.skips_nothing();
    let stream = scan.rows.as_mut().filter(|_| skips_nothing)?.stream_mut();
    if stream.files().is_none() || !stream.tells_bytes() {
        return None;
    }
    stream.mark_splits(Units::is_large);
    let list = Rc::clone(stream.files()?);
    let bytes = list.write();
    Some((list, bytes))
}

/// Workers that a scan has a place for: those that were planned, and none that the setting excludes by now.
fn places(scan: &Scan) -> u32 {
    if scan.aggregation.is_some() { aggregate::places(scan.qual.is_null()) } else { u32::MAX }
}

fn room_for(list: &FileList, bytes: &[u8]) -> usize {
    list.files.len() * size_of::<FileState>() + size_of::<u64>() + bytes.len()
}

/// Put there what the processes share. Guarded.
///
/// # Safety
/// Room of the size asked for, in which nobody looks now.
unsafe fn share(scan: &mut Scan, shared: *mut Shared) {
    let list = shared_list(scan);
    let places = places(scan);
    let Some(rows) = &scan.rows else { return };
    // SAFETY: the caller vouches for the room.
    unsafe {
        shared.write(Shared::new(rows, list.as_ref().map(|(list, _)| &**list), places));
        let Some((list, bytes)) = list else { return };
        let states = shared.add(1).cast::<FileState>();
        (0..list.files.len()).for_each(|i| states.add(i).write(FileState::new()));
        let text = states.add(list.files.len()).cast::<u64>();
        text.write(bytes.len() as u64);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), text.add(1).cast::<u8>(), bytes.len());
    }
}

/// The list that [`share`] has put there, if it did.
///
/// # Safety
/// What the leader has shared.
unsafe fn list_of(shared: *const Shared) -> Option<FileList> {
    // SAFETY: the caller vouches for it.
    unsafe {
        let files = (*shared).files;
        if files == 0 {
            return None;
        }
        let text = shared.add(1).cast::<FileState>().add(files).cast::<u64>();
        let len = usize::try_from(text.read()).unwrap_or(0);
        FileList::read(std::slice::from_raw_parts(text.add(1).cast::<u8>(), len))
    }
}

/// # Safety
/// Called by the executor.
#[pg_guard]
pub unsafe extern "C-unwind" fn initialize_dsm(
    node: *mut pg_sys::ForeignScanState,
    context: *mut pg_sys::ParallelContext,
    shared: *mut c_void,
) {
    // SAFETY: the executor's own structures, a scan that BeginForeignScan made, and room of the size asked for.
    unsafe {
        let scan = (*node).fdw_state.cast::<Scan>();
        if (*scan).rows.is_none() {
            return;
        }
        if (*scan).rows.as_ref().is_some_and(|rows| !rows.stream().is_for_workers()) {
            // client_encoding has changed since it was planned. The leader reads alone: LaunchParallelWorkers (parallel.c) starts nobody then,
            // also not when the scan is begun anew. A context without workers (nworkers) would have no memory to share parameters in.
            (*context).nworkers_to_launch = 0;
        }
        let shared = shared.cast::<Shared>();
        share(&mut *scan, shared);
        let told = at_detach(context, gather, scan.cast());
        if told {
            worker_errors::watch(context, (*(*node).ss.ps.state).es_query_cxt);
        }
        (*scan).part = Some(Part::new(shared, 0, told));
    }
}

/// The workers are gone, and what was shared is going to be.
///
/// # Safety
/// Called by the server, with the leader's scan.
unsafe extern "C-unwind" fn gather(_segment: *mut pg_sys::dsm_segment, scan: pg_sys::Datum) {
    // SAFETY: the memory of the query outlives its workers, also when it fails.
    unsafe { (*scan.cast_mut_ptr::<Scan>()).take_others() };
    worker_errors::forget();
}

/// # Safety
/// Called by the executor, when no worker runs.
#[pg_guard]
pub unsafe extern "C-unwind" fn reinitialize_dsm(
    node: *mut pg_sys::ForeignScanState,
    _context: *mut pg_sys::ParallelContext,
    shared: *mut c_void,
) {
    // SAFETY: as in `initialize_dsm`.
    unsafe {
        let scan = &mut *(*node).fdw_state.cast::<Scan>();
        scan.add_others();
        share(scan, shared.cast::<Shared>());
    }
}

/// # Safety
/// Called by the executor.
#[pg_guard]
pub unsafe extern "C-unwind" fn initialize_worker(
    node: *mut pg_sys::ForeignScanState,
    _toc: *mut pg_sys::shm_toc,
    shared: *mut c_void,
) {
    // SAFETY: the executor's own structures, a scan that BeginForeignScan made, and what the leader has initialised, which
    // begins with the build's number in every build.
    unsafe {
        let shared = shared.cast::<Shared>().cast_const();
        check_build((*shared).build).or_raise();
        point!("scan.worker");
        let file = (*shared).file;
        let is_same = |rows: &Rows| rows.stream().identity().is_some_and(|identity| identity.continues(file));
        let list = list_of(shared);
        scan::open::open_in_worker(node, (*shared).encoding, list, (*shared).descriptor, is_same).or_raise();
        let scan = &mut *(*node).fdw_state.cast::<Scan>();
        let number = usize::try_from(pg_sys::ParallelWorkerNumber).unwrap_or(0) + 1;
        scan.part = Some(Part::new(shared, number, true));
    }
}

/// # Safety
/// Called by the executor.
#[pg_guard]
pub unsafe extern "C-unwind" fn shutdown_foreign_scan(node: *mut pg_sys::ForeignScanState) {
    // SAFETY: the executor's own structures, and a scan that BeginForeignScan made, or null after a bare EXPLAIN.
    unsafe {
        let Some(scan) = (*node).fdw_state.cast::<Scan>().as_mut() else { return };
        scan.stop_sharing();
    }
}
