//! Restores the fields that errors lose in pgrx's guards.
//!
//! pgrx's guards raise an error again without its CONTEXT and without the names of schema, table, column and
//! constraint. An SQLSTATE that they do not know becomes XX000. The context callbacks run again, and their state may have
//! changed since. But when they run for the first time, the error is complete. So the outermost callback takes a copy
//! then, and the lost fields are restored where the error is caught. pgrx also replaces bytes of its texts that are no
//! UTF-8, in databases with other encodings.

use std::ffi::{CStr, c_char};
use std::ops::Deref;

use pgrx::{PgSqlErrorCode, pg_sys};

use super::attempt::attempt;
use super::handle::Handle;
use super::memory_context::MemoryContext;
use super::unguarded::{self, Opaque, guarded, in_context};

/// An error as CopyErrorData makes it: its strings are NUL-terminated, or null.
pub type ServerError = Handle<'static, pg_sys::ErrorData>;

/// Texts of an error; empty for null.
macro_rules! texts {
    ($($name:ident),*) => {
        impl ServerError {
            $(
                pub fn $name(&self) -> &[u8] {
                    // SAFETY: a string of an error.
                    unsafe { text(self.get().$name) }
                }
            )*
        }
    };
}
texts!(message, message_id, detail, hint, context, funcname);

impl ServerError {
    pub fn sqlstate(self) -> i32 {
        self.get().sqlerrcode
    }

    pub fn is_error(self) -> bool {
        self.get().elevel >= pgrx::PgLogLevel::ERROR as i32
    }

    /// Whether an error is this original one, which may have passed guards since. They also replace SQLSTATEs that pgrx
    /// does not know.
    pub(super) fn is_now(self, now: ServerError) -> bool {
        let (was, is) = (self.sqlstate(), now.sqlstate());
        (was == is || PgSqlErrorCode::from(was) as i32 == is) && may_become(self.message(), now.message())
    }
}

/// Copy of the latest error.
#[derive(Debug)]
pub struct Original {
    error: Option<ServerError>,
    /// Holds the whole copy, because FreeErrorData frees only a part of one.
    copy: pg_sys::MemoryContext,
    /// Length of the context from callbacks inside of this one, when the error was raised most recently.
    inside: usize,
    memory: pg_sys::MemoryContext,
}

/// The ones that are pushed, the innermost first. The server's list has no entry of a frame that an error has left.
fn pushed() -> impl Iterator<Item = *mut Original> {
    // SAFETY: the list has the callbacks that are pushed, and `remember` is pushed with an original.
    let mut at = unsafe { pg_sys::error_context_stack.as_ref() };
    std::iter::from_fn(move || {
        while let Some(entry) = at {
            // SAFETY: as above.
            at = unsafe { entry.previous.as_ref() };
            let ours: unsafe extern "C-unwind" fn(Opaque) = remember;
            if entry.callback.is_some_and(|callback| std::ptr::fn_addr_eq(callback, ours)) {
                return Some(entry.arg.cast());
            }
        }
        None
    })
}

impl Original {
    /// Creates it. Copies are allocated in the current memory context.
    pub fn new() -> Original {
        let memory = MemoryContext::current().as_ptr();
        Original { error: None, copy: std::ptr::null_mut(), inside: 0, memory }
    }

    /// Runs code, and copies its errors.
    ///
    /// # Safety
    /// A plain frame, as that of the code; nothing else uses the value meanwhile.
    pub unsafe fn watch<T>(this: *mut Original, code: impl FnOnce() -> T) -> T {
        // SAFETY: the frame is plain, and the value outlives the call.
        unsafe { in_context(remember, this.cast(), code) }
    }

    /// Restores the fields that an error has lost since it was raised, and drops the copy. Returns true for an error of
    /// a parallel worker. The line about the worker (HandleParallelMessage, parallel.c) is removed from its context,
    /// since users need not know which process read a file.
    ///
    /// # Safety
    /// An error that was caught while this was pushed. The restored fields live in the memory context of
    /// [`Original::new`].
    pub unsafe fn restore(this: *mut Original, error: *mut pg_sys::ErrorData) -> bool {
        // SAFETY: the error was caught, and so is valid; its new strings live as long.
        unsafe {
            let was = (*this).error.take();
            // The strings of the copy belong to the error now.
            (*this).copy = std::ptr::null_mut();
            let now = ServerError::from_raw(error);
            let Some(was) = was.filter(|was| was.is_now(now)) else { return false };
            let original = was.as_ptr();
            (*error).sqlerrcode = (*original).sqlerrcode;
            (*error).message = (*original).message;
            // DETAIL and HINT may have been added since.
            if may_become(was.detail(), now.detail()) {
                ((*error).detail, (*error).detail_log) = ((*original).detail, (*original).detail_log);
            }
            if may_become(was.hint(), now.hint()) {
                (*error).hint = (*original).hint;
            }
            (*error).schema_name = (*original).schema_name;
            (*error).table_name = (*original).table_name;
            (*error).column_name = (*original).column_name;
            (*error).datatype_name = (*original).datatype_name;
            (*error).constraint_name = (*original).constraint_name;
            (*error).internalquery = (*original).internalquery;
            (*error).internalpos = (*original).internalpos;
            // Joins the first context from inner callbacks and the latest context from outer callbacks.
            let inside = was.context();
            let of_worker = without_worker(inside);
            let inside = of_worker.unwrap_or(inside);
            let outside = now.context().get((*this).inside..).unwrap_or_default();
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

/// Returns a context without the line about a parallel worker; `None` if it has no such line.
pub fn without_worker(context: &[u8]) -> Option<&[u8]> {
    match context.strip_suffix(gettext(c"parallel worker").to_bytes())? {
        [] => Some(&[]),
        rest => rest.strip_suffix(b"\n"),
    }
}

/// Translates a message of the server.
pub fn gettext(words: &CStr) -> &CStr {
    unsafe extern "C" {
        /// libintl.h, part of the C library. The server has set its own catalog as the default one.
        #[link_name = "gettext"]
        fn translated(words: *const c_char) -> *const c_char;
    }
    // SAFETY: returns a string that lives as long as the process, or its argument.
    unsafe { CStr::from_ptr(translated(words.as_ptr())) }
}

/// Drops the copy of an error that was swallowed: an equal error may follow.
pub fn forget() {
    if let Some(original) = pushed().next() {
        // SAFETY: a pushed one is valid, and nothing else uses the copy.
        unsafe {
            (*original).error = None;
            let copy = std::mem::replace(&mut (*original).copy, std::ptr::null_mut());
            if !copy.is_null() {
                unguarded::MemoryContextDelete(copy);
            }
        }
    }
}

/// # Safety
/// A NUL-terminated string, or null.
pub unsafe fn text<'a>(string: *const c_char) -> &'a [u8] {
    // SAFETY: NUL-terminated, since it is not null.
    if string.is_null() { &[] } else { unsafe { CStr::from_ptr(string) }.to_bytes() }
}

/// Whether a text of an error may be another one after guards, which replace bytes that are not UTF-8.
fn may_become(original: &[u8], now: &[u8]) -> bool {
    original == now || String::from_utf8_lossy(original).as_bytes() == now
}

/// An error of a guarded step, caught by a plain frame. Memory contexts own its parts.
#[derive(Debug)]
pub struct Caught {
    error: ServerError,
    original: Original,
}

/// Runs a guarded step, and catches its error.
///
/// # Safety
/// A plain frame.
pub unsafe fn catch<T: Copy>(step: impl FnOnce() -> T) -> Result<T, Caught> {
    // SAFETY: the caller's frame is plain. `watch` pops the original before it moves into the result; the step runs in a guard,
    // so neither a panic nor a jump passes this frame.
    unsafe {
        let mut original = Original::new();
        let mut done = None;
        let error = Original::watch(&raw mut original, || attempt(|| done = Some(guarded(step))));
        done.ok_or_else(|| Caught { error: ServerError::from_raw(error), original })
    }
}

/// Runs a guarded step, whose error keeps all fields.
///
/// # Safety
/// A plain frame, with no [`Original`] around it.
pub unsafe fn keeping_fields<T: Copy>(step: impl FnOnce() -> T) -> T {
    // SAFETY: the caller's frame is plain.
    unsafe {
        catch(step).unwrap_or_else(|mut caught| {
            caught.restore();
            caught.raise()
        })
    }
}

impl Deref for Caught {
    type Target = ServerError;

    fn deref(&self) -> &ServerError {
        &self.error
    }
}

impl Caught {
    /// Replaces message and detail. Guarded.
    pub fn reword(&mut self, message: &CStr, detail: Option<&CStr>) {
        // SAFETY: guarded calls; the error is valid, and a pushed original, too.
        unsafe {
            let words = |memory| {
                let copy = |text: &CStr| pg_sys::MemoryContextStrdup(memory, text.as_ptr());
                (copy(message), detail.map_or(std::ptr::null_mut(), copy))
            };
            // The originals around the step restore the fields of the error with its new words.
            for outer in pushed() {
                let outer = &mut *outer;
                if let Some(error) = outer.error.filter(|error| error.is_now(self.error)) {
                    ((*error.as_ptr()).message, (*error.as_ptr()).detail) = words(outer.memory);
                }
            }
            let own = self.error.as_ptr();
            ((*own).message, (*own).detail) = words(pg_sys::CurrentMemoryContext);
        }
    }

    /// Restores the fields: see [`Original::restore`]. Before the error is reworded, and not if an [`Original`] around
    /// the step is to do so.
    ///
    /// # Safety
    /// A plain frame.
    pub unsafe fn restore(&mut self) -> bool {
        // SAFETY: the error was caught while the original was pushed.
        unsafe { Original::restore(&raw mut self.original, self.error.as_ptr()) }
    }

    /// Raises the error again.
    ///
    /// # Safety
    /// A plain frame.
    pub unsafe fn raise(self) -> ! {
        // SAFETY: the error is valid, and nothing here has a destructor.
        unsafe { unguarded::ReThrowError(self.error.as_ptr()) }
    }
}

/// Returns a copy of the message that is being built, and the memory context that holds all of it.
///
/// # Safety
/// A plain frame, in an error context callback; `parent` is not the memory context of messages.
pub(super) unsafe fn copy_of_message(parent: pg_sys::MemoryContext) -> (ServerError, pg_sys::MemoryContext) {
    // SAFETY: the current message is on top of the server's error stack; the copy is not allocated in the memory
    // context of messages.
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
        let copy = ServerError::from_raw(unguarded::CopyErrorData());
        pg_sys::CurrentMemoryContext = making;
        (copy, memory)
    }
}

/// # Safety
/// Called by the server while it builds a message, with the pointer that was pushed.
unsafe extern "C-unwind" fn remember(original: Opaque) {
    // SAFETY: the pushed struct outlives the push, and so does its memory context.
    unsafe {
        let original = original.cast::<Original>();
        let (copy, memory) = copy_of_message((*original).memory);
        if copy.is_error() {
            (*original).inside = copy.context().len();
            // A guard raises an error again with the format "%s", as RAISE of PL/pgSQL raises a new one. Any other format is that of
            // a new error, whatever its words are.
            let is_known = (*original).error.is_some_and(|first| {
                copy.message_id() == b"%s"
                    && first.is_now(copy)
                    && may_become(first.detail(), copy.detail())
                    && may_become(first.hint(), copy.hint())
            });
            if !is_known {
                (*original).error = Some(copy);
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
