//! The exact field reader: splits a line into raw fields and makes values of raw fields.
//!
//! [`split_line`] mirrors the loops of `CopyReadAttributesText` and `CopyReadAttributesCSV`
//! (src/backend/commands/copyfromparse.c) but only stores where each raw field ends. [`unescape_text`] and
//! [`unescape_csv`] mirror the other half of those loops, the removal of quotes and escapes. With this split, the exact
//! path and the fast path use the same routines, and fields that are not needed are never unescaped.

use crate::dialect::{Dialect, Format};

/// Why a line cannot be split into fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldError {
    /// unterminated CSV quoted field
    UnterminatedQuote,
}

/// Appends the end of each raw field of `line` to `ends` (offsets into `line`). A delimiter follows each field but the
/// last one. It follows the last one, too, if a delimiter at the end of a line does not begin a field
/// ([`Dialect::trailing`]).
///
/// At most `most` ends are stored, even if a damaged line has many more delimiters. Returns the number of fields.
pub fn split_line(d: &Dialect, line: &[u8], most: usize, ends: &mut Vec<u32>) -> Result<usize, FieldError> {
    if d.is_lines() {
        ends.extend((most > 0).then(|| u32::try_from(line.len()).unwrap_or(u32::MAX)));
        return Ok(1);
    }
    let mut fields = 0usize;
    let mut at = 0usize;
    loop {
        if d.trailing && fields > 0 && at == line.len() {
            return Ok(fields);
        }
        let (end, found) = match d.format {
            Format::Csv => csv_field(d, line, at)?,
            Format::Text => text_field(d, line, at),
            Format::Unquoted | Format::Lines | Format::Records | Format::Binary => bare_field(d, line, at),
        };
        if fields < most {
            ends.push(u32::try_from(end).unwrap_or(u32::MAX));
        }
        fields += 1;
        if !found {
            return Ok(fields);
        }
        at = end + d.separator.len();
    }
}

/// Whether a delimiter begins at `at`, the position of the byte `c`.
#[inline]
fn is_delimiter(d: &Dialect, line: &[u8], at: usize, c: u8) -> bool {
    c == d.delimiter && (!d.separator.is_long() || d.separator.begins(line.get(at..).unwrap_or_default()))
}

/// End of the field without quotes and escapes that starts at `at`, and whether a delimiter ended it.
fn bare_field(d: &Dialect, line: &[u8], at: usize) -> (usize, bool) {
    let rest = line.get(at..).unwrap_or_default();
    let found = match d.separator.bytes() {
        &[delimiter] => memchr::memchr(delimiter, rest),
        delimiter => memchr::memmem::find(rest, delimiter),
    };
    match found {
        Some(length) => (at + length, true),
        None => (line.len(), false),
    }
}

/// End of the text field that starts at `at`, and whether a delimiter ended it.
fn text_field(d: &Dialect, line: &[u8], mut at: usize) -> (usize, bool) {
    while let Some(&c) = line.get(at) {
        if is_delimiter(d, line, at, c) {
            return (at, true);
        }
        if c == b'\\' && at + 1 == line.len() {
            // The data end in a lone backslash. COPY does not count it as part of the field, not even when it
            // compares the markers.
            return (at, false);
        }
        at += if c == b'\\' { 2 + hex_digits(line.get(at + 1..).unwrap_or_default()) } else { 1 };
    }
    (line.len(), false)
}

/// Number of hexadecimal digits of an escape; `rest` are the bytes after its backslash. They matter here because A to F
/// may be the delimiter but are read as digits first. Octal digits are never delimiters.
fn hex_digits(rest: &[u8]) -> usize {
    match rest {
        [b'x', digits @ ..] => digits.iter().take(2).take_while(|b| b.is_ascii_hexdigit()).count(),
        _ => 0,
    }
}

/// What the quote at the start of a field is, if quotes count only at both ends of a field
/// ([`Dialect::lenient_quotes`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    /// It opens a quoted field, whose closing quote ends here.
    Quoted(usize),
    /// It is data, as are all quotes of its field.
    Data,
    /// More bytes are needed.
    NeedMore,
}

/// Finds out what the quote at `at` is, the first byte of a field. With `at_end`, no bytes follow `buf`.
pub(crate) fn opening(d: &Dialect, buf: &[u8], at: usize, at_end: bool) -> Opening {
    let open = if at_end { Opening::Data } else { Opening::NeedMore };
    let mut end = at + 1;
    loop {
        let rest = buf.get(end..).unwrap_or_default();
        let Some(special) = memchr::memchr2(d.quote, d.escape, rest) else { return open };
        end += special + 1;
        match rest.get(special..) {
            Some([c, n, ..]) if *c == d.escape && (*n == d.escape || *n == d.quote) => end += 1,
            Some([c, ..]) if *c == d.quote => break,
            _ => (),
        }
    }
    match buf.get(end..).unwrap_or_default() {
        [] if !at_end => Opening::NeedMore,
        [] | [b'\n' | b'\r', ..] => Opening::Quoted(end),
        rest if d.separator.begins(rest) => Opening::Quoted(end),
        rest if !at_end && d.separator.bytes().starts_with(rest) => Opening::NeedMore,
        _ => Opening::Data,
    }
}

/// End of the CSV field that starts at `at`, and whether a delimiter ended it.
fn csv_field(d: &Dialect, line: &[u8], mut at: usize) -> Result<(usize, bool), FieldError> {
    if d.lenient_quotes {
        if line.get(at) == Some(&d.quote)
            && let Opening::Quoted(end) = opening(d, line, at, true)
        {
            at = end;
        }
        return Ok(bare_field(d, line, at));
    }
    loop {
        loop {
            let Some(&c) = line.get(at) else { return Ok((at, false)) };
            if is_delimiter(d, line, at, c) {
                return Ok((at, true));
            }
            at += 1;
            if c == d.quote {
                break;
            }
        }
        loop {
            let Some(&c) = line.get(at) else { return Err(FieldError::UnterminatedQuote) };
            at += 1;
            if c == d.escape && line.get(at).is_some_and(|&n| n == d.escape || n == d.quote) {
                at += 1;
                continue;
            }
            if c == d.quote {
                break;
            }
        }
    }
}

/// Removes quotes and escapes from a raw CSV field. Returns true if it has removed a quote that stood within the field:
/// the value may not be what the file's author meant.
pub fn unescape_csv(d: &Dialect, raw: &[u8], out: &mut Vec<u8>) -> bool {
    out.reserve(raw.len());
    if d.lenient_quotes && (raw.first() != Some(&d.quote) || opening(d, raw, 0, true) != Opening::Quoted(raw.len())) {
        let inner = match raw {
            [first, inner @ .., last] if *first == d.quote && *last == d.quote => inner,
            _ => raw,
        };
        out.extend_from_slice(inner);
        return false;
    }
    let (mut quoted, mut is_stray) = (false, false);
    let mut rest = raw;
    loop {
        let special = if quoted { memchr::memchr2(d.quote, d.escape, rest) } else { memchr::memchr(d.quote, rest) };
        let Some(at) = special else { break };
        let (data, tail) = rest.split_at(at);
        out.extend_from_slice(data);
        rest = match tail {
            [c, n, after @ ..] if quoted && *c == d.escape && (*n == d.escape || *n == d.quote) => {
                out.push(*n);
                after
            }
            [c, after @ ..] if *c == d.quote => {
                is_stray |= if quoted { !after.is_empty() } else { tail.len() < raw.len() };
                quoted = !quoted;
                after
            }
            [c, after @ ..] => {
                out.push(*c);
                after
            }
            [] => break,
        };
    }
    out.extend_from_slice(rest);
    is_stray
}

/// Removes backslash escapes from a raw text field. Returns true if an octal or hexadecimal escape produced a NUL or a
/// byte above 127, so that the result must be checked for validity in the server encoding.
pub fn unescape_text(raw: &[u8], out: &mut Vec<u8>) -> bool {
    out.reserve(raw.len());
    let mut doubtful = false;
    let mut at = 0usize;
    while let Some(i) = raw.get(at..).and_then(|rest| memchr::memchr(b'\\', rest)) {
        out.extend_from_slice(raw.get(at..at + i).unwrap_or_default());
        at += i + 1;
        let Some(&c) = raw.get(at) else { return doubtful };
        at += 1;
        let byte = match c {
            b'0'..=b'7' => {
                let mut value = u32::from(c - b'0');
                for _ in 0..2 {
                    match raw.get(at) {
                        Some(&o @ b'0'..=b'7') => {
                            value = value << 3 | u32::from(o - b'0');
                            at += 1;
                        }
                        _ => break,
                    }
                }
                let byte = (value & 0xff) as u8;
                doubtful |= byte == 0 || byte >= 0x80;
                byte
            }
            b'x' => {
                let mut digits = 0;
                let mut value = 0u8;
                while digits < 2
                    && let Some(h) = raw.get(at).and_then(|&h| char::from(h).to_digit(16))
                {
                    value = value << 4 | h as u8;
                    digits += 1;
                    at += 1;
                }
                if digits == 0 {
                    b'x'
                } else {
                    doubtful |= value == 0 || value >= 0x80;
                    value
                }
            }
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            other => other,
        };
        out.push(byte);
    }
    out.extend_from_slice(raw.get(at..).unwrap_or_default());
    doubtful
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backslash_at_the_end_is_no_data() {
        let o = crate::dialect::FormatOptions::default();
        let d = Dialect::check(&o, crate::dialect::EndMarker::Until17).unwrap();
        for (line, expected) in [(&b"a\t\\N\\"[..], [1, 4]), (b"a\t\\\\", [1, 4]), (b"a\t\\", [1, 2])] {
            let mut ends = Vec::new();
            assert_eq!(split_line(&d, line, 9, &mut ends), Ok(2));
            assert_eq!(ends, expected);
        }
    }

    fn fields(options: crate::dialect::FormatOptions, line: &str) -> Vec<&str> {
        let d = Dialect::check(&options, crate::dialect::EndMarker::Until17).unwrap();
        let mut ends = Vec::new();
        let count = split_line(&d, line.as_bytes(), 99, &mut ends).unwrap();
        assert_eq!(count, ends.len());
        let mut start = 0;
        let field = |end: u32| {
            let field = &line[start..end as usize];
            start = end as usize + d.separator.len();
            field
        };
        ends.into_iter().map(field).collect()
    }

    #[test]
    fn the_first_delimiter_counts() {
        let csv = |delimiter: &str| crate::dialect::FormatOptions {
            csv: true,
            delimiter: Some(delimiter.into()),
            ..Default::default()
        };
        assert_eq!(fields(csv("||"), "a||b|c||||d|||e"), ["a", "b|c", "", "d", "|e"]);
        assert_eq!(fields(csv("~|~"), "a~|~|~b~|~"), ["a", "|~b", ""]);
        assert_eq!(fields(csv("€"), "ä€\"x€y\"\"€\"€z"), ["ä", "\"x€y\"\"€\"", "z"]);
        assert_eq!(fields(csv("||"), "\"a\"||\"b||c\"|||"), ["\"a\"", "\"b||c\"", "|"]);
        assert_eq!(fields(csv("||"), "|"), ["|"]);
        assert_eq!(fields(csv("||"), "||"), ["", ""]);
        let text = crate::dialect::FormatOptions { delimiter: Some("||".into()), ..Default::default() };
        assert_eq!(fields(text, "a\\||b||\\\\||\\|||c"), ["a\\||b", "\\\\", "\\|", "c"]);
    }

    #[test]
    fn without_quotes_all_is_data() {
        let unquoted = |delimiter: &str| crate::dialect::FormatOptions {
            csv: true,
            unquoted: true,
            delimiter: Some(delimiter.into()),
            ..Default::default()
        };
        assert_eq!(fields(unquoted("\t"), "\"a\tb\"\t\\.\t\\"), ["\"a", "b\"", "\\.", "\\"]);
        assert_eq!(fields(unquoted("\"\""), "a\"\"\"b"), ["a", "\"b"]);
        assert_eq!(fields(unquoted(","), ""), [""]);
    }

    #[test]
    fn a_delimiter_at_the_end() {
        let of = |csv: bool, unquoted: bool, line| {
            let delimiter = Some("|".into());
            fields(
                crate::dialect::FormatOptions { csv, unquoted, delimiter, trailing: true, ..Default::default() },
                line,
            )
            .join("/")
        };
        for (csv, unquoted) in [(true, false), (true, true), (false, false)] {
            for (line, expected) in
                [("a|b|", "a/b"), ("a|b", "a/b"), ("a||", "a/"), ("a|", "a"), ("|", ""), ("", ""), ("||", "/")]
            {
                assert_eq!(of(csv, unquoted, line), expected, "{csv} {unquoted} {line}");
            }
        }
        assert_eq!(of(true, false, "a|\"\""), "a/\"\"");
        assert_eq!(of(true, false, "a|\"|\""), "a/\"|\"");
        // Bytes that belong to no field still count as data of the line.
        assert_eq!(of(false, false, "a|\\"), "a/");
        assert_eq!(of(false, false, "a\\|"), "a\\|");
        let long = crate::dialect::FormatOptions {
            csv: true,
            delimiter: Some("||".into()),
            trailing: true,
            ..Default::default()
        };
        assert_eq!(fields(long.clone(), "a|||"), ["a", "|"]);
        assert_eq!(fields(long, "a||||"), ["a", ""]);
    }

    fn text(raw: &str) -> (String, bool) {
        let mut out = Vec::new();
        let doubtful = unescape_text(raw.as_bytes(), &mut out);
        (out.iter().map(|&b| char::from(b)).collect(), doubtful)
    }

    #[test]
    fn text_escapes() {
        assert_eq!(text(r"a\tb\n\\c"), ("a\tb\n\\c".into(), false));
        assert_eq!(text(r"\b\f\r\v\q"), ("\u{8}\u{c}\r\u{b}q".into(), false));
        assert_eq!(text(r"\101\60\7z"), ("A0\u{7}z".into(), false));
        assert_eq!(text(r"\1234"), ("S4".into(), false));
        assert_eq!(text(r"\x41\x4g\xg\x"), ("A\u{4}gxgx".into(), false));
        assert_eq!(text(r"\377"), ("\u{ff}".into(), true));
        assert_eq!(text(r"\0"), ("\0".into(), true));
        assert_eq!(text(r"\xe4"), ("\u{e4}".into(), true));
        assert_eq!(text("end\\"), ("end".into(), false));
    }
}
