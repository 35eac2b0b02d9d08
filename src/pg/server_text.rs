//! Strings of the server's as text, and text as strings of the server's.
//!
//! Rust's strings are UTF-8; names, messages and values of the server are in its encoding. Each of them passes here on its way
//! into an error or a report, and back. Nothing here returns an error, since errors are made of such text: a string that is
//! invalid is shown as well as can be, and a character that the server's encoding lacks is the server's own error.

use std::ffi::{CStr, CString, c_int};

use pgrx::pg_sys;

const UTF8: c_int = pg_sys::pg_enc::PG_UTF8 as c_int;

/// A string of the server's as text. Guarded.
pub fn from_server(string: &CStr) -> String {
    let len = c_int::try_from(string.to_bytes().len()).unwrap_or(0);
    // SAFETY: a guarded call that returns the string itself or a converted copy.
    let utf8 = unsafe { pg_sys::pg_server_to_any(string.as_ptr(), len, UTF8) };
    // SAFETY: what it returns is NUL-terminated.
    unsafe { CStr::from_ptr(utf8) }.to_string_lossy().into_owned()
}

/// Text as a string of the server's. Guarded; what the server's encoding lacks raises an error.
pub fn to_server(text: &str) -> CString {
    let text = CString::new(text).unwrap_or_default();
    let len = c_int::try_from(text.as_bytes().len()).unwrap_or(0);
    // SAFETY: as in `from_server`.
    unsafe { CStr::from_ptr(pg_sys::pg_any_to_server(text.as_ptr(), len, UTF8)) }.to_owned()
}
