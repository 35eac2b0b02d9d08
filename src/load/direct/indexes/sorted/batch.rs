//! Tuples in the order of keys, some at a time: what reads files must be done when leaves are locked.

use pg_bulk_format::btree::extension::Extension;
use pgrx::pg_sys;

use crate::load::direct::index_keys::{KeyStream, Room, border, leaves_of, next_tuple, next_tuples, take_growth};
use crate::load::direct::indexes::Way;
use crate::pg::leaf::LeafWriter;
use crate::pg::points::point_plain;
use crate::pg::unguarded as c;

/// Tuples of a batch, at most, ...
const TUPLES: usize = 1024;
/// ... and their bytes, but for the last one's.
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
    /// Allocates in the current memory context, which must live as long.
    ///
    /// # Safety
    /// A plain frame.
    pub unsafe fn new() -> Batch {
        // SAFETY: this function's contract covers the frame.
        unsafe {
            let context = pg_sys::CurrentMemoryContext;
            let bytes = c::MemoryContextAlloc(context, BYTES + LONGEST).cast();
            let tuples = c::MemoryContextAlloc(context, TUPLES * size_of::<pg_sys::IndexTuple>()).cast();
            Batch { bytes, tuples }
        }
    }

    /// Give the memory back. It is not used any more.
    ///
    /// # Safety
    /// A plain frame.
    pub unsafe fn free(&mut self) {
        // SAFETY: allocated by `new`.
        unsafe {
            c::pfree(self.bytes.cast());
            c::pfree(self.tuples.cast());
        }
    }

    /// The next ones, in place of those before; none at the end.
    ///
    /// # Safety
    /// A plain frame, and a sort of index tuples that is done, or keys that were collected.
    pub unsafe fn fill(&mut self, way: Way) -> &[pg_sys::IndexTuple] {
        // SAFETY: this function's contract covers frame and source, which say how many tuples there are.
        unsafe {
            let count = match way {
                Way::Sorted(sort) => self.fill_from_sort(sort),
                Way::Keyed(keys) => {
                    let room = self.room();
                    next_tuples(keys, &raw const room)
                }
                _ => 0,
            };
            std::slice::from_raw_parts(self.tuples, count)
        }
    }

    /// Put keys behind all that the index has, as leaves. Returns the last one, with whatever is in the memory of the batch, or
    /// null if they are to be inserted.
    ///
    /// # Safety
    /// A plain frame; keys that were collected for the index, which is what the writer is for.
    pub unsafe fn grow(
        &mut self,
        keys: *mut KeyStream,
        index: pg_sys::Relation,
        writer: impl FnOnce(pg_sys::IndexTuple) -> *mut LeafWriter,
    ) -> pg_sys::IndexTuple {
        // SAFETY: this function's contract covers all arguments; there is room for the tuples of a page, and more.
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
    /// As [`Batch::fill`].
    unsafe fn fill_from_sort(&mut self, sort: *mut pg_sys::Tuplesortstate) -> usize {
        let (mut count, mut used) = (0, 0);
        // SAFETY: this function's contract covers frame and sort; a tuple is as long as it says, and no longer than what is left. Memory
        // of the server's is aligned as tuples are.
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
