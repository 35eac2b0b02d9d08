//! Index tuples of any keys: put together, truncated as by _bt_truncate, and walked over.
//!
//! ```text
//!  0       6        8                         8 or 16
//!  t_tid | t_info | null bitmap, if any null | attributes ... | zeros up to a multiple of 8
//! ```
//!
//! A varlena of up to 126 bytes has a header of one byte and no alignment; with a header of four bytes it is aligned.

use super::entry::Tid;
use super::key::{EncodedColumn, KeyShape};
use super::levels::{HEAP_TID, max_tid};
use super::read::{varlena, varlena_start};
use super::tuple::header;
use super::{
    BT_IS_POSTING, BT_PIVOT_HEAP_TID, INDEX_ALT_TID, INDEX_NULL, INDEX_SIZE_MASK, INDEX_VAR, ITEM_POINTER, NO_BLOCK,
    TUPLE_HEADER, TUPLE_HEADER_WITH_NULLS, put, u16_at,
};
use crate::tuple::max_align;

/// The stored value of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredValue<'v> {
    /// NULL
    Null,
    /// The bytes of a value of fixed width, or those of a varlena behind its header.
    Bytes(&'v [u8]),
}

/// How the values of a column are stored.
#[derive(Clone, Copy, Debug)]
pub(super) enum Storage {
    Fixed(EncodedColumn),
    Varlena { packable: bool, compressible: bool },
}

/// A tuple under construction. Attributes begin at their offset in a tuple with nulls; bytes before `start` are unused.
#[derive(Clone, Debug, Default)]
pub(super) struct TupleBuffer {
    pub(super) bytes: Vec<u8>,
    start: usize,
}

impl TupleBuffer {
    #[inline(always)]
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// Takes a tuple that is formed already.
    #[inline(always)]
    pub(super) fn set(&mut self, tuple: &[u8]) {
        self.start = 0;
        tuple.clone_into(&mut self.bytes);
    }

    pub(super) fn begin(&mut self) {
        self.bytes.clear();
        self.bytes.extend_from_slice(&[0; TUPLE_HEADER_WITH_NULLS]);
    }

    /// Writes t_tid, t_info and the bitmap, which has a bit for each column that is not null.
    #[inline(always)]
    pub(super) fn end(&mut self, tid: Tid, bitmap: u32, nulls: bool, varlenas: bool) {
        self.bytes.resize(max_align(self.bytes.len()), 0);
        self.start = if nulls { 0 } else { TUPLE_HEADER_WITH_NULLS - TUPLE_HEADER };
        let size = (self.bytes.len() - self.start) as u16 & INDEX_SIZE_MASK;
        let info = size | if nulls { INDEX_NULL } else { 0 } | if varlenas { INDEX_VAR } else { 0 };
        if nulls {
            put(&mut self.bytes, TUPLE_HEADER, &bitmap.to_le_bytes());
        }
        put(&mut self.bytes, self.start, &header(tid, info));
    }

    /// Makes the tuple of several rows: _bt_form_posting. Returns the size of the posting list.
    pub(super) fn add_posting_list(&mut self, tids: &[Tid]) -> usize {
        let base = self.bytes.len() - self.start;
        self.bytes.extend(tids.iter().flat_map(|tid| tid.to_bytes()));
        self.bytes.resize(self.start + max_align(base + tids.len() * ITEM_POINTER), 0);
        let size = self.bytes.len() - self.start;
        let info = u16_at(&self.bytes, self.start + ITEM_POINTER) & !INDEX_SIZE_MASK | size as u16 | INDEX_ALT_TID;
        put(&mut self.bytes, self.start, &header(Tid::new(base as u32, tids.len() as u16 | BT_IS_POSTING), info));
        size - base
    }
}

/// Makes the high key between two items of a leaf level: _bt_truncate. Its t_tid has the block number of the right
/// item. The items must have all columns.
pub(super) fn high_key(columns: impl Iterator<Item = Storage>, left: &[u8], right: &[u8]) -> Vec<u8> {
    let (mut left_walk, mut right_walk) = (Walk::new(left), Walk::new(right));
    let (mut kept, mut end) = (0, right_walk.at);
    let (mut equal, mut bitmap, mut nulls, mut varlenas) = (true, 0u32, false, false);
    for column in columns {
        // The items on the page are made of keys, so reading them succeeds.
        let (Some(a), Some(b)) = (left_walk.next(&column), right_walk.next(&column)) else { break };
        equal = a == b;
        match b {
            StoredValue::Null => nulls = true,
            StoredValue::Bytes(_) => {
                bitmap |= 1 << kept;
                varlenas |= matches!(column, Storage::Varlena { .. });
            }
        }
        kept += 1;
        end = right_walk.at;
        if !equal {
            break;
        }
    }
    let block = right.first_chunk().map_or(NO_BLOCK, |tid| Tid::from_bytes(*tid).block());
    let mut formed = TupleBuffer::default();
    formed.begin();
    formed.bytes.extend_from_slice(right.get(right_walk.start..end).unwrap_or_default());
    formed.end(Tid::default(), bitmap, nulls, varlenas);
    let mut tuple = formed.bytes().to_vec();
    let info = u16_at(&tuple, ITEM_POINTER) & !INDEX_SIZE_MASK;
    let mut count: u16 = kept;
    if equal {
        count |= BT_PIVOT_HEAP_TID;
        tuple.resize(tuple.len() + HEAP_TID, 0);
        let at = tuple.len() - ITEM_POINTER;
        put(&mut tuple, at, &max_tid(left).to_bytes());
    }
    let info = info | tuple.len() as u16 | INDEX_ALT_TID;
    put(&mut tuple, 0, &header(Tid::new(block, count), info));
    tuple
}

impl KeyShape {
    /// The high key between two items: [`high_key`].
    pub(super) fn high_key(&self, left: &[u8], right: &[u8]) -> Vec<u8> {
        high_key(self.columns().iter().map(|column| Storage::Fixed(*column)), left, right)
    }
}

/// Reads a tuple's attributes one after the other.
pub(super) struct Walk<'t> {
    tuple: &'t [u8],
    nulls: bool,
    /// Offset of the first attribute.
    start: usize,
    at: usize,
    /// Number of columns that were read.
    passed: usize,
}

impl<'t> Walk<'t> {
    pub(super) fn new(tuple: &'t [u8]) -> Self {
        let nulls = u16_at(tuple, 6) & INDEX_NULL != 0;
        let start = if nulls { TUPLE_HEADER_WITH_NULLS } else { TUPLE_HEADER };
        Self { tuple, nulls, start, at: start, passed: 0 }
    }

    #[inline(always)]
    pub(super) fn next(&mut self, storage: &Storage) -> Option<StoredValue<'t>> {
        let i = self.passed;
        self.passed += 1;
        if self.nulls && self.tuple.get(TUPLE_HEADER + i / 8)? >> (i % 8) & 1 == 0 {
            return Some(StoredValue::Null);
        }
        let bytes = match storage {
            Storage::Fixed(column) => {
                let at = self.at.next_multiple_of(column.kind.align());
                self.at = at + column.kind.size();
                self.tuple.get(at..self.at)?
            }
            Storage::Varlena { .. } => {
                let at = varlena_start(self.tuple, self.at, 4)?;
                let (size, payload) = varlena(self.tuple.get(at..)?)?;
                self.at = at + size;
                payload
            }
        };
        Some(StoredValue::Bytes(bytes))
    }
}
