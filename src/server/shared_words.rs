//! Words in shared memory, for processes that share nothing else.
//!
//! A process stays attached to the segment until it exits, and the segment lasts while any process is attached. So
//! memory in use does not go away when another process ends.

use std::sync::atomic::AtomicU64;

use pgrx::pg_sys;

use super::attempt::complaint;
use super::compat;
use super::unguarded;

/// A request for a new segment, or for the one with this handle. A failure for lack of space or of a descriptor is not
/// an error.
struct Request {
    size: usize,
    handle: Option<pg_sys::dsm_handle>,
}

impl Request {
    /// Null if the segment is not available. Guarded.
    fn segment(self) -> *mut pg_sys::dsm_segment {
        let mut segment = std::ptr::null_mut();
        let flags = pg_sys::DSM_CREATE_NULL_IF_MAXSEGMENTS.cast_signed();
        // SAFETY: the server's code holds no lock where it may raise an error; a descriptor that it leaves open is
        // closed with the process. The closure owns nothing.
        let error = unsafe {
            complaint(|| {
                segment = match self.handle {
                    None => unguarded::dsm_create(self.size, flags),
                    Some(handle) => unguarded::dsm_attach(handle),
                };
            })
        };
        if error.is_null() {
            return segment;
        }
        // SAFETY: a guarded call on an error that was caught.
        unsafe { pg_sys::FreeErrorData(error) };
        std::ptr::null_mut()
    }
}

/// An array of words.
#[derive(Debug, Clone, Copy)]
pub struct SharedWords {
    segment: *mut pg_sys::dsm_segment,
    count: usize,
}

impl SharedWords {
    /// Create words with the value 0. None if there is no shared memory for them. Guarded.
    pub fn create(count: usize) -> Option<SharedWords> {
        // SAFETY: guarded calls; the segment has the size of the words, which are aligned, and stays attached.
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

    /// Attach to the `count` words of another process. None if the segment is gone. Guarded.
    pub fn attach(handle: u32, count: usize) -> Option<SharedWords> {
        if handle == compat::NO_SEGMENT {
            return None;
        }
        // SAFETY: guarded calls; the segment stays attached.
        unsafe {
            let segment = Request { size: 0, handle: Some(handle) }.segment();
            if segment.is_null() {
                return None;
            }
            pg_sys::dsm_pin_mapping(segment);
            Some(SharedWords { segment, count })
        }
    }

    /// The handle that another process needs to attach; never 0.
    pub fn handle(&self) -> u32 {
        // SAFETY: attached.
        unsafe { pg_sys::dsm_segment_handle(self.segment) }
    }

    pub fn get(&self, index: usize) -> Option<&'static AtomicU64> {
        // SAFETY: attached until the process exits; the index was checked, and all processes use the words as atomic
        // ones.
        (index < self.count).then(|| unsafe {
            let words = pg_sys::dsm_segment_address(self.segment).cast::<AtomicU64>();
            &*words.add(index)
        })
    }
}
