//! Names of encodings: from 17 on the server's functions are named differently from libpq's.

use std::ffi::{CStr, CString};

use crate::server::call::calls;

// SAFETY: table lookups, which accept every name and number.
#[cfg(any(feature = "pg15", feature = "pg16"))]
calls! {
    /// Returns the encoding of a name, or a negative number. Guarded.
    pub fn char_to_encoding(name: &CStr) -> i32 = pg_char_to_encoding(name);
    /// Returns the name of an encoding, empty for an invalid one. Guarded.
    pub fn encoding_to_char(encoding: i32) -> CString = pg_encoding_to_char(encoding);
}
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
calls! {
    /// Returns the encoding of a name, or a negative number. Guarded.
    pub fn char_to_encoding(name: &CStr) -> i32 = pg_char_to_encoding_private(name);
    /// Returns the name of an encoding, empty for an invalid one. Guarded.
    pub fn encoding_to_char(encoding: i32) -> CString = pg_encoding_to_char_private(encoding);
}
