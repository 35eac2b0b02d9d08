//! Segments of a relation's file, opened to be written past the end.

use std::os::fd::RawFd;

use pgrx::pg_sys;

use super::points::point_errno;

/// A piece of a batch that lies in one segment.
#[derive(Debug)]
pub struct Piece {
    pub fd: RawFd,
    pub segment: u32,
    /// Pages of the batch.
    pub first: usize,
    pub count: usize,
    /// Byte in the segment.
    pub offset: i64,
}

/// Open segments; closed on the way out, whatever happens.
#[derive(Debug, Default)]
pub struct Pieces(pub Vec<Piece>);

impl Drop for Pieces {
    fn drop(&mut self) {
        for piece in &self.0 {
            // SAFETY: a transient file that this transaction opened; an error of close() is of no use here.
            unsafe { pg_sys::CloseTransientFile(piece.fd) };
        }
    }
}

/// Allocate space without moving the end of the file. A file system that cannot is written to without.
pub fn allocate(fd: RawFd, offset: i64, len: i64) -> std::io::Result<()> {
    loop {
        // SAFETY: a system call on an open descriptor.
        let result = unsafe { libc::fallocate(fd, libc::FALLOC_FL_KEEP_SIZE, offset, len) };
        let error = match point_errno!("append.allocate") {
            Some(errno) => std::io::Error::from_raw_os_error(errno),
            None if result == 0 => return Ok(()),
            None => std::io::Error::last_os_error(),
        };
        match error.raw_os_error() {
            Some(libc::EINTR) => (),
            Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL) => return Ok(()),
            _ => return Err(error),
        }
    }
}

/// Bytes of one write. The page cache takes memory for as much as it is given at once, in one piece if it can. Pieces as
/// large as a huge page are rare, or a virtual machine has handed them back to its host: writes of 2 MB were found to take
/// ten times as long as smaller ones. Where tests can make a write fail, a batch is to have several.
const WRITE: usize = if cfg!(feature = "points") { 16 * pg_sys::BLCKSZ as usize } else { 256 << 10 };

/// Write it all, and no byte twice: what is below the end of the file may already be somebody else's. Returns the
/// number of bytes written.
pub fn write_all(fd: RawFd, bytes: &[u8], offset: i64) -> (usize, std::io::Result<()>) {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        let len = rest.len().min(WRITE);
        if let Some(errno) = point_errno!("append.write") {
            return (done, Err(std::io::Error::from_raw_os_error(errno)));
        }
        // SAFETY: a system call on an open descriptor with bytes that are there.
        let n: isize = unsafe { libc::pwrite(fd, rest.as_ptr().cast(), len, offset + done as i64) };
        match usize::try_from(n) {
            Ok(0) => return (done, Err(std::io::Error::from_raw_os_error(libc::ENOSPC))),
            Ok(n) => done += n,
            Err(_) => {
                let error = std::io::Error::last_os_error();
                if error.kind() != std::io::ErrorKind::Interrupted {
                    return (done, Err(error));
                }
            }
        }
    }
    (done, Ok(()))
}
