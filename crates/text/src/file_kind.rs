//! Recognizes files that are no text, or text of another format, by their first bytes.
//!
//! Nothing is refused because of its first bytes: a file of COPY's formats may begin with them. They explain an error
//! that another reason has caused.

/// Number of bytes by which all kinds are recognized.
pub const MOST_BYTES: usize = 512;

/// A kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileKind {
    /// Its name, with an article.
    pub name: &'static str,
    /// A sentence for the HINT.
    pub advice: &'static str,
}

const UNPACK: &str = "Unpack it, and load its members.";
const CONVERT: &str = "Convert it to CSV or to lines of JSON.";
const SAVE: &str = "Save each sheet as CSV.";
const UTF32: FileKind = FileKind { name: "text in UTF-32", advice: "Convert it to UTF-8, as iconv does." };

/// First bytes, name, and advice. Of two that match, the first one counts.
const KINDS: &[(&[u8], &str, &str)] = &[
    (b"PK\x03\x04", "a ZIP archive", UNPACK),
    (b"PK\x05\x06", "an empty ZIP archive", UNPACK),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a workbook of Excel's old format (xls)", SAVE),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", UNPACK),
    (b"Rar!\x1a\x07", "a RAR archive", UNPACK),
    (b"Obj\x01", "an Avro file", CONVERT),
    (b"ARROW1\0\0", "an Arrow file", CONVERT),
    (b"SQLite format 3\0", "an SQLite database", "Export its tables as CSV, as sqlite3 -csv does."),
    (b"%PDF-", "a PDF document", "Export its tables as CSV."),
    (b"PGDMP\x01", "an archive of pg_dump", "Restore it with pg_restore."),
    (b"--\n-- PostgreSQL database dump", "a script of pg_dump", "Run it with psql."),
    (b"PGCOPY\n\xff\r\n\0", "COPY's binary format", "Set the option \"format\" to \"binary\"."),
    (b"\xff\xfe\0\0", UTF32.name, UTF32.advice),
    (b"\0\0\xfe\xff", UTF32.name, UTF32.advice),
    // Its byte order mark, read as that of UTF-16 and a zero character.
    (b"\xef\xbb\xbf\0", UTF32.name, UTF32.advice),
    (b"\xff\xfe", "text in UTF-16", "Set the option \"encoding\" to \"UTF16\"."),
    (b"\xfe\xff", "text in UTF-16", "Set the option \"encoding\" to \"UTF16\"."),
    (b"\x1f\x8b\x08", "gzip data", "Set the option \"compression\" to \"gzip\"."),
    (b"\x28\xb5\x2f\xfd", "zstd data", "Set the option \"compression\" to \"zstd\"."),
    (b"\xfd7zXZ\0", "xz data", "Set the option \"compression\" to \"xz\"."),
];

/// The beginnings of markup, in small letters.
const MARKUP: &[(&[u8], &str, &str)] = &[
    (b"<!doctype html", "an HTML page", "It may be the message of a web server in place of the file."),
    (b"<html", "an HTML page", "It may be the message of a web server in place of the file."),
    (b"<?xml", "an XML document", CONVERT),
];

/// Returns the kind of a file that begins with `first`, [`MOST_BYTES`] or fewer. None for text that may be CSV.
#[must_use]
pub fn of(first: &[u8]) -> Option<FileKind> {
    let found = |(_, name, advice): &(&[u8], &'static str, &'static str)| FileKind { name, advice };
    if let Some(kind) = KINDS.iter().find(|(magic, ..)| first.starts_with(magic)) {
        let has = |text: &[u8]| memchr::memmem::find(first, text).is_some();
        return Some(match kind.0 {
            b"PK\x03\x04" if has(b"[Content_Types].xml") || has(b"_rels/.rels") || has(b"xl/") => {
                FileKind { name: "an Excel workbook (xlsx), or another document of Office", advice: SAVE }
            }
            b"PK\x03\x04" if has(b"mimetypeapplication/vnd.oasis.opendocument") => {
                FileKind { name: "an OpenDocument file", advice: SAVE }
            }
            _ => found(kind),
        });
    }
    // POSIX and GNU tar, behind the name and the metadata of the first member.
    if first.get(257..262) == Some(b"ustar") {
        return Some(FileKind { name: "a tar archive", advice: UNPACK });
    }
    match first {
        // The first column of the first stripe, or the length of a message: no text.
        [b'P', b'A', b'R', b'1', 0..b' ' | 0x80.., ..] => Some(FileKind { name: "a Parquet file", advice: CONVERT }),
        [b'O', b'R', b'C', 0..b' ' | 0x80.., ..] => Some(FileKind { name: "an ORC file", advice: CONVERT }),
        _ => {
            let text = first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(first).trim_ascii_start();
            let begins =
                |(tag, ..): &&(&[u8], _, _)| text.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag));
            MARKUP.iter().find(begins).map(found)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_recognized() {
        let name = |first: &[u8]| of(first).map_or("none", |kind| kind.name);
        for (magic, expected, _) in KINDS {
            let whole = [magic, b" and more".as_slice()].concat();
            assert_eq!(name(&whole), *expected);
        }
        assert_eq!(
            name(b"PK\x03\x04....[Content_Types].xml"),
            "an Excel workbook (xlsx), or another document of Office"
        );
        assert_eq!(
            name(b"PK\x03\x04....mimetypeapplication/vnd.oasis.opendocument.spreadsheet"),
            "an OpenDocument file"
        );
        let mut tar = vec![0; 512];
        tar[257..262].copy_from_slice(b"ustar");
        assert_eq!(name(&tar), "a tar archive");
        assert_eq!(name(b"\xef\xbb\xbf \n<!DOCTYPE HTML PUBLIC"), "an HTML page");
        assert_eq!(name(b"<?xml version=\"1.0\"?>"), "an XML document");
        assert_eq!((name(b"ORC\x0a\x0b"), name(b"ORC,UNO\n"), name(b"ORC")), ("an ORC file", "none", "none"));
        for text in [&b""[..], b"a,b\n1,2\n", b"PK,b\n", b"PK\x03", b"<b>,1\n", b"[{\"a\": 1}]"] {
            assert_eq!(name(text), "none", "{text:?}");
        }
    }
}
