//! Finds the start of a record in the middle of a file.
//!
//! A line end there may be inside quotes, which only all bytes before it could show. But if it were, all that follows
//! would be text of a value, and would hardly look like records. So a line end is accepted only if all bytes behind it
//! look like records: each record has as many fields as those at the start of the file, more than one, and each quote
//! is at a valid position. A file of one column passes only if it has no quotes. In text, a line end counts unless a
//! backslash precedes it.
//!
//! If the guess is wrong, the sample contains values that are not in the file.

use super::{each_record, has_its_quotes, raw_fields};
use crate::dialect::{Dialect, Eol, Format};

/// The most line ends to try.
const MOST_TRIED: usize = 8;
/// The fewest records that must look right.
const FEWEST: usize = 2;

/// Returns the offset of the first record in `bytes`, which are from the middle of a file whose records have `width`
/// fields.
#[must_use]
pub fn first_record(bytes: &[u8], dialect: &Dialect, eol: Eol, width: usize) -> Option<usize> {
    let no_quotes = !dialect.is_csv() || memchr::memchr(dialect.quote, bytes).is_none();
    if width < 2 && !no_quotes {
        return None;
    }
    let ends = memchr::memchr2_iter(b'\n', b'\r', bytes).filter_map(|at| Some((at, eol.behind(bytes, at)?)));
    for (at, start) in ends.take(MOST_TRIED) {
        let before = bytes.get(..at).unwrap_or_default();
        if dialect.format == Format::Text {
            let backslashes = before.iter().rev().take_while(|&&b| b == b'\\').count();
            if backslashes == before.len() || backslashes % 2 == 1 {
                continue;
            }
        }
        let (mut records, mut fits) = (0, true);
        let read = each_record(bytes.get(start..).unwrap_or_default(), false, dialect, |reader, fields| {
            records += 1;
            fits = fields == width
                && (!dialect.is_csv() || raw_fields(reader.record(), fields).all(|raw| has_its_quotes(raw, dialect)));
            fits
        });
        if fits && !read.failed && records >= FEWEST && read.unread < bytes.len() / 2 {
            return Some(start);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::{EndMarker, FormatOptions};

    fn start(bytes: &str, csv: bool, width: usize) -> Option<usize> {
        let options = FormatOptions { csv, ..FormatOptions::default() };
        let dialect = Dialect::check(&options, EndMarker::Until17).unwrap();
        first_record(bytes.as_bytes(), &dialect, Eol::Nl, width)
    }

    #[test]
    fn records_are_found() {
        assert_eq!(start("x,y\n1,2\n3,4\n5,", true, 2), Some(4));
        assert_eq!(start("x\ty\n1\t2\n3\t4\n5", false, 2), Some(4));
        assert_eq!(start("x\\\ny\tz\n1\t2\n3\t4\n", false, 2), Some(7));
        // The first line end is inside quotes.
        assert_eq!(start("a\nb\",1\n\"c\",2\n\"d\",3\n\"e\",4\n", true, 2), Some(7));
        // Records inside a value, with doubled quotes.
        assert_eq!(start("a,b\n\"\"c\"\",\"\"d\"\"\n\"\"e\"\",\"\"f\"\"\n\"\"g\"\",\"\"h\"\"\n", true, 2), None);
        assert_eq!(start("1,2\n1,2,3\n1,2\n1,2,3\n1,2\n1,2,3\n1,2\n1,2,3\n1,2\n1,2,3\n", true, 2), None);
        assert_eq!(start("a\n\"b\"\n\"c\"\n", true, 1), None);
        assert_eq!(start("a\nb\nc\nd\n", true, 1), Some(2));
    }
}
