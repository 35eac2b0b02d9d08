//! date: `YYYY-MM-DD`, the only form that does not depend on DateStyle.
//!
//! Days are counted from 2000-01-01 in the Gregorian calendar, even for dates before its introduction. Two-digit and
//! longer years, BC, names of months and `infinity` are left to date_in.

use super::Datum;
use super::digits::{self, Layout};

const HEAD: Layout = Layout::new(b"0000-00-");

/// Returns the number of a day; `None` if it is not in the calendar.
#[inline(always)]
pub(super) fn day_number(year: u32, month: u32, day: u32) -> Option<i32> {
    const LENGTH: [u8; 16] = [0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0, 0, 0];
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let length = u32::from(*LENGTH.get(month as usize)?) + u32::from(leap && month == 2);
    // Wraps for day 0, so one comparison checks both bounds.
    if day.wrapping_sub(1) >= length || year.wrapping_sub(1) >= 9999 {
        return None;
    }
    // In a year that starts in March, the leap day is last, and the months' lengths follow a linear formula.
    let (y, m) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = y * 365 + y / 4 - y / 100 + y / 400 + (m * 153 + 2) / 5 + day - 1;
    // Days from 0000-03-01 to 2000-01-01.
    Some(days as i32 - 730_425)
}

/// Reads a date of ten characters. `head`: the first eight; `day`: the number that the last two make.
#[inline(always)]
pub(super) fn read(head: &[u8; 8], day: u32) -> Option<i32> {
    let p = digits::pairs(HEAD.read(head)?).to_le_bytes();
    day_number(u32::from(p[0]) * 100 + u32::from(p[2]), u32::from(p[5]), day)
}

/// date
#[inline]
pub(super) fn date(field: &[u8]) -> Option<Datum> {
    let (head, &[tens, ones]) = field.split_first_chunk::<8>()? else { return None };
    read(head, digits::two(tens, ones)?).map(|d| d as Datum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_day_of_ten_thousand_years() {
        let mut expected = -730_119i32; // 0001-01-01, as the server shows with '0001-01-01'::date - '2000-01-01'
        for year in 1..=9999u32 {
            for month in 1..=12u32 {
                let leap = year % 4 == 0 && year % 100 != 0 || year % 400 == 0;
                let length = match month {
                    4 | 6 | 9 | 11 => 30,
                    2 if leap => 29,
                    2 => 28,
                    _ => 31,
                };
                for day in 1..=length {
                    assert_eq!(day_number(year, month, day), Some(expected), "{year}-{month}-{day}");
                    expected += 1;
                }
                assert_eq!(day_number(year, month, length + 1), None);
                assert_eq!(day_number(year, month, 0), None);
            }
        }
    }

    #[test]
    fn accepted() {
        for (t, v) in [("2000-01-01", 0), ("1999-12-31", -1), ("2024-02-29", 8825), ("9999-12-31", 2_921_939)] {
            assert_eq!(date(t.as_bytes()), Some(i64::from(v) as Datum), "{t}");
        }
    }

    #[test]
    fn refused() {
        for t in [
            "", "2000", "2000-1-1", "2000-01-1", "2000-00-01", "2000-13-01", "2000-01-00", "2000-01-32", "2001-02-29",
            "1900-02-29", "0000-01-01", "20000-01-01", "2000/01/01", "2000-01/01", "2000-01-01 ", " 2000-01-01",
            "20000101", "2000-01-01 BC", "infinity", "today", "01-01-2000", "2000-0a-01", "200\u{e9}-01-01",
            "2000-99-01",
        ] {
            assert_eq!(date(t.as_bytes()), None, "{t}");
        }
    }

    proptest! {
        #[test]
        fn anything(field in prop::collection::vec(any::<u8>(), 0..12)) {
            // An accepted text has the length and the separators of a date.
            if date(&field).is_some() {
                prop_assert!(field.len() == 10 && field[4] == b'-' && field[7] == b'-');
            }
        }
    }
}
