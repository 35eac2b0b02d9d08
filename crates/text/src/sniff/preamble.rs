//! Finds records in front of a table: blank lines, comments, a title.
//!
//! Such a record has one field and the table has more, so a load fails there unless it skips the record. But a record
//! that is skipped by mistake is a lost row that no error reports. So a skipped record must be blank, or begin with
//! `#`, or be above a table of at least three columns of which nearly all rows are complete. A first row of the table
//! that has lost its other fields cannot be distinguished from a title.

use super::each_record;
use crate::dialect::Dialect;

/// The most records in front of a table.
const MOST: usize = 32;
/// The most records of the table to examine.
const MOST_RECORDS: usize = 1000;
/// The fewest rows below a title.
const FEWEST: usize = 3;

/// Length of the blank lines and comments at the start of a sample, in bytes. 0 if the sample has no other lines.
#[must_use]
pub fn comments(sample: &[u8]) -> usize {
    let end = if memchr::memchr(b'\n', sample).is_some() { b'\n' } else { b'\r' };
    let mut start = 0;
    for _ in 0..MOST {
        let rest = sample.get(start..).unwrap_or_default();
        let Some(length) = memchr::memchr(end, rest) else { break };
        let line = rest.get(..length).unwrap_or_default();
        if !is_comment(line) {
            return start;
        }
        start += length + 1;
    }
    0
}

fn is_comment(line: &[u8]) -> bool {
    line.first() == Some(&b'#') || line.trim_ascii().is_empty()
}

/// Whether `ahead` records of one field each may be titles: enough of the other records, and nearly all of them, have
/// `width` fields.
#[must_use]
pub fn may_be_titles(ahead: usize, width: usize, agreeing: usize, others: usize) -> bool {
    ahead <= MOST && width > 2 && agreeing > FEWEST && agreeing * 20 >= others * 19
}

/// Number of records in front of the file's table. Each is one line.
#[must_use]
pub fn preamble(sample: &[u8], whole: bool, dialect: &Dialect) -> usize {
    let (mut ahead, mut titles) = (0, 0);
    let (mut width, mut records, mut agreeing, mut most_alike) = (0, 0, 0, true);
    let _ = each_record(sample, whole, dialect, |reader, fields| {
        if width == 0 && fields == 1 {
            let record = reader.record();
            let line = record.raw(0);
            ahead += 1;
            titles += usize::from(!is_comment(line));
            most_alike = ahead <= MOST && memchr::memchr2(b'\n', b'\r', line).is_none();
            return most_alike;
        }
        if width == 0 {
            width = fields;
        }
        records += 1;
        agreeing += usize::from(fields == width);
        records < MOST_RECORDS
    });
    let enough = match titles {
        0 => records > 0 && agreeing * 2 >= records,
        _ => may_be_titles(ahead, width, agreeing, records),
    };
    if most_alike && width > 1 && enough { ahead } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::{EndMarker, FormatOptions};

    fn of(sample: &str) -> usize {
        let options = FormatOptions { csv: true, ..FormatOptions::default() };
        let dialect = Dialect::check(&options, EndMarker::Until17).unwrap();
        preamble(sample.as_bytes(), true, &dialect)
    }

    #[test]
    fn what_is_in_front_has_one_field() {
        assert_eq!(of("a,b\n1,2\n"), 0);
        assert_eq!(of("\n\na,b\n1,2\n"), 2);
        assert_eq!(of("# it's\na,b\n1,2\n"), 1);
        assert_eq!(of("#a,b\n1,2\n"), 0);
        assert_eq!(of("\r\n# x\r\na,b\r\n1,2\r\n"), 2);
        assert_eq!(of("\na\n1\n"), 0);
        assert_eq!(of("#\n"), 0);
        assert_eq!(of(""), 0);
        assert_eq!(of("#\na,b\n1\n2,3\n4\n"), 1);
        assert_eq!(of("#\na,b\n1\n2\n"), 0);
        assert_eq!(of(&("\n".repeat(40) + "a,b\n")), 0);
    }

    #[test]
    fn titles_have_a_table_below() {
        assert_eq!(of("Report\na,b,c\n1,2,3\n1,2,3\n1,2,3\n"), 1);
        assert_eq!(of("Report\n\na,b,c\n1,2,3\n1,2,3\n1,2,3\n"), 2);
        assert_eq!(of("Report\na,b,c\n1,2,3\n1,2,3\n"), 0);
        assert_eq!(of("Report\na,b\n1,2\n1,2\n1,2\n"), 0);
        assert_eq!(of("Report\na,b,c\n1,2,3\n1,2\n1,2,3\n"), 0);
        assert_eq!(of("\"Report\nof\"\na,b,c\n1,2,3\n1,2,3\n1,2,3\n"), 0);
    }

    #[test]
    fn comments_are_lines() {
        assert_eq!(comments(b"#a\n\n b,c\n"), 4);
        assert_eq!(comments(b"#a\r\n\r\nb\r\n"), 6);
        assert_eq!(comments(b"#a\rb\r"), 3);
        assert_eq!(comments(b"#a\n#b\n"), 0);
        assert_eq!(comments(b"#a"), 0);
        assert_eq!(comments(b"a\n#b\n"), 0);
    }
}
