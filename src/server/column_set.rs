//! Sets of a relation's columns, as range table entries have them.
//!
//! A member is the number of an attribute minus FirstLowInvalidHeapAttributeNumber, so that system columns have members, too.
//! A [`ColumnSet`] lives in a memory context, like a [`Node`](super::node::Node). Functions that change sets get copies.

use pgrx::pg_sys;

use super::call::{calls, passed, returned};

/// A set of columns. The empty set is null.
#[derive(Debug, Clone, Copy)]
pub struct ColumnSet(*mut pg_sys::Bitmapset);

impl ColumnSet {
    pub const EMPTY: ColumnSet = ColumnSet(std::ptr::null_mut());

    /// # Safety
    /// Null, or a set that is valid as long as handles of it are used.
    pub const unsafe fn from_raw(set: *mut pg_sys::Bitmapset) -> ColumnSet {
        ColumnSet(set)
    }

    /// Returns the pointer for functions of the server.
    pub const fn as_ptr(self) -> *mut pg_sys::Bitmapset {
        self.0
    }

    pub const fn is_empty(self) -> bool {
        self.0.is_null()
    }

    /// The numbers of the attributes, in ascending order. Guarded.
    pub fn numbers(self) -> impl Iterator<Item = i16> {
        let mut member = -1;
        std::iter::from_fn(move || {
            member = self.next(member);
            (member >= 0).then_some(())?;
            i16::try_from(member + pg_sys::FirstLowInvalidHeapAttributeNumber).ok()
        })
        .fuse()
    }

    // SAFETY: valid sets, or null. Only a set that is made here gets members.
    calls! {
        fn next(self, member: i32) -> i32 = bms_next_member(self, member);
        /// A copy in the current memory context. Guarded.
        pub fn copied(self) -> ColumnSet = bms_copy(self);
        fn with(self, member: i32) -> ColumnSet = bms_add_member(self, member);
    }
}

// SAFETY: sets in memory contexts, or null.
passed! {
    ColumnSet => *mut pg_sys::Bitmapset = ColumnSet::as_ptr;
    ColumnSet => *const pg_sys::Bitmapset = |set| set.as_ptr();
}

returned! {
    *mut pg_sys::Bitmapset => ColumnSet = ColumnSet;
}

/// The set of attributes with these numbers, in the current memory context. Guarded.
impl FromIterator<i16> for ColumnSet {
    fn from_iter<I: IntoIterator<Item = i16>>(numbers: I) -> ColumnSet {
        let members = numbers.into_iter().map(|number| i32::from(number) - pg_sys::FirstLowInvalidHeapAttributeNumber);
        members.fold(ColumnSet::EMPTY, ColumnSet::with)
    }
}
