//! Values of columns whose texts are refined before they are converted.
//!
//! If a column is refined, [`Rows::decode`] calls the function here, which decodes field by field. Rows are decoded
//! together with others only if no refined column is wanted. So all code that reads rows (scans, aggregates, loads,
//! checks) gets refined values.
//!
//! The tricky point is the text in messages: it is the file's text, and not the refined one. The queue keeps both.

use std::ffi::{CStr, c_char};

use pg_bulk_text::reader::Value;
use pg_bulk_text::refine::Form;
use pg_bulk_text::template::Misfit;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::super::{RowArrays, RowValues, Rows};
use super::{Queued, What};
use crate::error::Error;
use crate::input::encoding::{EncodingErrors, mend_in_server_encoding};
use crate::rows::column::Column;
use crate::server::attempt::complaint;
use crate::server::server_text::from_server;
use crate::server::unguarded::guarded;

impl Rows {
    /// Decode a row in which a column is refined or invalid bytes are replaced.
    #[inline(never)]
    pub fn decode_refined(&mut self, wanted: &[usize], arrays: RowArrays<'_>) {
        let replaces = self.stream.invalid() == EncodingErrors::Replace;
        let is_dirty = replaces && self.stream.reader.is_dirty();
        let mut has_stray_quote = false;
        for (at, &i) in wanted.iter().enumerate() {
            if i >= self.stream.reader.fields() {
                self.fill(wanted.get(at..).unwrap_or_default(), arrays);
                break;
            }
            let reader = &self.stream.reader;
            let Some(column) = self.layout.columns.get(i) else { break };
            let record = reader.record();
            let refinement = column.refinement.as_deref();
            let mut value = refinement.map_or_else(|| record.value(i), |refinement| record.trimmed(i, refinement.trim));
            let mut force_null = column.force_null;
            if column.force_not_null && value == Value::Null {
                value = Value::Plain(&reader.dialect().null);
                force_null = false;
            }
            let start = self.values.strings.len();
            let mut is_doubtful = is_dirty;
            match value {
                Value::Plain(bytes) => self.values.strings.extend_from_slice(bytes),
                Value::Escaped(raw) => {
                    let unusual = reader.unescape(raw, &mut self.values.strings);
                    is_doubtful |= unusual;
                    has_stray_quote |= unusual;
                }
                Value::Null => {
                    self.set_null(i, arrays);
                    continue;
                }
                Value::Default => {
                    self.values.queue.push(Queued { column: i, what: What::Default });
                    continue;
                }
            }
            let text = self.values.strings.get(start..).unwrap_or_default();
            if force_null && text == reader.dialect().null {
                self.values.strings.truncate(start);
                self.set_null(i, arrays);
                continue;
            }
            if is_doubtful && replaces {
                mend_in_server_encoding(&mut self.values.strings, start);
            }
            self.convert_text(i, start, arrays);
        }
        if self.layout.fields < self.layout.columns.len() {
            self.take_others(wanted, arrays);
        }
        self.remark_stray_quote(has_stray_quote);
    }

    pub fn set_null(&mut self, i: usize, arrays: RowArrays<'_>) {
        let Some(column) = self.layout.columns.get(i) else { return };
        arrays.set(column.attribute, None);
        if column.input.wants_null {
            self.values.queue.push(Queued { column: i, what: What::Null });
        }
    }

    /// Convert the text of a column, which starts at `start` of the strings.
    pub fn convert_text(&mut self, i: usize, start: usize, arrays: RowArrays<'_>) {
        let RowValues { strings, queue, arena, unescaped: made, .. } = &mut self.values;
        let Some(column) = self.layout.columns.get(i) else { return };
        let refinement = column.refinement.as_deref();
        let text = strings.get(start..).unwrap_or_default();
        if refinement.is_some_and(|refinement| refinement.is_null(text)) {
            strings.truncate(start);
            self.set_null(i, arrays);
            return;
        }
        made.clear();
        let form = refinement.map_or(&Form::Own, |refinement| &refinement.form);
        let is_made = (*form != Form::Own).then(|| form.write(text, made).is_ok());
        let value = if is_made.is_none() { text } else { made.as_slice() };
        if is_made != Some(false)
            && let Some(datum) = column.decoder.and_then(|decoder| decoder.decode(value, arena))
        {
            strings.truncate(start);
            arrays.set(column.attribute, Some(pg_sys::Datum::from(datum as usize)));
            return;
        }
        strings.push(0);
        let what = match is_made {
            None => What::Input(start),
            Some(false) => What::Refused(start),
            Some(true) => {
                let input = strings.len();
                strings.extend_from_slice(made);
                strings.push(0);
                What::Made { input, shown: start }
            }
        };
        queue.push(Queued { column: i, what });
    }
}

/// The error for a text that does not have its column's format, with the message of the type's input function. Guarded.
fn refusal(column: &Column, shown: &CStr) -> Error {
    let form = column.refinement.as_ref().map_or(&Form::Own, |refinement| &refinement.form);
    let misfit = form.write(shown.to_bytes(), &mut Vec::new());
    // SAFETY: guarded catalog lookups, which return a string.
    let name = unsafe { CStr::from_ptr(pg_sys::format_type_be(pg_sys::getBaseType(column.type_oid))) };
    let (name, shown) = (from_server(name), from_server(shown));
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
    // SAFETY: the function reads both and raises; no context callback runs for an error that stays in here.
    unsafe {
        let context = pg_sys::error_context_stack;
        pg_sys::error_context_stack = std::ptr::null_mut();
        let error = complaint(|| {
            refuse(column, shown);
        });
        pg_sys::error_context_stack = context;
        error
    }
}
