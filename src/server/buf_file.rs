//! Temporary files of the server (buffile.c).
//!
//! A [`BufFile`] lives in the memory context in which it was made. The code that deletes the context, or that releases the
//! set of a shared file, answers for it: both are unsafe. Several readers may share a file, if each goes to its own place
//! first. The end of the transaction closes a file.

use std::cell::Cell;
use std::ffi::c_void;

use pgrx::pg_sys;

use super::memory_context::MemoryContext;

/// A temporary file. Empty and without an effect after it was closed.
#[derive(Debug)]
pub struct BufFile(Cell<*mut pg_sys::BufFile>);

/// A place in a file.
#[derive(Debug, Clone, Copy, Default)]
pub struct Place {
    file: i32,
    offset: pg_sys::off_t,
}

impl BufFile {
    /// Makes a file, with its own memory in this context. Guarded.
    pub fn temporary(memory: MemoryContext) -> BufFile {
        let _entered = memory.enter();
        // SAFETY: guarded calls.
        BufFile(Cell::new(unsafe {
            pg_sys::PrepareTempTablespaces();
            pg_sys::BufFileCreateTemp(false)
        }))
    }

    /// None for null.
    ///
    /// # Safety
    /// Null, or a file that is open.
    pub(super) unsafe fn from_raw(file: *mut pg_sys::BufFile) -> Option<BufFile> {
        (!file.is_null()).then(|| BufFile(Cell::new(file)))
    }

    fn file(&self) -> Option<*mut pg_sys::BufFile> {
        Some(self.0.get()).filter(|file| !file.is_null())
    }

    /// Writes bytes, and goes behind them. Guarded.
    pub fn write(&self, bytes: &[u8]) {
        if let Some(file) = self.file() {
            // SAFETY: a guarded call on an open file, which does not change the bytes.
            unsafe { pg_sys::BufFileWrite(file, bytes.as_ptr().cast_mut().cast::<c_void>(), bytes.len()) }
        }
    }

    /// Reads bytes, and goes behind them; fewer at the end of the file. Guarded.
    pub fn read(&self, bytes: &mut [u8]) -> usize {
        let (to, len) = (bytes.as_mut_ptr().cast::<c_void>(), bytes.len());
        // SAFETY: a guarded call on an open file, with room for the bytes.
        self.file().map_or(0, |file| unsafe { pg_sys::BufFileRead(file, to, len) })
    }

    /// Reads all these bytes; false if the file ends before. Guarded.
    pub fn fill(&self, bytes: &mut [u8]) -> bool {
        self.read(bytes) == bytes.len()
    }

    pub fn place(&self) -> Place {
        let mut place = Place::default();
        if let Some(file) = self.file() {
            // SAFETY: an open file; raises nothing.
            unsafe { pg_sys::BufFileTell(file, &raw mut place.file, &raw mut place.offset) };
        }
        place
    }

    /// Goes to a place; false if the file does not have it. Guarded.
    pub fn go_to(&self, Place { file, offset }: Place) -> bool {
        // SAFETY: a guarded call on an open file.
        self.file().is_some_and(|own| unsafe { pg_sys::BufFileSeek(own, file, offset, libc::SEEK_SET) == 0 })
    }

    /// Goes forward; false if the file does not have the place. Guarded.
    pub fn skip(&self, bytes: u64) -> bool {
        let bytes = pg_sys::off_t::try_from(bytes);
        self.file().zip(bytes.ok()).is_some_and(|(own, bytes)| {
            // SAFETY: a guarded call on an open file.
            unsafe { pg_sys::BufFileSeek(own, 0, bytes, libc::SEEK_CUR) == 0 }
        })
    }

    /// Closes a file of a shared set, so that other processes can open it. Guarded.
    pub fn export(&self) {
        if let Some(file) = self.file() {
            // SAFETY: a guarded call on an open file. A file of one process is only written out.
            unsafe { pg_sys::BufFileExportFileSet(file) };
        }
        self.close();
    }

    /// Closes the file. Guarded.
    pub fn close(&self) {
        if let Some(file) = self.file() {
            self.0.set(std::ptr::null_mut());
            // SAFETY: a guarded call on an open file, which is not used any more.
            unsafe { pg_sys::BufFileClose(file) };
        }
    }
}
