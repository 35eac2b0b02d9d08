//! Parallel workers in the transaction of this backend.
//!
//! ```text
//!   Parallel::new ─► estimate ─► initialize ─► insert, queue … ─► launch ─► (work) ─► finish
//! ```
//!
//! Between `new` and `finish` the transaction is in parallel mode: it assigns no transaction id, advances no command
//! counter and updates no row. After an error, the end of the transaction or subtransaction stops the workers and
//! releases the memory, so dropping a [`Parallel`] does nothing.

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
    /// raised with the error context of this call.
    pub fn new(function: &CStr, workers: usize) -> Parallel {
        let workers = i32::try_from(workers).unwrap_or(0);
        // SAFETY: guarded calls.
        unsafe {
            pg_sys::EnterParallelMode();
            Parallel(pg_sys::CreateParallelContext(c"$libdir/pg_bulk".as_ptr(), function.as_ptr(), workers))
        }
    }

    /// Reserve `len` bytes of shared memory. To be called before [`Parallel::initialize`].
    pub fn estimate(&mut self, len: usize) {
        // SAFETY: a valid context; shm_toc_estimate_chunk and shm_toc_estimate_keys (shm_toc.h).
        unsafe {
            (*self.0).estimator.space_for_chunks += len.next_multiple_of(ALIGN);
            (*self.0).estimator.number_of_keys += 1;
        }
    }

    /// Create the shared memory. Guarded.
    pub fn initialize(&mut self) {
        // SAFETY: a guarded call on a valid context.
        unsafe { pg_sys::InitializeParallelDSM(self.0) };
    }

    /// Highest number of workers. Zero if there is no dynamic shared memory.
    pub fn most_workers(&self) -> usize {
        // SAFETY: a valid context.
        usize::try_from(unsafe { (*self.0).nworkers }).unwrap_or(0)
    }

    /// Take `len` bytes that were estimated and enter them under a key, with maximal alignment. Guarded.
    pub fn insert(&mut self, key: u64, len: usize) -> *mut u8 {
        // SAFETY: guarded calls on a valid context, initialized.
        unsafe {
            let space = pg_sys::shm_toc_allocate((*self.0).toc, len);
            pg_sys::shm_toc_insert((*self.0).toc, key, space);
            space.cast()
        }
    }

    /// A message queue that this process receives from, in memory that was inserted. Guarded.
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

    /// Start the workers, and return the number of those started. Guarded.
    pub fn launch(&mut self) -> usize {
        // SAFETY: a guarded call on a valid context.
        unsafe {
            pg_sys::LaunchParallelWorkers(self.0);
        }
        self.launched()
    }

    /// Number of workers that were started.
    pub fn launched(&self) -> usize {
        // SAFETY: a valid context.
        usize::try_from(unsafe { (*self.0).nworkers_launched }).unwrap_or(0)
    }

    /// Attach a queue to its worker, so that the receiver notices the death of that worker. Guarded.
    ///
    /// # Safety
    /// A queue of [`Parallel::queue`], and a worker that was launched.
    pub unsafe fn belongs(&self, queue: *mut pg_sys::shm_mq_handle, worker: usize) {
        // SAFETY: this function's contract covers both arguments.
        unsafe { pg_sys::shm_mq_set_handle(queue, (*(*self.0).worker.add(worker)).bgwhandle) };
    }

    /// Wait until the workers have finished, and raise their errors. The shared memory stays. Guarded.
    pub fn wait(&self) {
        // SAFETY: a guarded call on a valid context.
        unsafe { pg_sys::WaitForParallelWorkersToFinish(self.0) };
    }

    /// Wait like [`Parallel::wait`], but from a plain frame, so that errors of workers keep their CONTEXT.
    ///
    /// # Safety
    /// A plain frame.
    pub unsafe fn wait_plainly(&self) {
        // SAFETY: this function's contract covers the frame; a valid context.
        unsafe { unguarded::WaitForParallelWorkersToFinish(self.0) };
    }

    /// Stop the workers at once, and stay in parallel mode, for a transaction that is going to fail. The shared memory
    /// is released. Guarded.
    pub fn destroy(self) {
        // SAFETY: a guarded call on a valid context.
        unsafe { pg_sys::DestroyParallelContext(self.0) };
    }

    /// Wait for the workers and leave parallel mode. The shared memory is released. Guarded.
    pub fn finish(self) {
        // SAFETY: guarded calls on a valid context.
        unsafe {
            pg_sys::WaitForParallelWorkersToFinish(self.0);
            pg_sys::DestroyParallelContext(self.0);
            pg_sys::ExitParallelMode();
        }
    }
}

/// Register `function`, to be called with `argument` before the context's shared memory is detached, when the workers
/// are gone. False if there is no shared memory and so no worker. Guarded.
///
/// # Safety
/// A valid context, initialized; a function that raises nothing, and that may be called with the argument until then.
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

/// Return the memory that the leader has inserted under a key. Guarded.
///
/// # Safety
/// The table of contents that a worker was started with, and a key that was inserted.
pub unsafe fn lookup(toc: *mut pg_sys::shm_toc, key: u64) -> *mut c_void {
    // SAFETY: this function's contract covers both arguments.
    unsafe { pg_sys::shm_toc_lookup(toc, key, false) }
}
