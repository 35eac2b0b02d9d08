//! A handle of an index tuple.

use pgrx::pg_sys;

use super::handle::Handle;
use super::memory_context::MemoryContext;
use super::relation::Relation;
use super::unguarded as c;

/// INDEX_SIZE_MASK (itup.h)
const SIZE_MASK: u16 = 0x1fff;
/// BTORDER_PROC (nbtree.h)
const ORDER: u16 = 1;
const MOST_KEYS: usize = pg_sys::INDEX_MAX_KEYS as usize;

/// An index tuple as long as `'a`: its memory has the size in its header, rounded up to a multiple of 8.
pub type IndexTuple<'a> = Handle<'a, pg_sys::IndexTupleData>;

impl<'a> IndexTuple<'a> {
    /// # Safety
    /// Tuples that are valid as long as `'a`.
    pub const unsafe fn list(tuples: &'a [pg_sys::IndexTuple]) -> &'a [IndexTuple<'a>] {
        // SAFETY: this type has the layout of a pointer, and tuples are not null.
        unsafe { &*(std::ptr::from_ref(tuples) as *const [IndexTuple<'a>]) }
    }

    /// The row: a tuple begins with its TID.
    pub const fn row(self) -> pg_sys::ItemPointer {
        self.as_ptr().cast()
    }

    /// A copy of the row's TID.
    pub const fn tid(self) -> pg_sys::ItemPointerData {
        self.get().t_tid
    }

    /// t_info: the size, and flags.
    #[inline]
    pub const fn info(self) -> u16 {
        self.get().t_info
    }

    /// The tuple's bytes without its alignment.
    #[inline]
    pub fn unaligned_bytes(self) -> &'a [u8] {
        self.bytes().get(..self.size()).unwrap_or_default()
    }

    /// The tuple's bytes behind its TID, without its alignment.
    #[inline]
    pub fn without_row(self) -> &'a [u8] {
        self.unaligned_bytes().get(size_of::<pg_sys::ItemPointerData>()..).unwrap_or_default()
    }

    /// IndexTupleSize (itup.h)
    #[inline]
    pub fn size(self) -> usize {
        usize::from(self.info() & SIZE_MASK)
    }

    /// MAXALIGN(IndexTupleSize)
    #[inline]
    pub fn aligned_size(self) -> usize {
        self.size().next_multiple_of(8)
    }

    /// The tuple's bytes with its alignment.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        // SAFETY: the tuple's memory has this size.
        unsafe { std::slice::from_raw_parts(self.as_ptr().cast(), self.aligned_size()) }
    }
}

/// Whether two tuples of a B-tree have equal keys, by its comparison functions. `nulls_equal`: nulls are equal to each
/// other. Allocates in `scratch`.
///
/// # Safety
/// A plain frame; tuples of the index, whose keys are its first `keys` columns.
pub unsafe fn have_equal_keys(
    index: Relation<'_>,
    keys: usize,
    nulls_equal: bool,
    tuples: [IndexTuple<'_>; 2],
    scratch: MemoryContext,
) -> bool {
    // SAFETY: tuples of the index, which has an order function and a collation for each key. The arrays have room for the
    // values of any index tuple.
    unsafe {
        let (index, descriptor) = (index.as_ptr(), index.descriptor().as_ptr());
        let mut values = [[pg_sys::Datum::null(); MOST_KEYS]; 2];
        let mut nulls = [[false; MOST_KEYS]; 2];
        for (tuple, (values, nulls)) in tuples.into_iter().zip(values.iter_mut().zip(&mut nulls)) {
            c::index_deform_tuple(tuple.as_ptr(), descriptor, values.as_mut_ptr(), nulls.as_mut_ptr());
        }
        let ([left, right], [left_nulls, right_nulls]) = (&values, &nulls);
        let caller = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = scratch.as_ptr();
        let columns = left.iter().zip(right).zip(left_nulls.iter().zip(right_nulls)).take(keys).enumerate();
        let mut equal = true;
        for (column, ((&left, &right), (&left_null, &right_null))) in columns {
            equal = if left_null || right_null {
                left_null && right_null && nulls_equal
            } else {
                let function = c::index_getprocinfo(index, column as i16 + 1, ORDER);
                let collation = *(*index).rd_indcollation.add(column);
                c::FunctionCall2Coll(function, collation, left, right).value() as i32 == 0
            };
            if !equal {
                break;
            }
        }
        pg_sys::CurrentMemoryContext = caller;
        equal
    }
}
