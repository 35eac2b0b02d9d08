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
//! The tricky point is invalid text: an error must not swallow the records behind it. A line end ends a string, and a
//! control character takes its place, which the record's parser rejects. An object that cannot begin where it begins
//! begins a record. At the end of the text, an open array becomes a record that the parser rejects.
//!
//! If the rest of a record is missing, records behind it may look like its members. This shows when a record cannot
//! go on, or has no end. It is then [split](JsonLines::split) before each line that begins as it does: behind as many
//! blanks, with an object that has the same first key.

use crate::json_object::{Object, is_blank};
use crate::json_text::Charset;

const BOM: &[u8] = b"\xef\xbb\xbf";
/// Containers whose kind is known.
const MOST_KNOWN: usize = 64;
/// Bytes of a record that cannot be valid: no value of the server is so long.
const TOO_LONG: usize = if cfg!(test) { 1 << 16 } else { 1 << 30 };
/// Records of several lines that are examined for lines that begin as they do.
const EXAMINED: usize = 100;

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
    /// Start of the record in the output.
    start: usize,
    /// Line ends within the record.
    line_ends: usize,
    /// Lines that were added.
    added: usize,
    /// Blanks outside of records on the current line, and in front of the record on its line.
    blanks: usize,
    lead: usize,
    /// Records of several lines that were examined. Above [`EXAMINED`] if one has a line that begins as it does.
    examined: usize,
}

impl JsonLines {
    /// The most bytes that `len` bytes become.
    #[must_use]
    pub fn most_bytes(&self, len: usize) -> usize {
        2 * len + self.line_ends + 5
    }

    /// Appends the lines of some bytes. An incomplete record continues with the next ones. Returns the number of bytes of
    /// `out` that are complete. The caller removes them, and passes the others on to the next call.
    pub fn append(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> usize {
        self.start = 0;
        self.take(bytes, out);
        if self.place == Place::Between {
            return out.len();
        }
        // The reader reports a line that is too long.
        if out.len() - self.start >= TOO_LONG && !self.split(out) {
            self.end_record(out);
            return out.len();
        }
        self.start
    }

    fn take(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
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

    /// Ends the text, whose last bytes have been appended to `out`: an array that is still open becomes an invalid record.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        if self.in_array && self.place == Place::Between {
            self.begin(Place::Bare, out);
            out.push(b'[');
        }
        if self.place == Place::Container {
            self.split(out);
        }
        self.end_record(out);
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
                out.push(b'\t');
            }
            b'"' if !escaped => self.in_string = false,
            b'\\' if !escaped => self.escaped = true,
            _ => (),
        }
        out.push(if byte == b'\r' { b'\t' } else { byte });
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
                out.push(b'\n');
                return true;
            }
            b'{' if !self.may_open() => {
                // It is of the last record of a split, or of none.
                if !(self.split(out) && self.may_open()) {
                    self.end_record(out);
                }
                return false;
            }
            b'{' | b'[' => self.open(byte),
            b'}' | b']' => {
                self.depth -= 1;
                self.kinds >>= 1;
                if self.depth == 0 {
                    out.push(byte);
                    if self.line_ends > 0 && self.examined < EXAMINED {
                        let has_similar = self.similar_line(out.get(self.start..).unwrap_or_default()).is_some();
                        self.examined += if has_similar { EXAMINED + 1 } else { 1 };
                    }
                    self.end_record(out);
                    return true;
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
                self.end_record(out);
                return false;
            }
            b']' if self.in_array => {
                self.end_record(out);
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
            b' ' | b'\t' => self.blanks += 1,
            b'\r' | b',' => (),
            b'\n' => {
                self.blanks = 0;
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
        (self.place, self.start, self.lead) = (place, out.len(), self.blanks);
    }

    /// Ends the record, if there is one, and replaces its line ends.
    fn end_record(&mut self, out: &mut [u8]) {
        if self.place == Place::Between {
            return;
        }
        if self.line_ends > 0 {
            let text = out.get_mut(self.start..).unwrap_or_default();
            self.blanks = blanks(text.rsplit(|byte| *byte == b'\n').next().unwrap_or_default());
            text.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
        }
        (self.in_string, self.escaped) = (false, false);
        (self.place, self.depth, self.kinds, self.has_record) = (Place::Between, 0, 0, true);
    }

    /// Ends the broken record before the first line that begins as it does. What follows is records, each up to the next such
    /// line. False without such a line, or without memory.
    fn split(&mut self, out: &mut Vec<u8>) -> bool {
        let record = out.get(self.start..).unwrap_or_default();
        let at = self.similar_line(record).filter(|_| self.examined <= EXAMINED);
        let Some(behind) = at.and_then(|at| record.get(at..)) else { return false };
        let mut rest = Vec::new();
        if rest.try_reserve_exact(behind.len()).is_err() {
            return false;
        }
        rest.extend_from_slice(behind);
        if out.try_reserve(self.most_bytes(rest.len())).is_err() {
            return false;
        }
        out.truncate(out.len() - rest.len());
        self.line_ends = memchr::memchr_iter(b'\n', out.get(self.start..).unwrap_or_default()).count();
        let mut rest = rest.as_slice();
        while !rest.is_empty() {
            self.end_record(out);
            // The record that begins now is the first of the rest.
            let (record, behind) = rest.split_at(self.similar_line(rest).unwrap_or(rest.len()));
            self.take(record, out);
            rest = behind;
        }
        true
    }

    /// The offset of an object in the record's text that begins a line, as the record does.
    fn similar_line(&self, record: &[u8]) -> Option<usize> {
        let key = first_key(record)?;
        memchr::memchr_iter(b'\n', record).find_map(|end| {
            let line = record.get(end + 1..)?;
            let at = line.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b',' | b']' | b'}'))?;
            let (lead, object) = line.split_at_checked(at)?;
            (blanks(lead) == self.lead && first_key(object) == Some(key)).then_some(end + 1 + at)
        })
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

/// Number of blanks in a text.
fn blanks(lead: &[u8]) -> usize {
    lead.iter().filter(|byte| matches!(byte, b' ' | b'\t')).count()
}

/// The first key of an object, with its quotes.
fn first_key(object: &[u8]) -> Option<&[u8]> {
    let key = object.strip_prefix(b"{")?.trim_ascii_start();
    let len = memchr::memchr(b'"', key.strip_prefix(b"\"")?)? + 2;
    let (key, rest) = key.split_at_checked(len)?;
    rest.trim_ascii_start().starts_with(b":").then_some(key)
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
    fn a_record_without_end_is_cut() {
        let (mut lines, mut out) = (JsonLines::default(), Vec::new());
        lines.append(b"[{\"a\":\"", &mut out);
        for _ in 0..64 {
            let complete = lines.append(&[b'x'; 4096], &mut out);
            out.drain(..complete);
            assert!(out.len() < TOO_LONG);
        }
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
        assert_eq!(found("{\"a\": \"x\n\"b\": 1}\n{\"a\": 2}"), ["{\"a\": \"x\t \"b\": 1}", "{\"a\": 2}"]);
        assert_eq!(found("{\"a\": \"x\ry\"}{}"), ["{\"a\": \"x\ty\"}", "{}"]);
        assert_eq!(found("{} x {}"), ["{}", "x ", "{}"]);
        assert_eq!(found("{}}{}"), ["{}", "}", "{}"]);
        assert_eq!(found("[{}"), ["{}", "["]);
        assert_eq!(found("[{"), ["{"]);
        assert_eq!(found("[[{\"a\":{}},{}]]"), ["[{\"a\":{}},{}]"]);
        let deep = format!("[{}{{}},{{}}{}]", "[".repeat(70), "]".repeat(70));
        assert_eq!(found(&deep), [&deep[1..deep.len() - 1]]);
    }

    #[test]
    fn broken_records_end_at_lines_that_begin_as_they_do() {
        let found =
            |text: &str| records(text).into_iter().map(|(line, text)| format!("{line} {text}")).collect::<Vec<_>>();
        // Cut in an array, before a value, and in a string; each record has a line.
        let good = "2 {\"a\": 2, \"b\": [{\"a\": 5}]}";
        for (broken, rejected) in [
            ("{\"a\": 1, \"b\": [7, ", "{\"a\": 1, \"b\": [7,  "),
            ("{\"a\": 1, \"b\":", "{\"a\": 1, \"b\": "),
            ("{\"a\": 1, \"b\": \"x", "{\"a\": 1, \"b\": \"x\t"),
            ("{\"a\": 1, \"b\": {\"c\": [", "{\"a\": 1, \"b\": {\"c\": [ "),
        ] {
            let behind = "{\"a\": 2, \"b\": [{\"a\": 5}]}\n{\"a\": 3, \"b\": []}\n";
            let wanted = [format!("1 {rejected}"), good.to_owned(), "3 {\"a\": 3, \"b\": []}".to_owned()];
            let trimmed = |lines: &[String]| {
                lines.iter().map(|line| line.trim_end_matches([' ', ',']).to_owned()).collect::<Vec<_>>()
            };
            assert_eq!(trimmed(&found(&format!("{broken}\n{behind}"))), trimmed(&wanted));
            let array = format!("[{broken}\n{}]\n", behind.trim_end().replace("}\n", "},\n"));
            assert_eq!(trimmed(&found(&array)), trimmed(&wanted));
        }
        // Two broken records, over several lines. Members that are objects stay, unless they begin as records do.
        let text = "[\n  {\n    \"a\": 1,\n    \"b\": [\n    {\n      \"a\": 7\n    },\n  {\n    \"a\": 2,\n    \"b\": [\n  {\n    \"a\": 3\n  }\n]\n";
        let wanted = [(2, "{ \"a\": 1, \"b\": [ { \"a\": 7 },"), (8, "{ \"a\": 2, \"b\": ["), (11, "{ \"a\": 3 }")];
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let found: Vec<_> = records(text).into_iter().map(|(line, text)| (line, squeezed(&text))).collect();
        assert_eq!(found, wanted.map(|(line, text)| (line, text.to_owned())));
        // Objects that begin on the line on which the object before them ends.
        let found: Vec<_> = records("[{\n \"a\": [\n}, {\n \"a\": 2\n}, {\n \"a\": 3\n}]")
            .into_iter()
            .map(|(line, text)| (line, squeezed(&text)))
            .collect();
        assert_eq!(
            found,
            [(1, "{ \"a\": [ },"), (3, "{ \"a\": 2 }"), (5, "{ \"a\": 3 }")]
                .map(|(line, text)| (line, text.to_owned()))
        );
        // Where members of valid records begin as records do, a broken record is not split.
        let text = "[\n{\n\"a\": [\n{\"a\": 5}\n]},\n{\"a\": [\n{\"a\": 6},\n";
        let found: Vec<_> = records(text).into_iter().map(|(line, text)| (line, squeezed(&text))).collect();
        assert_eq!(
            found,
            [(2, "{ \"a\": [ {\"a\": 5} ]}"), (6, "{\"a\": [ {\"a\": 6},")].map(|(line, text)| (line, text.to_owned()))
        );
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(text in "([\\[\\]{}:,\"\\\\ \r\na1]|[{]\"a\":|\n[{]\"a\":){0,40}", cut in 0..60usize) {
            let bytes = text.as_bytes();
            let (before, behind) = bytes.split_at(cut.min(bytes.len()));
            let (mut cut, mut out) = (JsonLines::default(), Vec::new());
            let complete = cut.append(before, &mut out);
            let mut rest = out.split_off(complete);
            let most = rest.len() + cut.most_bytes(behind.len());
            cut.append(behind, &mut rest);
            prop_assert!(rest.len() <= most);
            cut.end(&mut rest);
            out.append(&mut rest);
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
