//! The bytes that the kernels search for, and the selection of the kernel for a dialect.

use super::skip::Skip;
use crate::dialect::{Dialect, EndMarker, Eol, Format};
use crate::separator::Separator;

/// The special bytes of a regular dialect with a known line end.
#[derive(Debug, Clone, Copy)]
pub struct Needles {
    pub(super) mode: Mode,
    /// The delimiter's first byte.
    pub(super) delimiter: u8,
    /// The whole delimiter.
    pub(super) separator: Separator,
    /// A delimiter at the end of a line does not begin another field.
    pub(super) trailing: bool,
    pub(super) quote: u8,
    pub(super) escape: u8,
    pub(super) eol: Eol,
    /// A `\.` at the start of a CSV record ends the data.
    pub(super) marker: bool,
    /// The line end is given: other line ends are data. Otherwise only the exact reader can decide on them.
    pub(super) given: bool,
    /// Lines that are no records.
    pub(super) skip: Option<Skip>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Text,
    Csv,
    CsvEscape,
    CsvLenient,
    CsvEscapeLenient,
    Lines,
    Unquoted,
}

pub(super) const TEXT: u8 = Mode::Text as u8;
pub(super) const LINES: u8 = Mode::Lines as u8;
pub(super) const UNQUOTED: u8 = Mode::Unquoted as u8;

/// Parts of a kernel that not all dialects need: none, [`Skip`], or also [`Delimiters`](super::delimiter::Delimiters).
pub(super) const PLAIN: u8 = 0;
pub(super) const SKIPS: u8 = 1;
pub(super) const RICH: u8 = 2;

/// Calls the variant of a kernel for the mode, with or without its second part.
macro_rules! in_mode {
    (@ $n:ident, $part:literal, $kernel:ident, $isa:ty, $arguments:tt) => {
        match $n.mode {
            Mode::Text => $kernel::<$isa, TEXT, $part> $arguments,
            Mode::Csv => $kernel::<$isa, { Mode::Csv as u8 }, $part> $arguments,
            Mode::CsvEscape => $kernel::<$isa, { Mode::CsvEscape as u8 }, $part> $arguments,
            Mode::CsvLenient => $kernel::<$isa, { Mode::CsvLenient as u8 }, $part> $arguments,
            Mode::CsvEscapeLenient => $kernel::<$isa, { Mode::CsvEscapeLenient as u8 }, $part> $arguments,
            Mode::Lines => $kernel::<$isa, LINES, $part> $arguments,
            Mode::Unquoted => $kernel::<$isa, UNQUOTED, $part> $arguments,
        }
    };
    ($n:ident, $part:expr, $kernel:ident, $isa:ty, $arguments:tt) => {
        if $part { in_mode!(@ $n, true, $kernel, $isa, $arguments) } else { in_mode!(@ $n, false, $kernel, $isa, $arguments) }
    };
}
pub(super) use in_mode;

/// Whether the escape is not the quote.
pub(super) const fn has_an_escape(mode: u8) -> bool {
    mode == Mode::CsvEscape as u8 || mode == Mode::CsvEscapeLenient as u8
}

/// Whether quotes count only at both ends of a field.
pub(super) const fn is_lenient(mode: u8) -> bool {
    mode == Mode::CsvLenient as u8 || mode == Mode::CsvEscapeLenient as u8
}

/// Whether each line end ends a record, so that no other line ends need to be counted.
pub(super) const fn has_a_record_a_line(mode: u8) -> bool {
    mode == TEXT || mode == LINES || mode == UNQUOTED
}

impl Needles {
    /// Returns the needles of a dialect; `None` if it is not regular.
    #[must_use]
    pub fn new(d: &Dialect, eol: Eol) -> Option<Needles> {
        let mode = match (d.format, d.quote == d.escape) {
            (Format::Lines | Format::Records | Format::Binary, _) => Mode::Lines,
            (Format::Unquoted, _) => Mode::Unquoted,
            (Format::Text, _) => Mode::Text,
            (Format::Csv, true) if d.lenient_quotes => Mode::CsvLenient,
            (Format::Csv, false) if d.lenient_quotes => Mode::CsvEscapeLenient,
            (Format::Csv, true) => Mode::Csv,
            (Format::Csv, false) => Mode::CsvEscape,
        };
        let marker = d.end_marker == EndMarker::Until17 && !d.is_literal();
        let (delimiter, quote, escape) = (d.delimiter, d.quote, d.escape);
        let (separator, trailing) = (d.separator, d.trailing);
        let given = d.line_end.is_some();
        let skip = d.skips_lines().then(|| Skip::new(d, eol, given));
        d.is_regular().then_some(Needles {
            mode,
            delimiter,
            separator,
            trailing,
            quote,
            escape,
            eol,
            marker,
            given,
            skip,
        })
    }

    /// The beginning of comments, if bytes in a comment could be mistaken for quotes or escapes.
    pub(super) fn comment(&self) -> Option<Separator> {
        let is_literal = matches!(self.mode, Mode::Unquoted | Mode::Lines);
        self.skip.and_then(|skip| skip.comment).filter(|_| !is_literal)
    }

    /// Whether a line end may begin with this byte.
    #[inline(always)]
    pub(super) fn may_end(&self, byte: u8) -> bool {
        if self.given { self.eol.behind(&[byte], 0).is_some() } else { byte == b'\n' || byte == b'\r' }
    }

    /// The part of the kernels that the dialect needs.
    pub(super) fn part(&self) -> u8 {
        match self.skip {
            _ if self.separator.is_long() || self.trailing => RICH,
            Some(_) => SKIPS,
            None => PLAIN,
        }
    }
}
