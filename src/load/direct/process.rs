//! One process of a load: makes rows from records, and puts them into heaps.
//!
//! This module owns the state; the loop over rows is [`row_loop`](super::row_loop). [`advance`] makes a row, [`store`]
//! puts it into its heap.

mod advance;
mod at_once;
mod file_switch;
pub mod project;
mod reject;
mod store;
mod trace;

use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::atomic::AtomicU64;

use pg_bulk_format::reader::RecordStart;
use pg_bulk_format::tuple::{FormBuffer, Stamp};
use pgrx::{PgSqlErrorCode as Code, pg_sys};

pub use self::at_once::InBlock;
pub use self::file_switch::File;
use super::defaults::Defaults;
use super::executor::{Executor, set_up_again};
use super::heap::Heap;
use super::index_keys::{Collector, KeyPlan};
use super::join::Join;
use super::key_check::KeyCheck;
use super::origin::{Origins, Traces, Trail};
use super::rejects::{Pins, Rejects};
use super::shared::Shared;
use super::wide::Wide;
use crate::error::{Error, Result};
use crate::load::obstacle;
use crate::load::phase::Phases;
use crate::load::query::Query;
use crate::pg::append::Traits;
use crate::pg::chunks::Chunks;
use crate::pg::compat;
use crate::pg::file_figures::ByFile;
use crate::pg::progress::Figures;
use crate::pg::row::Rows;
use crate::pg::row_violation::RowViolation;
use crate::pg::server_text::from_server;
use crate::pg::shared_files::SharedFiles;
use crate::pg::shared_sorts::SharedSorts;
use crate::pg::soft::Tolerance;
use crate::pg::stages::Stages;
use crate::pg::unguarded::Opaque;
use crate::program::projection::Projection;

/// One process of a load.
#[derive(Debug)]
pub struct Process {
    pub rows: Rows,
    pub chunks: Chunks,
    pub shared: *const Shared,
    /// Number of this process; 0 is the leader.
    pub number: usize,
    /// In a worker, the target as the worker opened it; else null.
    pub target: pg_sys::Relation,
    pub executor: Executor,
    pub defaults: Defaults,
    pub tolerance: Tolerance,
    pub rejects: Rejects,
    pub pins: Pins,
    /// The memory context in which [`run`](super::row_loop::run) was called.
    pub memory: pg_sys::MemoryContext,
    /// The error filter of [`run`](super::row_loop::run) if rejects are kept; else null.
    pub violation: *mut RowViolation,
    /// A dry run: rows are made and checked, but not stored.
    pub is_dry: bool,
    /// In a dry run, the check of keys; null if no key needs a check.
    pub keys: *mut KeyCheck,
    /// Records that are still to be skipped.
    pub skip_left: u64,
    /// Records to read before [`run`](super::row_loop::run) returns.
    pub records_left: u64,
    /// Rows that may still be loaded.
    limit: u64,
    /// Attributes that must not be NULL, counted from 0.
    pub not_null: Vec<usize>,
    /// Those of `not_null` that no field of the file sets.
    unset_not_null: Vec<usize>,
    /// The columns of the file that are converted when a record is read: all, unless a condition is evaluated first.
    pub wanted: Vec<usize>,
    /// The projection of the file's rows, if they are not stored unchanged.
    pub projection: Option<Projection>,
    /// The plan that rows of the file go through, if they are joined.
    pub join: Option<Join>,
    /// The query that makes the rows, if there is no file; else null.
    pub query: *mut Query,
    /// In the leader: the step before the second record, done once. [`Process::records_left`] then ends the first
    /// record.
    pub beginning: Option<Beginning>,
    /// The context for the values of a record; with a join, one record may have many rows.
    pub fields: *mut pg_sys::ExprContext,
    pub heaps: Vec<Heap>,
    /// Index in `heaps` by relation.
    by_oid: HashMap<u32, usize>,
    /// Memory of all heaps' pages.
    page_bytes: usize,
    /// Traits of all relations that rows may go to.
    pub traits: Vec<(pg_sys::Oid, Traits)>,
    /// In the leader: the relations' numbers of blocks before the load.
    starts: Vec<u32>,
    pub stamp: Stamp,
    pub wide: Wide,
    /// In a worker: for each relation, the rows that workers appended.
    counters: *const AtomicU64,
    pub plan: KeyPlan,
    form: FormBuffer,
    /// The leaf of the last row: its result relation and the index of its heap.
    pub last_leaf: (*mut pg_sys::ResultRelInfo, usize),
    pub filtered: u64,
    /// Rows since the last check for interrupts.
    round: u32,
    /// Rows not yet reported, and bytes already reported.
    unreported_rows: u64,
    reported: u64,
    /// In the leader: the progress that other sessions see. Null in a worker.
    pub phases: *mut Phases,
    /// Progress figures of the files before this one.
    pub before: Figures,
    /// How rows are traced to their records.
    pub traces: Traces,
    /// Grows at each chunk, so that the numbers of records before and after a chunk of another process are not
    /// consecutive.
    gaps: u64,
    /// New positions from which the file can be read again: byte and line.
    anchors: Vec<(u64, u64)>,
    /// Byte of the last of these.
    last_anchor: u64,
    /// In the leader: the tuple positions of all processes' rows.
    pub origins: Origins,
    /// Time of the stages, without the stages of its heaps.
    pub stages: Stages,
    /// Counts for each file, and the file of the rows counted last.
    pub by_file: ByFile,
    file: usize,
}

/// A step of the leader after the first record.
#[derive(Debug, Clone, Copy)]
pub struct Beginning {
    pub begin: unsafe extern "C-unwind" fn(Opaque),
    pub leader: Opaque,
}

/// Result of a step: no further row. A number, so that it crosses the guard unchanged.
pub const END: i32 = 0;
/// Result of a step: a row is in the slot's arrays, and needs steps outside of the guard.
pub const ROW: i32 = 1;
/// Result of a step: as [`ROW`], but fields are missing. The fields that exist are converted, then the error is raised.
pub const SHORT: i32 = 2;

/// The parts of a process.
#[derive(Debug)]
pub struct ProcessParts {
    pub projection: Option<Projection>,
    pub join: Option<Join>,
    pub rows: Rows,
    pub chunks: Chunks,
    pub shared: *const Shared,
    pub number: usize,
    pub executor: Executor,
    pub defaults: Defaults,
    pub tolerance: Tolerance,
    pub rejects: Rejects,
    pub is_dry: bool,
    pub skip: u64,
    pub limit: u64,
    pub traits: Vec<(pg_sys::Oid, Traits)>,
    pub starts: Vec<u32>,
    pub stamp: Stamp,
    pub wide: Wide,
    pub counters: *const AtomicU64,
    pub plan: KeyPlan,
    pub traces: Traces,
    pub by_file: ByFile,
}

impl Process {
    /// Makes a process. Guarded.
    pub fn new(parts: ProcessParts) -> Result<Process> {
        let ProcessParts { rows, chunks, shared, number, executor, defaults, tolerance, .. } = parts;
        let ProcessParts {
            projection,
            join,
            rejects,
            is_dry,
            skip,
            limit,
            traits,
            starts,
            stamp,
            wide,
            counters,
            plan,
            traces,
            by_file,
            ..
        } = parts;
        let wanted = projection.as_ref().map_or_else(|| rows.all(), |projection| projection.first.clone());
        let relations = traits.len();
        let fields = join.as_ref().map_or(executor.econtext, |join| join.joined().fields());
        let mut process = Process {
            rows,
            chunks,
            shared,
            number,
            target: std::ptr::null_mut(),
            executor,
            defaults,
            tolerance,
            rejects,
            pins: Pins::default(),
            memory: std::ptr::null_mut(),
            violation: std::ptr::null_mut(),
            is_dry,
            keys: std::ptr::null_mut(),
            skip_left: skip,
            records_left: u64::MAX,
            limit,
            not_null: Vec::new(),
            unset_not_null: Vec::new(),
            wanted,
            projection,
            join,
            query: std::ptr::null_mut(),
            beginning: None,
            fields,
            heaps: Vec::new(),
            by_oid: HashMap::new(),
            page_bytes: 0,
            traits,
            starts,
            stamp,
            wide,
            counters,
            plan,
            form: FormBuffer::new(),
            last_leaf: (std::ptr::null_mut(), 0),
            filtered: 0,
            round: 0,
            unreported_rows: 0,
            reported: 0,
            phases: std::ptr::null_mut(),
            before: Figures::default(),
            traces,
            gaps: 0,
            anchors: Vec::new(),
            last_anchor: 0,
            origins: Origins::new(relations),
            stages: Stages::new(),
            by_file,
            file: 0,
        };
        if executor.routing.is_null() {
            // SAFETY: the executor's own structures.
            let relation = unsafe { (*executor.target).ri_RelationDesc };
            process.open_heap(relation)?;
            process.not_null = not_null(relation);
        }
        process.adapt();
        Ok(process)
    }

    pub fn shared(&self) -> &Shared {
        // SAFETY: the shared state is valid as long as the process works.
        unsafe { &*self.shared }
    }

    fn heap_of(&self, oid: pg_sys::Oid) -> Option<usize> {
        self.by_oid.get(&oid.to_u32()).copied()
    }

    /// Prepares to read the file in order from a position in a chunk on, storing nothing.
    ///
    /// An error may have stopped any expression in the middle, so all expressions are made anew
    /// ([`expression`](crate::pg::expression)). `inserted` is as for the executor. Guarded.
    pub fn look_again(&mut self, ticket: u64, place: RecordStart, inserted: &[i16]) -> Result<()> {
        // SAFETY: the executor's own memory, which stays.
        let old = unsafe { pg_sys::MemoryContextSwitchTo((*self.executor.estate).es_query_cxt) };
        self.pins.forget();
        self.rows.renew_columns();
        match (&self.join, &mut self.projection) {
            // Only the scan is run again: it finds the bad records, not the plan above it.
            (Some(_), Some(projection)) => projection.forget_conditions(),
            (_, projection) => {
                self.executor = set_up_again(&self.executor, inserted);
                self.fields = self.executor.econtext;
                self.last_leaf = (std::ptr::null_mut(), 0);
                if let Some(projection) = projection {
                    projection.renew();
                }
                self.defaults.renew();
            }
        }
        // SAFETY: the context that was current before.
        unsafe { pg_sys::MemoryContextSwitchTo(old) };
        let chunks = std::mem::replace(&mut self.chunks, Chunks::InOrder);
        self.records_left = u64::MAX;
        self.is_dry = true;
        self.keys = std::ptr::null_mut();
        self.rejects.forget_spool();
        self.heaps.clear();
        self.wide.set_queues(Vec::new());
        if let Chunks::Listed(listed) = chunks {
            self.rows.switch_to_file(listed.chunks().file_of(ticket))?;
            if place.offset == 0 {
                return Ok(());
            }
            self.rows.take_names()?;
        }
        self.rows.stream_mut().resume(place)
    }

    /// Opens the heap of a relation that rows may go to. Guarded.
    pub fn open_heap(&mut self, relation: pg_sys::Relation) -> Result<usize> {
        if self.is_dry {
            return Ok(0);
        }
        // SAFETY: an open relation.
        let oid = unsafe { (*relation).rd_id };
        if let Some(index) = self.heap_of(oid) {
            return Ok(index);
        }
        let index = self.number_of_relation(relation)?;
        let Some(&(_, traits)) = self.traits.get(index) else { return Ok(0) };
        // The executor has just copied the triggers. Only commands of functions can have added triggers since the load
        // began.
        // SAFETY: a guarded call; an open relation that is locked.
        let late = unsafe {
            (pg_sys::GetCurrentCommandId(false) > self.stamp.cid + 1)
                .then(|| obstacle::of_late_leaf(relation))
                .flatten()
        };
        if let Some(obstacle) = late {
            // SAFETY: the name of an open relation.
            let name = from_server(unsafe { CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr()) });
            let message = format!("a function has changed partition \"{name}\" while rows were being loaded");
            return Err(Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message).detail(obstacle));
        }
        let mut heap = Heap::new(relation, traits, self.stamp)?;
        heap.index = index;
        if let Some(&start) = self.starts.get(index) {
            heap.start = start;
        }
        if !self.counters.is_null() {
            // SAFETY: the array has a counter for each of the traits.
            heap.counter = unsafe { self.counters.add(index) };
        }
        heap.collectors = self.collectors(index, relation);
        if self.traces != Traces::Nothing {
            heap.trail = Some(Trail::new(self.traces == Traces::Lines, self.origins.file));
        }
        self.page_bytes += heap.bytes();
        self.by_oid.insert(oid.to_u32(), self.heaps.len());
        self.heaps.push(heap);
        Ok(self.heaps.len() - 1)
    }

    /// The relation's index in the load's list of relations. Guarded.
    pub fn number_of_relation(&self, relation: pg_sys::Relation) -> Result<usize> {
        // SAFETY: an open relation.
        let (oid, name) = unsafe { ((*relation).rd_id, CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr())) };
        self.traits.iter().position(|(known, _)| *known == oid).ok_or_else(|| {
            let message = format!("partition \"{}\" was attached while rows were being loaded", name.to_string_lossy());
            Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        })
    }

    /// Makes the collectors of keys for a relation's indexes. Guarded.
    fn collectors(&self, index: usize, relation: pg_sys::Relation) -> Vec<Collector> {
        let shared = self.plan.files.map(|files| (files, self.plan.earlier_workers + self.number));
        // SAFETY: guarded calls; the executor's memory outlives the process, the relation is open.
        unsafe {
            let old = pg_sys::MemoryContextSwitchTo((*self.executor.estate).es_query_cxt);
            let collectors = self.plan.collectors(index, relation, shared, &self.rows.elsewhere);
            pg_sys::MemoryContextSwitchTo(old);
            collectors
        }
    }

    /// Shares the sorts of index tuples with workers. Before the first row that is read in chunks.
    pub fn share_sorts(&mut self, sorts: SharedSorts) {
        self.plan.sorts = Some(sorts);
        for collector in self.heaps.iter_mut().flat_map(|heap| &mut heap.collectors) {
            collector.share(&self.plan.list, sorts);
        }
    }

    /// Shares the files of key runs with workers. Before the first row that is read in chunks.
    pub fn share_files(&mut self, files: SharedFiles) {
        self.plan.files = Some(files);
        self.heaps.iter_mut().flat_map(|heap| &mut heap.collectors).for_each(|collector| collector.share_files(files));
    }

    /// The collectors of this process for a relation's indexes. Guarded.
    pub fn take_collectors(&mut self, index: usize) -> Result<Vec<Collector>> {
        if !self.plan.has(index) {
            return Ok(Vec::new());
        }
        if !self.heaps.iter().any(|heap| heap.index == index)
            && let Some(&(oid, _)) = self.traits.get(index)
        {
            // Only workers had rows for the relation.
            // SAFETY: a relation that the leader has locked.
            let relation = unsafe { pg_sys::table_open(oid, pg_sys::NoLock.cast_signed()) };
            let number = self.open_heap(relation)?;
            if let Some(heap) = self.heaps.get_mut(number) {
                heap.is_owner = true;
            }
        }
        let mut heaps = self.heaps.iter_mut().filter(|heap| heap.index == index);
        let mut collectors = heaps.next().map(|heap| std::mem::take(&mut heap.collectors)).unwrap_or_default();
        collectors.iter_mut().for_each(Collector::sort);
        Ok(collectors)
    }

    /// The first block that may contain rows of the load.
    pub fn start_of(&self, index: usize) -> u32 {
        self.starts.get(index).copied().unwrap_or(0)
    }

    /// Rows of the load in a relation's earlier blocks.
    pub fn elsewhere(&self, index: usize) -> Vec<pg_sys::ItemPointerData> {
        self.heaps.iter().filter(|heap| heap.index == index).flat_map(|heap| heap.elsewhere.iter().copied()).collect()
    }

    /// Rows that this process has put into a relation.
    pub fn rows_of(&self, index: usize) -> u64 {
        self.heaps.iter().filter(|heap| heap.index == index).map(|heap| heap.rows).sum()
    }

    /// Of these, the rows that core has already counted in the statistics.
    pub fn counted_rows_of(&self, index: usize) -> u64 {
        self.heaps.iter().filter(|heap| heap.index == index).map(|heap| heap.counted).sum()
    }

    /// Releases what the heaps hold. Guarded.
    pub fn release(&mut self) {
        self.heaps.iter_mut().for_each(Heap::release);
    }
}

/// Attributes that must not be NULL, without virtual ones, which ExecConstraints checks.
fn not_null(relation: pg_sys::Relation) -> Vec<usize> {
    // SAFETY: an open relation; its descriptor has natts attributes.
    unsafe {
        let descriptor = (*relation).rd_att;
        let natts = usize::try_from((*descriptor).natts).unwrap_or(0);
        let attribute = |i| &*compat::attribute(descriptor, i);
        (0..natts).filter(|&i| attribute(i).attnotnull && !compat::is_virtual(attribute(i))).collect()
    }
}
