//! Finds the members of a JSON object, which is one line of a file.
//!
//! ```text
//!   {"id": 7, "name": "Ada", "tags": ["a", "b"], "id": 8}
//!          x          -----          ----------        -      a value is its text; the last of equal keys counts
//! ```
//!
//! [`Object::read`] walks the whole line once and validates it as the server's parser does, for any set of requested
//! members. Its answer is exact or `None`, as a decoder's. After `None` the server's parser decides. It may find no
//! error: the server must convert an escape, or the nesting is deeper than a word has bits. Then [`Object::read_known`]
//! finds the members without validating them again.
//!
//! The tricky point is to find the member of a key without comparing the key with all of them. Lines of a file have the
//! same keys in the same order. So each key is first compared with the key at the same position of the line before.
//! This needs no search, and keys that were not requested need not be unescaped either.

use std::collections::HashSet;
use std::ops::Range;

use crate::json_text::{self, Charset, Check, Scalar, Sink, Text, Token, Tokens, Unicode};

/// The most positions of a line whose keys are remembered.
const MOST_PLACES: usize = 1024;
/// The most bytes of a key that is remembered.
const LONGEST_KEY: usize = 256;

/// The kind of a key's value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ValueKind {
    /// The line has no such key.
    #[default]
    Missing,
    /// The literal null.
    Null,
    /// A number, or true or false.
    Bare,
    /// A string without escapes.
    Text,
    /// A string with escapes.
    Escaped,
    /// An object.
    Object,
    /// An array.
    Array,
}

/// Appends a code point as a character of the server encoding.
pub type Encode<'a> = &'a mut dyn FnMut(u32, &mut Vec<u8>);

/// [`Encode`] for UTF-8. Valid for ASCII code points in any encoding.
pub fn encode_utf8(code: u32, out: &mut Vec<u8>) {
    let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}

/// Appends the contents of a string, given without its quotes, with its escapes replaced.
pub fn unescape(raw: &[u8], out: &mut Vec<u8>, encode: Encode<'_>) {
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest)
        && let Some((plain, escape @ [_, kind, ..])) = rest.split_at_checked(at)
    {
        out.extend_from_slice(plain);
        let mut length = 2;
        match kind {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'u' => {
                if let Some((code, bytes)) = json_text::code_point(escape) {
                    encode(code, out);
                    length = bytes;
                }
            }
            same => out.push(*same),
        }
        rest = escape.get(length..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
}

/// A value in the line.
#[derive(Debug, Clone, Default)]
struct Found {
    kind: ValueKind,
    /// Its text, with the quotes of a string.
    at: Range<usize>,
}

/// The key at one position of the line before.
#[derive(Debug, Default)]
struct Expected {
    /// The key's text, with escapes.
    raw: Vec<u8>,
    key: Option<usize>,
}

/// The requested keys, and their values in the current line.
#[derive(Debug, Default)]
pub struct Object {
    /// Sorted by length, then bytes.
    keys: Vec<Vec<u8>>,
    found: Vec<Found>,
    expected: Vec<Expected>,
    /// Members with other keys are requested, too.
    keeps_others: bool,
    /// Members with other keys, with their keys.
    others: Vec<Range<usize>>,
    /// Memory for the other members is exhausted.
    lacks_memory: bool,
    /// A requested key is in the line twice.
    repeats_key: bool,
    /// The line has members, none of which is requested.
    is_foreign: bool,
    unicode: Unicode,
    /// Buffer for a key without its escapes.
    unescaped: Vec<u8>,
}

impl Object {
    /// Requests these keys, given in the server encoding; with `keeps_others`, also the members with all other keys.
    #[must_use]
    pub fn new(keys: &[&[u8]], keeps_others: bool, charset: Charset) -> Object {
        let mut keys: Vec<Vec<u8>> = keys.iter().map(|key| key.to_vec()).collect();
        keys.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
        keys.dedup();
        let found = vec![Found::default(); keys.len()];
        let unicode = if charset == Charset::Utf8 { Unicode::Any } else { Unicode::Ascii };
        Object { keys, found, keeps_others, unicode, ..Object::default() }
    }

    /// Returns the index of a requested key.
    #[must_use]
    pub fn key(&self, key: &[u8]) -> Option<usize> {
        self.keys.binary_search_by(|known| (known.len(), known.as_slice()).cmp(&(key.len(), key))).ok()
    }

    /// Reads a line. `None` if the line is not an object, or if only the server's parser can decide.
    #[inline]
    pub fn read(&mut self, line: &[u8]) -> Option<()> {
        self.walk(line, self.unicode, false, &mut encode_utf8)
    }

    /// Reads a line that is known to be an object.
    pub fn read_known(&mut self, line: &[u8], encode: Encode<'_>) -> Option<()> {
        self.walk(line, Unicode::Any, true, encode)
    }

    /// Whether memory was exhausted for the members of the line. They are incomplete then.
    #[must_use]
    pub fn lacks_memory(&self) -> bool {
        self.lacks_memory
    }

    /// Whether a requested key is in the line twice: only its last value was kept.
    #[must_use]
    pub fn repeats_key(&self) -> bool {
        self.repeats_key
    }

    /// Whether the line has members, none of which is requested.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    fn walk(&mut self, line: &[u8], unicode: Unicode, known: bool, encode: Encode<'_>) -> Option<()> {
        self.found.iter_mut().for_each(|found| found.kind = ValueKind::Missing);
        self.others.clear();
        (self.lacks_memory, self.repeats_key, self.is_foreign) = (false, false, false);
        let mut tokens = Tokens::new(line, unicode);
        let Token::OpenObject = tokens.token()? else { return None };
        tokens.skip_blanks();
        let mut place = 0;
        let mut start = tokens.at;
        let mut token = tokens.token()?;
        if matches!(token, Token::CloseObject) {
            return tokens.at_end().then_some(());
        }
        self.is_foreign = !self.keeps_others;
        loop {
            let (Token::Scalar(Scalar::Text(key)), Token::Colon) = (token, tokens.token()?) else { return None };
            let key = self.which(place, &key, encode);
            tokens.skip_blanks();
            let from = tokens.at;
            let kind = match tokens.token()? {
                Token::Scalar(Scalar::Null) => ValueKind::Null,
                Token::Scalar(Scalar::Bool(_) | Scalar::Number(..)) => ValueKind::Bare,
                Token::Scalar(Scalar::Text(text)) => {
                    if text.escaped {
                        ValueKind::Escaped
                    } else {
                        ValueKind::Text
                    }
                }
                container @ (Token::OpenObject | Token::OpenArray) => {
                    let kind =
                        if matches!(container, Token::OpenObject) { ValueKind::Object } else { ValueKind::Array };
                    if known {
                        pass(&mut tokens)?
                    } else {
                        json_text::value(container, &mut tokens, &mut Check)?
                    }
                    kind
                }
                _ => return None,
            };
            match key.and_then(|key| self.found.get_mut(key)) {
                Some(found) => {
                    self.repeats_key |= found.kind != ValueKind::Missing;
                    self.is_foreign = false;
                    *found = Found { kind, at: from..tokens.at };
                }
                None if self.keeps_others => {
                    self.lacks_memory = self.others.try_reserve(1).is_err();
                    if self.lacks_memory {
                        return None;
                    }
                    self.others.push(start..tokens.at);
                }
                None => (),
            }
            match tokens.token()? {
                Token::Comma => (),
                Token::CloseObject => return tokens.at_end().then_some(()),
                _ => return None,
            }
            tokens.skip_blanks();
            start = tokens.at;
            token = tokens.token()?;
            place += 1;
        }
    }

    /// Returns the index of the requested key at this position of the line.
    #[inline]
    fn which(&mut self, place: usize, key: &Text<'_>, encode: Encode<'_>) -> Option<usize> {
        match self.expected.get(place) {
            Some(expected) if expected.raw == key.raw => expected.key,
            _ => self.look_up(place, key, encode),
        }
    }

    #[inline(never)]
    fn look_up(&mut self, place: usize, key: &Text<'_>, encode: Encode<'_>) -> Option<usize> {
        self.unescaped.clear();
        unescape(key.raw, &mut self.unescaped, encode);
        let found = self.key(&self.unescaped);
        if place == self.expected.len() && place < MOST_PLACES {
            self.expected.push(Expected::default());
        }
        if let Some(expected) = self.expected.get_mut(place)
            && key.raw.len() <= LONGEST_KEY
        {
            expected.raw.clear();
            expected.raw.extend_from_slice(key.raw);
            expected.key = found;
        }
        found
    }

    /// Returns the kind and the text of a key's value in the current line.
    #[inline]
    #[must_use]
    pub fn value<'a>(&self, key: usize, line: &'a [u8]) -> (ValueKind, &'a [u8]) {
        let Some(found) = self.found.get(key).filter(|found| found.kind != ValueKind::Missing) else {
            return (ValueKind::Missing, &[]);
        };
        (found.kind, line.get(found.at.clone()).unwrap_or_default())
    }

    /// The keys that were not requested, with `keeps_others`.
    pub fn other_keys(&self, line: &[u8], encode: Encode<'_>) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        for member in &self.others {
            let member = line.get(member.clone()).unwrap_or_default();
            if let Some(Token::Scalar(Scalar::Text(key))) = Tokens::new(member, Unicode::Any).token() {
                let mut unescaped = Vec::new();
                unescape(key.raw, &mut unescaped, &mut *encode);
                keys.push(unescaped);
            }
        }
        keys
    }

    /// Appends an object of the members that no key requests, as they are in the line.
    pub fn write_others(&self, line: &[u8], out: &mut Vec<u8>) {
        let length: usize = self.others.iter().map(|member| member.len() + 2).sum();
        out.reserve(length + 2);
        out.push(b'{');
        for (i, member) in self.others.iter().enumerate() {
            if i > 0 {
                out.extend_from_slice(b", ");
            }
            out.extend_from_slice(line.get(member.clone()).unwrap_or_default());
        }
        out.push(b'}');
    }
}

/// Skips the rest of a container in valid JSON. Its opening bracket is already read.
pub fn pass(tokens: &mut Tokens<'_>) -> Option<()> {
    let mut depth = 1usize;
    while depth > 0 {
        let rest = tokens.rest();
        let at = rest.iter().position(|b| matches!(b, b'"' | b'[' | b']' | b'{' | b'}'))?;
        tokens.at += at + 1;
        match rest.get(at)? {
            b'"' => _ = tokens.string()?,
            b'[' | b'{' => depth += 1,
            _ => depth -= 1,
        }
    }
    Some(())
}

/// The keys of the open objects of a text.
#[derive(Debug, Default)]
struct Keys {
    open: Vec<HashSet<Vec<u8>>>,
    repeats_key: bool,
}

impl<'a> Sink<'a> for Keys {
    fn open(&mut self, _: bool) -> Option<()> {
        self.open.push(HashSet::new());
        Some(())
    }

    fn close(&mut self) -> Option<()> {
        self.open.pop().map(|_| ())
    }

    fn key(&mut self, key: Text<'a>) -> Option<()> {
        let mut unescaped = Vec::new();
        unescape(key.raw, &mut unescaped, &mut encode_utf8);
        self.repeats_key |= !self.open.last_mut()?.insert(unescaped);
        Some(())
    }

    fn scalar(&mut self, _: Scalar<'a>) -> Option<()> {
        Some(())
    }
}

/// Whether an object of a JSON text has a key twice: jsonb keeps only the last value.
#[must_use]
pub fn repeats_key(text: &[u8]) -> bool {
    let (mut tokens, mut keys) = (Tokens::new(text, Unicode::Any), Keys::default());
    let first = tokens.token();
    first.and_then(|first| json_text::value(first, &mut tokens, &mut keys));
    keys.repeats_key
}

/// Whether the line is empty or only white space.
#[inline]
#[must_use]
pub fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn object(keys: &[&str]) -> Object {
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        Object::new(&keys, true, Charset::Utf8)
    }

    fn others(object: &Object, line: &str) -> String {
        let mut out = Vec::new();
        object.write_others(line.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    /// Kind and text of a key's value.
    fn found(object: &Object, key: &str, line: &str) -> (ValueKind, String) {
        let (kind, raw) = object.value(object.key(key.as_bytes()).unwrap(), line.as_bytes());
        (kind, String::from_utf8(raw.to_vec()).unwrap())
    }

    #[test]
    fn members_are_found() {
        let mut o = object(&["a", "b", "Ä", "", "long key"]);
        let line = r#" { "a" : 1.5e3 ,"x":[{"a":2}] , "Ä":"\u00e9\n", "":{ "b":[] } ,"b":null, "y" : "}" } "#;
        for _ in 0..2 {
            assert_eq!(o.read(line.as_bytes()), Some(()));
            assert_eq!(found(&o, "a", line), (ValueKind::Bare, "1.5e3".into()));
            assert_eq!(found(&o, "Ä", line), (ValueKind::Escaped, r#""\u00e9\n""#.into()));
            assert_eq!(found(&o, "", line), (ValueKind::Object, r#"{ "b":[] }"#.into()));
            assert_eq!(found(&o, "b", line), (ValueKind::Null, "null".into()));
            assert_eq!(found(&o, "long key", line).0, ValueKind::Missing);
            assert_eq!(others(&o, line), r#"{"x":[{"a":2}], "y" : "}"}"#);
            assert_eq!(o.other_keys(line.as_bytes(), &mut encode_utf8), [b"x", b"y"]);
        }
        // Other keys at the known positions, keys in capitals, keys with escapes.
        let line = r#"{"b":[1],"A":true,"\u0061":false,"\u0041":"","b":2}"#;
        for _ in 0..2 {
            assert_eq!(o.read(line.as_bytes()), Some(()));
            assert_eq!(found(&o, "b", line), (ValueKind::Bare, "2".into()));
            assert_eq!(found(&o, "a", line), (ValueKind::Bare, "false".into()));
            assert_eq!(found(&o, "", line).0, ValueKind::Missing);
            assert_eq!(others(&o, line), r#"{"A":true, "\u0041":""}"#);
        }
        assert_eq!(o.read(b"{ }"), Some(()));
        assert_eq!((found(&o, "a", "{ }").0, others(&o, "{ }").as_str()), (ValueKind::Missing, "{}"));
    }

    #[test]
    fn other_lines_are_for_others() {
        let mut o = object(&["a"]);
        for line in [
            "",
            " ",
            "[1]",
            "1",
            "null",
            "{",
            "{}}",
            "{} {}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{,}",
            "{\"a\":1 \"b\":2}",
            "{a:1}",
            "{\"a\":1]",
            "{\"a\":tru}",
            "{\"a\":truex}",
            "{\"a\":01}",
            "{\"a\":[1,]}",
            "{\"a\":\"\\u0000\"}",
            "{\"x\":\"\\ud800\"}",
            "{\"x\":[\"\\ud800\"]}",
            "{\"\\udc00\":1}",
            "{\"a\":\"\t\"}",
        ] {
            assert_eq!(o.read(line.as_bytes()), None, "{line}");
        }
        let deep = |n| format!("{{\"a\":{}{}}}", "[".repeat(n), "]".repeat(n));
        assert!(o.read(deep(64).as_bytes()).is_some());
        assert!(o.read(deep(65).as_bytes()).is_none());
        assert!(o.read_known(deep(1_000_000).as_bytes(), &mut encode_utf8).is_some());
        assert_eq!(found(&o, "a", &deep(1_000_000)).1.len(), 2_000_000);
        // In a server encoding other than UTF-8, only the server converts escapes beyond ASCII.
        let mut latin = Object::new(&[b"a"], false, Charset::SingleByte);
        assert!(latin.read(br#"{"a":"\u0041","\u0061":"\n"}"#).is_some());
        assert!(latin.read(br#"{"a":"\u00e4"}"#).is_none());
        assert!(latin.read(br#"{"b":[{"\u00e4":1}]}"#).is_none());
        let line = br#"{"a":1,"\u00e4":[{"\u00e4":"]"}]}"#;
        assert!(latin.read_known(line, &mut |code, out| out.push(code as u8)).is_some());
        let mut latin = Object::new(&[b"\xe4"], false, Charset::SingleByte);
        assert!(latin.read_known(line, &mut |code, out| out.push(code as u8)).is_some());
        assert_eq!(latin.value(0, line), (ValueKind::Array, &br#"[{"\u00e4":"]"}]"#[..]));
    }

    #[test]
    fn escapes_are_removed() {
        let mut out = b"x".to_vec();
        unescape(br#"a\"\\\/\b\f\n\r\t\u00e9\ud83e\udd80"#, &mut out, &mut encode_utf8);
        assert_eq!(out, "xa\"\\/\u{8}\u{c}\n\r\té🦀".as_bytes());
    }

    #[test]
    fn few_keys_are_remembered() {
        let mut o = object(&["k5", "k2000"]);
        let long = "x".repeat(1000);
        let members: Vec<_> =
            (0..3000).map(|i| format!("\"{}\":{i}", if i == 7 { long.clone() } else { format!("k{i}") })).collect();
        let line = format!("{{{}}}", members.join(","));
        for _ in 0..2 {
            assert_eq!(o.read(line.as_bytes()), Some(()));
            assert_eq!((found(&o, "k5", &line).1, found(&o, "k2000", &line).1), ("5".into(), "2000".into()));
        }
        assert_eq!(o.expected.len(), MOST_PLACES);
        assert!(o.expected.iter().all(|expected| expected.raw.len() <= LONGEST_KEY));
    }

    #[test]
    fn equal_keys_are_seen() {
        for (line, requested, any) in [
            (r#"{"a":1,"a":2}"#, true, true),
            (r#"{"a":1,"\u0061":{}}"#, true, true),
            (r#"{"a":null,"b":1,"a":null}"#, true, true),
            (r#"{"b":1,"b":2,"a":{"a":1}}"#, false, true),
            (r#"{"a":[{"b":1,"b":2}]}"#, false, true),
            (r#"{"a":[{"b":1},{"b":2}],"b":"b"}"#, false, false),
            (r#"{"a":1}"#, false, false),
        ] {
            let mut o = Object::new(&[b"a"], true, Charset::Utf8);
            assert_eq!(o.read(line.as_bytes()), Some(()));
            assert_eq!((o.repeats_key(), repeats_key(line.as_bytes())), (requested, any), "{line}");
            assert!(!o.is_foreign());
        }
        let mut o = Object::new(&[b"a"], false, Charset::Utf8);
        for (line, is_foreign) in [(r#"{"A":1,"b":{"a":1}}"#, true), ("{}", false), (r#"{"b":1,"a":1}"#, false)] {
            assert_eq!(o.read(line.as_bytes()), Some(()));
            assert_eq!(o.is_foreign(), is_foreign, "{line}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        /// Lines of known members: some keys missing, some twice, in any order.
        #[test]
        fn made_of_members(
            lines in prop::collection::vec(
                prop::collection::vec((0usize..8, crate::json_text::cases::value(), "[ \t\r]{0,2}"), 0..8), 1..5),
        ) {
            const KEYS: [&str; 8] = ["a", "b", "ab", "ba", "é", "", "A", "a long one"];
            let mut o = object(&["a", "ba", "é", "", "none"]);
            for members in lines {
                let texts: Vec<_> =
                    members.iter().map(|(key, value, blank)| format!("{blank}\"{}\"{blank}:{blank}{value}", KEYS[*key])).collect();
                let line = format!("{{{}}}", texts.join(","));
                prop_assert_eq!(o.read(line.as_bytes()), Some(()), "{}", line);
                for key in ["a", "ba", "é", "", "none"] {
                    let last = members.iter().rev().find(|(at, ..)| KEYS[*at] == key);
                    let expected = last.map_or("", |(_, value, _)| value.trim_matches([' ', '\t', '\r', '\n']));
                    let (kind, raw) = found(&o, key, &line);
                    prop_assert_eq!(if kind == ValueKind::Missing { "" } else { raw.as_str() }, expected);
                    let first = expected.bytes().next();
                    let is = match first {
                        None => kind == ValueKind::Missing,
                        Some(b'"') => kind == if expected.contains('\\') { ValueKind::Escaped } else { ValueKind::Text },
                        Some(b'{') => kind == ValueKind::Object,
                        Some(b'[') => kind == ValueKind::Array,
                        Some(b'n') => kind == ValueKind::Null,
                        Some(_) => kind == ValueKind::Bare,
                    };
                    prop_assert!(is, "{:?} {}", kind, expected);
                }
                let rest = members.iter().filter(|(at, ..)| !["a", "ba", "é", ""].contains(&KEYS[*at]));
                let mut again = object(&["b", "ab", "A", "a long one"]);
                let rest_line = others(&o, &line);
                prop_assert_eq!(again.read(rest_line.as_bytes()), Some(()), "{}", rest_line);
                prop_assert!(again.others.is_empty());
                prop_assert_eq!(o.others.len(), rest.count());
            }
        }
    }
}
