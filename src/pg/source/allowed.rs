//! What may be opened, as far as `pg_bulk.allowed_directories` says.

use std::ffi::{CStr, OsStr, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use pgrx::PgSqlErrorCode as Code;

use crate::error::{Error, Result};
use crate::guc;

/// May a file be opened, as far as pg_bulk.allowed_directories says by its name? Once it is open, the descriptor tells.
pub fn is_allowed(path: &Path) -> bool {
    guc::allowed_directories().is_none_or(|allowed| {
        let real = std::fs::canonicalize(path).unwrap_or_default();
        allowed.iter().any(|dir| std::fs::canonicalize(dir).is_ok_and(|dir| real.starts_with(dir)))
    })
}

/// Is what a descriptor of this process means below one of these directories?
pub fn is_below(fd: c_int, directories: &[PathBuf]) -> bool {
    let real = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
    directories.iter().any(|dir| std::fs::canonicalize(dir).is_ok_and(|dir| real.starts_with(dir)))
}

/// The error about a file that may not be.
pub fn outside(name: &str) -> Error {
    let message = format!("file \"{name}\" is not below a directory of pg_bulk.allowed_directories");
    Error::new(Code::ERRCODE_INSUFFICIENT_PRIVILEGE, message)
}

/// Complain about what is not below an allowed directory before it is opened, if that is noticed: who writes to a FIFO would
/// see a reader that goes away.
pub fn check_special(name: &CStr) -> Result<()> {
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    if !is_allowed(path) && std::fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir()) {
        return Err(outside(&name.to_string_lossy()));
    }
    Ok(())
}
