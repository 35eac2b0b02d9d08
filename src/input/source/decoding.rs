//! How the bytes of an open source are decoded.

use std::cell::RefCell;
use std::io::{BufReader, Read};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::handle::Handle;
use crate::error::Error;
use crate::input::client::Client;
use crate::input::coding::Steps;
use crate::input::decompressor::{Counted, Decompressor};
use crate::input::ring::Ring;

/// Compressed bytes that are read for a sample.
pub const SAMPLE: u64 = 2 << 20;

/// Bytes that a decoder gets at a time if it runs in the reading process.
pub const PORTION: usize = 16 << 10;

/// State of the decoding.
pub enum Decoding {
    /// Bytes are delivered unchanged.
    Plain,
    /// The first bytes, which are not read yet, show the steps.
    Undetected,
    /// Coded; nothing is read yet.
    New(Steps),
    Ahead(Steps, Decompressor),
    Here(Steps, Here),
    /// The bytes are shared: each process reads chunks by position ([`Source::read_exactly`]).
    Shared(Steps, Ring),
    /// A client sends the bytes; there is no descriptor.
    Client(Client),
}

impl std::fmt::Debug for Decoding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Decoding")
    }
}

/// A decoder in the reading process.
pub struct Here {
    pub decoder: Box<dyn Read>,
    pub consumed: Arc<AtomicU64>,
    /// The source's own error: a decoder can only return an I/O error.
    pub failed: Rc<RefCell<Option<Error>>>,
}

impl Here {
    pub fn begin(steps: Steps, from: Handle, most: u64) -> std::io::Result<Here> {
        let (consumed, failed) = (Arc::new(AtomicU64::new(0)), Rc::new(RefCell::new(None)));
        let fetch = Fetch { from, left: most, failed: Rc::clone(&failed) };
        let inner = BufReader::with_capacity(PORTION, fetch);
        let decoder = steps.decoder(Counted { inner, consumed: Arc::clone(&consumed) })?;
        Ok(Here { decoder, consumed, failed })
    }
}

/// Reads a source for a decoder.
struct Fetch {
    from: Handle,
    /// Bytes that may still be read.
    left: u64,
    failed: Rc<RefCell<Option<Error>>>,
}

impl Read for Fetch {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let buffer = buffer.get_mut(..most).unwrap_or_default();
        let n = self.from.read(buffer).map_err(|error| {
            *self.failed.borrow_mut() = Some(error);
            std::io::Error::other("source")
        })?;
        self.left -= n as u64;
        Ok(n)
    }
}
