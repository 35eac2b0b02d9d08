//! Index tuples of keys: formed as by index_form_tuple, truncated as by _bt_truncate, and read back.
//!
//! ```text
//!  0       6        8                         8 or 16
//!  t_tid | t_info | null bitmap, if any null | attributes ... | zeros up to a multiple of 8
//! ```
//!
//! A varlena of up to 126 bytes has a header of one byte and no alignment; with a header of four bytes it is aligned.

use super::shape::{ByteShape, ColumnEncoding, Scratch, Storage, StoredValue};
use crate::btree::entry::Tid;
use crate::btree::levels::{HEAP_TID, max_tid, put};
use crate::btree::read::{varlena, varlena_start};
use crate::btree::tuple::header;
use crate::btree::{
    BT_IS_POSTING, BT_PIVOT_HEAP_TID, INDEX_ALT_TID, INDEX_NULL, INDEX_SIZE_MASK, INDEX_VAR, ITEM_POINTER, NO_BLOCK,
    TUPLE_HEADER, TUPLE_HEADER_WITH_NULLS, u16_at,
};
use crate::tuple::max_align;

/// A tuple under construction. Attributes begin at their offset in a tuple with nulls; bytes before `start` are unused.
#[derive(Clone, Debug, Default)]
pub(super) struct Formed {
    bytes: Vec<u8>,
    start: usize,
    scratch: Scratch,
}

/// The longest payload with a header of one byte: VARATT_SHORT_MAX less the header.
const SHORT_MAX: usize = 126;

impl Formed {
    #[inline(always)]
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    fn begin(&mut self) {
        self.bytes.clear();
        self.bytes.extend_from_slice(&[0; TUPLE_HEADER_WITH_NULLS]);
    }

    /// Writes t_tid, t_info and the bitmap, which has a bit for each column that is not null.
    #[inline(always)]
    fn end(&mut self, tid: Tid, bitmap: u32, nulls: bool, varlenas: bool) {
        self.bytes.resize(max_align(self.bytes.len()), 0);
        self.start = if nulls { 0 } else { TUPLE_HEADER_WITH_NULLS - TUPLE_HEADER };
        let size = (self.bytes.len() - self.start) as u16 & INDEX_SIZE_MASK;
        let info = size | if nulls { INDEX_NULL } else { 0 } | if varlenas { INDEX_VAR } else { 0 };
        if nulls {
            put(&mut self.bytes, TUPLE_HEADER, &bitmap.to_le_bytes());
        }
        put(&mut self.bytes, self.start, &header(tid, info));
    }

    /// Makes the tuple of several rows: _bt_form_posting.
    pub(super) fn posting(&mut self, tids: &[Tid]) -> (&[u8], usize) {
        let base = self.bytes.len() - self.start;
        for tid in tids {
            self.bytes.extend_from_slice(&tid.to_bytes());
        }
        self.bytes.resize(self.start + max_align(base + tids.len() * ITEM_POINTER), 0);
        let size = self.bytes.len() - self.start;
        let info = u16_at(&self.bytes, self.start + 6) & !INDEX_SIZE_MASK | size as u16 | INDEX_ALT_TID;
        put(&mut self.bytes, self.start, &header(Tid::new(base as u32, tids.len() as u16 | BT_IS_POSTING), info));
        (self.bytes(), size - base)
    }
}

impl ByteShape {
    /// Forms the tuple of a key: index_form_tuple. False if the key is not of this shape.
    #[inline]
    pub(super) fn form(&self, key: &[u8], tid: Tid, formed: &mut Formed) -> bool {
        formed.begin();
        let (mut rest, mut bitmap, mut nulls, mut varlenas) = (key, 0u32, false, false);
        for (i, part) in self.parts().iter().enumerate() {
            let bytes = match part.decode(&mut rest, &mut formed.scratch) {
                Some(StoredValue::Bytes(bytes)) => bytes,
                Some(StoredValue::Null) => {
                    nulls = true;
                    continue;
                }
                None => return false,
            };
            bitmap |= 1 << i;
            match part.storage {
                Storage::Fixed(column) => {
                    align(&mut formed.bytes, column.kind.align());
                    formed.bytes.extend_from_slice(bytes);
                }
                Storage::Varlena { packable, .. } => {
                    varlenas = true;
                    put_varlena(&mut formed.bytes, packable, bytes);
                }
            }
        }
        formed.end(tid, bitmap, nulls, varlenas);
        rest.is_empty()
    }

    /// Makes the high key between two items of a leaf level: _bt_truncate. Its t_tid has the block number of the right
    /// item.
    pub(super) fn high_key(&self, left: &[u8], right: &[u8]) -> Vec<u8> {
        let (mut left_walk, mut right_walk) = (Walk::new(left), Walk::new(right));
        let (mut kept, mut end) = (0, right_walk.at);
        let (mut equal, mut bitmap, mut nulls, mut varlenas) = (true, 0u32, false, false);
        while let Some(part) = self.parts().get(kept)
            && equal
        {
            // The items on the page are made of keys, so reading them succeeds.
            let (Some(a), Some(b)) = (left_walk.next(part), right_walk.next(part)) else { break };
            equal = a == b;
            match b {
                StoredValue::Null => nulls = true,
                StoredValue::Bytes(_) => {
                    bitmap |= 1 << kept;
                    varlenas |= matches!(part.storage, Storage::Varlena { .. });
                }
            }
            kept += 1;
            end = right_walk.at;
        }
        let block = right.first_chunk().map_or(NO_BLOCK, |tid| Tid::from_bytes(*tid).block());
        let mut formed = Formed::default();
        formed.begin();
        formed.bytes.extend_from_slice(right.get(right_walk.start..end).unwrap_or_default());
        formed.end(Tid::default(), bitmap, nulls, varlenas);
        let mut tuple = formed.bytes().to_vec();
        let info = u16_at(&tuple, 6) & !INDEX_SIZE_MASK;
        let mut count = kept as u16;
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

    /// Reads the values of a tuple with all columns. False if it has not all, or if one is compressed or external.
    #[inline]
    pub(in crate::btree) fn read_tuple<'t>(&self, tuple: &'t [u8], values: &mut [StoredValue<'t>]) -> bool {
        let mut walk = Walk::new(tuple);
        self.parts().iter().zip(values).all(|(part, to)| match walk.next(part) {
            Some(value) => {
                *to = value;
                true
            }
            None => false,
        })
    }
}

fn align(bytes: &mut Vec<u8>, to: usize) {
    bytes.resize(bytes.len().next_multiple_of(to), 0);
}

/// Writes a varlena as heap_fill_tuple does.
#[inline(always)]
fn put_varlena(to: &mut Vec<u8>, packable: bool, payload: &[u8]) {
    let big = cfg!(target_endian = "big");
    if packable && payload.len() <= SHORT_MAX {
        let size = payload.len() as u8 + 1;
        to.push(if big { size | 0x80 } else { size << 1 | 1 });
    } else {
        align(to, 4);
        let size = payload.len() as u32 + 4;
        to.extend_from_slice(&(if big { size } else { size << 2 }).to_ne_bytes());
    }
    to.extend_from_slice(payload);
}

/// Reads a tuple's attributes one after the other.
struct Walk<'t> {
    tuple: &'t [u8],
    nulls: bool,
    /// Offset of the first attribute.
    start: usize,
    at: usize,
    /// Number of columns that were read.
    passed: usize,
}

impl<'t> Walk<'t> {
    fn new(tuple: &'t [u8]) -> Self {
        let nulls = u16_at(tuple, 6) & INDEX_NULL != 0;
        let start = if nulls { TUPLE_HEADER_WITH_NULLS } else { TUPLE_HEADER };
        Self { tuple, nulls, start, at: start, passed: 0 }
    }

    #[inline(always)]
    fn next(&mut self, part: &ColumnEncoding) -> Option<StoredValue<'t>> {
        let i = self.passed;
        self.passed += 1;
        if self.nulls && self.tuple.get(TUPLE_HEADER + i / 8)? >> (i % 8) & 1 == 0 {
            return Some(StoredValue::Null);
        }
        let bytes = match part.storage {
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
