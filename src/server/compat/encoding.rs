//! Names of encodings: from 17 on the server's functions are named differently from libpq's.

use pgrx::pg_sys;

/// `pg_char_to_encoding`: returns the encoding of a name, or a negative number. Guarded.
///
/// # Safety
/// A NUL-terminated string.
pub unsafe fn char_to_encoding(name: *const std::ffi::c_char) -> i32 {
    // SAFETY: passed on.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        return pg_sys::pg_char_to_encoding(name);
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        return pg_sys::pg_char_to_encoding_private(name);
    }
}

/// `pg_encoding_to_char`: returns the name of an encoding, empty for an invalid one. Guarded.
pub fn encoding_to_char(encoding: i32) -> *const std::ffi::c_char {
    // SAFETY: a table lookup that accepts every number.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        return pg_sys::pg_encoding_to_char(encoding);
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        return pg_sys::pg_encoding_to_char_private(encoding);
    }
}
