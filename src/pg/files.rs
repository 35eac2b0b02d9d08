//! The files that one name stands for: those that a pattern matches, or those of a directory.
//!
//! A name that exists and is no directory is that file, whatever characters it has. A directory stands for the regular files
//! in it, a name with `*`, `?` or `[` for the regular files that it matches as in a shell (glob(7)). Names that begin with
//! a dot are left out, and directories in a directory are not entered.
//!
//! Below the directory of a server, nothing is listed that is not below it, and no directory looked into; the same goes for
//! pg_bulk.allowed_directories. What counts is where an open directory is, before anything is read of it ([`open`]).
//! The name of a server's directory is no part of a pattern, whatever characters it has.
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
use super::points::{point_errno, point_quiet};
use super::source::{Location, is_below};
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

/// The part of a name that may be a pattern, if there is one.
fn pattern_of(name: &CStr, below: Option<&Below>) -> Option<Vec<u8>> {
    let name = name.to_bytes();
    let pattern = match below {
        None => name.to_vec(),
        Some(below) => {
            let mut rest = below.rest()?.as_os_str().as_bytes().to_vec();
            // Paths lose it, and it says that a directory is meant.
            if name.ends_with(b"/") || name.ends_with(b"/.") {
                rest.push(b'/');
            }
            rest
        }
    };
    is_pattern(&pattern).then_some(pattern)
}

/// Is it the name of several files, whichever they are? Whatever is wrong with it, who opens it will say.
pub fn may_be_several(name: &CStr, below: Option<&Below>) -> bool {
    match metadata(name, below) {
        Ok(meta) => meta.is_dir(),
        Err(_) => pattern_of(name, below).is_some(),
    }
}

/// A place in one of them is told in one word (`load::direct::origin`).
const MOST: usize = 1 << 20;

impl FileList {
    /// The files that a name stands for, one at least; None if it is a file's own. Guarded, and interruptible.
    pub fn of(name: &CStr, below: Option<&Below>) -> Result<Option<FileList>> {
        let found = match metadata(name, below) {
            Ok(meta) if meta.is_dir() => in_directory(name, below)?,
            Ok(_) => return Ok(None),
            Err(_) => match pattern_of(name, below) {
                Some(pattern) => matches(name, &pattern, below)?,
                // Whatever is wrong with it, who opens it will say.
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
        if files.is_empty() {
            return Err(none(name, below));
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

    /// The same with some of the files only.
    pub fn keeping(mut self, files: Vec<Listed>) -> FileList {
        self.files = files;
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

/// Complain about too many files.
fn check_room(name: &CStr, count: usize) -> Result<()> {
    if count <= MOST {
        return Ok(());
    }
    let message = format!("\"{}\" matches more than {MOST} files", name.to_string_lossy());
    Err(Error::new(Code::ERRCODE_PROGRAM_LIMIT_EXCEEDED, message))
}

/// A regular file, which a link may lead to.
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
        // It has gone, or it is a link that leads nowhere.
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP)) => Ok(None),
        Err(e) => Err(Error::file_access(&format!("could not stat file \"{}\"", path.to_string_lossy()), &e)),
    }
}

/// Is it below an allowed directory? Of what is not there, or cannot be seen, that is said of the nearest directory that can be.
fn is_allowed(path: &Path, allowed: &[PathBuf]) -> bool {
    let path = Path::new(".").join(path);
    let real = path.ancestors().find_map(|path| std::fs::canonicalize(path).ok()).unwrap_or_default();
    allowed.iter().any(|dir| std::fs::canonicalize(dir).is_ok_and(|dir| real.starts_with(dir)))
}

/// Nobody is to learn what is outside, so the names there are not told, either.
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

/// What a pattern matches.
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

/// The names in a directory, which stands in the name that a user gave. What is wrong with it is an error of the inner
/// kind, unless it is not below where it must be.
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
            // What was looked at is what is read.
            Ok(std::fs::read_dir(format!("/proc/self/fd/{fd}")))
        }
        // Whether there is such a directory outside is nobody's business.
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
