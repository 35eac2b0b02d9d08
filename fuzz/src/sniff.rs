//! Detection on arbitrary files. Explicit options are kept, the records that are skipped or used as names exist, and a
//! value has the form of each type that it supports.

use std::collections::HashSet;

use pg_bulk_text::dialect::{Dialect, EndMarker, Eol, Format};
use pg_bulk_text::naive::{self, Cell};
use pg_bulk_text::separator::Separator;
use pg_bulk_text::sniff::dialect::{GivenOptions, detect};
use pg_bulk_text::sniff::header::names;
use pg_bulk_text::sniff::header::{Evidence, header};
use pg_bulk_text::sniff::place::first_record;
use pg_bulk_text::sniff::shape::{Type, ValueShape};
use pg_bulk_text::verify::utf8_valid_up_to;

use super::reader::chosen;

/// Length of the head, in bytes.
pub const HEAD: usize = 3;

/// The three lists have no character in common.
const DELIMITERS: &[u8] = b",;\t|:x";
const QUOTES: &[u8] = b"\"'q";
const ESCAPE: u8 = b'\\';
const MARKERS: [&[u8]; 4] = [b"", b"\\N", b"NULL", b"-"];

/// Runs one input.
pub fn run(input: &[u8]) {
    let Some((&[flags, characters, more], sample)) = input.split_first_chunk::<HEAD>() else { return };
    let is_text = flags & 3 == 1;
    // Otherwise the dialect may have options that the naive reader below does not know.
    let is_strict = more & 128 == 0;
    let given = GivenOptions {
        format: [None, Some(Format::Text), Some(Format::Csv), None][usize::from(flags & 3)],
        delimiter: (flags & 4 != 0)
            .then(|| Separator::byte(chosen(&DELIMITERS[..if is_text { 5 } else { 6 }], characters))),
        quote: (flags & 8 != 0 && !is_text).then(|| chosen(QUOTES, characters >> 4)),
        escape: (flags & 16 != 0 && !is_text).then_some(ESCAPE),
        trailing: None,
        trim: None,
        default: None,
        skip_blank_lines: is_strict.then_some(false),
        comment: is_strict.then(Vec::new),
        lenient_quotes: is_strict.then_some(false),
        line_end: None,
        null: (flags & 32 != 0).then(|| chosen(&MARKERS, more).to_vec()),
        end_marker: if more & 64 != 0 { EndMarker::Since18 } else { EndMarker::Until17 },
    };
    let whole = flags & 64 != 0;
    // The naive reader differs here: a byte order mark is a part of its first field, and invalid UTF-8 ends its data.
    let sample = sample.strip_prefix(b"\xef\xbb\xbf").unwrap_or(sample);
    let sample = &sample[..utf8_valid_up_to(sample)];
    let finding = detect(sample, whole, &given);
    let found = Dialect { line_end: None, ..finding.dialect.clone() };
    let shown = || format!("{given:?}, whole: {whole}: {found:?}");
    assert!(
        given
            .format
            .is_none_or(|format| format == found.format || (format, found.format) == (Format::Csv, Format::Unquoted)),
        "{}",
        shown()
    );
    assert!(given.delimiter.is_none_or(|delimiter| delimiter == found.separator), "{}", shown());
    assert!(found.separator.first() == found.delimiter, "{}", shown());
    assert!(given.null.as_ref().is_none_or(|null| *null == found.null), "{}", shown());
    if found.is_csv() {
        assert!(given.quote.is_none_or(|quote| quote == found.quote), "{}", shown());
        assert!(given.escape.is_none_or(|escape| escape == found.escape), "{}", shown());
    } else {
        assert_eq!((given.quote, given.escape), (None, None), "{}", shown());
    }

    if !is_strict {
        let _ = header(sample, whole, &finding.dialect, finding.ahead);
        return;
    }

    // Read the file with the detected dialect.
    let (rows, error) = naive::rows(&found, sample);
    let ahead = if error.is_none() { finding.ahead.min(rows.len()) } else { 0 };
    // Detection reads quotes and line ends in another way, and goes on behind an end marker.
    let is_plain = whole
        && error.is_none()
        && !sample.contains(&b'\r')
        && !(found.is_csv() && sample.contains(&found.quote))
        && !sample.windows(2).any(|two| two == b"\\.");
    let has_titles = rows.iter().take(finding.ahead).any(|row| !row.line.trim_ascii().is_empty());
    if is_plain && has_titles {
        assert!(finding.ahead + 2 <= rows.len(), "{} of {} are in front: {}", finding.ahead, rows.len(), shown());
    }
    assert!(finding.ahead == 0 || finding.width > 1, "{} records are in front: {}", finding.ahead, shown());
    let width = rows.get(ahead).map_or(0, |row| row.cells.len());
    let behind = rows.len() - ahead;
    if let Some(header) = header(sample, whole, &found, ahead) {
        assert!(header.lines > 0 && header.lines < behind, "{header:?} of {behind} records: {}", shown());
        assert!(header.names.is_none_or(|names| names.len() == width), "{}", shown());
        if let Evidence::Family(column) | Evidence::Form(column) = header.evidence {
            assert!(column < width, "column {column} of {width} has a header: {}", shown());
        }
    }
    let eol = [Eol::Nl, Eol::Cr, Eol::CrNl][usize::from(more) % 3];
    if let Some(at) = first_record(sample, &found, eol, width) {
        let before = at.checked_sub(1).and_then(|last| sample.get(last));
        assert_eq!(before, Some(if eol == Eol::Cr { &b'\r' } else { &b'\n' }), "a record begins at {at}: {}", shown());
    }

    let mut values = Vec::new();
    for row in rows.iter().take(200) {
        values.extend(row.cells.iter().map(|cell| match cell {
            Cell::Bytes(value) => Some(value.clone()),
            Cell::Null | Cell::Default => None,
        }));
    }
    for value in values.iter().flatten() {
        speaks_for(value);
    }
    let (columns, longest) = (width.min(50), 10 + usize::from(more & 7));
    let called = names(Some(&values[..values.len().min(width)]), columns, longest, |name, most| name.len().min(most));
    assert_eq!(called.iter().collect::<HashSet<_>>().len(), columns, "{called:?}");
    assert!(called.iter().all(|name| !name.is_empty() && name.len() <= longest), "{called:?}");
}

/// Checks that a value has the form of each type that it supports, as far as short code can tell.
fn speaks_for(value: &[u8]) {
    let shape = ValueShape::of(value);
    let text = String::from_utf8_lossy(value);
    let text = text.trim_matches(' ');
    assert_eq!(shape.proves.and(shape.types), shape.proves, "{text:?}");
    for one in shape.types.iter() {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let has = |bytes: &str| text.bytes().all(|byte| byte.is_ascii_digit() || bytes.contains(char::from(byte)));
        let is_so = match one {
            Type::Boolean => {
                ["t", "f", "true", "false", "y", "n", "yes", "no"].contains(&text.to_ascii_lowercase().as_str())
            }
            Type::Integer | Type::Bigint => digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.is_empty(),
            Type::Numeric => has(".-+eE") && digits.parse::<f64>().is_ok(),
            // The written number must read back as the same value.
            Type::Double => text.parse::<f64>().is_ok_and(|number| !number.is_finite() || text.parse() == Ok(number)),
            Type::Date => has("-/.") && (8..=10).contains(&text.len()),
            Type::Time => text.contains(':') && !text.contains(['/', '-']) && !text.ends_with(['.', ':']),
            Type::Timestamp => text.len() >= 8,
            Type::Timestamptz => text.contains(':') && text.len() > 12,
            Type::Uuid => value.len() == 36 && value.iter().filter(|&&byte| byte == b'-').count() == 4,
            Type::Json | Type::Jsonb => {
                (text.starts_with('{') && text.ends_with('}')) || (text.starts_with('[') && text.ends_with(']'))
            }
        };
        assert!(is_so, "{text:?} speaks for {}", one.name());
    }
    assert_eq!(
        shape.day.is_some(),
        [Type::Date, Type::Timestamp, Type::Timestamptz].iter().any(|&one| shape.types.has(one)),
        "{text:?}"
    );
}
