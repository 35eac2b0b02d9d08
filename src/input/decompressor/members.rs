//! Decompresses the members of a file with several threads.
//!
//! ```text
//!   file ─► members, found by their lengths ─► threads, each with a few members at a time ─► bytes, in order
//! ```
//!
//! A compressed file that one decoder would read in order can be divided between members, if their ends can be found
//! without decoding. bgzip stores the length of each member, and the blocks of a zstd frame contain their lengths. If
//! the next member is too long or is no member, one decoder reads the rest of the file ([`Compression::decoder`]). The
//! same decoder takes over where a part is invalid. Perhaps only the length is wrong, which a decoder does not use;
//! otherwise the decoder reports the error.
//!
//! The threads live as long as the [`Members`] and call no server function. The decompression thread starts them, so
//! they block all signals, too. The amount of data that they hold ahead is bounded: a few parts each. A part that
//! decompresses to more than [`bytes_ahead`] is decoded when it is read.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Cursor, Error, ErrorKind, Read, Result};
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};

use super::super::coding::Steps;
use super::super::compression::Compression;
use super::{Counted, Input, failed};
use crate::guc;
use crate::server::points::point_errno;

/// Maximum number of threads.
const MOST_THREADS: usize = 4;
/// Compressed bytes of a part: at least `PART` if there are more members. `MOST` bounds its bytes, compressed and
/// decompressed, unless the memory limit is lower.
const PART: usize = 128 << 10;
const MOST: usize = 8 << 20;
/// Bytes of the file per read.
const READ: usize = 256 << 10;
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";

/// Several members, which one thread decodes at once.
struct MemberGroup {
    /// Position in the file.
    at: u64,
    bytes: Vec<u8>,
}

/// Result of decoding a part. A part that is too large is returned undecoded.
enum Decoded {
    Bytes(u64, Vec<u8>),
    /// The part at this position in the file is invalid.
    Wrong(u64),
    TooMuch(MemberGroup),
}

type DecodeTask = (MemberGroup, SyncSender<Decoded>);

/// Returns the limit for the decompressed bytes of a part; each of a few threads holds this many.
pub fn bytes_ahead() -> usize {
    (guc::memory_limit() / 8).clamp(PART, MOST)
}

/// Decodes a file from its start.
pub struct Members {
    compression: Compression,
    /// None once one decoder reads the rest.
    source: Option<BufReader<Input>>,
    /// Position behind the parts that were given to the threads.
    at: u64,
    /// Position in the file behind the bytes that were returned.
    consumed: Arc<AtomicU64>,
    /// Bytes that were read and not yet given to a thread.
    waiting: Vec<u8>,
    tasks: Option<Sender<DecodeTask>>,
    /// Results of the parts that were given to the threads, in order.
    ahead: VecDeque<Receiver<Decoded>>,
    most_ahead: usize,
    /// Maximum number of bytes in a part.
    most: usize,
    /// The decompressed bytes that are being returned.
    now: Cursor<Vec<u8>>,
    /// The decoder for the rest of the file, or for one large part.
    alone: Option<Box<dyn Read>>,
    is_last: bool,
}

/// Returns a reader of the text of a file.
pub fn decoder(steps: Steps, input: Input, consumed: Arc<AtomicU64>) -> Result<Box<dyn Read>> {
    match steps.compression() {
        Some(compression) => steps.rewritten(decompressed(compression, input, consumed)?),
        None => steps.decoder(Counted { inner: BufReader::with_capacity(READ, input), consumed }),
    }
}

/// Returns a reader of the decompressed bytes of a file, which uses several threads if the file has members.
pub fn decompressed(compression: Compression, input: Input, consumed: Arc<AtomicU64>) -> Result<Box<dyn Read>> {
    let most = input.ahead;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(MOST_THREADS);
    let mut source = BufReader::with_capacity(READ, input);
    let first = source.fill_buf()?;
    let has_members = match compression {
        Compression::Gzip => bgzip(first).is_some(),
        // Empty input is no frame; the decoder reports that.
        Compression::Zstd => !first.is_empty() && !matches!(frame(first, most), Length::No),
        _ => false,
    };
    if cores < 2 || !has_members {
        return compression.decoder(Counted { inner: source, consumed });
    }
    let (tasks, to_do) = channel::<DecodeTask>();
    let to_do = Arc::new(Mutex::new(to_do));
    let begin = || {
        let to_do = Arc::clone(&to_do);
        let work = move || {
            loop {
                let task = to_do.lock().map(|tasks| tasks.recv());
                let Ok(Ok((part, reply))) = task else { return };
                // The reader may be gone.
                let _ = reply.send(decode(compression, part, most));
            }
        };
        let thread = std::thread::Builder::new().name("pg_bulk members".into());
        point_errno!("members.thread").is_none() && thread.spawn(work).is_ok()
    };
    // Fewer threads suffice, but take longer.
    if (0..cores).filter(|_| begin()).count() == 0 {
        return compression.decoder(Counted { inner: source, consumed });
    }
    drop(to_do);
    Ok(Box::new(Members {
        compression,
        source: Some(source),
        at: 0,
        consumed,
        waiting: Vec::new(),
        tasks: Some(tasks),
        ahead: VecDeque::new(),
        most_ahead: cores + 1,
        most,
        now: Cursor::default(),
        alone: None,
        is_last: false,
    }))
}

/// Whether a file begins with a zstd frame that is too long for a part.
pub fn begins_with_long_frame(input: &Input) -> Result<bool> {
    let mut bytes = Vec::new();
    let mut len = READ;
    loop {
        if input.stop.load(Relaxed) {
            return Err(Error::other("nobody is left to read"));
        }
        bytes.try_reserve(len - bytes.len()).map_err(|_| Error::from(ErrorKind::OutOfMemory))?;
        let from = bytes.len();
        let mut n = from;
        bytes.resize(len, 0);
        while let Ok(more @ 1..) = input.file.read_at(bytes.get_mut(n..).unwrap_or_default(), n as u64) {
            n += more;
        }
        bytes.truncate(n);
        match frame(&bytes, input.ahead) {
            // The frame's length is the sum of its blocks, which are read until it is too long.
            Length::Behind(_) if n == len => len *= 2,
            Length::No => return Ok(bytes.starts_with(ZSTD)),
            _ => return Ok(false),
        }
    }
}

fn decode(compression: Compression, part: MemberGroup, most: usize) -> Decoded {
    let consumed = Arc::new(AtomicU64::new(0));
    let mut bytes = Vec::new();
    let result = {
        let inner = Cursor::new(part.bytes.as_slice());
        let counted = Counted { inner, consumed: Arc::clone(&consumed) };
        compression.decoder(counted).and_then(|decoder| take_all(decoder, &mut bytes, most))
    };
    let at = part.at + consumed.load(Relaxed);
    match result {
        Ok(true) => Decoded::Bytes(at, bytes),
        Ok(false) => Decoded::TooMuch(part),
        Err(_) => Decoded::Wrong(part.at),
    }
}

/// Returns false if there are more than `most` bytes.
fn take_all(mut decoder: Box<dyn Read + '_>, bytes: &mut Vec<u8>, most: usize) -> Result<bool> {
    loop {
        let len = bytes.len();
        if len > most {
            return Ok(false);
        }
        bytes.try_reserve(PART).map_err(|_| Error::from(ErrorKind::OutOfMemory))?;
        bytes.resize(len + PART, 0);
        let read = decoder.read(bytes.get_mut(len..).unwrap_or_default());
        bytes.truncate(len + read.as_ref().map_or(0, |n| *n));
        match read {
            Ok(0) => return Ok(true),
            Ok(_) => (),
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
    }
}

/// Length of a member.
enum Length {
    Known(usize),
    /// At least this many bytes are needed to determine it.
    Behind(usize),
    /// Too long, or no member.
    No,
}

/// Returns the length of a bgzip member (SAM/BAM format, 4.1).
fn bgzip(bytes: &[u8]) -> Option<usize> {
    let field = bytes.get(12..18)?;
    let is_one =
        bytes.starts_with(b"\x1f\x8b\x08\x04") && field.starts_with(b"BC\x02\x00") && bytes.get(10..12)? == b"\x06\x00";
    let &[_, _, _, _, low, high] = field else { return None };
    is_one.then_some(usize::from(u16::from_le_bytes([low, high])) + 1)
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Returns the length of a zstd frame (RFC 8878, 3.1.1) or skippable frame, if it is at most `most`.
#[expect(clippy::indexing_slicing, reason = "two bits choose among four")]
fn frame(bytes: &[u8], most: usize) -> Length {
    let Some(head) = bytes.get(..8) else { return Length::Behind(8) };
    if matches!(head, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..]) {
        let len = usize::try_from(number(head.get(4..).unwrap_or_default())).unwrap_or(usize::MAX);
        return if len < most { Length::Known(8 + len) } else { Length::No };
    }
    let Some(&descriptor) = head.get(4).filter(|_| head.starts_with(ZSTD)) else { return Length::No };
    let is_single = descriptor & 0x20 != 0;
    let window = usize::from(!is_single);
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let size = match descriptor >> 6 {
        0 => usize::from(is_single),
        1 => 2,
        2 => 4,
        _ => 8,
    };
    let mut at = 5 + window + dictionary + size;
    let Some(content) = bytes.get(at - size..at) else { return Length::Behind(at) };
    if number(content) > most as u64 {
        return Length::No;
    }
    loop {
        if at > most {
            return Length::No;
        }
        let Some(block) = bytes.get(at..at + 3) else { return Length::Behind(at + 3) };
        let block = usize::try_from(number(block)).unwrap_or(0);
        at += 3 + if block >> 1 & 3 == 1 { 1 } else { block >> 3 };
        if block & 1 != 0 {
            return Length::Known(at + if descriptor & 4 != 0 { 4 } else { 0 });
        }
    }
}

impl Members {
    fn length(&self, from: usize) -> Length {
        let bytes = self.waiting.get(from..).unwrap_or_default();
        match self.compression {
            Compression::Gzip if bytes.len() < 18 => Length::Behind(18),
            Compression::Gzip => bgzip(bytes).map_or(Length::No, Length::Known),
            _ => frame(bytes, self.most),
        }
    }

    /// Reads until `len` bytes are waiting. Returns false at the end of the file.
    fn wait(&mut self, len: usize) -> Result<bool> {
        let Some(source) = &mut self.source else { return Ok(false) };
        while self.waiting.len() < len {
            let more = source.fill_buf()?;
            if more.is_empty() {
                return Ok(false);
            }
            let n = more.len().min((len - self.waiting.len()).max(PART));
            self.waiting.try_reserve(n).map_err(|_| Error::from(ErrorKind::OutOfMemory))?;
            self.waiting.extend_from_slice(more.get(..n).unwrap_or_default());
            source.consume(n);
        }
        Ok(true)
    }

    /// Returns the next members. `None` if one decoder reads the rest.
    fn next_part(&mut self) -> Result<Option<MemberGroup>> {
        let mut len = 0;
        while len < PART {
            let wanted = match self.length(len) {
                Length::No => break,
                Length::Behind(wanted) => {
                    if !self.wait(len + wanted)? {
                        break;
                    }
                    continue;
                }
                Length::Known(wanted) => wanted,
            };
            if !self.wait(len + wanted)? {
                break;
            }
            len += wanted;
        }
        if len == 0 {
            return Ok(None);
        }
        let later = self.waiting.split_off(len);
        let part = MemberGroup { at: self.at, bytes: std::mem::replace(&mut self.waiting, later) };
        self.at += len as u64;
        Ok(Some(part))
    }

    /// Gives parts to the threads, up to the limit.
    fn give_out(&mut self) -> Result<()> {
        while !self.is_last && self.ahead.len() < self.most_ahead {
            let Some(part) = self.next_part()? else {
                self.is_last = true;
                break;
            };
            let (reply, outcome) = sync_channel(1);
            let sent = self.tasks.as_ref().map(|tasks| tasks.send((part, reply)));
            if !matches!(sent, Some(Ok(()))) {
                return Err(failed());
            }
            self.ahead.push_back(outcome);
        }
        Ok(())
    }

    /// Leaves the rest of the file, from this position on, to one decoder.
    fn leave_rest(&mut self, at: u64) -> Result<()> {
        self.ahead.clear();
        self.waiting = Vec::new();
        // This ends the threads.
        (self.tasks, self.is_last) = (None, true);
        let input = Input { offset: at, ..self.source.take().ok_or_else(failed)?.into_inner() };
        self.consumed.store(at, Relaxed);
        let inner = BufReader::with_capacity(READ, input);
        self.alone = Some(self.compression.decoder(Counted { inner, consumed: Arc::clone(&self.consumed) })?);
        Ok(())
    }

    /// Prepares the next decompressed bytes. Returns false at the end.
    fn go_on(&mut self) -> Result<bool> {
        self.give_out()?;
        match self.ahead.pop_front().map(|outcome| outcome.recv()) {
            Some(Ok(Decoded::Bytes(at, bytes))) => {
                self.consumed.store(at, Relaxed);
                self.now = Cursor::new(bytes);
            }
            Some(Ok(Decoded::Wrong(at))) => self.leave_rest(at)?,
            Some(Ok(Decoded::TooMuch(part))) => {
                self.consumed.store(part.at, Relaxed);
                let inner = Cursor::new(part.bytes);
                self.alone = Some(self.compression.decoder(Counted { inner, consumed: Arc::clone(&self.consumed) })?);
            }
            Some(Err(_)) => return Err(failed()),
            None => {
                // This ends the threads.
                self.tasks = None;
                let Some(mut source) = self.source.take() else { return Ok(false) };
                self.consumed.store(self.at, Relaxed);
                let waiting = std::mem::take(&mut self.waiting);
                if waiting.is_empty() && source.fill_buf()?.is_empty() {
                    return Ok(false);
                }
                let inner = Cursor::new(waiting).chain(source);
                let counted = Counted { inner, consumed: Arc::clone(&self.consumed) };
                self.alone = Some(self.compression.decoder(counted)?);
            }
        }
        Ok(true)
    }
}

impl Read for Members {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            if let Some(alone) = &mut self.alone {
                let n = alone.read(buffer)?;
                if n > 0 || buffer.is_empty() {
                    return Ok(n);
                }
                self.alone = None;
                if self.tasks.is_none() {
                    return Ok(0);
                }
            }
            let n = self.now.read(buffer)?;
            if n > 0 || buffer.is_empty() {
                return Ok(n);
            }
            if !self.go_on()? {
                return Ok(0);
            }
        }
    }
}
