//! A raw value: the bytes of a field without a varlena header, which need not be copied before a tuple is formed.
//!
//! The array of a row's values has 64 bits for each. Addresses of user space have at most 48 bits, and a record of a
//! block is short, so address and length fit into one word.
#![allow(unsafe_code, reason = "an address becomes a slice again")]

/// Number of bits of an address.
const ADDRESS: u32 = 48;

/// Packs the address and length of a slice; `None` if the slice is too long or its address is too high.
#[inline(always)]
#[must_use]
pub fn pack(bytes: &[u8]) -> Option<u64> {
    let address = bytes.as_ptr().expose_provenance() as u64;
    (address >> ADDRESS == 0 && bytes.len() >> (64 - ADDRESS) == 0).then_some(address | (bytes.len() as u64) << ADDRESS)
}

/// Returns the address and the length of a packed slice.
#[inline(always)]
#[must_use]
pub fn unpack(word: u64) -> (*const u8, usize) {
    let address = word & ((1 << ADDRESS) - 1);
    (std::ptr::with_exposed_provenance(address as usize), (word >> ADDRESS) as usize)
}

/// Returns a packed slice.
///
/// # Safety
/// [`pack`] made the word of bytes that are still valid.
#[must_use]
pub unsafe fn bytes<'a>(word: u64) -> &'a [u8] {
    let (address, len) = unpack(word);
    // SAFETY: `pack` took both from a slice that is still valid.
    unsafe { std::slice::from_raw_parts(address, len) }
}
