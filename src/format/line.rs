//! The exact line reader: where does COPY say this line ends?
//!
//! [`read_line`] mirrors `CopyReadLineText` (src/backend/commands/copyfromparse.c) character for character,
//! including what looks odd there: the two-byte skip after a backslash, `\.` after data, the look-ahead that turns
//! a carriage return into a line end or an error, the count of line ends inside quotes that depends on what is
//! known of the file so far. It is slow, and it is the authority: the SIMD scan hands it every record in which
//! anything unusual happens, the first record of a file, and every record of an irregular dialect.
//!
//! It looks at a buffer that starts at a line start. If the answer depends on bytes that are not there yet, it says
//! [`Line::NeedMore`] and is called again with a longer buffer.

use crate::dialect::{Dialect, EndMarker, Eol};

/// COPY's line buffer is a StringInfo, which cannot hold this many bytes (`MaxAllocSize`).
pub const LINE_LIMIT: usize = 0x3fff_ffff;

/// What the bytes at a line start turned out to be.
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
    /// The data end here, at the end of the input or at `\.`; `content` bytes of data come before.
    End {
        /// Length of the unfinished line, possibly 0.
        content: usize,
        /// Where reading would go on (COPY does, when `\.` followed data).
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
        /// Which.
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

/// Read one line of `buf`, which starts at a line start and is all there is if `at_end`.
///
/// `eol` is learned from the first line that ends.
pub fn read_line(d: &Dialect, eol: &mut Option<Eol>, buf: &[u8], at_end: bool) -> Line {
    let csv = d.is_csv();
    // No byte stands for "no separate escape".
    let escape = if csv && d.quote != d.escape { u16::from(d.escape) } else { u16::MAX };
    let marker_in_csv = d.end_marker == EndMarker::Until17;
    let (mut in_quote, mut last_was_escape) = (false, false);
    let mut embedded = 0u64;
    let mut at = 0usize;
    // Reading past the end yields the NUL with which core pads its buffer.
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
            if in_quote && u16::from(c) == escape {
                last_was_escape = !last_was_escape;
            }
            if c == d.quote && !last_was_escape {
                in_quote = !in_quote;
            }
            if u16::from(c) != escape {
                last_was_escape = false;
            }
            if in_quote && c == Eol::counted(*eol) {
                embedded += 1;
            }
        }

        let fail = |kind| Line::Error { kind, embedded };
        if c == b'\r' && !in_quote {
            if matches!(*eol, None | Some(Eol::CrNl)) {
                if more(at) {
                    return Line::NeedMore { embedded };
                }
                if peek(at) == b'\n' {
                    at += 1;
                    *eol = Some(Eol::CrNl);
                } else if *eol == Some(Eol::CrNl) {
                    return fail(LineError::CarriageReturn);
                } else {
                    *eol = Some(Eol::Cr);
                }
            } else if *eol == Some(Eol::Nl) {
                return fail(LineError::CarriageReturn);
            }
            return Line::Complete { content: start, next: at, embedded };
        }
        if c == b'\n' && !in_quote {
            if matches!(*eol, Some(Eol::Cr | Eol::CrNl)) {
                return fail(LineError::Newline);
            }
            *eol = Some(Eol::Nl);
            return Line::Complete { content: start, next: at, embedded };
        }

        if c == b'\\' && !d.is_literal() && (!csv || (start == 0 && marker_in_csv)) {
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

/// Where a line ends that [`read_line`] has an error about: at the next line end of the file's kind, whatever is before it.
/// Length of its data, start of the next line, and whether the data end with it; `None` if more bytes are needed.
#[must_use]
pub fn skip_line(d: &Dialect, eol: Option<Eol>, buf: &[u8], at_end: bool) -> Option<(usize, usize, bool)> {
    let csv = d.is_csv();
    let escape = if csv && d.quote != d.escape { u16::from(d.escape) } else { u16::MAX };
    let (mut in_quote, mut last_was_escape) = (false, false);
    let mut at = 0usize;
    while let Some(&c) = buf.get(at) {
        let start = at;
        at += 1;
        if csv {
            if in_quote && u16::from(c) == escape {
                last_was_escape = !last_was_escape;
            }
            if c == d.quote && !last_was_escape {
                in_quote = !in_quote;
            }
            if u16::from(c) != escape {
                last_was_escape = false;
            }
        } else if c == b'\\' && !d.is_literal() {
            at += 1;
            continue;
        }
        if in_quote {
            continue;
        }
        match (c, eol) {
            (b'\n', Some(Eol::Nl) | None) | (b'\r', Some(Eol::Cr)) => return Some((start, at, false)),
            (b'\r', Some(Eol::CrNl) | None) => match buf.get(at) {
                Some(b'\n') => return Some((start, at + 1, false)),
                None if !at_end => return None,
                _ if eol.is_none() => return Some((start, at, false)),
                _ => (),
            },
            _ => (),
        }
    }
    at_end.then_some((buf.len(), buf.len(), true))
}

/// What a `\.` is.
enum Marker {
    Ends(usize),
    Data,
    NeedMore,
    Error(LineError),
}

/// Judge the `\.` at `start`.
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
        None => true,
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
