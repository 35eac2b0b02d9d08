//! Trees of formed tuples that the caller compares: their pages equal those of the same entries as integers.

use std::collections::BTreeMap;

use pg_bulk_storage::btree::MAX_ITEM;
use pg_bulk_storage::btree::build::{BuildError, Builder, Built, Options, Page, PageSink};
use pg_bulk_storage::btree::entry::{Entry, Tid};
use pg_bulk_storage::btree::key::{KeyColumn, KeyKind, KeyShape, KeyValue};
use pg_bulk_storage::btree::tuples::TupleBuilder;
use proptest::prelude::*;

#[derive(Default)]
struct Pages(BTreeMap<u32, Vec<u8>>);

impl PageSink for Pages {
    type Error = ();

    fn page(&mut self, block: u32, page: &mut Page) -> Result<(), ()> {
        assert!(self.0.insert(block, page.0.to_vec()).is_none(), "block {block} comes once");
        Ok(())
    }
}

fn tuple(key: i32, tid: Tid) -> Vec<u8> {
    let mut bytes = tid.to_bytes().to_vec();
    bytes.extend(16u16.to_ne_bytes());
    bytes.extend(key.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes
}

fn tid_at(bytes: &[u8], at: usize) -> Tid {
    Tid::from_bytes(bytes[at..at + 6].try_into().unwrap())
}

/// _bt_truncate (nbtutils.c) for an index of one column.
fn high_key(left: &[u8], right: &[u8]) -> Vec<u8> {
    const ALTERNATIVE: u16 = 0x2000;
    let mut pivot = right[..16].to_vec();
    let differs = left[8..12] != right[8..12];
    let (size, columns) = if differs { (16u16, 1u16) } else { (24, 1 | 0x1000) };
    pivot[4..6].copy_from_slice(&columns.to_ne_bytes());
    pivot[6..8].copy_from_slice(&(size | ALTERNATIVE).to_ne_bytes());
    if !differs {
        let is_posting = u16::from_ne_bytes(left[6..8].try_into().unwrap()) & ALTERNATIVE != 0;
        let own = tid_at(left, 0);
        let last = if is_posting { tid_at(left, 16 + (usize::from(own.offset() & 0xfff) - 1) * 6) } else { own };
        pivot.extend([0, 0]);
        pivot.extend(last.to_bytes());
    }
    pivot
}

fn from_tuples(keys: &[(i32, Tid)], options: Options) -> (Pages, Built) {
    let mut pages = Pages::default();
    let mut builder = TupleBuilder::new(options);
    let mut before = None;
    for &(key, tid) in keys {
        builder.push(&tuple(key, tid), before == Some(key), high_key, &mut pages).unwrap();
        before = Some(key);
    }
    let built = builder.finish(high_key, &mut pages).unwrap();
    (pages, built)
}

fn from_integers(keys: &[(i32, Tid)], options: Options) -> (Pages, Built) {
    let column = KeyColumn { kind: KeyKind::Int4, descending: false, nulls_first: false, nullable: false };
    let shape = KeyShape::new(&[column]).unwrap();
    let word = |key: i32| shape.encode::<u64>(&[KeyValue::Datum(key as u64)]).unwrap();
    let entries: Vec<Entry<u64>> = keys.iter().map(|&(key, tid)| Entry::new(word(key), tid)).collect();
    let mut pages = Pages::default();
    let mut builder = Builder::new(&shape, options);
    builder.push(&entries, &mut pages).unwrap();
    let built = builder.finish(&mut pages).unwrap();
    (pages, built)
}

proptest! {
    #[test]
    fn as_of_integers(
        mut keys in proptest::collection::vec(0..200i32, 0..6000),
        spread in prop_oneof![Just(1), Just(40), Just(1 << 20)],
        fillfactor in prop_oneof![Just(90usize), Just(100), Just(10)],
        deduplicate in any::<bool>(),
    ) {
        keys.iter_mut().enumerate().for_each(|(i, key)| *key = (*key * 7919 + i as i32 % 13) % spread);
        let mut keys: Vec<(i32, Tid)> = keys.into_iter().zip(0u32..).map(|(key, i)| (key, Tid::new(i / 7, (i % 7) as u16 + 1))).collect();
        keys.sort_unstable();
        let options = Options { fillfactor, deduplicate, all_equal_image: true };
        let (tuples, built) = from_tuples(&keys, options);
        let (integers, expected) = from_integers(&keys, options);
        prop_assert_eq!(built, expected);
        prop_assert!(tuples.0 == integers.0);
    }
}

#[test]
fn too_long() {
    let mut builder = TupleBuilder::new(Options::default());
    let mut pages = Pages::default();
    let mut long = tuple(1, Tid::new(7, 3));
    long.resize(MAX_ITEM, 0);
    builder.push(&long, false, high_key, &mut pages).unwrap();
    long.resize(MAX_ITEM + 8, 0);
    let error = builder.push(&long, false, high_key, &mut pages).unwrap_err();
    assert_eq!(error, BuildError::TooLong { size: MAX_ITEM + 8, tid: Tid::new(7, 3) });
}
