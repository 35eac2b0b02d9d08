//! Leaves for the end of a tree: they are linked and in order, each entry occurs once, and the border to the leaf
//! before is valid.

use pg_bulk_storage::btree::build::{BuildError, Options, border_size};
use pg_bulk_storage::btree::entry::{Entry, Tid};
use pg_bulk_storage::btree::extension::{Extension, entries_of, lead_to};
use pg_bulk_storage::btree::key::{KeyColumn, KeyKind, KeyShape};
use pg_bulk_storage::btree::leaf::Leaf;
use pg_bulk_storage::btree::{BTP_LEAF, NO_BLOCK};

fn shape() -> KeyShape {
    let column = KeyColumn { kind: KeyKind::Int4, descending: false, nulls_first: false, nullable: false };
    KeyShape::new(&[column]).unwrap()
}

fn entry(number: u64) -> Entry<u64> {
    Entry::new(number, Tid::new(number as u32 / 100, (number % 100) as u16 + 1))
}

fn tuple(entry: Entry<u64>) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    let length = shape().write_tuple(entry, &mut bytes);
    bytes.truncate(length);
    bytes
}

fn options(fillfactor: usize, deduplicate: bool) -> Options {
    Options { fillfactor, deduplicate, all_equal_image: true }
}

#[test]
fn leaves_are_linked_and_hold_all_entries() {
    for (count, fillfactor, repeats) in
        [(1, 90, 1), (300, 90, 1), (400, 90, 1), (10_000, 90, 1), (10_000, 10, 1), (10_000, 100, 1), (20_000, 90, 7)]
    {
        let entries: Vec<Entry<u64>> = (0..count).map(|i| Entry::new(i / repeats, entry(i).tid())).collect();
        let mut leaves = Extension::build(&shape(), options(fillfactor, true), &entries).unwrap();
        let blocks: Vec<u32> = (0..leaves.len() as u32).map(|i| 100_000 - 7 * i).collect();
        leaves.place(&blocks, 3);
        let mut found = Vec::new();
        for (i, page) in leaves.pages().enumerate() {
            let leaf = Leaf::new(page).unwrap();
            assert_eq!(leaf.flags(), BTP_LEAF);
            assert_eq!(leaf.prev(), if i == 0 { 3 } else { blocks[i - 1] });
            assert_eq!(leaf.next(), blocks.get(i + 1).copied().unwrap_or(NO_BLOCK));
            leaf.entries::<u64>(&shape(), |key, tid, _| found.push(Entry::new(key, tid))).unwrap();
        }
        assert_eq!(found, entries, "{count} {fillfactor} {repeats}");
        let links: Vec<u32> =
            leaves.links().map(|link| Tid::from_bytes(*link.first_chunk().unwrap()).block()).collect();
        assert_eq!(links, blocks[1..]);
    }
}

#[test]
fn so_many_entries_fit() {
    for fillfactor in [10, 50, 90, 100] {
        for pages in [2, 4, 31] {
            let count = entries_of(&shape(), options(fillfactor, true), pages);
            let entries: Vec<Entry<u64>> = (0..count as u64).map(entry).collect();
            let leaves = Extension::build(&shape(), options(fillfactor, true), &entries).unwrap();
            assert!(leaves.len() <= pages && leaves.len() + pages / 8 + 2 > pages, "{} of {pages}", leaves.len());
        }
    }
}

#[test]
fn the_border_lies_between() {
    let entries: Vec<Entry<u64>> = (500..2000).map(entry).collect();
    let leaves = Extension::build(&shape(), options(90, true), &entries).unwrap();
    let mut to = [0u8; 64];
    let length = leaves.border::<u64>(&shape(), &tuple(entry(499)), &mut to).unwrap();
    assert!(length <= border_size(&shape()));
    // One column, as in the first item, and no TID.
    assert_eq!(to[8..12], tuple(entry(500))[8..12]);
    lead_to(&mut to[..length], 77);
    let place = Tid::from_bytes(*to.first_chunk().unwrap());
    assert_eq!((place.block(), place.offset()), (77, 1));
    // Equal keys are distinguished by their rows.
    let twin = Entry::new(500, Tid::new(4, 99));
    let length = leaves.border::<u64>(&shape(), &tuple(twin), &mut to).unwrap();
    assert_eq!(Tid::from_bytes(*to[length - 6..].first_chunk().unwrap()), twin.tid());
    // Not before the leaves, not a tuple, too little room.
    assert_eq!(leaves.border::<u64>(&shape(), &tuple(entry(500)), &mut to), None);
    assert_eq!(leaves.border::<u64>(&shape(), &tuple(entry(501)), &mut to), None);
    assert_eq!(leaves.border::<u64>(&shape(), &[1, 2, 3], &mut to), None);
    assert_eq!(leaves.border::<u64>(&shape(), &tuple(entry(499)), &mut to[..8]), None);
}

#[test]
fn entries_in_no_order_are_refused() {
    let refused = Extension::build(&shape(), options(90, true), &[entry(2), entry(1)]);
    assert!(matches!(refused, Err(BuildError::Order)));
    assert!(Extension::build::<u64>(&shape(), options(90, true), &[]).unwrap().is_empty());
}
