//! The files that one name stands for: those that a pattern matches, or those of a directory.
//!
//! A name that exists and is no directory is that file, whatever characters it has. A directory stands for the regular files
//! in it, a name with `*`, `?` or `[` for the regular files that it matches as in a shell (glob(7)). Names that begin with
//! a dot are left out, and directories in a directory are not entered.
//!
//! The list is made once, when it is about to be read, in the order of the names' bytes. Whoever reads a file of it looks
//! whether it is still the one that was met then; processes that share the work get the list as bytes, and make none
//! of their own. A scan that each process of a parallel query does on its own makes its own list.

use std::ffi::{CStr, CString, OsStr};
use std::fs::Metadata;
use std::io::{Error as IoError, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use pgrx::PgSqlErrorCode as Code;

use super::chunk::Identity;
use crate::error::{Error, Result};
use crate::guc;

/// One of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub path: CString,
    /// What it was.
    pub identity: Identity,
    /// Several processes can read it at once.
    pub splits: bool,
}

/// The files, in the order in which they are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileList {
    /// The name that stands for them.
    pub name: CString,
    pub files: Vec<Listed>,
}

fn path_of(name: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(name.to_bytes()))
}

/// A place in one of them is told in one word (`load::direct::origin`).
const MOST: usize = 1 << 20;

impl FileList {
    /// The files that a name stands for, one at least; None if it is a file's own. May raise no more than it returns.
    pub fn of(name: &CStr) -> Result<Option<FileList>> {
        let found = match std::fs::metadata(path_of(name)) {
            Ok(meta) if meta.is_dir() => in_directory(name)?,
            // Whatever is wrong with it, who opens it will say.
            Err(_) if name.to_bytes().iter().any(|byte| b"*?[".contains(byte)) => matches(name)?,
            _ => return Ok(None),
        };
        if found.len() > MOST {
            let message = format!("\"{}\" stands for more than {MOST} files", name.to_string_lossy());
            return Err(Error::new(Code::ERRCODE_PROGRAM_LIMIT_EXCEEDED, message));
        }
        let mut files: Vec<Listed> = found.into_iter().filter_map(listed).collect();
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        if files.is_empty() {
            return Err(none(name));
        }
        Ok(Some(FileList { name: name.to_owned(), files }))
    }

    /// Their bytes.
    pub fn size(&self) -> u64 {
        self.files.iter().map(|file| file.identity.size).sum()
    }

    /// As bytes, for other processes.
    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let string = |out: &mut Vec<u8>, string: &CStr| out.extend_from_slice(string.to_bytes_with_nul());
        string(&mut out, &self.name);
        for file in &self.files {
            string(&mut out, &file.path);
            out.extend(file.identity.to_bytes());
            out.push(u8::from(file.splits));
        }
        out
    }

    /// `None` if these bytes are not what [`FileList::write`] makes.
    pub fn read(mut bytes: &[u8]) -> Option<FileList> {
        fn string(bytes: &mut &[u8]) -> Option<CString> {
            let string = CStr::from_bytes_until_nul(bytes).ok()?;
            *bytes = bytes.get(string.count_bytes() + 1..)?;
            Some(string.to_owned())
        }
        let name = string(&mut bytes)?;
        let mut files = Vec::new();
        while !bytes.is_empty() {
            let path = string(&mut bytes)?;
            let (identity, rest) = bytes.split_first_chunk()?;
            let (&splits, rest) = rest.split_first()?;
            files.push(Listed { path, identity: Identity::from_bytes(*identity), splits: splits != 0 });
            bytes = rest;
        }
        (!files.is_empty()).then_some(FileList { name, files })
    }
}

/// There is no file.
fn none(name: &CStr) -> Error {
    let shown = name.to_string_lossy();
    if path_of(name).is_dir() {
        return Error::new(Code::ERRCODE_WRONG_OBJECT_TYPE, format!("\"{shown}\" is a directory"))
            .hint("There is no file in it that could be read.");
    }
    let error = IoError::from_raw_os_error(libc::ENOENT);
    Error::file_access(&format!("could not open file \"{shown}\" for reading"), &error)
        .hint("No file matches the pattern.")
}

/// A regular file, which a link may lead to.
fn listed(path: CString) -> Option<Listed> {
    let meta = std::fs::metadata(path_of(&path)).ok().filter(Metadata::is_file)?;
    Some(Listed { path, identity: Identity::of(&meta), splits: false })
}

/// Nobody is to learn the names in a directory that is not below one of pg_bulk.allowed_directories.
fn check_directory(directory: &Path, name: &CStr, allowed: &[PathBuf]) -> Result<()> {
    let is_below =
        |real: PathBuf| allowed.iter().any(|dir| std::fs::canonicalize(dir).is_ok_and(|dir| real.starts_with(dir)));
    if std::fs::canonicalize(directory).is_ok_and(is_below) {
        return Ok(());
    }
    let name = name.to_string_lossy();
    let message = format!("file \"{name}\" is not below a directory of pg_bulk.allowed_directories");
    Err(Error::new(Code::ERRCODE_INSUFFICIENT_PRIVILEGE, message))
}

fn in_directory(name: &CStr) -> Result<Vec<CString>> {
    let directory = path_of(name);
    if let Some(allowed) = guc::allowed_directories() {
        check_directory(directory, name, &allowed)?;
    }
    let failed =
        |e: IoError| Error::file_access(&format!("could not open directory \"{}\"", name.to_string_lossy()), &e);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !entry.file_name().as_bytes().starts_with(b".") {
            found.extend(CString::new(entry.path().into_os_string().as_bytes()));
        }
    }
    Ok(found)
}

/// What glob(3) finds.
fn matches(name: &CStr) -> Result<Vec<CString>> {
    // SAFETY: a struct of the C library's, all of whose fields may be zero.
    let mut found = unsafe { std::mem::zeroed::<libc::glob_t>() };
    let flags = libc::GLOB_NOSORT | libc::GLOB_ERR;
    // SAFETY: a valid string and a struct to be filled; nobody else is told of errors.
    let status = unsafe { libc::glob(name.as_ptr(), flags, None, &raw mut found) };
    let error = IoError::last_os_error();
    let mut paths = Vec::new();
    if status == 0 {
        for i in 0..found.gl_pathc as usize {
            // SAFETY: glob has found so many, NUL-terminated; they are copied.
            paths.push(unsafe { CStr::from_ptr(*found.gl_pathv.add(i)) }.to_owned());
        }
    }
    // SAFETY: filled by glob, or zero.
    unsafe { libc::globfree(&raw mut found) };
    match status {
        0 | libc::GLOB_NOMATCH => (),
        libc::GLOB_NOSPACE => return Err(crate::error::out_of_memory()),
        // A directory that is not there has no files that match.
        _ if error.kind() == ErrorKind::NotFound => (),
        _ => {
            let name = name.to_string_lossy();
            return Err(Error::file_access(&format!("could not open file \"{name}\" for reading"), &error));
        }
    }
    if let Some(allowed) = guc::allowed_directories() {
        let mut last = None;
        for path in &paths {
            let parent = path_of(path).parent();
            if last != Some(parent) {
                check_directory(parent.unwrap_or(Path::new("/")), name, &allowed)?;
                last = Some(parent);
            }
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_the_list() {
        let identity = Identity::of(&std::fs::metadata("/").unwrap());
        let file = |path: &CStr, splits| Listed { path: path.to_owned(), identity, splits };
        let list = FileList { name: c"/d/*".to_owned(), files: vec![file(c"/d/a", true), file(c"/d/b", false)] };
        let bytes = list.write();
        assert_eq!(FileList::read(&bytes), Some(list));
        assert_eq!(FileList::read(&bytes[..bytes.len() - 1]), None);
        assert_eq!(FileList::read(b"/d/*\0"), None);
    }
}
