//! The files that one name stands for: those that a pattern matches, or those of a directory.
//!
//! A name that exists and is no directory is that file, whatever characters it has. A directory stands for the regular files
//! in it, a name with `*`, `?` or `[` for the regular files that it matches as in a shell (glob(7)). Names that begin with
//! a dot are left out, and directories in a directory are not entered.
//!
//! Below the directory of a server, nothing is listed that is not below it, and no directory looked into.
//!
//! The list is made once, when it is about to be read, in the order of the names' bytes. Whoever reads a file of it looks
//! whether it is still the one that was met then; processes that share the work get the list as bytes, and make none
//! of their own.

use std::ffi::{CStr, CString, OsStr};
use std::fs::{File, Metadata, ReadDir};
use std::io::Error as IoError;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use pgrx::PgSqlErrorCode as Code;

use super::chunk::Identity;
use super::directory::Below;
use super::pattern::{self, is_pattern};
use super::source::Location;
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
    /// What they must be below, whoever opens one.
    below: Option<Below>,
}

fn path_of(name: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(name.to_bytes()))
}

fn metadata(path: &CStr, below: Option<&Below>) -> std::io::Result<Metadata> {
    below.map_or_else(|| std::fs::metadata(path_of(path)), Below::metadata)
}

/// Is it the name of several files, whichever they are? Whatever is wrong with it, who opens it will say.
pub fn may_be_several(name: &CStr, below: Option<&Below>) -> bool {
    match metadata(name, below) {
        Ok(meta) => meta.is_dir(),
        Err(_) => is_pattern(name.to_bytes()),
    }
}

/// A place in one of them is told in one word (`load::direct::origin`).
const MOST: usize = 1 << 20;

impl FileList {
    /// The files that a name stands for, one at least; None if it is a file's own. Guarded, and interruptible.
    pub fn of(name: &CStr, below: Option<&Below>) -> Result<Option<FileList>> {
        let found = match metadata(name, below) {
            Ok(meta) if meta.is_dir() => in_directory(name, below)?,
            // Whatever is wrong with it, who opens it will say.
            Err(_) if is_pattern(name.to_bytes()) => matches(name, below)?,
            _ => return Ok(None),
        };
        if found.len() > MOST {
            let message = format!("\"{}\" stands for more than {MOST} files", name.to_string_lossy());
            return Err(Error::new(Code::ERRCODE_PROGRAM_LIMIT_EXCEEDED, message));
        }
        let mut files = Vec::with_capacity(found.len());
        for path in found {
            pgrx::check_for_interrupts!();
            files.extend(listed(path, below)?);
        }
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        if files.is_empty() {
            return Err(none(name));
        }
        Ok(Some(FileList { name: name.to_owned(), files, below: below.cloned() }))
    }

    /// What to open for one of them.
    pub fn location(&self, file: &Listed) -> Location {
        match &self.below {
            Some(below) => Location::Below(below.at(file.path.as_bytes())),
            None => Location::File(file.path.clone()),
        }
    }

    /// A list that another process has made of this location.
    pub fn made_of(mut self, location: &Location) -> FileList {
        self.below = location.below().cloned();
        self
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
        (!files.is_empty()).then_some(FileList { name, files, below: None })
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
fn listed(path: CString, below: Option<&Below>) -> Result<Option<Listed>> {
    let below = below.map(|below| below.at(path.as_bytes()));
    below.as_ref().map_or(Ok(()), Below::check_name)?;
    let meta = metadata(&path, below.as_ref()).ok().filter(Metadata::is_file);
    Ok(meta.map(|meta| Listed { path, identity: Identity::of(&meta), splits: false }))
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

fn in_directory(name: &CStr, below: Option<&Below>) -> Result<Vec<CString>> {
    let directory = path_of(name);
    if let Some(allowed) = guc::allowed_directories() {
        check_directory(directory, name, &allowed)?;
    }
    let failed =
        |e: IoError| Error::file_access(&format!("could not open directory \"{}\"", name.to_string_lossy()), &e);
    let mut found = Vec::new();
    for entry in open(directory, below)?.map_err(failed)? {
        pgrx::check_for_interrupts!();
        let entry = entry.map_err(failed)?.file_name();
        if !entry.as_bytes().starts_with(b".") {
            found.extend(CString::new(directory.join(entry).as_os_str().as_bytes()));
        }
    }
    Ok(found)
}

/// What a pattern matches.
fn matches(name: &CStr, below: Option<&Below>) -> Result<Vec<CString>> {
    below.map_or(Ok(()), Below::check_spelling)?;
    let paths = pattern::matches(name.to_bytes(), &|directory| open(directory, below))?;
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

/// The names in a directory. What is wrong with it is an error of the inner kind, unless it is not below where it must be.
fn open(directory: &Path, below: Option<&Below>) -> Result<std::io::Result<ReadDir>> {
    let Some(below) = below else { return Ok(std::fs::read_dir(directory)) };
    let below = below.at(directory.as_os_str().as_bytes());
    below.check_name()?;
    let flags = libc::O_DIRECTORY | libc::O_NONBLOCK;
    match File::options().read(true).custom_flags(flags).open(directory) {
        Ok(file) => {
            below.check(file.as_raw_fd())?;
            // What was looked at is what is read.
            Ok(std::fs::read_dir(format!("/proc/self/fd/{}", file.as_raw_fd())))
        }
        Err(error) => Ok(Err(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_the_list() {
        let identity = Identity::of(&std::fs::metadata("/").unwrap());
        let file = |path: &CStr, splits| Listed { path: path.to_owned(), identity, splits };
        let files = vec![file(c"/d/a", true), file(c"/d/b", false)];
        let list = FileList { name: c"/d/*".to_owned(), files, below: None };
        let bytes = list.write();
        assert_eq!(FileList::read(&bytes), Some(list));
        assert_eq!(FileList::read(&bytes[..bytes.len() - 1]), None);
        assert_eq!(FileList::read(b"/d/*\0"), None);
    }
}
