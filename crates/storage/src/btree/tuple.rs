//! Index tuples of keys: formed as by index_form_tuple, and read back.
//!
//! ```text
//!  0       6        8                         8 or 16
//!  t_tid | t_info | null bitmap, if any null | attributes ... | zeros up to a multiple of 8
//! ```

use super::entry::{Entry, Tid, Word};
use super::key::{KeyKind, KeyShape, MAX_TUPLE};
use super::{
    BT_IS_POSTING, BT_OFFSET_MASK, INDEX_ALT_TID, INDEX_NULL, INDEX_SIZE_MASK, ITEM_POINTER, TUPLE_HEADER,
    TUPLE_HEADER_WITH_NULLS, put, u16_at,
};
use crate::tuple::max_align;

/// t_tid and t_info.
#[inline(always)]
pub(super) fn header(tid: Tid, info: u16) -> [u8; TUPLE_HEADER] {
    let [a, b, c, d, e, f] = tid.to_bytes();
    let [g, h] = info.to_ne_bytes();
    [a, b, c, d, e, f, g, h]
}

/// A tuple under construction, without posting list and heap TID.
#[derive(Clone, Copy, Debug)]
pub(super) struct Formed {
    bytes: [u8; MAX_TUPLE],
    len: usize,
}

impl Formed {
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl KeyShape {
    /// Forms the tuple of an entry: index_form_tuple.
    pub(super) fn form<W: Word>(&self, entry: Entry<W>) -> Formed {
        let (key, columns) = (entry.key(), self.columns());
        let nulls = self.nullable() && columns.iter().any(|column| self.raw(key, column).is_none());
        let start = if nulls { TUPLE_HEADER_WITH_NULLS } else { TUPLE_HEADER };
        let mut formed = Formed { bytes: [0; MAX_TUPLE], len: 0 };
        let mut at = start;
        for (i, column) in columns.iter().enumerate() {
            let Some(raw) = self.raw(key, column) else { continue };
            if nulls && let Some(bitmap) = formed.bytes.get_mut(TUPLE_HEADER + i / 8) {
                *bitmap |= 1 << (i % 8);
            }
            at = at.next_multiple_of(column.kind.align());
            if let Some(to) = formed.bytes.get_mut(at..at + column.kind.size()) {
                store(column.kind, raw, to);
            }
            at += column.kind.size();
        }
        formed.len = max_align(at);
        put(&mut formed.bytes, 0, &header(entry.tid(), formed.len as u16 | if nulls { INDEX_NULL } else { 0 }));
        formed
    }

    /// Writes the tuple of an entry, with all columns: index_form_tuple. Returns its size, a multiple of 8. If `to` is
    /// too short, writes nothing and returns 0.
    #[must_use]
    pub fn write_tuple<W: Word>(&self, entry: Entry<W>, to: &mut [u8]) -> usize {
        let formed = self.form(entry);
        let bytes = formed.bytes();
        let Some(to) = to.get_mut(..bytes.len()) else { return 0 };
        to.copy_from_slice(bytes);
        bytes.len()
    }

    /// Whether [`Self::short_data`] supports keys without nulls.
    pub(super) fn is_short(&self) -> bool {
        cfg!(target_endian = "little") && self.data_len() <= SHORT
    }

    /// Makes the data of a tuple without nulls, which must not be longer than [`SHORT`].
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "one of two halves")]
    pub(super) fn short_data<W: Word>(&self, key: W) -> [u8; SHORT] {
        let mut halves = [0u64; 2];
        for column in self.columns() {
            let raw = column.restore(key);
            if column.kind == KeyKind::Uuid {
                return raw.to_u128().to_be_bytes();
            }
            // A value is within one half, because its offset is a multiple of its size.
            halves[column.offset / 8 % 2] |= raw.to_u64() << (8 * (column.offset as u32 % 8));
        }
        let [low, high] = halves;
        (u128::from(low) | u128::from(high) << 64).to_le_bytes()
    }

    /// Reads the word of a tuple with all columns; `None` if it has not all, or has no word.
    #[inline]
    pub(super) fn read_tuple<W: Word>(&self, tuple: &[u8]) -> Option<W> {
        let nulls = u16_at(tuple, 6) & INDEX_NULL != 0;
        let mut at = if nulls { TUPLE_HEADER_WITH_NULLS } else { TUPLE_HEADER };
        self.gather(|i, column| {
            if nulls && tuple.get(TUPLE_HEADER + i / 8)? >> (i % 8) & 1 == 0 {
                return Some(None);
            }
            at = at.next_multiple_of(column.kind.align());
            let raw = column.kind.load(tuple.get(at..)?)?;
            at += column.kind.size();
            Some(Some(raw))
        })
    }
}

/// Length of data that one store can write, in bytes.
pub(super) const SHORT: usize = 16;

/// Writes a number in the stored form of its type. `to` has the type's length.
#[inline(always)]
pub(super) fn store<W: Word>(kind: KeyKind, raw: W, to: &mut [u8]) {
    let low = raw.to_u64();
    match kind {
        KeyKind::Bool | KeyKind::Char => to.copy_from_slice(&[low as u8]),
        KeyKind::Int2 => to.copy_from_slice(&(low as u16).to_ne_bytes()),
        KeyKind::Int4 | KeyKind::Oid | KeyKind::Float4 => to.copy_from_slice(&(low as u32).to_ne_bytes()),
        KeyKind::Int8 | KeyKind::Float8 => to.copy_from_slice(&low.to_ne_bytes()),
        KeyKind::Uuid => to.copy_from_slice(&raw.to_u128().to_be_bytes()),
    }
}

/// The kind of a leaf page's tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item<'t> {
    /// One row.
    Plain(Tid),
    /// Several rows in ascending order, ITEM_POINTER bytes each.
    Posting(&'t [u8]),
    /// No row: a high key.
    Pivot,
}

/// Returns the kind of a leaf page's tuple (BTreeTupleIsPosting, BTreeTupleIsPivot) and its attributes. `None` if it is
/// invalid.
#[inline]
pub(super) fn item(tuple: &[u8]) -> Option<(Item<'_>, &[u8])> {
    let tid = Tid::from_bytes(*tuple.first_chunk()?);
    let info = u16_at(tuple, 6);
    let size = usize::from(info & INDEX_SIZE_MASK);
    if size < TUPLE_HEADER || size > tuple.len() {
        return None;
    }
    let tuple = tuple.get(..size)?;
    if info & INDEX_ALT_TID == 0 {
        return Some((Item::Plain(tid), tuple));
    }
    if tid.offset() & BT_IS_POSTING == 0 {
        return Some((Item::Pivot, tuple));
    }
    let (start, count) = (tid.block() as usize, usize::from(tid.offset() & BT_OFFSET_MASK));
    if start < TUPLE_HEADER || count < 2 {
        return None;
    }
    let tids = tuple.get(start..)?.get(..count * ITEM_POINTER)?;
    Some((Item::Posting(tids), tuple.get(..start)?))
}
