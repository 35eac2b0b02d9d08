//! A light tokenizer for trials: splits a sample into records and fields.
//!
//! It reads quotes as a person does. A quote opens a field only at the field's start, also behind blanks. Its partner
//! must stand before a delimiter, a line end or the end of the file. A quote without such a partner is *stray*: the
//! field is read anew as if it had no quotes. That is the meaning of `lenient_quotes`. A sample without stray quotes is
//! read in the same way by the reader of loads.

use crate::dialect::Eol;
use crate::separator::Separator;

/// The most lines of a quoted field whose end the sample does not have.
const MOST_OPEN_LINES: usize = 64;
/// The most quotes without a partner up to the end of the sample. Each costs a pass over the rest of the sample.
const MOST_UNPAIRED: usize = 16;

/// The characters with a meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Syntax {
    /// The delimiter.
    pub(super) separator: Separator,
    /// The quote, if there is one.
    pub(super) quote: Option<u8>,
    /// The escape within quotes.
    pub(super) escape: u8,
    /// Which of LF, CR LF and CR end a line.
    pub(super) ends: Ends,
    /// Lines that begin with these bytes are comments, unless it is empty.
    pub(super) comment: Vec<u8>,
    /// A backslash takes the meaning of the next byte, as in format text.
    pub(super) backslash: bool,
    /// Quotes begin and end anywhere in a field, as COPY reads them.
    pub(super) toggles: bool,
}

/// The sequences that end a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) lf: bool,
    pub(super) crlf: bool,
    pub(super) cr: bool,
}

impl Ends {
    /// Each of the three.
    pub(super) const ANY: Ends = Ends { lf: true, crlf: true, cr: true };

    pub(super) fn of(line_end: Eol) -> Ends {
        let is = |one: Eol| line_end == Eol::Any || line_end == one;
        Ends { lf: is(Eol::Nl), crlf: is(Eol::CrNl), cr: is(Eol::Cr) }
    }

    /// Length of the line end at the start of `bytes`; 0 if there is none.
    #[inline]
    fn length(self, bytes: &[u8]) -> usize {
        match bytes {
            [b'\r', b'\n', ..] if self.crlf => 2,
            [b'\r', ..] => usize::from(self.cr),
            [b'\n', ..] => usize::from(self.lf),
            _ => 0,
        }
    }
}

/// How a field is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Without quotes.
    Bare,
    /// In quotes.
    Quoted,
    /// In quotes behind blanks.
    Padded,
    /// With a quote that has no meaning, at the start.
    Stray,
    /// With a quote that has no meaning, but not at the start.
    Inner,
}

/// A field of a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token<'a> {
    /// Its bytes, with quotes.
    pub(super) raw: &'a [u8],
    pub(super) style: Style,
    /// Quoted, with an escape before a quote in it.
    pub(super) escaped: bool,
}

impl<'a> Token<'a> {
    /// Its bytes without the outer quotes.
    pub(super) fn inner(&self) -> &'a [u8] {
        match self.style {
            Style::Quoted => self.raw.get(1..self.raw.len().saturating_sub(1)).unwrap_or_default(),
            Style::Padded => {
                let raw = self.raw.trim_ascii();
                raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default()
            }
            _ => self.raw,
        }
    }
}

/// What a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Record,
    Blank,
    Comment,
}

/// A record, a blank line or a comment.
pub(super) struct Item<'a, 't> {
    pub(super) kind: Kind,
    /// The number of its first line, from 1.
    pub(super) line: usize,
    /// Its bytes, without the line end.
    pub(super) raw: &'a [u8],
    pub(super) fields: &'t [Token<'a>],
    /// Its line end; empty at the end of the file.
    pub(super) end: &'a [u8],
}

const DELIMITER: u8 = 1;
const LINE_END: u8 = 2;
const QUOTE: u8 = 4;
const BACKSLASH: u8 = 8;

/// Whether a blank is part of a delimiter, so that blanks around quotes are data.
pub(super) fn has_blank(separator: &Separator) -> bool {
    separator.has(b' ') || separator.has(b'\t')
}

/// Calls `look` with each record, blank line and comment of the sample until it returns false. Unless the sample is the
/// `whole` file, the last record is left out, because the sample may cut it.
pub(super) fn tokenize<'a>(
    sample: &'a [u8],
    whole: bool,
    syntax: &Syntax,
    mut look: impl FnMut(&Item<'a, '_>) -> bool,
) -> bool {
    let mut classes = [0u8; 256];
    let mut class = |byte: u8, class: u8| {
        if let Some(known) = classes.get_mut(usize::from(byte)) {
            *known |= class;
        }
    };
    class(syntax.separator.first(), DELIMITER);
    class(b'\n', LINE_END);
    class(b'\r', LINE_END);
    if let Some(quote) = syntax.quote {
        class(quote, QUOTE);
    }
    if syntax.backslash {
        class(b'\\', BACKSLASH);
    }
    let classes = classes;
    let skips_blanks = !has_blank(&syntax.separator);
    let (mut fields, mut at, mut line, mut unpaired, mut lost) = (Vec::<Token<'a>>::new(), 0, 1, 0, false);
    while at < sample.len() {
        fields.clear();
        let (start, first_line) = (at, line);
        let rest = sample.get(at..).unwrap_or_default();
        if !syntax.comment.is_empty() && rest.starts_with(&syntax.comment) {
            let end = line_end(rest, syntax.ends);
            let (raw, behind) = rest.split_at_checked(end).unwrap_or_default();
            let end = behind.get(..syntax.ends.length(behind)).unwrap_or_default();
            at += raw.len() + end.len();
            line += 1;
            if !look(&Item { kind: Kind::Comment, line: first_line, raw, fields: &[], end }) {
                return false;
            }
            continue;
        }
        // One field per turn.
        let (end, after) = loop {
            let rest = sample.get(at..).unwrap_or_default();
            let mut style = Style::Bare;
            let mut escaped = false;
            let mut length = None;
            if let Some(quote) = syntax.quote.filter(|_| !syntax.toggles) {
                let blanks =
                    if skips_blanks { rest.iter().take_while(|&&b| b == b' ' || b == b'\t').count() } else { 0 };
                if rest.get(blanks) == Some(&quote) {
                    let inner = rest.get(blanks + 1..).unwrap_or_default();
                    match close(inner, quote, syntax, skips_blanks) {
                        Close::At { partner, end, lines, has_escape } => {
                            let ends_padded = end > partner + 1;
                            style = if blanks > 0 || ends_padded { Style::Padded } else { Style::Quoted };
                            escaped = has_escape;
                            line += lines;
                            length = Some(blanks + 1 + end);
                        }
                        Close::Stray => style = Style::Stray,
                        Close::Never { lines } => {
                            if !whole && lines < MOST_OPEN_LINES {
                                return false;
                            }
                            unpaired += 1;
                            if unpaired > MOST_UNPAIRED {
                                return true;
                            }
                            style = Style::Stray;
                        }
                    }
                }
            }
            let length = length.unwrap_or_else(|| {
                let mut length = 0;
                while let Some(&byte) = rest.get(length) {
                    let class = classes.get(usize::from(byte)).copied().unwrap_or(0);
                    if class & BACKSLASH != 0 {
                        length = (length + 2).min(rest.len());
                        continue;
                    }
                    if class != 0 {
                        let here = rest.get(length..).unwrap_or_default();
                        if class & LINE_END != 0 && syntax.ends.length(here) > 0 {
                            break;
                        }
                        if class & DELIMITER != 0 && syntax.separator.begins(here) {
                            break;
                        }
                        if class & QUOTE != 0 && syntax.toggles {
                            let inner = here.get(1..).unwrap_or_default();
                            let Some(partner) = memchr::memchr(here.first().copied().unwrap_or(0), inner) else {
                                lost = true;
                                return rest.len();
                            };
                            style = Style::Quoted;
                            let quoted = inner.get(..partner).unwrap_or_default();
                            line += memchr::memchr_iter(b'\n', quoted).count();
                            length += partner + 2;
                            continue;
                        }
                        if class & QUOTE != 0 && style == Style::Bare {
                            style = Style::Inner;
                        }
                    }
                    length += 1;
                }
                length
            });
            if lost {
                return true;
            }
            fields.push(Token { raw: rest.get(..length).unwrap_or_default(), style, escaped });
            at += length;
            let here = sample.get(at..).unwrap_or_default();
            if here.is_empty() {
                break (at, at);
            }
            let end = syntax.ends.length(here);
            if end > 0 {
                break (at, at + end);
            }
            at += syntax.separator.len();
        };
        if end == after && !whole {
            return false;
        }
        at = after;
        line += 1;
        let raw = sample.get(start..end).unwrap_or_default();
        let kind = if is_blank(raw, &syntax.separator) { Kind::Blank } else { Kind::Record };
        let end = sample.get(end..after).unwrap_or_default();
        if !look(&Item { kind, line: first_line, raw, fields: &fields, end }) {
            break;
        }
    }
    false
}

/// Whether a line has only blanks that are no delimiters.
pub(super) fn is_blank(line: &[u8], separator: &Separator) -> bool {
    line.iter().all(|&b| (b == b' ' || b == b'\t') && !separator.has(b))
}

/// Length of the line at the start of `bytes`.
fn line_end(bytes: &[u8], ends: Ends) -> usize {
    memchr::memchr2_iter(b'\n', b'\r', bytes)
        .find(|&at| ends.length(bytes.get(at..).unwrap_or_default()) > 0)
        .unwrap_or(bytes.len())
}

/// The end of a quoted field.
enum Close {
    /// The partner's position, that of the field's end, and the number of line ends within.
    At { partner: usize, end: usize, lines: usize, has_escape: bool },
    /// The partner is followed by something else.
    Stray,
    /// There is no partner.
    Never { lines: usize },
}

/// Finds the end of a field, from behind its opening quote.
fn close(inner: &[u8], quote: u8, syntax: &Syntax, skips_blanks: bool) -> Close {
    let (mut at, mut has_escape, backslash) = (0, false, syntax.escape != quote);
    let lines = |end: usize| memchr::memchr_iter(b'\n', inner.get(..end).unwrap_or_default()).count();
    loop {
        let rest = inner.get(at..).unwrap_or_default();
        let next = if backslash { memchr::memchr2(quote, syntax.escape, rest) } else { memchr::memchr(quote, rest) };
        let Some(next) = next else { return Close::Never { lines: lines(inner.len()) } };
        let here = rest.get(next..).unwrap_or_default();
        if backslash && here.first() == Some(&syntax.escape) {
            let escapes = here.get(1).is_some_and(|&b| b == quote || b == syntax.escape);
            has_escape |= here.get(1) == Some(&quote);
            at += next + if escapes { 2 } else { 1 };
            continue;
        }
        if !backslash && here.get(1) == Some(&quote) {
            has_escape = true;
            at += next + 2;
            continue;
        }
        let partner = at + next;
        let behind = inner.get(partner + 1..).unwrap_or_default();
        let blanks = if skips_blanks { behind.iter().take_while(|&&b| b == b' ' || b == b'\t').count() } else { 0 };
        let after = behind.get(blanks..).unwrap_or_default();
        if after.is_empty() || syntax.separator.begins(after) || syntax.ends.length(after) > 0 {
            return Close::At { partner, end: partner + 1 + blanks, lines: lines(partner), has_escape };
        }
        return Close::Stray;
    }
}
