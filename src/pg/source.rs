//! Where bytes come from: a file, a FIFO, a program.
//!
//! A source delivers the next bytes and nothing else; what they mean is the reader's business. Compressed files,
//! lists of files and parallel scans are to be further variants of [`Source`].
//!
//! **Nothing blocks uninterruptibly.** Everything is opened with O_NONBLOCK. A regular file ignores it. A FIFO is then
//! opened at once, with or without a writer; reading it would say "end" before there ever was a writer, so reads wait
//! for readiness first, which Linux reports for data and for a writer that has come and gone, but not before. A
//! program's pipe is treated alike. Waiting is on the process latch, so a cancel request ends it.
//!
//! Descriptors are the server's transient files: an abort closes them whatever happened here.

use std::ffi::{CStr, CString, OsStr, c_int};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use pgrx::{PgSqlErrorCode as Code, check_for_interrupts, pg_sys};

use super::chunk::changed;
use crate::error::{Error, Result};
use crate::guc;
use crate::pg::points::{point, point_errno};

/// What to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A file of the server's machine.
    File(CString),
    /// A shell command whose output is read.
    Program(CString),
}

impl Location {
    /// The path or command, for messages.
    pub fn display(&self) -> std::borrow::Cow<'_, str> {
        let (Location::File(name) | Location::Program(name)) = self;
        name.to_string_lossy()
    }

    /// The CONTEXT line that names it.
    pub fn described(&self) -> CString {
        let (kind, name) = match self {
            Location::File(path) => (b"file \"".as_slice(), path),
            Location::Program(command) => (b"program \"".as_slice(), command),
        };
        CString::new([kind, name.as_bytes(), b"\""].concat()).unwrap_or_default()
    }

    /// How large a regular file is, if it is there.
    pub fn size(&self) -> Option<u64> {
        let meta = std::fs::metadata(self.path()?).ok().filter(std::fs::Metadata::is_file)?;
        Some(meta.len())
    }

    /// The path of a file.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Location::File(path) => Some(Path::new(OsStr::from_bytes(path.as_bytes()))),
            Location::Program(_) => None,
        }
    }
}

/// A process's descriptor, as others can open it. Only some systems have it as a file; on others, none is there.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Descriptor {
    process: u32,
    fd: c_int,
}

impl Descriptor {
    pub fn location(self) -> Location {
        Location::File(CString::new(format!("/proc/{}/fd/{}", self.process, self.fd)).unwrap_or_default())
    }
}

/// An open source.
#[derive(Debug)]
pub struct Source {
    fd: c_int,
    /// The pipe of a program, else null.
    pipe: *mut pg_sys::FILE,
    name: String,
    /// Reads wait for readiness.
    waits: bool,
    /// Size of a regular file.
    size: Option<u64>,
    at_end: bool,
    bytes_read: u64,
}

impl Source {
    /// Open a location. Guarded.
    pub fn open(location: &Location) -> Result<Source> {
        match location {
            Location::File(path) => Source::open_file(path),
            Location::Program(command) => Source::open_program(command),
        }
    }

    fn open_file(c_path: &CStr) -> Result<Source> {
        let path = c_path.to_string_lossy();
        let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC;
        // SAFETY: a guarded call with a valid string.
        let fd = unsafe { pg_sys::OpenTransientFile(c_path.as_ptr(), flags) };
        if fd < 0 {
            let error = std::io::Error::last_os_error();
            let mut e = Error::file_access(&format!("could not open file \"{path}\" for reading"), &error);
            if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EACCES)) {
                e = e.hint(
                    "The file is read by the PostgreSQL server process. \
                     You may want a client-side facility such as psql's \\copy.",
                );
            }
            return Err(e);
        }
        let mut source = Source {
            fd,
            pipe: std::ptr::null_mut(),
            name: path.into_owned(),
            waits: false,
            size: None,
            at_end: false,
            bytes_read: 0,
        };
        match source.inspect() {
            Ok(()) => Ok(source),
            Err(e) => {
                source.close_quietly();
                Err(e)
            }
        }
    }

    /// Look at what was opened, by its descriptor: the path may mean something else by now.
    fn inspect(&mut self) -> Result<()> {
        let meta = self
            .file()
            .metadata()
            .map_err(|e| Error::file_access(&format!("could not stat file \"{}\"", self.name), &e))?;
        if meta.is_dir() {
            let message = format!("\"{}\" is a directory", self.name);
            return Err(Error::new(Code::ERRCODE_WRONG_OBJECT_TYPE, message));
        }
        self.check_directory()?;
        if meta.is_file() {
            self.size = Some(meta.size());
        } else {
            // Other special files are read as they come: the kernel refuses to wait for /dev/null, say, and one that
            // has nothing yet says so.
            self.waits = meta.file_type().is_fifo();
        }
        Ok(())
    }

    /// pg_bulk.allowed_directories, asked of the descriptor.
    fn check_directory(&self) -> Result<()> {
        let Some(allowed) = guc::allowed_directories() else { return Ok(()) };
        let real = std::fs::read_link(format!("/proc/self/fd/{}", self.fd)).unwrap_or_default();
        let inside = |dir: &PathBuf| std::fs::canonicalize(dir).is_ok_and(|dir| real.starts_with(dir));
        if allowed.iter().any(inside) {
            return Ok(());
        }
        let message = format!("file \"{}\" is not below a directory of pg_bulk.allowed_directories", self.name);
        Err(Error::new(Code::ERRCODE_INSUFFICIENT_PRIVILEGE, message))
    }

    fn open_program(c_command: &CStr) -> Result<Source> {
        let command = c_command.to_string_lossy();
        // SAFETY: a guarded call with valid strings.
        let pipe = unsafe { pg_sys::OpenPipeStream(c_command.as_ptr(), c"r".as_ptr()) };
        if pipe.is_null() {
            let error = std::io::Error::last_os_error();
            return Err(Error::file_access(&format!("could not execute command \"{command}\""), &error));
        }
        // SAFETY: an open stream of the C library; pgrx's FILE is the C library's under another name.
        let fd = unsafe { libc::fileno(pipe.cast()) };
        // SAFETY: fcntl on our own descriptor.
        unsafe {
            let flags = libc::fcntl(fd, libc::F_GETFL);
            libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
        }
        Ok(Source { fd, pipe, name: command.into_owned(), waits: true, size: None, at_end: false, bytes_read: 0 })
    }

    fn file(&self) -> ManuallyDrop<File> {
        // SAFETY: the descriptor is open and stays the server's: the File is never dropped.
        ManuallyDrop::new(unsafe { File::from_raw_fd(self.fd) })
    }

    /// What it is in this process.
    pub fn descriptor(&self) -> Descriptor {
        Descriptor { process: std::process::id(), fd: self.fd }
    }

    /// Messages are to call it so.
    pub fn name_it(&mut self, location: &Location) {
        self.name = location.display().into_owned();
    }

    /// Size of a regular file.
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// Bytes delivered so far.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// The next bytes; none at the end. Guarded, and interruptible.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            check_for_interrupts!();
            if self.waits {
                self.wait()?;
            }
            point!("source.ready");
            let read = match point_errno!("source.read") {
                Some(errno) => Err(std::io::Error::from_raw_os_error(errno)),
                None => (&*self.file()).read(buffer),
            };
            match read {
                Ok(n) => {
                    self.at_end |= n == 0;
                    self.bytes_read += n as u64;
                    return Ok(n);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => (),
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.waits = true,
                Err(e) => return Err(Error::file_access("could not read from COPY file", &e)),
            }
        }
    }

    /// What the system knows of the open file.
    pub fn metadata(&self) -> std::io::Result<std::fs::Metadata> {
        self.file().metadata()
    }

    /// Fill `buffer` with the bytes at `offset` of a regular file. Guarded, and interruptible.
    pub fn read_exactly(&mut self, mut buffer: &mut [u8], mut offset: u64) -> Result<()> {
        use std::os::unix::fs::FileExt;
        self.bytes_read += buffer.len() as u64;
        while !buffer.is_empty() {
            check_for_interrupts!();
            match self.file().read_at(buffer, offset) {
                Ok(0) => return Err(changed(&self.name)),
                Ok(n) => {
                    buffer = buffer.get_mut(n..).unwrap_or_default();
                    offset += n as u64;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => (),
                Err(e) => return Err(Error::file_access("could not read from COPY file", &e)),
            }
        }
        Ok(())
    }

    /// Go back to the start, if this is a regular file. A descriptor that was opened in a subtransaction is closed when
    /// that is rolled back; so one that a scan began with is kept, not replaced.
    pub fn rewind(&mut self) -> Result<bool> {
        if self.size.is_none() {
            return Ok(false);
        }
        self.seek(0)?;
        self.at_end = false;
        self.bytes_read = 0;
        self.size = self.file().metadata().ok().map(|m| m.size());
        Ok(true)
    }

    /// Go to `offset` of a regular file.
    pub fn seek(&mut self, offset: u64) -> Result<()> {
        use std::io::{Seek, SeekFrom};
        let sought = (&*self.file()).seek(SeekFrom::Start(offset));
        sought.map(drop).map_err(|e| Error::file_access(&format!("could not seek in file \"{}\"", self.name), &e))
    }

    /// Wait until a read would deliver something or the end.
    fn wait(&self) -> Result<()> {
        let events = pg_sys::WL_LATCH_SET | pg_sys::WL_SOCKET_READABLE | pg_sys::WL_EXIT_ON_PM_DEATH;
        loop {
            // SAFETY: guarded calls on this process's latch and an open descriptor.
            let happened = unsafe {
                pg_sys::WaitLatchOrSocket(pg_sys::MyLatch, events as c_int, self.fd, -1, pg_sys::PG_WAIT_EXTENSION)
            };
            if happened.cast_unsigned() & pg_sys::WL_LATCH_SET != 0 {
                // SAFETY: as above.
                unsafe { pg_sys::ResetLatch(pg_sys::MyLatch) };
                check_for_interrupts!();
            }
            if happened.cast_unsigned() & pg_sys::WL_SOCKET_READABLE != 0 {
                return Ok(());
            }
        }
    }

    /// Close it, if it is open. For a program, complain if it failed, unless it only lost its reader. Guarded.
    pub fn close(&mut self) -> Result<()> {
        let (fd, pipe) = (std::mem::replace(&mut self.fd, -1), std::mem::replace(&mut self.pipe, std::ptr::null_mut()));
        if fd < 0 {
            return Ok(());
        }
        if pipe.is_null() {
            // SAFETY: a transient file that is open.
            if unsafe { pg_sys::CloseTransientFile(fd) } != 0 {
                let error = std::io::Error::last_os_error();
                return Err(Error::file_access(&format!("could not close file \"{}\"", self.name), &error));
            }
            return Ok(());
        }
        // SAFETY: a pipe stream that is open.
        let status = unsafe { pg_sys::ClosePipeStream(pipe) };
        if status == -1 {
            let error = std::io::Error::last_os_error();
            return Err(Error::file_access("could not close pipe to external command", &error));
        }
        // As in ClosePipeFromProgram (copyfrom.c).
        // SAFETY: plain arithmetic on a wait status, and a string allocated in the current context.
        unsafe {
            if status == 0 || (!self.at_end && pg_sys::wait_result_is_signal(status, libc::SIGPIPE)) {
                return Ok(());
            }
            let words = CStr::from_ptr(pg_sys::wait_result_to_str(status)).to_string_lossy().into_owned();
            let message = format!("program \"{}\" failed", self.name);
            Err(Error::new(Code::ERRCODE_EXTERNAL_ROUTINE_EXCEPTION, message).detail(words))
        }
    }

    fn close_quietly(&mut self) {
        drop(self.close());
    }
}
