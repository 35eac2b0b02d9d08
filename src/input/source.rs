//! Sources of bytes: a file, a FIFO, a program, a value or a large object.
//!
//! A source delivers the next bytes; the reader interprets them. The first bytes of a regular file show its coding
//! ([`super::coding`]) when it is opened. A coded file has no random access ([`Source::size`]). The first bytes of a FIFO or program
//! are read when bytes are first requested. A thread decompresses a file in advance ([`super::decompressor`]); a source
//! that may have to be waited for is decompressed by the reading process.
//!
//! **Nothing blocks uninterruptibly.** Everything is opened with O_NONBLOCK. A regular file ignores that. A FIFO opens
//! at once, with or without a writer. A read would then report the end before a writer has come. So reads wait for
//! readiness first. Linux reports that for data, and for a writer that has come and gone, but not before. A program's
//! pipe is treated alike. The process waits on its latch, so a cancel request ends the wait.
//!
//! Descriptors are the server's transient files, so an abort closes them.

mod allowed;
mod decoding;
mod descriptor;
mod handle;
mod location;
mod open;
mod read;
mod supply;

use std::ffi::CString;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::unix::fs::MetadataExt;

use pg_bulk_text::file_kind::MOST_BYTES;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

pub use self::allowed::{is_allowed, is_below};
use self::decoding::{Decoding, PORTION};
pub use self::descriptor::Descriptor;
use self::handle::Handle;
pub use self::location::Location;
pub use self::supply::{Bytes, LargeObject};
use super::coding::{Coding, Steps, first_bytes};
use super::compression::Compression;
use super::file_identity::changed;
use super::ring::Ring;
use crate::error::{Error, Result};
use crate::server::call::calls;

/// An open source.
#[derive(Debug)]
pub struct Source {
    from: Handle,
    /// The pipe of a program, else null.
    pipe: *mut pg_sys::FILE,
    name: String,
    /// Size of a regular file.
    file_size: Option<u64>,
    coding: Coding,
    decoding: Decoding,
    /// Nothing is decompressed in advance.
    stays_close: bool,
    /// No byte behind this offset is read.
    end: Option<u64>,
    bytes_read: u64,
    /// The first bytes of its text that were read.
    first: Vec<u8>,
}

// SAFETY: plain arithmetic on the status of a process, and a string in the current memory context.
calls! {
    fn is_signal(status: i32, signal: i32) -> bool = wait_result_is_signal(status, signal);
    fn words_of(status: i32) -> CString = wait_result_to_str(status);
}

impl Source {
    /// A source of which nothing is known but its name.
    fn new(from: Handle, name: String, coding: Coding) -> Source {
        Source {
            from,
            pipe: std::ptr::null_mut(),
            name,
            file_size: None,
            coding,
            decoding: Decoding::Plain,
            stays_close: false,
            end: None,
            bytes_read: 0,
            first: Vec::new(),
        }
    }

    fn file(&self) -> ManuallyDrop<File> {
        self.from.file()
    }

    /// Its descriptor in this process.
    pub fn descriptor(&self) -> Descriptor {
        Descriptor::new(self.from.fd)
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Set the name in messages.
    pub fn name_it(&mut self, location: &Location) {
        self.name = location.display().into_owned();
    }

    pub fn is_open(&self) -> bool {
        self.from.fd >= 0
    }

    /// Size of a regular file with random access: one that is not compressed.
    pub fn size(&self) -> Option<u64> {
        self.file_size.filter(|_| self.from.fd >= 0 && matches!(self.decoding, Decoding::Plain))
    }

    /// Size of a regular file, compressed or not.
    pub fn file_size(&self) -> Option<u64> {
        self.file_size
    }

    /// Can several processes read the decompressed bytes of this file?
    pub fn can_share(&self) -> bool {
        let is_decoded = matches!(self.decoding, Decoding::New(_) | Decoding::Ahead(..) | Decoding::Here(..));
        self.file_size.is_some() && self.from.fd >= 0 && is_decoded
    }

    /// The compression, as far as it is known before bytes are requested, or since.
    pub fn compression(&self) -> Option<&'static str> {
        self.steps()?.compression().map(Compression::name)
    }

    /// Whether the bytes are known to have been UTF-16.
    pub fn is_utf16(&self) -> bool {
        self.steps().is_some_and(|steps| steps.is_utf16())
    }

    pub fn is_program(&self) -> bool {
        !self.pipe.is_null()
    }

    /// The name of the encoding with which the bytes are known to be read, if it is UTF-16.
    pub fn utf16(&self) -> Option<&'static str> {
        self.is_utf16().then(|| self.coding.utf16.name().unwrap_or("UTF16"))
    }

    /// Read at most `most` bytes.
    pub fn start(&mut self, most: usize) -> Result<Vec<u8>> {
        let (mut bytes, mut n) = (vec![0; most], 0);
        while let Some(space) = bytes.get_mut(n..)
            && !space.is_empty()
        {
            match self.read(space)? {
                0 => break,
                more => n += more,
            }
        }
        bytes.truncate(n);
        Ok(bytes)
    }

    /// Go back to the start of a regular file, and read it with this coding.
    pub fn read_anew(&mut self, coding: Coding) -> Result<bool> {
        self.coding = coding;
        self.first.clear();
        self.rewind()
    }

    /// The steps that make the text, if there are any.
    fn steps(&self) -> Option<Steps> {
        match &self.decoding {
            Decoding::New(steps)
            | Decoding::Ahead(steps, _)
            | Decoding::Here(steps, _)
            | Decoding::Shared(steps, _) => Some(*steps),
            _ => None,
        }
    }

    /// Share the decompressed bytes from `base` on with other processes, in chunks of `chunk_len` bytes. Returns the
    /// descriptor for their [`Source::join`]. `None` if that fails; then the source is unchanged.
    pub fn share(&mut self, base: u64, processes: usize, chunk_len: usize) -> Option<Descriptor> {
        let steps = self.steps().filter(|_| self.can_share())?;
        let ring = Ring::start(self.file().try_clone().ok()?, steps, base, processes, chunk_len).ok()?;
        let descriptor = ring.descriptor()?;
        self.decoding = Decoding::Shared(steps, ring);
        self.bytes_read = 0;
        Some(descriptor)
    }

    /// Read the bytes that another process shares. False if that fails.
    pub fn join(&mut self, leaders: Descriptor) -> bool {
        let Some((steps, ring)) = self.steps().zip(Ring::join(leaders).ok()) else { return false };
        self.decoding = Decoding::Shared(steps, ring);
        true
    }

    /// The ring of shared bytes.
    pub fn ring(&self) -> Option<&Ring> {
        if let Decoding::Shared(_, ring) = &self.decoding { Some(ring) } else { None }
    }

    /// Decompress no more than is requested: only a sample will be read.
    pub fn stay_close(&mut self) {
        self.stays_close = true;
    }

    /// The first bytes of its text.
    pub fn first(&self) -> Vec<u8> {
        // A process may have begun to read in the middle of a plain file.
        let is_plain = self.file_size.is_some() && matches!(self.decoding, Decoding::Plain);
        if is_plain { first_bytes(&self.file(), MOST_BYTES) } else { self.first.clone() }
    }

    /// Bytes of the source that were read so far; of a compressed one, the compressed bytes.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// Read no byte of this regular file behind this offset: the file may grow, and the caller relies on its current
    /// size.
    pub fn end_at(&mut self, end: u64) {
        self.end = Some(end);
    }

    /// Ask a client for its data. Guarded.
    pub fn ask(&mut self) {
        if let Decoding::Client(client) = &self.decoding {
            client.ask();
        }
    }

    /// All data of a client, if they are less than `limit` bytes and their end is known. Guarded.
    pub fn all_of_few(&mut self, limit: usize) -> Option<&[u8]> {
        match &mut self.decoding {
            Decoding::Client(client) if limit > 0 => client.all_of_few(limit),
            _ => None,
        }
    }

    /// Discard all further data: their end was found. Guarded.
    pub fn ignore_rest(&mut self) -> Result<()> {
        match &mut self.decoding {
            Decoding::Client(client) => client.ignore_rest(),
            _ => Ok(()),
        }
    }

    /// The system's metadata of the open file.
    pub fn metadata(&self) -> std::io::Result<std::fs::Metadata> {
        self.file().metadata()
    }

    /// Go back to the start of a regular file, by the same descriptor. A descriptor that was opened in a subtransaction
    /// is closed when that is rolled back, so the one with which a scan began must not be replaced.
    pub fn rewind(&mut self) -> Result<bool> {
        if let Some(supply) = &self.from.supply {
            supply.rewind();
        } else if self.file_size.is_some() {
            self.seek_file(0)?;
            self.end = None;
            self.file_size = self.file().metadata().ok().map(|m| m.size());
        } else {
            self.first.clear();
            return Ok(false);
        }
        self.begin_anew();
        Ok(true)
    }

    /// Decode the first bytes again, where the source is now.
    fn begin_anew(&mut self) {
        self.from.at_end.set(false);
        self.from.unread.clear();
        self.bytes_read = 0;
        self.first.clear();
        self.decoding = self.undecoded();
    }

    /// Is the source a value or a large object? These can also be read again.
    pub fn is_supplied(&self) -> bool {
        self.from.supply.is_some()
    }

    /// Go to `offset` of the plain bytes. Of a compressed source, all bytes before are decompressed again.
    pub fn seek(&mut self, offset: u64) -> Result<()> {
        self.first.clear();
        if self.is_supplied() {
            self.rewind()?;
        } else if matches!(self.decoding, Decoding::Plain) {
            return self.seek_file(offset);
        } else {
            self.seek_file(0)?;
            self.begin_anew();
        }
        let mut left = offset;
        let mut nothing = vec![0; PORTION];
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(PORTION);
            match self.read(nothing.get_mut(..most).unwrap_or_default())? {
                0 => return Err(changed(&self.name)),
                n => left -= n as u64,
            }
        }
        Ok(())
    }

    fn seek_file(&mut self, offset: u64) -> Result<()> {
        use std::io::{Seek, SeekFrom};
        let sought = (&*self.file()).seek(SeekFrom::Start(offset));
        sought.map(drop).map_err(|e| Error::file_access(&format!("could not seek in file \"{}\"", self.name), &e))
    }

    /// Continue with another file under the same descriptor. A descriptor that was opened in a subtransaction is closed
    /// when that is rolled back, and the scan may outlive it.
    pub fn replace(&mut self, mut other: Source) -> Result<()> {
        let fd = self.from.fd;
        // SAFETY: two open descriptors of this process; the second one becomes a copy of the first.
        if unsafe { libc::dup3(other.from.fd, fd, libc::O_CLOEXEC) } < 0 {
            let error = std::io::Error::last_os_error();
            other.close_quietly();
            return Err(Error::file_access(&format!("could not open file \"{}\" for reading", other.name), &error));
        }
        self.from = Handle::new(fd, other.from.waits);
        self.name = std::mem::take(&mut other.name);
        (self.file_size, self.coding, self.end) = (other.file_size, other.coding, None);
        self.begin_anew();
        other.close()
    }

    /// Close the source, if it is open. Raises an error for a program that failed, unless it only lost its reader.
    /// Guarded.
    pub fn close(&mut self) -> Result<()> {
        let (fd, pipe) =
            (std::mem::replace(&mut self.from.fd, -1), std::mem::replace(&mut self.pipe, std::ptr::null_mut()));
        if fd < 0 {
            return Ok(());
        }
        // The thread that decompresses, if there is one, ends by itself.
        self.decoding = Decoding::Plain;
        if pipe.is_null() {
            // SAFETY: an open transient file.
            if unsafe { pg_sys::CloseTransientFile(fd) } != 0 {
                let error = std::io::Error::last_os_error();
                return Err(Error::file_access(&format!("could not close file \"{}\"", self.name), &error));
            }
            return Ok(());
        }
        // SAFETY: an open pipe stream.
        let status = unsafe { pg_sys::ClosePipeStream(pipe) };
        if status == -1 {
            let error = std::io::Error::last_os_error();
            return Err(Error::file_access("could not close pipe to external command", &error));
        }
        // As in ClosePipeFromProgram (copyfrom.c).
        if status == 0 || (!self.from.at_end.get() && is_signal(status, libc::SIGPIPE)) {
            return Ok(());
        }
        let message = format!("program \"{}\" failed", self.name);
        Err(Error::new(Code::ERRCODE_EXTERNAL_ROUTINE_EXCEPTION, message).detail(words_of(status).to_string_lossy()))
    }

    fn close_quietly(&mut self) {
        drop(self.close());
    }
}
