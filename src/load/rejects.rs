//! Records that a load leaves out with `on_error = table`, each with its error.
//!
//! ```text
//!   worker: reject ─► queue ─┐
//!                            ├─► spool ─► table bulk_reject, behind the view bulk_rejects
//!   leader: reject ──────────┘
//! ```
//!
//! A reject travels as bytes ([`Reject::write`]). The leader keeps them in a [`spool`] until the rows are in, and then
//! puts them into a [`table`]. At most `pg_bulk.reject_cap` are kept.
//!
//! The spool of a call ends with its transaction. That of a job must not, because its rejects explain a failure. So it
//! survives, and after the transaction has failed, the job writes the rejects in the next one
//! ([`table::write_spooled`]).

pub mod spool;
pub mod table;

use std::ffi::{CStr, CString};

use pgrx::pg_sys;

pub use self::spool::Spool;
use crate::error::Error;
use crate::rows::row::Rows;
use crate::server::server_text::{copied, to_server};

/// Most bytes that are kept of a record or a value.
const MOST_BYTES: usize = 1 << 20;

/// The error about a record; strings of the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Complaint {
    /// SQLSTATE, as a number.
    pub code: i32,
    pub message: Vec<u8>,
    pub column: Option<Vec<u8>>,
    /// The column's value, without quotes and escapes.
    pub field: Option<Vec<u8>>,
    pub constraint: Option<Vec<u8>>,
}

fn cut(bytes: &[u8]) -> &[u8] {
    bytes.get(..MOST_BYTES).unwrap_or(bytes)
}

impl Complaint {
    /// From an error of pg_bulk. Guarded.
    pub fn of_error(error: &Error) -> Complaint {
        let message = to_server(error.message()).into_bytes();
        Complaint { code: error.sqlstate() as i32, message, ..Complaint::default() }
    }

    /// From a caught error of the server.
    ///
    /// # Safety
    /// A valid error.
    pub unsafe fn of_data(error: *const pg_sys::ErrorData) -> Complaint {
        // SAFETY: the error is valid; its strings are NUL-terminated or null.
        unsafe {
            let bytes = |string| copied(string).map(CString::into_bytes);
            Complaint {
                code: (*error).sqlerrcode,
                message: bytes((*error).message).unwrap_or_default(),
                column: bytes((*error).column_name),
                field: None,
                constraint: bytes((*error).constraint_name),
            }
        }
    }

    /// Adds the value that the rows are converting.
    pub fn about_value(mut self, rows: &Rows) -> Complaint {
        let attention = &rows.context.attention;
        let bytes = |text: &CStr| text.to_bytes().to_vec();
        self.column = attention.column().map(bytes).or(self.column);
        self.field = attention.value().map(bytes);
        self
    }
}

/// A record that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// The file, if there are several.
    pub path: Option<Vec<u8>>,
    /// COPY's line number.
    pub line: u64,
    /// The record's position in the file in bytes, if known.
    pub offset: Option<u64>,
    /// The record without its line end, if it is available.
    pub raw: Option<Vec<u8>>,
    pub complaint: Complaint,
}

impl Reject {
    /// The current record of `rows`.
    pub fn new(rows: &mut Rows, complaint: Complaint) -> Reject {
        rows.stream_mut().reader.store_line_number();
        let reader = rows.reader();
        let list = rows.stream().files();
        let file = list.and_then(|list| list.files.get(rows.stream().file_number()));
        Reject {
            path: file.map(|file| file.path.as_bytes().to_vec()),
            line: reader.line_number(),
            offset: (!rows.context.is_query && rows.stream().has_offsets()).then(|| reader.record_offset()),
            raw: (!rows.context.is_query && !reader.dialect().is_binary()).then(|| {
                let line = reader.raw_line().unwrap_or_default();
                // At most two bytes stand for one.
                let mut bytes = rows.stream().bytes_of(line.get(..2 * MOST_BYTES).unwrap_or(line));
                bytes.truncate(MOST_BYTES);
                bytes
            }),
            complaint,
        }
    }

    /// Serializes the reject.
    pub fn write(&self) -> Vec<u8> {
        let Complaint { code, message, column, field, constraint } = &self.complaint;
        let mut out = Vec::with_capacity(64 + self.raw.as_deref().map_or(0, <[u8]>::len) + message.len());
        out.extend(self.line.to_ne_bytes());
        out.extend(self.offset.unwrap_or(u64::MAX).to_ne_bytes());
        out.extend(code.to_ne_bytes());
        let optional = [column, field, constraint, &self.path].map(Option::as_deref);
        for part in [self.raw.as_deref(), Some(&**message)].into_iter().chain(optional) {
            // A length is stored plus one, so that 0 can mean None.
            let len = part.map_or(0, |part| cut(part).len() as u64 + 1);
            out.extend(len.to_ne_bytes());
            out.extend(part.map(cut).unwrap_or_default());
        }
        out
    }

    /// Reads bytes of [`Reject::write`]. `None` if they are malformed.
    pub fn read(mut bytes: &[u8]) -> Option<Reject> {
        fn number(bytes: &mut &[u8]) -> Option<u64> {
            let (number, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            Some(u64::from_ne_bytes(*number))
        }
        fn part(bytes: &mut &[u8]) -> Option<Option<Vec<u8>>> {
            let Some(len) = number(bytes)?.checked_sub(1) else { return Some(None) };
            let (part, rest) = bytes.split_at_checked(usize::try_from(len).ok()?)?;
            *bytes = rest;
            Some(Some(part.to_vec()))
        }
        let line = number(&mut bytes)?;
        let offset = number(&mut bytes)?;
        let (code, rest) = bytes.split_first_chunk()?;
        bytes = rest;
        let raw = part(&mut bytes)?;
        let message = part(&mut bytes)??;
        let (column, field, constraint) = (part(&mut bytes)?, part(&mut bytes)?, part(&mut bytes)?);
        let path = part(&mut bytes)?;
        let complaint = Complaint { code: i32::from_ne_bytes(*code), message, column, field, constraint };
        Some(Reject { path, line, offset: (offset != u64::MAX).then_some(offset), raw, complaint })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_the_reject() {
        let complaint = Complaint { code: 7, message: b"no".to_vec(), field: Some(Vec::new()), ..Complaint::default() };
        let path = Some(b"/d/a".to_vec());
        let reject = Reject { path, line: 3, offset: None, raw: Some(b"a,b".to_vec()), complaint };
        let bytes = reject.write();
        assert_eq!(Reject::read(&bytes), Some(reject));
        for len in 0..bytes.len() {
            assert_eq!(Reject::read(&bytes[..len]), None);
        }
    }
}
