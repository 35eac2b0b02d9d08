//! zstd frames, a block at a time, decoded to where their bytes are wanted.
//!
//! A decoder of streams keeps what it may have to look back at, the window, and copies all it makes out of there. Where what was made
//! stays in its place for long enough anyway, as in a ring ([`super::ring`]), that copy is needed by nobody: the library also decodes
//! block by block behind the last one ("buffer-less streaming" in zstd.h), and looks back at what is there.
//!
//! **Only what is plain is decoded here.** Of anything else, which its head tells (a frame to skip, one with a dictionary, one that looks back too
//! far, what is no frame), the place is said, and the rest from there on is for [`super::compression::Compression::decoder`]. Checksums are
//! verified by the library, as in a stream.

use std::ffi::CStr;
use std::io::{Error, ErrorKind, Read, Result};
use std::mem::MaybeUninit;

use zstd::zstd_safe::zstd_sys as sys;

use super::decompressor::Input;
use super::points::point_errno;

/// Bytes that must be free where a block is to be decoded: the longest one, and what the library writes behind it to be fast.
pub const ROOM: usize = (128 << 10) + 4096;
/// Bytes of the file that are read at a time; more than a block has.
const READ: usize = 256 << 10;
/// A frame's head at its longest (ZSTD_FRAMEHEADERSIZE_MAX).
const HEAD: usize = 18;

/// A file's frames.
pub struct Frames {
    context: *mut sys::ZSTD_DCtx,
    input: Input,
    buffer: Vec<u8>,
    /// What of the buffer is there and not decoded.
    from: usize,
    to: usize,
    /// How far may be looked back.
    most: u64,
    /// A frame has begun, and has not ended.
    inside: bool,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Bytes(usize),
    /// The file has ended behind a frame.
    End,
    /// Something that another decoder is to see to.
    Other,
}

impl Drop for Frames {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and used by nobody any more.
        unsafe { sys::ZSTD_freeDCtx(self.context) };
    }
}

/// An error of the library's, or what it has returned.
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
    /// From where the input is. What was decoded stays in its place for `most` bytes.
    pub fn new(input: Input, most: u64) -> Result<Frames> {
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(READ).map_err(|_| Error::from(ErrorKind::OutOfMemory))?;
        buffer.resize(READ, 0);
        // SAFETY: makes a context, or none.
        let context = unsafe { sys::ZSTD_createDCtx() };
        if context.is_null() {
            return Err(ErrorKind::OutOfMemory.into());
        }
        Ok(Frames { context, input, buffer, from: 0, to: 0, most, inside: false })
    }

    /// So many bytes of the file are decoded.
    pub fn consumed(&self) -> u64 {
        self.input.offset - (self.to - self.from) as u64
    }

    /// What is not decoded.
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

    /// Begin a frame, if one comes next that can be decoded here.
    fn begin(&mut self) -> Result<Option<Next>> {
        let most = self.most;
        let head = self.bytes(HEAD)?;
        if head.is_empty() {
            return Ok(Some(Next::End));
        }
        let mut said = MaybeUninit::<sys::ZSTD_FrameHeader>::zeroed();
        // SAFETY: the head is as long as it is told. All zeroes are a value, which is overwritten if the head is whole.
        let (code, said) = unsafe {
            let code = sys::ZSTD_getFrameHeader(said.as_mut_ptr(), head.as_ptr().cast(), head.len());
            (code, said.assume_init())
        };
        let is_plain = said.frameType == sys::ZSTD_FrameType_e::ZSTD_frame && said.dictID == 0;
        if code != 0 || !is_plain || said.windowSize > most {
            return Ok(Some(Next::Other));
        }
        // SAFETY: a valid context.
        check(unsafe { sys::ZSTD_decompressBegin(self.context) })?;
        self.inside = true;
        Ok(None)
    }

    /// Decode the next block to `at`.
    ///
    /// # Safety
    /// `ROOM` bytes may be written there. What was decoded before is still where it was, for `most` bytes: directly before `at`, or
    /// where it was decoded before decoding went on at another place than behind it.
    pub unsafe fn next(&mut self, at: *mut u8) -> Result<Next> {
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
            // SAFETY: as many bytes as are wanted; for the others this function's contract covers it. A block looks back no further than its frame's window,
            // which `begin` has found to be no longer than what stays; and the library writes to `at .. at + ROOM` only, which it is told.
            let made =
                unsafe { sys::ZSTD_decompressContinue(context, at.cast(), ROOM, bytes.as_ptr().cast(), bytes.len()) };
            self.from += wanted;
            if let Some(errno) = point_errno!("zstd.block") {
                return Err(Error::from_raw_os_error(errno));
            }
            match check(made)? {
                0 => (),
                made => return Ok(Next::Bytes(made)),
            }
        }
    }
}
