//! Functions that the server calls back.
//!
//! The server passes pointers to a callback: the planner's data about a query, a statement, a node of the executor. They
//! are valid while the callback runs. [`callback`] makes a function for the server of a safe one. Its guard raises the
//! errors of the safe function. The type of each argument says what the server passes ([`Argument`]). The field that
//! stores the function, such as one of FdwRoutine, has the type of the callback. So the compiler compares the arguments
//! with those of the server.
//!
//! A callback for each row is a plain frame, and is written by hand.

use std::marker::PhantomData;
use std::ptr::NonNull;

use pgrx::pg_sys;

use super::node::{Node, NodeList, Tagged};
use super::relation::Relation;

/// An argument of a callback.
///
/// # Safety
/// Each value that the server passes to a callback with an argument of the type `Raw` is a value of this type, as long as the
/// callback runs.
pub unsafe trait Argument: Sized {
    type Raw;

    /// # Safety
    /// The server passes the value to a callback, which runs as long as the result is used.
    unsafe fn of(raw: Self::Raw) -> Self {
        const { assert!(size_of::<Self>() == size_of::<Self::Raw>()) };
        // SAFETY: a value of `Raw` that the server passes is one of this type, as the trait requires.
        unsafe { std::mem::transmute_copy(&raw) }
    }
}

/// An argument that the callback does not use.
#[derive(Debug)]
#[repr(transparent)]
pub struct Unused<T>(*mut T);

/// A result that the callback returns through a pointer.
#[derive(Debug)]
#[repr(transparent)]
pub struct Out<'a, T>(NonNull<T>, PhantomData<&'a mut T>);

impl<T> Out<'_, T> {
    pub fn set(self, value: T) {
        // SAFETY: the server passes a pointer to a variable of its own.
        unsafe { self.0.write(value) }
    }
}

macro_rules! arguments {
    ($($({$kind:ident $(: $bound:path)?})? $argument:ty => $raw:ty;)*) => {
        $(
            // SAFETY: see below.
            unsafe impl $(<$kind $(: $bound)?>)? Argument for $argument {
                type Raw = $raw;
            }
        )*
    };
}

// SAFETY: the server passes valid nodes of these types, lists of such nodes, open and locked relations, and pointers to
// variables of its own. Handles are such pointers; where a pointer may be null, None or an empty list is null. What is not
// used may be any pointer.
arguments! {
    {T: Tagged} Node<'_, T> => *mut T;
    {T: Tagged} Option<Node<'_, T>> => *mut T;
    {T: Tagged} NodeList<'_, T> => *mut pg_sys::List;
    {T} Out<'_, T> => *mut T;
    {T} Unused<T> => *mut T;
    Relation<'_> => pg_sys::Relation;
    i32 => i32;
    u32 => u32;
    pg_sys::Oid => pg_sys::Oid;
}

/// Makes a callback of a safe function that returns a `Result`.
macro_rules! callback {
    ($body:path, $($argument:ident: $kind:ty),*) => {
        $crate::server::callback::callback!($body, $($argument: $kind),* => ())
    };
    ($body:path, $($argument:ident: $kind:ty),* => $result:ty) => {{
        unsafe extern "C-unwind" fn callback(
            $($argument: <$kind as $crate::server::callback::Argument>::Raw),*
        ) -> $result {
            // SAFETY: the server calls it with these arguments, in a frame of C. This frame owns nothing.
            unsafe {
                $crate::server::unguarded::guarded(|| {
                    // The lifetimes of the arguments are those of the call.
                    let body: fn($($kind),*) -> $crate::error::Result<$result> = $body;
                    let result = body($(<$kind as $crate::server::callback::Argument>::of($argument)),*);
                    $crate::error::OrRaise::or_raise(result)
                })
            }
        }
        callback
    }};
}

pub(crate) use callback;
