//! The buffer between a source of bytes and the reader.
//!
//! ```text
//!      taken        |  records not read yet  |  not yet verified  |  space
//!  0            start                     verified            filled      buf.len()
//! ```
//!
//! The source writes into [`Window::space`]; what is valid in its encoding becomes visible to the reader; what
//! has been read is overwritten. The window holds one read's worth of bytes and the record that its end cut in two,
//! and grows by a sixteenth, not by doubling, so that one huge record costs little more than its own size; the system moves
//! large buffers without copying them.

use crate::scan::kernel::FLAG;

/// The buffer is never longer: a position shares its word with [`FLAG`]. What a record may have for COPY is less.
const MOST: usize = FLAG as usize - 64;

/// The buffer.
#[derive(Debug)]
pub struct Window {
    buf: Vec<u8>,
    start: usize,
    verified: usize,
    filled: usize,
    /// Where a chunk ends. Bytes behind it only tell what is wrong before them.
    end: usize,
    /// Bytes asked of the source at a time.
    read_size: usize,
    /// Most bytes that one character takes in the encoding that is verified.
    max_char: usize,
    at_end: bool,
    failed: bool,
    /// Bytes of the stream before `buf[0]`.
    before: u64,
}

impl Window {
    /// A window that asks its source for `read_size` bytes at a time.
    #[must_use]
    pub fn new(read_size: usize, max_char: usize) -> Window {
        Window {
            buf: Vec::new(),
            start: 0,
            verified: 0,
            filled: 0,
            end: usize::MAX,
            read_size: read_size.max(1),
            max_char: max_char.max(1),
            at_end: false,
            failed: false,
            before: 0,
        }
    }

    /// The whole buffer up to what is verified; positions are offsets into it.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.buf.get(..self.verified).unwrap_or_default()
    }

    /// Bytes that follow what is verified.
    #[must_use]
    pub fn unverified(&self) -> &[u8] {
        self.buf.get(self.verified..self.filled).unwrap_or_default()
    }

    /// No byte will be added to [`Window::bytes`].
    #[inline]
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.failed || (self.at_end && self.verified == self.filled)
    }

    /// [`Window::bytes`] ends where the data end.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.at_end && !self.failed && self.verified == self.filled
    }

    /// The bytes at the end of [`Window::bytes`] are followed by invalid ones.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        self.failed
    }

    /// Position in the stream of the byte at `position`.
    #[must_use]
    pub fn stream_offset(&self, position: usize) -> u64 {
        self.before.wrapping_add(position as u64)
    }

    /// Forget everything: an empty window whose first byte is at `offset` of the stream.
    pub fn restart(&mut self, offset: u64) {
        (self.start, self.verified, self.filled) = (0, 0, 0);
        (self.at_end, self.failed) = (false, false);
        self.end = usize::MAX;
        self.before = offset;
    }

    /// The buffer itself, at least `len` bytes long, for a chunk that is put together in place. What it holds stays.
    /// `None` if there is no memory.
    pub fn chunk_space(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.buf.len() < len {
            self.grow(len)?;
        }
        Some(&mut self.buf)
    }

    /// Give back the memory of a buffer that is longer than `len`.
    pub fn shrink(&mut self, len: usize) {
        if self.buf.len() > len {
            self.buf.truncate(len);
            self.buf.shrink_to_fit();
        }
    }

    /// The bytes from `start` to `end` of the buffer are all there is, not yet verified; the first one is at `offset`
    /// of the stream. Those up to `known` follow them there.
    pub fn take_chunk(&mut self, start: usize, end: usize, known: usize, offset: u64) {
        self.filled = known.min(self.buf.len());
        self.end = end;
        self.start = start.min(self.filled);
        self.verified = self.start;
        (self.at_end, self.failed) = (true, false);
        // Wraps where the buffer has more room before the chunk than the stream has bytes.
        self.before = offset.wrapping_sub(self.start as u64);
    }

    /// Everything before `start` has been read. Returns by how much positions shrink: the buffer was moved so that
    /// a read fits. `None` if there is no memory.
    pub fn make_space(&mut self, start: usize) -> Option<usize> {
        self.start = start.min(self.verified);
        let mut moved = 0;
        if self.filled + self.read_size > self.buf.len() && self.start > 0 {
            moved = self.start;
            let tail = self.filled - moved;
            if tail < self.read_size && self.buf.len() > 8 * self.read_size.max(1 << 20) {
                // A huge record has passed: give its memory back.
                self.buf = self.buf.get(moved..self.filled).unwrap_or_default().to_vec();
            } else {
                self.buf.copy_within(moved..self.filled, 0);
            }
            self.start = 0;
            self.verified -= moved;
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

    /// Make the buffer `len` bytes long, which is more than it is. A record may be larger than memory, and an allocation that
    /// fails must not be the end of the process.
    fn grow(&mut self, len: usize) -> Option<()> {
        if len > MOST {
            return None;
        }
        self.buf.try_reserve_exact(len - self.buf.len()).ok()?;
        self.buf.resize(len, 0);
        Some(())
    }

    /// Where the source writes. At least one byte long after [`Window::make_space`].
    #[must_use]
    pub fn space(&mut self) -> &mut [u8] {
        let end = (self.filled + self.read_size).min(self.buf.len());
        self.buf.get_mut(self.filled..end).unwrap_or_default()
    }

    /// The source wrote `n` bytes; none means it has ended.
    pub fn fill(&mut self, n: usize) {
        self.filled = (self.filled + n).min(self.buf.len());
        self.at_end |= n == 0;
    }

    /// What would follow is invalid, and nobody can put it in here.
    pub fn fail(&mut self) {
        self.failed = true;
    }

    /// After [`Window::verify`] has failed: take the invalid byte for what it is, and go on behind it.
    pub fn accept_invalid(&mut self) {
        self.failed = false;
        self.verified = (self.verified + 1).min(self.filled);
        if self.verified >= self.end {
            (self.verified, self.filled) = (self.end, self.end);
        }
    }

    /// After [`Window::verify`] has failed: another byte in place of the invalid one, and go on behind it.
    pub fn mend(&mut self, byte: u8) {
        if let Some(invalid) = self.buf.get_mut(self.verified) {
            *invalid = byte;
        }
        self.accept_invalid();
    }

    /// Of the unverified bytes, the first `valid` are valid and the next character, if any, is not, or not complete.
    pub fn verify(&mut self, valid: usize) {
        self.verified = (self.verified + valid).min(self.filled);
        if self.verified > self.end {
            // A chunk, and the character behind it, are valid.
            (self.verified, self.filled) = (self.end, self.end);
        }
        let left = self.filled - self.verified;
        // As in CopyConvertBuf: what cannot be verified is invalid if more bytes would not change that.
        self.failed |= left > 0 && (self.at_end || left >= self.max_char);
    }
}
