//! The leader and workers build an index together, each a range of its keys at a time.
//!
//! ```text
//!   leader:  bounds ─► keys for others ─► file ─┬─► start ─► range 0, next … ─► wait ─► join ─► levels above, metapage
//!   worker:                                     └────────► range, next … ─► parts ─┘
//! ```
//!
//! The workers that made the rows have ended, because a new file is impossible in parallel mode. So the workers here
//! are new. They find the keys in the files that the earlier workers have left. Keys in the leader's memory are in a
//! file of the leader, except for those of its first range.
//!
//! A process writes the leaves of its ranges into the index's file, on blocks of its own. It writes the ranges' borders
//! and the links for the levels above into another file. The index is not read before the leader has joined the ranges.
//!
//! Without old entries, two processes on two processors are no faster than one. The WAL writer uses one of the
//! processors, and the kernel serializes writes to the file. So three processes are needed. Reading and merging old
//! entries takes about as long as writing, so then two processes are enough.

use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};

use pg_bulk_storage::btree::build::{BlockSource, Built, Page, TreePart, join};
use pg_bulk_storage::btree::collect::Entries;
use pg_bulk_storage::btree::entry::{Entry, Tid, Word};
use pg_bulk_storage::btree::key::{KeyShape, Width};
use pg_bulk_storage::btree::merge::Slice;
use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::range::{Bound, BuiltRange, Extents, RangePlan, Ranges, Seen, bounds, extent_size};
use super::{check_built, failed, options};
use crate::error::{Error, OrRaise, Result, out_of_memory};
use crate::guc;
use crate::heap::append::Traits;
use crate::index::index_file::IndexFile;
use crate::index::index_keys::collected::Collected;
use crate::index::index_keys::leaves::{Leaves, entries_of_page};
use crate::index::index_keys::runs::{Runs, block_size};
use crate::index::index_keys::sources::{Help, Sources, file_name};
use crate::index::index_keys::{KeyForm, shape};
use crate::server::compat;
use crate::server::points::point;
use crate::server::relation::{OpenRelation, Relation};
use crate::server::shared_files::SharedFiles;
use crate::server::team::{Array, Image, Portions, Shareable, SharedRef, Task, Team, Worker};

/// Entries that justify starting a worker, whose start takes the time of half as many entries in the leader. Tests with
/// small chunks use the smaller number.
const WORTH: u64 = 400_000;
const WORTH_SMALL: u64 = 64;
/// Ranges for each process, and the least number of entries of a range. A worker starts late, and the others should not
/// wait long for its last range.
const RANGES: usize = 4;
const LEAST_RANGE: u64 = 50_000;
const LEAST_RANGE_SMALL: u64 = 16_000;
/// Workers that are needed, without and with a merge.
pub const WORTH_WORKERS: usize = 2;
const WORTH_WORKERS_TO_MERGE: usize = 1;

/// Result of building together.
pub enum Together {
    Built(Built),
    /// No worker was started, or none is worth its start. The file is unchanged.
    NotWorth,
    /// The leader must decide on something. The content of the file is not usable.
    GivenUp,
}

/// The build of an index by ranges.
struct BuildTask {
    relation: pg_sys::Oid,
    index: pg_sys::Oid,
    /// The index's new file, with properties that only the leader knows.
    file: compat::Locator,
    traits: Traits,
    plan: RangePlan,
    /// The files of the keys, and the number of processes that have left keys, with the leader.
    keys: u32,
    sources: usize,
    bounds: Array<Bound>,
    ranges: Portions,
    /// The next extent, and the size of each.
    extent: AtomicU32,
    extent_size: u32,
    /// A process has given up.
    over: AtomicBool,
}

// SAFETY: plain data.
unsafe impl Shareable for Bound {}
// SAFETY: plain data.
unsafe impl Shareable for BuildTask {}
// SAFETY: the worker is below.
unsafe impl Task for BuildTask {
    const WORKER: &'static CStr = c"pg_bulk_index_worker";
}

/// See [`super::BuildTogether`].
pub(super) fn build<W: Word>(
    relation: Relation<'_>,
    index: Relation<'_>,
    keys: &mut Collected<Entry<W>>,
    others: &[Runs],
    old: Option<Leaves>,
    sources: Sources<'_>,
) -> Result<Together> {
    let (Some(help), Some(files)) = (sources.help, sources.files) else { return Ok(Together::NotWorth) };
    let (oid, Some(form)) = (index.oid(), index.index()) else { return Ok(Together::NotWorth) };
    let entries = old.map_or(0.0, |old| old.entries(keys.shape()));
    let (worth, least) = if guc::chunks_are_small() { (WORTH_SMALL, LEAST_RANGE_SMALL) } else { (WORTH, LEAST_RANGE) };
    let (total, processes) = (keys.total.saturating_add(entries as u64), sources.builders + 1);
    let worth_workers = if old.is_some() { WORTH_WORKERS_TO_MERGE } else { WORTH_WORKERS };
    // Packed keys can only be read from their start.
    let is_packed = || std::iter::once(&keys.runs).chain(others).any(Runs::are_packed);
    if total < worth || sources.builders < worth_workers || !keys.runs.are_shared() || is_packed() {
        return Ok(Together::NotWorth);
    }
    let runs: Vec<&Runs> = std::iter::once(&keys.runs).chain(others).collect();
    let found = old.as_ref().map(|old| (old, entries));
    let ranges = (processes * RANGES).min(usize::try_from(total / least).unwrap_or(usize::MAX)).max(processes);
    let bounds = bounds(keys.shape(), &keys.store.list, &runs, found, ranges)?;
    let Some(first) = bounds.first().map(Bound::key::<W>) else { return Ok(Together::NotWorth) };
    let own = keys.store.list.partition_point(|entry| entry.key() < first);
    let known = keys.lend(own, &files, oid)?;
    let pages = (keys.total as f64 + entries) / entries_of_page(keys.shape());
    let mut image = Image::new();
    let task = BuildTask {
        relation: relation.oid(),
        index: oid,
        file: compat::locator(index),
        traits: Traits::of(index),
        plan: RangePlan {
            options: options(index),
            unique: form.is_unique.then_some(form.nulls_equal),
            block: block_size(std::iter::once(&keys.runs).chain(others), keys.memory),
            old,
            // Only the leader knows the rows in `elsewhere`.
            start: if sources.elsewhere.is_empty() { sources.start } else { 0 },
        },
        keys: files.handle(),
        sources: sources.workers + 1,
        bounds: image.array(bounds.iter().copied()),
        ranges: Portions::new(bounds.len() + 1),
        extent: AtomicU32::new(0),
        extent_size: extent_size(pages as u64, processes),
        over: AtomicBool::new(false),
    };
    let mut team = Team::new(image, bounds.len().min(sources.builders), task);
    // The first range is the leader's.
    let first = team.task().ranges.take();
    let launched = team.launch();
    let task = team.task();
    point!("index.together");
    let mut file = IndexFile::part(index, task.traits)?;
    // SAFETY: the task stays until the workers are gone, and this process takes no block later.
    let blocks = Extents::new(unsafe { SharedRef::new(&task.extent) }, task.extent_size);
    let work = Ranges {
        plan: task.plan,
        shape: keys.shape(),
        runs: std::iter::once(&keys.runs).chain(others).collect(),
        memory: keys.store.list.get(..own).unwrap_or_default(),
        bounds: &bounds,
        over: &task.over,
    };
    let mut built_ranges = build_ranges(&work, first, &task.ranges, &mut file, &blocks)?;
    drop(work);
    let unused = blocks.left();
    drop(blocks);
    let cpu = team.wait();
    point!("index.joined");
    help.set(Help { workers: launched, cpu });
    let task = team.task();
    let (given_up, options, size) = (task.over.load(Relaxed), task.plan.options, task.extent_size);
    // The upper levels use blocks that are left of earlier extents, then a new extent.
    let extent = Box::new(AtomicU32::new(task.extent.load(Relaxed)));
    team.finish();
    let mut left = Left { ranges: vec![unused], others: Extents::new(extent, size) };
    for worker in 1..=launched {
        left.ranges.push(read_built(&files, &parts_name(oid, worker), &mut built_ranges)?);
    }
    built_ranges.sort_by_key(|built_range| built_range.range);
    if !given_up && !are_all(&built_ranges, bounds.len() + 1) {
        return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, "a part of an index is missing"));
    }
    // If two ranges do not meet in the old index, it is not in order. The leader then reads all of it alone and finds
    // the error.
    if given_up || !built_ranges.windows(2).all(|pair| matches!(pair, [a, b] if a.seen.next == b.seen.first)) {
        // The keys written for the workers are all still in memory.
        keys.runs.list.truncate(known);
        help.set(Help { workers: 0, ..help.get() });
        return Ok(Together::GivenUp);
    }
    let new: u64 =
        built_ranges.iter().map(|built_range| built_range.part.entries.saturating_sub(built_range.seen.count)).sum();
    check_built(new, keys.total)?;
    keys.store = Entries::default();
    let parts = built_ranges.into_iter().map(|built_range| built_range.part).collect();
    left.ranges.sort_by_key(|range| range.start);
    let left = Remains(Rc::new(RefCell::new(left)));
    let built = join(keys.shape(), options, parts, Box::new(left.clone()), &mut file);
    let built = built.map_err(|error| failed(error, &None))?;
    for range in left.unused(built.pages) {
        file.blank(range)?;
    }
    file.finish()?;
    Ok(Together::Built(built))
}

/// Blocks that the processes have not used, and then those of a further extent.
#[derive(Debug)]
struct Left {
    ranges: Vec<Range<u32>>,
    others: Extents<Box<AtomicU32>>,
}

#[derive(Debug, Clone)]
struct Remains(Rc<RefCell<Left>>);

impl Remains {
    /// Unused blocks before the end of the file.
    fn unused(&self, pages: u32) -> Vec<Range<u32>> {
        let Ok(left) = self.0.try_borrow() else { return Vec::new() };
        let all = left.ranges.iter().cloned().chain(std::iter::once(left.others.left()));
        all.map(|range| range.start..range.end.min(pages)).filter(|range| !range.is_empty()).collect()
    }
}

impl BlockSource for Remains {
    fn next(&mut self) -> Option<u32> {
        let mut left = self.0.try_borrow_mut().ok()?;
        match left.ranges.iter_mut().find_map(Iterator::next) {
            None => left.others.next(),
            block => block,
        }
    }
}

/// Builds ranges, until none is left or one was given up. Guarded, and interruptible.
fn build_ranges<W: Word>(
    work: &Ranges<'_, W>,
    first: Option<usize>,
    ranges: &Portions,
    file: &mut IndexFile<'_>,
    blocks: &Extents<SharedRef<AtomicU32>>,
) -> Result<Vec<BuiltRange<W>>> {
    let mut built_ranges = Vec::new();
    let mut next = first;
    while let Some(range) = next {
        let Some(built_range) = work.build(range, file, blocks)? else { break };
        built_ranges.push(built_range);
        next = ranges.take();
    }
    Ok(built_ranges)
}

/// Name of the file in which a worker leaves its ranges.
fn parts_name(index: pg_sys::Oid, worker: usize) -> CString {
    CString::new(format!("{}.part.{worker}", index.to_u32())).unwrap_or_default()
}

impl<W: Word> Collected<Entry<W>> {
    /// Lets workers read this process's runs, and its entries in memory from `from` on.
    ///
    /// Returns the number of runs that are not also in memory. Guarded.
    fn lend(&mut self, from: usize, files: &SharedFiles, index: pg_sys::Oid) -> Result<usize> {
        let known = self.runs.list.len();
        let entries = self.store.list.get(from..).unwrap_or_default();
        if !entries.is_empty() {
            self.runs.write::<Entry<W>>(Slice::new(entries), entries.len(), size_of_val(entries))?;
        }
        self.runs.export();
        self.runs = Runs::open(files, &file_name(index, 0))?.ok_or_else(damaged)?;
        Ok(known)
    }
}

/// Entry point of a worker of [`build`], called by ParallelWorkerMain in a transaction with the leader's xid.
///
/// # Safety
/// The arguments are those of a parallel worker's entry point.
#[unsafe(no_mangle)]
#[pg_guard]
pub unsafe extern "C-unwind" fn pg_bulk_index_worker(segment: *mut pg_sys::dsm_segment, toc: *mut pg_sys::shm_toc) {
    // SAFETY: the server passes the arguments.
    let team = unsafe { Worker::<BuildTask>::join(segment, toc) }.or_raise();
    let [relation, index] = [team.task().relation, team.task().index]
        .map(|oid| OpenRelation::open(oid, pg_sys::AccessShareLock).releasing());
    match shape(relation.get(), index.get()).map(|shape| shape.keys) {
        Some(KeyForm::Words(keys)) => match keys.width() {
            Width::Narrow => build_in_worker::<u64>(index.get(), &team, &keys),
            Width::Wide => build_in_worker::<u128>(index.get(), &team, &keys),
        },
        _ => Err(damaged()),
    }
    .or_raise();
    drop((index, relation));
    team.end();
}

/// Builds ranges of the task's index in a worker. Guarded, and interruptible.
fn build_in_worker<W: Word>(index: Relation<'_>, team: &Worker<BuildTask>, shape: &KeyShape) -> Result<()> {
    let task = team.task();
    if !compat::is_same_file(compat::locator(index), task.file) {
        return Err(damaged());
    }
    let files = SharedFiles::attach(task.keys)?;
    let mut runs = Vec::with_capacity(task.sources);
    for source in 0..task.sources {
        let name = file_name(task.index, source);
        runs.push(Runs::open(&files, &name)?.ok_or_else(damaged)?);
    }
    let mut file = IndexFile::part(index, task.traits)?;
    let blocks = Extents::new(SharedRef::from(&task.extent), task.extent_size);
    let bounds = team.slice(task.bounds);
    let work =
        Ranges::<W> { plan: task.plan, shape, runs: runs.iter().collect(), memory: &[], bounds, over: &task.over };
    point!("index.helper");
    let built_ranges = build_ranges(&work, task.ranges.take(), &task.ranges, &mut file, &blocks)?;
    drop(work);
    file.finish()?;
    runs.iter_mut().for_each(Runs::close);
    write_built(&files, &parts_name(task.index, team.number), blocks.left(), &built_ranges);
    // SAFETY: the build is done.
    unsafe { files.release() };
    Ok(())
}

fn damaged() -> Error {
    Error::new(Code::ERRCODE_INTERNAL_ERROR, "could not read the shared memory of the leader of the load")
}

/// Are these all ranges, in order?
fn are_all<W: Word>(built_ranges: &[BuiltRange<W>], count: usize) -> bool {
    built_ranges.len() == count && built_ranges.iter().enumerate().all(|(i, built_range)| i == built_range.range)
}

/// An optional entry as numbers.
fn entry_numbers<W: Word>(entry: Option<Entry<W>>) -> [u64; 4] {
    entry.map_or([0; 4], |entry| {
        let key = entry.key().to_u128();
        [1, key as u64, (key >> 64) as u64, entry.tid().to_u64()]
    })
}

fn entry_of<W: Word>([is_there, low, high, tid]: [u64; 4]) -> Option<Entry<W>> {
    let key = W::from_u128(u128::from(high) << 64 | u128::from(low));
    (is_there != 0).then(|| Entry::new(key, Tid::new((tid >> 16) as u32, tid as u16)))
}

/// Writes the built ranges to a file: the unused blocks, then for each range its number, entries, [`Seen`], borders and
/// links. Guarded.
fn write_built<W: Word>(files: &SharedFiles, name: &CString, left: Range<u32>, built_ranges: &[BuiltRange<W>]) {
    let Some(file) = files.make(name) else { return };
    let write = |bytes: &[u8]| file.write(bytes);
    write(&left.start.to_ne_bytes());
    write(&left.end.to_ne_bytes());
    for BuiltRange { range, part, seen } in built_ranges {
        let pages = [&part.first, &part.last];
        let [first, last] = pages.map(|page| u64::from(page.is_some()));
        let numbers = [*range as u64, part.entries, part.links.len() as u64, first, last, seen.count];
        let entries = [entry_numbers(seen.first), entry_numbers(seen.next)];
        for number in numbers.iter().chain(entries.as_flattened()) {
            write(&number.to_ne_bytes());
        }
        pages.into_iter().flatten().for_each(|page| write(&page.0));
        write(&part.links);
    }
    file.export();
}

/// Reads the ranges of a worker. Returns its unused blocks. Guarded.
fn read_built<W: Word>(
    files: &SharedFiles,
    name: &CString,
    built_ranges: &mut Vec<BuiltRange<W>>,
) -> Result<Range<u32>> {
    let file = files.open(name).ok_or_else(damaged)?;
    let whole = |bytes: &mut [u8]| if file.fill(bytes) { Ok(()) } else { Err(damaged()) };
    let mut left = [[0; 4]; 2];
    whole(left.as_flattened_mut())?;
    loop {
        let (mut numbers, mut entries) = ([[0; 8]; 6], [[[0; 8]; 4]; 2]);
        match file.read(numbers.as_flattened_mut()) {
            0 => break,
            len if len == size_of_val(&numbers) => (),
            _ => return Err(damaged()),
        }
        whole(entries.as_flattened_mut().as_flattened_mut())?;
        let [range, count, links, first, last, old] = numbers.map(u64::from_ne_bytes);
        let [seen_first, next] = entries.map(|numbers| entry_of(numbers.map(u64::from_ne_bytes)));
        let page = |there| -> Result<Option<Box<Page>>> {
            if there == 0 {
                return Ok(None);
            }
            let mut page = Box::new(Page([0; _]));
            whole(&mut page.0)?;
            Ok(Some(page))
        };
        let (first, last) = (page(first)?, page(last)?);
        let size = usize::try_from(links).map_err(|_| damaged())?;
        let mut links = Vec::new();
        links.try_reserve_exact(size).map_err(|_| out_of_memory())?;
        links.resize(size, 0);
        whole(&mut links)?;
        let range = usize::try_from(range).map_err(|_| damaged())?;
        let seen = Seen { count: old, first: seen_first, next };
        built_ranges.push(BuiltRange { range, part: TreePart { first, last, entries: count, links }, seen });
    }
    file.close();
    let [start, end] = left.map(u32::from_ne_bytes);
    Ok(start..end)
}
