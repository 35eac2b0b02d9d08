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

pub mod part;

use std::ffi::c_void;
use std::rc::Rc;

use pgrx::{pg_guard, pg_sys};

use self::part::{Part, Shared};
use super::aggregate;
use super::scan::Scan;
use super::scan::open::open_in_worker;
use crate::error::OrRaise;
use crate::pg::build_id::check_build;
use crate::pg::files::FileList;
use crate::pg::parallel::at_detach;
use crate::pg::points::point;
use crate::pg::units::{FileState, Units};
use crate::pg::worker_errors;

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
    // SAFETY: this function's contract covers the room.
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
    // SAFETY: this function's contract covers the argument.
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
        let list = list_of(shared);
        open_in_worker(node, (*shared).encoding, list, (*shared).descriptor, (*shared).file).or_raise();
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
