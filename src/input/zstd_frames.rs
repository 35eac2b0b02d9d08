//! Decodes zstd frames block by block to a given address.
//!
//! A stream decoder keeps its window, the bytes that a block may refer back to, in memory of its own, and copies all
//! output from there. If the output stays in place for long enough, as in a ring ([`super::ring`]), that copy is not
//! needed. The library can also decode block by block behind the previous output ("buffer-less streaming" in zstd.h),
//! and refer back to it.
//!
//! **Only plain frames are decoded here.** A skippable frame, one with a dictionary or with too large a window, and
//! bytes that are no frame are not plain. At their position decoding stops, and
//! [`super::compression::Compression::decoder`] decodes the rest. The library verifies checksums, as in a stream.

use std::ffi::CStr;
use std::io::{Error, ErrorKind, Read, Result};
use std::mem::MaybeUninit;

use zstd::zstd_safe::zstd_sys as sys;

use super::decompressor::Input;
use crate::server::points::point_errno;

/// Bytes that must be free behind the address of a block: the longest block, and the bytes that the library overwrites
/// for speed.
pub const ROOM: usize = (128 << 10) + 4096;
/// Bytes of the file that are read at a time; more than a block has.
const READ: usize = 256 << 10;
/// Size of the longest frame header (ZSTD_FRAMEHEADERSIZE_MAX).
const HEAD: usize = 18;

/// The frames of a file.
pub struct Frames {
    context: *mut sys::ZSTD_DCtx,
    input: Input,
    buffer: Vec<u8>,
    /// The bytes of the buffer that are not decoded yet.
    from: usize,
    to: usize,
    /// Largest window.
    most: u64,
    /// A frame has begun, and has not ended.
    inside: bool,
}

/// Result of [`Frames::next`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextFrame {
    Bytes(usize),
    /// The file has ended behind a frame.
    End,
    /// The next bytes need another decoder.
    Other,
}

impl Drop for Frames {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and not used any more.
        unsafe { sys::ZSTD_freeDCtx(self.context) };
    }
}

/// Return a result of the library, or its error.
fn check(code: usize) -> Result<usize> {
    // SAFETY: functions of numbers; the name is a constant.
    unsafe {
        if sys::ZSTD_isError(code) == 0 {
            return Ok(code);
        }
        Err(Error::other(CStr::from_ptr(sys::ZSTD_getErrorName(code)).to_string_lossy()))
    }
}

impl Frames {
    /// Start at the position of the input. Output stays in place until `most` more bytes are decoded.
    pub fn new(input: Input, most: u64) -> Result<Frames> {
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(READ).map_err(|_| Error::from(ErrorKind::OutOfMemory))?;
        buffer.resize(READ, 0);
        // SAFETY: returns a context, or null.
        let context = unsafe { sys::ZSTD_createDCtx() };
        if context.is_null() {
            return Err(ErrorKind::OutOfMemory.into());
        }
        Ok(Frames { context, input, buffer, from: 0, to: 0, most, inside: false })
    }

    /// Bytes of the file that are decoded.
    pub fn consumed(&self) -> u64 {
        self.input.offset - (self.to - self.from) as u64
    }

    /// The rest of the file, from the first byte that is not decoded.
    pub fn rest(&self) -> Result<Input> {
        let file = self.input.file.try_clone()?;
        Ok(Input { file, offset: self.consumed(), stop: self.input.stop.clone(), ahead: self.input.ahead })
    }

    /// The next `len` bytes of the file, or as many as there are.
    fn bytes(&mut self, len: usize) -> Result<&[u8]> {
        if self.to - self.from < len {
            self.buffer.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        while self.to - self.from < len {
            match self.input.read(self.buffer.get_mut(self.to..).unwrap_or_default()) {
                Ok(0) => break,
                Ok(n) => self.to += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
        let to = self.to.min(self.from + len);
        Ok(self.buffer.get(self.from..to).unwrap_or_default())
    }

    /// Begin a frame, if the next one can be decoded here.
    fn begin(&mut self) -> Result<Option<NextFrame>> {
        let most = self.most;
        let head = self.bytes(HEAD)?;
        if head.is_empty() {
            return Ok(Some(NextFrame::End));
        }
        let mut said = MaybeUninit::<sys::ZSTD_FrameHeader>::zeroed();
        // SAFETY: a header with its length. All zeroes are a valid value, which is overwritten if the header is
        // complete.
        let (code, said) = unsafe {
            let code = sys::ZSTD_getFrameHeader(said.as_mut_ptr(), head.as_ptr().cast(), head.len());
            (code, said.assume_init())
        };
        let is_plain = said.frameType == sys::ZSTD_FrameType_e::ZSTD_frame && said.dictID == 0;
        if code != 0 || !is_plain || said.windowSize > most {
            return Ok(Some(NextFrame::Other));
        }
        // SAFETY: a valid context.
        check(unsafe { sys::ZSTD_decompressBegin(self.context) })?;
        self.inside = true;
        Ok(None)
    }

    /// Decode the next block to `at`.
    ///
    /// # Safety
    /// `ROOM` bytes may be written there. The last `most` bytes of output are still in place: directly before `at`, or,
    /// where decoding went on at another address, at their former one.
    pub unsafe fn next(&mut self, at: *mut u8) -> Result<NextFrame> {
        loop {
            if !self.inside
                && let Some(next) = self.begin()?
            {
                return Ok(next);
            }
            // SAFETY: a valid context.
            let wanted = unsafe { sys::ZSTD_nextSrcSizeToDecompress(self.context) };
            if wanted == 0 {
                self.inside = false;
                continue;
            }
            if wanted > READ {
                return Err(ErrorKind::InvalidData.into());
            }
            let context = self.context;
            let bytes = self.bytes(wanted)?;
            if bytes.len() < wanted {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            // SAFETY: `wanted` bytes of input; this function's contract covers the rest. A block refers back no further
            // than its frame's window, which is at most `most`. The library writes only to `at .. at + ROOM`, since it
            // gets that limit.
            let made =
                unsafe { sys::ZSTD_decompressContinue(context, at.cast(), ROOM, bytes.as_ptr().cast(), bytes.len()) };
            self.from += wanted;
            if let Some(errno) = point_errno!("zstd.block") {
                return Err(Error::from_raw_os_error(errno));
            }
            match check(made)? {
                0 => (),
                made => return Ok(NextFrame::Bytes(made)),
            }
        }
    }
}
