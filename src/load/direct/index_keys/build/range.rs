//! The part of an index between two keys, built by one of several processes.
//!
//! Keys are divided where they are looked at by whoever divides them ([`bounds`]): samples of all runs, each of which stands
//! for as many entries as lie between two of them. Equal keys are never divided, so that what is to be known of them, that
//! they are the same in a unique index or share a posting list, is known to one process.
//!
//! An index that has entries is divided at its own leaves, because each process has to find where to begin. Where a key has
//! many rows, only some leaves will do; what is far behind one of these is in the same range.
//!
//! The tricky point is what only the leader can do: of two equal keys of a unique index, find out whether that is an error,
//! and say so. A range that has them is given up, and with it all others; the leader builds the index alone then.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use pg_bulk_format::btree::build::{BlockSource, Builder, Options, Part};
use pg_bulk_format::btree::entry::{Entry, Tid, Word};
use pg_bulk_format::btree::key::KeyShape;
use pg_bulk_format::btree::merge::{Merge, Run, Slice};
use pg_bulk_format::btree::sort::is_ascending;
use pg_bulk_format::btree::unique::Unique;
use pgrx::PgSqlErrorCode as Code;

use super::{Source, failed, feed, seen_of};
use crate::error::{Error, Result};
use crate::load::direct::index_keys::leaves::{LeafReader, Leaves};
use crate::load::direct::index_keys::runs::Runs;
use crate::pg::index_file::{BATCH, IndexFile};

/// Of the index one in so many is left over at most: each process leaves a part of its last extent.
const LEFT_OVER: u64 = 64;
/// Samples of each run, and of the index that is there; and how many of these may be of no use between two others for a range to
/// begin there: it reads what lies between for nothing.
const SAMPLES: u32 = 64;
const FAR: u32 = 4;

/// Where a range begins: with this key, in the index that is there on this leaf.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Bound {
    key: [u64; 2],
    leaf: u32,
}

impl Bound {
    fn new<W: Word>(key: W, leaf: u32) -> Bound {
        let key = key.to_u128();
        Bound { key: [key as u64, (key >> 64) as u64], leaf }
    }

    /// The least key of the range.
    pub fn key<W: Word>(&self) -> W {
        W::from_u128(u128::from(self.key[1]) << 64 | u128::from(self.key[0]))
    }
}

/// A key, and for how many entries it stands.
struct Sample<W: Word> {
    key: W,
    /// Of the index that is there, which sample it is, and the leaf.
    leaf: Option<(u32, u32)>,
    weight: f64,
}

/// Where to divide the entries of memory, runs, and an index with so many, into as many ranges. There may be fewer bounds
/// than were asked for, where keys are equal. Guarded.
pub fn bounds<W: Word>(
    shape: &KeyShape,
    memory: &[Entry<W>],
    runs: &[&Runs],
    old: Option<(&Leaves, f64)>,
    ranges: usize,
) -> Result<Vec<Bound>> {
    let mut samples: Vec<Sample<W>> = Vec::new();
    let every = |count: u64| (0..SAMPLES).map(move |i| (u64::from(i) * 2 + 1) * count / u64::from(2 * SAMPLES));
    for number in every(memory.len() as u64) {
        let weight = memory.len() as f64 / f64::from(SAMPLES);
        let entry = usize::try_from(number).ok().and_then(|number| memory.get(number));
        samples.extend(entry.map(|entry| Sample { key: entry.key(), leaf: None, weight }));
    }
    for runs in runs {
        for run in &runs.list {
            for number in every(run.count).filter(|&number| number < run.count) {
                let (key, weight) = (runs.key::<W>(run, number)?, run.count as f64 / f64::from(SAMPLES));
                samples.push(Sample { key, leaf: None, weight });
            }
        }
    }
    if let Some((leaves, entries)) = old {
        for i in 0..SAMPLES {
            let weight = entries / f64::from(SAMPLES);
            let place = leaves.divide::<W>(shape, (f64::from(i) + 0.5) / f64::from(SAMPLES));
            samples.extend(place.map(|(leaf, key)| Sample { key, leaf: Some((i, leaf)), weight }));
        }
        // Of few keys, each of which has many rows, one process makes posting lists faster than several look for their place.
        if samples.iter().filter(|sample| sample.leaf.is_some()).count() < SAMPLES as usize / 2 {
            return Ok(Vec::new());
        }
        // Keys behind all of its own need not be looked for elsewhere.
        let last = leaves.divide::<W>(shape, 1.0);
        samples.extend(last.map(|(leaf, key)| Sample { key, leaf: Some((SAMPLES, leaf)), weight: 0.0 }));
    }
    samples.sort_by_key(|sample| sample.key);
    let total: f64 = samples.iter().map(|sample| sample.weight).sum();
    let (mut bounds, mut before): (Vec<Bound>, f64) = (Vec::new(), 0.0);
    let mut latest = samples.first().map(|sample| sample.key);
    // All that is there before this leaf is less than what comes now.
    let mut leaf = if old.is_some() { None } else { Some((SAMPLES, 0)) };
    let mut leaves = samples.iter().filter_map(|sample| sample.leaf).peekable();
    for sample in &samples {
        if sample.leaf.is_some() {
            leaf = leaves.next();
        }
        let next = leaves.peek().map_or(SAMPLES, |(number, _)| *number);
        let near = leaf.filter(|(number, _)| sample.leaf.is_some() || next.saturating_sub(*number) <= FAR);
        let wanted = total * (bounds.len() + 1) as f64 / ranges as f64;
        if let Some((_, leaf)) = near
            && before >= wanted
            && bounds.len() + 1 < ranges
            && latest.is_none_or(|key| key < sample.key)
        {
            bounds.push(Bound::new(sample.key, leaf));
            latest = Some(sample.key);
        }
        before += sample.weight;
    }
    Ok(bounds)
}

/// Blocks that each of so many processes takes at once, for an index of about so many: a write, if that does not leave too many.
pub fn extent_size(pages: u64, processes: usize) -> u32 {
    (pages / LEFT_OVER / processes.max(1) as u64).clamp(1, BATCH as u64) as u32
}

/// Blocks for a process: extents, of which each process takes the next one.
#[derive(Debug, Clone)]
pub struct Extents(Rc<Held>);

#[derive(Debug)]
struct Held {
    next: Cell<u32>,
    end: Cell<u32>,
    /// The next extent of all, and how large each is.
    extent: *const AtomicU32,
    size: u32,
}

impl Extents {
    /// # Safety
    /// The number of the next extent, which is there as long as blocks are asked for.
    pub unsafe fn new(extent: *const AtomicU32, size: u32) -> Extents {
        Extents(Rc::new(Held { next: Cell::new(0), end: Cell::new(0), extent, size }))
    }

    /// Blocks that were taken, but not used.
    pub fn left(&self) -> std::ops::Range<u32> {
        self.0.next.get()..self.0.end.get()
    }
}

impl BlockSource for Extents {
    fn next(&mut self) -> Option<u32> {
        let Held { next, end, extent, size } = &*self.0;
        while next.get() >= end.get() {
            // SAFETY: the promise of `new`.
            let start = unsafe { &**extent }.fetch_add(1, Relaxed).checked_mul(*size)?;
            end.set(start.checked_add(*size).filter(|&end| end < u32::MAX)?);
            // The first block is the metapage's.
            next.set(start.max(1));
        }
        let block = next.get();
        next.set(block + 1);
        Some(block)
    }
}

/// Entries of the index that is there, as far as their keys are in a range.
///
/// Whoever reads all of them sees if they are in order. Of those that are passed over nobody would, so it is looked at here; and
/// where one range ends the next one has to begin ([`Seen`]).
pub struct Between<W: Word> {
    reader: LeafReader<KeyShape, Entry<W>>,
    from: Option<W>,
    to: Option<W>,
    /// The part of the reader's block that counts, and whether all behind it does not.
    start: usize,
    end: usize,
    is_over: bool,
    latest: Option<Entry<W>>,
    seen: Seen<W>,
}

/// What a range has seen of the index that is there.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen<W: Word> {
    /// Entries that are in the range.
    pub count: u64,
    /// The first entry that is not before it, and the first one behind it.
    pub first: Option<Entry<W>>,
    pub next: Option<Entry<W>>,
}

impl<W: Word> Between<W> {
    pub fn new(reader: LeafReader<KeyShape, Entry<W>>, from: Option<W>, to: Option<W>) -> Between<W> {
        Between { reader, from, to, start: 0, end: 0, is_over: false, latest: None, seen: Seen::default() }
    }

    pub fn seen(&self) -> Seen<W> {
        self.seen
    }
}

impl<W: Word> Run<W> for Between<W> {
    type Error = Error;

    fn block(&self) -> &[Entry<W>] {
        self.reader.block().get(self.start..self.end).unwrap_or_default()
    }

    fn advance(&mut self) -> Result<()> {
        (self.start, self.end) = (0, 0);
        while self.start == self.end && !self.is_over {
            self.reader.advance()?;
            let block = self.reader.block();
            self.is_over = block.is_empty();
            let follows = match (self.latest, block.first()) {
                (Some(latest), Some(first)) => latest.before(*first),
                _ => true,
            };
            let passes_over = self.from.is_some() || self.to.is_some();
            if passes_over && (!follows || !is_ascending(block)) {
                self.reader.unfit().set(true);
                return Err(Error::new(Code::ERRCODE_INDEX_CORRUPTED, "keys of an index are not in order"));
            }
            self.latest = block.last().copied().or(self.latest);
            let less_than = |key: Option<W>| key.map(|key| block.partition_point(|entry| entry.key() < key));
            self.start = less_than(self.from).unwrap_or(0);
            self.end = less_than(self.to).unwrap_or(block.len()).max(self.start);
            self.is_over |= self.end < block.len();
            self.seen.count += (self.end - self.start) as u64;
            self.seen.first = self.seen.first.or_else(|| block.get(self.start).copied());
            self.seen.next = block.get(self.end).copied();
        }
        Ok(())
    }
}

/// A range that was built.
pub struct Piece<W: Word> {
    pub range: usize,
    pub part: Part,
    pub seen: Seen<W>,
}

/// What all ranges of an index have in common.
pub struct Ranges<'a, W: Word> {
    pub shape: &'a KeyShape,
    pub options: Options,
    /// Unique, and then whether nulls are equal.
    pub unique: Option<bool>,
    /// The runs of all processes, and how many entries of each are read at once.
    pub runs: Vec<&'a Runs>,
    pub block: usize,
    /// Of what the leader has in memory, what is before the first bound.
    pub memory: &'a [Entry<W>],
    pub old: Option<Leaves>,
    /// Rows are the load's from this block on.
    pub start: u32,
    pub bounds: &'a [Bound],
    /// Set when somebody has given up.
    pub over: &'a AtomicU32,
}

impl<W: Word> Ranges<'_, W> {
    /// Build one of them. None if it was given up. Guarded, and interruptible.
    pub fn build(&self, range: usize, file: &mut IndexFile, blocks: &Extents) -> Result<Option<Piece<W>>> {
        let before = range.checked_sub(1).and_then(|range| self.bounds.get(range));
        let (from, to) = (before.map(Bound::key::<W>), self.bounds.get(range).map(Bound::key::<W>));
        let mut sources: Vec<Source<'_, W>> = Vec::new();
        if before.is_none() {
            sources.push(Source::Memory(Slice::new(self.memory)));
        }
        for runs in &self.runs {
            sources.extend(runs.between(from, to, self.block)?.into_iter().map(Source::File));
        }
        let mut unfit = None;
        if let Some(old) = self.old {
            let old = before.map_or(old, |bound| old.from(bound.leaf));
            let reader = old.reader(self.shape.clone(), Rc::default());
            unfit = Some(reader.unfit());
            sources.push(Source::Old(Between::new(reader, from, to)));
        }
        let mut merge = Merge::new(sources);
        let mut builder = Builder::part(self.shape, self.options, Box::new(blocks.clone()));
        let mut unique = self.unique.map(|nulls_equal| Unique::new(self.shape, nulls_equal));
        let over = || self.over.load(Relaxed) != 0;
        let mut duplicate = |_: W, rows: &mut Vec<Tid>, row: Tid| {
            // One of them is dead, at least.
            if row.block() < self.start && rows.iter().all(|row| row.block() < self.start) {
                rows.push(row);
                return Ok(());
            }
            self.over.store(1, Relaxed);
            Err(Error::new(Code::ERRCODE_UNIQUE_VIOLATION, "found a duplicate key"))
        };
        let fed = feed(&mut merge, &mut unique, &mut duplicate, &mut builder, file, &unfit, over);
        let part = fed.and_then(|()| builder.finish_part(file).map_err(|error| failed(error, &unfit)));
        match part {
            Err(_) if unfit.is_some_and(|unfit| unfit.get()) => self.over.store(1, Relaxed),
            Err(_) if over() => (),
            part => {
                let seen = seen_of(merge.runs());
                return part.map(|part| (!over()).then_some(Piece { range, part, seen }));
            }
        }
        Ok(None)
    }
}
