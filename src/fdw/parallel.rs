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
use std::ptr::NonNull;
use std::rc::Rc;

use pgrx::pg_sys;

use self::participant::{Participant, Shared, SharedList};
use super::aggregate;
use super::node::ScanNode;
use super::scan::Scan;
use crate::error::Result;
use crate::input::files::FileList;
use crate::rows::file_chunks::FileChunks;
use crate::server::callback::{Argument, Unused};
use crate::server::database::process_number;
use crate::server::points::point;
use crate::server::team::{Memory, at_detach};
use crate::server::worker_errors;

/// EstimateDSMForeignScan.
pub fn estimate(mut node: ScanNode<'_>, _context: Unused<pg_sys::ParallelContext>) -> Result<pg_sys::Size> {
    Ok(Memory::<Shared>::size(&SharedList::new(node.scan().and_then(shared_list)).image))
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

/// Shared memory of the size that [`estimate`] has returned. The executor keeps it until the workers have ended.
#[derive(Debug)]
#[repr(transparent)]
pub struct SharedPlace(*mut c_void);

// SAFETY: the executor passes such memory to the callbacks of a parallel scan.
unsafe impl Argument for SharedPlace {
    type Raw = *mut c_void;
}

/// Writes the shared state, which no other process reads yet. Guarded.
fn share(scan: &mut Scan, place: SharedPlace) -> Option<Memory<Shared>> {
    let list = SharedList::new(shared_list(scan));
    let places = places(scan);
    let shared = Shared::new(scan.rows.as_ref()?, &list, places);
    // SAFETY: `estimate` has asked for memory for the same list. The leader forgets it before it is released.
    Some(unsafe { Memory::write(place.0, list.image, shared) })
}

/// The parallel context of a scan's workers.
#[derive(Debug)]
#[repr(transparent)]
pub struct Context(NonNull<pg_sys::ParallelContext>);

// SAFETY: the executor passes a valid context, which is not null.
unsafe impl Argument for Context {
    type Raw = *mut pg_sys::ParallelContext;
}

/// InitializeDSMForeignScan.
pub fn initialize(mut node: ScanNode<'_>, mut context: Context, place: SharedPlace) -> Result<()> {
    let memory = node.estate().es_query_cxt;
    let Some(scan) = node.scan().filter(|scan| scan.rows.is_some()) else { return Ok(()) };
    let shared = share(scan, place);
    // SAFETY: a valid context, which is initialized. The scan and the memory of the query outlive its workers, also when
    // it fails.
    let announces_end = unsafe {
        if scan.rows.as_ref().is_some_and(|rows| !rows.stream().is_for_workers()) {
            // client_encoding has changed since planning. The leader reads alone: LaunchParallelWorkers (parallel.c)
            // then starts no workers, even after a rescan. A context without workers (nworkers) would have no memory to
            // share parameters in.
            context.0.as_mut().nworkers_to_launch = 0;
        }
        let announces_end = at_detach(context.0.as_ptr(), gather, std::ptr::from_mut(scan).cast());
        if announces_end {
            worker_errors::watch(context.0.as_ptr(), memory);
        }
        announces_end
    };
    scan.pump.sink.participant = shared.map(|shared| Participant::new(shared, 0, announces_end));
    Ok(())
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

/// ReInitializeDSMForeignScan: no worker runs.
pub fn reinitialize(
    mut node: ScanNode<'_>,
    _context: Unused<pg_sys::ParallelContext>,
    place: SharedPlace,
) -> Result<()> {
    if let Some(scan) = node.scan() {
        scan.add_others();
        share(scan, place);
    }
    Ok(())
}

/// InitializeWorkerForeignScan.
pub fn initialize_worker(mut node: ScanNode<'_>, _toc: Unused<pg_sys::shm_toc>, place: SharedPlace) -> Result<()> {
    // SAFETY: the leader has written its shared state, which stays until this process ends.
    let memory = unsafe { Memory::<Shared>::read(place.0) }?;
    point!("scan.worker");
    let shared = memory.task();
    let list = FileList::read(memory.slice(shared.list));
    if let Some(scan) = node.scan() {
        scan.open_in_worker(shared.encoding, list, shared.descriptor, shared.file)?;
        scan.pump.sink.participant = Some(Participant::new(memory, process_number(), true));
    }
    Ok(())
}

/// ShutdownForeignScan.
pub fn shutdown(mut node: ScanNode<'_>) -> Result<()> {
    if let Some(scan) = node.scan() {
        scan.stop_sharing();
    }
    Ok(())
}
