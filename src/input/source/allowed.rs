//! Checks of `pg_bulk.allowed_directories`.

use std::ffi::{CStr, OsStr, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use pgrx::PgSqlErrorCode as Code;

use crate::error::{Error, Result};
use crate::guc;

/// Does pg_bulk.allowed_directories allow this file, by its name? Once it is open, [`is_below`] checks the descriptor.
pub fn is_allowed(path: &Path) -> bool {
    guc::allowed_directories().is_none_or(|allowed| {
        let real = std::fs::canonicalize(path).unwrap_or_default();
        allowed.iter().any(|dir| std::fs::canonicalize(dir).is_ok_and(|dir| real.starts_with(dir)))
    })
}

/// Is the file of this descriptor below one of these directories?
pub fn is_below(fd: c_int, directories: &[PathBuf]) -> bool {
    let real = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
    directories.iter().any(|dir| std::fs::canonicalize(dir).is_ok_and(|dir| real.starts_with(dir)))
}

/// The error for a file that is not allowed.
pub fn outside(name: &str) -> Error {
    let message = format!("file \"{name}\" is not below a directory of pg_bulk.allowed_directories");
    Error::new(Code::ERRCODE_INSUFFICIENT_PRIVILEGE, message)
}

/// Raise an error for a special file outside the allowed directories before it is opened, as far as its name shows
/// that. Otherwise the writer of a FIFO would see a reader that comes and goes.
pub fn check_special(name: &CStr) -> Result<()> {
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    if !is_allowed(path) && std::fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir()) {
        return Err(outside(&name.to_string_lossy()));
    }
    Ok(())
}
