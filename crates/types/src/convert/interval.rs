//! interval in the style `postgres` of interval_out: `1 year -2 mons +3 days -04:05:06.789`.
//!
//! Every part is optional and has its own sign. The parts come in this order, each at most once. In the style
//! sql_standard a leading sign applies to all parts, so there is no decoder for it. A typmod,
//! which rounds and truncates, has no decoder either. The value has separate microseconds, days and months.

use super::time::{self, SECOND};
use super::{Datum, digits, varlena};
use crate::arena::Arena;

/// The most digits of a count; longer counts could exceed the limits of the fields.
const MAX_COUNT: usize = 6;

/// interval
#[inline]
pub(super) fn interval(field: &[u8], arena: &mut Arena) -> Option<Datum> {
    let (mut micros, mut days, mut months) = (0i64, 0i32, 0i32);
    let mut rest = field;
    // Rank of the last part. The next one must have a higher rank.
    let mut passed = 0;
    loop {
        let (negative, count, behind) = count(rest)?;
        match behind {
            [b':', ..] => {
                micros = clock(rest, negative, count)?;
                break;
            }
            [b' ', behind @ ..] => {
                let end = behind.iter().position(|&b| b == b' ').unwrap_or(behind.len());
                let (unit, behind) = behind.split_at_checked(end)?;
                let v = i32::try_from(digits::unsigned(count)?).ok()?;
                let v = if negative { -v } else { v };
                let place = match unit {
                    b"year" | b"years" => {
                        months += v * 12;
                        1
                    }
                    b"mon" | b"mons" => {
                        months += v;
                        2
                    }
                    b"day" | b"days" => {
                        days = v;
                        3
                    }
                    _ => return None,
                };
                if place <= passed {
                    return None;
                }
                passed = place;
                let [b' ', behind @ ..] = behind else {
                    if behind.is_empty() {
                        break;
                    }
                    return None;
                };
                rest = behind;
            }
            _ => return None,
        }
    }
    let out = arena.alloc(16)?;
    let (time, date) = out.split_first_chunk_mut::<8>()?;
    *time = micros.to_le_bytes();
    let (day, month) = date.split_first_chunk_mut::<4>()?;
    *day = days.to_le_bytes();
    month.copy_from_slice(&months.to_le_bytes());
    Some(varlena::address(out))
}

/// Reads a sign and one to six digits. Returns them and the bytes behind them.
#[inline(always)]
fn count(text: &[u8]) -> Option<(bool, &[u8], &[u8])> {
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let end = text.iter().take(MAX_COUNT + 1).take_while(|b| b.is_ascii_digit()).count();
    if !(1..=MAX_COUNT).contains(&end) {
        return None;
    }
    let (digits, rest) = text.split_at_checked(end)?;
    Some((negative, digits, rest))
}

/// Reads `HH:MM:SS[.f]`, which must end the text. `hours`: its hours, which are already found.
#[inline(always)]
fn clock(text: &[u8], negative: bool, hours: &[u8]) -> Option<i64> {
    let signed = usize::from(text.first().is_some_and(|b| !b.is_ascii_digit()));
    let &[b':', m0, m1, b':', s0, s1, ref rest @ ..] = text.get(signed + hours.len()..)? else { return None };
    let (minutes, seconds) = (digits::two(m0, m1)?, digits::two(s0, s1)?);
    let (fraction, _, rest) = time::fraction(rest)?;
    if hours.len() < 2 || minutes >= 60 || seconds >= 60 || !rest.is_empty() {
        return None;
    }
    let hours = i64::try_from(digits::unsigned(hours)?).ok()?;
    let micros = (hours * 3600 + i64::from(minutes * 60 + seconds)) * SECOND + fraction;
    Some(if negative { -micros } else { micros })
}

#[cfg(test)]
mod tests {
    use super::super::testing::bytes_at;
    use super::*;
    use proptest::prelude::*;

    fn read(text: &[u8]) -> Option<(i64, i32, i32)> {
        let a = &mut Arena::new();
        let b = bytes_at(interval(text, a)?, 16);
        let i4 = |at: usize| i32::from_le_bytes(b[at..at + 4].try_into().unwrap());
        Some((i64::from_le_bytes(b[..8].try_into().unwrap()), i4(8), i4(12)))
    }

    #[test]
    fn accepted() {
        for (t, v) in [
            ("00:00:00", (0, 0, 0)),
            ("1 day", (0, 1, 0)),
            ("-1 days", (0, -1, 0)),
            ("1 year 2 mons 3 days 04:05:06.789", (14_706_789_000, 3, 14)),
            ("-1 years -2 mons +3 days -04:05:06", (-14_706_000_000, 3, -14)),
            ("1 year -1 mons", (0, 0, 11)),
            ("2 mons +00:00:00.000001", (1, 0, 2)),
            ("-00:00:01", (-1_000_000, 0, 0)),
            ("999999:59:59.999999", (3_599_999_999_999_999, 0, 0)),
            ("0 years", (0, 0, 0)),
        ] {
            assert_eq!(read(t.as_bytes()), Some(v), "{t}");
        }
    }

    #[test]
    fn refused() {
        for t in [
            "",
            "1",
            "1 ",
            "1 day ",
            " 1 day",
            "1  day",
            "1 week",
            "1 hour",
            "1.5 days",
            "1 day 1 day",
            "1 day 1 mon",
            "1 mon 1 year",
            "1 day ago",
            "@ 1 day",
            "P1D",
            "infinity",
            "1:00:00",
            "01:00",
            "01:60:00",
            "01:00:60",
            "01:00:00.",
            "01:00:00.1234567",
            "01:00:00 ",
            "1 day 01:00:00 1 mon",
            "1000000 years",
            "1000000:00:00",
            "1-2",
            "1 day -",
            "- 1 day",
            "--1 day",
            "1 Day",
            "1 day01:00:00",
            "1 days\u{e9}",
            "1 day 5",
            "1year",
            "01:00:00 01:00:00",
            "-1",
            "01:00:00-1",
        ] {
            assert_eq!(read(t.as_bytes()), None, "{t}");
        }
    }

    proptest! {
        #[test]
        fn by_parts(
            y in prop::option::of(-999_999..=999_999i32), m in prop::option::of(-11..=11i32),
            d in prop::option::of(-999_999..=999_999i32), us in prop::option::of(-3_599_999_999_999_999..3_600_000_000_000_000i64),
        ) {
            let mut parts = Vec::new();
            for (v, unit) in [(y, "year"), (m, "mon"), (d, "day")] {
                parts.extend(v.map(|v| format!("{v} {unit}{}", if v == 1 { "" } else { "s" })));
            }
            parts.extend(us.map(|us| {
                let (u, s) = (us.abs() % SECOND, us.abs() / SECOND);
                let sign = if us < 0 { "-" } else { "" };
                format!("{sign}{:02}:{:02}:{:02}.{u:06}", s / 3600, s / 60 % 60, s % 60)
            }));
            let expected = (us.unwrap_or(0), d.unwrap_or(0), y.unwrap_or(0) * 12 + m.unwrap_or(0));
            let text = parts.join(" ");
            prop_assert_eq!(read(text.as_bytes()), (!text.is_empty()).then_some(expected));
        }

        #[test]
        fn anything(field in "[-+]?[0-9]{0,7}( (years?|mons?|days?)| )?( ?[-+]?[0-9]{0,7}[:. ]?[0-9:.\u{e9}]{0,12})?") {
            let _ = read(field.as_bytes());
        }
    }
}
