//! The heaps that a process puts its rows into: one for each relation, opened at its first row.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;

use pg_bulk_storage::tuple::{FormBuffer, Stamp};
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::tracer::Tracer;
use crate::error::{Error, Result};
use crate::guc;
use crate::heap::append::Traits;
use crate::heap::append_lock::AppendLock;
use crate::index::index_keys::{Collector, KeyPlan};
use crate::index::shared_sorts::SharedSorts;
use crate::load::direct::executor::Executor;
use crate::load::direct::heap::{Added, Appends, Heap};
use crate::load::direct::origin::{Origin, Traces};
use crate::load::direct::wide::Wide;
use crate::load::obstacle;
use crate::rows::row::Rows;
use crate::server::elsewhere::Elsewhere;
use crate::server::memory_context::MemoryContext;
use crate::server::relation::{KeptRelation, Relation};
use crate::server::result_relation::ResultRelation;
use crate::server::shared_files::SharedFiles;
use crate::server::slot::Row;
use crate::server::statement::current_command;

/// The heaps of a process.
#[derive(Debug)]
pub struct Heaps {
    /// A dry run: rows are made and checked, but not stored.
    pub is_dry: bool,
    /// All relations that rows may go to.
    pub relations: Vec<(pg_sys::Oid, Traits)>,
    /// In the leader: the relations' numbers of blocks before the load.
    pub starts: Vec<u32>,
    pub stamp: Stamp,
    pub plan: KeyPlan,
    /// In a worker: for each relation, the rows that workers appended.
    pub counters: &'static [AtomicU64],
    /// The executor's memory, which outlives the heaps.
    memory: MemoryContext,
    /// The state of the process's rows that collectors switch.
    elsewhere: Elsewhere,
    pub(super) list: Vec<Heap>,
    /// Index in `list` by relation.
    by_oid: HashMap<u32, usize>,
    /// Memory of all heaps' pages.
    bytes: usize,
    pub(super) form: FormBuffer,
    /// The leaf of the last row: its result relation and the index of its heap.
    last_leaf: Option<(ResultRelation, usize)>,
}

impl Heaps {
    /// No heaps yet, for rows that `rows` reads and `executor` routes.
    pub fn new(
        relations: Vec<(pg_sys::Oid, Traits)>,
        stamp: Stamp,
        plan: KeyPlan,
        executor: &Executor,
        rows: &Rows,
    ) -> Heaps {
        Heaps {
            is_dry: false,
            relations,
            starts: Vec::new(),
            stamp,
            plan,
            counters: &[],
            memory: executor.memory(),
            elsewhere: rows.context.elsewhere.clone(),
            list: Vec::new(),
            by_oid: HashMap::new(),
            bytes: 0,
            form: FormBuffer::new(),
            last_leaf: None,
        }
    }

    /// From now on nothing is stored, and the heaps' pages are dropped.
    pub(super) fn forget(&mut self) {
        self.is_dry = true;
        self.list.clear();
        self.last_leaf = None;
    }

    /// Goes on with the rows of another file.
    pub(super) fn switch_to_file(&mut self, tracer: &Tracer) {
        for trail in self.list.iter_mut().filter_map(|heap| heap.trail.as_mut()) {
            trail.switch_file(tracer.traces == Traces::Lines, tracer.origins.file);
        }
    }

    /// The index of the heap of a relation that rows may go to; opens it at its first row. Guarded.
    pub fn open(&mut self, relation: Relation<'static>, tracer: &Tracer) -> Result<usize> {
        if self.is_dry {
            return Ok(0);
        }
        let oid = relation.oid();
        if let Some(&index) = self.by_oid.get(&oid.to_u32()) {
            return Ok(index);
        }
        let index = self.number_of(relation)?;
        let Some(&(_, traits)) = self.relations.get(index) else { return Ok(0) };
        // The executor has just copied the triggers. Only commands of functions can have added triggers since the load
        // began.
        let has_changed = current_command(false) > self.stamp.cid + 1;
        if let Some(obstacle) = has_changed.then(|| obstacle::of_late_leaf(relation)).flatten() {
            let name = relation.name_text();
            let message = format!("a function has changed partition \"{name}\" while rows were being loaded");
            return Err(Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message).detail(obstacle));
        }
        let start = self.starts.get(index).copied().unwrap_or_else(|| relation.pages());
        let written = Appends::new(index, start, self.counters.get(index));
        let mut heap = Heap::new(relation, traits, self.stamp, written, self.memory)?;
        let entered = self.memory.enter();
        heap.collectors = self.plan.collectors(index, relation, &self.elsewhere);
        drop(entered);
        heap.trail = tracer.trail();
        self.bytes += heap.bytes();
        self.by_oid.insert(oid.to_u32(), self.list.len());
        self.list.push(heap);
        Ok(self.list.len() - 1)
    }

    /// The index of the heap of a relation that the leader has locked. Guarded.
    pub(super) fn open_locked(&mut self, oid: pg_sys::Oid, tracer: &Tracer) -> Result<usize> {
        if let Some(&index) = self.by_oid.get(&oid.to_u32()) {
            return Ok(index);
        }
        let kept = KeptRelation::locked(oid);
        // SAFETY: the heap that is made for the relation keeps it open; else nothing closes it.
        let index = self.open(unsafe { Relation::from_raw(kept.get().as_ptr()) }, tracer)?;
        if let Some(heap) = self.list.get_mut(index) {
            heap.own(kept);
        }
        Ok(index)
    }

    /// The index of the heap of a result relation. Guarded.
    pub(super) fn of_leaf(&mut self, leaf: ResultRelation, tracer: &Tracer) -> Result<usize> {
        if let Some((_, index)) = self.last_leaf.filter(|(last, _)| *last == leaf) {
            return Ok(index);
        }
        let index = self.open(leaf.relation(), tracer)?;
        self.last_leaf = Some((leaf, index));
        Ok(index)
    }

    /// The relation's index in the load's list of relations. Guarded.
    pub fn number_of(&self, relation: Relation<'_>) -> Result<usize> {
        self.relations.iter().position(|(known, _)| *known == relation.oid()).ok_or_else(|| {
            let name = relation.name();
            let message = format!("partition \"{}\" was attached while rows were being loaded", name.to_string_lossy());
            Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        })
    }

    /// Puts a row into a heap. Guarded.
    pub(super) fn add(
        &mut self,
        heap: usize,
        row: Row<'_>,
        origin: Origin,
        wide: &mut Wide,
        append_lock: &AppendLock,
    ) -> Result<()> {
        let Some(destination) = self.list.get_mut(heap) else { return Ok(()) };
        let before = destination.bytes();
        if destination.add(row, origin, &mut self.form, append_lock)? == Added::Wide {
            wide.add(destination, row, origin, append_lock)?;
        }
        let after = destination.bytes();
        self.follow_bytes(before, after, append_lock)
    }

    /// Puts a row that was decoded in a block, for the target, into the target's heap. Guarded.
    #[inline]
    pub(super) fn add_decoded(
        &mut self,
        rows: &mut Rows,
        origin: Origin,
        wide: &mut Wide,
        append_lock: &AppendLock,
    ) -> Result<()> {
        let (Some(destination), Some(arrays)) = (self.list.first_mut(), rows.decoded()) else { return Ok(()) };
        let before = destination.bytes();
        // SAFETY: the process has asked for blocks of the target's rows.
        let added =
            unsafe { destination.add_decoded(rows.column_forms(), arrays, origin, &mut self.form, append_lock) }?;
        if added == Added::Wide {
            let relation = destination.relation();
            // SAFETY: the only call for this row, which then contains datums of the target's attributes.
            let row = unsafe {
                rows.make_datums()?;
                rows.decoded().map(|arrays| Row::new(arrays, relation))
            };
            if let Some(row) = row {
                wide.add(destination, row, origin, append_lock)?;
            }
        }
        let after = destination.bytes();
        self.follow_bytes(before, after, append_lock)
    }

    /// Adds a heap's change of memory to the total. Guarded.
    #[inline]
    fn follow_bytes(&mut self, before: usize, after: usize, append_lock: &AppendLock) -> Result<()> {
        if after == before {
            return Ok(());
        }
        self.bytes += after - before;
        self.relieve(append_lock)
    }

    /// Appends the largest batches if all together take too much memory. Half of the allowed memory remains in use, so
    /// that the next row does not exceed it again. Guarded.
    fn relieve(&mut self, append_lock: &AppendLock) -> Result<()> {
        let most = guc::page_bytes(self.list.len());
        if self.bytes <= most {
            return Ok(());
        }
        let mut heaps: Vec<&mut Heap> = self.list.iter_mut().filter(|heap| heap.has_pages()).collect();
        heaps.sort_by_key(|heap| std::cmp::Reverse(heap.bytes()));
        for heap in heaps {
            if self.bytes <= most / 2 {
                break;
            }
            let before = heap.bytes();
            heap.append(append_lock)?;
            heap.shrink();
            self.bytes -= before - heap.bytes();
        }
        Ok(())
    }

    /// Appends all rows that are left. With `alone`, they may be the whole load, and few rows then go through shared
    /// buffers. Guarded.
    pub(super) fn finish(&mut self, alone: bool, append_lock: &AppendLock) -> Result<()> {
        for heap in &mut self.list {
            if alone {
                heap.finish_small(append_lock)?;
            } else {
                heap.finish(append_lock)?;
            }
        }
        Ok(())
    }

    pub(super) fn collectors(&mut self) -> impl Iterator<Item = &mut Collector> {
        self.list.iter_mut().flat_map(|heap| &mut heap.collectors)
    }

    /// Shares the sorts of index tuples with workers. Before the first row that is read in chunks.
    pub fn share_sorts(&mut self, sorts: SharedSorts) {
        self.plan.sorts = Some(sorts);
        for collector in self.list.iter_mut().flat_map(|heap| &mut heap.collectors) {
            collector.share(&self.plan.list, sorts);
        }
    }

    /// Shares the files of key runs with workers. Before the first row that is read in chunks.
    pub fn share_files(&mut self, files: SharedFiles) {
        self.plan.files = Some(files);
        self.collectors().for_each(|collector| {
            let index = collector.index;
            collector.share_files(files, index);
        });
    }

    /// The collectors of this process for a relation's indexes. Guarded.
    pub fn take_collectors(&mut self, index: usize, tracer: &Tracer) -> Result<Vec<Collector>> {
        if !self.plan.has(index) {
            return Ok(Vec::new());
        }
        if let Some(&(oid, _)) = self.relations.get(index) {
            // Perhaps only workers had rows for the relation.
            self.open_locked(oid, tracer)?;
        }
        let mut heaps = self.list.iter_mut().filter(|heap| heap.written.index == index);
        let mut collectors = heaps.next().map(|heap| std::mem::take(&mut heap.collectors)).unwrap_or_default();
        collectors.iter_mut().try_for_each(|collector| collector.sort())?;
        Ok(collectors)
    }

    /// The first block that may contain rows of the load.
    pub fn start_of(&self, index: usize) -> u32 {
        self.starts.get(index).copied().unwrap_or(0)
    }

    fn of(&self, index: usize) -> impl Iterator<Item = &Heap> {
        self.list.iter().filter(move |heap| heap.written.index == index)
    }

    /// Rows of the load in a relation's earlier blocks.
    pub fn elsewhere(&self, index: usize) -> Vec<pg_sys::ItemPointerData> {
        self.of(index).flat_map(|heap| heap.written.elsewhere.iter().copied()).collect()
    }

    /// Rows that this process has put into a relation.
    pub fn rows_of(&self, index: usize) -> u64 {
        self.of(index).map(|heap| heap.written.rows).sum()
    }

    /// Of these, the rows that core has already counted in the statistics.
    pub fn counted_rows_of(&self, index: usize) -> u64 {
        self.of(index).map(|heap| heap.written.counted).sum()
    }

    /// Releases what the heaps hold. Guarded.
    pub fn release(&mut self) {
        self.list.iter_mut().for_each(Heap::release);
    }
}
