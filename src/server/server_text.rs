//! Converts strings between the server's encoding and Rust's UTF-8.
//!
//! Names, messages and values of the server are in its encoding, and are converted here on their way into an error or a
//! report, and back. No function returns an error, since errors are made of such text. Invalid bytes in a string are
//! replaced. A character that the server's encoding lacks raises the server's own error.

use std::ffi::{CStr, CString, c_char, c_int};

use pgrx::pg_sys;

use super::unguarded as c;

const UTF8: c_int = pg_sys::pg_enc::PG_UTF8 as c_int;

/// Convert a string in the server's encoding to text. Guarded.
pub fn from_server(string: &CStr) -> String {
    let len = c_int::try_from(string.to_bytes().len()).unwrap_or(0);
    // SAFETY: a guarded call that returns the string itself or a converted copy.
    let utf8 = unsafe { pg_sys::pg_server_to_any(string.as_ptr(), len, UTF8) };
    // SAFETY: the result is NUL-terminated.
    unsafe { CStr::from_ptr(utf8) }.to_string_lossy().into_owned()
}

/// Convert text to a string in the server's encoding. Guarded; a character that the encoding lacks raises an error.
pub fn to_server(text: &str) -> CString {
    let text = CString::new(text).unwrap_or_default();
    let len = c_int::try_from(text.as_bytes().len()).unwrap_or(0);
    // SAFETY: as in `from_server`.
    unsafe { CStr::from_ptr(pg_sys::pg_any_to_server(text.as_ptr(), len, UTF8)) }.to_owned()
}

/// A copy of a string of the server; None for null.
///
/// # Safety
/// The string is NUL-terminated, or null.
pub unsafe fn copied(string: *const c_char) -> Option<CString> {
    // SAFETY: the string is NUL-terminated if it is not null.
    (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) }.to_owned())
}

/// Whether a string is valid in the server's encoding.
pub fn is_valid_in_server_encoding(value: &[u8]) -> bool {
    let len = c_int::try_from(value.len()).unwrap_or(c_int::MAX);
    // SAFETY: the functions only read the bytes, and raise nothing.
    unsafe { c::pg_encoding_verifymbstr(c::GetDatabaseEncoding(), value.as_ptr().cast(), len) == len }
}
