//! Plain fields are recognized as plain.
//!
//! A field that the scan flags without need is still read correctly, only more slowly, so comparing values does not
//! find the mistake. Here fields of every length are put at every position around the edges of blocks. Each must be
//! [`Value::Plain`] unless it contains an escape. The first record is left out, because the exact reader reads it.

use pg_bulk_text::dialect::{Dialect, EndMarker, FormatOptions};
use pg_bulk_text::naive;
use pg_bulk_text::reader::{Event, Reader, Settings, Value};
use pg_bulk_text::scan::Level;
use pg_bulk_text::separator::Separator;

/// Whether each field of each record but the first is plain, in a file that is read at once.
fn kinds(dialect: &Dialect, file: &[u8], level: Level) -> Vec<bool> {
    let mut reader = Reader::new(Settings { header_lines: 1, ..naive::settings(dialect, 65536, level) });
    let mut kinds = Vec::new();
    let mut rest = file;
    loop {
        match reader.advance() {
            Event::NeedData => {
                reader.give(&mut rest, usize::MAX).unwrap();
                assert!(rest.is_empty());
            }
            Event::Record => {
                let record = reader.record();
                kinds.extend((0..reader.fields()).map(|field| matches!(record.value(field), Value::Plain(_))));
            }
            Event::Header => (),
            Event::End => return kinds,
            Event::Error(e) => panic!("{e:?}"),
        }
    }
}

fn csv(escape: Option<&[u8]>) -> Dialect {
    let options = FormatOptions {
        csv: true,
        null: Some(b"NULL".to_vec()),
        escape: escape.map(<[u8]>::to_vec),
        ..FormatOptions::default()
    };
    Dialect::check(&options, EndMarker::Until17).unwrap()
}

/// The same dialect with a long delimiter, and with one more delimiter at the end of lines.
fn others(dialect: &Dialect) -> [Dialect; 2] {
    let separator = Separator::new(b",-,").unwrap();
    [Dialect { separator, ..dialect.clone() }, Dialect { separator, trailing: true, ..dialect.clone() }]
}

/// Records of three fields: the middle one is examined, the others are plain.
fn check(dialect: &Dialect, middle: &str, is_plain: bool) {
    for line_end in ["\n", "\r\n", "\r"] {
        for before in 0..130 {
            let delimiter = std::str::from_utf8(dialect.separator.bytes()).unwrap();
            let last = if dialect.trailing { delimiter } else { "" };
            let record = format!("{}{delimiter}{middle}{delimiter}\"y\"{last}{line_end}", "x".repeat(before));
            let file = ["1", line_end, &record, &record].concat();
            let expected = [true, is_plain, true].repeat(2);
            for level in Level::available() {
                assert_eq!(kinds(dialect, file.as_bytes(), level), expected, "{level:?} {file:?}");
            }
        }
    }
}

#[test]
fn plain_fields() {
    for dialect in [csv(None), csv(Some(b"\\"))] {
        for middle in ["", "a", "\"\"", "\"a\"", "\"a,b\"", "\"\n\r\n,\""] {
            check(&dialect, middle, true);
        }
        check(&dialect, &format!("\"{}\"", "b".repeat(64)), true);
        check(&dialect, &format!("\"{}\"", "b,".repeat(70)), true);
        for dialect in others(&dialect) {
            for middle in ["", "a", "\"\"", "\"a,-,b\"", "\"\n,-,\"", "-,", "-,,"] {
                check(&dialect, middle, true);
            }
            check(&dialect, &format!("\"{}\"", "b,-,".repeat(35)), true);
        }
    }
}

#[test]
fn escaped_fields() {
    for dialect in [csv(None), csv(Some(b"'"))] {
        for middle in ["\"a\"b", "a\"b\"", "a\"b\"c", "\"\"\"\"", "\"a\"\"b\""] {
            // With another escape character the last two have another meaning, but the result is the same.
            check(&dialect, middle, false);
        }
        check(&dialect, &format!("\"a\"{}", "b".repeat(64)), false);
        for dialect in others(&dialect) {
            for middle in ["\"a\",b", "a,\"b\"", "\"a\",-b", "-,\"b\"", "\"a\"\",-,\""] {
                check(&dialect, middle, false);
            }
        }
    }
    check(&csv(Some(b"'")), "\"a'\"b\"", false);
    check(&csv(Some(b"'")), "\"a''b\"", false);
}
