//! Lines that are no records: comments, and lines of blanks.
//!
//! The kernels find them where a record begins: at the first byte, and behind each record. They go on behind such a line
//! with a new block, because quotes and escapes in a comment have no meaning.

use super::Isa;
use crate::dialect::{Dialect, Eol};
use crate::separator::Separator;

/// The lines to skip.
#[derive(Debug, Clone, Copy)]
pub(super) struct Skip {
    eol: Eol,
    /// Other line ends are data.
    given: bool,
    pub(super) comment: Option<Separator>,
    /// The first byte of comments, or a newline.
    first: u8,
    /// Skip lines of blanks.
    blanks: bool,
    /// Spaces and tabs may be in a line of blanks. If not, the byte is a newline.
    space: u8,
    tab: u8,
}

/// Lines that are skipped in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skipped {
    /// The record behind them.
    pub record: u32,
    /// Number of skipped lines of the batch up to this record.
    pub lines: u32,
}

/// What a line is.
enum Start {
    /// A record, or not all of it is there.
    Record,
    /// A line to skip. The next line starts here.
    Skipped(usize),
    /// A comment in which only the exact reader can find the line end.
    Odd,
}

impl Skip {
    pub(super) fn new(d: &Dialect, eol: Eol, given: bool) -> Skip {
        let blank = |byte| if d.is_blank(byte) { byte } else { b'\n' };
        let (space, tab) = (blank(b' '), blank(b'\t'));
        let comment = Separator::new(&d.comment);
        let first = comment.map_or(b'\n', |comment| comment.first());
        Skip { eol, given, comment, first, blanks: d.skip_blank_lines, space, tab }
    }

    /// Whether a line with this first byte may have to be skipped.
    #[inline(always)]
    pub(super) fn may_begin(&self, byte: u8) -> bool {
        byte == self.first
            || (byte <= b' '
                && self.blanks
                && (byte == self.space || byte == self.tab || byte == b'\n' || byte == b'\r'))
    }

    /// A bitmap of the bytes for which [`Skip::may_begin`] is true.
    #[inline(always)]
    pub(super) fn candidates<I: Isa>(&self, isa: I, block: I::Block) -> u64 {
        let comment = self.comment.map_or(0, |comment| isa.eq(block, comment.first()));
        if !self.blanks {
            return comment;
        }
        comment | isa.eq(block, self.space) | isa.eq(block, self.tab) | isa.eq(block, b'\n') | isa.eq(block, b'\r')
    }

    /// Looks at the line at the start of `rest`.
    fn look(&self, rest: &[u8]) -> Start {
        if self.comment.is_some_and(|comment| comment.begins(rest)) {
            let mut ends = memchr::memchr2_iter(b'\n', b'\r', rest).map(|at| self.eol.behind(rest, at));
            let end = if self.given { ends.find(Option::is_some) } else { ends.next() };
            return match end {
                Some(Some(next)) => Start::Skipped(next),
                Some(None) if self.eol == Eol::CrNl && rest.ends_with(b"\r") && ends.next().is_none() => Start::Record,
                Some(None) => Start::Odd,
                None => Start::Record,
            };
        }
        let is_blank = |byte: &u8| (*byte == self.space || *byte == self.tab) && *byte != b'\n';
        match rest.iter().position(|byte| !is_blank(byte)) {
            Some(at) if self.blanks => self.eol.behind(rest, at).map_or(Start::Record, Start::Skipped),
            _ => Start::Record,
        }
    }

    /// Start of the first line at or behind `at`, the start of a line, that is not skipped, and whether only the exact
    /// reader can read it. `record` is the number of the batch's next record.
    #[cold]
    #[inline(never)]
    pub(super) fn pass(&self, data: &[u8], mut at: usize, record: usize, skipped: &mut Vec<Skipped>) -> (usize, bool) {
        let before = skipped.last().map_or(0, |skipped| skipped.lines);
        let mut lines = before;
        let is_odd = loop {
            match self.look(data.get(at..).unwrap_or_default()) {
                Start::Skipped(len) => (at, lines) = (at + len, lines + 1),
                Start::Record => break false,
                Start::Odd => break true,
            }
        };
        if lines > before {
            skipped.push(Skipped { record: record as u32, lines });
        }
        (at, is_odd)
    }
}
