//! The first rejects of a load, in the DETAIL of the error that ends it.

use std::ffi::CStr;

use pgrx::pg_sys;

use super::{Reject, Spool};
use crate::error::{OrRaise, Result};
use crate::rows::context::displayed;
use crate::server::attempt::ignoring_errors;

/// Most rejects in a DETAIL.
const SHOWN: usize = 3;

/// A reject's position, in the order of files and lines.
fn place(reject: &Reject) -> (&Option<Vec<u8>>, u64) {
    (&reject.path, reject.line)
}

/// Adds the first rejects of a spool, in the order of the file, to an error's DETAIL.
///
/// # Safety
/// A plain frame, and an error that was caught.
pub unsafe fn add_first(spool: Option<&Spool>, error: *mut pg_sys::ErrorData) {
    // SAFETY: the frame is plain, and the error is valid. An error while adding them must not replace the
    // original one.
    unsafe {
        let Some(spool) = spool.filter(|spool| spool.count() > 0) else { return };
        ignoring_errors(|| {
            let own = (*error).detail.as_ref().map(|detail| CStr::from_ptr(detail));
            let detail = detail(spool, own).or_raise();
            (*error).detail = pg_sys::pstrdup(detail.as_ptr().cast());
        });
    }
}

/// The detail with the first rejects, as a string. Guarded.
fn detail(spool: &Spool, own: Option<&CStr>) -> Result<Vec<u8>> {
    let mut first: Vec<Reject> = Vec::new();
    spool.for_each(|reject| {
        if first.len() < SHOWN || first.last().is_some_and(|last| place(&reject) < place(last)) {
            let at = first.partition_point(|other| place(other) < place(&reject));
            first.insert(at, reject);
            first.truncate(SHOWN);
        }
        Ok(())
    })?;
    let mut text = Vec::new();
    if let Some(own) = own {
        text.extend(own.to_bytes());
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
    Ok(text)
}
