//! Builds a B-tree in memory, on one core, step by step: the cost of an index for each row of a load.
//!
//! ```text
//! [BTREE_ROUNDS=5] [BTREE_ROWS=2000000] cargo bench -p pg_bulk-bench --bench btree [-- STEP...]
//! ```
//!
//! The results are nanoseconds per entry, the minimum of the rounds. The result of each step is counted, and its order
//! is checked. *read* reads keys from heap pages that fit into a cache; *build* passes its pages to a sink that counts
//! them.

use std::convert::Infallible;
use std::env;
use std::hint::black_box;
use std::time::Instant;

use pg_bulk_bench::random::Random;
use pg_bulk_storage::btree::build::{Builder, Options, Page, PageSink};
use pg_bulk_storage::btree::bytes::record::{Record, Records, append};
use pg_bulk_storage::btree::bytes::shape::{ByteColumn, ByteKind, ByteShape, StoredValue};
use pg_bulk_storage::btree::bytes::store::Store;
use pg_bulk_storage::btree::collect::KeyStore as _;
use pg_bulk_storage::btree::entry::{Entry, Tid, Word};
use pg_bulk_storage::btree::key::{KeyColumn, KeyKind, KeyShape};
use pg_bulk_storage::btree::leaf::Leaf;
use pg_bulk_storage::btree::merge::{Merge, Run, Slice};
use pg_bulk_storage::btree::read::KeyReader;
use pg_bulk_storage::btree::sort::{is_ascending, sort};
use pg_bulk_storage::btree::unique::Unique;
use pg_bulk_storage::page::{PAGE_SIZE, PageBatch};
use pg_bulk_storage::tuple::{Attribute, FormBuffer, Formed, Layout, Stamp, TOAST_TUPLE_THRESHOLD};

fn number(name: &str, default: usize) -> usize {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

struct Bench {
    rounds: usize,
    rows: usize,
    only: Vec<String>,
}

impl Bench {
    /// Times `step` in each round, with input from `prepare`.
    fn time<T>(&self, name: &str, entries: usize, mut prepare: impl FnMut() -> T, mut step: impl FnMut(&mut T)) {
        if !self.only.is_empty() && !self.only.iter().any(|only| name.contains(only.as_str())) {
            return;
        }
        let least = (0..self.rounds).map(|_| {
            let mut with = prepare();
            let start = Instant::now();
            step(&mut with);
            start.elapsed().as_secs_f64()
        });
        let least = least.fold(f64::INFINITY, f64::min);
        println!("{name:<44} {:>8.2}", least * 1e9 / entries as f64);
    }
}

fn tid(row: usize) -> Tid {
    Tid::new((row / 100) as u32, (row % 100) as u16 + 1)
}

fn entries<W: Word>(rows: usize, mut key: impl FnMut(usize) -> u128) -> Vec<Entry<W>> {
    (0..rows).map(|row| Entry::new(W::from_u128(key(row)), tid(row))).collect()
}

fn shape(columns: &[(KeyKind, bool)]) -> KeyShape {
    let column = |(kind, nullable): &(KeyKind, bool)| KeyColumn {
        kind: *kind,
        descending: false,
        nulls_first: false,
        nullable: *nullable,
    };
    KeyShape::new(&columns.iter().map(column).collect::<Vec<_>>()).expect("it fits")
}

struct Count(usize);

impl PageSink for Count {
    type Error = Infallible;

    fn page(&mut self, _: u32, page: &mut Page) -> Result<(), Infallible> {
        self.0 += 1;
        black_box(page);
        Ok(())
    }
}

fn sorts<W: Word>(bench: &Bench, name: &str, entries: &[Entry<W>]) {
    let prepare = || (entries.to_vec(), vec![Entry::default(); entries.len()]);
    bench.time(&format!("sort {name}"), entries.len(), prepare, |(entries, scratch)| {
        sort(entries, scratch);
    });
    let (mut sorted, mut scratch) = prepare();
    sort(&mut sorted, &mut scratch);
    assert!(is_ascending(&sorted) && sorted.len() == entries.len());
}

fn merges(bench: &Bench, runs: usize, slice: usize) {
    let mut parts = vec![Vec::new(); runs];
    for row in 0..bench.rows {
        parts[row / slice % runs].push(Entry::new(row as u64, tid(row)));
    }
    bench.time(
        &format!("merge {runs} runs, stretches of {slice}"),
        bench.rows,
        || (),
        |()| {
            let mut merge = Merge::new(parts.iter().map(|part| Slice::new(part)).collect());
            let (mut count, mut sum) = (0, 0);
            loop {
                let Ok(entries) = merge.next();
                if entries.is_empty() {
                    break;
                }
                count += entries.len();
                // Read the entries, as the caller of a merge does.
                sum += entries.iter().map(|entry| entry.key()).sum::<u64>();
            }
            assert_eq!((count, sum), (bench.rows, (bench.rows as u64 - 1) * bench.rows as u64 / 2));
        },
    );
}

fn builds<W: Word>(bench: &Bench, name: &str, shape: &KeyShape, deduplicate: bool, entries: &[Entry<W>], pages: usize) {
    assert!(is_ascending(entries));
    let options = Options { deduplicate, ..Options::default() };
    bench.time(
        &format!("build {name}"),
        entries.len(),
        || (),
        |()| {
            let mut count = Count(0);
            let mut builder = Builder::new(shape, options);
            for block in entries.chunks(4096) {
                builder.push(block, &mut count).expect("in order");
            }
            let built = builder.finish(&mut count).expect("in order");
            assert_eq!((built.entries, built.pages), (entries.len() as u64, count.0 as u32));
            assert!(count.0.abs_diff(entries.len() / pages) <= count.0 / 50 + 4, "{built:?}");
        },
    );
}

fn each_block(run: &mut impl Run<u8, Error = Infallible>, mut take: impl FnMut(&[u8])) {
    loop {
        let Ok(()) = run.advance();
        if run.block().is_empty() {
            return;
        }
        take(run.block());
    }
}

fn build_bytes(shape: &ByteShape, options: Options, run: &mut impl Run<u8, Error = Infallible>, entries: usize) {
    let mut count = Count(0);
    let mut builder = Builder::new(shape, options);
    each_block(run, |block| builder.push(block, &mut count).expect("in order"));
    let built = builder.finish(&mut count).expect("in order");
    assert_eq!((built.entries, built.pages), (entries as u64, count.0 as u32));
}

/// Times keys that are bytes: collecting, sorting and building, each alone and all together.
fn strings(bench: &Bench, name: &str, keys: &[Vec<u8>], deduplicate: bool) {
    let text = ByteKind::Varlena { packable: true, compressible: true };
    let column = ByteColumn { kind: text, collator: None, descending: false, nulls_first: false, nullable: false };
    let shape = ByteShape::new(&[column]).expect("a column");
    let collect = || {
        let mut store = Store::new(usize::MAX / 4);
        for (row, key) in keys.iter().enumerate() {
            assert!(store.make_room(key.len() + 8).expect("memory"));
            assert!(store.push(&shape, &[StoredValue::Bytes(key)], tid(row)));
        }
        store
    };
    let options = Options { deduplicate, ..Options::default() };
    bench.time(&format!("collect {name}"), keys.len(), || (), |()| drop(black_box(collect())));
    bench.time(&format!("sort {name}"), keys.len(), collect, |store| store.sort(0).expect("memory"));
    let mut store = collect();
    store.sort(0).expect("memory");
    assert_eq!(store.run_size().0, keys.len());
    let mut sorted = Vec::new();
    each_block(&mut store.run(), |block| sorted.extend_from_slice(block));
    assert!(Records(&sorted).is_sorted() && Records(&sorted).count() == keys.len());
    bench.time(
        &format!("build {name}"),
        keys.len(),
        || (),
        |()| build_bytes(&shape, options, &mut Slice::new(&sorted), keys.len()),
    );
    bench.time(&format!("sort and build {name}"), keys.len(), collect, |store| {
        store.sort(0).expect("memory");
        build_bytes(&shape, options, &mut store.run(), keys.len());
    });
    let mut parts = [Vec::new(), Vec::new(), Vec::new()];
    for (row, record) in Records(&sorted).enumerate() {
        append(&mut parts[row * 7 % 11 % 3], Record { key: record.key, tid: record.tid });
    }
    bench.time(
        &format!("merge 3 runs of {name}"),
        keys.len(),
        || (),
        |()| {
            let mut merge = Merge::new(parts.iter().map(|part| Slice::new(part)).collect());
            let mut size = 0;
            loop {
                let Ok(block) = merge.next();
                if block.is_empty() {
                    break;
                }
                size += block.len();
            }
            assert_eq!(size, sorted.len());
        },
    );
}

/// Makes pages of (int4, text, int8) rows. With `nulls`, every tenth int8 is null.
fn heap(text: usize, nulls: bool) -> PageBatch {
    let attributes = [
        Attribute { len: 4, align: 4, by_value: true, packable: false },
        Attribute { len: -1, align: 4, by_value: false, packable: true },
        Attribute { len: 8, align: 8, by_value: true, packable: false },
    ];
    let layout = Layout::new(&attributes, Stamp { xmin: 3, cid: 0, frozen: false }, TOAST_TUPLE_THRESHOLD);
    let layout = layout.expect("a table may be like that");
    let mut batch = PageBatch::new(32, 0, false).expect("some memory");
    let mut buffer = FormBuffer::new();
    let varlena: Vec<u8> = [(((text + 4) as u32) << 2).to_ne_bytes().to_vec(), vec![b'x'; text + 8]].concat();
    let memory: Vec<u64> = varlena.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    let mut random = Random::row(1, 1);
    for row in 0.. {
        let values = [row, memory.as_ptr().expose_provenance() as u64, random.number()];
        let nulls = [false, false, nulls && row % 10 == 0];
        // SAFETY: there is a value and a null for each attribute, and the varlena is kept.
        let Formed::Tuple(tuple) = (unsafe { layout.form(values.as_ptr(), nulls.as_ptr(), &mut buffer) }) else {
            panic!("a tuple like any other")
        };
        if batch.add(tuple).is_none() {
            return batch;
        }
    }
    batch
}

fn reads<W: Word>(bench: &Bench, name: &str, batch: &PageBatch, numbers: &[u16], shape: &KeyShape) {
    let attributes = [
        Attribute { len: 4, align: 4, by_value: true, packable: false },
        Attribute { len: -1, align: 4, by_value: false, packable: true },
        Attribute { len: 8, align: 8, by_value: true, packable: false },
    ];
    let reader = KeyReader::new(&attributes, numbers, shape).expect("they are there");
    let rows = batch.rows() as usize;
    let times = bench.rows / rows;
    let prepare = || Vec::<Entry<W>>::with_capacity(rows);
    bench.time(&format!("read {name}"), rows * times, prepare, |entries| {
        for _ in 0..times {
            entries.clear();
            for (page, block) in batch.pages().as_chunks::<PAGE_SIZE>().0.iter().zip(0..) {
                reader.read_page(page, block, entries).expect("all keys have words");
            }
            assert_eq!(entries.len(), rows);
            black_box(&entries);
        }
    });
}

fn main() {
    let bench = Bench {
        rounds: number("BTREE_ROUNDS", 5),
        rows: number("BTREE_ROWS", 2_000_000),
        only: env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect(),
    };
    let rows = bench.rows;
    println!("{rows} entries, nanoseconds each, least of {}", bench.rounds);

    let batch = heap(32, false);
    let (int4, int8) = (shape(&[(KeyKind::Int4, false)]), shape(&[(KeyKind::Int8, false)]));
    reads::<u64>(&bench, "int4 at a constant place", &batch, &[1], &int4);
    reads::<u64>(&bench, "int8 behind a text", &batch, &[3], &int8);
    let both = shape(&[(KeyKind::Int4, true), (KeyKind::Int8, true)]);
    reads::<u128>(&bench, "int4 and int8 behind a text", &batch, &[1, 3], &both);
    reads::<u128>(&bench, "the same, 10 % null", &heap(32, true), &[1, 3], &both);

    let mut random = Random::row(2, 2);
    let mut numbers: Vec<u64> = (0..rows).map(|_| random.number()).collect();
    sorts(&bench, "u64, in order", &entries::<u64>(rows, |row| row as u128));
    sorts(&bench, "u64, reversed", &entries::<u64>(rows, |row| (rows - row) as u128));
    sorts(&bench, "u64, random", &entries::<u64>(rows, |row| numbers[row].into()));
    sorts(&bench, "u64, a random order of 0 to n", &{
        let mut order: Vec<usize> = (0..rows).collect();
        order.sort_by_key(|row| numbers[*row]);
        entries::<u64>(rows, |row| order[row] as u128)
    });
    sorts(&bench, "u64, 1000 keys", &entries::<u64>(rows, |row| u128::from(numbers[row] % 1000)));
    sorts(&bench, "u64, two halves", &entries::<u64>(rows, |row| (row * 2 % rows + row * 2 / rows) as u128));
    sorts(
        &bench,
        "u128, random",
        &entries::<u128>(rows, |row| u128::from(numbers[row]) << 64 | numbers[row / 2] as u128),
    );
    sorts(
        &bench,
        "u128, random pairs of few",
        &entries::<u128>(rows, |row| u128::from(numbers[row] % 100) << 65 | u128::from(numbers[row] >> 40)),
    );

    merges(&bench, 2, 10_000);
    merges(&bench, 2, 100);
    merges(&bench, 2, 10);
    merges(&bench, 2, 1);
    merges(&bench, 16, 10_000);
    merges(&bench, 16, 1);

    let ascending = entries::<u64>(rows, |row| row as u128 | 1 << 31);
    bench.time(
        "unique",
        rows,
        || Unique::new(&int4, false),
        |unique| {
            let mut count = 0;
            for block in ascending.chunks(4096) {
                let pass = |entries: &[Entry<u64>]| {
                    count += entries.len();
                    Ok::<_, Infallible>(())
                };
                let Ok(()) = unique.push(block, |_, _, _| panic!("no key is twice"), pass);
            }
            assert_eq!(count, rows - 1);
        },
    );

    builds(&bench, "int4", &int4, false, &ascending, 366);
    builds(&bench, "int4, deduplicate", &int4, true, &ascending, 366);
    builds(&bench, "int4, each 20 times", &int4, true, &entries::<u64>(rows, |row| (row / 20) as u128 | 1 << 31), 1054);
    builds(&bench, "int8", &int8, true, &entries::<u64>(rows, |row| row as u128 | 1 << 63), 366);
    let pair = shape(&[(KeyKind::Int4, false), (KeyKind::Int4, false)]);
    builds(
        &bench,
        "pair of int4",
        &pair,
        true,
        &entries::<u64>(rows, |row| (row / 9 * (1 << 32) + row % 9) as u128),
        366,
    );
    let uuid = shape(&[(KeyKind::Uuid, false)]);
    numbers.sort_unstable();
    builds(
        &bench,
        "uuid",
        &uuid,
        false,
        &entries::<u128>(rows, |row| u128::from(numbers[row]) << 64 | row as u128),
        260,
    );
    let nullable = shape(&[(KeyKind::Int8, true), (KeyKind::Int4, true)]);
    builds(&bench, "int8 and int4, nullable", &nullable, true, &entries::<u128>(rows, |row| (row as u128) << 34), 260);

    let hex = |n: u64| format!("{n:016x}abcd").into_bytes();
    let random_keys: Vec<Vec<u8>> = (0..rows).map(|row| hex(random.number() ^ row as u64)).collect();
    strings(&bench, "20 bytes, random", &random_keys, true);
    strings(&bench, "20 bytes, in order", &(0..rows).map(|row| hex(row as u64)).collect::<Vec<_>>(), true);
    let url = |row: usize| [b"https://www.example.org/", &*random_keys[row]].concat();
    strings(&bench, "44 bytes, of which 24 are the same", &(0..rows).map(url).collect::<Vec<_>>(), false);
    strings(
        &bench,
        "8 bytes, each 2000 times",
        &(0..rows).map(|row| random_keys[row * 7919 % (rows / 2000)][..8].to_vec()).collect::<Vec<_>>(),
        true,
    );

    let mut pages: Vec<Page> = Vec::new();
    struct Keep<'p>(&'p mut Vec<Page>);
    impl PageSink for Keep<'_> {
        type Error = Infallible;
        fn page(&mut self, block: u32, page: &mut Page) -> Result<(), Infallible> {
            // Only leaves, as many as fit into a cache; the first upper page is block 3.
            if self.0.len() < 100 && block != 3 {
                self.0.push(page.clone());
            }
            Ok(())
        }
    }
    let mut builder = Builder::new(&int4, Options::default());
    builder.push(&ascending, &mut Keep(&mut pages)).expect("in order");
    let times = rows / 366 / pages.len();
    bench.time(
        "leaf",
        36_600 * times,
        || Vec::with_capacity(36_600),
        |read: &mut Vec<Entry<u64>>| {
            for _ in 0..times {
                read.clear();
                for page in &pages {
                    let leaf = Leaf::new(&page.0).expect("a leaf");
                    leaf.entries(&int4, |key, tid, _| read.push(Entry::new(key, tid))).expect("entries");
                }
                assert!(read.len() == 36_600 && read[36_599].key() == 36_599 | 1 << 31);
            }
        },
    );
}
