//! Cuts ranges of a dialect with comments.
//!
//! A survey counts quotes and escapes, also those in comments, where they have no meaning. A comment may begin in a
//! range, or the range may begin in one. Such a range is searched when the state before it is known. The search uses
//! copies of its pieces without the quotes and escapes of comments. All other ranges are searched as in other dialects.
//!
//! A comment may begin on one side of an edge and end on the other, so the state at an edge has the position within the
//! line.

use super::kernel::CutState;
use super::marks::{Carry, LinePosition};
use super::needles::{Mode, Needles};
use super::survey::PIECE;
use super::{Scanner, Survey};
use crate::dialect::Eol;
use crate::separator::Separator;

impl Needles {
    /// The beginning of comments, if bytes in a comment could be mistaken for quotes or escapes.
    pub(super) fn comment(&self) -> Option<Separator> {
        let is_literal = matches!(self.mode, Mode::Unquoted | Mode::Lines);
        self.skip.and_then(|skip| skip.comment).filter(|_| !is_literal)
    }

    /// Removes quotes and escapes.
    fn mask(&self, bytes: &mut [u8]) {
        for byte in bytes {
            let is_special =
                if self.mode == Mode::Text { *byte == b'\\' } else { *byte == self.quote || *byte == self.escape };
            *byte = if is_special { b'x' } else { *byte };
        }
    }
}

impl Scanner {
    /// Whether a comment may begin behind a line end of the range.
    pub(super) fn has_comments(&self, data: &[u8]) -> bool {
        let Some(comment) = self.needles.comment() else { return false };
        next_comment(data, 0, data.len(), comment.bytes()).is_some()
    }

    /// [`Scanner::cut_surveyed`] of a dialect with comments.
    pub(super) fn cut_comments(&self, data: &[u8], survey: &Survey, carry: Carry, comment: Separator) -> CutState {
        let mut carry = carry;
        let line = std::mem::take(&mut carry.line).behind(data, comment.bytes());
        if survey.has_comments || line == LinePosition::IN_COMMENT {
            return self.cut_masked(data, carry, line, comment);
        }
        let mut state = self.cut_without_comments(data, survey, carry);
        let behind = |last| LinePosition::START.behind(data.get(last..).unwrap_or_default(), comment.bytes());
        state.set_line(state.last.map_or(line, behind));
        state
    }

    /// Cuts a range piece by piece. `line` is the position in the first line, behind the bytes that may complete the start
    /// of a comment.
    fn cut_masked(&self, data: &[u8], carry: Carry, mut line: LinePosition, comment: Separator) -> CutState {
        let mut piece = [0; PIECE + 1];
        let mut whole = CutState::behind(carry);
        let mut at = 0;
        for bytes in data.chunks(PIECE) {
            // With the byte that decides whether a carriage return is a line end.
            let more = usize::from(self.needles.eol == Eol::Any);
            let bytes_and_more = data.get(at..data.len().min(at + bytes.len() + more)).unwrap_or_default();
            let piece = piece.get_mut(..bytes_and_more.len()).unwrap_or_default();
            piece.copy_from_slice(bytes_and_more);
            let is_behind_cr = whole.carry().is_behind_cr();
            let mut state = CutState::behind_lines(whole.carry(), whole.seen());
            let mut from = 0;
            loop {
                if line == LinePosition::IN_COMMENT {
                    let end = self.end_of_comment(bytes, from, is_behind_cr);
                    self.needles.mask(piece.get_mut(from..end.unwrap_or(bytes.len())).unwrap_or_default());
                    let Some(end) = end else { break };
                    (line, from) =
                        (LinePosition::START.behind(data.get(at + end..).unwrap_or_default(), comment.bytes()), end);
                    continue;
                }
                let Some(next) = next_comment(data, at + from, at + bytes.len(), comment.bytes()).map(|next| next - at)
                else {
                    break;
                };
                from = next;
                self.cut(piece.get(..next + more).unwrap_or(piece), &mut state);
                line = if state.last == Some(next) { LinePosition::IN_COMMENT } else { LinePosition::IN_RECORD };
            }
            self.cut(piece, &mut state);
            let (last, lines) = (state.last.map(|last| at + last), state.lines);
            let found = if last.is_some() { (last, lines) } else { (whole.last, whole.lines) };
            if line != LinePosition::IN_COMMENT {
                line = last.map_or(line, |last| {
                    LinePosition::START.behind(data.get(last..).unwrap_or_default(), comment.bytes())
                });
            }
            state.moved(at);
            (state.last, state.lines) = found;
            whole = state;
            if whole.misplaced {
                break;
            }
            at += bytes.len();
        }
        whole.set_line(line);
        whole
    }

    /// State behind `data`, the start of a line. `None` if a quote is misplaced.
    pub(crate) fn carry_behind(&self, data: &[u8]) -> Option<Carry> {
        // A state is known behind whole blocks. A delimiter before the line changes nothing.
        let missing = data.len().next_multiple_of(64) - data.len();
        let state = self.cut_behind(missing, &[&vec![self.needles.delimiter; missing], data].concat());
        (!state.misplaced).then_some(state.carry())
    }

    /// [`Scanner::cut`] of `data`, of which the bytes from `start` on are the start of a line.
    pub(crate) fn cut_behind(&self, start: usize, data: &[u8]) -> CutState {
        let mut state = CutState::default();
        match self.needles.comment() {
            None => self.cut(data, &mut state),
            Some(comment) => {
                let line = LinePosition::START.behind(data.get(start..).unwrap_or_default(), comment.bytes());
                state = self.cut_masked(data, Carry::default(), line, comment);
            }
        }
        state
    }

    /// The end of the line of a comment that continues at `from`. `is_behind_cr`: a carriage return is before `bytes`.
    fn end_of_comment(&self, bytes: &[u8], from: usize, is_behind_cr: bool) -> Option<usize> {
        let is_behind_cr =
            |end: usize| end.checked_sub(1).map_or(is_behind_cr, |before| bytes.get(before) == Some(&b'\r'));
        let ends = |end: &usize| match self.needles.eol {
            Eol::CrNl => bytes.get(*end) == Some(&b'\n') && is_behind_cr(*end),
            eol => eol.behind(bytes, *end).is_some(),
        };
        let rest = bytes.get(from..).unwrap_or_default();
        memchr::memchr2_iter(b'\n', b'\r', rest).map(|end| from + end).find(ends).map(|end| end + 1)
    }
}

/// Where a comment may begin: behind a line end from `from` on, and not behind `to`.
fn next_comment(data: &[u8], from: usize, to: usize, comment: &[u8]) -> Option<usize> {
    let rest = data.get(from..data.len().min(to + comment.len())).unwrap_or_default();
    let is_behind_end = |&at: &usize| matches!(rest.get(at.wrapping_sub(1)), Some(b'\n' | b'\r'));
    memchr::memmem::find_iter(rest, comment).find(is_behind_end).map(|at| from + at)
}
