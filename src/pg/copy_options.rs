//! COPY's options, for whoever reads a file: names, meanings and complaints.
//!
//! They come one by one into a [`Draft`], and [`Draft::finish`] makes sense of them together, in the order of
//! `ProcessCopyOptions` (copy.c). What foreign tables and functions share ends here: names, defaults and messages are
//! the same, but a foreign table stores strings and answers with file_fdw's SQLSTATEs, while a function takes JSON and
//! says 22023 of every value that it cannot make sense of.

use std::borrow::Cow;
use std::ffi::{CStr, CString};

use pg_bulk_format::dialect::{Dialect, DialectError, FormatOptions};
use pgrx::{PgList, PgSqlErrorCode as Code, pg_sys};

use super::column::Column;
use super::compat;
use super::encoding::{Encodings, encoding_by_name};
use super::soft::{OnError, Tolerance, Verbosity};
use super::source::{Location, Source};
use super::stream::{Header, Stream};
use crate::error::{Error, Result};

/// The names that a [`Draft`] knows.
pub const NAMES: &[&str] = &[
    "format",
    "header",
    "delimiter",
    "quote",
    "escape",
    "null",
    "default",
    "encoding",
    "force_not_null",
    "force_null",
    "on_error",
    "reject_limit",
    "log_verbosity",
    "skip",
    "limit",
];

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

/// What a file's bytes mean, and which of its rows are wanted.
#[derive(Debug, Clone)]
pub struct CopyOptions {
    pub dialect: Dialect,
    pub header: HeaderOption,
    pub encoding: Option<i32>,
    pub force_not_null: ColumnSet,
    pub force_null: ColumnSet,
    pub on_error: OnError,
    pub reject_limit: u64,
    pub verbosity: Verbosity,
    pub skip: u64,
    pub limit: Option<u64>,
}

/// Options that are being collected.
#[derive(Debug)]
pub struct Draft {
    caller: Caller,
    format: FormatOptions,
    header: HeaderOption,
    encoding: Option<i32>,
    force_not_null: ColumnSet,
    force_null: ColumnSet,
    on_error: OnError,
    reject_limit: u64,
    verbosity: Verbosity,
    skip: u64,
    limit: Option<u64>,
}

/// Bytes in the server's encoding as text, for what is ASCII and for messages.
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

fn invalid(message: String) -> Error {
    Error::new(Code::ERRCODE_INVALID_PARAMETER_VALUE, message)
}

fn unsupported(message: &str) -> Error {
    Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message)
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

    /// There is no option of this name; `valid` are those that there are.
    pub fn unknown(self, name: &str, valid: &[&str]) -> Error {
        let (code, message) = match self {
            Caller::ForeignTable => (Code::ERRCODE_FDW_INVALID_OPTION_NAME, format!("invalid option \"{name}\"")),
            Caller::Function => (Code::ERRCODE_SYNTAX_ERROR, format!("option \"{name}\" not recognized")),
        };
        let error = Error::new(code, message);
        if valid.is_empty() {
            return error.hint("There are no valid options in this context.");
        }
        let list = format!("Valid options in this context are: {}", valid.join(", "));
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

    fn header(self, value: &str) -> Result<HeaderOption> {
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
    fn column_set(self, name: &str, value: &Value) -> Result<ColumnSet> {
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

fn count(name: &str, value: &str) -> Result<u64> {
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

impl Draft {
    pub fn new(caller: Caller) -> Draft {
        Draft {
            caller,
            format: FormatOptions::default(),
            header: HeaderOption::Lines(0),
            encoding: None,
            force_not_null: ColumnSet::None,
            force_null: ColumnSet::None,
            on_error: OnError::Stop,
            reject_limit: 0,
            verbosity: Verbosity::Default,
            skip: 0,
            limit: None,
        }
    }

    /// Take an option; false if it is none of COPY's.
    pub fn set(&mut self, name: &str, given: &Value) -> Result<bool> {
        match name {
            "force_not_null" => {
                self.force_not_null = self.caller.column_set(name, given)?;
                return Ok(true);
            }
            "force_null" => {
                self.force_null = self.caller.column_set(name, given)?;
                return Ok(true);
            }
            _ if !NAMES.contains(&name) => return Ok(false),
            _ => (),
        }
        let bytes = given.one(name)?;
        let value = &*text(bytes);
        let given = || Some(bytes.to_vec());
        match name {
            "format" => match value {
                "text" => self.format.csv = false,
                "csv" => self.format.csv = true,
                "binary" => {
                    let who = if self.caller == Caller::Function { "bulk_load" } else { "bulk_fdw" };
                    return Err(unsupported(&format!("COPY format \"binary\" is not supported by {who}")));
                }
                _ => return Err(invalid(format!("COPY format \"{value}\" not recognized"))),
            },
            "header" => self.header = self.caller.header(value)?,
            "delimiter" => self.format.delimiter = given(),
            "quote" => self.format.quote = given(),
            "escape" => self.format.escape = given(),
            "null" => self.format.null = given(),
            "default" => self.format.default = given(),
            "encoding" => {
                let bad = || invalid("argument to option \"encoding\" must be a valid encoding name".into());
                self.encoding = Some(encoding_by_name(value).ok_or_else(bad)?);
            }
            "on_error" => {
                self.on_error = match value.to_ascii_lowercase().as_str() {
                    "stop" => OnError::Stop,
                    "ignore" => OnError::Ignore,
                    "set_null" => OnError::SetNull,
                    _ => return Err(invalid(format!("COPY ON_ERROR \"{value}\" not recognized"))),
                };
            }
            "reject_limit" => {
                self.reject_limit = count(name, value)?;
                if self.reject_limit == 0 {
                    return Err(invalid("REJECT_LIMIT (0) must be greater than zero".into()));
                }
            }
            "log_verbosity" => {
                self.verbosity = match value.to_ascii_lowercase().as_str() {
                    "silent" => Verbosity::Silent,
                    "default" => Verbosity::Default,
                    "verbose" => Verbosity::Verbose,
                    _ => return Err(invalid(format!("COPY LOG_VERBOSITY \"{value}\" not recognized"))),
                };
            }
            "skip" => self.skip = count(name, value)?,
            "limit" => self.limit = Some(count(name, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Make sense of the options together; the first complaint is the one that COPY would make.
    pub fn finish(mut self) -> Result<CopyOptions> {
        self.format.force_not_null = self.force_not_null != ColumnSet::None;
        self.format.force_null = self.force_null != ColumnSet::None;
        let dialect = Dialect::check(&self.format, compat::end_marker()).map_err(|e| {
            use DialectError as D;
            // COPY calls a character that is too long a feature that is missing; here it is a bad value.
            let bad_value = matches!(e, D::DelimiterLength | D::QuoteLength | D::EscapeLength);
            let error = Error::from(e);
            if bad_value && self.caller == Caller::Function {
                return error.code(Code::ERRCODE_INVALID_PARAMETER_VALUE);
            }
            error
        })?;
        if self.reject_limit > 0 && self.on_error != OnError::Ignore {
            return Err(invalid("COPY REJECT_LIMIT requires ON_ERROR to be set to IGNORE".into()));
        }
        Ok(CopyOptions {
            dialect,
            header: self.header,
            encoding: self.encoding,
            force_not_null: self.force_not_null,
            force_null: self.force_null,
            on_error: self.on_error,
            reject_limit: self.reject_limit,
            verbosity: self.verbosity,
            skip: self.skip,
            limit: self.limit,
        })
    }
}

impl CopyOptions {
    /// What the reader is to do with the header.
    pub fn header(&self) -> Header {
        match self.header {
            HeaderOption::Lines(lines) => Header { lines, fields: false },
            HeaderOption::Match => Header { lines: 1, fields: true },
        }
    }

    /// The policy for bad values, before any has been met.
    pub fn tolerance(&self) -> Tolerance {
        Tolerance { on_error: self.on_error, verbosity: self.verbosity, reject_limit: self.reject_limit, bad_rows: 0 }
    }

    /// The records of a location, of so many fields. Guarded.
    pub fn open(&self, location: &Location, header: Header, fields: usize) -> Result<Stream> {
        let encodings = Encodings::new(self.encoding)?;
        Ok(Stream::new(Source::open(location)?, self.dialect.clone(), encodings, header, fields))
    }

    /// Apply `force_null` and `force_not_null` to the columns of a relation's file. Guarded.
    pub fn force(&self, relid: pg_sys::Oid, columns: &mut [Column]) -> Result<()> {
        mark(&self.force_not_null, "FORCE_NOT_NULL", relid, columns, |c| c.force_not_null = true)?;
        mark(&self.force_null, "FORCE_NULL", relid, columns, |c| c.force_null = true)?;
        if !self.dialect.is_csv() {
            let forced = |f: fn(&Column) -> bool| columns.iter().any(f);
            if forced(|c| c.force_not_null) {
                return Err(unsupported("COPY force not null available only in CSV mode"));
            }
            if forced(|c| c.force_null) {
                return Err(unsupported("COPY force null available only in CSV mode"));
            }
        }
        Ok(())
    }
}

fn mark(
    set: &ColumnSet,
    option: &str,
    relid: pg_sys::Oid,
    columns: &mut [Column],
    mark: impl Fn(&mut Column),
) -> Result<()> {
    match set {
        ColumnSet::None => (),
        ColumnSet::All => columns.iter_mut().for_each(mark),
        ColumnSet::Named(names) => {
            for name in names {
                attribute_number(relid, name)?;
                let Some(column) = columns.iter_mut().find(|c| c.name == *name) else {
                    let message = format!("{option} column \"{}\" not referenced by COPY", name.to_string_lossy());
                    return Err(Error::new(Code::ERRCODE_INVALID_COLUMN_REFERENCE, message));
                };
                mark(column);
            }
        }
    }
    Ok(())
}

/// The number of a column that a file can have a field for, or `CopyGetAttnums`' complaint. Guarded.
pub fn attribute_number(relid: pg_sys::Oid, name: &CStr) -> Result<i16> {
    // SAFETY: guarded catalog lookups.
    let (attnum, relation, generated) = unsafe {
        let relation = pg_sys::get_rel_name(relid);
        let relation = if relation.is_null() { c"?" } else { CStr::from_ptr(relation) };
        let attnum = pg_sys::get_attnum(relid, name.as_ptr());
        let generated = attnum > 0 && pg_sys::get_attgenerated(relid, attnum) != 0;
        (attnum, relation.to_string_lossy(), generated)
    };
    let name = name.to_string_lossy();
    if generated {
        return Err(Error::new(
            Code::ERRCODE_INVALID_COLUMN_REFERENCE,
            format!("column \"{name}\" is a generated column"),
        )
        .detail("Generated columns cannot be used in COPY."));
    }
    if attnum <= 0 {
        let message = format!("column \"{name}\" of relation \"{relation}\" does not exist");
        return Err(Error::new(Code::ERRCODE_UNDEFINED_COLUMN, message));
    }
    Ok(attnum)
}
