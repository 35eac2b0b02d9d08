//! Builds the part of an index between two keys, in one of several processes.
//!
//! Keys are divided by samples of all runs ([`bounds`]). Each sample counts for the entries between two samples. Equal
//! keys are never divided, so one process sees all of them: for a unique index's check, or to make their posting list.
//!
//! An old index is divided at its own leaves, because each process must find its first leaf. If a key has many rows,
//! only some leaves are suitable, and no range begins far behind a suitable leaf.
//!
//! The tricky point is a step that only the leader can do: to decide whether two equal keys of a unique index are an
//! error, and raise it. A range with such keys is given up, together with all other ranges, and the leader builds the
//! index alone.

use std::cell::Cell;
use std::fmt::Debug;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};

use pg_bulk_storage::btree::build::{BlockSource, Builder, Options, TreePart};
use pg_bulk_storage::btree::entry::{Entry, Tid, Word};
use pg_bulk_storage::btree::key::KeyShape;
use pg_bulk_storage::btree::merge::{Merge, Run, Slice};
use pg_bulk_storage::btree::sort::is_ascending;
use pg_bulk_storage::btree::unique::Unique;
use pgrx::PgSqlErrorCode as Code;

use super::{KeyRun, failed, feed};
use crate::error::{Error, Result};
use crate::index::index_file::{BATCH, IndexFile};
use crate::index::index_keys::leaves::{LeafReader, Leaves};
use crate::index::index_keys::runs::Runs;
use crate::server::team::SharedRef;

/// Divisor: at most this part of the index is left unused, since each process leaves a part of its last extent.
const LEFT_OVER: u64 = 64;
/// Samples of each run and of the old index.
///
/// `FAR`: how many samples may lie between a suitable leaf and the beginning of a range, which reads the entries
/// between them in vain.
const SAMPLES: u32 = 64;
const FAR: u32 = 4;

/// Beginning of a range: its least key, and its first leaf in the old index.
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

/// A key, and the number of entries that it counts for.
struct Sample<W: Word> {
    key: W,
    /// In the old index, the number of the sample, and the leaf.
    leaf: Option<(u32, u32)>,
    weight: f64,
}

/// Divides the entries of memory, runs and old index into `ranges` ranges. Fewer, if many keys are equal. Guarded.
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
        // If a few keys have many rows each, one process makes their posting lists faster than several find their
        // leaves.
        if samples.iter().filter(|sample| sample.leaf.is_some()).count() < SAMPLES as usize / 2 {
            return Ok(Vec::new());
        }
        // Keys after the old index's last key need no old leaf.
        let last = leaves.divide::<W>(shape, 1.0);
        samples.extend(last.map(|(leaf, key)| Sample { key, leaf: Some((SAMPLES, leaf)), weight: 0.0 }));
    }
    samples.sort_by_key(|sample| sample.key);
    let total: f64 = samples.iter().map(|sample| sample.weight).sum();
    let (mut bounds, mut before): (Vec<Bound>, f64) = (Vec::new(), 0.0);
    let mut latest = samples.first().map(|sample| sample.key);
    // All old entries before this leaf are less than the current sample's key.
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

/// Blocks that each process takes at once, for an index of about `pages` pages: one write, unless too many would stay
/// unused.
pub fn extent_size(pages: u64, processes: usize) -> u32 {
    (pages / LEFT_OVER / processes.max(1) as u64).clamp(1, BATCH as u64) as u32
}

/// Blocks for a process: extents, each taken from a counter, which processes may share.
#[derive(Debug)]
pub struct Extents<C>(Rc<ExtentState<C>>);

#[derive(Debug)]
struct ExtentState<C> {
    next: Cell<u32>,
    end: Cell<u32>,
    /// The counter of extents, and their size.
    extent: C,
    size: u32,
}

impl<C> Clone for Extents<C> {
    fn clone(&self) -> Extents<C> {
        Extents(Rc::clone(&self.0))
    }
}

impl<C: Deref<Target = AtomicU32>> Extents<C> {
    pub fn new(extent: C, size: u32) -> Extents<C> {
        Extents(Rc::new(ExtentState { next: Cell::new(0), end: Cell::new(0), extent, size }))
    }

    /// Blocks that were taken but not used.
    pub fn left(&self) -> std::ops::Range<u32> {
        self.0.next.get()..self.0.end.get()
    }
}

impl<C: Deref<Target = AtomicU32> + Debug> BlockSource for Extents<C> {
    fn next(&mut self) -> Option<u32> {
        let ExtentState { next, end, extent, size } = &*self.0;
        while next.get() >= end.get() {
            let start = extent.fetch_add(1, Relaxed).checked_mul(*size)?;
            end.set(start.checked_add(*size).filter(|&end| end < u32::MAX)?);
            // The first block is the metapage's.
            next.set(start.max(1));
        }
        let block = next.get();
        next.set(block + 1);
        Some(block)
    }
}

/// Entries of the old index whose keys are in a range.
///
/// A merge checks the order of the entries that it reads. Entries that a range skips are checked here. The leader
/// checks that each range begins where the range before it ends ([`Seen`]).
pub struct Between<W: Word> {
    reader: LeafReader<Entry<W>>,
    from: Option<W>,
    to: Option<W>,
    /// Entries `start` to `end` of the reader's block are in the range.
    start: usize,
    end: usize,
    /// The end of the range was reached.
    is_over: bool,
    latest: Option<Entry<W>>,
    seen: Seen<W>,
}

/// Entries of the old index that a range has read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen<W: Word> {
    /// Number of entries in the range.
    pub count: u64,
    /// The first entry in or after the range, and the first entry after it.
    pub first: Option<Entry<W>>,
    pub next: Option<Entry<W>>,
}

impl<W: Word> Between<W> {
    pub fn new(reader: LeafReader<Entry<W>>, from: Option<W>, to: Option<W>) -> Between<W> {
        Between { reader, from, to, start: 0, end: 0, is_over: false, latest: None, seen: Seen::default() }
    }
}

impl<W: Word> Run<Entry<W>> for Between<W> {
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
pub struct BuiltRange<W: Word> {
    pub range: usize,
    pub part: TreePart,
    pub seen: Seen<W>,
}

/// The parameters of all ranges of an index.
#[derive(Clone, Copy)]
pub struct RangePlan {
    pub options: Options,
    /// None for an index that is not unique; else whether nulls are equal.
    pub unique: Option<bool>,
    /// Bytes of each run that are read at once.
    pub block: usize,
    pub old: Option<Leaves>,
    /// First block of the load's rows.
    pub start: u32,
}

/// The ranges of an index, as a process sees them.
pub struct Ranges<'a, W: Word> {
    pub plan: RangePlan,
    pub shape: &'a KeyShape,
    /// The runs of all processes.
    pub runs: Vec<&'a Runs>,
    /// The leader's entries in memory that are before the first bound.
    pub memory: &'a [Entry<W>],
    pub bounds: &'a [Bound],
    /// Set when a process has given up.
    pub over: &'a AtomicBool,
}

impl<W: Word> Ranges<'_, W> {
    /// Builds one range. None if it was given up. Guarded, and interruptible.
    pub fn build(
        &self,
        range: usize,
        file: &mut IndexFile<'_>,
        blocks: &Extents<SharedRef<AtomicU32>>,
    ) -> Result<Option<BuiltRange<W>>> {
        let before = range.checked_sub(1).and_then(|range| self.bounds.get(range));
        let (from, to) = (before.map(Bound::key::<W>), self.bounds.get(range).map(Bound::key::<W>));
        let mut sources = Vec::new();
        if before.is_none() {
            sources.push(KeyRun::Memory(Slice::new(self.memory)));
        }
        for runs in &self.runs {
            sources.extend(runs.between(from, to, self.plan.block)?.into_iter().map(KeyRun::File));
        }
        let mut unfit = None;
        if let Some(old) = self.plan.old {
            let old = before.map_or(old, |bound| old.from(bound.leaf));
            let reader = old.reader(self.shape.clone(), Rc::default());
            unfit = Some(reader.unfit());
            sources.push(KeyRun::Old(Between::new(reader, from, to)));
        }
        let mut merge = Merge::new(sources);
        let mut builder = Builder::part(self.shape, self.plan.options, Box::new(blocks.clone()));
        let mut unique = self.plan.unique.map(|nulls_equal| Unique::new(self.shape, nulls_equal));
        let over = || self.over.load(Relaxed);
        let mut duplicate = |_: W, rows: &mut Vec<Tid>, row: Tid| {
            // At least one of the two old rows is dead.
            if row.block() < self.plan.start && rows.iter().all(|row| row.block() < self.plan.start) {
                rows.push(row);
                return Ok(());
            }
            self.over.store(true, Relaxed);
            Err(Error::new(Code::ERRCODE_UNIQUE_VIOLATION, "found a duplicate key"))
        };
        let failed = |error| failed(error, &unfit);
        let fed = feed(&mut merge, &mut unique, &mut duplicate, &mut builder, file, &failed, over);
        let part = fed.and_then(|()| builder.finish_part(file).map_err(failed));
        match part {
            Err(_) if unfit.as_ref().is_some_and(|unfit| unfit.get()) => self.over.store(true, Relaxed),
            Err(_) if over() => (),
            part => {
                let old =
                    |run: &KeyRun<_, _, Between<W>>| if let KeyRun::Old(old) = run { Some(old.seen) } else { None };
                let seen = merge.runs().iter().find_map(old).unwrap_or_default();
                return part.map(|part| (!over()).then_some(BuiltRange { range, part, seen }));
            }
        }
        Ok(None)
    }
}
