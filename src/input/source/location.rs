//! Locations of sources, and facts about them that need no open source.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::rc::Rc;

use super::allowed::{is_allowed, is_below};
use super::supply::{Bytes, LargeObject};
use crate::error::Result;
use crate::guc;
use crate::input::coding::Coding;
use crate::input::directory::Below;
use crate::input::files::{self, FileList, Listed};

/// A location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A file of the server's machine.
    File(CString),
    /// A file that must be below the directory of a foreign server.
    Below(Below),
    /// A shell command whose output is read.
    Program(CString),
    /// The client of a COPY FROM STDIN, which is told this number of columns ([`Source::ask`]).
    Client(usize),
    /// A value of type bytea.
    Bytes(Bytes),
    LargeObject(LargeObject),
    /// No source of bytes: a query makes the rows.
    Query,
    /// A list of files.
    Files(Rc<FileList>),
}

impl Location {
    /// The path or command, for messages.
    pub fn display(&self) -> std::borrow::Cow<'_, str> {
        self.name().to_string_lossy()
    }

    /// The path or command in its original bytes.
    pub fn name(&self) -> &CStr {
        match self {
            Location::File(name) | Location::Program(name) => name,
            Location::Files(list) => &list.name,
            Location::Below(below) => &below.path,
            Location::Client(_) => c"stdin",
            Location::Bytes(_) => c"bytea",
            Location::LargeObject(object) => object.name(),
            Location::Query => c"query",
        }
    }

    /// The system's metadata of a file, which is not opened.
    pub fn metadata(&self) -> std::io::Result<std::fs::Metadata> {
        match self {
            Location::Below(below) => below.metadata(),
            _ => self.path().map_or_else(|| Err(ErrorKind::NotFound.into()), std::fs::metadata),
        }
    }

    /// Does pg_bulk.allowed_directories allow its files, by their names?
    pub fn is_allowed(&self) -> bool {
        match self {
            Location::Files(list) => list.files.iter().all(|file| list.location(file).is_allowed()),
            _ => self.path().is_none_or(is_allowed),
        }
    }

    /// The list of its files, unless it names a single file. Errors are for the user who reads it. Guarded, and
    /// interruptible.
    pub fn files(&self) -> Result<Option<Rc<FileList>>> {
        match self {
            Location::File(_) | Location::Below(_) => Ok(FileList::of(self.name(), self.below())?.map(Rc::new)),
            Location::Files(list) => Ok(Some(Rc::clone(list))),
            _ => Ok(None),
        }
    }

    /// Are its bytes or rows in the database, and not in a file or program?
    pub fn is_inside(&self) -> bool {
        matches!(self, Location::Bytes(_) | Location::LargeObject(_) | Location::Query)
    }

    /// The directory that it must be below.
    pub fn below(&self) -> Option<&Below> {
        if let Location::Below(below) = self { Some(below) } else { None }
    }

    /// May the location stand for several files, by its name alone, without a look at the file system?
    pub fn may_be_several(&self) -> bool {
        match self {
            Location::File(_) | Location::Below(_) => files::may_be_several(self.name(), self.below()),
            Location::Files(_) => true,
            _ => false,
        }
    }

    /// Is its name a pattern, and not that of a file or directory? For the user who may read it.
    pub fn is_pattern(&self) -> bool {
        self.path().is_some() && files::is_pattern_name(self.name(), self.below())
    }

    /// The CONTEXT line that names it.
    pub fn described(&self) -> CString {
        let kind = match self {
            Location::File(_) | Location::Files(_) | Location::Below(_) => b"file \"".as_slice(),
            Location::Program(_) => b"program \"",
            _ => return self.name().to_owned(),
        };
        CString::new([kind, self.name().to_bytes(), b"\""].concat()).unwrap_or_default()
    }

    /// Size of a regular file, if it exists.
    pub fn size(&self) -> Option<u64> {
        if let Ok(Some(list)) = self.files() {
            return Some(list.size());
        }
        let meta = self.metadata().ok().filter(std::fs::Metadata::is_file)?;
        Some(meta.len())
    }

    /// Bytes that several processes can read at once: the size of a regular file that is not coded, or of a list.
    pub fn divided_size(&self, coding: Coding) -> Option<u64> {
        match self.files() {
            Ok(Some(list)) => Some(list.size()),
            _ => self.plain_size(coding),
        }
    }

    /// Size of a regular file that is not coded, for planning, without a source.
    pub fn plain_size(&self, coding: Coding) -> Option<u64> {
        let path = self.path()?;
        // Files that are not allowed must be neither opened nor looked at.
        if !self.is_allowed() {
            return None;
        }
        self.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
        let meta = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        // The first bytes of a file that is not allowed must not become known.
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        let allowed = guc::allowed_directories().is_none_or(|allowed| is_below(fd, &allowed));
        if !allowed || matches!(self, Location::Below(below) if !below.admits(fd)) {
            return None;
        }
        coding.of_file(&file).is_none().then(|| meta.size())
    }

    /// The path of a file.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Location::File(_) | Location::Below(_) => Some(Path::new(OsStr::from_bytes(self.name().to_bytes()))),
            _ => None,
        }
    }
}

impl FileList {
    /// Returns the location of one of the files.
    pub fn location(&self, file: &Listed) -> Location {
        match &self.below {
            Some(below) => Location::Below(below.at(file.path.as_bytes())),
            None => Location::File(file.path.clone()),
        }
    }

    /// Completes a list that another process has built for this location.
    pub fn made_of(mut self, location: &Location) -> FileList {
        self.below = location.below().cloned();
        self
    }
}
