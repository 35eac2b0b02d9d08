//! The input of a load: a path, or a query, a large object or bytes in its place.
//!
//! ```text
//!   bulk_load(path, …)                                 a file, a program's command, a file below a server's directory
//!   bulk_load(NULL, …, '{"query": "SELECT …"}')        the rows of a query
//!   bulk_load(NULL, …, '{"large_object": 16400}')      a file's bytes, in a large object
//!   bulk_load(data, …)                                 a file's bytes, in a value
//! ```
//!
//! Input from the database excludes options about files and programs. A query also excludes options about the format.
//! Neither requires rights to the server's files.

use std::ffi::{CStr, CString};

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::{LoadOptions, Once};
use crate::error::{Error, Result};
use crate::input::directory::file_of;
use crate::input::source::{Bytes, LargeObject, Location};
use crate::load::wrapper::Wrapper;
use crate::rows::soft::OnError;
use crate::server::option_value::{invalid, text};

/// The options that replace the path.
pub const NAMES: [&str; 2] = ["query", "large_object"];

/// Options that a query permits.
const OF_QUERY: [&str; 16] = [
    "query", "limit", "on_error", "reject_limit", "columns", "where", "truncate", "freeze", "analyze", "writer",
    "workers", "lock", "indexes", "on_duplicate", "conflict_index", "duplicate_limit",
];
/// Options about files.
const OF_FILES: [&str; 5] = ["program", "server", "once", "force", "each_file"];

/// The first argument of a call.
#[derive(Debug, Clone, Copy)]
pub enum Given<'a> {
    Path(&'a CStr),
    /// The argument is NULL.
    Nothing,
    Data(Bytes),
}

fn both(one: &str, other: &str) -> Error {
    invalid(format!("cannot specify both {one} and {other}"))
}

impl<'a> Given<'a> {
    /// The path to parse the options with.
    pub fn path(self) -> &'a CStr {
        match self {
            Given::Path(path) => path,
            Given::Nothing | Given::Data(_) => c"",
        }
    }

    /// Completes options that were parsed with [`Given::path`].
    pub fn complete(self, options: LoadOptions) -> Result<LoadOptions> {
        match self {
            Given::Path(_) => Ok(options),
            Given::Nothing if options.location.is_inside() => Ok(options),
            Given::Nothing => Err(Error::new(Code::ERRCODE_NULL_VALUE_NOT_ALLOWED, "path must not be null")),
            Given::Data(bytes) => {
                let other = match options.location {
                    Location::Query => Some("query"),
                    Location::LargeObject(_) => Some("large_object"),
                    Location::Program(_) => Some("program"),
                    Location::Below(_) => Some("server"),
                    _ if options.once != Once::No => Some("once"),
                    _ if options.job.each_file => Some("each_file"),
                    _ => None,
                };
                match other {
                    Some(other) => Err(both("data", other)),
                    None => Ok(LoadOptions { location: Location::Bytes(bytes), ..options }),
                }
            }
        }
    }
}

/// The location of a path: a file, a program's command, or a file below a server's directory. Guarded.
pub fn location(path: &CStr, is_program: bool, server: Option<&CStr>) -> Result<Location> {
    match server {
        Some(_) if is_program => Err(invalid("cannot specify both program and server")),
        Some(server) => Ok(Location::Below(file_of(server, path, Wrapper::get()?.owns)?)),
        None if is_program => Ok(Location::Program(path.to_owned())),
        None => Ok(Location::File(path.to_owned())),
    }
}

/// Options that replace the path.
#[derive(Debug, Default)]
pub struct InPlace {
    query: Option<CString>,
    object: Option<pg_sys::Oid>,
}

impl InPlace {
    /// Sets one of [`NAMES`].
    pub fn set(&mut self, name: &str, value: &[u8]) -> Result<()> {
        if name == "query" {
            // A string of the server has no zero byte.
            self.query = Some(CString::new(value).unwrap_or_default());
            return Ok(());
        }
        let number = text(value).parse().ok().filter(|oid| *oid != 0);
        let bad = || invalid("large_object must be the OID of a large object");
        self.object = Some(pg_sys::Oid::from_u32(number.ok_or_else(bad)?));
        Ok(())
    }

    /// The location, if an option gives one, and the query. `names` are the names of all given options.
    pub fn finish<'a>(
        self,
        path: &CStr,
        on_error: OnError,
        mut names: impl Iterator<Item = &'a str>,
    ) -> Result<Option<(Location, Option<CString>)>> {
        let (name, other, location) = match (&self.query, self.object) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => return Err(both("query", "large_object")),
            (Some(_), None) => ("query", names.find(|name| !OF_QUERY.contains(name)), Location::Query),
            (None, Some(oid)) => {
                let object = Location::LargeObject(LargeObject::new(oid));
                ("large_object", names.find(|name| OF_FILES.contains(name)), object)
            }
        };
        if !path.is_empty() {
            return Err(both("a path", name));
        }
        if let Some(other) = other {
            return Err(both(name, other));
        }
        if location == Location::Query && !matches!(on_error, OnError::Stop | OnError::Table) {
            return Err(invalid("on_error must be \"stop\" or \"table\" for the rows of a query"));
        }
        Ok(Some((location, self.query)))
    }
}
