//! Temporary files that workers pass to their leader.
//!
//! They outlive the workers and the shared memory of the parallel context, because their file set lies in a separate
//! segment. The leader's resource owner releases the segment, and the segment deletes the files, so an error leaves
//! none behind.

use std::ffi::CStr;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::buf_file::BufFile;
use crate::error::{Error, Result};

/// A set of files.
#[derive(Debug, Clone, Copy)]
pub struct SharedFiles {
    segment: *mut pg_sys::dsm_segment,
}

impl SharedFiles {
    /// Create a set. None if there is no shared memory for it. Guarded.
    pub fn create() -> Option<SharedFiles> {
        // SAFETY: guarded calls; the segment is as large as the set, and attached as long as the set is used.
        unsafe {
            let flags = pg_sys::DSM_CREATE_NULL_IF_MAXSEGMENTS.cast_signed();
            let segment = pg_sys::dsm_create(size_of::<pg_sys::SharedFileSet>(), flags);
            if segment.is_null() {
                return None;
            }
            pg_sys::SharedFileSetInit(pg_sys::dsm_segment_address(segment).cast(), segment);
            Some(SharedFiles { segment })
        }
    }

    /// The handle that another process of the load needs to attach.
    pub fn handle(&self) -> u32 {
        // SAFETY: attached.
        unsafe { pg_sys::dsm_segment_handle(self.segment) }
    }

    /// Attach to the set of another process. Guarded.
    pub fn attach(handle: u32) -> Result<SharedFiles> {
        // SAFETY: guarded calls.
        unsafe {
            let segment = pg_sys::dsm_attach(handle);
            if segment.is_null() {
                let message = "could not map dynamic shared memory segment";
                return Err(Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message));
            }
            pg_sys::SharedFileSetAttach(pg_sys::dsm_segment_address(segment).cast(), segment);
            Ok(SharedFiles { segment })
        }
    }

    /// Create a file. Guarded; allocates in the current memory context.
    pub fn make(&self, name: &CStr) -> Option<BufFile> {
        // SAFETY: a guarded call on an attached set.
        unsafe { BufFile::from_raw(pg_sys::BufFileCreateFileSet(self.set(), name.as_ptr())) }
    }

    /// Open a file that another process has exported; None if it does not exist. Guarded; allocates in the current
    /// memory context.
    pub fn open(&self, name: &CStr) -> Option<BufFile> {
        // SAFETY: a guarded call on an attached set.
        unsafe { BufFile::from_raw(pg_sys::BufFileOpenFileSet(self.set(), name.as_ptr(), libc::O_RDONLY, true)) }
    }

    fn set(&self) -> *mut pg_sys::FileSet {
        // SAFETY: attached.
        unsafe { &raw mut (*pg_sys::dsm_segment_address(self.segment).cast::<pg_sys::SharedFileSet>()).fs }
    }

    /// Detach; the last process to do so deletes the files. Guarded.
    ///
    /// # Safety
    /// No copy of this handle is used any more.
    pub unsafe fn release(self) {
        // SAFETY: attached; none of its files is open any more.
        unsafe { pg_sys::dsm_detach(self.segment) };
    }
}
