//! The decompressed bytes of a compressed file, shared by several processes.
//!
//! ```text
//!   leader's thread: file ─► decoder ─► ┌───────────── ring ─────────────┐
//!                                       │ kept .. chunks .. filled       │
//!   leader, workers:                    └── each copies its chunk ◄──────┘
//! ```
//!
//! One process decompresses the stream, and others work on the result. Its bytes are numbered like those of a file, so
//! it is divided into chunks like a file ([`crate::rows::chunks`]). There are two differences. The end is unknown until the
//! thread reaches it. And bytes are available only for a while: the ring keeps those from the first record that is not
//! cut yet, or that a process has still to copy.
//!
//! **The ring owns its memory.** It does not use the server's dynamic shared memory, which is unmapped when a
//! transaction ends, while the thread may still write. The memory is a file without a name, which workers open through
//! the leader's descriptor. A mapping lasts until its last user, which may be the thread, has released it.
//!
//! **A long zstd frame is decoded in place**, without copies. Blocks stay where they are decoded
//! ([`super::zstd_frames`]). They refer back to earlier bytes, which are still there although no process needs them any
//! more. A block needs contiguous space, so the ring's first bytes are mapped a second time behind its last ones.
//!
//! **No process is woken.** The thread cannot signal a process of the server. So a process that waits looks again after
//! [`NAP`], and so does the thread.
//!
//! Three cases are left to one process, which reads the file in order from its start:
//! - a record that is longer than the ring;
//! - data that cannot be decompressed: the error is then that of a single process;
//! - input that [`crate::rows::chunks`] reports as suspicious.

use std::fs::File;
use std::io::{BufReader, Error, ErrorKind, Read, Result};
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use pg_bulk_text::chunk::BLOCK;
use pg_bulk_text::reader::LOOKAHEAD;
use pgrx::check_for_interrupts;

use super::chunk_order::MOST_PROCESSES;
use super::coding::Steps;
use super::compression::Compression;
use super::decompressor::{Counted, Input, PATIENCE, failed, members, reserve, without_signals};
use super::file_identity::Identity;
use super::source::Descriptor;
use super::zstd_frames::{Frames, NextFrame, ROOM};
use crate::guc;
use crate::server::points::point_errno;

/// How long a process waits before it looks again.
pub const NAP: Duration = Duration::from_micros(200);
/// Bytes of the smallest ring and of the largest one, and bytes that are decompressed at a time.
const LEAST: usize = 16 << 20;
const MOST: usize = LEAST + (64 << 20);
const PIECE: usize = 256 << 10;
/// Bytes for the header. Some systems have pages of this size.
const HEAD: usize = 64 << 10;
/// Bytes that are mapped twice.
const TWICE: usize = ROOM.next_multiple_of(HEAD);
const _: () = assert!(ROOM <= TWICE);
/// The value is unknown, or there is none.
const NONE: u64 = u64::MAX;

/// Header in front of the ring's bytes.
#[repr(C)]
struct Head {
    /// Bytes of the ring.
    size: u64,
    /// The compressed file.
    file: Identity,
    /// End of the bytes that are available.
    filled: AtomicU64,
    /// End of the stream, once it is known.
    end: AtomicU64,
    /// The rest of the stream cannot be decompressed.
    has_failed: AtomicBool,
    /// Bytes of the compressed file that were read.
    consumed: AtomicU64,
    /// The first record that is not cut yet.
    uncut_offset: AtomicU64,
    /// The first byte that each process has still to copy.
    held: [AtomicU64; MOST_PROCESSES],
}

const _: () = assert!(size_of::<Head>() <= HEAD);

/// The ring's memory, as mapped in this process.
#[derive(Debug)]
struct Map {
    at: *mut u8,
    len: usize,
}

// SAFETY: changing values of the header are atomic. Only the thread writes bytes, where none is needed any more; others
// read a byte after `filled` has passed it.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and not used any more.
        unsafe { libc::munmap(self.at.cast(), self.len + TWICE) };
    }
}

impl Map {
    fn new(file: &File) -> Result<Map> {
        let len = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        if len < HEAD + TWICE {
            return Err(ErrorKind::InvalidData.into());
        }
        let map = |at, len, protection, flags, fd, from: usize| {
            let from = libc::off_t::try_from(from).map_err(|_| ErrorKind::InvalidData)?;
            // SAFETY: a new mapping; or of an open file, at addresses that the new one has reserved.
            match unsafe { libc::mmap(at, len, protection, flags, fd, from) } {
                libc::MAP_FAILED => Err(Error::last_os_error()),
                at => Ok(at),
            }
        };
        let none = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let reserved = map(null_mut(), len + TWICE, libc::PROT_NONE, none, -1, 0)?;
        let all = Map { at: reserved.cast(), len };
        for (place, from, len) in [(0, 0, len), (len, HEAD, TWICE)] {
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
            map(reserved.wrapping_byte_add(place), len, protection, flags, file.as_raw_fd(), from)?;
        }
        Ok(all)
    }

    fn head(&self) -> &Head {
        // SAFETY: the mapping is page-aligned and longer than a header; any bytes are a valid one.
        unsafe { &*self.at.cast::<Head>() }
    }

    /// Bytes of the ring, by this process's mapping.
    fn size(&self) -> usize {
        self.len - HEAD
    }

    /// The address of the byte at `offset`, and the number of contiguous bytes up to the ring's end. At least [`TWICE`]
    /// bytes are contiguous from any address, through the second mapping.
    fn place(&self, offset: u64) -> (*mut u8, usize) {
        let size = self.size();
        let at = usize::try_from(offset % size as u64).unwrap_or(0);
        (self.at.wrapping_add(HEAD + at), size - at)
    }

    /// The first byte that is needed.
    fn kept(&self) -> u64 {
        let head = self.head();
        // A process sets `held` before it advances `uncut_offset`, so that is read first.
        let offset = head.uncut_offset.load(SeqCst);
        head.held.iter().map(|held| held.load(SeqCst)).fold(offset, u64::min)
    }
}

/// Bytes of a ring for this many processes, each with a chunk of `chunk_len` bytes and some bytes ahead.
fn size(processes: usize, chunk_len: usize) -> usize {
    let most = LEAST.max(guc::memory_limit().saturating_mul(processes)).min(MOST);
    chunk_len.saturating_mul(processes + 2).clamp(LEAST, most)
}

/// The longest chunk, at most `chunk_len` bytes, that a ring for this many processes allows.
pub fn fitting(processes: usize, chunk_len: usize) -> usize {
    let each = size(processes, chunk_len) / (processes + 2);
    (each / BLOCK * BLOCK).clamp(BLOCK, chunk_len.max(BLOCK))
}

/// A process's access to a ring.
#[derive(Debug)]
pub struct Ring {
    map: Arc<Map>,
    /// In the leader: the file that workers open, and the flag that stops the thread.
    leads: Option<(File, Arc<AtomicBool>)>,
}

impl Drop for Ring {
    fn drop(&mut self) {
        if let Some((_, stop)) = &self.leads {
            stop.store(true, Relaxed);
        }
    }
}

/// State of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    Whole,
    /// The stream ends after this many bytes of the chunk; 0 if the chunk lies behind the end.
    Last(usize),
    /// The chunk will never be complete: the file must be read in order.
    Never,
}

impl Ring {
    /// Begin to decompress a file. `processes` processes will read its decompressed bytes from `base` on, in chunks of
    /// `chunk_len` bytes. Guarded, and interruptible.
    pub fn start(file: File, steps: Steps, base: u64, processes: usize, chunk_len: usize) -> Result<Ring> {
        reserve()?;
        // The space for the next block, which no process reads yet, is added.
        let size = size(processes, chunk_len).next_multiple_of(HEAD) + TWICE;
        let identity = Identity::of(&file.metadata()?);
        // SAFETY: a call with a string, which returns a new descriptor that only this function has, or an error.
        let shared = unsafe {
            match libc::memfd_create(c"pg_bulk".as_ptr(), libc::MFD_CLOEXEC) {
                ..0 => return Err(Error::last_os_error()),
                fd => File::from_raw_fd(fd),
            }
        };
        let len = libc::off_t::try_from(HEAD + size).map_err(|_| ErrorKind::OutOfMemory)?;
        // Allocate now: a lack of memory is an error here, and would be a signal later. Signals are blocked, since they
        // interrupt the call.
        let error = without_signals(|| {
            loop {
                // SAFETY: an open file.
                let allocate = || unsafe { libc::posix_fallocate(shared.as_raw_fd(), 0, len) };
                let error = point_errno!("ring.memory").unwrap_or_else(allocate);
                if error != libc::EINTR {
                    break error;
                }
            }
        });
        if error != 0 {
            return Err(Error::from_raw_os_error(error));
        }
        let map = Map::new(&shared)?;
        // SAFETY: Map::new has mapped at least HEAD bytes, page-aligned, and a header is no longer; no other thread or
        // process uses them yet.
        unsafe {
            map.at.cast::<Head>().write(Head {
                size: size as u64,
                file: identity,
                filled: AtomicU64::new(base),
                end: AtomicU64::new(NONE),
                has_failed: AtomicBool::new(false),
                consumed: AtomicU64::new(0),
                uncut_offset: AtomicU64::new(base),
                held: [const { AtomicU64::new(NONE) }; MOST_PROCESSES],
            });
        }
        let (map, stop) = (Arc::new(map), Arc::new(AtomicBool::new(false)));
        let input = Input { file, offset: 0, stop: Arc::clone(&stop), ahead: members::bytes_ahead() };
        let writer = RingWriter { map: Arc::clone(&map), stop: Arc::clone(&stop) };
        let (began, has_begun) = sync_channel(1);
        without_signals(|| {
            let work = move || {
                let consumed = Arc::new(AtomicU64::new(0));
                match Decoder::begin(steps, input, &consumed, size - TWICE) {
                    Ok(decoder) => {
                        let _ = began.send(Ok(()));
                        writer.work(decoder, &consumed, base);
                    }
                    Err(error) => drop(began.send(Err(error))),
                }
            };
            std::thread::Builder::new().name("pg_bulk decompressor".into()).spawn(work)
        })?;
        // From here on, dropping the ring stops the thread, also after an error.
        let ring = Ring { map, leads: Some((shared, stop)) };
        // The thread reads some MB before it can begin.
        loop {
            match has_begun.recv_timeout(PATIENCE) {
                Ok(began) => break began?,
                Err(RecvTimeoutError::Timeout) => {
                    check_for_interrupts!();
                }
                Err(RecvTimeoutError::Disconnected) => return Err(failed()),
            }
        }
        Ok(ring)
    }

    /// Open the leader's ring, in a worker.
    pub fn join(leaders: Descriptor) -> Result<Ring> {
        let location = leaders.location();
        let path = location.path().ok_or(ErrorKind::NotFound)?;
        let map = Map::new(&File::options().read(true).write(true).open(path)?)?;
        if map.head().size != map.size() as u64 {
            return Err(ErrorKind::InvalidData.into());
        }
        Ok(Ring { map: Arc::new(map), leads: None })
    }

    /// The descriptor that workers pass to [`Ring::join`].
    pub fn descriptor(&self) -> Option<Descriptor> {
        self.leads.as_ref().map(|(file, _)| Descriptor::new(file.as_raw_fd()))
    }

    /// The identity of the file when the ring began.
    pub fn file(&self) -> Identity {
        self.map.head().file
    }

    pub fn leads(&self) -> bool {
        self.leads.is_some()
    }

    /// Bytes of the compressed file that were read.
    pub fn consumed(&self) -> u64 {
        self.map.head().consumed.load(Relaxed)
    }

    /// End of the bytes that are available.
    pub fn filled(&self) -> u64 {
        self.map.head().filled.load(Acquire)
    }

    /// Look whether a chunk is available, with the bytes behind it that may matter. `None`: not yet. With `may_cut` all
    /// chunks before it are cut, so a chunk that does not fit will never fit: no other process can free space.
    pub fn look(&self, offset: u64, len: usize, may_cut: bool) -> Option<Arrival> {
        let head = self.map.head();
        let (behind, wanted) = (offset + len as u64, offset + (len + LOOKAHEAD) as u64);
        // In this order: the end is set after all bytes are available.
        let (end, has_failed) = (head.end.load(SeqCst), head.has_failed.load(SeqCst));
        let filled = self.filled();
        if end != NONE && end <= behind {
            return Some(Arrival::Last(usize::try_from(end.saturating_sub(offset)).unwrap_or(0)));
        }
        if filled >= wanted || (end != NONE && filled >= behind) {
            return Some(Arrival::Whole);
        }
        let is_too_long =
            may_cut && wanted.saturating_sub(head.uncut_offset.load(SeqCst)) > head.size.saturating_sub(TWICE as u64);
        (has_failed || is_too_long).then_some(Arrival::Never)
    }

    /// Copy bytes that are available.
    pub fn read(&self, buffer: &mut [u8], mut offset: u64) {
        let mut left = buffer;
        while !left.is_empty() {
            let (at, together) = self.map.place(offset);
            let n = together.min(left.len());
            let Some((now, later)) = left.split_at_mut_checked(n) else { return };
            // SAFETY: `place` returns the number of contiguous bytes; they are not overwritten before they are
            // released.
            unsafe { std::ptr::copy_nonoverlapping(at, now.as_mut_ptr(), n) };
            offset += n as u64;
            left = later;
        }
    }

    /// Keep the bytes from `offset` on for this process, which copies them after `uncut_offset` has advanced.
    pub fn hold(&self, process: usize, offset: u64) {
        if let Some(held) = self.map.head().held.get(process) {
            held.store(offset, SeqCst);
        }
    }

    /// Keep no bytes for this process any more.
    pub fn let_go(&self, process: usize) {
        self.hold(process, NONE);
    }

    /// Set the position of the first record that is not cut yet.
    pub fn pass(&self, record: u64) {
        // The next process may already have set a later one.
        self.map.head().uncut_offset.fetch_max(record, SeqCst);
    }
}

/// The thread's access to the ring.
struct RingWriter {
    map: Arc<Map>,
    stop: Arc<AtomicBool>,
}

impl Drop for RingWriter {
    /// However the thread ends, also by a panic in a decoder, processes must not wait for more bytes.
    fn drop(&mut self) {
        let head = self.map.head();
        if head.end.load(SeqCst) == NONE {
            head.has_failed.store(true, SeqCst);
        }
    }
}

/// The thread's decoder.
enum Decoder {
    /// Decodes into the ring.
    InPlace(Frames),
    /// Decodes into memory of its own, and copies.
    Copied(Box<dyn Read>),
}

impl Decoder {
    /// Start at the file's beginning. Decoded bytes stay in place until `stays` more are decoded.
    fn begin(steps: Steps, input: Input, consumed: &Arc<AtomicU64>, stays: usize) -> Result<Decoder> {
        let is_zstd = steps.compression() == Some(Compression::Zstd);
        if is_zstd && members::begins_with_long_frame(&input)? && steps.leave(BufReader::new(input.again()?))? {
            return Ok(Decoder::InPlace(Frames::new(input, stays as u64)?));
        }
        Ok(Decoder::Copied(members::decoder(steps, input, Arc::clone(consumed))?))
    }
}

impl RingWriter {
    fn work(&self, decoder: Decoder, consumed: &Arc<AtomicU64>, base: u64) {
        let head = self.map.head();
        let outcome = match decoder {
            Decoder::InPlace(frames) => self.fill_in_place(frames, consumed, base),
            Decoder::Copied(mut decoder) => self.fill(&mut *decoder, consumed, base, 0),
        };
        head.consumed.store(consumed.load(Relaxed), Relaxed);
        if let Ok(end) = outcome {
            head.end.store(end, SeqCst);
        }
    }

    /// Wait until there is space for `wanted` bytes behind `filled`, and return the space.
    fn wait_for_room(&self, wanted: u64, filled: u64, kept: &mut u64) -> Result<u64> {
        let size = self.map.size() as u64;
        loop {
            // `kept` is from an earlier look, and may be more than the ring's length behind.
            let mut room = size.saturating_sub(filled.saturating_sub(*kept));
            if room < wanted.max(PIECE as u64) {
                *kept = self.map.kept();
                room = size.saturating_sub(filled.saturating_sub(*kept));
            }
            if self.stop.load(Relaxed) {
                return Err(Error::other("nobody is left to read"));
            }
            if room >= wanted {
                break Ok(room);
            }
            std::thread::sleep(NAP);
        }
    }

    /// Decode in place as long as possible, and return the end of the bytes.
    fn fill_in_place(&self, mut frames: Frames, consumed: &Arc<AtomicU64>, base: u64) -> Result<u64> {
        let head = self.map.head();
        let (mut filled, mut kept) = (0, base);
        loop {
            self.wait_for_room(TWICE as u64, filled, &mut kept)?;
            if point_errno!("ring.fill").is_some() {
                std::panic::resume_unwind(Box::new("a point"));
            }
            let (at, _) = self.map.place(filled);
            // SAFETY: `TWICE` bytes are contiguous, and none is needed. Bytes before them stay: the decoder overwrites
            // them only one ring length later, at the same addresses. Bytes behind the ring's end are also at its
            // beginning, mapped twice. ZSTD_decodingBufferSize_min (zstd.h) requires more behind a window, for a buffer
            // that is mapped once. Here, in a ring of S bytes, a block at p overwrites at most p - S .. p - S + ROOM. A
            // window has at most S - TWICE bytes (`Decoder::begin`), so the block looks back no further than to p - S +
            // TWICE; and ROOM is at most TWICE.
            let next = unsafe { frames.next(at) };
            consumed.store(frames.consumed(), Relaxed);
            head.consumed.store(frames.consumed(), Relaxed);
            match next? {
                NextFrame::Bytes(n) => filled += n as u64,
                NextFrame::End => return Ok(filled.max(base)),
                NextFrame::Other => break,
            }
            // The bytes before `base` are not shared.
            if filled > base {
                head.filled.store(filled, Release);
            }
        }
        let inner = BufReader::with_capacity(PIECE, frames.rest()?);
        drop(frames);
        let mut decoder = Compression::Zstd.decoder(Counted { inner, consumed: Arc::clone(consumed) })?;
        self.fill(&mut *decoder, consumed, base, filled)
    }

    /// Fill the ring from a decoder that continues after `made` decoded bytes, and return the end of the bytes.
    fn fill(&self, decoder: &mut dyn Read, consumed: &AtomicU64, base: u64, made: u64) -> Result<u64> {
        let head = self.map.head();
        let mut before = base.saturating_sub(made);
        while before > 0 {
            let mut nothing = [0; 16 << 10];
            let most = usize::try_from(before).unwrap_or(usize::MAX).min(nothing.len());
            match decoder.read(nothing.get_mut(..most).unwrap_or_default()) {
                Ok(0) => return Ok(base),
                Ok(n) => before -= n as u64,
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
        let (mut filled, mut kept) = (made.max(base), self.map.kept());
        loop {
            let room = self.wait_for_room(1, filled, &mut kept)?;
            if point_errno!("ring.fill").is_some() {
                std::panic::resume_unwind(Box::new("a point"));
            }
            let (at, together) = self.map.place(filled);
            let most = together.min(PIECE).min(usize::try_from(room).unwrap_or(usize::MAX));
            // SAFETY: `together` bytes are contiguous, and none is needed any more.
            let buffer = unsafe { std::slice::from_raw_parts_mut(at, most) };
            match decoder.read(buffer) {
                Ok(0) => return Ok(filled),
                Ok(n) => filled += n as u64,
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
            head.filled.store(filled, Release);
            head.consumed.store(consumed.load(Relaxed), Relaxed);
        }
    }
}
