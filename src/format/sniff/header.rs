//! Is the first record a header?
//!
//! A header that is taken for data makes every column text, and is there to be seen. Data that are taken for a header are a
//! row that is missing. So there must be evidence: a column whose values are all written like a type's, but for the first
//! one, and none whose first value is like the others. Where all columns are text, names that are commonly columns'.

use super::shape::{Shape, Types};
use super::{MOST_FIELDS, each_record};
use crate::dialect::Dialect;
use crate::record::Value;

/// Records that are looked at.
const MOST_RECORDS: usize = 2000;

/// Words that columns are called by.
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

/// What speaks for a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// Values of this column are of some type below the first one.
    Column(usize),
    /// The first record has words that columns are called by.
    Words,
    /// Nothing does.
    None,
}

/// Values of a record.
type Fields = Vec<Option<Vec<u8>>>;

/// The values of a record; None for NULL.
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

/// What is known of a column below the first record.
#[derive(Clone, Copy)]
struct Below {
    types: Types,
    values: usize,
    /// The first record's value is among them.
    repeats: bool,
}

/// Look at the first records of a file.
#[must_use]
pub fn header(sample: &[u8], whole: bool, dialect: &Dialect) -> Header {
    let mut first: Option<Fields> = None;
    let mut below: Vec<Below> = Vec::new();
    let mut records = 0;
    let _ = each_record(sample, whole, dialect, |reader, width| {
        let Some(first) = &first else {
            let names = fields(reader);
            below = vec![Below { types: Types::ALL, values: 0, repeats: false }; names.len()];
            first = Some(names);
            return true;
        };
        if width != below.len() {
            return true;
        }
        for ((value, name), column) in fields(reader).iter().zip(first).zip(&mut below) {
            let Some(value) = value.as_ref().filter(|value| !value.is_empty()) else { continue };
            column.types = column.types.and(Shape::of(value).types);
            column.values += 1;
            column.repeats |= name.as_ref() == Some(value);
        }
        records += 1;
        records < MOST_RECORDS
    });
    let Some(first) = first else { return Header::None };
    judge(&first, &below)
}

fn judge(first: &Fields, below: &[Below]) -> Header {
    let mut evidence = None;
    for (i, (name, column)) in first.iter().zip(below).enumerate() {
        let types = name.as_ref().map_or(Types::NONE, |name| Shape::of(name).types);
        if column.values == 0 || column.types.is_empty() {
            continue;
        }
        let is_missing = name.as_ref().is_none_or(Vec::is_empty);
        if !column.types.and(types).is_empty() {
            return Header::None;
        }
        if !is_missing && types.is_empty() {
            evidence = evidence.or(Some(i));
        }
    }
    let mut names: Vec<&[u8]> = first.iter().flatten().map(|name| name.trim_ascii()).collect();
    let count = names.len();
    let all_named = count == first.len() && names.iter().all(|name| is_name(name));
    names.sort_unstable();
    names.dedup();
    let unique = names.len() == count;
    match evidence {
        // A value that stands for nothing (`NA`) is no name.
        Some(column) if unique || count > 3 => Header::Column(column),
        Some(_) => Header::None,
        None => {
            let repeats = below.iter().any(|column| column.repeats);
            let is_known = |name: &&[u8]| {
                memchr::memchr(b'_', name).is_some()
                    || COMMON.iter().any(|word| name.eq_ignore_ascii_case(word.as_bytes()))
            };
            let typed = below.iter().any(|column| column.values > 0 && !column.types.is_empty());
            if all_named && unique && !repeats && !typed && names.iter().any(is_known) {
                Header::Words
            } else {
                Header::None
            }
        }
    }
}

/// Letters, digits and what else there is in names, beginning with a letter.
fn is_name(name: &[u8]) -> bool {
    let is_letter = |b: &u8| b.is_ascii_alphabetic() || *b == b'_' || *b >= 0x80;
    name.len() <= 63
        && name.first().is_some_and(is_letter)
        && name
            .iter()
            .all(|b| is_letter(b) || b.is_ascii_digit() || matches!(b, b' ' | b'-' | b'.' | b'(' | b')' | b'#'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::{EndMarker, FormatOptions};

    fn of(sample: &str) -> Header {
        let options = FormatOptions { csv: true, ..FormatOptions::default() };
        let dialect = Dialect::check(&options, EndMarker::Until17).unwrap();
        header(sample.as_bytes(), true, &dialect)
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
        assert_eq!(of("user_id,x\n"), Header::Words);
        assert_eq!(of("a,b\n"), Header::None);
        assert_eq!(of(""), Header::None);
        assert_eq!(of("id\n"), Header::Words);
        assert_eq!(of("when,ok\n2024-01-01,t\n"), Header::Column(0));
    }
}
