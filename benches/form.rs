//! Forms tuples and builds pages, on one core and in memory: the cost of a row whose values are already decoded.
//!
//! ```text
//! [FORM_ROUNDS=9] cargo bench -p pg_bulk-bench --bench form [-- SHAPE...]
//! ```
//!
//! The results are nanoseconds per row, the minimum of the rounds. *form* makes tuples, and *add* also puts them on
//! pages. *log* also gives the pages block numbers and writes the data of their WAL records, a batch of 64 pages at a
//! time. The values of some hundred rows are made beforehand and reused, so that they are in the cache, as decoded
//! values are in a load. Every length and every NULL is derived from a seed and the row's number.

use std::hint::black_box;
use std::time::Instant;

use pg_bulk_bench::random::Random;
use pg_bulk_storage::page::PageBatch;
use pg_bulk_storage::tuple::{Attribute, FormBuffer, Formed, Layout, Stamp, TOAST_TUPLE_THRESHOLD};

/// Number of rows that are made; the values of the widest shape fit into the second-level cache.
const ROWS: usize = 512;
/// Number of rows that are timed.
const TIMED: usize = 400_000;

/// The type of a column, with the length of its values.
#[derive(Clone, Copy)]
enum Column {
    Int4,
    Int8,
    /// A varlena with this range of lengths, without its header.
    Text(u64, u64),
}

use Column::{Int4, Int8, Text};

struct Shape {
    name: &'static str,
    columns: Vec<Column>,
    nulls: u64,
}

fn shapes() -> Vec<Shape> {
    let extract = [&[Int4; 12][..], &[Text(1, 20), Text(5, 5)], &[Text(4, 12); 8], &[Text(4, 16); 7]].concat();
    let customer = [
        &[Int4; 3][..],
        &[Text(8, 16), Text(2, 2), Text(4, 16), Text(10, 20), Text(10, 20), Text(10, 20), Text(2, 2), Text(9, 9)],
        &[Text(16, 16), Int8, Text(2, 2), Text(6, 12), Int4, Text(6, 12), Text(6, 12), Int4, Int4, Text(300, 500)],
    ]
    .concat();
    vec![
        Shape { name: "test", columns: vec![Int4, Text(32, 32), Int8], nulls: 0 },
        Shape { name: "test, any text", columns: vec![Int4, Text(0, 60), Int8], nulls: 0 },
        Shape { name: "test, 10 % null", columns: vec![Int4, Text(32, 32), Int8], nulls: 10 },
        Shape { name: "29 columns", columns: extract.clone(), nulls: 0 },
        Shape { name: "29 columns, 10 % null", columns: extract, nulls: 10 },
        Shape { name: "21 columns, wide", columns: customer, nulls: 0 },
        Shape { name: "100 int4", columns: vec![Int4; 100], nulls: 0 },
    ]
}

/// The rows of a shape.
struct Rows {
    values: Vec<u64>,
    nulls: Vec<bool>,
    /// Memory of the varlenas, each at a multiple of 8, as in the decoders' arena.
    _memory: Vec<Box<[u64]>>,
}

impl Rows {
    fn new(shape: &Shape) -> Rows {
        let mut rows = Rows { values: Vec::new(), nulls: Vec::new(), _memory: Vec::new() };
        for row in 0..ROWS {
            let mut random = Random::row(1, row as u64);
            let mut memory: Vec<u64> = Vec::new();
            let mut references = Vec::new();
            for column in &shape.columns {
                rows.nulls.push(random.chance(shape.nulls));
                rows.values.push(match *column {
                    Int4 => random.below(1 << 32),
                    Int8 => random.number(),
                    Text(shortest, longest) => {
                        let length = random.between(shortest, longest) as usize;
                        let mut bytes = (((length + 4) as u32) << 2).to_le_bytes().to_vec();
                        random.text(&mut bytes, length);
                        bytes.resize(bytes.len().next_multiple_of(8), 0);
                        references.push((rows.values.len(), memory.len()));
                        memory.extend(bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)));
                        0
                    }
                });
            }
            let memory = memory.into_boxed_slice();
            for (value, word) in references {
                rows.values[value] = memory[word..].as_ptr().expose_provenance() as u64;
            }
            rows._memory.push(memory);
        }
        rows
    }
}

/// The steps that are timed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Form,
    Add,
    Log,
}

/// Returns nanoseconds per row.
fn time(shape: &Shape, rows: &Rows, layout: &Layout, work: Work) -> f64 {
    let mut buffer = FormBuffer::new();
    let mut batch = PageBatch::new(64, 0, false).expect("half a megabyte");
    let mut wal = Vec::new();
    let columns = shape.columns.len();
    let mut block = 0;
    let start = Instant::now();
    for row in 0..TIMED {
        let at = row % ROWS * columns;
        // SAFETY: each row has a value and a null for each column, and texts are varlenas.
        let formed = unsafe { layout.form(rows.values[at..].as_ptr(), rows.nulls[at..].as_ptr(), &mut buffer) };
        let Formed::Tuple(tuple) = formed else { panic!("a tuple like any other") };
        if work == Work::Form {
            black_box(tuple);
        } else if batch.add(tuple).is_none() {
            if work == Work::Log {
                wal.clear();
                for page in 0..batch.complete() {
                    batch.set_block_number(page, block);
                    batch.wal_data(page, &mut wal);
                    block += 1;
                }
                black_box((batch.pages(), &wal));
            }
            batch.take_full();
            assert!(batch.add(tuple).is_some());
        }
    }
    start.elapsed().as_secs_f64() * 1e9 / TIMED as f64
}

fn main() {
    let only: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let rounds = std::env::var("FORM_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(9);
    println!("| shape | bytes a row | form | add | log |\n|---|--:|--:|--:|--:|");
    for shape in shapes() {
        if !only.is_empty() && !only.iter().any(|name| shape.name.starts_with(name.as_str())) {
            continue;
        }
        let attributes: Vec<Attribute> = shape
            .columns
            .iter()
            .map(|column| match column {
                Int4 => Attribute { len: 4, align: 4, by_value: true, packable: false },
                Int8 => Attribute { len: 8, align: 8, by_value: true, packable: false },
                Text(..) => Attribute { len: -1, align: 4, by_value: false, packable: true },
            })
            .collect();
        let stamp = Stamp { xmin: 1000, cid: 0, frozen: false };
        let layout = Layout::new(&attributes, stamp, TOAST_TUPLE_THRESHOLD).expect("attributes like any other");
        let rows = Rows::new(&shape);
        let mut buffer = FormBuffer::new();
        let bytes: usize = (0..ROWS)
            .map(|row| row * shape.columns.len())
            .map(|at| {
                // SAFETY: as in `time`.
                match unsafe { layout.form(rows.values[at..].as_ptr(), rows.nulls[at..].as_ptr(), &mut buffer) } {
                    Formed::Tuple(tuple) => tuple.len(),
                    _ => panic!("a tuple like any other"),
                }
            })
            .sum();
        let least =
            |work| (0..rounds).map(|_| time(&shape, &rows, &layout, work)).min_by(f64::total_cmp).unwrap_or(f64::NAN);
        let [form, add, log] = [Work::Form, Work::Add, Work::Log].map(least);
        println!("| {} | {} | {form:.1} | {add:.1} | {log:.1} |", shape.name, bytes / ROWS);
    }
}
