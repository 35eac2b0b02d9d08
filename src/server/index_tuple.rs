//! A handle of an index tuple.

use pgrx::pg_sys;

use super::handle::Handle;

/// INDEX_SIZE_MASK (itup.h)
const SIZE_MASK: u16 = 0x1fff;

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
