//! How the bytes of an open source become what it delivers.

use std::cell::RefCell;
use std::io::{BufReader, Read};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::handle::Handle;
use crate::error::Error;
use crate::pg::client::Client;
use crate::pg::compression::Compression;
use crate::pg::decompressor::{Counted, Decompressor};
use crate::pg::ring::Ring;

/// Bytes that are read for a sample, whatever they stand for.
pub const SAMPLE: u64 = 2 << 20;

/// Bytes that a decoder is given at a time where they are decompressed when they are wanted.
pub const PORTION: usize = 16 << 10;

/// How its bytes become what is delivered.
pub enum Decoding {
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
pub struct Here {
    pub decoder: Box<dyn Read>,
    pub consumed: Arc<AtomicU64>,
    /// What was wrong with the source, for a decoder knows only errors of its own kind.
    pub failed: Rc<RefCell<Option<Error>>>,
}

impl Here {
    pub fn begin(compression: Compression, from: Handle, first: Vec<u8>, most: u64) -> std::io::Result<Here> {
        let (consumed, failed) = (Arc::new(AtomicU64::new(0)), Rc::new(RefCell::new(None)));
        let fetch = Fetch { from, first, left: most, failed: Rc::clone(&failed) };
        let inner = BufReader::with_capacity(PORTION, fetch);
        let decoder = compression.decoder(Counted { inner, consumed: Arc::clone(&consumed) })?;
        Ok(Here { decoder, consumed, failed })
    }
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
