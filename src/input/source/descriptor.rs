//! A descriptor of one process, for use by others.

use std::ffi::{CString, c_int};

use super::location::Location;

/// A process's descriptor, as a path that other processes can open. On systems without such paths the open fails.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Descriptor {
    process: u32,
    fd: c_int,
}

impl Descriptor {
    /// No descriptor.
    pub const NONE: Descriptor = Descriptor { process: 0, fd: -1 };

    /// A descriptor of this process.
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
