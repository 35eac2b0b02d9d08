//! COPY's CONTEXT lines.
//!
//! [`copy_context`] is pg_bulk's CopyFromErrorCallback (copyfrom.c): the server calls it for every message raised while
//! it is pushed. pgrx drops the CONTEXT of an error that passes through one of its guards. It then raises the error
//! again, which calls the callbacks again. So a plain frame outside any guard must push the callback, which must still
//! find the position of the scan. COPY's own line is followed by a line that names the file.

use std::ffi::{CStr, CString};
use std::panic::AssertUnwindSafe;

use super::row::Rows;
use crate::error::is_data_exception;
use crate::server::server_text::clipped;
use crate::server::unguarded::{self, Opaque};
use crate::server::worker_errors;

/// Maximum number of data bytes in a message (`MAX_COPY_DATA_DISPLAY`).
const MAX_DISPLAY: usize = 100;

/// Returns the first bytes of some data, cut at a character, with dots if there is more (`limit_printout_length`).
pub fn displayed(data: &[u8]) -> CString {
    // A line may be long, but a character is not: read only the displayed bytes and one more character.
    let data = data.get(..MAX_DISPLAY + 8).unwrap_or(data);
    let data = data.split(|&b| b == 0).next().unwrap_or_default();
    let mut shown = data.to_vec();
    if data.len() > MAX_DISPLAY {
        shown.truncate(clipped(data, MAX_DISPLAY));
        shown.extend(b"...");
    }
    CString::new(shown).unwrap_or_default()
}

/// The error context callback; `rows` is a [`Rows`].
///
/// # Safety
/// Called by the server while it builds a message, with the pointer that was pushed.
pub unsafe extern "C-unwind" fn copy_context(rows: Opaque) {
    // SAFETY: pushed with a pointer to Rows that outlives the push.
    let rows = unsafe { &*rows.cast::<Rows>() };
    if rows.context.is_quiet {
        return;
    }
    // SAFETY: nothing here has a destructor yet.
    if unsafe { worker_errors::add_context() } {
        return;
    }
    // Code that could panic runs first and inside catch_unwind; only plain data leave it.
    let lines = std::panic::catch_unwind(AssertUnwindSafe(|| describe(rows)));
    let Ok((relation, line, what, file, hint)) = lines else { return };
    let line = std::ffi::c_ulonglong::from(line);
    // SAFETY: within an error context callback; formats and arguments agree, and the strings are copied.
    unsafe {
        unguarded::set_errcontext_domain(std::ptr::null());
        match &what {
            What::Column(name, Some(value)) => unguarded::errcontext_msg(
                c"COPY %s, line %llu, column %s: \"%s\"".as_ptr(),
                relation.as_ptr(),
                line,
                name.as_ptr(),
                value.as_ptr(),
            ),
            What::Column(name, None) => unguarded::errcontext_msg(
                c"COPY %s, line %llu, column %s: null input".as_ptr(),
                relation.as_ptr(),
                line,
                name.as_ptr(),
            ),
            What::Line(Some(text)) => unguarded::errcontext_msg(
                c"COPY %s, line %llu: \"%s\"".as_ptr(),
                relation.as_ptr(),
                line,
                text.as_ptr(),
            ),
            What::Field(name) => unguarded::errcontext_msg(
                c"COPY %s, line %llu, column %s".as_ptr(),
                relation.as_ptr(),
                line,
                name.as_ptr(),
            ),
            What::Nothing => 0,
            What::Row => unguarded::errcontext_msg(c"COPY %s, row %llu".as_ptr(), relation.as_ptr(), line),
            What::Relation => unguarded::errcontext_msg(c"COPY %s".as_ptr(), relation.as_ptr()),
            What::Line(None) => unguarded::errcontext_msg(c"COPY %s, line %llu".as_ptr(), relation.as_ptr(), line),
        };
        // A COPY statement names no file.
        if !file.is_empty() {
            unguarded::errcontext_msg(c"%s".as_ptr(), file.as_ptr());
            if !hint.is_empty() && is_data_exception(unguarded::geterrcode()) {
                unguarded::errhint(c"%s".as_ptr(), hint.as_ptr());
            }
        }
    }
}

enum What {
    Column(CString, Option<CString>),
    /// A field whose values are not displayed.
    Field(CString),
    Line(Option<CString>),
    /// A row of a query, which has no line in a file.
    Row,
    Relation,
    /// COPY adds no context here.
    Nothing,
}

/// Returns the CONTEXT, and a HINT if the file is of another kind.
fn describe(rows: &Rows) -> (CString, u64, What, CString, CString) {
    let attention = &rows.context.attention;
    let is_binary = rows.reader().dialect().is_binary();
    let what = if rows.context.elsewhere.is_so() {
        What::Relation
    } else if rows.context.is_query {
        What::Row
    } else if rows.context.is_discreet && !rows.context.is_converting {
        What::Line(None)
    } else if let Some(name) = attention.column().map(CStr::to_owned) {
        let value = attention.value().map(|value| displayed(value.to_bytes()));
        if is_binary { What::Field(name) } else { What::Column(name, value) }
    } else {
        What::Line(rows.line().map(displayed))
    };
    // No line has been read yet.
    let (line, what) = match (rows.reader().line_number(), what) {
        // COPY reads the header of a binary file before it pushes its context callback.
        (0, What::Line(_)) if is_binary => (0, What::Nothing),
        (0, What::Line(_)) => (1, What::Line(None)),
        found => found,
    };
    let hint = rows.stream().kind().map(|kind| format!("The file begins like {}. {}", kind.name, kind.advice));
    let hint = CString::new(hint.unwrap_or_default()).unwrap_or_default();
    (rows.context.relation_name.clone(), line, what, rows.context.described.clone(), hint)
}
