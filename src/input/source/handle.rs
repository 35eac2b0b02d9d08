//! Reads an open descriptor, or bytes of the database, without blocking uninterruptibly.

use std::cell::Cell;
use std::ffi::c_int;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::rc::Rc;

use pgrx::{check_for_interrupts, pg_sys};

use super::supply::Supply;
use crate::error::{Error, Result};
use crate::server::background::{reset_latch, wait_on_latch_or_socket};
use crate::server::points::{point, point_errno};

/// An open descriptor.
#[derive(Debug, Clone)]
pub struct Handle {
    /// -1 once it is closed.
    pub fd: c_int,
    /// Reads wait for readiness.
    pub waits: bool,
    pub at_end: Rc<Cell<bool>>,
    /// If set, there is no descriptor, and these are the bytes.
    pub supply: Option<Supply>,
    /// Bytes that [`Handle::look_ahead`] has returned, and [`Handle::read`] has not.
    pub unread: Vec<u8>,
}

impl Handle {
    pub fn new(fd: c_int, waits: bool) -> Handle {
        Handle { fd, waits, at_end: Rc::default(), supply: None, unread: Vec::new() }
    }

    pub fn of_supply(supply: Supply) -> Handle {
        Handle { supply: Some(supply), ..Handle::new(-1, false) }
    }

    pub fn file(&self) -> ManuallyDrop<File> {
        // SAFETY: the descriptor is open. The server closes it: the File is never dropped.
        ManuallyDrop::new(unsafe { File::from_raw_fd(self.fd) })
    }

    /// Whether the end was read, and there are no bytes before it.
    pub fn has_ended(&self) -> bool {
        self.at_end.get() && self.unread.is_empty()
    }

    /// Look at the first bytes, as long as `goes_on` requests more than these, and at most `N`. Guarded, and interruptible.
    pub fn look_ahead<const N: usize>(&mut self, goes_on: impl Fn(&[u8]) -> bool) -> Result<&[u8]> {
        while self.unread.len() < N && goes_on(&self.unread) {
            let seen = std::mem::take(&mut self.unread);
            let mut more = [0; N];
            let n = self.read(more.get_mut(seen.len()..).unwrap_or_default())?;
            self.unread = seen;
            self.unread.extend(more.iter().skip(self.unread.len()).take(n));
            if n == 0 {
                break;
            }
        }
        Ok(&self.unread)
    }

    /// Read the next bytes; none at the end. Guarded, and interruptible.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if !self.unread.is_empty() {
            let n = self.unread.len().min(buffer.len());
            buffer.iter_mut().zip(self.unread.drain(..n)).for_each(|(to, from)| *to = from);
            return Ok(n);
        }
        if let Some(supply) = &self.supply {
            let count = supply.read(buffer)?;
            self.at_end.set(self.at_end.get() || (count == 0 && !buffer.is_empty()));
            return Ok(count);
        }
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

    /// Wait until a read would return bytes or the end.
    fn wait(&self) -> Result<()> {
        let events = pg_sys::WL_LATCH_SET | pg_sys::WL_SOCKET_READABLE | pg_sys::WL_EXIT_ON_PM_DEATH;
        loop {
            let happened = wait_on_latch_or_socket(events, self.fd);
            if happened.cast_unsigned() & pg_sys::WL_LATCH_SET != 0 {
                reset_latch();
                check_for_interrupts!();
            }
            if happened.cast_unsigned() & pg_sys::WL_SOCKET_READABLE != 0 {
                return Ok(());
            }
        }
    }
}
