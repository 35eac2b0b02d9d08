//! Decompresses lz4 frames, one after the other, with LZ4's own decoder.
//!
//! The decoder gets the source's buffer and returns how much of it was used, so bytes behind a frame stay in the
//! source. It skips skippable frames, and reports the end of a frame, so a truncated frame is detected.

use std::ffi::CStr;
use std::io::{BufRead, Error, ErrorKind, Read, Result};
use std::ptr::null;

use lz4::liblz4;

/// Decompressed bytes of a source's frames.
pub struct Frames<R> {
    source: R,
    context: liblz4::LZ4FDecompressionContext,
    /// Within a frame, or before the first one: empty input is no lz4 data.
    inside: bool,
}

impl<R> Frames<R> {
    pub fn new(source: R) -> Result<Frames<R>> {
        let mut context = liblz4::LZ4FDecompressionContext(std::ptr::null_mut());
        // SAFETY: the context is valid if no error is returned.
        check(unsafe { liblz4::LZ4F_createDecompressionContext(&mut context, liblz4::LZ4F_VERSION) })?;
        Ok(Frames { source, context, inside: true })
    }
}

impl<R> Drop for Frames<R> {
    fn drop(&mut self) {
        // SAFETY: created by `new`; there is no further use.
        unsafe { liblz4::LZ4F_freeDecompressionContext(liblz4::LZ4FDecompressionContext(self.context.0)) };
    }
}

/// Returns an error of the library, or its result.
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
            // SAFETY: both buffers have the given lengths, which the decoder replaces by the lengths that it has used;
            // the context is valid.
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
