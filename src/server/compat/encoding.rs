//! Names of encodings: from 17 on the server's functions are named differently from libpq's.

use pgrx::pg_sys;

/// `pg_char_to_encoding`: returns the encoding of a name, or a negative number. Guarded.
pub fn char_to_encoding(name: &std::ffi::CStr) -> i32 {
    // SAFETY: a guarded call with a string.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        return pg_sys::pg_char_to_encoding(name.as_ptr());
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        return pg_sys::pg_char_to_encoding_private(name.as_ptr());
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
