//! Encodes keys as strings of bytes whose memcmp order is the order of an index.
//!
//! ```text
//!   (a int4 DESC, b text)           b is "xyz"       DESC is NULLS FIRST by default, else NULLS LAST
//!
//!   01 | a as 4 bytes, the high one first, all bits but the sign bit inverted | 00 | x y z
//!   └ 00: a is null, and b follows at once                                      └ 01: b is null
//! ```
//!
//! A nullable column has a byte in front that is different for null. A column of fixed width is encoded as its rank
//! ([`crate::btree::key`]). A string in the last column, if ascending, is stored unchanged: a prefix of a string is
//! less than the string, and that holds for keys as well. In any other column a string ends with two zero bytes, and a
//! zero byte within it is followed by a one. A descending column has all bits inverted, with those of its end.
//!
//! A string whose collation has another order than memcmp is preceded by its sort key, which has no zero bytes and ends
//! with one. So strings with equal sort keys are ordered by their bytes, as the server does for a deterministic
//! collation. Keys are equal only if their strings are equal byte for byte, and the strings can be restored.

use std::cmp::Ordering;
use std::rc::Rc;

use memchr::memchr;

use super::collator::{self, Collator};
use super::record::{MAX_KEY, common};
use crate::btree::form::Storage;
pub use crate::btree::form::StoredValue;
use crate::btree::key::{EncodedColumn, KeyColumn, KeyKind, KeyShape};
use crate::btree::tuple::store;
use crate::btree::{MAX_KEYS, TUPLE_HEADER_WITH_NULLS};
use crate::page::{MAX_TUPLES, PAGE_SIZE};

/// How the values of a column are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteKind {
    /// All values have the same number of bytes.
    Fixed(KeyKind),
    /// A varlena with the alignment of int4. Its values are compared by memcmp, or first by a collation, and are equal
    /// only if their bytes are.
    Varlena {
        /// attstorage is not plain: the header may have one byte.
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
    /// The collation of its varlenas, unless it is memcmp.
    pub collator: Option<Rc<dyn Collator>>,
    /// DESC
    pub descending: bool,
    /// NULLS FIRST
    pub nulls_first: bool,
    /// The column may have nulls.
    pub nullable: bool,
}

/// The encoding of a column.
#[derive(Clone, Debug)]
pub(super) struct ColumnEncoding {
    pub(super) storage: Storage,
    /// Strings are preceded by sort keys.
    collator: Option<Rc<dyn Collator>>,
    descending: bool,
    nullable: bool,
    /// The byte in front of a null.
    null: u8,
    /// The last column, if ascending: strings have no end.
    plain: bool,
}

/// The shape of the keys of an index.
#[derive(Clone, Debug)]
pub struct ByteShape {
    parts: Box<[ColumnEncoding]>,
    nullable: bool,
    /// Some column has a collator.
    collated: bool,
}

/// Buffers to restore a column's value from a key.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    fixed: [u8; 16],
    string: Vec<u8>,
}

impl ByteShape {
    /// Creates the shape of keys with these columns; `None` if there are none, or too many.
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
                    // A byte of this encoding marks nulls.
                    let column = KeyColumn { kind, descending, nulls_first, nullable: false };
                    Storage::Fixed(*KeyShape::new(&[column])?.columns().first()?)
                }
                ByteKind::Varlena { packable, compressible } => Storage::Varlena { packable, compressible },
            };
            let plain = i + 1 == columns.len() && !descending;
            Some(ColumnEncoding { storage, collator, descending, nullable, null: u8::from(!nulls_first), plain })
        };
        let parts = columns.iter().enumerate().map(part).collect::<Option<_>>()?;
        let nullable = columns.iter().any(|column| column.nullable);
        Some(Self { parts, nullable, collated: columns.iter().any(|column| column.collator.is_some()) })
    }

    /// Number of columns.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Always false.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    #[inline(always)]
    pub(super) fn parts(&self) -> &[ColumnEncoding] {
        &self.parts
    }

    /// Upper bound of the size of the records for one heap page, in bytes.
    #[must_use]
    pub fn page_room(&self) -> usize {
        // A column has at most the bytes of the page. Each may become two, and there are bytes that mark nulls and
        // ends.
        let collated = self.parts.iter().filter(|part| part.collator.is_some()).count();
        MAX_TUPLES * (super::record::HEADER + 3 * self.len())
            + 2 * PAGE_SIZE * self.len()
            + collator::PAGE_ROOM * collated
    }

    /// Appends a key. Returns false for values without a key: a null in a column that is not nullable, a value without
    /// a rank ([`crate::btree::key`]), a string without a sort key, or a key that is too long. The appended bytes are
    /// garbage then.
    #[inline]
    #[must_use]
    pub fn encode(&self, values: &[StoredValue<'_>], key: &mut Vec<u8>) -> bool {
        let start = key.len();
        values.len() == self.parts.len()
            && self.parts.iter().zip(values).all(|(part, value)| part.encode(*value, key))
            && key.len() - start <= MAX_KEY
    }

    /// Whether any column of this key is null.
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
        self.parts.iter().any(|part| part.decode(&mut rest, &mut scratch) == Some(StoredValue::Null))
    }

    /// Whether the order of two keys, `a` before `b`, is confirmed by comparing their strings without sort keys. See
    /// [`Collator::trusted_until`].
    #[inline]
    #[must_use]
    pub fn confirms(&self, a: &[u8], b: &[u8]) -> bool {
        if !self.collated {
            return true;
        }
        let same = common(a, b, 0);
        let shared = a.get(..same).unwrap_or_default();
        let doubts = |part: &ColumnEncoding| {
            part.collator.as_ref().is_some_and(|to| memchr(to.trusted_until() ^ part.zero(), shared).is_some())
        };
        !self.parts.iter().any(doubts) || self.confirms_strings(a, b, same).is_some()
    }

    /// Decodes the values for [`Self::confirms`]. The keys have `same` bytes in common.
    fn confirms_strings(&self, a: &[u8], b: &[u8], same: usize) -> Option<()> {
        let (mut a_rest, mut scratch, mut other) = (a, Scratch::default(), Scratch::default());
        for (number, part) in self.parts.iter().enumerate() {
            let start = a.len() - a_rest.len();
            let a_value = part.decode(&mut a_rest, &mut scratch)?;
            // The last one may be an empty string, which has no bytes in the key.
            if same >= a.len() - a_rest.len() && number + 1 < self.parts.len() {
                continue;
            }
            // This is the first column that differs.
            let Some(collator) = &part.collator else { break };
            let b_value = part.decode(&mut b.get(start..)?, &mut other)?;
            let (StoredValue::Bytes(a), StoredValue::Bytes(b)) = (a_value, b_value) else { break };
            let order = collator.compare(a, b)?.then_with(|| a.cmp(b));
            let wanted = if part.descending { Ordering::Greater } else { Ordering::Less };
            return (order == wanted).then_some(());
        }
        Some(())
    }

    /// Passes the values of a key's columns to `take`, in order. Returns false if the key is not of this shape.
    pub fn decode(&self, key: &[u8], mut take: impl FnMut(usize, StoredValue<'_>)) -> bool {
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

impl ColumnEncoding {
    #[inline(always)]
    fn encode(&self, value: StoredValue<'_>, key: &mut Vec<u8>) -> bool {
        let StoredValue::Bytes(bytes) = value else {
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

    /// Appends a string and its end. The bits from `start` on belong to this column and are inverted if it is
    /// descending.
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

    /// Decodes this column's value at the start of the remaining key. `None` if the key is not of this shape.
    #[inline(always)]
    pub(super) fn decode<'k: 'v, 'v>(&self, key: &mut &'k [u8], scratch: &'v mut Scratch) -> Option<StoredValue<'v>> {
        if self.nullable {
            let (flag, rest) = key.split_first()?;
            *key = rest;
            if *flag == self.null {
                return Some(StoredValue::Null);
            }
        }
        match self.storage {
            Storage::Fixed(column) => {
                let (bytes, rest) = key.split_at_checked(column.kind.size())?;
                *key = rest;
                let to = scratch.fixed.get_mut(..column.kind.size())?;
                store(column.kind, restore(&column, bytes)?, to);
                Some(StoredValue::Bytes(to))
            }
            Storage::Varlena { .. } => {
                if self.collator.is_some() {
                    *key = key.get(memchr(self.zero(), key)? + 1..)?;
                }
                if self.plain {
                    return Some(StoredValue::Bytes(std::mem::take(key)));
                }
                *key = self.unescape(key, &mut scratch.string)?;
                Some(StoredValue::Bytes(&scratch.string))
            }
        }
    }

    /// Returns the encoding of a zero byte.
    fn zero(&self) -> u8 {
        if self.descending { 0xff } else { 0 }
    }

    /// Decodes a string. Returns the bytes behind its end.
    fn unescape<'k>(&self, key: &'k [u8], string: &mut Vec<u8>) -> Option<&'k [u8]> {
        let inverted = self.zero();
        string.clear();
        let mut rest = key;
        loop {
            let (before, after) = rest.split_at_checked(memchr(inverted, rest)?)?;
            string.extend_from_slice(before);
            let (escape, after) = after.get(1..)?.split_first()?;
            rest = after;
            match escape ^ inverted {
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

/// Appends a string's sort key and its end. `None` if it has none.
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

/// Returns the value of a rank.
#[inline(always)]
fn restore(column: &EncodedColumn, rank: &[u8]) -> Option<u128> {
    Some(match column.kind {
        KeyKind::Uuid => column.restore(u128::from_be_bytes(*rank.first_chunk()?)),
        _ => u128::from(column.restore(rank.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte)))),
    })
}

const _: () = assert!(MAX_KEYS <= u32::BITS as usize && TUPLE_HEADER_WITH_NULLS == 16, "a bitmap is a u32");
