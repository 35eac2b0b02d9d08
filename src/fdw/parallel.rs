//! A scan of one file, or of a list, by several processes.
//!
//! ```text
//!   first to come:   header, first row ─► opens the chunks ─┬─► chunk ─► chunk ─► …
//!   the others:      wait ─────────────────────────────────┴─► chunk ─► chunk ─► …
//! ```
//!
//! Only a process that reads the file from its start finds the line ends, checks the header, and knows where the first
//! row begins. That is the process that requests a row first, leader or worker. So an error there is raised with COPY's
//! context, and no row is lost if the leader does not take part. The rest is read as in a load (`input::chunk_order`).
//!
//! **No process waits for one that may be waiting itself.** A row goes to the plan node above, which may request the
//! next one late or never: its queue is full, it builds a hash table, or there is a LIMIT. So a process that holds an
//! uncut chunk, or opens the chunks, returns no row before the others can continue without it. For the same reason a
//! bad row's error does not wait for the rows before it, as it does in a load: of several errors, any may be raised.
//!
//! **A scan that only aggregates waits for nothing but processors.** More processes than processors do no more work:
//! they share the processors, and one that waits for a processor with an uncut chunk delays the others. So such a scan,
//! unless it has conditions that may call user code, admits as many workers as keep all processors busy, beside the
//! leader if that takes part. Any other worker ends without a chunk ([`Shared::admits`]). No chunk is left over: each
//! admitted process continues until no chunk is left, because no node above stops it (core's LIMIT gets one row from
//! each process), and an error ends the query.
//!
//! A file that grows is read up to its size when the leader opened it. If its last line had no end then, one process
//! reads on from that line in order. If the file has been replaced since, a worker does not find it by name, and opens
//! the leader's descriptor through the operating system.

pub mod participant;

use std::ffi::c_void;
use std::rc::Rc;

use pgrx::{pg_guard, pg_sys};

use self::participant::{Participant, Shared, SharedList};
use super::aggregate;
use super::scan::Scan;
use super::scan::open::open_in_worker;
use crate::error::OrRaise;
use crate::input::files::FileList;
use crate::rows::file_chunks::FileChunks;
use crate::server::points::point;
use crate::server::team::{Memory, at_detach};
use crate::server::worker_errors;

/// # Safety
/// Called by the executor.
#[pg_guard]
pub unsafe extern "C-unwind" fn estimate_dsm(
    node: *mut pg_sys::ForeignScanState,
    _context: *mut pg_sys::ParallelContext,
) -> pg_sys::Size {
    // SAFETY: a scan that BeginForeignScan made.
    let scan = unsafe { (*node).fdw_state.cast::<Scan>().as_mut() };
    Memory::<Shared>::size(&SharedList::new(scan.and_then(shared_list)).image)
}

/// The files that the processes of a scan share.
fn shared_list(scan: &mut Scan) -> Option<Rc<FileList>> {
    let skips_nothing = scan.skips_nothing();
    let stream = scan.rows.as_mut().filter(|_| skips_nothing)?.stream_mut();
    if stream.files().is_none() || !stream.is_searchable() {
        return None;
    }
    stream.mark_splits(FileChunks::is_large);
    stream.files().cloned()
}

/// Most workers that may read: limited for a scan that aggregates.
fn places(scan: &Scan) -> u32 {
    if scan.aggregation.is_some() { aggregate::places(scan.qual.is_null()) } else { u32::MAX }
}

/// Writes the shared state. Guarded.
///
/// # Safety
/// Memory of the requested size, which no other process reads yet.
unsafe fn share(scan: &mut Scan, place: *mut c_void) -> Option<Memory<Shared>> {
    let list = SharedList::new(shared_list(scan));
    let places = places(scan);
    let shared = Shared::new(scan.rows.as_ref()?, &list, places);
    // SAFETY: this function's contract covers the memory.
    Some(unsafe { Memory::write(place, &list.image, shared) })
}

/// # Safety
/// Called by the executor.
#[pg_guard]
pub unsafe extern "C-unwind" fn initialize_dsm(
    node: *mut pg_sys::ForeignScanState,
    context: *mut pg_sys::ParallelContext,
    shared: *mut c_void,
) {
    // SAFETY: the executor's own structures, a scan that BeginForeignScan made, and memory of the requested size.
    unsafe {
        let scan = (*node).fdw_state.cast::<Scan>();
        if (*scan).rows.is_none() {
            return;
        }
        if (*scan).rows.as_ref().is_some_and(|rows| !rows.stream().is_for_workers()) {
            // client_encoding has changed since planning. The leader reads alone: LaunchParallelWorkers (parallel.c)
            // then starts no workers, even after a rescan. A context without workers (nworkers) would have no memory to
            // share parameters in.
            (*context).nworkers_to_launch = 0;
        }
        let memory = share(&mut *scan, shared);
        let announces_end = at_detach(context, gather, scan.cast());
        if announces_end {
            worker_errors::watch(context, (*(*node).ss.ps.state).es_query_cxt);
        }
        (*scan).pump.sink.participant = memory.map(|memory| Participant::new(memory, 0, announces_end));
    }
}

/// Called after the workers have ended, and before the shared memory is released.
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
        share(scan, shared);
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
    // SAFETY: the executor's own structures, a scan that BeginForeignScan made, and the leader's shared state.
    unsafe {
        let memory = Memory::<Shared>::read(shared).or_raise();
        point!("scan.worker");
        let shared = memory.task();
        let list = FileList::read(memory.slice(shared.list));
        open_in_worker(node, shared.encoding, list, shared.descriptor, shared.file).or_raise();
        let scan = &mut *(*node).fdw_state.cast::<Scan>();
        let number = usize::try_from(pg_sys::ParallelWorkerNumber).unwrap_or(0) + 1;
        scan.pump.sink.participant = Some(Participant::new(memory, number, true));
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
