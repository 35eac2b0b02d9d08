//! Words in shared memory, for processes that share nothing else.
//!
//! A process stays attached to the segment until it exits, and the segment lasts while any process is attached. So
//! memory in use does not go away when another process ends.

use std::ffi::c_void;
use std::sync::atomic::AtomicU64;

use pgrx::pg_sys;

use super::attempt::complaint;
use super::call::calls;
use super::compat;
use super::handle::Handle;
use super::unguarded;

/// A segment to which this process is attached.
pub(super) type Segment = Handle<'static, pg_sys::dsm_segment>;

// SAFETY: this process is attached to the segment.
calls! {
    pub(super) fn handle_of(segment: Segment) -> pg_sys::dsm_handle = dsm_segment_handle(segment);
    /// The segment's memory.
    pub(super) fn address_of(segment: Segment) -> *mut c_void = dsm_segment_address(segment);
    fn length_of(segment: Segment) -> usize = dsm_segment_map_length(segment);
    /// Keeps this process attached until it exits.
    fn pin(segment: Segment) = dsm_pin_mapping(segment);
}

/// A request for a new segment, or for the one with this handle. A failure for lack of space or of a descriptor is not
/// an error.
struct Request {
    size: usize,
    handle: Option<pg_sys::dsm_handle>,
}

impl Request {
    /// None if the segment is not available. Guarded.
    fn segment(self) -> Option<Segment> {
        let mut segment = std::ptr::null_mut();
        let flags = pg_sys::DSM_CREATE_NULL_IF_MAXSEGMENTS.cast_signed();
        // SAFETY: the server's code holds no lock where it may raise an error; a descriptor that it leaves open is
        // closed with the process. The closure owns nothing.
        unsafe {
            let error = complaint(|| {
                segment = match self.handle {
                    None => unguarded::dsm_create(self.size, flags),
                    Some(handle) => unguarded::dsm_attach(handle),
                };
            });
            if error.is_null() {
                return Segment::or_null(segment).inspect(|&segment| pin(segment));
            }
            pg_sys::FreeErrorData(error);
        }
        None
    }
}

/// An array of words.
#[derive(Debug, Clone, Copy)]
pub struct SharedWords {
    segment: Segment,
    count: usize,
}

impl SharedWords {
    /// Create words with the value 0. None if there is no shared memory for them. Guarded.
    pub fn create(count: usize) -> Option<SharedWords> {
        let segment = Request { size: count * size_of::<AtomicU64>(), handle: None }.segment()?;
        // SAFETY: the segment has the size of the words, which are aligned.
        unsafe { address_of(segment).cast::<u64>().write_bytes(0, count) };
        Some(SharedWords { segment, count })
    }

    /// Attach to the `count` words of another process. None if the segment is gone, or has fewer words. Guarded.
    pub fn attach(handle: u32, count: usize) -> Option<SharedWords> {
        if handle == compat::NO_SEGMENT {
            return None;
        }
        let segment = Request { size: 0, handle: Some(handle) }.segment()?;
        (length_of(segment) / size_of::<AtomicU64>() >= count).then_some(SharedWords { segment, count })
    }

    /// The handle that another process needs to attach; never 0.
    pub fn handle(&self) -> u32 {
        handle_of(self.segment)
    }

    pub fn get(&self, index: usize) -> Option<&'static AtomicU64> {
        // SAFETY: attached until the process exits; the index was checked, and all processes use the words as atomic
        // ones.
        (index < self.count).then(|| unsafe { &*address_of(self.segment).cast::<AtomicU64>().add(index) })
    }
}
