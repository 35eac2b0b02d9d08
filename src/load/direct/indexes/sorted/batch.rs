//! Batches of tuples in the order of keys. All file reads happen while a batch is filled, before leaves are locked.

use pg_bulk_storage::btree::extension::Extension;
use pg_bulk_storage::btree::key::MAX_TUPLE;
use pgrx::pg_sys;

use crate::error::OrRaise;
use crate::index::index_keys::{Growth, KeyStream, Room, border};
use crate::index::leaf::LeafWriter;
use crate::load::direct::indexes::Index;
use crate::server::index_tuple::IndexTuple;
use crate::server::points::point_plain;
use crate::server::relation::Relation;
use crate::server::unguarded::{self as c, guarded};

/// Most tuples of a batch, ...
const TUPLES: usize = 1024;
/// ... and their bytes, without the last one's.
const BYTES: usize = 64 * 1024;
/// INDEX_SIZE_MASK (itup.h)
const SIZE_MASK: u16 = 0x1fff;
/// Bytes of the memory, with MAXALIGN of the longest tuple.
const SIZE: usize = BYTES + SIZE_MASK as usize + 1;

/// Tuples, in the order of their keys.
pub struct Batch {
    /// `SIZE` bytes
    bytes: *mut u8,
    /// `TUPLES` pointers
    tuples: *mut pg_sys::IndexTuple,
}

impl Batch {
    /// Makes a batch. Allocates in the current memory context, which must live as long.
    ///
    /// # Safety
    /// The frame is plain.
    pub unsafe fn new() -> Batch {
        // SAFETY: the frame is plain. All memory is initialized.
        unsafe {
            let context = pg_sys::CurrentMemoryContext;
            let bytes = c::MemoryContextAlloc(context, SIZE).cast::<u8>();
            let tuples = c::MemoryContextAlloc(context, TUPLES * size_of::<pg_sys::IndexTuple>());
            bytes.write_bytes(0, SIZE);
            tuples.cast::<u8>().write_bytes(0, TUPLES * size_of::<pg_sys::IndexTuple>());
            Batch { bytes, tuples: tuples.cast() }
        }
    }

    /// Frees the memory, whose context still lives. Raises nothing.
    pub fn free(self) {
        // SAFETY: allocated by `new`; this value is consumed.
        unsafe {
            c::pfree(self.bytes.cast());
            c::pfree(self.tuples.cast());
        }
    }

    fn room(&mut self) -> Room<'_> {
        // SAFETY: `new` has allocated and initialized both.
        unsafe {
            Room {
                bytes: std::slice::from_raw_parts_mut(self.bytes, BYTES + MAX_TUPLE),
                tuples: std::slice::from_raw_parts_mut(self.tuples, TUPLES),
            }
        }
    }

    /// Replaces the batch by the next tuples of the index's keys or finished sort; empty at the end.
    ///
    /// # Safety
    /// A plain frame.
    pub unsafe fn fill(&mut self, index: &mut Index) -> &[IndexTuple<'_>] {
        let (mut count, mut used) = (0, 0);
        // SAFETY: a plain frame; a tuple's size field is its length, and the rest of the memory has room for it.
        // Allocated memory is aligned for tuples.
        unsafe {
            if let Some(keys) = &mut index.keys {
                count = guarded(|| keys.next(&mut self.room()).or_raise());
            } else if let Some(sort) = &index.sort {
                while count < TUPLES && used < BYTES {
                    let tuple = c::tuplesort_getindextuple(sort.as_ptr(), true);
                    if tuple.is_null() {
                        break;
                    }
                    let len = IndexTuple::from_raw(tuple).size();
                    let copy = self.bytes.add(used);
                    std::ptr::copy_nonoverlapping(tuple.cast::<u8>(), copy, len);
                    *self.tuples.add(count) = copy.cast();
                    used += len.next_multiple_of(8);
                    count += 1;
                }
            }
        }
        // SAFETY: these tuples were made above.
        unsafe { IndexTuple::list(self.room().tuples.get(..count).unwrap_or_default()) }
    }

    /// Appends keys to the index as leaves, after all its entries.
    ///
    /// Returns the last tuple, or None if the next keys must be inserted.
    ///
    /// # Safety
    /// A plain frame; the keys were collected for the index, and the writer is for it.
    pub unsafe fn grow(
        &mut self,
        keys: &mut dyn KeyStream,
        index: Relation<'_>,
        writer: impl FnOnce(IndexTuple<'_>) -> *mut LeafWriter,
    ) -> Option<IndexTuple<'_>> {
        // SAFETY: a plain frame; the writer is valid. The batch has room for the tuples of a page and two more, and the
        // stream has written the first and the last tuple, and `tuples` between them.
        unsafe {
            if !guarded(|| keys.peek(&mut self.room()).or_raise()) {
                return None;
            }
            let first = IndexTuple::from_raw(*self.tuples);
            let writer = &mut *writer(first);
            let end = writer.end(first)?;
            if !guarded(|| keys.grow(index, &end, &mut self.room()).or_raise()) {
                return None;
            }
            point_plain!("leaf.looked");
            let Growth { leaves, shape, tuples: count, .. } = keys.growth();
            let count = *count;
            let tuples = IndexTuple::list(std::slice::from_raw_parts(self.tuples.add(1), count));
            let high_key = |leaves: &Extension, left: &[u8], to: &mut [u8]| border(shape, leaves, left, to);
            if !writer.grow(&end, first, tuples, leaves, &high_key) {
                return None;
            }
            keys.take_growth();
            Some(IndexTuple::from_raw(*self.tuples.add(count + 1)))
        }
    }
}
