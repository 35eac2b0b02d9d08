//! Changes to a field's text before its type reads it: numbers with other separators, dates by a template, binary
//! numbers, trimmed blanks.
//!
//! Each has a naive twin here, which gives the expected result of every input and rejects all that must be rejected.

use std::collections::HashMap;

use pg_bulk_text::fixed::Trim;
use pg_bulk_text::number::{Number, Order};
use pg_bulk_text::pattern::Pattern;
use pg_bulk_text::refine::trimmed;
use pg_bulk_text::template::{BadTemplate, Misfit, Template, TemplateType};

/// Length of the head, in bytes.
pub const HEAD: usize = 2;

const SEPARATORS: [&[u8]; 8] =
    [b".", b",", b" ", b"'", b"_", "\u{a0}".as_bytes(), "\u{202f}".as_bytes(), "\u{20ac}".as_bytes()];
/// Contents of the buffer before the call, which must stay.
const BEFORE: &[u8] = b"12";

/// Rewrites one input.
pub fn run(input: &[u8]) {
    let Some((&[what, how], data)) = input.split_first_chunk::<HEAD>() else { return };
    match what % 4 {
        0 => with_separators(how, data),
        1 => by_template(how, data),
        2 => of_memory(how, data),
        _ => without_blanks(how, data),
    }
}

/// Returns the appended text if the input was accepted.
fn appended<E>(out: &[u8], written: Result<(), E>) -> Result<String, E> {
    let text = out.strip_prefix(BEFORE).unwrap_or_else(|| panic!("{out:?} does not begin as it did"));
    written.map(|()| String::from_utf8(text.to_vec()).unwrap_or_else(|_| panic!("{text:?} is no text")))
}

fn with_separators(how: u8, text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    let decimal = if how & 1 == 0 { b'.' } else { b',' };
    let thousands = SEPARATORS.get(usize::from(how >> 1) % 9).map(|separator| separator.to_vec());
    if thousands.as_deref() == Some(&[decimal]) {
        return;
    }
    let pattern = Pattern { decimal, thousands };
    let mut out = BEFORE.to_vec();
    let written = pattern.write(text.as_bytes(), &mut out).ok_or(());
    let found = appended(&out, written).ok();
    assert_eq!(found, plain(&pattern, text), "{text:?} as {pattern:?}");
}

/// Returns the number without separators, and with a point.
fn plain(pattern: &Pattern, text: &str) -> Option<String> {
    let text = text.trim_matches([' ', '\t', '\n', '\r', '\u{c}']);
    let decimal = char::from(pattern.decimal);
    let separator = pattern.thousands.as_ref().map(|s| String::from_utf8_lossy(s).into_owned());
    let is_separated = separator.as_ref().is_some_and(|s| text.contains(s));
    if !is_separated && !text.contains(['.', decimal]) {
        return Some(text.to_owned());
    }
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (sign, unsigned) = text.split_at(usize::from(text.starts_with(['+', '-'])));
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => {
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits.is_empty() || !is_number(digits) {
                return None;
            }
            (mantissa, format!("e{exponent}"))
        }
        None => (unsigned, String::new()),
    };
    let (integer, fraction) = mantissa.split_once(decimal).map_or((mantissa, None), |(i, f)| (i, Some(f)));
    let groups: Vec<&str> = match &separator {
        Some(separator) => integer.split(separator.as_str()).collect(),
        None => vec![integer],
    };
    let are_groups = groups[1..].iter().all(|group| group.len() == 3) && (1..=3).contains(&groups[0].len());
    let digits = groups.concat();
    if (groups.len() > 1 && !are_groups) || !is_number(&digits) || !fraction.is_none_or(is_number) {
        return None;
    }
    if digits.len() + fraction.map_or(0, str::len) == 0 {
        return None;
    }
    Some(format!("{sign}{digits}{}{exponent}", fraction.map(|f| format!(".{f}")).unwrap_or_default()))
}

/// A part of a template.
#[derive(Debug, PartialEq)]
enum Token<'a> {
    Name(&'static str),
    Literal(&'a [u8]),
}

/// A name is listed before the names that begin it.
const NAMES: [&str; 15] =
    ["MONTH", "YYYY", "HH24", "HH12", "MON", "YY", "MM", "MI", "MS", "DD", "HH", "AM", "PM", "SS", "US"];
const MONTHS: [&str; 12] = [
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
];

/// The data contain the template and the text, with a NUL between them.
fn by_template(how: u8, data: &[u8]) {
    let mut parts = data.splitn(2, |&byte| byte == 0);
    let (template, text) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let kind = [TemplateType::Date, TemplateType::Time, TemplateType::Timestamp][usize::from(how) % 3];
    let made = Template::new(template, kind);
    let Some(tokens) = tokens(template) else {
        return assert!(matches!(made, Err(BadTemplate::Unknown(_))), "{template:?} is taken");
    };
    assert!(!matches!(made, Err(BadTemplate::Unknown(_))), "{template:?} is not known");
    let Ok(made) = made else { return };
    let mut out = BEFORE.to_vec();
    let written = made.write(text, &mut out);
    let found = appended(&out, written);
    assert_eq!(found, moment(kind, &tokens, text), "{:?} as {tokens:?}", String::from_utf8_lossy(text));
}

fn tokens(template: &[u8]) -> Option<Vec<Token<'_>>> {
    let (mut tokens, mut at) = (Vec::new(), 0);
    while let Some(&first) = template.get(at) {
        let rest = &template[at..];
        if first == b'"' {
            let length = rest[1..].iter().position(|&byte| byte == b'"')?;
            tokens.push(Token::Literal(&rest[1..=length]));
            at += length + 2;
        } else if first.is_ascii_alphanumeric() {
            let upper = rest.to_ascii_uppercase();
            let name = NAMES.into_iter().find(|name| upper.starts_with(name.as_bytes()))?;
            tokens.push(Token::Name(name));
            at += name.len();
        } else {
            tokens.push(Token::Literal(&rest[..1]));
            at += 1;
        }
    }
    Some(tokens)
}

/// Returns the date and time of a text, year first.
fn moment(kind: TemplateType, tokens: &[Token], mut text: &[u8]) -> Result<String, Misfit> {
    let mut given: HashMap<&str, usize> = HashMap::new();
    for (i, token) in tokens.iter().enumerate() {
        let name = match token {
            Token::Literal(literal) => {
                text = text.strip_prefix(*literal).ok_or(Misfit::Form)?;
                continue;
            }
            Token::Name(name) => *name,
        };
        let is_behind_name = i > 0 && matches!(tokens[i - 1], Token::Name(_));
        let is_tight =
            is_behind_name || matches!(tokens.get(i + 1), Some(Token::Name(next)) if !["AM", "PM"].contains(next));
        let lower = text.to_ascii_lowercase();
        let (value, length) = match name {
            "MONTH" | "MON" => {
                let word = |month: &'static str| if name == "MON" { &month[..3] } else { month };
                let month = MONTHS.iter().position(|month| lower.starts_with(word(month).as_bytes()));
                month.map(|month| (month + 1, word(MONTHS[month]).len())).ok_or(Misfit::Form)?
            }
            "AM" | "PM" => match lower.get(..2) {
                Some(b"am") => (0, 2),
                Some(b"pm") => (12, 2),
                _ => return Err(Misfit::Form),
            },
            _ => {
                let most = match name {
                    "YYYY" => 4,
                    "MS" => 3,
                    "US" => 6,
                    _ => 2,
                };
                let least = if is_tight || name.starts_with('Y') { most } else { 1 };
                let length = text.iter().take(most).take_while(|byte| byte.is_ascii_digit()).count();
                if length < least {
                    return Err(Misfit::Form);
                }
                let digits = std::str::from_utf8(&text[..length]).unwrap_or_default();
                let digits = if ["MS", "US"].contains(&name) { format!("{digits:0<6}") } else { digits.to_owned() };
                (digits.parse().unwrap_or(usize::MAX), length)
            }
        };
        given.insert(name, value);
        text = &text[length..];
    }
    if !text.is_empty() {
        return Err(Misfit::Form);
    }
    let of = |names: &[&str]| names.iter().find_map(|name| given.get(name).copied());
    let year = of(&["YYYY"]).or_else(|| of(&["YY"]).map(|year| if year < 70 { 2000 + year } else { 1900 + year }));
    let (month, day) = (of(&["MM", "MON", "MONTH"]), of(&["DD"]));
    let (minute, second, fraction) =
        (of(&["MI"]).unwrap_or(0), of(&["SS"]).unwrap_or(0), of(&["MS", "US"]).unwrap_or(0));
    let hour = match (of(&["HH24"]), of(&["HH12", "HH"]), of(&["AM", "PM"])) {
        (_, Some(hour @ 1..=12), Some(half)) => hour % 12 + half,
        (Some(hour @ 0..24), None, None) => hour,
        (None, None, None) => 0,
        _ => return Err(Misfit::Range),
    };
    if minute > 59 || second > 59 {
        return Err(Misfit::Range);
    }
    let mut written = String::new();
    if let (Some(year), Some(month), Some(day)) = (year, month, day) {
        let leap = if (year % 4 == 0 && year % 100 != 0) || year % 400 == 0 { 29 } else { 28 };
        let days = [31, leap, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let is_day = month > 0 && days.get(month - 1).is_some_and(|&days| (1..=days).contains(&day));
        if year == 0 || !is_day {
            return Err(Misfit::Range);
        }
        written = format!("{year:04}-{month:02}-{day:02}");
    }
    if kind == TemplateType::Timestamp {
        written.push(' ');
    }
    if kind != TemplateType::Date {
        written += &format!("{hour:02}:{minute:02}:{second:02}");
        if fraction > 0 {
            written += &format!(".{fraction:06}");
        }
    }
    Ok(written)
}

/// Computes integers; floats must read back as the same value.
fn of_memory(how: u8, data: &[u8]) {
    let bytes = &data[..data.len().min(8)];
    let order = if how & 1 == 0 { Order::Little } else { Order::Big };
    let (kind, is_double) = (how >> 1 & 3, how & 8 != 0);
    if bytes.is_empty() || (kind > 1 && ![4, 8].contains(&bytes.len())) {
        return;
    }
    let number = match kind {
        0 => Number::Unsigned(order),
        1 => Number::Signed(order),
        _ if is_double => Number::Double(order),
        _ => Number::Float(order),
    };
    let mut out = BEFORE.to_vec();
    number.write(bytes, &mut out);
    let found = appended(&out, Ok::<(), ()>(())).unwrap_or_default();
    let highest_first: Vec<u8> =
        if order == Order::Big { bytes.to_vec() } else { bytes.iter().rev().copied().collect() };
    let unsigned = highest_first.iter().fold(0i128, |all, &byte| all * 256 + i128::from(byte));
    let is_negative = highest_first[0] > 127;
    let read = || found.parse::<f64>().unwrap_or_else(|_| panic!("{found} is no number"));
    match (kind, bytes.len()) {
        (0, _) => assert_eq!(found, unsigned.to_string()),
        (1, n) => assert_eq!(found, (unsigned - if is_negative { 1 << (8 * n) } else { 0 }).to_string()),
        (_, 4) => {
            let single = f32::from_bits(unsigned as u32);
            let read = if is_double {
                read()
            } else {
                found.parse::<f32>().map_or_else(|_| panic!("{found} is no number"), f64::from)
            };
            assert!(
                read.to_bits() == f64::from(single).to_bits() || (read.is_nan() && single.is_nan()),
                "{found} for {single}"
            );
        }
        _ => {
            let double = f64::from_bits(unsigned as u64);
            assert!(
                read().to_bits() == double.to_bits() || (read().is_nan() && double.is_nan()),
                "{found} for {double}"
            );
        }
    }
}

/// Removes blanks byte by byte; an escaped byte counts together with its backslash.
fn without_blanks(how: u8, raw: &[u8]) {
    let (trim, escapes) = ([Trim::None, Trim::Left, Trim::Right, Trim::Both][usize::from(how & 3)], how & 4 != 0);
    let (mut units, mut at) = (Vec::new(), 0);
    while at < raw.len() {
        let length = if escapes && raw[at] == b'\\' && at + 1 < raw.len() { 2 } else { 1 };
        units.push(&raw[at..at + length]);
        at += length;
    }
    let is_blank = |unit: &&[u8]| matches!(**unit, [b' ' | b'\t']);
    if matches!(trim, Trim::Left | Trim::Both) {
        units.drain(..units.iter().take_while(|unit| is_blank(unit)).count());
    }
    if matches!(trim, Trim::Right | Trim::Both) {
        units.truncate(units.len() - units.iter().rev().take_while(|unit| is_blank(unit)).count());
    }
    assert_eq!(
        trimmed(raw, trim, escapes),
        units.concat(),
        "{:?}, {trim:?}, escapes: {escapes}",
        String::from_utf8_lossy(raw)
    );
}
