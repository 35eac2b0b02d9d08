//! How people write numbers and dates that no type reads as they are: `1.234,50`, `31.12.2025`, `Sep 23, 2011`.
//!
//! Each style is a set of options of a column (`decimal`, `thousands`, `date_format`). A column keeps the styles in
//! which all its values can be read, by the code that a load with these options would use ([`Form::write`]).
//!
//! Two styles may read the same values in different ways: `1,234` and `03/04/2025`. Then no style is chosen.

use super::shape::Type;
use crate::pattern::Pattern;
use crate::refine::Form;
use crate::template::{Template, TemplateType};

/// How the values of a column are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Numbers with this decimal character, and with this separator of thousands, which may be none.
    Number(u8, &'static str),
    /// Dates and times of a type by this template.
    Moment(Type, &'static str),
}

/// Styles of numbers: those of one decimal character follow each other, without a separator first.
const NUMBERS: [(u8, &str); 8] = [
    (b',', ""),
    (b',', "."),
    (b',', " "),
    (b',', "\u{a0}"),
    (b',', "\u{202f}"),
    (b'.', ","),
    (b'.', "'"),
    (b'.', "\u{2019}"),
];

/// Templates of dates. Those of timestamps have a time behind one of the first.
const DATES: &str = "DD.MM.YYYY|DD/MM/YYYY|MM/DD/YYYY|DD-MM-YYYY|MM-DD-YYYY|DD.MM.YY|DD/MM/YY|MM/DD/YY|DD-Mon-YY\
    |DD-Mon-YYYY|DD Mon YYYY|Mon DD, YYYY|DD Month YYYY|Month DD, YYYY|YYYY.MM.DD";
const TIMESTAMPS: &str = "DD.MM.YYYY HH24:MI|DD.MM.YYYY HH24:MI:SS|DD/MM/YYYY HH24:MI|DD/MM/YYYY HH24:MI:SS|MM/DD/YYYY HH24:MI\
    |MM/DD/YYYY HH24:MI:SS|DD/MM/YYYY HH12:MI AM|DD/MM/YYYY HH12:MI:SS AM|MM/DD/YYYY HH12:MI AM\
    |MM/DD/YYYY HH12:MI:SS AM|DD-Mon-YYYY HH24:MI:SS|DD Mon YYYY HH24:MI";

/// A set of styles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StyleSet(u64);

impl StyleSet {
    /// The set of all styles.
    pub const ALL: StyleSet = StyleSet(u64::MAX);
    /// The empty set.
    pub const NONE: StyleSet = StyleSet(0);

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// All styles, ready to read values.
#[derive(Debug)]
pub struct Styles {
    known: Vec<(Style, Form)>,
    text: Vec<u8>,
}

impl Default for Styles {
    fn default() -> Styles {
        Styles::new()
    }
}

impl Styles {
    /// Prepares the styles.
    #[must_use]
    pub fn new() -> Styles {
        let numbers = NUMBERS.iter().map(|&(decimal, thousands)| {
            let separator = Some(thousands.as_bytes().to_vec()).filter(|separator| !separator.is_empty());
            (Style::Number(decimal, thousands), Form::Number(Pattern { decimal, thousands: separator }))
        });
        let templates = |list: &'static str, one: Type, kind: TemplateType| {
            list.split('|').filter_map(move |template| {
                let form = Form::Time(Template::new(template.as_bytes(), kind).ok()?);
                Some((Style::Moment(one, template), form))
            })
        };
        let dates = templates(DATES, Type::Date, TemplateType::Date);
        let timestamps = templates(TIMESTAMPS, Type::Timestamp, TemplateType::Timestamp);
        Styles { known: numbers.chain(dates).chain(timestamps).collect(), text: Vec::new() }
    }

    /// The styles of a set in which a value can be read.
    pub fn keep(&mut self, styles: StyleSet, value: &[u8]) -> StyleSet {
        let Some(&first) = value.first() else { return StyleSet(0) };
        let last_is_good = value.last().is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'.');
        // A date with the year first, or a word, is in no style.
        let may_be_number = first.is_ascii_digit() || matches!(first, b'-' | b'.' | b',');
        if styles.is_empty() || !(may_be_number || first.is_ascii_alphabetic()) || !last_is_good || value.len() > 40 {
            return StyleSet(0);
        }
        // Numbers without a separator, or with one point, are in the styles of numbers. Most columns end here.
        let unsigned = value.strip_prefix(b"-").unwrap_or(value);
        if unsigned.iter().all(u8::is_ascii_digit) {
            let all = (1u64 << NUMBERS.len()) - 1;
            return StyleSet(if is_number(value) { styles.0 & all } else { 0 });
        }
        let mut kept = 0;
        for (number, (style, form)) in self.known.iter().enumerate() {
            let bit = 1u64 << number;
            if styles.0 & bit == 0 {
                continue;
            }
            // `007` is a code in any style, and `NaN` and `1e5` need none.
            if matches!(style, Style::Number(..)) && !(may_be_number && is_number(value)) {
                continue;
            }
            self.text.clear();
            // A text without any of the style's separators is passed as it is.
            let is_plain = |text: &[u8]| text.iter().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-'));
            let is_read = form.write(value, &mut self.text).is_ok();
            if is_read && (matches!(style, Style::Moment(..)) || is_plain(&self.text)) {
                kept |= bit;
            }
        }
        StyleSet(kept)
    }

    /// Whether a set has a style.
    #[must_use]
    pub fn has(&self, styles: StyleSet, style: Style) -> bool {
        self.known.iter().enumerate().any(|(i, (known, _))| *known == style && styles.0 & (1 << i) != 0)
    }

    /// The one way in which all values of a column are written, if there is one. Several templates, or decimal
    /// characters, are several ways.
    #[must_use]
    pub fn choice(&self, styles: StyleSet) -> Choice {
        let mut left =
            self.known.iter().enumerate().filter(|(i, _)| styles.0 & (1 << i) != 0).map(|(_, (style, _))| *style);
        let Some(first) = left.next() else { return Choice::None };
        let is_same = |other: Style| match (first, other) {
            (Style::Number(decimal, _), Style::Number(other, _)) => decimal == other,
            // `May 5, 2011` is both an abbreviation and a name.
            (Style::Moment(one, a), Style::Moment(other, b)) => {
                one == other && a.replace("Month", "Mon") == b.replace("Month", "Mon")
            }
            _ => false,
        };
        if left.all(is_same) { Choice::One(first) } else { Choice::Several }
    }
}

/// What is known about the style of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// No style reads all values.
    None,
    /// This one does.
    One(Style),
    /// Several do, in different ways.
    Several,
}

/// Whether a text consists of digits and separators, without zeros that a number would lose.
fn is_number(text: &[u8]) -> bool {
    let unsigned = text.strip_prefix(b"-").unwrap_or(text);
    let leads = matches!(unsigned, [b'0', b'0'..=b'9', ..]);
    let is_part = |b: &u8| b.is_ascii_digit() || matches!(b, b'.' | b',' | b'\'' | b' ') || *b >= 0x80;
    // Reading a zero as a number would lose its sign. Blanks between digits are of a number only if it has a fraction.
    let is_zero = unsigned.len() < text.len() && !unsigned.iter().any(|b| matches!(b, b'1'..=b'9'));
    let is_code = unsigned.contains(&b' ') && !unsigned.contains(&b',');
    !leads && !is_zero && !is_code && unsigned.iter().all(is_part) && unsigned.last().is_some_and(u8::is_ascii_digit)
}

/// Words for a missing value in columns of another type than text. A number, such as -999, is none.
const NULL_WORDS: &str =
    "NA N/A #N/A #NA n/a NULL null Null None none NONE - -- --- ? . .. ... \\N (null) <NA> n.a. nil";

/// Whether a value is a word for a missing value.
#[must_use]
pub fn is_null_word(value: &[u8]) -> bool {
    // Most values are long, or end with a digit, as no word does.
    let may_be_one = value.len() <= 6 && !value.last().is_some_and(u8::is_ascii_digit);
    may_be_one && NULL_WORDS.as_bytes().split(|&b| b == b' ').any(|word| word == value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn style(values: &[&str]) -> Choice {
        let mut styles = Styles::new();
        let left = values.iter().fold(StyleSet::ALL, |left, value| styles.keep(left, value.as_bytes()));
        styles.choice(left)
    }

    #[test]
    fn all_templates_are_valid() {
        assert_eq!(Styles::new().known.len(), NUMBERS.len() + DATES.split('|').count() + TIMESTAMPS.split('|').count());
        assert!(Styles::new().known.len() <= 64);
    }

    #[test]
    fn numbers_have_one_style() {
        let one = |decimal, thousands| Choice::One(Style::Number(decimal, thousands));
        assert_eq!(style(&["1.234,50", "-7,25", "12"]), one(b',', "."));
        assert_eq!(style(&["1,5", "33,33"]), one(b',', ""));
        assert_eq!(style(&["1 234,5", "2,5"]), one(b',', " "));
        assert_eq!(style(&["1\u{a0}234,5"]), one(b',', "\u{a0}"));
        assert_eq!(style(&["1'234.50", "9'100.00"]), one(b'.', "'"));
        assert_eq!(style(&["1,045.10", "12.99"]), one(b'.', ","));
        assert_eq!(style(&["1,234,567", "5"]), one(b'.', ","));
        assert_eq!(style(&["1,234", "5,678"]), Choice::Several);
        for values in [
            &["007,5"][..],
            &["1,5", "x"],
            &["1,5", "1.5"],
            &["12%"],
            &["$5.00"],
            &["(1,200)"],
            &["552 100 554"],
            &["-0,0"],
            &[""],
        ] {
            assert_eq!(style(values), Choice::None, "{values:?}");
        }
    }

    #[test]
    fn dates_have_one_style() {
        let date = |template| Choice::One(Style::Moment(Type::Date, template));
        assert_eq!(style(&["31.12.2025", "01.02.2025"]), date("DD.MM.YYYY"));
        assert_eq!(style(&["12/31/2025", "01/02/2026"]), date("MM/DD/YYYY"));
        assert_eq!(style(&["01/02/2026", "02/01/2026"]), Choice::Several);
        assert_eq!(style(&["23-Sep-11"]), date("DD-Mon-YY"));
        assert_eq!(style(&["Sep 23, 2011", "May 2, 2011"]), date("Mon DD, YYYY"));
        assert_eq!(style(&["23 September 2011"]), date("DD Month YYYY"));
        assert_eq!(style(&["31.12.25"]), date("DD.MM.YY"));
        let timestamp = |template| Choice::One(Style::Moment(Type::Timestamp, template));
        assert_eq!(style(&["12/31/2025 11:15 PM", "01/13/2026 02:05 AM"]), timestamp("MM/DD/YYYY HH12:MI AM"));
        assert_eq!(style(&["31.12.2025 23:15"]), timestamp("DD.MM.YYYY HH24:MI"));
        for values in ["31.02.2025", "2025-01-31", "10.3.1.18"] {
            assert_eq!(style(&[values]), Choice::None, "{values}");
        }
    }

    #[test]
    fn words_are_null() {
        for word in ["NA", "N/A", "#N/A", "-", "?", "\\N"] {
            assert!(is_null_word(word.as_bytes()), "{word}");
        }
        for word in ["", "-999", "NAN", "nan", "Na", "unknown"] {
            assert!(!is_null_word(word.as_bytes()), "{word}");
        }
    }
}
