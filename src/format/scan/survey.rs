//! What a stretch says by itself, whatever was before it.
//!
//! Where the last record of a stretch ends depends on whether its first byte is quoted. But that is a matter of one bit:
//! an odd number of quotes changes it, an even one does not. So quotes and line ends are counted first, which takes a
//! comparison for each of them and nothing else; and when it is known what was before, what is behind follows. Then the
//! stretch is searched from its end backwards, no further than to the last line end. On the way it is seen whether there is
//! anything but ASCII, so that most stretches need not be verified.
//!
//! Escapes are not counted: whether a quote or a line end is one depends on the byte before it. In text that concerns one byte
//! at the edge, so a stretch with backslashes is searched as if nothing crossed its edge, and once more should something do so.
//! In CSV with an escape of its own, which byte is one depends on quotes again, and the stretch is searched when its turn
//! comes.

use super::Scanner;
use super::kernel::CutState;
use super::marks::Carry;
use super::needles::{Mode, Needles};
use crate::dialect::Eol;

/// Bytes of a stretch that are searched at a time, from its end.
const PIECE: usize = 4096;

/// Sums over blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// Is the number of quotes odd?
    odd_quotes: bool,
    /// Line ends of the counted kind.
    lines: u64,
    /// Is there an escape, or the backslash of what may be an end marker?
    special: bool,
    /// Is nothing but ASCII in it, and no NUL?
    plain: bool,
}

/// What is known of a stretch before it is known what was before it.
#[derive(Debug, Clone, Copy)]
pub struct Survey {
    sums: Sums,
    search: Search,
}

/// How the last line end is found.
#[derive(Debug, Clone, Copy)]
enum Search {
    /// By the sums, if no escape crosses the edge.
    Backwards,
    /// It was, if nothing crosses the edge.
    Done(CutState),
    /// By a look at all bytes.
    All,
}

impl Needles {
    /// Which special byte a survey looks for.
    fn special(&self) -> u8 {
        if self.mode == Mode::CsvEscape { self.escape } else { b'\\' }
    }
}

impl Scanner {
    /// Look at a stretch without knowing what was before it.
    #[must_use]
    pub fn survey(&self, data: &[u8]) -> Survey {
        let sums = self.sums(data);
        let has_escapes = sums.special && matches!(self.needles.mode, Mode::Text | Mode::CsvEscape);
        let search = match self.needles.mode {
            Mode::CsvEscape if has_escapes => Search::All,
            // A newline by itself ends no line there, but is one of those that are counted.
            Mode::Text | Mode::Unquoted | Mode::Lines if has_escapes || self.needles.eol == Eol::CrNl => {
                let mut state = CutState::default();
                self.cut(data, &mut state);
                Search::Done(state)
            }
            _ => Search::Backwards,
        };
        Survey { sums, search }
    }

    /// [`Scanner::cut`] of a stretch before which `carry` was reached.
    #[must_use]
    pub fn cut_surveyed(&self, data: &[u8], survey: &Survey, carry: Carry) -> CutState {
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

    /// Is the stretch nothing but ASCII, without a NUL? Then it is valid, whatever is around it.
    #[must_use]
    pub fn is_plain(&self, survey: &Survey) -> bool {
        survey.sums.plain
    }

    /// May there be a backslash in the stretch?
    #[must_use]
    pub fn has_backslash(&self, survey: &Survey) -> bool {
        survey.sums.special || self.needles.special() != b'\\'
    }

    fn sums(&self, data: &[u8]) -> Sums {
        // SAFETY: `new` took a function whose instructions this machine has.
        unsafe { (self.sums)(&self.needles, data) }
    }

    /// Search piece by piece from the end.
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
                // A long record: what is left is looked at once, not twice.
                let mut rest = CutState::behind(carry_before);
                self.cut(data.get(..end).unwrap_or_default(), &mut rest);
                (found.last, found.lines) = (rest.last, rest.lines);
                return *found;
            }
        }
    }
}

/// Bytes that are searched backwards before all before them are searched forwards.
const IN_VAIN: usize = 16 * PIECE;

/// Blocks of which a byte of each can be added up in a byte.
const MOST: usize = 255;

/// Sums over the whole blocks of `data`; what is special or not plain counts behind them, too. See [`Scanner::survey`].
///
/// There is a sum for each byte of a block, so that one comparison and one addition do for as many bytes as the machine's
/// vectors have; each of its instruction sets gets a copy of this.
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
