//! Handles of the server's structures, and callbacks that receive them.
//!
//! The server passes pointers to a callback: the planner's data about a query, a statement, the state of EXPLAIN. Each
//! structure, and all that it points to, is valid while the callback runs. A [`Handle`] is such a pointer, and its
//! lifetime is that of the call. Functions of the server change the structures, so [`Handle::get`] copies.
//!
//! [`callback`] makes a function for the server of a safe one. Its guard raises the errors of the safe function. The
//! type of each argument says what the server passes ([`Argument`]). The field that stores the function, such as one of
//! FdwRoutine, has the type of the callback, so the compiler compares the arguments with those of the server.
//! A callback for each row is a plain frame, and is written by hand.

use std::marker::PhantomData;
use std::ptr::NonNull;

use pgrx::pg_sys;

/// A structure of the server that is valid as long as `'a`.
#[derive(Debug)]
pub struct Handle<'a, T>(NonNull<T>, PhantomData<&'a T>);

impl<T> Clone for Handle<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<'_, T> {}

impl<'a, T: Copy> Handle<'a, T> {
    /// # Safety
    /// The pointer is not null. The structure and all that it points to are valid as long as `'a`.
    pub const unsafe fn from_raw(pointer: *mut T) -> Handle<'a, T> {
        // SAFETY: the caller has a pointer that is not null.
        Handle(unsafe { NonNull::new_unchecked(pointer) }, PhantomData)
    }

    /// Returns the pointer for functions of the server.
    pub const fn as_ptr(self) -> *mut T {
        self.0.as_ptr()
    }

    /// Copies the structure as it is now.
    pub const fn get(self) -> T {
        // SAFETY: a handle's structure is valid, and only the server's thread changes it.
        unsafe { self.0.read() }
    }
}

/// An argument of a callback.
///
/// # Safety
/// `of` is sound for each value that the server passes to a callback with an argument of the type `Raw`.
pub unsafe trait Argument {
    type Raw;

    /// # Safety
    /// The server passes the value to a callback, which runs as long as the result is used.
    unsafe fn of(raw: Self::Raw) -> Self;
}

// SAFETY: the server passes a valid structure.
unsafe impl<T: Copy> Argument for Handle<'_, T> {
    type Raw = *mut T;

    unsafe fn of(raw: *mut T) -> Self {
        // SAFETY: the server passes a pointer that is valid during the call.
        unsafe { Handle::from_raw(raw) }
    }
}

// SAFETY: the server passes a valid structure or null.
unsafe impl<T: Copy> Argument for Option<Handle<'_, T>> {
    type Raw = *mut T;

    unsafe fn of(raw: *mut T) -> Self {
        // SAFETY: the pointer is valid during the call, or null.
        (!raw.is_null()).then(|| unsafe { Handle::from_raw(raw) })
    }
}

macro_rules! values {
    ($($value:ty),*) => {
        $(
            // SAFETY: a value.
            unsafe impl Argument for $value {
                type Raw = $value;

                unsafe fn of(raw: $value) -> $value {
                    raw
                }
            }
        )*
    };
}

values!(i32, u32, pg_sys::Oid);

/// Makes a callback of a safe function that returns a `Result`.
macro_rules! callback {
    ($body:path, $($argument:ident: $kind:ty),*) => {
        $crate::server::handle::callback!($body, $($argument: $kind),* => ())
    };
    ($body:path, $($argument:ident: $kind:ty),* => $result:ty) => {{
        unsafe extern "C-unwind" fn callback(
            $($argument: <$kind as $crate::server::handle::Argument>::Raw),*
        ) -> $result {
            // SAFETY: the server calls it with these arguments, in a frame of C. This frame owns nothing.
            unsafe {
                super::unguarded::guarded(|| {
                    let result = $body($(<$kind as $crate::server::handle::Argument>::of($argument)),*);
                    $crate::error::OrRaise::or_raise(result)
                })
            }
        }
        callback
    }};
}

pub(crate) use callback;
