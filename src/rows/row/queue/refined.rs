//! Values of columns whose texts are refined before they are converted.
//!
//! [`Rows::decode`](super::super::Rows::decode) refines the texts of such columns. Rows are decoded together with others
//! only if no refined column is wanted. So all code that reads rows (scans, aggregates, loads, checks) gets refined
//! values.
//!
//! The tricky point is the text in messages: it is the file's text, and not the refined one. The queue keeps both.

use std::ffi::{CStr, c_char};

use pg_bulk_text::refine::Form;
use pg_bulk_text::template::Misfit;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::super::{RowArrays, RowValues};
use super::What;
use crate::error::Error;
use crate::rows::column::Column;
use crate::server::attempt::quiet_complaint;
use crate::server::lookup::{base_type, type_name};
use crate::server::server_text::from_server;
use crate::server::unguarded::guarded;

impl RowValues {
    /// Convert the text of a column, which starts at `start` of the strings, and which may be refined.
    pub fn convert_refined(&mut self, i: usize, column: &Column, start: usize, arrays: RowArrays<'_>) {
        let refinement = column.refinement.as_deref();
        let text = self.strings.get(start..).unwrap_or_default();
        if refinement.is_some_and(|refinement| refinement.is_null(text)) {
            self.strings.truncate(start);
            return self.set_null(i, column, arrays);
        }
        let Some(form) = refinement.map(|refinement| &refinement.form).filter(|form| **form != Form::Own) else {
            return self.convert(i, column, None, start, arrays);
        };
        self.unescaped.clear();
        let is_made = form.write(text, &mut self.unescaped).is_ok();
        if is_made
            && let Some(datum) = column.decoder.and_then(|decoder| decoder.decode(&self.unescaped, &mut self.arena))
        {
            self.strings.truncate(start);
            arrays.set(column.attribute, Some(pg_sys::Datum::from(datum as usize)));
            return;
        }
        self.strings.push(0);
        if !is_made {
            return self.push(i, What::Refused(start));
        }
        let input = self.strings.len();
        self.strings.extend_from_slice(&self.unescaped);
        self.strings.push(0);
        self.push(i, What::Made { input, shown: start });
    }
}

/// The error for a text that does not have its column's format, with the message of the type's input function. Guarded.
fn refusal(column: &Column, shown: &CStr) -> Error {
    let form = column.refinement.as_ref().map_or(&Form::Own, |refinement| &refinement.form);
    let misfit = form.write(shown.to_bytes(), &mut Vec::new());
    let (name, shown) = (type_name(base_type(column.type_oid)), from_server(shown));
    let invalid = format!("invalid input syntax for type {name}: \"{shown}\"");
    match form {
        Form::Time(_) if misfit == Err(Misfit::Range) => {
            let message = format!("date/time field value out of range: \"{shown}\"");
            Error::new(Code::ERRCODE_DATETIME_FIELD_OVERFLOW, message)
        }
        Form::Time(_) => Error::new(Code::ERRCODE_INVALID_DATETIME_FORMAT, invalid)
            .detail("The value does not match the column's date_format."),
        _ => Error::new(Code::ERRCODE_INVALID_TEXT_REPRESENTATION, invalid)
            .detail("The value does not match the column's decimal and thousands separators."),
    }
}

/// Raise the error for a text that does not have its column's format. Never returns.
///
/// # Safety
/// A plain frame; a column of a type, and a string.
pub(super) unsafe fn refuse(column: *const Column, shown: *const c_char) -> pg_sys::Datum {
    // SAFETY: the same frame and arguments.
    unsafe { guarded(|| refusal(&*column, CStr::from_ptr(shown)).raise()) }
}

/// Return the error for a text that does not have its column's format, in the current memory context. Guarded.
///
/// # Safety
/// As [`refuse`].
pub unsafe fn complaint_of(column: *const Column, shown: *const c_char) -> *mut pg_sys::ErrorData {
    // SAFETY: the function reads both and raises.
    unsafe {
        quiet_complaint(|| {
            refuse(column, shown);
        })
    }
}
