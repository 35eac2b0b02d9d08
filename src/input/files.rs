//! Lists the files that a pattern matches or that a directory contains.
//!
//! A name that exists and is no directory means that file, whatever characters it contains. A directory means the
//! regular files in it. Otherwise a name with `*`, `?` or `[` means the regular files that it matches ([`pattern`]).
//! Names that begin with a dot are skipped, and directories in a directory are not entered.
//!
//! With the directory of a server or with pg_bulk.allowed_directories, files and directories outside are neither listed
//! nor read. The position of an open directory is checked before anything in it is read ([`open`]). The name of a
//! server's directory is never part of a pattern, whatever characters it contains.
//!
//! The list is built once, just before it is read, in the byte order of the names. The reader of a file checks that it
//! is still the listed file. Other processes of a load receive the list as bytes, and build none of their own.

use std::ffi::{CStr, CString, OsStr};
use std::fs::{File, Metadata, ReadDir};
use std::io::Error as IoError;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use pgrx::PgSqlErrorCode as Code;

use super::directory::Below;
use super::file_identity::Identity;
use super::pattern::{self, is_pattern};
use super::source::is_below;
use crate::error::{Error, Result};
use crate::guc;
use crate::server::points::{point_errno, point_quiet};

/// A file of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub path: CString,
    /// Identity of the file when it was listed.
    pub identity: Identity,
    /// Several processes can read the file at once.
    pub splits: bool,
}

/// Files in the order in which they are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileList {
    /// The directory or pattern that was given.
    pub name: CString,
    pub files: Vec<Listed>,
    /// The directory that must contain the files when they are opened.
    pub below: Option<Below>,
}

fn path_of(name: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(name.to_bytes()))
}

fn metadata(path: &CStr, below: Option<&Below>) -> std::io::Result<Metadata> {
    below.map_or_else(|| std::fs::metadata(path_of(path)), Below::metadata)
}

/// Returns the part of a name that is a pattern, if it is one.
fn pattern_of(name: &CStr, below: Option<&Below>) -> Option<Vec<u8>> {
    let name = name.to_bytes();
    let pattern = match below {
        None => name.to_vec(),
        Some(below) => {
            let mut rest = below.rest()?.as_os_str().as_bytes().to_vec();
            // A Path drops the final slash, which requires a directory.
            if name.ends_with(b"/") || name.ends_with(b"/.") {
                rest.push(b'/');
            }
            rest
        }
    };
    is_pattern(&pattern).then_some(pattern)
}

/// Whether the name may mean several files. Errors are left to the code that opens it.
pub fn may_be_several(name: &CStr, below: Option<&Below>) -> bool {
    match metadata(name, below) {
        Ok(meta) => meta.is_dir(),
        Err(_) => pattern_of(name, below).is_some(),
    }
}

/// Whether the name is a pattern, and no file or directory.
pub fn is_pattern_name(name: &CStr, below: Option<&Below>) -> bool {
    pattern_of(name, below).is_some() && metadata(name, below).is_err()
}

/// Limited by the size of a position in a file (`load::direct::origin`).
const MOST: usize = 1 << 20;

impl FileList {
    /// Returns the files for a name, at least one; None if the name means a single file. Guarded, and interruptible.
    pub fn of(name: &CStr, below: Option<&Below>) -> Result<Option<FileList>> {
        let found = match metadata(name, below) {
            Ok(meta) if meta.is_dir() => in_directory(name, below)?,
            Ok(_) => return Ok(None),
            Err(_) => match pattern_of(name, below) {
                Some(pattern) => matches(name, &pattern, below)?,
                // The code that opens the name reports the error.
                None => return Ok(None),
            },
        };
        let mut files = Vec::with_capacity(found.len());
        for path in found {
            point_quiet!("files.entry");
            pgrx::check_for_interrupts!();
            files.extend(listed(path, below)?);
        }
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        files.dedup_by(|a, b| a.path == b.path);
        if files.is_empty() {
            return Err(none(name, below));
        }
        Ok(Some(FileList { name: name.to_owned(), files, below: below.cloned() }))
    }

    /// Returns the list with only some of the files.
    pub fn keeping(mut self, files: Vec<Listed>) -> FileList {
        self.files = files;
        self
    }

    /// Returns the total size in bytes.
    pub fn size(&self) -> u64 {
        self.files.iter().map(|file| file.identity.size).sum()
    }

    /// Returns the list as bytes, for other processes.
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

    /// Reads the list from bytes. `None` if they are not from [`FileList::write`].
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

/// Error for a directory or pattern without files.
fn none(name: &CStr, below: Option<&Below>) -> Error {
    let shown = name.to_string_lossy();
    if metadata(name, below).is_ok_and(|meta| meta.is_dir()) {
        return Error::new(Code::ERRCODE_WRONG_OBJECT_TYPE, format!("\"{shown}\" is a directory"))
            .hint("The directory has no file that can be read.");
    }
    let error = IoError::from_raw_os_error(libc::ENOENT);
    Error::file_access(&format!("could not open file \"{shown}\" for reading"), &error)
        .hint("No file matches the pattern.")
}

/// Fails if there are too many files.
fn check_room(name: &CStr, count: usize) -> Result<()> {
    if count <= MOST {
        return Ok(());
    }
    let message = format!("\"{}\" matches or searches more than {MOST} files and directories", name.to_string_lossy());
    Err(Error::new(Code::ERRCODE_PROGRAM_LIMIT_EXCEEDED, message))
}

/// Returns the entry for a regular file or a link to one.
fn listed(path: CString, below: Option<&Below>) -> Result<Option<Listed>> {
    let below = below.map(|below| below.at(path.as_bytes()));
    below.as_ref().map_or(Ok(()), Below::check_name)?;
    let found = match point_errno!("files.stat") {
        Some(errno) => Err(IoError::from_raw_os_error(errno)),
        None => metadata(&path, below.as_ref()),
    };
    match found {
        Ok(meta) if meta.is_file() => Ok(Some(Listed { path, identity: Identity::of(&meta), splits: false })),
        Ok(_) => Ok(None),
        // The file was removed, or is a link without a target.
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP)) => Ok(None),
        Err(e) => Err(Error::file_access(&format!("could not stat file \"{}\"", path.to_string_lossy()), &e)),
    }
}

/// Whether the path is below an allowed directory. If it does not exist or is not accessible, its nearest accessible
/// parent decides.
fn is_allowed(path: &Path, allowed: &[PathBuf]) -> bool {
    let path = Path::new(".").join(path);
    let real = path.ancestors().find_map(|path| std::fs::canonicalize(path).ok()).unwrap_or_default();
    allowed.iter().any(|dir| std::fs::canonicalize(dir).is_ok_and(|dir| real.starts_with(dir)))
}

/// The message names only the given name, so that it reveals no names outside.
fn not_allowed(name: &CStr) -> Error {
    let name = name.to_string_lossy();
    let message = format!("file \"{name}\" is not below a directory of pg_bulk.allowed_directories");
    Error::new(Code::ERRCODE_INSUFFICIENT_PRIVILEGE, message)
}

fn in_directory(name: &CStr, below: Option<&Below>) -> Result<Vec<CString>> {
    let directory = path_of(name);
    let failed =
        |e: IoError| Error::file_access(&format!("could not open directory \"{}\"", name.to_string_lossy()), &e);
    let allowed = guc::allowed_directories();
    let mut found = Vec::new();
    for entry in open(directory, name, below, allowed.as_deref())?.map_err(failed)? {
        point_quiet!("directory.entry");
        pgrx::check_for_interrupts!();
        let entry = point_errno!("directory.read").map_or(entry, |errno| Err(IoError::from_raw_os_error(errno)));
        let entry = entry.map_err(failed)?.file_name();
        if !entry.as_bytes().starts_with(b".") {
            found.extend(CString::new(directory.join(entry).as_os_str().as_bytes()));
            check_room(name, found.len())?;
        }
    }
    Ok(found)
}

/// Returns the paths that match a pattern.
fn matches(name: &CStr, pattern: &[u8], below: Option<&Below>) -> Result<Vec<CString>> {
    below.map_or(Ok(()), Below::check_pattern)?;
    let start = below.map_or(b"".as_slice(), Below::directory);
    let allowed = guc::allowed_directories();
    let open = |directory: &Path| open(directory, name, below, allowed.as_deref());
    let paths = pattern::matches(start, pattern, &open, &|count| check_room(name, count))?;
    if let Some(allowed) = &allowed {
        let mut last = None;
        for path in &paths {
            pgrx::check_for_interrupts!();
            let parent = path_of(path).parent().unwrap_or(Path::new("/"));
            if last != Some(parent) && !is_allowed(parent, allowed) {
                return Err(not_allowed(name));
            }
            last = Some(parent);
        }
    }
    Ok(paths)
}

/// Opens a directory and returns its entries; `name` is the user's name. The outer error means that the directory is
/// outside; any other error is the inner one.
fn open(
    directory: &Path,
    name: &CStr,
    below: Option<&Below>,
    allowed: Option<&[PathBuf]>,
) -> Result<std::io::Result<ReadDir>> {
    let below = below.map(|below| below.at(directory.as_os_str().as_bytes()));
    below.as_ref().map_or(Ok(()), Below::check_name)?;
    let flags = libc::O_DIRECTORY | libc::O_NONBLOCK;
    match File::options().read(true).custom_flags(flags).open(directory) {
        Ok(file) => {
            let fd = file.as_raw_fd();
            below.as_ref().map_or(Ok(()), |below| below.check(fd))?;
            if allowed.is_some_and(|allowed| !is_below(fd, allowed)) {
                return Err(not_allowed(name));
            }
            // Read the directory whose position was checked.
            Ok(std::fs::read_dir(format!("/proc/self/fd/{fd}")))
        }
        // The error must not reveal whether a directory exists outside.
        Err(_) if allowed.is_some_and(|allowed| !is_allowed(directory, allowed)) => Err(not_allowed(name)),
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
