//! Parses JSON text as the server's parser (common/jsonapi.c) does: tokens, and the grammar above them.
//!
//! [`parse`] walks a text once and passes each item to a [`Sink`]; json only validates the text, jsonb builds a value.
//! The parser is as strict as the server's, and stricter in two cases, which are left to the server. `\u` escapes
//! depend on the server encoding, unless that is known ([`Unicode`]). Nesting depends on the stack depth.

#[cfg(test)]
pub(crate) mod cases;

/// The deepest nesting of objects and arrays; the open ones are bits of one word.
const MAX_DEPTH: u32 = 64;

/// Properties of the characters of the server encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charset {
    /// UTF-8, verified.
    Utf8,
    /// Each byte is one character (also SQL_ASCII).
    SingleByte,
    /// Any other encoding, or bytes that may be invalid. ASCII bytes are always ASCII characters, as in every server
    /// encoding.
    MultiByte,
}

/// A sink that only validates.
pub struct Check;

impl<'a> Sink<'a> for Check {
    #[inline(always)]
    fn open(&mut self, _: bool) -> Option<()> {
        Some(())
    }
    #[inline(always)]
    fn close(&mut self) -> Option<()> {
        Some(())
    }
    #[inline(always)]
    fn key(&mut self, _: Text<'a>) -> Option<()> {
        Some(())
    }
    #[inline(always)]
    fn scalar(&mut self, _: Scalar<'a>) -> Option<()> {
        Some(())
    }
}

/// A value that contains no other.
pub enum Scalar<'a> {
    /// null
    Null,
    /// true or false
    Bool(bool),
    /// Digits, sign and point, and whether it has an exponent.
    Number(&'a [u8], bool),
    /// A string.
    Text(Text<'a>),
}

/// The contents of a string, between its quotes.
pub struct Text<'a> {
    /// Offset of its start in the whole text.
    pub at: usize,
    /// Its bytes, with escapes.
    pub raw: &'a [u8],
    /// Whether the string has escapes. An escape has two characters, except those of [`Unicode`].
    pub escaped: bool,
}

/// The `\u` escapes that are certainly valid. Escapes that the server's parser always rejects never are: zero, half of
/// a pair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unicode {
    /// None.
    #[default]
    Unsure,
    /// Those of ASCII characters, which every server encoding has.
    Ascii,
    /// All.
    Any,
}

/// Receives the items that [`parse`] finds. Each method may end parsing with `None`.
pub trait Sink<'a> {
    /// An object or an array begins.
    fn open(&mut self, object: bool) -> Option<()>;
    /// The innermost object or array ends.
    fn close(&mut self) -> Option<()>;
    /// The name of a member.
    fn key(&mut self, key: Text<'a>) -> Option<()>;
    /// A value that contains no other.
    fn scalar(&mut self, value: Scalar<'a>) -> Option<()>;
}

/// A token of JSON text.
pub enum Token<'a> {
    /// `{`
    OpenObject,
    /// `}`
    CloseObject,
    /// `[`
    OpenArray,
    /// `]`
    CloseArray,
    /// `:`
    Colon,
    /// `,`
    Comma,
    /// A value.
    Scalar(Scalar<'a>),
}
/// Reads the tokens of a text.
pub struct Tokens<'a> {
    text: &'a [u8],
    /// Offset of the next byte.
    pub at: usize,
    unicode: Unicode,
}

impl<'a> Tokens<'a> {
    /// The tokens of a text, from its start.
    #[inline]
    pub fn new(text: &'a [u8], unicode: Unicode) -> Self {
        Tokens { text, at: 0, unicode }
    }

    /// Whether only blanks are left.
    #[inline]
    pub fn at_end(&mut self) -> bool {
        self.skip_blanks();
        self.rest().is_empty()
    }

    /// Skips white space.
    #[inline]
    pub fn skip_blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.text.get(self.at) {
            self.at += 1;
        }
    }
    /// The bytes that have not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// The next token; `None` if there is no valid one.
    #[inline]
    pub fn token(&mut self) -> Option<Token<'a>> {
        self.skip_blanks();
        let (&first, rest) = self.rest().split_first()?;
        self.at += 1;
        Some(match first {
            b'"' => Token::Scalar(Scalar::Text(self.string()?)),
            b',' => Token::Comma,
            b':' => Token::Colon,
            b'{' => Token::OpenObject,
            b'}' => Token::CloseObject,
            b'[' => Token::OpenArray,
            b']' => Token::CloseArray,
            b'-' | b'0'..=b'9' => {
                self.at -= 1;
                self.number()?
            }
            b't' => self.word(rest, b"rue", Scalar::Bool(true))?,
            b'f' => self.word(rest, b"alse", Scalar::Bool(false))?,
            b'n' => self.word(rest, b"ull", Scalar::Null)?,
            _ => return None,
        })
    }

    /// Reads the rest of a word. A longer word (`truex`, `true1`) fails in the grammar, which requires a comma, a
    /// closing bracket or the end behind it.
    fn word(&mut self, rest: &[u8], tail: &[u8], value: Scalar<'a>) -> Option<Token<'a>> {
        if !rest.starts_with(tail) {
            return None;
        }
        self.at += tail.len();
        Some(Token::Scalar(value))
    }

    /// Reads the rest of a string behind its opening quote.
    #[inline]
    pub fn string(&mut self) -> Option<Text<'a>> {
        let (at, mut escaped) = (self.at, false);
        loop {
            self.at += plain(self.rest());
            match self.rest() {
                [b'"', ..] => {
                    let raw = self.text.get(at..self.at)?;
                    self.at += 1;
                    return Some(Text { at, raw, escaped });
                }
                [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => {
                    escaped = true;
                    self.at += 2;
                }
                [b'\\', b'u', ..] if self.unicode != Unicode::Unsure => {
                    let (code, length) = code_point(self.rest())?;
                    if code >= 0x80 && self.unicode == Unicode::Ascii {
                        return None;
                    }
                    escaped = true;
                    self.at += length;
                }
                // The end of the text, a control character, or an escape that is invalid or left to the server.
                _ => return None,
            }
        }
    }

    #[inline]
    fn number(&mut self) -> Option<Token<'a>> {
        let start = self.at;
        self.at += usize::from(self.rest().first() == Some(&b'-'));
        let zero = self.rest().first() == Some(&b'0');
        if self.digits()? > 1 && zero {
            return None;
        }
        if self.rest().first() == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        let exponent = matches!(self.rest().first(), Some(b'e' | b'E'));
        if exponent {
            self.at += 1;
            self.at += usize::from(matches!(self.rest().first(), Some(b'+' | b'-')));
            self.digits()?;
        }
        Some(Token::Scalar(Scalar::Number(self.text.get(start..self.at)?, exponent)))
    }

    /// Skips one or more digits.
    #[inline]
    fn digits(&mut self) -> Option<usize> {
        let count = self.rest().iter().take_while(|b| b.is_ascii_digit()).count();
        self.at += count;
        (count > 0).then_some(count)
    }
}

/// Returns the character of the `\u` escape, or pair of escapes, at the start, and the length of the escape.
pub fn code_point(text: &[u8]) -> Option<(u32, usize)> {
    let unit = |at: usize| {
        let [b'\\', b'u', digits @ ..] = text.get(at..at + 6)? else { return None };
        digits.iter().try_fold(0, |sum, &digit| Some(sum * 16 + char::from(digit).to_digit(16)?))
    };
    match unit(0)? {
        0 | 0xdc00..=0xdfff => None,
        high @ 0xd800..=0xdbff => {
            let low = unit(6).filter(|low| (0xdc00..=0xdfff).contains(low))?;
            Some((0x1_0000 + ((high & 0x3ff) << 10 | low & 0x3ff), 12))
        }
        code => Some((code, 6)),
    }
}

/// Number of bytes at the start that are neither quote, backslash nor control character.
#[inline(always)]
fn plain(text: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x80 * ONES;
    let (eights, rest) = text.as_chunks::<8>();
    let mut done = 0;
    for eight in eights {
        let w = u64::from_le_bytes(*eight);
        let (quote, backslash) = (w ^ (0x22 * ONES), w ^ (0x5c * ONES));
        // Zero bytes of the two, and bytes below 0x20. A borrow may mark a byte above the first real one, but never one
        // below it, and only the first one is used.
        let hit = (quote.wrapping_sub(ONES) & !quote)
            | (backslash.wrapping_sub(ONES) & !backslash)
            | (w.wrapping_sub(0x20 * ONES) & !w);
        if hit & HIGH != 0 {
            return done + (hit & HIGH).trailing_zeros() as usize / 8;
        }
        done += 8;
    }
    done + rest.iter().take_while(|&&b| b >= 0x20 && b != b'"' && b != b'\\').count()
}

/// Walks a text that must be exactly one JSON value.
#[inline]
pub fn parse<'a>(text: &'a [u8], sink: &mut impl Sink<'a>) -> Option<()> {
    let mut tokens = Tokens::new(text, Unicode::Unsure);
    let first = tokens.token()?;
    value(first, &mut tokens, sink)?;
    tokens.at_end().then_some(())
}

/// Walks a value that begins with `token`.
#[inline]
pub fn value<'a>(mut token: Token<'a>, tokens: &mut Tokens<'a>, sink: &mut impl Sink<'a>) -> Option<()> {
    // The open containers as bits, the innermost lowest; 1 is an object.
    let (mut open, mut depth) = (0u64, 0u32);
    loop {
        match token {
            Token::Scalar(value) => sink.scalar(value)?,
            Token::OpenObject | Token::OpenArray if depth < MAX_DEPTH => {
                let object = matches!(token, Token::OpenObject);
                sink.open(object)?;
                match (tokens.token()?, object) {
                    (Token::CloseObject, true) | (Token::CloseArray, false) => sink.close()?,
                    (next, _) => {
                        (open, depth) = (open << 1 | u64::from(object), depth + 1);
                        token = if object { member(next, tokens, sink)? } else { next };
                        continue;
                    }
                }
            }
            _ => return None,
        }
        loop {
            if depth == 0 {
                return Some(());
            }
            let object = open & 1 != 0;
            match (tokens.token()?, object) {
                (Token::Comma, true) => {
                    let key = tokens.token()?;
                    token = member(key, tokens, sink)?;
                    break;
                }
                (Token::Comma, false) => {
                    token = tokens.token()?;
                    break;
                }
                (Token::CloseObject, true) | (Token::CloseArray, false) => {
                    (open, depth) = (open >> 1, depth - 1);
                    sink.close()?;
                }
                _ => return None,
            }
        }
    }
}

/// Reads a key and its colon. Returns the first token of the value.
#[inline]
fn member<'a>(key: Token<'a>, tokens: &mut Tokens<'a>, sink: &mut impl Sink<'a>) -> Option<Token<'a>> {
    let (Token::Scalar(Scalar::Text(key)), Token::Colon) = (key, tokens.token()?) else { return None };
    sink.key(key)?;
    tokens.token()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn code_points_are_those_of_utf_16() {
        for c in ['a', '\u{1}', '\u{7f}', 'é', '\u{d7ff}', '\u{e000}', '\u{ffff}', '\u{10000}', '🦀', '\u{10ffff}'] {
            let units: Vec<_> = c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect();
            let text = units.concat();
            assert_eq!(code_point(format!("{text}x").as_bytes()), Some((c.into(), text.len())), "{c:?}");
            assert_eq!(code_point(text.to_uppercase().replace('U', "u").as_bytes()), Some((c.into(), text.len())));
        }
        for bad in [
            "", "\\u", "\\u00g0", "\\u000", "\\u0000", "\\ud800", "\\ud800x", "\\ud800\\u0041", "\\udc00",
            "\\ud800\\ud800", "\\u+041",
        ] {
            assert_eq!(code_point(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn plain_stops_at_the_first() {
        for at in 0..20 {
            for b in 1..=255u8 {
                let mut text = [0xc3u8; 20];
                text[at] = b;
                let stops = b < 0x20 || b == b'"' || b == b'\\';
                assert_eq!(plain(&text), if stops { at } else { 20 }, "{b:02x} at {at}");
            }
        }
    }

    proptest! {
        #[test]
        fn plain_is_a_search(text in prop::collection::vec(prop::sample::select(b"\x1f\x20!\"#[\\]a\x80\xff\x01".to_vec()), 0..30)) {
            let expected = text.iter().position(|&b| b < 0x20 || b == b'"' || b == b'\\').unwrap_or(text.len());
            prop_assert_eq!(plain(&text), expected);
        }
    }
}
