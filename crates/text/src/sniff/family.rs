//! The family of a value: what a person takes it for, whether or not a type of the server reads it.
//!
//! A family is wider than a type ([`shape`](super::shape)). `1.234,50`, `$5.00`, `12%`, `<0.05` and `007` are numbers
//! here, and `23-Sep-11` is a moment. Families decide about the header only, so a wrong family costs no value.

use super::shape::is_uuid;

/// What a person takes a value for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Nothing but blanks.
    Blank,
    /// A word for a missing value, such as `NA`.
    Missing,
    /// A number, with or without separators, a currency, a percent sign or a footnote.
    Number,
    /// A number and a short unit, such as `5 kg`.
    Quantity,
    /// A date, a time, a month of a year.
    Moment,
    /// Yes or no.
    Truth,
    /// An address: e-mail, URL, IP, UUID, a path.
    Address,
    /// A JSON object or array.
    Json,
    /// Any other text with a letter.
    Word,
    /// Any other text.
    Sign,
}

impl Family {
    /// The number of families.
    pub const COUNT: usize = 10;

    /// The family of a value.
    #[must_use]
    pub fn of(value: &[u8]) -> Family {
        let value = value.trim_ascii();
        let Some(&first) = value.first() else { return Family::Blank };
        if !first.is_ascii_digit() {
            if is_missing(value) {
                return Family::Missing;
            }
            if is_one_of(TRUTHS, value) {
                return Family::Truth;
            }
        }
        if matches!((first, value.last()), (b'{', Some(b'}')) | (b'[', Some(b']'))) && value.len() > 1 {
            return bracketed(value);
        }
        if value.iter().any(u8::is_ascii_digit) && !is_ip(value) {
            if is_moment(value) {
                return Family::Moment;
            }
            match amount(value) {
                Some(b"") => return Family::Number,
                Some(unit) if is_unit(unit) => return Family::Quantity,
                _ => (),
            }
        }
        if is_address(value) {
            return Family::Address;
        }
        if has_letter(value) { Family::Word } else { Family::Sign }
    }
}

/// Words for a missing value.
const MISSING: &str =
    "na n/a #n/a n.a. n.a n.d. nan null none nil unknown missing - -- --- ? \\n (null) <na> .. ... . k.a.";

const TRUTHS: &str = "true false yes no y n t f ja nein oui non wahr falsch vrai faux";

/// Names of months and weekdays in English, German, French, Spanish, Italian, Dutch and Portuguese.
const MONTHS: &str = "january february march april may june july august september sept october november december januar \
    februar märz mrz mai juni juli oktober dezember janvier février mars avril juin juillet août septembre \
    octobre novembre décembre enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre \
    diciembre gennaio febbraio aprile maggio giugno luglio settembre ottobre dicembre maart mei augustus \
    janeiro fevereiro março maio setembro outubro novembro dezembro monday tuesday wednesday thursday friday \
    saturday sunday montag dienstag mittwoch donnerstag freitag samstag sonntag";

/// Whether a word stands for a missing value.
#[must_use]
pub fn is_missing(word: &[u8]) -> bool {
    is_one_of(MISSING, word)
}

/// Whether a list of words, separated by blanks, has a word in any case.
#[must_use]
pub fn is_one_of(words: &str, word: &[u8]) -> bool {
    word.len() <= 16 && words.as_bytes().split(|&b| b == b' ').any(|known| word.eq_ignore_ascii_case(known))
}

/// Whether a text has a letter. An underscore, and every byte beyond ASCII, counts as one.
#[must_use]
pub fn has_letter(text: &[u8]) -> bool {
    text.iter().any(|b| b.is_ascii_alphabetic() || *b == b'_' || *b >= 0x80)
}

/// JSON has quotes, numbers or nothing inside; `[m/s]` is a unit.
fn bracketed(value: &[u8]) -> Family {
    let inner = value.get(1..value.len() - 1).unwrap_or_default().trim_ascii();
    let is_json = inner.is_empty() || matches!(inner.first(), Some(b'"' | b'{' | b'[' | b'0'..=b'9' | b'-'));
    if is_json { Family::Json } else { Family::Word }
}

/// Length of the currency at the start of a text: a sign, in UTF-8 or in a single-byte encoding, or three capitals.
fn currency(text: &[u8]) -> usize {
    match text {
        [b'$', ..] => 1,
        [0xc2, 0xa2..=0xa5, ..] => 2,
        [0xe2, 0x82, 0xa0..=0xbf, ..] | [0xe2, 0x83, 0x80..=0x8f, ..] => 3,
        // In a multibyte encoding, the next byte would not be ASCII.
        [0x80 | 0xa2..=0xa5] => 1,
        [0x80 | 0xa2..=0xa5, next, ..] if next.is_ascii() => 1,
        _ if is_one_of("usd eur gbp chf jpy cad aud", text.get(..3).unwrap_or_default()) => 3,
        _ => 0,
    }
}

/// Skips signs, brackets, blanks and a currency in front of an amount's digits.
fn front(mut text: &[u8]) -> &[u8] {
    loop {
        let n = match text {
            [b'+' | b'-' | b'(' | b'<' | b'>' | b'=' | b'~' | b' ' | b'\'', ..] => 1,
            // A minus sign, and the signs of at most and at least.
            [0xe2, 0x88, 0x92, ..] | [0xe2, 0x89, 0xa4 | 0xa5, ..] => 3,
            _ => currency(text),
        };
        if n == 0 {
            return text;
        }
        text = text.get(n..).unwrap_or_default();
    }
}

/// Returns the text behind a number, its percent sign, currency and footnotes. None if the text begins otherwise.
fn amount(text: &[u8]) -> Option<&[u8]> {
    let mut rest = front(text);
    if matches!(rest, [b'.' | b',', b'0'..=b'9', ..]) {
        rest = rest.get(1..)?;
    }
    let mut digits = 0;
    loop {
        rest = match rest {
            [b'0'..=b'9', rest @ ..] => rest,
            [b'.'] if digits > 0 => &[],
            // Separators, no-break spaces, a typographic apostrophe and the letter of an exponent are between digits.
            [b'.' | b',' | b'\'' | b' ' | b'_', rest @ ..]
            | [0xc2, 0xa0, rest @ ..]
            | [0xe2, 0x80, 0xaf | 0x99, rest @ ..]
            | [b'e' | b'E', b'+' | b'-', rest @ ..]
            | [b'e' | b'E', rest @ ..]
                if digits > 0 && rest.first().is_some_and(u8::is_ascii_digit) =>
            {
                rest
            }
            _ => break,
        };
        digits += 1;
    }
    if digits == 0 {
        return None;
    }
    loop {
        rest = match rest {
            [b'%' | b')' | b'*' | b'#' | b'+' | b'-' | b' ' | b'\'', rest @ ..] => rest,
            // Per mille, the degree sign, the dagger.
            [0xe2, 0x80, 0xa0 | 0xa1 | 0xb0, rest @ ..] | [0xc2, 0xb0, rest @ ..] => rest,
            _ => match currency(rest) {
                0 => return Some(rest),
                n => rest.get(n..)?,
            },
        };
    }
}

/// Whether a short text behind a number may be a unit. `1st` and `2nd` are words.
fn is_unit(text: &[u8]) -> bool {
    text.len() <= 3
        && text.iter().all(|b| b.is_ascii_alphabetic() || *b >= 0x80 || *b == b'/')
        && !is_one_of("st nd rd th", text)
}

/// Whether a text consists of the numbers and words of a date or a time.
fn is_moment(text: &[u8]) -> bool {
    // A weekday and a date with the month's name, a time with fraction and zone.
    if text.len() > 48 {
        return false;
    }
    let (mut numbers, mut lengths, mut months) = (0usize, [0usize; 3], 0);
    let (mut colons, mut dashes, mut slashes, mut dots, mut others) = (0, 0, 0, 0, false);
    let mut rest = text;
    while let Some(&byte) = rest.first() {
        let n = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        if n > 0 {
            if let Some(length) = lengths.get_mut(numbers) {
                *length = n;
            }
            numbers += 1;
            rest = rest.get(n..).unwrap_or_default();
            continue;
        }
        let letters = rest.iter().take_while(|b| b.is_ascii_alphabetic() || **b >= 0x80).count();
        if letters > 0 {
            let word = rest.get(..letters).unwrap_or_default();
            let is_month = letters >= 3
                && MONTHS
                    .as_bytes()
                    .split(|&b| b == b' ')
                    .any(|month| month.get(..letters).is_some_and(|begin| begin.eq_ignore_ascii_case(word)));
            months += usize::from(is_month);
            others |= !is_month && !is_one_of("t z am pm utc gmt est cet st nd rd th de", word);
            rest = rest.get(letters..).unwrap_or_default();
            continue;
        }
        match byte {
            b':' => colons += 1,
            b'-' => dashes += 1,
            b'/' => slashes += 1,
            b'.' => dots += 1,
            b',' | b' ' | b'+' => (),
            _ => others = true,
        }
        rest = rest.get(1..).unwrap_or_default();
    }
    if others || text.first().is_some_and(|b| !b.is_ascii_alphanumeric() && *b < 0x80) {
        return false;
    }
    let [first, second, third] = lengths;
    let (short, year) = (1..=2, |n: usize| n == 2 || n == 4);
    let is_day = |separators: usize| {
        separators >= 2
            && numbers >= 3
            && ((first == 4 && short.contains(&second) && short.contains(&third))
                || (short.contains(&first) && short.contains(&second) && year(third)))
    };
    match months {
        0 => {
            let is_clock = colons >= 1 && short.contains(&first) && second == 2 && dashes + slashes == 0;
            // The month of a year: 2011-09.
            let is_month = numbers == 2 && dashes + slashes == 1 && dots + colons == 0 && first == 4 && second == 2;
            is_day(dashes) || is_day(slashes) || (is_day(dots) && (numbers == 3 || colons > 0)) || is_clock || is_month
        }
        1 | 2 => numbers >= 1 && [first, second].iter().all(|&n| n <= 4),
        _ => false,
    }
}

fn is_address(text: &[u8]) -> bool {
    if text.contains(&b' ') {
        return false;
    }
    let has = |part: &[u8]| text.windows(part.len()).any(|window| window == part);
    let is_mail = || {
        let at = memchr::memchr(b'@', text);
        at.is_some_and(|at| at > 0 && text.get(at..).is_some_and(|host| host.contains(&b'.')))
    };
    has(b"://")
        || text.starts_with(b"www.")
        || is_mail()
        || is_ip(text)
        || is_uuid(text)
        || matches!(text, [b'/', _, _, _, ..] | [_, b':', b'\\', ..])
}

/// Four numbers with dots between them, perhaps with a port or a mask; or six bytes of a hardware address.
fn is_ip(text: &[u8]) -> bool {
    let host = text.split(|b| matches!(b, b':' | b'/')).next().unwrap_or_default();
    let parts = || host.split(|&b| b == b'.');
    let is_v4 = parts().count() == 4
        && parts().all(|part| (1..=3).contains(&part.len()) && part.iter().all(u8::is_ascii_digit));
    let bytes = || text.split(|b| matches!(b, b':' | b'-'));
    is_v4 || (bytes().count() == 6 && bytes().all(|part| part.len() == 2 && part.iter().all(u8::is_ascii_hexdigit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_families() {
        let cases = [
            (Family::Blank, "|  "),
            (Family::Missing, "NA|n/a|N.A.|-| NULL |#N/A|\\N"),
            (
                Family::Number,
                "1|-1.5|007|1e-5|1.2E+10|1,234.50|1.234,50|1 234,5|1'234.50|(1,200)|12%|$5.00|€5|5 €|USD 12|<0.05|~3|7.3*|.5|5.|1\u{a0}234|−3|20250131|12‰",
            ),
            (Family::Quantity, "5 kg|-5x|10ms|3 m/s"),
            (
                Family::Moment,
                "2024-01-31|31.12.2025|12/31/25|23-Sep-11|Sep 23, 2011|23 September 2011|10:00|9:05:01 PM|2024-01-31T10:00:01Z|2009-31-21 17:31:32|Mon, 27 Aug 2011 16:04:36 GMT|2011-09|31. Dez 2011|Sep-11|1/2/2024 3:04 PM|06:00:04+01:00",
            ),
            (Family::Truth, "yes|F|TRUE|nein"),
            (Family::Address, "a@b.ch|http://x.y/z|10.3.1.18|/usr/bin|a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
            (Family::Json, "{}|[1, 2]|{\"a\": 1}"),
            (
                Family::Word,
                "a|time[s]|T %|$/kg|# of x|1st|2nd quarter|[m/s]|größe|MG-8769|1 Main Street|0xff00|4 hours|Total (m3)|a@b|k3|3-Marbles",
            ),
            (Family::Sign, "%|1.2.3.4.5.6/7|#|1-2-3"),
        ];
        for (family, values) in cases {
            for value in values.split('|') {
                assert_eq!(Family::of(value.as_bytes()), family, "{value}");
            }
        }
    }
}
