//! The data that a plan carries to its scan: columns to convert, remarks about the path, aggregates
//! ([`super::aggregate`]), and the promised order.

use pgrx::{PgList, pg_sys};

use super::order::Ordered;

/// Columns that a scan converts, by attribute number: those that the quals read, and the others. They pass through the
/// plan as two lists of integers, which can be copied, cached and sent to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub by_quals: Vec<i32>,
    pub besides: Vec<i32>,
}

impl Wanted {
    /// `more` are remarks about the scan, for [`others`].
    pub fn into_private(self, more: *mut pg_sys::List) -> *mut pg_sys::List {
        let list = |attributes: Vec<i32>| {
            attributes.into_iter().fold(std::ptr::null_mut(), |list, attribute| {
                // SAFETY: a guarded call on a list made here.
                unsafe { pg_sys::lappend_int(list, attribute) }
            })
        };
        let mut private = PgList::<pg_sys::List>::new();
        private.push(list(self.by_quals));
        private.push(list(self.besides));
        private.push(more);
        private.into_pg()
    }

    /// # Safety
    /// The private list of a plan that this module made; a guarded frame.
    pub unsafe fn from_private(private: *mut pg_sys::List) -> Wanted {
        // SAFETY: this function's contract covers the list.
        let read = |index: usize| unsafe {
            let private = PgList::<pg_sys::List>::from_pg(private);
            let list = private.get_ptr(index).unwrap_or(std::ptr::null_mut());
            if list.is_null() {
                return Vec::new();
            }
            let len = usize::try_from((*list).length).unwrap_or(0);
            (0..len).map(|i| (*(*list).elements.add(i)).int_value).collect()
        };
        Wanted { by_quals: read(0), besides: read(1) }
    }
}

/// Remarks of other modules about a plan's path, in its private list. Guarded.
///
/// # Safety
/// The private list of a plan that this module made.
pub unsafe fn others(private: *mut pg_sys::List) -> *mut pg_sys::List {
    // SAFETY: this function's contract covers the list.
    unsafe { PgList::<pg_sys::List>::from_pg(private).get_ptr(2).unwrap_or(std::ptr::null_mut()) }
}

/// The columns of the order that a plan relies on; empty if it relies on none. Guarded.
///
/// # Safety
/// The private list of a plan that this module made.
pub unsafe fn order_of(private: *mut pg_sys::List) -> Vec<Ordered> {
    // SAFETY: this function's contract covers the list.
    unsafe {
        let list = PgList::<pg_sys::List>::from_pg(private).get_ptr(4).unwrap_or(std::ptr::null_mut());
        Ordered::from_list(list)
    }
}
