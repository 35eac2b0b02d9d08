//! The workloads of the side-by-side harness, as files.
//!
//! Each workload is a module with one function, which appends one row, with its line end, to a buffer. Its table, and
//! the options to read it, are in `load/<workload>.sql`. Rows are collected in a buffer and written about a megabyte at
//! a time.
//!
//! Each workload measures another cost of a reader:
//!
//! - `demo`: short rows, for the cost per row.
//! - `test`: quotes around every field.
//! - `customer`: mostly text, for the cost per byte.
//! - `extract`: many columns, numerics and nulls, for the cost per field.
//! - `mixed`: some values of every type.
//! - `hits`: a hundred columns.
//! - `lineitem`: bars or quotes around the same rows.
//! - `documents`: line ends inside values.
//! - `bad001` to `bad10`: invalid values.
//! - `uuids`, `words`: keys.

mod bad;
mod customer;
mod demo;
mod documents;
mod extract;
mod hits;
mod keys;
mod lineitem;
mod mixed;
mod test;

use std::io::{self, Write};

use crate::random::Random;

/// Number of bytes to collect before they are written.
const BATCH: usize = 1 << 20;

/// A kind of file to generate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Three short columns in text format.
    Demo,
    /// A number, a hash and a timestamp in CSV, every field quoted.
    Test,
    /// The customer table of DBT-2 in CSV.
    Customer,
    /// 29 columns, mostly numbers, with nulls, in text format.
    Extract,
    /// 40 columns of some 30 types, with nulls, in CSV.
    Mixed,
    /// 105 columns in text format.
    Hits,
    /// The order lines of TPC-H, bars between fields.
    Lineitem,
    /// The order lines of TPC-H in CSV, every field quoted.
    LineitemQuoted,
    /// JSON with line ends in it, in CSV.
    Documents,
    /// `Test` with an invalid value in 0.01 % of the rows.
    Bad001,
    /// `Test` with an invalid value in 1 % of the rows.
    Bad1,
    /// `Test` with an invalid value in 10 % of the rows.
    Bad10,
    /// A number, a random uuid, a number in CSV.
    Uuids,
    /// A number, a text for a key, a number in CSV.
    Words,
}

/// All workloads, in the order of their descriptions.
pub const WORKLOADS: [Workload; 14] = [
    Workload::Demo,
    Workload::Test,
    Workload::Customer,
    Workload::Extract,
    Workload::Mixed,
    Workload::Hits,
    Workload::Lineitem,
    Workload::LineitemQuoted,
    Workload::Documents,
    Workload::Bad001,
    Workload::Bad1,
    Workload::Bad10,
    Workload::Uuids,
    Workload::Words,
];

impl Workload {
    /// Name of the workload, its table, and its file in `load/`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Demo => "demo",
            Self::Test => "test",
            Self::Customer => "customer",
            Self::Extract => "extract",
            Self::Mixed => "mixed",
            Self::Hits => "hits",
            Self::Lineitem => "lineitem",
            Self::LineitemQuoted => "lineitem_quoted",
            Self::Documents => "documents",
            Self::Bad001 => "bad001",
            Self::Bad1 => "bad1",
            Self::Bad10 => "bad10",
            Self::Uuids => "uuids",
            Self::Words => "words",
        }
    }

    /// Returns the workload with this name, if there is one.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        WORKLOADS.into_iter().find(|workload| workload.name() == name)
    }

    fn row(self, out: &mut Vec<u8>, random: &mut Random, id: u64, good_only: bool) {
        match self {
            Self::Demo => demo::row(out, random, id),
            Self::Test => test::row(out, random, id),
            Self::Customer => customer::row(out, random, id),
            Self::Extract => extract::row(out, random, id),
            Self::Mixed => mixed::row(out, random, id),
            Self::Hits => hits::row(out, random, id),
            Self::Lineitem => lineitem::row(out, random, id, lineitem::Style::Bars),
            Self::LineitemQuoted => lineitem::row(out, random, id, lineitem::Style::Quotes),
            Self::Documents => documents::row(out, random, id),
            Self::Bad001 => bad::row(out, random, id, 1, good_only),
            Self::Bad1 => bad::row(out, random, id, 100, good_only),
            Self::Bad10 => bad::row(out, random, id, 1000, good_only),
            Self::Uuids => keys::uuid_row(out, random, id),
            Self::Words => keys::word_row(out, random, id),
        }
    }

    /// Writes `rows` rows with ascending ids from `first_id` on. Returns their size in bytes.
    pub fn write(self, sink: &mut impl Write, rows: u64, seed: u64, first_id: u64) -> io::Result<u64> {
        self.write_some(sink, rows, seed, first_id, false)
    }

    /// As [`Self::write`], without the rows with invalid values.
    pub fn write_good(self, sink: &mut impl Write, rows: u64, seed: u64, first_id: u64) -> io::Result<u64> {
        self.write_some(sink, rows, seed, first_id, true)
    }

    fn write_some(
        self,
        sink: &mut impl Write,
        rows: u64,
        seed: u64,
        first_id: u64,
        good_only: bool,
    ) -> io::Result<u64> {
        // With room for the last row, so that the buffer never grows.
        let mut batch = Vec::with_capacity(BATCH + 4096);
        let mut bytes = 0;
        for id in first_id..first_id + rows {
            self.row(&mut batch, &mut Random::row(seed, id), id, good_only);
            if batch.len() >= BATCH {
                sink.write_all(&batch)?;
                bytes += batch.len() as u64;
                batch.clear();
            }
        }
        sink.write_all(&batch)?;
        bytes += batch.len() as u64;
        sink.flush()?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(workload: Workload, rows: u64, seed: u64, first_id: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let written = workload.write(&mut bytes, rows, seed, first_id).unwrap();
        assert_eq!(written, bytes.len() as u64);
        bytes
    }

    /// A sink that only counts bytes, so that the published file sizes can be checked.
    struct Counter(u64);

    impl Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the field delimiter.
    fn delimiter(workload: Workload) -> char {
        match workload {
            Workload::Demo | Workload::Extract | Workload::Hits => '\t',
            Workload::Lineitem => '|',
            _ => ',',
        }
    }

    /// Splits a row into fields with their quotes. The files in text format contain no backslash, so this simple parser
    /// is enough.
    fn fields(workload: Workload, line: &str) -> Vec<&str> {
        let delimiter = delimiter(workload);
        let mut quoted = false;
        line.split(|character| {
            quoted ^= character == '"' && delimiter == ',';
            !quoted && character == delimiter
        })
        .collect()
    }

    /// Splits a file into records: lines that do not end inside quotes.
    fn records(text: &str) -> Vec<&str> {
        let mut quoted = false;
        let records = text.split_terminator(|character| {
            quoted ^= character == '"';
            !quoted && character == '\n'
        });
        records.collect()
    }

    /// Whether the first column is only the row's number.
    fn begins_with_its_number(workload: Workload) -> bool {
        use Workload::{Bad001, Bad1, Bad10, Lineitem, LineitemQuoted};
        ![Bad001, Bad1, Bad10, Lineitem, LineitemQuoted].contains(&workload)
    }

    /// Returns the columns of the workload's table, which has one per line between the parentheses.
    fn columns(workload: Workload) -> Vec<String> {
        // Two tables have the rows of `words`.
        let name = if workload == Workload::Words { "words_c" } else { workload.name() };
        let path = format!("{}/load/{name}.sql", env!("CARGO_MANIFEST_DIR"));
        let ddl = std::fs::read_to_string(path).unwrap();
        let body = ddl.split_once(&format!("CREATE TABLE {name} (\n")).unwrap().1.split_once("\n);").unwrap().0;
        body.lines().map(|line| line.trim().trim_end_matches(',').to_string()).collect()
    }

    #[test]
    fn same_seed_same_bytes() {
        for workload in WORKLOADS {
            assert_eq!(file(workload, 3000, 7, 1), file(workload, 3000, 7, 1), "{workload:?}");
            assert_ne!(file(workload, 3000, 7, 1), file(workload, 3000, 8, 1), "{workload:?}");
        }
    }

    #[test]
    fn a_later_start_continues_the_file() {
        for workload in WORKLOADS {
            let mut parts = file(workload, 1000, 7, 1);
            parts.extend(file(workload, 500, 7, 1001));
            assert!(parts == file(workload, 1500, 7, 1), "{workload:?}");
        }
    }

    #[test]
    fn rows_and_columns_are_the_tables() {
        for workload in WORKLOADS {
            let text = String::from_utf8(file(workload, 2500, 1, 1)).unwrap();
            assert!(text.ends_with('\n'));
            let records = records(&text);
            assert_eq!(records.len(), 2500, "{workload:?}");
            let columns = columns(workload).len();
            for (line, id) in records.into_iter().zip(1u64..) {
                let fields = fields(workload, line);
                assert_eq!(fields.len(), columns, "{workload:?}: {line}");
                let number = fields[0].trim_matches('"');
                assert!(!begins_with_its_number(workload) || number == id.to_string(), "{workload:?}: {line}");
                assert!(workload == Workload::Mixed || !line.contains('\\'), "{workload:?}: {line}");
            }
        }
    }

    #[test]
    fn declared_lengths_are_kept() {
        for workload in WORKLOADS {
            let text = String::from_utf8(file(workload, 2500, 1, 1)).unwrap();
            for (position, column) in columns(workload).iter().enumerate() {
                let Some(limit) = ["varchar(", "char(", "bit("].iter().find_map(|kind| column.split_once(kind)) else {
                    continue;
                };
                let limit: usize = limit.1.split_once(')').unwrap().0.parse().unwrap();
                for line in records(&text) {
                    let field = fields(workload, line)[position].trim_matches('"');
                    assert!(field.len() <= limit, "{workload:?}, {column}: {field}");
                }
            }
        }
    }

    #[test]
    fn extract_and_mixed_have_nulls_in_many_columns_and_the_others_none() {
        for (workload, columns, least) in [(Workload::Extract, 29, 15), (Workload::Mixed, 40, 14)] {
            let text = String::from_utf8(file(workload, 2500, 1, 1)).unwrap();
            let mut null_columns = vec![false; columns];
            for line in text.lines() {
                for (position, field) in fields(workload, line).iter().enumerate() {
                    null_columns[position] |= field.is_empty();
                }
            }
            assert!(!null_columns[0]);
            assert!(null_columns.iter().filter(|null| **null).count() >= least, "{workload:?}");
        }
        for workload in [Workload::Demo, Workload::Test, Workload::Customer] {
            let text = String::from_utf8(file(workload, 2500, 1, 1)).unwrap();
            assert!(text.lines().all(|line| fields(workload, line).iter().all(|field| !field.is_empty())));
        }
    }

    #[test]
    fn every_field_of_test_is_quoted() {
        let text = String::from_utf8(file(Workload::Test, 2500, 1, 1)).unwrap();
        for line in text.lines() {
            for field in line.split(',') {
                assert!(field.len() > 2 && field.starts_with('"') && field.ends_with('"'), "{line}");
            }
        }
    }

    #[test]
    fn bad_rows_are_as_many_as_promised() {
        for (workload, bad) in [(Workload::Bad001, 20), (Workload::Bad1, 2000), (Workload::Bad10, 20_000)] {
            let rows = 200_000;
            let all = String::from_utf8(file(workload, rows, 1, 1)).unwrap();
            let mut good = Vec::new();
            workload.write_good(&mut good, rows, 1, 1).unwrap();
            let good = String::from_utf8(good).unwrap();
            let mut of_all = all.lines();
            // The good rows are in the file, in order.
            assert!(good.lines().all(|line| of_all.any(|other| other == line)), "{workload:?}");
            let is_bad = |line: &&str| {
                let fields = fields(workload, line);
                fields[0].trim_matches('"').parse::<i32>().is_err() || fields[2].contains("-13-")
            };
            assert_eq!(good.lines().filter(is_bad).count(), 0, "{workload:?}");
            let found = all.lines().filter(is_bad).count();
            assert_eq!(found + good.lines().count(), rows as usize, "{workload:?}");
            assert!(found.abs_diff(bad) < 10 + bad / 10, "{workload:?}: {found}");
        }
    }

    #[test]
    fn sizes_are_the_published_ones() {
        for (workload, rows, megabytes) in [
            (Workload::Demo, 1_000_001, 16.0),
            (Workload::Test, 5_000_000, 369.0),
            (Workload::Customer, 1_000_000, 584.0),
            (Workload::Extract, 2_000_000, 240.0),
            (Workload::Mixed, 460_000, 300.0),
            (Workload::Hits, 50_000, 29.9),
            (Workload::Lineitem, 300_000, 38.0),
            (Workload::Documents, 50_000, 26.1),
        ] {
            let mut counter = Counter(0);
            workload.write(&mut counter, rows, 1, 1).unwrap();
            let found = counter.0 as f64 / 1e6;
            assert!((found / megabytes - 1.0).abs() < 0.03, "{workload:?}: {found} MB, not {megabytes}");
        }
    }
}
