//! time: `HH:MM:SS` with up to six fractional digits, or `HH:MM`.
//!
//! 24:00:00, second 60 and more than six digits are valid but must be rounded or carried. They are left to time_in.

use super::Datum;
use super::digits::{self, Layout};

/// Microseconds in a second.
pub(super) const SECOND: i64 = 1_000_000;

const CLOCK: Layout = Layout::new(b"00:00:00");

/// Number of fractional digits that a type with this typmod keeps.
pub(super) fn precision(typmod: i32) -> usize {
    usize::try_from(typmod).map_or(6, |p| p.min(6))
}

/// Returns the seconds of the day for an hour and a minute.
#[inline(always)]
pub(super) fn minutes(hour: u32, minute: u32) -> Option<i64> {
    (hour < 24 && minute < 60).then(|| i64::from(hour * 3600 + minute * 60))
}

/// Reads one to six fractional digits behind the seconds. Returns them as microseconds, their number, and the bytes
/// behind them.
#[inline(always)]
pub(super) fn fraction(rest: &[u8]) -> Option<(i64, usize, &[u8])> {
    let Some((b'.', rest)) = rest.split_first() else { return Some((0, 0, rest)) };
    let count = rest.iter().take(7).take_while(|b| b.is_ascii_digit()).count();
    if !(1..=6).contains(&count) {
        return None;
    }
    let (digits, rest) = rest.split_at_checked(count)?;
    Some((digits::value(digits::at_start(digits)) as i64 / 100, count, rest))
}

/// time(precision)
#[inline]
pub(super) fn time(field: &[u8], precision: usize) -> Option<Datum> {
    let (clock, rest) = match field {
        &[a, b, c, d, e] => ([a, b, c, d, e, b':', b'0', b'0'], &[][..]),
        _ => field.split_first_chunk::<8>().map(|(clock, rest)| (*clock, rest))?,
    };
    let p = digits::pairs(CLOCK.read(&clock)?).to_le_bytes();
    let (micros, count, rest) = fraction(rest)?;
    if count > precision || !rest.is_empty() || p[6] >= 60 {
        return None;
    }
    let seconds = minutes(u32::from(p[0]), u32::from(p[3]))? + i64::from(p[6]);
    Some((seconds * SECOND + micros) as Datum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn accepted() {
        for (t, v) in [
            ("00:00:00", 0),
            ("00:00", 0),
            ("12:34", 45_240_000_000),
            ("12:34:56", 45_296_000_000),
            ("23:59:59.999999", 86_399_999_999),
            ("00:00:00.1", 100_000),
            ("00:00:00.000001", 1),
        ] {
            assert_eq!(time(t.as_bytes(), 6), Some(v), "{t}");
        }
        assert_eq!(time(b"00:00:00.12", 2), Some(120_000));
        assert_eq!(time(b"00:00:01", 0), Some(1_000_000));
    }

    #[test]
    fn refused() {
        for t in [
            "", "1:00", "24:00:00", "24:00", "12:60", "12:00:60", "12:00:00.", "12:00:00.1234567", "12:00:00 ",
            "12:00:00+00", "120000", "12:00 PM", "12:0a:00", "12-00-00", "12:00:00,5", "12:00:00.5Z", "now", "12:000",
            "12:00:0",
        ] {
            assert_eq!(time(t.as_bytes(), 6), None, "{t}");
        }
        assert_eq!(time(b"00:00:00.123", 2), None);
        assert_eq!(time(b"00:00:00.0", 0), None);
    }

    #[test]
    fn every_second_of_the_day() {
        for s in 0..86_400u64 {
            let text = format!("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
            assert_eq!(time(text.as_bytes(), 6), Some(s * 1_000_000));
        }
    }

    proptest! {
        #[test]
        fn fractions(us in 0..1_000_000u64, n in 1..=6usize) {
            let digits = &format!("{us:06}")[..n];
            let expected = digits.parse::<u64>().unwrap() * 10u64.pow(6 - n as u32);
            let text = format!("00:00:00.{digits}");
            prop_assert_eq!(time(text.as_bytes(), 6), Some(expected));
            prop_assert_eq!(time(text.as_bytes(), n), Some(expected));
            prop_assert_eq!(time(text.as_bytes(), n - 1), None);
        }

        #[test]
        fn anything(field in prop::collection::vec(any::<u8>(), 0..18), p in 0..=6usize) {
            if let Some(v) = time(&field, p) {
                prop_assert!(v < 86_400_000_000);
            }
        }
    }
}
