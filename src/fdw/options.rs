//! What the options of a foreign table mean.
//!
//! The names are COPY's and file_fdw's, of every version. [`validate`] is asked when an option is set, and is the only
//! place where the right to name a file or a program is checked, as in file_fdw: whoever may read the table may read
//! the file behind it, so only foreign tables take `filename` and `program`. [`TableOptions::of_table`] reads what
//! is stored, each time a statement needs it.

use std::borrow::Cow;
use std::ffi::{CStr, CString};

use pg_bulk_format::dialect::{Dialect, FormatOptions};
use pgrx::{PgList, PgSqlErrorCode as Code, pg_sys};

use crate::error::{Error, Result};
use crate::pg::column::Column;
use crate::pg::compat;
use crate::pg::encoding::encoding_by_name;
use crate::pg::soft::{OnError, Verbosity};
use crate::pg::source::Location;

const TABLE_OPTIONS: &[&str] = &[
    "filename",
    "program",
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
const COLUMN_OPTIONS: &[&str] = &["force_not_null", "force_null"];

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

/// The options of a foreign table.
#[derive(Debug, Clone)]
pub struct TableOptions {
    pub location: Option<Location>,
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

/// Check the options of an object of the kind that `catalog` keeps.
pub fn validate(options: &[(String, Vec<u8>)], catalog: pg_sys::Oid) -> Result<()> {
    let valid: &[&str] = if catalog == pg_sys::ForeignTableRelationId {
        TABLE_OPTIONS
    } else if catalog == pg_sys::AttributeRelationId {
        COLUMN_OPTIONS
    } else {
        &[]
    };
    for (name, _) in options {
        if !valid.contains(&name.as_str()) {
            return Err(unknown(name, valid));
        }
    }
    if catalog == pg_sys::AttributeRelationId {
        return options.iter().try_for_each(|(name, value)| boolean(name, value).map(drop));
    }
    let parsed = TableOptions::parse(options)?;
    check_rights(parsed.location.as_ref())?;
    if catalog == pg_sys::ForeignTableRelationId && parsed.location.is_none() {
        let message = "either filename or program is required for bulk_fdw foreign tables";
        return Err(Error::new(Code::ERRCODE_FDW_DYNAMIC_PARAMETER_VALUE_NEEDED, message));
    }
    Ok(())
}

fn unknown(name: &str, valid: &[&str]) -> Error {
    let error = Error::new(Code::ERRCODE_FDW_INVALID_OPTION_NAME, format!("invalid option \"{name}\""));
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

fn check_rights(location: Option<&Location>) -> Result<()> {
    let (role, role_name, option) = match location {
        None => return Ok(()),
        Some(Location::File(_)) => (pg_sys::ROLE_PG_READ_SERVER_FILES, "pg_read_server_files", "filename"),
        Some(Location::Program(_)) => (pg_sys::ROLE_PG_EXECUTE_SERVER_PROGRAM, "pg_execute_server_program", "program"),
    };
    // SAFETY: guarded calls.
    if unsafe { pg_sys::has_privs_of_role(pg_sys::GetUserId(), role.into()) } {
        return Ok(());
    }
    let message = format!(
        "only superuser or a role with privileges of the {role_name} role may specify the {option} option of a bulk_fdw foreign table"
    );
    Err(Error::new(Code::ERRCODE_INSUFFICIENT_PRIVILEGE, message))
}

/// Bytes in the server's encoding as text, for what is ASCII and for messages.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

fn syntax(message: String) -> Error {
    Error::new(Code::ERRCODE_SYNTAX_ERROR, message)
}

fn invalid(message: String) -> Error {
    Error::new(Code::ERRCODE_INVALID_PARAMETER_VALUE, message)
}

/// As `defGetBoolean` reads a string, and 0 and 1.
fn boolean(name: &str, value: &[u8]) -> Result<bool> {
    match text(value).to_ascii_lowercase().as_str() {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => Err(syntax(format!("{name} requires a Boolean value"))),
    }
}

fn header(value: &str) -> Result<HeaderOption> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "on" => Ok(HeaderOption::Lines(1)),
        "false" | "off" => Ok(HeaderOption::Lines(0)),
        "match" => Ok(HeaderOption::Match),
        number => match number.parse() {
            Ok(lines) => Ok(HeaderOption::Lines(lines)),
            Err(_) => {
                let wanted = "a Boolean value, a non-negative integer, or the string \"match\"";
                Err(syntax(format!("header requires {wanted}")))
            }
        },
    }
}

fn count(name: &str, value: &str) -> Result<u64> {
    value.parse().map_err(|_| invalid(format!("{name} requires a non-negative integer")))
}

/// `*`, or column names as SQL writes them, separated by commas.
fn column_set(name: &str, value: &[u8]) -> Result<ColumnSet> {
    if value.trim_ascii() == b"*" {
        return Ok(ColumnSet::All);
    }
    let bad = || invalid(format!("argument to option \"{name}\" must be \"*\" or a list of column names"));
    let mut raw: Vec<u8> = value.iter().copied().filter(|&b| b != 0).collect();
    raw.push(0);
    let mut list: *mut pg_sys::List = std::ptr::null_mut();
    // SAFETY: a guarded call that writes NULs into the copy, which outlives the use of the list.
    unsafe {
        if !pg_sys::SplitIdentifierString(raw.as_mut_ptr().cast(), b',' as std::ffi::c_char, &raw mut list) {
            return Err(bad());
        }
        let names = PgList::<std::ffi::c_char>::from_pg(list);
        let names: Vec<CString> = names.iter_ptr().map(|n| CStr::from_ptr(n).to_owned()).collect();
        if names.is_empty() { Err(bad()) } else { Ok(ColumnSet::Named(names)) }
    }
}

impl TableOptions {
    /// Make sense of a table's options; the first complaint is the one that COPY would make.
    fn parse(options: &[(String, Vec<u8>)]) -> Result<TableOptions> {
        let mut format = FormatOptions::default();
        let mut location = None;
        let mut encoding = None;
        let mut header_option = HeaderOption::Lines(0);
        let (mut force_not_null, mut force_null) = (ColumnSet::None, ColumnSet::None);
        let (mut on_error, mut reject_limit, mut verbosity) = (OnError::Stop, 0, Verbosity::Default);
        let (mut skip, mut limit) = (0, None);
        for (name, bytes) in options {
            let value = &*text(bytes);
            let given = || Some(bytes.clone());
            match name.as_str() {
                "filename" | "program" => {
                    if location.is_some() {
                        return Err(syntax("conflicting or redundant options".into()));
                    }
                    let make = if name == "program" { Location::Program } else { Location::File };
                    location = Some(make(CString::new(bytes.as_slice()).unwrap_or_default()));
                }
                "format" => match value {
                    "text" => format.csv = false,
                    "csv" => format.csv = true,
                    "binary" => {
                        let message = "COPY format \"binary\" is not supported by bulk_fdw";
                        return Err(Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message));
                    }
                    _ => return Err(invalid(format!("COPY format \"{value}\" not recognized"))),
                },
                "header" => header_option = header(value)?,
                "delimiter" => format.delimiter = given(),
                "quote" => format.quote = given(),
                "escape" => format.escape = given(),
                "null" => format.null = given(),
                "default" => format.default = given(),
                "encoding" => {
                    let bad = || invalid("argument to option \"encoding\" must be a valid encoding name".into());
                    encoding = Some(encoding_by_name(value).ok_or_else(bad)?);
                }
                "force_not_null" => force_not_null = column_set(name, bytes)?,
                "force_null" => force_null = column_set(name, bytes)?,
                "on_error" => {
                    on_error = match value.to_ascii_lowercase().as_str() {
                        "stop" => OnError::Stop,
                        "ignore" => OnError::Ignore,
                        "set_null" => OnError::SetNull,
                        _ => return Err(invalid(format!("COPY ON_ERROR \"{value}\" not recognized"))),
                    };
                }
                "reject_limit" => {
                    reject_limit = count(name, value)?;
                    if reject_limit == 0 {
                        return Err(invalid("REJECT_LIMIT (0) must be greater than zero".into()));
                    }
                }
                "log_verbosity" => {
                    verbosity = match value.to_ascii_lowercase().as_str() {
                        "silent" => Verbosity::Silent,
                        "default" => Verbosity::Default,
                        "verbose" => Verbosity::Verbose,
                        _ => return Err(invalid(format!("COPY LOG_VERBOSITY \"{value}\" not recognized"))),
                    };
                }
                "skip" => skip = count(name, value)?,
                "limit" => limit = Some(count(name, value)?),
                _ => return Err(unknown(name, TABLE_OPTIONS)),
            }
        }
        format.force_not_null = force_not_null != ColumnSet::None;
        format.force_null = force_null != ColumnSet::None;
        let dialect = Dialect::check(&format, compat::end_marker())?;
        if reject_limit > 0 && on_error != OnError::Ignore {
            return Err(invalid("COPY REJECT_LIMIT requires ON_ERROR to be set to IGNORE".into()));
        }
        Ok(TableOptions {
            location,
            dialect,
            header: header_option,
            encoding,
            force_not_null,
            force_null,
            on_error,
            reject_limit,
            verbosity,
            skip,
            limit,
        })
    }

    /// The options of a foreign table, as stored. Guarded.
    pub fn of_table(relid: pg_sys::Oid) -> Result<TableOptions> {
        // SAFETY: guarded catalog lookups.
        let options = unsafe {
            let table = pg_sys::GetForeignTable(relid);
            stored((*table).options)
        };
        TableOptions::parse(&options)
    }

    /// Where the data are.
    pub fn location(&self) -> Result<&Location> {
        // The validator saw to it, but a catalog can be edited.
        self.location.as_ref().ok_or_else(|| {
            Error::new(
                Code::ERRCODE_INTERNAL_ERROR,
                "either filename or program is required for bulk_fdw foreign tables",
            )
        })
    }

    /// Apply the options that speak of columns, the table's and the columns' own. Guarded.
    pub fn apply_to(&self, relid: pg_sys::Oid, columns: &mut [Column]) -> Result<()> {
        for column in columns.iter_mut() {
            let Ok(attnum) = i16::try_from(column.attribute + 1) else { continue };
            // SAFETY: a guarded catalog lookup.
            let own = unsafe { stored(pg_sys::GetForeignColumnOptions(relid, attnum)) };
            for (name, value) in &own {
                match name.as_str() {
                    "force_not_null" => column.force_not_null = boolean(name, value)?,
                    "force_null" => column.force_null = boolean(name, value)?,
                    _ => (),
                }
            }
        }
        mark(&self.force_not_null, relid, columns, |c| c.force_not_null = true)?;
        mark(&self.force_null, relid, columns, |c| c.force_null = true)?;
        if !self.dialect.is_csv() {
            let forced = |f: fn(&Column) -> bool| columns.iter().any(f);
            let unsupported = |m: &str| Err(Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, m));
            if forced(|c| c.force_not_null) {
                return unsupported("COPY force not null available only in CSV mode");
            }
            if forced(|c| c.force_null) {
                return unsupported("COPY force null available only in CSV mode");
            }
        }
        Ok(())
    }
}

fn mark(set: &ColumnSet, relid: pg_sys::Oid, columns: &mut [Column], mark: impl Fn(&mut Column)) -> Result<()> {
    match set {
        ColumnSet::None => (),
        ColumnSet::All => columns.iter_mut().for_each(mark),
        ColumnSet::Named(names) => {
            for name in names {
                let Some(column) = columns.iter_mut().find(|c| c.name == *name) else {
                    return Err(no_such_column(relid, name));
                };
                mark(column);
            }
        }
    }
    Ok(())
}

/// As CopyGetAttnums complains about a name.
fn no_such_column(relid: pg_sys::Oid, name: &CStr) -> Error {
    // SAFETY: guarded catalog lookups.
    let (attnum, relation) = unsafe {
        let relation = pg_sys::get_rel_name(relid);
        let relation = if relation.is_null() { c"?" } else { CStr::from_ptr(relation) };
        (pg_sys::get_attnum(relid, name.as_ptr()), relation.to_string_lossy())
    };
    let name = name.to_string_lossy();
    if i32::from(attnum) > 0 {
        return Error::new(Code::ERRCODE_INVALID_COLUMN_REFERENCE, format!("column \"{name}\" is a generated column"))
            .detail("Generated columns cannot be used in COPY.");
    }
    let message = format!("column \"{name}\" of relation \"{relation}\" does not exist");
    Error::new(Code::ERRCODE_UNDEFINED_COLUMN, message)
}

/// Names and values of a list of DefElems.
///
/// # Safety
/// A valid list of DefElems with string arguments, or null; a guarded frame.
pub unsafe fn stored(list: *mut pg_sys::List) -> Vec<(String, Vec<u8>)> {
    // SAFETY: the caller vouches for the list.
    unsafe {
        let elements = PgList::<pg_sys::DefElem>::from_pg(list);
        let string = |s: *const std::ffi::c_char| CStr::from_ptr(s).to_bytes().to_vec();
        let name = |e: *mut pg_sys::DefElem| text(&string((*e).defname)).into_owned();
        elements.iter_ptr().map(|e| (name(e), string(pg_sys::defGetString(e)))).collect()
    }
}
