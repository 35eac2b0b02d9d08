//! Lines of JSON, compared with a simple parser that takes one byte at a time.
//!
//! The members that are found must be those of the line, independent of the lines before it. [`Object::read`] may only
//! give up on deep nesting, and on escapes of characters that the encoding may not have.

use pg_bulk_text::json_object::{Object, ValueKind, encode_utf8, unescape};
use pg_bulk_text::json_text::Charset;
use pg_bulk_types::json_array::{self, Element};

/// Length of the head, in bytes.
pub const HEAD: usize = 1;

const KEYS: [&str; 5] = ["a", "b", "", "ab", "\u{e9}"];
/// Number of nested containers below the object for which a word has bits.
const DEEP: usize = 64;

/// The naive parser.
struct Slow<'a> {
    text: &'a [u8],
    at: usize,
    deepest: usize,
    /// There are `\u` escapes of characters beyond ASCII.
    wide: bool,
}

/// A member: its key, the position of its value, and its value if that is a string.
type Member = (Vec<u8>, std::ops::Range<usize>, Option<Vec<u8>>);

impl Slow<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn is(&mut self, byte: u8) -> Option<()> {
        self.blanks();
        (self.peek() == Some(byte)).then(|| self.at += 1)
    }

    fn unit(&mut self) -> Option<u32> {
        let digits = std::str::from_utf8(self.text.get(self.at..self.at + 4)?).ok()?;
        self.at += 4;
        if digits.starts_with('+') { None } else { u32::from_str_radix(digits, 16).ok() }
    }

    fn string(&mut self) -> Option<Vec<u8>> {
        self.is(b'"')?;
        let mut out = Vec::new();
        loop {
            let byte = self.peek()?;
            self.at += 1;
            match byte {
                b'"' => return Some(out),
                0..=0x1f => return None,
                b'\\' => {
                    let escape = self.peek()?;
                    self.at += 1;
                    out.push(match escape {
                        b'"' | b'\\' | b'/' => escape,
                        b'b' => 8,
                        b'f' => 12,
                        b'n' => 10,
                        b'r' => 13,
                        b't' => 9,
                        b'u' => {
                            let mut units = vec![self.unit()? as u16];
                            if (0xd800..0xdc00).contains(&units[0]) {
                                (self.text.get(self.at..self.at + 2)? == b"\\u").then_some(())?;
                                self.at += 2;
                                units.push(self.unit()? as u16);
                            }
                            let character = char::decode_utf16(units).collect::<Result<String, _>>().ok()?;
                            self.wide |= !character.is_ascii();
                            if character == "\0" || character.chars().count() != 1 {
                                return None;
                            }
                            out.extend(character.bytes());
                            continue;
                        }
                        _ => return None,
                    });
                }
                _ => out.push(byte),
            }
        }
    }

    fn digits(&mut self) -> Option<usize> {
        let from = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        (self.at > from).then_some(self.at - from)
    }

    fn number(&mut self) -> Option<()> {
        self.at += usize::from(self.peek() == Some(b'-'));
        let zero = self.peek() == Some(b'0');
        if self.digits()? > 1 && zero {
            return None;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.digits()?;
        }
        Some(())
    }

    fn value(&mut self, depth: usize) -> Option<Option<Vec<u8>>> {
        self.blanks();
        match self.peek()? {
            b'"' => return self.string().map(Some),
            b'{' => drop(self.object(depth + 1)?),
            b'[' => {
                self.at += 1;
                self.deepest = self.deepest.max(depth + 1);
                if self.is(b']').is_none() {
                    loop {
                        self.value(depth + 1)?;
                        if self.is(b',').is_none() {
                            break self.is(b']')?;
                        }
                    }
                }
            }
            b'-' | b'0'..=b'9' => self.number()?,
            _ => {
                let word = ["true", "false", "null"]
                    .into_iter()
                    .find(|word| self.text[self.at..].starts_with(word.as_bytes()))?;
                self.at += word.len();
            }
        }
        Some(None)
    }

    fn object(&mut self, depth: usize) -> Option<Vec<Member>> {
        self.is(b'{')?;
        self.deepest = self.deepest.max(depth);
        let mut members = Vec::new();
        if self.is(b'}').is_some() {
            return Some(members);
        }
        loop {
            let key = self.string()?;
            self.is(b':')?;
            self.blanks();
            let from = self.at;
            let string = self.value(depth)?;
            members.push((key, from..self.at, string));
            if self.is(b',').is_none() {
                self.is(b'}')?;
                return Some(members);
            }
        }
    }
}

fn compare(object: &Object, line: &[u8], members: &[Member]) {
    for key in KEYS {
        let last = members.iter().rev().find(|(name, ..)| name == key.as_bytes());
        let (kind, raw) = object.value(object.key(key.as_bytes()).expect("it was asked for"), line);
        let Some((_, range, string)) = last else {
            assert_eq!(kind, ValueKind::Missing);
            continue;
        };
        assert_eq!(raw, &line[range.clone()]);
        let expected = match raw[0] {
            b'{' => ValueKind::Object,
            b'[' => ValueKind::Array,
            b'n' => ValueKind::Null,
            b'"' if raw.contains(&b'\\') => ValueKind::Escaped,
            b'"' => ValueKind::Text,
            _ => ValueKind::Bare,
        };
        assert_eq!(kind, expected);
        if let Some(string) = string {
            let mut out = Vec::new();
            unescape(&raw[1..raw.len() - 1], &mut out, &mut encode_utf8);
            assert_eq!(&out, string);
        }
        if kind == ValueKind::Array {
            for json in [false, true] {
                let mut out = Vec::new();
                json_array::write(raw, Element { delimiter: b',', json }, &mut out, &mut encode_utf8)
                    .expect("it is an array");
                assert!(out.starts_with(b"{") && out.ends_with(b"}"));
            }
        }
    }
    let mut rest = Vec::new();
    object.write_others(line, &mut rest);
    let mut slow = Slow { text: &rest, at: 0, deepest: 0, wide: false };
    let others = slow.object(0).expect("what is left is an object");
    let is_other = |(key, ..): &&Member| !KEYS.iter().any(|known| known.as_bytes() == key);
    let keys = |members: Vec<&Member>| members.iter().map(|(key, ..)| key.clone()).collect::<Vec<_>>();
    assert_eq!(keys(others.iter().collect()), keys(members.iter().filter(is_other).collect()));
}

/// Reads the lines of one input.
pub fn run(input: &[u8]) {
    let Some((&[flags], data)) = input.split_first_chunk::<HEAD>() else { return };
    let charset = if flags & 1 == 0 { Charset::Utf8 } else { Charset::SingleByte };
    let keys = KEYS.map(str::as_bytes);
    let mut object = Object::new(&keys, true, charset);
    for line in data.split(|byte| *byte == b'\n') {
        let mut slow = Slow { text: line, at: 0, deepest: 0, wide: false };
        let members = slow.object(0).filter(|_| {
            slow.blanks();
            slow.at == line.len()
        });
        match (object.read(line), members) {
            (Some(()), members) => compare(&object, line, &members.expect("it was taken for an object")),
            (None, None) => (),
            (None, Some(members)) => {
                assert!(slow.deepest > DEEP || (slow.wide && charset != Charset::Utf8), "nobody is sure of it");
                object.read_known(line, &mut encode_utf8).expect("it is an object");
                compare(&object, line, &members);
            }
        }
    }
}
