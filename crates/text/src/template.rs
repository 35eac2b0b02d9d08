//! Dates and times written by a template: `DD.MM.YYYY HH24:MI`.
//!
//! They are rewritten with the year first, which the types' input functions read under any setting. Templates are those
//! of `to_date` and `to_timestamp`, but no part of a text is skipped. Separators must match the template, and the text
//! must end where the template ends. Numbers have as many digits as the template has places. Leading zeros may be
//! missing if a separator or the end follows.
//!
//! A text in the right form must also be in range. Otherwise the input function would fail with a message about the
//! rewritten text, which is not in the file.

use std::ops::RangeInclusive;

/// The type that a template is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateType {
    /// A date. A time in the text is read but is not part of the value.
    Date,
    /// A time of day.
    Time,
    /// Date and time of day.
    Timestamp,
}

/// A field of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    /// YYYY
    Year,
    /// YY: 1970 to 2069
    ShortYear,
    /// MM
    Month,
    /// Mon
    ShortName,
    /// Month
    Name,
    /// DD
    Day,
    /// HH24
    Hour,
    /// HH12, HH
    HalfHour,
    /// AM, PM
    Half,
    /// MI
    Minute,
    /// SS
    Second,
    /// MS, US: a fraction of at most this many digits.
    Fraction(usize),
}

/// Names of the fields in templates. Each name is listed before the shorter names that begin it.
const FIELDS: &[(&str, Field)] = &[
    ("YYYY", Field::Year),
    ("YY", Field::ShortYear),
    ("MONTH", Field::Name),
    ("MON", Field::ShortName),
    ("MM", Field::Month),
    ("MI", Field::Minute),
    ("MS", Field::Fraction(3)),
    ("DD", Field::Day),
    ("HH24", Field::Hour),
    ("HH12", Field::HalfHour),
    ("HH", Field::HalfHour),
    ("AM", Field::Half),
    ("PM", Field::Half),
    ("SS", Field::Second),
    ("US", Field::Fraction(6)),
];

const MONTHS: &str = "january february march april may june july august september october november december";

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Field(Field),
    /// These bytes must be in the text.
    Literal(Vec<u8>),
}

/// A parsed template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    tokens: Vec<Token>,
    kind: TemplateType,
}

/// An error in a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadTemplate {
    /// No field begins at this byte.
    Unknown(usize),
    /// A field is repeated.
    Twice,
    /// A required field is missing: year, month and day; hour.
    Lacks,
    /// HH12 without AM, or AM without HH12.
    HalfDay,
    /// A template for a time of day has a date.
    HasDate,
}

/// An error in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misfit {
    /// The text does not match the template.
    Form,
    /// The date or the time does not exist.
    Range,
}

/// The date and time that a text contains.
#[derive(Debug, Clone, Copy, Default)]
struct Moment {
    year: u32,
    month: u32,
    day: u32,
    hour: u32,
    minute: u32,
    second: u32,
    microsecond: u32,
    is_afternoon: bool,
}

/// Reads a number with `places` digits. Returns it, its number of digits, and the text behind it.
fn number(text: &[u8], places: RangeInclusive<usize>) -> Result<(u32, usize, &[u8]), Misfit> {
    let digits = text.iter().take(*places.end()).take_while(|byte| byte.is_ascii_digit()).count();
    if digits < *places.start() {
        return Err(Misfit::Form);
    }
    let (number, rest) = text.split_at(digits);
    let number = number.iter().fold(0u32, |number, digit| number.wrapping_mul(10) + u32::from(digit - b'0'));
    Ok((number, digits, rest))
}

fn without<'a>(text: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = text.split_at_checked(word.len())?;
    start.eq_ignore_ascii_case(word).then_some(rest)
}

fn days(year: u32, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        _ => 31,
    }
}

impl Template {
    /// Parses a template for values of this type.
    pub fn new(template: &[u8], kind: TemplateType) -> Result<Template, BadTemplate> {
        let mut tokens: Vec<Token> = Vec::new();
        let mut rest = template;
        while let [first, tail @ ..] = rest {
            let literal: &[u8] = if *first == b'"' {
                let end = memchr::memchr(b'"', tail).ok_or(BadTemplate::Unknown(template.len() - rest.len()))?;
                rest = tail.get(end + 1..).unwrap_or_default();
                tail.get(..end).unwrap_or_default()
            } else if first.is_ascii_alphanumeric() {
                let field = FIELDS.iter().find_map(|(name, field)| Some((*field, without(rest, name.as_bytes())?)));
                let (field, behind) = field.ok_or(BadTemplate::Unknown(template.len() - rest.len()))?;
                tokens.push(Token::Field(field));
                rest = behind;
                continue;
            } else {
                rest = tail;
                std::slice::from_ref(first)
            };
            match tokens.last_mut() {
                Some(Token::Literal(before)) => before.extend_from_slice(literal),
                _ => tokens.push(Token::Literal(literal.to_vec())),
            }
        }
        let count = |of: fn(&Field) -> bool| tokens.iter().filter(|p| matches!(p, Token::Field(f) if of(f))).count();
        let years = count(|f| matches!(f, Field::Year | Field::ShortYear));
        let months = count(|f| matches!(f, Field::Month | Field::ShortName | Field::Name));
        let days = count(|f| *f == Field::Day);
        let hours = count(|f| matches!(f, Field::Hour | Field::HalfHour));
        let minutes = count(|f| *f == Field::Minute);
        let seconds = count(|f| *f == Field::Second);
        let fractions = count(|f| matches!(f, Field::Fraction(_)));
        let halves = count(|f| *f == Field::Half);
        if [years, months, days, hours, minutes, seconds, fractions, halves].iter().any(|&count| count > 1) {
            return Err(BadTemplate::Twice);
        }
        if halves != count(|f| *f == Field::HalfHour) {
            return Err(BadTemplate::HalfDay);
        }
        if kind == TemplateType::Time && years + months + days > 0 {
            return Err(BadTemplate::HasDate);
        }
        let is_whole = if kind == TemplateType::Time { hours > 0 } else { years + months + days == 3 };
        // Each of these requires the one before it.
        if !is_whole || minutes > hours || seconds > minutes || fractions > seconds {
            return Err(BadTemplate::Lacks);
        }
        Ok(Template { tokens, kind })
    }

    /// Appends a text in the form that an input function reads. On an error, the appended bytes are garbage.
    pub fn write(&self, text: &[u8], out: &mut Vec<u8>) -> Result<(), Misfit> {
        let moment = self.read(text)?;
        let Moment { year, month, day, hour, minute, second, microsecond, is_afternoon } = moment;
        let has_half = self.tokens.contains(&Token::Field(Field::HalfHour));
        let hour_fits = if has_half { (1..=12).contains(&hour) } else { hour < 24 };
        let date_fits = self.kind == TemplateType::Time
            || (year > 0 && (1..=12).contains(&month) && (1..=days(year, month)).contains(&day));
        if !date_fits || !hour_fits || minute > 59 || second > 59 {
            return Err(Misfit::Range);
        }
        let hour = if has_half { hour % 12 + if is_afternoon { 12 } else { 0 } } else { hour };
        let mut put = |number: u32, places: u32, before: Option<u8>| {
            out.extend(before);
            out.extend((0..places).rev().map(|place| b'0' + (number / 10u32.pow(place) % 10) as u8));
        };
        if self.kind != TemplateType::Time {
            put(year, 4, None);
            put(month, 2, Some(b'-'));
            put(day, 2, Some(b'-'));
        }
        if self.kind != TemplateType::Date {
            put(hour, 2, (self.kind == TemplateType::Timestamp).then_some(b' '));
            put(minute, 2, Some(b':'));
            put(second, 2, Some(b':'));
            if microsecond > 0 {
                put(microsecond, 6, Some(b'.'));
            }
        }
        Ok(())
    }

    fn read(&self, text: &[u8]) -> Result<Moment, Misfit> {
        let mut moment = Moment::default();
        // Without a time the text means midnight.
        let mut rest = text;
        for (i, token) in self.tokens.iter().enumerate() {
            let field = match token {
                Token::Literal(literal) => {
                    rest = rest.strip_prefix(literal.as_slice()).ok_or(Misfit::Form)?;
                    continue;
                }
                Token::Field(field) => *field,
            };
            // A number directly behind another one begins at a position that only their lengths decide.
            let is_behind =
                i.checked_sub(1).is_some_and(|before| matches!(self.tokens.get(before), Some(Token::Field(_))));
            let is_before = matches!(self.tokens.get(i + 1), Some(Token::Field(next)) if *next != Field::Half);
            let is_tight = is_behind || is_before;
            let least = if is_tight { 2 } else { 1 };
            let place = match field {
                Field::Year => {
                    (moment.year, _, rest) = number(rest, 4..=4)?;
                    continue;
                }
                Field::ShortYear => {
                    let (year, _, behind) = number(rest, 2..=2)?;
                    moment.year = if year < 70 { 2000 + year } else { 1900 + year };
                    rest = behind;
                    continue;
                }
                Field::ShortName | Field::Name => {
                    let length = if field == Field::Name { usize::MAX } else { 3 };
                    let name = |month: &'static str| month.get(..length).unwrap_or(month).as_bytes();
                    let mut months = (1..).zip(MONTHS.split(' '));
                    let found = months.find_map(|(i, month)| Some((i, without(rest, name(month))?)));
                    (moment.month, rest) = found.ok_or(Misfit::Form)?;
                    continue;
                }
                Field::Half => {
                    moment.is_afternoon = matches!(rest, [b'p' | b'P', ..]);
                    let word: &[u8] = if moment.is_afternoon { b"pm" } else { b"am" };
                    rest = without(rest, word).ok_or(Misfit::Form)?;
                    continue;
                }
                Field::Fraction(most) => {
                    let (fraction, digits, behind) = number(rest, if is_tight { most..=most } else { 1..=most })?;
                    moment.microsecond = fraction * 10u32.pow(u32::try_from(6 - digits.min(6)).unwrap_or(0));
                    rest = behind;
                    continue;
                }
                Field::Month => &mut moment.month,
                Field::Day => &mut moment.day,
                Field::Hour | Field::HalfHour => &mut moment.hour,
                Field::Minute => &mut moment.minute,
                Field::Second => &mut moment.second,
            };
            (*place, _, rest) = number(rest, least..=2)?;
        }
        if rest.is_empty() { Ok(moment) } else { Err(Misfit::Form) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(template: &str, kind: TemplateType, text: &str) -> Result<String, Misfit> {
        let mut out = Vec::new();
        Template::new(template.as_bytes(), kind).unwrap().write(text.as_bytes(), &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn texts_are_read_as_the_template_says() {
        use TemplateType::{Date, Time, Timestamp};
        for (template, kind, text, expected) in [
            ("DD.MM.YYYY", Date, "31.12.2024", "2024-12-31"),
            ("DD.MM.YYYY", Date, "1.2.2024", "2024-02-01"),
            ("MM/DD/YY", Date, "02/29/68", "2068-02-29"),
            ("MM/DD/YY", Date, "02/28/70", "1970-02-28"),
            ("YYYYMMDD", Date, "20240229", "2024-02-29"),
            ("dd-mon-yyyy", Date, "5-OCT-1999", "1999-10-05"),
            ("Month DD, YYYY", Date, "september 1, 0001", "0001-09-01"),
            ("Mon DD YYYY", Date, "May 1 2000", "2000-05-01"),
            ("YYYY-MM-DD\"T\"HH24:MI:SS", Date, "2024-01-02T03:04:05", "2024-01-02"),
            ("DD.MM.YYYY HH24:MI", Timestamp, "1.1.2024 7:05", "2024-01-01 07:05:00"),
            ("YYYYMMDDHH24MISSMS", Timestamp, "20240102030405678", "2024-01-02 03:04:05.678000"),
            ("YYYY-MM-DD HH24:MI:SS.US", Timestamp, "2024-01-02 23:59:59.5", "2024-01-02 23:59:59.500000"),
            ("YYYY-MM-DD HH12:MI AM", Timestamp, "2024-01-02 12:30 am", "2024-01-02 00:30:00"),
            ("YYYY-MM-DD HH:MIPM", Timestamp, "2024-01-02 12:30PM", "2024-01-02 12:30:00"),
            ("YYYY-MM-DD HH:MIPM", Timestamp, "2024-01-02 1:30pm", "2024-01-02 13:30:00"),
            ("YYYY.MM.DD", Timestamp, "2024.01.02", "2024-01-02 00:00:00"),
            ("HH24:MI", Time, "9:30", "09:30:00"),
            ("HH24\"Uhr \"\"h\"", Time, "9Uhr h", "09:00:00"),
        ] {
            assert_eq!(read(template, kind, text).as_deref(), Ok(expected), "{template} {text}");
        }
    }

    #[test]
    fn nothing_is_passed_over() {
        use TemplateType::{Date, Timestamp};
        for (template, text) in [
            ("DD.MM.YYYY", "31.12.2024 "),
            ("DD.MM.YYYY", " 31.12.2024"),
            ("DD.MM.YYYY", "31.12.2024x"),
            ("DD.MM.YYYY", "31.12.20245"),
            ("DD.MM.YYYY", "31.12.24"),
            ("DD.MM.YYYY", "31.12."),
            ("DD.MM.YYYY", "31-12-2024"),
            ("DD.MM.YYYY", "031.12.2024"),
            ("DD.MM.YYYY", "-1.12.2024"),
            ("DD.MM.YYYY", ""),
            ("YYYYMMDD", "2024131"),
            ("YYYYMMDD", "2024121"),
            ("DDMonYYYY", "1Sep2024"),
            ("YYYYMMDD", "202401311"),
            ("DD Mon YYYY", "1 Sept 2024"),
            ("DD Month YYYY", "1 Sep 2024"),
            ("YYYY-MM-DD", "2024-01-01 00:00"),
            ("YYYY-MM-DD", "infinity"),
        ] {
            assert_eq!(read(template, Date, text), Err(Misfit::Form), "{template} {text}");
        }
        for text in [
            "2024-02-30", "2023-02-29", "1900-02-29", "2024-04-31", "2024-13-01", "2024-00-01", "2024-01-00",
            "0000-01-01",
        ] {
            assert_eq!(read("YYYY-MM-DD", Date, text), Err(Misfit::Range), "{text}");
        }
        for text in ["24:00:00", "23:60:00", "23:59:60"] {
            assert_eq!(read("HH24:MI:SS", TemplateType::Time, text), Err(Misfit::Range), "{text}");
            // Also if the time is not part of the value.
            let text = format!("2024-01-01 {text}");
            assert_eq!(read("YYYY-MM-DD HH24:MI:SS", Date, &text), Err(Misfit::Range), "{text}");
        }
        for text in ["2024-01-01 0:00AM", "2024-01-01 13:00PM"] {
            assert_eq!(read("YYYY-MM-DD HH12:MIAM", Timestamp, text), Err(Misfit::Range), "{text}");
        }
    }

    #[test]
    fn templates_say_all_that_is_needed() {
        use BadTemplate::{HalfDay, HasDate, Lacks, Twice, Unknown};
        for (template, kind, expected) in [
            ("DD.MM.", TemplateType::Date, Lacks),
            ("", TemplateType::Date, Lacks),
            ("YYYY-MM-DD MI", TemplateType::Timestamp, Lacks),
            ("YYYY-MM-DD HH24:SS", TemplateType::Timestamp, Lacks),
            ("YYYY-MM-DD HH24:MI.MS", TemplateType::Timestamp, Lacks),
            ("MI:SS", TemplateType::Time, Lacks),
            ("DD.DD.MM.YYYY", TemplateType::Date, Twice),
            ("DD.MM.Mon.YYYY", TemplateType::Date, Twice),
            ("DD.MM.YYYY HH12:MI", TemplateType::Timestamp, HalfDay),
            ("DD.MM.YYYY HH24:MI AM", TemplateType::Timestamp, HalfDay),
            ("DD.MM.YYYY HH24:MI", TemplateType::Time, HasDate),
            ("DD.MM.YYYYTHH24", TemplateType::Timestamp, Unknown(10)),
            ("J", TemplateType::Date, Unknown(0)),
            ("DD.MM.YYYY\"x", TemplateType::Date, Unknown(10)),
        ] {
            assert_eq!(Template::new(template.as_bytes(), kind), Err(expected), "{template}");
        }
    }

    proptest! {
        /// Reading restores a value that was written by the template.
        #[test]
        fn what_is_written_is_read(year in 1u32..10000, month in 1u32..13, day in 1u32..29, seconds in 0u32..86400, fraction in 0u32..1_000_000) {
            let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
            let expected = if fraction > 0 {
                format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{fraction:06}")
            } else {
                format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
            };
            let name = MONTHS.split(' ').nth(month as usize - 1).unwrap();
            let half = if hour < 12 { "AM" } else { "PM" };
            let clock = (hour + 11) % 12 + 1;
            for (template, text) in [
                ("DD.MM.YYYY HH24:MI:SS.US", format!("{day:02}.{month:02}.{year:04} {hour:02}:{minute:02}:{second:02}.{fraction:06}")),
                ("DD.MM.YYYY HH24:MI:SS.US", format!("{day}.{month}.{year:04} {hour}:{minute}:{second}.{fraction:06}")),
                ("YYYYMMDDHH24MISSUS", format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}{fraction:06}")),
                ("Month DD YYYY HH12:MI:SS.US AM", format!("{name} {day} {year:04} {clock}:{minute}:{second}.{fraction:06} {half}")),
            ] {
                prop_assert_eq!(read(template, TemplateType::Timestamp, &text), Ok(expected.clone()));
            }
        }

        /// Each date that is made exists.
        #[test]
        fn what_is_made_is_in_range(text in "[0-9]{1,2}[./][0-9]{1,2}[./][0-9]{2,5}") {
            if let Ok(made) = read("DD.MM.YYYY", TemplateType::Date, &text) {
                let parts: Vec<u32> = made.split('-').map(|part| part.parse().unwrap()).collect();
                prop_assert!(parts[2] <= days(parts[0], parts[1]));
                let given: Vec<u32> = text.split('.').map(|part| part.parse().unwrap()).collect();
                prop_assert_eq!(given.into_iter().rev().collect::<Vec<_>>(), parts);
            }
        }
    }
}
