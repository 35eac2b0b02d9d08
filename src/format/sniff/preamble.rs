//! Records in front of a table: blank lines, comments, a title.
//!
//! Such a record has one field, and the table behind it has more, so a load that does not pass over it fails there. What is passed over
//! by mistake is a row that nobody misses; so it must be blank, or begin with `#`, or have a table of at least three columns below it,
//! of which nearly each row is whole. A record of the table itself that has lost its other fields is not told from a title when it is the first one.

use super::each_record;
use crate::dialect::Dialect;

/// Records in front of a table, at most.
const MOST: usize = 32;
/// Records of the table that are looked at.
const MOST_RECORDS: usize = 1000;
/// Rows below a title, at least.
const FEWEST: usize = 3;

/// The length of the blank lines and comments that a sample begins with. 0 if there is nothing else.
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

/// May so many records of one field each be titles? Nearly all of the others, and of them enough, have `width` fields.
#[must_use]
pub fn may_be_titles(ahead: usize, width: usize, agreeing: usize, others: usize) -> bool {
    ahead <= MOST && width > 2 && agreeing > FEWEST && agreeing * 20 >= others * 19
}

/// How many records are in front of the table that a file is, each of them a line.
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
