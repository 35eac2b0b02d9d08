//! Words in shared memory, for processes that talk to each other and share nothing else.
//!
//! The segment stays as long as one of them is attached to it, and each is as long as it lives: nobody's memory goes
//! away when the other one ends.

use std::sync::atomic::AtomicU64;

use pgrx::pg_sys;

use super::attempt::complaint;
use super::compat;
use super::unguarded::{self, Opaque};

/// A segment of this size, or the one that has a handle. Without one that is not to be had, for there is no space or no
/// descriptor left, nothing is wrong.
struct Request {
    size: usize,
    handle: Option<pg_sys::dsm_handle>,
}

impl Request {
    /// Null if it is not to be had. Guarded.
    fn segment(self) -> *mut pg_sys::dsm_segment {
        let mut call = (self, std::ptr::null_mut());
        // SAFETY: what the server does in it holds no lock where it may raise an error; a descriptor that is left goes with the
        // process.
        let error = unsafe { complaint(Request::make, (&raw mut call).cast()) };
        if !error.is_null() {
            // SAFETY: a guarded call on an error that was caught.
            unsafe { pg_sys::FreeErrorData(error) };
            return std::ptr::null_mut();
        }
        call.1
    }

    /// # Safety
    /// A plain frame; a request, and a place for the segment.
    unsafe extern "C-unwind" fn make(call: Opaque) {
        // SAFETY: this function's contract covers both arguments.
        unsafe {
            let call = call.cast::<(Request, *mut pg_sys::dsm_segment)>();
            let flags = pg_sys::DSM_CREATE_NULL_IF_MAXSEGMENTS.cast_signed();
            (*call).1 = match (*call).0.handle {
                None => unguarded::dsm_create((*call).0.size, flags),
                Some(handle) => unguarded::dsm_attach(handle),
            };
        }
    }
}

/// So many words.
#[derive(Debug, Clone, Copy)]
pub struct SharedWords {
    segment: *mut pg_sys::dsm_segment,
    count: usize,
}

impl SharedWords {
    /// New ones, which are 0. None if there is no shared memory for them. Guarded.
    pub fn create(count: usize) -> Option<SharedWords> {
        // SAFETY: guarded calls; the segment is as large as the words, which are aligned, and stays attached.
        unsafe {
            let segment = Request { size: count * size_of::<AtomicU64>(), handle: None }.segment();
            if segment.is_null() {
                return None;
            }
            pg_sys::dsm_pin_mapping(segment);
            pg_sys::dsm_segment_address(segment).cast::<u64>().write_bytes(0, count);
            Some(SharedWords { segment, count })
        }
    }

    /// Those that another process has made, and so many. None if it is gone. Guarded.
    pub fn attach(handle: u32, count: usize) -> Option<SharedWords> {
        if handle == compat::NO_SEGMENT {
            return None;
        }
        // SAFETY: guarded calls; what is attached stays so.
        unsafe {
            let segment = Request { size: 0, handle: Some(handle) }.segment();
            if segment.is_null() {
                return None;
            }
            pg_sys::dsm_pin_mapping(segment);
            Some(SharedWords { segment, count })
        }
    }

    /// What another process needs to attach; never 0.
    pub fn handle(&self) -> u32 {
        // SAFETY: attached.
        unsafe { pg_sys::dsm_segment_handle(self.segment) }
    }

    pub fn get(&self, index: usize) -> Option<&'static AtomicU64> {
        // SAFETY: attached for the life of the process, and within it; everybody uses the words as atomic ones.
        (index < self.count).then(|| unsafe {
            let words = pg_sys::dsm_segment_address(self.segment).cast::<AtomicU64>();
            &*words.add(index)
        })
    }
}
