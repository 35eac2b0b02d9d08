//! Detects whether the first record is a header, and how many lines it has.
//!
//! A header that is loaded as data makes every column text, which the user sees. Data that are skipped as a header are
//! a lost row. So a header needs evidence:
//!
//! - Nearly all values of a column are of one [`Family`], such as numbers, and its first value is a name. A name has a
//!   letter. It is neither an amount nor a word for a missing value. In no column is the first value of the family of
//!   the values below it. Exception: years, or numbers in sequence, may be names beside other names.
//! - If no column decides: the names have a form that the values below them do not have. Each difference of a column
//!   adds to a score ([`Column::score`]), as common names of columns do. A name that is also a value counts against it.
//!
//! A single record is data. But names above rows of empty fields only are a header. Records with another number of
//! fields than the first one are examined only if there are no others.
//!
//! Names of all columns but the first may be in front of the table: R writes names of rows without a name above them.

use super::column::{Column, is_name};
use super::family::{Family, has_letter, is_one_of};
use super::{MOST_FIELDS, each_record};
use crate::dialect::Dialect;
use crate::reader::Reader;
use crate::record::Value;

/// The most records to examine.
const MOST_RECORDS: usize = 1000;
/// The most lines of a header, and the records that are kept for it.
const MOST_LINES: usize = 4;
/// The score of names over texts that makes a header. A list of one column needs one more.
const ENOUGH: i32 = 2;
/// The evidence for a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// The values of this column are of a family that the first one is not of.
    Family(usize),
    /// The names have another form than the values, most of all in this column.
    Form(usize),
    /// Nothing is below the names.
    Bare,
}

/// A header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The number of records in front of it.
    pub ahead: usize,
    /// The number of its records.
    pub lines: usize,
    /// Its evidence.
    pub evidence: Evidence,
    /// The names, if the header has several lines: those of the line that has most. The others fill its blanks. Or those
    /// of a header without a name for the first column.
    pub names: Option<Fields>,
}

/// Values of a record.
pub type Fields = Vec<Option<Vec<u8>>>;

/// Returns the values of a record; `None` for NULL.
#[must_use]
pub fn fields(reader: &Reader) -> Fields {
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

/// Trimmed values of a record, blank ones for NULL.
fn trimmed(fields: &Fields) -> impl Iterator<Item = &[u8]> {
    fields.iter().map(|value| value.as_deref().unwrap_or_default().trim_ascii())
}

/// The number of a name that is a whole number.
fn whole_number(name: &[u8]) -> Option<i64> {
    let digits = Some(name).filter(|name| name.len() <= 9 && name.iter().all(u8::is_ascii_digit))?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The columns whose names are numbers in sequence, although those of the record below are not: years, or 0, 1, 2 ….
fn sequence(first: &Fields, second: Option<&Fields>) -> Vec<bool> {
    let numbers = |fields: &Fields| trimmed(fields).map(whole_number).collect::<Vec<_>>();
    let names = numbers(first);
    let below = second.map(numbers).unwrap_or_default();
    let none = vec![false; first.len()];
    let found: Vec<i64> = names.iter().flatten().copied().collect();
    let step = match found.as_slice() {
        [a, b, ..] => b - a,
        _ => 1,
    };
    let in_steps = |numbers: &[i64]| numbers.windows(2).all(|pair| matches!(pair, [a, b] if b - a == step));
    let are_years =
        |numbers: &[i64]| !numbers.is_empty() && numbers.iter().all(|number| (1500..=2100).contains(number));
    let under: Vec<i64> = names.iter().zip(&below).filter_map(|(name, value)| name.and(*value)).collect();
    let is_list = in_steps(&found) && step == 1 && found.len() >= 3 && matches!(found.first(), Some(0 | 1));
    let is_below_too =
        (are_years(&found) && are_years(&under)) || (is_list && under.len() == found.len() && in_steps(&under));
    // One number and more than that are not alone: some other column has a name, or is an index without one.
    if found.len() == first.len() || is_below_too || !(is_list || (are_years(&found) && in_steps(&found) && step != 0))
    {
        return none;
    }
    names.iter().map(Option::is_some).collect()
}

/// Examines the first records of a file, behind `ahead` records in front of its table.
#[must_use]
pub fn header(sample: &[u8], whole: bool, dialect: &Dialect, ahead: usize) -> Option<Header> {
    let table =
        |ahead, shift, is_good: fn(usize, usize) -> bool| Table::read(sample, whole, dialect, (ahead, shift), is_good);
    let narrow = |ahead| table(ahead, 1, |width, first| width == first + 1).narrow_header();
    let equal = table(ahead, 0, |width, first| width == first);
    if equal.records > 0 {
        return equal.header().or_else(|| narrow(ahead.checked_sub(1)?));
    }
    // A single field is rarely a row of a table with several columns.
    let others = table(ahead, 0, |width, first| width != first && width > 1);
    if others.records > 0 {
        return narrow(ahead).or_else(|| others.header());
    }
    None
}

/// The first records of a file.
#[derive(Default)]
struct Table {
    /// The first record, and a few directly behind it with as many fields.
    leading: Vec<Fields>,
    columns: Vec<Column>,
    /// Number of records in front of the first one, of those behind it, and of those that passed among these.
    ahead: usize,
    behind: usize,
    records: usize,
}

impl Table {
    /// Reads the records whose number of fields, compared with the first one's, passes `is_good`.
    fn read(
        sample: &[u8],
        whole: bool,
        dialect: &Dialect,
        (ahead, shift): (usize, usize),
        is_good: impl Fn(usize, usize) -> bool,
    ) -> Table {
        let mut table = Table { ahead, ..Table::default() };
        let (mut passed, mut unescaped, mut is_leading, mut line) = (0, Vec::new(), true, None);
        let _ = each_record(sample, whole, dialect, |reader, width| {
            if passed < ahead {
                passed += 1;
                return true;
            }
            let Some(first) = table.leading.first() else {
                let names = fields(reader);
                table.columns = vec![Column::default(); names.len()];
                table.leading.push(names);
                line = reader.raw_line().map(<[u8]>::to_vec);
                return true;
            };
            table.behind += 1;
            is_leading &= width == table.columns.len();
            if !is_good(width, table.columns.len()) {
                return true;
            }
            table.records += 1;
            let is_repeated = line.is_some() && reader.raw_line() == line.as_deref();
            for (field, (name, column)) in trimmed(first).zip(&mut table.columns).enumerate() {
                let value = match reader.value(field + shift) {
                    _ if field + shift >= width => continue,
                    Value::Null | Value::Default => continue,
                    Value::Plain(value) => value,
                    Value::Escaped(raw) => {
                        unescaped.clear();
                        reader.unescape(raw, &mut unescaped);
                        &unescaped
                    }
                };
                column.take(value.trim_ascii(), name);
                // A line of names may occur again. Of texts, it would be a row.
                if is_repeated {
                    column.remove(name);
                }
            }
            if is_leading && table.leading.len() <= MOST_LINES {
                table.leading.push(fields(reader));
            }
            table.records < MOST_RECORDS
        });
        table
    }

    fn header(&self) -> Option<Header> {
        let first = self.leading.first()?;
        // Lines of units, or of names for the blanks above them, are between the names and the values.
        for lines in (2..=MOST_LINES.min(self.leading.len().saturating_sub(1))).rev() {
            if self.records > lines
                && let Some(column) = self.several_lines(lines)
            {
                let names = Some(joined(self.leading.get(..lines)?));
                return Some(Header { ahead: self.ahead, lines, evidence: Evidence::Family(column), names });
            }
        }
        let evidence = decide(first, self.leading.get(1), &self.columns)?;
        Some(Header { ahead: self.ahead, lines: 1, evidence, names: None })
    }

    /// A header of rows that have a field more, in front of the others.
    fn narrow_header(&self) -> Option<Header> {
        let is_most = self.records * 2 > self.behind;
        let first = self.leading.first().filter(|first| is_most && first.len() > 1)?;
        let names = Some([&[None], first.as_slice()].concat());
        Some(Header { names, ..self.header().filter(|header| header.lines == 1)? })
    }

    /// The column that shows that the first lines, two or more, are one header.
    fn several_lines(&self, lines: usize) -> Option<usize> {
        let mut below = self.columns.clone();
        for line in self.leading.get(1..lines)? {
            for (value, column) in trimmed(line).zip(&mut below) {
                column.remove(value);
            }
        }
        let mut filled: Vec<bool> = trimmed(self.leading.first()?).map(|name| !name.is_empty()).collect();
        let mut evidence = None;
        for (number, line) in self.leading.get(..lines)?.iter().enumerate() {
            // A blank line is between lines of names.
            if number > 0 && number + 1 < lines && trimmed(line).all(<[u8]>::is_empty) {
                continue;
            }
            let second = self.leading.get(lines);
            evidence = evidence.or(over_families(line, second, &below, true)?);
            over_families(line, second, &below, false)??;
            if number == 0 {
                continue;
            }
            // A row of data has a text in a column of texts.
            let (mut units, mut texts, mut fills) = (0, 0, false);
            for ((value, column), filled) in trimmed(line).zip(&below).zip(&mut filled) {
                if value.is_empty() {
                    continue;
                }
                let is_unit = is_unit(value);
                units += usize::from(is_unit);
                texts += usize::from(!is_unit && column.family().is_none());
                fills |= !*filled;
                *filled = true;
            }
            let is_one = trimmed(line).filter(|value| !value.is_empty()).count();
            if !(fills || (units * 2 > is_one && texts == 0)) {
                return None;
            }
        }
        evidence
    }
}

/// Whether a text is a unit of measurement, alone or in brackets.
fn is_unit(text: &[u8]) -> bool {
    const UNITS: &str = "s ms us ns sec min h hr hours days d m mm cm km um nm kg g mg t l ml c degc f k deg rad pa hpa kpa mpa \
        mbar bar v mv kv a ma w kw mw wh kwh mwh hz khz mhz n kn nm j kj db ppm ppb mol usd eur gbp chf date \
        text -";
    let is_bracketed = matches!((text.first(), text.last()), (Some(b'['), Some(b']')) | (Some(b'('), Some(b')')));
    let has_sign = text.len() <= 12
        && (text.contains(&b'/')
            || text.contains(&b'%')
            || text.starts_with("°".as_bytes())
            || text.starts_with("µ".as_bytes()));
    is_bracketed || has_sign || is_one_of(UNITS, text)
}

/// The names of a header of several lines.
fn joined(lines: &[Fields]) -> Fields {
    let count = |line: &Fields| trimmed(line).filter(|name| !name.is_empty()).count();
    let most = lines.iter().map(count).max().unwrap_or(0);
    let best = lines.iter().find(|line| count(line) == most).cloned().unwrap_or_default();
    let other = |column: usize| {
        let others = lines.iter().rev().filter_map(|line| line.get(column)?.as_ref());
        others.into_iter().find(|name| !name.trim_ascii().is_empty()).cloned()
    };
    best.iter()
        .enumerate()
        .map(|(column, name)| name.clone().filter(|name| !name.trim_ascii().is_empty()).or_else(|| other(column)))
        .collect()
}

/// Finds a column whose values are of a family that the first one is not of. None if the first record is data: some
/// value is of the family of those below it. `any` also counts names that cannot decide alone.
fn over_families(first: &Fields, second: Option<&Fields>, below: &[Column], any: bool) -> Option<Option<usize>> {
    let in_sequence = sequence(first, second);
    let several_in_sequence = in_sequence.iter().filter(|&&is| is).count() > 1;
    let mut evidence = None;
    for (i, (name, column)) in trimmed(first).zip(below).enumerate() {
        let Some(family) = column.family() else { continue };
        let own = Family::of(name);
        let same = own == family || (own == Family::Quantity && family == Family::Number);
        if same && !in_sequence.get(i).copied().unwrap_or(false) {
            return None;
        }
        if same && several_in_sequence {
            evidence = evidence.or(Some(i));
        }
        let is_name = is_name(own) && name.len() <= 255;
        let is_alone = any || first.len() > 3 || trimmed(first).filter(|other| *other == name).count() == 1;
        if is_name && is_alone {
            evidence = evidence.or(Some(i));
        }
    }
    Some(evidence)
}

/// Whether all values may be names, and differ from each other.
fn are_names(first: &Fields) -> bool {
    let known: std::collections::HashSet<&[u8]> = trimmed(first).collect();
    known.len() == first.len()
        && known.iter().all(|name| has_letter(name) && name.len() <= 63 && is_name(Family::of(name)))
}

/// Decides whether a record is a header, given the values below it.
fn decide(first: &Fields, second: Option<&Fields>, below: &[Column]) -> Option<Evidence> {
    if let Some(column) = over_families(first, second, below, false)? {
        return Some(Evidence::Family(column));
    }
    if !are_names(first) {
        return None;
    }
    if below.iter().all(Column::is_bare) {
        return (first.len() > 1).then_some(Evidence::Bare);
    }
    // A name that cannot decide stands over values of a family.
    let scores: Vec<i32> = trimmed(first)
        .zip(below)
        .map(|(name, column)| if column.family().is_some() { 0 } else { column.score(name) })
        .collect();
    let (best, most) = scores.iter().enumerate().max_by_key(|(i, score)| (**score, usize::MAX - i))?;
    let enough = ENOUGH + i32::from(first.len() == 1);
    (scores.iter().sum::<i32>() >= enough && *most > 0).then_some(Evidence::Form(best))
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

    fn of(sample: &str) -> Option<Header> {
        behind(sample, 0)
    }

    fn behind(sample: &str, ahead: usize) -> Option<Header> {
        let options = FormatOptions { csv: true, ..FormatOptions::default() };
        let dialect = Dialect::check(&options, EndMarker::Until17).unwrap();
        header(sample.as_bytes(), true, &dialect, ahead)
    }

    fn one(evidence: Evidence) -> Option<Header> {
        Some(Header { ahead: 0, lines: 1, evidence, names: None })
    }

    /// The number of lines and the column of the evidence.
    fn found(sample: &str) -> (usize, Option<usize>) {
        match of(sample) {
            None => (0, None),
            Some(header) => (
                header.lines,
                match header.evidence {
                    Evidence::Family(column) | Evidence::Form(column) => Some(column),
                    Evidence::Bare => None,
                },
            ),
        }
    }

    #[test]
    fn headers_need_evidence() {
        assert_eq!(of("id,name\n1,x\n2,y\n"), one(Evidence::Family(0)));
        assert_eq!(of("1,x\n2,y\n"), None);
        assert_eq!(of("x,1\ny,2\n"), None);
        assert_eq!(of(",a\n0,1\n1,2\n"), one(Evidence::Family(1)));
        assert_eq!(of("name,city\nBob,Paris\nAl,Rome\n"), one(Evidence::Form(0)));
        assert_eq!(of("Bob,Paris\nAl,Rome\n"), None);
        assert_eq!(of("name,city\nname,city\n"), None);
        assert_eq!(of("NA,5\n1,6\n2,7\n"), None);
        assert_eq!(of("a,b\n"), None);
        assert_eq!(of(""), None);
        assert_eq!(of("id\nx\n"), one(Evidence::Form(0)));
        assert_eq!(of("when,ok\n2024-01-01,t\n"), one(Evidence::Family(0)));
    }

    #[test]
    fn names_have_symbols_units_and_digits() {
        for names in
            ["time[s],x[m]", "T %,n %", "$/kg,m/s", "# of x,y", "Total (m3),2001", "k1,k2", "%,2nd", "größe,€/l"]
        {
            assert_ne!(found(&format!("{names}\n0.1,2.5\n0.2,3.5\n")).0, 0, "{names}");
        }
        for values in
            ["0.0000123", "1e-5", "1.234,50", "1 234,5", "(1,200)", "12%", "$5.00", "23-Sep-11", "12/31/25", "yes"]
        {
            assert_eq!(found(&format!("x,\"total\"\na,\"{values}\"\nb,\"{values}\"\n")), (1, Some(1)), "{values}");
            assert_eq!(found(&format!("x,\"{values}\"\na,\"{values}\"\nb,\"{values}\"\n")).0, 0, "{values}");
        }
    }

    #[test]
    fn texts_differ_from_names_in_form() {
        let with = [
            "hostname,ip\na.b.c,10.3.1.18\nd.e.f,10.3.1.27\n",
            "country,name\nAD,Andorra\nAE,Emirates\nAF,Afghanistan\n",
            "product,color\nMG-8769,red\nRI-3895,blue\n",
            "firstName,x\nBob,y\nAl,z\n",
        ];
        let without = [
            "apple\npear\nplum\nfig\n",
            "Hans,DE\nPeter,FR\nAnna,IT\n",
            "MG-8769,red\nRI-3895,blue\nXX-1111,green\n",
            "Home,Home\nGet the tour,Get the tour\nFAQ,FAQ\n",
            "de,Germany\nfr,France\nit,Italy\n",
        ];
        for sample in with {
            assert_eq!(found(sample).0, 1, "{sample}");
        }
        for sample in without {
            assert_eq!(found(sample).0, 0, "{sample}");
        }
    }

    #[test]
    fn years_and_sequences_may_be_names() {
        assert_eq!(found(",0,1,2\n0,5,6,6\n1,7,8,8\n").0, 1);
        assert_eq!(found("n,2001,2002\n1,5,6\n2,7,8\n"), (1, Some(0)));
        assert_eq!(found("Country,2001,2002\nChad,1.5,2.3\nPeru,5,6\n"), (1, Some(1)));
        assert_eq!(found("Country,2001\nChad,1.5\nPeru,5\n"), (0, None));
        assert_eq!(found("n,2001,2002\n1,2003,2004\n2,2005,2006\n").0, 0);
        assert_eq!(found("n,7,9\n1,5,6\n2,7,8\n").0, 0);
    }

    #[test]
    fn headers_have_several_lines() {
        let header = of("time,speed\ns,m/s\n0,1.5\n1,2.5\n2,3.5\n").unwrap();
        assert_eq!((header.lines, header.names), (2, Some(vec![Some(b"time".to_vec()), Some(b"speed".to_vec())])));
        let header =
            of("date,travel,,total\n,air,rail,\n2014-04-04,5,6,11\n2014-04-05,7,8,15\n2014-04-06,7,8,15\n").unwrap();
        let names: Vec<_> =
            header.names.unwrap().into_iter().map(|name| String::from_utf8(name.unwrap()).unwrap()).collect();
        assert_eq!((header.lines, names.join("/").as_str()), (2, "date/travel/rail/total"));
        assert_eq!(found("date,travel,,total\n,,,\n,air,rail,\n2014-04-04,5,6,11\n2014-04-05,7,8,15\n").0, 3);
        // A row that lacks its numbers is data.
        assert_eq!(found("name,amount\nBob,pending\nAl,5\nJo,6\nEd,7\n").0, 1);
        assert_eq!(found("v\npending\n5\n6\n7\n8\n9\n1\n2\n3\n4\n5\n").0, 1);
    }

    #[test]
    fn underscores_are_of_names_and_of_values() {
        assert_eq!(of("user_id,x\na,b\n"), one(Evidence::Form(0)));
        assert_eq!(of("user_id,x\na,b_c\n"), one(Evidence::Form(0)));
        assert_eq!(of("user_a,x\nuser_b,y\n"), None);
        assert_eq!(of("user_a,x\nuser_b,y\nc,z\n"), None);
    }

    #[test]
    fn records_of_other_widths_are_better_than_none() {
        assert_eq!(of("id,name,age\n1,x\n2,y,z,5\n"), one(Evidence::Family(0)));
        assert_eq!(of("id,name,age\n\n"), None);
        assert_eq!(of("id,name,age\n,\n"), one(Evidence::Bare));
        assert_eq!(of("x,y,z\n1,2,3\na\n"), one(Evidence::Family(0)));
        assert_eq!(of("x,y,z\na\n1\n"), None);
        assert_eq!(of("5,y,z\n6\n7\n"), None);
    }

    #[test]
    fn names_may_be_equal_but_for_the_one_that_decides() {
        assert_eq!(of("id,x,x\n1,a,b\n"), one(Evidence::Family(0)));
        assert_eq!(of("x,x\n1,2\n"), None);
        assert_eq!(of("x,x,y\n1,2,a\n"), None);
    }

    #[test]
    fn nothing_but_empty_fields_is_below_names() {
        assert_eq!(of("a,b\n,\n,\n"), one(Evidence::Bare));
        assert_eq!(of("a,5\n,\n"), None);
        assert_eq!(of("a,\n,\n"), None);
        assert_eq!(of("a\n\n"), None);
    }

    #[test]
    fn what_is_in_front_is_passed_over() {
        assert_eq!(behind("# x\nn,m\n1,2\n", 1), Some(Header { ahead: 1, ..one(Evidence::Family(0)).unwrap() }));
        assert_eq!(behind("# x\nn,m\n", 1), None);
        assert_eq!(behind("# x\n", 1), None);
    }

    #[test]
    fn one_record_is_data() {
        for one in ["user_id,x\n", "id\n", "id,name\n", "id,name", "name,1\n"] {
            assert_eq!(of(one), None, "{one}");
        }
    }

    #[test]
    fn headers_may_be_narrower_than_rows() {
        let names = |sample: &str, ahead| {
            let header = behind(sample, ahead)?;
            let names: Vec<_> = header.names?.into_iter().map(|name| name.unwrap_or_default()).collect();
            Some((header.ahead, String::from_utf8(names.join(b"/".as_slice())).unwrap()))
        };
        let rows = "a,1,2\nb,3,4\nc,5,6\n";
        assert_eq!(names(&format!("x,y\n{rows}"), 1), Some((0, "/x/y".to_owned())));
        assert_eq!(names(&format!("x,y\n{rows}"), 0), Some((0, "/x/y".to_owned())));
        assert_eq!(names(&format!("T 1\nx,y\n{rows}"), 2), Some((1, "/x/y".to_owned())));
        // Titles.
        for title in ["T 1", "x,5", "1,2"] {
            assert_eq!(behind(&format!("{title}\n{rows}"), 1), None, "{title}");
        }
    }

    #[test]
    fn values_of_several_families_are_no_texts() {
        assert_eq!(of("a\n01:02:03\n01:02:03\n1\n"), one(Evidence::Family(0)));
        assert_eq!(of("a\n01:02:03\n01:02:03\nx\n"), None);
        assert_eq!(of("best_movie_title\nIron Man\n"), one(Evidence::Form(0)));
        assert_eq!(of("best_movie_title\nIron_Man\n"), None);
    }

    #[test]
    fn lines_of_a_header_are_as_wide_as_the_first() {
        let header = of("$ at,\nmount\n),Ada,0.5\n2dIa,,2.5\n3,2,Ida,2.\\.3,;231Ad\n");
        assert!(header.is_none_or(|header| header.names.is_none()), "the second line is wider");
    }

    #[test]
    fn only_names_are_evidence() {
        let missing = ["NA", "n/a", "N.A.", "NULL", "none", "nil", "Unknown", " missing ", "-", "?"];
        let values = ["$5", "€5.00", "£ 5", "+5", "-5x", "5 kg", "007", "(5)", "#", "1,5"];
        for first in missing.into_iter().chain(values) {
            assert_eq!(of(&format!("\"{first}\"\n6\n7\n")), None, "{first}");
            assert_eq!(of(&format!("x,\"{first}\"\ny,6\nz,7\n")), None, "{first}");
        }
        for first in ["n.", "name", "_5", "größe", "price (net)"] {
            assert_eq!(of(&format!("x,\"{first}\"\ny,6\nz,7\n")), one(Evidence::Family(1)), "{first}");
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
