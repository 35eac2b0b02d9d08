//! Keys as strings of bytes whose order is the order of an index.
//!
//! ```text
//!   (a int4 DESC, b text)           b is "xyz"       DESC is NULLS FIRST by default, else NULLS LAST
//!
//!   01 | a as 4 bytes, the high one first, all bits but the sign bit inverted | 00 | x y z
//!   └ 00: a is null, and b follows at once                                      └ 01: b is null
//! ```
//!
//! A column that may be null has a byte in front that tells. A column of fixed width is its rank
//! ([`crate::btree::key`]). A string that is the last column, and ascending, is what it is: a string that is another
//! one's beginning is before it, and so it is with keys. Elsewhere a string has an end, two zero bytes; a zero byte of the
//! string is followed by a one. What is descending has all bits inverted, those of its end too.
//!
//! A string whose collation is not the order of bytes has its sort key in front, with a zero byte as its end: no sort key has
//! one. Strings with the same sort key are told apart by their own bytes then, which is what the server does if its
//! collation is a deterministic one. So keys are equal only if their strings are the same, byte for byte, and the strings
//! can be had back.

use std::cmp::Ordering;
use std::rc::Rc;

use memchr::memchr;

use super::collator::{self, Collator};
use super::record::{MAX_KEY, common};
use crate::btree::key::{Column, KeyColumn, KeyKind, KeyShape};
use crate::btree::tuple::store;
use crate::btree::{MAX_KEYS, TUPLE_HEADER_WITH_NULLS};
use crate::page::{MAX_TUPLES, PAGE_SIZE};

/// How the values of a column are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteKind {
    /// With the same number of bytes each.
    Fixed(KeyKind),
    /// A varlena of the alignment of an int4, whose values are compared as memcmp does, or by a collation first, and are the
    /// same only if they are so byte for byte.
    Varlena {
        /// attstorage is not plain: it may have a header of one byte.
        packable: bool,
        /// attstorage is extended or main: long values are compressed.
        compressible: bool,
    },
}

/// A column of an index.
#[derive(Clone, Debug)]
pub struct ByteColumn {
    /// Its type.
    pub kind: ByteKind,
    /// What compares its varlenas, if it is not memcmp.
    pub collator: Option<Rc<dyn Collator>>,
    /// DESC
    pub descending: bool,
    /// NULLS FIRST
    pub nulls_first: bool,
    /// There may be nulls.
    pub nullable: bool,
}

/// A value of a column, as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'v> {
    /// NULL
    Null,
    /// The bytes of a value of fixed width; of a varlena those behind its header.
    Bytes(&'v [u8]),
}

/// A column, in the terms of its bytes.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) storage: Storage,
    /// Strings have sort keys in front.
    collator: Option<Rc<dyn Collator>>,
    descending: bool,
    nullable: bool,
    /// The byte in front of a key's part that is null.
    null: u8,
    /// It is the last column, and ascending.
    plain: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Storage {
    Fixed(Column),
    Varlena { packable: bool, compressible: bool },
}

/// What the keys of an index look like.
#[derive(Clone, Debug)]
pub struct ByteShape {
    parts: Box<[Part]>,
    nullable: bool,
    /// A column has a collator.
    collated: bool,
}

/// Where a column's value is made of a key.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    fixed: [u8; 16],
    string: Vec<u8>,
}

impl ByteShape {
    /// The shape of keys with these columns; None if there are none, or too many.
    #[must_use]
    pub fn new(columns: &[ByteColumn]) -> Option<Self> {
        if columns.is_empty() || columns.len() > MAX_KEYS {
            return None;
        }
        let part = |(i, column): (usize, &ByteColumn)| {
            let ByteColumn { kind, ref collator, descending, nulls_first, nullable } = *column;
            let collator = collator.clone();
            let storage = match kind {
                ByteKind::Fixed(kind) => {
                    // Nulls are told by a byte of ours.
                    let column = KeyColumn { kind, descending, nulls_first, nullable: false };
                    Storage::Fixed(*KeyShape::new(&[column])?.columns().first()?)
                }
                ByteKind::Varlena { packable, compressible } => Storage::Varlena { packable, compressible },
            };
            let plain = i + 1 == columns.len() && !descending;
            Some(Part { storage, collator, descending, nullable, null: u8::from(!nulls_first), plain })
        };
        let parts = columns.iter().enumerate().map(part).collect::<Option<_>>()?;
        let nullable = columns.iter().any(|column| column.nullable);
        Some(Self { parts, nullable, collated: columns.iter().any(|column| column.collator.is_some()) })
    }

    /// How many columns it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// It has at least one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    #[inline(always)]
    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Bytes of records that the rows of a heap page make at most.
    #[must_use]
    pub fn page_room(&self) -> usize {
        // A column's bytes are the page's, each of which may become two; with what tells nulls and ends.
        let collated = self.parts.iter().filter(|part| part.collator.is_some()).count();
        MAX_TUPLES * (super::record::HEADER + 3 * self.len())
            + 2 * PAGE_SIZE * self.len()
            + collator::PAGE_ROOM * collated
    }

    /// Appends a key. False if there is none: a null where there can be none, a value without a rank
    /// ([`crate::btree::key`]), a string without a sort key, a key that is too long. What has been appended then is of no use.
    #[inline]
    #[must_use]
    pub fn encode(&self, values: &[Value<'_>], key: &mut Vec<u8>) -> bool {
        let start = key.len();
        values.len() == self.parts.len()
            && self.parts.iter().zip(values).all(|(part, value)| part.encode(*value, key))
            && key.len() - start <= MAX_KEY
    }

    /// Is any column of this key null?
    #[inline]
    #[must_use]
    pub fn has_null(&self, key: &[u8]) -> bool {
        if !self.nullable {
            return false;
        }
        if let [only] = &*self.parts {
            return key.first() == Some(&only.null);
        }
        let (mut rest, mut scratch) = (key, Scratch::default());
        self.parts.iter().any(|part| part.decode(&mut rest, &mut scratch) == Some(Value::Null))
    }

    /// A key is before another one: are its values, also to those who compare strings without sort keys? See
    /// [`Collator::trusted_until`].
    #[inline]
    #[must_use]
    pub fn confirms(&self, a: &[u8], b: &[u8]) -> bool {
        if !self.collated {
            return true;
        }
        let same = common(a, b, 0);
        let shared = a.get(..same).unwrap_or_default();
        let doubts = |part: &Part| {
            part.collator.as_ref().is_some_and(|to| memchr(to.trusted_until() ^ part.zero(), shared).is_some())
        };
        !self.parts.iter().any(doubts) || self.confirms_strings(a, b, same).is_some()
    }

    /// The same, with a look at the values. So many bytes of the keys are the same.
    fn confirms_strings(&self, a: &[u8], b: &[u8], same: usize) -> Option<()> {
        let (mut a_rest, mut scratch, mut other) = (a, Scratch::default(), Scratch::default());
        for (number, part) in self.parts.iter().enumerate() {
            let start = a.len() - a_rest.len();
            let a_value = part.decode(&mut a_rest, &mut scratch)?;
            // The last one may be an empty string, of which there is nothing in the key.
            if same >= a.len() - a_rest.len() && number + 1 < self.parts.len() {
                continue;
            }
            // It is here that they differ.
            let Some(collator) = &part.collator else { break };
            let b_value = part.decode(&mut b.get(start..)?, &mut other)?;
            let (Value::Bytes(a), Value::Bytes(b)) = (a_value, b_value) else { break };
            let order = collator.compare(a, b)?.then_with(|| a.cmp(b));
            let wanted = if part.descending { Ordering::Greater } else { Ordering::Less };
            return (order == wanted).then_some(());
        }
        Some(())
    }

    /// Gives the values of a key's columns to `take`, in their order. False if it is no key of this shape.
    pub fn decode(&self, key: &[u8], mut take: impl FnMut(usize, Value<'_>)) -> bool {
        let (mut rest, mut scratch) = (key, Scratch::default());
        let decoded = self.parts.iter().enumerate().all(|(i, part)| match part.decode(&mut rest, &mut scratch) {
            Some(value) => {
                take(i, value);
                true
            }
            None => false,
        });
        decoded && rest.is_empty()
    }
}

impl Part {
    #[inline(always)]
    fn encode(&self, value: Value<'_>, key: &mut Vec<u8>) -> bool {
        let Value::Bytes(bytes) = value else {
            key.push(self.null);
            return self.nullable;
        };
        if self.nullable {
            key.push(1 - self.null);
        }
        match self.storage {
            Storage::Fixed(column) if column.kind == KeyKind::Uuid => {
                let Some(raw) = column.kind.load::<u128>(bytes) else { return false };
                let Some(rank) = column.rank(raw) else { return false };
                key.extend_from_slice(&rank.to_be_bytes());
            }
            Storage::Fixed(column) => {
                let Some(raw) = column.kind.load::<u64>(bytes) else { return false };
                let Some(rank) = column.rank(raw) else { return false };
                key.extend_from_slice(rank.to_be_bytes().get(8 - column.kind.size()..).unwrap_or_default());
            }
            Storage::Varlena { .. } => {
                let start = key.len();
                if let Some(collator) = &self.collator
                    && append_sort_key(&**collator, bytes, key).is_none()
                {
                    return false;
                }
                if self.plain {
                    key.extend_from_slice(bytes);
                } else {
                    self.escape(bytes, key, start);
                }
            }
        }
        true
    }

    /// Appends a string and its end. What it has from `start` on has bits of its column's.
    fn escape(&self, bytes: &[u8], key: &mut Vec<u8>, start: usize) {
        let mut rest = bytes;
        while let Some((before, [_, after @ ..])) = memchr(0, rest).and_then(|at| rest.split_at_checked(at)) {
            key.extend_from_slice(before);
            key.extend_from_slice(&[0, 1]);
            rest = after;
        }
        key.extend_from_slice(rest);
        key.extend_from_slice(&[0, 0]);
        if self.descending {
            key.get_mut(start..).unwrap_or_default().iter_mut().for_each(|byte| *byte = !*byte);
        }
    }

    /// The value whose part of a key is at the beginning of what is left of it. None if there is none.
    #[inline(always)]
    pub(super) fn decode<'k: 'v, 'v>(&self, key: &mut &'k [u8], scratch: &'v mut Scratch) -> Option<Value<'v>> {
        if self.nullable {
            let (tells, rest) = key.split_first()?;
            *key = rest;
            if *tells == self.null {
                return Some(Value::Null);
            }
        }
        match self.storage {
            Storage::Fixed(column) => {
                let (bytes, rest) = key.split_at_checked(column.kind.size())?;
                *key = rest;
                let to = scratch.fixed.get_mut(..column.kind.size())?;
                store(column.kind, restore(&column, bytes)?, to);
                Some(Value::Bytes(to))
            }
            Storage::Varlena { .. } => {
                if self.collator.is_some() {
                    *key = key.get(memchr(self.zero(), key)? + 1..)?;
                }
                if self.plain {
                    return Some(Value::Bytes(std::mem::take(key)));
                }
                *key = self.unescape(key, &mut scratch.string)?;
                Some(Value::Bytes(&scratch.string))
            }
        }
    }

    /// A zero byte, as it is in a key.
    fn zero(&self) -> u8 {
        if self.descending { 0xff } else { 0 }
    }

    /// What follows the end of a string.
    fn unescape<'k>(&self, key: &'k [u8], string: &mut Vec<u8>) -> Option<&'k [u8]> {
        let inverted = self.zero();
        string.clear();
        let mut rest = key;
        loop {
            let (before, after) = rest.split_at_checked(memchr(inverted, rest)?)?;
            string.extend_from_slice(before);
            let (tells, after) = after.get(1..)?.split_first()?;
            rest = after;
            match tells ^ inverted {
                0 => break,
                1 => string.push(inverted),
                _ => return None,
            }
        }
        if self.descending {
            string.iter_mut().for_each(|byte| *byte = !*byte);
        }
        Some(rest)
    }
}

/// Appends a string's sort key, and its end. None if there is none.
fn append_sort_key(collator: &dyn Collator, string: &[u8], key: &mut Vec<u8>) -> Option<()> {
    let start = key.len();
    key.resize(start + collator::longest(string.len()), 0);
    let to = key.get_mut(start..)?;
    let length = collator.sort_key(string, to)?;
    let made = to.get(..length)?;
    if memchr(0, made).is_some() {
        return None;
    }
    key.truncate(start + length);
    key.push(0);
    Some(())
}

/// The value of a rank.
#[inline(always)]
fn restore(column: &Column, rank: &[u8]) -> Option<u128> {
    Some(match column.kind {
        KeyKind::Uuid => column.restore(u128::from_be_bytes(*rank.first_chunk()?)),
        _ => u128::from(column.restore(rank.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte)))),
    })
}

const _: () = assert!(MAX_KEYS <= u32::BITS as usize && TUPLE_HEADER_WITH_NULLS == 16, "a bitmap is a u32");
