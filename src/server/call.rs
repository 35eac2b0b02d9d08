//! Safe names for functions and variables of the server.
//!
//! A guarded function of the server is safe to call if it accepts all values of its arguments' types. [`calls`] makes safe
//! functions of such functions: each line of a list has a name and the types of Rust, and the call. Arguments are numbers, strings
//! and handles ([`Passed`]). A string that the server returns is copied ([`Returned`]). The note above a list says why it
//! is safe.

use std::ffi::{CStr, CString, c_char, c_void};

use pgrx::pg_sys;

use super::handle::Handle;
use super::server_text::{copied, from_server};

/// An argument of a function in C, whose type there is `Raw`.
///
/// # Safety
/// The raw value is valid for the function as long as this one.
pub unsafe trait Passed<Raw> {
    fn raw(self) -> Raw;
}

/// The result of a function in C, whose type there is `Raw`.
pub trait Returned<Raw> {
    /// # Safety
    /// A function that is listed with this result has returned the value.
    unsafe fn of(raw: Raw) -> Self;
}

/// Implements [`Returned`], by a function that makes the result of what the function in C returns.
macro_rules! returned {
    ($($(#[$doc:meta])* $(@[$($generic:tt)+])? $raw:ty => $type:ty = $make:expr;)*) => {
        $(
            $(#[$doc])*
            impl$(<$($generic)+>)? $crate::server::call::Returned<$raw> for $type {
                #[allow(unused_unsafe)] // Some functions are safe.
                unsafe fn of(raw: $raw) -> Self {
                    // SAFETY: the list has the function with this result.
                    unsafe { $make(raw) }
                }
            }
        )*
    };
}

/// Implements [`Passed`], by a function that makes the argument in C.
macro_rules! passed {
    ($($(#[$doc:meta])* $(@[$($generic:tt)+])? $type:ty => $raw:ty = $make:expr;)*) => {
        $(
            $(#[$doc])*
            // SAFETY: the note above the list.
            unsafe impl$(<$($generic)+>)? $crate::server::call::Passed<$raw> for $type {
                #[inline]
                fn raw(self) -> $raw {
                    let make: fn(Self) -> $raw = $make;
                    make(self)
                }
            }
        )*
    };
}

macro_rules! plain {
    ($($type:ty),*) => {
        $(
            // SAFETY: the value itself.
            passed! { $type => $type = std::convert::identity; }
            returned! { $type => $type = std::convert::identity; }
        )*
    };
}
plain!((), bool, i8, i16, i32, i64, u16, u32, u64, usize, f64, pg_sys::Oid, pg_sys::TransactionId);
plain!(pg_sys::VirtualTransactionId);

// SAFETY: addresses of structs and strings that are borrowed at least as long, and null.
passed! {
    /// Null, or a variable of the server, which a list names itself.
    @[T] *mut T => *mut T = std::convert::identity;
    @[T] *const T => *const T = std::convert::identity;
    /// A variable that the function sets.
    @[T] &mut T => *mut T = std::ptr::from_mut;
    /// A handle or null that the function sets.
    @[T] &mut Option<Handle<'_, T>> => *mut *mut T = |handle| std::ptr::from_mut(handle).cast();
    /// A variable that the function reads.
    @[T] &T => *const T = std::ptr::from_ref;
    &CStr => *const c_char = CStr::as_ptr;
    /// A string that the function only reads, whatever its declaration says.
    &CStr => *mut c_char = |string| string.as_ptr().cast_mut();
    /// None is passed as null.
    Option<&CStr> => *const c_char = |string| string.map_or(std::ptr::null(), CStr::as_ptr);
    @[T] Handle<'_, T> => *mut T = Handle::as_ptr;
    @[T] Option<Handle<'_, T>> => *mut T = |handle| handle.map_or(std::ptr::null_mut(), Handle::as_ptr);
}

returned! {
    /// Memory of any kind.
    *mut c_void => *mut c_void = std::convert::identity;
    /// A struct that is valid as long as `'a`.
    @['a, T] *mut T => Handle<'a, T> = Handle::from_raw;
    /// Such a struct, or null.
    @['a, T] *mut T => Option<Handle<'a, T>> = Handle::or_null;
    /// A character, such as those of the catalogs.
    c_char => u8 = c_char::cast_unsigned;
    /// A string, or null.
    *mut c_char => Option<CString> = copied;
    *const c_char => Option<CString> = copied;
    /// A string; empty for null.
    *mut c_char => CString = |raw| copied(raw).unwrap_or_default();
    *const c_char => CString = |raw| copied(raw).unwrap_or_default();
    /// A string as text; empty for null.
    *mut c_char => String = |raw| copied(raw).map_or_else(String::new, |string| from_server(&string));
}

/// Makes safe functions of guarded functions of the server, which accept all values of the arguments' types. A line that ends
/// with `unguarded` calls a function of [`unguarded`](super::unguarded) in a guard.
macro_rules! calls {
    (@ $function:ident($($given:tt),*)) => {
        pgrx::pg_sys::$function($($crate::server::call::Passed::raw($given)),*)
    };
    (@ $function:ident($($given:tt),*) unguarded) => {
        $crate::server::unguarded::guard(|| {
            $crate::server::unguarded::$function($($crate::server::call::Passed::raw($given)),*)
        })
    };
    ($($(#[$doc:meta])* $vis:vis fn $name:ident$(<$life:lifetime>)?($($argument:ident $(: $type:ty)?),*) $(-> $result:ty)?
        = $function:ident($($given:tt),*) $($unguarded:ident)?;)*) => {
        $(
            $(#[$doc])*
            #[allow(unused_parens)] // An argument in parentheses is one token.
            $vis fn $name$(<$life>)?($($argument $(: $type)?),*) $(-> $result)? {
                // SAFETY: the note of the list says why the function accepts these values. Arguments have no destructors.
                unsafe {
                    $crate::server::call::Returned::of($crate::server::call::calls!(@ $function($($given),*) $($unguarded)?))
                }
            }
        )*
    };
}

/// Makes functions that copy variables of this process, which only the server's thread and its signal handlers change.
macro_rules! variables {
    ($($(#[$doc:meta])* $vis:vis fn $name:ident() -> $type:ty = $variable:ident;)*) => {
        $(
            $(#[$doc])*
            #[inline]
            $vis fn $name() -> $type {
                // SAFETY: a variable of this process. Each copy reads it, as a signal handler may have set it.
                unsafe { (&raw const pgrx::pg_sys::$variable).read_volatile() }
            }
        )*
    };
}

pub(crate) use {calls, passed, returned, variables};
