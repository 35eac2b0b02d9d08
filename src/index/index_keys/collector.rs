//! One process's keys of an index.
//!
//! Entries are collected in memory. When memory is full they are sorted and written to a temporary file as a run: the
//! number of entries, then the entries. As long as they come in order they are packed instead, so small that mostly no
//! file is needed. A worker leaves all of its runs in a file that the leader finds by name. The leader keeps its last
//! run in memory.
//!
//! A key that cannot be written as an integer makes the collection useless. The process then gives up collecting, and
//! the leader finds a mark in its file.

use pg_bulk_storage::btree::bytes::read::ByteKeyReader;
use pg_bulk_storage::btree::entry::{Entry, Tid, Word, as_bytes};
use pg_bulk_storage::btree::key::{KeyShape, Width};
use pg_bulk_storage::btree::packed;
use pg_bulk_storage::btree::read::KeyReader;
use pg_bulk_storage::btree::sort::{Order, few, is_ascending, mend, order, sort};
use pg_bulk_storage::page::PAGE_SIZE;
use pg_bulk_storage::tuple::Attribute;
use pgrx::pg_sys;

use super::byte_keys::ByteKeys;
use super::runs::{GIVEN_UP, RunFileKind, Runs};
use super::sources::file_name;
use super::{IndexProperties, KeyForm, Planned};
use crate::error::{Result, out_of_memory};
use crate::index::shared_sorts::SharedSorts;
use crate::index::tuple_sort::TupleSort;
use crate::server::points::point_quiet;
use crate::server::shared_files::SharedFiles;

/// Least number of entries that there is room for.
const FEWEST: usize = 4096;
/// Entries of a run that are read at once.
const LEAST_BLOCK: usize = 256;
const MOST_BLOCK: usize = 4096;

/// Least number of entries to pack at once; smaller for tests with few rows.
const WORTH_PACKING: usize = if cfg!(feature = "points") { 64 } else { 8192 };
/// Entries of a packed block. Fewer entries wait for others, because they would not pay for a block's header.
const PACKED_BLOCK: usize = if WORTH_PACKING < packed::MOST { WORTH_PACKING } else { packed::MOST };

/// Collects the keys of an index.
#[derive(Debug)]
pub struct Collector {
    pub index: pg_sys::Oid,
    pub keys: Keys,
}

/// The collected keys by form.
#[derive(Debug)]
pub enum Keys {
    Narrow(Collected<u64>),
    Wide(Collected<u128>),
    Bytes(ByteKeys),
    Tuples(TupleSort),
}

/// The collected keys of one process.
#[derive(Debug)]
pub struct Collected<W: Word> {
    reader: KeyReader,
    entries: Vec<Entry<W>>,
    /// Entries that fit into memory, with as much again to sort them.
    most: usize,
    /// Number of entries from the first on that are known to be in order; None if some are not.
    in_order: Option<usize>,
    /// All entries so far came in order, so they are packed; and the last packed entry.
    packs: bool,
    latest: Option<Entry<W>>,
    /// Number of entries that this process has collected.
    pub total: u64,
    pub given_up: bool,
    pub runs: Runs,
}

impl Collector {
    /// Makes a collector for an index with keys of this shape, of a table with these attributes.
    ///
    /// `memory` is in bytes; `packs`: keys in order may be packed. A worker, which has a number, shares its files. None
    /// if the attributes do not fit the shape. Guarded; files are made in the current memory context.
    pub fn new(
        index: pg_sys::Oid,
        shape: &IndexProperties,
        attributes: &[Attribute],
        (memory, packs): (usize, bool),
        shared: Option<(SharedFiles, usize)>,
    ) -> Option<Collector> {
        let number = |&attribute: &usize| u16::try_from(attribute + 1).ok();
        let numbers: Vec<u16> = shape.attributes.iter().map(number).collect::<Option<_>>()?;
        let place = match shared {
            Some((files, worker)) => RunFileKind::Shared(files, file_name(index, worker)),
            None => RunFileKind::Own,
        };
        let keys = match &shape.keys {
            KeyForm::Words(words) => {
                let reader = KeyReader::new(attributes, &numbers, words)?;
                match words.width() {
                    Width::Narrow => Keys::Narrow(Collected::new(reader, memory, packs, place)),
                    Width::Wide => Keys::Wide(Collected::new(reader, memory, packs, place)),
                }
            }
            KeyForm::Bytes(bytes) => {
                Keys::Bytes(ByteKeys::new(ByteKeyReader::new(attributes, &numbers, bytes)?, memory, place))
            }
        };
        Some(Collector { index, keys })
    }

    /// Does the collector hold the index open?
    pub fn holds_index(&self) -> bool {
        matches!(self.keys, Keys::Tuples(_))
    }

    /// Shares the index's sort with the workers, which collect its keys, too. Before the first key.
    pub fn share(&mut self, planned: &[Planned], sorts: SharedSorts) {
        if let Keys::Tuples(keys) = &mut self.keys
            && let Some(planned) = planned.iter().find(|planned| planned.index == self.index)
            && let Some(sort) = planned.sort.and_then(|number| sorts.get(number))
        {
            keys.share(sort);
        }
    }

    /// Makes this process's runs readable for other processes. Before the first key.
    pub fn share_files(&mut self, files: SharedFiles) {
        let name = file_name(self.index, 0);
        match &mut self.keys {
            Keys::Narrow(keys) => keys.runs.share(files, name),
            Keys::Wide(keys) => keys.runs.share(files, name),
            Keys::Bytes(_) | Keys::Tuples(_) => false,
        };
    }

    /// Can the collector take every key? Strings may be too long, and some floats have no integer form.
    pub fn has_all(&self) -> bool {
        match &self.keys {
            Keys::Narrow(keys) => keys.shape().has_all(),
            Keys::Wide(keys) => keys.shape().has_all(),
            Keys::Bytes(_) | Keys::Tuples(_) => false,
        }
    }

    /// Collects the keys of pages that were appended from block `first` on. Guarded.
    pub fn add_pages(&mut self, pages: &[u8], first: u32) -> Result<()> {
        match &mut self.keys {
            Keys::Narrow(keys) => keys.add_pages(pages, first),
            Keys::Wide(keys) => keys.add_pages(pages, first),
            Keys::Bytes(keys) => keys.add_pages(pages, first),
            Keys::Tuples(keys) => {
                keys.add_pages(pages, first);
                Ok(())
            }
        }
    }

    /// Collects the key of a row that is in the table. Guarded.
    pub fn add_tuple(&mut self, tuple: &[u8], tid: pg_sys::ItemPointerData) -> Result<()> {
        let place = tid;
        let block = u32::from(tid.ip_blkid.bi_hi) << 16 | u32::from(tid.ip_blkid.bi_lo);
        let tid = Tid::new(block, tid.ip_posid);
        match &mut self.keys {
            Keys::Narrow(keys) => keys.add_tuple(tuple, tid),
            Keys::Wide(keys) => keys.add_tuple(tuple, tid),
            Keys::Bytes(keys) => keys.add_tuple(tuple, tid),
            Keys::Tuples(keys) => {
                keys.add_tuple(tuple, place);
                Ok(())
            }
        }
    }

    /// Bytes that the keys take in this process.
    pub fn held(&self) -> usize {
        match &self.keys {
            Keys::Narrow(keys) => keys.entries.capacity() * size_of::<Entry<u64>>() + keys.runs.packed_size(),
            Keys::Wide(keys) => keys.entries.capacity() * size_of::<Entry<u128>>() + keys.runs.packed_size(),
            Keys::Bytes(keys) => keys.store.memory(),
            Keys::Tuples(keys) => keys.memory(),
        }
    }

    /// Closes the collector without using its keys. Guarded.
    pub fn close(&mut self) {
        match &mut self.keys {
            Keys::Narrow(keys) => keys.runs.close(),
            Keys::Wide(keys) => keys.runs.close(),
            Keys::Bytes(keys) => keys.runs.close(),
            Keys::Tuples(keys) => keys.end(),
        }
    }

    /// Sorts the keys of all rows so far, while the workers sort theirs. Guarded.
    pub fn sort(&mut self) {
        match &mut self.keys {
            Keys::Narrow(keys) => keys.sort(),
            Keys::Wide(keys) => keys.sort(),
            Keys::Bytes(_) => (),
            Keys::Tuples(keys) if keys.shared().is_some() => keys.finish(),
            Keys::Tuples(keys) => keys.flush(),
        }
    }

    /// Leaves the keys to the leader, after the last row. Guarded.
    pub fn hand_over(&mut self) -> Result<()> {
        match &mut self.keys {
            Keys::Narrow(keys) => keys.hand_over(),
            Keys::Wide(keys) => keys.hand_over(),
            Keys::Bytes(keys) => keys.hand_over(),
            Keys::Tuples(keys) => {
                keys.finish();
                keys.end();
                Ok(())
            }
        }
    }
}

impl<W: Word> Collected<W> {
    fn new(reader: KeyReader, memory: usize, packs: bool, place: RunFileKind) -> Self {
        let most = (memory / size_of::<Entry<W>>() / 2).max(FEWEST);
        let runs = Runs::new(place);
        let (entries, in_order) = (Vec::new(), Some(0));
        Self { reader, entries, most, in_order, packs, latest: None, total: 0, given_up: false, runs }
    }

    /// Entries of each run to read at once, with this number of runs.
    pub fn block(&self, runs: usize) -> usize {
        (self.most * 2 / runs.max(1)).clamp(LEAST_BLOCK, MOST_BLOCK)
    }

    pub fn shape(&self) -> &KeyShape {
        self.reader.shape()
    }

    fn add_pages(&mut self, pages: &[u8], first: u32) -> Result<()> {
        for (page, block) in pages.as_chunks::<PAGE_SIZE>().0.iter().zip(first..) {
            self.make_room(pg_bulk_storage::page::MAX_TUPLES)?;
            if self.given_up {
                return Ok(());
            }
            match self.reader.read_page(page, block, &mut self.entries) {
                Some(count) => self.total += count as u64,
                None => self.give_up(),
            }
        }
        // While the entries are in the processor's cache.
        if self.is_in_order() { self.pack() } else { Ok(()) }
    }

    /// Packs whole blocks of the entries in memory, which are in order, if they follow those packed before. Guarded.
    fn pack(&mut self) -> Result<()> {
        if !self.packs || self.entries.len() < WORTH_PACKING {
            return Ok(());
        }
        let follows = self.latest.zip(self.entries.first()).is_none_or(|(latest, first)| latest.before(*first));
        self.packs = follows;
        let mut count = 0;
        for entries in self.entries.chunks_exact(PACKED_BLOCK).take_while(|_| follows) {
            self.packs = self.runs.pack(entries)?;
            if !self.packs {
                break;
            }
            point_quiet!("index.packed");
            count += entries.len();
            self.latest = entries.last().copied();
        }
        self.entries.drain(..count);
        self.in_order = Some(self.entries.len());
        // The limit is the memory for sorting, which entries in order do not need.
        if self.runs.packed_size() > self.most * size_of::<Entry<W>>() || !self.is_within(self.entries.capacity()) {
            self.runs.spill()?;
        }
        Ok(())
    }

    /// Is there memory for this number of entries, beside the packed ones?
    fn is_within(&self, entries: usize) -> bool {
        entries + self.runs.packed_size().div_ceil(size_of::<Entry<W>>()) <= self.most * 2
    }

    fn add_tuple(&mut self, tuple: &[u8], tid: Tid) -> Result<()> {
        self.make_room(1)?;
        if !self.given_up {
            match self.reader.read(tuple) {
                Some(key) => {
                    self.entries.push(Entry::new(key, tid));
                    self.total += 1;
                }
                None => self.give_up(),
            }
        }
        Ok(())
    }

    fn give_up(&mut self) {
        self.given_up = true;
        self.runs.forget();
        self.take_entries();
    }

    /// The entries in memory.
    pub fn entries(&self) -> &[Entry<W>] {
        &self.entries
    }

    /// Takes the entries out of memory.
    pub fn take_entries(&mut self) -> Vec<Entry<W>> {
        self.in_order = Some(0);
        std::mem::take(&mut self.entries)
    }

    /// Makes room for `count` more entries, within the memory limit.
    fn make_room(&mut self, count: usize) -> Result<()> {
        let needed = self.entries.len() + count;
        if self.given_up || needed <= self.entries.capacity() {
            return Ok(());
        }
        // Entries in order need no second array for sorting.
        let is_in_order = self.is_in_order();
        let most = if is_in_order { self.most * 2 } else { self.most };
        if needed > most {
            self.sort();
            self.write_run(0)?;
            self.entries.clear();
            self.in_order = Some(0);
        }
        let needed = self.entries.len() + count;
        if needed > self.entries.capacity() {
            let wanted = (self.entries.capacity() * 2).clamp(FEWEST, most.max(FEWEST)).max(needed);
            if !self.is_within(if is_in_order { wanted } else { wanted * 2 }) {
                // The packed run in memory goes to the file. This costs little: packed entries are written fast, and
                // they are read from first to last in any case.
                self.runs.spill()?;
            }
            self.entries.try_reserve_exact(wanted - self.entries.len()).map_err(|_| out_of_memory())?;
        }
        Ok(())
    }

    /// Are the entries in memory in order? Checks only those that are not known to be.
    fn is_in_order(&mut self) -> bool {
        let Some(known) = self.in_order else { return false };
        let news = self.entries.get(known.saturating_sub(1)..);
        self.in_order = news.is_some_and(is_ascending).then_some(self.entries.len());
        self.in_order.is_some()
    }

    /// Sorts the entries in memory.
    pub fn sort(&mut self) {
        if !self.is_in_order() {
            self.put_in_order();
            self.in_order = Some(self.entries.len());
        }
        debug_assert!(is_ascending(&self.entries), "sorted keys are not in order");
    }

    fn put_in_order(&mut self) {
        let mut scratch: Vec<Entry<W>> = Vec::new();
        let len = self.entries.len();
        // With little memory, there is room for a few.
        if order(&self.entries) == Order::Mixed && scratch.try_reserve_exact(few(len)).is_ok() {
            scratch.resize(few(len), Entry::default());
            if mend(&mut self.entries, &mut scratch) {
                return;
            }
        }
        let has_room = len <= self.most && self.is_within(self.entries.capacity().min(self.most) + len);
        if has_room && order(&self.entries) == Order::Mixed && scratch.try_reserve_exact(len).is_ok() {
            scratch.resize(len, Entry::default());
        }
        sort(&mut self.entries, &mut scratch);
    }

    /// Writes the entries in memory from `from` on, which are sorted. Guarded.
    pub fn write_run(&mut self, from: usize) -> Result<()> {
        let entries = self.entries.get(from..).unwrap_or_default();
        self.runs.write(as_bytes(entries), entries.len() as u64)
    }

    fn hand_over(&mut self) -> Result<()> {
        if self.given_up {
            self.runs.write(&[], GIVEN_UP)?;
        } else if !self.entries.is_empty() {
            self.sort();
            self.write_run(0)?;
        }
        self.runs.spill()?;
        self.take_entries();
        self.runs.export();
        Ok(())
    }

    /// Takes over the runs of a worker, and counts their entries. None if it could not collect its keys. Guarded.
    pub fn take_over(&mut self, files: &SharedFiles, worker: usize, index: pg_sys::Oid) -> Result<Option<Runs>> {
        let runs = Runs::open(files, &file_name(index, worker), size_of::<Entry<W>>())?;
        if let Some(runs) = &runs {
            self.total += runs.list.iter().map(|run| run.count).sum::<u64>();
        }
        Ok(runs)
    }
}
