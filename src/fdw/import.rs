//! IMPORT FOREIGN SCHEMA: a foreign table for each file of a directory.
//!
//! The name of the schema is a directory, a pattern, or a file; `input::files` expands it, and `rows::sniff` inspects each
//! file. Core receives statements, and runs them as if the user had typed them. So the validator checks the right to
//! name a file once more. It is checked here before any file is inspected.
//!
//! A name in SQL has at most 63 bytes, and directories may have longer names: then the option `filename` has the
//! location.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;

use pgrx::{PgList, PgLogLevel, PgSqlErrorCode as Code, ereport, pg_sys};

use super::servers::role_missing;
use crate::error::{Error, Result};
use crate::input::directory::{Below, check_usage, directory_of, reads_all};
use crate::input::encoding::{Encodings, invalid_in_server_encoding, shown};
use crate::input::source::Location;
use crate::program::copy_question;
use crate::rows::sniff::{self, Request, identifier, table_name};
use crate::server::call::calls;
use crate::server::node::Node;
use crate::server::option_value::{Caller, OptionValue, stored};
use crate::server::role::current_user;
use crate::server::server_text::from_server;

/// The options besides those that describe a file.
const NAMES: &[&str] = &["filename", "sample"];

/// ImportForeignSchema: makes the CREATE FOREIGN TABLE statements of a directory.
pub fn import(statement: Node<'_, pg_sys::ImportForeignSchemaStmt>, server: pg_sys::Oid) -> Result<*mut pg_sys::List> {
    let mut list = PgList::<std::ffi::c_char>::new();
    for command in commands(statement, server)? {
        let command = CString::new(command).unwrap_or_default();
        // SAFETY: a guarded call, which copies the string.
        list.push(unsafe { pg_sys::pstrdup(command.as_ptr()) });
    }
    Ok(list.into_pg())
}

// SAFETY: a string, and the statement.
calls! {
    fn is_wanted(table: &CStr, statement: Node<'_, pg_sys::ImportForeignSchemaStmt>) -> bool
        = IsImportableForeignTable(table, statement);
}

fn commands(statement: Node<'_, pg_sys::ImportForeignSchemaStmt>, server: pg_sys::Oid) -> Result<Vec<Vec<u8>>> {
    let mut request = Request::new(Caller::ForeignTable);
    let mut filename = None;
    let (schema, server_name) = (statement.schema().unwrap_or_default(), statement.server().unwrap_or_default());
    for (name, value) in stored(statement.options()) {
        if name == "filename" {
            filename = Some(CString::new(value).unwrap_or_default());
        } else if !request.set(&name, &OptionValue::Text(value))? {
            let valid: Vec<_> = sniff::NAMES.iter().chain(NAMES).copied().collect();
            return Err(Caller::ForeignTable.unknown(&name, &valid));
        }
    }
    let path = filename.as_deref().unwrap_or(schema);
    let location = location(server, path)?;
    copy_question::may_read(&location);
    let files: Vec<Location> = match location.files()? {
        Some(list) => list.files.iter().map(|file| list.location(file)).collect(),
        None => vec![location],
    };
    let (mut commands, mut known) = (Vec::new(), HashMap::new());
    for file in files {
        let table = table_name(file.name(), false);
        let name = CString::new(table.as_slice()).unwrap_or_default();
        if !is_wanted(&name, statement) {
            continue;
        }
        // The option's value would not be valid text.
        if invalid_in_server_encoding(file.name().to_bytes()).is_some() {
            let (path, encoding) = (shown(file.name()), Encodings::server_name());
            let message = format!("name of file \"{path}\" is not valid in encoding \"{encoding}\"");
            return Err(Error::new(Code::ERRCODE_CHARACTER_NOT_IN_REPERTOIRE, message)
                .hint(format!("Exclude the file with EXCEPT ({}).", String::from_utf8_lossy(&identifier(&table)))));
        }
        if let Some(other) = known.insert(table.clone(), file.display().into_owned()) {
            let message = format!("files \"{other}\" and \"{}\" would be the same foreign table", file.display());
            return Err(Error::new(Code::ERRCODE_DUPLICATE_TABLE, message)
                .detail(format!("Both tables would be named \"{}\".", from_server(&name)))
                .hint("Instead of the directory, import a pattern that matches only one of them."));
        }
        let sniffed = sniff::sniff(&file, &request)?;
        if sniffed.columns.is_empty() {
            let message = format!("file \"{}\" is empty; no foreign table is created", file.display());
            ereport!(PgLogLevel::NOTICE, Code::ERRCODE_SUCCESSFUL_COMPLETION, message);
            continue;
        }
        let failures = if sniffed.rejects > 0 { sniffed.notes.as_slice() } else { &[] };
        for note in failures.iter().chain(&sniffed.foreign_notes) {
            ereport!(
                PgLogLevel::NOTICE,
                Code::ERRCODE_SUCCESSFUL_COMPLETION,
                format!("foreign table \"{}\": {note}", from_server(&name))
            );
        }
        // Relative to the server's directory, which may change.
        let relative = file.below().and_then(Below::rest).map(|rest| CString::new(rest.as_os_str().as_bytes()));
        let path = relative.and_then(std::result::Result::ok).unwrap_or_else(|| file.name().to_owned());
        commands.push(sniffed.create_foreign_table(&identifier(&table), server_name, ("filename", &path)));
    }
    Ok(commands)
}

/// The location that the name stands for; raises unless the current user may read it. Guarded.
fn location(server: pg_sys::Oid, path: &CStr) -> Result<Location> {
    let user = current_user();
    if let Some(directory) = directory_of(server) {
        check_usage(server, user)?;
        return Ok(Location::Below(Below::new(server, &directory, path)));
    }
    if !reads_all(user) {
        return Err(role_missing("pg_read_server_files", "filename", "foreign table"));
    }
    Ok(Location::File(path.to_owned()))
}
