//! Collations whose order is not that of memcmp.

use std::cmp::Ordering;
use std::fmt::Debug;

use crate::page::{MAX_TUPLES, PAGE_SIZE};

/// A collation: makes sort keys of strings, whose memcmp order is the order of the strings.
pub trait Collator: Debug {
    /// Writes a string's sort key to the start of `key` and returns its length. It has no zero byte. Strings that are
    /// equal in the collation have equal sort keys. `None` if the sort key cannot be made or does not fit.
    fn sort_key(&self, string: &[u8], key: &mut [u8]) -> Option<usize>;

    /// A byte of sort keys that ends their reliable part. Strings whose sort keys differ only behind this byte may have
    /// another order, and must be compared.
    fn trusted_until(&self) -> u8;

    /// Compares strings without sort keys. `None` if this fails.
    fn compare(&self, a: &[u8], b: &[u8]) -> Option<Ordering>;
}

/// Limit of a sort key: this many bytes per byte of its string, plus a constant. ICU needs one to three. Some
/// characters stand for words, such as U+FDFA with 47 bytes; a string with many of them has no sort key here.
const FOR_BYTE: usize = 4;
const FOR_STRING: usize = 64;

/// The longest sort key of a string of this length, in bytes.
#[inline(always)]
pub(super) fn longest(string: usize) -> usize {
    FOR_BYTE * string + FOR_STRING
}

/// Upper bound of the sort keys of all strings on a heap page, in bytes.
pub(super) const PAGE_ROOM: usize = FOR_BYTE * PAGE_SIZE + (FOR_STRING + 1) * MAX_TUPLES;
