//! A value as its field has it: bytes without a header, that need not be copied before a tuple is formed.
//!
//! Where a row's values are, there is room for 64 bits each. Addresses of user space have 48 bits at most, and a record
//! of a block is short, so that address and length fit into one word.
#![allow(unsafe_code, reason = "an address becomes a slice again")]

/// Bits of an address.
const ADDRESS: u32 = 48;

/// The word for these bytes; `None` if they are too many, or too high up.
#[inline(always)]
#[must_use]
pub fn pack(bytes: &[u8]) -> Option<u64> {
    let address = bytes.as_ptr().expose_provenance() as u64;
    (address >> ADDRESS == 0 && bytes.len() >> (64 - ADDRESS) == 0).then_some(address | (bytes.len() as u64) << ADDRESS)
}

/// Address and length.
#[inline(always)]
#[must_use]
pub fn unpack(word: u64) -> (*const u8, usize) {
    let address = word & ((1 << ADDRESS) - 1);
    (std::ptr::with_exposed_provenance(address as usize), (word >> ADDRESS) as usize)
}

/// The bytes.
///
/// # Safety
/// [`pack`] made the word of bytes that are still there.
#[must_use]
pub unsafe fn bytes<'a>(word: u64) -> &'a [u8] {
    let (address, len) = unpack(word);
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(address, len) }
}
