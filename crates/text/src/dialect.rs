//! The format options of COPY for a file: special characters, NULL marker, end-of-data marker.
//!
//! A [`Dialect`] is made from checked options; [`Dialect::check`] applies the rules of `ProcessCopyOptions`
//! (src/backend/commands/copy.c) in core's order, so that the first error is the one that COPY would raise. The
//! extension turns a [`DialectError`] into a message.
//!
//! Most dialects are *regular*: every character has one meaning, and the SIMD scan supports them. COPY also accepts
//! contradictory options (a newline as the quote, the delimiter as the escape). Only the exact reader, which works byte
//! by byte, reads such a dialect ([`Dialect::is_regular`]).

use crate::separator::Separator;

/// The formats of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// COPY's text format: backslash escapes.
    Text,
    /// COPY's CSV format: quotes.
    Csv,
    /// CSV without quotes: only delimiters and line ends have a meaning.
    Unquoted,
    /// Each line is one field. Another module finds the values within it.
    Lines,
    /// Records without line ends, one field each. All are [`Dialect::record_length`] bytes long.
    Records,
    /// COPY's binary format ([`crate::binary`]). Each record is one field here, too.
    Binary,
}

/// How lines end. COPY learns the line end from the first line and requires it for all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eol {
    /// `\n`
    Nl,
    /// `\r`
    Cr,
    /// `\r\n`
    CrNl,
    /// Each of these, as an option says.
    Any,
}

impl Eol {
    /// Returns the byte that COPY counts as a line inside quotes (`CopyReadLineText`): `\n` if lines end in `\n`, else
    /// `\r`. It is also `\r` as long as the line end is not known. If any line end may occur, a `\n` that is not behind
    /// a `\r` counts, too.
    #[must_use]
    pub(crate) fn counted(eol: Option<Eol>) -> u8 {
        if eol == Some(Eol::Nl) { b'\n' } else { b'\r' }
    }

    /// Whether the byte at `at` is counted.
    #[must_use]
    pub fn counts(eol: Option<Eol>, bytes: &[u8], at: usize) -> bool {
        let byte = bytes.get(at);
        let is_behind_cr = || at.checked_sub(1).is_some_and(|before| bytes.get(before) == Some(&b'\r'));
        byte == Some(&Eol::counted(eol)) || (eol == Some(Eol::Any) && byte == Some(&b'\n') && !is_behind_cr())
    }

    /// Number of counted bytes.
    #[must_use]
    pub fn count(eol: Option<Eol>, bytes: &[u8]) -> u64 {
        let count = memchr::memchr_iter(Eol::counted(eol), bytes).count() as u64;
        if eol != Some(Eol::Any) {
            return count;
        }
        let newlines = memchr::memchr_iter(b'\n', bytes).count() as u64;
        count + newlines - if count > 0 && newlines > 0 { Eol::pairs(bytes) } else { 0 }
    }

    /// Number of newlines behind a carriage return.
    #[inline(always)]
    pub(crate) fn pairs(bytes: &[u8]) -> u64 {
        let behind = bytes.get(1..).unwrap_or_default();
        let ((crs, _), (newlines, rest)) = (bytes.as_chunks::<128>(), behind.as_chunks::<128>());
        let pairs = |(crs, newlines): (&[u8; 128], &[u8; 128])| {
            let is_pair = |(&cr, &newline): (&u8, &u8)| u8::from(cr == b'\r') & u8::from(newline == b'\n');
            u64::from(crs.iter().zip(newlines).map(is_pair).sum::<u8>())
        };
        let rest = bytes.get(behind.len() - rest.len()..).unwrap_or_default();
        crs.iter().zip(newlines).map(pairs).sum::<u64>() + rest.windows(2).filter(|two| two == b"\r\n").count() as u64
    }

    /// The first line end in `bytes`.
    #[must_use]
    pub fn first(bytes: &[u8]) -> Option<Eol> {
        match bytes.get(memchr::memchr2(b'\n', b'\r', bytes)?..)? {
            [b'\r', b'\n', ..] => Some(Eol::CrNl),
            [b'\r', ..] => Some(Eol::Cr),
            _ => Some(Eol::Nl),
        }
    }

    /// The position behind the line end at `at`; `None` without a line end there.
    #[inline(always)]
    #[must_use]
    pub fn behind(self, bytes: &[u8], at: usize) -> Option<usize> {
        match (self, bytes.get(at)?) {
            (Eol::CrNl | Eol::Any, b'\r') if bytes.get(at + 1) == Some(&b'\n') => Some(at + 2),
            (Eol::Cr | Eol::Any, b'\r') | (Eol::Nl | Eol::Any, b'\n') => Some(at + 1),
            _ => None,
        }
    }
}

/// The meaning of `\.`, which changed with PostgreSQL 18.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndMarker {
    /// Up to 17: ends the data. In CSV it must be alone on its line; in text it may follow data.
    Until17,
    /// From 18: data in CSV; in text it must be alone on its line.
    Since18,
}

/// A file's dialect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialect {
    /// The format of the file.
    pub format: Format,
    /// Field delimiter, or its first byte.
    pub delimiter: u8,
    /// The whole field delimiter.
    pub separator: Separator,
    /// A delimiter at the end of a line does not begin another field.
    pub trailing: bool,
    /// Quote (CSV).
    pub quote: u8,
    /// Escape inside quotes (CSV).
    pub escape: u8,
    /// The NULL marker, compared with the raw field.
    pub null: Vec<u8>,
    /// The DEFAULT marker, compared with the raw field.
    pub default: Option<Vec<u8>>,
    /// The meaning of `\.`.
    pub end_marker: EndMarker,
    /// Length of each record in bytes, without its line end, if it is known. In the binary format: the number of
    /// fields.
    pub record_length: Option<usize>,
    /// The content of lines that are one field each.
    pub content: LineContent,
    /// A line of blanks and tabs only, or without bytes, is no record.
    pub skip_blank_lines: bool,
    /// A line that begins with these bytes is no record. Empty: there are no comments.
    pub comment: Vec<u8>,
    /// A quote counts only at both ends of a field (CSV).
    pub lenient_quotes: bool,
    /// How lines end, if it is given. All other carriage returns and newlines are data.
    pub line_end: Option<Eol>,
}

/// The content of a line that is one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineContent {
    /// Bytes, divided by their positions ([`crate::fixed`]).
    Bytes,
    /// Characters, divided by their positions.
    Characters,
    /// A JSON object.
    Object,
}

/// Format options as given, before defaults.
#[derive(Debug, Clone, Default)]
pub struct FormatOptions {
    /// `format 'csv'`
    pub csv: bool,
    /// `delimiter`
    pub delimiter: Option<Vec<u8>>,
    /// `trailing_delimiter`
    pub trailing: bool,
    /// `null`
    pub null: Option<Vec<u8>>,
    /// `default`
    pub default: Option<Vec<u8>>,
    /// `quote`
    pub quote: Option<Vec<u8>>,
    /// `quote 'none'`
    pub unquoted: bool,
    /// `escape`
    pub escape: Option<Vec<u8>>,
    /// `force_not_null` is given for some column.
    pub force_not_null: bool,
    /// `force_null` is given for some column.
    pub force_null: bool,
    /// `skip_blank_lines`
    pub skip_blank_lines: bool,
    /// `comment`
    pub comment: Option<Vec<u8>>,
    /// `lenient_quotes`
    pub lenient_quotes: bool,
    /// `line_end`
    pub line_end: Option<Eol>,
}

/// Errors in a set of format options: one variant per message of `ProcessCopyOptions`, and some about options that COPY
/// does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DialectError {
    /// COPY delimiter must be a single one-byte character; pg_bulk accepts longer ones up to a limit
    DelimiterLength,
    /// COPY delimiter cannot be newline or carriage return
    DelimiterNewline,
    /// as `DelimiterNewline`, for a delimiter of several bytes
    DelimiterBreaksLine,
    /// COPY null representation cannot use newline or carriage return
    NullNewline,
    /// COPY default representation cannot use newline or carriage return
    DefaultNewline,
    /// COPY delimiter cannot be "x"
    DelimiterUnsafe(Separator),
    /// COPY quote available only in CSV mode
    QuoteNotCsv,
    /// COPY quote must be a single one-byte character
    QuoteLength,
    /// COPY delimiter and quote must be different
    DelimiterIsQuote,
    /// a delimiter of several bytes contains the quote
    QuoteInDelimiter,
    /// an escape is given together with `quote 'none'`
    EscapeUnquoted,
    /// COPY escape available only in CSV mode
    EscapeNotCsv,
    /// COPY escape must be a single one-byte character
    EscapeLength,
    /// COPY force not null available only in CSV mode
    ForceNotNullNotCsv,
    /// COPY force null available only in CSV mode
    ForceNullNotCsv,
    /// COPY delimiter must not appear in the NULL specification
    DelimiterInNull,
    /// CSV quote character must not appear in the NULL specification
    QuoteInNull,
    /// COPY delimiter must not appear in the DEFAULT specification
    DelimiterInDefault,
    /// CSV quote character must not appear in the DEFAULT specification
    QuoteInDefault,
    /// NULL specification and DEFAULT specification cannot be the same
    NullIsDefault,
    /// lenient_quotes without quotes
    LenientUnquoted,
    /// a comment has no bytes, or too many
    CommentLength,
    /// a comment contains a newline or carriage return
    CommentBreaksLine,
}

/// Whether a delimiter of the text format could be mistaken for a part of an escape.
pub(crate) fn is_unsafe_in_text(delimiter: u8) -> bool {
    memchr::memchr(delimiter, b"\\.abcdefghijklmnopqrstuvwxyz0123456789").is_some()
}

impl Dialect {
    /// Checks options in the order of `ProcessCopyOptions` and fills in the defaults.
    pub fn check(o: &FormatOptions, end_marker: EndMarker) -> Result<Dialect, DialectError> {
        use DialectError as E;
        let delimiter: &[u8] = o.delimiter.as_deref().unwrap_or(if o.csv { b"," } else { b"\t" });
        let null: &[u8] = o.null.as_deref().unwrap_or(if o.csv { b"" } else { b"\\N" });
        let quote: &[u8] = o.quote.as_deref().unwrap_or(b"\"");
        let escape: &[u8] = o.escape.as_deref().unwrap_or(quote);
        let has = |s: &[u8], b: u8| memchr::memchr(b, s).is_some();
        let breaks_line = |s: &[u8]| has(s, b'\n') || has(s, b'\r');

        let Some(separator) = Separator::new(delimiter) else { return Err(E::DelimiterLength) };
        let delim = separator.first();
        if breaks_line(delimiter) {
            return Err(if separator.is_long() { E::DelimiterBreaksLine } else { E::DelimiterNewline });
        }
        if breaks_line(null) {
            return Err(E::NullNewline);
        }
        if o.default.as_deref().is_some_and(breaks_line) {
            return Err(E::DefaultNewline);
        }
        // A delimiter of several bytes is ambiguous only if its first byte may occur in an escape, or if it has a
        // backslash.
        if !o.csv && (is_unsafe_in_text(delim) || separator.has(b'\\')) {
            return Err(E::DelimiterUnsafe(separator));
        }
        let (mut q, mut e) = (b'"', b'"');
        if !o.csv {
            if o.quote.is_some() || o.unquoted {
                return Err(E::QuoteNotCsv);
            }
            if o.escape.is_some() {
                return Err(E::EscapeNotCsv);
            }
        } else if o.unquoted {
            if o.escape.is_some() {
                return Err(E::EscapeUnquoted);
            }
        } else {
            let &[one] = quote else { return Err(E::QuoteLength) };
            if separator.has(one) {
                return Err(if separator.is_long() { E::QuoteInDelimiter } else { E::DelimiterIsQuote });
            }
            let &[esc] = escape else { return Err(E::EscapeLength) };
            (q, e) = (one, esc);
        }
        if !o.csv && o.force_not_null {
            return Err(E::ForceNotNullNotCsv);
        }
        if !o.csv && o.force_null {
            return Err(E::ForceNullNotCsv);
        }
        let quoted = o.csv && !o.unquoted;
        if separator.is_in(null) {
            return Err(E::DelimiterInNull);
        }
        if quoted && has(null, q) {
            return Err(E::QuoteInNull);
        }
        if let Some(default) = o.default.as_deref() {
            if separator.is_in(default) {
                return Err(E::DelimiterInDefault);
            }
            if quoted && has(default, q) {
                return Err(E::QuoteInDefault);
            }
            if default == null {
                return Err(E::NullIsDefault);
            }
        }
        if o.lenient_quotes && !quoted {
            return Err(E::LenientUnquoted);
        }
        let comment: &[u8] = o.comment.as_deref().unwrap_or_default();
        if o.comment.is_some() && Separator::new(comment).is_none() {
            return Err(E::CommentLength);
        }
        if breaks_line(comment) {
            return Err(E::CommentBreaksLine);
        }
        Ok(Dialect {
            format: match o.csv {
                true if o.unquoted => Format::Unquoted,
                true => Format::Csv,
                false => Format::Text,
            },
            delimiter: delim,
            separator,
            trailing: o.trailing,
            quote: q,
            escape: e,
            null: null.to_vec(),
            default: o.default.clone(),
            end_marker,
            record_length: None,
            content: LineContent::Bytes,
            skip_blank_lines: o.skip_blank_lines,
            comment: comment.to_vec(),
            lenient_quotes: o.lenient_quotes,
            line_end: o.line_end,
        })
    }

    /// The dialect of a file whose lines are one field each. No byte of a line has a meaning, not even `\.`.
    /// `record_length`: the length of each line, if it is known.
    #[must_use]
    pub fn lines(record_length: Option<usize>) -> Dialect {
        Dialect {
            format: Format::Lines,
            delimiter: b',',
            separator: Separator::byte(b','),
            trailing: false,
            quote: b'"',
            escape: b'"',
            // No line can contain it.
            null: b"\n".to_vec(),
            default: None,
            end_marker: EndMarker::Since18,
            record_length,
            content: LineContent::Bytes,
            skip_blank_lines: false,
            comment: Vec::new(),
            lenient_quotes: false,
            line_end: None,
        }
    }

    /// The dialect of a file whose lines are JSON objects ([`crate::json_object`]).
    #[must_use]
    pub fn json() -> Dialect {
        Dialect { content: LineContent::Object, ..Dialect::lines(None) }
    }

    /// The dialect of records of `length` bytes, one field each, with no bytes between them.
    #[must_use]
    pub fn records(length: usize) -> Dialect {
        let length = length.max(1);
        // No record has this length.
        let null = vec![b'\n'; if length == 1 { 2 } else { 1 }];
        Dialect { format: Format::Records, null, ..Dialect::lines(Some(length)) }
    }

    /// COPY's binary format. The reader gets the number of fields separately.
    #[must_use]
    pub fn binary() -> Dialect {
        Dialect { format: Format::Binary, ..Dialect::lines(None) }
    }

    /// True for COPY's binary format.
    #[inline]
    #[must_use]
    pub fn is_binary(&self) -> bool {
        self.format == Format::Binary
    }

    /// True if no byte ends a line.
    #[inline]
    #[must_use]
    pub fn lacks_line_ends(&self) -> bool {
        matches!(self.format, Format::Records | Format::Binary)
    }

    /// True if each record is one field.
    #[inline]
    #[must_use]
    pub fn is_lines(&self) -> bool {
        matches!(self.format, Format::Lines | Format::Records | Format::Binary)
    }

    /// True if the bytes of a field are its value, and each line end ends a record.
    #[inline]
    #[must_use]
    pub fn is_literal(&self) -> bool {
        matches!(self.format, Format::Lines | Format::Records | Format::Unquoted | Format::Binary)
    }

    /// True if COPY supports this dialect.
    #[must_use]
    pub fn is_copys(&self) -> bool {
        matches!(self.format, Format::Text | Format::Csv)
            && !self.is_rich()
            && !self.skip_blank_lines
            && self.comment.is_empty()
            && !self.lenient_quotes
            && self.line_end.is_none()
    }

    /// True if the delimiter has several bytes, or a delimiter may end a line without another field.
    #[inline]
    #[must_use]
    pub fn is_rich(&self) -> bool {
        self.separator.is_long() || self.trailing
    }

    /// Length of records without line ends, in bytes.
    #[inline]
    #[must_use]
    pub fn stride(&self) -> Option<usize> {
        if self.format == Format::Records { self.record_length } else { None }
    }

    /// True for CSV with quotes.
    #[inline]
    #[must_use]
    pub fn is_csv(&self) -> bool {
        self.format == Format::Csv
    }

    /// True if some lines are no records ([`Dialect::is_skipped`]).
    #[inline]
    #[must_use]
    pub fn skips_lines(&self) -> bool {
        self.skip_blank_lines || !self.comment.is_empty()
    }

    /// Whether a line that begins with these bytes is a comment.
    #[inline]
    #[must_use]
    pub fn begins_comment(&self, line: &[u8]) -> bool {
        !self.comment.is_empty() && line.starts_with(&self.comment)
    }

    /// Whether a line of blanks may contain this byte.
    #[must_use]
    pub fn is_blank(&self, byte: u8) -> bool {
        (byte == b' ' || byte == b'\t')
            && !self.separator.has(byte)
            && !(self.is_csv() && (byte == self.quote || byte == self.escape))
    }

    /// Whether a line, given without its end, is no record.
    #[must_use]
    pub fn is_skipped(&self, line: &[u8]) -> bool {
        self.begins_comment(line) || (self.skip_blank_lines && line.iter().all(|&byte| self.is_blank(byte)))
    }

    /// True if each special character has one meaning only, so that bitmaps yield the boundaries of records and fields.
    ///
    /// The text format forbids most dangerous delimiters itself, but not A to F, which are digits in a hexadecimal
    /// escape. In CSV the quote and the escape may be any character.
    #[must_use]
    pub fn is_regular(&self) -> bool {
        // The kernels search a part of a comment for quotes and escapes before they know that it is one.
        let has = |byte| memchr::memchr(byte, &self.comment).is_some();
        match self.format {
            Format::Text if has(b'\\') => false,
            Format::Csv if has(b'\\') || has(self.quote) || has(self.escape) => false,
            Format::Lines | Format::Records | Format::Unquoted | Format::Binary => true,
            Format::Text => !self.delimiter.is_ascii_hexdigit(),
            Format::Csv => {
                let special = |b: u8| b == b'\n' || b == b'\r';
                !special(self.quote)
                    && !special(self.escape)
                    && self.quote != b'\\'
                    && !self.separator.has(b'\\')
                    && !self.separator.has(self.escape)
                    && (!self.lenient_quotes || !self.separator.is_long())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(f: impl FnOnce(&mut FormatOptions)) -> Result<Dialect, DialectError> {
        let mut o = FormatOptions { csv: true, ..FormatOptions::default() };
        f(&mut o);
        Dialect::check(&o, EndMarker::Until17)
    }

    #[test]
    fn defaults_are_copys() {
        let csv = check(|_| ()).unwrap();
        assert_eq!((csv.delimiter, csv.quote, csv.escape, csv.null.as_slice()), (b',', b'"', b'"', &b""[..]));
        let text = check(|o| o.csv = false).unwrap();
        assert_eq!((text.delimiter, text.null.as_slice()), (b'\t', &b"\\N"[..]));
        let quoted = check(|o| o.quote = Some(b"'".to_vec())).unwrap();
        assert_eq!(quoted.escape, b'\'');
    }

    #[test]
    fn the_first_complaint_is_copys() {
        use DialectError as E;
        let some = |s: &str| Some(s.as_bytes().to_vec());
        assert_eq!(check(|o| o.delimiter = some("12345678901234567")), Err(E::DelimiterLength));
        assert_eq!(check(|o| o.delimiter = some("")), Err(E::DelimiterLength));
        assert_eq!(check(|o| o.delimiter = some("\n")), Err(E::DelimiterNewline));
        assert_eq!(check(|o| o.null = some("a\r")), Err(E::NullNewline));
        assert_eq!(check(|o| o.quote = some("''")), Err(E::QuoteLength));
        assert_eq!(check(|o| o.delimiter = some("\"")), Err(E::DelimiterIsQuote));
        assert_eq!(check(|o| o.null = some("a,b")), Err(E::DelimiterInNull));
        assert_eq!(check(|o| o.null = some("a\"b")), Err(E::QuoteInNull));
        assert_eq!(check(|o| o.default = some("a,b")), Err(E::DelimiterInDefault));
        assert_eq!(check(|o| o.default = some("")), Err(E::NullIsDefault));
        assert_eq!(check(|o| (o.unquoted, o.lenient_quotes) = (true, true)), Err(E::LenientUnquoted));
        assert_eq!(check(|o| o.comment = some("")), Err(E::CommentLength));
        assert_eq!(check(|o| o.comment = some("#\r")), Err(E::CommentBreaksLine));
        let text = |f: fn(&mut FormatOptions)| {
            check(|o| {
                o.csv = false;
                f(o);
            })
        };
        let unsafe_in_text = |s: &[u8]| Err(E::DelimiterUnsafe(Separator::new(s).unwrap()));
        assert_eq!(text(|o| o.delimiter = Some(b"a".to_vec())), unsafe_in_text(b"a"));
        assert_eq!(text(|o| o.quote = Some(b"'".to_vec())), Err(E::QuoteNotCsv));
        assert_eq!(text(|o| o.escape = Some(b"'".to_vec())), Err(E::EscapeNotCsv));
        assert_eq!(text(|o| o.force_null = true), Err(E::ForceNullNotCsv));
        assert_eq!(text(|o| o.force_not_null = true), Err(E::ForceNotNullNotCsv));
    }

    #[test]
    fn what_copy_does_not_have() {
        use DialectError as E;
        let some = |s: &str| Some(s.as_bytes().to_vec());
        let long = check(|o| o.delimiter = some("||")).unwrap();
        assert!(
            long.separator.bytes() == b"||" && long.is_csv() && long.is_rich() && !long.is_copys() && long.is_regular()
        );
        let trailing = check(|o| o.trailing = true).unwrap();
        assert!(trailing.is_csv() && trailing.is_rich() && !trailing.is_copys() && trailing.is_regular());
        let unquoted = |delimiter: &str| {
            check(|o| {
                o.unquoted = true;
                o.delimiter = some(delimiter);
                o.null = some("\"");
            })
        };
        // No byte has a meaning of its own.
        for delimiter in ["\\", "\"a", "x", "€"] {
            let d = unquoted(delimiter).unwrap();
            assert!(d.format == Format::Unquoted && d.is_literal() && !d.is_csv() && !d.is_lines() && d.is_regular());
        }
        assert_eq!(unquoted("\""), Err(E::DelimiterInNull));
        assert_eq!(check(|o| (o.unquoted, o.escape) = (true, some("\\"))), Err(E::EscapeUnquoted));
        assert_eq!(check(|o| (o.unquoted, o.csv) = (true, false)), Err(E::QuoteNotCsv));
        assert_eq!(check(|o| o.delimiter = some("a\n")), Err(E::DelimiterBreaksLine));
        assert_eq!(check(|o| o.delimiter = some("a\"")), Err(E::QuoteInDelimiter));
        assert_eq!(check(|o| (o.delimiter, o.null) = (some("ab"), some("xaby"))), Err(E::DelimiterInNull));
        assert_eq!(check(|o| (o.delimiter, o.default) = (some("ab"), some("ab"))), Err(E::DelimiterInDefault));
        assert!(check(|o| (o.delimiter, o.null) = (some("ab"), some("ba"))).is_ok());
        let text = |delimiter: &str| check(|o| (o.csv, o.delimiter) = (false, some(delimiter)));
        for delimiter in ["a|", "|\\", "\\|", "0|"] {
            let separator = Separator::new(delimiter.as_bytes()).unwrap();
            assert_eq!(text(delimiter), Err(E::DelimiterUnsafe(separator)));
        }
        assert!(text("|a0.").unwrap().is_regular() && !text("A|").unwrap().is_regular());
    }

    #[test]
    fn nonsense_is_not_regular() {
        for (quote, escape, delimiter, regular) in [
            ("\"", "\"", ",", true),
            ("\"", "\\", ",", true),
            ("'", "'", "|", true),
            ("\n", "\n", ",", false),
            ("\"", "\r", ",", false),
            ("\"", ",", ",", false),
            ("\\", "\\", ",", false),
            ("\"", "\"", "\\", false),
            ("\"", "e", "-e-", false),
            ("\"", "\"", "|\\", false),
        ] {
            let d = check(|o| {
                o.quote = Some(quote.into());
                o.escape = Some(escape.into());
                o.delimiter = Some(delimiter.into());
            });
            assert_eq!(d.unwrap().is_regular(), regular, "{quote:?} {escape:?} {delimiter:?}");
        }
    }
}
