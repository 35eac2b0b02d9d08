//! Temporary files that workers pass to their leader.
//!
//! They outlive the workers and the shared memory of the parallel context, because their file set lies in a separate
//! segment. The leader's resource owner releases the segment, and the segment deletes the files, so an error leaves
//! none behind.

use std::ffi::CStr;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::buf_file::BufFile;
use super::call::calls;
use super::handle::Handle;
use super::shared_words::{Segment, address_of, handle_of};
use crate::error::{Error, Result};

/// A set to which this process is attached.
type FileSet = Handle<'static, pg_sys::FileSet>;

// SAFETY: this process is attached to the set, and the names are copied.
calls! {
    fn make(set: FileSet, name: &CStr) -> Option<BufFile> = BufFileCreateFileSet(set, name);
    fn open(set: FileSet, name: &CStr, mode: i32, may_be_missing: bool) -> Option<BufFile>
        = BufFileOpenFileSet(set, name, mode, may_be_missing);
}

/// A set of files.
#[derive(Debug, Clone, Copy)]
pub struct SharedFiles {
    segment: Segment,
}

impl SharedFiles {
    /// Create a set. None if there is no shared memory for it. Guarded.
    pub fn create() -> Option<SharedFiles> {
        // SAFETY: guarded calls; the segment is as large as the set, and attached as long as the set is used.
        unsafe {
            let flags = pg_sys::DSM_CREATE_NULL_IF_MAXSEGMENTS.cast_signed();
            let segment = Segment::or_null(pg_sys::dsm_create(size_of::<pg_sys::SharedFileSet>(), flags))?;
            pg_sys::SharedFileSetInit(address_of(segment).cast(), segment.as_ptr());
            Some(SharedFiles { segment })
        }
    }

    /// The handle that another process of the load needs to attach.
    pub fn handle(&self) -> u32 {
        handle_of(self.segment)
    }

    /// Attach to the set of another process. Guarded.
    pub fn attach(handle: u32) -> Result<SharedFiles> {
        // SAFETY: guarded calls.
        unsafe {
            let Some(segment) = Segment::or_null(pg_sys::dsm_attach(handle)) else {
                let message = "could not map dynamic shared memory segment";
                return Err(Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message));
            };
            pg_sys::SharedFileSetAttach(address_of(segment).cast(), segment.as_ptr());
            Ok(SharedFiles { segment })
        }
    }

    /// Create a file. Guarded; allocates in the current memory context.
    pub fn make(&self, name: &CStr) -> Option<BufFile> {
        make(self.set(), name)
    }

    /// Open a file that another process has exported; None if it does not exist. Guarded; allocates in the current
    /// memory context.
    pub fn open(&self, name: &CStr) -> Option<BufFile> {
        open(self.set(), name, libc::O_RDONLY, true)
    }

    fn set(&self) -> FileSet {
        // SAFETY: attached to a segment with a set.
        unsafe { FileSet::from_raw(&raw mut (*address_of(self.segment).cast::<pg_sys::SharedFileSet>()).fs) }
    }

    /// Detach; the last process to do so deletes the files. Guarded.
    ///
    /// # Safety
    /// No copy of this handle is used any more.
    pub unsafe fn release(self) {
        // SAFETY: attached; none of its files is open any more.
        unsafe { pg_sys::dsm_detach(self.segment.as_ptr()) };
    }
}
