//! Decompresses a file in a thread of its own, ahead of its reader.
//!
//! ```text
//!   thread:   file ─► decoder ─► buffer ─► buffer ─► buffer      (bounded)
//!                                                      │
//!   server's own thread:                               └─► Source::read
//! ```
//!
//! Decompression takes as long as parsing and storing the data, so both run at the same time.
//!
//! **The thread calls no server function.** It has a descriptor of its own, and uses Rust's allocator. It blocks all
//! signals, so that the server's handlers run in the server's thread. It ends at the end of the file, when its reader
//! is dropped, and with the process. The server does not wait for its end: the thread may be reading from a disk that
//! does not answer. The amount of data that it holds ahead is bounded, even if a few bytes expand to many.
//!
//! **Out of memory.** A thread that starts without enough memory would end the process, and the server with it. So more
//! memory than a thread needs is allocated and freed before. Until the thread has started, the server's own thread
//! waits and allocates nothing.

pub mod members;

use std::fs::File;
use std::io::{BufRead, Error, ErrorKind, Read, Result};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use super::coding::Steps;

/// Bytes of one buffer, and number of buffers that the thread may fill ahead.
const PIECE: usize = 1 << 20;
const AHEAD: usize = 4;
/// Longest wait between two checks for interrupts.
pub const PATIENCE: Duration = Duration::from_millis(20);

/// Bytes of the first buffer, which is small because a query may read only a few rows.
const FIRST: usize = 64 << 10;
/// More than a thread's stack, an arena of the allocator, a decoder and its input buffer.
const RESERVE: usize = 128 << 20;

/// Decompressed bytes; none at the end.
type Decompressed = Result<Vec<u8>>;

/// A file that is being decompressed.
#[derive(Debug)]
pub struct Decompressor {
    pieces: Receiver<Decompressed>,
    used: SyncSender<Vec<u8>>,
    /// Number of the file's bytes that were decompressed.
    consumed: Arc<AtomicU64>,
    /// The reader was dropped.
    stop: Arc<AtomicBool>,
    piece: Vec<u8>,
    taken: usize,
    is_over: bool,
}

impl Drop for Decompressor {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

/// Result of a read.
#[derive(Debug)]
pub enum Got {
    Bytes(usize),
    End,
    /// No bytes yet: check for interrupts, and read again.
    NotYet,
}

impl Decompressor {
    /// Starts to decompress a regular file at its beginning.
    pub fn start(file: File, steps: Steps) -> Result<Decompressor> {
        reserve()?;
        let (to_reader, pieces) = sync_channel(AHEAD);
        let (used, empties) = sync_channel(AHEAD + 2);
        let (consumed, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let input = Input { file, offset: 0, stop: Arc::clone(&stop), ahead: members::bytes_ahead() };
        let counter = Arc::clone(&consumed);
        without_signals(|| {
            let work = move || work(input, steps, counter, &to_reader, &empties);
            std::thread::Builder::new().name("pg_bulk decompressor".into()).spawn(work)
        })?;
        // The thread reports that it has started, or an error.
        match pieces.recv() {
            Ok(began) => drop(began?),
            Err(_) => return Err(failed()),
        }
        Ok(Decompressor { pieces, used, consumed, stop, piece: Vec::new(), taken: 0, is_over: false })
    }

    /// Returns the number of the file's bytes that were decompressed.
    pub fn consumed(&self) -> u64 {
        self.consumed.load(Relaxed)
    }

    /// Reads the next bytes. Waits for a short time only.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<Got> {
        while self.taken == self.piece.len() {
            if self.is_over {
                return Ok(Got::End);
            }
            match self.pieces.recv_timeout(PATIENCE) {
                Ok(Ok(piece)) => {
                    self.is_over = piece.is_empty();
                    let old = std::mem::replace(&mut self.piece, piece);
                    self.taken = 0;
                    // The thread may have ended.
                    let _ = self.used.try_send(old);
                }
                Ok(Err(error)) => {
                    self.is_over = true;
                    return Err(error);
                }
                Err(RecvTimeoutError::Timeout) => return Ok(Got::NotYet),
                Err(RecvTimeoutError::Disconnected) => {
                    self.is_over = true;
                    return Err(failed());
                }
            }
        }
        let n = self.piece.get(self.taken..).unwrap_or_default().read(buffer)?;
        self.taken += n;
        Ok(Got::Bytes(n))
    }
}

/// Fails unless there is enough memory for a thread to start.
pub fn reserve() -> Result<()> {
    let mut reserve = Vec::<u8>::new();
    reserve.try_reserve_exact(RESERVE).map_err(|_| ErrorKind::OutOfMemory.into())
}

/// Error for a thread that ended without a message.
pub fn failed() -> Error {
    Error::other("the decoder has failed")
}

/// Body of the thread.
fn work(
    input: Input,
    steps: Steps,
    consumed: Arc<AtomicU64>,
    to_reader: &SyncSender<Decompressed>,
    empties: &Receiver<Vec<u8>>,
) {
    let mut decoder = match members::decoder(steps, input, consumed) {
        Ok(decoder) => decoder,
        Err(error) => {
            let _ = to_reader.send(Err(error));
            return;
        }
    };
    if to_reader.send(Ok(Vec::new())).is_err() {
        return;
    }
    let mut wanted = FIRST;
    loop {
        let mut piece = empties.try_recv().unwrap_or_default();
        piece.clear();
        // Memory is reserved before it is used, because a failed allocation would end the process.
        if piece.try_reserve_exact(wanted).is_err() {
            let _ = to_reader.send(Err(Error::from(ErrorKind::OutOfMemory)));
            return;
        }
        let outcome = decoder.by_ref().take(wanted as u64).read_to_end(&mut piece);
        wanted = PIECE;
        let is_over = outcome.is_ok() && piece.is_empty();
        // Rows before an error are valid.
        if !piece.is_empty() && to_reader.send(Ok(piece)).is_err() {
            return;
        }
        match outcome {
            Err(error) => {
                let _ = to_reader.send(Err(error));
                return;
            }
            Ok(_) if is_over => {
                let _ = to_reader.send(Ok(Vec::new()));
                return;
            }
            Ok(_) => (),
        }
    }
}

/// Reads a file from its start until `stop` is set. Other descriptors of the file may share its position, so it is not
/// used.
pub struct Input {
    pub file: File,
    pub offset: u64,
    pub stop: Arc<AtomicBool>,
    /// Bytes that each of several threads may hold ahead of the reader. Copied here, because only the server's thread
    /// may read settings.
    pub ahead: usize,
}

impl Input {
    /// Reads the file from its start, beside this reader.
    pub fn again(&self) -> Result<Input> {
        Ok(Input { file: self.file.try_clone()?, offset: 0, stop: Arc::clone(&self.stop), ahead: self.ahead })
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if self.stop.load(Relaxed) {
            return Err(Error::other("nobody is left to read"));
        }
        let n = self.file.read_at(buffer, self.offset)?;
        self.offset += n as u64;
        Ok(n)
    }
}

/// Counts the bytes that a decoder consumes.
pub struct Counted<R> {
    pub inner: R,
    pub consumed: Arc<AtomicU64>,
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let n = self.inner.read(buffer)?;
        self.consumed.fetch_add(n as u64, Relaxed);
        Ok(n)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, n: usize) {
        self.consumed.fetch_add(n as u64, Relaxed);
        self.inner.consume(n);
    }
}

/// Runs `what` with all signals blocked. A thread that it starts inherits that.
pub fn without_signals<T>(what: impl FnOnce() -> T) -> T {
    /// Restores the signal mask when it is dropped.
    struct Mask(libc::sigset_t);
    impl Drop for Mask {
        fn drop(&mut self) {
            // SAFETY: the previous mask of this thread.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
        }
    }
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut old = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset fills the set; the old mask is read only where it was written.
    let _mask = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        let blocked = libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), old.as_mut_ptr()) == 0;
        blocked.then(|| Mask(old.assume_init()))
    };
    what()
}
