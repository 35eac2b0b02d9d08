//! Keys that are bytes: their order, stores and merges of them compared with std's sort, trees compared with an
//! independent reader, and the detection of values without a key.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::rc::Rc;
use std::slice::from_ref;

use pg_bulk_storage::btree::build::{BuildError, Builder, Options, Page, PageSink};
use pg_bulk_storage::btree::bytes::collator::Collator;
use pg_bulk_storage::btree::bytes::read::ByteKeyReader;
use pg_bulk_storage::btree::bytes::record::{MAX_KEY, Record, Records, append};
use pg_bulk_storage::btree::bytes::shape::{ByteColumn, ByteKind, ByteShape, StoredValue};
use pg_bulk_storage::btree::bytes::store::Store;
use pg_bulk_storage::btree::collect::KeyStore as _;
use pg_bulk_storage::btree::entry::Tid;
use pg_bulk_storage::btree::key::KeyKind;
use pg_bulk_storage::btree::leaf::{Leaf, LeafError};
use pg_bulk_storage::btree::merge::{Merge, Run, Slice};
use pg_bulk_storage::btree::unique::Unique;
use pg_bulk_storage::btree::{MAX_ITEM, NO_BLOCK};
use pg_bulk_storage::page::{MAX_TUPLES, PAGE_SIZE};
use pg_bulk_storage::tuple::Attribute;
use proptest::collection::vec;
use proptest::prelude::*;

const TEXT: ByteKind = ByteKind::Varlena { packable: true, compressible: true };

fn column(kind: ByteKind) -> ByteColumn {
    ByteColumn { kind, collator: None, descending: false, nulls_first: false, nullable: false }
}

fn text() -> ByteShape {
    ByteShape::new(&[column(TEXT)]).unwrap()
}

/// Compares letters first, which lose some bits, and then two of these bits. Some letters are ignored. With `lies`,
/// comparing inverts the order except for letters.
#[derive(Debug, Default)]
struct Folding {
    lies: bool,
}

impl Collator for Folding {
    fn sort_key(&self, string: &[u8], key: &mut [u8]) -> Option<usize> {
        let seen = || string.iter().filter(|byte| **byte < 0xf0);
        let letters = seen().map(|byte| 2 + (byte >> 4));
        let rest = seen().map(|byte| 2 + (byte >> 2 & 3));
        let made: Vec<u8> = letters.chain([1]).chain(rest).collect();
        key.get_mut(..made.len())?.copy_from_slice(&made);
        Some(made.len())
    }

    fn trusted_until(&self) -> u8 {
        1
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Option<Ordering> {
        let part = |string: &[u8], shift: u8, bits: u8| {
            string.iter().filter(|byte| **byte < 0xf0).map(|byte| byte >> shift & bits).collect::<Vec<u8>>()
        };
        let rest = part(a, 2, 3).cmp(&part(b, 2, 3));
        let rest = if self.lies { rest.reverse().then(b.len().cmp(&a.len())) } else { rest };
        Some(part(a, 4, 15).cmp(&part(b, 4, 15)).then(rest))
    }
}

/// A value of a test: a string, or an int4.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Datum {
    Null,
    Int(i32),
    String(Vec<u8>),
}

fn encode(shape: &ByteShape, row: &[Datum]) -> Option<Vec<u8>> {
    let ints: Vec<[u8; 4]> =
        row.iter().map(|datum| if let Datum::Int(int) = datum { int.to_ne_bytes() } else { [0; 4] }).collect();
    fn value<'a>((datum, int): (&'a Datum, &'a [u8; 4])) -> StoredValue<'a> {
        match datum {
            Datum::Null => StoredValue::Null,
            Datum::Int(_) => StoredValue::Bytes(int),
            Datum::String(bytes) => StoredValue::Bytes(bytes),
        }
    }
    let values: Vec<StoredValue<'_>> = row.iter().zip(&ints).map(value).collect();
    let mut key = Vec::new();
    shape.encode(&values, &mut key).then_some(key)
}

fn decode(shape: &ByteShape, columns: &[ByteColumn], key: &[u8]) -> Vec<Datum> {
    let mut row = Vec::new();
    assert!(shape.decode(key, |i, value| row.push(match (value, columns[i].kind) {
        (StoredValue::Null, _) => Datum::Null,
        (StoredValue::Bytes(bytes), ByteKind::Fixed(_)) => Datum::Int(i32::from_ne_bytes(bytes.try_into().unwrap())),
        (StoredValue::Bytes(bytes), _) => Datum::String(bytes.to_vec()),
    })));
    row
}

/// Compares rows as ApplySortComparator does.
fn compare(columns: &[ByteColumn], a: &[Datum], b: &[Datum]) -> Ordering {
    columns.iter().zip(a.iter().zip(b)).fold(Ordering::Equal, |order, (column, pair)| {
        order.then_with(|| {
            let null = if column.nulls_first { Ordering::Less } else { Ordering::Greater };
            let order = match pair {
                (Datum::Null, Datum::Null) => return Ordering::Equal,
                (Datum::Null, _) => return null,
                (_, Datum::Null) => return null.reverse(),
                (Datum::Int(a), Datum::Int(b)) => a.cmp(b),
                (Datum::String(a), Datum::String(b)) => {
                    let first = column.collator.as_ref().and_then(|collator| collator.compare(a, b));
                    first.unwrap_or(Ordering::Equal).then(a.cmp(b))
                }
                _ => panic!("columns have one type"),
            };
            if column.descending { order.reverse() } else { order }
        })
    })
}

fn columns() -> impl Strategy<Value = Vec<ByteColumn>> {
    let kind = prop_oneof![3 => Just(TEXT), 1 => Just(ByteKind::Fixed(KeyKind::Int4))];
    let column =
        (kind, any::<[bool; 4]>()).prop_map(|(kind, [collated, descending, nulls_first, nullable])| ByteColumn {
            kind,
            collator: (collated && kind == TEXT).then(|| Rc::new(Folding::default()) as Rc<dyn Collator>),
            descending,
            nulls_first,
            nullable,
        });
    vec(column, 1..4)
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0u8), Just(1), Just(0xfe), Just(0xff), any::<u8>()];
    prop_oneof![
        4 => vec(byte, 0..20),
        1 => (0u8..3, 0usize..40).prop_map(|(byte, length)| vec![byte; length]),
        1 => (any::<u16>(), 0usize..3).prop_map(|(n, zeros)| [&b"https://"[..], &n.to_be_bytes(), &vec![0; zeros]].concat()),
    ]
}

fn row(columns: Vec<ByteColumn>) -> impl Strategy<Value = Vec<Datum>> {
    columns
        .into_iter()
        .map(|column| {
            let value = match column.kind {
                ByteKind::Fixed(_) => prop_oneof![-2..3, any::<i32>()].prop_map(Datum::Int).boxed(),
                ByteKind::Varlena { .. } => bytes().prop_map(Datum::String).boxed(),
            };
            if column.nullable { prop_oneof![1 => Just(Datum::Null), 3 => value].boxed() } else { value }
        })
        .collect::<Vec<_>>()
}

fn records(keys: &[(Vec<u8>, Tid)]) -> Vec<u8> {
    let mut records = Vec::new();
    keys.iter().for_each(|(key, tid)| append(&mut records, Record { key, tid: *tid }));
    records
}

fn read(records: &[u8]) -> Vec<(Vec<u8>, Tid)> {
    let mut all = Records(records);
    let keys = all.by_ref().map(|record| (record.key.to_vec(), record.tid)).collect();
    assert!(all.rest().is_empty());
    keys
}

fn drain<R: Run<u8, Error = Infallible>>(run: &mut R) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let Ok(()) = run.advance();
        if run.block().is_empty() {
            return bytes;
        }
        bytes.extend_from_slice(run.block());
    }
}

/// Returns the runs that a store makes of keys.
fn runs(limit: usize, keys: &[(Vec<u8>, Tid)]) -> Vec<Vec<u8>> {
    let (shape, mut store, mut runs) = (text(), Store::new(limit), Vec::new());
    let spill = |store: &mut Store, runs: &mut Vec<Vec<u8>>| {
        store.sort(0).unwrap();
        let run = drain(&mut store.run());
        assert_eq!((Records(&run).count(), run.len()), store.run_size());
        assert!(!run.is_empty());
        assert_eq!(run, drain(&mut store.run()), "it can be read again");
        store.remove_run();
        runs.push(run);
    };
    for (key, tid) in keys {
        while !store.make_room(key.len() + 8).unwrap() {
            spill(&mut store, &mut runs);
        }
        let memory = store.memory();
        assert!(memory <= limit || store.is_empty(), "{memory} bytes instead of {limit}");
        assert!(store.push(&shape, &[StoredValue::Bytes(key)], *tid));
    }
    while !store.is_empty() {
        spill(&mut store, &mut runs);
    }
    runs
}

fn merged(runs: &[Vec<u8>]) -> Vec<u8> {
    let mut merge = Merge::new(runs.iter().map(|run| Slice::new(run)).collect());
    let mut bytes = Vec::new();
    loop {
        let Ok(block) = merge.next();
        if block.is_empty() {
            return bytes;
        }
        bytes.extend_from_slice(block);
    }
}

fn numbered(keys: Vec<Vec<u8>>, shuffle: u32) -> Vec<(Vec<u8>, Tid)> {
    // An odd factor permutes the rows, which stay distinct.
    let tid = |row: usize| Tid::new((row as u32).wrapping_mul(shuffle) % (1 << 20), 1 + (row >> 20) as u16);
    keys.into_iter().enumerate().map(|(row, key)| (key, tid(row))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn keys_have_the_order_of_their_values(
        (columns, rows) in columns().prop_flat_map(|columns| (Just(columns.clone()), vec(row(columns), 2..12)))
    ) {
        let shape = ByteShape::new(&columns).unwrap();
        let keys: Vec<Vec<u8>> = rows.iter().map(|row| encode(&shape, row).unwrap()).collect();
        for (a, a_key) in rows.iter().zip(&keys) {
            prop_assert_eq!(&decode(&shape, &columns, a_key), a);
            prop_assert_eq!(shape.has_null(a_key), a.contains(&Datum::Null));
            for (b, b_key) in rows.iter().zip(&keys) {
                prop_assert_eq!(a_key.cmp(b_key), compare(&columns, a, b), "{:?} {:?}", a, b);
                prop_assert!(a_key >= b_key || shape.confirms(a_key, b_key));
            }
        }
    }

    #[test]
    fn stores_and_merges_sort(
        keys in vec(bytes(), 0..200), repeat in 1usize..4, shuffle in 0u32..1000, limit in 0usize..100_000, order in 0..3
    ) {
        let mut keys: Vec<Vec<u8>> = keys.iter().flat_map(|key| vec![key.clone(); repeat]).collect();
        match order {
            0 => keys.sort(),
            1 => keys.sort_by(|a, b| b.cmp(a)),
            _ => {}
        }
        let keys = numbered(keys, 2 * shuffle + 1);
        let mut sorted = keys.clone();
        sorted.sort();
        let runs = runs(limit, &keys);
        for run in &runs {
            prop_assert!(read(run).is_sorted());
        }
        prop_assert_eq!(read(&merged(&runs)), sorted);
    }

    #[test]
    fn equal_keys_are_decided_on(keys in vec((0u8..6, any::<bool>()), 0..60), block in 1usize..50, equal in any::<bool>()) {
        let nullable = ByteColumn { nullable: true, ..column(TEXT) };
        let shape = ByteShape::new(&[nullable]).unwrap();
        let key = |(n, null): &(u8, bool)| {
            encode(&shape, &[if *null { Datum::Null } else { Datum::String(vec![b'k'; (*n).into()]) }]).unwrap()
        };
        let mut keys = numbered(keys.iter().map(key).collect(), 1);
        keys.sort();
        // The first and the last row of equal keys are kept.
        let mut expected: Vec<(Vec<u8>, Tid)> = Vec::new();
        let mut asked = 0;
        for (key, tid) in &keys {
            let same = expected.iter().filter(|(other, _)| other == key).count();
            if same > 0 && (equal || !shape.has_null(key)) {
                asked += 1;
                if same > 1 {
                    expected.pop();
                }
            }
            expected.push((key.clone(), *tid));
        }
        let (mut unique, mut passed, mut decided) = (Unique::new(&shape, equal), Vec::new(), 0);
        let mut decide = |_: &[u8], tids: &mut Vec<Tid>, tid: Tid| {
            decided += 1;
            tids.truncate(1);
            tids.push(tid);
            Ok::<_, Infallible>(())
        };
        let mut pass = |records: &[u8]| {
            passed.extend(read(records));
            Ok(())
        };
        for keys in keys.chunks(block) {
            let Ok(()) = unique.push(&records(keys), &mut decide, &mut pass);
        }
        let Ok(()) = unique.finish(&mut pass);
        prop_assert_eq!(passed, expected);
        prop_assert_eq!(decided, asked);
    }

    #[test]
    fn trees_have_all_entries(
        keys in vec((bytes(), 0usize..2600), 1..60), copies in 1usize..30, fillfactor in 10usize..=100, dedup in any::<bool>()
    ) {
        let long = |(key, length): (Vec<u8>, usize)| [key, vec![b'z'; if length % 5 == 0 { length } else { 0 }]].concat();
        let keys: Vec<Vec<u8>> = keys.into_iter().map(long).flat_map(|key| vec![key; copies]).collect();
        let mut keys = numbered(keys, 1);
        keys.sort();
        let mut pages = Pages::default();
        let options = Options { fillfactor, deduplicate: dedup, all_equal_image: true };
        let mut builder = Builder::new(&text(), options);
        for keys in keys.chunks(37) {
            builder.push(&records(keys), &mut pages).unwrap();
        }
        let built = builder.finish(&mut pages).unwrap();
        prop_assert_eq!((built.entries, built.pages as usize), (keys.len() as u64, pages.0.len()));
        let mut found = Vec::new();
        let mut block = 1;
        while block != NO_BLOCK {
            let leaf = Leaf::new(&pages.0[&block]).unwrap();
            leaf.records(&text(), &mut found).unwrap();
            block = leaf.next();
        }
        prop_assert_eq!(read(&found), keys);
    }
}

#[derive(Default)]
struct Pages(BTreeMap<u32, [u8; PAGE_SIZE]>);

impl PageSink for Pages {
    type Error = Infallible;

    fn page(&mut self, block: u32, page: &mut Page) -> Result<(), Infallible> {
        assert!(self.0.insert(block, page.0).is_none(), "block {block} comes once");
        Ok(())
    }
}

#[test]
fn long_shared_beginnings_are_sorted() {
    // More keys than are sorted by comparison, with long common prefixes at each depth, and with ends and zeros at all
    // positions.
    let mut keys = Vec::new();
    for length in 0..300usize {
        keys.push(vec![0; length]);
        keys.push(vec![b'x'; length]);
        keys.push([vec![b'x'; length * 7 % 290], vec![0; length % 20]].concat());
        keys.push([&vec![b'x'; 150][..], &(length as u32 * 77_777).to_be_bytes(), b"tail"].concat());
    }
    keys = [keys.clone(), keys].concat();
    // Also many rows of one key that shares no prefix with others.
    keys.extend(vec![b"unlike all others".to_vec(); 60]);
    for shuffle in [1, 3, 99_991] {
        let order: Vec<usize> = (0..keys.len()).map(|i| i * 7919 % keys.len()).collect();
        let keys = numbered(order.iter().map(|i| keys[*i].clone()).collect(), shuffle);
        let mut sorted = keys.clone();
        sorted.sort();
        let runs = runs(1 << 20, &keys);
        assert_eq!(runs.len(), 1);
        assert_eq!(read(&runs[0]), sorted);
    }
}

#[test]
fn what_came_in_order_is_a_run_when_memory_is_scarce() {
    let key = |n: u32| n.to_be_bytes().to_vec();
    // 20 bytes for a record in order, 52 for one out of order.
    let limit = 64 * 1024 + 20_000 * 12 + 10_000;
    let ascending: Vec<Vec<u8>> = (0..19_000).map(key).collect();
    assert_eq!(runs(limit, &numbered(ascending.clone(), 1)).len(), 1, "nothing but records is needed");
    let broken = [ascending, vec![key(5), key(3)]].concat();
    let runs = runs(limit, &numbered(broken, 1));
    let counts: Vec<usize> = runs.iter().map(|run| Records(run).count()).collect();
    assert_eq!(counts, [19_000, 2]);
    let random: Vec<Vec<u8>> = (0..19_000u32).map(|n| key(n.wrapping_mul(2_654_435_761))).collect();
    assert!(self::runs(limit, &numbered(random, 1)).len() > 3);
}

#[test]
fn keys_that_are_too_long_are_reported_with_their_row() {
    let shape = ByteShape::new(&[column(ByteKind::Varlena { packable: true, compressible: false })]).unwrap();
    let most = MAX_ITEM - 8 - 4;
    for deduplicate in [false, true] {
        for (length, size) in [(most, None), (most + 1, Some(2712)), (5000, Some(5016))] {
            let tid = Tid::new(7, 3);
            let keys =
                [(b"a".to_vec(), Tid::new(1, 1)), (vec![b'b'; length], tid), (vec![b'b'; length], Tid::new(7, 4))];
            let mut builder = Builder::new(&shape, Options { deduplicate, ..Options::default() });
            let mut pages = Pages::default();
            let pushed = builder.push(&records(&keys), &mut pages);
            let outcome = pushed.and_then(|()| builder.finish(&mut pages).map(|_| ()));
            assert_eq!(outcome.err(), size.map(|size| BuildError::TooLong { size, tid }));
        }
    }
}

#[test]
fn strings_that_compare_otherwise_than_their_sort_keys_are_reported() {
    let int = column(ByteKind::Fixed(KeyKind::Int4));
    for (lies, descending, nullable, behind) in [false, true]
        .into_iter()
        .flat_map(|lies| (0..8).map(move |bits| (lies, bits & 1 > 0, bits & 2 > 0, bits & 4 > 0)))
    {
        let text = ByteColumn { collator: Some(Rc::new(Folding { lies })), descending, nullable, ..column(TEXT) };
        let columns = if behind { vec![int.clone(), text, int.clone()] } else { vec![text] };
        let shape = ByteShape::new(&columns).unwrap();
        let key = |int: i32, string: &[u8]| {
            let string = Datum::String(string.to_vec());
            let row = if behind { vec![Datum::Int(int), string, Datum::Int(int)] } else { vec![string] };
            encode(&shape, &row).unwrap()
        };
        let build = |a: Vec<u8>, b: Vec<u8>| {
            let mut keys = [(a, Tid::new(1, 1)), (b, Tid::new(1, 2))];
            keys.sort();
            Builder::new(&shape, Options::default()).push(&records(&keys), &mut Pages::default())
        };
        assert_eq!(build(key(1, b"A"), key(1, b"Q")), Ok(()), "other letters");
        assert_eq!(build(key(1, b"A"), key(1, b"B")), Ok(()), "no difference to the collation");
        assert_eq!(build(key(1, b"A"), key(1, b"AA")), Ok(()), "a beginning");
        let outcome = if lies { Err(BuildError::Collation) } else { Ok(()) };
        assert_eq!(build(key(1, b"A"), key(1, b"E")), outcome, "{descending} {nullable} {behind}");
        assert_eq!(build(key(1, b"A"), key(1, b"A\xf0")), outcome, "a beginning with the same sort key");
        assert_eq!(build(key(1, b"xA"), key(1, b"xE")), outcome, "{descending} {nullable} {behind}");
        if behind {
            assert_eq!(build(key(1, b"A"), key(2, b"E")), Ok(()), "another row before it");
        }
    }
}

#[test]
fn strings_may_have_no_sort_keys() {
    /// Makes sort keys of this length, with this byte in the middle.
    #[derive(Debug)]
    struct Made(usize, u8);
    impl Collator for Made {
        fn sort_key(&self, _: &[u8], key: &mut [u8]) -> Option<usize> {
            key.get_mut(..self.0)?.fill(7);
            *key.get_mut(self.0 / 2)? = self.1;
            Some(self.0)
        }
        fn trusted_until(&self) -> u8 {
            1
        }
        fn compare(&self, _: &[u8], _: &[u8]) -> Option<Ordering> {
            None
        }
    }
    let encode = |length, byte| {
        let column = ByteColumn { collator: Some(Rc::new(Made(length, byte))), ..column(TEXT) };
        let shape = ByteShape::new(&[column]).unwrap();
        let mut key = Vec::new();
        shape.encode(&[StoredValue::Bytes(b"word")], &mut key).then_some(key.len())
    };
    assert_eq!(encode(20, 7), Some(20 + 1 + 4));
    assert_eq!(encode(20, 0), None, "a zero byte");
    assert_eq!(encode(4 * 4 + 64, 7), Some(80 + 1 + 4));
    assert_eq!(encode(4 * 4 + 65, 7), None, "too long");
    // The room for a page in a store is enough for the longest keys.
    let column = ByteColumn { collator: Some(Rc::new(Made(64, 7))), ..column(TEXT) };
    let shape = ByteShape::new(&[column]).unwrap();
    assert!(shape.page_room() >= text().page_room() + 4 * PAGE_SIZE + 65 * MAX_TUPLES);
}

#[test]
fn records_out_of_order_are_reported() {
    let (a, b) = ((b"a".to_vec(), Tid::new(1, 2)), (b"a".to_vec(), Tid::new(1, 1)));
    for deduplicate in [false, true] {
        let options = Options { deduplicate, ..Options::default() };
        let builder = || (Builder::new(&text(), options), Pages::default());
        let (mut one, mut pages) = builder();
        assert_eq!(one.push(&records(&[a.clone(), b.clone()]), &mut pages), Err(BuildError::Order));
        let (mut two, mut pages) = builder();
        two.push(&records(from_ref(&a)), &mut pages).unwrap();
        assert_eq!(two.push(&records(from_ref(&b)), &mut pages), Err(BuildError::Order));
        let (mut cut, mut pages) = builder();
        assert_eq!(cut.push(&records(from_ref(&b))[..8], &mut pages), Err(BuildError::Order));
    }
}

#[test]
fn some_values_are_no_keys() {
    let float = ByteShape::new(&[column(ByteKind::Fixed(KeyKind::Float8)), column(TEXT)]).unwrap();
    let encode = |shape: &ByteShape, values: &[StoredValue<'_>]| shape.encode(values, &mut Vec::new());
    let string = StoredValue::Bytes(b"x");
    assert!(encode(&float, &[StoredValue::Bytes(&1f64.to_ne_bytes()), string]));
    assert!(!encode(&float, &[StoredValue::Bytes(&(-0f64).to_ne_bytes()), string]));
    assert!(!encode(&float, &[StoredValue::Bytes(&1f64.to_ne_bytes()), StoredValue::Null]), "there can be no null");
    assert!(!encode(&float, &[StoredValue::Bytes(&1f64.to_ne_bytes())]), "a column is missing");
    assert!(encode(&text(), &[StoredValue::Bytes(&vec![0; MAX_KEY])]));
    assert!(!encode(&text(), &[StoredValue::Bytes(&vec![0; MAX_KEY + 1])]));
    assert!(ByteShape::new(&[]).is_none());
    assert!(ByteShape::new(&vec![column(TEXT); 33]).is_none());
    // Damaged keys are rejected.
    let down = ByteShape::new(&[ByteColumn { descending: true, ..column(TEXT) }]).unwrap();
    assert!(down.decode(&[!b'x', 0xff, 0xff], |_, value| assert_eq!(value, StoredValue::Bytes(b"x"))));
    for damaged in [&[!b'x'][..], &[!b'x', 0xff], &[!b'x', 0xff, 0xfd], &[!b'x', 0xff, 0xff, 1]] {
        assert!(!down.decode(damaged, |_, _| ()), "{damaged:?}");
    }
}

/// A heap tuple of one text. `text`: its bytes with their header.
fn heap_tuple(text: &[u8]) -> Vec<u8> {
    let mut tuple = vec![0; 24];
    (tuple[18], tuple[20], tuple[22]) = (1, 2, 24);
    tuple.extend_from_slice(text);
    tuple
}

#[test]
#[cfg(target_endian = "little")]
fn what_core_would_compress_or_fetch_is_no_key() {
    let plain = |length: usize| [&((length as u32 + 4) << 2).to_ne_bytes()[..], &vec![b'v'; length]].concat();
    let short = |length: usize| [&[(length as u8 + 1) << 1 | 1][..], &vec![b'v'; length]].concat();
    let compressed = [&((200 << 2 | 2) as u32).to_ne_bytes()[..], &[0; 200]].concat();
    let external = [&[1, 18][..], &[0; 16]].concat();
    let taken = |packable, compressible, text: &[u8]| {
        let shape = ByteShape::new(&[column(ByteKind::Varlena { packable, compressible })]).unwrap();
        let attribute = Attribute { len: -1, align: 4, by_value: false, packable };
        let reader = ByteKeyReader::new(&[attribute], &[1], &shape).unwrap();
        let mut store = Store::new(1 << 20);
        assert!(store.make_room(shape.page_room()).unwrap());
        reader.read_tuple(&heap_tuple(text), Tid::new(1, 1), &mut store)
    };
    assert!(taken(true, true, &short(126)) && taken(true, true, &plain(127)));
    assert!(taken(true, true, &plain(506)) && !taken(true, true, &plain(507)), "TOAST_INDEX_TARGET");
    assert!(taken(true, false, &plain(507)));
    assert!(taken(false, false, &plain(3)) && !taken(false, false, &short(3)), "core would keep the short header");
    assert!(!taken(true, true, &compressed) && !taken(true, false, &external));
    assert!(!taken(true, true, &plain(100)[..50]), "it ends too early");
}

#[test]
fn a_leaf_whose_keys_are_none_is_reported() {
    let (mut pages, mut builder) = (Pages::default(), Builder::new(&text(), Options::default()));
    builder.push(&records(&[(b"a".to_vec(), Tid::new(1, 1)), (b"b".to_vec(), Tid::new(1, 2))]), &mut pages).unwrap();
    builder.finish(&mut pages).unwrap();
    let page = pages.0.get_mut(&1).unwrap();
    let at = page.iter().rposition(|byte| *byte == b'b').unwrap();
    let mut records = Vec::new();
    assert_eq!(Leaf::new(page).unwrap().records(&text(), &mut records), Ok(2));
    assert_eq!(read(&records), [(b"a".to_vec(), Tid::new(1, 1)), (b"b".to_vec(), Tid::new(1, 2))]);
    // An external value, or one longer than its tuple.
    for header in [1, 0xff] {
        page[at - 1] = header;
        assert_eq!(Leaf::new(page).unwrap().records(&text(), &mut records), Err(LeafError::Key(2)));
    }
}
