//! timestamp and timestamptz: `YYYY-MM-DD[( |T)HH:MM[:SS[.f]]]`, and for timestamptz an offset directly behind it.
//!
//! Both are microseconds since 2000-01-01; a timestamptz is in UTC. Names of zones, and the session's own zone unless
//! it is UTC, need the server's tables. The letters `T` and `Z` are such names, too: timestamptz_in looks them up among
//! the abbreviations first. Up to 17 these are the set named by timezone_abbreviations, and all sets of the server
//! agree on the letters. From 18 on, the session's TimeZone takes precedence, and `SET timezone = 'Z-3'` is allowed. So
//! there the letters are left to the server unless TimeZone is UTC. (timestamp_in ignores zones, so its `T` is always
//! safe.)

use super::digits::{self, Layout};
use super::time::{self, SECOND};
use super::{Datum, date};

/// The second eight bytes of a timestamp, with either separator.
const BLANK: Layout = Layout::new(b"00 00:00");
const LETTER_T: Layout = Layout::new(b"00T00:00");

/// The parts of a timestamp before its zone.
struct Local<'a> {
    /// Microseconds since 2000-01-01 on the local clock.
    micros: i64,
    /// Number of fractional digits of the seconds.
    precision: usize,
    /// Whether a `T` separates date and time.
    letter: bool,
    /// The bytes behind them.
    zone: &'a [u8],
}

#[inline(always)]
fn local(field: &[u8]) -> Option<Local<'_>> {
    let (head, rest) = field.split_first_chunk::<8>()?;
    let Some((middle, rest)) = rest.split_first_chunk::<8>() else {
        let &[tens, ones] = rest else { return None };
        let days = date::read(head, digits::two(tens, ones)?)?;
        return Some(Local { micros: i64::from(days) * 86_400 * SECOND, precision: 0, letter: false, zone: &[] });
    };
    let letter = middle[2] == b'T';
    let layout = if letter { LETTER_T } else { BLANK };
    let p = digits::pairs(layout.read(middle)?).to_le_bytes();
    let days = date::read(head, u32::from(p[0]))?;
    let mut seconds = i64::from(days) * 86_400 + time::minutes(u32::from(p[3]), u32::from(p[6]))?;
    let (mut micros, mut precision, mut zone) = (0, 0, rest);
    if let &[b':', tens, ones, ref rest @ ..] = rest {
        let second = digits::two(tens, ones)?;
        if second >= 60 {
            return None;
        }
        seconds += i64::from(second);
        if rest.is_empty() {
            zone = rest;
        } else {
            (micros, precision, zone) = time::fraction(rest)?;
        }
    }
    Some(Local { micros: seconds * SECOND + micros, precision, letter, zone })
}

/// timestamp(precision)
#[inline]
pub(super) fn timestamp(field: &[u8], precision: usize) -> Option<Datum> {
    let t = local(field)?;
    (t.zone.is_empty() && t.precision <= precision).then_some(t.micros as Datum)
}

/// timestamptz(precision). `utc`: a text without a zone is in UTC; `letters`: `T` and `Z` have their meaning in ISO
/// 8601.
#[inline]
pub(super) fn timestamptz(field: &[u8], precision: usize, utc: bool, letters: bool) -> Option<Datum> {
    let t = local(field)?;
    if t.precision > precision || (t.letter && !letters) {
        return None;
    }
    let ahead = match *t.zone {
        [] if utc => 0,
        [b'Z'] if letters => 0,
        [sign @ (b'+' | b'-'), a, b] => offset(sign, [a, b, b'0', b'0'])?,
        [sign @ (b'+' | b'-'), a, b, c, d] => offset(sign, [a, b, c, d])?,
        [sign @ (b'+' | b'-'), a, b, b':', c, d] => offset(sign, [a, b, c, d])?,
        _ => return None,
    };
    Some((t.micros - ahead * SECOND) as Datum)
}

/// Reads an offset. Returns seconds east of Greenwich.
#[inline]
fn offset(sign: u8, [a, b, c, d]: [u8; 4]) -> Option<i64> {
    let (hour, minute) = (digits::two(a, b)?, digits::two(c, d)?);
    // MAX_TZDISP_HOUR
    if hour > 15 || minute >= 60 {
        return None;
    }
    let seconds = i64::from(hour * 3600 + minute * 60);
    Some(if sign == b'-' { -seconds } else { seconds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tz(t: &str) -> Option<i64> {
        timestamptz(t.as_bytes(), 6, true, true).map(|d| d as i64)
    }

    #[test]
    fn accepted() {
        for (t, v) in [
            ("2000-01-01 00:00:00", 0i64),
            ("2000-01-01", 0),
            ("2000-01-01 00:01", 60_000_000),
            ("2000-01-01T00:00:01", 1_000_000),
            ("1999-12-31 23:59:59.999999", -1),
            ("1999-12-31 23:59:59.5", -500_000),
            ("2024-02-29 12:34:56.789", 762_525_296_789_000),
            ("0001-01-01 00:00:00", -63_082_281_600_000_000),
            ("9999-12-31 23:59:59.999999", 252_455_615_999_999_999),
        ] {
            assert_eq!(timestamp(t.as_bytes(), 6), Some(v as Datum), "{t}");
            assert_eq!(tz(t), Some(v), "{t}");
            let elsewhere = timestamptz(t.as_bytes(), 6, false, true);
            assert_eq!(elsewhere, None, "{t} in another zone");
        }
        for (t, v) in [
            ("2000-01-01 00:00:00Z", 0i64),
            ("2000-01-01T00:00:00.000001Z", 1),
            ("2000-01-01T00:00:00+00", 0),
            ("2000-01-01 00:00:00+00", 0),
            ("2000-01-01 00:00:00-00:00", 0),
            ("2000-01-01 01:00:00+01", 0),
            ("2000-01-01 05:30+05:30", 0),
            ("1999-12-31 16:00:00.25-0800", 250_000),
            ("2000-01-01 15:59:00+15:59", 0),
        ] {
            assert_eq!(tz(t), Some(v), "{t}");
            assert_eq!(timestamp(t.as_bytes(), 6), None, "{t}");
            assert_eq!(timestamptz(t.as_bytes(), 6, false, true), Some(v as Datum), "{t}");
            let safe = !t.contains(['T', 'Z']);
            assert_eq!(timestamptz(t.as_bytes(), 6, false, false).is_some(), safe, "{t} where letters are names");
        }
    }

    #[test]
    fn refused() {
        for t in [
            "",
            "2000-01-01 ",
            "2000-01-01 00",
            "2000-01-01 00:",
            "2000-01-01 00:0",
            "2000-01-01 24:00:00",
            "2000-01-01 00:60:00",
            "2000-01-01 00:00:60",
            "2000-01-01 00:00:00.",
            "2000-01-01 00:00:00.1234567",
            "2000-01-01t00:00:00",
            "2000-01-01  00:00:00",
            "2000-01-01_00:00:00",
            "2000-02-30 00:00:00",
            "2000-01-01T",
            "2000-01-01 00:00:00 ",
            "2000-01-01 00:00:00 BC",
            "2000-01-01 00:00:00 UTC",
            "2000-01-01 00:00:00z",
            "2000-01-01 00:00:00 +01",
            "2000-01-01 00:00:00+1",
            "2000-01-01 00:00:00+100",
            "2000-01-01 00:00:00+16",
            "2000-01-01 00:00:00+01:60",
            "2000-01-01 00:00:00+01:00:00",
            "2000-01-01 00:00:00+",
            "2000-01-01+01",
            "2000-01-01Z",
            "infinity",
            "now",
            "2000-01-01 00:00:",
            "2000-01-01 00:00:0",
            "0000-01-01 00:00:00",
            "2000-01-01 00:00:00.1.1",
            "2000-01-01 00:00:0\u{e9}",
            "20000-01-01 00:00:00",
            "2000-01-01 1:00:00",
        ] {
            assert_eq!(timestamp(t.as_bytes(), 6), None, "{t}");
            assert_eq!(tz(t), None, "{t}");
        }
        assert_eq!(timestamp(b"2000-01-01 00:00:00.12", 1), None);
        assert_eq!(timestamptz(b"2000-01-01 00:00:00.12Z", 1, true, true), None);
    }

    proptest! {
        #[test]
        fn by_arithmetic(
            day in -730_119..2_921_940i64, us in 0..86_400_000_000i64, n in 0..=6usize, iso in any::<bool>(),
            offset in prop::option::of((any::<bool>(), 0..16i64, 0..60i64)),
        ) {
            let (y, m, d) = calendar(day);
            let cut = us - us % 10i64.pow(6 - n as u32);
            let (s, f) = (cut / SECOND, format!("{:06}", cut % SECOND));
            let mut text = format!("{y:04}-{m:02}-{d:02}{}", if iso { 'T' } else { ' ' });
            text += &format!("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
            if n > 0 {
                text += &format!(".{}", &f[..n]);
            }
            let expected = day * 86_400 * SECOND + cut;
            prop_assert_eq!(timestamp(text.as_bytes(), n), Some(expected as Datum));
            if let Some((west, h, min)) = offset {
                text += &format!("{}{h:02}:{min:02}", if west { '-' } else { '+' });
                let ahead = (h * 3600 + min * 60) * if west { -1 } else { 1 };
                prop_assert_eq!(tz(&text), Some(expected - ahead * SECOND));
            }
        }

        #[test]
        fn anything(field in prop::collection::vec(prop::sample::select(b"0123456789-: T.+Z\xe9".to_vec()), 0..30)) {
            // Neither panics, and timestamptz in UTC agrees with timestamp if both are sure.
            if let Some(v) = timestamp(&field, 6) {
                prop_assert_eq!(timestamptz(&field, 6, true, true), Some(v));
            }
        }
    }

    /// Returns a day's date by walking the years and months.
    fn calendar(day: i64) -> (i64, i64, i64) {
        let leap = |y: i64| y % 4 == 0 && y % 100 != 0 || y % 400 == 0;
        let (mut y, mut left) = (1, day + 730_119);
        while left >= 365 + i64::from(leap(y)) {
            left -= 365 + i64::from(leap(y));
            y += 1;
        }
        let lengths = [31, 28 + i64::from(leap(y)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let mut m = 0;
        while left >= lengths[m] {
            left -= lengths[m];
            m += 1;
        }
        (y, m as i64 + 1, left + 1)
    }
}
