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
/// `of` is sound for each value that the server passes to a callback with an argument of the type `Raw`.
pub unsafe trait Argument {
    type Raw;

    /// # Safety
    /// The server passes the value to a callback, which runs as long as the result is used.
    unsafe fn of(raw: Self::Raw) -> Self;
}

// SAFETY: the server passes a valid node.
unsafe impl<T: Tagged> Argument for Node<'_, T> {
    type Raw = *mut T;

    unsafe fn of(raw: *mut T) -> Self {
        // SAFETY: the server passes a node of this type, which is valid during the call.
        unsafe { Node::from_raw(raw).unwrap_unchecked() }
    }
}

// SAFETY: the server passes a valid node or null.
unsafe impl<T: Tagged> Argument for Option<Node<'_, T>> {
    type Raw = *mut T;

    unsafe fn of(raw: *mut T) -> Self {
        // SAFETY: the node is of this type and valid during the call, or the pointer is null.
        unsafe { Node::from_raw(raw) }
    }
}

/// An argument that the callback does not use.
#[derive(Debug)]
pub struct Unused<T>(PhantomData<T>);

// SAFETY: the pointer is dropped.
unsafe impl<T> Argument for Unused<T> {
    type Raw = *mut T;

    unsafe fn of(_: *mut T) -> Self {
        Unused(PhantomData)
    }
}

/// A result that the callback returns through a pointer.
#[derive(Debug)]
pub struct Out<'a, T>(NonNull<T>, PhantomData<&'a mut T>);

impl<T> Out<'_, T> {
    pub fn set(self, value: T) {
        // SAFETY: the server passes a pointer to a variable of its own.
        unsafe { self.0.write(value) }
    }
}

// SAFETY: the server passes a valid pointer.
unsafe impl<T> Argument for Out<'_, T> {
    type Raw = *mut T;

    unsafe fn of(raw: *mut T) -> Self {
        // SAFETY: the server passes a pointer that is not null.
        Out(unsafe { NonNull::new_unchecked(raw) }, PhantomData)
    }
}

// SAFETY: the server passes a relation that it has open and locked during the call.
unsafe impl Argument for Relation<'_> {
    type Raw = pg_sys::Relation;

    unsafe fn of(raw: pg_sys::Relation) -> Self {
        // SAFETY: see above.
        unsafe { Relation::from_raw(raw) }
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

// SAFETY: the server passes a list of such nodes or null.
unsafe impl<T: Tagged> Argument for NodeList<'_, T> {
    type Raw = *mut pg_sys::List;

    unsafe fn of(raw: *mut pg_sys::List) -> Self {
        // SAFETY: the list is valid during the call, or the pointer is null.
        unsafe { NodeList::from_raw(raw) }
    }
}

values!(i32, u32, pg_sys::Oid);

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
