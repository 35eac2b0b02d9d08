//! How much a field looks like one value.
//!
//! A wrong delimiter cuts values apart, or leaves several of them in one field. Then fields have odd ends and
//! characters that rarely occur in a single value.

/// A measure from 0 (several values, or a piece of one) to 1 (one value).
pub(super) fn likeness(field: &[u8]) -> f64 {
    let value = field.trim_ascii();
    let (Some(&first), Some(&last)) = (value.first(), value.last()) else { return 0.8 };
    let (mut digits, mut letters, mut blanks, mut points, mut others) = (0, 0, 0, 0, 0);
    let (mut seps, mut prose) = (0, 0);
    let mut bytes = value.iter().take(256).peekable();
    while let Some(&byte) = bytes.next() {
        match byte {
            // Punctuation of a text.
            b',' | b';' if letters > 0 && bytes.peek() == Some(&&b' ') => prose += 1,
            b'0'..=b'9' => digits += 1,
            b'a'..=b'z' | b'A'..=b'Z' | 0x80.. => letters += 1,
            b' ' => blanks += 1,
            b'.' | b',' | b'-' | b'+' | b'/' | b':' | b'%' | b'$' | b'(' | b')' => {
                points += 1;
                seps += usize::from(byte == b',');
            }
            b'_' | b'\'' | b'&' | b'@' | b'!' | b'?' => (),
            b';' | b'\t' | b'|' => seps += 2,
            _ => others += 1,
        }
    }
    if is_number(value) || is_moment(value, digits, letters, blanks) {
        return 1.0;
    }
    // JSON and the like.
    if matches!((first, last), (b'{', b'}') | (b'[', b']') | (b'<', b'>')) {
        return 0.9;
    }
    // A piece of a quoted value, or of a URL.
    if first == b'"' || last == b'"' || value.starts_with(b"//") {
        return 0.1;
    }
    if memchr::memmem::find(value, b"://").is_some() {
        return if blanks == 0 { 0.95 } else { 0.7 };
    }
    if seps == 0 && others == 0 && prose > 0 {
        return 0.7;
    }
    if seps == 0 && others == 0 {
        let odd = matches!(first, b',' | b':' | b'.' | b'/' | b')' | b'!' | b'?')
            || matches!(last, b':' | b'(' | b'/' | b'-');
        // One word, or words; digits and signs that are no number.
        return match () {
            () if odd => 0.5,
            () if letters == 0 => 0.6,
            () if points == 0 => 0.95,
            () => 0.85,
        };
    }
    match () {
        () if seps >= 2 && letters == 0 => 0.3,
        () if seps > 1 => 0.35,
        () if seps == 1 && others == 0 && blanks > 0 => 0.6,
        () if letters > 0 => 0.5,
        () => 0.3,
    }
}

/// Whether a value is a number as people write it: with signs, currencies, groups, percent, exponents.
fn is_number(value: &[u8]) -> bool {
    let mut rest = value;
    if let [b'(', inner @ .., b')'] = rest {
        rest = inner;
    }
    while let [b'+' | b'-' | b'$' | b'<' | b'>' | b'~', tail @ ..] = rest {
        rest = tail;
    }
    for mark in ["€", "£", "¥"] {
        rest = rest.strip_prefix(mark.as_bytes()).unwrap_or(rest);
        rest = rest.strip_suffix(mark.as_bytes()).unwrap_or(rest);
    }
    while let [head @ .., b'%' | b'$' | b' '] = rest {
        rest = head;
    }
    rest = rest.trim_ascii_start();
    let mut parts = rest.splitn(2, |b| b.eq_ignore_ascii_case(&b'e'));
    let (mantissa, exponent) = (parts.next().unwrap_or_default(), parts.next());
    if let Some(exponent) = exponent {
        let digits = match exponent {
            [b'+' | b'-', digits @ ..] => digits,
            digits => digits,
        };
        if digits.is_empty() || digits.len() > 4 || !digits.iter().all(u8::is_ascii_digit) {
            return false;
        }
    }
    if !mantissa.iter().any(u8::is_ascii_digit) {
        return false;
    }
    // Groups of three digits; the last mark may be the decimal one.
    let (mut marks, mut run, mut last_mark) = (0, 0, 0u8);
    for &byte in mantissa {
        match byte {
            b'0'..=b'9' => run += 1,
            b'.' | b',' => {
                let again = marks > 0 && byte == last_mark;
                if (marks > 0 && run != 3) || (marks == 0 && run > 3 && byte != b'.' && last_mark != 0) {
                    return false;
                }
                if marks > 1 && !again && last_mark == b'.' && byte == b'.' {
                    return false;
                }
                (marks, run, last_mark) = (marks + 1, 0, byte);
            }
            _ => return false,
        }
    }
    // `1,` is a piece of something; several equal marks are groups.
    (marks < 2 || run > 0) && !(marks == 1 && last_mark == b',' && run == 0)
}

/// Whether a value is a date or a time: digits between `-`, `/`, `.` or `:`, at most one word (a month, a zone).
fn is_moment(value: &[u8], digits: usize, letters: usize, blanks: usize) -> bool {
    if digits < 3 || value.len() > 40 || letters > 10 || blanks > 4 {
        return false;
    }
    let (mut runs, mut run, mut marks, mut last) = (0, 0, 0, b' ');
    for &byte in value {
        match byte {
            b'0'..=b'9' => {
                runs += usize::from(run == 0);
                run += 1;
            }
            _ => {
                if run > 9 {
                    return false;
                }
                run = 0;
                if matches!(byte, b'-' | b'/' | b'.' | b':') {
                    if last == byte && !last.is_ascii_digit() {
                        return false;
                    }
                    marks += 1;
                } else if !matches!(byte, b' ' | b'+' | b',') && !byte.is_ascii_alphabetic() {
                    return false;
                }
            }
        }
        last = byte;
    }
    let ends_well =
        value.first().is_some_and(u8::is_ascii_alphanumeric) && value.last().is_some_and(u8::is_ascii_alphanumeric);
    ends_well
        && marks >= 1
        && (2..=9).contains(&runs)
        && (letters == 0 || letters <= 9)
        && (letters == 0 || runs >= 2)
        && is_calendar(value)
}

/// Whether the groups of digits are those of a date or a time.
fn is_calendar(value: &[u8]) -> bool {
    let mut groups = value.split(|b| !b.is_ascii_digit()).filter(|group| !group.is_empty());
    let (Some(a), Some(b)) = (groups.next(), groups.next()) else { return false };
    let two = |g: &[u8]| g.len() <= 2;
    let year = |g: &[u8]| g.len() == 4;
    (year(a) && two(b)) || (two(a) && (two(b) || year(b)))
}
