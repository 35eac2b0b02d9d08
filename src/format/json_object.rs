//! A line that is an object of JSON: which of its members are asked for, and where their values are.
//!
//! ```text
//!   {"id": 7, "name": "Ada", "tags": ["a", "b"], "id": 8}
//!          x          -----          ----------        -      a value is its own text; of equal keys the last one counts
//! ```
//!
//! [`Object::read`] walks the line once, all of it, so that a line is as good as the server's parser finds it, whichever
//! members are asked for. It is sure or silent, as decoders are: what it says None to is for the server, and if that finds
//! nothing wrong with the line (its escapes need the server's conversions, or it is nested more deeply than a word has bits),
//! [`Object::read_known`] finds the members without asking again what is within them.
//!
//! The tricky point is to find out which member a key is without comparing it to all: lines of a file have the same keys in
//! the same order, so it is first compared to the key at the same place of the line before. Then nothing has to be
//! looked up, nor an escape be removed, for keys that nobody asked for either.

use std::ops::Range;

use crate::convert::Charset;
use crate::convert::json::Check;
use crate::convert::json_text::{self, Scalar, Text, Token, Tokens, Unicode};

/// Places of a line whose keys are remembered.
const MOST_PLACES: usize = 1024;
/// Bytes of a key that is remembered.
const LONGEST_KEY: usize = 256;

/// What the value of a key is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    /// There is none.
    #[default]
    Missing,
    /// null
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

/// Makes a character of the server's encoding of a code point, at the end.
pub type Encode<'a> = &'a mut dyn FnMut(u32, &mut Vec<u8>);

/// [`Encode`] for UTF-8, and in any encoding for ASCII.
pub fn encode_utf8(code: u32, out: &mut Vec<u8>) {
    let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}

/// Append what is between the quotes of a string, without escapes.
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
    kind: Kind,
    /// Its text, with quotes.
    at: Range<usize>,
}

/// The key at some place of the line before.
#[derive(Debug, Default)]
struct Expected {
    /// With escapes.
    raw: Vec<u8>,
    key: Option<usize>,
}

/// The keys that are asked for, and what the current line has of them.
#[derive(Debug, Default)]
pub struct Object {
    /// In order of length and bytes.
    keys: Vec<Vec<u8>>,
    found: Vec<Found>,
    expected: Vec<Expected>,
    /// Members of other keys are asked for, too.
    keeps_others: bool,
    /// Those, with their keys.
    others: Vec<Range<usize>>,
    /// There is no memory for more of them.
    lacks_memory: bool,
    unicode: Unicode,
    /// A key without escapes.
    unescaped: Vec<u8>,
}

impl Object {
    /// Ask for these keys, in the server's encoding, and perhaps for the members of all others.
    #[must_use]
    pub fn new(keys: &[&[u8]], keeps_others: bool, charset: Charset) -> Object {
        let mut keys: Vec<Vec<u8>> = keys.iter().map(|key| key.to_vec()).collect();
        keys.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
        keys.dedup();
        let found = vec![Found::default(); keys.len()];
        let unicode = if charset == Charset::Utf8 { Unicode::Any } else { Unicode::Ascii };
        Object { keys, found, keeps_others, unicode, ..Object::default() }
    }

    /// Which of the keys this is.
    #[must_use]
    pub fn key(&self, key: &[u8]) -> Option<usize> {
        self.keys.binary_search_by(|known| (known.len(), known.as_slice()).cmp(&(key.len(), key))).ok()
    }

    /// Look at a line. None if it is no object, or nobody here is sure that it is one.
    #[inline]
    pub fn read(&mut self, line: &[u8]) -> Option<()> {
        self.walk(line, self.unicode, false, &mut encode_utf8)
    }

    /// Look at a line that is an object.
    pub fn read_known(&mut self, line: &[u8], encode: Encode<'_>) -> Option<()> {
        self.walk(line, Unicode::Any, true, encode)
    }

    /// Was there no memory for the members of the line that was looked at? They are not known then.
    #[must_use]
    pub fn lacks_memory(&self) -> bool {
        self.lacks_memory
    }

    fn walk(&mut self, line: &[u8], unicode: Unicode, known: bool, encode: Encode<'_>) -> Option<()> {
        self.found.iter_mut().for_each(|found| found.kind = Kind::Missing);
        self.others.clear();
        self.lacks_memory = false;
        let mut tokens = Tokens::new(line, unicode);
        let Token::OpenObject = tokens.next()? else { return None };
        tokens.skip_blanks();
        let mut place = 0;
        let mut start = tokens.at;
        let mut token = tokens.next()?;
        if matches!(token, Token::CloseObject) {
            return tokens.at_end().then_some(());
        }
        loop {
            let (Token::Scalar(Scalar::Text(key)), Token::Colon) = (token, tokens.next()?) else { return None };
            let key = self.which(place, &key, encode);
            tokens.skip_blanks();
            let from = tokens.at;
            let kind = match tokens.next()? {
                Token::Scalar(Scalar::Null) => Kind::Null,
                Token::Scalar(Scalar::Bool(_) | Scalar::Number(..)) => Kind::Bare,
                Token::Scalar(Scalar::Text(text)) => {
                    if text.escaped {
                        Kind::Escaped
                    } else {
                        Kind::Text
                    }
                }
                container @ (Token::OpenObject | Token::OpenArray) => {
                    let kind = if matches!(container, Token::OpenObject) { Kind::Object } else { Kind::Array };
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
                Some(found) => *found = Found { kind, at: from..tokens.at },
                None if self.keeps_others => {
                    self.lacks_memory = self.others.try_reserve(1).is_err();
                    if self.lacks_memory {
                        return None;
                    }
                    self.others.push(start..tokens.at);
                }
                None => (),
            }
            match tokens.next()? {
                Token::Comma => (),
                Token::CloseObject => return tokens.at_end().then_some(()),
                _ => return None,
            }
            tokens.skip_blanks();
            start = tokens.at;
            token = tokens.next()?;
            place += 1;
        }
    }

    /// Which of the keys is at this place of the line?
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

    /// What a key's value is in the line that was looked at, and its text there.
    #[inline]
    #[must_use]
    pub fn value<'a>(&self, key: usize, line: &'a [u8]) -> (Kind, &'a [u8]) {
        let Some(found) = self.found.get(key).filter(|found| found.kind != Kind::Missing) else {
            return (Kind::Missing, &[]);
        };
        (found.kind, line.get(found.at.clone()).unwrap_or_default())
    }

    /// Append an object of the members that no key asks for, as they are in the line.
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

/// Pass the rest of a container that is known to be good, its opening bracket already read.
pub(crate) fn pass(tokens: &mut Tokens<'_>) -> Option<()> {
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

/// Is there nothing in this line?
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

    /// What the object has for a key, as kind and text.
    fn found(object: &Object, key: &str, line: &str) -> (Kind, String) {
        let (kind, raw) = object.value(object.key(key.as_bytes()).unwrap(), line.as_bytes());
        (kind, String::from_utf8(raw.to_vec()).unwrap())
    }

    #[test]
    fn members_are_found() {
        let mut o = object(&["a", "b", "Ä", "", "long key"]);
        let line = r#" { "a" : 1.5e3 ,"x":[{"a":2}] , "Ä":"\u00e9\n", "":{ "b":[] } ,"b":null, "y" : "}" } "#;
        for _ in 0..2 {
            assert_eq!(o.read(line.as_bytes()), Some(()));
            assert_eq!(found(&o, "a", line), (Kind::Bare, "1.5e3".into()));
            assert_eq!(found(&o, "Ä", line), (Kind::Escaped, r#""\u00e9\n""#.into()));
            assert_eq!(found(&o, "", line), (Kind::Object, r#"{ "b":[] }"#.into()));
            assert_eq!(found(&o, "b", line), (Kind::Null, "null".into()));
            assert_eq!(found(&o, "long key", line).0, Kind::Missing);
            assert_eq!(others(&o, line), r#"{"x":[{"a":2}], "y" : "}"}"#);
        }
        // Other keys at the same places, keys in capitals, keys with escapes.
        let line = r#"{"b":[1],"A":true,"\u0061":false,"\u0041":"","b":2}"#;
        for _ in 0..2 {
            assert_eq!(o.read(line.as_bytes()), Some(()));
            assert_eq!(found(&o, "b", line), (Kind::Bare, "2".into()));
            assert_eq!(found(&o, "a", line), (Kind::Bare, "false".into()));
            assert_eq!(found(&o, "", line).0, Kind::Missing);
            assert_eq!(others(&o, line), r#"{"A":true, "\u0041":""}"#);
        }
        assert_eq!(o.read(b"{ }"), Some(()));
        assert_eq!((found(&o, "a", "{ }").0, others(&o, "{ }").as_str()), (Kind::Missing, "{}"));
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
        // What is not ASCII is for the server where its encoding is another one.
        let mut latin = Object::new(&[b"a"], false, Charset::SingleByte);
        assert!(latin.read(br#"{"a":"\u0041","\u0061":"\n"}"#).is_some());
        assert!(latin.read(br#"{"a":"\u00e4"}"#).is_none());
        assert!(latin.read(br#"{"b":[{"\u00e4":1}]}"#).is_none());
        let line = br#"{"a":1,"\u00e4":[{"\u00e4":"]"}]}"#;
        assert!(latin.read_known(line, &mut |code, out| out.push(code as u8)).is_some());
        let mut latin = Object::new(&[b"\xe4"], false, Charset::SingleByte);
        assert!(latin.read_known(line, &mut |code, out| out.push(code as u8)).is_some());
        assert_eq!(latin.value(0, line), (Kind::Array, &br#"[{"\u00e4":"]"}]"#[..]));
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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        /// Lines made of members that are known, some keys missing, some twice, in any order.
        #[test]
        fn made_of_members(
            lines in prop::collection::vec(
                prop::collection::vec((0usize..8, crate::convert::json::tests::value(), "[ \t\r]{0,2}"), 0..8), 1..5),
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
                    prop_assert_eq!(if kind == Kind::Missing { "" } else { raw.as_str() }, expected);
                    let first = expected.bytes().next();
                    let is = match first {
                        None => kind == Kind::Missing,
                        Some(b'"') => kind == if expected.contains('\\') { Kind::Escaped } else { Kind::Text },
                        Some(b'{') => kind == Kind::Object,
                        Some(b'[') => kind == Kind::Array,
                        Some(b'n') => kind == Kind::Null,
                        Some(_) => kind == Kind::Bare,
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
