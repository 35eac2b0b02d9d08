//! A digest of a file's contents, in sixteen bytes.
//!
//! The digest is XXH3 with 128 bits over the bytes on disk, most significant byte first, as `xxh128sum` prints it. It
//! need not resist an attacker: two files that were made to have equal digests are not loaded by mistake. Hashing is as
//! fast as reading the file.

use twox_hash::xxhash3_128::Hasher;

use super::compression::Compressed;
use super::file_identity::{Identity, changed};
use super::source::{Location, Source};
use crate::error::{Error, Result};

/// Bytes per read: they fit into a processor's own cache.
const PORTION: usize = 256 * 1024;

/// Digest of a file's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 16]);

impl Digest {
    /// Returns the digest of a location's file, and the file's identity during the read. None if it is no regular file.
    /// Guarded, and interruptible.
    pub fn of(location: &Location) -> Result<Option<(Digest, Identity)>> {
        let mut source = Source::open(location, Compressed::No.into())?;
        if source.file_size().is_none() {
            source.close()?;
            return Ok(None);
        }
        let identity = |source: &Source| match source.metadata() {
            Ok(meta) => Ok(Identity::of(&meta)),
            Err(e) => Err(Error::file_access(&format!("could not stat file \"{}\"", source.name()), &e)),
        };
        let before = identity(&source)?;
        let mut hasher = Hasher::new();
        let mut portion = vec![0; PORTION];
        loop {
            match source.read(&mut portion)? {
                0 => break,
                n => hasher.write(portion.get(..n).unwrap_or_default()),
            }
        }
        if identity(&source)? != before {
            return Err(changed(source.name()));
        }
        source.close()?;
        Ok(Some((Digest(hasher.finish_128().to_be_bytes()), before)))
    }

    /// Returns the first half, as a number.
    pub fn key(self) -> i64 {
        let Digest([a, b, c, d, e, f, g, h, ..]) = self;
        i64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}
