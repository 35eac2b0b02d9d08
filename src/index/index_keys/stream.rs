//! Collected keys in order, as tuples for insertion into an index that other sessions use.
//!
//! With them, the rows are not read again, and their keys are not sorted through functions. Only for integer keys.

mod growth;

use std::fmt::Debug;

use pg_bulk_storage::btree::entry::{Entry, Word};
use pg_bulk_storage::btree::key::{KeyShape, MAX_TUPLE};
use pg_bulk_storage::btree::merge::{Merge, Run};
use pgrx::pg_sys;

pub use self::growth::{Growth, border};
use super::build::check_total;
use super::collected::{Collected, Keys as _};
use super::collector::{CollectedForm, Collector};
use super::end::is_behind;
use super::runs::{RunReader, Runs, readers};
use super::sources::Sources;
use crate::error::{Error, Result, out_of_memory};
use crate::index::leaf::IndexEnd;
use crate::server::relation::Relation;

/// Keys in order, for an index that other sessions use. All functions are guarded.
pub trait KeyStream: Debug {
    /// Writes the next tuples, until the room's tuples or bytes are used up. Returns their number. At the end, it is 0,
    /// and files are closed.
    fn next(&mut self, room: &mut Room<'_>) -> Result<usize>;

    /// Writes the next tuple into the room; false at the end. It stays the next one.
    fn peek(&mut self, room: &mut Room<'_>) -> Result<bool>;

    /// Makes leaves from the next keys, for an open B-tree with this end. False if there are too few keys. For a unique
    /// index, leaves contain no equal keys, and no key with a null if nulls are distinct. The room has space for the
    /// tuples of a page and two more.
    fn grow(&mut self, index: Relation<'_>, end: &IndexEnd, room: &mut Room<'_>) -> Result<bool>;

    /// The latest growth.
    fn growth(&mut self) -> &mut Growth;

    /// Takes the keys of the latest growth from the stream, because they are in the index.
    fn take_growth(&mut self);
}

impl Collector {
    /// Are all collected keys greater than those of the index, which is open and has no other writer? Only for integer
    /// keys. Guarded; the files' memory is in the current memory context.
    pub fn is_behind(&mut self, index: Relation<'_>, sources: Sources<'_>) -> Result<bool> {
        match &mut self.form {
            CollectedForm::Narrow(keys) => is_behind(keys, index, sources),
            CollectedForm::Wide(keys) => is_behind(keys, index, sources),
            CollectedForm::Bytes(_) | CollectedForm::Tuples(_) => Ok(false),
        }
    }

    /// Opens the keys of all processes in order. None if they could not be collected, or are not integers. Guarded; the
    /// files' memory is in the current memory context.
    pub fn stream(&mut self, sources: Sources<'_>) -> Result<Option<Box<dyn KeyStream>>> {
        match &mut self.form {
            CollectedForm::Narrow(keys) => open(keys, self.index, sources),
            CollectedForm::Wide(keys) => open(keys, self.index, sources),
            CollectedForm::Bytes(_) | CollectedForm::Tuples(_) => Ok(None),
        }
    }
}

/// A stream of keys of one width.
#[derive(Debug)]
struct Stream<W: Word> {
    shape: KeyShape,
    merge: Merge<Entry<W>, KeyRun<W>>,
    /// Entries that were read, and the number of them that were taken.
    ahead: Vec<Entry<W>>,
    taken: usize,
    /// The latest growth.
    growth: Growth,
    /// The files of workers.
    others: Vec<Runs>,
}

/// Entries of a run in memory that are read at once.
const BLOCK: usize = 4096;

/// The runs of all processes, in memory and in files.
#[derive(Debug)]
enum KeyRun<W: Word> {
    /// Entries, and the range of those that are read.
    Memory(Vec<Entry<W>>, std::ops::Range<usize>),
    File(RunReader<Entry<W>>),
}

impl<W: Word> Run<Entry<W>> for KeyRun<W> {
    type Error = Error;

    fn block(&self) -> &[Entry<W>] {
        match self {
            KeyRun::Memory(entries, range) => entries.get(range.clone()).unwrap_or_default(),
            KeyRun::File(run) => run.block(),
        }
    }

    fn advance(&mut self) -> Result<()> {
        match self {
            KeyRun::Memory(entries, range) => {
                *range = range.end..entries.len().min(range.end + BLOCK);
                if range.start == range.end {
                    *self = KeyRun::Memory(Vec::new(), 0..0);
                }
            }
            KeyRun::File(run) => run.advance()?,
        }
        Ok(())
    }
}

/// Opens the keys of all processes: see [`Collector::stream`].
fn open<W: Word>(
    keys: &mut Collected<Entry<W>>,
    index: pg_sys::Oid,
    sources: Sources<'_>,
) -> Result<Option<Box<dyn KeyStream>>> {
    let mut others = Vec::new();
    if !keys.take_over(sources, index, &mut others)? {
        others.iter_mut().for_each(Runs::close);
        return Ok(None);
    }
    check_total(keys.total, sources)?;
    keys.sort()?;
    let files = readers::<Entry<W>>(std::iter::once(&keys.runs).chain(&others), keys.memory);
    let mut runs: Vec<KeyRun<W>> = files.into_iter().map(KeyRun::File).collect();
    let shape = keys.shape().clone();
    runs.push(KeyRun::Memory(std::mem::take(&mut keys.store).list, 0..0));
    let growth = Growth::new(shape.clone());
    Ok(Some(Box::new(Stream { shape, merge: Merge::new(runs), ahead: Vec::new(), taken: 0, growth, others })))
}

impl<W: Word> KeyStream for Stream<W> {
    fn next(&mut self, room: &mut Room<'_>) -> Result<usize> {
        let (mut count, mut used) = (0, 0);
        while count < room.tuples.len() && used < room.size() {
            if self.taken == self.ahead.len() {
                self.look(1)?;
            }
            let Some(&entry) = self.ahead.get(self.taken) else { break };
            self.taken += 1;
            used += room.write(count, used, &self.shape, entry);
            count += 1;
        }
        if count == 0 {
            self.others.iter_mut().for_each(Runs::close);
        }
        Ok(count)
    }

    fn peek(&mut self, room: &mut Room<'_>) -> Result<bool> {
        let Some(&entry) = self.look(1)?.first() else { return Ok(false) };
        room.write(0, 0, &self.shape, entry);
        Ok(true)
    }

    fn grow(&mut self, index: Relation<'_>, end: &IndexEnd, room: &mut Room<'_>) -> Result<bool> {
        growth::grow(self, index, end, room)
    }

    fn growth(&mut self) -> &mut Growth {
        &mut self.growth
    }

    fn take_growth(&mut self) {
        self.taken = self.growth.count;
    }
}

impl<W: Word> Stream<W> {
    /// Reads the next keys, without taking them; fewer only at the end.
    fn look(&mut self, count: usize) -> Result<&[Entry<W>]> {
        self.ahead.drain(..self.taken.min(self.ahead.len()));
        self.taken = 0;
        while self.ahead.len() < count {
            let entries = self.merge.next()?;
            if entries.is_empty() {
                break;
            }
            self.ahead.try_reserve(entries.len()).map_err(|_| out_of_memory())?;
            self.ahead.extend_from_slice(entries);
        }
        Ok(self.ahead.get(..count).unwrap_or(&self.ahead))
    }
}

/// Memory for tuples.
#[derive(Debug)]
pub struct Room<'b> {
    /// Aligned, with space for the longest tuple behind the bytes that are to be used.
    pub bytes: &'b mut [u8],
    pub tuples: &'b mut [pg_sys::IndexTuple],
}

impl Room<'_> {
    /// The bytes that are to be used.
    fn size(&self) -> usize {
        self.bytes.len().saturating_sub(MAX_TUPLE)
    }

    /// Writes the tuple of a key after `count` tuples and `used` bytes. Returns its length; 0 without room.
    #[inline]
    fn write<W: Word>(&mut self, count: usize, used: usize, shape: &KeyShape, entry: Entry<W>) -> usize {
        let (Some(bytes), Some(tuple)) = (self.bytes.get_mut(used..used + MAX_TUPLE), self.tuples.get_mut(count))
        else {
            return 0;
        };
        *tuple = bytes.as_mut_ptr().cast();
        shape.write_tuple(entry, bytes)
    }
}
