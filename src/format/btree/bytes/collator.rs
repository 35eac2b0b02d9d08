//! Orders of strings that are not memcmp's.

use std::cmp::Ordering;
use std::fmt::Debug;

use crate::page::{MAX_TUPLES, PAGE_SIZE};

/// A collation: it turns strings into bytes whose order, that of memcmp, is theirs.
pub trait Collator: Debug {
    /// Puts a string's sort key to the beginning of what is given, and returns how long it is. No byte of it is zero. Strings
    /// that are the same to the collation have the same one. None if it cannot be had, or does not fit.
    fn sort_key(&self, string: &[u8], key: &mut [u8]) -> Option<usize>;

    /// A byte of sort keys behind which they are not to be trusted: strings whose sort keys differ only there may have
    /// another order than these, and are to be compared.
    fn trusted_until(&self) -> u8;

    /// Compares strings, without a look at sort keys. None if it cannot be done.
    fn compare(&self, a: &[u8], b: &[u8]) -> Option<Ordering>;
}

/// A sort key may have so many bytes for each one of its string, and so many on top. ICU needs one to three. There are
/// characters that stand for words, such as U+FDFA with 47; strings that are full of them have none here.
const FOR_BYTE: usize = 4;
const FOR_STRING: usize = 64;

/// The longest sort key that a string may have.
#[inline(always)]
pub(super) fn longest(string: usize) -> usize {
    FOR_BYTE * string + FOR_STRING
}

/// Bytes that the sort keys of a heap page's strings have at most.
pub(super) const PAGE_ROOM: usize = FOR_BYTE * PAGE_SIZE + (FOR_STRING + 1) * MAX_TUPLES;
