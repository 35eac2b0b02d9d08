//! Detects the dialect of a file: reads a sample with each candidate and takes the one whose records agree most.
//!
//! Explicit options override detection. For the others, the sample is read in each combination, with the reader of
//! loads. A dialect is good if nearly all records have the same number of fields, more than one. Among equally good
//! dialects, the delimiter that is least likely to be in values by chance wins, and then the number of fields.
//!
//! Two kinds of files look like records but have one column only: lines that are a single value (`10:00:00`), and lines
//! of JSON, whose quotes and commas belong to JSON. Lines of JSON are read with a quote and a delimiter that do not
//! occur in them.

use super::preamble::{comments, may_be_titles};
use super::shape::{Type, Types, ValueShape};
use super::{each_record, is_quoted, raw_fields};
use crate::dialect::{Dialect, EndMarker, Format, LineContent};
use crate::separator::Separator;

/// The options that are given explicitly.
#[derive(Debug, Clone)]
pub struct GivenOptions {
    /// Text or CSV.
    pub format: Option<Format>,
    /// The field delimiter.
    pub delimiter: Option<u8>,
    /// The quote.
    pub quote: Option<u8>,
    /// The escape.
    pub escape: Option<u8>,
    /// The NULL marker.
    pub null: Option<Vec<u8>>,
    /// The meaning of `\.`.
    pub end_marker: EndMarker,
}

/// The most bytes of the sample to try.
const MOST_BYTES: usize = 256 * 1024;
/// The most records of the sample to try.
const MOST_RECORDS: u64 = 5000;
/// The most lines to test as single values.
const MOST_LINES: usize = 200;
/// Delimiters and the weight of a field with each. The first one wins if all else is equal.
const DELIMITERS: [(u8, usize); 5] = [(b'\t', 4), (b';', 3), (b'|', 3), (b',', 2), (b':', 1)];
/// A character used as the quote to mean that there is no quote.
const NO_QUOTE: u8 = 1;
/// A character used as the delimiter to mean that there is no delimiter.
const NO_DELIMITER: u8 = 2;
/// A candidate must have at least this fraction of records that agree.
const LEAST_AGREEMENT: f64 = 0.7;

/// The result of trying one candidate.
#[derive(Debug, Clone)]
struct Trial {
    dialect: Dialect,
    /// Number of fields of most records.
    width: usize,
    /// Fraction of records with `width` fields; reduced if part of the sample could not be read.
    agreement: f64,
    /// Number of quoted fields.
    quoted: u64,
    /// Number of fields with quotes, but none at the start.
    inner: u64,
    /// Number of fields that begin with a quote after blanks.
    outer: u64,
    /// Number of fields that are `\N`.
    nulls: u64,
    failed: bool,
}

impl Trial {
    fn of(sample: &[u8], whole: bool, dialect: Dialect) -> Trial {
        let (mut widths, mut records, mut quoted, mut nulls) = (Vec::<(usize, u64)>::new(), 0u64, 0, 0);
        let (mut inner, mut outer, mut ahead) = (0, 0, 0);
        let read = each_record(sample, whole, &dialect, |reader, fields| {
            match widths.iter_mut().find(|(width, _)| *width == fields) {
                Some((_, count)) => *count += 1,
                None => widths.push((fields, 1)),
            }
            for raw in raw_fields(reader.record(), fields) {
                quoted += u64::from(dialect.is_csv() && is_quoted(raw, &dialect));
                if dialect.is_csv() && memchr::memchr(dialect.quote, raw).is_some() {
                    let begins = raw.trim_ascii_start().first() == Some(&dialect.quote);
                    (inner, outer) = (inner + u64::from(!begins), outer + u64::from(begins));
                }
                nulls += u64::from(raw == b"\\N");
            }
            ahead += usize::from(fields == 1 && records == ahead as u64);
            records += 1;
            records < MOST_RECORDS
        });
        // Of equally frequent widths, the largest: a title above two records has one field.
        let (width, count) = widths.into_iter().max_by_key(|&(width, count)| (count, width)).unwrap_or((0, 0));
        // Titles do not count as records.
        let others = records - ahead as u64;
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let records = if may_be_titles(ahead, width, size(count), size(others)) { others } else { records };
        let share = count as f64 / records.max(1) as f64;
        // The sample may cut the last record, but that record is not longer than half the sample.
        let is_lost = read.failed || read.unread > sample.len() / 2;
        let read_share = (sample.len() - read.unread) as f64 / sample.len().max(1) as f64;
        let agreement = if is_lost { share * read_share * 0.9 } else { share };
        Trial { dialect, width, agreement, quoted, inner, outer, nulls, failed: is_lost }
    }

    /// Rank of the candidate; the greatest one wins.
    fn rank(&self, weight: usize) -> (u64, usize) {
        ((self.agreement * 200.0) as u64, self.width * weight)
    }
}

/// Detects the dialect of a file that begins with `sample`. `whole`: the sample is the whole file.
#[must_use]
pub fn dialect(sample: &[u8], whole: bool, given: &GivenOptions) -> Dialect {
    let cut = sample.len() > MOST_BYTES;
    let sample = sample.get(..MOST_BYTES).unwrap_or(sample);
    let sample = sample.strip_prefix(b"\xef\xbb\xbf").unwrap_or(sample);
    let whole = whole && !cut;
    let sample = sample.get(comments(sample)..).unwrap_or(sample);
    if given.delimiter.is_none() && given.format != Some(Format::Text) {
        let types = types_of_lines(sample, whole);
        let is_json = types.has(Type::Json) && given.quote.is_none();
        let is_free = |byte: u8| memchr::memchr(byte, sample).is_none();
        if is_json && is_free(NO_QUOTE) && is_free(NO_DELIMITER) {
            return csv(given, NO_DELIMITER, NO_QUOTE, given.escape.unwrap_or(NO_QUOTE));
        }
        if !types.is_empty() && !is_json {
            return best_csv(sample, whole, given, b',').dialect;
        }
    }
    let mut best: Option<(Trial, usize)> = None;
    for (delimiter, weight) in DELIMITERS {
        if given.delimiter.is_some_and(|given| given != delimiter) || given.quote == Some(delimiter) {
            continue;
        }
        let trial = best_of(sample, whole, given, delimiter);
        let passes = given.delimiter.is_some()
            || (trial.width > 1
                && trial.agreement >= LEAST_AGREEMENT
                && (delimiter != b':' || is_table(&trial, sample)));
        if passes && best.as_ref().is_none_or(|(best, than)| trial.rank(weight) > best.rank(*than)) {
            // Colons occur in values of many types.
            if delimiter == b':' && best.is_some() {
                continue;
            }
            best = Some((trial, weight));
        }
    }
    match best {
        Some((trial, _)) => trial.dialect,
        None => {
            let usual = if given.format == Some(Format::Text) { b'\t' } else { b',' };
            let usual = if given.quote == Some(usual) { b';' } else { usual };
            best_of(sample, whole, given, given.delimiter.unwrap_or(usual)).dialect
        }
    }
}

/// Whether a colon is the delimiter: at least three fields, and all records agree.
fn is_table(trial: &Trial, sample: &[u8]) -> bool {
    trial.width > 2 && trial.agreement > 0.999 && memchr::memchr_iter(b'\n', sample).take(2).count() == 2
}

fn csv(given: &GivenOptions, delimiter: u8, quote: u8, escape: u8) -> Dialect {
    Dialect {
        format: Format::Csv,
        delimiter,
        separator: Separator::byte(delimiter),
        trailing: false,
        quote,
        escape,
        null: given.null.clone().unwrap_or_default(),
        default: None,
        end_marker: given.end_marker,
        record_length: None,
        content: LineContent::Bytes,
        skip_blank_lines: false,
        comment: Vec::new(),
        lenient_quotes: false,
        line_end: None,
    }
}

/// Tries the dialects with this delimiter and returns the best.
fn best_of(sample: &[u8], whole: bool, given: &GivenOptions, delimiter: u8) -> Trial {
    let text = || {
        let null = given.null.clone().unwrap_or_else(|| b"\\N".to_vec());
        let format = Format::Text;
        let dialect = Dialect { format, null, quote: b'"', escape: b'"', ..csv(given, delimiter, b'"', b'"') };
        Trial::of(sample, whole, dialect)
    };
    if given.format == Some(Format::Text) {
        return text();
    }
    let csv = best_csv(sample, whole, given, delimiter);
    // Quotes and escapes are options of CSV.
    let may_be_text = given.format.is_none()
        && given.quote.is_none()
        && given.escape.is_none()
        && !crate::dialect::is_unsafe_in_text(delimiter)
        && delimiter != b':'
        && delimiter != b',';
    if !may_be_text {
        return csv;
    }
    let text = text();
    let has_escapes = memchr::memchr(b'\\', sample).is_some() && csv.quoted == 0;
    let says_null = text.nulls > 0 && given.null.is_none();
    let is_better = text.agreement > csv.agreement && csv.failed;
    if text.width > 1
        && text.agreement >= csv.agreement
        && (says_null || is_better || (has_escapes && delimiter == b'\t'))
    {
        text
    } else {
        csv
    }
}

/// Tries CSV with this delimiter, with each quote and without, and returns the best.
fn best_csv(sample: &[u8], whole: bool, given: &GivenOptions, delimiter: u8) -> Trial {
    let trial = |quote: u8, escape: u8| Trial::of(sample, whole, csv(given, delimiter, quote, escape));
    let with = |quote: u8| {
        let usual = trial(quote, given.escape.unwrap_or(quote));
        if given.escape.is_none() && memchr::memmem::find(sample, &[b'\\', quote]).is_some() {
            let other = trial(quote, b'\\');
            if other.agreement > usual.agreement {
                return other;
            }
        }
        usual
    };
    if let Some(quote) = given.quote {
        return with(quote);
    }
    let mut best = with(b'"');
    if best.quoted == 0 && delimiter != b'\'' && memchr::memchr(b'\'', sample).is_some() {
        let other = with(b'\'');
        if other.quoted > 0 && other.agreement >= best.agreement {
            best = other;
        }
    }
    // An unpaired quote is data. So is one that occurs only within values, where it would be lost.
    let within = best.inner > 0 && best.outer == 0;
    if (best.agreement < 0.99 || within) && memchr::memchr(NO_QUOTE, sample).is_none() && given.escape.is_none() {
        let other = trial(NO_QUOTE, NO_QUOTE);
        let is_as_good = within && other.width == best.width && other.agreement >= best.agreement;
        if is_as_good || (best.failed && other.agreement > best.agreement) {
            best = other;
        }
    }
    best
}

/// Returns the types of all lines but the first one, which may be a header.
fn types_of_lines(sample: &[u8], whole: bool) -> Types {
    let end = if memchr::memchr(b'\n', sample).is_some() { b'\n' } else { b'\r' };
    let mut lines: Vec<&[u8]> = sample.split(|&b| b == end).take(MOST_LINES).collect();
    let is_cut = lines.len() < MOST_LINES && !whole;
    if is_cut || lines.last().is_some_and(|line| line.is_empty()) {
        lines.pop();
    }
    let shape = |line: &[u8]| ValueShape::of(line.strip_suffix(b"\r").unwrap_or(line)).types;
    let first = lines.first().map_or(Types::NONE, |line| shape(line));
    let is_alone = lines.len() == 1;
    let others = lines.iter().skip(1).filter(|line| !line.trim_ascii().is_empty());
    let types = others.fold(Types::ALL, |types, line| types.and(shape(line)));
    match () {
        () if is_alone => first,
        // Lines of JSON have no header.
        () if types.has(Type::Json) && !first.has(Type::Json) => Types::NONE,
        // All lines are blank.
        () if types == Types::ALL => Types::NONE,
        () => types,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given() -> GivenOptions {
        GivenOptions {
            format: None,
            delimiter: None,
            quote: None,
            escape: None,
            null: None,
            end_marker: EndMarker::Until17,
        }
    }

    fn of(sample: &str) -> String {
        let d = dialect(sample.as_bytes(), true, &given());
        let format = if d.is_csv() { "csv" } else { "text" };
        let quote = if d.is_csv() { format!(" {:?} {:?}", d.quote as char, d.escape as char) } else { String::new() };
        format!("{format} {:?}{quote}", d.delimiter as char)
    }

    #[test]
    fn dialects_are_detected() {
        let cases = [
            ("a,b\n1,2\n", "csv ',' '\"' '\"'"),
            ("a;b\n1,5;2,5\n", "csv ';' '\"' '\"'"),
            ("1,5;2,5\n1,5;2,5\n", "csv ';' '\"' '\"'"),
            ("a|b\n1|2\n", "csv '|' '\"' '\"'"),
            ("a\tb\n1\t2\n", "csv '\\t' '\"' '\"'"),
            ("a\t\\N\n1\t2\n", "text '\\t'"),
            ("a\tC:\\\\x\n1\t2\n", "text '\\t'"),
            ("a|\\N\n1|2\n", "text '|'"),
            ("a\t5\"\n1\t2\n3\t4\n", "csv '\\t' '\\u{1}' '\\u{1}'"),
            ("'a,b',c\n'd',e\n", "csv ',' '\\'' '\\''"),
            ("a,it's\nb,it's\n", "csv ',' '\"' '\"'"),
            ("a,[\"x\"]\nb,\n", "csv ',' '\\u{1}' '\\u{1}'"),
            ("a,5\"\nb,6\"\n", "csv ',' '\\u{1}' '\\u{1}'"),
            ("a, \"x\"\nb, \"y\"\n", "csv ',' '\"' '\"'"),
            ("a,x\"1,2\"\nb,x\n", "csv ',' '\"' '\"'"),
            ("# a\n\na;b\n1;2\n", "csv ';' '\"' '\"'"),
            ("Report\n\nof today\na;b;c\n1;2;3\n1;2;3\n1;2;3\n", "csv ';' '\"' '\"'"),
            ("one\ntwo\nthree\na;b\n1;2\n1;2\n1;2\n", "csv ',' '\"' '\"'"),
            ("#a;b\n1;2\n", "csv ';' '\"' '\"'"),
            ("\"a\\\"b,c\",d\ne,f\n", "csv ',' '\"' '\\\\'"),
            ("\"C:\\\",d\ne,f\n", "csv ',' '\"' '\"'"),
            ("\"a\nb\",1\n\"c\",2\n", "csv ',' '\"' '\"'"),
            ("root:x:0:0\nbin:x:1:1\nme:x:2:2\n", "csv ':' '\"' '\"'"),
            ("10:00:00\n11:00:00\n", "csv ',' '\"' '\"'"),
            ("2024-01-01 10:00:00\n2024-01-01 11:00:00\n", "csv ',' '\"' '\"'"),
            ("{\"a\": 1, \"b\": 2}\n{\"a\": 1, \"b\": 2}\n", "csv '\\u{2}' '\\u{1}' '\\u{1}'"),
            ("one\ntwo\n", "csv ',' '\"' '\"'"),
            ("", "csv ',' '\"' '\"'"),
            ("a,b\r1,2\r", "csv ',' '\"' '\"'"),
            ("\u{feff}a;b\r\n1;2\r\n", "csv ';' '\"' '\"'"),
            ("a,b\n1,2\n1,2,3\n1,2\n1,2\n1,2\n", "csv ',' '\"' '\"'"),
        ];
        for (sample, expected) in cases {
            assert_eq!(of(sample), expected, "{sample:?}");
        }
    }

    #[test]
    fn what_is_given_stays() {
        let colon = GivenOptions { delimiter: Some(b':'), ..given() };
        assert_eq!(dialect(b"a:b\n1:2\n", true, &colon).delimiter, b':');
        assert_eq!(dialect(b"a,b\n1,2\n", true, &colon).delimiter, b':');
        let other = GivenOptions { delimiter: Some(b'^'), ..given() };
        assert_eq!(dialect(b"a^b\n1^2\n", true, &other).delimiter, b'^');
        let text = GivenOptions { format: Some(Format::Text), ..given() };
        assert_eq!(dialect(b"a,b\n1,2\n", true, &text).delimiter, b',');
        assert!(!dialect(b"a,b\n1,2\n", true, &text).is_csv());
        let null = GivenOptions { null: Some(b"NA".to_vec()), ..given() };
        assert_eq!(dialect(b"a,b\n1,NA\n", true, &null).null, b"NA");
        // Also without quoted fields.
        let escape = GivenOptions { escape: Some(b'\\'), ..given() };
        assert_eq!(dialect(b"a,b\n1,2\n", true, &escape).escape, b'\\');
        assert_eq!(dialect(b"{\"a\": 1}\n{\"a\": 2}\n", true, &escape).escape, b'\\');
    }

    #[test]
    fn a_quote_that_is_never_closed_is_none() {
        let sample = "a,b\n".repeat(100) + "\"a,b\n" + &"a,b\n".repeat(1000);
        assert_eq!(dialect(sample.as_bytes(), true, &given()).quote, NO_QUOTE);
    }
}
