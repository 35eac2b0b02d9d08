//! The exact line reader: finds the end of a line as COPY does.
//!
//! [`read_line`] mirrors `CopyReadLineText` (src/backend/commands/copyfromparse.c) character for character, with its
//! peculiarities:
//!
//! - The two-byte skip after a backslash.
//! - `\.` after data.
//! - The look-ahead that makes a carriage return a line end or an error.
//! - The count of line ends inside quotes, which depends on the line end known so far.
//!
//! The reader is slow, and it defines the correct result. The SIMD scan leaves the unusual records to it: the first
//! record of a file, every record with an unusual byte, and every record of an irregular dialect.
//!
//! The reader gets a buffer that begins at a line start. If the result depends on bytes that have not arrived, it
//! returns [`Line::NeedMore`] and is called again with a longer buffer.

use crate::dialect::{Dialect, EndMarker, Eol};
use crate::field::{self, Opening};

/// Limit of a line in bytes: COPY's line buffer is a StringInfo, which cannot hold this many (`MaxAllocSize`).
pub const LINE_LIMIT: usize = 0x3fff_ffff;

/// The bytes at a line start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// A line: `content` bytes of data, and the next line starts at `next`.
    Complete {
        /// Length of the line without its end.
        content: usize,
        /// Start of the next line.
        next: usize,
        /// Line ends inside quotes that COPY counts.
        embedded: u64,
    },
    /// The data end here, at the end of the input or at `\.`, after `content` bytes of data.
    End {
        /// Length of the unfinished line, possibly 0.
        content: usize,
        /// Offset at which COPY goes on reading if `\.` followed data.
        next: usize,
        /// Line ends inside quotes that COPY counts.
        embedded: u64,
    },
    /// More bytes are needed.
    NeedMore {
        /// Line ends inside quotes seen so far.
        embedded: u64,
    },
    /// COPY raises an error here.
    Error {
        /// The error.
        kind: LineError,
        /// Line ends inside quotes seen so far.
        embedded: u64,
    },
}

/// The errors of `CopyReadLineText`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineError {
    /// literal (text) or unquoted (CSV) carriage return found in data
    CarriageReturn,
    /// literal (text) or unquoted (CSV) newline found in data
    Newline,
    /// end-of-copy marker corrupt (up to 17)
    MarkerCorrupt,
    /// end-of-copy marker is not alone on its line (from 18)
    MarkerNotAlone,
    /// end-of-copy marker does not match previous newline style
    MarkerNewline,
}

/// Whether a byte of a CSV line is quoted.
#[derive(Debug, Default)]
struct Quotes {
    inside: bool,
    last_was_escape: bool,
    /// Start of the field of the byte, or of the next field ([`Dialect::lenient_quotes`]).
    field: usize,
    /// End of the quoted field.
    until: usize,
}

impl Quotes {
    /// Whether `c`, the byte behind those passed so far, at `at`, is quoted. A closing quote is not. `None` if more
    /// bytes are needed.
    #[inline(always)]
    fn pass(&mut self, d: &Dialect, buf: &[u8], at: usize, c: u8, at_end: bool) -> Option<bool> {
        if d.lenient_quotes {
            return self.pass_lenient(d, buf, at, c, at_end);
        }
        let is_escape = c == d.escape && d.escape != d.quote;
        if self.inside && is_escape {
            self.last_was_escape = !self.last_was_escape;
        }
        if c == d.quote && !self.last_was_escape {
            self.inside = !self.inside;
        }
        if !is_escape {
            self.last_was_escape = false;
        }
        Some(self.inside)
    }

    fn pass_lenient(&mut self, d: &Dialect, buf: &[u8], at: usize, c: u8, at_end: bool) -> Option<bool> {
        if at < self.until {
            return Some(at + 1 < self.until);
        }
        if at == self.field && c == d.quote {
            match field::opening(d, buf, at, at_end) {
                Opening::Quoted(end) => self.until = end,
                Opening::Data => (),
                Opening::NeedMore => return None,
            }
        } else if at >= self.field && c == d.delimiter {
            let rest = buf.get(at..).unwrap_or_default();
            if d.separator.begins(rest) {
                self.field = at + d.separator.len();
            } else if !at_end && d.separator.bytes().starts_with(rest) {
                return None;
            }
        }
        Some(at < self.until)
    }
}

/// Reads one line of `buf`, which begins at a line start. With `at_end`, no more bytes follow.
///
/// `eol` is learned from the first line that ends. In a comment only line ends have a meaning.
pub fn read_line(d: &Dialect, eol: &mut Option<Eol>, buf: &[u8], at_end: bool) -> Line {
    if !at_end && buf.len() < d.comment.len() && d.comment.starts_with(buf) {
        return Line::NeedMore { embedded: 0 };
    }
    *eol = d.line_end.or(*eol);
    let is_comment = d.begins_comment(buf);
    let (csv, is_literal) = (d.is_csv() && !is_comment, d.is_literal() || is_comment);
    let marker_in_csv = d.end_marker == EndMarker::Until17;
    let mut quotes = Quotes::default();
    let mut in_quote = false;
    let mut embedded = 0u64;
    let mut at = 0usize;
    // Past the end: the NUL with which core pads its buffer.
    let peek = |i: usize| buf.get(i).copied().unwrap_or(0);

    loop {
        let Some(&c) = buf.get(at) else {
            return if at_end {
                Line::End { content: buf.len(), next: buf.len(), embedded }
            } else {
                Line::NeedMore { embedded }
            };
        };
        let start = at;
        at += 1;
        let more = |i: usize| i >= buf.len() && !at_end;

        if csv {
            if (c == b'\\' || c == b'\r') && more(at) {
                return Line::NeedMore { embedded };
            }
            let Some(quoted) = quotes.pass(d, buf, start, c, at_end) else {
                embedded += Eol::count(*eol, buf.get(start..).unwrap_or_default());
                return Line::NeedMore { embedded };
            };
            in_quote = quoted;
            if in_quote && Eol::counts(*eol, buf, start) {
                embedded += 1;
            }
        }

        let fail = |kind| Line::Error { kind, embedded };
        if (c == b'\r' || c == b'\n') && !in_quote {
            if c == b'\r' && more(at) && matches!(*eol, None | Some(Eol::CrNl | Eol::Any)) {
                return Line::NeedMore { embedded };
            }
            if let Some(next) = eol.unwrap_or(Eol::Any).behind(buf, start) {
                *eol = eol.or_else(|| Eol::first(buf.get(start..)?));
                return Line::Complete { content: start, next, embedded };
            }
            if d.line_end.is_none() {
                return fail(if c == b'\r' { LineError::CarriageReturn } else { LineError::Newline });
            }
            // Data. Such bytes count as in quotes.
            embedded += u64::from(d.is_csv() && Eol::counts(*eol, buf, start));
            continue;
        }

        if c == b'\\' && !is_literal && (!csv || (start == 0 && marker_in_csv)) {
            if more(at) {
                return Line::NeedMore { embedded };
            }
            if at >= buf.len() {
                // A backslash just before the end is data.
                return Line::End { content: buf.len(), next: buf.len(), embedded };
            }
            if peek(at) == b'.' {
                match marker(d, *eol, buf, start, at_end) {
                    Marker::Ends(next) => return Line::End { content: start, next, embedded },
                    Marker::Data => (),
                    Marker::NeedMore => return Line::NeedMore { embedded },
                    Marker::Error(kind) => return fail(kind),
                }
            } else if !csv {
                at += 1;
            }
        }
    }
}

/// Reads the line at the start of `buf` as [`read_line`] and [`field::split_line`] do, if quotes count only at both ends of a
/// field ([`Dialect::lenient_quotes`]). Sets `ends` to the ends of its fields. Returns the start of the next line; `None` if
/// only those functions can read it, or if more bytes are needed.
pub(crate) fn lenient_line(d: &Dialect, eol: Eol, buf: &[u8], ends: &mut Vec<u32>) -> Option<usize> {
    ends.clear();
    if !d.lenient_quotes || d.separator.is_long() || buf.first() == Some(&b'\\') || d.begins_comment(buf) {
        return None;
    }
    let (mut start, mut at) = (0, 0);
    loop {
        if at == start && buf.get(at) == Some(&d.quote) {
            match field::opening(d, buf, at, false) {
                Opening::Quoted(end) => at = end,
                Opening::Data => (),
                Opening::NeedMore => return None,
            }
        }
        let end = at + memchr::memchr3(d.delimiter, b'\n', b'\r', buf.get(at..)?)?;
        at = end + 1;
        if buf.get(end) == Some(&d.delimiter) {
            ends.push(end as u32);
            start = at;
            continue;
        }
        // The byte behind a carriage return decides.
        if at == buf.len() && buf.ends_with(b"\r") {
            return None;
        }
        if let Some(next) = eol.behind(buf, end) {
            if !(d.trailing && start > 0 && start == end) {
                ends.push(end as u32);
            }
            return Some(next);
        }
        // Data, or an error.
        d.line_end?;
    }
}

/// Finds the end of a line for which [`read_line`] returns an error: the next line end of the file's kind.
///
/// Returns the length of the line's data, the start of the next line, and whether the data end with the line; `None` if
/// more bytes are needed.
#[must_use]
pub fn skip_line(d: &Dialect, eol: Option<Eol>, buf: &[u8], at_end: bool) -> Option<(usize, usize, bool)> {
    let is_comment = d.begins_comment(buf);
    let (csv, is_literal) = (d.is_csv() && !is_comment, d.is_literal() || is_comment);
    let mut quotes = Quotes::default();
    let is_any = matches!(eol, None | Some(Eol::Any));
    let mut at = 0usize;
    while let Some(&c) = buf.get(at) {
        let start = at;
        at += 1;
        if csv {
            if quotes.pass(d, buf, start, c, at_end)? {
                continue;
            }
        } else if c == b'\\' && !is_literal {
            at += 1;
            continue;
        }
        if c == b'\r' && buf.len() == at && !at_end && (is_any || eol == Some(Eol::CrNl)) {
            return None;
        }
        if let Some(next) = eol.unwrap_or(Eol::Any).behind(buf, start) {
            return Some((start, next, false));
        }
    }
    at_end.then_some((buf.len(), buf.len(), true))
}

/// The meaning of one `\.`.
enum Marker {
    Ends(usize),
    Data,
    NeedMore,
    Error(LineError),
}

/// Classifies the `\.` at `start`.
fn marker(d: &Dialect, eol: Option<Eol>, buf: &[u8], start: usize, at_end: bool) -> Marker {
    let csv = d.is_csv();
    let since18 = d.end_marker == EndMarker::Since18;
    let corrupt = if since18 { LineError::MarkerNotAlone } else { LineError::MarkerCorrupt };
    let mut at = start + 2;
    let mut next = || {
        let c = match buf.get(at) {
            Some(&c) => c,
            None if at_end => 0,
            None => return None,
        };
        at += 1;
        Some(c)
    };
    if eol == Some(Eol::CrNl) {
        match next() {
            None => return Marker::NeedMore,
            Some(b'\r') => (),
            Some(_) if csv => return Marker::Data,
            Some(b'\n') => return Marker::Error(LineError::MarkerNewline),
            Some(_) => return Marker::Error(corrupt),
        }
    }
    let Some(c) = next() else { return Marker::NeedMore };
    if c != b'\r' && c != b'\n' {
        return if csv { Marker::Data } else { Marker::Error(corrupt) };
    }
    let matches = match eol {
        None | Some(Eol::Any) => true,
        Some(Eol::Nl | Eol::CrNl) => c == b'\n',
        Some(Eol::Cr) => c == b'\r',
    };
    if !matches {
        return Marker::Error(LineError::MarkerNewline);
    }
    if since18 && start > 0 {
        return Marker::Error(LineError::MarkerNotAlone);
    }
    Marker::Ends(at)
}
