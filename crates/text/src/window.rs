//! The buffer between a source of bytes and the reader.
//!
//! ```text
//!      taken        |  records not read yet  |  not yet verified  |  space
//!  0            start                     verified            filled      buf.len()
//! ```
//!
//! The source writes into [`Window::space`]. Bytes become visible to the reader once they are verified, and are
//! overwritten after they were read. The window holds one read and the record that the end of the read before cut in
//! two. It grows by a sixteenth, not by doubling, so that a huge record needs little more memory than its own size. The
//! system moves large buffers without copying them.

use crate::scan::kernel::FLAG;

/// Limit of the buffer, in bytes: a position and [`FLAG`] share a word. COPY's limit of a record is lower.
const MOST: usize = FLAG as usize - 64;

/// The buffer.
#[derive(Debug)]
pub struct Window {
    buf: Vec<u8>,
    start: usize,
    verified: usize,
    filled: usize,
    /// Bytes before this position may be invalid.
    dirty_end: usize,
    /// End of a chunk. Bytes behind it only help to find errors before it.
    end: usize,
    /// Number of bytes to request from the source at a time.
    read_size: usize,
    /// The most bytes of a character in the encoding that is verified.
    max_char: usize,
    at_end: bool,
    failed: bool,
    /// Number of bytes of the stream before `buf[0]`.
    before: u64,
    /// The window ends early: its state otherwise.
    whole: Option<(usize, usize, bool, bool)>,
}

impl Window {
    /// Creates a window that requests `read_size` bytes from its source at a time.
    #[must_use]
    pub fn new(read_size: usize, max_char: usize) -> Window {
        Window {
            buf: Vec::new(),
            start: 0,
            verified: 0,
            filled: 0,
            dirty_end: 0,
            end: usize::MAX,
            read_size: read_size.max(1),
            max_char: max_char.max(1),
            at_end: false,
            failed: false,
            before: 0,
            whole: None,
        }
    }

    /// Ends the window at this position, as if the data ended there, until [`Window::unlimit`]. An earlier limit stays.
    pub fn limit(&mut self, end: usize) {
        if self.whole.is_none() && end <= self.verified {
            self.whole = Some((self.verified, self.filled, self.at_end, self.failed));
            (self.verified, self.filled, self.at_end, self.failed) = (end, end, true, false);
        }
    }

    /// The end that [`Window::limit`] has set.
    #[must_use]
    pub fn limited(&self) -> Option<usize> {
        self.whole.map(|_| self.verified)
    }

    /// Removes the limit.
    pub fn unlimit(&mut self) {
        if let Some(whole) = self.whole.take() {
            (self.verified, self.filled, self.at_end, self.failed) = whole;
        }
    }

    /// The buffer up to the last verified byte; positions are offsets into it.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.buf.get(..self.verified).unwrap_or_default()
    }

    /// The bytes behind the verified ones.
    #[must_use]
    pub fn unverified(&self) -> &[u8] {
        self.buf.get(self.verified..self.filled).unwrap_or_default()
    }

    /// Whether [`Window::bytes`] is final: no byte will be added.
    #[inline]
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.failed || (self.at_end && self.verified == self.filled)
    }

    /// Whether [`Window::bytes`] ends where the data end.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.at_end && !self.failed && self.verified == self.filled
    }

    /// Whether the data are a chunk that ends at `position`.
    #[must_use]
    pub fn is_end_of_chunk(&self, position: usize) -> bool {
        self.end != usize::MAX && self.whole.is_none() && position == self.verified && self.is_at_end()
    }

    /// Whether invalid bytes follow [`Window::bytes`].
    #[must_use]
    pub fn is_failed(&self) -> bool {
        self.failed
    }

    /// End of the bytes that may be invalid: an invalid byte is before it, if the window has one.
    #[inline]
    #[must_use]
    pub fn dirty_end(&self) -> usize {
        self.dirty_end
    }

    /// Position in the stream of the byte at `position`.
    #[must_use]
    pub fn stream_offset(&self, position: usize) -> u64 {
        self.before.wrapping_add(position as u64)
    }

    /// Empties the window. Its next byte is at `offset` of the stream.
    pub fn restart(&mut self, offset: u64) {
        (self.start, self.verified, self.filled, self.dirty_end) = (0, 0, 0, 0);
        self.whole = None;
        (self.at_end, self.failed) = (false, false);
        self.end = usize::MAX;
        self.before = offset;
    }

    /// Returns the buffer, at least `len` bytes long, to assemble a chunk in place. It keeps its contents. `None` if
    /// memory is exhausted.
    pub fn chunk_space(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.buf.len() < len {
            self.grow(len)?;
        }
        Some(&mut self.buf)
    }

    /// Frees the memory beyond `len` bytes.
    pub fn shrink(&mut self, len: usize) {
        if self.buf.len() > len {
            self.buf.truncate(len);
            self.buf.shrink_to_fit();
        }
    }

    /// Makes the bytes from `start` to `end` of the buffer the only data, not yet verified. The first one is at
    /// `offset` of the stream. The bytes from `end` to `known` follow them in the stream.
    pub fn take_chunk(&mut self, start: usize, end: usize, known: usize, offset: u64) {
        self.whole = None;
        self.filled = known.min(self.buf.len());
        self.end = end;
        self.start = start.min(self.filled);
        self.verified = self.start;
        self.dirty_end = 0;
        (self.at_end, self.failed) = (true, false);
        // Wraps if the buffer has more room before the chunk than the stream has bytes.
        self.before = offset.wrapping_sub(self.start as u64);
    }

    /// Makes room for a read; all bytes before `start` have been read. Returns by how much positions shrink if the
    /// buffer was moved. `None` if memory is exhausted.
    pub fn make_space(&mut self, start: usize) -> Option<usize> {
        self.start = start.min(self.verified);
        let mut moved = 0;
        if self.filled + self.read_size > self.buf.len() && self.start > 0 {
            moved = self.start;
            let tail = self.filled - moved;
            if tail < self.read_size && self.buf.len() > 8 * self.read_size.max(1 << 20) {
                // A huge record is done: free its memory.
                self.buf = self.buf.get(moved..self.filled).unwrap_or_default().to_vec();
            } else {
                self.buf.copy_within(moved..self.filled, 0);
            }
            self.start = 0;
            self.verified -= moved;
            self.dirty_end = self.dirty_end.saturating_sub(moved);
            self.filled -= moved;
            self.before += moved as u64;
        }
        let wanted = self.filled + self.read_size;
        if wanted > self.buf.len() {
            let len = wanted.max((self.filled + self.filled / 16).min(MOST));
            self.grow(len)?;
        }
        Some(moved)
    }

    /// Grows the buffer to `len` bytes. A record may be larger than memory, and a failed allocation must not abort the
    /// process.
    fn grow(&mut self, len: usize) -> Option<()> {
        if len > MOST {
            return None;
        }
        self.buf.try_reserve_exact(len - self.buf.len()).ok()?;
        self.buf.resize(len, 0);
        Some(())
    }

    /// The space for the source to write to. Has at least one byte after [`Window::make_space`].
    #[must_use]
    pub fn space(&mut self) -> &mut [u8] {
        let end = (self.filled + self.read_size).min(self.buf.len());
        self.buf.get_mut(self.filled..end).unwrap_or_default()
    }

    /// The source wrote `n` bytes; 0 means that it has ended.
    pub fn fill(&mut self, n: usize) {
        self.filled = (self.filled + n).min(self.buf.len());
        self.at_end |= n == 0;
    }

    /// Closes the window: the next bytes are invalid, and the source cannot store them here.
    pub fn fail(&mut self) {
        self.failed = true;
    }

    /// After [`Window::verify`] has failed: accepts the invalid byte and continues behind it.
    pub fn accept_invalid(&mut self) {
        self.pass_invalid();
        self.dirty_end = self.verified;
    }

    /// After [`Window::verify`] has failed: replaces the invalid byte with `byte` and continues behind it.
    pub fn mend(&mut self, byte: u8) {
        if let Some(invalid) = self.buf.get_mut(self.verified) {
            *invalid = byte;
        }
        self.pass_invalid();
    }

    fn pass_invalid(&mut self) {
        self.failed = false;
        self.verified = (self.verified + 1).min(self.filled);
        if self.verified >= self.end {
            (self.verified, self.filled) = (self.end, self.end);
        }
    }

    /// Marks the first `valid` unverified bytes as valid. The next character, if any, is invalid or incomplete.
    pub fn verify(&mut self, valid: usize) {
        self.verified = (self.verified + valid).min(self.filled);
        if self.verified > self.end {
            // The chunk and the character behind it are valid.
            (self.verified, self.filled) = (self.end, self.end);
        }
        let left = self.filled - self.verified;
        // As in CopyConvertBuf: bytes are invalid if they cannot be verified and more bytes would not change that.
        self.failed |= left > 0 && (self.at_end || left >= self.max_char);
    }
}
