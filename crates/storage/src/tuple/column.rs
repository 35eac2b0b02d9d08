//! Writes one attribute of a tuple behind the ones before it.
//!
//! fill_val (heaptuple.c) derives the steps from the catalog for each value. Here a [`StoredColumn`] holds them,
//! derived once per table, as far as they do not depend on the value. The rest depends on a varlena's first byte.
//!
//! Most values are short, and a call of memcpy takes longer than copying them. So a value is copied with two
//! overlapping moves if they are long enough.

use pg_bulk_types::convert::copy_short;
use std::ptr;

use super::Attribute;

/// How an attribute is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttributeForm {
    /// By value, and not longer than its alignment, so that a store of 8 bytes reaches the next multiple of 8.
    ByValue,
    /// By value, and longer than its alignment.
    ByValueLoose,
    /// A varlena whose header may shrink.
    Packable,
    /// A varlena whose header is kept.
    Plain,
    Cstring,
    /// By reference and of a fixed length.
    Fixed,
}

/// The storage of an attribute, in the form that writing needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredColumn {
    pub(super) kind: AttributeForm,
    /// Alignment minus one.
    pub(super) mask: u8,
    /// By value: number of bits of a datum that are not stored.
    shift: u8,
    /// By value or fixed: length in bytes.
    pub(super) len: u16,
    /// For a leading by-value column: offset in the data of a row without nulls.
    pub(super) offset: u16,
}

/// Reason to leave a tuple to the server.
pub(super) enum Stop {
    External,
    TooBig,
}

/// Number of bytes behind an attribute, minus one, that writing the attribute may overwrite.
pub(super) const SLACK: usize = 64;

impl StoredColumn {
    pub(super) fn new(attribute: &Attribute) -> Option<Self> {
        let Attribute { len, align, by_value, packable } = *attribute;
        if !matches!(align, 1 | 2 | 4 | 8) {
            return None;
        }
        let kind = match len {
            1 | 2 | 4 | 8 if by_value && len <= i16::from(align) => AttributeForm::ByValue,
            1 | 2 | 4 | 8 if by_value => AttributeForm::ByValueLoose,
            1.. if !by_value => AttributeForm::Fixed,
            -1 if !by_value && packable => AttributeForm::Packable,
            -1 if !by_value => AttributeForm::Plain,
            -2 if !by_value => AttributeForm::Cstring,
            _ => return None,
        };
        let len = len.max(0) as u16;
        Some(Self { kind, mask: align - 1, shift: if by_value { 64 - 8 * len as u8 } else { 0 }, len, offset: 0 })
    }

    /// Whether the column has variable width in the sense of HEAP_HASVARWIDTH.
    #[inline(always)]
    pub(super) fn varying(self) -> bool {
        matches!(self.kind, AttributeForm::Packable | AttributeForm::Plain | AttributeForm::Cstring)
    }

    /// Upper bound of the bytes of a column whose length is not checked before it is written.
    pub(super) fn align_and_width(&self) -> usize {
        match self.kind {
            AttributeForm::ByValue | AttributeForm::ByValueLoose => usize::from(self.mask) + usize::from(self.len),
            _ => 0,
        }
    }

    /// Writes a value behind the attributes that end at `at`, and zeros behind it. Returns the value's end.
    ///
    /// # Safety
    /// The value satisfies the contract of [`Layout::form`](super::Layout::form). `tuple` has SLACK writable bytes
    /// behind this value if it is by value, and behind `limit` otherwise. From `at` on there are zeros up to a multiple
    /// of 8.
    #[inline(always)]
    pub(super) unsafe fn put(self, value: u64, tuple: *mut u8, at: usize, limit: usize) -> Result<usize, Stop> {
        let mask = usize::from(self.mask);
        let len = usize::from(self.len);
        match self.kind {
            AttributeForm::ByValue => {
                let at = (at + mask) & !mask;
                // SAFETY: 8 bytes are within the slack.
                unsafe { tuple.add(at).cast::<u64>().write_unaligned(self.first_bytes(value)) };
                Ok(at + len)
            }
            AttributeForm::ByValueLoose => {
                let at = (at + mask) & !mask;
                // SAFETY: 16 bytes are within the slack.
                unsafe {
                    tuple.add(at).cast::<u64>().write_unaligned(self.first_bytes(value));
                    clear_behind(tuple, at + len);
                }
                Ok(at + len)
            }
            AttributeForm::Packable | AttributeForm::Plain => {
                let from: *const u8 = ptr::with_exposed_provenance(value as usize);
                // SAFETY: the value is a varlena, with as many bytes as its header says. Its first byte shows whether the
                // header has four.
                unsafe {
                    let word = || from.cast::<u32>().read_unaligned();
                    let (at, size) = match Varlena::with_header(*from, word) {
                        Varlena::Long(size) if size <= LONGEST_TO_SHORTEN && self.kind == AttributeForm::Packable => {
                            return put_shortened(from, size, tuple, at, limit);
                        }
                        Varlena::Long(size) | Varlena::Compressed(size) => ((at + mask) & !mask, size),
                        Varlena::Short(size) => (at, size),
                        Varlena::External => return Err(Stop::External),
                    };
                    put_bytes(from, size, tuple, at, limit)
                }
            }
            AttributeForm::Cstring => {
                let from: *const u8 = ptr::with_exposed_provenance(value as usize);
                // SAFETY: the value is a C string.
                let bytes = unsafe { std::ffi::CStr::from_ptr(from.cast()) }.to_bytes_with_nul().len();
                // SAFETY: it has that many bytes.
                unsafe { put_bytes(from, bytes, tuple, at, limit) }
            }
            AttributeForm::Fixed => {
                // SAFETY: the value has as many bytes as its type.
                unsafe {
                    put_bytes(ptr::with_exposed_provenance(value as usize), len, tuple, (at + mask) & !mask, limit)
                }
            }
        }
    }

    /// The stored bytes of a datum, first in memory, then zeros.
    #[inline(always)]
    pub(super) fn first_bytes(self, value: u64) -> u64 {
        if cfg!(target_endian = "big") { value << self.shift } else { value << self.shift >> self.shift }
    }
}

/// The longest varlena, with its header of four bytes, that can have a header of one byte: VARATT_CAN_MAKE_SHORT.
pub(super) const LONGEST_TO_SHORTEN: usize = 0x7f - 1 + 4;

/// The kind of a varlena by its header, and its size with the header.
pub(super) enum Varlena {
    /// With a header of four bytes.
    Long(usize),
    Compressed(usize),
    /// With a header of one byte.
    Short(usize),
    External,
}

impl Varlena {
    /// Whether this is the first byte of a header of one byte, or of an external value.
    #[inline(always)]
    pub(super) fn is_short(first: u8) -> bool {
        if cfg!(target_endian = "big") { first & 0x80 != 0 } else { first & 1 != 0 }
    }

    /// Returns the varlena whose header begins with `first`. If it has four bytes, `word` returns these.
    #[inline(always)]
    pub(super) fn with_header(first: u8, word: impl FnOnce() -> u32) -> Self {
        if cfg!(target_endian = "big") {
            match first {
                ..=0x3f => Self::Long(word() as usize),
                0x40..=0x7f => Self::Compressed((word() & 0x3fff_ffff) as usize),
                0x80 => Self::External,
                _ => Self::Short(usize::from(first & 0x7f)),
            }
        } else {
            match first & 3 {
                0 => Self::Long((word() >> 2) as usize),
                2 => Self::Compressed((word() >> 2) as usize),
                _ if first == 1 => Self::External,
                _ => Self::Short(usize::from(first >> 1)),
            }
        }
    }
}

#[inline(always)]
pub(super) fn short_header(size: usize) -> u8 {
    if cfg!(target_endian = "big") { size as u8 | 0x80 } else { (size as u8) << 1 | 1 }
}

/// Writes a varlena with a header of one byte. `size`: its size with its header of four bytes.
///
/// # Safety
/// `from` points to `size` bytes, not less than 4, and `tuple` to SLACK more than `limit`.
#[inline(always)]
unsafe fn put_shortened(from: *const u8, size: usize, tuple: *mut u8, at: usize, limit: usize) -> Result<usize, Stop> {
    let end = at + size - 3;
    if end > limit {
        return Err(Stop::TooBig);
    }
    // SAFETY: all is written below the limit, and zeros within the slack.
    unsafe {
        *tuple.add(at) = short_header(size - 3);
        copy_short(from.add(4), tuple.add(at + 1), size - 4);
        clear_behind(tuple, end);
    }
    Ok(end)
}

/// Copies a value unchanged.
///
/// # Safety
/// `from` points to `bytes` bytes, and `tuple` to SLACK more than `limit`.
#[inline(always)]
unsafe fn put_bytes(from: *const u8, bytes: usize, tuple: *mut u8, at: usize, limit: usize) -> Result<usize, Stop> {
    if at + bytes > limit {
        return Err(Stop::TooBig);
    }
    // SAFETY: all is written below the limit, and zeros within the slack.
    unsafe {
        ptr::copy_nonoverlapping(from, tuple.add(at), bytes);
        clear_behind(tuple, at + bytes);
    }
    Ok(at + bytes)
}

/// Writes zeros from `at` at least up to the next multiple of 8.
///
/// # Safety
/// 8 bytes can be written there.
#[inline(always)]
pub(super) unsafe fn clear_behind(tuple: *mut u8, at: usize) {
    // SAFETY: the next 8 bytes are within the slack.
    unsafe { tuple.add(at).cast::<u64>().write_unaligned(0) };
}
