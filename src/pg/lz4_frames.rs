//! lz4 frames, one after the other, by LZ4's own decoder.
//!
//! It is given what the source has, and says how much of it is taken: what is behind a frame stays where it is. It reads over
//! frames to skip, and says whether it is at the end of one, so a frame that is cut off can be told.

use std::ffi::CStr;
use std::io::{BufRead, Error, ErrorKind, Read, Result};
use std::ptr::null;

use lz4::liblz4;

/// What the frames of a source stand for.
pub struct Frames<R> {
    source: R,
    context: liblz4::LZ4FDecompressionContext,
    /// A frame has begun, and has not ended; or there was none yet: no byte at all is no lz4 data.
    inside: bool,
}

impl<R> Frames<R> {
    pub fn new(source: R) -> Result<Frames<R>> {
        let mut context = liblz4::LZ4FDecompressionContext(std::ptr::null_mut());
        // SAFETY: the context is written where no error is returned.
        check(unsafe { liblz4::LZ4F_createDecompressionContext(&mut context, liblz4::LZ4F_VERSION) })?;
        Ok(Frames { source, context, inside: true })
    }
}

impl<R> Drop for Frames<R> {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and used by nobody any more.
        unsafe { liblz4::LZ4F_freeDecompressionContext(liblz4::LZ4FDecompressionContext(self.context.0)) };
    }
}

/// An error of the library's, or what it has returned.
fn check(code: usize) -> Result<usize> {
    // SAFETY: functions of numbers; the name is a constant.
    unsafe {
        if liblz4::LZ4F_isError(code) == 0 {
            return Ok(code);
        }
        let name = CStr::from_ptr(liblz4::LZ4F_getErrorName(code)).to_string_lossy();
        let kind = if name.contains("allocation") { ErrorKind::OutOfMemory } else { ErrorKind::InvalidData };
        Err(Error::new(kind, name))
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        while !buffer.is_empty() {
            let from = self.source.fill_buf()?;
            if from.is_empty() {
                return if self.inside { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(0) };
            }
            let (mut made, mut taken) = (buffer.len(), from.len());
            // SAFETY: both are as long as it is told, and it says how much of them it has used; the context is valid.
            let left = check(unsafe {
                let context = liblz4::LZ4FDecompressionContext(self.context.0);
                let (to, from) = (buffer.as_mut_ptr(), from.as_ptr());
                liblz4::LZ4F_decompress(context, to, &mut made, from, &mut taken, null())
            })?;
            self.source.consume(taken);
            self.inside = left != 0;
            if made > 0 {
                return Ok(made);
            }
        }
        Ok(0)
    }
}
