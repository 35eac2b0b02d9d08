//! Tells whether a file is still the one that was opened first.

use std::os::unix::fs::MetadataExt;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use crate::error::Error;

/// Identifies a file and its version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Identity {
    device: u64,
    inode: u64,
    pub size: u64,
    seconds: i64,
    nanoseconds: i64,
}

impl Identity {
    /// Returns the identity of a regular file.
    pub fn of(meta: &std::fs::Metadata) -> Identity {
        Identity {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            seconds: meta.mtime(),
            nanoseconds: meta.mtime_nsec(),
        }
    }

    pub fn to_bytes(self) -> [u8; 40] {
        let Identity { device, inode, size, seconds, nanoseconds } = self;
        let words = [device, inode, size, seconds.cast_unsigned(), nanoseconds.cast_unsigned()];
        let mut bytes = [0; 40];
        bytes.chunks_exact_mut(8).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_ne_bytes()));
        bytes
    }

    pub fn from_bytes(bytes: [u8; 40]) -> Identity {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |i: usize| words.get(i).map_or(0, |word| u64::from_ne_bytes(*word));
        let (seconds, nanoseconds) = (word(3).cast_signed(), word(4).cast_signed());
        Identity { device: word(0), inode: word(1), size: word(2), seconds, nanoseconds }
    }

    /// Returns the time of the file's last change.
    pub fn modified(self) -> pg_sys::TimestampTz {
        // From 1970 to 2000.
        let seconds = self.seconds.saturating_sub(946_684_800);
        seconds.saturating_mul(1_000_000).saturating_add(self.nanoseconds / 1_000)
    }

    /// Returns true if this is the file of `earlier` with the same bytes, possibly with more bytes behind them.
    pub fn continues(self, earlier: Identity) -> bool {
        self == earlier || ((self.device, self.inode) == (earlier.device, earlier.inode) && self.size > earlier.size)
    }
}

/// Error for a file that has changed since it was first opened.
pub fn changed(name: &str) -> Error {
    Error::new(
        Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("file \"{name}\" changed while it was being read"),
    )
}
