//! Gives each record of JSON a line of its own.
//!
//! ```text
//!   [                            (an empty line)
//!     {"id": 1,                    {"id": 1,   "name": "Ada"}
//!      "name": "Ada"},           (an empty line)
//!     {"id": 2}                    {"id": 2}
//!   ]                            (an empty line)
//! ```
//!
//! Records are the elements of an array, and the values outside of arrays. Commas and blanks separate them, or nothing.
//! Line ends within a record become blanks. They follow the record as empty lines, so that line numbers stay those of
//! the file. A record that begins on the line of another one gets a line more, which later empty lines make up for.
//!
//! The tricky point is invalid text: an error must not swallow the records behind it. A line end ends a string. It
//! becomes a control character, which the record's parser rejects. An object that cannot begin where it begins
//! begins a record. At the end of the text, an open array becomes a record that the parser rejects.

use crate::json_object::{Object, is_blank};
use crate::json_text::Charset;

const BOM: &[u8] = b"\xef\xbb\xbf";
/// Containers whose kind is known.
const MOST_KNOWN: usize = 64;

/// Whether records are not the lines of a text that begins with `first`; None if more bytes are needed. `last`: there
/// are no more.
///
/// Such a text begins with an array, with an object that its first line does not end, or with two objects on a line.
#[must_use]
pub fn is_nested(first: &[u8], last: bool) -> Option<bool> {
    let text = first.strip_prefix(BOM).unwrap_or(first);
    let start = text.iter().position(|byte| !is_blank(&[*byte]));
    let Some((kind, rest)) = start.and_then(|start| text.get(start..)?.split_first()) else {
        return last.then_some(false);
    };
    if *kind != b'{' {
        return Some(*kind == b'[');
    }
    let (mut depth, mut in_string, mut escaped) = (1usize, false, false);
    for byte in rest {
        match byte {
            // A string has no line end: the line is broken, and says nothing.
            b'\n' => return Some(depth > 0 && !in_string),
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => (),
            b'{' | b',' if depth == 0 => return Some(true),
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => (),
        }
    }
    last.then_some(false)
}

/// Whether text that begins with `first` is likely to be JSON with objects.
#[must_use]
pub fn is_json(first: &[u8]) -> bool {
    let text = first.strip_prefix(BOM).unwrap_or(first).trim_ascii_start();
    match text.split_first() {
        Some((b'{', rest)) => matches!(rest.trim_ascii_start(), [b'"' | b'}', ..]),
        Some((b'[', rest)) => matches!(rest.trim_ascii_start(), [b'{', ..]),
        _ => false,
    }
}

/// Whether most records of a text that begins with `sample` are JSON objects. `whole`: it is the whole text.
#[must_use]
pub fn has_objects(sample: &[u8], whole: bool) -> bool {
    if !is_json(sample) {
        return false;
    }
    let mut lines = Vec::new();
    if is_nested(sample, true) == Some(true) {
        let mut records = JsonLines::default();
        records.append(sample, &mut lines);
        if whole {
            records.end(&mut lines);
        }
    } else {
        lines.extend_from_slice(sample);
    }
    let text = lines.strip_prefix(BOM).unwrap_or(&lines);
    // The sample may cut the last record.
    let text = if whole { text } else { text.get(..memchr::memrchr(b'\n', text).unwrap_or(0)).unwrap_or_default() };
    let mut object = Object::new(&[], false, Charset::Utf8);
    let records = || text.split(|&byte| byte == b'\n').filter(|line| !is_blank(line));
    let objects = records().filter(|line| object.read(line).is_some()).count();
    objects * 2 > records().count()
}

/// The place of a byte.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Between,
    /// In a record that is neither an object nor an array.
    Bare,
    /// In an object or array.
    Container,
}

/// A text on its way to lines.
#[derive(Debug, Clone, Default)]
pub struct JsonLines {
    has_begun: bool,
    place: Place,
    in_string: bool,
    escaped: bool,
    /// Number of open containers, and the kinds of the innermost ones; 1 is an object.
    depth: usize,
    kinds: u64,
    /// The last byte of the record outside of strings that is no blank.
    before: u8,
    /// The array around records is open.
    in_array: bool,
    /// The current line has a record, which has ended.
    has_record: bool,
    /// Line ends within the record.
    line_ends: usize,
    /// Lines that were added.
    added: usize,
}

impl JsonLines {
    /// The most bytes that `len` bytes become.
    #[must_use]
    pub fn most_bytes(&self, len: usize) -> usize {
        2 * len + self.line_ends + 4
    }

    /// Appends the lines of some bytes. An incomplete record continues with the next ones.
    pub fn append(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        if !self.has_begun && bytes.starts_with(BOM) {
            out.extend_from_slice(BOM);
            bytes = bytes.get(BOM.len()..).unwrap_or_default();
        }
        self.has_begun |= !bytes.is_empty();
        while let Some((&byte, rest)) = bytes.split_first() {
            if self.in_string {
                bytes = self.pass_string(bytes, out);
            } else if match self.place {
                Place::Container => self.take_inside(byte, out),
                Place::Bare => self.take_bare(byte, out),
                Place::Between => self.take_between(byte, out),
            } {
                bytes = rest;
            }
        }
    }

    /// Ends the text: an array that is still open becomes an invalid record.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        if self.in_array && self.place == Place::Between {
            self.begin(Place::Bare, out);
            out.push(b'[');
        }
        out.push(b'\n');
    }

    /// Appends some of a string, and returns the bytes behind it.
    fn pass_string<'a>(&mut self, bytes: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
        let special = |byte: &u8| matches!(byte, b'"' | b'\\' | b'\n' | b'\r');
        let plain = if self.escaped { 0 } else { bytes.iter().position(special).unwrap_or(bytes.len()) };
        let (passed, rest) = bytes.split_at_checked(plain).unwrap_or((bytes, &[]));
        out.extend_from_slice(passed);
        let Some((&byte, rest)) = rest.split_first() else { return rest };
        let escaped = std::mem::take(&mut self.escaped);
        match byte {
            b'\n' => {
                self.line_ends += 1;
                self.in_string = false;
            }
            b'"' if !escaped => self.in_string = false,
            b'\\' if !escaped => self.escaped = true,
            _ => (),
        }
        out.push(if matches!(byte, b'\n' | b'\r') { b'\t' } else { byte });
        rest
    }

    /// Takes a byte of an object or array. False if the byte begins another record.
    fn take_inside(&mut self, byte: u8, out: &mut Vec<u8>) -> bool {
        match byte {
            b' ' | b'\t' | b'\r' => {
                out.push(b' ');
                return true;
            }
            b'\n' => {
                self.line_ends += 1;
                out.push(b' ');
                return true;
            }
            b'{' if !self.may_open() => {
                self.end_record();
                return false;
            }
            b'{' | b'[' => self.open(byte),
            b'}' | b']' => {
                self.depth -= 1;
                self.kinds >>= 1;
                if self.depth == 0 {
                    self.end_record();
                }
            }
            b'"' => self.in_string = true,
            _ => (),
        }
        self.before = byte;
        out.push(byte);
        true
    }

    /// Takes a byte of another value. False if the byte is behind it.
    fn take_bare(&mut self, byte: u8, out: &mut Vec<u8>) -> bool {
        match byte {
            b',' | b'\n' | b'{' => {
                self.end_record();
                return false;
            }
            b']' if self.in_array => {
                self.end_record();
                return false;
            }
            b'"' => self.in_string = true,
            _ => (),
        }
        out.push(if byte == b'\r' { b' ' } else { byte });
        true
    }

    /// Takes a byte between records, or the first one of a record.
    fn take_between(&mut self, byte: u8, out: &mut Vec<u8>) -> bool {
        match byte {
            b' ' | b'\t' | b'\r' | b',' => (),
            b'\n' => {
                let line_ends = std::mem::take(&mut self.line_ends) + 1;
                self.end_lines(line_ends, out);
            }
            b'[' if !self.in_array => self.in_array = true,
            b']' if self.in_array => self.in_array = false,
            b'{' | b'[' => {
                self.begin(Place::Container, out);
                self.open(byte);
                self.before = byte;
                out.push(byte);
            }
            _ => {
                self.begin(Place::Bare, out);
                return false;
            }
        }
        true
    }

    fn begin(&mut self, place: Place, out: &mut Vec<u8>) {
        if self.has_record {
            let line_ends = std::mem::take(&mut self.line_ends);
            self.added += usize::from(line_ends == 0);
            self.end_lines(line_ends.max(1), out);
        }
        self.place = place;
    }

    fn end_record(&mut self) {
        (self.place, self.depth, self.kinds, self.has_record) = (Place::Between, 0, 0, true);
    }

    /// Ends this many lines, except those that were added before.
    fn end_lines(&mut self, mut count: usize, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.has_record) {
            out.push(b'\n');
            count -= 1;
        }
        let too_many = self.added.min(count);
        self.added -= too_many;
        out.extend(std::iter::repeat_n(b'\n', count - too_many));
    }

    fn open(&mut self, byte: u8) {
        self.depth += 1;
        self.kinds = self.kinds << 1 | u64::from(byte == b'{');
    }

    /// Whether an object may begin within the record.
    fn may_open(&self) -> bool {
        match self.before {
            b':' | b'[' => true,
            b',' => self.kinds & 1 == 0 || self.depth > MOST_KNOWN,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(text: &str) -> String {
        let mut lines = JsonLines::default();
        let mut out = Vec::new();
        lines.append(text.as_bytes(), &mut out);
        assert!(out.len() <= JsonLines::default().most_bytes(text.len()));
        lines.end(&mut out);
        String::from_utf8(out).unwrap()
    }

    /// The records, each with its line.
    fn records(text: &str) -> Vec<(usize, String)> {
        let lines = lines(text);
        let numbered = lines.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        numbered.map(|(at, line)| (at + 1, line.to_owned())).collect()
    }

    #[test]
    fn forms_are_recognized() {
        for (text, nested) in [
            ("", false),
            (" \n ", false),
            ("\u{feff} [", true),
            ("\n[{\"a\": 1}]", true),
            ("{\n\"a\": 1}", true),
            ("{\"a\":\n1}", true),
            ("{\"a\": [\n1]}", true),
            ("{\"a\": \"{\\\"\"}\n{", false),
            ("{\"a\": \"\n{", false),
            ("{\"a\": 1}", false),
            ("{\"a\": 1", false),
            ("{\"a\": 1}{\"a\": 2}", true),
            ("{\"a\": 1},\n", true),
            ("{\"a\": 1} \n{", false),
            ("1\n[", false),
        ] {
            assert_eq!(is_nested(text.as_bytes(), true), Some(nested), "{text:?}");
        }
        assert_eq!(is_nested(b"", false), None);
        assert_eq!(is_nested(b"\xef\xbb", false), Some(false));
        assert_eq!(is_nested(b"{\"a\": 1}", false), None);
    }

    #[test]
    fn json_is_likely() {
        for text in ["{\"a\": 1}", "\u{feff}[ {", "{ }", "[\n  {\n"] {
            assert!(is_json(text.as_bytes()), "{text:?}");
        }
        for text in ["", "{a},{b}\n", "[1],2\n", "\"{\"\"a\"\": 1}\"\n", "["] {
            assert!(!is_json(text.as_bytes()), "{text:?}");
        }
        for (text, whole, expected) in [
            ("{\"a\": 1}\n\n{\"a\": 2}\n", true, true),
            ("\u{feff}[\n{\n\"a\": 1},\n{\"a\": 2}]", true, true),
            ("{\"a\": 1}\n{\"a\": 2}\n{\"a\": ", false, true),
            ("{\"a\": 1}\n{\"a\": 2}\nx\n", true, true),
            ("{\"a\": 1}", true, true),
            ("{\"a\": 1}", false, false),
            ("{\"a\": 1},5\n{\"a\": 2},6\n", true, false),
            ("{\"a\": 1\n{\"a\": 2\n", true, false),
        ] {
            assert_eq!(has_objects(text.as_bytes(), whole), expected, "{text:?}");
        }
    }

    #[test]
    fn records_have_lines() {
        let text = "[\n  {\n    \"a\": 1\n  },\n  {\"a\": \"}\\\"\"}\n]\n";
        assert_eq!(lines(text), "\n{     \"a\": 1   }\n\n\n{\"a\": \"}\\\"\"}\n\n\n");
        let found =
            |text: &str| records(text).into_iter().map(|(line, text)| format!("{line} {text}")).collect::<Vec<_>>();
        assert_eq!(found("[{\"a\":1},{\"a\":2}]"), ["1 {\"a\":1}", "2 {\"a\":2}"]);
        // A line that was added is made up for.
        assert_eq!(found("[{},{},\n\n{},\n{}]"), ["1 {}", "2 {}", "3 {}", "4 {}"]);
        assert_eq!(found("{\r\n}{\r\n}\r\n\r\n{}"), ["1 {  }", "2 {  }", "5 {}"]);
        assert_eq!(found("\u{feff}[{}]"), ["1 \u{feff}{}"]);
        assert_eq!(found("[1, \"x, ]\", [2, 3], null]\n[{}]"), ["1 1", "2 \"x, ]\"", "3 [2, 3]", "4 null", "5 {}"]);
        assert_eq!(found("[]"), Vec::<String>::new());
    }

    #[test]
    fn errors_end_with_their_record() {
        let found = |text: &str| records(text).into_iter().map(|(_, text)| text).collect::<Vec<_>>();
        assert_eq!(found("[{\"a\": 1\n,{\"a\": 2}]"), ["{\"a\": 1 ,", "{\"a\": 2}"]);
        assert_eq!(found("{\"a\": [1}\n{\"a\": 2}"), ["{\"a\": [1} ", "{\"a\": 2}"]);
        assert_eq!(found("{\"a\": \"x\n\"b\": 1}\n{\"a\": 2}"), ["{\"a\": \"x\t\"b\": 1}", "{\"a\": 2}"]);
        assert_eq!(found("{\"a\": \"x\ry\"}{}"), ["{\"a\": \"x\ty\"}", "{}"]);
        assert_eq!(found("{} x {}"), ["{}", "x ", "{}"]);
        assert_eq!(found("{}}{}"), ["{}", "}", "{}"]);
        assert_eq!(found("[{}"), ["{}", "["]);
        assert_eq!(found("[{"), ["{"]);
        assert_eq!(found("[[{\"a\":{}},{}]]"), ["[{\"a\":{}},{}]"]);
        let deep = format!("[{}{{}},{{}}{}]", "[".repeat(70), "]".repeat(70));
        assert_eq!(found(&deep), [&deep[1..deep.len() - 1]]);
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(text in "[\\[\\]{}:,\"\\\\ \r\na1]{0,60}", cut in 0..60usize) {
            let bytes = text.as_bytes();
            let (before, behind) = bytes.split_at(cut.min(bytes.len()));
            let (mut cut, mut out) = (JsonLines::default(), Vec::new());
            cut.append(before, &mut out);
            let most = out.len() + cut.most_bytes(behind.len());
            cut.append(behind, &mut out);
            prop_assert!(out.len() <= most);
            cut.end(&mut out);
            prop_assert_eq!(String::from_utf8(out).unwrap(), lines(&text));
            // No byte but blanks, commas and the brackets of arrays is lost.
            let kept = |text: &str| text.chars().filter(|c| !" \r\n\t,[]".contains(*c)).collect::<String>();
            prop_assert_eq!(kept(&lines(&text)), kept(&text));
        }

        #[test]
        fn line_numbers_are_the_files(objects in prop::collection::vec(0..4usize, 0..9), gap in "[ \r\n,]{0,4}", close in any::<bool>()) {
            // Records that begin on lines of their own.
            let (mut text, mut wanted) = ("[".to_owned(), Vec::new());
            for (i, ends) in objects.iter().enumerate() {
                text.push_str(&gap);
                text.push('\n');
                wanted.push(text.matches('\n').count() + 1);
                text.push_str(&format!("{{\"a\": {i}{}}}", "\n".repeat(*ends)));
            }
            if close {
                text.push_str("\n]");
            }
            let found: Vec<usize> = records(&text).into_iter().map(|(line, _)| line).collect();
            prop_assert_eq!(&found[..wanted.len()], wanted);
            prop_assert_eq!(found.len(), objects.len() + usize::from(!close));
        }
    }
}
