//! Families of keys: the only parts of merges, checks and builds that depend on the form of the keys.
//!
//! A run is a sequence of units. Keys that are integers have a unit for each row, an [`Entry`]. Keys that are strings
//! of bytes have records ([`crate::btree::bytes::record`]), whose units are bytes. An *item* is a key with its row: one
//! entry, or one record. A family is named by its unit.

use std::collections::TryReserveError;
use std::fmt::Debug;

use super::bytes::record::{self, Record, Records, window};
use super::bytes::shape::ByteShape;
use super::entry::{Entry, Tid, Word, as_bytes, as_bytes_mut};
use super::key::KeyShape;
use super::leaf::{Leaf, LeafError};
use super::packed;

/// A key, its row, and the number of units of both.
pub type Item<K> = (K, Tid, usize);

/// The unit of a family's runs.
pub trait KeyFamily: Copy + Debug + Default + 'static {
    /// The shape of the keys of an index.
    type Shape: Clone + Debug;
    /// A key.
    type Key<'k>: Copy + PartialEq + Debug;
    /// A copy of a key.
    type Held: Clone + Debug + Default;
    /// The part of an item that a merge keeps to compare it.
    type Head: Copy + Debug;
    /// The most units that a merge collects.
    const COLLECT: usize;
    /// The shortest part that a merge returns in place, in units.
    const LEAST_SLICE: usize;
    /// Units of the leaf level of an index to read at once.
    const LEAF_BLOCK: usize;
    /// Two runs are merged by [`Self::alternate`] while their parts are short.
    const ALTERNATES: bool = false;

    /// Returns the item at the start; `None` if it is incomplete.
    fn first(units: &[Self]) -> Option<Item<Self::Key<'_>>>;

    /// Appends an item.
    fn append(units: &mut Vec<Self>, key: Self::Key<'_>, tid: Tid);

    /// Copies a key.
    fn hold(held: &mut Self::Held, key: Self::Key<'_>);

    /// Returns the key that was copied.
    fn held(held: &Self::Held) -> Self::Key<'_>;

    /// Whether any column of this key is null.
    fn has_null(shape: &Self::Shape, key: Self::Key<'_>) -> bool;

    /// Appends the entries of a leaf page, and returns their number.
    ///
    /// # Errors
    /// The first item that is invalid or has no key.
    fn read_leaf(shape: &Self::Shape, leaf: &Leaf<'_>, units: &mut Vec<Self>) -> Result<u64, LeafError>;

    /// Returns units as bytes, for a file that only this machine reads.
    fn as_bytes(units: &[Self]) -> &[u8];

    /// Returns the memory of units, to read them from a file.
    fn as_bytes_mut(units: &mut [Self]) -> &mut [u8];

    /// Number of units at the start that are complete items.
    fn complete(units: &[Self]) -> usize;

    /// Replaces `to` with the units of a block: [`packed::unpack`]. Other families have no such blocks.
    ///
    /// # Errors
    /// Memory is exhausted.
    fn unpack(_block: &[u8], _to: &mut Vec<Self>) -> Result<bool, TryReserveError> {
        Ok(false)
    }

    /// Returns the head of the item at the start.
    fn head(units: &[Self]) -> Option<Self::Head>;

    /// Whether the item of the first head is before that of the second one. `items` returns units that begin with both.
    fn is_before<'u>(a: Self::Head, b: Self::Head, items: impl FnOnce() -> (&'u [Self], &'u [Self])) -> bool;

    /// Number of units at the start whose items are before the item `rival`, which `items` returns as well. The first
    /// item is known to be.
    fn units_before<'u>(units: &[Self], rival: Self::Head, items: impl FnOnce() -> &'u [Self]) -> usize;

    /// Appends a part that is shorter than [`Self::LEAST_SLICE`].
    #[inline(always)]
    fn collect(to: &mut Vec<Self>, part: &[Self]) {
        to.extend_from_slice(part);
    }

    /// Merges two runs into `to`, until it has [`Self::COLLECT`] units or a run ends. Returns the
    /// number of units that it has taken from each.
    #[inline(always)]
    fn alternate(_a: &[Self], _b: &[Self], _to: &mut Vec<Self>) -> (usize, usize) {
        (0, 0)
    }
}

impl<W: Word> KeyFamily for Entry<W> {
    type Shape = KeyShape;
    type Key<'k> = W;
    type Held = W;
    type Head = Self;
    const COLLECT: usize = 1024;
    const LEAST_SLICE: usize = 64;
    const LEAF_BLOCK: usize = 4096;
    const ALTERNATES: bool = true;

    #[inline(always)]
    fn first(units: &[Self]) -> Option<Item<W>> {
        units.first().map(|entry| (entry.key(), entry.tid(), 1))
    }

    #[inline(always)]
    fn append(units: &mut Vec<Self>, key: W, tid: Tid) {
        units.push(Entry::new(key, tid));
    }

    #[inline(always)]
    fn hold(held: &mut W, key: W) {
        *held = key;
    }

    #[inline(always)]
    fn held(held: &W) -> W {
        *held
    }

    #[inline(always)]
    fn has_null(shape: &KeyShape, key: W) -> bool {
        shape.has_null(key)
    }

    fn read_leaf(shape: &KeyShape, leaf: &Leaf<'_>, units: &mut Vec<Self>) -> Result<u64, LeafError> {
        let before = units.len();
        leaf.entries(shape, |key, tid, _| units.push(Entry::new(key, tid)))?;
        Ok((units.len() - before) as u64)
    }

    fn as_bytes(units: &[Self]) -> &[u8] {
        as_bytes(units)
    }

    fn as_bytes_mut(units: &mut [Self]) -> &mut [u8] {
        as_bytes_mut(units)
    }

    fn complete(units: &[Self]) -> usize {
        units.len()
    }

    fn unpack(block: &[u8], to: &mut Vec<Self>) -> Result<bool, TryReserveError> {
        packed::unpack(block, to)
    }

    #[inline(always)]
    fn head(units: &[Self]) -> Option<Self> {
        units.first().copied()
    }

    #[inline(always)]
    fn is_before<'u>(a: Self, b: Self, _: impl FnOnce() -> (&'u [Self], &'u [Self])) -> bool {
        a.before(b)
    }

    /// Searches in doubling steps.
    #[inline]
    fn units_before<'u>(units: &[Self], rival: Self, _: impl FnOnce() -> &'u [Self]) -> usize {
        let mut step = 1;
        // The entry at `from` is before the rival; the one at `to` is not.
        let (mut from, mut to) = (0, units.len());
        while let Some(entry) = units.get(from + step) {
            if !entry.before(rival) {
                to = from + step;
                break;
            }
            from += step;
            step *= 2;
        }
        from + 1 + units.get(from + 1..to).unwrap_or_default().partition_point(|entry| entry.before(rival))
    }

    #[inline(always)]
    fn collect(to: &mut Vec<Self>, part: &[Self]) {
        // The entries are few, often one.
        for entry in part {
            to.push(*entry);
        }
    }

    /// The order is unpredictable here, so the loop has no branch on it.
    #[inline(always)]
    fn alternate(a: &[Self], b: &[Self], to: &mut Vec<Self>) -> (usize, usize) {
        let (mut i, mut j) = (0, 0);
        while to.len() < Self::COLLECT
            && let (Some(&x), Some(&y)) = (a.get(i), b.get(j))
        {
            let is_left = x.is_before(y);
            to.push(if is_left { x } else { y });
            i += usize::from(is_left);
            j += usize::from(!is_left);
        }
        (i, j)
    }
}

/// Records have different sizes, so each one must be read, but mostly only eight bytes of its key.
impl KeyFamily for u8 {
    type Shape = ByteShape;
    type Key<'k> = &'k [u8];
    type Held = Vec<u8>;
    type Head = u64;
    const COLLECT: usize = 32 * 1024;
    const LEAST_SLICE: usize = 2048;
    const LEAF_BLOCK: usize = 64 * 1024;

    #[inline(always)]
    fn first(units: &[u8]) -> Option<Item<&[u8]>> {
        record::first(units).map(|record| (record.key, record.tid, record.size()))
    }

    #[inline(always)]
    fn append(units: &mut Vec<u8>, key: &[u8], tid: Tid) {
        record::append(units, Record { key, tid });
    }

    #[inline(always)]
    fn hold(held: &mut Vec<u8>, key: &[u8]) {
        key.clone_into(held);
    }

    #[inline(always)]
    fn held(held: &Vec<u8>) -> &[u8] {
        held
    }

    #[inline(always)]
    fn has_null(shape: &ByteShape, key: &[u8]) -> bool {
        shape.has_null(key)
    }

    fn read_leaf(shape: &ByteShape, leaf: &Leaf<'_>, units: &mut Vec<u8>) -> Result<u64, LeafError> {
        leaf.records(shape, units)
    }

    fn as_bytes(units: &[u8]) -> &[u8] {
        units
    }

    fn as_bytes_mut(units: &mut [u8]) -> &mut [u8] {
        units
    }

    fn complete(units: &[u8]) -> usize {
        Records(units).map(|record| record.size()).sum()
    }

    #[inline(always)]
    fn head(units: &[u8]) -> Option<u64> {
        record::first(units).map(|record| window(record.key, 0))
    }

    #[inline(always)]
    fn is_before<'u>(a: u64, b: u64, items: impl FnOnce() -> (&'u [u8], &'u [u8])) -> bool {
        if a != b {
            return a < b;
        }
        let (a, b) = items();
        record::first(a) < record::first(b)
    }

    #[inline]
    fn units_before<'u>(units: &[u8], rival: u64, items: impl FnOnce() -> &'u [u8]) -> usize {
        let (item, mut at) = (record::first(items()), 0);
        for record in Records(units) {
            let window = window(record.key, 0);
            if at > 0 && (window > rival || window == rival && Some(record) > item) {
                break;
            }
            at += record.size();
        }
        at
    }
}
