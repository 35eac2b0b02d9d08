//! The values of options: how they are given, and how they are read.
//!
//! A foreign table stores strings and answers with file_fdw's SQLSTATEs, a function takes JSON and says 22023 of every
//! value that it cannot make sense of.

use std::borrow::Cow;
use std::ffi::{CStr, CString};

use pgrx::{PgList, PgSqlErrorCode as Code, pg_sys};

use crate::error::{Error, Result};

/// The page of the documentation that describes the options of functions.
const OPTIONS_PAGE: &str = "docs/reference/options.md";

/// Who has options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    ForeignTable,
    Function,
}

/// A value as it was given, in the server's encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Text(Vec<u8>),
    List(Vec<CString>),
}

/// The header line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderOption {
    /// So many lines to skip.
    Lines(u64),
    /// One line, which must name the columns.
    Match,
}

/// Columns that an option speaks of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ColumnSet {
    #[default]
    None,
    All,
    Named(Vec<CString>),
}

/// Bytes in the server's encoding as text, for what is ASCII and for messages.
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// A value that makes no sense.
pub fn invalid(message: impl Into<String>) -> Error {
    Error::new(Code::ERRCODE_INVALID_PARAMETER_VALUE, message)
}

impl Caller {
    /// A value that cannot be read: a syntax error to COPY.
    fn malformed(self, message: String) -> Error {
        let code = match self {
            Caller::ForeignTable => Code::ERRCODE_SYNTAX_ERROR,
            Caller::Function => Code::ERRCODE_INVALID_PARAMETER_VALUE,
        };
        Error::new(code, message)
    }

    /// The error for an option that does not exist; `valid` are the options that exist.
    ///
    /// A foreign table lists them, as file_fdw does. A function names the page that describes them, but lists them for an
    /// empty name.
    pub fn unknown(self, name: &str, valid: &[&str]) -> Error {
        let (code, message) = match self {
            Caller::ForeignTable => (Code::ERRCODE_FDW_INVALID_OPTION_NAME, format!("invalid option \"{name}\"")),
            Caller::Function => (Code::ERRCODE_SYNTAX_ERROR, format!("option \"{name}\" not recognized")),
        };
        let error = Error::new(code, message);
        if valid.is_empty() {
            return error.hint("There are no valid options in this context.");
        }
        let list = match self {
            Caller::Function if !name.is_empty() => format!("The options are listed in {OPTIONS_PAGE}."),
            _ => format!("Valid options in this context are: {}", valid.join(", ")),
        };
        // As near as core's getClosestMatch asks for: up to four edits, and not a whole new word.
        let near = valid.iter().map(|&v| (distance(name, v), v)).min();
        match near {
            Some((d, v)) if d <= 4 && d <= name.len() / 2 => {
                error.hint(format!("Perhaps you meant the option \"{v}\". {list}"))
            }
            _ => error.hint(list),
        }
    }

    /// As `defGetBoolean` reads a string, and 0 and 1.
    pub fn boolean(self, name: &str, value: &[u8]) -> Result<bool> {
        match text(value).to_ascii_lowercase().as_str() {
            "true" | "on" | "1" => Ok(true),
            "false" | "off" | "0" => Ok(false),
            _ => Err(self.malformed(format!("{name} requires a Boolean value"))),
        }
    }

    /// Of the option `header`.
    pub fn header(self, value: &str) -> Result<HeaderOption> {
        match value.to_ascii_lowercase().as_str() {
            "true" | "on" => Ok(HeaderOption::Lines(1)),
            "false" | "off" => Ok(HeaderOption::Lines(0)),
            "match" => Ok(HeaderOption::Match),
            number => match number.parse() {
                Ok(lines) => Ok(HeaderOption::Lines(lines)),
                Err(_) => {
                    let wanted = "a Boolean value, a non-negative integer, or the string \"match\"";
                    Err(self.malformed(format!("header requires {wanted}")))
                }
            },
        }
    }

    /// `*`, or column names: a foreign table's as SQL writes them, separated by commas; a function's as a list.
    pub fn column_set(self, name: &str, value: &Value) -> Result<ColumnSet> {
        let bad =
            |how: &str| Err(invalid(format!("argument to option \"{name}\" must be \"*\" or {how} of column names")));
        match value {
            Value::Text(text) if text.trim_ascii() == b"*" => Ok(ColumnSet::All),
            Value::List(names) if !names.is_empty() => Ok(ColumnSet::Named(names.clone())),
            Value::Text(text) if self == Caller::ForeignTable => match split_identifiers(text) {
                Some(names) => Ok(ColumnSet::Named(names)),
                None => bad("a list"),
            },
            _ if self == Caller::ForeignTable => bad("a list"),
            _ => bad("an array"),
        }
    }
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut next = vec![i + 1];
        for (&y, pair) in b.iter().zip(row.windows(2)) {
            let &[substitute, delete] = pair else { continue };
            let insert = next.last().copied().unwrap_or(0) + 1;
            next.push((substitute + usize::from(x != y)).min(delete + 1).min(insert));
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

/// Names as SQL writes them, separated by commas; None if they are not, or if there are none.
fn split_identifiers(value: &[u8]) -> Option<Vec<CString>> {
    let mut raw: Vec<u8> = value.iter().copied().filter(|&b| b != 0).collect();
    raw.push(0);
    let mut list: *mut pg_sys::List = std::ptr::null_mut();
    // SAFETY: a guarded call that writes NULs into the copy, which outlives the use of the list.
    unsafe {
        if !pg_sys::SplitIdentifierString(raw.as_mut_ptr().cast(), b',' as std::ffi::c_char, &raw mut list) {
            return None;
        }
        let names = PgList::<std::ffi::c_char>::from_pg(list);
        let names: Vec<CString> = names.iter_ptr().map(|n| CStr::from_ptr(n).to_owned()).collect();
        (!names.is_empty()).then_some(names)
    }
}

/// A number of rows.
pub fn count(name: &str, value: &str) -> Result<u64> {
    value.parse().map_err(|_| invalid(format!("{name} requires a non-negative integer")))
}

impl Value {
    /// The text, where `name` takes one value.
    pub fn one(&self, name: &str) -> Result<&[u8]> {
        match self {
            Value::Text(text) => Ok(text),
            Value::List(_) => Err(invalid(format!("{name} requires a single value"))),
        }
    }
}

/// Names and values of a list of DefElems.
///
/// # Safety
/// A valid list of DefElems with string arguments, or null; a guarded frame.
pub unsafe fn stored(list: *mut pg_sys::List) -> Vec<(String, Vec<u8>)> {
    // SAFETY: this function's contract covers the list.
    unsafe {
        let elements = PgList::<pg_sys::DefElem>::from_pg(list);
        let string = |s: *const std::ffi::c_char| CStr::from_ptr(s).to_bytes().to_vec();
        let name = |e: *mut pg_sys::DefElem| text(&string((*e).defname)).into_owned();
        elements.iter_ptr().map(|e| (name(e), string(pg_sys::defGetString(e)))).collect()
    }
}
