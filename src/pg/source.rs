//! Where bytes come from: a file, a FIFO, a program; as they are, or decompressed.
//!
//! A source delivers the next bytes and nothing else; what they mean is the reader's business. How a regular file is
//! compressed its first bytes tell when it is opened; it is then no file that can be read anywhere ([`Source::size`]). A
//! FIFO or program is asked when the first bytes are wanted. A file is decompressed ahead, by a thread
//! ([`super::decompressor`]); what may have to be waited for, where it is read.
//!
//! **Nothing blocks uninterruptibly.** Everything is opened with O_NONBLOCK. A regular file ignores it. A FIFO is then
//! opened at once, with or without a writer; reading it would say "end" before there ever was a writer, so reads wait
//! for readiness first, which Linux reports for data and for a writer that has come and gone, but not before. A
//! program's pipe is treated alike. Waiting is on the process latch, so a cancel request ends it.
//!
//! Descriptors are the server's transient files: an abort closes them whatever happened here.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, OsStr, c_int};
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::{PgSqlErrorCode as Code, check_for_interrupts, pg_sys};

use super::chunk::changed;
use super::client::Client;
use super::compression::{Compressed, Compression, TELLING, is_truncated, lacks_memory};
use super::decompressor::{Counted, Decompressor, Got};
use super::directory::Below;
use super::files::FileList;
use super::ring::Ring;
use crate::error::{Error, Result, out_of_memory};
use crate::guc;
use crate::pg::points::{point, point_errno};

/// What to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A file of the server's machine.
    File(CString),
    /// A file that must be below the directory of a server.
    Below(Below),
    /// A shell command whose output is read.
    Program(CString),
    /// The client of a COPY FROM STDIN, which is asked for so many columns ([`Source::ask`]).
    Client(usize),
    /// Files that somebody has listed.
    Files(Rc<FileList>),
}

impl Location {
    /// The path or command, for messages.
    pub fn display(&self) -> std::borrow::Cow<'_, str> {
        self.name().to_string_lossy()
    }

    /// The same as it is.
    pub fn name(&self) -> &CStr {
        match self {
            Location::File(name) | Location::Program(name) => name,
            Location::Files(list) => &list.name,
            Location::Below(below) => &below.path,
            Location::Client(_) => c"stdin",
        }
    }

    /// What the system knows of a file, without opening it.
    pub fn metadata(&self) -> std::io::Result<std::fs::Metadata> {
        match self {
            Location::Below(below) => below.metadata(),
            _ => self.path().map_or_else(|| Err(ErrorKind::NotFound.into()), std::fs::metadata),
        }
    }

    /// May it be opened, as far as pg_bulk.allowed_directories says by the names of its files?
    pub fn is_allowed(&self) -> bool {
        match self {
            Location::Files(list) => list.files.iter().all(|file| list.location(file).is_allowed()),
            _ => self.path().is_none_or(is_allowed),
        }
    }

    /// The list of its files, if it is not a file's own name. Errors are for who is to read it. Guarded, and interruptible.
    pub fn files(&self) -> Result<Option<Rc<FileList>>> {
        match self {
            Location::File(_) | Location::Below(_) => Ok(FileList::of(self.name(), self.below())?.map(Rc::new)),
            Location::Files(list) => Ok(Some(Rc::clone(list))),
            Location::Program(_) | Location::Client(_) => Ok(None),
        }
    }

    /// What it must be below.
    pub fn below(&self) -> Option<&Below> {
        if let Location::Below(below) = self { Some(below) } else { None }
    }

    /// Is it the name of several files, as far as can be seen without a look for them?
    pub fn may_be_several(&self) -> bool {
        match self {
            Location::File(_) | Location::Below(_) => super::files::may_be_several(self.name(), self.below()),
            Location::Files(_) => true,
            Location::Program(_) | Location::Client(_) => false,
        }
    }

    /// The CONTEXT line that names it.
    pub fn described(&self) -> CString {
        let kind = match self {
            Location::File(_) | Location::Files(_) | Location::Below(_) => b"file \"".as_slice(),
            Location::Program(_) => b"program \"",
            Location::Client(_) => return c"stdin".to_owned(),
        };
        CString::new([kind, self.name().to_bytes(), b"\""].concat()).unwrap_or_default()
    }

    /// How large a regular file is, if it is there.
    pub fn size(&self) -> Option<u64> {
        if let Ok(Some(list)) = self.files() {
            return Some(list.size());
        }
        let meta = self.metadata().ok().filter(std::fs::Metadata::is_file)?;
        Some(meta.len())
    }

    /// Bytes that are read, as far as several processes can read them at once: the size of a regular file that is not
    /// compressed, or of a list's.
    pub fn divided_size(&self, compressed: Compressed) -> Option<u64> {
        match self.files() {
            Ok(Some(list)) => Some(list.size()),
            _ => self.plain_size(compressed),
        }
    }

    /// Size of a regular file that is not compressed, without opening it as a source: somebody plans to.
    pub fn plain_size(&self, compressed: Compressed) -> Option<u64> {
        let path = self.path()?;
        // Others must not be opened just to look, nor even looked at.
        if !self.is_allowed() {
            return None;
        }
        self.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
        let meta = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        // Of others nobody is to learn what they begin with.
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        let allowed = guc::allowed_directories().is_none_or(|allowed| is_below(fd, &allowed));
        if !allowed || matches!(self, Location::Below(below) if !below.admits(fd)) {
            return None;
        }
        compressed.of(&first_bytes(&file)).is_none().then(|| meta.size())
    }

    /// The path of a file.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Location::File(_) | Location::Below(_) => Some(Path::new(OsStr::from_bytes(self.name().to_bytes()))),
            Location::Program(_) | Location::Files(_) | Location::Client(_) => None,
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
    /// None.
    pub const NONE: Descriptor = Descriptor { process: 0, fd: -1 };

    /// One of this process.
    pub fn new(fd: c_int) -> Descriptor {
        Descriptor { process: std::process::id(), fd }
    }

    pub fn is_none(self) -> bool {
        self.fd < 0
    }

    pub fn location(self) -> Location {
        Location::File(CString::new(format!("/proc/{}/fd/{}", self.process, self.fd)).unwrap_or_default())
    }
}

/// An open source.
#[derive(Debug)]
pub struct Source {
    from: Handle,
    /// The pipe of a program, else null.
    pipe: *mut pg_sys::FILE,
    name: String,
    /// Size of a regular file.
    file_size: Option<u64>,
    compressed: Compressed,
    decoding: Decoding,
    /// Nothing is decompressed ahead.
    stays_close: bool,
    /// No byte behind that is read.
    end: Option<u64>,
    bytes_read: u64,
}

/// An open descriptor.
#[derive(Debug, Clone)]
struct Handle {
    /// -1 once it is closed.
    fd: c_int,
    /// Reads wait for readiness.
    waits: bool,
    at_end: Rc<Cell<bool>>,
}

/// How its bytes become what is delivered.
enum Decoding {
    /// They are.
    Plain,
    /// What comes first is to tell.
    Untold,
    /// They are, but these were read already, up to a point they are delivered.
    Told(Vec<u8>, usize),
    /// Nothing is read yet.
    New(Compression),
    Ahead(Compression, Decompressor),
    Here(Compression, Here),
    /// Others read along; each what it wants ([`Source::read_exactly`]).
    Shared(Ring),
    /// There is no descriptor.
    Client(Client),
}

impl std::fmt::Debug for Decoding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Decoding")
    }
}

/// Decompressed where it is read.
struct Here {
    decoder: Box<dyn Read>,
    consumed: Arc<AtomicU64>,
    /// What was wrong with the source, for a decoder knows only errors of its own kind.
    failed: Rc<RefCell<Option<Error>>>,
}

/// A descriptor for a decoder.
struct Fetch {
    from: Handle,
    /// What was read already.
    first: Vec<u8>,
    /// Bytes that it may take.
    left: u64,
    failed: Rc<RefCell<Option<Error>>>,
}

impl Read for Fetch {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let buffer = buffer.get_mut(..most).unwrap_or_default();
        let n = self.fetch(buffer)?;
        self.left -= n as u64;
        Ok(n)
    }
}

impl Fetch {
    fn fetch(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.first.is_empty() {
            return self.from.read(buffer).map_err(|error| {
                *self.failed.borrow_mut() = Some(error);
                std::io::Error::other("source")
            });
        }
        let n = self.first.len().min(buffer.len());
        buffer.iter_mut().zip(self.first.drain(..n)).for_each(|(to, from)| *to = from);
        Ok(n)
    }
}

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

fn outside(name: &str) -> Error {
    let message = format!("file \"{name}\" is not below a directory of pg_bulk.allowed_directories");
    Error::new(Code::ERRCODE_INSUFFICIENT_PRIVILEGE, message)
}

/// Complain about what is not below an allowed directory before it is opened, if that is noticed: who writes to a FIFO would
/// see a reader that goes away.
fn check_special(name: &CStr) -> Result<()> {
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    if !is_allowed(path) && std::fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir()) {
        return Err(outside(&name.to_string_lossy()));
    }
    Ok(())
}

/// What a regular file begins with, as far as it tells how it is compressed. What cannot be read now is for who reads the
/// file to tell.
fn first_bytes(file: &File) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let mut first = vec![0; TELLING];
    let mut n = 0;
    while let Ok(more @ 1..) = file.read_at(first.get_mut(n..).unwrap_or_default(), n as u64) {
        n += more;
    }
    first.truncate(n);
    first
}

/// Bytes that are read for a sample, whatever they stand for.
const SAMPLE: u64 = 2 << 20;

/// Bytes that a decoder is given at a time where they are decompressed when they are wanted.
const PORTION: usize = 16 << 10;

impl Here {
    fn begin(compression: Compression, from: Handle, first: Vec<u8>, most: u64) -> std::io::Result<Here> {
        let (consumed, failed) = (Arc::new(AtomicU64::new(0)), Rc::new(RefCell::new(None)));
        let fetch = Fetch { from, first, left: most, failed: Rc::clone(&failed) };
        let inner = BufReader::with_capacity(PORTION, fetch);
        let decoder = compression.decoder(Counted { inner, consumed: Arc::clone(&consumed) })?;
        Ok(Here { decoder, consumed, failed })
    }
}

impl Handle {
    fn new(fd: c_int, waits: bool) -> Handle {
        Handle { fd, waits, at_end: Rc::default() }
    }

    fn file(&self) -> ManuallyDrop<File> {
        // SAFETY: the descriptor is open and stays the server's: the File is never dropped.
        ManuallyDrop::new(unsafe { File::from_raw_fd(self.fd) })
    }

    /// The next bytes; none at the end. Guarded, and interruptible.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
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
                    if n == 0 {
                        self.at_end.set(true);
                    }
                    return Ok(n);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => (),
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.waits = true,
                Err(e) => return Err(Error::file_access("could not read from COPY file", &e)),
            }
        }
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
}

impl Source {
    /// Open a location. Guarded.
    pub fn open(location: &Location, compressed: Compressed) -> Result<Source> {
        match location {
            Location::File(path) => Source::open_file(path, None, compressed),
            Location::Below(below) => {
                below.check_name()?;
                Source::open_file(&below.path, Some(below), compressed)
            }
            Location::Program(command) => Source::open_program(command, compressed),
            Location::Client(columns) => Ok(Source::of_client(Client::new(*columns))),
            Location::Files(list) => match list.files.first() {
                Some(first) => Source::open(&list.location(first), compressed),
                None => Source::open_file(&list.name, None, compressed),
            },
        }
    }

    fn open_file(c_path: &CStr, below: Option<&Below>, compressed: Compressed) -> Result<Source> {
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
        let mut source = Source {
            from: Handle::new(fd, false),
            pipe: std::ptr::null_mut(),
            name: path.into_owned(),
            file_size: None,
            compressed,
            decoding: Decoding::Plain,
            stays_close: false,
            end: None,
            bytes_read: 0,
        };
        match below.map_or(Ok(()), |below| below.check(fd)).and_then(|()| source.inspect()) {
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
            self.file_size = Some(meta.size());
        } else {
            // Other special files are read as they come: the kernel refuses to wait for /dev/null, say, and one that
            // has nothing yet says so.
            self.from.waits = meta.file_type().is_fifo();
        }
        self.decoding = self.undecoded();
        Ok(())
    }

    /// Before anything is read: what is to become of it?
    fn undecoded(&self) -> Decoding {
        if self.compressed == Compressed::No {
            return Decoding::Plain;
        }
        if self.file_size.is_none() {
            return match self.compressed {
                Compressed::By(compression) => Decoding::New(compression),
                _ => Decoding::Untold,
            };
        }
        self.compressed.of(&first_bytes(&self.file())).map_or(Decoding::Plain, Decoding::New)
    }

    /// pg_bulk.allowed_directories, asked of the descriptor.
    fn check_directory(&self) -> Result<()> {
        let Some(allowed) = guc::allowed_directories() else { return Ok(()) };
        if is_below(self.from.fd, &allowed) {
            return Ok(());
        }
        Err(outside(&self.name))
    }

    fn open_program(c_command: &CStr, compressed: Compressed) -> Result<Source> {
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
        let mut source = Source {
            from: Handle::new(fd, true),
            pipe,
            name: command.into_owned(),
            file_size: None,
            compressed,
            decoding: Decoding::Plain,
            stays_close: false,
            end: None,
            bytes_read: 0,
        };
        source.decoding = source.undecoded();
        Ok(source)
    }

    fn of_client(client: Client) -> Source {
        Source {
            from: Handle::new(-1, false),
            pipe: std::ptr::null_mut(),
            name: "stdin".into(),
            file_size: None,
            compressed: Compressed::No,
            decoding: Decoding::Client(client),
            stays_close: false,
            end: None,
            bytes_read: 0,
        }
    }

    fn file(&self) -> ManuallyDrop<File> {
        self.from.file()
    }

    /// What it is in this process.
    pub fn descriptor(&self) -> Descriptor {
        Descriptor::new(self.from.fd)
    }

    /// What messages call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Messages are to call it so.
    pub fn name_it(&mut self, location: &Location) {
        self.name = location.display().into_owned();
    }

    /// Size of a regular file whose bytes are delivered as they are, and can be read anywhere.
    pub fn size(&self) -> Option<u64> {
        self.file_size.filter(|_| self.from.fd >= 0 && matches!(self.decoding, Decoding::Plain))
    }

    /// Size of a regular file, compressed or not.
    pub fn file_size(&self) -> Option<u64> {
        self.file_size
    }

    /// Can what this compressed file stands for be read by several processes?
    pub fn can_share(&self) -> bool {
        let compressed = matches!(self.decoding, Decoding::New(_) | Decoding::Ahead(..) | Decoding::Here(..));
        self.file_size.is_some() && self.from.fd >= 0 && compressed
    }

    /// Let them read what it stands for from `base` on, each what it wants, and say what they [`Source::join`] by. `None` if that cannot be had;
    /// then nothing has changed.
    pub fn share(&mut self, base: u64, processes: usize, stretch: usize) -> Option<Descriptor> {
        let compression = match &self.decoding {
            Decoding::New(compression) | Decoding::Ahead(compression, _) | Decoding::Here(compression, _) => {
                *compression
            }
            _ => return None,
        };
        let ring = Ring::start(self.file().try_clone().ok()?, compression, base, processes, stretch).ok()?;
        let descriptor = ring.descriptor()?;
        self.decoding = Decoding::Shared(ring);
        self.bytes_read = 0;
        Some(descriptor)
    }

    /// Read what another process shares. False if that cannot be done.
    pub fn join(&mut self, leaders: Descriptor) -> bool {
        Ring::join(leaders).is_ok_and(|ring| {
            self.decoding = Decoding::Shared(ring);
            true
        })
    }

    /// What is shared.
    pub fn ring(&self) -> Option<&Ring> {
        if let Decoding::Shared(ring) = &self.decoding { Some(ring) } else { None }
    }

    /// From now on decompress no more than is wanted: it is a sample.
    pub fn stay_close(&mut self) {
        self.stays_close = true;
    }

    /// Bytes of the source that were delivered so far, or stood for what was.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// The next bytes; none at the end. Guarded, and interruptible.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            match &mut self.decoding {
                Decoding::Plain => {
                    let most = match self.end {
                        Some(end) => self.left_before(end)?.min(buffer.len()),
                        None => buffer.len(),
                    };
                    let n = self.from.read(buffer.get_mut(..most).unwrap_or_default())?;
                    self.bytes_read += n as u64;
                    return Ok(n);
                }
                Decoding::Client(client) => {
                    let n = client.read(buffer)?;
                    self.bytes_read += n as u64;
                    return Ok(n);
                }
                Decoding::Untold => {
                    let mut first = Vec::new();
                    // Who writes may wait for what becomes of it: no byte more than it takes.
                    while Compression::may_begin(&first) {
                        let mut more = [0; TELLING];
                        let n = self.from.read(more.get_mut(first.len()..).unwrap_or_default())?;
                        if n == 0 {
                            break;
                        }
                        let from = first.len();
                        first.extend_from_slice(more.get(from..from + n).unwrap_or_default());
                    }
                    self.decoding = match self.compressed.of(&first) {
                        Some(compression) => self.here(compression, first)?,
                        None => Decoding::Told(first, 0),
                    };
                }
                Decoding::Told(first, told) => {
                    let left = first.get(*told..).unwrap_or_default();
                    let n = left.len().min(buffer.len());
                    buffer.iter_mut().zip(left).for_each(|(to, from)| *to = *from);
                    *told += n;
                    self.bytes_read += n as u64;
                    if n == 0 && !buffer.is_empty() {
                        if self.from.at_end.get() {
                            // Another writer's bytes, if one comes, are no more of it.
                            return Ok(0);
                        }
                        self.decoding = Decoding::Plain;
                        continue;
                    }
                    return Ok(n);
                }
                Decoding::New(compression) => {
                    let compression = *compression;
                    let ahead = self.file_size.is_some() && !self.stays_close;
                    let thread = ahead.then(|| Decompressor::start(self.file().try_clone()?, compression));
                    self.decoding = match thread {
                        Some(Ok(decompressor)) => Decoding::Ahead(compression, decompressor),
                        // Without a thread it only takes longer.
                        _ => self.here(compression, Vec::new())?,
                    };
                }
                Decoding::Ahead(compression, decompressor) => {
                    check_for_interrupts!();
                    point!("source.ready");
                    let got = match point_errno!("source.read") {
                        Some(errno) => Err(std::io::Error::from_raw_os_error(errno)),
                        None => decompressor.read(buffer),
                    };
                    self.bytes_read = decompressor.consumed();
                    match got {
                        Ok(Got::Bytes(n)) => return Ok(n),
                        Ok(Got::End) => return Ok(0),
                        Ok(Got::NotYet) => (),
                        Err(error) => {
                            let compression = *compression;
                            return Err(self.undecodable(compression, &error));
                        }
                    }
                }
                Decoding::Shared(_) => return Ok(0),
                Decoding::Here(compression, here) => {
                    let read = here.decoder.read(buffer);
                    self.bytes_read = here.consumed.load(Relaxed);
                    let failed = here.failed.borrow_mut().take();
                    return match (read, failed) {
                        (Ok(n), _) => Ok(n),
                        (Err(_), Some(error)) => Err(error),
                        (Err(error), None) => {
                            let compression = *compression;
                            Err(self.undecodable(compression, &error))
                        }
                    };
                }
            }
        }
    }

    /// Read no byte of this regular file behind that one: it may grow, and somebody counts on what is there now.
    pub fn end_at(&mut self, end: u64) {
        self.end = Some(end);
    }

    /// Bytes that are left of a file that is read up to there. An error if it has grown since in the middle of a line.
    fn left_before(&self, end: u64) -> Result<usize> {
        use std::io::Seek;
        use std::os::unix::fs::FileExt;
        let failed = |e| Error::file_access("could not read from COPY file", &e);
        let file = self.file();
        let left = end.saturating_sub((&*file).stream_position().map_err(failed)?);
        if left == 0 && file.metadata().map_err(failed)?.len() > end {
            let mut last = [b'\n'];
            if end > 0 {
                file.read_exact_at(&mut last, end - 1).map_err(failed)?;
            }
            if !matches!(last, [b'\n' | b'\r']) {
                return Err(changed(&self.name));
            }
        }
        Ok(usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// Ask a client for its data. Guarded.
    pub fn ask(&mut self) {
        if let Decoding::Client(client) = &self.decoding {
            client.ask();
        }
    }

    /// All that a client sends, if that is known and less than so much. Guarded.
    pub fn all_of_few(&mut self, limit: usize) -> Option<&[u8]> {
        match &mut self.decoding {
            Decoding::Client(client) if limit > 0 => client.all_of_few(limit),
            _ => None,
        }
    }

    /// The data have ended, whatever still comes. Guarded.
    pub fn ignore_rest(&mut self) -> Result<()> {
        match &mut self.decoding {
            Decoding::Client(client) => client.ignore_rest(),
            _ => Ok(()),
        }
    }

    /// Decompress where it is read, beginning with these bytes.
    fn here(&self, compression: Compression, first: Vec<u8>) -> Result<Decoding> {
        let most = if self.stays_close { SAMPLE } else { u64::MAX };
        let here = Here::begin(compression, self.from.clone(), first, most);
        here.map(|here| Decoding::Here(compression, here)).map_err(|error| self.undecodable(compression, &error))
    }

    /// What is wrong with compressed bytes, and where.
    fn undecodable(&self, compression: Compression, error: &std::io::Error) -> Error {
        if error.raw_os_error().is_some() {
            return Error::file_access("could not read from COPY file", error);
        }
        if lacks_memory(error) {
            return out_of_memory();
        }
        let (kind, at) = (compression.name(), self.bytes_read);
        let what = if self.pipe.is_null() { "file" } else { "program" };
        let (message, detail) = if is_truncated(error) {
            (format!("{kind} data of {what} \"{}\" end too early", self.name), format!("They break off at byte {at}."))
        } else {
            (format!("invalid {kind} data in {what} \"{}\"", self.name), format!("Near byte {at}: {error}."))
        };
        Error::new(Code::ERRCODE_BAD_COPY_FILE_FORMAT, message).detail(detail)
    }

    /// What the system knows of the open file.
    pub fn metadata(&self) -> std::io::Result<std::fs::Metadata> {
        self.file().metadata()
    }

    /// Fill `buffer` with the bytes at `offset` of a regular file. Guarded, and interruptible.
    pub fn read_exactly(&mut self, mut buffer: &mut [u8], mut offset: u64) -> Result<()> {
        use std::os::unix::fs::FileExt;
        if let Decoding::Shared(ring) = &self.decoding {
            check_for_interrupts!();
            ring.read(buffer, offset);
            // One process tells of it.
            if ring.leads() {
                self.bytes_read = ring.consumed();
            }
            return Ok(());
        }
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
        if self.file_size.is_none() {
            return Ok(false);
        }
        self.seek_file(0)?;
        self.from.at_end.set(false);
        (self.bytes_read, self.end) = (0, None);
        self.file_size = self.file().metadata().ok().map(|m| m.size());
        self.decoding = self.undecoded();
        Ok(true)
    }

    /// Go to `offset` of a regular file, or of what it stands for: then all that is before must be decompressed again.
    pub fn seek(&mut self, offset: u64) -> Result<()> {
        if matches!(self.decoding, Decoding::Plain) {
            return self.seek_file(offset);
        }
        self.seek_file(0)?;
        self.from.at_end.set(false);
        self.bytes_read = 0;
        self.decoding = self.undecoded();
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

    /// Go on with another file, by the same descriptor: one that was opened in a subtransaction is closed when that is
    /// rolled back, and whoever reads may outlive it.
    pub fn replace(&mut self, mut other: Source) -> Result<()> {
        // SAFETY: two open descriptors of ours; the first one then is what the second one was.
        if unsafe { libc::dup2(other.from.fd, self.from.fd) } < 0 {
            let error = std::io::Error::last_os_error();
            other.close_quietly();
            return Err(Error::file_access(&format!("could not open file \"{}\" for reading", other.name), &error));
        }
        let fd = self.from.fd;
        // SAFETY: fcntl on our own descriptor.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        self.from = Handle::new(fd, other.from.waits);
        self.name = std::mem::take(&mut other.name);
        (self.file_size, self.compressed, self.bytes_read, self.end) = (other.file_size, other.compressed, 0, None);
        self.decoding = self.undecoded();
        other.close()
    }

    /// Close it, if it is open. For a program, complain if it failed, unless it only lost its reader. Guarded.
    pub fn close(&mut self) -> Result<()> {
        let (fd, pipe) =
            (std::mem::replace(&mut self.from.fd, -1), std::mem::replace(&mut self.pipe, std::ptr::null_mut()));
        if fd < 0 {
            return Ok(());
        }
        // Its thread, if there is one, ends by itself.
        self.decoding = Decoding::Plain;
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
            if status == 0 || (!self.from.at_end.get() && pg_sys::wait_result_is_signal(status, libc::SIGPIPE)) {
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
