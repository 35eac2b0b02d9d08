//! Segments of a relation's file, opened to write pages past the end or in place.
//!
//! Opening and allocating may fail and raise, so both come before the WAL. Writing raises nothing and returns its
//! error.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::{Deref, Range};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::fs::FileExt as _;
use std::rc::Rc;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use crate::error::{Error, Result};
use crate::server::compat;
use crate::server::points::{point_errno, point_quiet};
use crate::server::relation::Relation;
use crate::server::section::Section;

const BLCKSZ: usize = pg_sys::BLCKSZ as usize;
const SEGMENT: u32 = pg_sys::RELSEG_SIZE;
/// MaxBlockNumber
const MAX_BLOCK: u32 = 0xffff_fffe;

/// A file of the server's list, which closes it at the end of the transaction if this value is not dropped.
#[derive(Debug)]
pub struct TransientFile(ManuallyDrop<File>);

impl Deref for TransientFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for TransientFile {
    fn drop(&mut self) {
        // SAFETY: opened by OpenTransientFile and closed only here; an error of close() would not matter.
        unsafe { pg_sys::CloseTransientFile(self.as_raw_fd()) };
    }
}

/// The main fork of a relation, in segments.
#[derive(Debug)]
pub struct RelationFile<'r> {
    relation: Relation<'r>,
    path: CString,
    temporary: bool,
}

impl<'r> RelationFile<'r> {
    /// The main fork of an open relation. Guarded.
    pub fn new(relation: Relation<'r>, temporary: bool) -> Result<RelationFile<'r>> {
        let path = compat::relation_path(relation).ok_or_else(|| {
            let message = "pages can be written only to relations of the magnetic disk storage manager";
            Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message)
        })?;
        Ok(RelationFile { relation, path, temporary })
    }

    /// Its path, for messages.
    pub fn display(&self) -> std::borrow::Cow<'_, str> {
        self.path.to_string_lossy()
    }

    /// Open the segments for `count` pages from block `first` on, and allocate their space. Guarded.
    pub fn open_segments(&self, first: u32, count: usize) -> Result<OpenSegments> {
        let mut segments = OpenSegments::default();
        self.check_end(first, count)?;
        let mut done = 0;
        let mut reserved = true;
        while done < count {
            // Within MAX_BLOCK, checked above.
            let block = first + done as u32;
            let (segment, within) = (block / SEGMENT, block % SEGMENT);
            let pages = (count - done).min((SEGMENT - within) as usize);
            let file = Rc::new(self.open(segment, libc::O_CREAT)?);
            let offset = u64::from(within) * BLCKSZ as u64;
            reserved &= allocate(&file, offset, pages * BLCKSZ).map_err(|e| self.extend_error(&e))?;
            segments.list.push(SegmentPages { file, segment, first: done, count: pages, offset });
            done += pages;
        }
        segments.reserved = reserved;
        Ok(segments)
    }

    /// Raise the error that mdextend (md.c) raises beyond the last block.
    fn check_end(&self, first: u32, count: usize) -> Result<()> {
        if u64::from(first) + count as u64 > u64::from(MAX_BLOCK) + 1 {
            let path = self.path.to_string_lossy();
            let message = format!("cannot extend file \"{path}\" beyond {MAX_BLOCK} blocks");
            return Err(Error::new(Code::ERRCODE_PROGRAM_LIMIT_EXCEEDED, message));
        }
        Ok(())
    }

    /// Open the segment of an existing block. Guarded.
    pub fn open_segment(&self, block: u32) -> Result<Segment> {
        let number = block / SEGMENT;
        Ok(Segment { number, file: Rc::new(self.open(number, 0)?) })
    }

    /// Offset of a block in its segment, in bytes.
    fn offset_of(block: u32) -> u64 {
        u64::from(block % SEGMENT) * BLCKSZ as u64
    }

    fn open(&self, segment: u32, flags: i32) -> Result<TransientFile> {
        let path = self.segment_path(segment);
        // SAFETY: a guarded call with a valid string. The result closes the descriptor, unless the end of the subtransaction
        // does. Results stay in guarded frames, which unwind before that.
        let file = unsafe {
            let fd = pg_sys::OpenTransientFile(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC | flags);
            (fd >= 0).then(|| TransientFile(ManuallyDrop::new(File::from_raw_fd(fd))))
        };
        file.ok_or_else(|| {
            let error = io::Error::last_os_error();
            Error::file_access(&format!("could not open file \"{}\"", path.to_string_lossy()), &error)
        })
    }

    /// Write these pages, and request a sync of each segment after its write. Raises nothing. Returns the
    /// number of pages written, and the error.
    pub fn write(&self, segments: &[SegmentPages], pages: &[u8], section: &Section) -> (usize, Result<()>) {
        let mut written = 0;
        for (number, segment_pages) in segments.iter().enumerate() {
            let bytes = pages.get(segment_pages.first * BLCKSZ..(segment_pages.first + segment_pages.count) * BLCKSZ);
            let (bytes_written, result) =
                write_all(&segment_pages.file, bytes.unwrap_or_default(), segment_pages.offset);
            written += bytes_written / BLCKSZ;
            point_quiet!("append.written");
            // One request for all pages of a segment, or for those written before an error.
            let is_last = segments.get(number + 1).is_none_or(|next| next.segment != segment_pages.segment);
            if !self.temporary && (is_last || result.is_err()) {
                // In a critical section, no memory is allocated to compact a full request queue; the request is refused
                // instead.
                section.critically(|| self.request_sync(&segment_pages.file, segment_pages.segment));
            }
            point_quiet!("append.registered");
            if let Err(error) = result {
                return (written, Err(self.extend_error(&error)));
            }
        }
        (written, Ok(()))
    }

    /// Extend segments to their full length, before a later one is written to. The server takes a shorter segment for
    /// the last one, now and in recovery. Added bytes read as zeroes. Guarded.
    pub fn complete_segments(&self, segments: Range<u32>) -> Result<()> {
        for segment in segments {
            let file = self.open(segment, libc::O_CREAT)?;
            let whole = u64::from(SEGMENT) * BLCKSZ as u64;
            // No segment is longer, so nothing is cut off even if another process writes meanwhile.
            let is_whole = file.metadata().map(|status| status.len() >= whole);
            is_whole
                .and_then(|is_whole| if is_whole { Ok(()) } else { file.set_len(whole) })
                .map_err(|error| self.extend_error(&error))?;
            if !self.temporary {
                self.request_sync(&file, segment);
            }
        }
        Ok(())
    }

    /// The segment of a block.
    pub fn segment_of(block: u32) -> u32 {
        block / SEGMENT
    }

    fn segment_path(&self, segment: u32) -> CString {
        if segment == 0 {
            return self.path.clone();
        }
        let number = format!(".{segment}");
        CString::new([self.path.as_bytes(), number.as_bytes()].concat()).unwrap_or_default()
    }

    /// The error of mdextend (md.c).
    pub fn extend_error(&self, error: &io::Error) -> Error {
        let path = self.path.to_string_lossy();
        Error::file_access(&format!("could not extend file \"{path}\""), error).hint("Check free disk space.")
    }

    /// Request a sync as register_dirty_segment (md.c) does.
    fn request_sync(&self, file: &File, segment: u32) {
        // Raises nothing unless asked to retry. A failed sync here stops the server, as in core, for the kernel may have
        // dropped the data.
        let forwarded = compat::request_sync(self.relation, segment);
        // SAFETY: a setting.
        let is_enabled = unsafe { pg_sys::enableFsync };
        if !forwarded
            && is_enabled
            && let Err(error) = file.sync_all()
        {
            let message = format!("could not fsync file \"{}\"", self.segment_path(segment).to_string_lossy());
            Error::file_access(&message, &error).raise_panic();
        }
    }
}

/// An open segment, closed when it is dropped.
#[derive(Debug)]
pub struct Segment {
    number: u32,
    file: Rc<TransientFile>,
}

impl Segment {
    pub fn has(&self, block: u32) -> bool {
        block / SEGMENT == self.number
    }

    /// `count` pages, from this block of the segment on; they are the pages of a batch from `first` on.
    pub fn segment_pages(&self, block: u32, first: usize, count: usize) -> SegmentPages {
        let (file, offset) = (Rc::clone(&self.file), RelationFile::offset_of(block));
        SegmentPages { file, segment: self.number, first, count, offset }
    }

    /// Read pages from a block of this segment on. Returns the number of pages that exist.
    pub fn read(&self, block: u32, pages: &mut [u8]) -> usize {
        let offset = RelationFile::offset_of(block);
        let mut done = 0;
        while let Some(rest) = pages.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(_) => break,
            }
        }
        done / BLCKSZ
    }
}

/// The pages of a batch that lie in one segment.
#[derive(Debug)]
pub struct SegmentPages {
    file: Rc<TransientFile>,
    segment: u32,
    /// The first page, as an index in the batch.
    pub first: usize,
    pub count: usize,
    /// Offset in the segment, in bytes.
    offset: u64,
}

/// Open segments, closed when this is dropped.
#[derive(Debug, Default)]
pub struct OpenSegments {
    pub list: Vec<SegmentPages>,
    /// The file system has allocated the space; not every file system can.
    pub reserved: bool,
}

/// Allocate space without moving the end of the file. False if the file system cannot, and the file is written to
/// without it.
fn allocate(file: &File, offset: u64, len: usize) -> io::Result<bool> {
    loop {
        // SAFETY: a system call on an open descriptor.
        let result = unsafe { libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, offset as i64, len as i64) };
        let error = match point_errno!("append.allocate") {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None if result == 0 => return Ok(true),
            None => io::Error::last_os_error(),
        };
        match error.raw_os_error() {
            Some(libc::EINTR) => (),
            Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL) => return Ok(false),
            _ => return Err(error),
        }
    }
}

/// Bytes of one write. The page cache allocates memory for all bytes of a write, contiguously if it can. Free memory of
/// the size of a huge page is rare, or a virtual machine has returned it to its host. Writes of 2 MB were measured to
/// take ten times as long as smaller ones. With fault points the size is smaller, so that a write in the middle of a
/// batch can fail.
const WRITE: usize = if cfg!(feature = "points") { 16 * BLCKSZ } else { 256 << 10 };

/// Write all bytes, and none twice: another process may already have changed the pages below the end of the file.
/// Returns the number of bytes written.
fn write_all(file: &File, bytes: &[u8], offset: u64) -> (usize, io::Result<()>) {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        if let Some(errno) = point_errno!("append.write") {
            return (done, Err(io::Error::from_raw_os_error(errno)));
        }
        let piece = rest.get(..WRITE).unwrap_or(rest);
        match file.write_at(piece, offset + done as u64) {
            Ok(0) => return (done, Err(io::Error::from_raw_os_error(libc::ENOSPC))),
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            Err(error) => return (done, Err(error)),
        }
    }
    (done, Ok(()))
}
