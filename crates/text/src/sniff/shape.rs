//! The shape of a value: the types that a column with such a value may have.
//!
//! A shape is stricter than a type's input function. The server accepts `007` as an integer, but its author did not
//! mean a number. It accepts `NO` as a boolean, but `NO` without `YES` is Norway. So a value supports a type only in the usual
//! form of that type. The caller must still find out whether the server accepts it (`2024-02-30`, or `99999999999` as
//! an integer).
//!
//! Some shapes are weak evidence: `nan` may be a name, and `F` a code. They only support a type that other values of
//! the column prove ([`ValueShape::proves`]). `03/04/2024` is one of two dates. Another value with the year at its end
//! and a number above 12 decides which one ([`Day`]).

/// A type that a column may have, the narrowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// `t`, `f`, `true`, `false`, `yes`, `no`, `y`, `n`
    Boolean,
    /// int4
    Integer,
    /// int8
    Bigint,
    /// numeric
    Numeric,
    /// float8
    Double,
    /// date
    Date,
    /// timestamp
    Timestamp,
    /// timestamptz
    Timestamptz,
    /// time
    Time,
    /// uuid
    Uuid,
    /// jsonb
    Jsonb,
    /// json
    Json,
}

/// Number of significant digits that float8 keeps of any decimal number (DBL_DIG).
const DOUBLE_DIGITS: usize = 15;
/// The deepest nesting to accept. The server's parser recurses, so the user must choose JSON for deeper values.
const MOST_DEPTH: usize = 200;

impl Type {
    /// All types.
    pub const ALL: [Type; 12] = [
        Type::Boolean,
        Type::Integer,
        Type::Bigint,
        Type::Numeric,
        Type::Double,
        Type::Date,
        Type::Timestamp,
        Type::Timestamptz,
        Type::Time,
        Type::Uuid,
        Type::Jsonb,
        Type::Json,
    ];

    /// Its name in SQL.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Type::Boolean => "boolean",
            Type::Integer => "integer",
            Type::Bigint => "bigint",
            Type::Numeric => "numeric",
            Type::Double => "double precision",
            Type::Date => "date",
            Type::Timestamp => "timestamp",
            Type::Timestamptz => "timestamptz",
            Type::Time => "time",
            Type::Uuid => "uuid",
            Type::Jsonb => "jsonb",
            Type::Json => "json",
        }
    }
}

/// A set of types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Types(u16);

impl Types {
    /// The empty set.
    pub const NONE: Types = Types(0);
    /// The set of all types.
    pub const ALL: Types = Types((1 << Type::ALL.len()) - 1);

    /// The set of these types.
    #[must_use]
    pub fn of(types: &[Type]) -> Types {
        Types(types.iter().fold(0, |all, &one| all | 1 << one as u16))
    }

    /// Whether the set contains a type.
    #[must_use]
    pub fn has(self, one: Type) -> bool {
        self.0 & 1 << one as u16 != 0
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The intersection.
    #[must_use]
    pub fn and(self, other: Types) -> Types {
        Types(self.0 & other.0)
    }

    /// The union.
    #[must_use]
    pub fn or(self, other: Types) -> Types {
        Types(self.0 | other.0)
    }

    /// The set without one type.
    #[must_use]
    pub fn without(self, one: Type) -> Types {
        Types(self.0 & !(1 << one as u16))
    }

    /// The types, the narrowest first.
    pub fn iter(self) -> impl Iterator<Item = Type> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let one = Type::ALL.get(left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(*one)
        })
    }
}

/// The evidence of one value for the type of its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ValueShape {
    /// The value is in the form of these types.
    pub types: Types,
    /// The types that the value proves.
    pub proves: Types,
    /// The form of its date, if it has one.
    pub day: Option<Day>,
    /// The value is yes or no, or a letter for true or false. A column with both is boolean; one alone is any code.
    pub letter: Option<bool>,
}

impl ValueShape {
    fn proof(types: &[Type]) -> ValueShape {
        let types = Types::of(types);
        ValueShape { types, proves: types, ..ValueShape::default() }
    }

    /// Supports a type without proving it.
    fn hint(one: Type) -> ValueShape {
        ValueShape { types: Types::of(&[one]), ..ValueShape::default() }
    }

    /// Returns the shape of a value that is not NULL.
    #[must_use]
    pub fn of(value: &[u8]) -> ValueShape {
        let trimmed = trim(value);
        let Some(&first) = trimmed.first() else { return ValueShape::default() };
        match first {
            b'{' | b'[' => json(trimmed),
            b'0'..=b'9' | b'.' | b'-' => {
                if trimmed.len() == value.len() && is_uuid(value) {
                    return ValueShape::proof(&[Type::Uuid]);
                }
                let number = number(trimmed);
                if number.types.is_empty() { moment(trimmed) } else { number }
            }
            _ => {
                match value.to_ascii_lowercase().as_slice() {
                    b"true" | b"false" => return ValueShape::proof(&[Type::Boolean]),
                    word @ (b"t" | b"f" | b"y" | b"n" | b"yes" | b"no") => {
                        let is_true = matches!(word.first(), Some(b't' | b'y'));
                        return ValueShape { letter: Some(is_true), ..ValueShape::hint(Type::Boolean) };
                    }
                    _ => (),
                }
                let unsigned = trimmed.strip_prefix(b"+").unwrap_or(trimmed);
                if is_no_number(unsigned) {
                    return ValueShape::hint(Type::Double);
                }
                if is_uuid(value) { ValueShape::proof(&[Type::Uuid]) } else { ValueShape::default() }
            }
        }
    }
}

/// Removes blanks at both ends, which input functions of numbers, dates and times ignore.
fn trim(value: &[u8]) -> &[u8] {
    let start = value.iter().take_while(|&&b| b == b' ').count();
    let rest = value.get(start..).unwrap_or_default();
    let end = rest.iter().rev().take_while(|&&b| b == b' ').count();
    rest.get(..rest.len() - end).unwrap_or_default()
}

fn is_no_number(word: &[u8]) -> bool {
    let words: [&[u8]; 3] = [b"nan", b"inf", b"infinity"];
    words.iter().any(|known| known.eq_ignore_ascii_case(word))
}

/// Number of digits at the start.
fn digits(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|b| b.is_ascii_digit()).count()
}

/// The bytes behind the first `n`.
fn behind(bytes: &[u8], n: usize) -> &[u8] {
    bytes.get(n..).unwrap_or_default()
}

fn number(value: &[u8]) -> ValueShape {
    let unsigned = value.strip_prefix(b"-").unwrap_or(value);
    if is_no_number(unsigned) {
        return ValueShape::hint(Type::Double);
    }
    let whole = digits(unsigned);
    let rest = behind(unsigned, whole);
    let mantissa = unsigned.split(|b| b.eq_ignore_ascii_case(&b'e')).next().unwrap_or_default();
    // Reading a zero as a number would lose its sign.
    if unsigned.len() < value.len() && !mantissa.iter().any(|b| matches!(b, b'1'..=b'9')) {
        return ValueShape::default();
    }
    // Reading it as a number would lose the leading zero.
    if whole > 1 && unsigned.first() == Some(&b'0') {
        return ValueShape::default();
    }
    if rest.is_empty() {
        let narrow = Types::of(&[Type::Integer, Type::Bigint, Type::Numeric]);
        let types = if whole <= DOUBLE_DIGITS { narrow.or(Types::of(&[Type::Double])) } else { narrow };
        return if whole == 0 {
            ValueShape::default()
        } else {
            ValueShape { types, proves: types, ..ValueShape::default() }
        };
    }
    let (fraction, rest) = match rest.strip_prefix(b".") {
        Some(rest) => (digits(rest), behind(rest, digits(rest))),
        None => (0, rest),
    };
    // `1.` and `.` are rather the end of a sentence.
    if whole + fraction == 0 || (behind(unsigned, whole).first() == Some(&b'.') && fraction == 0) {
        return ValueShape::default();
    }
    // Zeros in front are not significant.
    let zeros = mantissa.iter().take_while(|b| matches!(b, b'0' | b'.')).filter(|b| **b == b'0').count();
    let is_short = whole + fraction - zeros.min(whole + fraction) <= DOUBLE_DIGITS;
    if rest.is_empty() {
        return ValueShape::proof(if is_short { &[Type::Numeric, Type::Double] } else { &[Type::Numeric] });
    }
    let Some(exponent) = rest.strip_prefix(b"e").or_else(|| rest.strip_prefix(b"E")) else {
        return ValueShape::default();
    };
    let exponent = exponent.strip_prefix(b"+").or_else(|| exponent.strip_prefix(b"-")).unwrap_or(exponent);
    let n = digits(exponent);
    if n == 0 || n < exponent.len() {
        return ValueShape::default();
    }
    // Of large exponents, float8 would be out of range, or lose digits.
    let significant = exponent.iter().skip_while(|&&digit| digit == b'0').count();
    if !is_short || significant > 2 {
        return ValueShape::proof(&[Type::Numeric]);
    }
    // Numbers with and without exponents are numeric only if double precision would lose digits.
    let types = Types::of(&[Type::Numeric, Type::Double]);
    ValueShape { types, proves: Types::of(&[Type::Double]), ..ValueShape::default() }
}

/// Whether a value is a UUID in canonical form, with hexadecimal digits of either case.
pub(super) fn is_uuid(value: &[u8]) -> bool {
    value.len() == 36
        && value.iter().enumerate().all(|(i, b)| match i {
            8 | 13 | 18 | 23 => *b == b'-',
            _ => b.is_ascii_hexdigit(),
        })
}

/// The form of a date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Day {
    /// Year, month, day: not ambiguous.
    Iso,
    /// The year at the end, and a number above 12: the order of day and month is known.
    Ordered,
    /// The year at the end, and equal numbers as day and month: one date in either order, without evidence for one.
    Same,
    /// The year at the end, and two possible dates: day first or month first.
    Either,
}

/// Splits off a date at the start; returns it and the bytes behind it.
fn day(value: &[u8]) -> Option<(Day, &[u8])> {
    let first = digits(value);
    let separator = *value.get(first)?;
    let rest = behind(value, first + 1);
    let second = digits(rest);
    if second == 0 || second > 2 || rest.get(second) != Some(&separator) {
        return None;
    }
    let last = behind(rest, second + 1);
    let third = digits(last);
    let rest = behind(last, third);
    let small = |bytes: &[u8], n: usize| {
        bytes.get(..n).unwrap_or_default().iter().fold(0u32, |all, b| all * 10 + u32::from(b - b'0'))
    };
    match (first, separator) {
        (4, b'-' | b'/') if (1..=2).contains(&third) => Some((Day::Iso, rest)),
        (1 | 2, b'/' | b'.' | b'-') if third == 4 => {
            let (one, other) = (small(value, first), small(behind(value, first + 1), second));
            let day = match () {
                () if one > 12 || other > 12 => Day::Ordered,
                () if one == other => Day::Same,
                () => Day::Either,
            };
            Some((day, rest))
        }
        _ => None,
    }
}

/// Skips a time of day at the start; returns the bytes behind it.
fn clock(value: &[u8]) -> Option<&[u8]> {
    let hours = digits(value);
    if hours == 0 || hours > 2 || value.get(hours) != Some(&b':') {
        return None;
    }
    let rest = behind(value, hours + 1);
    if digits(rest) != 2 {
        return None;
    }
    let mut rest = behind(rest, 2);
    if let Some(seconds) = rest.strip_prefix(b":") {
        // The server reads a leap second as the first second of the next minute.
        if digits(seconds) != 2 || seconds.starts_with(b"6") {
            return None;
        }
        rest = behind(seconds, 2);
        if let Some(fraction) = rest.strip_prefix(b".") {
            let n = digits(fraction);
            // The server would round more digits to microseconds.
            if n == 0 || n > 6 {
                return None;
            }
            rest = behind(fraction, n);
        }
    }
    let half = rest.strip_prefix(b" ").unwrap_or(rest);
    let halves: [&[u8]; 2] = [b"am", b"pm"];
    match half.get(..2) {
        Some(word) if halves.iter().any(|known| known.eq_ignore_ascii_case(word)) => Some(behind(half, 2)),
        _ => Some(rest),
    }
}

/// Whether the bytes are a time zone.
fn is_zone(rest: &[u8]) -> bool {
    let rest = rest.strip_prefix(b" ").unwrap_or(rest);
    if matches!(rest, b"Z" | b"z" | b"UTC" | b"GMT") {
        return true;
    }
    let Some(offset) = rest.strip_prefix(b"+").or_else(|| rest.strip_prefix(b"-")) else { return false };
    let n = digits(offset);
    match behind(offset, n) {
        b"" => n == 2 || n == 4,
        minutes => n == 2 && minutes.len() == 3 && minutes.first() == Some(&b':') && digits(behind(minutes, 1)) == 2,
    }
}

/// The shape of a date or a time.
fn moment(value: &[u8]) -> ValueShape {
    if clock(value).is_some_and(<[u8]>::is_empty) {
        return ValueShape::proof(&[Type::Time]);
    }
    let Some((day, rest)) = day(value) else { return ValueShape::default() };
    let types = if rest.is_empty() {
        Types::of(&[Type::Date, Type::Timestamp])
    } else {
        let parts = rest.strip_prefix(b" ").or_else(|| rest.strip_prefix(b"T"));
        match parts.and_then(clock) {
            Some(b"") => Types::of(&[Type::Timestamp]),
            Some(zone) if is_zone(zone) => Types::of(&[Type::Timestamptz]),
            _ => return ValueShape::default(),
        }
    };
    ValueShape { types, proves: types, day: Some(day), letter: None }
}

/// The shape of a JSON object or array, judged by its brackets.
fn json(value: &[u8]) -> ValueShape {
    let closing = if value.first() == Some(&b'{') { b'}' } else { b']' };
    if value.len() < 2 || value.last() != Some(&closing) {
        return ValueShape::default();
    }
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0usize, 0, false, false);
    for (i, &byte) in value.iter().enumerate() {
        match byte {
            // `{1},{2}` are two values.
            _ if depth == 0 && i > 0 => return ValueShape::default(),
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => (),
        }
    }
    if depth > 0 || in_string || deepest > MOST_DEPTH {
        ValueShape::default()
    } else {
        ValueShape::proof(&[Type::Jsonb, Type::Json])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types(value: &str) -> String {
        ValueShape::of(value.as_bytes()).types.iter().map(Type::name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn values_speak_for_types() {
        let cases = [
            ("", ""),
            ("x", ""),
            ("true", "boolean"),
            ("F", "boolean"),
            ("no", "boolean"),
            ("Y", "boolean"),
            ("1", "integer bigint numeric double precision"),
            (" -12 ", "integer bigint numeric double precision"),
            ("007", ""),
            ("+49123", ""),
            ("0", "integer bigint numeric double precision"),
            ("-0", ""),
            ("-0.00", ""),
            ("-0e5", ""),
            ("-0.10", "numeric double precision"),
            ("-10", "integer bigint numeric double precision"),
            ("12345678901234567890", "integer bigint numeric"),
            ("1.50", "numeric double precision"),
            ("0.5", "numeric double precision"),
            (".5", "numeric double precision"),
            ("1.", ""),
            ("-", ""),
            ("1.234567890123456789", "numeric"),
            ("1e5", "numeric double precision"),
            ("0.000000001234567", "numeric double precision"),
            ("1.234567890123456e5", "numeric"),
            ("1e", ""),
            ("NaN", "double precision"),
            ("-inf", "double precision"),
            ("2024-01-31", "date timestamp"),
            ("2024/1/31", "date timestamp"),
            ("31.12.2024", "date timestamp"),
            ("2024-01-31 10:00", "timestamp"),
            ("2024-01-31T10:00:01.123456", "timestamp"),
            ("2024-01-31T10:00:01.1234567", ""),
            ("2024-01-31T10:00:01Z", "timestamptz"),
            ("2024-01-31 10:00:01+02", "timestamptz"),
            ("2024-01-31 10:00:01 +02:30", "timestamptz"),
            ("1/2/2024 3:04 PM", "timestamp"),
            ("10:00", "time"),
            ("10:00:00.5", "time"),
            ("1:2", ""),
            ("23:59:60", ""),
            ("2016-12-31 23:59:60", ""),
            ("192.168.0.1", ""),
            ("1-2-3", ""),
            ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "uuid"),
            ("A0EEBC999C0B4EF8BB6D6BB9BD380A11", ""),
            ("{\"a\": [1]}", "jsonb json"),
            ("[]", "jsonb json"),
            ("{x", ""),
            ("{1,2},{3,4}", ""),
            ("[1] [2]", ""),
            ("{{}", ""),
            ("{\"}", ""),
            ("[\"a\\\"]\"]", "jsonb json"),
        ];
        for (value, expected) in cases {
            assert_eq!(types(value), expected, "{value:?}");
        }
        assert_eq!(types(&"[".repeat(1000)), "");
        assert_eq!(types(&("[".repeat(1000) + &"]".repeat(1000))), "");
    }

    #[test]
    fn some_need_proof() {
        let proves = |value: &str| !ValueShape::of(value.as_bytes()).proves.is_empty();
        for (value, expected) in [("03/04/2024", true), ("nan", false), ("1e5", true), ("t", false), ("True", true)] {
            assert_eq!(proves(value), expected, "{value}");
        }
        assert_eq!(
            ["t", "F", "true", "x"].map(|value| ValueShape::of(value.as_bytes()).letter),
            [Some(true), Some(false), None, None]
        );
    }

    #[test]
    fn some_dates_have_an_order() {
        let cases = [
            ("2024-04-03", Some(Day::Iso)),
            ("2024/13/14", Some(Day::Iso)),
            ("13/04/2024", Some(Day::Ordered)),
            ("4/13/2024 10:00", Some(Day::Ordered)),
            ("04/04/2024", Some(Day::Same)),
            ("04/4/2024", Some(Day::Same)),
            ("03.04.2024", Some(Day::Either)),
            ("10:00", None),
        ];
        for (value, expected) in cases {
            assert_eq!(ValueShape::of(value.as_bytes()).day, expected, "{value}");
        }
    }
}
