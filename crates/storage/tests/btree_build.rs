//! Reads built trees back page by page and checks the invariants of nbtree's README, and that all entries are there.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;

use pg_bulk_storage::btree::build::{BlockSource, BuildError, Builder, Built, Options, Page, PageSink, join};
use pg_bulk_storage::btree::entry::{Entry, Tid, Word};
use pg_bulk_storage::btree::key::{KeyColumn, KeyKind, KeyShape, KeyValue, Width};
use pg_bulk_storage::btree::leaf::{Leaf, LeafError};
use pg_bulk_storage::btree::{BTP_DELETED, BTP_HALF_DEAD, BTP_INCOMPLETE_SPLIT, BTP_LEAF, BTP_META, BTP_ROOT, MAGIC};
use pg_bulk_storage::page::PAGE_SIZE;
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Default)]
struct Pages(BTreeMap<u32, Vec<u8>>, u32);

impl PageSink for Pages {
    type Error = &'static str;

    fn page(&mut self, block: u32, page: &mut Page) -> Result<(), Self::Error> {
        if self.0.len() as u32 == self.1 && self.1 > 0 {
            return Err("full");
        }
        assert!(self.0.insert(block, page.0.to_vec()).is_none(), "block {block} comes once");
        Ok(())
    }
}

fn u16_at(page: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(page[at..at + 2].try_into().unwrap())
}

fn u32_at(page: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(page[at..at + 4].try_into().unwrap())
}

/// An index tuple with the fields of nbtree.h.
#[derive(Clone, Debug)]
struct Tuple {
    block: u32,
    offset: u16,
    /// INDEX_ALT_TID_MASK
    alternative: bool,
    bytes: Vec<u8>,
}

impl Tuple {
    fn read(bytes: &[u8]) -> Self {
        let info = u16_at(bytes, 6);
        assert_eq!(usize::from(info & 0x1fff), bytes.len());
        assert_eq!(bytes.len() % 8, 0);
        assert_eq!(info & 0x4000, 0, "nothing is of variable width");
        let block = u32::from(u16_at(bytes, 0)) << 16 | u32::from(u16_at(bytes, 2));
        Self { block, offset: u16_at(bytes, 4), alternative: info & 0x2000 != 0, bytes: bytes.to_vec() }
    }

    fn is_posting(&self) -> bool {
        self.alternative && self.offset & 0x2000 != 0
    }

    /// Number of columns of a pivot.
    fn columns(&self) -> usize {
        assert!(self.alternative && !self.is_posting());
        usize::from(self.offset & 0xfff)
    }

    fn tids(&self) -> Vec<Tid> {
        assert!(self.is_posting());
        let start = self.block as usize;
        assert_eq!(start % 8, 0);
        let count = usize::from(self.offset & 0xfff);
        assert!(count > 1 && start + 6 * count <= self.bytes.len() && self.bytes.len() < start + 6 * count + 8);
        (0..count).map(|i| Tid::from_bytes(self.bytes[start + 6 * i..][..6].try_into().unwrap())).collect()
    }

    /// The TID of a pivot, if it has one.
    fn heap_tid(&self) -> Option<Tid> {
        (self.offset & 0x1000 != 0).then(|| Tid::from_bytes(self.bytes[self.bytes.len() - 6..].try_into().unwrap()))
    }

    fn attributes(&self, columns: &[KeyColumn], count: usize) -> Vec<KeyValue> {
        let nulls = u16_at(&self.bytes, 6) & 0x8000 != 0;
        let mut at: usize = if nulls { 16 } else { 8 };
        let mut any_null = false;
        let values = columns[..count].iter().enumerate().map(|(i, column)| {
            if nulls && self.bytes[8 + i / 8] >> (i % 8) & 1 == 0 {
                any_null = true;
                return KeyValue::Null;
            }
            let kind = column.kind;
            at = at.next_multiple_of(kind.align());
            let bytes = &self.bytes[at..at + kind.size()];
            at += kind.size();
            match kind {
                KeyKind::Uuid => KeyValue::Uuid(bytes.try_into().unwrap()),
                KeyKind::Int2 => KeyValue::Datum(i16::from_ne_bytes(bytes.try_into().unwrap()) as u64),
                KeyKind::Int4 | KeyKind::Float4 => {
                    KeyValue::Datum(i32::from_ne_bytes(bytes.try_into().unwrap()) as u64)
                }
                KeyKind::Oid => KeyValue::Datum(u64::from(u32::from_ne_bytes(bytes.try_into().unwrap()))),
                KeyKind::Int8 | KeyKind::Float8 => KeyValue::Datum(u64::from_ne_bytes(bytes.try_into().unwrap())),
                KeyKind::Bool => KeyValue::Datum(u64::from(bytes[0])),
                KeyKind::Char => KeyValue::Datum(bytes[0] as i8 as u64),
            }
        });
        let values: Vec<_> = values.collect();
        assert_eq!(nulls, any_null, "a bitmap for nulls only");
        values
    }
}

struct Node {
    prev: u32,
    next: u32,
    level: u32,
    flags: u16,
    high_key: Option<Tuple>,
    items: Vec<Tuple>,
    free: usize,
}

fn node(page: &[u8]) -> Node {
    let (lower, upper, special) = (u16_at(page, 12), u16_at(page, 14), u16_at(page, 16));
    assert_eq!((u32_at(page, 0), u32_at(page, 4), u16_at(page, 8), u16_at(page, 10)), (0, 0, 0, 0));
    assert_eq!((usize::from(special), u16_at(page, 18), u32_at(page, 20)), (PAGE_SIZE - 16, 8192 | 4, 0));
    assert!(page[usize::from(lower)..usize::from(upper)].iter().all(|byte| *byte == 0));
    let special = usize::from(special);
    let next = u32_at(page, special + 4);
    let mut items: Vec<Tuple> = (24..usize::from(lower))
        .step_by(4)
        .map(|at| {
            let pointer = u32_at(page, at);
            assert_eq!(pointer >> 15 & 3, 1);
            let (at, length) = ((pointer & 0x7fff) as usize, (pointer >> 17) as usize);
            assert!(at >= usize::from(upper) && at + length <= special && at % 8 == 0);
            Tuple::read(&page[at..at + length])
        })
        .collect();
    assert_eq!(u16_at(page, special + 14), 0);
    Node {
        prev: u32_at(page, special),
        next,
        level: u32_at(page, special + 8),
        flags: u16_at(page, special + 12),
        high_key: (next != 0).then(|| items.remove(0)),
        items,
        free: usize::from(upper - lower),
    }
}

/// Compares a pivot with an entry, by key and TID.
fn compare_pivot<W: Word>(columns: &[KeyColumn], shape: &KeyShape, pivot: &Tuple, entry: Entry<W>) -> Ordering {
    let values = pivot.attributes(columns, pivot.columns());
    for (i, value) in values.iter().enumerate() {
        let other = shape.decode(entry.key(), i);
        if *value == other {
            continue;
        }
        // Words have the order of keys, as another test shows.
        let one = KeyShape::new(&columns[i..=i]).unwrap();
        return one.encode::<u128>(&[*value]).cmp(&one.encode::<u128>(&[other]));
    }
    if values.len() < columns.len() {
        return Ordering::Less;
    }
    pivot.heap_tid().map_or(Ordering::Less, |tid| tid.cmp(&entry.tid()))
}

/// Reads and checks a tree. Returns the entries of its leaves, and the number of their items.
fn check<W: Word>(pages: &Pages, columns: &[KeyColumn], shape: &KeyShape, built: Built) -> (Vec<Entry<W>>, usize) {
    let meta = &pages.0[&0];
    assert_eq!((u32_at(meta, 24), u32_at(meta, 28)), (MAGIC, 4));
    assert_eq!((u16_at(meta, 12), u16_at(meta, 8176 + 12)), (72, BTP_META));
    let (root, level) = (u32_at(meta, 32), u32_at(meta, 36));
    assert_eq!((u32_at(meta, 40), u32_at(meta, 44)), (root, level));
    assert_eq!(pages.0.len() as u32, built.pages);
    assert_eq!(pages.0.keys().copied().max().unwrap() + 1, built.pages, "no block is left out");
    if root == 0 {
        assert_eq!((built.pages, built.levels, level), (1, 0, 0));
        return (Vec::new(), 0);
    }
    assert_eq!(level + 1, built.levels);
    // A level: its pages with the pivots that lead to them.
    let mut blocks: Vec<(u32, Option<Tuple>)> = vec![(root, None)];
    let mut seen = 1;
    for level in (0..=level).rev() {
        let mut below = Vec::new();
        let mut entries = Vec::new();
        let mut items = 0;
        for (i, (block, pivot)) in blocks.iter().enumerate() {
            let node = node(&pages.0[block]);
            seen += 1;
            assert_eq!(node.level, level);
            assert_eq!(node.prev, if i == 0 { 0 } else { blocks[i - 1].0 });
            assert_eq!(node.next, blocks.get(i + 1).map_or(0, |next| next.0));
            let leaf = if level == 0 { BTP_LEAF } else { 0 };
            assert_eq!(node.flags, leaf | if *block == root { BTP_ROOT } else { 0 });
            // The next page's pivot equals this page's high key, except for the block.
            if let (Some(high), Some((_, next))) = (&node.high_key, blocks.get(i + 1)) {
                let next = next.as_ref().unwrap();
                if next.bytes.len() > 8 {
                    assert_eq!((high.offset, &high.bytes[6..]), (next.offset, &next.bytes[6..]));
                }
            }
            if level > 0 {
                for (i, item) in node.items.iter().enumerate() {
                    assert!(item.alternative && !item.is_posting());
                    assert_eq!(i == 0, item.columns() == 0);
                    below.push((item.block, Some(item.clone())));
                }
                // The pivot of the first page below is known: it is the key of this page.
                if let Some(first) = below.len().checked_sub(node.items.len()) {
                    below[first].1 = pivot.clone();
                }
                continue;
            }
            let before = entries.len();
            for item in &node.items {
                items += 1;
                let values = item.attributes(columns, columns.len());
                let key: W = shape.encode(&values).unwrap();
                if item.is_posting() {
                    assert!(item.bytes.len() <= 812);
                    entries.extend(item.tids().into_iter().map(|tid| Entry::new(key, tid)));
                } else {
                    assert!(!item.alternative);
                    entries.push(Entry::new(key, Tid::new(item.block, item.offset)));
                }
            }
            let (first, last) = (entries[before], *entries.last().unwrap());
            if let Some(high) = &node.high_key {
                assert!(high.columns() > 0);
                assert!(compare_pivot(columns, shape, high, last).is_ge(), "all items are up to the high key");
                assert!(node.free >= 4, "a page has room for its line pointers");
            }
            if let Some(low) = pivot {
                assert!(compare_pivot(columns, shape, low, first).is_lt(), "all items are behind the low key");
            }
        }
        if level == 0 {
            assert_eq!(seen, built.pages, "all pages are in the tree");
            let mut read = Vec::new();
            for (block, _) in &blocks {
                let page = pages.0[block].first_chunk().unwrap();
                Leaf::new(page)
                    .unwrap()
                    .entries(shape, |key, tid, dead| {
                        assert!(!dead);
                        read.push(Entry::<W>::new(key, tid));
                    })
                    .unwrap();
            }
            assert!(read == entries, "leaf reads what is there");
            return (entries, items);
        }
        blocks = below;
    }
    unreachable!()
}

fn build<W: Word>(shape: &KeyShape, options: Options, entries: &[Entry<W>], cut: usize) -> (Pages, Built) {
    let mut pages = Pages::default();
    let mut builder = Builder::new(shape, options);
    for entries in entries.chunks(cut.max(1)) {
        builder.push(entries, &mut pages).unwrap();
    }
    let built = builder.finish(&mut pages).unwrap();
    assert_eq!(built.entries, entries.len() as u64);
    (pages, built)
}

fn check_build<W: Word>(columns: &[KeyColumn], shape: &KeyShape, options: Options, entries: &[Entry<W>], cut: usize) {
    let (pages, built) = build(shape, options, entries, cut);
    let (read, items) = check::<W>(&pages, columns, shape, built);
    assert!(read == entries);
    let keys = entries.chunk_by(|a, b| a.key() == b.key()).count();
    if options.deduplicate {
        assert!(items >= keys && items <= keys + entries.len() / 50, "{items} {keys} {}", entries.len());
    } else {
        assert_eq!(items, entries.len());
    }
    let (again, whole) = build(shape, options, entries, usize::MAX);
    assert!(pages.0 == again.0, "how entries are cut does not matter");
    for parts in [2, 3, 5] {
        let (pages, built) = build_in_parts(shape, options, entries, parts, cut);
        let (read, _) = check::<W>(&pages, columns, shape, built);
        assert!(read == entries, "{parts} parts");
        assert!(built.pages <= whole.pages + 2 * parts, "{} {}", built.pages, whole.pages);
    }
}

/// Blocks that several builders draw from.
#[derive(Clone, Debug)]
struct SharedBlocks(Rc<Cell<u32>>);

impl BlockSource for SharedBlocks {
    fn next(&mut self) -> Option<u32> {
        self.0.set(self.0.get() + 1);
        Some(self.0.get())
    }
}

/// Builds the same tree in several parts, alternately. No key is in two parts.
fn build_in_parts<W: Word>(
    shape: &KeyShape,
    options: Options,
    entries: &[Entry<W>],
    parts: u32,
    cut: usize,
) -> (Pages, Built) {
    let (mut pages, blocks) = (Pages::default(), SharedBlocks(Rc::new(Cell::new(0))));
    let border = |part: u32| {
        let at = entries.len() * part as usize / parts as usize;
        let key = entries.get(at).map(|entry| entry.key());
        key.map_or(entries.len(), |key| entries.partition_point(|entry| entry.key() < key))
    };
    let mut builders: Vec<_> = (0..parts)
        .map(|part| {
            let end = if part + 1 == parts { entries.len() } else { border(part + 1) };
            let chunks = entries[border(part)..end].chunks(cut.max(1));
            (Builder::part(shape, options, Box::new(blocks.clone())), chunks)
        })
        .collect();
    let mut pushed = true;
    while pushed {
        pushed = false;
        for (builder, chunks) in &mut builders {
            if let Some(entries) = chunks.next() {
                builder.push(entries, &mut pages).unwrap();
                pushed = true;
            }
        }
    }
    let done = builders.into_iter().map(|(builder, _)| builder.finish_part(&mut pages).unwrap()).collect();
    let built = join(shape, options, done, Box::new(blocks), &mut pages).unwrap();
    assert_eq!(built.entries, entries.len() as u64);
    (pages, built)
}

const KINDS: [KeyKind; 6] = [KeyKind::Int2, KeyKind::Int4, KeyKind::Int8, KeyKind::Uuid, KeyKind::Bool, KeyKind::Char];

fn column() -> impl Strategy<Value = KeyColumn> {
    (0..KINDS.len(), any::<[bool; 3]>()).prop_map(|(kind, [descending, nulls_first, nullable])| KeyColumn {
        kind: KINDS[kind],
        descending,
        nulls_first,
        nullable,
    })
}

/// Makes keys with `spread` different values in each column, and about as many nulls as each value.
fn keys<W: Word>(columns: &[KeyColumn], shape: &KeyShape, count: usize, spread: u64, seed: u64) -> Vec<Entry<W>> {
    let mut state = seed | 1;
    let mut random = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        state >> 33
    };
    let entries = (0..count).map(|i| {
        let one = |column: &KeyColumn| {
            let number = random() % spread;
            match column.kind {
                _ if column.nullable && number == 0 => KeyValue::Null,
                KeyKind::Uuid => KeyValue::Uuid(u128::from(number + 1).to_be_bytes()),
                KeyKind::Bool => KeyValue::Datum(number & 1),
                KeyKind::Char => KeyValue::Datum(number as i8 as u64),
                KeyKind::Int2 => KeyValue::Datum(number as i16 as u64),
                _ => KeyValue::Datum(number),
            }
        };
        let values: Vec<_> = columns.iter().map(one).collect();
        Entry::new(shape.encode(&values).unwrap(), Tid::new(i as u32 / 90, i as u16 % 90 + 1))
    });
    let mut entries: Vec<_> = entries.collect();
    entries.sort();
    entries
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]
    #[test]
    fn trees_are_sound(
        columns in vec(column(), 1..4),
        count in prop_oneof![0usize..4, 300usize..500, 0usize..6000],
        spread in prop_oneof![1u64..4, 1u64..300, Just(1u64 << 31)],
        seed in any::<u64>(),
        cut in 1usize..2000,
        fillfactor in prop_oneof![10usize..101, Just(90usize)],
        deduplicate in any::<bool>(),
    ) {
        let Some(shape) = KeyShape::new(&columns) else { return Ok(()) };
        let options = Options { fillfactor, deduplicate, all_equal_image: true };
        match shape.width() {
            Width::Narrow => {
                let entries = keys::<u64>(&columns, &shape, count, spread, seed);
                check_build(&columns, &shape, options, &entries, cut);
            }
            Width::Wide => {
                let entries = keys::<u128>(&columns, &shape, count, spread, seed);
                check_build(&columns, &shape, options, &entries, cut);
            }
        }
    }

    #[test]
    fn any_bytes_are_a_leaf_or_an_error(
        changes in vec((any::<u16>(), any::<u8>()), 0..20),
        line_pointers in vec((0u16..200, any::<u8>()), 0..6),
        spread in 1u64..300,
    ) {
        let columns = [int4(true), int4(false)];
        let shape = KeyShape::new(&columns).unwrap();
        let entries = keys::<u128>(&columns, &shape, 400, spread, 1);
        let (pages, _) = build(&shape, Options::default(), &entries, 100);
        for page in pages.0.values() {
            let mut page: [u8; PAGE_SIZE] = page.as_slice().try_into().unwrap();
            for (at, byte) in changes.iter().chain(&line_pointers) {
                page[usize::from(*at) % PAGE_SIZE] = *byte;
            }
            if let Ok(leaf) = Leaf::new(&page) {
                let _ = leaf.entries(&shape, |_: u128, _, _| ());
            }
        }
    }
}

fn int4(nullable: bool) -> KeyColumn {
    KeyColumn { kind: KeyKind::Int4, descending: false, nulls_first: false, nullable }
}

fn one_int4() -> KeyShape {
    KeyShape::new(&[int4(false)]).unwrap()
}

fn ascending(count: u64) -> Vec<Entry<u64>> {
    (0..count).map(|i| Entry::new(i | 1 << 31, Tid::new((i / 100) as u32, (i % 100) as u16 + 1))).collect()
}

#[test]
fn three_levels() {
    let shape = one_int4();
    let entries = ascending(120_000);
    let options = Options { fillfactor: 90, deduplicate: false, all_equal_image: true };
    let (pages, built) = build(&shape, options, &entries, 10_000);
    let (read, _) = check::<u64>(&pages, &[int4(false)], &shape, built);
    assert!(read == entries);
    // A leaf of CREATE INDEX has 366 items; the page above has 285.
    assert_eq!((built.levels, built.pages), (3, 1 + 328 + 2 + 1));
}

#[test]
fn a_full_leaf_at_the_end_of_a_part_gets_its_high_key() {
    let shape = one_int4();
    let options = Options { fillfactor: 100, deduplicate: false, all_equal_image: true };
    for count in 390..=420 {
        let entries = ascending(2 * count);
        let (pages, built) = build_in_parts(&shape, options, &entries, 2, usize::MAX);
        let (read, _) = check::<u64>(&pages, &[int4(false)], &shape, built);
        assert!(read == entries, "{count}");
    }
}

#[test]
fn entries_out_of_order_are_refused() {
    let shape = one_int4();
    let mut entries = ascending(10);
    entries.swap(3, 4);
    let mut pages = Pages::default();
    let mut builder = Builder::new(&shape, Options::default());
    assert_eq!(builder.push(&entries, &mut pages), Err(BuildError::Order));
    let mut builder = Builder::new(&shape, Options::default());
    builder.push(&ascending(10), &mut pages).unwrap();
    assert_eq!(builder.push(&ascending(10), &mut pages), Err(BuildError::Order));
    let same = [Entry::new(1u64, Tid::new(0, 1)); 2];
    assert_eq!(Builder::new(&shape, Options::default()).push(&same, &mut pages), Err(BuildError::Order));
}

#[test]
fn errors_of_the_sink_come_through() {
    let mut pages = Pages(BTreeMap::new(), 3);
    let mut builder = Builder::new(&one_int4(), Options::default());
    assert_eq!(builder.push(&ascending(5000), &mut pages), Err(BuildError::Sink("full")));
}

fn leaf_of(entries: &[Entry<u64>]) -> Vec<u8> {
    let (pages, _) = build(&one_int4(), Options::default(), entries, 100);
    pages.0[&1].clone()
}

fn read(page: &[u8]) -> Result<Vec<(u64, Tid, bool)>, LeafError> {
    let mut entries = Vec::new();
    Leaf::new(page.first_chunk().unwrap())?.entries(&one_int4(), |key, tid, dead| entries.push((key, tid, dead)))?;
    Ok(entries)
}

#[test]
#[cfg(target_endian = "little")]
fn leaves_say_what_is_dead() {
    let entries = ascending(400);
    let mut page = leaf_of(&entries);
    assert_eq!(read(&page).unwrap().len(), 366);
    // LP_DEAD for the third line pointer, which is the second item, because the first one is the high key.
    page[24 + 2 * 4 + 1] |= 0x80;
    page[24 + 2 * 4 + 2] |= 1;
    let dead: Vec<usize> = read(&page).unwrap().iter().enumerate().filter(|(_, e)| e.2).map(|(i, _)| i).collect();
    assert_eq!(dead, [1]);
    // A high key in place of an item.
    let mut rightmost = page.clone();
    rightmost[PAGE_SIZE - 12..PAGE_SIZE - 8].fill(0);
    assert_eq!(read(&rightmost), Err(LeafError::Item(1)));
    // LP_REDIRECT
    page[24 + 2 * 4 + 1] &= 0x7f;
    page[24 + 2 * 4 + 2] |= 1;
    assert_eq!(read(&page), Err(LeafError::Item(3)));
}

#[test]
fn leaves_out_of_use_have_no_entries() {
    let entries = ascending(400);
    for flag in [BTP_HALF_DEAD, BTP_DELETED] {
        let mut page = leaf_of(&entries);
        page[PAGE_SIZE - 4..PAGE_SIZE - 2].copy_from_slice(&(BTP_LEAF | flag).to_ne_bytes());
        let leaf = Leaf::new(page.first_chunk().unwrap()).unwrap();
        assert!(leaf.is_ignored());
        assert_eq!((leaf.prev(), leaf.next()), (0, 2));
        assert_eq!(read(&page), Ok(vec![]));
    }
    let mut page = leaf_of(&entries);
    let is_incomplete_split =
        |page: &[u8]| Leaf::new(page.first_chunk().unwrap()).unwrap().flags() & BTP_INCOMPLETE_SPLIT != 0;
    assert!(!is_incomplete_split(&page));
    page[PAGE_SIZE - 4..PAGE_SIZE - 2].copy_from_slice(&(BTP_LEAF | BTP_INCOMPLETE_SPLIT).to_ne_bytes());
    assert!(is_incomplete_split(&page));
    let (pages, _) = build(&one_int4(), Options::default(), &entries, 100);
    for block in [0, 3] {
        assert_eq!(read(&pages.0[&block]), Err(LeafError::NotALeaf), "the metapage and the root");
    }
    assert_eq!(read(&[0; PAGE_SIZE]), Err(LeafError::NotALeaf));
}

#[test]
#[cfg(target_endian = "little")]
fn items_are_whole() {
    let entries: Vec<_> = (0..50).map(|i| Entry::new(7u64 | 1 << 31, Tid::new(i, 1))).collect();
    let page = leaf_of(&entries);
    let at = usize::from(u16_at(&page, 14));
    assert_eq!(read(&page).unwrap().len(), 50);
    let changed = |changes: &[(usize, u8)]| {
        let mut page = page.clone();
        for (at, byte) in changes {
            page[*at] = *byte;
        }
        read(&page)
    };
    // The number of TIDs: one, and more than fit. The start of the list: before the key, and behind the end.
    assert_eq!(changed(&[(at + 4, 1)]), Err(LeafError::Item(1)));
    assert_eq!(changed(&[(at + 4, 60)]), Err(LeafError::Item(1)));
    assert_eq!(changed(&[(at + 2, 7)]), Err(LeafError::Item(1)));
    assert_eq!(changed(&[(at + 3, 7)]), Err(LeafError::Item(1)));
    // Its size: less than its header's, less than its list's, and more than the line pointer's.
    assert_eq!(changed(&[(at + 6, 4), (at + 7, 0)]), Err(LeafError::Item(1)));
    assert_eq!(changed(&[(at + 7, 0x20)]), Err(LeafError::Item(1)));
    assert_eq!(changed(&[(at + 7, 0x3f)]), Err(LeafError::Item(1)));
    // Its line pointer: behind the end of items.
    assert_eq!(changed(&[(24, 0xf0)]), Err(LeafError::Item(1)));
    // The key ends at the start of the list.
    assert_eq!(changed(&[(at + 2, 8)]), Err(LeafError::Key(1)));
}

#[test]
fn posting_lists_are_in_order() {
    let entries: Vec<_> = (0..50).map(|i| Entry::new(7u64 | 1 << 31, Tid::new(i, 1))).collect();
    let mut page = leaf_of(&entries);
    assert_eq!(read(&page).unwrap().len(), 50);
    let end = PAGE_SIZE - 16;
    // The last TID, which four zero bytes of padding follow, gets the block number of the one before it.
    let last = end - 4 - 6;
    page.copy_within(last - 6..last, last);
    assert_eq!(read(&page), Err(LeafError::Item(1)));
}
