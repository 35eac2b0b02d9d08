//! Sorting and merging compared with the standard library, and equal keys compared with a naive implementation.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use pg_bulk_storage::btree::entry::{Entry, Tid, Word, as_bytes, as_bytes_mut};
use pg_bulk_storage::btree::key::{KeyColumn, KeyKind, KeyShape, KeyValue};
use pg_bulk_storage::btree::merge::{Merge, Run, Slice};
use pg_bulk_storage::btree::sort::{Order, few, is_ascending, mend, sort};
use pg_bulk_storage::btree::unique::Unique;
use proptest::collection::vec;
use proptest::prelude::*;

/// Numbers that look random.
fn mix(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Entries of many kinds: few keys, many keys, keys that differ in high, low and some bits, TIDs in order or not.
fn entries<W: Word>(count: usize, kind: u64, seed: u64) -> Vec<Entry<W>> {
    let one = |i: u64| {
        let random = mix(i ^ seed);
        let key = match kind % 8 {
            0 => u128::from(random),
            1 => u128::from(random % 3),
            2 => u128::from(i),
            3 => u128::from(count as u64 - i),
            4 => u128::from(random & 0xff00_0000_00ff_0000),
            5 => u128::from(random) << 64 | u128::from(mix(random)),
            6 => 7,
            _ => u128::from(i / 5),
        };
        let place = if (kind / 8).is_multiple_of(2) { i } else { i ^ 0x3ff };
        Entry::new(W::from_u128(key), Tid::new((place / 100) as u32, (place % 100) as u16 + 1))
    };
    (0..count as u64).map(one).collect()
}

fn check_sort<W: Word>(entries: &[Entry<W>]) {
    let mut expected = entries.to_vec();
    expected.sort();
    let mut sorted = entries.to_vec();
    sort(&mut sorted, &mut vec![Entry::default(); entries.len()]);
    assert!(sorted == expected);
    let mut sorted = entries.to_vec();
    sort(&mut sorted, &mut []);
    assert!(sorted == expected);
    assert!(is_ascending(&expected));
    let mut mended = entries.to_vec();
    if !mend(&mut mended, &mut vec![Entry::default(); few(entries.len())]) {
        mended.sort();
    }
    assert!(mended == expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn sorts(count in 0usize..3000, kind in 0u64..16, seed in any::<u64>()) {
        check_sort(&entries::<u64>(count, kind, seed));
        check_sort(&entries::<u128>(count, kind, seed));
    }

    #[test]
    fn mends_what_is_nearly_in_order(
        count in 1usize..3000,
        strays in vec((any::<usize>(), any::<u64>(), 0u64..4), 0..40),
        room in 0usize..60,
    ) {
        let mut nearly: Vec<_> = (0..count as u64).map(|i| Entry::new(i * 10, Tid::new(i as u32, 1))).collect();
        for (at, key, kind) in &strays {
            let key = match kind {
                0 => *key,
                1 => key % 10,
                2 => key % (count as u64 * 10),
                _ => ((*at % count) as u64 * 10 + 500).saturating_sub(key % 1000),
            };
            nearly[at % count] = Entry::new(key, Tid::new((at % count) as u32, 1));
        }
        let mut expected = nearly.clone();
        expected.sort();
        let mut mended = nearly.clone();
        let done = mend(&mut mended, &mut vec![Entry::default(); room]);
        if strays.len() == 1 && room > 0 {
            prop_assert!(done);
        }
        if !done {
            mended.sort();
        }
        prop_assert!(mended == expected);
    }

    #[test]
    fn merges(
        pieces in vec((0usize..8, 1usize..700), 0..60),
        blocks in vec(1usize..300, 8),
        kind in 0u64..16,
        seed in any::<u64>(),
    ) {
        let count = pieces.iter().map(|(_, length)| length).sum();
        let mut expected = entries::<u64>(count, kind, seed);
        expected.sort();
        let mut runs = vec![Vec::new(); 8];
        let mut rest = &expected[..];
        for (run, length) in &pieces {
            let (piece, tail) = rest.split_at(*length);
            runs[*run].extend_from_slice(piece);
            rest = tail;
        }
        check_merge(&runs, &blocks, &expected);
        let wide = |entry: &Entry<u64>| Entry::new(u128::from(entry.key()) << 40 | 5, entry.tid());
        let widen = |entries: &Vec<Entry<u64>>| entries.iter().map(wide).collect::<Vec<_>>();
        check_merge(&runs.iter().map(widen).collect::<Vec<_>>(), &blocks, &widen(&expected));
    }
}

proptest! {
    #[test]
    fn merges_runs_that_alternate(
        count in 0usize..4000,
        runs in 1u64..5,
        slice in 1u64..80,
        blocks in vec(1usize..3000, 4),
        kind in 0u64..16,
        seed in any::<u64>(),
    ) {
        check_alternating::<u64>(entries(count, kind, seed), runs, slice, &blocks, seed);
        check_alternating::<u128>(entries(count, kind, seed), runs, slice, &blocks, seed);
    }
}

fn check_alternating<W: Word>(mut all: Vec<Entry<W>>, runs: u64, slice: u64, blocks: &[usize], seed: u64) {
    all.sort();
    let mut parts = vec![Vec::new(); 4];
    let mut run = 0;
    for (entry, i) in all.iter().zip(0u64..) {
        // A change after each entry, or after several.
        if mix(i ^ seed).is_multiple_of(slice) {
            run = (mix(seed.wrapping_add(i)) % runs) as usize;
        }
        parts[run].push(*entry);
    }
    check_merge(&parts, blocks, &all);
}

/// Merges runs with blocks of these sizes, then again with the first run in memory.
fn check_merge<W: Word>(parts: &[Vec<Entry<W>>], blocks: &[usize], expected: &[Entry<W>]) {
    let in_blocks = |(entries, size): (&Vec<Entry<W>>, &usize)| Either::Blocks(Blocks::new(entries.clone(), *size));
    let mut runs: Vec<_> = parts.iter().zip(blocks).map(in_blocks).collect();
    assert!(collect(Merge::new(runs.clone())) == expected);
    runs[0] = Either::Slice(Slice::new(&parts[0]));
    assert!(collect(Merge::new(runs)) == expected);
}

/// A run in small blocks.
#[derive(Clone)]
struct Blocks<W: Word> {
    entries: Vec<Entry<W>>,
    size: usize,
    at: usize,
    now: std::ops::Range<usize>,
}

impl<W: Word> Blocks<W> {
    fn new(entries: Vec<Entry<W>>, size: usize) -> Self {
        Self { entries, size, at: 0, now: 0..0 }
    }
}

/// A run in blocks, or in memory.
#[derive(Clone)]
enum Either<'e, W: Word> {
    Blocks(Blocks<W>),
    Slice(Slice<'e, Entry<W>>),
}

impl<W: Word> Run<Entry<W>> for Either<'_, W> {
    type Error = &'static str;

    fn block(&self) -> &[Entry<W>] {
        match self {
            Either::Blocks(run) => run.block(),
            Either::Slice(run) => run.block(),
        }
    }

    fn advance(&mut self) -> Result<(), Self::Error> {
        match self {
            Either::Blocks(run) => run.advance(),
            Either::Slice(run) => run.advance().map_err(|never| match never {}),
        }
    }
}

impl<W: Word> Run<Entry<W>> for Blocks<W> {
    type Error = &'static str;

    fn block(&self) -> &[Entry<W>] {
        &self.entries[self.now.clone()]
    }

    fn advance(&mut self) -> Result<(), Self::Error> {
        let end = (self.at + self.size).min(self.entries.len());
        self.now = self.at..end;
        self.at = end;
        Ok(())
    }
}

/// The most entries that are collected at once, with those that may come with the last one.
const COLLECTED: usize = 1024 + 63;

fn collect<W: Word, R: Run<Entry<W>>>(mut merge: Merge<Entry<W>, R>) -> Vec<Entry<W>>
where
    R::Error: std::fmt::Debug,
{
    let mut all = Vec::new();
    loop {
        let entries = merge.next().unwrap();
        if entries.is_empty() {
            // It stays at its end.
            assert!(merge.next().unwrap().is_empty());
            return all;
        }
        all.extend_from_slice(entries);
        let (start, count) = (entries.as_ptr(), entries.len());
        // Entries that are returned in place are valid as long as the block.
        let lies_in_run = merge.runs().iter().any(|run| run.block().as_ptr_range().contains(&start));
        assert!(lies_in_run || count <= COLLECTED, "{count} entries were collected");
    }
}

#[test]
fn order_is_found() {
    let mut scratch = vec![Entry::default(); 5000];
    let mut ascending = entries::<u64>(5000, 2, 0);
    assert_eq!(sort(&mut ascending, &mut scratch), Order::Sorted);
    let mut descending: Vec<_> = ascending.iter().rev().copied().collect();
    assert_eq!(sort(&mut descending, &mut scratch), Order::Reversed);
    assert!(descending == ascending);
    // One entry out of order is enough, at any position.
    for at in [1, 63, 64, 65, 128, 4999] {
        let mut entries = ascending.clone();
        entries.swap(at - 1, at);
        assert!(!is_ascending(&entries), "{at}");
        assert_eq!(sort(&mut entries, &mut scratch), Order::Mixed);
        assert!(entries == ascending);
    }
    // Equal entries, which should not occur, do no harm.
    let mut same = vec![Entry::new(7u64, Tid::new(1, 1)); 100];
    assert_eq!(sort(&mut same, &mut scratch), Order::Mixed);
}

#[test]
fn errors_of_runs_come_through() {
    struct Broken;
    impl Run<Entry<u64>> for Broken {
        type Error = &'static str;
        fn block(&self) -> &[Entry<u64>] {
            &[]
        }
        fn advance(&mut self) -> Result<(), Self::Error> {
            Err("broken")
        }
    }
    assert_eq!(Merge::new(vec![Broken]).next(), Err("broken"));
    assert_eq!(Merge::<Entry<u64>, Slice<Entry<u64>>>::new(vec![]).next(), Ok(&[][..]));
}

/// Makes entries with these keys.
fn with_keys(keys: impl Iterator<Item = u64>) -> Vec<Entry<u64>> {
    keys.map(|key| Entry::new(key, Tid::new(key as u32, 1))).collect()
}

#[test]
fn errors_of_runs_that_alternate_come_through() {
    /// A run with one block.
    struct OneBlock(Blocks<u64>);
    impl Run<Entry<u64>> for OneBlock {
        type Error = &'static str;
        fn block(&self) -> &[Entry<u64>] {
            self.0.block()
        }
        fn advance(&mut self) -> Result<(), Self::Error> {
            if self.0.at > 0 && self.0.size == 100 {
                return Err("broken");
            }
            self.0.advance()
        }
    }
    for broken in [0, 1] {
        let size = |run| if run == broken { 100 } else { 1000 };
        let runs = [0, 1].map(|run| OneBlock(Blocks::new(with_keys((run..2000).step_by(2)), size(run))));
        assert_eq!(Merge::new(Vec::from(runs)).next(), Err("broken"));
    }
}

#[test]
fn a_block_that_is_no_more_ends_a_merge() {
    struct Fickle {
        run: Blocks<u64>,
        gone: Rc<Cell<bool>>,
        asked: Cell<usize>,
    }
    impl Run<Entry<u64>> for Fickle {
        type Error = &'static str;
        fn block(&self) -> &[Entry<u64>] {
            self.asked.set(self.asked.get() + 1);
            assert!(self.asked.get() < 1000, "it is asked again and again");
            if self.gone.get() { &[] } else { self.run.block() }
        }
        fn advance(&mut self) -> Result<(), Self::Error> {
            self.run.advance()
        }
    }
    for fickle in [0, 1] {
        let gone = Rc::new(Cell::new(false));
        let runs = [0, 1].map(|run| Fickle {
            run: Blocks::new(with_keys((run..4000).step_by(2)), 2000),
            gone: if run == fickle { Rc::clone(&gone) } else { Rc::default() },
            asked: Cell::new(0),
        });
        let mut merge = Merge::new(Vec::from(runs));
        assert_eq!(merge.next().unwrap().len(), 1024);
        gone.set(true);
        assert!(merge.next().unwrap().is_empty());
    }
}

#[test]
fn entries_are_bytes() {
    let entries = entries::<u128>(100, 5, 3);
    let mut copy = vec![Entry::default(); 100];
    as_bytes_mut(&mut copy).copy_from_slice(as_bytes(&entries));
    assert!(copy == entries);
    assert_eq!(as_bytes(&entries).len(), 2400);
}

proptest! {
    #[test]
    fn equal_keys_are_decided(
        keys in vec((0u64..40, any::<bool>()), 0..300),
        sizes in vec(1usize..40, 1..10),
        nulls_equal in any::<bool>(),
        keep in 0u64..4,
    ) {
        let shape = KeyShape::new(&[KeyColumn {
            kind: KeyKind::Int4, descending: false, nulls_first: false, nullable: true,
        }]).unwrap();
        let mut entries = Vec::new();
        for (i, (key, null)) in keys.iter().enumerate() {
            let value = if *null && key % 3 == 0 { KeyValue::Null } else { KeyValue::Datum(*key) };
            entries.push(Entry::new(shape.encode::<u64>(&[value]).unwrap(), Tid::new(i as u32, 1)));
        }
        entries.sort();
        // All rows of each key that may occur only once.
        let mut expected = BTreeMap::<u64, Vec<Tid>>::new();
        for entry in &entries {
            expected.entry(entry.key()).or_default().push(entry.tid());
        }
        let decide = |key: u64, tids: &mut Vec<Tid>, next: Tid| match (key ^ keep) % 4 {
            // Keeps the first one, the last one, all of them, or every other one.
            0 => {}
            1 => *tids = vec![next],
            2 => tids.push(next),
            _ => if tids.pop().is_none() { tids.push(next) },
        };
        let mut decided = 0;
        for (key, tids) in &mut expected {
            if shape.has_null(*key) && !nulls_equal {
                continue;
            }
            let mut remain = vec![tids[0]];
            for next in &tids[1..] {
                decide(*key, &mut remain, *next);
                decided += 1;
            }
            *tids = remain;
        }
        let expected: Vec<_> = expected
            .iter()
            .flat_map(|(key, tids)| tids.iter().map(|tid| Entry::new(*key, *tid)))
            .collect();

        let mut unique = Unique::new(&shape, nulls_equal);
        let (mut passed, mut calls) = (Vec::new(), 0);
        let mut rest = &entries[..];
        for size in sizes.iter().cycle() {
            let (block, tail) = rest.split_at((*size).min(rest.len()));
            rest = tail;
            unique.push(
                block,
                |key, tids, next| { calls += 1; decide(key, tids, next); Ok(()) },
                |entries| { passed.extend_from_slice(entries); Ok::<_, ()>(()) },
            ).unwrap();
            if rest.is_empty() {
                break;
            }
        }
        unique.finish(|entries| { passed.extend_from_slice(entries); Ok::<_, ()>(()) }).unwrap();
        prop_assert!(passed == expected);
        prop_assert_eq!(calls, decided);
    }
}
