//! A thread that writes pages to a file while the server's own thread makes the next ones.
//!
//! ```text
//!   server's own thread:   make pages ─► log ─► hand over ─► make the next ─► take back, ask for a sync ─► log ...
//!                                                  │                               ▲
//!   thread:                                        └─► pwrite ─────────────────────┘
//! ```
//!
//! **The thread uses nothing of the server**, like the decompressing thread ([`crate::input::decompressor`]). It has its own
//! file descriptors, which no other code closes, so a descriptor never comes to mean another file. It owns the pages
//! until it returns them, and it receives no signals. It returns its errors with the pages. At most one batch is under
//! way.
//!
//! Unlike the decompressing thread, this one is waited for on every path on which the process goes on: once the
//! [`PageWriter`] is dropped, nothing is written any more. A FATAL error drops nothing: the end of the process ends the
//! thread, perhaps in the middle of a write, as may happen to a process that writes. Until then the thread writes to an
//! open file; it cannot create a file that was removed.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use pgrx::pg_sys;

use super::segment::WRITE;
use crate::input::decompressor::{reserve, without_signals};

const BLCKSZ: usize = pg_sys::BLCKSZ as usize;

/// A page, aligned for direct I/O.
#[repr(C, align(4096))]
pub struct AlignedPage(pub [u8; BLCKSZ]);

/// Pages as bytes.
pub fn bytes_of(pages: &[AlignedPage]) -> &[u8] {
    // SAFETY: pages are arrays of bytes, one after the other.
    unsafe { std::slice::from_raw_parts(pages.as_ptr().cast::<u8>(), size_of_val(pages)) }
}

/// The first `count` pages, to be written from this byte of a file on.
pub struct Batch {
    pub pages: Vec<AlignedPage>,
    pub count: usize,
    pub file: Arc<File>,
    pub offset: u64,
}

/// The pages of a batch, and the outcome of the write.
pub type Done = (Vec<AlignedPage>, Result<()>);

/// The thread, and the channels to it.
pub struct PageWriter {
    batches: Option<SyncSender<Batch>>,
    done: Receiver<Done>,
    thread: Option<JoinHandle<()>>,
    is_busy: bool,
}

impl PageWriter {
    pub fn start() -> Result<PageWriter> {
        reserve()?;
        let (batches, to_write) = sync_channel(1);
        let (written, done) = sync_channel(1);
        let thread = without_signals(|| {
            let work = move || work(&to_write, &written);
            std::thread::Builder::new().name("pg_bulk page writer".into()).spawn(work)
        })?;
        let mut writer = PageWriter { batches: Some(batches), done, thread: Some(thread), is_busy: true };
        // Wait for the thread's first message: until then, this thread leaves the reserved memory to it.
        match writer.take() {
            Some((_, outcome)) => outcome.map(|()| writer),
            None => Err(failed()),
        }
    }

    /// Give a batch to the thread. No batch may be under way: see [`Self::take`].
    pub fn hand_over(&mut self, batch: Batch) -> Result<()> {
        let sent = self.batches.as_ref().is_some_and(|batches| batches.send(batch).is_ok());
        self.is_busy = sent;
        if sent { Ok(()) } else { Err(failed()) }
    }

    /// Wait for the batch that is under way, and take its pages back. None if no batch is.
    pub fn take(&mut self) -> Option<Done> {
        if !std::mem::replace(&mut self.is_busy, false) {
            return None;
        }
        Some(self.done.recv().unwrap_or_else(|_| (Vec::new(), Err(failed()))))
    }
}

impl Drop for PageWriter {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // The thread ends when the channel of batches is closed. Its failure was reported with a batch.
            let _ = thread.join();
        }
    }
}

fn failed() -> Error {
    Error::other("the thread that writes pages has failed")
}

/// Body of the thread.
fn work(batches: &Receiver<Batch>, done: &SyncSender<Done>) {
    if done.send((Vec::new(), Ok(()))).is_err() {
        return;
    }
    while let Ok(Batch { pages, count, file, offset }) = batches.recv() {
        let bytes = pages.get(..count).map(bytes_of).ok_or_else(failed);
        let outcome = bytes.and_then(|bytes| write(&file, bytes, offset));
        // The descriptor must not outlive the batch.
        drop(file);
        if done.send((pages, outcome)).is_err() {
            return;
        }
    }
}

fn write(file: &File, bytes: &[u8], offset: u64) -> Result<()> {
    let mut place = offset;
    for piece in bytes.chunks(WRITE) {
        file.write_all_at(piece, place).map_err(|error| match error.kind() {
            // Like core, report a write of no bytes as a full disk.
            ErrorKind::WriteZero => Error::from_raw_os_error(libc::ENOSPC),
            _ => error,
        })?;
        place += piece.len() as u64;
    }
    Ok(())
}
