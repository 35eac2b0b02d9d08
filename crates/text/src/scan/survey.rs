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
//!
//! Quotes in comments have no meaning. Take a line that begins as a comment does, and has an odd number of quotes. Either
//! it is a comment, or quotes are open before it. Behind it quotes are closed in both cases. So only the quotes behind the
//! last such line count. With escapes in a comment, ranges are searched from the start of a record; with lenient quotes,
//! ranges with quotes.

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
    /// The range must be searched from the start of a record.
    pub(crate) from_record: bool,
}

/// How the last line end is found.
#[derive(Debug, Clone, Copy)]
enum Search {
    /// Backwards, with the sums, if no escape crosses the edge.
    Backwards,
    /// Backwards. Whether quotes are open at the end of the whole blocks does not depend on the bytes before the range.
    BehindComment(bool),
    /// The line end is found already, provided that the state at the edge is the default one.
    Done(CutState),
    /// By searching all bytes.
    All,
    /// Likewise, from the start of a record.
    FromRecord,
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
        let sums = self.sums(data, false);
        let has_escapes = sums.special && matches!(self.needles.mode, Mode::Text | Mode::CsvEscape);
        let search = match self.needles.mode {
            // A sum of quotes does not say which of them count.
            Mode::CsvLenient | Mode::CsvEscapeLenient
                if !data.len().is_multiple_of(64)
                    || memchr::memchr2(self.needles.quote, self.needles.escape, data).is_some() =>
            {
                Search::FromRecord
            }
            Mode::CsvEscape if has_escapes && self.needles.comment().is_some() => Search::FromRecord,
            Mode::CsvEscape if has_escapes => Search::All,
            // A lone newline ends no line with `\r\n`, but it is a counted line end.
            Mode::Text | Mode::Unquoted | Mode::Lines if has_escapes || self.needles.eol == Eol::CrNl => {
                self.search_comments(data, has_escapes).unwrap_or_else(|| {
                    let mut state = CutState::default();
                    self.cut(data, &mut state);
                    Search::Done(state)
                })
            }
            _ => self.search_comments(data, has_escapes).unwrap_or(Search::Backwards),
        };
        Survey { sums, search, from_record: matches!(search, Search::FromRecord) }
    }

    /// How the last line end is found because of a comment with quotes or escapes. `None` without such a comment.
    fn search_comments(&self, data: &[u8], has_escapes: bool) -> Option<Search> {
        let n = &self.needles;
        let comment = n.comment().filter(|_| has_escapes || n.mode != Mode::Text)?;
        let comments = memchr::memmem::FinderRev::new(comment.bytes());
        let mut from_end = data.len();
        while let Some(at) = comments.rfind(data.get(..from_end)?) {
            from_end = at + comment.len() - 1;
            let (before, line) = data.split_at_checked(at)?;
            // The first byte may complete a line end.
            let is_behind_half = n.eol == Eol::CrNl && before == b"\n";
            if !is_behind_half && n.eol.behind(before, at.wrapping_sub(1 + usize::from(n.eol == Eol::CrNl))) != Some(at)
            {
                continue;
            }
            let end = memchr::memchr2_iter(b'\n', b'\r', line).find_map(|end| n.eol.behind(line, end));
            let Some(end) = end.filter(|&end| end < line.len() && !is_behind_half) else {
                return Some(Search::FromRecord);
            };
            let line = line.get(..end).unwrap_or_default();
            if has_escapes && memchr::memchr(b'\\', line).is_some() {
                return Some(Search::FromRecord);
            }
            let is_odd = |bytes| memchr::memchr_iter(n.quote, bytes).count() % 2 == 1;
            if n.mode != Mode::Text && is_odd(line) {
                let (end, whole) = (at + end, data.len() / 64 * 64);
                return data.get(end.min(whole)..end.max(whole)).map(|rest| Search::BehindComment(is_odd(rest)));
            }
        }
        None
    }

    /// Whether the line behind the last line end of a range, which has the bytes `line` of it, may be a comment.
    pub(crate) fn may_be_comment(&self, line: &[u8]) -> bool {
        let comment = self.needles.comment();
        comment.is_some_and(|comment| comment.begins(line) || comment.bytes().starts_with(line))
    }

    /// [`Scanner::cut`] of a surveyed range behind the edge with the state `carry`.
    #[must_use]
    pub fn cut_surveyed(&self, data: &[u8], survey: &Survey, carry: Carry) -> CutState {
        match survey.search {
            Search::Done(state) if carry == Carry::default() => state,
            Search::Backwards if !carry.escapes_next() => self.cut_backwards(data, survey.sums, carry, None),
            Search::BehindComment(is_quoted) => self.cut_backwards(data, survey.sums, carry, Some(is_quoted)),
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

    /// Number of counted line ends in a surveyed range.
    pub(crate) fn lines(&self, data: &[u8], survey: &Survey) -> u64 {
        survey.sums.lines + Eol::count(Some(self.needles.eol), data.as_chunks::<64>().1)
    }

    /// State behind `data`, the start of a line that is no comment.
    pub(crate) fn carry_behind(&self, data: &[u8]) -> Carry {
        // A state is known behind whole blocks. A delimiter before the line changes nothing.
        let missing = data.len().next_multiple_of(64) - data.len();
        let mut state = CutState::default();
        self.cut(&[&vec![self.needles.delimiter; missing], data].concat(), &mut state);
        state.carry()
    }

    /// Sums of `data`, behind a carriage return or not.
    fn sums(&self, data: &[u8], is_behind_cr: bool) -> Sums {
        // SAFETY: `new` has selected a function whose instructions this machine has.
        let sums = unsafe { (self.sums)(&self.needles, data) };
        Sums { lines: sums.lines - self.completed(data, is_behind_cr), ..sums }
    }

    /// 1 if the first byte is a newline that counts together with a carriage return before it. Only whole blocks count.
    fn completed(&self, data: &[u8], is_behind_cr: bool) -> u64 {
        u64::from(is_behind_cr && self.needles.eol == Eol::Any && data.len() >= 64 && data.starts_with(b"\n"))
    }

    /// Searches for the last line end from the end of the range, a part at a time. With `is_quoted`, the state at the end,
    /// there is one, and `carry` does not matter to it.
    fn cut_backwards(&self, data: &[u8], sums: Sums, carry: Carry, is_quoted: Option<bool>) -> CutState {
        let (is_known, is_any, carry_before) = (is_quoted.is_some(), self.needles.eol == Eol::Any, carry);
        let mut is_quoted = is_quoted.unwrap_or(carry.is_in_quote() ^ sums.odd_quotes);
        let (mut end, mut seen) = (data.len(), sums.lines - self.completed(data, carry.is_behind_cr()));
        let mut whole: Option<CutState> = None;
        loop {
            let start = end.saturating_sub(1) / PIECE * PIECE;
            let piece = data.get(start..end).unwrap_or_default();
            let before = start.checked_sub(1).and_then(|before| data.get(before));
            let is_behind_cr = before.map_or(carry.is_behind_cr(), |&before| before == b'\r');
            let of_piece = self.sums(piece, is_behind_cr);
            is_quoted ^= of_piece.odd_quotes;
            seen -= of_piece.lines;
            let has_cr = is_behind_cr && (is_any || (self.needles.eol == Eol::CrNl && !is_quoted));
            let carry = if start == 0 && !is_known { carry } else { Carry::of(is_quoted, has_cr) };
            let mut state = CutState::behind_lines(carry, seen);
            // With the byte that decides whether a carriage return is a line end.
            self.cut(data.get(start..data.len().min(end + usize::from(is_any))).unwrap_or_default(), &mut state);
            state.moved(start);
            let found = whole.get_or_insert(state);
            (found.last, found.lines) = (state.last, state.lines);
            if state.last.is_some() || start == 0 {
                return *found;
            }
            end = start;
            if data.len() - end >= IN_VAIN && !is_known {
                // A long record: the rest is searched forwards, so that it is read once only.
                let mut rest = CutState::behind(carry_before);
                self.cut(data.get(..end + usize::from(is_any)).unwrap_or_default(), &mut rest);
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
pub(crate) fn sums(n: &Needles, data: &[u8]) -> Sums {
    if n.eol == Eol::Any { sums_of::<true>(n, data) } else { sums_of::<false>(n, data) }
}

/// [`sums`] with line ends of any kind or not. The first byte counts as if no carriage return were before it.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "each array is as long as a block")]
fn sums_of<const ANY: bool>(n: &Needles, data: &[u8]) -> Sums {
    let (quote, counted, sought) = (n.quote, Eol::counted(Some(n.eol)), n.special());
    let (blocks, rest) = data.as_chunks::<64>();
    let (mut quotes, mut special, mut other) = ([0u8; 64], [0u8; 64], [0u8; 64]);
    let (mut all_lines, mut all_newlines) = (0, 0);
    for blocks in blocks.chunks(MOST) {
        let (mut lines, mut newlines) = ([0u8; 64], [0u8; 64]);
        for block in blocks {
            for (i, &byte) in block.iter().enumerate() {
                quotes[i] ^= u8::from(byte == quote);
                lines[i] += u8::from(byte == counted);
                if ANY {
                    newlines[i] += u8::from(byte == b'\n');
                }
                special[i] |= u8::from(byte == sought);
                other[i] |= u8::from(byte.cast_signed() <= 0);
            }
        }
        all_lines += lines.iter().map(|&lines| u64::from(lines)).sum::<u64>();
        all_newlines += newlines.iter().map(|&newlines| u64::from(newlines)).sum::<u64>();
    }
    if all_lines > 0 && all_newlines > 0 {
        all_newlines -= Eol::pairs(blocks.as_flattened());
    }
    Sums {
        odd_quotes: !matches!(n.mode, Mode::Text | Mode::Unquoted | Mode::Lines)
            && quotes.iter().fold(0, |odd, quotes| odd ^ quotes) != 0,
        lines: all_lines + all_newlines,
        special: special != [0; 64] || rest.contains(&sought),
        plain: other == [0; 64] && rest.iter().all(|byte| byte.cast_signed() > 0),
    }
}
