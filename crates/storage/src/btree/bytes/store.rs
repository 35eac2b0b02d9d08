//! Collects the keys of one process and sorts them into a run.
//!
//! Records are collected in the order in which rows come. Often this is the index's order already: each key is compared
//! with the one before it. Otherwise the records are sorted by pairs of a key's first eight bytes and the record's
//! position, with [`crate::btree::sort`]. Keys with equal first bytes are then sorted by the eight bytes behind their
//! common prefix, and so on.
//!
//! The tricky point is the memory limit. Records in order need no memory but their own; others need two pairs each. So
//! how many records fit depends on the keys that follow. If keys are no longer in order and there is no memory to sort
//! them all, those in order become a run of their own.

use std::cmp::Ordering;

use super::record::{self, HEADER, Record, Records, common, window};
use super::shape::{ByteShape, StoredValue};
use crate::btree::collect::{KeyStore, NoMemory, Room};
use crate::btree::entry::{Entry, Tid};
use crate::btree::merge::Run;
use crate::btree::sort::sort;
use crate::page::MAX_TUPLES;

/// Memory of a record's pair, and of the pair's copy while pairs are sorted, in bytes.
const PAIRS: usize = 2 * size_of::<Entry<u64>>();
/// Number of bytes to return at once if the records are not stored in order.
const BLOCK: usize = 64 * 1024;
/// Up to this number of keys, comparisons are faster than a pass.
const FEW: usize = 24;

/// A number of records and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Span {
    bytes: usize,
    count: usize,
}

/// Collects keys.
#[derive(Debug, Default)]
pub struct Store {
    records: Vec<u8>,
    count: usize,
    /// Memory limit in bytes.
    limit: usize,
    /// The records in order, from the first one on.
    ordered: Span,
    /// Position of the last record, and its row.
    last: usize,
    last_tid: Tid,
    /// Rows have come in ascending order.
    tids_ascend: bool,
    /// The run that [`Store::sort`] has made, and its order if that differs from the order of storage.
    run: Span,
    order: Vec<Entry<u64>>,
}

/// Makes an entry of a number and a record's position, for the sort.
#[inline(always)]
fn pair(number: u64, place: usize) -> Entry<u64> {
    Entry::new(number, Tid::new((place >> 16) as u32, place as u16))
}

#[inline(always)]
fn place(pair: Entry<u64>) -> usize {
    pair.tid().to_u64() as usize
}

impl Store {
    /// Creates an empty store with a memory limit. It holds the keys of a page or two in any case.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            records: Vec::new(),
            count: 0,
            limit,
            ordered: Span::default(),
            last: 0,
            last_tid: Tid::default(),
            tids_ascend: true,
            run: Span::default(),
            order: Vec::new(),
        }
    }

    /// Whether the store has no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether all keys are in order.
    #[must_use]
    pub fn is_in_order(&self) -> bool {
        self.ordered.count == self.count
    }

    /// Makes room for the records of one heap page, `bytes` long. Returns false if the limit does not allow it: the
    /// caller must then make a run and remove it.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn make_room(&mut self, bytes: usize) -> Result<bool, NoMemory> {
        let needed = self.records.len() + bytes;
        let memory = self.limit.saturating_sub(BLOCK);
        let pairs = if self.is_in_order() { 0 } else { (self.count + MAX_TUPLES) * PAIRS };
        if self.count > 0 && needed.max(self.records.capacity()) + pairs > memory {
            return Ok(false);
        }
        if needed > self.records.capacity() {
            // Keep the present ratio of records and pairs within the memory.
            let most = (memory as u128 * needed as u128 / (needed + pairs).max(1) as u128) as usize;
            let wanted = (self.records.capacity() * 2).min(most).max(needed);
            self.records.try_reserve_exact(wanted - self.records.len()).map_err(|_| NoMemory)?;
        }
        Ok(true)
    }

    /// Adds a row's key, for which room was made. Returns false if the values have no key ([`ByteShape::encode`]); the
    /// store must not be used any more then.
    #[inline]
    #[must_use]
    pub fn push(&mut self, shape: &ByteShape, values: &[StoredValue<'_>], tid: Tid) -> bool {
        let start = self.records.len();
        self.records.extend_from_slice(&[0; HEADER]);
        if !shape.encode(values, &mut self.records) {
            return false;
        }
        let length = self.records.len() - start - HEADER;
        if let Some(header) = self.records.get_mut(start..).and_then(|record| record.first_chunk_mut()) {
            *header = record::header(tid, length);
        }
        self.note(start, self.records.len(), tid);
        true
    }

    /// Counts a record with this start and end.
    #[inline(always)]
    fn note(&mut self, start: usize, end: usize, tid: Tid) {
        if self.count > 0 {
            self.tids_ascend &= self.last_tid < tid;
        }
        if self.is_in_order()
            && (self.count == 0 || record_at(&self.records, self.last) < record_at(&self.records, start))
        {
            self.ordered = Span { bytes: end, count: self.count + 1 };
        }
        (self.last, self.last_tid) = (start, tid);
        self.count += 1;
    }
}

impl KeyStore<u8> for Store {
    type Run<'s> = StoreRun<'s>;

    fn room_for_page(&mut self, shape: &ByteShape, _: usize) -> Result<Room, NoMemory> {
        Ok(if self.make_room(shape.page_room())? { Room::Made } else { Room::WithoutRun })
    }

    fn count(&self) -> usize {
        self.count
    }

    fn memory(&self) -> usize {
        self.records.capacity() + BLOCK + if self.is_in_order() { 0 } else { self.count * PAIRS }
    }

    fn sort(&mut self, _: usize) -> Result<(), NoMemory> {
        if self.run.count == self.count && (self.is_in_order() || self.order.len() == self.count) {
            return Ok(());
        }
        self.order = Vec::new();
        self.run = Span { bytes: self.records.len(), count: self.count };
        if self.is_in_order() {
            return Ok(());
        }
        if self.memory() > self.limit && self.ordered.count > self.count / 2 {
            self.run = self.ordered;
            return Ok(());
        }
        self.order.try_reserve_exact(self.count).map_err(|_| NoMemory)?;
        let mut at = 0;
        for record in Records(&self.records) {
            self.order.push(pair(window(record.key, 0), at));
            at += record.size();
        }
        let mut scratch = Vec::new();
        if scratch.try_reserve_exact(self.count).is_err() {
            let records = &self.records;
            self.order.sort_unstable_by(|a, b| record_at(records, place(*a)).cmp(&record_at(records, place(*b))));
            return Ok(());
        }
        scratch.resize(self.count, Entry::default());
        sort(&mut self.order, &mut scratch);
        sort_groups(&self.records, &mut self.order, &mut scratch, 0, self.tids_ascend);
        Ok(())
    }

    fn run(&self) -> Self::Run<'_> {
        let records = self.records.get(..self.run.bytes).unwrap_or_default();
        StoreRun { records, order: &self.order, read: 0, gathered: Vec::new(), whole: false }
    }

    fn run_size(&self) -> (usize, usize) {
        (self.run.count, self.run.bytes)
    }

    fn remove_run(&mut self) {
        let rest = self.run.bytes..self.records.len();
        let left = rest.len();
        self.records.copy_within(rest, 0);
        self.records.truncate(left);
        if !self.is_in_order() {
            // Records alone may have filled the memory; from now on pairs are needed as well.
            self.records.shrink_to(self.limit / 4);
        }
        self.order = Vec::new();
        (self.run, self.ordered, self.count, self.last, self.tids_ascend) =
            (Span::default(), Span::default(), 0, 0, true);
        let mut at = 0;
        // The remaining records are fewer than a page's, unless memory is scarce.
        while let Some(record) = self.records.get(at..).and_then(record::first) {
            let (tid, end) = (record.tid, at + record.size());
            self.note(at, end, tid);
            at = end;
        }
    }
}

/// Returns the record at a position, which must be valid.
#[inline(always)]
fn record_at(records: &[u8], place: usize) -> Record<'_> {
    records.get(place..).and_then(record::first).unwrap_or(Record { key: &[], tid: const { Tid::new(0, 0) } })
}

/// Sorts the records within each group of equal numbers. Their keys are equal up to here, except for zero bytes where a
/// shorter key has ended.
fn sort_groups(records: &[u8], pairs: &mut [Entry<u64>], scratch: &mut [Entry<u64>], depth: usize, ascend: bool) {
    let mut start = 0;
    while let Some(first) = pairs.get(start) {
        let number = first.key();
        let others = pairs.get(start + 1..).unwrap_or_default();
        let length = 1 + others.iter().take_while(|pair| pair.key() == number).count();
        if length > 1
            && let Some(group) = pairs.get_mut(start..start + length)
        {
            sort_group(records, group, scratch, depth + 8, ascend);
        }
        start += length;
    }
}

/// Sorts records whose keys are equal up to `depth`, except for zero bytes where a shorter key has ended. They are in
/// the order of their positions; with `ascend`, this is also the order of their rows.
fn sort_group(records: &[u8], group: &mut [Entry<u64>], scratch: &mut [Entry<u64>], depth: usize, ascend: bool) {
    let record = |pair: &Entry<u64>| record_at(records, place(*pair));
    if group.len() <= FEW {
        return group.sort_unstable_by(|a, b| record(a).cmp(&record(b)));
    }
    // A key that has ended is a prefix of the others, so it is before them.
    let ended = group.iter().filter(|pair| record(pair).key.len() <= depth).count();
    if ended > 0 && ended < group.len() {
        group.sort_unstable_by_key(|pair| (record(pair).key.len().min(depth + 1), place(*pair)));
    }
    let (short, rest) = group.split_at_mut(ended);
    let by_row = |a: &Entry<u64>, b: &Entry<u64>| {
        let (a, b) = (record(a), record(b));
        a.key.len().cmp(&b.key.len()).then(a.tid.cmp(&b.tid))
    };
    if !short.is_sorted_by(|a, b| by_row(a, b) != Ordering::Greater) {
        short.sort_unstable_by(by_row);
    }
    let Some(first) = rest.first().map(record) else { return };
    let (mut shared, mut same) = (first.key.len(), true);
    for pair in rest.iter() {
        let key = record(pair).key;
        if key != first.key {
            (shared, same) = (common(first.key, key, depth).min(shared), false);
        }
    }
    if same {
        if !ascend {
            rest.sort_unstable_by_key(|pair| record(pair).tid);
        }
        return;
    }
    for to in rest.iter_mut() {
        *to = pair(window(record(to).key, shared), place(*to));
    }
    sort(rest, scratch);
    sort_groups(records, rest, scratch, shared, ascend);
}

/// Reads the records of a run in order.
#[derive(Debug)]
pub struct StoreRun<'s> {
    records: &'s [u8],
    order: &'s [Entry<u64>],
    /// Number of pairs that were read.
    read: usize,
    gathered: Vec<u8>,
    /// The records are stored in order, and all of them are the current block.
    whole: bool,
}

impl Run<u8> for StoreRun<'_> {
    type Error = std::convert::Infallible;

    fn block(&self) -> &[u8] {
        if self.whole { self.records } else { &self.gathered }
    }

    fn advance(&mut self) -> Result<(), Self::Error> {
        if self.order.is_empty() {
            if self.whole {
                self.records = &[];
            }
            self.whole = true;
            return Ok(());
        }
        self.gathered.clear();
        self.gathered.reserve(BLOCK);
        for pair in self.order.get(self.read..).unwrap_or_default() {
            let record = record_at(self.records, place(*pair));
            if self.gathered.len() + record.size() > BLOCK && !self.gathered.is_empty() {
                break;
            }
            record::append(&mut self.gathered, record);
            self.read += 1;
        }
        Ok(())
    }
}
