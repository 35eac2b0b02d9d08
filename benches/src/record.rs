//! Reads rows of the workload `test` with the parser and the decoders of the loader.
//!
//! All other work of a loader is left out: looking up columns, reading options. A value that the decoders leave to the
//! server is an error, as is anything that `generate test` does not write. So the floor never counts a row that it did
//! not read.
//!
//! Bytes are pushed in parts of whole records, from any position of the file. The reader sees them as one stream, so
//! one reader processes all parts of a thread.

use pg_bulk_text::dialect::{Dialect, EndMarker, FormatOptions};
use pg_bulk_text::json_text::Charset;
use pg_bulk_text::reader::{Event, Reader, Settings, Value};
use pg_bulk_text::scan::Level;
use pg_bulk_types::arena::Arena;
use pg_bulk_types::convert::{Decoder, Session};

/// The longest text with a one-byte varlena header, in bytes.
const SHORT_TEXT: usize = 126;

/// Number of bytes to pass to the reader at a time, so that they stay in the second-level cache.
const PORTION: usize = 256 << 10;

/// The OID of the type timestamp.
const TIMESTAMP: u32 = 1114;

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

/// A reader of rows.
pub struct Rows {
    reader: Reader,
    timestamp: Decoder,
    /// Required by the decoders, which allocate nothing in it.
    arena: Arena,
    /// Values without their quotes, one per column.
    unescaped: [Vec<u8>; 3],
}

impl Rows {
    /// Creates a reader.
    pub fn new() -> Result<Self, String> {
        let options = FormatOptions { csv: true, null: Some(b"\\N".to_vec()), ..FormatOptions::default() };
        let dialect = Dialect::check(&options, EndMarker::Until17).map_err(|error| format!("{error:?}"))?;
        let session = Session { charset: Charset::Utf8, zone_letters: false, utc: true, interval_sql_standard: false };
        let settings = Settings {
            dialect,
            read_size: PORTION,
            utf8: true,
            max_char: 4,
            skip_bom: false,
            header_lines: 0,
            header_fields: false,
            max_fields: 3,
            level: Level::best(),
        };
        let timestamp = Decoder::for_type(TIMESTAMP, -1, &session).ok_or("no decoder for timestamp")?;
        Ok(Self { reader: Reader::new(settings), timestamp, arena: Arena::new(), unescaped: Default::default() })
    }

    /// Passes each row of `records`, which must be complete, to `take`, in order. Returns the number of rows.
    pub fn read(&mut self, records: &[u8], mut take: impl FnMut(&Row) -> Result<(), String>) -> Result<u64, String> {
        let mut rest = records;
        let mut rows = 0;
        loop {
            match self.reader.advance() {
                Event::Record => {
                    let row = self.row().ok_or("not a row of the workload test")?;
                    take(&row)?;
                    rows += 1;
                }
                Event::NeedData if rest.is_empty() => return Ok(rows),
                Event::NeedData => {
                    let space = self.reader.space();
                    let (portion, after) = rest.split_at(rest.len().min(space.len()));
                    space[..portion.len()].copy_from_slice(portion);
                    self.reader.filled(portion.len());
                    rest = after;
                }
                event => return Err(format!("{event:?}")),
            }
        }
    }

    /// Ends the stream. Returns an error if it ended within a row.
    pub fn finish(mut self) -> Result<(), String> {
        self.reader.space();
        self.reader.filled(0);
        match self.reader.advance() {
            Event::End => Ok(()),
            _ => Err("the file ends within a row".to_string()),
        }
    }

    #[inline]
    fn row(&mut self) -> Option<Row<'_>> {
        if self.reader.fields() != 3 {
            return None;
        }
        let [id, info, time] = &mut self.unescaped;
        let id = value(&self.reader, 0, id)?;
        let info = value(&self.reader, 1, info)?;
        let time = value(&self.reader, 2, time)?;
        if info.len() > SHORT_TEXT {
            return None;
        }
        let id = Decoder::Int4.decode(id, &mut self.arena)? as i32;
        let time = self.timestamp.decode(time, &mut self.arena)? as i64;
        Some(Row { id, info, time })
    }
}

/// Returns the value of a field. The reader leaves quotes in only two cases: in the very first record, which the exact
/// reader reads, and if a quote is doubled.
#[inline]
fn value<'a>(reader: &'a Reader, field: usize, unescaped: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    match reader.value(field) {
        Value::Plain(value) => Some(value),
        Value::Escaped(raw) => {
            unescaped.clear();
            reader.unescape(raw, unescaped);
            Some(unescaped)
        }
        Value::Null | Value::Default => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Workload;

    fn read(pieces: &[&[u8]]) -> Result<Vec<(i32, Vec<u8>, i64)>, String> {
        let mut reader = Rows::new()?;
        let mut found = Vec::new();
        for piece in pieces {
            let before = found.len() as u64;
            let rows = reader.read(piece, |row| {
                found.push((row.id, row.info.to_vec(), row.time));
                Ok(())
            })?;
            assert_eq!(rows, found.len() as u64 - before);
        }
        reader.finish()?;
        Ok(found)
    }

    #[test]
    fn pieces_are_one_stream() {
        let first = b"\"42\",\"abc\",\"2000-01-01 00:00:00.000001\"\n";
        let second = b"\"-7\",\"a\"\"b\",\"1999-12-31 23:59:59.999999\"\n\"8\",\"x\",\"2000-03-01 00:00:00\"\n";
        let rows = read(&[first, b"", second]).unwrap();
        let day = 86_400_000_000;
        assert_eq!(rows, [(42, b"abc".to_vec(), 1), (-7, b"a\"b".to_vec(), -1), (8, b"x".to_vec(), 60 * day)]);
    }

    #[test]
    fn generated_rows_are_all_read() {
        let mut file = Vec::new();
        Workload::Test.write(&mut file, 20_000, 1, 1).unwrap();
        let rows = read(&[&file]).unwrap();
        assert!(file.len() > 4 * PORTION);
        assert!(rows.iter().map(|row| row.0).eq(1..=20_000));
        let text = String::from_utf8(file).unwrap();
        assert!(text.lines().zip(&rows).all(|(line, row)| line.split('"').nth(3).unwrap().as_bytes() == row.1));
    }

    #[test]
    fn other_rows_are_refused() {
        for row in [
            &b"\"42\",\"abc\"\n"[..],
            b"\"42\",\"abc\",\"2000-01-01 00:00:00\",\"\"\n",
            b"\"42\",\\N,\"2000-01-01 00:00:00\"\n",
            b"\"2147483648\",\"abc\",\"2000-01-01 00:00:00\"\n",
            b"\"42\",\"abc\",\"soon\"\n",
            b"\"42\",\"abc\",\"2000-01-01 00:00:00\"",
            b"\"42\",\"abc\",\"2000-01-01 00:00:00\"\n\"43",
            b"\"42\",\"\xff\",\"2000-01-01 00:00:00\"\n",
        ] {
            assert!(read(&[row]).is_err(), "{}", String::from_utf8_lossy(row));
        }
        let long = format!("\"42\",\"{}\",\"2000-01-01 00:00:00\"\n", "x".repeat(127));
        assert!(read(&[long.as_bytes()]).is_err());
    }

    #[test]
    fn an_error_of_the_taker_ends_the_reading() {
        let rows = b"\"42\",\"abc\",\"2000-01-01 00:00:00\"\n\"43\",\"abc\",\"2000-01-01 00:00:00\"\n";
        let mut taken = 0;
        let result = Rows::new().unwrap().read(rows, |_| {
            taken += 1;
            Err("full".to_string())
        });
        assert_eq!((result, taken), (Err("full".to_string()), 1));
    }
}
