//! Builds indexes of a server again from their tables' files, and compares them byte for byte.
//!
//! `pg_test/btree/run` creates the server, the tables and the list of indexes (`pg_test/btree/list.sql`), and runs this
//! test. Only pd_lsn, pd_checksum and the hole may differ, because core leaves remains of moved items in the hole.
#![cfg(target_endian = "little")]

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::rc::Rc;
use std::{env, fs};

use pg_bulk_storage::btree::NO_BLOCK;
use pg_bulk_storage::btree::build::{Builder, Built, Options, Page, PageSink};
use pg_bulk_storage::btree::bytes;
use pg_bulk_storage::btree::bytes::collator::Collator;
use pg_bulk_storage::btree::bytes::shape::{ByteColumn, ByteKind, ByteShape};
use pg_bulk_storage::btree::bytes::store::Store;
use pg_bulk_storage::btree::collect::KeyStore as _;
use pg_bulk_storage::btree::descend::{Metapage, child_at};
use pg_bulk_storage::btree::entry::{Entry, Word};
use pg_bulk_storage::btree::key::{KeyColumn, KeyKind, KeyShape, Width};
use pg_bulk_storage::btree::leaf::Leaf;
use pg_bulk_storage::btree::merge::{Merge, Run, Slice};
use pg_bulk_storage::btree::read::KeyReader;
use pg_bulk_storage::btree::sort::sort;
use pg_bulk_storage::page::PAGE_SIZE;
use pg_bulk_storage::tuple::Attribute;

#[derive(Default)]
struct Pages(BTreeMap<u32, Vec<u8>>);

impl PageSink for Pages {
    type Error = std::convert::Infallible;

    fn page(&mut self, block: u32, page: &mut Page) -> Result<(), Self::Error> {
        assert!(self.0.insert(block, page.0.to_vec()).is_none());
        Ok(())
    }
}

/// A column's strings with their ranks in its collation, used in place of ICU's sort keys.
#[derive(Debug, Default)]
struct Ranks(HashMap<Vec<u8>, u32>);

impl Collator for Ranks {
    fn sort_key(&self, string: &[u8], key: &mut [u8]) -> Option<usize> {
        let rank = self.0.get(string)?;
        let digits = [255 * 255, 255, 1].map(|unit| (rank / unit % 255) as u8 + 1);
        key.get_mut(..3)?.copy_from_slice(&digits);
        Some(3)
    }

    fn trusted_until(&self) -> u8 {
        0
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Option<Ordering> {
        Some(self.0.get(a)?.cmp(self.0.get(b)?))
    }
}

/// The ranks of each attribute that has a collation.
fn ranks(lines: &str) -> HashMap<u16, Rc<Ranks>> {
    let mut all: HashMap<u16, Ranks> = HashMap::new();
    for line in lines.lines() {
        let parts: Vec<_> = line.split(' ').collect();
        let digits: Vec<u8> = parts[2].bytes().map(|digit| (digit as char).to_digit(16).unwrap() as u8).collect();
        let string = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        all.entry(parts[0].parse().unwrap()).or_default().0.insert(string, parts[1].parse().unwrap());
    }
    all.into_iter().map(|(attribute, ranks)| (attribute, Rc::new(ranks))).collect()
}

struct Index {
    name: String,
    heap: Vec<u8>,
    file: Vec<u8>,
    unique: bool,
    fillfactor: usize,
    deduplicate_items: bool,
    attributes: Vec<Attribute>,
    numbers: Vec<u16>,
    columns: Vec<ByteColumn>,
}

fn kind(name: &str, storage: &str) -> ByteKind {
    ByteKind::Fixed(match name {
        "smallint" => KeyKind::Int2,
        "integer" | "date" => KeyKind::Int4,
        "bigint" | "timestamp without time zone" | "timestamp with time zone" | "time without time zone" | "money" => {
            KeyKind::Int8
        }
        "oid" => KeyKind::Oid,
        "real" => KeyKind::Float4,
        "double precision" => KeyKind::Float8,
        "uuid" => KeyKind::Uuid,
        "boolean" => KeyKind::Bool,
        "\"char\"" => KeyKind::Char,
        "text" | "character varying" | "bytea" => {
            return ByteKind::Varlena { packable: storage != "p", compressible: matches!(storage, "x" | "m") };
        }
        _ => panic!("{name}"),
    })
}

fn attribute(text: &str) -> Attribute {
    let parts: Vec<_> = text.split(':').collect();
    Attribute {
        len: parts[0].parse().unwrap(),
        align: match parts[1] {
            "c" => 1,
            "s" => 2,
            "i" => 4,
            _ => 8,
        },
        by_value: parts[2] == "1",
        packable: parts[3] != "p",
    }
}

fn index(line: &str, data: &Path, ranks: &HashMap<u16, Rc<Ranks>>) -> Index {
    // A type's name may have spaces; it is in the last part.
    let parts: Vec<_> = line.splitn(8, ' ').collect();
    let read = |name: &str| fs::read(data.join(name)).unwrap();
    let (mut numbers, mut columns) = (Vec::new(), Vec::new());
    for key in parts[7].split(',') {
        let parts: Vec<_> = key.split(':').collect();
        let option: u16 = parts[2].parse().unwrap();
        let number = parts[0].parse().unwrap();
        numbers.push(number);
        columns.push(ByteColumn {
            kind: kind(parts[1], parts[4]),
            collator: (parts[5] == "1").then(|| Rc::clone(&ranks[&number]) as Rc<dyn Collator>),
            // INDOPTION_DESC, INDOPTION_NULLS_FIRST
            descending: option & 1 != 0,
            nulls_first: option & 2 != 0,
            nullable: parts[3] == "0",
        });
    }
    Index {
        name: parts[0].into(),
        heap: read(parts[1]),
        file: read(parts[2]),
        unique: parts[3] == "1",
        fillfactor: parts[4].parse().unwrap(),
        deduplicate_items: parts[5] == "on",
        attributes: parts[6].split(',').map(attribute).collect(),
        numbers,
        columns,
    }
}

fn pages(file: &[u8]) -> impl Iterator<Item = &[u8; PAGE_SIZE]> {
    assert_eq!(file.len() % PAGE_SIZE, 0);
    file.as_chunks().0.iter()
}

fn masked(page: &[u8]) -> Vec<u8> {
    let mut page = page.to_vec();
    let number = |at: usize| usize::from(u16::from_ne_bytes([page[at], page[at + 1]]));
    let hole = number(12)..number(14);
    page[..10].fill(0);
    page[hole].fill(0);
    page
}

/// Returns all leaves of an index.
fn leaves(index: &Index) -> Vec<Leaf<'_>> {
    let page = |block: u32| index.file[block as usize * PAGE_SIZE..].first_chunk().unwrap();
    let meta = Metapage::new(page(0)).unwrap();
    let mut block = meta.root;
    for level in (1..=meta.level).rev() {
        block = child_at(page(block), level, 0.0).unwrap().0;
    }
    let mut leaves = Vec::new();
    while block != NO_BLOCK {
        let leaf = Leaf::new(page(block)).unwrap();
        leaves.push(leaf);
        block = leaf.next();
    }
    leaves
}

fn check<W: Word>(index: &Index, shape: &KeyShape) -> Result<String, String> {
    let reader = KeyReader::new(&index.attributes, &index.numbers, shape).unwrap();
    let mut entries: Vec<Entry<W>> = Vec::new();
    for (page, block) in pages(&index.heap).zip(0..) {
        reader.read_page(page, block, &mut entries).ok_or_else(|| format!("heap block {block}"))?;
    }
    let mut scratch = vec![Entry::default(); entries.len()];
    sort(&mut entries, &mut scratch);
    let mut found = Vec::new();
    for leaf in leaves(index) {
        leaf.entries(shape, |key, tid, _| found.push(Entry::new(key, tid))).unwrap();
    }
    if found != entries {
        return Err("leaves have other entries".into());
    }
    compare(index, entries.len(), |options, built| {
        let mut builder = Builder::new(shape, options);
        for entries in entries.chunks(10_007) {
            builder.push(entries, built).unwrap();
        }
        builder.finish(built).unwrap()
    })
}

/// Builds the index again with keys that are bytes. The store has so little memory that there are several runs.
fn check_bytes(index: &Index, shape: &ByteShape) -> Result<String, String> {
    let reader = bytes::read::ByteKeyReader::new(&index.attributes, &index.numbers, shape).unwrap();
    let (mut store, mut runs) = (Store::new(700_000), Vec::new());
    let mut spill = |store: &mut Store| {
        store.sort(0).unwrap();
        let (mut bytes, mut run) = (Vec::new(), store.run());
        let Ok(()) = run.advance();
        while !run.block().is_empty() {
            bytes.extend_from_slice(run.block());
            let Ok(()) = run.advance();
        }
        store.remove_run();
        runs.push(bytes);
    };
    for (page, block) in pages(&index.heap).zip(0..) {
        while !store.make_room(shape.page_room()).unwrap() {
            spill(&mut store);
        }
        reader.read_page(page, block, &mut store).ok_or_else(|| format!("heap block {block}"))?;
    }
    while !store.is_empty() {
        spill(&mut store);
    }
    let count = runs.len();
    let mut merge = Merge::new(runs.iter().map(|run| Slice::new(run)).collect());
    let mut records = Vec::new();
    loop {
        let Ok(block) = merge.next();
        if block.is_empty() {
            break;
        }
        records.extend_from_slice(block);
    }
    let mut found = Vec::new();
    let entries = leaves(index).iter().map(|leaf| leaf.records(shape, &mut found).unwrap()).sum::<u64>();
    if found != records {
        return Err(format!("leaves have other entries than records of {count} runs"));
    }
    let what = compare(index, entries as usize, |options, built| {
        let mut builder = Builder::new(shape, options);
        builder.push(&records, built).unwrap();
        builder.finish(built).unwrap()
    })?;
    Ok(format!("{what}, as bytes in {count} runs"))
}

/// Builds an index again and compares it.
fn compare(index: &Index, entries: usize, build: impl FnOnce(Options, &mut Pages) -> Built) -> Result<String, String> {
    if index.name.starts_with("read_") {
        return Ok(format!("{entries} entries"));
    }
    let all_equal_image = Metapage::new(index.file.first_chunk().unwrap()).unwrap().all_equal_image;
    let is_float = |column: &ByteColumn| {
        matches!(column.kind, ByteKind::Fixed(KeyKind::Float4) | ByteKind::Fixed(KeyKind::Float8))
    };
    assert_eq!(all_equal_image, !index.columns.iter().any(is_float));
    let deduplicate = all_equal_image && index.deduplicate_items && !index.unique;
    let options = Options { fillfactor: index.fillfactor, deduplicate, all_equal_image };
    let mut built = Pages::default();
    let summary = build(options, &mut built);
    assert_eq!(summary.entries, entries as u64);
    let blocks = index.file.len() / PAGE_SIZE;
    if built.0.len() != blocks {
        return Err(format!("{} pages instead of {blocks}", built.0.len()));
    }
    for (core, (block, ours)) in pages(&index.file).zip(&built.0) {
        let (core, ours) = (masked(core), masked(ours));
        if let Some(at) = (0..PAGE_SIZE).find(|at| core[*at] != ours[*at]) {
            let end = (at + 32).min(PAGE_SIZE);
            return Err(format!("block {block} byte {at}: {:?} instead of {:?}", &ours[at..end], &core[at..end]));
        }
    }
    Ok(format!("{entries} entries, {} pages, {} levels", summary.pages, summary.levels))
}

/// The columns of an index whose keys are words.
fn words(columns: &[ByteColumn]) -> Option<KeyShape> {
    let column = |column: &ByteColumn| match column.kind {
        ByteKind::Fixed(kind) => Some(KeyColumn {
            kind,
            descending: column.descending,
            nulls_first: column.nulls_first,
            nullable: column.nullable,
        }),
        ByteKind::Varlena { .. } => None,
    };
    KeyShape::new(&columns.iter().map(column).collect::<Option<Vec<_>>>()?)
}

#[test]
#[ignore = "wants the files of a server: pg_test/btree/run"]
fn indexes_are_the_ones_of_the_server() {
    let data = env::var("PG_BULK_BTREE_DATA").unwrap();
    let list = fs::read_to_string(env::var("PG_BULK_BTREE_LIST").unwrap()).unwrap();
    let ranks = ranks(&fs::read_to_string(env::var("PG_BULK_BTREE_RANKS").unwrap()).unwrap());
    let mut different = 0;
    for line in list.lines() {
        let index = index(line, Path::new(&data), &ranks);
        // A key with a word can be encoded as bytes, too.
        let result = match words(&index.columns) {
            Some(shape) if shape.width() == Width::Narrow => check::<u64>(&index, &shape),
            Some(shape) => check::<u128>(&index, &shape),
            None => Ok("no word".into()),
        };
        let shape = ByteShape::new(&index.columns).unwrap();
        let result = result.and_then(|first| Ok(format!("{first}; {}", check_bytes(&index, &shape)?)));
        match result {
            Ok(what) => println!("same {}: {what}", index.name),
            Err(what) => {
                println!("DIFFERENT {}: {what}", index.name);
                different += 1;
            }
        }
    }
    assert_eq!(different, 0);
}
