//! Values of options: their syntax and their conversion.
//!
//! A foreign table stores strings, and its errors have the SQLSTATEs of file_fdw. A function takes JSON, and rejects
//! invalid values with SQLSTATE 22023.

use std::borrow::Cow;
use std::ffi::{CStr, CString};

use pgrx::{PgList, PgSqlErrorCode as Code, pg_sys};

use super::node::{Node, NodeList};
use crate::error::{Error, Result};

/// The page of the documentation that describes the options of functions.
const OPTIONS_PAGE: &str = "docs/reference/options.md";

/// The kind of object that has the options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    ForeignTable,
    Function,
}

/// A value as it was given, in the server's encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptionValue {
    Text(Vec<u8>),
    List(Vec<CString>),
}

/// Value of the option `header`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderOption {
    /// Number of lines to skip.
    Lines(u64),
    /// One line, which must name the columns.
    Match,
}

/// Set of columns in an option.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ColumnSet {
    #[default]
    None,
    All,
    Named(Vec<CString>),
}

/// Returns bytes in the server's encoding as text, for ASCII keywords and for messages.
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Error for an invalid value.
pub fn invalid(message: impl Into<String>) -> Error {
    Error::new(Code::ERRCODE_INVALID_PARAMETER_VALUE, message)
}

/// Parses one of several words, in any case.
pub fn word<T: Copy>(name: &str, value: &[u8], words: &[(&str, T)]) -> Result<T> {
    let given = text(value).to_ascii_lowercase();
    match words.iter().find(|(word, _)| *word == given) {
        Some((_, meaning)) => Ok(*meaning),
        None => {
            let list: Vec<_> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            Err(invalid(format!("{name} \"{}\" not recognized", text(value)))
                .hint(format!("Valid values are {}.", list.join(", "))))
        }
    }
}

impl Caller {
    /// Error for a value with wrong syntax, which COPY calls a syntax error.
    fn malformed(self, message: String) -> Error {
        let code = match self {
            Caller::ForeignTable => Code::ERRCODE_SYNTAX_ERROR,
            Caller::Function => Code::ERRCODE_INVALID_PARAMETER_VALUE,
        };
        Error::new(code, message)
    }

    /// Error for an unknown option; `valid` are the valid ones.
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
        // The limits of core's getClosestMatch: at most four edits, and at most half of the name.
        let near = valid.iter().map(|&v| (distance(name, v), v)).min();
        match near {
            Some((d, v)) if d <= 4 && d <= name.len() / 2 => {
                error.hint(format!("Perhaps you meant the option \"{v}\". {list}"))
            }
            _ => error.hint(list),
        }
    }

    /// Parses a boolean as `defGetBoolean` does, including 0 and 1.
    pub fn boolean(self, name: &str, value: &[u8]) -> Result<bool> {
        match text(value).to_ascii_lowercase().as_str() {
            "true" | "on" | "1" => Ok(true),
            "false" | "off" | "0" => Ok(false),
            _ => Err(self.malformed(format!("{name} requires a Boolean value"))),
        }
    }

    /// Parses the option `header`.
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

    /// Parses `*` or column names. A foreign table has SQL identifiers separated by commas; a function has a list.
    pub fn column_set(self, name: &str, value: &OptionValue) -> Result<ColumnSet> {
        let bad =
            |how: &str| Err(invalid(format!("argument to option \"{name}\" must be \"*\" or {how} of column names")));
        match value {
            OptionValue::Text(text) if text.trim_ascii() == b"*" => Ok(ColumnSet::All),
            OptionValue::List(names) if !names.is_empty() => Ok(ColumnSet::Named(names.clone())),
            OptionValue::Text(text) if self == Caller::ForeignTable => match split_identifiers(text) {
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

/// Splits a list of SQL identifiers separated by commas; None if the syntax is wrong or the list is empty.
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

/// Parses a number of rows.
pub fn count(name: &str, value: &str) -> Result<u64> {
    value.parse().map_err(|_| invalid(format!("{name} requires a non-negative integer")))
}

impl OptionValue {
    /// Returns the text, for an option that takes one value.
    pub fn one(&self, name: &str) -> Result<&[u8]> {
        match self {
            OptionValue::Text(text) => Ok(text),
            OptionValue::List(_) => Err(invalid(format!("{name} requires a single value"))),
        }
    }
}

/// Returns the names and values of options. Guarded.
pub fn stored(list: NodeList<'_, pg_sys::DefElem>) -> Vec<(String, Vec<u8>)> {
    let name = |option: Node<'_, pg_sys::DefElem>| text(option.name().unwrap_or_default().to_bytes()).into_owned();
    // SAFETY: a guarded call, which returns a string.
    let value = |option: Node<'_, pg_sys::DefElem>| unsafe { CStr::from_ptr(pg_sys::defGetString(option.as_ptr())) };
    list.iter().map(|option| (name(option), value(option).to_bytes().to_vec())).collect()
}

/// The options in the array of a catalog. Guarded.
///
/// # Safety
/// An array of texts `name=value`.
pub unsafe fn stored_in(array: pg_sys::Datum) -> Vec<(String, Vec<u8>)> {
    // SAFETY: a guarded call with such an array, which returns a list.
    stored(unsafe { NodeList::from_raw(pg_sys::untransformRelOptions(array)) })
}
