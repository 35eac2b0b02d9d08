//! Values with a length word, as the input functions return them.
//!
//! They always have the uncompressed four-byte header. Forming a tuple shortens it if possible, as core does.

use super::Datum;
use crate::arena::Arena;

/// Size of the header in bytes.
pub(super) const HEADER: usize = 4;
/// The largest value that an input function can allocate, in bytes (MaxAllocSize).
const MAX_SIZE: usize = 0x3fff_ffff;

/// Allocates `len` bytes behind a header, which is already written.
#[inline(always)]
pub(super) fn alloc(len: usize, arena: &mut Arena) -> Option<(Datum, &mut [u8])> {
    let total = len.checked_add(HEADER).filter(|&t| t <= MAX_SIZE)?;
    let (header, body) = arena.alloc(total)?.split_first_chunk_mut::<HEADER>()?;
    *header = ((total as u32) << 2).to_le_bytes();
    Some((address(header), body))
}

/// Returns the datum for the address of bytes in the arena.
#[inline(always)]
pub(super) fn address(bytes: &[u8]) -> Datum {
    bytes.as_ptr() as Datum
}

/// Returns the bytes of a value that [`alloc`] made.
///
/// # Safety
/// [`alloc`] made the value, and the arena was not reset since.
#[allow(unsafe_code, reason = "a datum is an address")]
pub(crate) unsafe fn body<'a>(datum: Datum) -> &'a [u8] {
    let from: *const u8 = std::ptr::with_exposed_provenance(datum as usize);
    // SAFETY: made by `alloc`: the header has the size of the value, itself included.
    unsafe {
        let size = (from.cast::<u32>().read_unaligned() >> 2) as usize;
        std::slice::from_raw_parts(from.add(HEADER), size - HEADER)
    }
}

/// Returns a value of a fixed length.
///
/// # Safety
/// A decoder has made the value with `len` bytes, in an arena that was not reset since.
#[allow(unsafe_code, reason = "a datum is an address")]
pub(super) unsafe fn fixed<'a>(datum: Datum, len: usize) -> &'a [u8] {
    // SAFETY: a decoder has made these bytes, and the arena still has them.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(datum as usize), len) }
}

/// Copies bytes into a new value.
#[inline]
#[allow(unsafe_code, reason = "a copy in pieces")]
pub(crate) fn copy(bytes: &[u8], arena: &mut Arena) -> Option<Datum> {
    let (datum, body) = alloc(bytes.len(), arena)?;
    // Most values are short. SAFETY: both are `bytes.len()` long and do not overlap.
    unsafe { copy_short(bytes.as_ptr(), body.as_mut_ptr(), bytes.len()) };
    Some(datum)
}

/// Copies a value of less than 64 bytes without a call: its first and last bytes, which overlap. Longer ones go to
/// memcpy.
///
/// # Safety
/// `bytes` bytes can be read at `from` and written at `to`, and these are different memory.
#[inline(always)]
#[allow(unsafe_code, reason = "a copy in pieces")]
pub unsafe fn copy_short(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: this function's contract; `bytes` is at least the size of one move.
    unsafe {
        if bytes >= 64 {
            std::ptr::copy_nonoverlapping(from, to, bytes);
        } else if bytes >= 32 {
            copy_ends::<[u64; 4]>(from, to, bytes);
        } else if bytes >= 16 {
            copy_ends::<[u64; 2]>(from, to, bytes);
        } else if bytes >= 8 {
            copy_ends::<u64>(from, to, bytes);
        } else if bytes >= 4 {
            copy_ends::<u32>(from, to, bytes);
        } else if bytes >= 2 {
            copy_ends::<u16>(from, to, bytes);
        } else if bytes == 1 {
            *to = *from;
        }
    }
}

/// # Safety
/// As [`copy_short`]; `bytes` is at least the size of T and at most twice the size.
#[inline(always)]
#[allow(unsafe_code, reason = "a copy in pieces")]
unsafe fn copy_ends<T: Copy>(from: *const u8, to: *mut u8, bytes: usize) {
    let last = bytes - size_of::<T>();
    // SAFETY: both moves are within the bytes, since these are not fewer than those of T.
    unsafe {
        let first = from.cast::<T>().read_unaligned();
        let second = from.add(last).cast::<T>().read_unaligned();
        to.cast::<T>().write_unaligned(first);
        to.add(last).cast::<T>().write_unaligned(second);
    }
}
