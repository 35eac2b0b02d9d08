//! Input of the reader: space for new bytes, and their verification.

use std::ops::Range;

use super::{Current, Invalid, Reader};
use crate::verify::utf8_valid_around;

impl Reader {
    /// Returns the space for the source's next bytes. Ends the life of the current record.
    ///
    /// # Panics
    /// If memory is exhausted. Callers whose records may not fit use [`Reader::try_space`].
    #[doc(hidden)]
    #[expect(clippy::expect_used, reason = "for tests, fuzzing and benchmarks")]
    pub fn space(&mut self) -> &mut [u8] {
        self.try_space().expect("memory")
    }

    /// Returns the space for the source's next bytes. Ends the life of the current record. `None` if memory is
    /// exhausted.
    pub fn try_space(&mut self) -> Option<&mut [u8]> {
        self.count_lines();
        // If the source raises an error, it is an error of the next line.
        self.lines.exact = Some(self.lines.base + 1);
        self.current = Current { start: self.pos, next: self.pos, ..Current::default() };
        let moved = self.window.make_space(self.pos)?;
        self.pos -= moved;
        (self.current.start, self.current.next) = (self.pos, self.pos);
        self.chunk_end -= moved;
        self.lines.pos -= moved;
        Some(self.window.space())
    }

    /// Gives the reader the next bytes of `rest`, at most `most`, and returns their number; none mean that the data have
    /// ended. Otherwise as [`Reader::try_space`] and [`Reader::filled`].
    pub fn give(&mut self, rest: &mut &[u8], most: usize) -> Option<usize> {
        let space = self.try_space()?;
        let (now, later) = rest.split_at_checked(rest.len().min(most).min(space.len()))?;
        space.get_mut(..now.len())?.copy_from_slice(now);
        self.filled(now.len());
        *rest = later;
        Some(now.len())
    }

    /// The source wrote `n` bytes; 0 means that it has ended. Unless the reader verifies the encoding itself, the
    /// caller continues with [`Reader::unverified`] and [`Reader::verified`].
    pub fn filled(&mut self, n: usize) {
        self.window.fill(n);
        if self.policy.utf8 {
            self.verify();
        }
    }

    /// Verifies the unverified bytes as UTF-8, and accepts invalid ones as the caller has chosen.
    pub fn verify(&mut self) {
        self.verify_around(0..0);
    }

    /// Verifies the unverified bytes. Those in `plain` are known to be ASCII without a NUL.
    pub(super) fn verify_around(&mut self, plain: Range<usize>) {
        if self.dialect.lacks_line_ends() {
            let all = self.window.unverified().len();
            return self.window.verify(all);
        }
        let mut plain = plain;
        loop {
            let valid = utf8_valid_around(self.window.unverified(), std::mem::take(&mut plain));
            self.window.verify(valid);
            if self.policy.invalid == Invalid::Ends || !self.window.is_failed() {
                return;
            }
            self.window.accept_invalid();
        }
    }

    /// The unverified bytes; after [`ReadError::Encoding`], the invalid ones.
    #[must_use]
    pub fn unverified(&self) -> &[u8] {
        self.window.unverified()
    }

    /// If the caller verifies: replaces the first invalid byte with `byte`. Returns true if there was one; the bytes
    /// behind it must then be verified.
    pub fn mend(&mut self, byte: u8) -> bool {
        let fails = self.window.is_failed();
        if fails {
            self.window.mend(byte);
        }
        fails
    }

    /// Ends the data at bytes that cannot be converted to the server encoding.
    pub fn fail_encoding(&mut self) {
        self.window.fail();
    }

    /// Marks the first `valid` bytes of [`Reader::unverified`] as valid.
    pub fn verified(&mut self, valid: usize) {
        self.window.verify(valid);
    }
}
