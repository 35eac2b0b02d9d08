//! Collected keys in order, as tuples for insertion into an index that other sessions use.
//!
//! With them, the rows are not read again, and their keys are not sorted through functions. Only for integer keys.

pub mod growth;

use pg_bulk_storage::btree::entry::{Entry, Word};
use pg_bulk_storage::btree::key::{KeyShape, MAX_TUPLE};
use pg_bulk_storage::btree::merge::{Merge, Run};
use pgrx::{pg_guard, pg_sys};

use self::growth::Growth;
use super::build::{all_runs, check_total};
use super::collector::{Collected, Collector, Keys};
use super::runs::{RunReader, Runs};
use super::sources::Sources;
use crate::error::{Error, OrRaise, Result, out_of_memory};

/// A stream of keys.
#[derive(Debug)]
pub enum KeyStream {
    Narrow(Stream<u64>),
    Wide(Stream<u128>),
}

/// A stream of keys of one width.
#[derive(Debug)]
pub struct Stream<W: Word> {
    shape: KeyShape,
    merge: Merge<Entry<W>, KeyRun<W>>,
    /// The latest entries of the merge, valid until its next call; and the number of them that were taken.
    entries: *const [Entry<W>],
    taken: usize,
    /// Entries that were read ahead of these, and the number of them that were taken.
    ahead: Vec<Entry<W>>,
    ahead_taken: usize,
    /// The latest growth.
    growth: Growth,
    /// The files of workers.
    others: Vec<Runs>,
}

/// The runs of all processes, in memory and in files.
#[derive(Debug)]
enum KeyRun<W: Word> {
    Memory { entries: Vec<Entry<W>>, begun: bool },
    File(RunReader<W>),
}

impl<W: Word> Run<Entry<W>> for KeyRun<W> {
    type Error = Error;

    fn block(&self) -> &[Entry<W>] {
        match self {
            KeyRun::Memory { entries, begun: true } => entries,
            KeyRun::Memory { .. } => &[],
            KeyRun::File(run) => run.block(),
        }
    }

    fn advance(&mut self) -> Result<()> {
        match self {
            KeyRun::Memory { begun: begun @ false, .. } => *begun = true,
            KeyRun::Memory { entries, .. } => *entries = Vec::new(),
            KeyRun::File(run) => run.advance()?,
        }
        Ok(())
    }
}

impl KeyStream {
    /// Opens the keys of all processes. None if they could not be collected, or are not integers. Guarded; the files'
    /// memory is in the current memory context.
    pub fn open(collector: &mut Collector, sources: Sources<'_>) -> Result<Option<KeyStream>> {
        let index = collector.index;
        Ok(match &mut collector.keys {
            Keys::Narrow(keys) => Stream::open(keys, index, sources)?.map(KeyStream::Narrow),
            Keys::Wide(keys) => Stream::open(keys, index, sources)?.map(KeyStream::Wide),
            Keys::Bytes(_) | Keys::Tuples(_) => None,
        })
    }
}

impl<W: Word> Stream<W> {
    fn open(keys: &mut Collected<W>, index: pg_sys::Oid, sources: Sources<'_>) -> Result<Option<Stream<W>>> {
        let mut others = Vec::new();
        if keys.given_up || !all_runs(sources, &mut others, |worker, files| keys.take_over(files, worker, index))? {
            others.iter_mut().for_each(Runs::close);
            return Ok(None);
        }
        check_total(keys.total, sources)?;
        keys.sort();
        let files = || std::iter::once(&keys.runs).chain(&others);
        let block = keys.block(files().map(|runs| runs.list.len()).sum());
        let mut runs: Vec<KeyRun<W>> = files().flat_map(|runs| runs.readers(block)).map(KeyRun::File).collect();
        let shape = keys.shape().clone();
        runs.push(KeyRun::Memory { entries: keys.take_entries(), begun: false });
        Ok(Some(Stream {
            shape,
            merge: Merge::new(runs),
            entries: &[],
            taken: 0,
            ahead: Vec::new(),
            ahead_taken: 0,
            growth: Growth::default(),
            others,
        }))
    }

    /// Writes the next tuples, until the room's tuples or bytes are used up. Returns their number, 0 at the end.
    fn next(&mut self, room: &Room) -> Result<usize> {
        let (mut count, mut used) = (0, 0);
        while count < room.most && used < room.size {
            let Some(entry) = self.take()? else { break };
            // SAFETY: after the used bytes there is room for the longest tuple, and for one more pointer.
            used += unsafe { room.write(count, used, &self.shape, entry) };
            count += 1;
        }
        Ok(count)
    }

    /// Takes the next key.
    #[inline]
    fn take(&mut self) -> Result<Option<Entry<W>>> {
        if let Some(entry) = self.ahead.get(self.ahead_taken) {
            self.ahead_taken += 1;
            return Ok(Some(*entry));
        }
        loop {
            // SAFETY: the merge was not called since.
            let entries = unsafe { &*self.entries };
            if let Some(entry) = entries.get(self.taken) {
                self.taken += 1;
                return Ok(Some(*entry));
            }
            let entries = self.merge.next()?;
            (self.entries, self.taken) = (entries, 0);
            if entries.is_empty() {
                return Ok(None);
            }
        }
    }

    /// Reads the next keys ahead, without taking them; fewer only at the end.
    fn look(&mut self, count: usize) -> Result<&[Entry<W>]> {
        self.ahead.drain(..self.ahead_taken.min(self.ahead.len()));
        self.ahead_taken = 0;
        while self.ahead.len() < count {
            // SAFETY: the merge was not called since.
            let entries = unsafe { &*self.entries };
            let rest = entries.get(self.taken..).unwrap_or_default();
            if rest.is_empty() {
                let entries = self.merge.next()?;
                (self.entries, self.taken) = (entries, 0);
                if entries.is_empty() {
                    break;
                }
                continue;
            }
            let some = rest.get(..count - self.ahead.len()).unwrap_or(rest);
            self.ahead.try_reserve(some.len()).map_err(|_| out_of_memory())?;
            self.ahead.extend_from_slice(some);
            self.taken += some.len();
        }
        Ok(self.ahead.get(..count).unwrap_or(&self.ahead))
    }
}

/// Memory for tuples: `size` bytes and a tuple more, and `most` pointers.
#[derive(Debug)]
#[repr(C)]
pub struct Room {
    pub bytes: *mut u8,
    pub size: usize,
    pub tuples: *mut pg_sys::IndexTuple,
    pub most: usize,
}

impl Room {
    /// Writes the tuple of a key after `count` tuples and `used` bytes. Returns its length.
    ///
    /// # Safety
    /// There is room for the tuple.
    #[inline]
    unsafe fn write<W: Word>(&self, count: usize, used: usize, shape: &KeyShape, entry: Entry<W>) -> usize {
        // SAFETY: this function's contract covers the room.
        unsafe {
            let place = self.bytes.add(used);
            *self.tuples.add(count) = place.cast();
            shape.write_tuple(entry, std::slice::from_raw_parts_mut(place, MAX_TUPLE))
        }
    }
}

/// Writes the next tuples: see [`Stream::next`]. At the end, files are closed.
///
/// # Safety
/// No other reference to the stream is in use; the room's fields are true.
#[pg_guard]
pub unsafe extern "C-unwind" fn next_tuples(stream: *mut KeyStream, room: *const Room) -> usize {
    // SAFETY: this function's contract covers both arguments.
    unsafe {
        let (count, others) = match &mut *stream {
            KeyStream::Narrow(keys) => (keys.next(&*room).or_raise(), &mut keys.others),
            KeyStream::Wide(keys) => (keys.next(&*room).or_raise(), &mut keys.others),
        };
        if count == 0 {
            others.iter_mut().for_each(Runs::close);
        }
        count
    }
}
