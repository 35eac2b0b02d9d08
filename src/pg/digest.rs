//! The contents of a file in sixteen bytes.
//!
//! They are XXH3's 128 bits of the bytes as they lie on disk, most significant first, which is what `xxh128sum` prints. Nobody defends himself here: two files
//! that somebody has made to have the same are none that anybody loads by mistake. It is read as fast as the file is.

use twox_hash::xxhash3_128::Hasher;

use super::chunk::{Identity, changed};
use super::compression::Compressed;
use super::source::{Location, Source};
use crate::error::{Error, Result};

/// Read at a time: what fits beside the rest into a processor's own cache.
const PORTION: usize = 256 * 1024;

/// What is in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 16]);

impl Digest {
    /// The file of a location, and what it was while it was read; None if it is none whose bytes stay. Guarded, and interruptible.
    pub fn of(location: &Location) -> Result<Option<(Digest, Identity)>> {
        let mut source = Source::open(location, Compressed::No)?;
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

    /// Its first half, as a number.
    pub fn key(self) -> i64 {
        let Digest([a, b, c, d, e, f, g, h, ..]) = self;
        i64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}
