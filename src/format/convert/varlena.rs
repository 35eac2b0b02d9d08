//! Values with a length word, as the input functions return them.
//!
//! Always the four-byte header, uncompressed: the tuple former shortens it where that is allowed, as core's does.

use super::Datum;
use crate::arena::Arena;
use crate::tuple::copy_short;

/// Bytes of the header.
pub(super) const HEADER: usize = 4;
/// The largest value an input function can allocate (MaxAllocSize).
const MAX_SIZE: usize = 0x3fff_ffff;

/// Room for `len` bytes behind a header that is already written.
#[inline(always)]
pub(super) fn alloc(len: usize, arena: &mut Arena) -> Option<(Datum, &mut [u8])> {
    let total = len.checked_add(HEADER).filter(|&t| t <= MAX_SIZE)?;
    let (header, body) = arena.alloc(total)?.split_first_chunk_mut::<HEADER>()?;
    *header = ((total as u32) << 2).to_le_bytes();
    Some((address(header), body))
}

/// The datum of something in the arena.
#[inline(always)]
pub(super) fn address(bytes: &[u8]) -> Datum {
    bytes.as_ptr() as Datum
}

/// The bytes of a value that [`alloc`] made.
///
/// # Safety
/// It did, and the arena was not reset since.
#[allow(unsafe_code, reason = "a datum is an address")]
pub(crate) unsafe fn body<'a>(datum: Datum) -> &'a [u8] {
    let from: *const u8 = std::ptr::with_exposed_provenance(datum as usize);
    // SAFETY: the caller's promise: a header that counts itself, and as many bytes as it says.
    unsafe {
        let size = (from.cast::<u32>().read_unaligned() >> 2) as usize;
        std::slice::from_raw_parts(from.add(HEADER), size - HEADER)
    }
}

/// A value of a fixed length.
///
/// # Safety
/// A decoder has made it of so many bytes, in an arena that was not reset since.
#[allow(unsafe_code, reason = "a datum is an address")]
pub(super) unsafe fn fixed<'a>(datum: Datum, len: usize) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(datum as usize), len) }
}

/// The bytes themselves as a value.
#[inline]
#[allow(unsafe_code, reason = "a copy in pieces")]
pub(crate) fn copy(bytes: &[u8], arena: &mut Arena) -> Option<Datum> {
    let (datum, body) = alloc(bytes.len(), arena)?;
    // Most are short.
    // SAFETY: as many bytes, and other memory.
    unsafe { copy_short(bytes.as_ptr(), body.as_mut_ptr(), bytes.len()) };
    Some(datum)
}
