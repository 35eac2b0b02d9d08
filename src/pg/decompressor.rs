//! A compressed file that is decompressed ahead of who reads it.
//!
//! ```text
//!   thread:   file ─► decoder ─► piece ─► piece ─► piece      (bounded)
//!                                                    │
//!   server's own thread:                             └─► Source::read
//! ```
//!
//! Decompressing takes as long as parsing and storing what comes of it, so the two go on at the same time.
//!
//! **The thread knows nothing of the server.** It has a descriptor of its own, memory that it takes from and gives back to
//! Rust's allocator, and no signal: all are blocked in it, so that the server's handlers run where they expect to. It ends
//! when there is no more to do, when nobody is left to read, and with the process. Nobody waits for its end: it may be reading
//! from a disk that does not answer. What it has ahead is bounded, so what a few bytes may stand for is, too.
//!
//! **No memory.** What a thread needs to begin cannot be asked for in a way that may fail: the process would end, and the
//! server with it. So more than that is taken, and given back, before; and until the thread has what it needs, the server's
//! own thread waits and takes none.

use std::fs::File;
use std::io::{BufRead, Error, ErrorKind, Read, Result};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use super::compression::Compression;
use super::members;

/// Bytes that are handed over at a time, and how often that may be done ahead.
const PIECE: usize = 1 << 20;
const AHEAD: usize = 4;
/// How long nobody looks for interrupts.
pub const PATIENCE: Duration = Duration::from_millis(20);

/// Bytes of the first piece: somebody may want no more than a few rows.
const FIRST: usize = 64 << 10;
/// More than a thread's stack, an arena of the allocator, a decoder, and what is read at a time.
const RESERVE: usize = 128 << 20;

/// Some bytes; none at the end.
type Piece = Result<Vec<u8>>;

/// A file that is being decompressed.
#[derive(Debug)]
pub struct Decompressor {
    pieces: Receiver<Piece>,
    used: SyncSender<Vec<u8>>,
    /// Bytes of the file that were decompressed.
    consumed: Arc<AtomicU64>,
    /// Nobody is left to read.
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

/// What came of asking for bytes.
#[derive(Debug)]
pub enum Got {
    Bytes(usize),
    End,
    /// There are none yet: look for interrupts, and ask again.
    NotYet,
}

impl Decompressor {
    /// Begin with the start of a regular file.
    pub fn start(file: File, compression: Compression) -> Result<Decompressor> {
        reserve()?;
        let (to_reader, pieces) = sync_channel(AHEAD);
        let (used, empties) = sync_channel(AHEAD + 2);
        let (consumed, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let input = Input { file, offset: 0, stop: Arc::clone(&stop), ahead: members::bytes_ahead() };
        let counter = Arc::clone(&consumed);
        without_signals(|| {
            let work = move || work(input, compression, counter, &to_reader, &empties);
            std::thread::Builder::new().name("pg_bulk decompressor".into()).spawn(work)
        })?;
        // It has begun, or says why not.
        match pieces.recv() {
            Ok(began) => drop(began?),
            Err(_) => return Err(failed()),
        }
        Ok(Decompressor { pieces, used, consumed, stop, piece: Vec::new(), taken: 0, is_over: false })
    }

    /// Bytes of the file that were decompressed.
    pub fn consumed(&self) -> u64 {
        self.consumed.load(Relaxed)
    }

    /// The next bytes. Waits for a moment at most.
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
                    // It may be gone.
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
        let left = self.piece.get(self.taken..).unwrap_or_default();
        let n = left.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..n), left.get(..n)) {
            to.copy_from_slice(from);
        }
        self.taken += n;
        Ok(Got::Bytes(n))
    }
}

/// Is there as much memory as a thread needs to begin?
pub fn reserve() -> Result<()> {
    let mut reserve = Vec::<u8>::new();
    reserve.try_reserve_exact(RESERVE).map_err(|_| ErrorKind::OutOfMemory.into())
}

/// The thread has ended without a word.
pub fn failed() -> Error {
    Error::other("the decoder has failed")
}

/// What the thread does.
fn work(
    input: Input,
    compression: Compression,
    consumed: Arc<AtomicU64>,
    to_reader: &SyncSender<Piece>,
    empties: &Receiver<Vec<u8>>,
) {
    let mut decoder = match members::decoder(compression, input, consumed) {
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
        // Room is taken before it is needed, so that none is no end of the process.
        if piece.try_reserve_exact(wanted).is_err() {
            let _ = to_reader.send(Err(Error::from(ErrorKind::OutOfMemory)));
            return;
        }
        let outcome = decoder.by_ref().take(wanted as u64).read_to_end(&mut piece);
        wanted = PIECE;
        let is_over = outcome.is_ok() && piece.is_empty();
        // Rows before what is wrong are good.
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

/// A file from its start, whatever others do with the position that its descriptors share; as long as somebody wants it.
pub struct Input {
    pub file: File,
    pub offset: u64,
    pub stop: Arc<AtomicBool>,
    /// Bytes that each of several threads may have ahead of who reads: the settings are for the server's own thread to look at.
    pub ahead: usize,
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

/// Counts what a decoder takes.
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

/// Do something that begins with the signals of its maker, without any.
pub fn without_signals<T>(what: impl FnOnce() -> T) -> T {
    /// Puts a mask back, whatever happens.
    struct Mask(libc::sigset_t);
    impl Drop for Mask {
        fn drop(&mut self) {
            // SAFETY: a mask that was this thread's.
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
