//! The meaning of texts, by the simplest code.

const DAY: i64 = 86_400_000_000;

/// Reads `[+-]digits` in the range `low..=high`. If `low` is 0, a sign is not allowed.
pub fn integer(text: &[u8], low: i64, high: i64) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    if low == 0 && text.starts_with(['+', '-']) {
        return None;
    }
    text.parse().ok().filter(|value| (low..=high).contains(value))
}

/// Reads a number of digits only.
fn digits(text: &[u8]) -> Option<i64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Reads `YYYY-MM-DD` as days since 2000-01-01.
pub fn date(text: &[u8]) -> Option<i64> {
    let [y @ .., b'-', m0, m1, b'-', d0, d1] = text else { return None };
    let (year, month, day) = (digits(y)?, digits(&[*m0, *m1])?, digits(&[*d0, *d1])?);
    if y.len() != 4 || year == 0 {
        return None;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let length = *lengths.get(usize::try_from(month).ok()?.checked_sub(1)?)?;
    if !(1..=length).contains(&day) {
        return None;
    }
    let before = year - 1;
    let years = before * 365 + before / 4 - before / 100 + before / 400;
    let months: i64 = lengths[..month as usize - 1].iter().sum();
    Some(years + months + day - 1 - 730_119)
}

/// Reads `date[( |T)HH:MM[:SS[.f]]]` as microseconds since 2000-01-01, with at most `precision` digits behind the
/// point.
pub fn timestamp(text: &[u8], precision: usize) -> Option<i64> {
    let (day, rest) = text.split_at_checked(10)?;
    let midnight = date(day)? * DAY;
    let Some((b' ' | b'T', clock)) = rest.split_first() else { return rest.is_empty().then_some(midnight) };
    Some(midnight + time(clock, precision)?)
}

/// Reads `HH:MM[:SS[.f]]` as microseconds, with at most `precision` digits behind the point.
pub fn time(clock: &[u8], precision: usize) -> Option<i64> {
    let parts: Vec<&[u8]> = clock.split(|&byte| byte == b':').collect();
    let [hour, minute, second @ ..] = parts.as_slice() else { return None };
    let (second, fraction) = match *second {
        [] => (&b"00"[..], &b""[..]),
        [second] => match second.iter().position(|&byte| byte == b'.') {
            Some(point) => (&second[..point], &second[point + 1..]),
            None => (second, &b""[..]),
        },
        _ => return None,
    };
    let two = |part: &[u8], below: i64| digits(part).filter(|&v| part.len() == 2 && v < below);
    let seconds = two(hour, 24)? * 3600 + two(minute, 60)? * 60 + two(second, 60)?;
    if fraction.len() > precision || fraction.len() > 6 {
        return None;
    }
    let micros = if fraction.is_empty() { 0 } else { digits(fraction)? * 10i64.pow(6 - fraction.len() as u32) };
    Some(seconds * 1_000_000 + micros)
}

/// Reads a timestamp with `Z`, `+HH`, `+HHMM` or `+HH:MM`, or without a zone if TimeZone is UTC. The result is in UTC.
pub fn timestamptz(text: &[u8], precision: usize, utc: bool) -> Option<i64> {
    if let Some(local) = text.strip_suffix(b"Z") {
        // The letter must follow a time of day.
        return timestamp(local, precision).filter(|_| local.len() > 10);
    }
    let zone = text.iter().skip(10).position(|byte| b"+-".contains(byte)).map(|at| 10 + at);
    let Some((local, [sign, offset @ ..])) = zone.map(|at| text.split_at(at)) else {
        return timestamp(text, precision).filter(|_| utc);
    };
    let (hour, minute) = match *offset {
        [a, b] => ([a, b], *b"00"),
        [a, b, c, d] | [a, b, b':', c, d] => ([a, b], [c, d]),
        _ => return None,
    };
    let (hour, minute) = (digits(&hour).filter(|&v| v < 16)?, digits(&minute).filter(|&v| v < 60)?);
    let ahead = (hour * 3600 + minute * 60) * 1_000_000;
    Some(timestamp(local, precision)? - if *sign == b'-' { -ahead } else { ahead })
}

/// Reads `N years N mons N days HH:MM:SS.f`, each with its own sign and in this order: microseconds, days, months.
pub fn interval(text: &[u8]) -> Option<(i64, i64, i64)> {
    let (mut micros, mut days, mut months, mut last) = (0, 0, 0, 0);
    let mut words = std::str::from_utf8(text).ok()?.split(' ');
    while let Some(word) = words.next() {
        let sign = if word.starts_with('-') { -1 } else { 1 };
        let size = word.strip_prefix(['-', '+']).unwrap_or(word);
        let place = if let Some((hours, rest)) = size.split_once(':') {
            let rest = time(format!("00:{rest}").as_bytes(), 6)?;
            micros = sign * (digits(hours.as_bytes())? * 3_600_000_000 + rest);
            4
        } else {
            let count = sign * digits(size.as_bytes())?;
            let unit = words.next()?;
            let (to, place, each) = match unit.strip_suffix('s').unwrap_or(unit) {
                "year" => (&mut months, 1, 12),
                "mon" => (&mut months, 2, 1),
                "day" => (&mut days, 3, 1),
                _ => return None,
            };
            *to += count * each;
            place
        };
        if place <= last {
            return None;
        }
        last = place;
    }
    Some((micros, days, months))
}

/// Reads pairs of hexadecimal digits, without separators.
pub fn hex(text: &[u8], separator: u8) -> Vec<u8> {
    let digits: Vec<u32> =
        text.iter().filter(|&&byte| byte != separator).map_while(|&byte| char::from(byte).to_digit(16)).collect();
    digits.chunks(2).map(|pair| pair.iter().fold(0, |value, digit| value << 4 | *digit as u8)).collect()
}

/// Reads bytea in its hexadecimal form, or without backslashes.
pub fn bytea(text: &[u8]) -> Option<Vec<u8>> {
    match text.strip_prefix(b"\\x") {
        Some(pairs) => {
            let value = hex(pairs, 0);
            (value.len() * 2 == pairs.len()).then_some(value)
        }
        None => (!text.contains(&b'\\')).then(|| text.to_vec()),
    }
}

/// Rounds a decimal number to `scale` digits behind the point, half away from zero, and removes leading zeros.
pub fn rounded(text: &str, scale: usize) -> Option<String> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.len() + fraction.len() == 0 || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut number: Vec<u8> =
        whole.bytes().chain(fraction.bytes().chain(std::iter::repeat(b'0')).take(scale)).collect();
    if fraction.as_bytes().get(scale).is_some_and(|&digit| digit >= b'5') {
        number.insert(0, b'0');
        for digit in number.iter_mut().rev() {
            *digit += 1;
            if *digit <= b'9' {
                break;
            }
            *digit = b'0';
        }
    }
    let (whole, fraction) = number.split_at(number.len() - scale);
    let ascii = |digits: &[u8]| digits.iter().map(|&digit| char::from(digit)).collect::<String>();
    Some(written(negative, ascii(whole).trim_start_matches('0'), &ascii(fraction)))
}

fn written(negative: bool, whole: &str, fraction: &str) -> String {
    let zero = whole.is_empty() && fraction.bytes().all(|digit| digit == b'0');
    let sign = if negative && !zero { "-" } else { "" };
    format!("{sign}{whole}.{fraction}")
}

/// Returns the text and the display scale of NumericData behind the varlena header. The digits must be as numeric_in
/// leaves them: no zero digit at either end; zero has no digits and no sign.
pub fn numeric_text(value: &[u8]) -> (String, usize) {
    let words: Vec<u16> = value.chunks(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
    let (header, negative, scale, weight, digits) = match words.as_slice() {
        &[header, ref digits @ ..] if header & 0xc000 == 0x8000 => {
            let weight = i32::from(header & 0x3f) - if header & 0x40 != 0 { 64 } else { 0 };
            (header, header & 0x2000 != 0, usize::from(header >> 7 & 0x3f), weight, digits)
        }
        &[header, weight, ref digits @ ..] => {
            let (scale, weight) = (usize::from(header & 0x3fff), i32::from(weight.cast_signed()));
            // make_result uses the short form whenever the value fits into it.
            assert!(scale > 63 || !(-64..=63).contains(&weight), "a long header for no reason");
            (header, header & 0x4000 != 0, scale, weight, digits)
        }
        words => panic!("{words:?} is no numeric"),
    };
    assert_ne!(header & 0xc000, 0xc000, "NaN and infinities are not decoded");
    assert!(digits.iter().all(|&digit| digit < 10_000), "{digits:?}");
    assert!(digits.first() != Some(&0) && digits.last() != Some(&0), "{digits:?} is not stripped");
    assert!(!digits.is_empty() || (!negative && weight == 0), "zero with a sign or a weight");
    let place = |weight: i32, digits: &[u16]| digits.get(weight as usize).copied().unwrap_or(0);
    let mut whole = String::new();
    for position in 0..=weight {
        whole += &format!("{:04}", place(position, digits));
    }
    let mut fraction = String::new();
    let mut position = weight + 1;
    if position < 0 {
        fraction += &"0000".repeat(-position as usize);
        position = 0;
    }
    for digit in digits.get(position as usize..).unwrap_or_default() {
        fraction += &format!("{digit:04}");
    }
    while fraction.len() < scale {
        fraction.push('0');
    }
    let (fraction, beyond) = fraction.split_at(scale);
    assert!(beyond.bytes().all(|digit| digit == b'0'), "digits behind the display scale");
    (written(negative, whole.trim_start_matches('0'), fraction), scale)
}

/// Reads the words of boolin, which also accepts prefixes of them.
pub fn bool(text: &[u8]) -> Option<bool> {
    match text.to_ascii_lowercase().as_slice() {
        b"t" | b"true" | b"y" | b"yes" | b"on" | b"1" => Some(true),
        b"f" | b"false" | b"n" | b"no" | b"off" | b"0" => Some(false),
        _ => None,
    }
}

/// Returns a count, and the bits, eight per byte.
pub fn bits(text: &[u8]) -> Option<Vec<u8>> {
    let mut value = (text.len() as u32).to_le_bytes().to_vec();
    for eight in text.chunks(8) {
        let eight = std::str::from_utf8(eight).ok()?;
        value.push(u8::from_str_radix(&format!("{eight:0<8}"), 2).ok().filter(|_| !eight.starts_with('+'))?);
    }
    Some(value)
}

/// Returns family, mask length and address.
pub fn inet(text: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, digits(bits.as_bytes()).filter(|&v| v <= 32)?),
        None => (text, 32),
    };
    let address: std::net::Ipv4Addr = address.parse().ok()?;
    Some([&[2, bits as u8], &address.octets()[..]].concat())
}

/// Reads `[low,high)`.
pub fn range(text: &[u8], low: i64, high: i64) -> Option<(i64, i64)> {
    let text = std::str::from_utf8(text).ok()?;
    let (lower, upper) = text.strip_prefix('[')?.strip_suffix(')')?.split_once(',')?;
    let (lower, upper) = (integer(lower.as_bytes(), low, high)?, integer(upper.as_bytes(), low, high)?);
    (lower < upper).then_some((lower, upper))
}

/// Returns the elements of an array of one dimension without bounds, white space and NULLs.
pub fn elements(text: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut rest = text.strip_prefix(b"{")?.strip_suffix(b"}")?;
    let mut elements = Vec::new();
    while !rest.is_empty() || !elements.is_empty() {
        let mut element = Vec::new();
        if let Some(mut quoted) = rest.strip_prefix(b"\"") {
            loop {
                match *quoted {
                    [b'"', ref behind @ ..] => break rest = behind,
                    [b'\\', byte, ref behind @ ..] | [byte, ref behind @ ..] => {
                        element.push(byte);
                        quoted = behind;
                    }
                    [] => return None,
                }
            }
        } else {
            let end = rest.iter().position(|&byte| byte == b',').unwrap_or(rest.len());
            element.extend(&rest[..end]);
            rest = &rest[end..];
            let special = |byte: &u8| b"{}\"\\".contains(byte) || (9..14).contains(byte) || *byte == b' ';
            if element.is_empty() || element.eq_ignore_ascii_case(b"null") || element.iter().any(special) {
                return None;
            }
        }
        elements.push(element);
        match rest {
            [] => break,
            [b',', behind @ ..] => rest = behind,
            _ => return None,
        }
    }
    Some(elements)
}
