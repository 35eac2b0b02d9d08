//! Batches of tuples in the order of keys. All file reads happen while a batch is filled, before leaves are locked.

use pg_bulk_storage::btree::extension::Extension;
use pgrx::pg_sys;

use crate::index::index_keys::{KeyStream, Room, border, leaves_of, next_tuple, next_tuples, take_growth};
use crate::index::leaf::LeafWriter;
use crate::load::direct::indexes::IndexStrategy;
use crate::server::points::point_plain;
use crate::server::unguarded as c;

/// Most tuples of a batch, ...
const TUPLES: usize = 1024;
/// ... and their bytes, without the last one's.
const BYTES: usize = 64 * 1024;
/// INDEX_SIZE_MASK (itup.h)
const SIZE_MASK: u16 = 0x1fff;
/// MAXALIGN of the longest tuple
const LONGEST: usize = SIZE_MASK as usize + 1;

/// Tuples, in the order of their keys.
pub struct Batch {
    bytes: *mut u8,
    tuples: *mut pg_sys::IndexTuple,
}

impl Batch {
    /// Makes a batch. Allocates in the current memory context, which must live as long.
    ///
    /// # Safety
    /// The frame is plain.
    pub unsafe fn new() -> Batch {
        // SAFETY: this function's contract covers the frame.
        unsafe {
            let context = pg_sys::CurrentMemoryContext;
            let bytes = c::MemoryContextAlloc(context, BYTES + LONGEST).cast();
            let tuples = c::MemoryContextAlloc(context, TUPLES * size_of::<pg_sys::IndexTuple>()).cast();
            Batch { bytes, tuples }
        }
    }

    /// Frees the memory.
    ///
    /// # Safety
    /// The frame is plain, and the memory context of `new` still lives.
    pub unsafe fn free(self) {
        // SAFETY: allocated by `new` in a context that still lives; this value is consumed.
        unsafe {
            c::pfree(self.bytes.cast());
            c::pfree(self.tuples.cast());
        }
    }

    /// Replaces the batch by the next tuples; empty at the end.
    ///
    /// # Safety
    /// A plain frame; a finished sort of index tuples, or collected keys.
    pub unsafe fn fill(&mut self, strategy: IndexStrategy) -> &[pg_sys::IndexTuple] {
        // SAFETY: this function's contract covers frame and source, which return the number of tuples.
        unsafe {
            let count = match strategy {
                IndexStrategy::InsertSorted(sort) => self.fill_from_sort(sort),
                IndexStrategy::InsertKeys(keys) => {
                    let room = self.room();
                    next_tuples(keys, &raw const room)
                }
                _ => 0,
            };
            std::slice::from_raw_parts(self.tuples, count)
        }
    }

    /// Appends keys to the index as leaves, after all its entries.
    ///
    /// Returns the last tuple, in the batch's memory, or null if the next keys must be inserted.
    ///
    /// # Safety
    /// A plain frame; the keys were collected for the index, and the writer is for it.
    pub unsafe fn grow(
        &mut self,
        keys: *mut KeyStream,
        index: pg_sys::Relation,
        writer: impl FnOnce(pg_sys::IndexTuple) -> *mut LeafWriter,
    ) -> pg_sys::IndexTuple {
        // SAFETY: this function's contract covers all arguments; the batch has room for the tuples of a page and two
        // more.
        unsafe {
            let (none, room) = (std::ptr::null_mut(), self.room());
            if !next_tuple(keys, &raw const room) {
                return none;
            }
            let writer = writer(*self.tuples);
            let Some(end) = (*writer).end(*self.tuples) else { return none };
            let growth = leaves_of(keys, index, &raw const end, &raw const room);
            if growth.is_null() {
                return none;
            }
            point_plain!("leaf.looked");
            let count = (*growth).tuples;
            let tuples = std::slice::from_raw_parts(self.tuples.add(1), count);
            let high_key = |leaves: &Extension, left: &[u8], to: &mut [u8]| border(keys, leaves, left, to);
            if !(*writer).grow(&end, *self.tuples, tuples, &mut (*growth).leaves, &high_key) {
                return none;
            }
            take_growth(keys);
            *self.tuples.add(count + 1)
        }
    }

    fn room(&self) -> Room {
        Room { bytes: self.bytes, size: BYTES, tuples: self.tuples, most: TUPLES }
    }

    /// # Safety
    /// See [`Batch::fill`].
    unsafe fn fill_from_sort(&mut self, sort: *mut pg_sys::Tuplesortstate) -> usize {
        let (mut count, mut used) = (0, 0);
        // SAFETY: this function's contract covers frame and sort; a tuple's size field is its length, and the rest of
        // the memory has room for it. Allocated memory is aligned for tuples.
        unsafe {
            while count < TUPLES && used < BYTES {
                let tuple = c::tuplesort_getindextuple(sort, true);
                if tuple.is_null() {
                    break;
                }
                let len = usize::from((*tuple).t_info & SIZE_MASK);
                let copy = self.bytes.add(used);
                std::ptr::copy_nonoverlapping(tuple.cast::<u8>(), copy, len);
                *self.tuples.add(count) = copy.cast();
                used += len.next_multiple_of(8);
                count += 1;
            }
        }
        count
    }
}
