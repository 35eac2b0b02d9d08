//! Memory for one row's by-reference values.
//!
//! A decoder that builds a varlena takes the bytes from here. The arena hands out 8-byte aligned slices that do not
//! move until [`Arena::reset`], so their addresses may be given out as PostgreSQL datums for as long as the row is
//! current. Between rows the arena keeps one block of ordinary size and frees any memory beyond it.

use std::alloc::Layout;
use std::ptr::NonNull;

/// Size of the block that is kept between rows, in bytes.
const BLOCK: usize = 64 * 1024;
/// Bytes that may be read from the start of any slice, even if the slice is shorter.
pub const SLACK: usize = 64;
/// Words at the end of each block that are never allocated.
const SLACK_WORDS: usize = SLACK / 8;

/// A bump allocator whose slices are 8-byte aligned and stay where they are until [`Arena::reset`].
#[derive(Debug, Default)]
pub struct Arena {
    blocks: Vec<Box<[u64]>>,
    /// Words used in the last block.
    used: usize,
}

impl Arena {
    /// Creates an arena without any memory.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns `len` bytes, 8-byte aligned, or `None` if memory is exhausted, which the server reports in its own
    /// words. The bytes may have old contents: the caller writes each one that it uses.
    #[inline]
    pub fn alloc(&mut self, len: usize) -> Option<&mut [u8]> {
        let words = len.div_ceil(8);
        let fits = self.blocks.last().is_some_and(|b| b.len() - SLACK_WORDS - self.used >= words);
        if !fits {
            self.grow(words)?;
        }
        let at = self.used;
        self.used += words;
        let block = self.blocks.last_mut()?;
        as_bytes(block.get_mut(at..at + words)?).get_mut(..len)
    }

    #[cold]
    fn grow(&mut self, words: usize) -> Option<()> {
        let size = words.checked_add(SLACK_WORDS)?.max(BLOCK / 8);
        self.blocks.try_reserve(1).ok()?;
        self.blocks.push(zeroed(size)?);
        self.used = 0;
        Some(())
    }

    /// Ends the life of all slices. All blocks but one of ordinary size go back to the system.
    #[inline]
    pub fn reset(&mut self) {
        if self.blocks.len() > 1 || self.blocks.last().is_some_and(|b| b.len() > BLOCK / 8) {
            self.shrink();
        }
        self.used = 0;
    }

    #[cold]
    fn shrink(&mut self) {
        self.blocks.retain(|b| b.len() == BLOCK / 8);
        self.blocks.truncate(1);
    }
}

/// Allocates `words` zeroed words (at least one), or returns `None` if memory is exhausted. std's own functions would
/// end the process then, or write zeros to memory that the system has zeroed already.
#[allow(unsafe_code, reason = "std cannot yet be asked for zeroed memory that may not be there")]
fn zeroed(words: usize) -> Option<Box<[u64]>> {
    let layout = Layout::array::<u64>(words.max(1)).ok()?;
    // SAFETY: the layout is not empty. The memory has the layout of this slice; zeros are valid u64; the box is the only
    // owner.
    unsafe {
        let first = NonNull::new(std::alloc::alloc_zeroed(layout))?.cast::<u64>();
        Some(Box::from_raw(std::ptr::slice_from_raw_parts_mut(first.as_ptr(), words.max(1))))
    }
}

/// The memory of `words` as bytes.
#[inline]
#[allow(unsafe_code, reason = "a view of initialised integers as bytes has no safe spelling in std")]
fn as_bytes(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: u8 has no alignment and every bit pattern of u64 is valid as eight u8; length covers the same memory.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), words.len() * 8) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_aligned_and_do_not_overlap() {
        let before = if cfg!(miri) { 8 } else { 200 };
        let mut a = Arena::new();
        let mut seen: Vec<(usize, usize)> = Vec::new();
        for i in 0..5000usize {
            let s = a.alloc(i % 70).unwrap();
            let p = s.as_ptr() as usize;
            assert!(s.is_empty() || p.is_multiple_of(8));
            if !s.is_empty() {
                assert!(seen.iter().rev().take(before).all(|&(q, l)| p >= q + l || p + s.len() <= q));
                seen.push((p, s.len()));
            }
        }
    }

    #[test]
    fn a_huge_row_is_given_back() {
        let mut a = Arena::new();
        a.alloc(10).unwrap();
        a.alloc(10 << 20).unwrap();
        a.reset();
        assert_eq!(a.blocks.iter().map(|b| b.len()).sum::<usize>(), BLOCK / 8);
        a.alloc(10).unwrap();
        assert_eq!(a.blocks.len(), 1);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it ends where memory does")]
    fn there_may_be_no_memory() {
        let mut a = Arena::new();
        for words in [usize::MAX / 8, usize::MAX / 16, usize::MAX / 64] {
            assert!(a.alloc(8 * words).is_none());
        }
        assert_eq!(a.alloc(10).map(|s| s.len()), Some(10));
        assert!(a.alloc(1 << 60).is_none());
        assert_eq!(a.alloc(0).map(|s| s.len()), Some(0));
    }
}
