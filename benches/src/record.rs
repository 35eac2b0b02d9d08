//! Rows of the workload `test`, taken out of the bytes of its file.
//!
//! This is the floor's own reader, and no CSV parser: it knows that every field is quoted, that quotes are never
//! doubled, that a line end is a record end and what the three columns are. Being the least work that can produce the
//! three values is its whole purpose; whatever else it meets it refuses, so that it never counts a row it did not read.

/// Days from 0000-03-01 to 2000-01-01, PostgreSQL's epoch, in the proleptic Gregorian calendar.
const EPOCH_DAY: i64 = 730_425;

/// The longest text that a one-byte varlena header can describe.
const SHORT_TEXT: usize = 126;

/// The three values of one row.
#[derive(Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// The column `id`.
    pub id: i32,
    /// The column `info`.
    pub info: &'a [u8],
    /// The column `crt_time`: microseconds since 2000-01-01.
    pub time: i64,
}

/// Reads the row that begins `bytes`. Returns it with its length in the file, line end included; `None` if it is not
/// what `generate test` writes.
#[inline]
pub fn read(bytes: &[u8]) -> Option<(Row<'_>, usize)> {
    let (id, rest) = field(bytes)?;
    let (info, rest) = field(rest.strip_prefix(b",")?)?;
    let (time, rest) = field(rest.strip_prefix(b",")?)?;
    let rest = rest.strip_prefix(b"\n")?;
    if info.len() > SHORT_TEXT {
        return None;
    }
    Some((Row { id: integer(id)?, info, time: timestamp(time)? }, bytes.len() - rest.len()))
}

/// The content of the quoted field that begins `bytes`, and what follows its closing quote.
#[inline]
fn field(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let content = bytes.strip_prefix(b"\"")?;
    let end = content.iter().position(|byte| *byte == b'"')?;
    Some((&content[..end], &content[end + 1..]))
}

#[inline]
fn integer(digits: &[u8]) -> Option<i32> {
    // Ten digits cannot overflow the sum below; more are out of range for an int anyway.
    if digits.is_empty() || digits.len() > 10 {
        return None;
    }
    number(digits).and_then(|value| i32::try_from(value).ok())
}

#[inline]
fn number(digits: &[u8]) -> Option<i64> {
    let mut value = 0;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    Some(value)
}

/// `YYYY-MM-DD HH:MM:SS.ffffff` as microseconds since 2000-01-01.
#[inline]
fn timestamp(text: &[u8]) -> Option<i64> {
    let text: &[u8; 26] = text.try_into().ok()?;
    if [text[4], text[7], text[10], text[13], text[16], text[19]] != *b"-- ::." {
        return None;
    }
    let (year, month, day) = (number(&text[..4])?, number(&text[5..7])?, number(&text[8..10])?);
    let (hour, minute, second) = (number(&text[11..13])?, number(&text[14..16])?, number(&text[17..19])?);
    if !(1..=12).contains(&month) || !(1..=28).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // Years that begin in March put the leap day last, so that month lengths follow one formula.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - EPOCH_DAY;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + number(&text[20..])?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Workload;

    #[test]
    fn timestamps_count_from_2000() {
        let day = 86_400_000_000;
        assert_eq!(timestamp(b"2000-01-01 00:00:00.000000"), Some(0));
        assert_eq!(timestamp(b"1999-12-28 23:59:59.999999"), Some(-3 * day - 1));
        assert_eq!(timestamp(b"2000-03-01 00:00:00.000000"), Some(60 * day));
        assert_eq!(timestamp(b"2001-01-01 00:00:01.000002"), Some(366 * day + 1_000_002));
        // SELECT extract(epoch FROM timestamp '2023-11-28 13:14:15.016017' - timestamp '2000-01-01') * 1000000
        assert_eq!(timestamp(b"2023-11-28 13:14:15.016017"), Some(754_492_455_016_017));
        assert_eq!(timestamp(b"2023-13-28 13:14:15.016017"), None);
        assert_eq!(timestamp(b"2023-11-28T13:14:15.016017"), None);
    }

    #[test]
    fn a_row_is_read_up_to_its_line_end() {
        let bytes = b"\"42\",\"abc\",\"2000-01-01 00:00:00.000001\"\n\"43\"";
        assert_eq!(read(bytes), Some((Row { id: 42, info: b"abc", time: 1 }, bytes.len() - 4)));
    }

    #[test]
    fn what_generate_does_not_write_is_refused() {
        for row in [
            &b"42,\"abc\",\"2000-01-01 00:00:00.000001\"\n"[..],
            b"\"42\",\"a\"\"bc\",\"2000-01-01 00:00:00.000001\"\n",
            b"\"42\",\"abc\",\"2000-01-01 00:00:00.000001\"",
            b"\"42\",\"abc\",\"2000-01-01 00:00:00\"\n",
            b"\"2147483648\",\"abc\",\"2000-01-01 00:00:00.000001\"\n",
            b"\"\",\"abc\",\"2000-01-01 00:00:00.000001\"\n",
            b"\"4x\",\"abc\",\"2000-01-01 00:00:00.000001\"\n",
            b"",
        ] {
            assert_eq!(read(row), None, "{}", String::from_utf8_lossy(row));
        }
    }

    #[test]
    fn generated_rows_are_read() {
        let mut file = Vec::new();
        Workload::Test.write(&mut file, 1000, 1, 1).unwrap();
        let mut rest = &file[..];
        for id in 1..=1000 {
            let (row, length) = read(rest).unwrap();
            assert_eq!((row.id, row.info.len()), (id, 32));
            rest = &rest[length..];
        }
        assert!(rest.is_empty());
    }
}
