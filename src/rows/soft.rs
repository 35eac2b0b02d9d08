//! Converts rows and survives bad values, unless `on_error = stop`.
//!
//! Bad values are those of COPY of PostgreSQL 17 and later: a value that its type's input function rejects. A wrong
//! number of fields, invalid bytes, and errors of default expressions are still errors here. With `on_error = table`,
//! the caller rejects their records.
//!
//! From 16 on, input functions report such values softly. On 15 they raise, and an error may only be caught in a
//! subtransaction. The exceptions are functions that leave no state behind: the input functions of built-in scalar
//! types, written in C, which read a string and allocate memory. Only errors about the value itself are caught: class
//! 22, and the NOT NULL and CHECK violations of domains.

use std::ffi::CStr;

use pgrx::{PgLogLevel, PgSqlErrorCode as Code, ereport, pg_sys};

use super::context::displayed;
use super::ragged::Ragged;
use super::row::refined::complaint_of;
use super::row::{Attention, RowArrays, Rows, What};
use crate::error::{Error, Result};
use crate::server::compat::{self, Soft};
use crate::server::copy_errors;
use crate::server::lookup::type_name;
use crate::server::slot::ExprContext;

/// Action for rows with bad values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// Raise an error.
    Stop,
    /// Skip the row.
    Ignore,
    /// Set the value to NULL.
    SetNull,
    /// Skip the row, and keep it with its error, whatever the error is.
    Table,
}

/// Verbosity of the notices about bad values (COPY's LOG_VERBOSITY).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verbosity {
    /// None.
    Silent,
    /// Their number at the end.
    Default,
    /// One for each.
    Verbose,
}

/// Limit of records that are left out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    Rows(u64),
    /// Per cent of all records.
    Percent(f64),
}

impl Limit {
    /// Returns the number of rows, if the limit is not a percentage.
    pub fn rows(self) -> Option<u64> {
        match self {
            Limit::Rows(rows) => Some(rows),
            Limit::Percent(_) => None,
        }
    }
}

/// Result of a row's conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conversion {
    /// All values are converted.
    Good,
    /// The row is skipped.
    LeftOut,
    /// The conversion raises an error that is not survived. To get the whole error, the caller converts the row again
    /// in a plain frame ([`Rows::convert`]).
    Raises,
}

/// The error filter of a scan or load, with its counts.
#[derive(Debug)]
pub struct Tolerance {
    pub on_error: OnError,
    pub verbosity: Verbosity,
    /// Highest number of rows that may be skipped.
    pub reject_limit: Option<u64>,
    /// Records that lack fields are skipped.
    pub rejects_short: bool,
    /// Records with too many fields are skipped.
    pub rejects_long: bool,
    /// Rows that were skipped, or had values set to NULL.
    pub bad_rows: u64,
    /// With [`OnError::Table`]: the error of the row that was skipped last. It lives as long as the row's memory.
    pub bad_value: Option<*mut pg_sys::ErrorData>,
}

impl Tolerance {
    /// Count a skipped row. An error if it exceeds the limit.
    pub fn count(&mut self) -> Result<()> {
        self.bad_rows += 1;
        match self.reject_limit.filter(|limit| self.bad_rows > *limit) {
            Some(limit) => Err(too_many(self.on_error, limit)),
            None => Ok(()),
        }
    }

    /// Does the filter skip a record with this error, found before conversion? With [`OnError::Ignore`], only a record
    /// with invalid bytes, if these do not stop the reader, or with too many fields, if `long_rows` is given.
    pub fn survives(&self, error: &Error) -> bool {
        let is_survivable = match self.on_error {
            OnError::Table => true,
            OnError::Ignore => {
                matches!(
                    error.sqlstate(),
                    Code::ERRCODE_CHARACTER_NOT_IN_REPERTOIRE | Code::ERRCODE_UNTRANSLATABLE_CHARACTER
                ) || (self.rejects_long && error.message() == copy_errors::EXTRA_DATA)
            }
            OnError::Stop | OnError::SetNull => false,
        };
        is_survivable && error.is_about_record()
    }

    /// Report records in notices. Guarded.
    pub fn report_ragged(&self, rows: &Rows, ragged: &Ragged) {
        if self.verbosity != Verbosity::Silent {
            rows.ragged_notices(ragged).into_iter().for_each(Error::notice);
        }
    }

    /// Report the number of rows in a notice; `kept` is the load whose rejects are in the view bulk_rejects. Guarded.
    pub fn report(&self, kept: Option<i64>) {
        let n = self.bad_rows;
        if n == 0 || self.verbosity == Verbosity::Silent {
            return;
        }
        let message = match (self.on_error, n) {
            (OnError::SetNull, 1) => "in 1 row, columns were set to null due to data type incompatibility".to_owned(),
            (OnError::SetNull, _) => format!("in {n} rows, columns were set to null due to data type incompatibility"),
            (OnError::Table, 1) => "1 row was rejected".to_owned(),
            (OnError::Table, _) => format!("{n} rows were rejected"),
            (_, 1) => "1 row was skipped due to data type incompatibility".to_owned(),
            _ => format!("{n} rows were skipped due to data type incompatibility"),
        };
        let notice = Error::new(Code::ERRCODE_SUCCESSFUL_COMPLETION, message);
        match kept {
            Some(load) => notice.hint(format!("See view bulk_rejects, load_id = {load}.")).notice(),
            None => notice.notice(),
        }
    }
}

/// The error for more than `n` skipped rows, with COPY's message for COPY's actions.
pub fn too_many(on_error: OnError, n: u64) -> Error {
    let message = match on_error {
        OnError::Table => format!("rejected more rows than reject_limit = {n} allows"),
        _ => format!("skipped more than REJECT_LIMIT ({n}) rows due to data type incompatibility"),
    };
    Error::new(Code::ERRCODE_INVALID_TEXT_REPRESENTATION, message)
}

/// Raise an error if a limit in percent of all records is exceeded.
pub fn check_share(on_error: OnError, limit: Option<Limit>, rejected: u64, records: u64) -> Result<()> {
    let Some(Limit::Percent(percent)) = limit else { return Ok(()) };
    // Whole numbers of this size are exact.
    if rejected as f64 * 100.0 <= percent * records as f64 {
        return Ok(());
    }
    let message = match on_error {
        OnError::Table => format!("rejected more rows than reject_limit = {percent}% allows"),
        _ => format!("skipped more than REJECT_LIMIT ({percent}%) of the rows due to data type incompatibility"),
    };
    let detail = format!(
        "{rejected} of {records} rows were {}.",
        if on_error == OnError::Table { "rejected" } else { "skipped" }
    );
    Err(Error::new(Code::ERRCODE_INVALID_TEXT_REPRESENTATION, message).detail(detail))
}

impl Rows {
    /// Run the queue, and survive bad values. The current memory context is the row's. Guarded.
    pub fn convert_softly(
        &mut self,
        tolerance: &mut Tolerance,
        arrays: RowArrays<'_>,
        econtext: ExprContext<'_>,
    ) -> Result<Conversion> {
        if self.layout.binary.is_some() {
            // In no version do receive functions report errors softly.
            return Ok(if self.has_queue() { Conversion::Raises } else { Conversion::Good });
        }
        let mut set_null = false;
        for at in 0..self.values.queue.len() {
            let Some(&queued) = self.values.queue.get(at) else { break };
            let string = match queued.what {
                What::Input(start) | What::Made { input: start, .. } => {
                    self.values.strings.get_mut(start..).map_or(std::ptr::null_mut(), <[u8]>::as_mut_ptr).cast()
                }
                _ => std::ptr::null_mut::<std::ffi::c_char>(),
            };
            let Some(column) = self.layout.columns.get_mut(queued.column) else { break };
            let shown = match (queued.what, &self.layout.default) {
                (What::Default, Some(marker)) => marker.as_ptr(),
                (What::Made { shown, .. } | What::Refused(shown), _) => {
                    self.values.strings.get(shown..).map_or(std::ptr::null(), |shown| shown.as_ptr().cast())
                }
                _ => string.cast_const(),
            };
            // SAFETY: strings of the column and of the queue, which stay until the next value.
            self.context.attention = unsafe { Attention::new(column.name.as_ptr(), shown) };
            let (attribute, typioparam, typmod) = (column.attribute, column.input.typioparam, column.input.typmod);
            let value = if matches!(queued.what, What::Default) {
                let mut is_null = false;
                column.default.and_then(|default| {
                    // SAFETY: a guarded call with the column's own expression.
                    let datum = unsafe { pg_sys::ExecEvalExpr(default.as_ptr(), econtext.as_ptr(), &raw mut is_null) };
                    (!is_null).then_some(datum)
                })
            } else {
                let type_oid = column.type_oid;
                let details = tolerance.on_error == OnError::Table;
                let converted = if let What::Refused(_) = queued.what {
                    // SAFETY: a NUL-terminated string.
                    Soft::Bad(unsafe { complaint_of(&raw const *column, shown) })
                } else {
                    // SAFETY: the column's own function, and a NUL-terminated string or null.
                    unsafe {
                        compat::input_function_call_soft(
                            &raw mut column.input.function,
                            string,
                            typioparam,
                            typmod,
                            type_oid,
                            details,
                        )
                    }?
                };
                match converted {
                    Soft::Good(datum) => (!string.is_null()).then_some(datum),
                    Soft::Raises => return Ok(Conversion::Raises),
                    Soft::Bad(_) if tolerance.on_error == OnError::SetNull => {
                        set_null = true;
                        self.set_to_null(queued.column, tolerance)?;
                        None
                    }
                    Soft::Bad(error) => {
                        if details {
                            tolerance.bad_value = Some(error);
                        }
                        return self.leave_out(queued.column, tolerance).map(|()| Conversion::LeftOut);
                    }
                }
            };
            arrays.set(attribute, value);
        }
        self.context.attention = Attention::NONE;
        tolerance.bad_rows += u64::from(set_null);
        Ok(Conversion::Good)
    }

    fn note(&mut self, column: usize, doing: &str) {
        // Find the line number now. Otherwise each notice would count lines from the beginning of the chunk.
        self.stream.reader.store_line_number();
        let name = self.layout.columns.get(column).map(|c| c.display_name().into_owned()).unwrap_or_default();
        let quoted = |value: &CStr| format!("\"{}\"", displayed(value.to_bytes()).to_string_lossy());
        let value = self.context.attention.value().map_or_else(|| "null input".to_owned(), quoted);
        let line = self.reader().line_number();
        let message = format!("{doing} due to data type incompatibility at line {line} for column \"{name}\": {value}");
        ereport!(PgLogLevel::NOTICE, Code::ERRCODE_SUCCESSFUL_COMPLETION, message);
    }

    /// Skip the current record because of its bytes. Guarded.
    pub fn leave_out_record(&mut self, tolerance: &mut Tolerance, error: &Error) -> Result<()> {
        if tolerance.verbosity == Verbosity::Verbose {
            self.note_record(error);
        }
        tolerance.count()
    }

    /// Report in a notice that the record is skipped because of its bytes. Guarded.
    pub fn note_record(&mut self, error: &Error) {
        self.stream.reader.store_line_number();
        let message = format!("skipping row at line {}: {}", self.reader().line_number(), error.message());
        ereport!(PgLogLevel::NOTICE, Code::ERRCODE_SUCCESSFUL_COMPLETION, message);
    }

    fn leave_out(&mut self, column: usize, tolerance: &mut Tolerance) -> Result<()> {
        if tolerance.on_error == OnError::Table {
            // The caller keeps the record as a reject, and then checks the limit.
            tolerance.bad_rows += 1;
            return Ok(());
        }
        if tolerance.verbosity == Verbosity::Verbose {
            self.note(column, "skipping row");
        }
        // `attention` keeps its value: the caller may raise an error about it.
        tolerance.count()
    }

    fn set_to_null(&mut self, column: usize, tolerance: &Tolerance) -> Result<()> {
        if tolerance.verbosity == Verbosity::Verbose && self.context.attention.value().is_some() {
            self.note(column, "setting to null");
        }
        let Some(column) = self.layout.columns.get_mut(column) else { return Ok(()) };
        if !column.input.wants_null {
            return Ok(());
        }
        // A domain may reject NULL.
        // SAFETY: the column's own function, and NULL.
        let accepted = unsafe {
            compat::input_function_call_soft(
                &raw mut column.input.function,
                std::ptr::null_mut(),
                column.input.typioparam,
                column.input.typmod,
                column.type_oid,
                false,
            )
        }?;
        if !matches!(accepted, Soft::Bad(_)) {
            return Ok(());
        }
        let domain = type_name(column.type_oid);
        let name = column.display_name();
        let detail = format!(
            "ON_ERROR SET_NULL cannot be applied because column \"{name}\" (domain {domain}) does not accept null values."
        );
        let message = format!("domain {domain} does not allow null values");
        Err(Error::new(Code::ERRCODE_NOT_NULL_VIOLATION, message).detail(detail))
    }
}
