//! An error that ended a process's rows, between being caught and being raised again.

use std::ffi::{CStr, c_char};

use pgrx::pg_sys;

use crate::pg::unguarded;

/// After an error was caught, before anything is waited for: whatever the error left locked would make others wait.
/// As AbortTransaction (xact.c) begins.
///
/// # Safety
/// A plain frame. The error is going to be raised again.
pub unsafe fn recover() {
    // SAFETY: raises nothing.
    unsafe {
        unguarded::LWLockReleaseAll();
        unguarded::ConditionVariableCancelSleep();
    }
}

/// Is an error about a row, so that an earlier row's comes before it? Not if somebody or something wants the load to
/// end.
///
/// # Safety
/// An error that was caught.
pub unsafe fn is_about_a_row(error: *const pg_sys::ErrorData) -> bool {
    // SAFETY: the caller vouches for it. The class of a SQLSTATE is in its first two characters, of six bits each.
    let class = unsafe { (*error).sqlerrcode } & 0xfff;
    let class_of = |a: u8, b: u8| i32::from(a - b'0') + (i32::from(b - b'0') << 6);
    // Operator intervention, insufficient resources, system error, internal error.
    ![class_of(b'5', b'7'), class_of(b'5', b'3'), class_of(b'5', b'8'), class_of(b'X', b'X')].contains(&class)
}

/// Take the line off an error's context that says that it comes from a parallel worker (HandleParallelMessage,
/// parallel.c): which process read the file is nobody's business.
///
/// # Safety
/// An error that was caught.
pub unsafe fn forget_worker(error: *mut pg_sys::ErrorData) {
    // SAFETY: the error's own strings, allocated and NUL-terminated; it is shortened in place.
    unsafe {
        let context = (*error).context;
        if context.is_null() {
            return;
        }
        let words = gettext(c"parallel worker").to_bytes();
        let bytes = CStr::from_ptr(context).to_bytes();
        let lines = bytes.strip_suffix(words);
        if let Some(rest) = lines.and_then(|rest| rest.strip_suffix(b"\n")) {
            *context.add(rest.len()) = 0;
        } else if lines.is_some_and(<[u8]>::is_empty) {
            (*error).context = std::ptr::null_mut();
        }
    }
}

/// A message of the server's in the language of its messages.
pub fn gettext(words: &CStr) -> &CStr {
    unsafe extern "C" {
        /// libintl.h, part of the C library. The server has set its own catalog as the default one.
        #[link_name = "gettext"]
        fn translated(words: *const c_char) -> *const c_char;
    }
    // SAFETY: a string, and one that lives as long as the process, or the same again.
    unsafe { CStr::from_ptr(translated(words.as_ptr())) }
}
