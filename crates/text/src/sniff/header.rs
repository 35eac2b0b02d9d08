//! Detects whether the first record is a header.
//!
//! A header that is loaded as data makes every column text, which the user sees. Data that are skipped as a header are
//! a lost row. So a header needs evidence:
//!
//! - The values of one column are all in the form of some type, except the first one, which could be a name. In no
//!   column is the first value of the same type as the others.
//! - If all columns are text: the first record has common column names, or names with an underscore that no value below
//!   them has.
//!
//! A single record is data. But names above rows of empty fields only are a header. Records with another number of
//! fields than the first one are examined only if there are no others.

use super::shape::{Types, ValueShape};
use super::{MOST_FIELDS, each_record};
use crate::dialect::Dialect;
use crate::record::Value;

/// The most records to examine.
const MOST_RECORDS: usize = 2000;

/// Common names of columns.
const COMMON: &[&str] = &[
    "id",
    "name",
    "date",
    "time",
    "code",
    "key",
    "value",
    "type",
    "status",
    "state",
    "city",
    "country",
    "address",
    "street",
    "zip",
    "phone",
    "email",
    "mail",
    "title",
    "description",
    "comment",
    "text",
    "label",
    "category",
    "amount",
    "price",
    "count",
    "total",
    "user",
    "username",
    "url",
    "uuid",
    "lang",
    "language",
    "currency",
    "note",
    "notes",
    "timestamp",
    "year",
    "month",
    "day",
    "first name",
    "last name",
    "lastname",
    "firstname",
];

/// Words for a missing value. They are not names.
const MISSING: &[&str] = &["na", "n/a", "n.a.", "null", "none", "nil", "unknown", "missing", "-", "?"];

/// The evidence for a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// The values of this column are of a type that the first one is not of.
    Column(usize),
    /// The first record has common column names.
    Words,
    /// No evidence.
    None,
}

/// Values of a record.
type Fields = Vec<Option<Vec<u8>>>;

/// Returns the values of a record; `None` for NULL.
#[must_use]
pub fn fields(reader: &crate::reader::Reader) -> Fields {
    (0..reader.fields().min(MOST_FIELDS))
        .map(|field| match reader.value(field) {
            Value::Null | Value::Default => None,
            Value::Plain(value) => Some(value.to_vec()),
            Value::Escaped(raw) => {
                let mut value = Vec::new();
                reader.unescape(raw, &mut value);
                Some(value)
            }
        })
        .collect()
}

/// The values of a column below the first record.
#[derive(Clone, Copy)]
struct Below {
    types: Types,
    values: usize,
    /// They include the first record's value.
    repeats: bool,
    /// Some have an underscore.
    underscores: bool,
}

/// Examines the first records of a file, behind `ahead` records in front of its table.
#[must_use]
pub fn header(sample: &[u8], whole: bool, dialect: &Dialect, ahead: usize) -> Header {
    match look(sample, whole, dialect, ahead, |width, first| width == first) {
        // A single field is rarely a row of a table with several columns.
        None => look(sample, whole, dialect, ahead, |width, first| width != first && width > 1).unwrap_or(Header::None),
        Some(found) => found,
    }
}

/// Examines the records whose number of fields, compared with the first one's, passes `is_good`. `None` if there are
/// none.
fn look(
    sample: &[u8],
    whole: bool,
    dialect: &Dialect,
    ahead: usize,
    is_good: impl Fn(usize, usize) -> bool,
) -> Option<Header> {
    let mut first: Option<Fields> = None;
    let mut below: Vec<Below> = Vec::new();
    let (mut records, mut passed) = (0, 0);
    let _ = each_record(sample, whole, dialect, |reader, width| {
        if passed < ahead {
            passed += 1;
            return true;
        }
        let Some(first) = &first else {
            let names = fields(reader);
            below = vec![Below { types: Types::ALL, values: 0, repeats: false, underscores: false }; names.len()];
            first = Some(names);
            return true;
        };
        if !is_good(width, below.len()) {
            return true;
        }
        for ((value, name), column) in fields(reader).iter().zip(first).zip(&mut below) {
            let Some(value) = value.as_ref().filter(|value| !value.is_empty()) else { continue };
            column.types = column.types.and(ValueShape::of(value).types);
            column.values += 1;
            column.repeats |= name.as_ref() == Some(value);
            column.underscores |= memchr::memchr(b'_', value).is_some();
        }
        records += 1;
        records < MOST_RECORDS
    });
    first.filter(|_| records > 0).map(|first| decide(&first, &below))
}

/// Decides whether a record is a header, given the values below it.
fn decide(first: &Fields, below: &[Below]) -> Header {
    let mut evidence = None;
    for (i, (name, column)) in first.iter().zip(below).enumerate() {
        let types = name.as_ref().map_or(Types::NONE, |name| ValueShape::of(name).types);
        if column.values == 0 || column.types.is_empty() {
            continue;
        }
        // A word for a missing value, or an amount with its currency, is a value like those below, but not of their
        // type.
        let could_be_name = name.as_ref().is_some_and(|name| {
            let name = name.trim_ascii();
            is_name(name) && !is_currency(name) && !is_one_of(MISSING, name)
        });
        if !column.types.and(types).is_empty() {
            return Header::None;
        }
        if could_be_name && types.is_empty() {
            evidence = evidence.or(Some(i));
        }
    }
    let mut names: Vec<&[u8]> = first.iter().flatten().map(|name| name.trim_ascii()).collect();
    let count = names.len();
    let all_named = count == first.len() && names.iter().all(|name| is_name(name));
    names.sort_unstable();
    names.dedup();
    let unique = names.len() == count;
    // A word for a missing value may be in several columns.
    let is_alone = |column: usize| {
        let name = first.get(column).and_then(Option::as_ref);
        first.iter().filter(|other| other.as_ref() == name).count() == 1
    };
    match evidence {
        Some(column) if unique || count > 3 || is_alone(column) => Header::Column(column),
        Some(_) => Header::None,
        None => {
            let repeats = below.iter().any(|column| column.repeats);
            let is_known = |(name, column): (&Option<Vec<u8>>, &Below)| {
                let Some(name) = name else { return false };
                (memchr::memchr(b'_', name).is_some() && !column.underscores) || is_one_of(COMMON, name.trim_ascii())
            };
            let is_bare = below.iter().all(|column| column.values == 0);
            let typed = below.iter().any(|column| column.values > 0 && !column.types.is_empty());
            let is_header = first.iter().zip(below).any(is_known) || (is_bare && count > 1);
            if all_named && unique && !repeats && !typed && is_header { Header::Words } else { Header::None }
        }
    }
}

fn is_one_of(words: &[&str], name: &[u8]) -> bool {
    words.iter().any(|word| name.eq_ignore_ascii_case(word.as_bytes()))
}

/// Whether a value begins with a currency sign beyond ASCII, in UTF-8 or in a single-byte encoding.
fn is_currency(name: &[u8]) -> bool {
    match name {
        [0xc2, 0xa2..=0xa5, ..] | [0xe2, 0x82, 0xa0..=0xbf, ..] | [0xe2, 0x83, 0x80..=0x8f, ..] => true,
        // In a multibyte encoding, the next byte would not be ASCII.
        [0x80 | 0xa2..=0xa5] => true,
        [0x80 | 0xa2..=0xa5, next, ..] => next.is_ascii(),
        _ => false,
    }
}

/// Whether a value consists of letters, digits and other characters of names, and begins with a letter.
fn is_name(name: &[u8]) -> bool {
    let is_letter = |b: &u8| b.is_ascii_alphabetic() || *b == b'_' || *b >= 0x80;
    name.len() <= 63
        && name.first().is_some_and(is_letter)
        && name
            .iter()
            .all(|b| is_letter(b) || b.is_ascii_digit() || matches!(b, b' ' | b'-' | b'.' | b'(' | b')' | b'#'))
}

/// Names that columns cannot have (SystemAttributeByName).
const SYSTEM: [&[u8]; 6] = [b"ctid", b"xmin", b"cmin", b"xmax", b"cmax", b"tableoid"];

/// Returns a distinct name for each of `columns` columns: the header's name without blanks around it, or else one made
/// of the column's number. `clip` returns how many bytes of a name to keep if it must not be longer than a limit.
pub fn names(
    header: Option<&[Option<Vec<u8>>]>,
    columns: usize,
    longest: usize,
    clip: impl Fn(&[u8], usize) -> usize,
) -> Vec<Vec<u8>> {
    let mut known: std::collections::HashSet<Vec<u8>> = SYSTEM.iter().map(|name| name.to_vec()).collect();
    let mut names = Vec::with_capacity(columns);
    for column in 0..columns {
        let given = header.and_then(|header| header.get(column)?.as_deref()).unwrap_or_default();
        let given = given.trim_ascii();
        let mut name = if given.is_empty() {
            format!("column_{}", column + 1).into_bytes()
        } else {
            given.get(..clip(given, longest)).unwrap_or(given).to_vec()
        };
        let mut number = 2;
        let stem = name.clone();
        while known.contains(&name) {
            let suffix = format!("_{number}");
            let kept = clip(&stem, longest.saturating_sub(suffix.len()));
            name = [stem.get(..kept).unwrap_or(&stem), suffix.as_bytes()].concat();
            number += 1;
        }
        known.insert(name.clone());
        names.push(name);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::{EndMarker, FormatOptions};

    fn of(sample: &str) -> Header {
        let options = FormatOptions { csv: true, ..FormatOptions::default() };
        let dialect = Dialect::check(&options, EndMarker::Until17).unwrap();
        header(sample.as_bytes(), true, &dialect, 0)
    }

    #[test]
    fn headers_need_evidence() {
        assert_eq!(of("id,name\n1,x\n2,y\n"), Header::Column(0));
        assert_eq!(of("1,x\n2,y\n"), Header::None);
        assert_eq!(of("x,1\ny,2\n"), Header::None);
        assert_eq!(of(",a\n0,1\n1,2\n"), Header::Column(1));
        assert_eq!(of("name,city\nBob,Paris\nAl,Rome\n"), Header::Words);
        assert_eq!(of("Bob,Paris\nAl,Rome\n"), Header::None);
        assert_eq!(of("name,city\nname,city\n"), Header::None);
        assert_eq!(of("NA,5\n1,6\n2,7\n"), Header::None);
        assert_eq!(of("a,b\n"), Header::None);
        assert_eq!(of(""), Header::None);
        assert_eq!(of("id\nx\n"), Header::Words);
        assert_eq!(of("when,ok\n2024-01-01,t\n"), Header::Column(0));
    }

    #[test]
    fn underscores_are_of_names_and_of_values() {
        assert_eq!(of("user_id,x\na,b\n"), Header::Words);
        assert_eq!(of("user_id,x\na,b_c\n"), Header::Words);
        assert_eq!(of("user_a,x\nuser_b,y\n"), Header::None);
        assert_eq!(of("user_a,x\nuser_b,y\nc,z\n"), Header::None);
    }

    #[test]
    fn records_of_other_widths_are_better_than_none() {
        assert_eq!(of("id,name,age\n1,x\n2,y,z,5\n"), Header::Column(0));
        assert_eq!(of("id,name,age\n\n"), Header::None);
        assert_eq!(of("id,name,age\n,\n"), Header::Words);
        assert_eq!(of("x,y,z\n1,2,3\na\n"), Header::Column(0));
        assert_eq!(of("x,y,z\na\n1\n"), Header::None);
        assert_eq!(of("5,y,z\n6\n7\n"), Header::None);
    }

    #[test]
    fn names_may_be_equal_but_for_the_one_that_decides() {
        assert_eq!(of("id,x,x\n1,a,b\n"), Header::Column(0));
        assert_eq!(of("x,x\n1,2\n"), Header::None);
        assert_eq!(of("x,x,y\n1,2,a\n"), Header::None);
    }

    #[test]
    fn nothing_but_empty_fields_is_below_names() {
        assert_eq!(of("a,b\n,\n,\n"), Header::Words);
        assert_eq!(of("a,5\n,\n"), Header::None);
        assert_eq!(of("a,\n,\n"), Header::None);
        assert_eq!(of("a\n\n"), Header::None);
    }

    #[test]
    fn what_is_in_front_is_passed_over() {
        let options = FormatOptions { csv: true, ..FormatOptions::default() };
        let dialect = Dialect::check(&options, EndMarker::Until17).unwrap();
        assert_eq!(header(b"# x\nn,m\n1,2\n", true, &dialect, 1), Header::Column(0));
        assert_eq!(header(b"# x\nn,m\n", true, &dialect, 1), Header::None);
        assert_eq!(header(b"# x\n", true, &dialect, 1), Header::None);
    }

    #[test]
    fn one_record_is_data() {
        for one in ["user_id,x\n", "id\n", "id,name\n", "id,name", "name,1\n"] {
            assert_eq!(of(one), Header::None, "{one}");
        }
    }

    #[test]
    fn only_names_are_evidence() {
        let missing = ["NA", "n/a", "N.A.", "NULL", "none", "nil", "Unknown", " missing ", "-", "?"];
        let values = ["$5", "€5.00", "£ 5", "+5", "-5x", "5 kg", "007", "(5)", "#", "1,5"];
        for first in missing.into_iter().chain(values) {
            assert_eq!(of(&format!("\"{first}\"\n6\n7\n")), Header::None, "{first}");
            assert_eq!(of(&format!("x,\"{first}\"\ny,6\nz,7\n")), Header::None, "{first}");
        }
        for first in ["n", "name", "_5", "größe", "price (net)"] {
            assert_eq!(of(&format!("x,\"{first}\"\ny,6\nz,7\n")), Header::Column(1), "{first}");
        }
    }

    #[test]
    fn names_are_different() {
        let header: Vec<_> =
            ["a", "a", "", "ctid", "a_2", " b ", "long name"].iter().map(|n| Some(n.as_bytes().to_vec())).collect();
        let names = names(Some(&header), 8, 5, |name, most| name.len().min(most));
        let names: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        assert_eq!(names, ["a", "a_2", "column_3", "cti_2", "a_2_2", "b", "long ", "column_8"]);
    }
}
