//! Bytes on their way in: space for them, and which of them are valid.

use std::ops::Range;

use super::{Current, Invalid, Reader};
use crate::verify::utf8_valid_around;

impl Reader {
    /// Where the source writes the next bytes. Ends the life of the current record.
    ///
    /// # Panics
    /// If there is no memory: who reads what may not fit calls [`Reader::try_space`].
    #[doc(hidden)]
    #[expect(clippy::expect_used, reason = "for tests, fuzzing and benchmarks")]
    pub fn space(&mut self) -> &mut [u8] {
        self.try_space().expect("memory")
    }

    /// Where the source writes the next bytes. Ends the life of the current record. `None` if there is no memory.
    pub fn try_space(&mut self) -> Option<&mut [u8]> {
        self.settle_lines();
        // A source that raises an error does so while the next line is being read.
        self.exact_line = Some(self.line_base + 1);
        self.current = Current { start: self.pos, next: self.pos, ..Current::default() };
        let moved = self.window.make_space(self.pos)?;
        self.pos -= moved;
        (self.current.start, self.current.next) = (self.pos, self.pos);
        self.chunk_end -= moved;
        self.line_pos -= moved;
        self.dirty_end = self.dirty_end.saturating_sub(moved);
        Some(self.window.space())
    }

    /// The source wrote `n` bytes; 0 means that it has ended. Where the reader does not verify by itself, the caller
    /// goes on with [`Reader::unverified`] and [`Reader::verified`].
    pub fn filled(&mut self, n: usize) {
        self.window.fill(n);
        if self.utf8 {
            self.verify();
        }
    }

    pub(super) fn verify(&mut self) {
        self.verify_around(0..0);
    }

    /// Verify what is not yet verified; those in `plain` of these bytes are known to be ASCII, without a NUL.
    pub(super) fn verify_around(&mut self, plain: Range<usize>) {
        if self.dialect.lacks_line_ends() {
            let all = self.window.unverified().len();
            return self.window.verify(all);
        }
        let mut plain = plain;
        loop {
            let valid = utf8_valid_around(self.window.unverified(), std::mem::take(&mut plain));
            self.window.verify(valid);
            if self.invalid == Invalid::Ends || !self.window.is_failed() {
                return;
            }
            self.window.accept_invalid();
            self.dirty_end = self.window.bytes().len();
        }
    }

    /// Bytes not verified yet; after [`ReadError::Encoding`], the invalid ones.
    #[must_use]
    pub fn unverified(&self) -> &[u8] {
        self.window.unverified()
    }

    /// Where the caller verifies: put this byte in place of the first invalid one, if there is one. There is more to be verified
    /// then.
    pub fn mend(&mut self, byte: u8) -> bool {
        let fails = self.window.is_failed();
        if fails {
            self.window.mend(byte);
        }
        fails
    }

    /// The data end in bytes that cannot be converted to the server's encoding.
    pub fn fail_encoding(&mut self) {
        self.window.fail();
    }

    /// The first `valid` bytes of [`Reader::unverified`] are valid.
    pub fn verified(&mut self, valid: usize) {
        self.window.verify(valid);
    }
}
