//! The parser alone, on one core and in memory: the cost of a file without a database.
//!
//! ```text
//! [PARSE_MB=64] [PARSE_ROUNDS=7] cargo bench -p pg_bulk-bench --bench parse [-- NAME...] > results/<date>/parse.md
//! ```
//!
//! A name is that of a workload, or `wide`; the default is all. Every method reads the same bytes, 256 KiB at a time.
//! Ratios are relative to csv-core's splitting, which does the minimum of any parser, and many parsers use csv-core.
//! The reader of pg_bulk also verifies UTF-8 and detects COPY's exceptions; its baseline does not. The methods
//! alternate in every round, so that a disturbance affects all of them; a time is the median of the rounds. All timed
//! results are checked: the numbers of records, fields, lines and converted values, the bytes of values, and the sum of
//! the integers must equal those of csv-core and std.

use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

use csv_core::{ReadFieldResult, ReaderBuilder};
use pg_bulk_bench::generate::Workload;
use pg_bulk_bench::random::Random;
use pg_bulk_text::dialect::{Dialect, EndMarker, Eol, FormatOptions};
use pg_bulk_text::json_text::Charset;
use pg_bulk_text::reader::{Event, Reader, Settings, Value};
use pg_bulk_text::scan::{CutState, Level, Needles, Scanner};
use pg_bulk_text::verify::utf8_valid_up_to;
use pg_bulk_types::arena::Arena;
use pg_bulk_types::convert::{Decoder, Session};

/// Size of a read in bytes, for all methods.
const READ: usize = 256 << 10;

/// A column's type, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    Int4,
    Float4,
    Text,
    Varchar(i32),
    Bpchar(i32),
    Bit(i32),
    Timestamp,
    Numeric(i32, i32),
}

impl Type {
    fn decoder(self) -> Decoder {
        let (oid, typmod) = match self {
            Type::Int4 => (23, -1),
            Type::Float4 => (700, -1),
            Type::Text => (25, -1),
            Type::Varchar(n) => (1043, n + 4),
            Type::Bpchar(n) => (1042, n + 4),
            Type::Bit(n) => (1560, n),
            Type::Timestamp => (1114, -1),
            Type::Numeric(precision, scale) => (1700, (precision << 16 | scale) + 4),
        };
        let session = Session { charset: Charset::Utf8, zone_letters: false, utc: true, interval_sql_standard: false };
        Decoder::for_type(oid, typmod, &session).expect("a type with a decoder")
    }
}

/// The columns of `load/<workload>.sql`.
fn columns(workload: Workload) -> Vec<Type> {
    use Type::{Bit, Bpchar, Float4, Int4, Numeric, Text, Timestamp, Varchar};
    let money = Numeric(24, 12);
    match workload {
        Workload::Test => vec![Int4, Text, Timestamp],
        Workload::Demo => vec![Int4, Varchar(15), Int4],
        Workload::Customer => {
            let names =
                [Varchar(16), Bpchar(2), Varchar(16), Varchar(20), Varchar(20), Varchar(20), Bpchar(2), Bpchar(9)];
            let rest = [Bpchar(16), Timestamp, Bpchar(2), money, Float4, money, money, Int4, Float4, Varchar(500)];
            [&[Int4; 3][..], &names, &rest].concat()
        }
        Workload::Extract => [&[Int4; 12][..], &[Text, Bit(1)], &[Numeric(20, 2); 8], &[Numeric(38, 6); 7]].concat(),
        other => panic!("{} is not among the inputs", other.name()),
    }
}

/// An input file.
struct Input {
    name: &'static str,
    what: &'static str,
    bytes: Vec<u8>,
    dialect: Dialect,
    columns: Vec<Type>,
}

impl Input {
    fn generate(workload: Workload, megabytes: usize) -> Input {
        let mut sample = Vec::new();
        write_rows(workload, &mut sample, 10_000);
        let rows = megabytes * 1_000_000 * 10_000 / sample.len();
        let mut bytes = Vec::new();
        write_rows(workload, &mut bytes, rows as u64);
        let (what, csv, null) = match workload {
            Workload::Test => ("CSV, every field quoted", true, "\\N"),
            Workload::Demo => ("text, 3 short columns", false, "\\N"),
            Workload::Customer => ("CSV, 21 columns, mostly text", true, ""),
            Workload::Extract => ("text, 29 short columns", false, ""),
            other => panic!("{} is not among the inputs", other.name()),
        };
        Input { name: workload.name(), what, bytes, dialect: dialect(csv, null), columns: columns(workload) }
    }

    /// Makes 100 columns of one to eight letters without quotes.
    fn wide(megabytes: usize) -> Input {
        let columns = vec![Type::Text; 100];
        let mut bytes = Vec::with_capacity(megabytes * 1_000_000 + 1024);
        for row in 0.. {
            if bytes.len() >= megabytes * 1_000_000 {
                break;
            }
            let mut random = Random::row(1, row);
            for column in 0..columns.len() {
                if column > 0 {
                    bytes.push(b',');
                }
                random.text_between(&mut bytes, 1, 8);
            }
            bytes.push(b'\n');
        }
        Input { name: "wide", what: "CSV, 100 short columns, unquoted", bytes, dialect: dialect(true, ""), columns }
    }
}

fn write_rows(workload: Workload, bytes: &mut Vec<u8>, rows: u64) {
    workload.write(bytes, rows, 1, 1).expect("memory takes everything");
}

fn dialect(csv: bool, null: &str) -> Dialect {
    let options = FormatOptions { csv, null: Some(null.as_bytes().to_vec()), ..FormatOptions::default() };
    Dialect::check(&options, EndMarker::Until17).expect("options that COPY takes")
}

/// The counts of a method. Counts that it does not make are zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Found {
    records: u64,
    fields: u64,
    /// Bytes of values, without quotes.
    bytes: u64,
    converted: u64,
    /// Sum of the integers.
    sum: i64,
}

#[derive(Clone, Copy)]
enum Method {
    CsvCore,
    Copy,
    Utf8,
    Cut(Level),
    Split(Level),
    Convert(Level),
}

impl Method {
    fn name(self) -> String {
        match self {
            Method::CsvCore => "csv-core, read_field".to_string(),
            Method::Copy => "copy of the bytes".to_string(),
            Method::Utf8 => "UTF-8 verification".to_string(),
            Method::Cut(level) => format!("line ends, {level:?}"),
            Method::Split(level) => format!("split, {level:?}"),
            Method::Convert(level) => format!("split and convert, {level:?}"),
        }
    }

    fn run(self, input: &Input) -> Found {
        match self {
            Method::CsvCore => csv_core_fields(input, |_, _| ()),
            Method::Copy => copy(&input.bytes),
            Method::Utf8 => utf8(&input.bytes),
            Method::Cut(level) => cut(input, level),
            Method::Split(level) => read(input, level, |reader, found| {
                let record = reader.record();
                for field in 0..reader.fields() {
                    found.bytes += bytes(record.value(field)).map_or(0, <[u8]>::len) as u64;
                }
            }),
            Method::Convert(level) => convert(input, level),
        }
    }

    /// Returns the expected counts of this method, given those of the file.
    fn expected(self, all: Found) -> Found {
        let nothing = Found::default();
        match self {
            Method::CsvCore | Method::Split(_) => Found { converted: 0, sum: 0, ..all },
            Method::Copy | Method::Utf8 => nothing,
            Method::Cut(_) => Found { records: all.records, ..nothing },
            Method::Convert(_) => all,
        }
    }
}

/// Runs csv-core over the input; `take` gets each field's index in its record, and its value.
#[inline(always)]
fn csv_core_fields(input: &Input, mut take: impl FnMut(usize, &[u8])) -> Found {
    let csv = input.dialect.is_csv();
    let mut reader = ReaderBuilder::new().delimiter(input.dialect.delimiter).quoting(csv).build();
    let mut found = Found::default();
    let mut value = vec![0; READ];
    let (mut start, mut field) = (0, 0);
    for piece in input.bytes.chunks(READ).chain([&[][..]]) {
        let mut rest = piece;
        loop {
            let (result, read, written) = reader.read_field(rest, &mut value[start..]);
            rest = &rest[read..];
            match result {
                ReadFieldResult::InputEmpty => {
                    start += written;
                    break;
                }
                ReadFieldResult::Field { record_end } => {
                    take(field, &value[..start + written]);
                    found.bytes += (start + written) as u64;
                    found.fields += 1;
                    found.records += u64::from(record_end);
                    start = 0;
                    field = if record_end { 0 } else { field + 1 };
                }
                ReadFieldResult::OutputFull => panic!("a field longer than {READ} bytes"),
                ReadFieldResult::End => break,
            }
            // An empty input means that the file has ended.
            if rest.is_empty() && !piece.is_empty() {
                break;
            }
        }
    }
    found
}

fn copy(bytes: &[u8]) -> Found {
    let mut window = vec![0; READ];
    for piece in bytes.chunks(READ) {
        window[..piece.len()].copy_from_slice(piece);
        black_box(&mut window);
    }
    Found::default()
}

fn utf8(bytes: &[u8]) -> Found {
    for piece in bytes.chunks(READ) {
        assert_eq!(utf8_valid_up_to(black_box(piece)), piece.len(), "the generator writes ASCII");
    }
    Found::default()
}

/// Searches for the last line end, one read after the other.
fn cut(input: &Input, level: Level) -> Found {
    let scanner = Scanner::new(Needles::new(&input.dialect, Eol::Nl).expect("a regular dialect"), level);
    let mut state = CutState::default();
    let (mut taken, mut seen, mut records) = (0, 0, 0);
    while seen < input.bytes.len() {
        seen = input.bytes.len().min(seen + READ);
        scanner.cut(&input.bytes[taken..seen], &mut state);
        if let Some(last) = state.last {
            records += state.lines;
            taken += last;
            state.taken();
        }
    }
    Found { records, ..Found::default() }
}

/// Runs the reader over the input; `take` gets it at each record.
#[inline(always)]
fn read(input: &Input, level: Level, mut take: impl FnMut(&Reader, &mut Found)) -> Found {
    let mut reader = Reader::new(Settings {
        dialect: input.dialect.clone(),
        read_size: READ,
        utf8: true,
        max_char: 4,
        skip_bom: false,
        header_lines: 0,
        header_fields: false,
        max_fields: input.columns.len(),
        level,
    });
    let mut rest = &input.bytes[..];
    let mut found = Found::default();
    loop {
        match reader.advance() {
            Event::Record => {
                found.records += 1;
                found.fields += reader.fields() as u64;
                take(&reader, &mut found);
            }
            Event::NeedData => {
                let space = reader.space();
                let (piece, after) = rest.split_at(rest.len().min(space.len()));
                space[..piece.len()].copy_from_slice(piece);
                reader.filled(piece.len());
                rest = after;
            }
            Event::End => return found,
            event => panic!("{event:?}"),
        }
    }
}

/// Returns the bytes of a value, unless it is NULL. A value that is not plain is in a record that the exact reader has
/// read, and has quotes at both ends: the inputs have no others.
#[inline(always)]
fn bytes(value: Value<'_>) -> Option<&[u8]> {
    match value {
        Value::Plain(bytes) => Some(bytes),
        Value::Escaped(raw) => raw.get(1..raw.len() - 1),
        Value::Null | Value::Default => None,
    }
}

fn convert(input: &Input, level: Level) -> Found {
    let decoders: Vec<(Type, Decoder)> = input.columns.iter().map(|&column| (column, column.decoder())).collect();
    let mut arena = Arena::new();
    read(input, level, |reader, found| {
        let record = reader.record();
        for (field, &(column, decoder)) in decoders.iter().enumerate() {
            let Some(value) = bytes(record.value(field)) else { continue };
            found.bytes += value.len() as u64;
            let Some(datum) = decoder.decode(value, &mut arena) else {
                panic!("{} is left to the server", String::from_utf8_lossy(value));
            };
            if column == Type::Int4 {
                found.sum += datum as i64;
            }
            black_box(datum);
            found.converted += 1;
        }
        arena.reset();
    })
}

/// Returns the counts of the file, by csv-core and std.
fn reference(input: &Input) -> Found {
    let (mut converted, mut sum) = (0, 0);
    let found = csv_core_fields(input, |field, value| {
        if value == input.dialect.null {
            return;
        }
        converted += 1;
        if input.columns[field] == Type::Int4 {
            sum += std::str::from_utf8(value).ok().and_then(|text| text.parse::<i64>().ok()).expect("an integer");
        }
    });
    Found { converted, sum, ..found }
}

struct Times {
    method: Method,
    seconds: Vec<f64>,
}

impl Times {
    fn median(&self) -> f64 {
        self.seconds[self.seconds.len() / 2]
    }
}

/// Runs all methods in turn, `rounds` times, after one round that is not counted.
fn measure(input: &Input, rounds: usize) -> Vec<Times> {
    let all = reference(input);
    let mut methods = vec![Method::CsvCore];
    methods.extend(Level::available().into_iter().map(Method::Split));
    methods.extend(Level::available().into_iter().map(Method::Convert));
    methods.extend(Level::available().into_iter().map(Method::Cut));
    methods.extend([Method::Utf8, Method::Copy]);
    let mut times: Vec<Times> = methods.into_iter().map(|method| Times { method, seconds: Vec::new() }).collect();
    for round in 0..=rounds {
        for Times { method, seconds } in &mut times {
            let begin = Instant::now();
            let found = black_box(method.run(black_box(input)));
            let elapsed = begin.elapsed().as_secs_f64();
            assert_eq!(found, method.expected(all), "{}: {}", input.name, method.name());
            if round > 0 {
                seconds.push(elapsed);
            }
        }
    }
    times.iter_mut().for_each(|times| times.seconds.sort_by(f64::total_cmp));
    times
}

/// Makes one input's table.
fn table(input: &Input, times: &[Times]) -> String {
    let size = input.bytes.len() as f64;
    let speed = |seconds: f64| size / seconds / 1e9;
    let baseline = times[0].median();
    let mut out = format!("\n## {}: {}, {:.0} MB\n\n", input.name, input.what, size / 1e6);
    out += "| method | GB/s | slowest to fastest | csv-core = 1 |\n|---|--:|--:|--:|\n";
    for t in times {
        let (fastest, slowest) = (speed(t.seconds[0]), speed(t.seconds[t.seconds.len() - 1]));
        let (median, ratio) = (speed(t.median()), baseline / t.median());
        // Writing to a string cannot fail.
        let _ = writeln!(out, "| {} | {median:.2} | {slowest:.2} – {fastest:.2} | {ratio:.2}× |", t.method.name());
    }
    out
}

/// Returns the processor's name, if the system shows it.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(|| std::env::consts::ARCH.to_string(), |(_, name)| name.to_string())
}

fn number(variable: &str, default: usize) -> usize {
    let Ok(text) = std::env::var(variable) else { return default };
    text.parse().ok().filter(|&n| n > 0).unwrap_or_else(|| panic!("{variable} wants a positive number"))
}

/// The names of inputs, in the order of the report.
const NAMES: [&str; 5] = ["test", "customer", "demo", "extract", "wide"];

fn main() {
    let (megabytes, rounds) = (number("PARSE_MB", 64), number("PARSE_ROUNDS", 7));
    // cargo itself passes `--bench`.
    let chosen: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    if let Some(unknown) = chosen.iter().find(|name| !NAMES.contains(&name.as_str())) {
        panic!("{unknown} is none of {NAMES:?}");
    }
    let operands = if chosen.is_empty() { String::new() } else { format!(" -- {}", chosen.join(" ")) };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("# The parser alone\n");
    println!("    PARSE_MB={megabytes} PARSE_ROUNDS={rounds} cargo bench -p pg_bulk-bench --bench parse{operands}\n");
    println!("{}, {cores} cores, one in use. Medians of {rounds} rounds.", processor());
    println!("`Level::best()` is {:?}.", Level::best());
    for name in NAMES.into_iter().filter(|name| chosen.is_empty() || chosen.iter().any(|c| c == name)) {
        // `wide` is not a workload of the server benchmarks.
        let input = Workload::named(name)
            .map_or_else(|| Input::wide(megabytes), |workload| Input::generate(workload, megabytes));
        print!("{}", table(&input, &measure(&input, rounds)));
    }
}
