//! The result of a load: counts, indexes and notes, as a row.

use std::ffi::CStr;
use std::time::Duration;

use pgrx::{IntoDatum, pg_sys};

use crate::server::server_text::to_server;
use crate::server::stages::Stages;
use crate::server::usage::Cpu;

/// Figures that a writer counted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    /// Rows that are in the table now.
    pub loaded: u64,
    /// Records left out because of an error.
    pub rejected: u64,
    /// Rows left out because their key already exists.
    pub duplicate: u64,
    /// Rows that `where` or a trigger left out.
    pub filtered: u64,
    pub bytes_read: u64,
    /// Pages that were made and appended.
    pub pages: u64,
    /// CPU usage of the processes other than the caller's, and time by stage of all processes.
    pub others: Cpu,
    pub stages: Stages,
    /// Processes other than the caller's.
    pub workers: usize,
    /// Remarks about the load, one sentence each.
    pub notes: Vec<String>,
    pub indexes: Vec<IndexReport>,
}

/// How an index got the new entries.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexReport {
    pub name: String,
    /// The index strategy: `insert`, `merge` or `rebuild`.
    pub method: &'static str,
    /// Source of the keys of a rebuilt index: `load`, which has collected them, or `table`, which was scanned.
    pub from: Option<&'static str>,
    pub why: Why,
    /// Workers that took part in the build.
    pub workers: usize,
    pub seconds: f64,
}

/// The reason for the index strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    Asked,
    Empty,
    Many,
    Few,
    FewForIndex,
    Behind,
    Online,
    Temporary,
    Kind,
    OldVersion,
    Deferrable,
    Exclusion,
    OneByOne,
    InUse,
    Invalid,
    Keys,
    Owner,
    Refers,
}

impl Why {
    /// The reason in words.
    pub fn words(self) -> &'static str {
        match self {
            Why::Asked => "requested by the option indexes",
            Why::Empty => "the table was empty",
            Why::Many => "many new rows",
            Why::Few => "few new rows",
            Why::FewForIndex => "few new rows for an index of this size",
            Why::Behind => "all new keys are greater",
            Why::Online => "lock = online",
            Why::Temporary => "the table is temporary",
            Why::Kind => "pg_bulk cannot merge such an index",
            Why::OldVersion => "the index has an old nbtree version",
            Why::Deferrable => "its constraint is deferrable",
            Why::Exclusion => "it belongs to an exclusion constraint",
            Why::OneByOne => "duplicates are looked up row by row",
            Why::InUse => "the index was in use",
            Why::Invalid => "the index is not valid",
            Why::Keys => "some keys cannot be merged",
            Why::Owner => "its functions would run as the table's owner",
            Why::Refers => "the table has foreign keys",
        }
    }
}

/// Columns of the result.
pub const COLUMNS: usize = 11;

/// The row of the result. Guarded; allocates in the current memory context.
pub fn row(id: i64, counts: &Counts, took: Duration, writer: &str) -> [Option<pg_sys::Datum>; COLUMNS] {
    let number = |n: u64| Some(pg_sys::Datum::from(i64::try_from(n).unwrap_or(i64::MAX)));
    [
        Some(pg_sys::Datum::from(id)),
        number(counts.loaded),
        number(counts.rejected),
        number(counts.duplicate),
        number(counts.filtered),
        number(counts.bytes_read),
        took.as_secs_f64().into_datum(),
        writer.into_datum(),
        i32::try_from(counts.workers).unwrap_or(i32::MAX).into_datum(),
        Some(indexes(&counts.indexes)),
        Some(notes(&counts.notes)),
    ]
}

/// Stores the row in the result. Guarded.
///
/// # Safety
/// The result of a function whose row type is that of `bulk_load`, materialized.
pub unsafe fn put_row(result: &mut pg_sys::ReturnSetInfo, row: [Option<pg_sys::Datum>; COLUMNS]) {
    let mut nulls = row.map(|value| value.is_none());
    let mut values = row.map(|value| value.unwrap_or(pg_sys::Datum::from(0usize)));
    // SAFETY: this function's contract covers the result; a guarded call.
    unsafe { pg_sys::tuplestore_putvalues(result.setResult, result.setDesc, values.as_mut_ptr(), nulls.as_mut_ptr()) }
}

/// Text as a datum. Guarded.
fn text(text: &str) -> pg_sys::Datum {
    // SAFETY: a guarded call that copies the string.
    pg_sys::Datum::from(unsafe { pg_sys::cstring_to_text(to_server(text).as_ptr()) })
}

fn notes(notes: &[String]) -> pg_sys::Datum {
    let mut values: Vec<_> = notes.iter().map(|note| text(note)).collect();
    let len = i32::try_from(values.len()).unwrap_or(i32::MAX);
    // SAFETY: a guarded call that copies this number of values; text has variable length and int alignment.
    let array = unsafe {
        pg_sys::construct_array(
            values.as_mut_ptr(),
            len,
            pg_sys::TEXTOID,
            -1,
            false,
            pg_sys::TYPALIGN_INT as std::ffi::c_char,
        )
    };
    pg_sys::Datum::from(array)
}

fn indexes(indexes: &[IndexReport]) -> pg_sys::Datum {
    let objects: Vec<_> = indexes.iter().map(IndexReport::json).collect();
    jsonb(&to_server(&format!("[{}]", objects.join(", "))))
}

/// Parses JSON to a jsonb datum. Guarded; allocates in the current memory context.
pub fn jsonb(json: &CStr) -> pg_sys::Datum {
    // SAFETY: a guarded call that only reads the string.
    unsafe { pg_sys::OidInputFunctionCall(pg_sys::F_JSONB_IN.into(), json.as_ptr().cast_mut(), pg_sys::JSONBOID, -1) }
}

/// Escapes text for a JSON string.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c < ' ' => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted
}

impl IndexReport {
    fn json(&self) -> String {
        let name = quoted(&self.name);
        let from = self.from.map(|from| format!("\"from\": \"{from}\", ")).unwrap_or_default();
        let (method, why, seconds) = (self.method, self.why.words(), self.seconds);
        let workers = if self.workers > 0 { format!("\"workers\": {}, ", self.workers) } else { String::new() };
        format!(
            "{{\"index\": \"{name}\", \"method\": \"{method}\", {from}\"why\": \"{why}\", {workers}\"seconds\": {seconds:.6}}}"
        )
    }
}
