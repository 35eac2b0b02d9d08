//! Opens sources, and checks them by their descriptors, since the path may lead to another file meanwhile.

use std::ffi::CStr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::allowed::{check_special, is_below, outside};
use super::decoding::Decoding;
use super::handle::Handle;
use super::supply::{Bytes, Supply};
use super::{Location, Source};
use crate::error::{Error, Result};
use crate::guc;
use crate::input::client::Client;
use crate::input::coding::Coding;
use crate::input::compression::Compressed;
use crate::input::directory::Below;

impl Source {
    /// Open a location. Guarded.
    pub fn open(location: &Location, coding: Coding) -> Result<Source> {
        match location {
            Location::File(path) => Source::open_file(path, None, coding),
            Location::Below(below) => {
                below.check_name()?;
                Source::open_file(&below.path, Some(below), coding)
            }
            Location::Program(command) => Source::open_program(command, coding),
            Location::Client(columns) => Ok(Source::of_client(Client::new(*columns))),
            Location::Bytes(bytes) => Ok(Source::of_supply(location, Supply::of_bytes(*bytes), coding)),
            Location::LargeObject(object) => Ok(Source::of_supply(location, Supply::of_object(object), coding)),
            Location::Query => Ok(Source::of_supply(location, Supply::of_bytes(Bytes::NONE), Compressed::No.into())),
            Location::Files(list) => match list.files.first() {
                Some(first) => Source::open(&list.location(first), coding),
                None => Source::open_file(&list.name, None, coding),
            },
        }
    }

    fn open_file(c_path: &CStr, below: Option<&Below>, coding: Coding) -> Result<Source> {
        let path = c_path.to_string_lossy();
        check_special(c_path)?;
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
        let mut source = Source::new(Handle::new(fd, false), path.into_owned(), coding);
        match below.map_or(Ok(()), |below| below.check(fd)).and_then(|()| source.inspect()) {
            Ok(()) => Ok(source),
            Err(e) => {
                source.close_quietly();
                Err(e)
            }
        }
    }

    /// Check the open file by its descriptor: the path may lead to another file by now.
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
            self.file_size = Some(meta.size());
        } else {
            // Other special files are read without waiting: the kernel does not support waiting for /dev/null, for
            // example. A file that has no bytes yet returns EAGAIN.
            self.from.waits = meta.file_type().is_fifo();
        }
        self.decoding = self.undecoded();
        Ok(())
    }

    /// The state of the decoding before anything is read.
    pub(super) fn undecoded(&self) -> Decoding {
        if self.coding.is_plain() {
            return Decoding::Plain;
        }
        if self.file_size.is_some() {
            return self.coding.of_file(&self.file()).map_or(Decoding::Plain, Decoding::New);
        }
        match self.coding.compressed {
            Compressed::By(_) => self.coding.steps(&[]).map_or(Decoding::Undetected, Decoding::New),
            _ => Decoding::Undetected,
        }
    }

    /// Check the descriptor against pg_bulk.allowed_directories.
    fn check_directory(&self) -> Result<()> {
        let Some(allowed) = guc::allowed_directories() else { return Ok(()) };
        if is_below(self.from.fd, &allowed) {
            return Ok(());
        }
        Err(outside(&self.name))
    }

    fn open_program(c_command: &CStr, coding: Coding) -> Result<Source> {
        let command = c_command.to_string_lossy();
        // SAFETY: a guarded call with valid strings.
        let pipe = unsafe { pg_sys::OpenPipeStream(c_command.as_ptr(), c"r".as_ptr()) };
        if pipe.is_null() {
            let error = std::io::Error::last_os_error();
            return Err(Error::file_access(&format!("could not execute command \"{command}\""), &error));
        }
        // SAFETY: an open stream of the C library, and its descriptor; pgrx's FILE is the C library's under another name.
        let fd = unsafe {
            let fd = libc::fileno(pipe.cast());
            libc::fcntl(fd, libc::F_SETFL, libc::fcntl(fd, libc::F_GETFL) | libc::O_NONBLOCK);
            fd
        };
        let mut source = Source { pipe, ..Source::new(Handle::new(fd, true), command.into_owned(), coding) };
        source.decoding = source.undecoded();
        Ok(source)
    }

    fn of_supply(location: &Location, supply: Supply, coding: Coding) -> Source {
        let mut source = Source::new(Handle::of_supply(supply), location.display().into_owned(), coding);
        source.decoding = source.undecoded();
        source
    }

    fn of_client(client: Client) -> Source {
        let source = Source::new(Handle::new(-1, false), "stdin".into(), Compressed::No.into());
        Source { decoding: Decoding::Client(client), ..source }
    }
}
