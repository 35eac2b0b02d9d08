//! Appends numbers and times as decimal text to a row.
//!
//! `write!` would cost more than the rest of a generator, and so would a loop over the digits, whose length is
//! unpredictable in random data. So eight digits are made at once in a register, stored as eight bytes, and truncated.

/// The smallest number with more than eight digits.
const EIGHT_DIGITS: u64 = 100_000_000;

/// Appends an integer.
#[inline]
pub fn integer(out: &mut Vec<u8>, value: u64) {
    if value >= EIGHT_DIGITS {
        integer(out, value / EIGHT_DIGITS);
        return padded(out, value, 8);
    }
    let digits = eight_digits(value);
    // The first digit is in the lowest byte. Zero keeps one digit.
    let leading_zeros = (digits.trailing_zeros() / 8).min(7);
    append(out, digits, leading_zeros);
}

/// Appends the last `width` digits of an integer, with leading zeros.
#[inline]
pub fn padded(out: &mut Vec<u8>, value: u64, width: usize) {
    let mut width = width;
    if width > 8 {
        padded(out, value / EIGHT_DIGITS, width - 8);
        width = 8;
    }
    if width > 0 {
        append(out, eight_digits(value % EIGHT_DIGITS), 8 - width as u32);
    }
}

/// Appends eight digits, one per byte, without the first `skipped` of them.
#[inline]
fn append(out: &mut Vec<u8>, digits: u64, skipped: u32) {
    let text = (digits | 0x3030_3030_3030_3030) >> (8 * skipped);
    let end = out.len() + 8 - skipped as usize;
    out.extend_from_slice(&text.to_le_bytes());
    out.truncate(end);
}

/// Returns the eight digits of a number below [`EIGHT_DIGITS`], the first one in the lowest byte. Divides the number
/// into parts that are adjacent in one word: two of four digits, four of two, eight of one. The multiplications with a
/// shift are divisions by 100 and by 10, which are exact for parts of that size.
#[inline]
fn eight_digits(value: u64) -> u64 {
    let fours = (value / 10_000) | ((value % 10_000) << 32);
    let upper = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let twos = upper | ((fours - 100 * upper) << 16);
    let upper = ((twos * 103) >> 10) & 0x000f_000f_000f_000f;
    upper | ((twos - 10 * upper) << 8)
}

/// Appends `units` as a number with `scale` digits after the point: `fixed(out, 1234, 2)` is `12.34`.
#[inline]
pub fn fixed(out: &mut Vec<u8>, units: u64, scale: u32) {
    let one = 10u64.pow(scale);
    integer(out, units / one);
    out.push(b'.');
    padded(out, units % one, scale as usize);
}

/// Appends a time of the years 2000 to 2023, made of random bits, as `YYYY-MM-DD HH:MM:SS`. The last day is 28, which
/// all months have.
#[inline]
pub fn date_and_time(out: &mut Vec<u8>, bits: u64) {
    // Independent groups of bits, each wide enough that the remainder is nearly uniform.
    padded(out, 2000 + (bits & 0xfff) % 24, 4);
    out.push(b'-');
    padded(out, 1 + ((bits >> 12) & 0xfff) % 12, 2);
    out.push(b'-');
    padded(out, 1 + ((bits >> 24) & 0xfff) % 28, 2);
    out.push(b' ');
    padded(out, ((bits >> 36) & 0xff) % 24, 2);
    out.push(b':');
    padded(out, ((bits >> 44) & 0x3ff) % 60, 2);
    out.push(b':');
    padded(out, ((bits >> 54) & 0x3ff) % 60, 2);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(append: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        append(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn integers() {
        for value in [0, 9, 10, 4711, 99_999_999, 100_000_000, u64::MAX] {
            assert_eq!(text(|out| integer(out, value)), value.to_string());
        }
        for value in 0..EIGHT_DIGITS / 37 {
            let value = value * 37;
            assert_eq!(text(|out| padded(out, value, 8)), format!("{value:08}"));
        }
        assert_eq!(text(|out| padded(out, 42, 4)), "0042");
        assert_eq!(text(|out| padded(out, 1_234_567_890_123_456, 18)), "001234567890123456");
        assert_eq!(text(|out| padded(out, 4711, 2)), "11");
    }

    #[test]
    fn fixed_point() {
        assert_eq!(text(|out| fixed(out, 1234, 2)), "12.34");
        assert_eq!(text(|out| fixed(out, 5, 6)), "0.000005");
    }

    #[test]
    fn times_stay_within_the_calendar() {
        assert_eq!(text(|out| date_and_time(out, 0)), "2000-01-01 00:00:00");
        for step in 0..10_000u64 {
            let time = text(|out| date_and_time(out, step.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            let part = |range: std::ops::Range<usize>| time[range].parse::<u32>().unwrap();
            assert_eq!(time.len(), 19);
            assert!((2000..2024).contains(&part(0..4)), "{time}");
            assert!((1..=12).contains(&part(5..7)) && (1..=28).contains(&part(8..10)), "{time}");
            assert!(part(11..13) < 24 && part(14..16) < 60 && part(17..19) < 60, "{time}");
        }
    }
}
