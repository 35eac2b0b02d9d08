//! Errors as they were when they were raised.
//!
//! On its way through one of pgrx's guards an error is raised anew, without its CONTEXT and without the names of the
//! schema, table, column and constraint it is about; the context callbacks are asked again, and may have moved on since.
//! The callbacks are asked for the first time, though, when the error is whole. So a callback that is pushed outside of
//! all others takes a copy of it then, and what was lost on the way is put back where the error is caught.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use pgrx::pg_sys;

use super::unguarded::{self, Opaque};

/// What is remembered of the last error.
#[derive(Debug)]
pub struct Original {
    /// Null if there was none.
    error: *mut pg_sys::ErrorData,
    /// All of the copy is in here: FreeErrorData leaves something of it.
    copy: pg_sys::MemoryContext,
    /// How much of its context came from callbacks inside of this one, when it was last raised.
    inside: usize,
    memory: pg_sys::MemoryContext,
    outer: *mut Original,
}

/// The innermost one that is pushed. Whoever leaves it there by an error puts it back first.
static INNERMOST: AtomicPtr<Original> = AtomicPtr::new(std::ptr::null_mut());

impl Original {
    /// Copies are made in the current memory context.
    pub fn new() -> Original {
        // SAFETY: reads a variable of this backend.
        let memory = unsafe { pg_sys::CurrentMemoryContext };
        Original {
            error: std::ptr::null_mut(),
            copy: std::ptr::null_mut(),
            inside: 0,
            memory,
            outer: std::ptr::null_mut(),
        }
    }

    /// Remember errors from now on.
    ///
    /// # Safety
    /// A plain frame; both outlive the push.
    pub unsafe fn push(this: *mut Original, callback: *mut pg_sys::ErrorContextCallback) {
        // SAFETY: this function's contract covers both arguments.
        unsafe {
            (*this).outer = INNERMOST.swap(this, Relaxed);
            (*callback).previous = pg_sys::error_context_stack;
            (*callback).callback = Some(remember);
            (*callback).arg = this.cast();
            pg_sys::error_context_stack = callback;
        }
    }

    /// Do not any more.
    ///
    /// # Safety
    /// What was pushed last.
    pub unsafe fn pop(this: *mut Original, callback: *mut pg_sys::ErrorContextCallback) {
        // SAFETY: this function's contract covers both arguments.
        unsafe {
            pg_sys::error_context_stack = (*callback).previous;
            INNERMOST.store((*this).outer, Relaxed);
        }
    }

    /// Put back what an error lost since it was raised, and forget it. Is it an error of a parallel worker, raised here?
    /// Its context loses the line that says so (HandleParallelMessage, parallel.c): which process read a file is nobody's
    /// business.
    ///
    /// # Safety
    /// An error that was caught while this was pushed; in memory that lives as long as what is put back is needed.
    pub unsafe fn restore(this: *mut Original, error: *mut pg_sys::ErrorData) -> bool {
        // SAFETY: this function's contract covers the error; strings of errors are NUL-terminated or null.
        unsafe {
            let original = std::mem::replace(&mut (*this).error, std::ptr::null_mut());
            // From now on it belongs to the error.
            (*this).copy = std::ptr::null_mut();
            if original.is_null() || !is_same(original, error) {
                return false;
            }
            (*error).schema_name = (*original).schema_name;
            (*error).table_name = (*original).table_name;
            (*error).column_name = (*original).column_name;
            (*error).datatype_name = (*original).datatype_name;
            (*error).constraint_name = (*original).constraint_name;
            (*error).internalquery = (*original).internalquery;
            (*error).internalpos = (*original).internalpos;
            // What callbacks outside of this one said comes after what those inside said when it was new.
            let inside = text((*original).context);
            let of_worker = without_worker(inside);
            let inside = of_worker.unwrap_or(inside);
            let outside = text((*error).context).get((*this).inside..).unwrap_or_default();
            let outside = if inside.is_empty() { outside.strip_prefix(b"\n").unwrap_or(outside) } else { outside };
            let separator: &[u8] = match (inside, outside) {
                ([], _) | (_, [] | [b'\n', ..]) => b"",
                _ => b"\n",
            };
            let len = inside.len() + separator.len() + outside.len();
            if len == 0 {
                (*error).context = std::ptr::null_mut();
                return of_worker.is_some();
            }
            let joined = unguarded::MemoryContextAlloc((*this).memory, len + 1).cast::<u8>();
            let mut at = joined;
            for part in [inside, separator, outside] {
                std::ptr::copy_nonoverlapping(part.as_ptr(), at, part.len());
                at = at.add(part.len());
            }
            *at = 0;
            (*error).context = joined.cast();
            of_worker.is_some()
        }
    }
}

/// A context without the line that says that an error comes from a parallel worker; `None` if it does not say so.
pub fn without_worker(context: &[u8]) -> Option<&[u8]> {
    match context.strip_suffix(gettext(c"parallel worker").to_bytes())? {
        [] => Some(&[]),
        rest => rest.strip_suffix(b"\n"),
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

/// An error was swallowed; the next one is another, even if it says the same.
pub fn forget() {
    let original = INNERMOST.load(Relaxed);
    if !original.is_null() {
        // SAFETY: what is pushed is valid, and nobody else has the copy.
        unsafe {
            (*original).error = std::ptr::null_mut();
            let copy = std::mem::replace(&mut (*original).copy, std::ptr::null_mut());
            if !copy.is_null() {
                unguarded::MemoryContextDelete(copy);
            }
        }
    }
}

/// # Safety
/// A NUL-terminated string, or null.
pub(super) unsafe fn text<'a>(string: *const c_char) -> &'a [u8] {
    // SAFETY: this function's contract covers the argument.
    if string.is_null() { &[] } else { unsafe { CStr::from_ptr(string) }.to_bytes() }
}

/// # Safety
/// Two errors.
pub(super) unsafe fn is_same(a: *const pg_sys::ErrorData, b: *const pg_sys::ErrorData) -> bool {
    // SAFETY: this function's contract covers them.
    unsafe { (*a).sqlerrcode == (*b).sqlerrcode && text((*a).message) == text((*b).message) }
}

/// A copy of the message that is being made, and the memory that all of it is in.
///
/// # Safety
/// A plain frame, in an error context callback; `parent` is not the memory that messages are made in.
pub(super) unsafe fn copy_of_message(parent: pg_sys::MemoryContext) -> (*mut pg_sys::ErrorData, pg_sys::MemoryContext) {
    // SAFETY: the message that is being made is the newest on the server's stack of errors; copies are not made in the
    // context that messages are made in.
    unsafe {
        let making = pg_sys::CurrentMemoryContext;
        let memory = unguarded::AllocSetContextCreateInternal(
            parent,
            c"pg_bulk error".as_ptr(),
            pg_sys::ALLOCSET_SMALL_MINSIZE as usize,
            pg_sys::ALLOCSET_SMALL_INITSIZE as usize,
            pg_sys::ALLOCSET_SMALL_MAXSIZE as usize,
        );
        pg_sys::CurrentMemoryContext = memory;
        let copy = unguarded::CopyErrorData();
        pg_sys::CurrentMemoryContext = making;
        (copy, memory)
    }
}

/// # Safety
/// Called by the server while it makes a message, with the pointer it was pushed with.
unsafe extern "C-unwind" fn remember(original: Opaque) {
    // SAFETY: what was pushed outlives the push, and its memory.
    unsafe {
        let original = original.cast::<Original>();
        let (copy, memory) = copy_of_message((*original).memory);
        if (*copy).elevel >= pgrx::PgLogLevel::ERROR as i32 {
            (*original).inside = text((*copy).context).len();
            if (*original).error.is_null() || !is_same((*original).error, copy) {
                (*original).error = copy;
                let old = std::mem::replace(&mut (*original).copy, memory);
                if !old.is_null() {
                    unguarded::MemoryContextDelete(old);
                }
                return;
            }
        }
        unguarded::MemoryContextDelete(memory);
    }
}
