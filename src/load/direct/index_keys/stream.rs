//! Keys that were collected, in order, as tuples that can be inserted into an index that others use.
//!
//! The rows need not be read again then, nor their keys be sorted by functions. Only keys that are integers come this way.

use pg_bulk_format::btree::entry::{Entry, Word};
use pg_bulk_format::btree::key::{KeyShape, MAX_TUPLE};
use pg_bulk_format::btree::merge::{Merge, Run};
use pgrx::{pg_guard, pg_sys};

use super::build::{all_runs, check_total};
use super::collector::{Collected, Collector, Keys};
use super::growth::Growth;
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
    pub(super) shape: KeyShape,
    merge: Merge<W, Source<W>>,
    /// What the merge has handed out last, valid until it is asked again; and how many of these were taken.
    entries: *const [Entry<W>],
    taken: usize,
    /// What was looked at and comes before these; so many of them were taken.
    ahead: Vec<Entry<W>>,
    pub(super) ahead_taken: usize,
    /// The latest growth.
    pub(super) growth: Growth,
    /// The files of workers.
    others: Vec<Runs>,
}

/// The runs of all, in memory and in files.
#[derive(Debug)]
enum Source<W: Word> {
    Memory { entries: Vec<Entry<W>>, begun: bool },
    File(RunReader<W>),
}

impl<W: Word> Run<W> for Source<W> {
    type Error = Error;

    fn block(&self) -> &[Entry<W>] {
        match self {
            Source::Memory { entries, begun: true } => entries,
            Source::Memory { .. } => &[],
            Source::File(run) => run.block(),
        }
    }

    fn advance(&mut self) -> Result<()> {
        match self {
            Source::Memory { begun: begun @ false, .. } => *begun = true,
            Source::Memory { entries, .. } => *entries = Vec::new(),
            Source::File(run) => run.advance()?,
        }
        Ok(())
    }
}

impl KeyStream {
    /// The keys of all processes. None if they could not be collected, or are not integers. Guarded; files' memory is of the
    /// current memory context.
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
        let mut runs: Vec<Source<W>> = files().flat_map(|runs| runs.readers(block)).map(Source::File).collect();
        let shape = keys.shape().clone();
        runs.push(Source::Memory { entries: keys.take_entries(), begun: false });
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

    /// Write the next tuples, one behind the other, until there are so many, or so many bytes are used. Returns how many there
    /// are; none at the end.
    fn next(&mut self, room: &Room) -> Result<usize> {
        let (mut count, mut used) = (0, 0);
        while count < room.most && used < room.size {
            let Some(entry) = self.take()? else { break };
            // SAFETY: behind what is used there is room for a tuple of the longest kind, and for one more pointer.
            used += unsafe { room.write(count, used, &self.shape, entry) };
            count += 1;
        }
        Ok(count)
    }

    /// The next key.
    #[inline]
    fn take(&mut self) -> Result<Option<Entry<W>>> {
        if let Some(entry) = self.ahead.get(self.ahead_taken) {
            self.ahead_taken += 1;
            return Ok(Some(*entry));
        }
        loop {
            // SAFETY: the merge was not asked since.
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

    /// The next keys, which stay the next ones; fewer at the end only.
    pub(super) fn look(&mut self, count: usize) -> Result<&[Entry<W>]> {
        self.ahead.drain(..self.ahead_taken.min(self.ahead.len()));
        self.ahead_taken = 0;
        while self.ahead.len() < count {
            // SAFETY: the merge was not asked since.
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

/// Where tuples go: bytes, more than `size` by a tuple, and their places, `most` of them.
#[derive(Debug)]
#[repr(C)]
pub struct Room {
    pub bytes: *mut u8,
    pub size: usize,
    pub tuples: *mut pg_sys::IndexTuple,
    pub most: usize,
}

impl Room {
    /// Write the tuple of a key behind so many, and so many bytes. Returns its bytes.
    ///
    /// # Safety
    /// There is room for it.
    #[inline]
    pub(super) unsafe fn write<W: Word>(&self, count: usize, used: usize, shape: &KeyShape, entry: Entry<W>) -> usize {
        // SAFETY: this function's contract covers the room.
        unsafe {
            let place = self.bytes.add(used);
            *self.tuples.add(count) = place.cast();
            shape.write_tuple(entry, std::slice::from_raw_parts_mut(place, MAX_TUPLE))
        }
    }
}

/// [`Stream::next`]. At the end, files are closed.
///
/// # Safety
/// A stream that nobody else uses, and room as it says.
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
