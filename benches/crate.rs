//! Parts of the crates, measured with criterion: changes since the last run on this machine.
//!
//! ```text
//! cargo bench -p pg_bulk-bench --bench crate [-- PIECE]
//! ```
//!
//! `parse.rs` and `form.rs` make the published tables of whole files and several methods. Here each part is measured
//! alone, with criterion's statistics: line ends, fields, values by type, blocks of rows, tuples, pages, WAL data. Each
//! measured part returns the number of records, fields, values, rows or bytes that it made. That must be the number in
//! the input, which is generated and counted in another way.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use pg_bulk_bench::generate::Workload;
use pg_bulk_storage::page::PageBatch;
use pg_bulk_storage::tuple::{Attribute, FormBuffer, Formed, Layout, Stamp, TOAST_TUPLE_THRESHOLD};
use pg_bulk_text::dialect::{Dialect, EndMarker, Eol, FormatOptions};
use pg_bulk_text::json_text::Charset;
use pg_bulk_text::reader::{Event, Reader, Settings, Value};
use pg_bulk_text::scan::{CutState, Level, Needles, Scanner};
use pg_bulk_text::verify::utf8_valid_up_to;
use pg_bulk_types::arena::Arena;
use pg_bulk_types::block::{self, Block};
use pg_bulk_types::convert::{Decoder, Session};

/// Number of rows of an input: about a megabyte.
const ROWS: u64 = 10_000;
/// OIDs of the columns of `test` and `demo`.
const INT4: u32 = 23;
const TEXT: u32 = 25;
const TIMESTAMP: u32 = 1114;

struct Input {
    workload: Workload,
    bytes: Vec<u8>,
    dialect: Dialect,
    types: Vec<u32>,
}

impl Input {
    fn new(workload: Workload) -> Input {
        let (csv, null, types) = match workload {
            Workload::Test => (true, "\\N", vec![INT4, TEXT, TIMESTAMP]),
            Workload::Demo => (false, "\\N", vec![INT4, TEXT, INT4]),
            Workload::Extract => (false, "", vec![TEXT; 29]),
            Workload::Hits => (false, "\\N", vec![TEXT; 105]),
            Workload::Documents => (true, "", vec![TEXT; 4]),
            other => panic!("{} is not among the inputs", other.name()),
        };
        let mut bytes = Vec::new();
        workload.write(&mut bytes, ROWS, 1, 1).expect("memory takes everything");
        let options = FormatOptions { csv, null: Some(null.as_bytes().to_vec()), ..FormatOptions::default() };
        let dialect = Dialect::check(&options, EndMarker::Until17).expect("options that COPY takes");
        Input { workload, bytes, dialect, types }
    }

    fn size(&self) -> Throughput {
        Throughput::Bytes(self.bytes.len() as u64)
    }

    fn fields(&self) -> u64 {
        ROWS * self.types.len() as u64
    }

    fn reader(&self, level: Level) -> Reader {
        let mut reader = Reader::new(Settings {
            dialect: self.dialect.clone(),
            read_size: self.bytes.len(),
            utf8: true,
            max_char: 4,
            skip_bom: false,
            header_lines: 0,
            header_fields: false,
            max_fields: self.types.len(),
            level,
        });
        reader.space()[..self.bytes.len()].copy_from_slice(&self.bytes);
        reader.filled(self.bytes.len());
        reader
    }

    /// Calls `take` at each record. Returns the number of records.
    fn read(&self, level: Level, mut take: impl FnMut(&Reader)) -> u64 {
        let mut reader = self.reader(level);
        let mut records = 0;
        loop {
            match reader.advance() {
                Event::Record => {
                    records += 1;
                    take(&reader);
                }
                Event::NeedData => {
                    reader.space();
                    reader.filled(0);
                }
                Event::End => return records,
                event => panic!("{event:?}"),
            }
        }
    }

    fn decoders(&self) -> Vec<Decoder> {
        self.types.iter().map(|&oid| decoder(oid, -1)).collect()
    }
}

fn decoder(oid: u32, typmod: i32) -> Decoder {
    let session = Session { charset: Charset::Utf8, zone_letters: false, utc: true, interval_sql_standard: false };
    Decoder::for_type(oid, typmod, &session).expect("a type with a decoder")
}

fn line_ends(c: &mut Criterion) {
    let mut group = c.benchmark_group("line ends");
    for workload in [Workload::Test, Workload::Documents] {
        let input = Input::new(workload);
        group.throughput(input.size());
        for level in Level::available() {
            let scanner = Scanner::new(Needles::new(&input.dialect, Eol::Nl).expect("a regular dialect"), level);
            group.bench_function(BenchmarkId::new(workload.name(), format!("{level:?}")), |b| {
                b.iter(|| {
                    let mut state = CutState::default();
                    scanner.cut(black_box(&input.bytes), &mut state);
                    // In CSV, line ends within records count as lines, too.
                    assert_eq!(state.last, Some(input.bytes.len()));
                });
            });
        }
    }
    group.finish();
}

fn fields(c: &mut Criterion) {
    let mut group = c.benchmark_group("fields");
    for workload in [Workload::Demo, Workload::Test, Workload::Extract, Workload::Hits, Workload::Documents] {
        let input = Input::new(workload);
        group.throughput(input.size());
        for level in Level::available() {
            group.bench_function(BenchmarkId::new(workload.name(), format!("{level:?}")), |b| {
                b.iter(|| {
                    let mut fields = 0;
                    let records = input.read(level, |reader| fields += reader.fields() as u64);
                    assert_eq!((records, fields), (ROWS, input.fields()));
                });
            });
        }
    }
    group.finish();
}

fn utf8(c: &mut Criterion) {
    let input = Input::new(Workload::Extract);
    let mut group = c.benchmark_group("UTF-8");
    group.throughput(input.size());
    group.bench_function("verify", |b| {
        b.iter(|| assert_eq!(utf8_valid_up_to(black_box(&input.bytes)), input.bytes.len()));
    });
    group.finish();
}

/// Values by type: a thousand of each, in the form of files.
fn values(c: &mut Criterion) {
    let digits = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % 1_000_000_000;
    let uuid = |n: u64| format!("{:08x}-9b04-4f6e-8d2b-{:012x}", digits(n), n * 7919);
    type Text<'a> = Box<dyn Fn(u64) -> String + 'a>;
    let types: [(&str, u32, i32, Text); 12] = [
        ("bool", 16, -1, Box::new(|n| if digits(n) % 2 == 0 { "t" } else { "f" }.to_string())),
        ("int4", INT4, -1, Box::new(|n| digits(n).to_string())),
        ("int8", 20, -1, Box::new(|n| format!("-{}{}", digits(n), n))),
        ("float8", 701, -1, Box::new(|n| format!("{}.{}", digits(n) % 1000, n))),
        ("numeric(20,2)", 1700, (20 << 16 | 2) + 4, Box::new(|n| format!("{}.{:02}", digits(n), n % 100))),
        ("text", TEXT, -1, Box::new(|n| format!("some text of row {}", digits(n)))),
        ("date", 1082, -1, Box::new(|n| format!("{:04}-{:02}-{:02}", 1990 + n % 40, 1 + n % 12, 1 + n % 28))),
        ("timestamp", TIMESTAMP, -1, Box::new(|n| format!("2024-02-{:02} 11:{:02}:59.{:06}", 1 + n % 28, n % 60, n))),
        ("timestamptz", 1184, -1, Box::new(|n| format!("2024-02-{:02} 11:{:02}:59+02", 1 + n % 28, n % 60))),
        ("uuid", 2950, -1, Box::new(uuid)),
        ("bytea", 17, -1, Box::new(|n| format!("\\x{:016x}", digits(n)))),
        (
            "jsonb",
            3802,
            -1,
            Box::new(|n| format!("{{\"id\": {n}, \"tags\": [\"a\", \"b\"], \"size\": {}.5}}", digits(n))),
        ),
    ];
    let mut group = c.benchmark_group("values");
    for (name, oid, typmod, text) in &types {
        let decoder = decoder(*oid, *typmod);
        let inputs: Vec<String> = (0..1000).map(text).collect();
        group.throughput(Throughput::Elements(inputs.len() as u64));
        let mut arena = Arena::new();
        group.bench_function(*name, |b| {
            b.iter(|| {
                arena.reset();
                let decode =
                    |input: &&String| black_box(decoder.decode(black_box(input.as_bytes()), &mut arena)).is_some();
                assert_eq!(inputs.iter().filter(decode).count(), inputs.len());
            });
        });
    }
    group.finish();
}

/// Rows that are decoded one by one, and rows in blocks.
fn rows(c: &mut Criterion) {
    let mut group = c.benchmark_group("rows");
    for workload in [Workload::Demo, Workload::Test, Workload::Extract, Workload::Hits] {
        let input = Input::new(workload);
        group.throughput(input.size());
        let decoders = input.decoders();
        let mut arena = Arena::new();
        group.bench_function(BenchmarkId::new(input.workload.name(), "one by one"), |b| {
            b.iter(|| {
                let (mut values, mut nulls) = (0, 0);
                input.read(Level::best(), |reader| {
                    arena.reset();
                    let record = reader.record();
                    for (field, decoder) in decoders.iter().enumerate() {
                        let bytes = match record.value(field) {
                            Value::Plain(bytes) => bytes,
                            // The exact reader has read the first record, so its quotes are not removed.
                            Value::Escaped(raw) => &raw[1..raw.len() - 1],
                            Value::Null | Value::Default => {
                                nulls += 1;
                                continue;
                            }
                        };
                        values += u64::from(black_box(decoder.decode(bytes, &mut arena)).is_some());
                    }
                });
                assert_eq!(values + nulls, input.fields());
            });
        });
        group.bench_function(BenchmarkId::new(input.workload.name(), "in blocks"), |b| {
            b.iter(|| {
                let columns = decoders.iter().enumerate();
                let columns = columns
                    .map(|(attribute, &decoder)| Some(block::FieldTarget { decoder, attribute, not_null: false }));
                let mut block = Block::new(columns.collect(), decoders.len()).expect("columns of different attributes");
                let mut rows = 0;
                input.read(Level::best(), |reader| rows += u64::from(black_box(block.row(reader)).is_some()));
                // All but the first record, and batches that begin with it.
                assert!(rows >= ROWS - 1, "{rows} rows of {ROWS}");
            });
        });
    }
    group.finish();
}

/// Tuples of an int, a text and a timestamp: alone, on pages, and as data of WAL records.
fn tuples(c: &mut Criterion) {
    const BATCH: usize = 64;
    let attributes = [
        Attribute { len: 4, align: 4, by_value: true, packable: false },
        Attribute { len: -1, align: 4, by_value: false, packable: true },
        Attribute { len: 8, align: 8, by_value: true, packable: false },
    ];
    let stamp = Stamp { xmin: 1000, cid: 0, frozen: false };
    let layout = Layout::new(&attributes, stamp, TOAST_TUPLE_THRESHOLD).expect("attributes like any other");
    // A varlena of 32 bytes behind a header of four.
    let text: [u64; 5] = {
        let mut bytes = [b'x'; 40];
        bytes[..4].copy_from_slice(&(36_u32 << 2).to_le_bytes());
        std::array::from_fn(|word| u64::from_le_bytes(std::array::from_fn(|at| bytes[word * 8 + at])))
    };
    let nulls = [false; 3];
    let values = |row: u64| [row, text.as_ptr().expose_provenance() as u64, row * 1000];
    let mut group = c.benchmark_group("tuples");
    group.throughput(Throughput::Elements(ROWS));
    let mut buffer = FormBuffer::new();
    group.bench_function("form", |b| {
        b.iter(|| {
            let mut bytes = 0;
            for row in 0..ROWS {
                let values = values(row);
                // SAFETY: there is a value and a null for each attribute; the text is a varlena that lives until the
                // end of this function.
                let formed = unsafe { layout.form(values.as_ptr(), nulls.as_ptr(), &mut buffer) };
                let Formed::Tuple(tuple) = formed else { panic!("a tuple like any other") };
                bytes += black_box(tuple).len();
            }
            // A header of 24 bytes, the int, the text behind a header of one byte, the timestamp at a multiple of 8.
            assert_eq!(bytes as u64, ROWS * (24 + 4 + 33 + 3 + 8));
        });
    });
    let mut batch = PageBatch::new(BATCH, 0, false).expect("half a megabyte");
    let mut wal = Vec::new();
    group.bench_function("form, pages, WAL data", |b| {
        b.iter(|| {
            let (mut rows, mut logged) = (0, 0);
            batch.clear();
            let mut log = |batch: &mut PageBatch| {
                wal.clear();
                for page in 0..batch.complete() {
                    batch.set_block_number(page, page as u32);
                    logged += u64::from(batch.wal_data(page, &mut wal));
                }
                black_box(&wal);
                rows += batch.rows();
            };
            for row in 0..ROWS {
                let values = values(row);
                // SAFETY: as above.
                let formed = unsafe { layout.form(values.as_ptr(), nulls.as_ptr(), &mut buffer) };
                let Formed::Tuple(tuple) = formed else { panic!("a tuple like any other") };
                if batch.add(tuple).is_none() {
                    log(&mut batch);
                    batch.take_full();
                    assert!(batch.add(tuple).is_some());
                }
            }
            batch.finish();
            log(&mut batch);
            assert_eq!((rows, logged), (ROWS, ROWS));
        });
    });
    group.finish();
}

criterion_group!(benches, line_ends, fields, utf8, values, rows, tuples);
criterion_main!(benches);
