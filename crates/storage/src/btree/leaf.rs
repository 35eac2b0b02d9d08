//! Reads the entries of a leaf page of an existing index.
//!
//! Any bytes give entries or an error. This module looks at one page only. The caller, which walks a level, must also
//! follow the right siblings of pages without entries: those that are half dead or deleted.

use std::cell::RefCell;

use super::bytes::record::{Record, append};
use super::bytes::shape::{ByteShape, StoredValue};
use super::entry::{Tid, Word};
use super::key::KeyShape;
use super::tuple::{Item, item};
use super::{
    BTP_DELETED, BTP_HALF_DEAD, BTP_LEAF, BTP_META, ITEM_POINTER, LP_DEAD, LP_NORMAL, MAX_KEYS, NO_BLOCK,
    SPECIAL_START, item_id, u16_at, u32_at,
};
use crate::page::{LINE_POINTER, PAGE_HEADER, PAGE_SIZE};

/// An error in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafError {
    /// The page is not a leaf page of a B-tree.
    NotALeaf,
    /// An item is invalid. Its offset number.
    Item(u16),
    /// A valid item has a key without a word. Its offset number.
    Key(u16),
}

/// A leaf page.
#[derive(Clone, Copy, Debug)]
pub struct Leaf<'p> {
    page: &'p [u8; PAGE_SIZE],
    flags: u16,
    pointers: usize,
}

impl<'p> Leaf<'p> {
    /// Opens a leaf page.
    ///
    /// # Errors
    /// The header or the special space is not that of a leaf page.
    pub fn new(page: &'p [u8; PAGE_SIZE]) -> Result<Self, LeafError> {
        let (lower, upper, special) = (u16_at(page, 12), u16_at(page, 14), u16_at(page, 16));
        let flags = u16_at(page, SPECIAL_START + 12);
        let sane = usize::from(special) == SPECIAL_START
            && usize::from(lower) >= PAGE_HEADER
            && lower <= upper
            && upper <= special
            && flags & (BTP_LEAF | BTP_META) == BTP_LEAF
            && u32_at(page, SPECIAL_START + 8) == 0;
        if !sane {
            return Err(LeafError::NotALeaf);
        }
        Ok(Self { page, flags, pointers: (usize::from(lower) - PAGE_HEADER) / LINE_POINTER })
    }

    /// Block of the right sibling, or [`NO_BLOCK`].
    #[must_use]
    pub fn next(&self) -> u32 {
        u32_at(self.page, SPECIAL_START + 4)
    }

    /// Block of the left sibling, or [`NO_BLOCK`].
    #[must_use]
    pub fn prev(&self) -> u32 {
        u32_at(self.page, SPECIAL_START)
    }

    /// btpo_flags
    #[must_use]
    pub fn flags(&self) -> u16 {
        self.flags
    }

    /// P_IGNORE: half dead or deleted. It has no entries.
    #[must_use]
    pub fn is_ignored(&self) -> bool {
        self.flags & (BTP_HALF_DEAD | BTP_DELETED) != 0
    }

    /// Passes each entry to `take`: key, row, and whether its item is marked as dead.
    ///
    /// # Errors
    /// The first item that is invalid or has a key without a word.
    pub fn entries<W: Word>(&self, shape: &KeyShape, take: impl FnMut(W, Tid, bool)) -> Result<(), LeafError> {
        self.each(|attributes| shape.read_tuple(attributes), take)
    }

    /// Appends the page's entries, including those whose items are marked as dead, and returns their number.
    ///
    /// # Errors
    /// The first invalid item, or the first one whose key is not of this shape: a compressed value, for example.
    pub fn records(&self, shape: &ByteShape, records: &mut Vec<u8>) -> Result<u64, LeafError> {
        let (key, mut count) = (RefCell::new(Vec::new()), 0);
        let read = |tuple| {
            let (mut values, mut key) = ([StoredValue::Null; MAX_KEYS], key.borrow_mut());
            key.clear();
            let fits = shape.read_tuple(tuple, &mut values)
                && shape.encode(values.get(..shape.len()).unwrap_or_default(), &mut key);
            fits.then_some(())
        };
        self.each(read, |(), tid, _| {
            append(records, Record { key: &key.borrow(), tid });
            count += 1;
        })?;
        Ok(count)
    }

    /// As [`Self::entries`], with keys that `key` reads from tuples.
    fn each<K: Copy>(
        &self,
        mut key: impl FnMut(&'p [u8]) -> Option<K>,
        mut take: impl FnMut(K, Tid, bool),
    ) -> Result<(), LeafError> {
        if self.is_ignored() {
            return Ok(());
        }
        // P_FIRSTDATAKEY
        let first = if self.next() == NO_BLOCK { 1 } else { 2 };
        for number in first..=self.pointers {
            let number = number as u16;
            let wrong = LeafError::Item(number);
            let pointer = u32_at(self.page, PAGE_HEADER + usize::from(number - 1) * LINE_POINTER);
            let (at, flags, length) = item_id(pointer);
            if !matches!(flags, LP_NORMAL | LP_DEAD) || at + length > SPECIAL_START {
                return Err(wrong);
            }
            let tuple = self.page.get(at..at + length).ok_or(wrong)?;
            let (item, attributes) = item(tuple).ok_or(wrong)?;
            let key = key(attributes).ok_or(LeafError::Key(number))?;
            let dead = flags == LP_DEAD;
            match item {
                Item::Plain(tid) => take(key, tid, dead),
                Item::Posting(tids) => {
                    let mut last = None;
                    for tid in tids.as_chunks::<ITEM_POINTER>().0 {
                        let tid = Tid::from_bytes(*tid);
                        if last >= Some(tid) {
                            return Err(wrong);
                        }
                        last = Some(tid);
                        take(key, tid, dead);
                    }
                }
                Item::Pivot => return Err(wrong),
            }
        }
        Ok(())
    }
}
