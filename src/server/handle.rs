//! A handle: a pointer whose type says why it is valid.
//!
//! Each kind of handle has a name of its own, such as [`Relation`](super::relation::Relation). The comment of the name says what
//! the handle points to, and why that is valid as long as `'a`. The server may change the struct at any call, so functions
//! that read it return copies.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// A pointer to a struct of the server that is valid as long as `'a`.
#[repr(transparent)]
pub struct Handle<'a, T>(NonNull<T>, PhantomData<&'a T>);

impl<T> Clone for Handle<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<'_, T> {}

/// Equal handles point to one struct.
impl<T> PartialEq for Handle<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Eq for Handle<'_, T> {}

impl<T> fmt::Debug for Handle<'_, T> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

impl<'a, T> Handle<'a, T> {
    /// # Safety
    /// The pointer is not null. As long as the handle, its copies and what they lend are used, it points to a struct as the
    /// name of the handle requires.
    #[inline(always)]
    pub const unsafe fn from_raw(pointer: *mut T) -> Handle<'a, T> {
        // SAFETY: it is not null.
        Handle(unsafe { NonNull::new_unchecked(pointer) }, PhantomData)
    }

    /// Null gives None.
    ///
    /// # Safety
    /// As [`Handle::from_raw`], unless it is null.
    pub const unsafe fn or_null(pointer: *mut T) -> Option<Handle<'a, T>> {
        match NonNull::new(pointer) {
            Some(pointer) => Some(Handle(pointer, PhantomData)),
            None => None,
        }
    }

    /// Returns the pointer for functions of the server.
    #[inline(always)]
    pub const fn as_ptr(self) -> *mut T {
        self.0.as_ptr()
    }

    /// The struct. No function of the server is called while the reference is used.
    #[inline(always)]
    pub(super) const fn get(&self) -> &T {
        // SAFETY: a valid struct.
        unsafe { self.0.as_ref() }
    }
}
