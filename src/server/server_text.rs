//! Converts strings between the server's encoding and Rust's UTF-8.
//!
//! Names, messages and values of the server are in its encoding, and are converted here on their way into an error or a
//! report, and back. No function returns an error, since errors are made of such text. Invalid bytes in a string are
//! replaced. A character that the server's encoding lacks raises the server's own error.

use std::ffi::{CStr, CString, c_char, c_int};

use pgrx::pg_sys;

use super::unguarded as c;

const UTF8: c_int = pg_sys::pg_enc::PG_UTF8 as c_int;
const SQL_ASCII: c_int = pg_sys::pg_enc::PG_SQL_ASCII as c_int;

/// Convert a string in the server's encoding to text. Guarded.
pub fn from_server(string: &CStr) -> String {
    // The names of such a database may have any bytes, for which the conversion would raise an error.
    if server_encoding() == SQL_ASCII {
        return string.to_string_lossy().into_owned();
    }
    let len = c_int::try_from(string.to_bytes().len()).unwrap_or(0);
    // SAFETY: a guarded call that returns the string itself or a converted copy.
    unsafe { CStr::from_ptr(pg_sys::pg_server_to_any(string.as_ptr(), len, UTF8)) }.to_string_lossy().into_owned()
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

/// The server's encoding. Raises nothing.
pub fn server_encoding() -> c_int {
    // SAFETY: the function reads a variable of this process.
    unsafe { c::GetDatabaseEncoding() }
}

/// Returns the length of the longest prefix that is valid in an encoding. Raises nothing.
pub fn valid_up_to(encoding: c_int, bytes: &[u8]) -> usize {
    let len = c_int::try_from(bytes.len()).unwrap_or(c_int::MAX);
    // SAFETY: the function only reads the bytes.
    usize::try_from(unsafe { c::pg_encoding_verifymbstr(encoding, bytes.as_ptr().cast(), len) }).unwrap_or(0)
}

/// Whether a string is valid in the server's encoding.
pub fn is_valid_in_server_encoding(value: &[u8]) -> bool {
    valid_up_to(server_encoding(), value) == value.len()
}

/// Returns the length of a string, cut to at most `most` bytes of whole characters. Raises nothing.
pub fn clipped(string: &[u8], most: usize) -> usize {
    let limit = |n: usize| c_int::try_from(n).unwrap_or(c_int::MAX);
    // SAFETY: the function only reads the bytes.
    let kept = unsafe { c::pg_mbcliplen(string.as_ptr().cast(), limit(string.len()), limit(most)) };
    usize::try_from(kept).unwrap_or(0)
}
