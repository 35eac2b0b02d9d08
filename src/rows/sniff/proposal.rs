//! The result of `bulk_sniff` as statements and as options.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pg_bulk_text::sniff::style::Style;
use pgrx::pg_sys;

use super::rejects::line;
use super::{Sniffed, SniffedColumn};
use crate::input::pattern::{self, without_escapes};
use crate::server::lookup::{self, quoted};
use crate::server::option_value::OptionValue;
use crate::server::server_text::{clipped, from_server};

/// Endings of file names for compression, and those for formats, which come before them.
const COMPRESSED: &[&[u8]] = &[b"gz", b"zst", b"zstd", b"lz4", b"bz2", b"xz"];
const FORMATS: &[&[u8]] =
    &[b"csv", b"tsv", b"tab", b"psv", b"txt", b"text", b"tbl", b"dat", b"data", b"json", b"jsonl", b"ndjson", b"log"];

/// Length of a name cut to at most `most` bytes of whole characters.
pub fn clip(name: &[u8], most: usize) -> usize {
    if name.len() <= most { name.len() } else { clipped(name, most) }
}

/// Bytes of the longest identifier.
pub const LONGEST: usize = pg_sys::NAMEDATALEN as usize - 1;

/// An item of a list in the options of a foreign table.
fn list_item(word: &[u8]) -> Vec<u8> {
    let doubled = word.split(|&b| b == b'"').collect::<Vec<_>>().join(b"\"\"".as_slice());
    [b"\"".as_slice(), &doubled, b"\""].concat()
}

/// A list in the options of a foreign table, as a string literal. Guarded.
fn list<'a>(words: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    literal(&words.map(list_item).collect::<Vec<_>>().join(b", ".as_slice()))
}

pub(super) fn c_string(bytes: &[u8]) -> CString {
    CString::new(bytes).unwrap_or_default()
}

/// A name quoted for SQL if necessary. Guarded.
pub fn identifier(name: &[u8]) -> Vec<u8> {
    quoted(&c_string(name)).into_bytes()
}

/// A string literal for SQL. Guarded.
fn literal(value: &[u8]) -> Vec<u8> {
    lookup::literal(&c_string(value)).into_bytes()
}

/// A table name for this file: the file's name without directories and endings. For a pattern, the name of the innermost
/// directory without wildcards.
pub fn table_name(path: &CStr, is_pattern: bool) -> Vec<u8> {
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    let names = path.ancestors().filter_map(Path::file_name).map(OsStr::as_bytes);
    let mut plain = names.filter(|name| !is_pattern || !pattern::is_pattern(&without_escapes(name, true)));
    let mut name = plain.next().unwrap_or_default().to_vec();
    if is_pattern {
        name = without_escapes(&name, false);
    }
    for endings in [COMPRESSED, FORMATS] {
        let dot = name.iter().rposition(|&b| b == b'.').filter(|&dot| dot > 0);
        let ending = dot.map(|dot| name.get(dot + 1..).unwrap_or_default().to_ascii_lowercase());
        if let (Some(dot), Some(ending)) = (dot, ending)
            && endings.contains(&ending.as_slice())
        {
            name.truncate(dot);
        }
    }
    if name.is_empty() {
        name = b"new_table".to_vec();
    }
    // File names are bytes, and may be invalid in the server's encoding.
    if crate::input::encoding::invalid_in_server_encoding(&name).is_some() {
        name = b"new_table".to_vec();
    }
    name.truncate(clip(&name, LONGEST));
    name
}

impl SniffedColumn {
    /// The name in notes. Guarded.
    pub(super) fn shown_name(&self) -> String {
        from_server(&c_string(&self.name))
    }

    fn definition(&self, foreign: bool) -> Vec<u8> {
        let mut out = identifier(&self.name);
        out.push(b' ');
        out.extend_from_slice(if foreign { self.foreign_type_name() } else { self.type_name() }.as_bytes());
        if foreign {
            let mut options: Vec<Vec<u8>> = self
                .written_options()
                .iter()
                .map(|(name, value)| [name.as_bytes(), b" ", &literal(value)].concat())
                .collect();
            let words = self.evidence.null_words();
            if !words.is_empty() {
                options.push([b"null_if ".as_slice(), &list(words.iter().map(|word| word.word.as_slice()))].concat());
            }
            if self.evidence.wants_force_null() {
                options.push(b"force_null 'true'".to_vec());
            }
            if !options.is_empty() {
                out.extend_from_slice(&[b" OPTIONS (".as_slice(), &options.join(b", ".as_slice()), b")"].concat());
            }
        }
        out
    }

    /// The options of the column that say how its values are written.
    pub fn written_options(&self) -> Vec<(&'static str, Vec<u8>)> {
        let mut options: Vec<_> = self.key.iter().map(|key| ("key", key.clone())).collect();
        match self.evidence.style() {
            Some(Style::Number(decimal, thousands)) => {
                options.push(("decimal", vec![decimal]));
                if !thousands.is_empty() {
                    options.push(("thousands", thousands.as_bytes().to_vec()));
                }
            }
            Some(Style::Moment(_, template)) => options.push(("date_format", template.as_bytes().to_vec())),
            None => (),
        }
        options
    }

    /// Notes about the column. `files`: the names, if there are several files.
    pub(super) fn notes(&self, files: &[CString]) -> Vec<String> {
        let (name, mut notes) = (self.shown_name(), Vec::new());
        if self.evidence.wants_force_null() {
            notes.push(format!("column \"{name}\": empty values in quotes are NULL (force_null)"));
        }
        if self.evidence.is_ambiguous() {
            notes.push(format!("column \"{name}\": it is not certain whether dates have the day or the month first"));
        }
        match self.evidence.style() {
            Some(Style::Number(decimal, thousands)) => {
                let between = format!(" and \"{thousands}\" between thousands");
                let between = if thousands.is_empty() { "" } else { &between };
                let decimal = char::from(decimal);
                notes.push(format!("column \"{name}\": numbers have the decimal character \"{decimal}\"{between}"));
            }
            Some(Style::Moment(_, template)) => {
                notes.push(format!("column \"{name}\": values have the form {template}"))
            }
            None if self.evidence.has_several_styles() => {
                notes.push(format!("column \"{name}\": its values can be read in several ways, so it is text"));
            }
            None => notes.extend(self.evidence.amount().map(|(file, place, value)| {
                let (value, line) = (from_server(value), line(files, file, place));
                format!(
                    "column \"{name}\": amounts such as \"{value}\" in {line} are text; an expression reads them (expr)"
                )
            })),
        }
        for word in self.evidence.null_words() {
            let (shown, count) = (from_server(&c_string(&word.word)), word.count);
            notes.push(format!(
                "column \"{name}\": the word \"{shown}\" is NULL (null_if), {count} times in the sample"
            ));
        }
        notes
    }
}

impl Sniffed {
    fn columns_sql(&self, foreign: bool) -> Vec<u8> {
        let columns: Vec<_> =
            self.columns.iter().map(|column| [b"    ".as_slice(), &column.definition(foreign)].concat()).collect();
        if columns.is_empty() {
            b"()".to_vec()
        } else {
            [b"(\n".as_slice(), &columns.join(b",\n".as_slice()), b"\n)"].concat()
        }
    }

    /// `CREATE TABLE`; `name` is already quoted. Guarded.
    pub fn create_table(&self, name: &[u8]) -> Vec<u8> {
        [b"CREATE TABLE ".as_slice(), name, b" ", &self.columns_sql(false)].concat()
    }

    /// `CREATE FOREIGN TABLE` on a server; the options are `source`, then those of the file. Guarded.
    pub fn create_foreign_table(&self, name: &[u8], server: &CStr, source: (&str, &CStr)) -> Vec<u8> {
        let mut options = vec![[source.0.as_bytes(), b" ", &literal(source.1.to_bytes())].concat()];
        for (name, value) in &self.options {
            let value = match value {
                OptionValue::Text(text) => literal(text),
                // A foreign table cannot have an empty list.
                OptionValue::List(words) if words.is_empty() => continue,
                OptionValue::List(words) => list(words.iter().map(|word| word.to_bytes())),
            };
            options.push([name.as_bytes(), b" ", &value].concat());
        }
        let server = identifier(server.to_bytes());
        [
            b"CREATE FOREIGN TABLE ".as_slice(),
            name,
            b" ",
            &self.columns_sql(true),
            b"\nSERVER ",
            &server,
            b"\nOPTIONS (",
            &options.join(b", ".as_slice()),
            b")",
        ]
        .concat()
    }
}
