//! Surveys a range of the file without knowing the bytes before it.
//!
//! The last record end of a range depends on whether its first byte is quoted. That is one bit, which an odd number of
//! quotes flips. So quotes and line ends are counted first, with one comparison for each. When the state before the
//! range is known, the state behind it follows. The range is then searched backwards from its end, no further than to
//! the last line end. The survey also finds out whether the range is all ASCII, so that most ranges need no
//! verification.
//!
//! Escapes are not counted: an escape changes the meaning of the byte behind it. In text this matters for one byte at
//! the edge. So a range with backslashes is searched as if nothing crossed its edge, and again if something does. In
//! CSV with a separate escape character, escapes depend on quotes as well. Such a range is searched once the state
//! before it is known.

use super::Scanner;
use super::kernel::CutState;
use super::marks::Carry;
use super::needles::{Mode, Needles};
use crate::dialect::Eol;

/// Number of bytes to search at a time, from the end of the range.
pub(super) const PIECE: usize = 4096;

/// Sums over blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// Whether the number of quotes is odd.
    odd_quotes: bool,
    /// Number of line ends of the counted kind.
    lines: u64,
    /// Whether there is an escape character, or a backslash of a possible end marker.
    special: bool,
    /// Whether all bytes are ASCII, without a NUL.
    plain: bool,
}

/// Facts about a range that do not depend on the bytes before it.
#[derive(Debug, Clone, Copy)]
pub struct Survey {
    sums: Sums,
    search: Search,
    /// A comment may begin behind a line end of the range.
    pub(super) has_comments: bool,
}

/// How the last line end is found.
#[derive(Debug, Clone, Copy)]
enum Search {
    /// Backwards, with the sums, if no escape crosses the edge.
    Backwards,
    /// The line end is found already, provided that the state at the edge is the default one.
    Done(CutState),
    /// By searching all bytes.
    All,
}

impl Needles {
    /// The special byte that a survey searches for.
    fn special(&self) -> u8 {
        if matches!(self.mode, Mode::CsvEscape | Mode::CsvEscapeLenient) { self.escape } else { b'\\' }
    }
}

impl Scanner {
    /// Surveys a range without knowing the bytes before it.
    #[must_use]
    pub fn survey(&self, data: &[u8]) -> Survey {
        let sums = self.sums(data);
        let has_escapes = sums.special && matches!(self.needles.mode, Mode::Text | Mode::CsvEscape);
        let search = match self.needles.mode {
            Mode::CsvEscape if has_escapes => Search::All,
            // The sums have one kind of line ends.
            Mode::Csv | Mode::CsvEscape if self.needles.eol == Eol::Any => Search::All,
            // Each quote must be seen.
            Mode::CsvLenient | Mode::CsvEscapeLenient => Search::All,
            // A lone newline ends no line with `\r\n`, but it is a counted line end.
            Mode::Text | Mode::Unquoted | Mode::Lines
                if has_escapes || matches!(self.needles.eol, Eol::CrNl | Eol::Any) =>
            {
                let mut state = CutState::default();
                self.cut(data, &mut state);
                Search::Done(state)
            }
            _ => Search::Backwards,
        };
        Survey { sums, search, has_comments: self.has_comments(data) }
    }

    /// [`Scanner::cut`] of a surveyed range behind the edge with the state `carry`.
    #[must_use]
    pub fn cut_surveyed(&self, data: &[u8], survey: &Survey, carry: Carry) -> CutState {
        match self.needles.comment() {
            Some(comment) => self.cut_comments(data, survey, carry, comment),
            None => self.cut_without_comments(data, survey, carry),
        }
    }

    /// [`Scanner::cut_surveyed`] of a range without comments.
    pub(super) fn cut_without_comments(&self, data: &[u8], survey: &Survey, carry: Carry) -> CutState {
        match survey.search {
            Search::Done(state) if carry == Carry::default() => state,
            Search::Backwards if !carry.escapes_next() => self.cut_backwards(data, survey.sums, carry),
            _ => {
                let mut state = CutState::behind(carry);
                self.cut(data, &mut state);
                state
            }
        }
    }

    /// Whether the range is all ASCII without a NUL. Then it is valid in any encoding.
    #[must_use]
    pub fn is_plain(&self, survey: &Survey) -> bool {
        survey.sums.plain
    }

    /// Whether the range may have a backslash.
    #[must_use]
    pub fn has_backslash(&self, survey: &Survey) -> bool {
        survey.sums.special || self.needles.special() != b'\\'
    }

    fn sums(&self, data: &[u8]) -> Sums {
        // SAFETY: `new` has selected a function whose instructions this machine has.
        unsafe { (self.sums)(&self.needles, data) }
    }

    /// Searches for the last line end from the end of the range, a part at a time.
    fn cut_backwards(&self, data: &[u8], sums: Sums, carry: Carry) -> CutState {
        let is_quoted = carry.is_in_quote() ^ sums.odd_quotes;
        let (mut end, mut is_quoted, mut seen) = (data.len(), is_quoted, sums.lines);
        let carry_before = carry;
        let mut whole: Option<CutState> = None;
        loop {
            let start = end.saturating_sub(1) / PIECE * PIECE;
            let piece = data.get(start..end).unwrap_or_default();
            let of_piece = self.sums(piece);
            is_quoted ^= of_piece.odd_quotes;
            seen -= of_piece.lines;
            let before = start.checked_sub(1).and_then(|before| data.get(before));
            let has_cr = self.needles.eol == Eol::CrNl && before == Some(&b'\r') && !is_quoted;
            let carry = if start == 0 { carry } else { Carry::of(is_quoted, has_cr) };
            let mut state = CutState::behind_lines(carry, seen);
            self.cut(piece, &mut state);
            state.moved(start);
            let found = whole.get_or_insert(state);
            (found.last, found.lines) = (state.last, state.lines);
            if state.last.is_some() || start == 0 {
                return *found;
            }
            end = start;
            if data.len() - end >= IN_VAIN {
                // A long record: the rest is searched forwards, so that it is read once only.
                let mut rest = CutState::behind(carry_before);
                self.cut(data.get(..end).unwrap_or_default(), &mut rest);
                (found.last, found.lines) = (rest.last, rest.lines);
                return *found;
            }
        }
    }
}

/// Number of bytes to search backwards before the rest is searched forwards.
const IN_VAIN: usize = 16 * PIECE;

/// The most blocks of which a count per byte position fits into a byte.
const MOST: usize = 255;

/// Adds up the whole blocks of `data`. The special and non-ASCII bytes behind them count, too. See [`Scanner::survey`].
///
/// Each byte position of a block has its own sum, so one comparison and one addition process a whole vector. Each
/// instruction set has a compiled copy of this function.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "each array is as long as a block")]
pub(crate) fn sums(n: &Needles, data: &[u8]) -> Sums {
    let (quote, counted, sought) = (n.quote, Eol::counted(Some(n.eol)), n.special());
    let (blocks, rest) = data.as_chunks::<64>();
    let (mut quotes, mut special, mut other) = ([0u8; 64], [0u8; 64], [0u8; 64]);
    let mut all_lines = 0;
    for blocks in blocks.chunks(MOST) {
        let mut lines = [0u8; 64];
        for block in blocks {
            for (i, &byte) in block.iter().enumerate() {
                quotes[i] ^= u8::from(byte == quote);
                lines[i] += u8::from(byte == counted);
                special[i] |= u8::from(byte == sought);
                other[i] |= u8::from(byte.cast_signed() <= 0);
            }
        }
        all_lines += lines.iter().map(|&lines| u64::from(lines)).sum::<u64>();
    }
    Sums {
        odd_quotes: !matches!(n.mode, Mode::Text | Mode::Unquoted | Mode::Lines)
            && quotes.iter().fold(0, |odd, quotes| odd ^ quotes) != 0,
        lines: all_lines,
        special: special != [0; 64] || rest.contains(&sought),
        plain: other == [0; 64] && rest.iter().all(|byte| byte.cast_signed() > 0),
    }
}
