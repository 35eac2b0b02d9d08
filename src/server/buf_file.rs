//! Temporary files of the server (buffile.c).
//!
//! A [`BufFile`] lives in the memory context in which it was made. The code that deletes the context, or that releases the
//! set of a shared file, answers for it: both are unsafe. Several readers may share a file, if each goes to its own place
//! first. The end of the transaction closes a file, unless it is a lasting one.

use std::cell::Cell;
use std::ffi::c_void;

use pgrx::pg_sys;

use super::call::{calls, returned};
use super::handle::Handle;
use super::memory_context::MemoryContext;

/// An open file.
type Open = Handle<'static, pg_sys::BufFile>;

// SAFETY: an open file, and any place, which it may lack.
calls! {
    fn prepare_tablespaces() = PrepareTempTablespaces();
    fn create(outlives_transaction: bool) -> Option<BufFile> = BufFileCreateTemp(outlives_transaction);
    fn seek(file: Open, number: i32, offset: pg_sys::off_t, whence: i32) -> i32 = BufFileSeek(file, number, offset, whence);
    fn export(file: Open) = BufFileExportFileSet(file);
}

/// A temporary file. Empty and without an effect after it was closed.
#[derive(Debug, Default)]
pub struct BufFile(Cell<Option<Open>>);

/// A place in a file.
#[derive(Debug, Clone, Copy, Default)]
pub struct Place {
    file: i32,
    offset: pg_sys::off_t,
}

returned! {
    /// A new file of its own, or null.
    *mut pg_sys::BufFile => Option<BufFile> = |raw| Open::or_null(raw).map(|file| BufFile(Cell::new(Some(file))));
}

impl BufFile {
    /// Makes a file, with its own memory in this context. Guarded.
    pub fn temporary(memory: MemoryContext) -> BufFile {
        BufFile::made_in(memory, false)
    }

    /// Makes a file that outlives the transaction, until it is closed. Guarded.
    pub fn lasting() -> BufFile {
        BufFile::made_in(MemoryContext::top(), true)
    }

    fn made_in(memory: MemoryContext, lasts: bool) -> BufFile {
        let _entered = memory.enter();
        prepare_tablespaces();
        create(lasts).unwrap_or_default()
    }

    /// Writes bytes, and goes behind them. Guarded.
    pub fn write(&self, bytes: &[u8]) {
        if let Some(file) = self.0.get() {
            // SAFETY: a guarded call on an open file, which does not change the bytes.
            unsafe { pg_sys::BufFileWrite(file.as_ptr(), bytes.as_ptr().cast_mut().cast::<c_void>(), bytes.len()) }
        }
    }

    /// Reads bytes, and goes behind them; fewer at the end of the file. Guarded.
    pub fn read(&self, bytes: &mut [u8]) -> usize {
        let (to, len) = (bytes.as_mut_ptr().cast::<c_void>(), bytes.len());
        // SAFETY: a guarded call on an open file, with room for the bytes.
        self.0.get().map_or(0, |file| unsafe { pg_sys::BufFileRead(file.as_ptr(), to, len) })
    }

    /// Reads all these bytes; false if the file ends before. Guarded.
    pub fn fill(&self, bytes: &mut [u8]) -> bool {
        self.read(bytes) == bytes.len()
    }

    pub fn place(&self) -> Place {
        let mut place = Place::default();
        if let Some(file) = self.0.get() {
            // SAFETY: an open file; raises nothing.
            unsafe { pg_sys::BufFileTell(file.as_ptr(), &raw mut place.file, &raw mut place.offset) };
        }
        place
    }

    /// Goes to a place; false if the file does not have it. Guarded.
    pub fn go_to(&self, Place { file, offset }: Place) -> bool {
        self.0.get().is_some_and(|own| seek(own, file, offset, libc::SEEK_SET) == 0)
    }

    /// Goes forward; false if the file does not have the place. Guarded.
    pub fn skip(&self, bytes: u64) -> bool {
        let bytes = pg_sys::off_t::try_from(bytes);
        self.0.get().zip(bytes.ok()).is_some_and(|(own, bytes)| seek(own, 0, bytes, libc::SEEK_CUR) == 0)
    }

    /// Closes a file of a shared set, so that other processes can open it. Guarded.
    pub fn export(&self) {
        if let Some(file) = self.0.get() {
            // A file of one process is only written out.
            export(file);
        }
        self.close();
    }

    /// Closes the file. Guarded.
    pub fn close(&self) {
        if let Some(file) = self.0.take() {
            // SAFETY: a guarded call on an open file, which is not used any more.
            unsafe { pg_sys::BufFileClose(file.as_ptr()) };
        }
    }
}
