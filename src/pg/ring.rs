//! What a compressed file stands for, where several processes can read it.
//!
//! ```text
//!   leader's thread: file ─► decoder ─► ┌───────────── ring ─────────────┐
//!                                       │ kept .. stretches .. filled    │
//!   leader, workers:                    └── each copies its stretch ◄────┘
//! ```
//!
//! One process can decompress a stream, but then others can work on what comes of it. Its bytes are numbered as if they were a
//! file's, so they are divided into stretches like one ([`super::chunks`]); only that nobody knows where they end before they do, and
//! that they are there for a while only: from the first record that is not cut yet, or that somebody has still to fetch the beginning of.
//!
//! **The memory is the ring's own**, and not the server's dynamic shared memory: that is unmapped when a transaction ends, and the thread may
//! write at that moment. It is a file without a name, which workers open by the leader's descriptor; a mapping goes when the last one who uses it
//! has let go of it, the thread among them.
//!
//! **Nothing is copied in between** of one long zstd frame: its blocks are decoded where they stay ([`super::zstd_frames`]), and look back at what is
//! still there, though nobody else needs it any more. A block needs room in one piece; so the ring's first bytes are mapped once more behind its last
//! ones.
//!
//! **Nobody is woken.** The thread cannot tell a process of the server's anything; so those who wait look again after [`NAP`], and so does it.
//!
//! What cannot be done here is done in order by one process, from the file's start: a record that is longer than the ring, data that cannot
//! be decompressed (the error is then the one that a single process would meet), whatever [`super::chunks`] finds suspicious.

use std::fs::File;
use std::io::{BufReader, Error, ErrorKind, Read, Result};
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use pg_bulk_format::chunk::BLOCK;
use pg_bulk_format::reader::LOOKAHEAD;
use pgrx::check_for_interrupts;

use super::chunk::Identity;
use super::compression::Compression;
use super::decompressor::{Counted, Input, PATIENCE, failed, reserve, without_signals};
use super::members;
use super::points::point_errno;
use super::source::Descriptor;
use super::stretches::MOST_PROCESSES;
use super::zstd_frames::{Frames, Next, ROOM};
use crate::guc;

/// How long somebody waits before he looks again.
pub const NAP: Duration = Duration::from_micros(200);
/// Bytes that a ring has at least, and at most whatever was asked for; and those that are decompressed at a time.
const LEAST: usize = 16 << 20;
const MOST: usize = LEAST + (64 << 20);
const PIECE: usize = 256 << 10;
/// Room for the head: some systems have pages as large as that.
const HEAD: usize = 64 << 10;
/// Bytes that are mapped twice.
const TWICE: usize = ROOM.next_multiple_of(HEAD);
const _: () = assert!(ROOM <= TWICE);
/// Not known, or nothing.
const NONE: u64 = u64::MAX;

/// What stands before the bytes.
#[repr(C)]
struct Head {
    /// Bytes of the ring.
    size: u64,
    /// What is decompressed.
    file: Identity,
    /// Up to here they are there.
    filled: AtomicU64,
    /// Where they end, once that is known.
    end: AtomicU64,
    /// There is more, and it cannot be decompressed.
    has_failed: AtomicBool,
    /// Of the file.
    consumed: AtomicU64,
    /// The first record that is not cut yet.
    turn: AtomicU64,
    /// What each process has still to fetch.
    held: [AtomicU64; MOST_PROCESSES],
}

const _: () = assert!(size_of::<Head>() <= HEAD);

/// The ring's memory, in this process.
#[derive(Debug)]
struct Map {
    at: *mut u8,
    len: usize,
}

// SAFETY: what changes in the head is atomic. A byte is written by the thread alone, when nobody needs what was there, and read by others
// after `filled` has passed it.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and used by nobody any more.
        unsafe { libc::munmap(self.at.cast(), self.len + TWICE) };
    }
}

impl Map {
    fn new(file: &File) -> Result<Map> {
        let len = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        if len < HEAD + TWICE {
            return Err(ErrorKind::InvalidData.into());
        }
        let none = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, which reserves addresses.
        let at = unsafe { libc::mmap(null_mut(), len + TWICE, libc::PROT_NONE, none, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        let map = Map { at: at.cast(), len };
        for (place, from, len) in [(0, 0, len), (len, HEAD, TWICE)] {
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
            let from = libc::off_t::try_from(from).map_err(|_| ErrorKind::InvalidData)?;
            // SAFETY: of an open file, to addresses that were reserved above.
            let at = unsafe { libc::mmap(at.byte_add(place), len, protection, flags, file.as_raw_fd(), from) };
            if at == libc::MAP_FAILED {
                return Err(Error::last_os_error());
            }
        }
        Ok(map)
    }

    fn head(&self) -> &Head {
        // SAFETY: the mapping is page-aligned and longer than a head, of which any bytes are one.
        unsafe { &*self.at.cast::<Head>() }
    }

    /// Bytes of the ring, as this process sees it.
    fn size(&self) -> usize {
        self.len - HEAD
    }

    /// Where the byte at `offset` is, and how many behind it are next to it; [`TWICE`] at least are next to it in other places than their own.
    fn place(&self, offset: u64) -> (*mut u8, usize) {
        let size = self.size();
        let at = usize::try_from(offset % size as u64).unwrap_or(0);
        // SAFETY: within the mapping.
        (unsafe { self.at.add(HEAD + at) }, size - at)
    }

    /// From here on the bytes are needed.
    fn kept(&self) -> u64 {
        let head = self.head();
        // Whoever moves the turn has said before what he holds.
        let turn = head.turn.load(SeqCst);
        head.held.iter().map(|held| held.load(SeqCst)).fold(turn, u64::min)
    }
}

/// Bytes of a ring for so many processes, each with a stretch of so many bytes and some more ahead.
fn size(processes: usize, stretch: usize) -> usize {
    let most = LEAST.max(guc::memory_limit().saturating_mul(processes)).min(MOST);
    stretch.saturating_mul(processes + 2).clamp(LEAST, most)
}

/// The longest stretches up to so many bytes that so many processes may have in a ring.
pub fn fitting(processes: usize, stretch: usize) -> usize {
    let each = size(processes, stretch) / (processes + 2);
    (each / BLOCK * BLOCK).clamp(BLOCK, stretch.max(BLOCK))
}

/// A ring, as one process has it.
#[derive(Debug)]
pub struct Ring {
    map: Arc<Map>,
    /// In the leader, what others open, and how the thread learns that it is over.
    leads: Option<(File, Arc<AtomicBool>)>,
}

impl Drop for Ring {
    fn drop(&mut self) {
        if let Some((_, stop)) = &self.leads {
            stop.store(true, Relaxed);
        }
    }
}

/// What is there of a stretch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    Whole,
    /// So many bytes, and that is all; none if the stretch lies behind the end.
    Last(usize),
    /// It will not be there: the file is to be read in order.
    Never,
}

impl Ring {
    /// Begin to decompress a file, whose bytes from `base` on are wanted, by so many processes in stretches of so many bytes. Guarded, and
    /// interruptible.
    pub fn start(file: File, compression: Compression, base: u64, processes: usize, stretch: usize) -> Result<Ring> {
        reserve()?;
        // What a block needs is never needed by others.
        let size = size(processes, stretch).next_multiple_of(HEAD) + TWICE;
        let identity = Identity::of(&file.metadata()?);
        // SAFETY: a call with a string, whose result is checked.
        let fd = unsafe { libc::memfd_create(c"pg_bulk".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: a new descriptor that is nobody else's.
        let shared = unsafe { File::from_raw_fd(fd) };
        let len = libc::off_t::try_from(HEAD + size).map_err(|_| ErrorKind::OutOfMemory)?;
        // Memory that is not to be had is an error now, and not a signal later. A signal in between would be another error.
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
        // SAFETY: nobody else looks at it yet.
        unsafe {
            map.at.cast::<Head>().write(Head {
                size: size as u64,
                file: identity,
                filled: AtomicU64::new(base),
                end: AtomicU64::new(NONE),
                has_failed: AtomicBool::new(false),
                consumed: AtomicU64::new(0),
                turn: AtomicU64::new(base),
                held: [const { AtomicU64::new(NONE) }; MOST_PROCESSES],
            });
        }
        let (map, stop) = (Arc::new(map), Arc::new(AtomicBool::new(false)));
        let input = Input { file, offset: 0, stop: Arc::clone(&stop), ahead: members::bytes_ahead() };
        let writer = Writer { map: Arc::clone(&map), stop: Arc::clone(&stop) };
        let (began, has_begun) = sync_channel(1);
        without_signals(|| {
            let work = move || {
                let consumed = Arc::new(AtomicU64::new(0));
                match Decoder::begin(compression, input, &consumed, size - TWICE) {
                    Ok(decoder) => {
                        let _ = began.send(Ok(()));
                        writer.work(decoder, compression, &consumed, base);
                    }
                    Err(error) => drop(began.send(Err(error))),
                }
            };
            std::thread::Builder::new().name("pg_bulk decompressor".into()).spawn(work)
        })?;
        // Whatever becomes of this, the thread is told.
        let ring = Ring { map, leads: Some((shared, stop)) };
        // It reads some MB before it knows how to begin.
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

    /// The leader's ring, in a worker.
    pub fn join(leaders: Descriptor) -> Result<Ring> {
        let location = leaders.location();
        let path = location.path().ok_or(ErrorKind::NotFound)?;
        let map = Map::new(&File::options().read(true).write(true).open(path)?)?;
        if map.head().size != map.size() as u64 {
            return Err(ErrorKind::InvalidData.into());
        }
        Ok(Ring { map: Arc::new(map), leads: None })
    }

    /// What workers join by.
    pub fn descriptor(&self) -> Option<Descriptor> {
        self.leads.as_ref().map(|(file, _)| Descriptor::new(file.as_raw_fd()))
    }

    /// The file, as it was when the ring began.
    pub fn file(&self) -> Identity {
        self.map.head().file
    }

    pub fn leads(&self) -> bool {
        self.leads.is_some()
    }

    /// Bytes of the file that were decompressed.
    pub fn consumed(&self) -> u64 {
        self.map.head().consumed.load(Relaxed)
    }

    /// Up to here bytes are there.
    pub fn filled(&self) -> u64 {
        self.map.head().filled.load(Acquire)
    }

    /// Is a stretch there, with what is behind it that may matter? `None`: not yet. If it is its turn, nobody is going to make
    /// room for what does not fit.
    pub fn look(&self, offset: u64, len: usize, is_turn: bool) -> Option<Arrival> {
        let head = self.map.head();
        let (behind, wanted) = (offset + len as u64, offset + (len + LOOKAHEAD) as u64);
        // In this order: what is said of the end is said when all is there.
        let (end, has_failed) = (head.end.load(SeqCst), head.has_failed.load(SeqCst));
        let filled = self.filled();
        if end != NONE && end <= behind {
            return Some(Arrival::Last(usize::try_from(end.saturating_sub(offset)).unwrap_or(0)));
        }
        if filled >= wanted || (end != NONE && filled >= behind) {
            return Some(Arrival::Whole);
        }
        let is_too_long =
            is_turn && wanted.saturating_sub(head.turn.load(SeqCst)) > head.size.saturating_sub(TWICE as u64);
        (has_failed || is_too_long).then_some(Arrival::Never)
    }

    /// Copy bytes that are there.
    pub fn read(&self, buffer: &mut [u8], mut offset: u64) {
        let mut left = buffer;
        while !left.is_empty() {
            let (at, together) = self.map.place(offset);
            let n = together.min(left.len());
            let Some((now, later)) = left.split_at_mut_checked(n) else { return };
            // SAFETY: `place` says that so many bytes are there; nobody writes to them before they are let go of.
            unsafe { std::ptr::copy_nonoverlapping(at, now.as_mut_ptr(), n) };
            offset += n as u64;
            left = later;
        }
    }

    /// This process is going to read what is at `offset`, though the turn passes on.
    pub fn hold(&self, process: usize, offset: u64) {
        if let Some(held) = self.map.head().held.get(process) {
            held.store(offset, SeqCst);
        }
    }

    /// No more.
    pub fn let_go(&self, process: usize) {
        self.hold(process, NONE);
    }

    /// The first record that is not cut yet is at `record`.
    pub fn pass(&self, record: u64) {
        // The next one may have passed it on already.
        self.map.head().turn.fetch_max(record, SeqCst);
    }
}

/// The thread's side.
struct Writer {
    map: Arc<Map>,
    stop: Arc<AtomicBool>,
}

impl Drop for Writer {
    /// Whatever became of the thread, a panic of a decoder's among them: nobody waits for more.
    fn drop(&mut self) {
        let head = self.map.head();
        if head.end.load(SeqCst) == NONE {
            head.has_failed.store(true, SeqCst);
        }
    }
}

/// What the thread decodes by.
enum Decoder {
    /// To where the bytes stay.
    InPlace(Frames),
    /// From elsewhere.
    Copied(Box<dyn Read>),
}

impl Decoder {
    /// At the file's start. What was decoded stays for so many bytes.
    fn begin(compression: Compression, input: Input, consumed: &Arc<AtomicU64>, stays: usize) -> Result<Decoder> {
        if compression == Compression::Zstd && members::begins_with_long_frame(&input)? {
            return Ok(Decoder::InPlace(Frames::new(input, stays as u64)?));
        }
        Ok(Decoder::Copied(members::decoder(compression, input, Arc::clone(consumed))?))
    }
}

impl Writer {
    fn work(&self, decoder: Decoder, compression: Compression, consumed: &Arc<AtomicU64>, base: u64) {
        let head = self.map.head();
        let outcome = match decoder {
            Decoder::InPlace(frames) => self.fill_in_place(frames, compression, consumed, base),
            Decoder::Copied(mut decoder) => self.fill(&mut *decoder, consumed, base, 0),
        };
        head.consumed.store(consumed.load(Relaxed), Relaxed);
        if let Ok(end) = outcome {
            head.end.store(end, SeqCst);
        }
    }

    /// Wait until there is room for so many bytes behind `filled`. How much there is.
    fn wait_for_room(&self, wanted: u64, filled: u64, kept: &mut u64) -> Result<u64> {
        let size = self.map.size() as u64;
        loop {
            // What was kept when somebody looked last may be further behind than the ring is long.
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

    /// Where the bytes end, which are decoded where they stay, as long as that can be done.
    fn fill_in_place(
        &self,
        mut frames: Frames,
        compression: Compression,
        consumed: &Arc<AtomicU64>,
        base: u64,
    ) -> Result<u64> {
        let head = self.map.head();
        let (mut filled, mut kept) = (0, base);
        loop {
            self.wait_for_room(TWICE as u64, filled, &mut kept)?;
            if point_errno!("ring.fill").is_some() {
                std::panic::resume_unwind(Box::new("a point"));
            }
            let (at, _) = self.map.place(filled);
            // SAFETY: so many bytes are next to each other, and nobody needs what is there. What is before them stays: it is written to only when
            // the ring has come round, in this very place; and when it has, what was behind its end is where it was, mapped twice.
            // That is less than ZSTD_decodingBufferSize_min (zstd.h) has behind a window, which is for a buffer that is mapped once. Here, in a
            // ring of S bytes, a block at p overwrites at most what was at p - S .. p - S + ROOM. A window has no more than S - TWICE bytes
            // (`Decoder::begin`), so the block looks back no further than to p - S + TWICE; and ROOM is no more than TWICE.
            let next = unsafe { frames.next(at) };
            consumed.store(frames.consumed(), Relaxed);
            head.consumed.store(frames.consumed(), Relaxed);
            match next? {
                Next::Bytes(n) => filled += n as u64,
                Next::End => return Ok(filled.max(base)),
                Next::Other => break,
            }
            // Nobody looks at what is before the first record that is shared.
            if filled > base {
                head.filled.store(filled, Release);
            }
        }
        let inner = BufReader::with_capacity(PIECE, frames.rest()?);
        drop(frames);
        let mut decoder = compression.decoder(Counted { inner, consumed: Arc::clone(consumed) })?;
        self.fill(&mut *decoder, consumed, base, filled)
    }

    /// Where the bytes end, of which so many were there before.
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
            // SAFETY: so many bytes are next to each other, and nobody needs what is there.
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
