//! Numbers with other separators: `1.234.567,89`, `1'234.5`.
//!
//! They are rewritten for the types' input functions. Ambiguous numbers are rejected. Separators must be between all
//! groups of three digits of the integer part, or absent. A point is an error unless the pattern has it as a separator:
//! an input function would read it as the decimal point. A text with neither point nor separator (`NaN`, `1e6`, a word)
//! is passed unchanged to the input function.

/// The separators of numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// Decimal separator, ahead of the fraction.
    pub decimal: u8,
    /// Separator between groups of three digits.
    pub thousands: Option<Vec<u8>>,
}

/// Splits off the digits at the start.
fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().take_while(|byte| byte.is_ascii_digit()).count())
}

impl Pattern {
    /// Appends the number in the form that an input function reads. `None` if the number does not match the pattern;
    /// the appended bytes are garbage then.
    pub fn write(&self, text: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let text = text.trim_ascii();
        let separator = self.thousands.as_deref();
        let has_separator = separator.is_some_and(|s| memchr::memmem::find(text, s).is_some());
        if !has_separator && memchr::memchr2(b'.', self.decimal, text).is_none() {
            out.extend_from_slice(text);
            return Some(());
        }
        let mut rest = text;
        if let [sign @ (b'+' | b'-'), tail @ ..] = rest {
            out.push(*sign);
            rest = tail;
        }
        let (first, mut rest) = digits(rest);
        out.extend_from_slice(first);
        let (mut integers, mut is_grouped) = (first.len(), false);
        while let Some(tail) = separator.and_then(|s| rest.strip_prefix(s)) {
            let (group, tail) = digits(tail);
            if group.len() != 3 || !(is_grouped || (1..=3).contains(&first.len())) {
                return None;
            }
            out.extend_from_slice(group);
            (rest, is_grouped) = (tail, true);
            integers += group.len();
        }
        if let [point, tail @ ..] = rest
            && *point == self.decimal
        {
            let (fraction, tail) = digits(tail);
            out.push(b'.');
            out.extend_from_slice(fraction);
            rest = tail;
            integers += fraction.len();
        }
        if let [b'e' | b'E', tail @ ..] = rest {
            let (sign, tail) = tail.split_at(usize::from(matches!(tail, [b'+' | b'-', ..])));
            let (exponent, tail) = digits(tail);
            if exponent.is_empty() {
                return None;
            }
            out.push(b'e');
            out.extend_from_slice(sign);
            out.extend_from_slice(exponent);
            rest = tail;
        }
        (rest.is_empty() && integers > 0).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(decimal: u8, thousands: &str) -> Pattern {
        Pattern { decimal, thousands: (!thousands.is_empty()).then(|| thousands.as_bytes().to_vec()) }
    }

    fn read(pattern: &Pattern, text: &str) -> Option<String> {
        let mut out = Vec::new();
        pattern.write(text.as_bytes(), &mut out)?;
        Some(String::from_utf8(out).unwrap())
    }

    #[test]
    fn separators_are_where_they_belong() {
        let german = pattern(b',', ".");
        for (text, expected) in [
            ("1.234.567,89", "1234567.89"),
            ("-1.234", "-1234"),
            ("+12,5", "+12.5"),
            (",5", ".5"),
            ("5,", "5."),
            ("1234,5", "1234.5"),
            ("1.234,5e-3", "1234.5e-3"),
            (" 12,5 ", "12.5"),
            ("12", "12"),
            ("NaN", "NaN"),
            ("-Infinity", "-Infinity"),
            ("1e6", "1e6"),
            ("", ""),
            ("x", "x"),
        ] {
            assert_eq!(read(&german, text).as_deref(), Some(expected), "{text}");
        }
        for text in [
            "1.5", "1.23", "1.2345", "1234.567", ".123", "1..234", "1.234.", "1,5,5", "1,234.567", "1,5.000", ",",
            "-,", ".", "1.234,5e", "1.234,5x", "1.234 ,5", "--1,5", "1,5 5", "1.234NaN",
        ] {
            assert_eq!(read(&german, text), None, "{text}");
        }
        // Without a separator, a point is not allowed in a number.
        assert_eq!(read(&pattern(b',', ""), "1.234"), None);
        assert_eq!(read(&pattern(b',', ""), "1,234").as_deref(), Some("1.234"));
        assert_eq!(read(&pattern(b'.', ","), "1,234.5").as_deref(), Some("1234.5"));
        assert_eq!(read(&pattern(b'.', ","), "1.234,5"), None);
        assert_eq!(read(&pattern(b'.', "'"), "12'345").as_deref(), Some("12345"));
        assert_eq!(read(&pattern(b',', " "), " 12 345,5 ").as_deref(), Some("12345.5"));
        assert_eq!(read(&pattern(b',', "\u{a0}"), "12\u{a0}345,5").as_deref(), Some("12345.5"));
        assert_eq!(read(&pattern(b',', "\u{202f}"), "12\u{a0}345,5"), None);
    }

    /// Writes a number by the pattern, with all its separators.
    fn written(integer: u64, fraction: &str, pattern: &Pattern) -> String {
        let plain = integer.to_string();
        let mut out = String::new();
        for (i, digit) in plain.chars().enumerate() {
            if i > 0 && (plain.len() - i).is_multiple_of(3) {
                out.push_str(std::str::from_utf8(pattern.thousands.as_deref().unwrap_or_default()).unwrap());
            }
            out.push(digit);
        }
        if !fraction.is_empty() {
            out.push(char::from(pattern.decimal));
            out.push_str(fraction);
        }
        out
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(integer in any::<u64>(), fraction in "[0-9]{0,6}", which in 0usize..5) {
            let pattern = [pattern(b',', "."), pattern(b'.', ","), pattern(b'.', ""), pattern(b',', " "), pattern(b'.', "'")][which].clone();
            let mut expected = integer.to_string();
            if !fraction.is_empty() {
                expected = format!("{expected}.{fraction}");
            }
            prop_assert_eq!(read(&pattern, &written(integer, &fraction, &pattern)), Some(expected));
        }

        /// A number that is read had its separators at the right positions and keeps its digits.
        #[test]
        fn nothing_is_guessed(text in "[-+]?[0-9.,e]{0,9}") {
            let german = pattern(b',', ".");
            if let Some(found) = read(&german, &text) {
                let integer = text.split([',', 'e']).next().unwrap().trim_start_matches(['-', '+']);
                if integer.contains('.') {
                    let groups: Vec<&str> = integer.split('.').collect();
                    prop_assert!((1..=3).contains(&groups[0].len()));
                    prop_assert!(groups[1..].iter().all(|group| group.len() == 3));
                }
                prop_assert!(!text.split(',').skip(1).any(|behind| behind.contains('.')));
                prop_assert_eq!(found, text.replace('.', "").replace(',', "."));
            }
        }
    }
}
