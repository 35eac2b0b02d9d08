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

/// An argument of a function in C.
///
/// # Safety
/// The raw value is valid for the function as long as this one.
pub unsafe trait Passed {
    type Raw;

    fn raw(self) -> Self::Raw;
}

/// The result of a function in C.
pub trait Returned {
    type Raw;

    /// # Safety
    /// A function that is listed with this result has returned the value.
    unsafe fn of(raw: Self::Raw) -> Self;
}

macro_rules! plain {
    ($($type:ty),*) => {
        $(
            // SAFETY: the value itself.
            unsafe impl Passed for $type {
                type Raw = $type;

                fn raw(self) -> $type {
                    self
                }
            }

            impl Returned for $type {
                type Raw = $type;

                unsafe fn of(raw: $type) -> $type {
                    raw
                }
            }
        )*
    };
}
plain!((), bool, i8, i16, i32, i64, u16, u32, u64, usize, *mut c_void, pg_sys::Oid, pg_sys::TransactionId);

// SAFETY: a string as long as it is borrowed.
unsafe impl Passed for &CStr {
    type Raw = *const c_char;

    fn raw(self) -> *const c_char {
        self.as_ptr()
    }
}

/// None is passed as null.
// SAFETY: such a string, or null.
unsafe impl Passed for Option<&CStr> {
    type Raw = *const c_char;

    fn raw(self) -> *const c_char {
        self.map_or(std::ptr::null(), CStr::as_ptr)
    }
}

// SAFETY: a struct as long as the handle.
unsafe impl<T> Passed for Handle<'_, T> {
    type Raw = *mut T;

    fn raw(self) -> *mut T {
        self.as_ptr()
    }
}

/// A struct that the function changes.
// SAFETY: a struct as long as it is borrowed.
unsafe impl<T> Passed for &mut T {
    type Raw = *mut T;

    fn raw(self) -> *mut T {
        self
    }
}

/// A struct that is valid as long as `'a`.
impl<'a, T> Returned for Handle<'a, T> {
    type Raw = *mut T;

    unsafe fn of(raw: *mut T) -> Handle<'a, T> {
        // SAFETY: the function returns such a struct.
        unsafe { Handle::from_raw(raw) }
    }
}

/// Such a struct, or null.
impl<'a, T> Returned for Option<Handle<'a, T>> {
    type Raw = *mut T;

    unsafe fn of(raw: *mut T) -> Option<Handle<'a, T>> {
        // SAFETY: the function returns such a struct, or null.
        unsafe { Handle::or_null(raw) }
    }
}

/// A character, such as those of the catalogs.
impl Returned for u8 {
    type Raw = c_char;

    unsafe fn of(raw: c_char) -> u8 {
        raw.cast_unsigned()
    }
}

/// A string, or null.
impl Returned for Option<CString> {
    type Raw = *mut c_char;

    unsafe fn of(raw: *mut c_char) -> Option<CString> {
        // SAFETY: the function returns a string or null.
        unsafe { copied(raw) }
    }
}

/// A string as text; empty for null.
impl Returned for String {
    type Raw = *mut c_char;

    unsafe fn of(raw: *mut c_char) -> String {
        // SAFETY: the function returns a string or null.
        unsafe { copied(raw) }.map_or_else(String::new, |string| from_server(&string))
    }
}

/// Makes safe functions of guarded functions of the server, which accept all values of the arguments' types.
macro_rules! calls {
    ($($(#[$doc:meta])* $vis:vis fn $name:ident$(<$life:lifetime>)?($($argument:ident $(: $type:ty)?),*) $(-> $result:ty)?
        = $function:ident($($given:tt),*);)*) => {
        $(
            $(#[$doc])*
            #[allow(unused_parens)] // An argument in parentheses is one token.
            $vis fn $name$(<$life>)?($($argument $(: $type)?),*) $(-> $result)? {
                // SAFETY: the note of the list says why the function accepts these values.
                unsafe {
                    $crate::server::call::Returned::of(
                        pgrx::pg_sys::$function($($crate::server::call::Passed::raw($given)),*)
                    )
                }
            }
        )*
    };
}

/// Makes functions that copy variables of this process, which only the server's thread changes.
macro_rules! variables {
    ($($(#[$doc:meta])* $vis:vis fn $name:ident() -> $type:ty = $variable:ident;)*) => {
        $(
            $(#[$doc])*
            #[inline]
            $vis fn $name() -> $type {
                // SAFETY: a variable of this process.
                unsafe { pgrx::pg_sys::$variable }
            }
        )*
    };
}

pub(crate) use {calls, variables};
