//! Collects keys from heap tuples, in memory.
//!
//! A [`KeyStore`] has the keys, within a memory limit, and makes sorted runs of them. Its caller writes a run to a file
//! when there is no room for more keys. As long as integer keys come in order they are packed ([`packed`]), so small that
//! mostly no file is needed.

use std::convert::Infallible;
use std::fmt::Debug;

use super::build::BuildFamily;
use super::entry::{Entry, Tid, Word};
use super::key::{KeyShape, KeyValue};
use super::merge::{Run, Slice};
use super::packed;
use super::read::KeyReader;
use super::sort::{Order, few, is_ascending, mend, order, sort};
use crate::page::{MAX_TUPLES, PAGE_SIZE};

/// Least number of entries that there is room for.
const FEWEST: usize = 4096;

/// Memory is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

/// A family whose keys are collected.
pub trait CollectedFamily: BuildFamily {
    /// Reads keys from heap tuples.
    type Reader: Debug;
    /// The keys in memory.
    type Store: KeyStore<Self>;

    /// The shape of the keys.
    fn shape(reader: &Self::Reader) -> &Self::Shape;

    /// Adds the keys of a heap page, for which room was made, and returns their number. `None` if a row has no key: the
    /// store must not be used any more then.
    fn add_page(reader: &Self::Reader, page: &[u8; PAGE_SIZE], block: u32, store: &mut Self::Store) -> Option<usize>;

    /// Adds the key of a row, for which room was made. False if it has none: the store must not be used any more then.
    fn add_tuple(reader: &Self::Reader, tuple: &[u8], tid: Tid, store: &mut Self::Store) -> bool;

    /// Passes the columns of a key to `take`, in order.
    fn decode(shape: &Self::Shape, key: Self::Key<'_>, take: &mut dyn FnMut(usize, Value<'_>));
}

/// The value of a column of a key.
#[derive(Clone, Copy, Debug)]
pub enum Value<'v> {
    /// NULL
    Null,
    /// The datum of a by-value type.
    Datum(u64),
    /// The stored bytes, of a varlena those after its header.
    Bytes(&'v [u8]),
}

/// The result of [`KeyStore::make_room`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// There is room.
    Made,
    /// There is room after the packed keys have left the memory.
    WithoutPacked,
    /// There is room after the store's run has left it.
    WithoutRun,
}

/// Keys in memory.
pub trait KeyStore<F: CollectedFamily>: Debug + Default {
    /// Reads a run.
    type Run<'s>: Run<F, Error = Infallible>
    where
        Self: 's;

    /// Makes room for the keys of a page. `packed`: bytes of packed keys in memory.
    ///
    /// # Errors
    /// Memory is exhausted.
    fn room_for_page(&mut self, shape: &F::Shape, packed: usize) -> Result<Room, NoMemory>;

    /// Moves keys that came in order, and follow those packed before, into packed blocks of this many keys. Returns their
    /// number.
    ///
    /// # Errors
    /// Memory is exhausted.
    fn pack(&mut self, _block: usize, _least: usize, _to: &mut Vec<u8>) -> Result<u64, NoMemory> {
        Ok(0)
    }

    /// Whether packed keys of this size should leave the memory.
    fn is_crowded_by(&self, _packed: usize) -> bool {
        false
    }

    /// Number of keys.
    fn count(&self) -> usize;

    /// Bytes that the keys take, or will take when they are sorted and read.
    fn memory(&self) -> usize;

    /// Makes a run of all keys, unless it has them already. If there is no memory to sort them all, makes it of the first
    /// ones. `packed` as for [`Self::room_for_page`].
    ///
    /// # Errors
    /// Memory is exhausted.
    fn sort(&mut self, packed: usize) -> Result<(), NoMemory>;

    /// Returns the run.
    fn run(&self) -> Self::Run<'_>;

    /// Number of keys of the run, and their bytes.
    fn run_size(&self) -> (usize, usize);

    /// Removes the run. Other keys stay, for a later run.
    fn remove_run(&mut self);
}

impl<W: Word> CollectedFamily for Entry<W> {
    type Reader = KeyReader;
    type Store = Entries<W>;

    fn shape(reader: &KeyReader) -> &KeyShape {
        reader.shape()
    }

    fn add_page(reader: &KeyReader, page: &[u8; PAGE_SIZE], block: u32, store: &mut Entries<W>) -> Option<usize> {
        reader.read_page(page, block, &mut store.list)
    }

    fn add_tuple(reader: &KeyReader, tuple: &[u8], tid: Tid, store: &mut Entries<W>) -> bool {
        let key = reader.read(tuple);
        store.list.extend(key.map(|key| Entry::new(key, tid)));
        key.is_some()
    }

    fn decode(shape: &KeyShape, key: W, take: &mut dyn FnMut(usize, Value<'_>)) {
        for column in 0..shape.len() {
            match shape.decode(key, column) {
                KeyValue::Null => take(column, Value::Null),
                KeyValue::Datum(datum) => take(column, Value::Datum(datum)),
                KeyValue::Uuid(bytes) => take(column, Value::Bytes(&bytes)),
            }
        }
    }
}

/// Entries in memory.
#[derive(Debug)]
pub struct Entries<W: Word> {
    /// The entries.
    pub list: Vec<Entry<W>>,
    /// Entries that fit into memory, with as much again to sort them.
    most: usize,
    /// Number of entries from the first one on that are known to be in order; `None` if some are not.
    in_order: Option<usize>,
    /// All entries so far came in order, so they are packed; and the last packed entry.
    packs: bool,
    latest: Option<Entry<W>>,
}

/// An empty store with the least memory, for keys that are not packed.
impl<W: Word> Default for Entries<W> {
    fn default() -> Self {
        Self::new(0, false)
    }
}

impl<W: Word> Entries<W> {
    /// Creates an empty store with a memory limit in bytes. `packs`: entries in order may be packed.
    #[must_use]
    pub fn new(memory: usize, packs: bool) -> Self {
        let most = (memory / size_of::<Entry<W>>() / 2).max(FEWEST);
        Self { list: Vec::new(), most, in_order: Some(0), packs, latest: None }
    }

    /// Whether there is memory for this number of entries, beside packed ones.
    fn is_within(&self, entries: usize, packed: usize) -> bool {
        entries + packed.div_ceil(size_of::<Entry<W>>()) <= self.most * 2
    }

    /// Whether the entries are in order. Checks only those that are not known to be.
    fn are_in_order(&mut self) -> bool {
        let Some(known) = self.in_order else { return false };
        let news = self.list.get(known.min(self.list.len()).saturating_sub(1)..);
        self.in_order = news.is_some_and(is_ascending).then_some(self.list.len());
        self.in_order.is_some()
    }

    fn put_in_order(&mut self, packed: usize) {
        let mut scratch: Vec<Entry<W>> = Vec::new();
        let len = self.list.len();
        // With little memory, there is room for a few.
        if order(&self.list) == Order::Mixed && scratch.try_reserve_exact(few(len)).is_ok() {
            scratch.resize(few(len), Entry::default());
            if mend(&mut self.list, &mut scratch) {
                return;
            }
        }
        let has_room = len <= self.most && self.is_within(self.list.capacity().min(self.most) + len, packed);
        if has_room && order(&self.list) == Order::Mixed && scratch.try_reserve_exact(len).is_ok() {
            scratch.resize(len, Entry::default());
        }
        sort(&mut self.list, &mut scratch);
    }
}

impl<W: Word> KeyStore<Entry<W>> for Entries<W> {
    type Run<'s> = Slice<'s, Entry<W>>;

    fn room_for_page(&mut self, _: &KeyShape, packed: usize) -> Result<Room, NoMemory> {
        let (len, capacity) = (self.list.len(), self.list.capacity());
        let needed = len + MAX_TUPLES;
        if needed <= capacity {
            return Ok(Room::Made);
        }
        // Entries in order need no second array for sorting.
        let is_in_order = self.are_in_order();
        let most = if is_in_order { self.most * 2 } else { self.most };
        if needed > most {
            return Ok(Room::WithoutRun);
        }
        let wanted = (capacity * 2).clamp(FEWEST, most).max(needed);
        if packed > 0 && !self.is_within(if is_in_order { wanted } else { wanted * 2 }, packed) {
            return Ok(Room::WithoutPacked);
        }
        self.list.try_reserve_exact(wanted - len).map_err(|_| NoMemory)?;
        Ok(Room::Made)
    }

    fn pack(&mut self, block: usize, least: usize, to: &mut Vec<u8>) -> Result<u64, NoMemory> {
        // This reads the entries while they are in the processor's cache.
        if !self.are_in_order() || !self.packs || self.list.len() < least {
            return Ok(0);
        }
        self.packs = self.latest.zip(self.list.first()).is_none_or(|(latest, first)| latest.before(*first));
        let mut count = 0;
        for entries in self.list.chunks_exact(block) {
            self.packs = self.packs && packed::pack(entries, to).map_err(|_| NoMemory)?;
            if !self.packs {
                break;
            }
            count += entries.len();
            self.latest = entries.last().copied();
        }
        self.list.drain(..count);
        self.in_order = Some(self.list.len());
        Ok(count as u64)
    }

    fn is_crowded_by(&self, packed: usize) -> bool {
        // The limit is the memory for sorting, which entries in order do not need.
        packed > self.most * size_of::<Entry<W>>() || !self.is_within(self.list.capacity(), packed)
    }

    fn count(&self) -> usize {
        self.list.len()
    }

    fn memory(&self) -> usize {
        self.list.capacity() * size_of::<Entry<W>>()
    }

    fn sort(&mut self, packed: usize) -> Result<(), NoMemory> {
        if !self.are_in_order() {
            self.put_in_order(packed);
            self.in_order = Some(self.list.len());
        }
        debug_assert!(is_ascending(&self.list), "sorted keys are not in order");
        Ok(())
    }

    fn run(&self) -> Self::Run<'_> {
        Slice::new(&self.list)
    }

    fn run_size(&self) -> (usize, usize) {
        (self.list.len(), size_of_val(self.list.as_slice()))
    }

    fn remove_run(&mut self) {
        self.list.clear();
        self.in_order = Some(0);
    }
}
