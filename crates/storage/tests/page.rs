//! Heap pages compared with pages that are built byte by byte, and with those that a standby makes of their WAL.

use pg_bulk_storage::page::{PAGE_SIZE, PageBatch};
use pg_bulk_storage::tuple::MAX_TUPLE_SIZE;
use proptest::prelude::*;

const XID: u32 = 0x0a0b_0c0d;

/// A tuple that is identified by its bytes. No byte is zero except those that replay sets to zero.
fn tuple(number: usize, length: usize) -> Vec<u8> {
    let mut tuple = vec![(number % 255) as u8 + 1; length];
    tuple[..4].copy_from_slice(&XID.to_ne_bytes());
    tuple[4..12].fill(0);
    tuple[12..16].fill(0xff);
    tuple[16..18].fill(0);
    tuple
}

fn short(page: &[u8], at: usize) -> usize {
    usize::from(u16::from_ne_bytes([page[at], page[at + 1]]))
}

fn set_short(page: &mut [u8], at: usize, value: usize) {
    page[at..at + 2].copy_from_slice(&(value as u16).to_ne_bytes());
}

/// PageInit
fn empty_page() -> Vec<u8> {
    let mut page = vec![0; PAGE_SIZE];
    set_short(&mut page, 12, 24);
    set_short(&mut page, 14, 8192);
    set_short(&mut page, 16, 8192);
    set_short(&mut page, 18, 8192 + 4);
    page
}

fn count(page: &[u8]) -> usize {
    (short(page, 12) - 24) / 4
}

/// PageGetHeapFreeSpace
fn free_space(page: &[u8]) -> usize {
    let space = short(page, 14) - short(page, 12);
    if space < 4 || count(page) >= 291 { 0 } else { space - 4 }
}

/// PageAddItem
fn add_item(page: &mut [u8], item: &[u8]) {
    let (lower, upper) = (short(page, 12), short(page, 14) - item.len().div_ceil(8) * 8);
    assert!(lower + 4 <= upper);
    let pointer = if cfg!(target_endian = "big") {
        ((upper << 17) | (1 << 15) | item.len()) as u32
    } else {
        (upper | (1 << 15) | (item.len() << 17)) as u32
    };
    page[lower..lower + 4].copy_from_slice(&pointer.to_ne_bytes());
    page[upper..upper + item.len()].copy_from_slice(item);
    set_short(page, 12, lower + 4);
    set_short(page, 14, upper);
}

fn with_tid(tuple: &[u8], block: u32, offset: usize) -> Vec<u8> {
    let mut tuple = tuple.to_vec();
    set_short(&mut tuple, 12, (block >> 16) as usize);
    set_short(&mut tuple, 14, (block & 0xffff) as usize);
    set_short(&mut tuple, 16, offset);
    tuple
}

/// Fills pages as heap_multi_insert does, from block `first` on.
fn twin(tuples: &[Vec<u8>], reserve: usize, first: u32) -> Vec<Vec<u8>> {
    let mut pages: Vec<Vec<u8>> = Vec::new();
    for tuple in tuples {
        if pages.last().is_none_or(|page| free_space(page) < tuple.len().div_ceil(8) * 8 + reserve) {
            pages.push(empty_page());
        }
        let block = first + pages.len() as u32 - 1;
        let page = pages.last_mut().unwrap();
        let offset = count(page) + 1;
        add_item(page, &with_tid(tuple, block, offset));
    }
    pages
}

/// Returns the page that heap_xlog_multi_insert makes of a record that initializes it.
fn replay(data: &[u8], tuples: u16, block: u32, lsn: u64) -> Vec<u8> {
    let mut page = empty_page();
    let mut at = 0usize;
    for offset in 1..=tuples {
        at = at.next_multiple_of(2);
        let length = short(data, at);
        let mut tuple = vec![0; 23 + length];
        tuple[..4].copy_from_slice(&XID.to_ne_bytes());
        tuple[18..20].copy_from_slice(&data[at + 2..at + 4]);
        tuple[20..22].copy_from_slice(&data[at + 4..at + 6]);
        tuple[22] = data[at + 6];
        tuple[23..].copy_from_slice(&data[at + 7..at + 7 + length]);
        add_item(&mut page, &with_tid(&tuple, block, usize::from(offset)));
        at += 7 + length;
    }
    assert_eq!(at, data.len());
    set_lsn(&mut page, lsn);
    page
}

fn set_lsn(page: &mut [u8], lsn: u64) {
    page[..4].copy_from_slice(&((lsn >> 32) as u32).to_ne_bytes());
    page[4..8].copy_from_slice(&(lsn as u32).to_ne_bytes());
}

fn any_tuples() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let length = prop_oneof![
        6 => 24usize..120,
        1 => 23usize..26,
        1 => 24usize..MAX_TUPLE_SIZE + 1,
    ];
    prop::collection::vec(length, 0..if cfg!(miri) { 100 } else { 1500 })
        .prop_map(|lengths| lengths.iter().enumerate().map(|(i, length)| tuple(i, *length)).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 200 }))]

    /// Several batches, with the last page of each carried over to the next, give the same pages as one batch.
    #[test]
    fn pages_are_the_twins(
        tuples in any_tuples(),
        limit in 1usize..40,
        reserve in prop_oneof![Just(0usize), 0usize..7373],
        take_every in 1usize..400,
    ) {
        let first = 0x0001_fffe;
        let expected = twin(&tuples, reserve, first);
        let mut batch = PageBatch::new(limit, reserve, false).unwrap();
        let mut pages: Vec<Vec<u8>> = Vec::new();
        let mut rows = 0;
        let mut take = |batch: &mut PageBatch| {
            let first = first + pages.len() as u32;
            batch.set_block_numbers(first);
            assert_eq!(batch.pages().len(), batch.complete() * PAGE_SIZE);
            let mut on_pages = 0;
            for page in 0..batch.complete() {
                let lsn = 0x0123_4567_89ab_cdef + page as u64;
                batch.page_mut(page).unwrap().set_lsn(lsn);
                assert_eq!(batch.page_mut(page).unwrap().0.as_ptr(), batch.pages()[page * PAGE_SIZE..].as_ptr());
                let bytes = &batch.pages()[page * PAGE_SIZE..][..PAGE_SIZE];
                // The data follow those of other pages, of any length.
                let mut data = vec![0; page];
                let tuples = batch.wal_data(page, &mut data);
                assert_eq!(usize::from(tuples), batch.page_rows(page));
                on_pages += u64::from(tuples);
                assert!(replay(&data[page..], tuples, first + page as u32, lsn) == bytes);
                let mut bytes = bytes.to_vec();
                set_lsn(&mut bytes, 0);
                pages.push(bytes);
            }
            assert_eq!(on_pages, batch.rows());
            rows += batch.rows();
            batch.take_full();
            assert_eq!((batch.complete(), batch.rows()), (0, 0));
        };
        for (i, tuple) in tuples.iter().enumerate() {
            if batch.add(tuple).is_none() {
                assert_eq!(batch.complete(), limit);
                assert_eq!(batch.add(tuple), None);
                take(&mut batch);
                assert_eq!(batch.add(tuple), Some((0, 1)));
            }
            if i % take_every == 0 {
                take(&mut batch);
            }
        }
        let partial = batch.partial_rows() > 0;
        assert_eq!(batch.complete() + usize::from(partial), batch.finish());
        take(&mut batch);
        assert!(batch.page_mut(0).is_none());
        assert_eq!(rows, tuples.len() as u64);
        assert_eq!(pages.len(), expected.len());
        assert!(pages == expected);
    }
}

#[test]
fn places_are_reported_and_read_back() {
    let pages = if cfg!(miri) { 4 } else { 64 };
    let mut batch = PageBatch::new(pages, 0, true).unwrap();
    let tuples: Vec<_> = (0..pages * 300).map(|i| tuple(i, 30 + i % 60)).collect();
    let mut places = Vec::new();
    for tuple in &tuples {
        let Some(place) = batch.add(tuple) else { break };
        places.push(place);
    }
    assert_eq!(batch.finish(), pages);
    let mut seen = 0;
    for ((page, offset, bytes), (place, tuple)) in batch.all_tuples().zip(places.iter().zip(&tuples)) {
        assert_eq!((page, offset), *place);
        assert_eq!(bytes[18..], tuple[18..]);
        seen += 1;
    }
    assert_eq!((seen, batch.rows()), (places.len(), places.len() as u64));
    // PD_ALL_VISIBLE
    assert!(batch.pages().chunks(PAGE_SIZE).all(|page| short(page, 10) == 4 && page.as_ptr().addr() % 4096 == 0));
    batch.clear();
    assert_eq!((batch.pages().len(), batch.rows(), batch.finish()), (0, 0, 0));
}

/// Adding a tuple with another header equals adding a tuple that has this header, but only to the current page.
#[test]
fn headers_are_exchanged() {
    let (mut one, mut other) = (PageBatch::new(2, 0, false).unwrap(), PageBatch::new(2, 0, false).unwrap());
    let mut places = 0;
    for i in 0..400 {
        let (with, without) = (tuple(i, 23 + i % 90), tuple(i + 7, 23 + i % 90));
        let header: [u8; 23] = with[..23].try_into().unwrap();
        let place = other.add_with_header(&[&without[..23], &with[23..]].concat(), &header);
        assert_eq!(one.add_here(&with), place);
        if place.is_none() {
            assert_eq!((one.complete(), other.complete()), (0, 0));
            break;
        }
        places += 1;
    }
    assert!(places > 20);
    assert_eq!((one.finish(), other.finish()), (1, 1));
    assert!(one.pages() == other.pages());
}

#[test]
fn line_pointers_have_a_limit() {
    let mut batch = PageBatch::new(2, 0, false).unwrap();
    // With 24 bytes and a line pointer each, this many tuples leave 20 bytes free.
    assert!((1..=291).all(|i| batch.add(&tuple(0, 24)) == Some((0, i))));
    assert_eq!(batch.add(&tuple(0, 24)), Some((1, 1)));
}

#[test]
fn tuples_that_are_none() {
    let mut batch = PageBatch::new(2, 0, false).unwrap();
    assert_eq!(batch.add(&tuple(0, MAX_TUPLE_SIZE + 1)), None);
    assert_eq!(batch.add(&[1; 22]), None);
    assert_eq!(batch.add(&tuple(0, MAX_TUPLE_SIZE)), Some((0, 1)));
    assert_eq!(batch.add(&tuple(0, MAX_TUPLE_SIZE)), Some((1, 1)));
    assert_eq!(batch.add(&tuple(0, 24)), None);
    assert_eq!(batch.finish(), 2);
}

/// With a reserve of the whole page, each tuple gets its own page.
#[test]
fn an_empty_page_takes_any_tuple() {
    let mut batch = PageBatch::new(3, PAGE_SIZE, false).unwrap();
    for page in 0..3 {
        assert_eq!(batch.add(&tuple(0, 100)), Some((page, 1)));
    }
    assert_eq!(batch.add(&tuple(0, 100)), None);
}
