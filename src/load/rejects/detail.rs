//! The first rejects of a load, in the DETAIL of the error that ends it.

use std::ffi::CStr;

use pgrx::{pg_guard, pg_sys};

use super::{Reject, Spool};
use crate::error::OrRaise;
use crate::rows::context::displayed;
use crate::server::attempt::attempt;
use crate::server::unguarded::{self, Opaque};

/// Most rejects in a DETAIL.
const SHOWN: usize = 3;

struct DetailTask {
    spool: *mut Spool,
    error: *mut pg_sys::ErrorData,
}

/// A reject's position, in the order of files and lines.
fn place(reject: &Reject) -> (&Option<Vec<u8>>, u64) {
    (&reject.path, reject.line)
}

/// Adds the first rejects of a spool, in the order of the file, to an error's DETAIL.
///
/// # Safety
/// A plain frame; a spool or null, and an error that was caught.
pub unsafe fn add_first(spool: *mut Spool, error: *mut pg_sys::ErrorData) {
    // SAFETY: this function's contract covers both arguments.
    unsafe {
        if spool.is_null() || (*spool).count == 0 {
            return;
        }
        let mut task = DetailTask { spool, error };
        // An error while adding them must not replace the original one.
        let other = attempt(|| add((&raw mut task).cast()));
        if !other.is_null() {
            unguarded::FreeErrorData(other);
        }
    }
}

/// # Safety
/// A valid task.
#[pg_guard]
unsafe extern "C-unwind" fn add(task: Opaque) {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        let DetailTask { spool, error } = task.cast::<DetailTask>().read();
        let mut first: Vec<Reject> = Vec::new();
        (*spool)
            .for_each(|reject| {
                if first.len() < SHOWN || first.last().is_some_and(|last| place(&reject) < place(last)) {
                    let at = first.partition_point(|other| place(other) < place(&reject));
                    first.insert(at, reject);
                    first.truncate(SHOWN);
                }
                Ok(())
            })
            .or_raise();
        let mut text = Vec::new();
        if !(*error).detail.is_null() {
            text.extend(CStr::from_ptr((*error).detail).to_bytes());
            text.push(b'\n');
        }
        text.extend(b"The first rejected rows:");
        for Reject { path, line, complaint, .. } in &first {
            text.push(b'\n');
            if let Some(path) = path {
                text.extend([b"file \"", &**path, b"\", "].concat());
            }
            text.extend(format!("line {line}").bytes());
            if let Some(column) = &complaint.column {
                text.extend(b", column ");
                text.extend(column);
            }
            text.extend(b": ");
            text.extend(displayed(&complaint.message).to_bytes());
        }
        text.push(0);
        (*error).detail = pg_sys::pstrdup(text.as_ptr().cast());
    }
}
