//! Parallel workers of this backend's transaction.
//!
//! ```text
//!   Parallel::new ─► estimate ─► initialize ─► insert, queue … ─► launch ─► (work) ─► finish
//! ```
//!
//! Between `new` and `finish` the transaction is in parallel mode: no xid is taken, no command is counted on, no row is
//! updated. An error leaves all of it to the end of the transaction or subtransaction, which stops the workers and
//! releases the memory; so nothing is done when a [`Parallel`] is dropped.

use std::ffi::{CStr, c_void};

use pgrx::pg_sys;

use super::unguarded;

/// `BUFFERALIGN` (c.h)
const ALIGN: usize = 32;

/// A parallel context.
#[derive(Debug)]
pub struct Parallel(*mut pg_sys::ParallelContext);

impl Parallel {
    /// Enter parallel mode, to run `function` of this library in `workers` workers. Guarded. Errors of workers are
    /// raised with the error context that is current now.
    pub fn new(function: &CStr, workers: usize) -> Parallel {
        let workers = i32::try_from(workers).unwrap_or(0);
        // SAFETY: guarded calls.
        unsafe {
            pg_sys::EnterParallelMode();
            Parallel(pg_sys::CreateParallelContext(c"$libdir/pg_bulk".as_ptr(), function.as_ptr(), workers))
        }
    }

    /// Make room for something of `len` bytes. Before [`Parallel::initialize`].
    pub fn estimate(&mut self, len: usize) {
        // SAFETY: a valid context; shm_toc_estimate_chunk and shm_toc_estimate_keys (shm_toc.h).
        unsafe {
            (*self.0).estimator.space_for_chunks += len.next_multiple_of(ALIGN);
            (*self.0).estimator.number_of_keys += 1;
        }
    }

    /// Make the shared memory. Guarded.
    pub fn initialize(&mut self) {
        // SAFETY: a guarded call on a valid context.
        unsafe { pg_sys::InitializeParallelDSM(self.0) };
    }

    /// Workers that there may be. Without dynamic shared memory there are none.
    pub fn most_workers(&self) -> usize {
        // SAFETY: a valid context.
        usize::try_from(unsafe { (*self.0).nworkers }).unwrap_or(0)
    }

    /// Room for `len` bytes that was estimated, under a key. Aligned for everything. Guarded.
    pub fn insert(&mut self, key: u64, len: usize) -> *mut u8 {
        // SAFETY: guarded calls on a valid context, initialised.
        unsafe {
            let space = pg_sys::shm_toc_allocate((*self.0).toc, len);
            pg_sys::shm_toc_insert((*self.0).toc, key, space);
            space.cast()
        }
    }

    /// A queue whose receiver we are, in room that was inserted. Guarded.
    ///
    /// # Safety
    /// `space` has `len` bytes.
    pub unsafe fn queue(&mut self, space: *mut u8, len: usize) -> *mut pg_sys::shm_mq_handle {
        // SAFETY: this function's contract covers the space; guarded calls.
        unsafe {
            let queue = pg_sys::shm_mq_create(space.cast(), len);
            pg_sys::shm_mq_set_receiver(queue, pg_sys::MyProc);
            pg_sys::shm_mq_attach(queue, (*self.0).seg, std::ptr::null_mut())
        }
    }

    /// Start the workers. Returns how many could be started. Guarded.
    pub fn launch(&mut self) -> usize {
        // SAFETY: a guarded call on a valid context.
        unsafe {
            pg_sys::LaunchParallelWorkers(self.0);
        }
        self.launched()
    }

    /// Workers that were started.
    pub fn launched(&self) -> usize {
        // SAFETY: a valid context.
        usize::try_from(unsafe { (*self.0).nworkers_launched }).unwrap_or(0)
    }

    /// Let a queue know whose it is, so that it notices when that worker dies. Guarded.
    ///
    /// # Safety
    /// A queue of [`Parallel::queue`], and a worker that was launched.
    pub unsafe fn belongs(&self, queue: *mut pg_sys::shm_mq_handle, worker: usize) {
        // SAFETY: this function's contract covers both arguments.
        unsafe { pg_sys::shm_mq_set_handle(queue, (*(*self.0).worker.add(worker)).bgwhandle) };
    }

    /// Wait for the workers to be done; raises their errors. What they shared is still there. Guarded.
    pub fn wait(&self) {
        // SAFETY: a guarded call on a valid context.
        unsafe { pg_sys::WaitForParallelWorkersToFinish(self.0) };
    }

    /// The same for a plain frame, where errors of workers are raised whole.
    ///
    /// # Safety
    /// A plain frame.
    pub unsafe fn wait_plainly(&self) {
        // SAFETY: this function's contract covers the frame; a valid context.
        unsafe { unguarded::WaitForParallelWorkersToFinish(self.0) };
    }

    /// End the workers, wherever they are, and stay in parallel mode: the transaction is going to fail. What was shared is
    /// gone. Guarded.
    pub fn destroy(self) {
        // SAFETY: a guarded call on a valid context.
        unsafe { pg_sys::DestroyParallelContext(self.0) };
    }

    /// Wait for the workers, and leave parallel mode. What was shared is gone. Guarded.
    pub fn finish(self) {
        // SAFETY: guarded calls on a valid context.
        unsafe {
            pg_sys::WaitForParallelWorkersToFinish(self.0);
            pg_sys::DestroyParallelContext(self.0);
            pg_sys::ExitParallelMode();
        }
    }
}

/// Have `function` called with `argument` when what the context's processes share is about to go, and the workers are gone.
/// False if there is no shared memory, nor then any worker. Guarded.
///
/// # Safety
/// A valid context, initialised; a function that raises nothing, and that may be called with the argument until then.
pub unsafe fn at_detach(
    context: *mut pg_sys::ParallelContext,
    function: unsafe extern "C-unwind" fn(*mut pg_sys::dsm_segment, pg_sys::Datum),
    argument: *mut c_void,
) -> bool {
    // SAFETY: this function's contract covers all arguments; a guarded call.
    unsafe {
        if (*context).seg.is_null() {
            return false;
        }
        pg_sys::on_dsm_detach((*context).seg, Some(function), pg_sys::Datum::from(argument));
    }
    true
}

/// What the leader has inserted under a key. Guarded.
///
/// # Safety
/// The table of contents that a worker was started with, and a key that was inserted.
pub unsafe fn lookup(toc: *mut pg_sys::shm_toc, key: u64) -> *mut c_void {
    // SAFETY: this function's contract covers both arguments.
    unsafe { pg_sys::shm_toc_lookup(toc, key, false) }
}
