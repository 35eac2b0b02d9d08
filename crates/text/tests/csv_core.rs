//! The reader compared with csv-core, where RFC 4180 and COPY agree.
//!
//! Files are written from random tables, so that the table, csv-core and the reader can be compared. The files contain
//! nothing that only COPY reads in its own way: empty lines, quotes in the middle of a field, `\.` (data in CSV from 18
//! on), and the NULL marker (no field can equal the one used).

use csv_core::ReadFieldResult;
use pg_bulk_text::dialect::{Dialect, EndMarker, FormatOptions};
use pg_bulk_text::naive::{self, Cell};
use pg_bulk_text::scan::Level;
use proptest::prelude::*;

type Table = Vec<Vec<Vec<u8>>>;

const DELIMITERS: &[u8] = b",;\t|";
const QUOTES: &[u8] = b"\"'";
const LINE_ENDS: &[&str] = &["\n", "\r\n", "\r"];

/// How a table is written.
#[derive(Debug, Clone, Copy)]
struct Style {
    delimiter: u8,
    quote: u8,
    line_end: &'static str,
    /// The last record has a line end, too.
    final_line_end: bool,
}

/// A field, and whether it is quoted without need.
fn field() -> impl Strategy<Value = (String, bool)> {
    let piece = prop_oneof![
        6 => "[a-z]{1,9}", 2 => "[,;\t|]", 2 => "[\"']", 1 => Just("\n".to_owned()), 1 => Just("\r\n".to_owned()),
        1 => Just("\r".to_owned()), 1 => "[ .\\\\é€😀]", 1 => "x{40,80}",
    ];
    (prop::collection::vec(piece, 0..5).prop_map(|v| v.concat()), any::<bool>())
}

fn write(records: &[Vec<(String, bool)>], style: Style) -> (Table, Vec<u8>) {
    let quote = char::from(style.quote);
    let special = [char::from(style.delimiter), quote, '\n', '\r'];
    let mut file = String::new();
    for (i, record) in records.iter().enumerate() {
        for (j, (value, quoted)) in record.iter().enumerate() {
            if j > 0 {
                file.push(char::from(style.delimiter));
            }
            // A single empty field would make an empty line.
            let lone = record.len() == 1 && value.is_empty();
            if *quoted || lone || value.contains(special) {
                let doubled = value.replace(quote, &format!("{quote}{quote}"));
                file.extend([quote.to_string(), doubled, quote.to_string()]);
            } else {
                file.push_str(value);
            }
        }
        if i + 1 < records.len() || style.final_line_end {
            file.push_str(style.line_end);
        }
    }
    let bytes = |(value, _): &(String, bool)| value.clone().into_bytes();
    (records.iter().map(|record| record.iter().map(bytes).collect()).collect(), file.into_bytes())
}

fn by_csv_core(file: &[u8], style: Style) -> Table {
    let mut reader = csv_core::ReaderBuilder::new().delimiter(style.delimiter).quote(style.quote).build();
    let mut value = vec![0; file.len() + 1];
    let (mut table, mut record, mut input) = (Table::new(), Vec::new(), file);
    loop {
        let (result, read, written) = reader.read_field(input, &mut value);
        input = &input[read..];
        match result {
            // The next call gets an empty input, which means that the file has ended. It returns the last field, if
            // there is one, and writes no more bytes of it.
            ReadFieldResult::InputEmpty => {
                assert!(input.is_empty());
                let (result, _, more) = reader.read_field(&[], &mut value[written..]);
                assert_eq!(more, 0);
                match result {
                    ReadFieldResult::Field { record_end: true } => {
                        record.push(value[..written].to_vec());
                        table.push(std::mem::take(&mut record));
                    }
                    result => assert!(matches!(result, ReadFieldResult::End), "{result:?}"),
                }
                return table;
            }
            ReadFieldResult::Field { record_end } => {
                record.push(value[..written].to_vec());
                if record_end {
                    table.push(std::mem::take(&mut record));
                }
            }
            ReadFieldResult::OutputFull => unreachable!("no field is longer than the file"),
            ReadFieldResult::End => return table,
        }
    }
}

fn by_reader(file: &[u8], style: Style, read_size: usize, level: Level) -> Table {
    let options = FormatOptions {
        csv: true,
        delimiter: Some(vec![style.delimiter]),
        quote: Some(vec![style.quote]),
        null: Some(b"NULL".to_vec()),
        ..FormatOptions::default()
    };
    let settings = naive::settings(&Dialect::check(&options, EndMarker::Since18).unwrap(), read_size, level);
    let (rows, error) = naive::read_in_pieces(settings, file, read_size);
    assert_eq!(error, None, "{:?}", String::from_utf8_lossy(file));
    let bytes = |cell| match cell {
        Cell::Bytes(bytes) => bytes,
        marker => panic!("{marker:?} in {:?}", String::from_utf8_lossy(file)),
    };
    rows.into_iter().map(|row| row.cells.into_iter().map(bytes).collect()).collect()
}

fn check(records: &[Vec<(String, bool)>], style: Style, read_size: usize) {
    let (table, file) = write(records, style);
    assert_eq!(by_csv_core(&file, style), table, "csv-core, {:?}", String::from_utf8_lossy(&file));
    for level in Level::available() {
        for size in [read_size, 65536] {
            let found = by_reader(&file, style, size, level);
            assert_eq!(found, table, "{level:?}, {size} at a time, {style:?}, {:?}", String::from_utf8_lossy(&file));
        }
    }
}

#[test]
fn corners() {
    let field = |value: &str| (value.to_owned(), false);
    let tables: &[&[Vec<(String, bool)>]] = &[
        &[],
        &[vec![field("")]],
        &[vec![field(""), field("")]],
        &[vec![field("a")], vec![field("")]],
        &[vec![field("\"")], vec![field("\"\"")], vec![field("'")]],
        &[vec![field("\n"), field("\r")], vec![field("\r\n"), field("\n\r")]],
        &[vec![field(",\n,"), field("")], vec![field(""), field(",")]],
        &[vec![field("\\."), field("\\")], vec![field("\\."), field("x")]],
    ];
    for records in tables {
        for &delimiter in DELIMITERS {
            for &quote in QUOTES {
                for line_end in LINE_ENDS {
                    for final_line_end in [false, true] {
                        let style = Style { delimiter, quote, line_end, final_line_end };
                        for read_size in [1, 2, 5] {
                            check(records, style, read_size);
                        }
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 20 } else { 1000 }))]

    #[test]
    fn random_tables(
        records in prop::collection::vec(prop::collection::vec(field(), 1..6), 0..20),
        delimiter in prop::sample::select(DELIMITERS),
        quote in prop::sample::select(QUOTES),
        line_end in prop::sample::select(LINE_ENDS),
        final_line_end: bool,
        read_size in 1usize..300,
    ) {
        check(&records, Style { delimiter, quote, line_end, final_line_end }, read_size);
    }
}
